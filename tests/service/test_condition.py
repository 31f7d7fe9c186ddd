"""The metrics of the service as a whole: whether it works, how far its sources are behind, how much room is left."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from streamer import Config
from streamer.config.schema.connectors.kafka import KafkaSource
from streamer.core.options import Options
from streamer.errors import ServiceError
from streamer.metrics import service as names
from streamer.metrics.names import Metric
from streamer.service.api import status
from streamer.service.connectors.kafka import source as source_of_kafka
from streamer.service.connectors.kafka.source import KafkaMessages
from streamer.service.connectors.postgres import slot_lag
from streamer.service.connectors.protocols import Progress
from streamer.service.connectors.stdio.source import StdinLines
from streamer.service.console.pages import overview
from streamer.service.delivery import queue
from streamer.service.observed import looks, observer
from streamer.service.observed.rates import Delays, Lags
from streamer.service.run.build import of_engine
from streamer.service.store.rows import DeadLetter
from streamer.service.store.store import Store
from streamer.service.tenants import subscription_files
from tests.service.api import BIG, Api, order, running, until
from tests.service.conftest import SUBSCRIPTIONS, Make, event
from tests.service.database import Database, configuration
from tests.service.receiver import Receiver
from tests.tools.mock_kafka import MockCluster
from tests.tools.postgres import Cluster, missing

pytestmark = pytest.mark.later_on_the_reference
SLOW = {"spool": {"bytes": 1}, "retry": {"first": "50ms", "most": "100ms", "attempts": 1000}}

NO_LAG = {"positions": 0, "unit": "bytes", "seconds": 0.0}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take samples and measure slots often."""
    monkeypatch.setattr(observer, "TICK", 0.1)
    monkeypatch.setattr(slot_lag, "EVERY", 0.05)


def scraped(api: Api, token: str) -> dict[str, Family]:
    text = api.ask("GET", "/metrics", token=token).body.decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(families: dict[str, Family], metric: Metric) -> dict[Any, float]:
    """Return the values of a metric by their label, if it has one."""
    return {next(iter(sample.labels.values()), None): sample.value for sample in families[metric.name].samples}


def lag(api: Api, admin: str) -> Any:
    (source,) = api.ask("GET", "/v1/sources", token=admin).json["items"]
    return source["lag"]


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_the_lag_of_a_slot_grows_while_its_sink_is_down_and_is_over_once_all_is_confirmed(
    database: Database, receiver: Receiver, tmp_path: Path, quick: None, backend: str
) -> None:
    receiver.answer = lambda _: 503
    sections = configuration(database, tmp_path) | {"sinks": {"hook": receiver.sink()}, "delivery": SLOW}
    with running(tmp_path, **sections) as api:
        admin = api.make_token(None, "admin")
        insert = "INSERT INTO orders VALUES ({0}, 250, repeat('x', 1000))"
        # The first message fills the spool, and is confirmed with all of the log that follows.
        database.sql(insert.format(0))
        until(lambda: receiver.messages and lag(api, admin) == NO_LAG)
        grown: list[int] = []
        for number in range(1, 4):
            # The others wait, read or not.
            database.sql(insert.format(number))
            grown.append(until(lambda: (seen := lag(api, admin)) and seen["positions"] > sum(grown[-1:]) and seen["positions"]))
        found = until(lambda: (seen := lag(api, admin))["seconds"] > 0.3 and seen)
        families = scraped(api, admin)
        assert values(families, names.LAG_BYTES)["orders"] >= found["positions"] >= grown[-1] > grown[0] > 0
        assert values(families, names.LAG_SECONDS)["orders"] > 0.3
        # The server keeps at least what is not confirmed.
        assert values(families, names.SLOT)["orders"] >= values(families, names.LAG_BYTES)["orders"]
        assert "orders" not in values(families, names.LAG_MESSAGES)
        receiver.answer = lambda _: 204
        until(lambda: lag(api, admin) == NO_LAG)
        assert values(scraped(api, admin), names.LAG_BYTES) == {"orders": 0}
        assert {message["data"]["event"]["data"]["id"] for message in receiver.messages} == {0, 1, 2, 3}


def refused(*_: Any, **__: Any) -> Any:
    raise psycopg.OperationalError("no route")


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_lag_that_cannot_be_measured_is_unknown_and_is_measured_again(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(slot_lag, "EVERY", 0.05)
    source = database.open()
    before = until(source.progress)
    assert before.unit == "bytes"
    # Its connection is an ordinary one, which is closed with the source.
    mine = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_current_wal_lsn%'"
    other = " AND pid != pg_backend_pid()"
    database.sql(f"SELECT pg_terminate_backend(pid) {mine}{other}")
    until(lambda: "its lag is not known now" in caplog.text)
    database.sql("INSERT INTO orders VALUES (1, 1, '')")
    until(lambda: (seen := source.progress()) and seen.end > before.end)
    # One failure changes nothing yet; only after a while is the lag unknown.
    caplog.clear()
    monkeypatch.setattr(slot_lag, "Replication", refused)
    database.sql(f"SELECT pg_terminate_backend(pid) {mine}{other}")
    until(lambda: "its lag is not known now" in caplog.text)
    assert source.progress() is not None
    monkeypatch.setattr(slot_lag, "_STALE", 0.1)
    until(lambda: source.progress() is None)
    source.close()
    until(lambda: database.sql(f"SELECT count(*) {mine}{other}") == [(0,)])


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_database_that_goes_away_is_reported_and_is_read_again(
    cluster: Cluster, database: Database, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """It has answered at the start; the lag is unknown meanwhile, so another alert must be raised."""
    monkeypatch.setattr(status, "DOWN", 0.5)
    with running(tmp_path, **configuration(database, tmp_path)) as api:
        admin = api.make_token(None, "admin")
        until(lambda: lag(api, admin) == NO_LAG)
        assert values(scraped(api, admin), names.UP) == {"orders": 1}
        cluster.stop("immediate")
        try:
            until(lambda: values(scraped(api, admin), names.UP) == {"orders": 0})
            told = api.ask("GET", "/v1/status", token=admin).json
            assert told["sources"][0]["state"] == "away"
            assert [each.what for each in overview.troubles(told) if "The server of orders" in each.what]
            assert until(lambda: api.ask("GET", "/readyz", token="").json.get("reason")) == "away"
        finally:
            cluster.start()
        # It is idle now: no event shows that it is back.
        until(lambda: values(scraped(api, admin), names.UP) == {"orders": 1})
        until(lambda: api.ask("GET", "/readyz", token="").status == 200)


def test_brokers_that_go_away_are_reported_and_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_of_kafka, "STATISTICS", 100)
    brokers = MockCluster()
    brokers.topic("orders")
    section = {"type": "kafka", "brokers": brokers.address, "topics": "orders", "group": "g"}
    source = KafkaMessages(KafkaSource(**section), max_bytes=1000)
    positions: dict[str, str] = {}
    source.open(positions, positions.__setitem__)
    try:
        until(source.progress)
        assert source.down_since is None
        brokers.down()
        until(lambda: source.down_since)
        assert source.progress() is None, "the last ends are old"
        brokers.up()
        # No message shows that they are back.
        until(lambda: source.down_since is None and source.progress())
    finally:
        source.close()
        brokers.close()


def test_a_store_that_does_not_answer_blocks_no_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """It neither answers nor refuses; its values are missing once they are old, and no thread is left behind."""
    monkeypatch.setattr(looks, "PATIENCE", 0.2)
    answers, letters, is_writable = threading.Event(), Store.dead_letters, Store.is_writable
    answers.set()
    monkeypatch.setattr(Store, "dead_letters", lambda self: answers.wait(60) and letters(self))
    monkeypatch.setattr(Store, "is_writable", lambda self: answers.wait(60) and is_writable(self))
    with running(tmp_path, metrics={"enabled": True, "port": 0}) as api:
        admin = api.make_token(None, "admin")
        api.read(b"{")
        assert values(scraped(api, admin), names.LETTERS) == {None: 1}
        answers.clear()
        try:
            began = time.monotonic()
            families = scraped(api, admin)
            assert time.monotonic() - began < 5
            assert values(families, names.LETTERS) == values(families, names.READY) == {None: 1}, "the last ones"
            threads = threading.active_count()
            monkeypatch.setattr(looks, "STALE", 0.1)
            for _ in range(20):
                families = scraped(api, admin)
            assert values(families, names.READY) == {None: 0}
            assert values(families, names.LETTERS) == values(families, names.EXPIRING) == {}
            assert values(families, names.READ) == {"orders": 1}
            assert api.ask("GET", "/readyz", token="").json["reason"] == "store_not_writable"
            assert threading.active_count() < threads + 10
        finally:
            answers.set()
        monkeypatch.setattr(looks, "STALE", 20.0)
        until(lambda: values(scraped(api, admin), names.READY) == {None: 1})
        assert values(scraped(api, admin), names.LETTERS) == {None: 1}


def test_a_look_is_as_new_as_its_call_or_says_that_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "PATIENCE", 5.0)
    found, seen = [0], looks.Looks()
    read = seen.of(lambda: found[0])
    for number in range(100):
        found[0] = number
        assert read() == number

    def fail() -> int:
        raise ServiceError("no disk")

    with pytest.raises(ServiceError, match="no disk"):
        seen.of(fail)()
    assert read() == 99
    seen.close()


def test_the_age_of_events_is_a_metric_of_its_own(
    receiver: Receiver, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """The process has seen the file for a moment, so its lag is short, though its events are an hour old."""
    monkeypatch.setattr(queue, "MOST_BYTES", 1)
    receiver.answer = lambda _: 503
    (tmp_path / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    an_hour_ago = int(time.time() - 3600) * 1000
    text = b"".join(event(number, ts=an_hour_ago, note="x" * 1000) + b"\n" for number in range(3000))
    (tmp_path / "in.jsonl").write_bytes(text)
    sections: dict[str, Any] = {"sinks": {"hook": receiver.sink()}, "delivery": SLOW}
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")], **sections) as api:
        admin = api.make_token(None, "admin")
        found = until(lambda: (seen := lag(api, admin)) and seen["seconds"] > 0 and seen)
        assert found["unit"] == "bytes"
        assert 0 < found["positions"] < len(text)
        families = scraped(api, admin)
        assert 3599 < values(families, names.AGE)["orders"] < 3700
        assert 0 < values(families, names.LAG_SECONDS)["orders"] < 600


def test_with_metrics_alone_a_lag_has_its_seconds(
    receiver: Receiver, make: Make, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They come from samples, for which there need be no API; these events have no time."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(queue, "MOST_BYTES", 1)
    receiver.answer = lambda _: 503
    (tmp_path / "in.jsonl").write_bytes(b"".join(event(number, note="x" * 1000) + b"\n" for number in range(3000)))
    service = make(sinks={"hook": receiver.sink()}, delivery=SLOW, metrics={"enabled": True, "port": 0})
    may_load, read = threading.Event(), subscription_files.read
    monkeypatch.setattr(subscription_files, "read", lambda *given: may_load.wait(60) and read(*given))
    thread = threading.Thread(target=service.run)
    thread.start()
    url = until(lambda: re.search(r"metrics: (http://\S+)", caplog.text))[1]

    def served() -> dict[str, Family]:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return {family.name: family for family in text_string_to_metric_families(reply.read().decode())}

    def seconds() -> float:
        return values(served(), names.LAG_SECONDS).get("orders", 0.0)

    # While it loads, it is neither down nor unable to work.
    families = served()
    assert "streamer_build_info" in families
    assert names.READY.name not in families
    may_load.set()
    until(lambda: names.READY.name in served())
    first = until(seconds)
    until(lambda: seconds() > first + 0.2)
    service.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_the_age_of_an_event_without_a_time_is_not_known() -> None:
    delays = Delays(Options.checked(**of_engine(Config.from_dict({})).engine_options()))
    delays.add("s", event(1, ts=int(time.time() - 100) * 1000))
    assert 100 <= (delays.of("s") or 0) < 102
    assert delays.of("other") is None
    for number, text in enumerate((b"{", event(2), b'{"ts": "x"}')):
        delays.add(str(number), text)
        assert delays.of(str(number)) is None


def test_a_source_of_another_configuration_has_no_lag_of_the_one_before() -> None:
    """A reload may give its name to a longer file."""
    lags, before, after = Lags(), object(), object()
    lags.add(0.0, "s", Progress(0, 100, "bytes"), before)
    assert lags.of(60.0, "s", Progress(0, 100, "bytes")) == 60
    lags.add(60.0, "s", Progress(0, 1000, "bytes"), after)
    assert lags.of(61.0, "s", Progress(0, 1000, "bytes")) == 1


@pytest.mark.parametrize("is_pipe", [True, False])
def test_standard_input_counts_what_waits_in_its_pipe_or_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_pipe: bool
) -> None:
    text, path = b'{"a": 1}\n{"a": 2}\n', tmp_path / "in.jsonl"
    path.write_bytes(text)
    read, write = os.pipe() if is_pipe else (os.open(path, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
    os.write(write, text)
    with open(read, encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        source = StdinLines(max_bytes=1000)
        source.open({}, lambda *_: None)
        assert source.progress() == Progress(0, 18, "bytes")
        batch = source.read(1)
        assert batch is not None
        assert len(batch.records) == 2
        assert source.progress() == Progress(18, 18, "bytes")
    os.close(write)
    assert source.progress() is None, "it is closed"


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Any:
    routes = [{"gateway": "billing", "sink": "out"}]
    with running(tmp_path, routes=routes, metrics={"enabled": True, "port": 0}) as api:
        yield api


def test_the_metrics_of_the_service_are_all_there_and_are_what_they_are_declared_as(api: Api) -> None:
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    api.read(order())
    families = scraped(api, api.make_token(None, "admin"))
    for metric in names.METRICS:
        family = families[metric.name]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert all(set(sample.labels) == set(metric.labels) for sample in family.samples)


def test_a_match_without_a_route_is_counted(api: Api) -> None:
    admin = api.make_token(None, "admin")
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    api.ask("PUT", "/v1/subscriptions/lost", BIG | {"gateway_id": "nowhere"})
    api.read(order())
    families = scraped(api, admin)
    assert values(families, names.UNROUTED) == values(families, names.DROPPED) == {None: 1}


def test_a_lease_that_nobody_renews_is_expiring(api: Api) -> None:
    admin = api.make_token(None, "admin")
    api.ask("PUT", "/v1/subscriptions/big?lease=3", BIG)
    api.ask("PUT", "/v1/subscriptions/later?lease=3600", BIG)
    api.ask("PUT", "/v1/subscriptions/never", BIG)
    assert values(scraped(api, admin), names.EXPIRING) == {None: 0}
    until(lambda: values(scraped(api, admin), names.EXPIRING) == {None: 1})
    until(lambda: values(scraped(api, admin), names.EXPIRED) == {None: 1})
    assert values(scraped(api, admin), names.EXPIRING) == {None: 0}


def test_the_room_of_the_store_is_measured(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = api.make_token(None, "admin")
    before = values(scraped(api, admin), names.ROOM)
    assert (before["dead_letters"], before["spool"]) == (0, 0)
    assert 0 < before["disk"] < 1
    api.read(b"{" * 1000)
    letters = values(scraped(api, admin), names.ROOM)["dead_letters"]
    assert 1000 / 1024**3 < letters < 10_000 / 1024**3


def test_dead_letters_that_may_be_forgotten_take_no_room(tmp_path: Path) -> None:
    """They are forgotten at the limit, by design: their room is no problem."""
    with closing(Store(tmp_path, dead_letter_bytes=10_000)) as store:
        where = {"source": "s", "partition": "p", "stage": "deliver", "code": "503", "reason": "", "at": 1, "size": 1000}
        for number, sink in enumerate(("gateway:acme/a", "hook", "gateway:acme/b")):
            store.commit([], [DeadLetter(**where, position=number, sink=sink, record=b"x" * 1000)])  # type: ignore[arg-type]
        assert store.used()["dead_letters"] == 0.1


def test_counts_of_what_is_configured_begin_at_zero(api: Api) -> None:
    """Else the first dead letter would be no increase."""
    families = scraped(api, api.make_token(None, "admin"))
    assert values(families, names.REJECTED) == values(families, names.READ) == {"orders": 0}
    assert values(families, names.DEAD) == values(families, names.DELIVERED) == {"out": 0}


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_service_that_is_not_ready_still_answers_a_scrape(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """Also while its store cannot be read; what only the store knows is missing then."""
    monkeypatch.setenv("STORE", cluster.dsn())
    with running(tmp_path, store={"dsn": {"env": "STORE"}, "namespace": "condition"}, service={}) as api:
        admin = api.make_token(None, "admin")
        families = scraped(api, admin)
        assert values(families, names.READY) == {None: 1}
        assert values(families, names.ROOM) == {"dead_letters": 0, "spool": 0}, "the disk is the server's"
        cluster.stop("immediate")
        try:
            families = until(lambda: not values(seen := scraped(api, admin), names.READY)[None] and seen)
            assert values(families, names.LETTERS) == values(families, names.EXPIRING) == {}
            assert values(families, names.MATCHES) == {None: 0}
        finally:
            cluster.start()
        until(lambda: values(scraped(api, admin), names.READY)[None])
