"""The examples of docs/spark.md run in the tests' session, and print what the page says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tests.test_readme import ROOT, run_page


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory for Python and for the JVM, which has one of its own."""
    hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration()).getRawFileSystem()
    local = hadoop.FileSystem.get(spark.sparkContext._jsc.hadoopConfiguration())
    before = os.getcwd()
    monkeypatch.chdir(tmp_path)
    for each in (files, local):
        each.setWorkingDirectory(hadoop.Path(str(tmp_path)))
    yield tmp_path
    for each in (files, local):
        each.setWorkingDirectory(hadoop.Path(before))


def test_the_examples_of_the_guide_run(place: Path, capsys: pytest.CaptureFixture[str], backend: str) -> None:
    assert run_page((ROOT / "docs" / "spark.md").read_text(), place, capsys, "spark.md") >= 5
