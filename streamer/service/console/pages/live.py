"""Events and their matches: the latest ones, and new ones as they come. The service never waits for this page."""

from __future__ import annotations

from typing import Any, Final

from streamer.service.console.client import Refused
from streamer.service.console.visit import Piped, Shown, View, Visit

_FILTERS: Final = ("collection", "gateway", "subscription", "outcome")
#: The rows that are shown; the script keeps the same number.
_ROWS: Final = 30


async def show(visit: Visit) -> Shown:
    """Show the latest events, the newest first."""
    search = _search(visit)
    try:
        events = await visit.api.get("/v1/events", limit=_ROWS, **_params(search))
    except Refused as refused:
        if refused.kind != "bad-request":
            raise
        return Shown("live.html", {"search": search, "found": None, "rows": _ROWS, "wrong": refused.detail}, 422)
    return Shown("live.html", {"search": search, "found": events, "rows": _ROWS, "wrong": ""})


async def feed(visit: Visit) -> Piped:
    """Let the API send events as they come."""
    return Piped("/v1/live", _params(_search(visit)))


def _search(visit: Visit) -> dict[str, str]:
    return {name: visit.query.get(name, "").strip() for name in _FILTERS}


def _params(search: dict[str, str]) -> dict[str, Any]:
    return {name: value or None for name, value in search.items()}


LIVE: Final = View(path="live", title="Live", scope="consume", show=show)
FEED: Final = View(path="live/feed", title="Live", scope="consume", show=feed, is_listed=False, within="live")
