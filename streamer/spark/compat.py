"""Differences between the PySpark versions. No other module checks a version.

| | 3.5 | 4.0 | from 4.1 on |
|---|---|---|---|
| a file for the workers | belongs to the context (`addFile`) | to the session (`addArtifacts`) | to the session |
| a DataFrame of Arrow | through rows | `createDataFrame` | `createDataFrame` |
| an SQL function | through pandas | through pandas | through Arrow |
| DataFrames of Spark Connect | a class of their own | a subclass of the one class | a subclass |
| over Connect, a file for the workers of a micro-batch | impossible | of the session | of the session |

The code checks an ability if it can, and the version only if it cannot.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The oldest version that is tested.
OLDEST: Final = (3, 5)
VERSION: Final = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
#: The connector to Kafka, which comes with Spark, but apart from it. PySpark's own jars are of this Scala.
CONNECTOR: Final = f"org.apache.spark:spark-sql-kafka-0-10_{'2.13' if VERSION >= (4, 0) else '2.12'}:{pyspark.__version__}"

if VERSION < OLDEST:
    raise ImportError(
        f"streamer.spark needs PySpark {'.'.join(map(str, OLDEST))} or later, and this is {pyspark.__version__}", name="pyspark"
    )

Lists = Callable[[Iterator[pa.Array]], Iterator[pa.Array]]
"""Takes the arrays of a column, and gives an array of lists of strings for some rows of them at a time, in order."""


def is_frame(value: object) -> TypeGuard[DataFrame]:
    """Return whether a value is a DataFrame, classic or Connect."""
    if isinstance(value, DataFrame):
        return True
    # Connect has its own class before PySpark 4. Its module needs gRPC, so this check does not import it.
    kind = type(value)
    return (kind.__module__, kind.__name__) == ("pyspark.sql.connect.dataframe", "DataFrame")


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, which has no local JVM."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def batches_have_files() -> bool:
    """Return whether the tasks of a micro-batch find the files of their session; before PySpark 4 those of Connect do not."""
    # PySpark's own `is_remote`, which a session of Connect answers from its beginning.
    return VERSION >= (4, 0) or "SPARK_CONNECT_MODE_ENABLED" not in os.environ


def add_file(spark: SparkSession, path: str) -> None:
    """Send a local file to all workers; `SparkFiles.get` finds it there by its name. Raises Spark's errors."""
    if VERSION < (4, 0) and not is_connect(spark):
        spark.sparkContext.addFile(path)
    else:
        spark.addArtifacts(path, file=True)


def take_back(spark: SparkSession, name: str) -> str | None:
    """Remove a file from the list that tasks fetch, and delete the driver's copy.

    Returns:
        The name of the copy that executors of a machine share, in addition to their own; None if Spark does not allow it.
    """
    if is_connect(spark):
        return None
    from pyspark import SparkFiles

    cached_name = None
    try:
        context: Any = spark.sparkContext
        # By artifact directory (`default` is the application's), then by URL. Python's way to it is as old as the list.
        sessions = context._jsc.sc().addedFiles().valuesIterator()
        while sessions.hasNext():
            files = sessions.next()
            urls = files.keysIterator()
            for url in [urls.next() for _ in range(files.size())]:
                if url.rpartition("/")[2] == name:
                    stamp = files.remove(url).get()
                    cached_name = f"{_java_hash(url)}{stamp}_cache"
        if cached_name is not None:
            with suppress(OSError):
                os.unlink(SparkFiles.get(name))
    except Exception as error:
        # Python may not call everything in the JVM, as on a shared cluster of Databricks.
        logging.getLogger("streamer.spark").debug("%s stays with Spark: %s", name, error)
    return cached_name


def _java_hash(text: str) -> int:
    """Return Java's `hashCode` of an ASCII text."""
    value = 0
    for byte in text.encode("ascii"):
        value = (31 * value + byte) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def texts_frame(spark: SparkSession, texts: list[str]) -> DataFrame:
    """Return a DataFrame of texts, in a column `text`."""
    if VERSION < (4, 0):
        # Connect does not verify schemas, and rejects the argument.
        more: dict[str, Any] = {} if is_connect(spark) else {"verifySchema": False}
        return spark.createDataFrame([(text,) for text in texts], "text string", **more)
    return spark.createDataFrame(pa.table({"text": pa.array(texts, pa.string())}))


def lists_udf(lists: Lists) -> Any:
    """Return a function of SQL from a string to an array of strings.

    Raises:
        ModuleNotFoundError: this PySpark needs pandas for the function, and pandas is not installed.
    """
    from pyspark.sql import functions as F  # noqa: N812

    arrow_udf: Any = getattr(F, "arrow_udf", None)
    if arrow_udf is not None:
        return arrow_udf(lists, "array<string>")
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        reason = f"a function of SQL needs pandas under PySpark {pyspark.__version__}: pip install pandas"
        raise ModuleNotFoundError(reason, name="pandas") from error

    def series(chunks: Iterator[Any]) -> Iterator[Any]:
        for each in chunks:
            # The value for null depends on the version of pandas.
            texts = pa.array([text if isinstance(text, str) else None for text in each], pa.string())
            # A series must have as many rows as its input, so the arrays are joined.
            yield pd.Series([ids for array in lists(iter([texts])) for ids in array.to_pylist()], dtype=object)

    # PySpark reads the annotations themselves, which are texts in this module.
    series.__annotations__ = {"chunks": Iterator[pd.Series], "return": Iterator[pd.Series]}
    udf: Any = F.__dict__["pandas_udf"]
    return udf(series, "array<string>")


def interrupt(spark: SparkSession) -> None:
    """Cancel the running jobs of a session."""
    if VERSION < (4, 0) and not is_connect(spark):
        spark.sparkContext.cancelAllJobs()
    else:
        spark.interruptAll()


def quieten() -> None:
    """Keep PySpark from printing its exceptions as JSON with the stack trace."""
    # PySpark 3.5 has no such loggers.
    with suppress(ImportError):
        from pyspark.logger import PySparkLogger

        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
