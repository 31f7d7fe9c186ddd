"""A service that reads Avro from Kafka: it waits for the registry, keeps what cannot be read, and reads it again."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from streamer.errors import ServiceError
from streamer.service.run.serve import Service
from streamer.service.store.opened import look
from tests.service.conftest import Make, so_far
from tests.service.test_kafka import QUICK, Topic, cluster, topic  # noqa: F401  # fixtures
from tests.service.test_registry import KEY, ORDERS, change, record, row, stub  # noqa: F401  # fixtures
from tests.tools.registries import Stub

pytestmark = pytest.mark.later_on_the_reference


def order(number: int, amount: int = 25010) -> tuple[bytes, bytes]:
    return record(1, KEY, {"id": number}), record(2, ORDERS, change("c", None, row(number, amount)))


@pytest.fixture
def sections(topic: Topic, stub: Stub, tmp_path: Path) -> dict[str, Any]:  # noqa: F811
    (tmp_path / "subs.jsonl").write_text('{"id": "big", "filters": [{"field": "amount", "op": ">", "value": 100}]}\n')
    source = {"type": "kafka", "brokers": topic.cluster.address, "topics": topic.name, "group": topic.name, "options": QUICK}
    return {"sources": {"orders": {**source, "format": {"name": "debezium", "encoding": "avro", "registry": {"url": stub.url}}}}}


@contextmanager
def running(service: Service) -> Iterator[threading.Thread]:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            service.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        service.stop()
        thread.join(20)
        assert not failed, failed


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def matched(place: Path) -> list[str]:
    return [each["partitionkey"] for each in so_far(place / "out.jsonl")]


def test_a_change_in_avro_is_matched_by_its_values(make: Make, topic: Topic, sections: Any, tmp_path: Path) -> None:  # noqa: F811
    topic.send(order(1), order(2, 9999), (order(1)[0], None), order(3))
    service = make(**sections)
    service.check()
    with running(service):
        until(lambda: len(matched(tmp_path)) == 2)
    assert matched(tmp_path) == ["1", "3"]
    assert b'"amount":250.10' in (tmp_path / "out.jsonl").read_bytes()


def test_the_id_of_a_schema_may_stand_in_a_header(
    make: Make,
    topic: Topic,  # noqa: F811
    sections: Any,
    stub: Stub,  # noqa: F811
    tmp_path: Path,
) -> None:
    guid = uuid.UUID(int=2)
    stub.schemas[f"guids/{guid}"] = stub.schemas["ids/2"]
    producer = Producer({"bootstrap.servers": topic.cluster.address})
    apicurio = [("apicurio.key.contentId", (1).to_bytes(8, "big")), ("apicurio.value.contentId", (2).to_bytes(8, "big"))]
    confluent: list[tuple[str, str | bytes | None]] = [("other", b"x"), ("__value_schema_id", b"\1" + guid.bytes)]
    for number, headers in enumerate(([*apicurio], confluent, [("__value_schema_id", b"\0\0\0\0\2")]), 1):
        key, value = order(number)
        bare = key[5:] if headers[0][0].startswith("apicurio") else key
        producer.produce(topic.name, value=value[5:], key=bare, partition=0, headers=headers)
    # A letter has the id of the header, so that its record can be read again.
    producer.produce(topic.name, value=b"A", key=b"k", partition=0, headers=[("__value_schema_id", b"\0\0\0\0\x63")])
    producer.produce(topic.name, value=None, key=order(4)[0], partition=0, headers=[("__value_schema_id", b"\0\0\0\0\2")])
    assert producer.flush(10) == 0
    with running(make(**sections)):
        until(lambda: len(matched(tmp_path)) == 3 and len(look(tmp_path / "data")) == 1)
    assert matched(tmp_path) == ["1", "2", "3"]
    assert look(tmp_path / "data")[0].record == b"\0\0\0\0\x63A"


def test_a_registry_that_is_away_is_waited_for_at_the_start_and_while_it_runs(
    make: Make,
    topic: Topic,  # noqa: F811
    sections: Any,
    stub: Stub,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stub.stop()
    topic.send(order(1))
    service = make(**sections)
    with running(service) as thread:
        until(lambda: f"sources.orders: the schema registry does not answer at {stub.url}: Connection refused" in caplog.text)
        stub.start()
        until(lambda: matched(tmp_path) == ["1"])
        # A schema that is new is asked for, and the registry is away by then.
        stub.answer = 503, b""
        stub.schemas["ids/3"] = stub.schemas["ids/2"]
        key, value = order(2)
        topic.send((key, b"\0\0\0\0\3" + value[5:]), order(3))
        until(lambda: "answers /schemas/ids/3 with 503; waiting for it" in caplog.text)
        assert thread.is_alive()
        assert matched(tmp_path) == ["1"]
        stub.answer = None
        until(lambda: len(matched(tmp_path)) == 3)
    assert matched(tmp_path) == ["1", "2", "3"]
    assert not look(tmp_path / "data")


def test_what_waits_for_a_registry_is_read_by_the_next_process(
    make: Make,
    topic: Topic,  # noqa: F811
    sections: Any,
    stub: Stub,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic.send(order(1))
    service = make(**sections)
    stub.schemas["ids/2"], known = {}, stub.schemas["ids/2"]
    real = stub._answer
    stub._answer = lambda path, user: (500, b"") if "/ids/" in path else real(path, user)  # type: ignore[method-assign]
    with running(service):
        until(lambda: "waiting for it" in caplog.text)
    assert not matched(tmp_path)
    stub._answer, stub.schemas["ids/2"] = real, known  # type: ignore[method-assign]
    with running(make(**sections)):
        until(lambda: matched(tmp_path) == ["1"])


def test_a_record_of_an_unknown_schema_is_a_letter_that_is_read_again_once_the_schema_is_there(
    make: Make,
    topic: Topic,  # noqa: F811
    sections: Any,
    stub: Stub,  # noqa: F811
    tmp_path: Path,
) -> None:
    key, value = order(1)
    topic.send((key, b"\0\0\0\0\x09" + value[5:]), (key, b"\0\0\0\0\2A"), order(2))
    with running(make(**sections)):
        until(lambda: matched(tmp_path) == ["2"] and len(look(tmp_path / "data")) == 2)
    unknown, unfit = look(tmp_path / "data")
    assert (unknown.stage, unknown.code) == ("decode", "bad_value")
    assert "the value: the registry has no schema of id 9: Schema not found" in unknown.reason
    assert "avro: the record does not fit its schema" in unfit.reason
    stub.answer = 503, b""
    with pytest.raises(ServiceError, match=r"sources\.orders: schema registry"):
        make(**sections).replay(lambda store: store.letters())
    stub.answer = None
    stub.schemas["ids/9"] = stub.schemas["ids/2"]
    assert make(**sections).replay(lambda store: store.letters()) == (1, 1)
    assert matched(tmp_path) == ["2", "1"]
    assert [each.id for each in look(tmp_path / "data")] == [unfit.id]


def test_a_check_asks_the_registry(make: Make, topic: Topic, sections: Any, stub: Stub) -> None:  # noqa: F811
    stub.user = "Basic x"
    with pytest.raises(ServiceError, match=r"sources.orders: schema registry .* answers /schemas/types with 401: Unauthorized"):
        make(**sections).check()


def test_a_registry_that_lets_us_in_no_more_ends_the_service(
    make: Make,
    topic: Topic,  # noqa: F811
    sections: Any,
    stub: Stub,  # noqa: F811
    tmp_path: Path,
) -> None:
    service = make(**sections)
    failed: list[ServiceError] = []

    def run() -> None:
        try:
            service.run()
        except ServiceError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: "/schemas/types" in stub.asked)
    stub.user = "Basic x"
    topic.send(order(1))
    thread.join(30)
    assert "sources.orders: schema registry" in str(failed[0])
    assert json.dumps(matched(tmp_path)) == "[]"
