"""A server that does not answer when the service starts is waited for; one that does not let us in is an error at once."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamer import Config
from streamer.config.loader import Loaded
from streamer.config.secret import SecretValue
from streamer.errors import ServiceError
from streamer.service.connectors import unavailable
from streamer.service.connectors.file.sink import FileAppender
from streamer.service.connectors.postgres import replication
from streamer.service.connectors.protocols import Away
from streamer.service.run.serve import Service
from tests.service.api import BIG, order, running, until
from tests.service.conftest import so_far
from tests.service.database import ORDERS, PUBLICATION, SUBSCRIPTION
from tests.tools.postgres import Cluster, missing

pytestmark = pytest.mark.later_on_the_reference


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unavailable, "MOST", 0.3)


@pytest.fixture(scope="module")
def stopped() -> Iterator[Cluster]:
    """A server that is down, with a table."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    made = Cluster()
    made.sql(ORDERS, PUBLICATION, "SELECT pg_create_logical_replication_slot('streamer', 'pgoutput')")
    made.stop()
    yield made
    made.close()


def shop(directory: Path) -> dict[str, Any]:
    (directory / "subs.jsonl").write_text(SUBSCRIPTION)
    return {
        "subscriptions": [str(directory / "subs.jsonl")],
        "sources": {"shop": {"type": "postgres", "dsn": {"env": "PG"}}},
        "sinks": {"out": {"type": "file", "path": str(directory / "out.jsonl")}},
        "service": {"data_dir": str(directory / "data")},
    }


def test_a_database_that_is_down_is_waited_for(
    stopped: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, backend: str
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("PG", stopped.dsn())
    with pytest.raises(ServiceError, match=r"sources\.shop: .*refused"):
        Service(lambda: Loaded(Config.from_dict(shop(tmp_path)))).check()
    with running(tmp_path, **shop(tmp_path)) as api:
        admin = api.make_token(None, "admin")
        reply = api.ask("GET", "/readyz", token="")
        assert (reply.status, reply.json["reason"]) == (503, "away")
        assert api.ask("GET", "/healthz", token="").status == 200
        (source,) = api.ask("GET", "/v1/sources", token=admin).json["items"]
        assert source["state"] == "away"
        # A reload goes on waiting.
        api.config["sinks"] = {"out": {"type": "file", "path": str(tmp_path / "other.jsonl")}}
        assert api.service.reload().errors == ()
        until(lambda: "retrying in" in caplog.text)
        # One that is refused, too: the source that was closed for it is waited for again.
        before = api.config["sources"]
        api.config["sources"] = {"shop": before["shop"] | {"status_interval": "1s"}}
        assert "refused" in api.service.reload().errors[0]
        api.config["sources"] = before
        assert api.ask("GET", "/readyz", token="").json["reason"] == "away"
        stopped.start()
        stopped.sql("INSERT INTO orders SELECT count(*), 250 FROM orders")
        until(lambda: so_far(tmp_path / "other.jsonl"))
        assert api.ask("GET", "/readyz", token="").status == 200
        assert "sources.shop: available now" in caplog.text
    # It answers, and waiting would not help.
    for wrong, reason in (
        (stopped.dsn().replace("secret-word", "another-word"), "password authentication failed"),
        (stopped.dsn("nosuch"), "does not exist"),
        (stopped.dsn() + "?sslmode=require", "SSL"),
    ):
        monkeypatch.setenv("PG", wrong)
        with pytest.raises(ServiceError, match=reason):
            Service(lambda: Loaded(Config.from_dict(shop(tmp_path)))).run()
    stopped.stop()


def test_a_database_that_starts_right_after_it_refused_was_away(stopped: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the reason of the error is looked for, the server answers. That must not end the service."""
    dsn = SecretValue("env", "PG")
    monkeypatch.setenv("PG", stopped.dsn())
    with pytest.raises(psycopg.OperationalError) as refused:
        replication.connect(dsn, replication=True)
    stopped.start()
    try:
        assert replication.is_away(refused.value, dsn, replication=True)
        monkeypatch.setenv("PG", stopped.dsn().replace("secret-word", "another-word"))
        with pytest.raises(psycopg.OperationalError) as denied:
            replication.connect(dsn, replication=True)
        assert not replication.is_away(denied.value, dsn, replication=True)
    finally:
        stopped.stop()


def test_who_is_told_to_end_while_it_waits_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PG", f"postgresql://u:p@127.0.0.1:{nobody.getsockname()[1]}/x")
        service = Service(lambda: Loaded(Config.from_dict(shop(tmp_path))))
        thread = threading.Thread(target=service.run)
        thread.start()
        time.sleep(0.5)
        assert thread.is_alive()
        service.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_a_server_that_says_nothing_does_not_hold_up_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, backend: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PG", f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/x")
        kafka = {"type": "kafka", "brokers": ["127.0.0.1:9"], "topics": ["orders"], "group": "g", "format": "debezium"}
        sections = shop(tmp_path)
        began = time.monotonic()
        with running(tmp_path, **sections | {"sources": {**sections["sources"], "orders": kafka}}) as api:
            assert time.monotonic() - began < 8
            assert api.ask("GET", "/readyz", token="").json["reason"] == "away"
            told = api.ask("GET", "/v1/sources", token=api.make_token(None, "admin")).json["items"]
            assert [each["state"] for each in told] == ["away", "away"]
            assert "sources.shop: its server has not answered yet; waiting for it" in caplog.text
            until(lambda: "sources.orders: the brokers do not answer at 127.0.0.1:9" in caplog.text)
            began = time.monotonic()
        assert time.monotonic() - began < 8


def test_a_database_that_is_starting_up_is_waited_for(
    stopped: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, backend: str
) -> None:
    monkeypatch.setenv("PG", stopped.dsn())
    stopped.start(goes_on=False)
    with pytest.raises(Away, match=r"sources\.shop: .*the database system is (starting up|not accepting connections)"):
        Service(lambda: Loaded(Config.from_dict(shop(tmp_path)))).check()
    with running(tmp_path, **shop(tmp_path)) as api:
        assert api.ask("GET", "/readyz", token="").json["reason"] == "away"
        until(lambda: "retrying in" in caplog.text)
        stopped.go_on()
        until(lambda: api.ask("GET", "/readyz", token="").status == 200, 20)
    stopped.stop()


def test_nobody_stands_still_while_a_server_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks a server whether it is there would keep all threads from going on meanwhile."""
    monkeypatch.setattr(replication, "_CONNECT_TIMEOUT", 2)
    longest = [0.0]
    is_over = threading.Event()

    def tick() -> None:
        before = time.monotonic()
        while not is_over.wait(0.01):
            longest[0], before = max(longest[0], time.monotonic() - before), time.monotonic()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        for host in (f"127.0.0.1:{silent.getsockname()[1]}", "nobody.invalid"):
            monkeypatch.setenv("PG", f"postgresql://u:p@{host}/x")
            dsn = SecretValue("env", "PG")
            with pytest.raises(psycopg.OperationalError) as told:
                replication.connect(dsn, replication=True)
            assert replication.is_away(told.value, dsn, replication=True)
        is_over.set()
        ticking.join()
    assert longest[0] < 1


@pytest.mark.parametrize("kind", ["postgres", "kafka"])
def test_a_host_that_nobody_knows_is_an_error_of_the_check_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, backend: str
) -> None:
    monkeypatch.setenv("PG", "postgresql://u:p@nobody.invalid/x")
    sections = shop(tmp_path)
    if kind == "kafka":
        kafka = {"type": "kafka", "brokers": ["nobody.invalid:9092"], "topics": ["orders"], "group": "g"}
        sections["sources"] = {"shop": kafka}
    began = time.monotonic()
    with pytest.raises(ServiceError, match=r"sources\.shop: .*[Ff]ailed to resolve (host )?'nobody\.invalid"):
        Service(lambda: Loaded(Config.from_dict(sections))).check()
    assert time.monotonic() - began < 10
    with running(tmp_path, **sections) as api:
        assert api.ask("GET", "/readyz", token="").json["reason"] == "away"
        until(lambda: "nobody.invalid" in caplog.text and "; retrying in" in caplog.text)


def test_while_a_sink_is_away_events_wait_and_nothing_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    is_there = threading.Event()
    opening = FileAppender.open

    def opened(sink: FileAppender) -> None:
        if not is_there.is_set():
            raise Away("no broker answers")
        opening(sink)

    monkeypatch.setattr(FileAppender, "open", opened)
    (tmp_path / "subs.jsonl").write_text('{"id": "big", "tenant": "acme"}\n')
    for _ in range(2):
        with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]) as api:
            with open(tmp_path / "in.jsonl", "ab") as file:
                file.write(order(1) + b"\n")
            until(lambda: api.counts()["matches_pending"])
            (sink,) = api.ask("GET", "/v1/sinks", token=api.make_token(None, "admin")).json["items"]
            assert sink["state"] == "away"
    assert not (tmp_path / "out.jsonl").exists()
    is_there.set()
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]) as api:
        assert api.ask("PUT", "/v1/subscriptions/two", BIG).status == 201
        until(lambda: len(api.delivered()) == 2)
    is_there.clear()
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]) as api:
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(2) + b"\n")
        until(lambda: api.counts()["matches_pending"])
        is_there.set()
        until(lambda: len(api.delivered()) == 4)
        assert api.ask("GET", "/readyz", token="").status == 200
