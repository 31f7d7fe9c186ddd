"""What matches and why, what nearly does, what a draft would do, and where a subscription is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer.service.api import explain, handlers
from tests.service.api import BIG, LINES, Api, order, running

ONE = "/v1/subscriptions/big"


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


def filtered(op: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"collection": "orders", "gateway_id": "g", "filters": [{"field": "amount", "op": op, "value": value}], **more}


def ask(api: Api, path: str, body: Any, token: str | None = None) -> Any:
    reply = api.ask("POST", path, body, token=token)
    assert reply.status == 200, reply.body
    return reply.json


def test_all_that_an_event_matches_is_explained(api: Api) -> None:
    """With transition and each condition; who runs the service is told of everybody's, a tenant of its own."""
    admin = api.make_token(None, "admin")
    api.ask("PUT", ONE, BIG)
    api.ask("PUT", "/v1/subscriptions/small", filtered("<", 10))
    api.ask("PUT", f"{ONE}?tenant=*", BIG | {"tenant": "*"}, token=admin)
    event = json.loads(order())
    told = ask(api, "/v1/explain", {"event": event})
    (one,) = told["matches"]
    assert (one["tenant"], one["id"], one["transition"], one["certain"]) == ("acme", "big", "enter", True)
    assert {each["verdict"] for each in one["conditions"]} == {"true"}
    assert (told["more"], told["ignored"]) == (False, None)
    everybody = ask(api, "/v1/explain", {"event": event}, admin)
    assert sorted(each["tenant"] for each in everybody["matches"]) == ["*", "acme"]
    assert ask(api, "/v1/explain?limit=1", {"event": event}, admin)["more"] is True
    assert api.ask("POST", "/v1/explain", {"event": event, "id": "big", "subscription": BIG}).kind == "bad-request"


@pytest.mark.parametrize("number", ["1e400", "9" * 10_000, "9007199254740993.0"], ids=lambda each: each[:20])
def test_an_event_and_a_draft_are_explained_as_they_were_sent(api: Api, number: str) -> None:
    """A number of any length is one, as `match` has it; NaN is none."""
    api.ask("PUT", ONE, BIG)
    event = order().replace(b"250", b"250, " + f'"n": {number}'.encode())
    assert [each["id"] for each in ask(api, "/v1/match", event)["matches"]] == ["big"]
    assert [each["id"] for each in ask(api, "/v1/explain", b'{"event":' + event + b"}")["matches"]] == ["big"]
    draft = b'{"pattern": {"data": {"amount": [{"anything-but": [%b]}]}}}' % number.encode()
    for about in (b'"id": "big"', b' "subscription" : {}', b'"subscription":' + draft):
        assert ask(api, "/v1/explain", b"{" + about + b' ,\n "event" : ' + event + b" }")["matched"] is True
    for name, given in (("text", json.dumps(draft.decode()).encode()), ("subscription", draft)):
        assert ask(api, "/v1/subscriptions:try", b'{"id": "big", "%b": %b}' % (name.encode(), given))["good"] is True


def test_what_is_wrong_in_a_question_is_told_of_what_was_sent(api: Api) -> None:
    for event in (b'{"data": {"a" :  NaN}}', b'{ "data": {"\xc3\xa4": -Infinity}}', b'{"data": {"a": "\\ud800"}}'):
        asked = [("/v1/explain", b'{ "event":  ' + event + b"}"), ("/v1/match", event)]
        explained, matched = (api.ask("POST", path, body).json["errors"] for path, body in asked)
        assert explained == matched
        assert "offset" in matched[0]
    for number in (b"1e400", b"9" * 10_000):
        draft = b'{"filters": [{"field": "a", "op": ">", "value": %b}]}' % number
        (error,) = api.ask("POST", "/v1/explain", b'{"event": {}, "subscription": ' + draft + b"}").json["errors"]
        for name, given in ((b"text", json.dumps(draft.decode()).encode()), (b"subscription", draft)):
            (tried,) = ask(api, "/v1/subscriptions:try", b'{"%b": %b}' % (name, given))["errors"]
            assert (tried["place"], tried["reason"]) == (error["place"], error["reason"])
        assert error["reason"].startswith("expected a number within float64, not ")
        assert error["place"] == "filters[0].value"


def test_an_administrators_event_is_its_own_tenants_unless_the_request_names_one(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, matching={"default_tenant": "acme"}) as api:
        admin = api.make_token(None, "admin")
        api.ask("PUT", ONE, BIG)
        for about in ({"id": "big"}, {"subscription": BIG}):
            for query, tenant, is_matched in (("", "globex", False), ("", "acme", True), ("?tenant=acme", "globex", True)):
                event = json.loads(order(tenant=tenant))
                assert ask(api, f"/v1/explain{query}", {"event": event, **about}, admin)["matched"] is is_matched
                assert bool(ask(api, f"/v1/match{query}", event, admin)["matches"]) is is_matched


def test_near_misses_fail_by_one_condition_and_the_nearest_comes_first(api: Api) -> None:
    admin = api.make_token(None, "admin")
    for name, limit in (("near", 251), ("far", 100_000)):
        api.ask("PUT", f"/v1/subscriptions/{name}", filtered(">", limit))
    api.ask("PUT", "/v1/subscriptions/two", filtered(">", 300, cel="data.nosuch == 1"))
    api.ask("PUT", "/v1/subscriptions/all?tenant=*", filtered(">", 250, tenant="*"), token=admin)
    told = ask(api, "/v1/near-misses", order())
    assert [each["id"] for each in told["near_misses"]] == ["near", "far"]
    assert told["near_misses"][0]["condition"]["seen"] == "250"
    assert b"\\u0000" not in json.dumps(told).encode()
    assert told["complete"] is True
    assert [each["tenant"] for each in ask(api, "/v1/near-misses?limit=1", order(), admin)["near_misses"]] == ["*"]
    seen, at = [], ""
    for _ in range(3):
        page = ask(api, f"/v1/near-misses?examine=1{at}", order())
        assert page["examined"] == 1
        seen += [each["id"] for each in page["near_misses"]]
        if page["next"] is None:
            break
        at = f"&cursor={page['next']}"
    assert sorted(seen) == ["far", "near"], "page by page all are looked at"


def test_near_misses_are_of_the_events_collection_and_pass_over_so_many_others(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "_PASSED", 3)
    for number in range(4):
        api.ask("PUT", f"/v1/subscriptions/a{number}", filtered(">", 251, collection="others"))
    api.ask("PUT", "/v1/subscriptions/b", filtered(">", 251))
    first = ask(api, "/v1/near-misses", order())
    assert (first["near_misses"], first["examined"], first["complete"]) == ([], 0, False)
    second = ask(api, f"/v1/near-misses?cursor={first['next']}", order())
    assert ([each["id"] for each in second["near_misses"]], second["complete"]) == (["b"], True)
    assert ask(api, "/v1/near-misses", b"null")["complete"] is True


def test_a_draft_says_where_it_is_wrong(api: Api) -> None:
    told = ask(api, "/v1/subscriptions:try", {"text": '{"gateway_id": "g",\n  "collection": }'})
    assert (told["good"], told["errors"]) == (False, [{"reason": "no JSON: Expecting value", "line": 2, "column": 17}])
    text = '{"gateway_id": "g",\n "filters": [\n  {"field": "a", "op": "=", "value": 1}]}'
    (error,) = ask(api, "/v1/subscriptions:try", {"text": text})["errors"]
    assert (error["place"], error["line"], error["column"]) == ("filters[0].op", 3, 24)
    (error,) = ask(api, "/v1/subscriptions:try", {"subscription": {"cel": "data.a >\n  )"}})["errors"]
    assert (error["place"], error["cel_line"]) == ("cel", 2)
    linted = ask(api, "/v1/subscriptions:try", {"subscription": {"cel": "1 > 2"}})
    assert linted["good"] is True
    assert [each["code"] for each in linted["findings"]] == ["never_matches"]
    for bad in ({}, {"text": 1}, {"text": "", "subscription": {}}, {"nosuch": 1}):
        assert api.ask("POST", "/v1/subscriptions:try", bad).kind == "bad-request"


def test_a_draft_is_tried_on_the_last_events_beside_what_is_held(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """By who may read the events; who may only read subscriptions is not told what events are like."""
    monkeypatch.setattr(explain, "_PATIENCE", 60.0)
    reader = api.make_token("acme", "read", "consume")
    api.ask("PUT", ONE, BIG)
    api.read(*(order(number, amount=number * 10) for number in range(30)), *(order(99, tenant="other") for _ in range(5)))
    draft = {"subscription": filtered("<", 150) | {"id": "big"}}
    assert "tried" not in ask(api, "/v1/subscriptions:try", draft)
    told = ask(api, "/v1/subscriptions:try", draft, reader)
    tried = told["tried"]
    assert told["plan"]["cost"] in ("keyed", "indexed", "unkeyed")
    assert tried["is_held"] is True
    assert (tried["events"], tried["collection"]) == (30, "orders")
    assert [tried[name] for name in ("matched", "matched_before", "new", "no_longer")] == [15, 19, 11, 15]
    listed = api.ask("GET", "/v1/events", token=reader).json["items"]
    amounts = {each["number"]: each["event"]["data"]["amount"] for each in listed}
    assert max(amounts[number] for number in tried["examples"]["new"]) <= 100
    assert ask(api, "/v1/subscriptions:try", {"subscription": BIG | {"id": "fresh"}}, reader)["tried"]["is_held"] is False
    assert api.ask("GET", "/v1/subscriptions/fresh").kind == "unknown", "nothing is written"


def test_a_draft_without_an_id_is_read_as_it_was_written(api: Api) -> None:
    filters = '"filters": [{"field": "a", "op": ">", "value": 1e400}]'
    for text in (f"{{{filters}}}", f'{{"id": "draft", {filters}}}'):
        (error,) = ask(api, "/v1/subscriptions:try", {"text": text})["errors"]
        assert error["reason"] == "expected a number within float64, not 1e400"
    assert ask(api, "/v1/subscriptions:try", {"text": " {} "}) == ask(api, "/v1/subscriptions:try", {"text": '{"id": "draft"}'})


def test_a_draft_is_tried_for_as_long_as_one_waits(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "_PATIENCE", -1.0)
    reader = api.make_token("acme", "read", "consume")
    api.read(*(order(number) for number in range(60)))
    tried = ask(api, "/v1/subscriptions:try", {"subscription": BIG}, reader)["tried"]
    assert (tried["events"], tried["complete"], tried["matched"]) == (50, False, 50)


def test_a_plan_says_what_finds_a_subscription_paused_or_not(api: Api) -> None:
    api.ask("PUT", ONE, filtered("==", 7))
    plan = api.ask("GET", f"{ONE}/plan").json
    assert (plan["tenant"], plan["id"], plan["subscription_id"], plan["cost"]) == ("acme", "big", "big", "keyed")
    api.ask("POST", f"{ONE}:pause")
    assert api.ask("GET", f"{ONE}/plan").json["cost"] == "keyed"
    assert api.ask("GET", "/v1/subscriptions/nosuch/plan").kind == "unknown"


def found(api: Api, query: str) -> list[str]:
    reply = api.ask("GET", f"/v1/subscriptions?{query}")
    assert reply.status == 200, reply.body
    return [each["id"] for each in reply.json["items"]]


def test_subscriptions_are_searched(api: Api) -> None:
    api.ask("PUT", "/v1/subscriptions/team", filtered(">", 1, labels={"team": "payments"}))
    api.ask(
        "PUT", "/v1/subscriptions/team%2F1", filtered(">", 1, labels={"team": "fraud", "tier": 1, "live": True, "in": ["eu"]})
    )
    api.ask("PUT", "/v1/subscriptions/teal", {"collection": "orders", "cel": "data.note.contains('Straße')"})
    assert found(api, "prefix=team") == ["team", "team/1"]
    assert found(api, "prefix=te&limit=2") == ["teal", "team"]
    assert found(api, "prefix=tf") == []
    assert found(api, "label=team") == ["team", "team/1"]
    assert found(api, "label=team=fraud") == ["team/1"]
    assert found(api, "label=tier=1") == ["team/1"]
    assert found(api, "label=live=true") == ["team/1"]
    assert found(api, "label=live=True") == []
    assert found(api, "label=in") == ["team/1"]
    assert found(api, "label=in=eu") == []
    api.ask("PUT", "/v1/subscriptions/tee", '{"cel": "data.note == \'Straße\'"}'.encode())
    assert found(api, "text=stra%C3%9Fe") == ["teal", "tee"], "escaped or not"
    assert found(api, "unindexed=false&prefix=team") == ["team", "team/1"]


def test_a_search_by_prefix_goes_on_by_cursor_and_ends_with_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows a page looks at; it says how many those were."""
    monkeypatch.setattr("streamer.service.store.subscriptions.PAGE", 3)
    monkeypatch.setattr(handlers, "_LOOKED_AT", 4)
    names = [f"{letter}{number}" for letter in "abc" for number in range(10)]
    lines = b"\n".join(json.dumps(filtered(">", 1, id=name)).encode() for name in names)
    assert api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES).status == 200
    at, seen = "", []
    for _ in range(30):
        page = api.ask("GET", f"/v1/subscriptions?prefix=b&limit=5{at}").json
        seen += [each["id"] for each in page["items"]]
        assert page["looked_at"] <= 4
        if page["next"] is None:
            break
        at = f"&cursor={page['next']}"
    assert seen == names[10:20]
