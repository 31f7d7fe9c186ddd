"""Kafka, on the mock cluster of its client: what is read once and in order, what is lost and told, and what a topic is given."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from streamer import Config
from streamer.config.loader import Loaded
from streamer.config.schema.connectors.kafka import KafkaSink, KafkaSource
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.connectors.cloudevents import key_of
from streamer.service.connectors.formats import decoder, events_of
from streamer.service.connectors.kafka import source as source_of_kafka
from streamer.service.connectors.kafka.sink import KafkaTopic
from streamer.service.connectors.kafka.source import KafkaMessages
from streamer.service.connectors.protocols import Away, Batch, Lost, Progress, Refused
from streamer.service.run.serve import Service
from streamer.service.store.opened import look
from tests.service.conftest import SUBSCRIPTIONS, Make, event, lines, so_far
from tests.tools.mock_kafka import PRODUCE, MockCluster

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

#: A mock cluster waits so long for a member that left before the next one may join.
QUICK = {"session.timeout.ms": 1000, "heartbeat.interval.ms": 100}
LIMIT = 1000


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    made = MockCluster()
    yield made
    made.close()


class Topic:
    """A topic of its own, and what a store would have of it."""

    def __init__(self, cluster: MockCluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.positions: dict[str, str] = {}
        self.opened: list[KafkaMessages] = []
        cluster.topic(name, 3)

    def send(self, *messages: tuple[bytes | None, bytes | None], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.address})
        for key, value in messages:
            producer.produce(self.name, value=value, key=key, partition=partition)
        assert producer.flush(10) == 0

    def count(self, first: int, last: int, partition: int = 0) -> None:
        self.send(*((b"k", b"%d" % number) for number in range(first, last)), partition=partition)

    def open(self, **fields: Any) -> KafkaMessages:
        section = {"type": "kafka", "brokers": self.cluster.address, "topics": self.name, "group": self.name, "options": QUICK}
        source = KafkaMessages(KafkaSource(**(section | fields)), max_bytes=LIMIT)
        self.opened.append(source)
        source.open(self.positions, self.positions.__setitem__)
        return source

    def confirm(self, source: KafkaMessages, batch: Batch) -> None:
        """Do what a pipeline does once a batch is delivered."""
        if batch.is_last:
            del self.positions[batch.partition]
        else:
            assert batch.confirm is not None
            self.positions[batch.partition] = batch.confirm
            source.acknowledge(batch.partition, batch.confirm)

    def of_group(self) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.cluster.address, "group.id": self.name})
        found = consumer.committed([TopicPartition(self.name, number) for number in range(3)], timeout=10)
        consumer.close()
        return [each.offset for each in found]

    def count_of_ids(self) -> int:
        return len({each["id"] for each, _, _ in self.written()})

    def written(self) -> list[tuple[Any, bytes | None, dict[str, bytes]]]:
        """Return the messages of the topic, with their keys and headers."""
        reader = Consumer(
            {
                "bootstrap.servers": self.cluster.address,
                "group.id": "reader",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        reader.assign([TopicPartition(self.name, number, 0) for number in range(3)])
        found, ended = [], 0
        while ended < 3:
            message = reader.poll(10)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                ended += 1
            else:
                found.append((json.loads(message.value()), message.key(), dict(message.headers() or [])))
        reader.close()
        return found


@pytest.fixture
def topic(cluster: MockCluster, request: pytest.FixtureRequest) -> Iterator[Topic]:
    made = Topic(cluster, f"t{abs(hash(request.node.nodeid)) % 10**12}")
    yield made
    for source in made.opened:
        source.close()


def batches(source: KafkaMessages, count: int, seconds: float = 20) -> Iterator[Batch]:
    """Yield batches until so many records came."""
    deadline = time.monotonic() + seconds
    while count > 0:
        assert time.monotonic() < deadline, f"{count} records did not come"
        if (batch := source.read(0.1)) is not None:
            count -= len(batch.records)
            yield batch


def one_batch(source: KafkaMessages, count: int) -> Batch:
    """Return all that came, once so many records did."""
    deadline = time.monotonic() + 20
    while sum(len(each.messages) for each in source._ours.values()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (batch,) = batches(source, count)
    return batch


def read(topic: Topic, source: KafkaMessages, count: int) -> list[Any]:
    """Read and confirm so many records."""
    found: list[Any] = []
    for batch in batches(source, count):
        found += batch.records
        topic.confirm(source, batch)
    return found


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_a_record_is_a_value_with_offset_and_key(topic: Topic) -> None:
    topic.send((b"a", b"{}"), (None, b"[]"), (b"\xff", None), (b"k" * 2000, b"x" * (LIMIT + 1)), (b"", b""))
    batch = one_batch(topic.open(), 5)
    name, _, identity = batch.partition.partition("@")
    assert name == f"{topic.name}/0"
    assert len(identity) == 22
    assert batch.records[:3] == [b"{}", b"[]", b"null"]
    assert isinstance(refused := batch.records[3], Refused)
    assert (refused.size, str(refused.error)) == (
        LIMIT + 1,
        "too_long at byte 1000: the message is longer than the 1000 bytes that are allowed",
    )
    assert [batch.positions(at) for at in range(5)] == [0, 1, 2, 3, 4]
    assert batch.keys is not None
    assert list(batch.keys[:3]) == [b"a", None, b"\xff"]
    assert batch.keys[3] == b"k" * 2000
    assert json.loads(batch.confirm or "")["offset"] == 5


def test_it_tells_how_far_it_has_come(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """In messages, of what the brokers have; what came, and was not given, is not read yet."""
    topic.send(*((None, text) for text in numbers(0, 7)))
    monkeypatch.setattr(source_of_kafka, "STATISTICS", 20)
    source = topic.open()
    deadline = time.monotonic() + 20
    while (progress := source.progress()) is None or progress.end < 7:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert progress == Progress(0, 7, "messages")
    read(topic, source, 7)
    assert source.progress() == Progress(7, 7, "messages")


@pytest.mark.usefixtures("backend")
def test_an_event_of_binary_mode_is_a_cloudevent_too(topic: Topic) -> None:
    producer = Producer({"bootstrap.servers": topic.cluster.address})
    kind = {"content-type": "application/json; charset=utf-8"}
    attributes = {"ce_specversion": "1.0", "ce_id": "7", "ce_source": "orders", "ce_type": "orders.eu.paid"}
    producer.produce(topic.name, value=b'{"amount": 250}', key=b"k", headers=attributes | kind, partition=0)
    producer.produce(
        topic.name, value=b'{"specversion": "1.0", "id": "8", "source": "a", "type": "b"}', headers=kind, partition=0
    )
    producer.produce(topic.name, value=b"{", headers=attributes | {"content-type": "application/json"}, partition=0)
    producer.flush(10)
    batch = one_batch(topic.open(format="cloudevents"), 3)
    found = events_of(decoder("cloudevents"), batch)
    assert list(map(json.loads, found.texts)) == [
        {"id": "7", "collection": "orders", "topic": "orders.eu.paid", "data": {"amount": 250}},
        {"id": "8", "collection": "a", "topic": "b"},
    ]
    assert (found.place(0).key, found.place(1).key) == ("k", None)
    assert [(place.position, error.code.value) for place, error in found.refused] == [(2, "malformed_json")]


def test_fields_of_an_unwrapped_row_in_headers_are_read_as_those_of_the_row(topic: Topic) -> None:
    """As `add.headers` of the transform writes them; other headers, and those of Connect, are none."""
    producer = Producer({"bootstrap.servers": topic.cluster.address})
    others = {"__key_schema_id": b"\xff", "__connect.errors.topic": b"x", "trace": b"t"}
    headers = {"__op": b"u", "__source_ts_ms": b"5", "__table": b'"orders"'} | others
    producer.produce(topic.name, value=b'{"id": 1.50, "__table": "items"}', headers=headers, partition=0)
    in_connect = b'{"schema": {"type": "string"}, "payload": "d"}'
    producer.produce(topic.name, value=b'{"schema": null, "payload": {"id": 1}}', headers={"__op": in_connect}, partition=0)
    producer.produce(topic.name, value=b"{", headers=headers, partition=0)
    producer.produce(topic.name, value=b'{"id": 2}', partition=0)
    producer.flush(10)
    assert read(topic, topic.open(format="debezium_unwrapped"), 4) == [
        b'{"__op":"u","__source_ts_ms":5,"__table":"items","id":1.50}',
        b'{"schema":null,"payload":{"__op":"d","id":1}}',
        b"{",
        b'{"id": 2}',
    ]


@pytest.mark.slow
def test_what_the_store_has_is_read_from_and_the_group_is_told_behind_it(topic: Topic) -> None:
    topic.count(0, 10)
    topic.count(10, 20, partition=2)
    source = topic.open()
    assert sorted(read(topic, source, 20), key=int) == numbers(0, 20)
    topic.count(20, 30)
    # Given to the pipeline and not held: it comes again.
    assert [each for batch in batches(source, 10) for each in batch.records] == numbers(20, 30)
    source.close()
    assert topic.of_group() == [10, 0, 10]
    # Somebody moves the group: the store has the say.
    mover = Consumer({"bootstrap.servers": topic.cluster.address, "group.id": topic.name, **QUICK})
    mover.subscribe([topic.name])
    while not mover.assignment():
        mover.poll(0.05)
    mover.commit(offsets=[TopicPartition(topic.name, 0, 15)], asynchronous=False)
    mover.close()
    source = topic.open()
    assert read(topic, source, 10) == numbers(20, 30)
    source.close()
    # A process of the group that has a store of its own has read on: what it had held does not come again.
    (name,) = (each for each in topic.positions if each.startswith(f"{topic.name}/0@"))
    topic.positions[name] = '{"offset": 5}'
    topic.count(30, 31)
    source = topic.open()
    assert read(topic, source, 1) == numbers(30, 31)
    source.close()
    topic.positions.clear()
    topic.count(31, 32)
    assert read(topic, topic.open(), 1) == numbers(31, 32)


def test_latest_is_a_place_that_a_restart_keeps(topic: Topic) -> None:
    topic.count(0, 5)
    source = topic.open(start="latest")
    deadline = time.monotonic() + 10
    while len(topic.positions) < 3:
        assert source.read(0.05) is None
        assert time.monotonic() < deadline
    source.close()
    topic.count(5, 8)
    assert read(topic, topic.open(start="latest"), 3) == numbers(5, 8)


def test_what_retention_took_is_told_and_skipped_only_where_it_may_be(topic: Topic) -> None:
    topic.count(0, 10)
    source = topic.open()
    read(topic, source, 10)
    source.close()
    topic.count(10, 20)
    topic.cluster.delete_records(topic.name, 0, 15)
    lost = rf"{topic.name}/0: 5 offsets, from 10 on, are gone: retention was faster\. With on_lost: skip "
    source = topic.open(group="other")
    with pytest.raises(ServiceError, match=lost):
        read(topic, source, 1)
    assert read(topic, topic.open(on_lost="skip", group="third"), 5) == numbers(15, 20)


def test_a_topic_that_is_made_anew_has_other_partitions(topic: Topic) -> None:
    topic.count(0, 3)
    source = topic.open()
    read(topic, source, 3)
    source.close()
    before = set(topic.positions)
    topic.cluster.delete(topic.name)
    topic.cluster.topic(topic.name, 3)
    topic.count(0, 5)
    source = topic.open(group="other")
    with pytest.raises(ServiceError, match=rf"topic {topic.name} was recreated; unread messages of the previous topic are lost"):
        read(topic, source, 1)
    assert read(topic, topic.open(on_lost="skip", group="third", start="latest"), 5) == numbers(0, 5)
    assert not before & set(topic.positions)


@pytest.mark.slow
def test_memory_is_bounded_and_nobody_is_taken_for_dead_while_a_sink_is_slow(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source_of_kafka, "MOST_BYTES", 100_000)
    topic.send(*((b"k", b"x" * 500) for _ in range(5000)))
    source = topic.open(options={**QUICK, "max.poll.interval.ms": 1000, "fetch.message.max.bytes": 50_000})
    next(batches(source, 1))
    time.sleep(2.5)
    assert source._size < 100_000 + 1000 * 1100
    assert "lost" not in caplog.text
    assert sum(len(batch.records) for batch in batches(source, 4000)) >= 4000


@pytest.mark.slow
def test_a_partition_is_given_up_once_what_was_read_of_it_is_held(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    for partition in range(3):
        topic.count(partition * 100, partition * 100 + 100, partition=partition)
    one = topic.open()
    held = list(batches(one, 300))
    revoked = threading.Event()
    faults.arm("source.revoked", revoked.set)
    seen: list[bytes] = []

    def confirm() -> None:
        assert not revoked.wait(0.5)
        for batch in held:
            seen.extend(batch.records)  # type: ignore[arg-type]
            topic.confirm(one, batch)

    delivering = threading.Thread(target=confirm)
    delivering.start()
    # Another process, with a store of its own: it begins where the group is.
    other = Topic.__new__(Topic)
    other.__dict__ = {**topic.__dict__, "positions": {}}
    two = other.open()
    assert revoked.wait(20)
    delivering.join()
    for partition in range(3):
        topic.count(300 + partition, 301 + partition, partition=partition)
    deadline = time.monotonic() + 20
    by_two = 0
    while len(set(seen)) < 303 or not by_two:
        for each, source in ((topic, one), (other, two)):
            if (batch := source.read(0.05)) is not None:
                seen.extend(batch.records)  # type: ignore[arg-type]
                each.confirm(source, batch)
                by_two += len(batch.records) if source is two else 0
        assert time.monotonic() < deadline
    assert sorted(map(int, set(seen))) == list(range(303))
    assert "before all read messages were confirmed" not in caplog.text


def test_a_check_tells_what_is_lost(topic: Topic) -> None:
    topic.count(0, 3)
    section = {"type": "kafka", "brokers": topic.cluster.address, "topics": topic.name, "group": topic.name}
    name = f"{topic.name}/0"
    for place in (0, 3):
        KafkaMessages(KafkaSource(**section), max_bytes=LIMIT).check({name: json.dumps({"offset": place})})
    with pytest.raises(Lost, match="cut off before offset 9"):
        KafkaMessages(KafkaSource(**section), max_bytes=LIMIT).check({name: json.dumps({"offset": 9})})
    KafkaMessages(KafkaSource(**section, on_lost="skip"), max_bytes=LIMIT).check({name: json.dumps({"offset": 9})})


def test_what_is_not_there_is_named(topic: Topic) -> None:
    with pytest.raises(ServiceError, match=r"topic nosuch does not exist at 127\.0\.0\.1:"):
        topic.open(topics=[topic.name, "nosuch"])
    section = {"type": "kafka", "brokers": topic.cluster.address, "topic": "nosuch"}
    with pytest.raises(ServiceError, match=r"topic nosuch does not exist at 127\.0\.0\.1:"):
        KafkaTopic(KafkaSink(**section)).check()


def test_who_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANSWER", "_FIRST_ANSWER"):
        monkeypatch.setattr(f"streamer.service.connectors.kafka.brokers.{name}", 0.3)
    section = {"type": "kafka", "brokers": "127.0.0.1:1", "topic": "orders"}
    with pytest.raises(Away, match=r"the brokers do not answer at 127\.0\.0\.1:1: .*Connection refused"):
        KafkaTopic(KafkaSink(**section)).check()


# The sink


def message(number: int, key: str | None = "k", pad: int = 0) -> bytes:
    told = {"specversion": "1.0", "id": f"{number:032x}", "subject": ',"partitionkey":"no"'}
    told |= {} if key is None else {"partitionkey": key}
    told |= {"datacontenttype": "application/json", "data": {"partitionkey": "no", "pad": "x" * pad}}  # type: ignore[dict-item]
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("key", [None, "42", 'a"\\ü\n', ""])
def test_the_key_of_a_message_is_found_in_its_attributes_alone(key: str | None) -> None:
    assert key_of(message(1, key)) == (None if key is None else key.encode())


Sink = Callable[..., KafkaTopic]


@pytest.fixture
def sink(topic: Topic) -> Iterator[Sink]:
    opened = []

    def open_one(**fields: Any) -> KafkaTopic:
        section = {"type": "kafka", "brokers": topic.cluster.address, "topic": topic.name, "timeout": "5s"}
        made = KafkaTopic(KafkaSink(**(section | fields)))
        made.open()
        opened.append(made)
        return made

    yield open_one
    for each in opened:
        each.close()


def test_messages_have_key_id_and_content_type(topic: Topic, sink: Sink) -> None:
    made = sink()
    made.write([message(1, "ü"), message(2, None)])
    assert made.flush() == []
    found = sorted(topic.written(), key=lambda each: each[0]["id"])
    assert [(told["id"], key, headers["id"]) for told, key, headers in found] == [
        (f"{1:032x}", "ü".encode(), b"%032x" % 1),
        (f"{2:032x}", None, b"%032x" % 2),
    ]
    assert {headers["content-type"] for _, _, headers in found} == {b"application/cloudevents+json; charset=UTF-8"}


def order(topic: Topic) -> list[int]:
    return [int(told["id"], 16) for told, _, _ in topic.written()]


def test_a_message_that_is_too_large_is_refused_and_the_others_are_held(topic: Topic, sink: Sink) -> None:
    made = sink(options={"message.max.bytes": 5000})
    made.write([message(1), message(2, pad=6000), message(3)])
    ((number, outcome),) = made.flush()
    assert (number, outcome.result, outcome.code) == (1, "never", "too_large")
    made.write([message(4)])
    assert made.flush() == []
    assert order(topic) == [1, 3, 4]


def test_what_a_write_that_failed_had_is_not_counted(topic: Topic, sink: Sink) -> None:
    """As that of a test, after which the service goes on: the next refusal would be that of another message."""
    made = sink(options={"message.max.bytes": 5000})
    with pytest.raises(UnicodeDecodeError):
        made.write([message(9), b"\xff" * 200])
    made.write([message(1), message(2, pad=6000), message(3)])
    ((number, _),) = made.flush()
    assert number == 1
    assert order(topic)[-2:] == [1, 3]


TOO_LARGE, INVALID = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD


@pytest.mark.parametrize(
    ("errors", "refused"),
    [
        ([TOO_LARGE], []),  # a batch, of which each one alone is good
        ([TOO_LARGE, TOO_LARGE], [0]),  # and then its first message
        ([INVALID, 0, INVALID], [1]),
        ([KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REQUEST_TIMED_OUT], []),  # what is sent again by itself
    ],
)
def test_of_a_batch_that_brokers_refuse_the_one_at_fault_is_found_and_order_is_kept(
    topic: Topic, sink: Sink, errors: list[int], refused: list[int]
) -> None:
    made = sink(options={"linger.ms": 20, "batch.num.messages": 10})
    made.write([message(0)])
    made.flush()
    topic.cluster.answer(PRODUCE, *errors)
    made.write([message(number) for number in range(1, 41)])
    assert [number for number, _ in made.flush()] == refused
    assert order(topic) == [number for number in range(41) if number - 1 not in refused]


def test_what_waiting_does_not_mend_ends_the_service(topic: Topic, sink: Sink) -> None:
    made = sink()
    topic.cluster.answer(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    made.write([message(1)])
    with pytest.raises(ServiceError, match="Topic authorization failed"):
        made.flush()


def test_brokers_that_are_away_are_waited_for_so_long() -> None:
    cluster = MockCluster()
    cluster.topic("out", 1)
    made = KafkaTopic(KafkaSink(type="kafka", brokers=cluster.address, topic="out", timeout="500ms"))  # type: ignore[arg-type]
    made.open()
    cluster.down()
    made.write([message(1)])
    with pytest.raises(ServiceError, match=r"topic out: brokers confirmed none for 0\.5 s: .*; the next start reads"):
        made.flush()
    made.close()
    cluster.close()


def test_brokers_that_were_away_are_gone_on_with(caplog: pytest.LogCaptureFixture) -> None:
    cluster = MockCluster()
    topic = Topic(cluster, "orders")
    quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50}
    sink = KafkaTopic(KafkaSink(type="kafka", brokers=cluster.address, topic="orders", options=quick))  # type: ignore[arg-type]
    sink.open()
    source = topic.open(options=QUICK | quick)
    topic.count(0, 10)
    read(topic, source, 10)
    cluster.down()
    sink.write([message(1), message(2)])
    flushed: list[Any] = []
    flushing = threading.Thread(target=lambda: flushed.append(sink.flush()))
    flushing.start()
    assert source.read(0.3) is None
    assert flushing.is_alive()
    cluster.up()
    assert [json.loads(each)["id"] for each in read(topic, source, 2)] == [f"{number:032x}" for number in (1, 2)]
    flushing.join(10)
    assert flushed == [[]]
    source.close()
    sink.close()
    cluster.close()
    assert "retrying until brokers answer" in caplog.text


# All of it


def test_from_topic_to_topic_with_letters_that_are_replayed(
    make: Make, topic: Topic, cluster: MockCluster, tmp_path: Path
) -> None:
    out = Topic(cluster, f"{topic.name}-out")
    topic.send((b"7", event(1)), (b"7", None), (b"8", b"{"), (b"9", event(2, pad="x" * 5000)), (None, event(3)))
    sections: dict[str, Any] = {
        "sources": {"orders": {"type": "kafka", "brokers": cluster.address, "topics": topic.name, "options": QUICK}},
        "sinks": {
            "out": {"type": "kafka", "brokers": cluster.address, "topic": out.name, "options": {"message.max.bytes": 3000}},
            "letters": {"type": "file", "path": str(tmp_path / "letters.jsonl"), "event": "none"},
        },
        "routes": [{"gateway": "*", "sink": "out"}],
        "delivery": {"dead_letter": "letters"},
    }
    service = make(**sections)
    passed: list[str] = []
    faults.arm("sink.refused", lambda: passed.append("sink.refused"))
    service.check()
    running = threading.Thread(target=service.run)
    running.start()
    deadline = time.monotonic() + 20
    while len(so_far(tmp_path / "letters.jsonl")) < 2:
        assert running.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    service.stop()
    running.join(20)
    assert passed
    assert service.counts.of_sources() == {"orders": (5, 3, 1)}
    assert service.counts.of_sinks() == {"out": (2, 1)}
    assert [(each["partitionkey"], key) for each, key, _ in out.written()] in (
        [("7", b"7"), ("3", b"3")],
        [("3", b"3"), ("7", b"7")],
    )
    letters = {letter.stage: letter for letter in look(tmp_path / "data")}
    assert letters["decode"].code == "malformed_json"
    assert (letters["deliver"].sink, letters["deliver"].code, letters["deliver"].matches) == ("out", "too_large", 1)
    # The topic takes it by now.
    sections["sinks"]["out"]["options"] = {}
    assert make(**sections).replay(lambda store: [letters["deliver"]]) == (1, 0)
    assert {each["partitionkey"] for each, _, _ in out.written()} == {"7", "3", "9"}
    assert [letter.stage for letter in look(tmp_path / "data")] == ["decode"]


QUICK_POINTS = ("source.begin", "sink.written", "sink.refused", "store.committed", "pipeline.acknowledged", "source.revoked")
SLOW_POINTS = ("source.read", "pipeline.matched", "pipeline.queued", "sink.flushed", "store.dead")


@pytest.mark.parametrize("point", [*QUICK_POINTS, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW_POINTS)])
def test_a_failure_at_any_point_loses_nothing(make: Make, topic: Topic, cluster: MockCluster, tmp_path: Path, point: str) -> None:
    """All of what came, good and bad, is in the topic or a letter; what came twice has one id; of a key it is in order."""
    out, count = Topic(cluster, f"{topic.name}-out"), 300
    bad, large = 7, 11
    for partition in range(3):
        topic.send(
            *(
                (
                    b"k%d" % partition,
                    b"{" if number % 50 == bad else event(number, pad="x" * (5000 if number % 50 == large else 9)),
                )
                for number in range(partition, count, 3)
            ),
            partition=partition,
        )
    sections: dict[str, Any] = {
        "sinks": {"out": {"type": "kafka", "brokers": cluster.address, "topic": out.name, "options": {"message.max.bytes": 3000}}}
    }

    def fail() -> None:
        raise Fault

    faults.arm(point, fail)
    for run in ("one", "two"):
        # Another group begins at once. What the store has is asked first.
        source = {
            "type": "kafka",
            "brokers": cluster.address,
            "topics": topic.name,
            "group": f"{topic.name}-{run}",
            "options": QUICK,
        }
        service = make(**sections, sources={"orders": source})
        running = threading.Thread(target=_until_it_fails, args=(service,))
        running.start()
        deadline = time.monotonic() + 20
        while running.is_alive() and (run == "one" or len(look(tmp_path / "data")) < 12 or out.count_of_ids() < count - 12):
            if point == "source.revoked" and run == "one" and out.count_of_ids() == count - 12:
                service.stop()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        service.stop()
        running.join(20)
        faults.disarm()
    ids: dict[int, str] = {}
    last: dict[str, int] = {}
    for each, _, _ in out.written():
        number = each["data"]["event"]["id"]
        if number not in ids:
            assert last.get(each["partitionkey"], -1) < number
            last[each["partitionkey"]] = number
        assert ids.setdefault(number, each["id"]) == each["id"]
    assert sorted(ids) == [number for number in range(count) if number % 50 not in (bad, large)]
    assert [letter.stage for letter in look(tmp_path / "data")].count("deliver") == 6
    assert len(look(tmp_path / "data")) == 12


class Fault(Exception):
    """What a test lets happen."""


def _until_it_fails(service: Any) -> None:
    with suppress(Fault):
        service.run()


@pytest.mark.slow
def test_a_reload_moves_a_source_to_other_topics_and_a_bad_one_leaves_it(
    backend: str, topic: Topic, cluster: MockCluster, tmp_path: Path
) -> None:
    (tmp_path / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    more = Topic(cluster, f"{topic.name}-more")
    source = {"type": "kafka", "brokers": cluster.address, "topics": [topic.name], "group": topic.name, "options": QUICK}
    config: dict[str, Any] = {
        "subscriptions": [str(tmp_path / "subs.jsonl")],
        "sources": {"orders": source},
        "sinks": {"out": {"type": "file", "path": str(tmp_path / "out.jsonl")}},
        "service": {"data_dir": str(tmp_path / "data")},
    }
    service = Service(lambda: Loaded(Config.from_dict(config)))
    running = threading.Thread(target=service.run)
    running.start()

    def wait_for(*numbers: int) -> None:
        deadline = time.monotonic() + 20
        out = tmp_path / "out.jsonl"
        while {each["partitionkey"] for each in so_far(out)} != set(map(str, numbers)):
            assert running.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    topic.send((b"1", event(1)))
    more.send((b"2", event(2)))
    wait_for(1)
    source["topics"] = [topic.name, "nosuch"]
    assert [error.startswith("sources.orders: topic nosuch does not exist") for error in service.reload().errors] == [True]
    topic.send((b"3", event(3)))
    wait_for(1, 3)
    source["topics"] = [topic.name, more.name]
    assert service.reload().changed == ("sources.orders.topics",)
    topic.send((b"4", event(4)))
    wait_for(1, 2, 3, 4)
    service.stop()
    running.join(20)
    assert len(lines(tmp_path / "out.jsonl")) == 4
