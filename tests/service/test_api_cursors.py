"""A cursor leads on in the list that gave it, and in no other; a number in a path is spelled in one way."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.api import BIG, Api, order, running

pytestmark = pytest.mark.later_on_the_reference


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    """Several of everything that is listed."""
    with running(tmp_path) as api:
        for number in range(3):
            api.ask("PUT", f"/v1/subscriptions/s{number}", BIG | {"filters": [{"field": "amount", "op": "!=", "value": 250}]})
            api.ask("PUT", "/v1/subscriptions/s0", BIG | {"labels": {"at": number}})
            api.ask("PUT", f"/v1/gateways/g{number}", {})
        api.read(order(1), order(2), order(3), b"{", b"[", b'"')
        yield api


#: Each list, what may be asked of it besides, and its body.
LISTS: dict[str, tuple[str, Any]] = {
    "/v1/subscriptions": ("gateway=billing", None),
    "/v1/subscriptions/s0/history": ("", None),
    "/v1/gateways": ("", None),
    "/v1/near-misses": ("", json.loads(order(1))),
    "/v1/filters/unguarded": ("collection=orders", None),
    "/v1/events": ("collection=orders", None),
    "/v1/dead-letters": ("code=malformed_json", None),
}
#: How many are looked at, where a list has no end otherwise.
SIZE = {"/v1/near-misses": "examine=1"}


def page(api: Api, path: str, query: str, token: str | None = None) -> Any:
    body = LISTS[path][1]
    size = SIZE.get(path, "limit=1")
    return api.ask("GET" if body is None else "POST", f"{path}?{size}&{query}".rstrip("&"), body, token=token)


@pytest.mark.parametrize("path", LISTS)
def test_a_cursor_is_of_its_list_and_search(api: Api, path: str) -> None:
    admin = api.make_token(None, "admin", "read", "consume")
    more, body = LISTS[path]
    first = page(api, path, "tenant=acme" if "dead" not in path else "", admin)
    assert first.status == 200, first.body
    cursor = first.json["next"]
    assert cursor is not None
    who = "tenant=acme&" if "dead" not in path else ""
    on = page(api, path, f"{who}cursor={cursor}", admin)
    assert on.status == 200
    key = "near_misses" if body else "items"
    assert on.json[key] != first.json[key]
    others = [(other, "" if "dead" in other else "tenant=acme&") for other in LISTS if other != path]
    if more:
        others.append((path, f"{who}{more}&"))
    if who:
        others.append((path, "tenant=other&"))
    for other, query in others:
        refused = page(api, other, f"{query}cursor={cursor}", admin)
        assert (refused.status, refused.kind) == (400, "bad-request"), other
        assert "it is of another list or search" in refused.json["detail"]
    # How many are told at once is no part of the search.
    assert api.ask("GET" if body is None else "POST", f"{path}?{who}limit=2&cursor={cursor}", body, token=admin).status == 200


def test_a_cursor_is_of_what_was_asked_about(api: Api) -> None:
    cursor = page(api, "/v1/near-misses", "").json["next"]
    other = api.ask("POST", f"/v1/near-misses?cursor={cursor}", json.loads(order(7)))
    assert (other.kind, "another list or search" in other.json["detail"]) == ("bad-request", True)
    api.ask("PUT", "/v1/subscriptions/s1", BIG)
    cursor = page(api, "/v1/subscriptions/s0/history", "").json["next"]
    assert api.ask("GET", f"/v1/subscriptions/s1/history?cursor={cursor}").kind == "bad-request"


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_a_cursor_that_is_none_says_what_was_expected(api: Api) -> None:
    tag = json.loads(
        base64.urlsafe_b64decode(page(api, "/v1/dead-letters", "", api.make_token(None, "admin")).json["next"] + "==")
    )[1]
    for path in LISTS:
        for cursor in (
            "x",
            encoded([1, "s0"]),
            encoded([2, 1]),
            encoded([2, "a"]),
            encoded([2, tag, 5]),
            encoded({"a": 1}),
        ):
            refused = page(api, path, f"cursor={cursor}", api.make_token(None, "admin", "read", "consume"))
            assert (refused.status, refused.json["detail"][:8]) == (400, "cursor: "), (path, cursor)


@pytest.mark.parametrize("path", ["/v1/events/{}", "/v1/dead-letters/{}"])
def test_a_number_in_a_path_is_spelled_in_one_way(api: Api, path: str) -> None:
    admin = api.make_token(None, "admin", "consume")
    items = api.ask("GET", path.removesuffix("/{}"), token=admin).json["items"]
    number = items[0].get("number", items[0].get("id"))
    assert api.ask("GET", path.format(number), token=admin).status == 200
    for spelled in (
        f"0{number}",
        f"+{number}",
        f"%20{number}",
        f"{number}%0A",
        f"{number}.0",
        f"{number}e0",
        "%D9%A1",
        "-1",
        "0",
        "00",
    ):
        reply = api.ask("GET", path.format(spelled), token=admin)
        assert (reply.status, reply.kind) == (404, "unknown"), spelled
