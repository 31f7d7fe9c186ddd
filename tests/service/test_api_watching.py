"""Events that came lately, and as they come: who sees them, and what it costs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from streamer.core.options import Options
from streamer.service.connectors.protocols import Outcome
from streamer.service.observed import events as ring
from streamer.service.observed.attempts import Attempts
from streamer.service.observed.events import Events
from tests.service.api import BIG, Api, order, running, until
from tests.service.receiver import Receiver
from tests.service.test_gateways import rules

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


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def way_of(api: Api, token: str, number: int, query: str = "") -> Any:
    reply = api.ask("GET", f"/v1/events/{number}{query}", token=token)
    assert reply.status == 200, reply.body
    return reply.json["ways"]


def attempts_of(api: Api, token: str, number: int) -> list[str]:
    return [each["code"] for way in way_of(api, token, number) for each in way["attempts"]]


@pytest.mark.parametrize("per", ["match", "gateway"])
def test_an_event_leads_to_the_attempts_to_deliver_it(tmp_path: Path, backend: str, receiver: Receiver, per: str) -> None:
    """And to no other's; by the id of its message, which is that of the request."""
    receiver.said, receiver.answer = b"<b>no room", lambda _: 507
    with running(tmp_path, sinks={"hooks": receiver.sink(per=per)}) as api:
        admin, acme = api.make_token(None, "admin"), api.make_token("acme", "consume")
        api.ask("PUT", ONE, BIG)
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(1) + b"\n" + order(2, amount=1) + b"\n")
        until(lambda: len(listed(api, admin)) == 2)
        second, first = listed(api, admin)
        until(lambda: attempts_of(api, admin, first["number"]))
        (way,) = way_of(api, admin, first["number"])
        assert (way["id"], way["gateway"], way["sink"], way["kind"]) == ("big", "billing", "hooks", "webhook")
        assert way["message"] == receiver.messages[0]["id"]
        assert (way["attempts"][0]["code"], way["attempts"][0]["answer"]) == ("507", "<b>no room")
        assert way_of(api, admin, second["number"]) == []
        (own,) = way_of(api, acme, first["number"])
        assert (own["sink"], own["kind"], own["message"], own["attempts"]) == (None, None, None, [])
        receiver.answer = lambda _: 204
        until(lambda: "204" in attempts_of(api, admin, first["number"]))


def test_a_tenant_sees_the_attempts_of_its_own_gateway_without_what_was_answered(
    tmp_path: Path, backend: str, receiver: Receiver
) -> None:
    receiver.said, receiver.answer = b"secret", lambda _: 422
    with running(tmp_path, **rules(receiver)) as api:
        acme = api.make_token("acme", "consume")
        api.ask("PUT", ONE, BIG)
        api.ask("PUT", "/v1/gateways/billing", {"url": receiver.url})
        api.ask("PUT", "/v1/subscriptions/streamed", BIG | {"gateway_id": "streamed"})
        api.ask("PUT", "/v1/gateways/streamed", {})
        api.read(order(1))
        (one,) = listed(api, acme)
        until(lambda: attempts_of(api, acme, one["number"]))
        ways = {way["id"]: way for way in way_of(api, acme, one["number"])}
        assert (ways["big"]["kind"], ways["big"]["attempts"][0]["result"]) == ("webhook", "never")
        assert "answer" not in ways["big"]["attempts"][0]
        assert (ways["streamed"]["kind"], ways["streamed"]["attempts"]) == ("stream", [])


def test_an_event_is_shown_to_its_tenant_alone(api: Api) -> None:
    admin, acme, other = api.make_token(None, "admin"), api.make_token("acme", "consume"), api.make_token("other", "consume")
    api.ask("PUT", ONE, BIG)
    api.ask("PUT", f"{ONE}?tenant=*", BIG | {"tenant": "*"}, token=admin)
    api.read(order(1), b"null")
    none, one = listed(api, admin)
    assert [way["tenant"] for way in way_of(api, acme, one["number"])] == ["acme"]
    assert sorted((way["tenant"], way["kind"]) for way in way_of(api, admin, one["number"])) == [("*", "file"), ("acme", "file")]
    for number in (one["number"], none["number"], 99, "x", "²", "9" * 30):
        path = f"/v1/events/{quote(str(number))}"
        assert api.ask("GET", path, token=other).kind == "unknown"
        if number != one["number"]:
            assert api.ask("GET", path, token=acme).kind == "unknown"
    assert api.ask("GET", f"/v1/events/{one['number']}?tenant=other", token=admin).kind == "unknown"
    assert api.ask("GET", f"/v1/events/{one['number']}").kind == "not-allowed"


def test_the_attempts_of_one_message_are_found_among_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """By half of its id; of a large batch by those that stand first."""
    attempts = Attempts()
    ids = [f"{number:032x}" for number in range(1 << 64, (1 << 64) * 200, 1 << 64)]
    for result in ("later", "delivered"):
        attempts.add("s", ids, Outcome(result, "1", ""), 0.1)  # type: ignore[arg-type]
    attempts.add("s", ["test"], Outcome("delivered", "1", ""), 0.1)
    assert [each.outcome.result for each in attempts.of("s", ids[99], 10)] == ["delivered", "later"]
    assert attempts.of("s", ids[100], 10) == attempts.of("s", "test", 10) == attempts.of("nosuch", ids[0], 10) == []


def test_the_rings_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In events of a collection, in collections, and in bytes; where many come, few are taken."""
    events = Events(Options.checked(default_tenant="t"))
    monkeypatch.setattr(ring, "MOST", 5)
    monkeypatch.setattr(ring, "MOST_RINGS", 3)
    for number in range(40):
        events.add("s", "p", (number, 0), b'{"id":%d,"collection":"c%d","data":{}}' % (number, number // 10), None)
    assert [seen.collection for seen in events.last("t", None, 100)].count("c3") == 5
    assert len({seen.collection for seen in events.last(None, None, 100)}) == 3
    monkeypatch.setattr(ring, "MOST_BYTES", 3000)
    events.add("s", "p", (99, 0), b'{"id":99,"collection":"c0","data":{}}', None)
    assert len(events.last(None, None, 100)) == 2
    assert sum(len(events.wanted(100)) for _ in range(1000)) <= ring.BURST + ring.RATE
    events.add("s", "p", (100, 0), b'{"id":100,"data":{"x":"%b"}}' % (b"x" * ring.LONGEST), None)
    assert events.recorded == 41


def test_an_event_that_cannot_be_kept_ends_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    events = Events(Options.checked(default_tenant="t"))
    monkeypatch.setattr(Events, "_put", lambda *_: 1 / 0)
    events.add("s", "p", (1, 0), b'{"id":1}', None)
    assert "ZeroDivisionError" in caplog.text
