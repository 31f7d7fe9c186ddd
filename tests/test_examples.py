"""The examples that consume a source: each against the real thing, in process."""

from __future__ import annotations

import asyncio
import base64
import json
import runpy
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamer import Engine, Match
from streamer.config.loader import load
from streamer.service.run.build import parts_of
from streamer.service.run.serve import Service

EXAMPLES = Path(__file__).parents[1] / "examples"
MakeEngine = Callable[..., Engine]

PAID = {"id": "paid", "collection": "orders", "filters": [{"field": "status", "op": "==", "value": "paid"}]}


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.fixture
def brokers() -> Iterator[str]:
    """Where a mock cluster of the Kafka client listens, with four of Debezium's records on a topic."""
    record = {"source": {"table": "orders"}, "op": "u", "before": {"id": 1}, "after": {"id": 1, "status": "paid"}}
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock"})
    metadata = producer.list_topics(timeout=30)
    for value in (json.dumps(record), None, "{", json.dumps(record | {"op": "c", "before": None})):
        producer.produce("orders", value=value, key=b"1", partition=0)
    assert producer.flush(30) == 0
    yield ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    del producer  # the cluster ends with it


def test_the_consumer_of_kafka_delivers_and_commits(engine: MakeEngine, brokers: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = example("kafka_consumer")
    e = engine(format="debezium")
    e.add(PAID)
    delivered: list[tuple[str, bytes]] = []

    def deliver(match: Match, record: bytes) -> None:
        delivered.append((match.subscription_id, record))

    consumer = Consumer({"bootstrap.servers": brokers, **names["SETTINGS"]})
    consumer.subscribe(["orders"])
    done = 0
    for count in islice(names["consume"](consumer, e, deliver), 60):
        done += count
        if done == 4:
            break
    (committed,) = consumer.committed([TopicPartition("orders", 0)], timeout=30)
    consumer.close()
    assert (done, committed.offset) == (4, 4)
    assert [subscription_id for subscription_id, _ in delivered] == ["paid", "paid"]
    assert all(json.loads(record)["after"]["status"] == "paid" for _, record in delivered)
    assert capsys.readouterr().err.startswith("orders 0:2: ")


def test_the_asyncio_server_answers_each_line(engine: MakeEngine) -> None:
    names = example("asyncio_server")
    e = engine()
    e.add(PAID)
    paid = json.dumps({"collection": "orders", "data": {"status": "paid"}}).encode()

    async def run() -> list[Any]:
        server = await names["serve"](e, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            told = []
            for line in (paid, b"{", b"", paid.replace(b"paid", b"new")):
                # No answer waits for the next line.
                writer.write(line + b"\n")
                told.append(json.loads(await reader.readline()))
            writer.write(b" " * (names["LARGEST"] + 1) + b"\n")
            told.append(json.loads(await reader.readline()))
            assert await reader.read() == b""
            writer.close()
            return told

    found = asyncio.run(asyncio.wait_for(run(), 60))
    assert [found[0], found[2], found[3]] == [["paid"], [], []]
    assert "error" in found[1]
    assert found[4] == {"error": f"a line is longer than {names['LARGEST']} bytes"}


def test_the_receiver_of_webhooks_matches_what_the_sender_may_post(engine: MakeEngine) -> None:
    names = example("webhook_receiver")
    e = engine(format="supabase")
    e.add(PAID | {"collection": "public.orders"})
    body = json.dumps({"type": "INSERT", "schema": "public", "table": "orders", "record": {"status": "paid"}, "old_record": None})
    listening = names["server"](e, "127.0.0.1", 0, "s3cret")
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()

    def post(text: str, secret: str = "s3cret", **headers: str) -> tuple[int, Any]:
        connection = HTTPConnection(*listening.server_address, timeout=30)
        connection.request(
            "POST", "/", text, {"Authorization": f"Bearer {secret}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        )
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        return answer.status, told

    try:
        assert post(body) == (200, ["paid"])
        assert post(body.replace("paid", "new")) == (200, [])
        assert post(body, secret="other")[0] == 401
        assert post("{")[0] == 400
        assert post(body, Content_Length=str(names["LARGEST"] + 1))[0] == 413
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def test_the_configuration_of_webhooks_is_one_that_a_service_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "whsec_" + base64.b64encode(bytes(32)).decode())
    parts_of(load(EXAMPLES / "service" / "webhooks.yaml", {}).config).check_endpoints()


def test_the_service_of_the_example_delivers_what_its_configuration_says(tmp_path: Path, backend: str) -> None:
    shutil.copytree(EXAMPLES / "service", tmp_path / "service")
    for name in ("subscriptions.jsonl", "events.jsonl"):
        shutil.copy(EXAMPLES / name, tmp_path)
    service = Service(lambda: load(tmp_path / "service" / "streamer.yaml", {}))
    service.check()
    service.run()
    billing, others = (
        [json.loads(line) for line in (tmp_path / "service" / f"{name}.jsonl").read_bytes().splitlines()]
        for name in ("billing", "others")
    )
    assert [one["id"] for each in billing for one in each["data"]["subscriptions"]] == ["german-routing-keys"] * 2
    assert Counter(each["subject"] for each in others) == {
        "big-orders": 2,
        "paid-or-sent": 1,
        "vip-customers": 1,
        "anything-deleted": 1,
    }
    assert all("reference" in each["data"] for each in others)
