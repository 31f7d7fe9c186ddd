"""Routes of the service's reports about itself."""

from __future__ import annotations

from typing import Final

from streamer.service.api.calls import EVENTS, YAML, Param
from streamer.service.api.route import CURSOR, Route, limit
from streamer.service.observed.series import EVERY, POINTS

_HOURS: Final = int(EVERY * POINTS / 60)


def _count(name: str, description: str, most: int) -> Param:
    return Param(name, description, {"type": "integer", "minimum": 1, "maximum": most})


#: For events: an administrator's request that names no tenant gets the events of all.
_WHOSE: Final = Param(
    "tenant", "The tenant of the events; an administrator's token that names none gets all.", {"type": "string", "minLength": 1}
)
_WATCHED: Final = (
    _WHOSE,
    Param("collection", "Only those of this collection."),
    Param("gateway", "Only those that matched for this gateway."),
    Param("subscription", "Only those that matched this subscription."),
    Param("outcome", "Only those with a match, or without.", {"type": "string", "enum": ("matched", "unmatched")}),
)

OBSERVED: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/v1/token",
        handler="show_token",
        summary="Show the tenant and the scopes of the request's token.",
        scope="any",
        answers={200: "Token"},
    ),
    Route(
        method="GET",
        path="/v1/tokens",
        handler="list_tokens",
        summary="List the tokens, without their secrets, with the time of their last use since the start of this process.",
        scope="admin",
        answers={200: "Tokens"},
    ),
    Route(
        method="GET",
        path="/v1/status",
        handler="status",
        summary="Show the state of sources, sinks and the whole: rates of the last minute, lag, waiting messages, last failures.",
        scope="admin",
        answers={200: "Status"},
    ),
    Route(
        method="GET",
        path="/v1/metrics/history",
        handler="metrics_history",
        summary="Return the metrics of the last hours, counters as rates, histograms as quantiles.",
        scope="admin",
        params=(
            Param("name", "Only metrics whose names begin so; several with commas."),
            _count("minutes", "How far back; 60 by default.", _HOURS),
            _count("points", "Moments at most; 120 by default.", POINTS),
        ),
        answers={200: "MetricsHistory"},
    ),
    Route(
        method="GET",
        path="/v1/filters",
        handler="filters",
        summary="Show the state of the Bloom filters, the most queried ones first, and their history.",
        scope="admin",
        params=(limit(20, 1000), _count("samples", "Moments at most; 60 by default.", 500)),
        answers={200: "Filters"},
    ),
    Route(
        method="GET",
        path="/v1/filters/unguarded",
        handler="list_unguarded",
        summary="List the subscriptions that no filter can guard, of all tenants or of one, in the order of tenants and ids.",
        scope="admin",
        params=(
            Param("tenant", "Only those of this tenant.", {"type": "string", "minLength": 1}),
            Param("collection", "Only those to this collection; `*` to those that name none."),
            CURSOR,
            limit(50, 500),
        ),
        answers={200: "Unguarded"},
    ),
    Route(
        method="GET",
        path="/v1/config",
        handler="get_config",
        summary="Show the current configuration, and the origin of each value; secrets by their names.",
        scope="admin",
        answers={200: "Configuration"},
    ),
    Route(
        method="POST",
        path="/v1/config:check",
        handler="check_config",
        summary="Check a configuration: its errors, or its changes. Files that it names are not read.",
        scope="admin",
        body="configuration",
        consumes=(YAML,),
        answers={200: "CheckedConfiguration"},
    ),
    Route(
        method="GET",
        path="/v1/events",
        handler="list_events",
        summary="Show some of the last events of a tenant, the newest first, and what they matched.",
        scope="consume",
        params=(*_WATCHED, CURSOR, limit(50, 200)),
        answers={200: "Events"},
    ),
    Route(
        method="GET",
        path="/v1/events/{number}",
        handler="get_event",
        summary="Show one of the last events, the targets of its matches, and the attempts to deliver them.",
        scope="consume",
        params=(_WHOSE,),
        answers={200: "EventWithWays"},
        problems=("unknown",),
    ),
    Route(
        method="GET",
        path="/v1/live",
        handler="live",
        summary="Show some events as they come, ten a second at most, as server-sent events; it may leave out any.",
        scope="consume",
        params=_WATCHED,
        produces=EVENTS,
        answers={200: "Text"},
    ),
)
