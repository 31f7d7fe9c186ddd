"""A session of Spark for one job, and the wait for its work, which a signal ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Final

from streamer.spark.compat import quieten
from streamer.terminal import INTERRUPTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TERMINATED: Final = 128 + signal.SIGTERM


def interruptible(work: Callable[[ExitStack], int]) -> int:
    """Run work that waits for Spark in its own thread, while this thread waits for it, or for a signal.

    If a signal raises an exception during a call into the JVM, py4j treats it as a broken connection, or leaves a connection
    behind with half an answer in it. So a signal raises no exception: it ends the waiting.

    Args:
        work: gets a stack of callbacks that stop it, and returns an exit code.
    """
    results: SimpleQueue[int | BaseException] = SimpleQueue()
    stop = ExitStack()

    def run() -> None:
        try:
            results.put(work(stop))
        except BaseException as error:
            results.put(error)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        results.put(128 + number)

    try:
        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:
        # Signals reach only the main thread.
        return work(stop)
    thread = Thread(target=run, name="streamer-job", daemon=True)
    try:
        thread.start()
        result = results.get()
        if result in (INTERRUPTED, TERMINATED):
            with suppress(Exception):
                stop.close()
            # The thread has only to notice the stop; if it is busy with other work, such as building an engine, the wait is
            # short.
            thread.join(5)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if isinstance(result, BaseException):
        raise result
    return result


@contextmanager
def session(conf: Mapping[str, str], master: str | None, level: str, *, progress: bool = False) -> Iterator[SparkSession]:
    """Return the existing session, or make one, with Spark's progress bar or without, and stop it at the end."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
    from pyspark.sql import SparkSession

    # `diagnose` reports it in a sentence.
    quieten()
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName("streamer").config("spark.ui.showConsoleProgress", str(progress).lower())
    with tempfile.TemporaryDirectory(prefix="streamer-") as folder:
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            # Without spark-submit this process starts the JVM, which should be as quiet as configured.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            quiet = Path(folder) / "log4j2.properties"
            quiet.write_text(_LOG.format(level=level.lower()))
            java = conf.get("spark.driver.extraJavaOptions", "")
            builder = builder.master(master or "local[*]").config("spark.ui.enabled", "false")
            builder = builder.config("spark.driver.extraJavaOptions", f"{java} -Dlog4j2.configurationFile=file:{quiet}".strip())
            conf = {name: value for name, value in conf.items() if name != "spark.driver.extraJavaOptions"}
        elif master is not None:
            builder = builder.master(master)
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            with suppress(Exception):
                spark.sparkContext.setLogLevel(level.upper())
            yield spark
        finally:
            with suppress(Exception):
                spark.stop()


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Leave out py4j's log lines, some under the root logger: stack traces of exceptions that are reported anyway."""
    return Path(record.pathname).parent.name != "py4j"


_LOG: Final = """rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{{1}}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
"""
