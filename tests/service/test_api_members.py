"""A request is refused for any member that it should not have; and what is everybody's is matched for an administrator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer.service.api.routes import ROUTES
from tests.service.api import BIG, LINES, Api, order, running, until


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        yield api


#: Each route with a body: what it is sent, with one member more, the place that the answer names, and what was meant.
WRONG: dict[str, tuple[str, str, Any, str, str]] = {
    "import_subscriptions": ("POST", "/v1/subscriptions:import", {"id": "a", "colection": "c"}, "colection", "'collection'"),
    "try_subscription": ("POST", "/v1/subscriptions:try", {"txt": "{}"}, "txt", "'text'"),
    "near_misses": ("POST", "/v1/near-misses", {"event": json.loads(order()), "id": "big"}, "event", "/v1/explain"),
    "put_subscription": ("PUT", "/v1/subscriptions/x", {**BIG, "gateway": "b"}, "gateway", "'gateway_id'"),
    "put_gateway": ("PUT", "/v1/gateways/x", {"url": None, "bacth": 1}, "bacth", "'batch'"),
    "decode": ("POST", "/v1/decode", {"event": json.loads(order())}, "event", "/v1/explain"),
    "match": ("POST", "/v1/match", {"event": json.loads(order())}, "event", "/v1/explain"),
    "explain": ("POST", "/v1/explain", {"event": json.loads(order()), "subscripton": {}}, "subscripton", "'subscription'"),
    "lint": ("POST", "/v1/lint", {"id": "a", "filter": []}, "filter", "'filters'"),
    "begin_replay": ("POST", "/v1/replays", {"sources": "orders"}, "sources", "'source'"),
    "check_config": ("POST", "/v1/config:check", {"sorces": {}}, "sorces", "'sources'"),
}


def test_each_route_with_a_body_is_tried() -> None:
    assert {route.handler for route in ROUTES if route.body is not None} == set(WRONG)


@pytest.mark.parametrize("handler", WRONG)
def test_an_unknown_member_is_named_with_what_was_meant(api: Api, handler: str) -> None:
    method, path, body, place, meant = WRONG[handler]
    kinds = {"import_subscriptions": LINES, "check_config": {"Content-Type": "application/yaml"}}
    reply = api.ask(method, path, json.dumps(body).encode(), token=api.make_token(None, "admin"), headers=kinds.get(handler, {}))
    if handler not in ("lint", "check_config"):
        assert reply.status in (400, 422), reply.body
        assert reply.kind in ("bad-request", "subscription", "gateway")
    (error,) = reply.json["errors"]
    assert error["place"] == place
    assert meant in error["reason"], error


def test_an_unknown_parameter_is_named_with_what_was_meant(api: Api) -> None:
    reply = api.ask("POST", "/v1/match?tennant=acme", json.loads(order()))
    assert (reply.status, reply.kind) == (400, "bad-request")
    assert "tennant: unknown parameter; did you mean 'tenant'?" in reply.json["detail"]
    assert "there are: " in api.ask("GET", "/v1/subscriptions?zzz=1").json["detail"]
    assert len(api.ask("GET", f"/v1/subscriptions?{'z' * 2000}=1").body) < 1000


def test_a_name_of_a_member_is_told_in_bounds(api: Api) -> None:
    reply = api.ask("POST", "/v1/explain", {"event": {}, "<\0" + "x" * 100_000: 1})
    assert reply.status == 400
    assert len(reply.body) < 1000


@pytest.mark.parametrize(
    "event",
    [{}, {"event": 1}, {"amount": 5}, {"event": {}, "collection": "orders"}, {"data": {"event": {}}}, {"event": {}, "a": 1}],
)
def test_what_may_be_an_event_is_one(api: Api, event: Any) -> None:
    """Patterns see all members of an event, so it may have any."""
    for path in ("/v1/match", "/v1/near-misses", "/v1/decode"):
        assert api.ask("POST", path, event).status == 200, path
    assert api.ask("POST", "/v1/explain", {"event": event}).status == 200


def test_a_layout_may_have_an_event_in_that_member(tmp_path: Path, backend: str) -> None:
    layout = {"data": "/event/data", "collection": "/event/of"}
    with running(tmp_path, matching={"layout": layout}) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG).status == 201
        body = {"event": {"of": "orders", "data": {"amount": 250}}}
        assert [each["id"] for each in api.ask("POST", "/v1/match?tenant=acme", body).json["matches"]] == ["big"]
        assert api.ask("POST", "/v1/explain", {"event": {"event": body["event"]}}).status == 200


def test_an_administrator_matches_across_tenants(api: Api) -> None:
    """`*` is whose subscriptions may want every tenant's events; an event is that of one, which it names, or of the default."""
    admin = api.make_token(None, "admin")
    every = {"tenant": "*", "collection": "orders"}
    assert api.ask("PUT", "/v1/subscriptions/every?tenant=*", every, token=admin).status == 201

    def found(reply: Any, name: str = "matches") -> list[tuple[str, str]]:
        assert reply.status == 200, reply.body
        return sorted((each["tenant"], each["id"]) for each in reply.json[name])

    event = json.loads(order())
    for path in ("/v1/match", "/v1/match?tenant=*"):
        assert found(api.ask("POST", path, event, token=admin)) == [("*", "every"), ("acme", "big")]
    other = json.loads(order(tenant="other"))
    assert found(api.ask("POST", "/v1/match?tenant=*", other, token=admin)) == [("*", "every")]
    del event["tenant"]
    assert found(api.ask("POST", "/v1/match?tenant=*", event, token=admin)) == [("*", "every")]
    assert found(api.ask("POST", "/v1/explain?tenant=*", {"event": json.loads(order())}, token=admin)) == [
        ("*", "every"),
        ("acme", "big"),
    ]
    one = api.ask("POST", "/v1/explain?tenant=*", {"event": json.loads(order()), "id": "every"}, token=admin)
    assert (one.status, one.json["matched"]) == (200, True)
    near = api.ask("POST", "/v1/near-misses?tenant=*", json.loads(order(amount=1)), token=admin)
    assert found(near, "near_misses") == [("acme", "big")]
    assert api.ask("POST", "/v1/decode?tenant=*", event, token=admin).status == 200
    api.read(order(1), order(2, tenant="other"))
    assert len(api.ask("GET", "/v1/events?tenant=*", token=admin).json["items"]) == 2
    number = api.ask("GET", "/v1/events?tenant=*", token=admin).json["items"][0]["number"]
    assert api.ask("GET", f"/v1/events/{number}?tenant=*", token=admin).status == 200


def test_a_tenant_matches_no_other(api: Api) -> None:
    for path in ("/v1/match", "/v1/explain", "/v1/near-misses"):
        reply = api.ask("POST", f"{path}?tenant=*", json.loads(order()))
        assert (reply.status, reply.kind) == (403, "not-allowed")


@pytest.mark.parametrize("url", ["http://nosuch.invalid:8080/a", "http://localhost:8080/a"])
def test_a_test_tells_a_tenant_of_no_name_of_the_inner_network(tmp_path: Path, backend: str, url: str) -> None:
    """A name that leads to an inner address, and one that leads nowhere, have one answer, which takes as long."""
    gateways = {"allow_http": True, "ports": [8080]}
    with running(tmp_path, delivery={"gateways": gateways}) as api:
        assert api.ask("PUT", "/v1/gateways/g", {"url": url}).status == 201
        reply = api.ask("POST", "/v1/gateways/g:test")
        assert reply.status == 200, reply.body
        told = {name: value for name, value in reply.json.items() if name not in ("at", "first_message")}
        assert told == {
            "duration_ms": 0.0,
            "messages": 1,
            "result": "later",
            "code": "unreachable",
            "reason": "its name leads to no address that may be connected to",
        }
        admin = api.make_token(None, "admin")
        known = api.ask("POST", "/v1/gateways/g:test?tenant=acme", token=admin).json
        assert known["code"] in ("unresolved", "forbidden_address")
        assert api.ask("PUT", "/v1/subscriptions/s", {"gateway_id": "g"}).status == 201
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(1) + b"\n")
        attempts = until(lambda: api.ask("GET", "/v1/gateways/g/attempts").json["items"])
        assert {each["code"] for each in attempts} == {"unreachable"}
