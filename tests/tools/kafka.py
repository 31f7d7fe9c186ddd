"""A broker of Kafka on this machine, and Spark's connector to it, fetched once into target/kafka.

```
 Maven Central ──Ivy, as PySpark brings it──► target/kafka/kafka_2.13-…/*.jar           the broker: one node, KRaft, loopback
                                              target/kafka/spark-sql-kafka-…/*.jar      the connector, of PySpark's own version
 PyPI ──pip──► target/kafka/pyspark-4.0.0/    where the repository has no connector of that version yet: the oldest PySpark that
                                              Streamer takes, and its connector
```

What cannot be fetched is an error that says so: these tests are run by who asks for them, and never pass by being left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection, create_server
from typing import Final

import pyspark

ROOT: Final = Path(__file__).resolve().parents[2]
FETCHED: Final = ROOT / "target" / "kafka"
BROKER: Final = ("org.apache.kafka", "kafka_2.13", "3.9.1")
CONNECTOR: Final = ("org.apache.spark", "spark-sql-kafka-0-10_2.13")
#: The oldest that pyproject.toml allows.
OLDEST: Final = "4.0.0"
#: What the connector needs and Spark brings itself.
BROUGHT: Final = ("hadoop-", "jsr305", "scala-library", "slf4j-", "spark-tags")


class NotThere(Exception):
    """Something could not be fetched."""


@dataclass(frozen=True)
class Spark:
    """A PySpark and the jars with which it reaches Kafka."""

    version: str
    #: None for the one that is installed.
    folder: Path | None
    jars: tuple[Path, ...]

    def environment(self) -> dict[str, str]:
        path = [str(ROOT), *([str(self.folder)] if self.folder else [])]
        inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        return {**inherited, "PYTHONPATH": os.pathsep.join(path), "PYSPARK_PYTHON": sys.executable}

    @property
    def conf(self) -> str:
        return f"spark.jars={','.join(map(str, self.jars))}"


def fetch(organisation: str, module: str, revision: str) -> list[Path]:
    """Return the jars of a module and of what it needs. Raises NotThere."""
    folder = FETCHED / f"{module}-{revision}"
    if not folder.is_dir():
        if shutil.which("java") is None:
            raise NotThere("there is no java (JRE 17 or later)")
        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        new = FETCHED / f".{module}-{revision}.{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        command = ["java", "-jar", str(ivy), "-warn", "-cache", str(FETCHED / "ivy"), "-confs", "default"]
        command += ["-types", "jar", "bundle", "-dependency", organisation, module, revision]
        command += ["-retrieve", f"{new}/[artifact]-[revision].[ext]"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode or not list(new.glob(f"{module}-*.jar")):
            shutil.rmtree(new, ignore_errors=True)
            told = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if "not found" in line or "xception" in line]
            raise NotThere(f"{organisation}:{module}:{revision} is not to be had from Maven Central: {'; '.join(told[-3:])}")
        new.rename(folder)
    return sorted(folder.glob("*.jar"))


def spark_and_connector() -> Spark:
    """Return the PySpark that is installed and its connector, or else the oldest that Streamer takes and its. Raises NotThere."""
    try:
        jars = fetch(*CONNECTOR, pyspark.__version__)
        return Spark(pyspark.__version__, None, _needed(jars))
    except NotThere as error:
        print(f"{error}\nSo this runs on PySpark {OLDEST}", file=sys.stderr)
    folder = FETCHED / f"pyspark-{OLDEST}"
    if not folder.is_dir():
        new = FETCHED / f".pyspark-{OLDEST}.{os.getpid()}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(new), f"pyspark=={OLDEST}"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            shutil.rmtree(new, ignore_errors=True)
            raise NotThere(f"pyspark {OLDEST} is not to be had: {ran.stderr[-500:]}")
        new.rename(folder)
    return Spark(OLDEST, folder, _needed(fetch(*CONNECTOR, OLDEST)))


def _needed(jars: list[Path]) -> tuple[Path, ...]:
    return tuple(jar for jar in jars if not jar.name.startswith(BROUGHT))


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run a broker whose topics have three partitions; gives its address."""
    address, control = (f"127.0.0.1:{_free_port()}" for _ in range(2))
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{control}",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{control}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "log"),
        "num.partitions": "3",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    written = folder / "server.properties"
    written.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    fetch(*BROKER)
    java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{FETCHED / '-'.join(BROKER[1:])}/*"]
    format_it = [*java, "kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg", "--config", str(written)]
    subprocess.run(format_it, capture_output=True, check=True)
    log = folder / "broker.log"
    with log.open("w") as output:
        process = subprocess.Popen([*java, "kafka.Kafka", str(written)], stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait(address, process, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + 120
    while True:
        try:
            create_connection((host, int(port)), 1).close()
            return
        except OSError:
            assert process.poll() is None, f"the broker ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"the broker does not answer: {log.read_text()[-2000:]}"
            time.sleep(0.2)


def _free_port() -> int:
    with closing(create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])
