"""The benchmarks of Spark run, and find the matches that they must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import missing

ROOT = Path(__file__).parents[1]
#: In one process, and so in one JVM: starting a second one takes as long as the smallest benchmark.
BOTH = "from benchmarks import spark, spark_scale; spark.main(['--smoke']); spark_scale.main(['--smoke'])"


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_spark_finds_the_matches_that_it_must() -> None:
    done = subprocess.run([sys.executable, "-c", BOTH], cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("| way | ") == done.stdout.count("Every formula is right within a fifth.") == 1
