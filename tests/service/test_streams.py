"""Streams of matches: resumed where they were, told what is gone, bounded, and ended cleanly."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.api import streams, tokens
from tests.service.api import BIG, Api, order, running, until

PATH = "/v1/gateways/billing/matches"


class Client:
    """A stream's client, which reads when it is told to.

    Attributes:
        events: id, kind and data of each.
        is_over: whether the stream ended as HTTP has it.
    """

    def __init__(
        self, api: Api, token: str | None = None, last: str | None = None, path: str = PATH, size: int | None = None
    ) -> None:
        self._socket = socket.socket()
        _opened.append(self)
        if size is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        self._socket.settimeout(30)
        self._socket.connect(("127.0.0.1", api.port))
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token or api.token}"]
        lines += [f"Last-Event-ID: {last}"] if last is not None else []
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._text = b""
        self._body = b""
        self.status = 0
        self.events: list[tuple[str, str, Any]] = []
        self.heartbeats = 0
        self.is_over = self.is_cut = False

    def read(self, seconds: float = 30) -> bool:
        """Read what comes next; tell whether anything did."""
        if self.is_over:
            return False
        self._socket.settimeout(seconds)
        try:
            piece = self._socket.recv(65_536)
        except TimeoutError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self.is_cut = not self.is_over
            return False
        self._text += piece
        if not self.status:
            head, _, self._text = self._text.partition(b"\r\n\r\n")
            self.status = int(head.split()[1])
            self.head = head.lower()
            if self.status != 200:
                self.is_over = True
                return True
        while match := re.match(rb"([0-9a-f]+)\r\n", self._text):
            size = int(match[1], 16)
            if len(self._text) < match.end() + size + 2:
                break
            self.is_over = not size
            self._body += self._text[match.end() : match.end() + size]
            self._text = self._text[match.end() + size + 2 :]
        *events, self._body = self._body.split(b"\n\n")
        for event in events:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
            if b"data" in fields:
                kind = fields.get(b"event", b"message").decode()
                self.events.append((fields[b"id"].decode(), kind, json.loads(fields[b"data"])))
            self.heartbeats += event == b":"
        return True

    def take(self, count: int) -> list[str]:
        """Read until there are so many events; return the keys of their matches."""
        while len(self.events) < count and self.read():
            pass
        return self.keys

    @property
    def keys(self) -> list[str]:
        return [kind if kind == "reset" else data["partitionkey"] for _, kind, data in self.events]

    @property
    def last(self) -> str:
        return self.events[-1][0]

    def close(self) -> None:
        self._socket.close()


_opened: list[Client] = []


@pytest.fixture(autouse=True)
def _clients_are_closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


@contextmanager
def streaming(directory: Path, **sections: Any) -> Iterator[Api]:
    """Run a service with a gateway that streams."""
    with running(directory, **sections) as api:
        api.token = api.make_token("acme", "read", "write", "consume")
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status in (200, 201)
        assert api.ask("PUT", "/v1/gateways/billing", {}).status in (200, 201)
        yield api


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with streaming(tmp_path, api={"limits": {"heartbeat": "200ms"}}) as api:
        yield api


def test_a_stream_begins_with_what_is_kept_and_resumes_where_it_was(api: Api) -> None:
    api.read(order(1), order(2))
    client = Client(api)
    assert client.take(2) == ["1", "2"]
    assert b"content-type: text/event-stream" in client.head
    assert b"cache-control: no-store" in client.head
    api.read(order(3))
    assert client.take(3) == ["1", "2", "3"]
    ids = [identity for identity, _, _ in client.events]
    assert [identity.partition("-")[2] for identity in ids] == ["1", "2", "3"]
    client.close()
    api.read(order(4), order(5))
    for seen, expected in ((ids[0], ["2", "3", "4", "5"]), (ids[2], ["4", "5"])):
        again = Client(api, last=seen)
        assert again.take(len(expected)) == expected
        again.close()
    new = Client(api, path=PATH + "?from=now")
    until(lambda: new.read(0.05) or new.status)
    api.read(order(6))
    assert new.take(1) == ["6"]
    assert new.events[0][2]["gateway"] == "billing"
    told = api.counts()
    assert (told["matches"], told["matches_delivered"], told["matches_pending"]) == (6, 6, 0)
    shown = api.ask("GET", "/v1/gateways/billing").json
    assert (shown["state"], shown["history"]["messages"], shown["delivered"]) == ("streams", 6, 6)
    until(lambda: api.service.api is not None and api.service.api.streams.ended["client"] == 3)
    new.close()


def test_an_id_whose_history_is_gone_gets_a_reset_and_then_what_there_is(tmp_path: Path, backend: str) -> None:
    with streaming(tmp_path, delivery={"gateways": {"history": "6KB"}}) as api:
        api.read(order(1))
        first = Client(api)
        first.take(1)
        first.close()
        for part in range(4):
            api.read(*(order(10 * part + number, note="x" * 200) for number in range(10)))
            history = next(iter(api.service.gateways._spool.histories.values()))
            until(lambda: history.bytes <= 6 * 1024)  # noqa: B023
        kept = [str(number) for number in range(40)][-history.messages :]
        assert 3 < len(kept) < 20
        mark = history.mark
        for given in (first.last, f"{mark}-9999", "0123abcd-5", "hostile", "x" * 3000, f"{mark}-{'9' * 14}"):
            client = Client(api, last=given)
            assert client.take(len(kept) + 1) == ["reset", *kept]
            identity, _, told = client.events[0]
            assert told["after"] == given[:100]
            # The reset itself is a place to resume from.
            again = Client(api, last=identity)
            assert again.take(len(kept)) == kept
            again.close()
            client.close()
        assert api.ask("GET", "/v1/gateways/billing").json["history"]["bytes"] <= 6 * 1024


def test_numbers_go_on_after_a_restart_and_after_all_is_trimmed(tmp_path: Path, backend: str) -> None:
    with streaming(tmp_path) as api:
        api.read(order(1), order(2))
        client = Client(api)
        client.take(2)
        client.close()
        seen = client.last
    short = {"delivery": {"gateways": {"history_time": "10ms"}}}
    with streaming(tmp_path, **short) as api:
        (history,) = api.service.gateways._spool.histories.values()
        until(lambda: history.first == history.last)
    with streaming(tmp_path) as api:
        api.read(order(3))
        client = Client(api, last=seen)
        assert client.take(1) == ["3"]
        assert client.last == seen.replace("-2", "-3")
        client.close()
        # Made anew it has another history, though it has the same numbers.
        assert api.ask("DELETE", "/v1/gateways/billing").status == 204
        assert api.ask("PUT", "/v1/gateways/billing", {}).status == 201
        api.read(order(4), order(5), order(6), order(7))
        client = Client(api, last=seen)
        assert client.take(5) == ["reset", "4", "5", "6", "7"]
        client.close()


def test_a_reader_that_falls_behind_reads_on_from_the_store_and_misses_nothing(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_OF_A_TAIL", 4_000)
    monkeypatch.setattr(streams, "MOST_OF_A_PAGE", 10_000)
    monkeypatch.setattr(streams, "MOST_AT_ONCE", 3_000)
    monkeypatch.setattr(streams, "MOST_OF_PAGES", 60_000)
    monkeypatch.setattr(streams, "PAGE", 64)
    monkeypatch.setattr(streams, "MOST_POSTED", 20_000)
    with streaming(tmp_path) as api:
        slow, quick = Client(api, size=4096), Client(api)
        count = 300
        for part in range(0, count, 100):
            api.read(*(order(number, note="x" * 3000) for number in range(part, part + 100)))
        expected = [str(number) for number in range(count)]
        assert quick.take(count) == expected
        assert slow.take(count) == expected
        assert api.service.api is not None
        hub = api.service.api.streams
        assert hub._page_bytes <= 60_000
        assert hub._posted == hub._consumed
        # Each page was read once for both, or nearly.
        late = [Client(api) for _ in range(5)]
        assert [client.take(count) for client in late] == [expected] * 5
        for client in (slow, quick, *late):
            client.close()
        until(lambda: not len(hub) and not hub._tails)


def test_a_reader_that_takes_nothing_is_cut_off_and_resumes(tmp_path: Path, backend: str) -> None:
    with streaming(tmp_path, api={"limits": {"idle_time": "300ms"}}) as api:
        client = Client(api, size=4096)
        for _ in range(4):
            api.read(*(order(number, note="x" * 20_000) for number in range(50)))
        until(lambda: api.door.refused["unread"] == 1)
        until(lambda: not len(api.service.api.streams))  # type: ignore[union-attr]
        while client.read(1):
            pass
        assert client.is_cut
        again = Client(api, last=client.last)
        again.take(200 - len(client.events))
        assert client.keys + again.keys == [str(number) for number in range(50)] * 4
        again.close()


def test_a_stream_without_news_has_heartbeats(api: Api) -> None:
    client = Client(api)
    while client.heartbeats < 3:
        assert client.read(5)
    assert client.events == []
    client.close()


def test_streams_end_with_their_token_gateway_and_service(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "TICK", 0.05)

    def ended(client: Client) -> bool:
        while client.read():
            pass
        return client.is_over and not client.is_cut

    with streaming(tmp_path) as api:
        consumer = api.make_token("acme", "consume")
        mine, other = Client(api), Client(api, consumer)
        for client in (mine, other):
            assert client.read()
        assert tokens.revoke(tmp_path / "tokens.json", consumer.split("_")[1])
        assert ended(other)
        assert Client(api, consumer).take(1) == []
        assert api.ask("PUT", "/v1/gateways/billing", {"enabled": False}).status == 200
        assert ended(mine)
        assert api.ask("GET", PATH).kind == "no-stream"
        api.read(order(1))
        assert api.ask("PUT", "/v1/gateways/billing", {}).status == 200
        mine = Client(api)
        assert mine.take(1) == ["1"]
        assert api.ask("DELETE", "/v1/gateways/billing").status == 204
        assert ended(mine)
        assert api.ask("PUT", "/v1/gateways/billing", {}).status == 201
        last = Client(api)
        assert last.read()
        assert api.service.api is not None
        hub = api.service.api.streams
    assert ended(last)
    assert hub.ended == {"revoked": 1, "off": 1, "deleted": 1, "stopped": 1}


def test_who_may_stream_what(api: Api) -> None:
    other = api.make_token("other", "read", "write", "consume")
    assert api.ask("GET", PATH, token=other).kind == "unknown"
    assert api.ask("GET", PATH + "?tenant=acme", token=other).kind == "not-allowed"
    assert api.ask("GET", PATH, token=api.make_token("acme", "read", "write")).kind == "not-allowed"
    assert api.ask("GET", "/v1/gateways/nosuch/matches").kind == "unknown"
    assert api.ask("GET", PATH + "?from=yesterday").kind == "bad-request"
    assert api.ask("GET", PATH, headers={"Accept": "application/json"}).kind == "not-acceptable"
    assert api.ask("HEAD", PATH).status == 200
    assert api.ask("PUT", "/v1/gateways/hooks", {"url": "https://example.com/"}).status == 201
    assert api.ask("GET", "/v1/gateways/hooks/matches").kind == "no-stream"
    assert api.ask("PUT", "/v1/gateways/billing", {"url": "https://example.com/"}).kind == "gateway"
    assert api.ask("PUT", "/v1/gateways/hooks", {}).kind == "gateway"
    api.read(order(1))
    admin = Client(api, api.make_token(None, "admin"), path=PATH + "?tenant=acme")
    assert admin.take(1) == ["1"]
    admin.close()


def test_streams_are_bounded_by_tenant_and_in_all_and_keep_nobody_from_asking(tmp_path: Path, backend: str) -> None:
    sections = {"limits": {"streams": 5, "requests": 1, "requests_of_a_token": 1}, "quotas": {"streams": 3}}
    with streaming(tmp_path, api=sections) as api:
        other = api.make_token("other", "read", "write", "consume")
        assert api.ask("PUT", "/v1/gateways/billing", {}, token=other).status == 201
        clients = []
        for token in (api.token,) * 3:
            clients.append(Client(api, token))
            assert clients[-1].read()
        assert api.ask("GET", PATH).kind == "too-many"
        for token in (other,) * 2:
            clients.append(Client(api, token))
            assert clients[-1].read()
        assert api.ask("GET", PATH, token=other).kind == "busy"
        assert api.ask("GET", "/v1/gateways").status == 200
        metrics = api.ask("GET", "/metrics", token=api.make_token(None, "admin")).body
        assert b"streamer_service_streams 5.0" in metrics
        assert b'streamer_service_gateways{state="streams"} 2.0' in metrics
        for client in clients:
            client.close()
        until(lambda: not len(api.service.api.streams))  # type: ignore[union-attr]
        again = Client(api)
        assert again.read()
        again.close()


def test_a_tenants_room_is_shared_by_histories_and_webhooks(tmp_path: Path, backend: str) -> None:
    with streaming(tmp_path, api={"quotas": {"spool": "20KB"}}) as api:
        assert api.ask("PUT", "/v1/gateways/hooks", {"url": "https://example.com/", "enabled": False}).status == 201
        assert api.ask("PUT", "/v1/subscriptions/hooks", {**BIG, "gateway_id": "hooks"}).status == 201
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(b"".join(order(number, note="x" * 100) + b"\n" for number in range(25)))
        until(lambda: api.counts()["matches_delivered"] == 25)
        owner = api.service.gateways._owners["acme"]
        until(lambda: owner.bytes <= 20_480)
        hooks, billing = (api.ask("GET", f"/v1/gateways/{name}").json for name in ("hooks", "billing"))
        assert hooks["pending"]["messages"] == 25
        assert billing["history"]["messages"] < 25
        assert owner.bytes == hooks["pending"]["bytes"] + billing["history"]["bytes"]
        told = api.counts()
        assert (told["matches_delivered"], told["matches_pending"], told["matches_dead"]) == (25, 25, 0)


def test_a_reload_of_the_api_ends_streams_which_resume_under_its_quotas(api: Api) -> None:
    api.read(order(1))
    client = Client(api)
    assert client.take(1) == ["1"]
    api.config["api"] = {**api.config["api"], "quotas": {"streams": 1, "spool": "1KB", "gateways": 1}}
    assert api.service.reload().errors == ()
    while client.read():
        pass
    assert client.is_over
    again = Client(api, last=client.last)
    api.read(order(2))
    assert again.take(1) == ["2"]
    assert api.ask("GET", PATH).kind == "too-many"
    assert api.ask("PUT", "/v1/gateways/second", {}).kind == "quota"
    api.read(*(order(number) for number in range(3, 10)))
    until(lambda: api.ask("GET", "/v1/gateways/billing").json["history"]["bytes"] <= 1024)


@pytest.mark.parametrize("point", ["pipeline.matched", "store.spooled", "store.committed"])
def test_a_stream_misses_nothing_where_the_service_dies_at_the_commit(tmp_path: Path, backend: str, point: str) -> None:
    seen: list[str] = []
    last = None
    for turn in range(3):
        try:
            with streaming(tmp_path) as api:
                client = Client(api, last=last)
                assert client.read()
                events = [order(10 * turn + number) for number in range(10)]
                api.read(*events[: 3 * turn])
                if turn < 2:
                    faults.arm(point, fail)
                with open(tmp_path / "in.jsonl", "ab") as file:
                    file.write(b"\n".join(events[3 * turn :]) + b"\n")
                if turn == 2:
                    client.take(30 - len(seen))
                while turn < 2 and client.read():
                    pass
                seen += client.keys
                last = client.last if client.events else last
                client.close()
        except (OSError, ServiceError):
            assert turn < 2
        finally:
            faults.disarm()
    assert list(dict.fromkeys(seen)) == [str(number) for number in range(30)]


def fail() -> None:
    raise OSError("fault")
