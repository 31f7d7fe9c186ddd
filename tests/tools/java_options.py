"""What makes a JVM of the tests start fast: Java's options, and the archive of Spark's classes that they name.

    python -m tests.tools.java_options .venv/.java

writes the options to the file, and the archive beside it. A session of Spark loads some 15,000 classes and runs each a few
times, so loading and compiling are most of what a small test takes. The archive (dynamic class data sharing) has the classes
ready, and the quick compiler does not optimise what ends soon: together they cut a session's CPU to a third. `JDK_JAVA_OPTIONS`
reaches every JVM that a test starts. One with other classes ignores the archive; without Java, or where no archive can be made,
the tests run without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.spark.conftest import configure, missing

#: The quick compiler, one collector thread, and no word about an archive of other classes.
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"


def load() -> None:
    """Do a little of all that the tests do with Spark."""
    from pyspark.sql import SparkSession

    spark = configure(SparkSession.builder.master("local[2]")).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.createDataFrame([(1, bytearray(b"{}"), "a"), (2, bytearray(b"{}"), "b")], "n int, value binary, text string")
        rows.write.parquet(f"{folder}/rows")
        rows.select("text").write.text(f"{folder}/texts")
        read = spark.read.parquet(f"{folder}/rows").repartition(2).mapInArrow(_again, "n int, value binary, text string")
        together = read.groupBy("n").cogroup(rows.groupBy("n")).applyInArrow(_left, "n int, value binary, text string")
        assert together.join(read, "n").groupBy("n").count().orderBy("n").count() == 2
        stream = spark.readStream.text(f"{folder}/texts").writeStream.foreachBatch(lambda batch, _: batch.count())
        stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def _again(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _left(left: Any, _: Any) -> Any:
    return left


def main(file: Path) -> None:
    """Write the options, after the archive."""
    archive = file.with_suffix(".jsa").absolute()
    options = QUICK
    if missing() is None:
        command = [sys.executable, "-m", "tests.tools.java_options", "load"]
        environment = os.environ | {
            "JDK_JAVA_OPTIONS": f"{QUICK} -XX:ArchiveClassesAtExit={archive}",
            "PYSPARK_PYTHON": sys.executable,
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode == 0 and archive.exists():
            options = f'{QUICK} -XX:SharedArchiveFile="{archive}"'
        else:
            print(f"no archive of classes, so tests of Spark start slowly: {done.stderr[-500:]}", file=sys.stderr)
    file.write_text(options + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load()
    else:
        main(Path(sys.argv[1]))
