"""Every code of librdkafka has one meaning, and source and sink act on it; leaders may move whenever they like."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from streamer.config.schema.connectors.kafka import KafkaSink, KafkaSource
from streamer.errors import ServiceError
from streamer.service.connectors.kafka import brokers
from streamer.service.connectors.kafka.errors import MEANINGS, Meaning, meaning
from streamer.service.connectors.kafka.sink import KafkaTopic
from streamer.service.connectors.kafka.source import KafkaMessages
from streamer.service.connectors.protocols import Away
from tests.service.test_kafka import QUICK, Topic, message, numbers, order, read
from tests.tools.mock_kafka import FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, PRODUCE, MockCluster

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

CODES: Final = {int(value): name for name, value in vars(KafkaError).items() if isinstance(value, int) and name.isupper()}
#: What a broker may answer; all others are the client's own.
OF_BROKERS: Final = sorted(code for code in CODES if code > 0 or code == KafkaError.UNKNOWN)
#: What the client is to do again at once, so that a test need not wait.
AT_ONCE: Final = {"retry.backoff.ms": 5, "retry.backoff.max.ms": 10}
#: What a source reads on after.
GONE_ON: Final = (Meaning.PASSING, Meaning.UNKNOWN)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    made = MockCluster(3)
    yield made
    made.close()


@pytest.fixture
def topic(cluster: MockCluster, request: pytest.FixtureRequest) -> Iterator[Topic]:
    made = Topic(cluster, f"t{abs(hash(request.node.nodeid)) % 10**12}")
    yield made
    for source in made.opened:
        source.close()


@pytest.fixture(autouse=True)
def _soon(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(brokers, "SOON", 0.01)
    yield
    for request in (FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, PRODUCE):
        cluster.clear(request)


def test_every_code_has_one_meaning() -> None:
    """A later librdkafka that brings new ones fails here, so that somebody says what they mean."""
    names = [name for names in MEANINGS.values() for name in names.split()]
    assert len(names) == len(set(names))
    assert set(CODES.values()) <= set(names)


def test_a_code_that_is_not_known_means_what_librdkafka_says_of_it() -> None:
    assert meaning(KafkaError(9999)) is Meaning.LASTING
    assert meaning(KafkaError(9999, "", False, True)) is Meaning.PASSING
    assert meaning(KafkaError(KafkaError._TRANSPORT, "", True)) is Meaning.LASTING


def outcome(work: Any) -> str:
    try:
        work()
    except Away:
        return "away"
    except ServiceError:
        return "error"
    return "good"


def test_brokers_that_are_asked_may_answer_any_code(topic: Topic, cluster: MockCluster) -> None:
    """Those that pass are waited for, whether the client asks again by itself or not."""
    asked = brokers.Cluster(KafkaSource(type="kafka", brokers=cluster.address, topics=topic.name))  # type: ignore[arg-type]
    group = Consumer({"bootstrap.servers": cluster.address, "group.id": topic.name, **AT_ONCE, "log_level": 0})
    place = (topic.name, 0)
    for code in OF_BROKERS:
        expected = ("good", "away") if meaning(KafkaError(code)) in GONE_ON else ("error",)
        cluster.answer(LIST_OFFSETS, code)
        assert outcome(lambda: asked.offsets([place])) in expected, CODES[code]
        cluster.clear(LIST_OFFSETS)
        if code in (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.ILLEGAL_GENERATION):
            continue
        cluster.answer(OFFSET_FETCH, code)
        found = outcome(lambda: brokers.committed(group, [TopicPartition(*place)]))
        assert found == ("good" if expected != ("error",) else "error"), CODES[code]
        cluster.clear(OFFSET_FETCH)
    group.close()


def test_a_partition_of_which_the_coordinator_says_nothing_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for one that the group has nothing of, it would be read from `start`."""
    monkeypatch.setattr(brokers, "ANSWER", 0.2)
    asked = TopicPartition("t", 0)

    def answered(*codes: int) -> Any:
        answers = [SimpleNamespace(error=KafkaError(code) if code else None, offset=5) for code in codes]
        return SimpleNamespace(committed=lambda _, timeout: [answers.pop(0) if len(answers) > 1 else answers[0]])

    passing, refusing = KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert [each.offset for each in brokers.committed(answered(passing, passing, 0), [asked])] == [5]
    assert outcome(lambda: brokers.committed(answered(passing), [asked])) == "away"
    assert outcome(lambda: brokers.committed(answered(passing, refusing), [asked])) == "error"


def test_any_code_may_come_in_place_of_a_message(caplog: pytest.LogCaptureFixture) -> None:
    section = KafkaSource(type="kafka", brokers="127.0.0.1:1", topics="t")  # type: ignore[arg-type]
    in_place: Any = SimpleNamespace(topic=lambda: "t", partition=lambda: 0)
    for code, name in CODES.items():
        caplog.clear()
        source, error = KafkaMessages(section, max_bytes=1), KafkaError(code)
        goes_on = meaning(error) in (*GONE_ON, Meaning.LOST, Meaning.NOTICE)
        assert outcome(lambda source=source, error=error: source._meet(error, in_place)) == ("good" if goes_on else "error"), name
        assert ("retrying" in caplog.text) == (meaning(error) in GONE_ON), name
        source._heard(error)
        assert (source._failed is not None) == (meaning(error) is Meaning.REFUSING), name


def test_a_source_reads_on_behind_every_code_that_passes(topic: Topic, cluster: MockCluster) -> None:
    source = topic.open(options={**QUICK, "fetch.error.backoff.ms": 5, "fetch.wait.max.ms": 10})
    topic.count(0, 1)
    assert read(topic, source, 1) == [b"0"]
    passing = [code for code in OF_BROKERS if meaning(KafkaError(code)) in GONE_ON]
    for number, code in enumerate(passing, 1):
        cluster.answer(FETCH, code)
        topic.count(number, number + 1)
        assert read(topic, source, 1) == [b"%d" % number], CODES[code]


def test_what_the_group_did_not_take_it_is_told_again(topic: Topic, cluster: MockCluster) -> None:
    source = topic.open()
    topic.count(0, 3)
    # More than the client tries by itself, and nothing new to tell meanwhile.
    cluster.answer(OFFSET_COMMIT, *[KafkaError.OFFSET_NOT_AVAILABLE] * 2)
    read(topic, source, 3)
    deadline = time.monotonic() + 20
    while topic.of_group()[0] != 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_sink_sends_again_what_any_code_that_passes_kept_out(topic: Topic, cluster: MockCluster) -> None:
    section: dict[str, Any] = {"type": "kafka", "brokers": cluster.address, "topic": topic.name, "timeout": "10s"}
    held = set()
    for number, code in enumerate(OF_BROKERS):
        sink = KafkaTopic(KafkaSink(**section, options=AT_ONCE))
        sink.open()
        cluster.answer(PRODUCE, code)
        sink.write([message(number)])
        goes_on = meaning(KafkaError(code)) in (*GONE_ON, Meaning.MESSAGE, Meaning.FOLLOWING)
        assert outcome(sink.flush) == ("good" if goes_on else "error"), CODES[code]
        # By this code a broker says that it has the message already, which the mock's has not.
        held |= {number} if goes_on and code != KafkaError.DUPLICATE_SEQUENCE_NUMBER else set()
        sink.close()
    assert set(order(topic)) - {OF_BROKERS.index(KafkaError.DUPLICATE_SEQUENCE_NUMBER)} == held


def test_a_sink_acts_on_every_code(topic: Topic, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = KafkaTopic(KafkaSink(type="kafka", brokers=cluster.address, topic=topic.name, options=AT_ONCE))  # type: ignore[arg-type]
    sink.open()
    for code, name in CODES.items():
        # A new producer takes half a second to begin.
        monkeypatch.setattr(sink, "_renew", lambda: None)
        sink._written, sink._failed = [message(1)], {0: KafkaError(code)}
        goes_on = meaning(KafkaError(code)) in (*GONE_ON, Meaning.MESSAGE, Meaning.FOLLOWING)
        assert outcome(sink.flush) == ("good" if goes_on else "error"), name
    sink.close()


def test_a_sink_does_not_wait_longer_than_its_timeout_for_a_code_that_passes(topic: Topic, cluster: MockCluster) -> None:
    section: dict[str, Any] = {"type": "kafka", "brokers": cluster.address, "topic": topic.name, "timeout": "3s"}
    sink = KafkaTopic(KafkaSink(**section))
    sink.open()
    cluster.answer(PRODUCE, *[KafkaError.OFFSET_NOT_AVAILABLE] * 10_000)
    sink.write([message(1)])
    with pytest.raises(ServiceError, match=r"brokers confirmed none for 3 s: .*Leader high watermark is not caught up"):
        sink.flush()
    sink.close()


def test_messages_of_a_key_keep_their_order_behind_a_code_that_the_client_gives_up_at(topic: Topic, cluster: MockCluster) -> None:
    sink = KafkaTopic(
        KafkaSink(
            type="kafka",
            brokers=cluster.address,  # type: ignore[arg-type]
            topic=topic.name,
            options={**AT_ONCE, "linger.ms": 20, "batch.num.messages": 10},
        )
    )
    sink.open()
    sink.write([message(0)])
    sink.flush()
    cluster.answer(PRODUCE, KafkaError.UNKNOWN_LEADER_EPOCH, 0, KafkaError.NETWORK_EXCEPTION)
    sink.write([message(number) for number in range(1, 41)])
    assert sink.flush() == []
    assert list(dict.fromkeys(order(topic))) == list(range(41))
    sink.close()


def test_a_place_that_is_gone_while_it_is_read_is_skipped_where_it_may_be(topic: Topic, cluster: MockCluster) -> None:
    source = topic.open(on_lost="skip")
    topic.count(0, 10)
    read(topic, source, 10)
    cluster.answer(FETCH, KafkaError.OFFSET_OUT_OF_RANGE)
    time.sleep(0.5)
    topic.count(10, 20)
    assert read(topic, source, 10) == numbers(10, 20)


def test_a_leader_that_moved_is_asked_by_its_old_epoch_and_then_by_its_new_one(topic: Topic, cluster: MockCluster) -> None:
    asked = brokers.Cluster(KafkaSource(type="kafka", brokers=cluster.address, topics=topic.name))  # type: ignore[arg-type]
    places = [(topic.name, number) for number in range(3)]
    topic.count(0, 7)
    cluster.lead(topic.name, 0, 1)
    asked.offsets(places)
    # As after it stood still: it leads again, in a later epoch.
    cluster.lead(topic.name, 0, 1)
    with pytest.raises(Away, match=rf"partition {topic.name}/0: Broker: Leader epoch is older than broker epoch"):
        asked.offsets(places)
    asked.topics([topic.name])
    assert asked.offsets(places)[topic.name, 0] == (0, 7)
    cluster.lead(topic.name, 0, -1)
    with pytest.raises(Away, match=rf"partition {topic.name}/0: Broker: Leader not available"):
        asked.offsets(places)
    cluster.lead(topic.name, 0, 3)


@contextmanager
def moving(cluster: MockCluster, topic: str) -> Iterator[None]:
    """Have another broker lead a partition, again and again."""
    is_over, rng = threading.Event(), random.Random(7)

    def move() -> None:
        while not is_over.wait(0.02):
            cluster.lead(topic, rng.randrange(3), rng.randint(1, 3))

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.slow
def test_leaders_that_move_while_processes_join_and_leave_end_nobody(topic: Topic, cluster: MockCluster) -> None:
    """A process that begins partitions asks where they are, by the epochs of leaders that it last heard of."""
    options = {**QUICK, "fetch.error.backoff.ms": 5, "fetch.wait.max.ms": 10, "topic.metadata.refresh.interval.ms": 50}
    first = topic.open(options=options)
    found: list[Any] = []
    for partition in range(3):
        topic.count(0, 10, partition=partition)
    found += read(topic, first, 30)
    for round_ in range(1, 3):
        with moving(cluster, topic.name):
            second = topic.open(options=options)
            deadline = time.monotonic() + 30
            while not (first._ours and second._ours):
                assert time.monotonic() < deadline
                for source in (first, second):
                    source.read(0.05)
            time.sleep(0.3)
        second.close()
        deadline = time.monotonic() + 30
        while len(first._ours) < 3:
            assert time.monotonic() < deadline
            first.read(0.05)
        for partition in range(3):
            topic.count(10 * round_, 10 * round_ + 10, partition=partition)
        found += read(topic, first, 30)
    assert sorted(map(int, found)) == sorted([*range(30)] * 3)
