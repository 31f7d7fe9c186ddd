"""The table of routes, from which both the API and its OpenAPI document are made.

A path is matched as it was sent, before it is decoded, because an id may contain a slash, as `%2F`. A verb follows a colon, as in
`/v1/subscriptions/big:pause`. If an id ends like this, send its colon as `%3A`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from streamer.service.api.calls import EVENTS, JSON, LINES, METRICS, Param
from streamer.service.api.decoding import FORMAT
from streamer.service.api.route import CURSOR, TENANT, Route, limit
from streamer.service.api.routes_delivered import DELIVERED
from streamer.service.api.routes_observed import OBSERVED

_LEASE: Final = Param(
    "lease",
    "Seconds until it is gone, unless it is renewed; without, it stays.",
    {"type": "integer", "minimum": 1, "maximum": 366 * 86_400},
)

_ONE: Final = "/v1/subscriptions/{id}"
_GATEWAY: Final = "/v1/gateways/{id}"
_WRITES: Final[Mapping[str, Any]] = {"scope": "write", "params": (TENANT,), "is_conditional": True}

ROUTES: Final[tuple[Route, ...]] = (
    *DELIVERED,
    *OBSERVED,
    Route(
        method="GET",
        path="/v1/subscriptions",
        handler="list_subscriptions",
        summary="List subscriptions in the order of their ids.",
        scope="read",
        params=(
            TENANT,
            CURSOR,
            limit(100, 1000),
            Param("gateway", "Only those of this gateway."),
            Param("collection", "Only those that name this collection."),
            Param("prefix", "Only those whose ids begin so."),
            Param("text", "Only those whose text has this in it, in large letters or small ones."),
            Param("label", "Only those with this label, as `team`, or with this value of it, as `team=payments` or `live=true`."),
            Param("unindexed", "Only those of which no condition can be looked up, or that have one.", {"type": "boolean"}),
            Param("paused", "Only those that are paused, or that are not.", {"type": "boolean"}),
            Param("origin", "Only those that were written so.", {"type": "string", "enum": ("files", "api")}),
        ),
        answers={200: "Subscriptions"},
    ),
    Route(
        method="POST",
        path="/v1/subscriptions:import",
        handler="import_subscriptions",
        summary="Write many subscriptions, one a line, in slices: if all are valid, or with `partly` the valid ones.",
        scope="write",
        params=(TENANT, _LEASE, Param("partly", "Write the good ones if some are bad.", {"type": "boolean"})),
        body="subscriptions",
        consumes=(LINES,),
        produces=LINES,
        answers={200: "Imported"},
        problems=("quota", "subscription"),
        is_import=True,
    ),
    Route(
        method="GET",
        path="/v1/imports",
        handler="list_imports",
        summary="List the latest imports of the tenant and their progress, the latest first.",
        scope="read",
        params=(TENANT,),
        answers={200: "Imports"},
    ),
    Route(
        method="GET",
        path="/v1/imports/{id}",
        handler="get_import",
        summary="Show the progress of an import.",
        scope="read",
        params=(TENANT,),
        answers={200: "Import"},
        problems=("unknown",),
    ),
    Route(
        method="GET",
        path="/v1/subscriptions:export",
        handler="export_subscriptions",
        summary="Read all subscriptions as they were written, one a line.",
        scope="read",
        params=(TENANT,),
        produces=LINES,
        answers={200: "Subscription"},
    ),
    Route(
        method="POST",
        path=f"{_ONE}:pause",
        handler="pause",
        summary="Pause a subscription: it has no matches until it is resumed.",
        answers={200: "Stored"},
        problems=("unknown", "other-origin", "precondition"),
        **_WRITES,
    ),
    Route(
        method="POST",
        path=f"{_ONE}:resume",
        handler="resume",
        summary="Let a subscription match again.",
        answers={200: "Stored"},
        problems=("unknown", "other-origin", "precondition"),
        **_WRITES,
    ),
    Route(
        method="POST",
        path=f"{_ONE}:renew",
        handler="renew",
        summary="Restart the lease of a subscription, with its old length or that of `lease`.",
        answers={200: "Stored"},
        problems=("unknown", "other-origin", "precondition"),
        **{**_WRITES, "params": (TENANT, _LEASE)},
    ),
    Route(
        method="GET",
        path=f"{_ONE}/history",
        handler="list_changes",
        summary="List who changed a subscription, when, and to what, the last change first; also for a deleted one.",
        scope="read",
        params=(TENANT, CURSOR, limit(20, 20)),
        answers={200: "Changes"},
        problems=("unknown",),
    ),
    Route(
        method="GET",
        path=f"{_ONE}/matches",
        handler="count_matches",
        summary="Count how often a subscription matched in each minute of the last three hours.",
        scope="read",
        params=(TENANT,),
        answers={200: "MatchCounts"},
        problems=("unknown", "elsewhere"),
    ),
    Route(
        method="GET",
        path=f"{_ONE}/plan",
        handler="plan",
        summary="Show how a subscription is found, and its cost.",
        scope="read",
        params=(TENANT,),
        answers={200: "Plan"},
        problems=("unknown",),
    ),
    Route(
        method="POST",
        path="/v1/subscriptions:try",
        handler="try_subscription",
        summary="Check a draft: its errors, its plan, and its matches among the last events.",
        scope="read",
        params=(TENANT,),
        body="draft",
        consumes=(JSON,),
        answers={200: "Tried"},
    ),
    Route(
        method="POST",
        path="/v1/near-misses",
        handler="near_misses",
        summary="List the subscriptions that an event fails by one condition, the nearest first.",
        scope="read",
        params=(
            TENANT,
            CURSOR,
            limit(10, 100),
            FORMAT,
            Param("examine", "Subscriptions to look at; 1,000 by default.", {"type": "integer", "minimum": 1, "maximum": 5000}),
        ),
        body="event",
        consumes=(JSON,),
        answers={200: "NearMisses"},
        problems=("event",),
    ),
    Route(
        method="GET",
        path=_ONE,
        handler="get_subscription",
        summary="Show a subscription.",
        scope="read",
        params=(TENANT,),
        answers={200: "Stored", 304: None},
        problems=("unknown", "precondition"),
        is_conditional=True,
    ),
    Route(
        method="PUT",
        path=_ONE,
        handler="put_subscription",
        summary="Write a subscription. Each event that is read after the answer is matched against it.",
        body="subscription",
        consumes=(JSON,),
        answers={200: "Stored", 201: "Stored"},
        problems=("quota", "other-origin", "precondition", "subscription"),
        **{**_WRITES, "params": (TENANT, _LEASE)},
    ),
    Route(
        method="DELETE",
        path=_ONE,
        handler="delete_subscription",
        summary="Delete a subscription. Events that are read after the answer do not match it.",
        answers={204: None},
        problems=("unknown", "other-origin", "precondition"),
        **_WRITES,
    ),
    Route(
        method="GET",
        path="/v1/gateways",
        handler="list_gateways",
        summary="List a tenant's own gateways in the order of their ids.",
        scope="read",
        params=(TENANT, CURSOR, limit(100, 1000)),
        answers={200: "Gateways"},
    ),
    Route(
        method="GET",
        path=_GATEWAY,
        handler="get_gateway",
        summary="Show a gateway, and how it stands with it.",
        scope="read",
        params=(TENANT,),
        answers={200: "Gateway", 304: None},
        problems=("unknown", "precondition"),
        is_conditional=True,
    ),
    Route(
        method="PUT",
        path=_GATEWAY,
        handler="put_gateway",
        summary="Write a gateway. Later matches go there; an endpoint that answered 410 is enabled again.",
        body="gateway",
        consumes=(JSON,),
        answers={200: "Gateway", 201: "Gateway"},
        problems=("quota", "precondition", "gateway"),
        **_WRITES,
    ),
    Route(
        method="DELETE",
        path=_GATEWAY,
        handler="delete_gateway",
        summary="Delete a gateway, and drop its waiting messages.",
        answers={204: None},
        problems=("unknown", "precondition"),
        **_WRITES,
    ),
    Route(
        method="GET",
        path=f"{_GATEWAY}/matches",
        handler="stream_matches",
        summary="Stream the matches of a gateway without a URL, as server-sent events.",
        scope="consume",
        params=(
            TENANT,
            Param(
                "from",
                "The beginning without `Last-Event-ID`: the oldest stored match, the default, or new matches.",
                {"type": "string", "enum": ("start", "now")},
            ),
        ),
        produces=EVENTS,
        answers={200: "Text"},
        problems=("unknown", "no-stream"),
    ),
    Route(
        method="GET",
        path="/v1/formats",
        handler="list_formats",
        summary="List the formats of records that can be tried, with examples.",
        scope="read",
        answers={200: "Formats"},
    ),
    Route(
        method="POST",
        path="/v1/decode",
        handler="decode",
        summary="Decode a record into events and their keys, like a source.",
        scope="read",
        params=(TENANT, FORMAT, Param("key", "The record's own key, as a message of Kafka has one."), limit(10, 100)),
        body="record",
        consumes=(JSON,),
        answers={200: "Decoded"},
        problems=("event",),
    ),
    Route(
        method="POST",
        path="/v1/match",
        handler="match",
        summary="List the subscriptions that an event matches, without delivery.",
        scope="read",
        params=(TENANT, FORMAT, limit(1000, 10_000)),
        body="event",
        consumes=(JSON,),
        answers={200: "Matches"},
        problems=("event",),
    ),
    Route(
        method="POST",
        path="/v1/explain",
        handler="explain",
        summary="Explain why a subscription, stored or given, matches an event, or why not; or why each match does.",
        scope="read",
        params=(TENANT, FORMAT, limit(10, 50)),
        body="question",
        consumes=(JSON,),
        answers={200: "Explanation"},
        problems=("unknown", "event", "subscription"),
    ),
    Route(
        method="POST",
        path="/v1/lint",
        handler="lint",
        summary="Find faults and suspicious parts in subscriptions, one a line, without writing them.",
        scope="read",
        params=(TENANT,),
        body="subscriptions",
        consumes=(LINES, JSON),
        answers={200: "Findings"},
        problems=("subscription",),
    ),
    Route(
        method="GET",
        path="/v1/sources",
        handler="list_sources",
        summary="List the sources, their positions, counts and lag.",
        scope="admin",
        answers={200: "Sources"},
    ),
    Route(
        method="GET",
        path="/v1/sinks",
        handler="list_sinks",
        summary="List the sinks, and their counts.",
        scope="admin",
        answers={200: "Sinks"},
    ),
    Route(
        method="GET",
        path="/v1/reload",
        handler="last_reload",
        summary="Show whether the last reload succeeded, and if not, why.",
        scope="admin",
        answers={200: "LastReload"},
    ),
    Route(
        method="POST",
        path="/v1/reload",
        handler="reload",
        summary="Reload the configuration and its files of subscriptions, all of it or none.",
        scope="admin",
        answers={200: "Reloaded"},
        problems=("configuration",),
    ),
    Route(
        method="GET",
        path="/v1/openapi.json",
        handler="document",
        summary="This document.",
        scope=None,
        answers={200: "Document"},
    ),
    Route(
        method="GET",
        path="/metrics",
        handler="metrics",
        summary="Metrics for Prometheus.",
        scope="admin",
        produces=METRICS,
        answers={200: "Text"},
    ),
    Route(
        method="GET",
        path="/healthz",
        handler="healthz",
        summary="Report that the process is alive.",
        scope=None,
        answers={200: "Health"},
    ),
    Route(
        method="GET",
        path="/readyz",
        handler="readyz",
        summary="Report whether the service does its work, and if not, why.",
        scope=None,
        answers={200: "Readiness", 503: "Readiness"},
    ),
)


class Endpoint(NamedTuple):
    """The routes of a path.

    Attributes:
        path: the path in the table of routes.
        values: the parts of the request's path in place of the names in braces, as they were sent.
        routes: the routes by method.
    """

    path: str
    values: Mapping[str, bytes]
    routes: Mapping[str, Route]

    @property
    def methods(self) -> list[str]:
        """Return the methods that the path answers."""
        return sorted({*self.routes, "OPTIONS", *(["HEAD"] if "GET" in self.routes else [])})


def _pattern(path: str) -> re.Pattern[bytes]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path)).encode())


#: In the order of the table: a path with a verb comes before the path that would match the verb as a part of an id.
_PATHS: Final = {
    path: (_pattern(path), {route.method: route for route in ROUTES if route.path == path})
    for path in dict.fromkeys(route.path for route in ROUTES)
}


def find(path: bytes) -> Endpoint | None:
    """Return the routes of a path, as it was sent; None if there are none."""
    for template, (pattern, routes) in _PATHS.items():
        if (match := pattern.fullmatch(path)) is not None:
            return Endpoint(template, match.groupdict(), routes)
    return None
