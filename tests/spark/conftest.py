"""One Spark session for all tests of this folder: two threads, so that tasks run side by side; failed ones are tried again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tools.ports import free_port

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
    """A master and two workers of one core, on 127.0.0.2 and 127.0.0.3: Spark runs no copy of a task on the host it runs on."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    if not sys.platform.startswith("linux"):
        pytest.skip("127.0.0.2 is a host on Linux alone")
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    environment = {**os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m"}
    environment.pop("PYTHONPATH", None)  # what workers see is what they are given
    environment["SPARK_LOCAL_DIRS"] = str(tmp_path / "local")
    start = [os.path.join(home, "bin", "spark-class")]
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]]
    for host in ("127.0.0.2", "127.0.0.3"):
        options = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", str(free_port())]
        commands.append([f"{deploy}.worker.Worker", *options, "--work-dir", str(tmp_path / host), master])
    with ExitStack() as stack:
        logs = []
        for number, command in enumerate(commands):
            logs.append(tmp_path / f"daemon-{number}.log")
            log = stack.enter_context(logs[-1].open("w"))
            daemon = subprocess.Popen(start + command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            stack.callback(daemon.wait)
            stack.callback(daemon.terminate)
        deadline = time.monotonic() + 180
        while sum("Successfully registered with master" in log.read_text() for log in logs) < 2:
            assert time.monotonic() < deadline, "\n".join(log.read_text()[-1000:] for log in logs)
            time.sleep(0.2)
        yield master
