"""Delta and Iceberg for real, on each PySpark that has them: lakes.py, in a process for each."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import streamer
from tests.spark.conftest import missing
from tests.tools.fetched import ROOT, NotThere
from tests.tools.lakes import VERSIONS, environ
from tests.tools.spark_versions import IGNORED

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("version", VERSIONS)
def test_tables_of_delta_and_iceberg_match_as_events_do(version: str) -> None:
    if (reason := missing()) is not None:
        pytest.fail(reason)
    try:
        variables = environ(version)
    except NotThere as error:
        pytest.fail(str(error))
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "", "tests/spark/lakes.py"]
    for ignored in IGNORED:
        command += ["-W", ignored]
    environment = {**variables, "STREAMER_BACKEND": streamer.BACKEND}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-2_000:]
    assert re.search(r"\d+ passed", ran.stdout)
    assert "skipped" not in ran.stdout


def test_the_guide_names_what_is_tested() -> None:
    guide = (ROOT / "docs" / "spark.md").read_text()
    for delta, iceberg in VERSIONS.values():
        assert f"io.delta:{':'.join(delta)}" in guide
        assert f"org.apache.iceberg:{':'.join(iceberg)}" in guide
