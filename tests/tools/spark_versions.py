"""Run all tests of Spark on the newest PySpark, and `TESTED` on each one before it.

    python -m tests.tools.spark_versions [--if-changed] [VERSION...]

```
.venv               pyarrow, pytest, Streamer, the newest PySpark
.venv-spark-3.5     PySpark 3.5 and what it needs, alone; stands before .venv on the path
```

An environment is made once, and takes as long as PySpark takes to be fetched. Without Java nothing is run.

A run of all versions that passes appends to tests/records/spark-versions.jsonl what it ran: a digest of `streamer/spark` and of
`tests/spark`. So commit the line after a change to them. A digest that is there already is not tried again by `make test-all`: it
calls this with --if-changed, after the tests on the newest PySpark, of which tests/conftest.py then leaves out all but `ALWAYS`.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.spark.conftest import missing
from tests.tools.fetched import ROOT, install
from tests.tools.records import append, stamp

VERSIONS: Final = ("3.5", "4.0", "4.1")
#: What is there for it, and random sets, tenants with most events among them.
TESTED: Final = (
    "tests/spark/test_every_version.py",
    "tests/spark/test_batch.py::test_random_sets_match_as_in_the_embedded_engine",
    "tests/spark/test_batch.py::test_a_tenant_with_most_events_is_matched_right_however_spark_joins_and_cuts_partitions",
)
#: What `make test-all` runs on the newest, even if `streamer/spark` has passed all as it is: whether the engine matches there as
#: it does elsewhere. Beginnings of tests. Of the strategies cogroup does all that broadcast does, and more.
ALWAYS: Final = (
    "tests/spark/test_batch.py::test_the_table_of_cases_holds_on_spark[native-cogroup]",
    "tests/spark/test_batch.py::test_the_table_of_cases_holds_on_spark[reference-cogroup]",
    "tests/spark/test_batch.py::test_records_with_several_changes_are_matched_where_they_are",
)
#: PySpark 3.5 leaves sockets to the collector of garbage.
IGNORED: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
RECORDS: Final = ROOT / "tests" / "records" / "spark-versions.jsonl"


def digest(root: Path = ROOT) -> str:
    """Return a digest of the code of `streamer/spark` and of its tests."""
    sources = sorted((root / "streamer" / "spark").rglob("*.py")) + sorted((root / "tests" / "spark").rglob("*.py"))
    whole = hashlib.sha256(" ".join([*VERSIONS, *TESTED]).encode())
    for source in sources:
        whole.update(f"\n{source.relative_to(root).as_posix()}\n{_code(source)}".encode())
    return whole.hexdigest()[:16]


def _code(source: Path) -> str:
    """Return the code of a file, without comments and docstrings: a version of PySpark does not depend on these."""
    tree = ast.parse(source.read_text("utf-8"))
    for node in ast.walk(tree):
        has_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if has_docstring and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return ast.unparse(ast.fix_missing_locations(tree))


def was_tried(tried: str, records: Path = RECORDS) -> bool:
    """Tell whether a digest has passed on every version."""
    return records.exists() and any(json.loads(line)["tried"] == tried for line in records.read_text().splitlines())


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
    given = {**inherited, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not integration", *TESTED]
    for ignored in IGNORED:
        command += ["-W", ignored]
    ran = subprocess.run(command, cwd=ROOT, env=given, check=False, capture_output=True, text=True)
    code = ran.returncode
    if code != 0:
        print(ran.stdout, ran.stderr, sep="\n")
    print(f"{found.removesuffix('.dist-info')}: {'passed' if code == 0 else 'failed'} in {time.monotonic() - began:.0f} s")
    return code


def run_newest() -> int:
    """Run all tests of Spark on the PySpark of this environment; return pytest's exit code."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "logical",
        "--dist",
        "loadfile",
        "-m",
        "not integration",
        "tests/spark",
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(arguments: list[str]) -> None:
    """Run the versions, two at once, and say which failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.spark_versions")
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--if-changed", action="store_true", help="unless streamer/spark has passed on all of them as it is")
    options = parser.parse_args(arguments)
    tried = digest()
    if options.if_changed and was_tried(tried):
        print(f"versions of Spark: streamer/spark passed on {', '.join(VERSIONS)} as it is")
        return
    if (reason := missing()) is not None:
        print(f"versions of Spark: left out, {reason}")
        return
    if not options.if_changed and not options.versions and run_newest() != 0:
        sys.exit("Streamer fails on the newest PySpark")
    chosen = options.versions or VERSIONS
    # A session mostly waits for what it starts.
    with ThreadPoolExecutor(2) as pool:
        failed = [version for version, code in zip(chosen, pool.map(run, chosen), strict=True) if code != 0]
    if failed:
        sys.exit(f"Streamer fails on PySpark {', '.join(failed)}")
    if set(chosen) == set(VERSIONS) and not was_tried(tried):
        append("spark-versions", {**stamp(), "tried": tried, "versions": VERSIONS})
        print(f"commit {RECORDS.relative_to(ROOT)}, so that this is not tried again before the next change")


if __name__ == "__main__":
    main(sys.argv[1:])
