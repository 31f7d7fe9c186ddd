"""Events that came lately, and as they come: who sees them, and what it costs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from streamer.core.options import Options
from streamer.service.observed import events as ring
from streamer.service.observed.events import Events
from tests.service.api import BIG, Api, order, running

pytestmark = pytest.mark.later_on_the_reference
ONE = "/v1/subscriptions/big"


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


def listed(api: Api, token: str, query: str = "") -> list[dict[str, Any]]:
    reply = api.ask("GET", f"/v1/events{query}", token=token)
    assert reply.status == 200, reply.body
    items: list[dict[str, Any]] = reply.json["items"]
    return items


def test_the_last_events_are_shown_with_what_they_matched(api: Api) -> None:
    acme = api.make_token("acme", "consume")
    api.ask("PUT", ONE, BIG)
    api.read(order(1), order(2, amount=1), b"{")
    small, big = listed(api, acme)
    assert (big["event"]["id"], big["matches"], big["tenant"], big["collection"]) == (1, 1, "acme", "orders")
    assert [(hit["id"], hit["gateway"]) for hit in big["matched_by"]] == [("big", "billing")]
    assert (small["event"]["id"], small["matches"], small["matched_by"]) == (2, 0, [])
    assert [each["event"]["id"] for each in listed(api, acme, "?outcome=unmatched")] == [2]
    assert [each["event"]["id"] for each in listed(api, acme, "?subscription=big&gateway=billing")] == [1]
    assert listed(api, acme, "?collection=nosuch") == []
    first = api.ask("GET", "/v1/events?limit=1", token=acme).json
    assert [each["event"]["id"] for each in listed(api, acme, f"?cursor={first['next']}")] == [1]


def test_nobody_is_shown_another_tenants_events_or_what_matches_everybodys(api: Api) -> None:
    """An event is its tenant's. What is no change is nobody's: who runs the service alone sees it."""
    admin, acme = api.make_token(None, "admin"), api.make_token("acme", "consume")
    api.ask("PUT", f"{ONE}?tenant=*", BIG | {"tenant": "*"}, token=admin)
    api.read(order(1), order(2, tenant="other"), b"null")
    assert api.ask("GET", "/v1/events").kind == "not-allowed", "to read and to write is not enough"
    assert api.ask("GET", "/v1/events?tenant=other", token=acme).kind == "not-allowed"
    (one,) = listed(api, acme)
    assert (one["event"]["id"], one["matches"], one["matched_by"]) == (1, 0, [])
    assert listed(api, acme, "?outcome=matched") == []
    assert "came" not in api.ask("GET", "/v1/events", token=acme).json
    everything = listed(api, admin)
    assert [each["tenant"] for each in everything] == [None, "other", "acme"]
    assert [each["matches"] for each in everything] == [0, 1, 1]
    assert [each["tenant"] for each in listed(api, admin, "?tenant=other")] == ["other"]


def test_who_watches_is_shown_events_as_they_come(api: Api) -> None:
    """Ten in a second at most, with how many were left out; and nothing of another tenant."""
    acme = api.make_token("acme", "consume")
    api.ask("PUT", ONE, BIG)
    connection = HTTPConnection("127.0.0.1", api.port, timeout=10)
    connection.request("GET", "/v1/live?outcome=matched", headers={"Authorization": f"Bearer {acme}"})
    reply = connection.getresponse()
    assert (reply.status, reply.getheader("content-type")) == (200, "text/event-stream")
    assert reply.readline().startswith(b"retry:")
    api.read(*(order(n) for n in range(40)), *(order(n, tenant="other") for n in range(40)), order(99, amount=1))
    shown: list[dict[str, Any]] = []
    rates: dict[str, Any] = {}
    deadline = time.monotonic() + 10
    while not rates.get("left_out") and time.monotonic() < deadline:
        line = reply.readline()
        if line.startswith(b"event: "):
            kind, told = line[7:].strip(), {}
            while (line := reply.readline()).strip():
                if line.startswith(b"data: "):
                    told = json.loads(line[6:])
            if kind == b"event":
                shown.append(told)
            else:
                rates = told
    connection.close()
    assert {each["tenant"] for each in shown} == {"acme"}
    assert (len(shown), rates) == (10, {"shown": 10, "left_out": 30})


def test_the_rings_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In events of a collection, in collections, and in bytes; where many come, few are taken."""
    events = Events(Options.checked(default_tenant="t"))
    monkeypatch.setattr(ring, "MOST", 5)
    monkeypatch.setattr(ring, "MOST_RINGS", 3)
    for number in range(40):
        events.add("s", "p", number, b'{"id":%d,"collection":"c%d","data":{}}' % (number, number // 10), None)
    assert [seen.collection for seen in events.last("t", None, 100)].count("c3") == 5
    assert len({seen.collection for seen in events.last(None, None, 100)}) == 3
    monkeypatch.setattr(ring, "MOST_BYTES", 3000)
    events.add("s", "p", 99, b'{"id":99,"collection":"c0","data":{}}', None)
    assert len(events.last(None, None, 100)) == 2
    assert sum(len(events.wanted(100)) for _ in range(1000)) <= ring.BURST + ring.RATE
    events.add("s", "p", 100, b'{"id":100,"data":{"x":"%b"}}' % (b"x" * ring.LONGEST), None)
    assert events.taken == 41


def test_an_event_that_cannot_be_kept_ends_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    events = Events(Options.checked(default_tenant="t"))
    monkeypatch.setattr(Events, "_put", lambda *_: 1 / 0)
    events.add("s", "p", 1, b'{"id":1}', None)
    assert "ZeroDivisionError" in caplog.text
