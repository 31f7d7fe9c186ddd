"""What matches an event, and why: each condition with the value that it saw; and what fails by one condition alone."""

from __future__ import annotations

import json
from typing import Any, Final

from streamer.service.console.client import Refused
from streamer.service.console.text import pretty
from streamer.service.console.visit import Shown, View, Visit

#: An event to begin with: a change as docs/api.md has it.
_EXAMPLE: Final = """\
{"collection": "orders", "type": "insert", "data": {"id": 1, "amount": 250}}"""
#: Pages of the last events that are looked through for one.
_PAGES: Final = 5
#: So many matches are explained, and near misses shown.
_MOST: Final = 10


async def show(visit: Visit) -> Shown:
    """Show the form; an id in the address is what one asks about, a number which of the last events is explained."""
    asked = {"event": _EXAMPLE, "id": visit.query.get("id", ""), "draft": ""}
    if not (number := visit.query.get("number", "")):
        return _page(asked, last=await _last(visit))
    seen = await _seen(visit, number)
    if seen is None:
        return _page(asked, wrong=[{"place": "event", "reason": "it is not among the last events any more"}])
    try:
        return await _all(visit, {**asked, "event": pretty(seen["event"])}, seen["event"], seen=seen)
    except Refused as refused:
        if refused.kind == "no-token":
            raise
        return _page({**asked, "event": pretty(seen["event"])}, seen=seen, wrong=refused.errors or [{"reason": refused.detail}])


async def _last(visit: Visit) -> Any:
    """Return some of the last events, to choose from; none for who may not read them."""
    return (await visit.api.get("/v1/events", limit=_MOST))["items"] if visit.who.may("consume") else []


async def _seen(visit: Visit, number: str) -> Any:
    """Return one of the last events by its number; None where it is kept no more, or is no JSON object."""
    cursor = None
    for _ in range(_PAGES if visit.who.may("consume") else 0):
        told = await visit.api.get("/v1/events", limit=200, cursor=cursor, collection=visit.query.get("collection"))
        for each in told["items"]:
            if str(each["number"]) == number:
                return each if isinstance(each.get("event"), dict) else None
        if (cursor := told["next"]) is None:
            break
    return None


async def act(visit: Visit) -> Shown:
    """Try an event against all that is held, one subscription, or a draft."""
    asked = {name: visit.form.get(name, "").strip() for name in ("event", "id", "draft")}
    try:
        event = json.loads(asked["event"])
        if not isinstance(event, dict):
            raise ValueError("expected an object")
    except (RecursionError, ValueError) as error:
        return _page(asked, wrong=[{"place": "event", "reason": f"no JSON object: {error}"}])
    try:
        if asked["draft"]:
            return await _draft(visit, asked, event)
        if asked["id"]:
            return _page(asked, one=await _explained(visit, event, id=asked["id"]))
        return await _all(visit, asked, event)
    except Refused as refused:
        if refused.kind == "no-token":
            raise
        return _page(asked, wrong=refused.errors or [{"reason": refused.detail or refused.title}])


async def _all(visit: Visit, asked: dict[str, str], event: dict[str, Any], **values: Any) -> Shown:
    told = (await visit.api.send("POST", "/v1/explain", {"event": event}, query={"limit": _MOST})).json
    near = (await visit.api.send("POST", "/v1/near-misses", event, query={"limit": _MOST})).json
    return _page(asked, told=told, near=near, **values)


async def _draft(visit: Visit, asked: dict[str, str], event: dict[str, Any]) -> Shown:
    tried = (await visit.api.send("POST", "/v1/subscriptions:try", {"text": asked["draft"]})).json
    if not tried["good"]:
        return _page(asked, wrong=[{**each, "source": "draft"} for each in tried["errors"]])
    return _page(asked, one=await _explained(visit, event, subscription=json.loads(asked["draft"])), tried=tried)


async def _explained(visit: Visit, event: dict[str, Any], **about: Any) -> Any:
    return (await visit.api.send("POST", "/v1/explain", {"event": event, **about})).json


def _page(asked: dict[str, str], **values: Any) -> Shown:
    told: dict[str, Any] = {"wrong": [], "told": None, "near": None, "one": None, "tried": None, "seen": None, "last": []}
    return Shown("trying.html", {"asked": asked, **told, **values}, 422 if values.get("wrong") else 200)


TRYING: Final = View(path="try", title="Try", scope="read", show=show, act=act)
