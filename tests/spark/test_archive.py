"""How Streamer comes onto a cluster, as docs/clusters.md has it: in an archive of an environment; and what does not do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.spark.conftest import missing
from tests.tools.first_hour import build, run

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
#: Says where workers have Streamer, and matches once in each of two tasks.
PROGRAM = """
from pyspark.sql import SparkSession
from streamer import Engine
from streamer.spark import match_events

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
engine = Engine()
engine.add({"id": "big", "collection": "orders", "filters": [{"field": "amount", "op": ">", "value": 100}]})
texts = ['{"id": "e%d", "collection": "orders", "data": {"amount": %d}}' % (n, 100 + n % 2) for n in range(8)]
events = spark.createDataFrame([(text,) for text in texts], "value string").repartition(2)


def where(_):
    import os, sys, streamer
    yield os.path.relpath(streamer.__file__), os.path.relpath(sys.executable), streamer._backend.BACKEND


if __name__ == "__main__":
    try:
        print("MATCHES", sorted(row.event_id for row in match_events(events, engine).matches.collect()))
        print("WHERE", *spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).distinct().collect())
    finally:
        spark.stop()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, and a program beside it."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    if shutil.which("cargo") is None:
        pytest.skip("there is no cargo, so that a wheel has no native core")
    place = tmp_path_factory.mktemp("clusters")
    build(place)
    (place / "program.py").write_text(PROGRAM)
    return place


@pytest.fixture(scope="module")
def archive(place: Path) -> Path:
    """An environment with the wheel and without PySpark, packed as the page says."""
    (wheel,) = place.glob("*.whl")
    venv.create(place / "environment", with_pip=True)
    python = place / "environment" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[spark-cluster]", "venv-pack", cwd=place)
    pack = ("--prefix", "environment", "--output", "environment.tar.gz")
    run(place / "environment" / "bin" / "venv-pack", *pack, cwd=place)
    return place / "environment.tar.gz"


def submit(place: Path, cluster: str, *arguments: str, python: Path) -> subprocess.CompletedProcess[str]:
    """Run the program as `spark-submit` does, with the driver's *python*; workers see nothing of this checkout."""
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    excluded = ("PYTHONPATH", "PYSPARK_PYTHON", "STREAMER_BACKEND")
    environment = {name: value for name, value in os.environ.items() if name not in excluded}
    environment |= {"SPARK_HOME": home, "PYSPARK_DRIVER_PYTHON": str(python)}
    settings = (
        "spark.ui.enabled=false",
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        "spark.executor.memory=512m",
    )
    command = [os.path.join(home, "bin", "spark-submit"), "--master", cluster]
    command += [each for setting in settings for each in ("--conf", setting)]
    return subprocess.run(
        [*command, *arguments, "program.py"], cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_an_archive_brings_all_that_workers_need(cluster: str, place: Path, archive: Path) -> None:
    shipped = ("--archives", f"{archive.name}#environment", "--conf", "spark.pyspark.python=./environment/bin/python")
    done = submit(place, cluster, *shipped, python=place / "environment" / "bin" / "python")
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    matches, where = (line for line in done.stdout.splitlines() if line.startswith(("MATCHES", "WHERE")))
    assert matches == "MATCHES ['e1', 'e3', 'e5', 'e7']"
    assert re.fullmatch(r"WHERE \('environment/lib/python.*', 'environment/bin/python', 'native'\)", where), where


@pytest.mark.parametrize("brings", ["nothing", "--py-files"])
def test_a_worker_without_the_packages_says_so(cluster: str, place: Path, archive: Path, brings: str) -> None:
    """What `--py-files` brings is on Python's path, and nothing that it needs."""
    (wheel,) = place.glob("*.whl")
    files = ("--py-files", str(shutil.copy(wheel, place / "streamer_engine.zip"))) if brings == "--py-files" else ()
    bare = place / f"bare{brings}"
    venv.create(bare)
    settings = ("--conf", f"spark.pyspark.python={bare}/bin/python")
    done = submit(place, cluster, *files, *settings, python=place / "environment" / "bin" / "python")
    assert done.returncode != 0
    assert "ModuleNotFoundError: No module named" in done.stdout + done.stderr
