"""What matches an event, and why: each condition with the value that it saw; and what fails by one condition alone."""

from __future__ import annotations

import json
from typing import Any, Final

from streamer.service.console.client import Refused
from streamer.service.console.visit import Shown, View, Visit

#: An event to begin with: a change as docs/api.md has it.
_EXAMPLE: Final = """\
{"collection": "orders", "type": "insert", "data": {"id": 1, "amount": 250}}"""
#: So many matches are explained, and near misses shown.
_MOST: Final = 10


async def show(visit: Visit) -> Shown:
    """Show the form; an id in the address is what one asks about."""
    return _page({"event": _EXAMPLE, "id": visit.query.get("id", ""), "draft": ""})


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


async def _all(visit: Visit, asked: dict[str, str], event: dict[str, Any]) -> Shown:
    told = (await visit.api.send("POST", "/v1/explain", {"event": event}, query={"limit": _MOST})).json
    near = (await visit.api.send("POST", "/v1/near-misses", event, query={"limit": _MOST})).json
    return _page(asked, told=told, near=near)


async def _draft(visit: Visit, asked: dict[str, str], event: dict[str, Any]) -> Shown:
    tried = (await visit.api.send("POST", "/v1/subscriptions:try", {"text": asked["draft"]})).json
    if not tried["good"]:
        return _page(asked, wrong=[{**each, "source": "draft"} for each in tried["errors"]])
    return _page(asked, one=await _explained(visit, event, subscription=json.loads(asked["draft"])), tried=tried)


async def _explained(visit: Visit, event: dict[str, Any], **about: Any) -> Any:
    return (await visit.api.send("POST", "/v1/explain", {"event": event, **about})).json


def _page(asked: dict[str, str], **values: Any) -> Shown:
    told: dict[str, Any] = {"wrong": [], "told": None, "near": None, "one": None, "tried": None}
    return Shown("trying.html", {"asked": asked, **told, **values}, 422 if values.get("wrong") else 200)


TRYING: Final = View(path="try", title="Try", scope="read", show=show, act=act)
