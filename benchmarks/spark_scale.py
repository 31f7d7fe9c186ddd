"""The growth of a job: formulas of docs/spark.md next to Spark's measurements as sizes double, and a prediction for 10^9 events.

    python -m benchmarks.spark_scale [--smoke | --large] [--data FOLDER [--only-data]] [--record]

Both strategies run on `local[2]` and on a standalone cluster of two workers in processes of their own. `--large` ends with 10^7
events and 10^5 subscriptions, which takes 6 GB on the disk and a quarter of an hour; with `--data` they are made once.

Rows, bytes and tasks are Spark's own metrics, not times, so other programs do not change them. The shuffle is uncompressed here,
so that its bytes can be predicted. Memory is the largest resident set of a Python worker beyond one that has only imported
Streamer. Events a second are of the whole call, including its pass over the events beforehand; the prediction is that they stay
as they were at half the size. All formulas must be right within a fifth, except for chance in rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from benchmarks.spark_cluster import standalone, there_can_be_one

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A row of Spark's shuffle beside what it carries: null bits, key, the place of the body, its length, padding to eight.
ROW_BYTES: Final = 8 + 8 + 8 + 4 + 4
#: Spark's own: bytes of a file that a task reads, and what opening a file is reckoned as.
TASK_BYTES, OPEN_BYTES = 128 * 2**20, 4 * 2**20
#: Of a Bloom filter for each key at 1 % (ideally 1.2), and of a filter's header and its row.
KEY_BYTES, PART_BYTES = 1.25, 750
#: Of a snapshot: what is compiled of a subscription with one condition, beside its line.
COMPILED_BYTES: Final = 110
#: Of a worker, by strategy: what it takes beyond its imports, how often it has a batch, for each subscription that it holds, and
#: for each of these that an event has matched.
WORKER_BYTES: Final = {"broadcast": 45e6, "cogroup": 76e6}
BATCHES: Final = {"broadcast": 1, "cogroup": 2}
STORED_BYTES: Final = {"broadcast": 480, "cogroup": 1750}
MATCHED_BYTES: Final = {"broadcast": 470, "cogroup": 0}
#: Rows of a batch, as Spark hands them to Python.
BATCH_ROWS: Final = 10_000
#: How far a formula may be off.
FIFTH: Final = 0.2


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


SIZES: Final = (Size(50_000, 50_000, 50), Size(100_000, 100_000, 100), Size(200_000, 200_000, 200))
SMOKE: Final = (Size(5_000, 1_000, 3), Size(10_000, 2_000, 5))
LARGE: Final = tuple(Size(10**7 // part, 10**5 // part, 200) for part in (4, 2, 1))
FAR: Final = Size(10**9, 10**8, 10_000, hot=0.1)


@dataclass(frozen=True, slots=True)
class Data:
    """What was made of a size.

    Attributes:
        events: a folder of files of a million lines at most.
        matches: how many there must be.
    """

    folder: Path
    event_bytes: float
    subscription_bytes: float
    matches: int

    @property
    def events(self) -> Path:
        return self.folder / "events"

    @property
    def lines(self) -> Path:
        return self.folder / "subscriptions.jsonl"

    @property
    def snapshot(self) -> Path:
        return self.folder / "subscriptions.snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run takes, or took. Bytes are of the whole cluster, unless they are of one machine or worker."""

    broadcast_bytes: float
    shuffled_rows: float
    shuffled_bytes: float
    tasks: float
    worker_bytes: float
    rate: float | None = None


def broadcast(size: Size, data: Data, *, cores: int, task_bytes: int = TASK_BYTES) -> Figures:
    """Predict a run whose snapshot travels to every machine."""
    return Figures(
        broadcast_bytes=size.subscriptions * (data.subscription_bytes + COMPILED_BYTES),
        shuffled_rows=0,
        shuffled_bytes=0,
        tasks=_tasks(size.events * (data.event_bytes + 1), cores, task_bytes),
        worker_bytes=_worker(size, data, "broadcast"),
    )


def cogroup(
    size: Size,
    data: Data,
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
        shuffled_bytes=rows * (data.event_bytes + ROW_BYTES) + copies * (data.subscription_bytes + ROW_BYTES),
        tasks=_tasks(size.events * (data.event_bytes + 1), cores, task_bytes)
        + _tasks(size.subscriptions * (data.subscription_bytes + 1), cores, task_bytes),
        worker_bytes=_worker(size, data, "cogroup", subscriptions_per_task),
    )


def stored_by_one(size: Size, strategy: str, subscriptions_per_task: int = 200_000) -> float:
    """Count the subscriptions that a worker has open at once: of broadcast all, if it meets every collection."""
    if strategy == "broadcast":
        return size.subscriptions
    hot = size.subscriptions * size.hot
    return max(hot / math.ceil(hot / subscriptions_per_task), (size.subscriptions - hot) / size.collections)


def _worker(size: Size, data: Data, strategy: str, subscriptions_per_task: int = 200_000) -> float:
    batch = min(BATCH_ROWS, size.events) * data.event_bytes
    stored = stored_by_one(size, strategy, subscriptions_per_task)
    # Each interesting event matches one subscription, any of those of its collection.
    matched = stored * (1 - math.exp(-size.events * size.interesting / size.subscriptions))
    each = STORED_BYTES[strategy] * stored + MATCHED_BYTES[strategy] * matched
    return WORKER_BYTES[strategy] + BATCHES[strategy] * batch + each


def _tasks(size: float, cores: int, task_bytes: int) -> float:
    """Count the pieces of files, as Spark cuts them."""
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
    random = Random(2).random
    hot = [number for number, name in enumerate(where) if name == "c0"]
    cold = [number for number, name in enumerate(where) if name != "c0"] or hot
    text = "." * 160
    for index in range(size.events):
        # So many are in the hot collection, wanted or not.
        among = hot if random() < size.hot else cold
        number = among[int(random() * len(among))]
        wanted = random() < size.interesting
        user = f"u{number}" if wanted else f"x{int(random() * 10**9)}"
        data = f'{{"user":"{user}","amount":{index % 1000},"text":"{text}","tags":["new","t{index % 50}"]}}'
        event = f'{{"id":"e{index:09}","collection":"{where[number]}","type":"insert","data":{data}}}'
        yield event.encode(), wanted


def made(size: Size, folder: Path) -> Data:
    """Write events, subscriptions and their snapshot, where they are not there already."""
    place = folder / f"{size.events}-{size.subscriptions}-{size.collections}"
    marker = place / "made.json"
    if not marker.exists():
        (place / "events").mkdir(parents=True, exist_ok=True)
        each = events(size)
        matches = 0
        for start in range(0, size.events, _FILE_EVENTS):
            with (place / "events" / f"{start:09}.jsonl").open("wb") as out:
                for event, wanted in islice(each, _FILE_EVENTS):
                    out.write(event + b"\n")
                    matches += wanted
        with (place / "subscriptions.jsonl").open("w") as lines:
            lines.writelines(json.dumps(each, separators=(",", ":")) + "\n" for each in subscriptions(size))
        engine = streamer.Engine()
        engine.add_jsonl(place / "subscriptions.jsonl")
        engine.save(place / "subscriptions.snapshot")
        marker.write_text(json.dumps({"matches": matches}))
    total = sum(file.stat().st_size for file in (place / "events").iterdir())
    return Data(
        place,
        event_bytes=total / size.events - 1,
        subscription_bytes=(place / "subscriptions.jsonl").stat().st_size / size.subscriptions - 1,
        matches=json.loads(marker.read_text())["matches"],
    )


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


def measured(spark: SparkSession, size: Size, data: Data, strategy: str, base: int) -> Figures:
    """Run a size, and return what it took. Raises WrongMatches."""
    from streamer.spark import match_events
    from streamer.spark.job.stages import Stages

    source = spark.read.text(str(data.events))
    texts: DataFrame | str = str(data.snapshot) if strategy == "broadcast" else spark.read.text(str(data.lines))
    began = time.perf_counter()
    result = match_events(source, texts, strategy=strategy).matches  # type: ignore[arg-type]
    recorded = Stages(spark, time.time())
    with recorded.phase("matching"):
        count = result.count()
    took = time.perf_counter() - began
    stages = recorded.ran()
    if count != data.matches:
        raise WrongMatches(f"{count} matches instead of {data.matches}")
    # The count itself shuffles a row for each task, of a few bytes.
    shuffling = [stage for stage in stages if stage.shuffled_bytes > 64 * stage.tasks] if strategy == "cogroup" else []
    return Figures(
        broadcast_bytes=_carried(spark, ".snapshot" if strategy == "broadcast" else ".parts"),
        shuffled_rows=sum(stage.shuffled_records for stage in shuffling),
        shuffled_bytes=sum(stage.shuffled_bytes for stage in shuffling),
        tasks=max(stages, key=lambda stage: stage.records).tasks,
        worker_bytes=max(resident(spark) - base, 0),
        rate=size.events / took,
    )


def _carried(spark: SparkSession, ending: str) -> int:
    """Return the bytes of the last file that was sent along."""
    from pyspark import SparkFiles

    files = list(Path(SparkFiles.getRootDirectory()).rglob(f"*{ending}"))
    return max(files, key=lambda path: path.stat().st_mtime_ns).stat().st_size if files else 0


def wrong(size: Size, predicted: Figures, took: Figures) -> Iterator[str]:
    """Yield the predictions that are more than a fifth off; chance moves rows a little."""
    slack = 3 * math.sqrt(size.events * 0.1)
    allowed = {
        "broadcast_bytes": 1000.0 * size.collections if size.subscriptions < 10_000 else 0.0,
        "shuffled_rows": slack,
        "shuffled_bytes": 400 * slack,
        "tasks": 1,
        "worker_bytes": 0.0,
    }
    for name, more in allowed.items():
        wanted, measurement = getattr(predicted, name), getattr(took, name)
        if abs(wanted - measurement) > FIFTH * measurement + more:
            yield f"{size.events:,} x {size.subscriptions:,}: {name} {measurement:,.0f} instead of {wanted:,.0f}"
    if predicted.rate and took.rate and took.rate < (1 - FIFTH) * predicted.rate:
        yield f"{size.events:,} x {size.subscriptions:,}: {took.rate:,.0f} events/s, after {predicted.rate:,.0f} at half the size"


HEADER: Final = (
    "| events | subscriptions | strategy | on | | broadcast, MB a machine | rows shuffled | MB shuffled | tasks | MB a worker "
    "| events/s |",
    "|---:|---:|---|---|---|---:|---:|---:|---:|---:|---:|",
)


def line(size: Size, strategy: str, place: str, kind: str, figures: Figures) -> str:
    """Return a row of the table."""
    cells = [
        f"{size.events:,}",
        f"{size.subscriptions:,}",
        strategy,
        place,
        kind,
        f"{figures.broadcast_bytes / 1e6:,.2f}",
        f"{figures.shuffled_rows:,.0f}",
        f"{figures.shuffled_bytes / 1e6:,.2f}",
        f"{figures.tasks:,.0f}",
        f"{figures.worker_bytes / 1e6:,.1f}",
        f"{figures.rate:,.0f}" if figures.rate else "",
    ]
    return f"| {' | '.join(cells)} |"


ABOUT: Final = (
    "Predicted and measured in turn, on `local[2]` and on a standalone cluster of two workers of one core; an uncompressed "
    "shuffle, text files of a million events at most, one event in ten matches one subscription, half of all in one collection."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sizes, and print predictions and measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scale", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--smoke", action="store_true", help="a few hundred events")
    which.add_argument("--large", action="store_true", help="up to 10^7 events")
    parser.add_argument("--data", type=Path, help="the folder for the made data; data that is already there is used")
    parser.add_argument("--only-data", action="store_true", help="make the data, and measure no job")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records/<date>-spark-scale.md")
    options = parser.parse_args(arguments)
    began = machine()
    sizes = SMOKE if options.smoke else LARGE if options.large else SIZES
    lines = list(HEADER)
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="streamer-") as scratch:
        data = {size: made(size, options.data or Path(scratch)) for size in sizes}
        if options.only_data:
            return
        print(f"streamer {streamer.__version__}, {streamer.BACKEND} backend\n")
        print(*HEADER, sep="\n")
        for shown in run(data, Path(scratch), failed, smoke=options.smoke):
            print(shown, flush=True)
            lines.append(shown)
    lines += ["", *(failed or ["Every formula is right within a fifth."])]
    print(*lines[-1 - len(failed) :], sep="\n")
    if options.record:
        print(Record("spark-scale", began, ABOUT).write(lines))
    if failed:
        raise WrongPrediction(f"{len(failed)} predictions failed")


def run(data: dict[Size, Data], scratch: Path, failed: list[str], *, smoke: bool) -> Iterator[str]:
    """Yield the table's rows, and add to *failed* what was not as predicted. A smoke run has no cluster and no rates."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
    predicts = {"broadcast": broadcast, "cogroup": cogroup}
    for place in ("local[2]", "cluster") if there_can_be_one() and not smoke else ("local[2]",):
        for strategy, predict in predicts.items():
            # Workers are new for each strategy, since what is asked is the most that one ever held.
            with session(place, scratch / f"{place}-{strategy}") as spark:
                base = resident(spark)
                yield f"| | | {strategy} | {place} | imports | | | | | {base / 1e6:,.1f} | |"
                rate: float | None = None
                for size, source in data.items():
                    took = measured(spark, size, source, strategy, base)
                    predicted = replace(predict(size, source, cores=2), rate=rate)
                    rate = None if smoke else took.rate
                    yield line(size, strategy, place, "predicted", predicted)
                    yield line(size, strategy, place, "measured", took)
                    failed += [f"{strategy} on {place}, {each}" for each in wrong(size, predicted, took)]
    source = list(data.values())[-1]
    for strategy, predict in predicts.items():
        yield line(FAR, strategy, "1,000 cores", "predicted", predict(FAR, source, cores=1_000))


@contextmanager
def session(place: str, folder: Path) -> Iterator[SparkSession]:
    """Have a session on two threads, or on a cluster of its own."""
    from pyspark.sql import SparkSession

    folder.mkdir()
    root = str(Path(__file__).parents[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with ExitStack() as stack:
        settings = dict(_OPTIONS)
        if place == "cluster":
            place = stack.enter_context(standalone(folder, memory="1500m"))
            settings |= {"spark.executorEnv.PYTHONPATH": root, "spark.driver.host": "127.0.0.1"}
        else:
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        builder = SparkSession.builder.master(place).appName("scale")
        for option, value in settings.items():
            builder = builder.config(option, value)
        spark = builder.getOrCreate()
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("OFF")
        yield spark


_OPTIONS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.shuffle.compress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "2g",
    "spark.executor.memory": "1g",
}
#: Of a file: enough that Spark cuts it.
_FILE_EVENTS: Final = 1_000_000


if __name__ == "__main__":
    main()
