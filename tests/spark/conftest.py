"""One Spark session for all tests of this folder: two threads, so that tasks run side by side; failed ones are tried again."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.spark_cluster import standalone, there_can_be_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Fewer than Spark's 200: each is a task, and a task has its price.
SHUFFLE_PARTITIONS = 3


def missing() -> str | None:
    """Say what Spark needs and is not here."""
    for name in ("pyspark", "pyarrow"):
        try:
            __import__(name)
        except ImportError:
            return f"{name} is not installed (pip install 'streamer-engine[spark]')"
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        return "there is no java (JRE 17 or later)"
    return None


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Say what every session of these tests has."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder


@pytest.fixture
def spark(spark_session: SparkSession, backend: str) -> SparkSession:
    """The session; what takes it runs on each backend, since workers are told on which."""
    return spark_session


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    # Workers run what the tests run, and find what they find.
    root = str(Path(__file__).parents[2])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    session = configure(SparkSession.builder.master("local[2,4]").appName("tests")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A master and two workers of one core, each in a process of its own."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    if not there_can_be_one():
        pytest.skip("127.0.0.2 is a host on Linux alone")
    with standalone(tmp_path) as master:
        yield master
