"""Schemas of the answers about the state of the service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streamer.service.api.schema import (
    BOOL,
    COUNT,
    MAYBE,
    MAYBE_NUMBER,
    MAYBE_TIME,
    NEXT,
    NUMBER,
    TEXT,
    TIME,
    TRANSITION,
    list_of,
    object_of,
    ref,
)
from streamer.service.api.tokens import SCOPES

_FAILED: Final = {"anyOf": [object_of({"at": TIME, "code": TEXT, "reason": TEXT}), {"type": "null"}]}
_LAG: Final = {
    "anyOf": [
        object_of(
            {
                "positions": {"type": "integer", "minimum": 0, "description": "Bytes or messages by which the source is behind."},
                "unit": {"enum": ["bytes", "messages"]},
                "seconds": {"type": "number", "description": "The least time for which it has been behind."},
            }
        ),
        {"type": "null", "description": "Unknown."},
    ]
}
_RATES: Final = ("events_read", "events_matched", "events_rejected", "matches", "matches_delivered", "matches_dead")
#: The state of a source, and of a sink, in addition to its configuration.
OF_SOURCES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("read_per_s", "matched_per_s", "rejected_per_s"), MAYBE_NUMBER),
    "idle_s": MAYBE_NUMBER,
    "lag": _LAG,
    "last_error": _FAILED,
}
OF_SINKS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("delivered_per_s", "dead_per_s"), MAYBE_NUMBER),
    "oldest_undelivered_s": NUMBER,
    "last_error": _FAILED,
    "blocked_keys": COUNT,
    "stuck_messages": {
        "type": "integer",
        "minimum": 0,
        "description": "Those whose dead letters have no room.",
    },
    "attempts": {"type": "object", "additionalProperties": COUNT},
}
_FILTER: Final = object_of(
    {
        **dict.fromkeys(("tenant", "collection", "layout"), TEXT),
        **dict.fromkeys(("version", "keys", "capacity", "stale", "keyed", "unkeyed", "bits", "bytes"), COUNT),
        "fill": NUMBER,
        **dict.fromkeys(("asked", "no", "probes", "sampled", "false_positives", "grown"), COUNT),
        "estimated_fp_rate": NUMBER,
        "measured_fp_rate": MAYBE_NUMBER,
        "is_saturated": BOOL,
    },
)
_TOKEN: Final = {
    "id": TEXT,
    "name": TEXT,
    "tenant": MAYBE,
    "scopes": list_of({"enum": list(SCOPES)}),
    "created": MAYBE_TIME,
    "expires": MAYBE_TIME,
}
_REBUILT: Final = object_of({"tenant": TEXT, "collection": TEXT, "reason": TEXT, "count": COUNT})
_ATTEMPT: Final = object_of(
    {
        "at": TIME,
        "duration_ms": NUMBER,
        "messages": COUNT,
        "first_message": {"type": "string", "description": "The id of the first."},
        "result": {"enum": ["delivered", "later", "never", "gone"]},
        "code": {"type": "string", "description": "A status of HTTP, or a word."},
        "reason": TEXT,
        "answer": {"type": "string", "description": "How the endpoint's answer begins, for an administrator."},
    },
    "answer",
)
_REPLAY: Final = object_of(
    {
        "id": TEXT,
        "state": {"enum": ["running", "done", "ended", "failed"], "description": "`ended` is by somebody."},
        "chosen": {"type": "object", "additionalProperties": TEXT},
        **dict.fromkeys(("total", "replayed"), COUNT),
        "refused": {"type": "integer", "minimum": 0, "description": "Those that stay: not whole, or without a source or a sink."},
        "refused_numbers": list_of(COUNT),
        "begun": TIME,
        "ended": MAYBE_TIME,
        "error": MAYBE,
    }
)
OBSERVED: Final[Mapping[str, Any]] = {
    "Token": object_of(_TOKEN),
    "Tokens": object_of({"items": list_of(object_of({**_TOKEN, "used": MAYBE_TIME}))}),
    "Status": object_of(
        {
            "version": TEXT,
            "at": TIME,
            "started": TIME,
            "ready": BOOL,
            "reason": MAYBE,
            "subscriptions": COUNT,
            "totals": object_of(dict.fromkeys((*_RATES, "matches_dropped", "matches_pending"), COUNT)),
            "rates_per_s": object_of(dict.fromkeys(_RATES, MAYBE_NUMBER)),
            "waiting_bytes": COUNT,
            "stalled_s": NUMBER,
            "dead_letters": COUNT,
            "reload": ref("LastReload"),
            "sources": ref("Sources/properties/items"),
            "routes": list_of({"type": "object"}),
            "sinks": ref("Sinks/properties/items"),
            "gateways": list_of(
                object_of(
                    {
                        "name": {"type": "string", "description": "Of tenants' own gateways, all endpoints, or all streams."},
                        **dict.fromkeys(("delivered", "dead"), COUNT),
                        **dict.fromkeys(("delivered_per_s", "dead_per_s"), MAYBE_NUMBER),
                        "held": object_of({"messages": COUNT, "bytes": COUNT, "oldest_s": NUMBER}),
                        "attempts": {"type": "object", "additionalProperties": COUNT},
                    }
                )
            ),
        }
    ),
    "MetricsHistory": object_of(
        {
            "every_s": NUMBER,
            "at": {"type": "array", "items": {"type": "number"}, "description": "Seconds since the epoch; values stand by them."},
            "series": list_of(
                object_of(
                    {
                        "metric": TEXT,
                        "labels": {"type": "object", "additionalProperties": TEXT},
                        "kind": {"enum": ["rate", "value", "quantile"], "description": "A rate is a number in a second."},
                        "quantile": NUMBER,
                        "values": list_of(MAYBE_NUMBER),
                    },
                    "quantile",
                )
            ),
            "series_left_out": COUNT,
        }
    ),
    "Filters": object_of(
        {
            "enabled": BOOL,
            "wanted_fp_rate": NUMBER,
            "rebuilt_from_fp_rate": NUMBER,
            "filters": list_of(_FILTER),
            "more": BOOL,
            "rebuilds": list_of(_REBUILT),
            "samples": list_of(
                object_of(
                    {
                        "at": {"type": "number", "description": "Seconds since the first one."},
                        **dict.fromkeys(("events", "matched", "subscriptions"), COUNT),
                        "fp_rate": NUMBER,
                        "threshold": NUMBER,
                        "filters": list_of({"type": "object"}),
                        "rebuilds": list_of(_REBUILT),
                    }
                )
            ),
        }
    ),
    "Unguarded": object_of(
        {
            "items": list_of(
                object_of(
                    {
                        "tenant": TEXT,
                        "id": TEXT,
                        "collection": {"type": "string", "description": "`*` for every one."},
                        "cost": {"enum": ["indexed", "unkeyed"], "description": "Whether a condition of it can be looked up."},
                        "effort": {"enum": ["answered", "verified", "evaluated"], "description": "`evaluated`: for each event."},
                        "origin": {"enum": ["files", "api"]},
                        "updated": TIME,
                    }
                )
            ),
            "next": NEXT,
            "looked_at": {"type": "integer", "minimum": 0, "description": "Number of items examined for this page."},
        }
    ),
    "Attempt": _ATTEMPT,
    "Attempts": object_of({"items": list_of(_ATTEMPT)}),
    "DeadLetterCounts": object_of(
        {
            "items": list_of(
                object_of(
                    {**dict.fromkeys(("stage", "code", "source", "sink"), TEXT), "count": COUNT, "first": TIME, "last": TIME}
                )
            ),
            "total": COUNT,
            "looked_at": {"type": "integer", "description": "The number of the latest dead letters that were counted."},
        }
    ),
    "Replay": _REPLAY,
    "Replays": object_of({"items": list_of(_REPLAY)}),
    "Events": object_of(
        {
            "items": list_of(ref("Event")),
            "next": NEXT,
            "came": {"type": "integer", "description": "Events since the start, for an administrator."},
            "taken": {"type": "integer", "description": "How many of them were kept, if only for a while."},
        },
        *("came", "taken"),
    ),
    "Event": object_of(
        {
            "number": {"type": "integer", "description": "Later ones have larger ones."},
            "at": TIME,
            **dict.fromkeys(("source", "partition", "position"), TEXT),
            **dict.fromkeys(("tenant", "collection", "type"), MAYBE),
            "ignored": {"type": ["string", "null"], "description": "Why it is not a change; null if it is one."},
            "size_bytes": COUNT,
            "matches": {"type": "integer", "minimum": 0, "description": "Among the first hundred."},
            "more_matches": {"type": "boolean", "description": "Whether there were more than a hundred."},
            "matched_by": list_of(
                object_of({"tenant": TEXT, "id": TEXT, "gateway": MAYBE, "transition": TRANSITION, "certain": BOOL})
            ),
            "event": {},
            "text": {"type": "string", "description": "In place of `event`, if readers of JSON would refuse it."},
        },
        *("event", "text"),
    ),
    "MatchCounts": object_of(
        {
            "tenant": TEXT,
            "id": TEXT,
            "since": MAYBE_TIME | {"description": "The beginning of the count; null if it is unknown."},
            "every_s": {"type": "integer", "description": "Seconds of each step."},
            "at": list_of({"type": "integer", "description": "When a step began, in seconds since the epoch."}),
            "matches": list_of(
                {"type": ["integer", "null"], "minimum": 0, "description": "The matches in each step; null: unknown."}
            ),
            "total": {"type": "integer", "minimum": 0, "description": "The sum of the known steps."},
            "one_of": {
                "type": "integer",
                "minimum": 1,
                "description": "1: each match is counted. Else the counts are estimates, from one match in up to this number.",
            },
            "most_counts": {"type": "integer", "minimum": 0, "description": "`service.match_counts`; 0 turns counting off."},
        }
    ),
    "EventWithWays": {
        "allOf": [
            ref("Event"),
            object_of(
                {
                    "ways": list_of(
                        object_of(
                            {
                                "tenant": TEXT,
                                "id": TEXT,
                                "gateway": MAYBE,
                                "sink": {
                                    "type": ["string", "null"],
                                    "description": "Null if no route leads to one, and if it is not the tenant's own.",
                                },
                                "kind": {"type": ["string", "null"], "description": "The type of the sink, or `stream`."},
                                "message": {"type": ["string", "null"], "description": "The id of the message."},
                                "attempts": list_of(_ATTEMPT),
                            }
                        )
                    )
                }
            ),
        ]
    },
    "Configuration": object_of(
        {
            "name": MAYBE,
            "text": {"type": "string", "description": "YAML that can be loaded again, with comments."},
            "fields": list_of(
                object_of(
                    {
                        "place": TEXT,
                        "value": {},
                        "from": {
                            "type": "array",
                            "items": TEXT,
                            "description": "`file:line:column`, the name of a variable, or `default`.",
                        },
                        "needs_restart": {"type": "boolean", "description": "Whether a change needs another start."},
                    }
                )
            ),
        }
    ),
    "CheckedConfiguration": object_of(
        {
            "good": BOOL,
            "needs_restart": BOOL,
            "errors": list_of(
                object_of(
                    {"reason": TEXT, "source": TEXT, "line": COUNT, "column": COUNT, "place": TEXT},
                    *("source", "line", "column", "place"),
                )
            ),
            "changes": list_of(
                object_of({"place": TEXT, "before": {}, "after": {}, "line": MAYBE_NUMBER, "needs_restart": BOOL})
            ),
        }
    ),
}
