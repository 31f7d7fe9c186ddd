"""S3 and HDFS for real: stores.py, in a process for each, since a session has its jars from its beginning."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streamer
from tests.spark.conftest import missing
from tests.tools.fetched import ROOT, NotThere
from tests.tools.stores import STORES

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", STORES)
def test_all_of_a_job_may_lie_in_a_store(kind: str, tmp_path: Path) -> None:
    if (reason := missing()) is not None:
        pytest.fail(reason)
    try:
        with STORES[kind](tmp_path) as store:
            command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "", "tests/spark/stores.py"]
            environment = {**os.environ, "STREAMER_BACKEND": streamer.BACKEND, "PYSPARK_PYTHON": sys.executable}
            environment |= {"PYTHONPATH": str(ROOT), "STREAMER_STORE": json.dumps([store.root, store.conf])}
            ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    except NotThere as error:
        pytest.fail(str(error))
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-2_000:]
    assert re.search(r"\d+ passed", ran.stdout)
    assert "skipped" not in ran.stdout
