"""Messages by the schemas of a real registry: Apicurio's, by its API that is compatible with Confluent's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamer.config.schema.encoded import Format
from streamer.errors import EventError, ServiceError
from streamer.service.connectors.formats import Decoder, decoder
from streamer.service.connectors.registry import Messages
from streamer.service.store.opened import look
from tests.cdc.test_avro import encoded
from tests.service.conftest import Make
from tests.service.test_registry import KEY, ORDERS, change, record, row
from tests.service.test_registry_service import matched, running, until
from tests.tools.fetched import NotThere
from tests.tools.kafka import server
from tests.tools.registries import apicurio, register

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with apicurio(tmp_path_factory.mktemp("apicurio")) as found:
            yield found
    except NotThere as error:
        pytest.fail(str(error))


def messages(url: str, encoding: str) -> Messages:
    return Messages(Format.model_validate({"encoding": encoding, "registry": {"url": url}}))


def decoding(url: str, encoding: str = "avro", name: Any = "json") -> Decoder:
    found = decoder(name, messages=messages(url, encoding))
    assert found is not None
    return found


def test_a_check_finds_it_and_what_is_no_registry(url: str) -> None:
    messages(url, "avro").check()
    with pytest.raises(ServiceError, match="there is no schema registry at"):
        messages(url.removesuffix("/apis/ccompat/v7"), "avro").check()


def test_changes_in_avro_and_their_keys(url: str) -> None:
    key, value = register(url, "orders-key", json.dumps(KEY)), register(url, "orders-value", json.dumps(ORDERS))
    decode = decoding(url, name="debezium")
    ((text, of),) = decode(record(value, ORDERS, change("c", None, row(7, 25010, 20484))), record(key, KEY, {"id": 7}))
    assert json.loads(text)["data"] == {"id": 7, "amount": 250.1, "day": "2026-01-31"}
    assert of == "7"


def test_a_schema_that_evolves(url: str) -> None:
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}  # type: ignore[misc]
    decode = decoding(url)
    first = register(url, "evolving-value", json.dumps(old))
    assert decode(record(first, old, {"id": 1})) == [(b'{"id":1}', None)]
    second = register(url, "evolving-value", json.dumps(new))
    assert decode(record(second, new, {"id": 1, "note": "n"})) == [(b'{"id":1,"note":"n"}', None)]


def test_a_schema_that_refers_to_another(url: str) -> None:
    state = {"type": "enum", "name": "State", "namespace": "shop", "symbols": ["NEW", "PAID"]}
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "state", "type": "shop.State"}]}
    register(url, "state", json.dumps(state))
    number = register(url, "order", json.dumps(order), references=[{"name": "shop.State", "subject": "state", "version": 1}])
    assert decoding(url)(b"\0" + number.to_bytes(4, "big") + b"\x02") == [(b'{"state":"PAID"}', None)]


def test_protobuf(url: str) -> None:
    country = 'syntax = "proto3"; package shop; enum Country { DE = 0; FR = 1; }'
    order = 'syntax = "proto3"; package shop; import "country.proto"; message Order { int64 id = 1; Country of = 2; }'
    register(url, "country.proto", country, "PROTOBUF")
    references = [{"name": "country.proto", "subject": "country.proto", "version": 1}]
    number = register(url, "order-proto", order, "PROTOBUF", references)
    decode = decoding(url, "protobuf")
    assert decode(b"\0" + number.to_bytes(4, "big") + b"\0\x08\x07\x10\x01") == [(b'{"id":7,"of":"FR"}', None)]


def test_json_schema(url: str) -> None:
    amount = {"title": "org.apache.kafka.connect.data.Decimal", "type": "string", "connect.parameters": {"scale": "2"}}
    number = register(url, "order-json", json.dumps({"type": "object", "properties": {"amount": amount}}), "JSON")
    decode = decoding(url, "json_schema")
    assert decode(b"\0" + number.to_bytes(4, "big") + b'{"amount": "YbI="}') == [(b'{"amount":250.10}', None)]


def test_an_unknown_id(url: str) -> None:
    with pytest.raises(EventError, match="the value: the registry has no schema of id 99999: No content with id"):
        decoding(url)(b"\0" + (99_999).to_bytes(4, "big") + encoded(KEY, {"id": 1}))


def test_a_service_reads_avro_from_a_real_broker_by_a_real_registry(url: str, make: Make, tmp_path: Path) -> None:
    key, value = register(url, "shop.orders-key", json.dumps(KEY)), register(url, "shop.orders-value", json.dumps(ORDERS))
    (tmp_path / "subs.jsonl").write_text('{"id": "big", "filters": [{"field": "amount", "op": ">", "value": 100}]}\n')
    with server(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address})
        (made,) = admin.create_topics([NewTopic("shop.orders", 3, 1)]).values()
        made.result(30)
        producer = Producer({"bootstrap.servers": broker.address})
        for number in range(100):
            change_ = change("c", None, row(number, number * 1000))
            producer.produce("shop.orders", record(value, ORDERS, change_), record(key, KEY, {"id": number}))
            producer.produce("shop.orders", None, record(key, KEY, {"id": number}))
        producer.produce("shop.orders", b"\0\0\1\x86\x9fA", b"unknown")
        assert producer.flush(30) == 0
        format_ = {"name": "debezium", "encoding": "avro", "registry": {"url": url}}
        source = {"type": "kafka", "brokers": broker.address, "topics": "shop.orders", "format": format_}
        service = make(sources={"orders": source})
        service.check()
        with running(service):
            until(lambda: len(matched(tmp_path)) == 89 and len(look(tmp_path / "data")) == 1)
        assert sorted(map(int, matched(tmp_path))) == list(range(11, 100))
        assert "the registry has no schema of id 99999" in look(tmp_path / "data")[0].reason
