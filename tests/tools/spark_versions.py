"""Run `TESTED` beside each PySpark that Streamer takes, but for the newest, which `make test-all` has.

    python -m tests.tools.spark_versions [VERSION...]

```
.venv               pyarrow, pytest, Streamer, the newest PySpark
.venv-spark-3.5     PySpark 3.5 and what it needs, alone; stands before .venv on the path
```

An environment is made once, and takes as long as PySpark takes to be fetched. Without Java nothing is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.spark.conftest import missing
from tests.tools.fetched import ROOT, install
from tests.tools.java_options import QUICK

VERSIONS: Final = ("3.5", "4.0", "4.1")
#: What is there for it, and random sets, tenants with most events among them.
TESTED: Final = (
    "tests/spark/test_every_version.py",
    "tests/spark/test_batch.py::test_random_sets_match_as_in_the_embedded_engine",
    "tests/spark/test_batch.py::test_a_tenant_with_most_events_is_matched_right_however_spark_joins_and_cuts_partitions",
)
#: PySpark 3.5 leaves sockets to the collector of garbage.
IGNORED: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def environment(version: str) -> Path:
    """Return the folder that has a version of PySpark, which is fetched where it is not there. Raises NotThere."""
    return install(f"pyspark=={version}.*", ROOT / f".venv-spark-{version}")


def run(version: str) -> int:
    """Run the tests on a version; return pytest's exit code."""
    began = time.monotonic()
    folder = environment(version)
    (found,) = (path.name for path in folder.glob("pyspark-*.dist-info"))
    path = [str(folder), str(ROOT)]
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    given = {**inherited, "PYTHONPATH": os.pathsep.join(path), "JDK_JAVA_OPTIONS": QUICK}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not integration", *TESTED]
    for ignored in IGNORED:
        command += ["-W", ignored]
    ran = subprocess.run(command, cwd=ROOT, env=given, check=False, capture_output=True, text=True)
    code = ran.returncode
    if code != 0:
        print(ran.stdout, ran.stderr, sep="\n")
    print(f"{found.removesuffix('.dist-info')}: {'passed' if code == 0 else 'failed'} in {time.monotonic() - began:.0f} s")
    return code


def main(versions: list[str]) -> None:
    """Run the versions, two at once, and say which failed."""
    if (reason := missing()) is not None:
        print(f"versions of Spark: left out, {reason}")
        return
    chosen = versions or VERSIONS
    # A session mostly waits for what it starts.
    with ThreadPoolExecutor(2) as pool:
        failed = [version for version, code in zip(chosen, pool.map(run, chosen), strict=True) if code != 0]
    if failed:
        sys.exit(f"Streamer fails on PySpark {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
