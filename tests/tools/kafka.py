"""A broker of Kafka on this machine, and Spark's connector to it, fetched once into target/kafka.

```
 Maven Central ──Ivy, as PySpark brings it──► target/kafka/kafka_2.13-…/*.jar           the broker: one node, KRaft, loopback
                                              target/kafka/spark-sql-kafka-…/*.jar      the connector, of PySpark's own version
 PyPI ──pip──► target/kafka/pyspark-4.0.0/    where the repository has no connector of that version yet: a PySpark whose
                                              connector it has
```
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from typing import Final

import pyspark

from tests.tools.fetched import FETCHED, ROOT, NotThere, fetch, install
from tests.tools.ports import free_port

BROKER: Final = ("org.apache.kafka", "kafka_2.13", "3.9.1")
CONNECTOR: Final = ("org.apache.spark", "spark-sql-kafka-0-10_2.13")
#: One whose connector there is.
KNOWN: Final = "4.0.0"
#: What the connector needs and Spark brings itself.
BROUGHT: Final = ("hadoop-", "jsr305", "scala-library", "slf4j-", "spark-tags")


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


def spark_and_connector() -> Spark:
    """Return the PySpark that is installed and its connector, or else another and its. Raises NotThere."""
    try:
        jars = fetch(*CONNECTOR, pyspark.__version__)
        return Spark(pyspark.__version__, None, _needed(jars))
    except NotThere as error:
        print(f"{error}\nSo this runs on PySpark {KNOWN}", file=sys.stderr)
    folder = install(f"pyspark=={KNOWN}", FETCHED / f"pyspark-{KNOWN}")
    return Spark(KNOWN, folder, _needed(fetch(*CONNECTOR, KNOWN)))


def _needed(jars: list[Path]) -> tuple[Path, ...]:
    return tuple(jar for jar in jars if not jar.name.startswith(BROUGHT))


class Server:
    """A broker whose topics have three partitions.

    Attributes:
        address: where it listens without any security.
        secure: where it listens with TLS, and asks who one is; USER and PASSWORD are known, with PLAIN and SCRAM-SHA-512.
        ca: the certificate to trust there.
    """

    USER, PASSWORD = "streamer", "secret-word"

    def __init__(self, folder: Path) -> None:
        fetch(*BROKER)
        self.address, self.secure, control = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.ca = folder / "ca.pem"
        self._log, self._written = folder / "broker.log", folder / "server.properties"
        self._make_certificate(folder)
        module = "org.apache.kafka.common.security"
        mechanism = "listener.name.secure.{}.sasl.jaas.config"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{control}",
            "listeners": f"PLAINTEXT://{self.address},SECURE://{self.secure},CONTROLLER://{control}",
            "advertised.listeners": f"PLAINTEXT://{self.address},SECURE://{self.secure}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": str(folder / "both.pem"),
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            mechanism.format("plain"): f'{module}.plain.PlainLoginModule required user_{self.USER}="{self.PASSWORD}";',
            mechanism.format("scram-sha-512"): f"{module}.scram.ScramLoginModule required;",
            "log.dirs": str(folder / "log"),
            "num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        self._written.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._java += ["-cp", f"{FETCHED / '-'.join(BROKER[1:])}/*"]
        known = f"SCRAM-SHA-512=[name={self.USER},password={self.PASSWORD}]"
        format_it = [*self._java, "kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"]
        subprocess.run([*format_it, "--config", str(self._written), "--add-scram", known], capture_output=True, check=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._log.open("a") as output:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._written)], stdout=output, stderr=subprocess.STDOUT
            )
        _wait(self.address, self._process, self._log)

    def stop(self) -> None:
        """End it as a supervisor does."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def signal(self, number: int) -> None:
        """Have it stand still, or continue."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _make_certificate(self, folder: Path) -> None:
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        key = folder / "key.pem"
        subprocess.run([*made, "-keyout", str(key), "-out", str(self.ca)], check=True, capture_output=True)
        (folder / "both.pem").write_text(key.read_text() + self.ca.read_text())


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Run a broker."""
    made = Server(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


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
