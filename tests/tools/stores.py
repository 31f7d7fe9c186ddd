"""Stores that Spark reads through Hadoop, on this machine: S3 as moto plays it, and HDFS as Hadoop's own minicluster has it.

```
 PyPI ──pip──► target/kafka/moto-…/                   a server of S3 on the loopback, which holds everything in memory
 Maven Central ──Ivy──► hadoop-aws-…/                 s3a: of Spark's own version of Hadoop, and Amazon's SDK
                        hadoop-client-minicluster-…/  HDFS: a name node and a data node in one JVM; Spark brings its client
```

All is fetched once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from typing import Final

import pyspark

from tests.tools.fetched import FETCHED, NotThere, fetch, install
from tests.tools.ports import free_port

MOTO: Final = "moto[s3,server]==5.2.*"
#: What the minicluster needs and does not name.
JUNIT: Final = ("org.junit.jupiter", "junit-jupiter-api", "5.13.4")
BUCKET: Final = "streamer"
_PATIENCE: Final = 120


@dataclass(frozen=True)
class Store:
    """A store that runs.

    Attributes:
        root: under which a test may write anything.
        conf: what a session needs to reach it.
    """

    root: str
    conf: dict[str, str]


def hadoop() -> str:
    """Return the version of Hadoop that Spark brings."""
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


@contextmanager
def s3(folder: Path) -> Iterator[Store]:
    """Run a server of S3 with a bucket. Raises NotThere."""
    jars = [jar for jar in fetch("org.apache.hadoop", "hadoop-aws", hadoop()) if not jar.name.startswith("wildfly-")]
    home, port = install(MOTO, FETCHED / "moto-5.2"), free_port()
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(words, folder / "s3.log", lambda: _answers(port), {"PYTHONPATH": str(home)}):
        url = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=30).close()
        conf = {
            "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
            "spark.hadoop.fs.s3a.endpoint": url,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            # What moto's server says before it takes a file, Amazon's asynchronous client takes for the answer.
            "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
            "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            "spark.hadoop.fs.s3a.access.key": "anybody",
            "spark.hadoop.fs.s3a.secret.key": "anything",
        }
        yield Store(f"s3a://{BUCKET}", conf)


@contextmanager
def hdfs(folder: Path) -> Iterator[Store]:
    """Run a name node and a data node. Raises NotThere."""
    jars = [*fetch("org.apache.hadoop", "hadoop-client-minicluster", hadoop()), *fetch(*JUNIT)]
    port, ready = free_port(), folder / "hdfs.xml"
    words = ["java", "-cp", os.pathsep.join(map(str, jars)), "-Xmx512m", f"-Dtest.build.data={folder / 'hdfs'}"]
    words += ["org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format", "-datanodes", "1"]
    # It is written when all of it runs.
    words += ["-nnport", str(port), "-writeConfig", str(ready)]
    with _running(words, folder / "hdfs.log", lambda: ready.exists() and re.search("</configuration>", ready.read_text())):
        yield Store(f"hdfs://127.0.0.1:{port}", {"spark.hadoop.dfs.client.use.datanode.hostname": "false"})


STORES: Final = {"s3a": s3, "hdfs": hdfs}


def _answers(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def _running(words: list[str], log: Path, is_ready: Callable[[], object], more: dict[str, str] | None = None) -> Iterator[None]:
    """Run a server until it is left. Raises NotThere."""
    with ExitStack() as stack:
        out = stack.enter_context(log.open("w"))
        server = subprocess.Popen(words, cwd=log.parent, env={**os.environ, **(more or {})}, stdout=out, stderr=out)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        deadline = time.monotonic() + _PATIENCE
        while not is_ready():
            if server.poll() is not None or time.monotonic() > deadline:
                raise NotThere(f"{log.stem} does not start: {log.read_text()[-1000:]}")
            time.sleep(0.2)
        yield
