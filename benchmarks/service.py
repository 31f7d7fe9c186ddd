"""The cost that the service adds to the engine: file to file, compared with an embedded loop that writes the same lines.

```console
python -m benchmarks.service [--smoke | --record] [--pairs 5]
PG=postgresql://… python -m benchmarks.service --postgres PG [--smoke | --record]
python -m benchmarks.service --kafka localhost:9092 [--smoke | --record]
python -m benchmarks.service --restart [--smoke | --record]
python -m benchmarks.service --import [--smoke | --record]
```

The loop is `for line in engine.match_jsonl(path)`. It makes the messages with the service's own code, and writes them to a file
without a sync. It stores no position, so after a crash it must read everything again. The service reads the same file with the
same engine, syncs its deliveries and commits its positions. The two take turns in one process. The figures are processor time of
all threads, and time. A ratio is the loop's figure divided by the service's: with 1, the service would be free.

A second table shows webhooks. The service reads a file of which each event matches once, and posts each match, signed. For
comparison, a bare loop of aiohttp posts as many signed bodies, with as many requests at once, and does no other work. The
receiver is a process of its own, on the same machine. Batches have a goal of their own for the rate.

With `--postgres VARIABLE` the service reads as many changes from a replication slot. The variable has the address of the server,
for a superuser. The changes are in the server's log before the clock starts; the server decodes them during the measurement, on
the same machine.

With `--kafka HOST:PORT` the service reads as many messages from a topic of six partitions of that broker, and writes the matches
to a file, or to another topic. The clock starts with the first message, so that it leaves out the start of the consumer group.

With `--restart` it measures starts of a service with many stored subscriptions (`restart.py`), and with `--import` the waits of
other requests and events during an import (`imports.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import streamer
from benchmarks import imports, restart
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from streamer import cdc
from streamer.config.secret import SecretValue
from streamer.core.options import Options
from streamer.events.layout import EventLayout
from streamer.service.connectors.file.sink import FileAppender
from streamer.service.connectors.file.source import FileLines
from streamer.service.connectors.formats import Place
from streamer.service.connectors.protocols import Sink, Source
from streamer.service.connectors.webhook.endpoint import Webhook
from streamer.service.connectors.webhook.guard import Guard
from streamer.service.connectors.webhook.signing import signature
from streamer.service.delivery.messages import Shape, Speaker
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.pipeline import Pipeline
from streamer.service.delivery.routing import Routes
from streamer.service.delivery.setup import Feed, Setup
from streamer.service.delivery.spool import Spool, Terms
from streamer.service.run.build import open_feed
from streamer.service.store.ids import inside
from streamer.service.store.store import Store

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True, slots=True)
class Work:
    """How much, and what the ratios are to be at least.

    Attributes:
        each: subscriptions that an event of a customer matches.
        wanted: of so many events, one is of a customer that somebody asked for.
    """

    name: str
    subscriptions: int
    events: int
    each: int
    wanted: int
    cpu: float
    rate: float

    @property
    def matches(self) -> int:
        """How many that must give."""
        return len(range(0, self.events, self.wanted)) * self.each


WORK = (
    Work("0.2 matches an event", subscriptions=100_000, events=1_000_000, each=1, wanted=5, cpu=0.75, rate=0.7),
    Work("10 matches an event", subscriptions=100_000, events=20_000, each=10, wanted=1, cpu=0.5, rate=0.5),
)
SMOKE = (
    Work("0.2 matches an event", subscriptions=1_000, events=2_000, each=1, wanted=5, cpu=0.75, rate=0.7),
    Work("10 matches an event", subscriptions=1_000, events=500, each=10, wanted=1, cpu=0.5, rate=0.5),
)


def engine_of(work: Work, collection: str = "orders") -> streamer.Engine:
    """Return an engine with the subscriptions. Of a table, events have the layout of decoders."""
    engine = streamer.Engine(layout=EventLayout() if collection == "orders" else cdc.LAYOUT)
    engine.add_many(
        {
            "id": inside("default", f"s{number}"),
            "gateway_id": f"g{number % 10}",
            "collection": collection,
            "filters": [{"field": "customer", "op": "==", "value": number // work.each}],
        }
        for number in range(work.subscriptions)
    )
    return engine


def write_events(work: Work, path: Path) -> None:
    """Write the events, each of 308 bytes."""
    customers = work.subscriptions // work.each
    with open(path, "wb") as file:
        for number in range(work.events):
            customer = number * 7919 % customers + (customers if number % work.wanted else 0)
            data = {"customer": customer, "amount": number % 100, "status": "paid", "country": "DE"}
            text = {"id": number, "ts": 1795342530123, "collection": "orders", "type": "insert", "data": data}
            line = json.dumps(text).encode()
            file.write(line[:-1] + b', "note": "' + b"x" * (308 - len(line) - 12) + b'"}\n')


def _setup(source: Source, sinks: Mapping[str, Sink], speaker: Speaker) -> Setup:
    return Setup({"orders": Feed("orders", source, None)}, sinks, speaker)


def _speaker(shape: Shape, layout: EventLayout | None = None) -> Speaker:
    return Speaker(Options.checked(layout=layout or EventLayout()), Routes((), "out"), {"out": shape})


def run_loop(engine: streamer.Engine, events: Path, out: Path, _: Path) -> None:
    """Match and write, as a program would that embeds the engine."""
    speaker = _speaker(Shape())
    with open(out, "wb") as file:
        for line in engine.match_jsonl(events):
            if matches := line.matches:
                place = Place(0, line.line, 0, None)
                for told in speaker.messages("orders", "0" * 16, place, matches.event, matches):  # type: ignore[arg-type]
                    file.writelines(told.messages)


def run_service(engine: streamer.Engine, events: Path, out: Path, data: Path) -> None:
    """Let the service do the same."""
    source, sink = FileLines(events, follow=False, poll=0.25, max_bytes=16 * 2**20), FileAppender(out)
    with closing(Store(data)) as store, closing(sink), closing(source):
        sink.open()
        open_feed(Feed("orders", source, None), store, {"orders"})
        counts = Counts()
        pipeline = Pipeline(engine, store, _setup(source, {"out": sink}, _speaker(Shape())), counts, Spool(store, counts))
        pipeline.start()
        while not pipeline.wait(1):
            pass
        if pipeline.failed is not None:
            raise pipeline.failed


def _met(*goals: tuple[float, float | None]) -> str:
    """Tell whether figures are at least what they are to be."""
    return "yes" if all(figure >= goal for figure, goal in goals if goal is not None) else "no"


def measure(work: Work, pairs: int) -> str:
    """Run both in turns; return a row of the report.

    Raises:
        WrongMatches: another number of matches than the work says.
    """
    engine = engine_of(work)
    ratios: list[tuple[float, float]] = []
    costs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events.jsonl"
        write_events(work, events)
        for turn in range(pairs + 1):
            taken = []
            runs: tuple[Callable[..., None], ...] = (run_loop, run_service)
            for run in runs if turn % 2 else runs[::-1]:
                place = Path(folder) / f"{run.__name__}-{turn}"
                place.mkdir()
                out = place / "out.jsonl"
                began, cpu = time.perf_counter(), time.process_time()
                run(engine, events, out, place / "data")
                taken.append((run, time.process_time() - cpu, time.perf_counter() - began))
                with open(out, "rb") as file:
                    found = sum(1 for _ in file)
                if found != work.matches:
                    raise WrongMatches(f"{work.name}: {found} matches of {work.matches} by {run.__name__}")
                out.unlink()
            (_, loop_cpu, loop_time), (_, cpu, seconds) = sorted(taken, key=lambda each: each[0] is run_service)
            # The first warms caches.
            if turn or pairs == 0:
                ratios.append((loop_cpu / cpu, loop_time / seconds))
                costs.append((cpu / work.events * 1e6, work.events / seconds))
    of_cpu, of_rate = (median(each) for each in zip(*ratios, strict=True))
    micros, rate = (median(each) for each in zip(*costs, strict=True))
    met = _met((of_cpu, work.cpu), (of_rate, work.rate))
    ratios_of = f"{of_cpu:.2f} | {work.cpu} | {of_rate:.2f} | {work.rate} | {met}"
    return f"| {work.name} | {work.matches:,} | {micros:.1f} | {rate:,.0f} | {ratios_of} |"


TABLE = """
CREATE TABLE streamer_benchmark (id int PRIMARY KEY, customer int, amount int, status text, country text, note text);
CREATE PUBLICATION streamer_benchmark FOR TABLE streamer_benchmark;
"""
DROP = """
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'streamer_benchmark';
DROP PUBLICATION IF EXISTS streamer_benchmark;
DROP TABLE IF EXISTS streamer_benchmark;
"""
#: Changes of a transaction.
TOGETHER = 100
GOAL = 20_000


def read_all(
    engine: streamer.Engine, source: Source, sink: Sink, events: int, layout: EventLayout, data: Path
) -> tuple[float, float]:
    """Let the service read so many events; return seconds, of the clock and of the processor, from the first one on."""
    counts = Counts()
    with closing(Store(data)) as store, closing(sink), closing(source):
        sink.open()
        open_feed(Feed("orders", source, None), store, {"orders"})
        setup = _setup(source, {"out": sink}, _speaker(Shape(), layout))
        pipeline = Pipeline(engine, store, setup, counts, Spool(store, counts))
        pipeline.start()
        while not counts.of_sources() and not pipeline.wait(0.001):
            pass
        began, cpu = time.perf_counter(), time.process_time()
        while counts.totals()["events_read"] < events and not pipeline.wait(0.02):
            pass
        pipeline.stop()
        while not pipeline.wait(1):
            pass
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        if pipeline.failed is not None:
            raise pipeline.failed
    return seconds, cpu


def measure_kafka(work: Work, address: str) -> Iterator[str]:
    """Read the messages of a topic; yield rows of the report. Raises WrongMatches."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    from streamer.config.schema.connectors.kafka import KafkaSink, KafkaSource
    from streamer.service.connectors.kafka.brokers import Cluster
    from streamer.service.connectors.kafka.sink import KafkaTopic
    from streamer.service.connectors.kafka.source import KafkaMessages

    admin, engine = AdminClient({"bootstrap.servers": address}), engine_of(work)
    # Names that were not there: what is deleted takes its time to go.
    name = f"streamer-benchmark-{time.time_ns()}"
    names = [name, f"{name}-out"]
    for made in admin.create_topics([NewTopic(each, 6, 1) for each in names]).values():
        made.result(60)
    try:
        with tempfile.TemporaryDirectory() as folder:
            events = Path(folder) / "events.jsonl"
            write_events(work, events)
            producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 10**6})
            with open(events, "rb") as file:
                for number, line in enumerate(file):
                    producer.produce(name, value=line.rstrip(), key=b"%d" % number)
            if producer.flush(120):
                raise WrongMatches(f"{work.name}: the broker did not accept all events within 120 s")
            out = Path(folder) / "out.jsonl"
            to_topic = KafkaSink(type="kafka", brokers=(address,), topic=names[1])
            for group, sink in (("file", FileAppender(out)), ("topic", KafkaTopic(to_topic))):
                section = KafkaSource(type="kafka", brokers=(address,), topics=(name,), group=f"{name}-{group}")
                source = KafkaMessages(section, max_bytes=2**20)
                seconds, cpu = read_all(engine, source, sink, work.events, EventLayout(), Path(folder) / group)
                if group == "file":
                    found = out.read_bytes().count(b"\n")
                else:
                    found = sum(
                        end - first for first, end in Cluster(to_topic).offsets([(names[1], n) for n in range(6)]).values()
                    )
                if found != work.matches:
                    raise WrongMatches(f"{work.name}: {found} matches of {work.matches} from Kafka to a {group}")
                yield f"| {work.name}, from Kafka to a {group} | {found:,} | {_changes(work, seconds, cpu)} |"
    finally:
        for gone in admin.delete_topics(names).values():
            gone.result(60)


def _drop(connection: psycopg.Connection[Any]) -> None:
    """Remove what an earlier run left. The server frees a slot a moment after its reader has closed the connection."""
    from psycopg.errors import ObjectInUse

    deadline = time.monotonic() + 60
    while True:
        try:
            connection.execute(DROP)
            return
        except ObjectInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def measure_postgres(work: Work, variable: str) -> str:
    """Read the changes of a table; return a row of the report. Raises WrongMatches."""
    import psycopg

    from streamer.config.schema.connectors.postgres import PostgresSource
    from streamer.config.secret import SecretValue
    from streamer.service.connectors.postgres.source import PostgresChanges

    dsn = SecretValue("env", variable)
    name = "streamer_benchmark"
    engine = engine_of(work, "public.streamer_benchmark")
    customers = work.subscriptions // work.each
    with psycopg.connect(dsn.reveal(), autocommit=True) as connection, tempfile.TemporaryDirectory() as folder:
        _drop(connection)
        connection.execute(TABLE)
        connection.execute("SELECT pg_create_logical_replication_slot('streamer_benchmark', 'pgoutput')")
        try:
            for first in range(0, work.events, TOGETHER):
                connection.execute(
                    "INSERT INTO streamer_benchmark SELECT n, n::bigint * 7919 %% %(customers)s"
                    " + CASE WHEN n %% %(wanted)s = 0 THEN 0 ELSE %(customers)s END, n %% 100, 'paid', 'DE', repeat('x', 150)"
                    " FROM generate_series(%(first)s::int, %(last)s) n",
                    {
                        "customers": customers,
                        "wanted": work.wanted,
                        "first": first,
                        "last": min(first + TOGETHER, work.events) - 1,
                    },
                )
            source = PostgresChanges(PostgresSource(type="postgres", dsn=dsn, slot=name, publication=name))
            out = Path(folder) / "out.jsonl"
            seconds, cpu = read_all(engine, source, FileAppender(out), work.events, cdc.LAYOUT, Path(folder) / "data")
            with open(out, "rb") as file:
                found = sum(1 for _ in file)
        finally:
            _drop(connection)
    if found != work.matches:
        raise WrongMatches(f"{work.name}: {found} matches of {work.matches} from PostgreSQL")
    return f"| {work.name}, from PostgreSQL | {found:,} | {_changes(work, seconds, cpu)} |"


def _changes(work: Work, seconds: float, cpu: float) -> str:
    rate = work.events / seconds
    return f"{cpu / work.events * 1e6:.1f} | {rate:,.0f} | {GOAL:,} | {_met((rate, GOAL))}"


CHANGES_HEADER = "| work | matches | µs of CPU a change | changes/s | at least | met |\n|---|--:|--:|--:|--:|---|"
HEADER = (
    "| work | matches | µs of CPU an event | events/s "
    "| CPU, loop ÷ service | at least | time, loop ÷ service | at least | met |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|---|"
)


@dataclass(frozen=True, slots=True)
class Posting:
    """How many matches are posted, and how fast it is to be.

    Attributes:
        batch: messages of a request.
        ratio: of the service's rate to the loop's, at least; None where the rate itself is the goal.
        rate: matches a second, at least.
    """

    name: str
    matches: int
    batch: int
    ratio: float | None = None
    rate: float | None = None


POSTING = (
    Posting("one match a request", matches=10_000, batch=1, ratio=0.7),
    Posting("100 matches a request", matches=100_000, batch=100, rate=20_000),
)
POSTING_SMOKE = (
    Posting("one match a request", matches=200, batch=1, ratio=0.7),
    Posting("100 matches a request", matches=1_000, batch=100, rate=20_000),
)
AT_ONCE = 8
_KEY = b"k" * 32


class Taking(asyncio.Protocol):
    """Answers each request with 204. Its body is noted before."""

    def __init__(self, note: Callable[[bytes], object]) -> None:
        self._note, self._text = note, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._text += data
        while (end := self._text.find(b"\r\n\r\n")) >= 0:
            head = self._text[:end].lower()
            size = int(head.partition(b"content-length: ")[2].split(b"\r", 1)[0])
            if len(self._text) < end + 4 + size:
                return
            self._note(self._text[end + 4 : end + 4 + size])
            self._text = self._text[end + 4 + size :]
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def receive(port: Any, note: Callable[[bytes], object]) -> None:
    """Take what is posted to a port of this machine, until the process ends."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Taking(note), "127.0.0.1", 0)
        port.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    asyncio.run(serve())


def post_bare(port: int, count: int) -> None:
    """Post bodies as large as the service's messages, signed, with aiohttp."""
    import aiohttp

    body = b'{"specversion":"1.0","id":"' + b"0" * 700 + b'"}'

    async def run() -> None:
        numbers = iter(range(count))
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:

            async def post() -> None:
                for number in numbers:
                    identity, now = f"{number:032x}", int(time.time())
                    headers = {
                        "Content-Type": "application/cloudevents+json; charset=utf-8",
                        "webhook-id": identity,
                        "webhook-timestamp": str(now),
                        "webhook-signature": signature([_KEY], identity, now, body),
                    }
                    async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=headers) as answer:
                        await answer.read()

            await asyncio.gather(*(post() for _ in range(AT_ONCE)))

    asyncio.run(run())


def _count(port: Any, taken: Any) -> None:
    def note(body: bytes) -> None:
        taken.value += body.count(b'{"specversion":"1.0"')

    receive(port, note)


def post_by_service(port: int, engine: streamer.Engine, events: Path, data: Path, batch: int) -> None:
    """Let the service read events, and post what they match."""
    (data.parent / "secret").write_text("whsec_" + base64.b64encode(_KEY).decode())
    guard = Guard((ip_network("127.0.0.0/8"),))
    secrets = [SecretValue("file", str(data.parent / "secret"))]
    endpoint = Webhook(f"http://127.0.0.1:{port}/", secrets, guard, in_batches=batch > 1)
    source = FileLines(events, follow=False, poll=0.25, max_bytes=16 * 2**20)
    with closing(Store(data)) as store, closing(endpoint), closing(source):
        open_feed(Feed("orders", source, None), store, {"orders"})
        counts = Counts()
        spool = Spool(store, counts)
        spool.add("out", endpoint, Terms(concurrency=AT_ONCE, batch=batch), "")
        pipeline = Pipeline(engine, store, _setup(source, {}, _speaker(Shape())), counts, spool)
        pipeline.start()
        while not pipeline.wait(1):
            pass
        if pipeline.failed is not None:
            raise pipeline.failed


def measure_posting(posting: Posting, pairs: int) -> str:
    """Run both in turns; return a row of the report.

    Raises:
        WrongMatches: another number of matches arrived.
    """
    work = Work(posting.name, subscriptions=1000, events=posting.matches, each=1, wanted=1, cpu=0, rate=0)
    engine = engine_of(work)
    spawn = multiprocessing.get_context("spawn")
    port, taken = spawn.Value("i", 0), spawn.Value("q", 0)
    receiving = spawn.Process(target=_count, args=(port, taken), daemon=True)
    receiving.start()
    while not port.value:
        time.sleep(0.01)
    rates: list[tuple[float, float]] = []
    cpus = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            events = Path(folder) / "events.jsonl"
            write_events(work, events)
            for turn in range(pairs + 1):
                for is_service in (True, False) if turn % 2 else (False, True):
                    taken.value = 0
                    began, used = time.perf_counter(), time.process_time()
                    if is_service:
                        (place := Path(folder) / str(turn)).mkdir()
                        post_by_service(port.value, engine, events, place / "data", posting.batch)
                        seconds, cpu = time.perf_counter() - began, time.process_time() - used
                    elif posting.ratio is not None:
                        post_bare(port.value, posting.matches)
                        bare = time.perf_counter() - began
                    else:
                        bare = math.nan
                        continue
                    if taken.value != posting.matches:
                        raise WrongMatches(f"{posting.name}: {taken.value} matches of {posting.matches}")
                # The first warms caches.
                if turn or pairs == 0:
                    rates.append((posting.matches / seconds, bare / seconds))
                    cpus.append(cpu / posting.matches * 1e6)
    finally:
        receiving.terminate()
        receiving.join()
    rate, ratio = (median(each) for each in zip(*rates, strict=True))
    compared = "" if posting.ratio is None else f"{ratio:.2f}"
    goal = f"{posting.rate:,.0f} matches/s" if posting.rate is not None else posting.ratio
    met = _met((ratio, posting.ratio), (rate, posting.rate))
    return f"| {posting.name} | {posting.matches:,} | {median(cpus):.1f} | {rate:,.0f} | {compared} | {goal} | {met} |"


POSTING_HEADER = (
    "| webhooks | matches | µs of CPU a match | matches/s | rate, service ÷ aiohttp | at least | met |\n"
    "|---|--:|--:|--:|--:|--:|---|"
)


def main(arguments: list[str] | None = None) -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a little data, to check that it runs: ignore the figures")
    parser.add_argument("--record", action="store_true", help="write a dated record")
    parser.add_argument("--pairs", type=int, default=5, help="how often the service and the loop take turns (5)")
    parser.add_argument(
        "--postgres", metavar="VARIABLE", help="read changes of the PostgreSQL server whose address this variable has, instead"
    )
    parser.add_argument("--kafka", metavar="HOST:PORT", help="read messages from this broker of Kafka, instead")
    parser.add_argument("--restart", action="store_true", help="measure starts with 960,000 stored subscriptions, instead")
    parser.add_argument(
        "--import",
        action="store_true",
        dest="imports",
        help="measure the waits of others while 80,000 subscriptions are imported, instead",
    )
    options = parser.parse_args(arguments)
    if options.restart:
        record = Record("service-restart", machine(), "Starts of `streamer serve`, each in a process of its own, one run.")
        _report(record if options.record else None, restart.HEADER, restart.measure(1000 if options.smoke else 960_000))
        return
    if options.imports:
        record = Record("service-import", machine(), "An import into `streamer serve`, and the waits of others, one run.")
        _report(record if options.record else None, imports.HEADER, imports.measure(1000 if options.smoke else 80_000))
        return
    if options.kafka:
        record = Record(
            "service-kafka", machine(), "Kafka to file and to Kafka, 308 bytes an event, the broker on the same machine."
        )
        try:
            rows = [CHANGES_HEADER, *measure_kafka((SMOKE if options.smoke else WORK)[0], options.kafka)]
        except WrongMatches as wrong:
            sys.exit(f"wrong: {wrong}")
        print("\n".join(rows))
        if options.record:
            print(record.write(rows))
        return
    if options.postgres:
        work = (SMOKE if options.smoke else WORK)[0]
        record = Record("service-postgres", machine(), "PostgreSQL to file, changes of about 250 bytes, 100 a transaction.")
        print(CHANGES_HEADER)
        try:
            row = measure_postgres(work, options.postgres)
        except WrongMatches as wrong:
            sys.exit(f"wrong: {wrong}")
        print(row)
        if options.record:
            print(record.write([CHANGES_HEADER, row]))
        return
    record = Record("service", machine(), "File to file, 308 bytes an event; medians of pairs that took turns.")
    rows = []
    print(HEADER)
    for work in SMOKE if options.smoke else WORK:
        try:
            rows.append(measure(work, 0 if options.smoke else options.pairs))
        except WrongMatches as wrong:
            sys.exit(f"wrong: {wrong}")
        print(rows[-1], flush=True)
    rows += ["", POSTING_HEADER]
    print("\n".join(rows[-2:]))
    for posting in POSTING_SMOKE if options.smoke else POSTING:
        try:
            rows.append(measure_posting(posting, 0 if options.smoke else options.pairs))
        except WrongMatches as wrong:
            sys.exit(f"wrong: {wrong}")
        print(rows[-1], flush=True)
    if options.record:
        print(record.write([HEADER, *rows]))


def _report(record: Record | None, header: str, rows: Iterable[str]) -> None:
    """Print the rows as they come, and write the record."""
    print(header)
    printed = [header]
    for row in rows:
        printed.append(row)
        print(row, flush=True)
    if record is not None:
        print(record.write(printed))


if __name__ == "__main__":
    main()
