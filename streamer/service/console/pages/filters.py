"""The Bloom filters: what they stop, their error rates, their rebuilds, and the subscriptions that they cannot guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias, final

from streamer.service.console.client import Refused
from streamer.service.console.visit import Shown, View, Visit

_MOST: Final = 20
#: The subscriptions of a page.
_PAGE: Final = 50
_SAMPLES: Final = 120
#: Fewer samples are too few for a rate, as in `streamer plot`.
_LEAST: Final = 200

Line: TypeAlias = Sequence[float | None]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The history of a filter.

    Attributes:
        at: moments, in seconds since the first.
        wrong: the fraction of passed events that no subscription wanted, since the last rebuild.
        stopped: the fraction of the events between two moments that it stopped.
        rebuilt: the moments of rebuilds.
        reasons: the number of rebuilds, by cause.
    """

    at: Sequence[float]
    wrong: Line
    stopped: Line
    keys: Line
    room: Line
    stale: Line
    rebuilt: Sequence[float]
    reasons: Mapping[str, int]


async def show(visit: Visit) -> Shown:
    """Show the most used filters, and the subscriptions of the chosen tenant, or of all, that filters cannot guard."""
    filters = await visit.api.get("/v1/filters", limit=_MOST, samples=_SAMPLES)
    rows = [(each, past(each, filters)) for each in filters["filters"]]
    search = {name: visit.query.get(name) or None for name in ("collection", "cursor")}
    values: dict[str, Any] = {"answer": filters, "filters": rows, "search": search, "unguarded": None, "wrong": ""}
    try:
        values["unguarded"] = await visit.api.get("/v1/filters/unguarded", limit=_PAGE, **search)
    except Refused as refused:
        if refused.kind != "bad-request":
            raise
        values["wrong"] = refused.detail
    return Shown("filters.html", values, 422 if values["wrong"] else 200)


def past(filter_: Mapping[str, Any], options: Mapping[str, Any]) -> Past:
    """Return the history of a filter, from the samples of all."""
    name = (filter_["tenant"], filter_["collection"])
    measured = [
        (sample["at"], each)
        for sample in options["samples"]
        for each in sample["filters"]
        if (each["tenant"], each["collection"]) == name
    ]
    states = [state for _, state in measured]
    return Past(
        at=[at for at, _ in measured],
        wrong=[each["false_positives"] / each["sampled"] if each["sampled"] >= _LEAST else None for each in states],
        stopped=[None, *(_share(new["no"] - old["no"], new["asked"] - old["asked"]) for old, new in pairwise(states))][
            : len(measured)
        ],
        keys=[each["keys"] for each in states],
        room=[each["capacity"] for each in states],
        stale=[each["stale"] for each in states],
        rebuilt=[at for (_, old), (at, new) in pairwise(measured) if new["version"] > old["version"]],
        reasons={each["reason"]: each["count"] for each in options["rebuilds"] if (each["tenant"], each["collection"]) == name},
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 and part >= 0 else None


FILTERS: Final = View(path="filters", title="Filters", scope="admin", show=show)
