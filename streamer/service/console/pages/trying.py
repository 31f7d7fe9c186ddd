"""Show which subscriptions match an event, and why: each condition with the value that it saw; and near misses."""

from __future__ import annotations

import json
from typing import Any, Final

from streamer.service.api.calls import JSON
from streamer.service.console.client import Refused, part
from streamer.service.console.drafts import Draft, pointed
from streamer.service.console.text import pretty
from streamer.service.console.visit import Shown, View, Visit

#: The most matches to explain, near misses to show, and events of a record to choose from.
_MOST: Final = 10


async def show(visit: Visit) -> Shown:
    """Show the form; the address may contain the id of a subscription to try, or the number of an event to explain."""
    formats = await _formats(visit)
    examples = {f"{each['format']}.{at}": one for each in formats for at, one in enumerate(each["examples"], 1)}
    chosen = visit.query.get("example", "")
    if chosen not in examples:
        chosen = next(iter(examples), "")
    asked = {
        "event": examples[chosen]["record"].strip() if chosen else "",
        "format": chosen.rpartition(".")[0],
        "example": chosen,
        "id": visit.query.get("id", ""),
        "draft": "",
    }
    if not (number := visit.query.get("number", "")):
        return _page(asked, formats, last=await _last(visit))
    seen = await _seen(visit, number)
    if seen is None:
        return _page(asked, formats, wrong=[{"place": "event", "reason": "it has left the list of recent events"}])
    event = seen.get("event")
    asked |= {"event": pretty(event) if "event" in seen else seen.get("text", ""), "format": "json", "example": ""}
    if seen["ignored"] is not None or not isinstance(event, dict):
        return _page(asked, formats, seen=seen)
    try:
        return await _all(visit, asked, formats, event, seen=seen)
    except Refused as refused:
        if refused.kind == "no-token":
            raise
        return _page(asked, formats, seen=seen, wrong=refused.errors or [{"reason": refused.detail}])


async def _formats(visit: Visit) -> Any:
    return (await visit.api.get("/v1/formats"))["items"]


async def _last(visit: Visit) -> Any:
    """Return some of the latest events, to choose from; empty for users who may not read them."""
    return (await visit.api.get("/v1/events", limit=_MOST))["items"] if visit.who.may("consume") else []


async def _seen(visit: Visit, number: str) -> Any:
    """Return one of the latest events by its number, with the results of its matches; None if the event was dropped meanwhile."""
    if not visit.who.may("consume"):
        return None
    try:
        return await visit.api.get(f"/v1/events/{part(number)}")
    except Refused as refused:
        if refused.kind != "unknown":
            raise
        return None


async def act(visit: Visit) -> Shown:
    """Try an event, or one of those of a record, against all subscriptions, one of them, or a draft."""
    asked = {name: visit.form.get(name, "").strip() for name in ("event", "format", "id", "draft", "example")}
    formats = await _formats(visit)
    try:
        read = await _read(visit, asked)
        given = visit.form.get("part", "")
        at = int(given) if given.isascii() and given.isdigit() and len(given) < 4 else 1
        at = min(max(at, 1), len(read["events"]))
        event = read["events"][at - 1]["event"]
        values: dict[str, Any] = {"read": {**read, "at": at, "one": read["events"][at - 1]}}
        if event is None:
            return _page(asked, formats, **values)
        if asked["draft"]:
            return await _draft(visit, asked, formats, event, **values)
        if asked["id"]:
            return _page(asked, formats, one=await _explained(visit, event, id=asked["id"]), **values)
        return await _all(visit, asked, formats, event, **values)
    except Refused as refused:
        if refused.kind == "no-token":
            raise
        return _page(
            asked, formats, wrong=_placed(asked["event"], refused.errors) or [{"reason": refused.detail or refused.title}]
        )
    except (RecursionError, ValueError):
        return _page(asked, formats, wrong=[{"place": "event", "reason": "a number with more digits than can be shown here"}])


async def _read(visit: Visit, asked: dict[str, str]) -> Any:
    """Return the events that a source would decode from the input."""
    query = {"format": asked["format"] or None, "limit": _MOST}
    body = asked["event"].encode(errors="replace")
    return (await visit.api.send("POST", "/v1/decode", body, query=query, headers={"content-type": JSON})).json


def _placed(text: str, errors: Any) -> list[dict[str, Any]]:
    """Return errors, those with an offset in the event's text with their line."""
    items = []
    for each in errors:
        placed = dict(each)
        if (offset := placed.pop("offset", None)) is not None:
            before = text.encode(errors="replace")[:offset].decode(errors="ignore").split("\n")
            placed |= {"line": len(before), "column": len(before[-1]) + 1}
        items.append(placed)
    return pointed(Draft(text), items)


async def _all(visit: Visit, asked: dict[str, str], formats: Any, event: dict[str, Any], **values: Any) -> Shown:
    answer = (await visit.api.send("POST", "/v1/explain", {"event": event}, query={"limit": _MOST})).json
    near = (await visit.api.send("POST", "/v1/near-misses", event, query={"limit": _MOST})).json
    return _page(asked, formats, answer=answer, near=near, **values)


async def _draft(visit: Visit, asked: dict[str, str], formats: Any, event: dict[str, Any], **values: Any) -> Shown:
    tried = (await visit.api.send("POST", "/v1/subscriptions:try", {"text": asked["draft"]})).json
    if not tried["good"]:
        return _page(asked, formats, wrong=[{**each, "source": "draft"} for each in tried["errors"]])
    one = await _explained(visit, event, subscription=json.loads(asked["draft"]))
    return _page(asked, formats, one=one, tried=tried, **values)


async def _explained(visit: Visit, event: dict[str, Any], **about: Any) -> Any:
    return (await visit.api.send("POST", "/v1/explain", {"event": event, **about})).json


def _page(asked: dict[str, str], formats: Any, **values: Any) -> Shown:
    names = ("answer", "near", "one", "tried", "seen", "read")
    context = {"wrong": [], "last": [], **dict.fromkeys(names), "formats": formats, **values}
    return Shown("trying.html", {"asked": asked, **context}, 422 if values.get("wrong") else 200)


TRYING: Final = View(path="try", title="Try", scope="read", show=show, act=act)
