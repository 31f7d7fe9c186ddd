"""Delta and Iceberg beside each PySpark for which there are both, fetched once into target/kafka as Kafka's connector is.

What cannot be fetched is an error that says so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.tools.fetched import ROOT, fetch
from tests.tools.spark_versions import environment

#: By PySpark: artifact and version of `io.delta` and `org.apache.iceberg`. docs/spark.md has them, too.
VERSIONS: Final = {
    "3.5": (("delta-spark_2.12", "3.3.3"), ("iceberg-spark-runtime-3.5_2.12", "1.12.0")),
    "4.0": (("delta-spark_4.0_2.13", "4.4.0"), ("iceberg-spark-runtime-4.0_2.13", "1.11.0")),
    "4.1": (("delta-spark_4.1_2.13", "4.4.0"), ("iceberg-spark-runtime-4.1_2.13", "1.12.0")),
}
#: The server of Spark Connect, which PySpark brings from 4.0 on.
CONNECT: Final = {"3.5": ("org.apache.spark", "spark-connect_2.12", "3.5.7")}
#: Others Spark brings itself.
NEEDED: Final = ("delta-", "iceberg-", "unitycatalog-")


def jars(version: str) -> list[Path]:
    """Return the jars for a PySpark. Raises NotThere."""
    groups = ("io.delta", "org.apache.iceberg")
    found = [jar for group, module in zip(groups, VERSIONS[version], strict=True) for jar in fetch(group, *module)]
    return [jar for jar in found if jar.name.startswith(NEEDED)]


def connect_jars(version: str) -> list[Path]:
    """Return what a PySpark needs beside it for a server of Spark Connect. Raises NotThere."""
    return [jar for jar in fetch(*CONNECT[version]) if jar.name.startswith("spark-connect")] if version in CONNECT else []


def settings(jars: list[Path], folder: Path) -> dict[str, str]:
    """Return what a session needs: Delta in its own catalog, Iceberg in one that is called `lake`."""
    delta, iceberg = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": f"{delta},{iceberg}",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Of tables as small as these.
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def environ(version: str) -> dict[str, str]:
    """Return the environment of a process that runs on a PySpark."""
    path = [str(environment(version)), str(ROOT)]
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    found = {"PYTHONPATH": os.pathsep.join(path), "PYSPARK_PYTHON": sys.executable}
    paths = {"STREAMER_LAKES": jars(version), "STREAMER_CONNECT": connect_jars(version)}
    return {**inherited, **found, **{name: os.pathsep.join(map(str, each)) for name, each in paths.items()}}
