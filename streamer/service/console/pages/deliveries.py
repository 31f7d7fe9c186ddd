"""Results of deliveries: the latest attempts of each endpoint, and dead letters, to be sent again or deleted."""

from __future__ import annotations

from typing import Any, Final

from streamer.service.console.client import Refused, part
from streamer.service.console.text import number, plain
from streamer.service.console.visit import Sent, Shown, View, Visit

_PAGE: Final = 50
#: The members that dead letters are filtered by.
_CRITERIA: Final = ("stage", "code", "source", "sink")
#: The attempts of an endpoint that are shown.
_ATTEMPTS: Final = 10


async def show(visit: Visit) -> Shown:
    """Show endpoints with their last attempts, and a page of dead letters."""
    criteria = {name: visit.query[name] for name in _CRITERIA if visit.query.get(name)}
    sinks = (await visit.api.get("/v1/sinks"))["items"]
    attempts = {each["name"]: await _attempts(visit, each["name"]) for each in sinks if each["type"] == "webhook"}
    return Shown(
        "deliveries.html",
        {
            "sinks": sinks,
            "attempts": attempts,
            "counts": await visit.api.get("/v1/dead-letters:counts"),
            "letters": await visit.api.get("/v1/dead-letters", limit=_PAGE, cursor=visit.query.get("cursor"), **criteria),
            "replays": (await visit.api.get("/v1/replays"))["items"],
            "chosen": criteria,
        },
    )


async def _attempts(visit: Visit, name: str) -> list[Any]:
    try:
        attempts: list[Any] = (await visit.api.get(f"/v1/sinks/{part(name)}/attempts"))["items"]
    except Refused as refused:
        if refused.kind != "unknown":
            raise
        return []  # the sink was removed, and its messages are kept
    return attempts[:_ATTEMPTS]


async def act(visit: Visit) -> Sent:
    """Replay dead letters, one or all of a reason; delete one; send a test."""
    do, name = visit.form.get("do", ""), visit.form.get("name", "")
    back = "/console/deliveries"
    match do:
        case "replay":
            criteria = {each: visit.form[each] for each in _CRITERIA if visit.form.get(each)}
            answer = (await visit.api.send("POST", "/v1/replays", criteria or {"all": True})).json
            return Sent(back, f"{number(answer['total'])} dead letters are sent again; the progress is shown below.")
        case "replay_one":
            await visit.api.send("POST", f"/v1/dead-letters/{part(name)}:replay")
            return Sent(back, f"Dead letter {plain(name)} was sent again.")
        case "drop_one":
            await visit.api.send("DELETE", f"/v1/dead-letters/{part(name)}")
            return Sent(back, f"Dead letter {plain(name)} is dropped.")
        case "test":
            answer = (await visit.api.send("POST", f"/v1/sinks/{part(name)}:test")).json
            said = f": {plain(answer['reason'], 300)}" if answer["reason"] else ""
            return Sent(back, f"A test to {plain(name)}: {answer['result']} in {number(answer['duration_ms'])} ms{said}.")
    raise Refused(400, {"title": "Unknown action", "detail": "expected replay, replay_one, drop_one or test"})


DELIVERIES: Final = View(path="deliveries", title="Deliveries", scope="admin", show=show, act=act)
