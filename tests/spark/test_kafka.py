"""Kafka for real: the job reads a broker's topics and writes to them, in batches and streams, and matches as the engine does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import streamer
from examples.flights import generated, records
from examples.flights.__main__ import HAND_WRITTEN
from streamer.terminal import SOME_BAD
from tests.spark.conftest import missing
from tests.tools.killed_drivers import kill_again_and_again, written_by_gateway

if TYPE_CHECKING:
    from tests.tools.kafka import Server, Spark

pytestmark = pytest.mark.integration

#: Sends and fetches as any client would. A message is a key and a value, each as hexadecimal or null.
CLIENT = """
import json, sys
from pyspark.sql import SparkSession

what, broker, topic, file, jars = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars).getOrCreate()
kafka = {"kafka.bootstrap.servers": broker}
if what == "send":
    rows = [[None if each is None else bytearray.fromhex(each) for each in json.loads(line)] for line in open(file)]
    frame = spark.createDataFrame(rows, "key binary, value binary").repartition(3)
    length = "cast(cast(length(value) as string) as binary)"
    frame = frame.selectExpr("*", f"array(named_struct('key', 'bytes', 'value', {length})) AS headers")
    frame.write.format("kafka").options(**kafka, topic=topic).save()
else:
    rows = spark.read.format("kafka").options(**kafka, subscribe=topic).load().orderBy("partition", "offset").collect()
    with open(file, "w") as output:
        for row in rows:
            output.write(json.dumps([None if each is None else each.hex() for each in (row.key, row.value)]) + "\\n")
spark.stop()
"""

#: How often a driver is killed.
KILLS = 5

Message = tuple[bytes | None, bytes | None]
Match = tuple[str, str, str | None, str | None]

BAD: dict[bytes | None, str] = {
    b"{": "malformed_json",
    b"[1]": "not_an_object",
    b'{"collection": "fl\xffights"}': "bad_utf8",
}


@dataclass
class Kafka:
    """A broker, and how to run things beside it."""

    server: Server
    spark: Spark
    folder: Path

    def place(self, topic: str) -> str:
        return f"kafka://{self.server.address}/{topic}"

    @property
    def login(self) -> dict[str, str]:
        """What Kafka's client needs where the broker asks who one is."""
        login = f'ScramLoginModule required username="{self.server.USER}" password="{self.server.PASSWORD}";'
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.server.ca),
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.scram.{login}",
        }

    def _client(self, what: str, topic: str) -> Path:
        program, file = self.folder / "client.py", self.folder / f"{topic}.messages"
        program.write_text(CLIENT)
        jars = ",".join(map(str, self.spark.jars))
        command = [sys.executable, str(program), what, self.server.address, topic, str(file), jars]
        ran = subprocess.run(command, env=self.spark.environment(), capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr[-5000:]
        return file

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        lines = [json.dumps([None if each is None else each.hex() for each in message]) for message in messages]
        (self.folder / f"{topic}.messages").write_text("\n".join(lines))
        self._client("send", topic)

    def fetch(self, topic: str) -> list[Message]:
        rows = [json.loads(line) for line in self._client("fetch", topic).read_text().splitlines()]
        return [tuple(None if each is None else bytes.fromhex(each) for each in row) for row in rows]  # type: ignore[misc]

    def command(self, *arguments: str) -> list[str]:
        """Return the job as a user runs it, but for where the jars come from."""
        words = ["-s", str(self.folder / "subscriptions.snapshot"), "--conf", self.spark.conf, "--master", "local[2]", *arguments]
        return [sys.executable, "-m", "streamer.spark.job", *words]

    def job(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = self.spark.environment()
        command = self.command(*arguments)
        return subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=500, check=False)


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> str:
    """That of STREAMER_BACKEND, as in the processes that these tests start: `make test-integration` names each in turn."""
    return streamer.BACKEND


@pytest.fixture(scope="module")
def engine() -> streamer.Engine:
    engine = streamer.Engine()
    engine.add_jsonl(HAND_WRITTEN)
    # The reference looks at every one for each event.
    engine.add_many(generated.subscriptions(2_000 if streamer.BACKEND == "native" else 200))
    return engine


@pytest.fixture(scope="module")
def events() -> list[bytes]:
    return list(records.events(150))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, engine: streamer.Engine, events: list[bytes]) -> Iterator[Kafka]:
    """A broker whose topic `changes` has real events, with and without keys, and bad ones among them."""
    if (reason := missing()) is not None:
        pytest.fail(reason)
    from tests.tools.fetched import NotThere
    from tests.tools.kafka import server, spark_and_connector

    folder = tmp_path_factory.mktemp("kafka")
    engine.save(folder / "subscriptions.snapshot")
    try:
        spark = spark_and_connector()
        with server(folder) as running:
            made = Kafka(running, spark, folder)
            keyed: list[Message] = [(b"k%d" % (n % 7) if n % 5 else None, event) for n, event in enumerate(events)]
            made.send("changes", [*keyed, *((b"bad", event) for event in BAD)])
            yield made
    except NotThere as error:
        pytest.fail(str(error))


def expected(engine: streamer.Engine, events: Sequence[bytes]) -> Counter[Match]:
    counted: Counter[Match] = Counter()
    for event in events:
        of = str(json.loads(event)["id"])
        counted.update((of, each.subscription_id, each.gateway_id, each.transition) for each in engine.match(event))
    assert sum(counted.values()) > 100
    return counted


def in_rows(rows: Sequence[dict[str, Any]]) -> Counter[Match]:
    return Counter((row["event_id"], row["subscription_id"], row.get("gateway_id"), row.get("transition")) for row in rows)


@pytest.mark.parametrize("strategy", ["broadcast", "cogroup"])
def test_a_batch_takes_all_of_a_topic(kafka: Kafka, engine: streamer.Engine, events: list[bytes], strategy: str) -> None:
    import pyarrow.parquet

    out = str(kafka.folder / strategy)
    columns = ["--keep", "partition", "--keep", "offset", "--keep", "key", "--keep", "headers", "--keep-event"]
    ends = ["--option", 'endingOffsets={"changes": {"0": -1, "1": -1, "2": -1}}'] if strategy == "broadcast" else []
    done = kafka.job("--events", kafka.place("changes"), "--out", out, "--strategy", strategy, *columns, *ends)
    assert done.returncode == 1, done.stderr[-5000:]
    rows = pyarrow.parquet.read_table(out).to_pylist()
    assert in_rows(rows) == expected(engine, events)
    assert all(str(json.loads(row["event"])["id"]) == row["event_id"] for row in rows)
    assert {row["key"] for row in rows} == {None, *(b"k%d" % n for n in range(7))}
    assert {row["partition"] for row in rows} == {0, 1, 2}
    assert all(row["headers"] == [{"key": "bytes", "value": b"%d" % len(row["event"])}] for row in rows)
    bad = pyarrow.parquet.read_table(f"{out}.rejected").to_pylist()
    assert {row["event"]: row["code"] for row in bad} == BAD
    assert {row["key"] for row in bad} == {b"bad"}
    assert all(row["headers"] == [{"key": "bytes", "value": b"%d" % len(row["event"])}] for row in bad)
    assert f"{len(events) + len(BAD):,} events, {len(rows):,} matches, {len(BAD)} rejected events" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stream_goes_on_where_its_checkpoint_ends_and_writes_to_topics(
    kafka: Kafka, engine: streamer.Engine, events: list[bytes]
) -> None:
    stream = ["--events", kafka.place("live"), "--stream", "--checkpoint", str(kafka.folder / "checkpoint")]
    stream += ["--trigger", "available-now", "--option", "maxOffsetsPerTrigger=1000", "--keep-event"]
    stream += ["--out", kafka.place("matches"), "--rejected", kafka.place("rejected")]
    half = len(events) // 2
    kafka.send("live", [(b"k", event) for event in events[:half]])
    first = kafka.job(*stream)
    assert first.returncode == 0, first.stderr[-5000:]
    assert first.stderr.count("\nbatch ") + first.stderr.startswith("batch ") >= 2, first.stderr
    kafka.send("live", [*((b"k", event) for event in events[half:]), *((None, event) for event in BAD)])
    second = kafka.job(*stream)
    assert second.returncode == 1, second.stderr[-5000:]
    assert second.stderr.splitlines()[-1].startswith(f"{len(events) - half + len(BAD):,} events, ")
    messages = kafka.fetch("matches")
    rows = [json.loads(value or b"") for _, value in messages]
    assert in_rows(rows) == expected(engine, events)
    assert all((key and key.decode()) == row.get("gateway_id") for (key, _), row in zip(messages, rows, strict=True))
    assert all(str(json.loads(row["event"])["id"]) == row["event_id"] for row in rows)
    bad = [(key, json.loads(value or b"")) for key, value in kafka.fetch("rejected")]
    assert [key for key, _ in bad] == [None] * len(BAD)
    assert Counter(row["code"] for _, row in bad) == Counter(BAD.values())
    assert "Traceback" not in first.stderr + second.stderr


def test_a_stream_that_is_killed_in_mid_batch_writes_every_match_once(
    kafka: Kafka, engine: streamer.Engine, events: list[bytes]
) -> None:
    """Driver, JVM and workers at once, while a topic of three partitions is read with TLS and a password."""
    import pyarrow.parquet

    kafka.send("secured", [(None, event) for event in [*events, *BAD]])
    out, log = kafka.folder / "once", kafka.folder / "killed.log"
    stream = ["--events", f"kafka://{kafka.server.secure}/secured", "--stream", "--trigger", "available-now", "--by-gateway"]
    stream += ["--checkpoint", str(kafka.folder / "killed"), "--out", str(out), "--keep", "partition"]
    for name, value in {**kafka.login, "maxOffsetsPerTrigger": "600"}.items():
        stream += ["--option", f"{name}={value}"]
    code, seed = kill_again_and_again(
        kafka.command(*stream),
        lambda: written_by_gateway(out),
        log,
        kills=KILLS,
        steps=(1, 1, 3),
        within=1,
        environment=kafka.spark.environment(),
    )
    assert code == SOME_BAD, log.read_text()[-3000:]
    rows = pyarrow.parquet.read_table(out).to_pylist()
    assert in_rows(rows) == expected(engine, events), seed
    assert {row["partition"] for row in rows} == {0, 1, 2}
    bad = pyarrow.parquet.read_table(f"{out}.rejected").to_pylist()
    assert Counter(row["event"] for row in bad) == Counter(BAD.keys()), seed
    assert kafka.server.PASSWORD not in log.read_text()


def test_a_batch_goes_to_a_topic_with_tls_and_a_password(kafka: Kafka, engine: streamer.Engine, events: list[bytes]) -> None:
    to = [word for name, value in kafka.login.items() for word in ("--out-option", f"{name}={value}")]
    done = kafka.job("--events", kafka.place("changes"), "--out", f"kafka://{kafka.server.secure}/private", *to)
    assert done.returncode == SOME_BAD, done.stderr[-5000:]
    assert in_rows([json.loads(value or b"") for _, value in kafka.fetch("private")]) == expected(engine, events)
    assert kafka.server.PASSWORD not in done.stderr


def test_a_missing_topic_or_broker_is_reported_in_a_sentence(kafka: Kafka) -> None:
    place = kafka.place("nobodys")
    done = kafka.job("--events", place, "--out", str(kafka.folder / "nothing"))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"streamer: {place}: Kafka has no such topic")
    # No one listens at port 9, and the client asks for 60 s, three times, unless it is told otherwise.
    place = "kafka://127.0.0.1:9/changes"
    soon = ["--option", "kafka.default.api.timeout.ms=3000", "--option", "kafka.request.timeout.ms=2000"]
    done = kafka.job("--events", place, "--out", str(kafka.folder / "nothing"), *soon)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"streamer: {place}: the brokers of Kafka do not answer")
    assert "Traceback" not in done.stderr
