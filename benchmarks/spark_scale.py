"""How a job grows: the formulas of docs/spark.md beside what Spark measured, at three sizes, and what they say of 10^9 events.

    python -m benchmarks.spark_scale [--smoke] [--record]

Rows, bytes and tasks are Spark's own metrics, not times: what else the machine does changes none of them. The shuffle is not
compressed here, so that its bytes can be told beforehand. Memory is the largest resident set of a Python worker beyond one that
has only imported Streamer. Three numbers are learnt from the two smaller sizes: what a worker takes before it holds
subscriptions, and then for each, and how long a snapshot is for each. Everything else follows from the sizes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A row of Spark's shuffle beside what it carries: null bits, group, kind, the place of the body, its length, padding to eight.
ROW_BYTES: Final = 8 + 8 + 8 + 8 + 4 + 4
#: Spark's own: bytes of a file that a task reads, and what opening a file is reckoned as.
TASK_BYTES, OPEN_BYTES = 128 * 2**20, 4 * 2**20
#: Of a Bloom filter for each key at 1 % (ideally 1.2), and of a filter's header and its row.
KEY_BYTES, PART_BYTES = 1.25, 750


class WrongPrediction(Exception):
    """A run took something else than the formulas say."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is.

    Attributes:
        interesting: share of the events that match something; each of them one subscription.
        hot: share of the events, and of the subscriptions, in one collection.
    """

    events: int
    subscriptions: int
    collections: int
    interesting: float = 0.1
    hot: float = 0.5


SIZES: Final = (Size(20_000, 10_000, 10), Size(60_000, 50_000, 50), Size(200_000, 200_000, 200))
SMOKE: Final = (Size(500, 1_000, 3), Size(1_000, 2_000, 4), Size(2_000, 4_000, 5))
FAR: Final = Size(10**9, 10**8, 10_000, hot=0.1)


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the sizes alone do not tell: bytes of an event, of a subscription, in a snapshot too, and what smaller runs taught."""

    event_bytes: float
    subscription_bytes: float
    snapshot_bytes: float = 0.0
    worker_bytes: float = 0.0
    open_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run takes, or took. Bytes are of the whole cluster, unless they are of one machine or worker."""

    broadcast_bytes: float
    shuffled_rows: float
    shuffled_bytes: float
    tasks: float
    worker_bytes: float


def broadcast(size: Size, learnt: Learnt, *, cores: int, task_bytes: int = TASK_BYTES) -> Figures:
    """Predict a run whose snapshot travels to every machine."""
    return Figures(
        broadcast_bytes=size.subscriptions * learnt.snapshot_bytes,
        shuffled_rows=0,
        shuffled_bytes=0,
        tasks=_tasks(size.events * (learnt.event_bytes + 1), cores, task_bytes),
        worker_bytes=learnt.worker_bytes + held_by_one(size, "broadcast") * learnt.open_bytes,
    )


def cogroup(
    size: Size,
    learnt: Learnt,
    *,
    cores: int,
    task_bytes: int = TASK_BYTES,
    subscriptions_per_task: int = 200_000,
    events_per_task: int = 500_000,
    fp_rate: float = 0.01,
) -> Figures:
    """Predict a run whose subscriptions and events meet in a shuffle."""
    passing = size.interesting + (1 - size.interesting) * fp_rate
    hot_events, hot_subscriptions = size.events * size.hot, size.subscriptions * size.hot
    splits = math.ceil(hot_subscriptions / subscriptions_per_task)
    # An interesting event goes to the one part that wants it; a filter of each other part lets a few more pass.
    hot_rows = hot_events * (size.interesting + (splits - size.interesting) * fp_rate)
    rows = (size.events - hot_events) * passing + hot_rows
    salts = max(1, math.ceil(hot_rows / splits / events_per_task))
    copies = size.subscriptions - hot_subscriptions + hot_subscriptions * salts
    return Figures(
        broadcast_bytes=size.collections * PART_BYTES + size.subscriptions * KEY_BYTES,
        shuffled_rows=rows + copies,
        shuffled_bytes=rows * (learnt.event_bytes + ROW_BYTES) + copies * (learnt.subscription_bytes + ROW_BYTES),
        tasks=_tasks(size.events * (learnt.event_bytes + 1), cores, task_bytes)
        + _tasks(size.subscriptions * (learnt.subscription_bytes + 1), cores, task_bytes),
        worker_bytes=learnt.worker_bytes + held_by_one(size, "cogroup", subscriptions_per_task) * learnt.open_bytes,
    )


def held_by_one(size: Size, strategy: str, subscriptions_per_task: int = 200_000) -> float:
    """Count the subscriptions that a worker has open at once: of broadcast all, if it meets every collection."""
    if strategy == "broadcast":
        return size.subscriptions
    hot = size.subscriptions * size.hot
    return max(hot / math.ceil(hot / subscriptions_per_task), (size.subscriptions - hot) / size.collections)


def _tasks(size: float, cores: int, task_bytes: int) -> float:
    """Count the pieces of one file, as Spark cuts it."""
    piece = min(task_bytes, max(OPEN_BYTES, (size + OPEN_BYTES) / cores))
    return math.ceil(size / piece)


# What is measured.


def subscriptions(size: Size) -> Iterator[dict[str, Any]]:
    """Yield subscriptions, each of which wants one user's events."""
    random = Random(1)
    for number in range(size.subscriptions):
        equal = {"field": "user", "op": "==", "value": f"u{number}"}
        collection = "c0" if random.random() < size.hot else f"c{random.randrange(1, size.collections)}"
        yield {"id": f"s{number:09}", "gateway_id": f"g{number % 100}", "collection": collection, "filters": [equal]}


def events(size: Size) -> Iterator[tuple[bytes, bool]]:
    """Yield events of about 300 bytes, each with whether a subscription wants it."""
    where = [each["collection"] for each in subscriptions(size)]
    random = Random(2)
    hot = [number for number, name in enumerate(where) if name == "c0"]
    cold = [number for number, name in enumerate(where) if name != "c0"]
    for index in range(size.events):
        # So many are in the hot collection, wanted or not.
        number = random.choice(hot if random.random() < size.hot or not cold else cold)
        wanted = random.random() < size.interesting
        user = f"u{number}" if wanted else f"x{random.randrange(10**9)}"
        data = {"user": user, "amount": index % 1000, "text": "." * 160, "tags": ["new", f"t{index % 50}"]}
        event = {"id": f"e{index:09}", "collection": where[number], "type": "insert", "data": data}
        yield json.dumps(event, separators=(",", ":")).encode(), wanted


def resident(spark: SparkSession) -> int:
    """Return the largest resident set that a Python worker had, in bytes."""

    def ask(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        import pyarrow as pa

        import streamer.spark.worker

        assert streamer.spark.worker
        for batch in batches:
            # Slow enough that no worker answers for another.
            time.sleep(0.3)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
            yield pa.RecordBatch.from_pydict({"peak": [peak] * batch.num_rows})

    rows = spark.range(0, 2, 1, 2).mapInArrow(ask, "peak bigint").collect()
    return max(int(row["peak"]) for row in rows)


def measured(spark: SparkSession, size: Size, folder: Path, strategy: str, base: int) -> tuple[Figures, Learnt]:
    """Run a size, and return what it took. Raises WrongMatches."""
    from streamer.spark import match_events
    from streamer.spark.job.watch import Watch

    name = f"{size.events}-{size.subscriptions}"
    file, held = folder / f"{name}.jsonl", folder / f"{name}.subscriptions.jsonl"
    expected = 0
    with file.open("wb") as out:
        for event, wanted in events(size):
            out.write(event + b"\n")
            expected += wanted
    held.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in subscriptions(size)))
    snapshot = folder / f"{name}.snapshot"
    engine = streamer.Engine()
    engine.add_jsonl(held)
    engine.save(snapshot)
    given = spark.read.text(str(file))
    texts: DataFrame | str = str(snapshot) if strategy == "broadcast" else spark.read.text(str(held))
    with Watch(spark, timed="") as watch:
        with watch.phase("looking"):
            found = match_events(given, texts, strategy=strategy).matches  # type: ignore[arg-type]
        with watch.phase("matching"):
            count = found.count()
        stages = [stage for stage in watch.stages() if stage.name == "matching"]
    if count != expected:
        raise WrongMatches(f"{count} matches instead of {expected}")
    # The count itself shuffles a row for each task, of a few bytes.
    shuffling = [stage for stage in stages if stage.shuffled_bytes > 64 * stage.tasks] if strategy == "cogroup" else []
    took = Figures(
        broadcast_bytes=_carried(spark, ".snapshot" if strategy == "broadcast" else ".parts"),
        shuffled_rows=sum(stage.shuffled_records for stage in shuffling),
        shuffled_bytes=sum(stage.shuffled_bytes for stage in shuffling),
        tasks=max(stages, key=lambda stage: stage.records).tasks,
        worker_bytes=max(resident(spark) - base, 0),
    )
    learnt = Learnt(
        event_bytes=file.stat().st_size / size.events - 1,
        subscription_bytes=held.stat().st_size / size.subscriptions - 1,
    )
    return took, learnt


def _carried(spark: SparkSession, ending: str) -> int:
    """Return the bytes of the last file that was sent along."""
    from pyspark import SparkFiles

    files = list(Path(SparkFiles.getRootDirectory()).rglob(f"*{ending}"))
    return max(files, key=lambda path: path.stat().st_mtime_ns).stat().st_size if files else 0


def check(size: Size, predicted: Figures, took: Figures) -> None:
    """Compare what can be told beforehand; chance moves rows a little, and memory is only printed. Raises WrongPrediction."""
    slack = 3 * math.sqrt(size.events * 0.1)
    for name, more in (("broadcast_bytes", 1000 * size.collections), ("shuffled_rows", slack), ("shuffled_bytes", 400 * slack)):
        told, seen = getattr(predicted, name), getattr(took, name)
        if abs(told - seen) > 0.1 * seen + more:
            raise WrongPrediction(f"{size}: {name} {seen:,.0f} instead of {told:,.0f}")
    if abs(predicted.tasks - took.tasks) > 1:
        raise WrongPrediction(f"{size}: {took.tasks} tasks instead of {predicted.tasks}")


HEADER: Final = (
    "| events | subscriptions | strategy | | broadcast, MB a machine | rows shuffled | MB shuffled | tasks | MB a worker |",
    "|---:|---:|---|---|---:|---:|---:|---:|---:|",
)


def line(size: Size, strategy: str, kind: str, figures: Figures) -> str:
    """Return a row of the table."""
    cells = [
        f"{size.events:,}",
        f"{size.subscriptions:,}",
        strategy,
        kind,
        f"{figures.broadcast_bytes / 1e6:,.2f}",
        f"{figures.shuffled_rows:,.0f}",
        f"{figures.shuffled_bytes / 1e6:,.2f}",
        f"{figures.tasks:,.0f}",
        f"{figures.worker_bytes / 1e6:,.1f}",
    ]
    return f"| {' | '.join(cells)} |"


ABOUT: Final = (
    "Predicted and measured in turn; `local[2]`, an uncompressed shuffle, one event in ten wanted by one subscription, half of "
    "all in one collection. Memory is learnt from the two smaller sizes."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sizes, and print what was predicted and what was measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scale", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--smoke", action="store_true", help="a few hundred events")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records/<date>-spark-scale.md")
    options = parser.parse_args(arguments)
    began = machine()
    lines = list(HEADER)
    print(f"streamer {streamer.__version__}, {streamer.BACKEND} backend\n")
    print(*HEADER, sep="\n")
    for shown in run(SMOKE if options.smoke else SIZES):
        print(shown, flush=True)
        lines.append(shown)
    if options.record:
        print(Record("spark-scale", began, ABOUT).write(lines))


def run(sizes: Sequence[Size]) -> Iterator[str]:
    """Yield the table's rows."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
    from pyspark.sql import SparkSession

    root = str(Path(__file__).parents[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    learnt: dict[str, Learnt] = {}
    with tempfile.TemporaryDirectory(prefix="streamer-") as name:
        for strategy, predict in (("broadcast", broadcast), ("cogroup", cogroup)):
            # Workers are new for each strategy, since what is asked is the most that one ever held.
            builder = SparkSession.builder.master("local[2]").appName("scale")
            for option, value in _OPTIONS.items():
                builder = builder.config(option, value)
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("OFF")
            base = resident(spark)
            runs = [(size, *measured(spark, size, Path(name), strategy, base)) for size in sizes]
            (small, took, _), (middle, more, _) = runs[:2]
            apart = held_by_one(middle, strategy) - held_by_one(small, strategy)
            each = (more.worker_bytes - took.worker_bytes) / apart
            fixed = took.worker_bytes - each * held_by_one(small, strategy)
            known = learnt[strategy] = replace(
                runs[0][2], open_bytes=each, worker_bytes=fixed, snapshot_bytes=more.broadcast_bytes / middle.subscriptions
            )
            for size, took, seen in runs:
                known = replace(known, event_bytes=seen.event_bytes, subscription_bytes=seen.subscription_bytes)
                predicted = predict(size, known, cores=2)
                yield line(size, strategy, "predicted", predicted)
                yield line(size, strategy, "measured", took)
                check(size, predicted, took)
            spark.stop()
    for strategy, predict in (("broadcast", broadcast), ("cogroup", cogroup)):
        yield line(FAR, strategy, "predicted", predict(FAR, learnt[strategy], cores=1_000))


_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.shuffle.compress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "2g",
}


if __name__ == "__main__":
    main()
