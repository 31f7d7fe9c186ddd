"""The examples of docs/spark.md run in the tests' session, those of the tutorial as it says, and print what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tests.test_readme import ROOT, run_page

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

#: Files that the page names; the JVM has a working directory of its own, which is no place for a test's.
NAMES = ("subscriptions", "incoming", "matches", "checkpoint", "by-batch", "another", "shop", "tables")


def test_the_examples_of_the_guide_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    for name in NAMES:
        for end in ('"', "/"):
            page = page.replace(f'"{name}{end}', f'"{tmp_path}/{name}{end}')
    assert run_page(page, tmp_path, capsys, "spark.md") >= 5


def test_the_tutorial_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "tutorials" / "spark.md").read_text()
    assert run_page(page, tmp_path, capsys, "tutorials/spark.md") == 5
