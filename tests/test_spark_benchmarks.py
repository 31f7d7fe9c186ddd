"""The benchmarks of Spark run, and find the matches that they must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import missing

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def smoke(benchmark: str) -> str:
    """Run a benchmark on a little data, and return what it prints."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_spark_finds_the_matches_that_it_must() -> None:
    assert smoke("spark").count("| way | ") == 1


@pytest.mark.integration
def test_spark_grows_as_the_formulas_of_the_guide_say() -> None:
    assert smoke("spark_scale").count("Every formula is right within a fifth.") == 1
