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
    example = visit.query.get("example", "")
    if example not in examples:
        example = next(iter(examples), "")
    form = {
        "event": examples[example]["record"].strip() if example else "",
        "format": example.rpartition(".")[0],
        "example": example,
        "id": visit.query.get("id", ""),
        "draft": "",
    }
    if not (number := visit.query.get("number", "")):
        return _page(form, formats, last=await _last(visit))
    observed = await _observed(visit, number)
    if observed is None:
        return _page(form, formats, wrong=[{"place": "event", "reason": "it has left the list of recent events"}])
    event = observed.get("event")
    form |= {"event": pretty(event) if "event" in observed else observed.get("text", ""), "format": "json", "example": ""}
    if observed["ignored"] is not None or not isinstance(event, dict):
        return _page(form, formats, seen=observed)
    try:
        return await _all(visit, form, formats, event, seen=observed)
    except Refused as refused:
        if refused.kind == "no-token":
            raise
        return _page(form, formats, seen=observed, wrong=refused.errors or [{"reason": refused.detail}])


async def _formats(visit: Visit) -> Any:
    return (await visit.api.get("/v1/formats"))["items"]


async def _last(visit: Visit) -> Any:
    """Return some of the latest events, to choose from; empty for users who may not read them."""
    return (await visit.api.get("/v1/events", limit=_MOST))["items"] if visit.who.may("consume") else []


async def _observed(visit: Visit, number: str) -> Any:
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
    form = {name: visit.form.get(name, "").strip() for name in ("event", "format", "id", "draft", "example")}
    formats = await _formats(visit)
    try:
        read = await _read(visit, form)
        part_of = visit.form.get("part", "")
        at = int(part_of) if part_of.isascii() and part_of.isdigit() and len(part_of) < 4 else 1
        at = min(max(at, 1), len(read["events"]))
        event = read["events"][at - 1]["event"]
        values: dict[str, Any] = {"read": {**read, "at": at, "one": read["events"][at - 1]}}
        if event is None:
            return _page(form, formats, **values)
        if form["draft"]:
            return await _draft(visit, form, formats, event, **values)
        if form["id"]:
            return _page(form, formats, one=await _explained(visit, event, id=form["id"]), **values)
        return await _all(visit, form, formats, event, **values)
    except Refused as refused:
        if refused.kind == "no-token":
            raise
        return _page(form, formats, wrong=_placed(form["event"], refused.errors) or [{"reason": refused.detail or refused.title}])
    except (RecursionError, ValueError):
        return _page(form, formats, wrong=[{"place": "event", "reason": "a number with more digits than can be shown here"}])


async def _read(visit: Visit, form: dict[str, str]) -> Any:
    """Return the events that a source would decode from the input."""
    query = {"format": form["format"] or None, "limit": _MOST}
    body = form["event"].encode(errors="replace")
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


async def _all(visit: Visit, form: dict[str, str], formats: Any, event: dict[str, Any], **values: Any) -> Shown:
    answer = (await visit.api.send("POST", "/v1/explain", {"event": event}, query={"limit": _MOST})).json
    near = (await visit.api.send("POST", "/v1/near-misses", event, query={"limit": _MOST})).json
    return _page(form, formats, answer=answer, near=near, **values)


async def _draft(visit: Visit, form: dict[str, str], formats: Any, event: dict[str, Any], **values: Any) -> Shown:
    tried = (await visit.api.send("POST", "/v1/subscriptions:try", {"text": form["draft"]})).json
    if not tried["good"]:
        return _page(form, formats, wrong=[{**each, "source": "draft"} for each in tried["errors"]])
    one = await _explained(visit, event, subscription=json.loads(form["draft"]))
    return _page(form, formats, one=one, tried=tried, **values)


async def _explained(visit: Visit, event: dict[str, Any], **about: Any) -> Any:
    return (await visit.api.send("POST", "/v1/explain", {"event": event, **about})).json


def _page(form: dict[str, str], formats: Any, **values: Any) -> Shown:
    names = ("answer", "near", "one", "tried", "seen", "read")
    context = {"wrong": [], "last": [], **dict.fromkeys(names), "formats": formats, **values}
    return Shown("trying.html", {"asked": form, **context}, 422 if values.get("wrong") else 200)


TRYING: Final = View(path="try", title="Try", scope="read", show=show, act=act)
