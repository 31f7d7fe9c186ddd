"""A real broker of Kafka: services that are killed and stopped lose nothing, and what only a broker does."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from benchmarks import service as benchmark
from streamer import Config
from streamer.config.schema.connectors.kafka import KafkaSink, KafkaSource
from streamer.errors import ServiceError
from streamer.service.connectors.kafka import source as source_of_kafka
from streamer.service.connectors.kafka.sink import KafkaTopic
from streamer.service.connectors.kafka.source import KafkaMessages
from tests.service.api import until
from tests.service.conftest import SUBSCRIPTIONS, event
from tests.service.receiver import Receiver, Request
from tests.service.test_kafka import message
from tests.tools.fetched import NotThere, fetch
from tests.tools.kafka import BROKER, Server, server
from tests.tools.postgres import Cluster, missing
from tests.tools.records import append_run

pytestmark = [pytest.mark.slow, pytest.mark.later_on_the_reference]

PARTITIONS = 6
KEYS = 40


class Broker:
    """A broker, with topics that are named once."""

    def __init__(self, server: Server) -> None:
        self.server, self.address = server, server.address
        self.admin = AdminClient({"bootstrap.servers": self.address})
        self._count = 0

    def topic(self, partitions: int = PARTITIONS, name: str | None = None, **config: str) -> str:
        """Make a topic; return its name."""
        self._count += 1
        name = name or f"t{self._count}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        (made,) = self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
        made.result(30)
        return name

    def delete(self, name: str) -> None:
        (deleted,) = self.admin.delete_topics([name]).values()
        deleted.result(30)

    def set(self, name: str, option: str, value: str) -> None:
        entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        (changed,) = self.admin.incremental_alter_configs([resource]).values()
        changed.result(30)

    def send(self, topic: str, first: int, last: int) -> None:
        """Send events of some keys, of which all match."""
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                "enable.idempotence": True,
            }
        )
        for number in range(first, last):
            producer.produce(topic, value=event(number, pad="x" * 200), key=b"k%d" % (number % KEYS))
        assert producer.flush(60) == 0

    def written(self, topic: str) -> list[Any]:
        """Return the messages of a topic; those of one key are in their order."""
        settings = {
            "bootstrap.servers": self.address,
            "group.id": "reader",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
        reader = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        found, ended = [], 0
        partitions = len(reader.list_topics(topic, timeout=30).topics[topic].partitions)
        reader.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while ended < partitions:
            for each in reader.consume(5000, 0.2):
                if each.error() is None:
                    found.append(json.loads(each.value()))
                else:
                    assert each.error().code() == KafkaError._PARTITION_EOF
                    ended += 1
        reader.close()
        return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        fetch(*BROKER)
    except NotThere as error:
        pytest.skip(str(error))
    with server(tmp_path_factory.mktemp("kafka")) as made:
        yield Broker(made)


def check(messages: list[Any], count: int) -> int:
    """Check that all was delivered, with one id each, and that what came first of a key is in order; return what came twice."""
    ids: dict[int, str] = {}
    last: dict[str, int] = {}
    for each in messages:
        number = each["data"]["event"]["id"]
        if number in ids:
            assert ids[number] == each["id"]
            continue
        ids[number] = each["id"]
        assert last.get(each["partitionkey"], -1) < number, "out of order"
        last[each["partitionkey"]] = number
    assert sorted(ids) == list(range(count)), f"{count - len(ids)} are lost"
    assert len(set(ids.values())) == count
    return len(messages) - count


class Process:
    """A service in a process of its own, with a store of its own, or a shared one."""

    def __init__(
        self,
        kafka: Broker,
        place: Path,
        name: str,
        source: str,
        sink: str | dict[str, Any],
        reached: Any = None,
        store: str | None = None,
        **options: Any,
    ) -> None:
        self.place = place / name
        self.place.mkdir()
        self.log = self.place / "log"
        (self.place / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
        given = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500, **options}
        reached = reached or {"brokers": kafka.address}
        config = {
            "subscriptions": "subs.jsonl",
            "sources": {"orders": {"type": "kafka", **reached, "topics": source, "group": source, "options": given}},
            "sinks": {"out": {"type": "kafka", **reached, "topic": sink} if isinstance(sink, str) else sink},
            "service": {"data_dir": "data"},
        }
        if store is not None:
            (self.place / "dsn").write_text(store)
            config["store"] = {"dsn": {"file": "dsn"}}
        (self.place / "streamer.yaml").write_text(json.dumps(config))
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._begun = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-m", "streamer", "serve", "-c", "streamer.yaml"]
        path = os.pathsep.join(each for each in sys.path if each)
        with open(self.log, "ab") as log:
            self.running = subprocess.Popen(
                command, stderr=log, cwd=self.place, env=os.environ | {"PYTHONPATH": path, "STREAMER_BACKEND": "native"}
            )

    def wait_for(self, said: bytes) -> None:
        """Wait until it has said something since its start."""
        deadline = time.monotonic() + 60
        while said not in self.log.read_bytes()[self._begun :]:
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            assert self.running is not None
            assert self.running.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.002)

    def signal(self, number: int) -> None:
        assert self.running is not None
        self.running.send_signal(number)

    def kill(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.wait()
            self.running = None

    def end(self) -> None:
        """End it as a supervisor does."""
        assert self.running is not None
        # Until it says so a signal ends it at once.
        self.wait_for(b"started")
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        assert self.running.wait(60) == 0, self.log.read_text()[-3000:]
        self.running = None


def wait_for_all(written: Callable[[], list[Any]], count: int, processes: list[Process], seconds: float = 120) -> list[Any]:
    deadline = time.monotonic() + seconds
    while True:
        found = written()
        if len({each["id"] for each in found}) >= count:
            return found
        for each in processes:
            assert each.running is None or each.running.poll() is None, each.log.read_text()[-3000:]
        told = "\n".join(each.log.read_text()[-1500:] for each in processes)
        assert time.monotonic() < deadline, f"{len(found)} of {count}\n{told}"
        time.sleep(0.2)


def kill_again_and_again(kafka: Broker, place: Path, kills: int, events: int) -> tuple[int, int]:
    """Kill a service at random moments so often, while events come; return how many those were, and what came twice."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    source, sink = kafka.topic(), kafka.topic()
    # A member with a name of its own takes its partitions over from the one that was killed.
    process = Process(kafka, place, "one", source, sink, **{"group.instance.id": "one"})
    sent = killed = 0
    try:
        while killed < kills:
            kafka.send(source, sent, sent + events)
            sent += events
            process.start()
            process.wait_for(b"assigned")
            time.sleep(rng.expovariate(1 / 0.05))
            process.kill()
            killed += 1
        process.start()
        found = wait_for_all(lambda: kafka.written(sink), sent, [process])
        process.end()
    finally:
        process.kill()
    twice = check(found, sent)
    return sent, twice


def test_a_service_that_is_killed_at_random_moments_loses_nothing(kafka: Broker, tmp_path: Path) -> None:
    kill_again_and_again(kafka, tmp_path, 2, 3000)


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_group_with_one_store_of_which_members_are_killed_and_stopped_loses_nothing(
    kafka: Broker, tmp_path: Path, receiver: Receiver
) -> None:
    storm(kafka, tmp_path, rounds=1, pause=13.0, receiver=receiver)


def storm(kafka: Broker, place: Path, rounds: int, pause: float, receiver: Receiver | None = None) -> dict[str, int]:
    """Run three processes of one group, of which one is killed and one stopped by turns, while events come.

    Args:
        receiver: an endpoint that all of it is posted to; the processes share a store then.
    """
    rng = random.Random(random.randrange(2**32))
    source, sink = kafka.topic(), kafka.topic()
    if receiver is None:
        processes = [Process(kafka, place, name, source, sink) for name in ("a", "b", "c")]
        return stormed(kafka, source, processes, rng, rounds, pause, lambda: kafka.written(sink))
    cluster = Cluster()
    # It takes its time, so that something is on its way whenever who delivers is killed or stopped.
    receiver.answer = _slowly
    try:
        processes = [
            Process(kafka, place, name, source, receiver.sink(batch=100), store=cluster.dsn()) for name in ("a", "b", "c")
        ]
        return stormed(kafka, source, processes, rng, rounds, pause, lambda: receiver.messages)
    finally:
        cluster.close()


def _slowly(_: Request) -> int:
    time.sleep(0.1)
    return 204


def stormed(
    kafka: Broker,
    source: str,
    processes: list[Process],
    rng: random.Random,
    rounds: int,
    pause: float,
    written: Callable[[], list[Any]],
) -> dict[str, int]:
    sent = 0
    try:
        for each in processes:
            each.start()
        for _ in range(rounds):
            killed, stopped = rng.sample(processes, 2)
            until = time.monotonic() + pause
            kafka.send(source, sent, sent + 2000)
            sent += 2000
            time.sleep(rng.uniform(0, 1))
            stopped.signal(signal.SIGSTOP)
            killed.kill()
            killed.start()
            # Longer than the group waits for somebody who says nothing.
            while time.monotonic() < until:
                kafka.send(source, sent, sent + 100)
                sent += 100
                time.sleep(0.1)
            stopped.signal(signal.SIGCONT)
        wait_for_all(written, sent, processes)
        for each in processes:
            each.end()
        found = written()
    finally:
        for each in processes:
            with suppress(ProcessLookupError, AssertionError):
                each.signal(signal.SIGCONT)
            each.kill()
    return {"events": sent, "killed": rounds, "stopped": rounds, "delivered_twice": check(found, sent)}


@pytest.mark.integration
def test_a_service_that_is_killed_again_and_again_loses_nothing(kafka: Broker, tmp_path: Path) -> None:
    """What came of it is a line of tests/records/service.jsonl."""
    began, sent, twice = time.monotonic(), 0, 0
    for number in range(10):
        place = tmp_path / str(number)
        place.mkdir()
        more, again = kill_again_and_again(kafka, place, 10, 2000)
        sent, twice = sent + more, twice + again
    append_run(
        "topic to topic of Kafka, killed at random moments while events come, 10 times and then run to its end",
        began,
        killed=100,
        runs=10,
        matches=sent,
        lost=0,
        out_of_order=0,
        delivered_twice=twice,
    )


@pytest.mark.integration
def test_a_group_of_which_members_are_killed_and_stopped_again_and_again(kafka: Broker, tmp_path: Path) -> None:
    """What came of it is a line of tests/records/service.jsonl."""
    began = time.monotonic()
    seen = storm(kafka, tmp_path, rounds=15, pause=10.0)
    append_run(
        "three processes of one group of Kafka, of which one is killed and one stopped for 10 s, again and again",
        began,
        **seen,
        lost=0,
        out_of_order=0,
    )


@pytest.mark.integration
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_group_with_one_store_of_which_members_are_killed_and_stopped_again_and_again(
    kafka: Broker, tmp_path: Path, receiver: Receiver
) -> None:
    """What came of it is a line of tests/records/service.jsonl."""
    began = time.monotonic()
    seen = storm(kafka, tmp_path, rounds=15, pause=14.0, receiver=receiver)
    append_run(
        "three processes with one store on PostgreSQL, topic to webhook, of which one is killed and one stopped for 14 s, again "
        "and again",
        began,
        **seen,
        lost=0,
        out_of_order=0,
    )


def read(source: KafkaMessages, positions: dict[str, str], count: int, seconds: float = 30) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        if (batch := source.read(0.1)) is not None:
            found += batch.records
            if batch.is_last:
                positions.pop(batch.partition)
            else:
                positions[batch.partition] = batch.confirm or ""
                source.acknowledge(batch.partition, batch.confirm or "")
    return found


def secured(server: Server, variable: str = "KAFKA_PASSWORD", mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    """Return how the broker is reached with TLS and a password."""
    sasl = {"mechanism": mechanism, "user": server.USER, "password": {"env": variable}}
    return {"brokers": server.secure, "tls": True, "ca": str(server.ca), "sasl": sasl}


def test_who_we_are_and_who_brokers_are_is_checked_and_no_password_is_shown(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("GOOD", kafka.server.PASSWORD)
    monkeypatch.setenv("WRONG", "another-word")
    topic = kafka.topic(1)

    def parts(**fields: Any) -> tuple[KafkaMessages, KafkaTopic]:
        made = {"in": {"type": "kafka", "topics": topic, "group": topic, **fields}}
        source = Config.from_dict({"sources": made}).sources["in"]
        sink = Config.from_dict({"sinks": {"out": {"type": "kafka", "topic": topic, **fields}}}).sinks["out"]
        assert isinstance(source, KafkaSource)
        assert isinstance(sink, KafkaSink)
        return KafkaMessages(source, max_bytes=10_000), KafkaTopic(sink)

    positions: dict[str, str] = {}
    for number, mechanism in enumerate(("PLAIN", "SCRAM-SHA-512")):
        source, sink = parts(**secured(kafka.server, "GOOD", mechanism))
        sink.open()
        sink.write([message(number)])
        assert sink.flush() == []
        sink.close()
        source.open(positions, positions.__setitem__)
        assert [json.loads(each)["id"] for each in read(source, positions, 1)] == [f"{number:032x}"]
        source.close()
    good = secured(kafka.server, "GOOD")
    for wrong, reason in (
        (secured(kafka.server, "WRONG"), "brokers refuse the login at .*invalid credentials"),
        ({**good, "ca": None}, "brokers refuse the login at .*broker certificate could not be verified"),
    ):
        # The one asks as the other does.
        with pytest.raises(ServiceError, match=reason):
            parts(**wrong)["certificate" in reason].check()
    assert kafka.server.PASSWORD not in caplog.text
    assert "another-word" not in caplog.text


@pytest.mark.integration
def test_a_broker_that_restarts_and_crashes_under_load_loses_nothing(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", kafka.server.PASSWORD)
    source, sink = kafka.topic(), kafka.topic()
    process = Process(kafka, tmp_path, "one", source, sink, secured(kafka.server))
    sent = 0

    def send(batches: int) -> None:
        nonlocal sent
        for _ in range(batches):
            kafka.send(source, sent, sent + 500)
            sent += 500

    try:
        process.start()
        send(4)
        wait_for_all(lambda: kafka.written(sink), 1, [process])
        for end in (kafka.server.kill, kafka.server.stop):
            sending = threading.Thread(target=send, args=(10,))
            sending.start()
            time.sleep(0.2)
            end()
            kafka.server.start()
            sending.join()
        found = wait_for_all(lambda: kafka.written(sink), sent, [process])
        process.end()
    finally:
        process.kill()
    check(found, sent)
    assert kafka.server.PASSWORD not in process.log.read_text()


def test_a_broker_that_stands_still_while_a_process_joins_ends_nobody(kafka: Broker, tmp_path: Path) -> None:
    """Leaders get other epochs when it continues, and whoever begins partitions then asks by the epochs of before."""
    join_while_it_stands_still(kafka, tmp_path, rounds=1)


def join_while_it_stands_still(kafka: Broker, place: Path, rounds: int) -> dict[str, int]:
    """Run two processes of a group, of which one joins again and again while the broker stands still for 13 s."""
    source, sink = kafka.topic(), kafka.topic()
    first, second = (Process(kafka, place, name, source, sink) for name in ("a", "b"))
    sent = 0
    try:
        first.start()
        first.wait_for(b"assigned")
        for _ in range(rounds):
            kafka.send(source, sent, sent + 1000)
            sent += 1000
            second.start()
            second.wait_for(b"started")
            kafka.server.signal(signal.SIGSTOP)
            time.sleep(13)
            kafka.server.signal(signal.SIGCONT)
            kafka.send(source, sent, sent + 1000)
            sent += 1000
            found = wait_for_all(lambda: kafka.written(sink), sent, [first, second])
            second.end()
        first.end()
    finally:
        kafka.server.signal(signal.SIGCONT)
        first.kill()
        second.kill()
    return {"events": sent, "rounds": rounds, "delivered_twice": check(found, sent)}


def test_a_topic_that_is_made_anew_while_it_is_read_is_found(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_of_kafka, "LOOK", 0.5)
    topic = kafka.topic(1)
    positions: dict[str, str] = {}
    options = {"topic.metadata.refresh.interval.ms": 300}
    section: dict[str, Any] = {"type": "kafka", "brokers": kafka.address, "topics": topic, "group": topic, "on_lost": "skip"}
    source = KafkaMessages(KafkaSource(**section, options=options), max_bytes=10_000)
    source.open(positions, positions.__setitem__)
    kafka.send(topic, 0, 10)
    read(source, positions, 10)
    kafka.delete(topic)
    time.sleep(1)
    kafka.topic(1, name=topic)
    kafka.send(topic, 100, 120)
    found = read(source, positions, 20)
    assert [json.loads(each)["id"] for each in found] == list(range(100, 120))
    source.close()
    assert len(positions) == 1


def has_no_lag(source: KafkaMessages) -> bool:
    return (found := source.progress()) is not None and found.read == found.end


def test_what_a_transaction_takes_back_is_not_read_and_its_markers_are_passed_over(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no lag either, nor are messages that may still be taken back."""
    monkeypatch.setattr(source_of_kafka, "STATISTICS", 20)
    topic = kafka.topic(1)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(30)
    for number, commit in ((1, True), (2, False), (3, True)):
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % number)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    positions: dict[str, str] = {}
    section: dict[str, Any] = {"type": "kafka", "brokers": kafka.address, "topics": topic, "group": topic}
    for expected in ([b"1", b"3"], [b"4"]):
        source = KafkaMessages(KafkaSource(**section), max_bytes=10_000)
        source.open(positions, positions.__setitem__)
        assert read(source, positions, len(expected)) == expected
        until(partial(has_no_lag, source))
        producer.begin_transaction()
        producer.produce(topic, value=b"4")
        assert producer.flush(30) == 0
        time.sleep(0.5)
        assert has_no_lag(source)
        source.close()
        producer.commit_transaction(30)


def test_a_limit_that_is_lowered_while_messages_are_written_refuses_only_what_is_longer(kafka: Broker) -> None:
    topic = kafka.topic(1)
    sink = KafkaTopic(KafkaSink(type="kafka", brokers=kafka.address, topic=topic, timeout="20s", options={"linger.ms": 50}))  # type: ignore[arg-type]
    sink.open()
    sink.write([message(0)])
    assert sink.flush() == []
    kafka.set(topic, "max.message.bytes", "2000")
    pads = [os.urandom(3000).hex() if number in (5, 6, 17) else "" for number in range(1, 31)]
    sink.write([message(number, pad=0).replace(b'"pad":""', b'"pad":"%b"' % pad.encode()) for number, pad in enumerate(pads, 1)])
    assert [(number, outcome.code) for number, outcome in sink.flush()] == [(4, "too_large"), (5, "too_large"), (16, "too_large")]
    sink.close()
    order = [int(each["id"], 16) for each in kafka.written(topic)]
    assert order == [number for number in range(31) if number not in (5, 6, 17)]
    again = KafkaTopic(KafkaSink(type="kafka", brokers=kafka.address, topic=topic))
    again.open()
    again.write([message(40, pad=3000), message(41)])
    assert [(number, outcome.code) for number, outcome in again.flush()] == [(0, "too_large")]
    again.close()


def test_a_compacted_topic_is_refused(kafka: Broker) -> None:
    sink = KafkaTopic(KafkaSink(type="kafka", brokers=kafka.address, topic=kafka.topic(1, cleanup_policy="compact")))
    with pytest.raises(ServiceError, match=r"keeps only the last message of a key: expected cleanup\.policy=delete"):
        sink.check()


def test_the_benchmark_finds_the_matches_that_it_must(kafka: Broker, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.main(["--smoke", "--kafka", kafka.address])
    out = capsys.readouterr().out
    assert "from Kafka to a file | 400 |" in out
    assert "from Kafka to a topic | 400 |" in out
