"""A standalone cluster of Spark on this machine: a master and two workers of one core, in processes of their own.

The workers are on 127.0.0.2 and 127.0.0.3, because Spark considers each host a machine: it stores files once a host, and runs no
copy of a task on the host on which the task runs. Only Linux has these hosts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

WORKERS: Final = ("127.0.0.2", "127.0.0.3")
#: Seconds that a master or a worker may take to say that it is there.
_PATIENCE: Final = 180
_DEPLOY: Final = "org.apache.spark.deploy"


def there_can_be_one() -> bool:
    """Tell whether this system has hosts for the workers."""
    return sys.platform.startswith("linux")


@contextmanager
def standalone(folder: Path, *, memory: str = "600m") -> Iterator[str]:
    """Start a cluster, yield its master's address, and stop it.

    Args:
        folder: what the workers write goes here.
        memory: what a worker has for executors.

    Raises:
        RuntimeError: it does not start; the end of its logs is told.
    """
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    environment = {**os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m"}
    environment.pop("PYTHONPATH", None)  # what workers see is what they are given
    environment["SPARK_LOCAL_DIRS"] = str(folder / "local")

    with ExitStack() as stack:

        def start(name: str, command: list[str], pattern: str) -> str:
            log = folder / f"{name}.log"
            with log.open("w") as out:
                words = [os.path.join(home, "bin", "spark-class"), *command]
                daemon = subprocess.Popen(words, env=environment, stdout=out, stderr=subprocess.STDOUT)
            stack.callback(daemon.wait)
            stack.callback(daemon.terminate)
            deadline = time.monotonic() + _PATIENCE
            while (line := re.search(pattern, log.read_text())) is None:
                if time.monotonic() > deadline or daemon.poll() is not None:
                    raise RuntimeError(f"{name} did not start: {log.read_text()[-1000:]}")
                time.sleep(0.2)
            return line[0]

        master = start("master", [f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], _MASTER)
        for host in WORKERS:
            words = ["--host", host, "--cores", "1", "--memory", memory, "--webui-port", "0", "--work-dir", str(folder / host)]
            start(host, [f"{_DEPLOY}.worker.Worker", *words, master], "Successfully registered with master")
        yield master


_MASTER: Final = r"spark://127\.0\.0\.1:[1-9]\d*"
