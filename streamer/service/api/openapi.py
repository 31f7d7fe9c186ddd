"""The OpenAPI 3.1 document of the API, made from the table of routes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from streamer.model import Limits, TopicDialect
from streamer.service.api.calls import Body
from streamer.service.api.problems import KINDS, MEDIA_TYPE
from streamer.service.api.route import Route
from streamer.service.api.routes import ROUTES
from streamer.service.api.routes_delivered import CRITERIA
from streamer.service.api.schema import BOOL, COUNT, MAYBE, NEXT, TEXT, TIME, TRANSITION, list_of, object_of, ref
from streamer.service.api.schemas_observed import OBSERVED, OF_SINKS, OF_SOURCES
from streamer.service.store.ids import MOST_ID
from streamer.service.tenants.gateways import MOST_BATCH, MOST_SECRETS, MOST_URL
from streamer.subscriptions.schema import subscription_schema
from streamer.version import VERSION

_ERROR: Final = object_of(
    {
        "reason": TEXT,
        "place": {"type": "string", "description": "The member at fault, as `filters[0].op`; a JSON Pointer for an event."},
        "line": {"type": "integer", "description": "The line in a body of lines, or in a text, from 1."},
        "column": {"type": "integer", "description": "In the text, in characters, from 1."},
        "cel_line": {"type": "integer", "description": "In the expression, from 1."},
        "cel_column": {"type": "integer", "description": "In characters, from 1."},
        "offset": COUNT,
        "code": TEXT,
    },
    *("place", "line", "column", "cel_line", "cel_column", "offset", "code"),
)
_LETTER: Final = {
    **dict.fromkeys(("id", "attempts", "size", "matches"), COUNT),
    "position": {"type": ["integer", "string"], "description": "Text for a replication slot."},
    "part": {"type": "integer"},
    **dict.fromkeys(("source", "partition", "stage", "code", "reason", "sink", "message"), TEXT),
    "at": TIME,
    "is_whole": BOOL,
}
_BACKLOG: Final = object_of({"messages": COUNT, "bytes": COUNT, "oldest_s": {"type": "number"}})
_URL: Final = {
    "type": ["string", "null"],
    "maxLength": MOST_URL,
    "pattern": "^https?://[!-~]+$",
    "description": "The target of matches; null if streams read them.",
}
_SETTINGS: Final = {
    "url": _URL,
    "batch": {"type": "integer", "minimum": 1, "maximum": MOST_BATCH, "description": "Messages of a request at most."},
    "per": {"enum": ["match", "gateway"], "description": "Whether a message reports one match, or all of an event."},
    "event": {"enum": ["full", "reference", "none"], "description": "The part of the event in a message."},
    "enabled": {"type": "boolean", "description": "Whether matches are handed out; else they wait."},
}
_GATEWAY: Final = {
    **object_of(
        {
            **_SETTINGS,
            "secrets": {
                "type": "array",
                "items": {"type": "string", "pattern": "^whsec_[A-Za-z0-9+/]+=*$"},
                "maxItems": MOST_SECRETS,
                "writeOnly": True,
                "description": "What requests are signed with; without it, those that are there stay.",
            },
        },
        *_SETTINGS,
        "secrets",
    ),
    "additionalProperties": False,
}
_EXPLANATION: Final = object_of({"subscription_id": TEXT, "matched": BOOL, "conditions": list_of({"type": "object"})})
_PLAN: Final = {
    **dict.fromkeys(("subscription_id", "tenant", "collection", "decided_by"), TEXT),
    "cost": {"enum": ["keyed", "indexed", "unkeyed"], "description": "By what it is found."},
    "effort": {"enum": ["answered", "verified", "evaluated"], "description": "What an event costs: `evaluated` is for each."},
    "access_keys": {"type": ["array", "null"], "items": TEXT},
}
_SCHEMAS: Final[Mapping[str, Any]] = {
    "Gateway": object_of(
        {
            "tenant": TEXT,
            "id": TEXT,
            "etag": TEXT,
            "created": TIME,
            "updated": TIME,
            "gateway": object_of(_SETTINGS),
            "secrets": {"type": "integer", "minimum": 0, "description": "How many there are."},
            "state": {"enum": ["working", "down", "gone", "off", "streams"], "description": "`gone` is after 410."},
            "pending": _BACKLOG,
            "history": _BACKLOG,
            "delivered": {"type": "integer", "minimum": 0, "description": "Matches since the service started."},
            "dead": {
                "type": "integer",
                "minimum": 0,
                "description": "Matches that became dead letters since the service started.",
            },
        },
        *("pending", "history"),
    ),
    "Gateways": object_of({"items": list_of(ref("Gateway")), "next": NEXT}),
    "Stored": object_of(
        {
            "tenant": TEXT,
            "id": TEXT,
            "origin": {"enum": ["files", "api"], "description": "Its writer, which is the only one that may change it."},
            "etag": TEXT,
            "created": TIME,
            "updated": TIME,
            "paused": BOOL,
            "unindexed": {
                "type": "boolean",
                "description": "Whether its conditions cannot be looked up, so that it may match any event.",
            },
            "lease": {
                "type": ["integer", "null"],
                "description": "Seconds that it stays each time it is renewed; null for ever.",
            },
            "expires": {"type": ["string", "null"], "format": "date-time"},
            "subscription": ref("Subscription"),
        }
    ),
    "Changes": object_of(
        {
            "items": list_of(
                object_of(
                    {
                        "version": COUNT,
                        "at": TIME,
                        "who": {"type": "string", "description": "A token, as `NAME (ID)`; `files`, or `expiry`."},
                        "what": {"enum": ["put", "delete", "pause", "resume"]},
                        "subscription": {
                            "anyOf": [ref("Subscription"), {"type": "null"}],
                            "description": "The text of a `put`; null for any other change, and if it was too long to be kept.",
                        },
                    }
                )
            ),
            "next": NEXT,
        }
    ),
    "Subscriptions": object_of({"items": list_of(ref("Stored")), "next": NEXT, "looked_at": COUNT}),
    "Imported": object_of(
        {
            "line": COUNT,
            "id": TEXT,
            "result": {
                "enum": ["created", "replaced", "unchanged", "refused", "failed"],
                "description": "`failed`: the store failed before this line; send it again.",
            },
            "etag": TEXT,
            "error": ref("Error"),
        },
        *("id", "etag", "error"),
    ),
    "Import": object_of(
        {
            "id": TEXT,
            "tenant": TEXT,
            "state": {
                "enum": ["checking", "storing", "done", "refused", "stopped", "failed"],
                "description": "`refused`: no line was stored. `stopped`: the client disconnected. `failed`: the store failed.",
            },
            "lines": COUNT,
            "done": {"type": "integer", "description": "Lines with a result."},
            "refused": COUNT,
            "started": TIME,
            "ended": {"type": ["string", "null"], "format": "date-time"},
        }
    ),
    "Imports": object_of({"items": list_of(ref("Import"))}),
    "Matches": object_of(
        {
            "matches": list_of(
                object_of({"tenant": TEXT, "id": TEXT, "gateway": MAYBE, "transition": TRANSITION, "certain": BOOL})
            ),
            "more": {"type": "boolean", "description": "Whether there are more than `limit`."},
            "ignored": {"type": ["string", "null"], "description": "Why the event is not a change; null if it is one."},
        }
    ),
    "Explanation": {
        "anyOf": [
            _EXPLANATION,
            object_of(
                {
                    "matches": list_of({"allOf": [_EXPLANATION, object_of({"tenant": TEXT, "id": TEXT})]}),
                    "more": BOOL,
                    "ignored": MAYBE,
                }
            ),
        ]
    },
    "Formats": object_of(
        {"items": list_of(object_of({"format": TEXT, "examples": list_of(object_of({"name": TEXT, "record": TEXT}))}))}
    ),
    "Decoded": object_of(
        {
            "events": list_of(
                object_of(
                    {
                        "event": {"type": ["object", "null"], "description": "Null if the record is not a change."},
                        "key": MAYBE,
                        "ignored": {"type": ["string", "null"], "description": "The kind of the record, if it is not a change."},
                    }
                )
            ),
            "count": {"type": "integer", "description": "How many events the record has."},
            "note": {"type": ["string", "null"], "description": "How a source of this format would read it otherwise."},
        }
    ),
    "NearMisses": object_of(
        {
            "near_misses": list_of(
                object_of(
                    {
                        "tenant": TEXT,
                        "id": TEXT,
                        "held": {"type": "integer", "description": "How many other conditions there are, none of which fails."},
                        "distance": {"type": "number", "description": "From 0 to 1."},
                        "condition": {"type": "object"},
                    }
                )
            ),
            "examined": COUNT,
            "complete": {"type": "boolean", "description": "Whether there are no more than were examined."},
            "next": NEXT,
        }
    ),
    "Plan": object_of({"tenant": TEXT, "id": TEXT, **_PLAN}),
    "Tried": object_of(
        {
            "good": BOOL,
            "errors": list_of(ref("Error")),
            "findings": list_of(object_of({"code": TEXT, "reason": TEXT, "related": list_of(TEXT)})),
            "plan": object_of(_PLAN),
            "tried": object_of(
                {
                    "events": {"type": "integer", "description": "Number of examined events."},
                    "complete": {"type": "boolean", "description": "Whether the list is complete."},
                    "collection": MAYBE,
                    "is_held": {"type": "boolean", "description": "Whether there is one of its id, which it is compared with."},
                    **dict.fromkeys(("matched", "matched_before", "new", "no_longer"), COUNT),
                    "examples": object_of(dict.fromkeys(("matched", "new", "no_longer"), list_of(COUNT))),
                }
            ),
        },
        *("plan", "tried"),
    ),
    "Findings": object_of(
        {
            "errors": list_of(ref("Error")),
            "findings": list_of(
                object_of({"line": COUNT, "id": TEXT, "code": TEXT, "reason": TEXT, "related": list_of(TEXT)}),
            ),
        }
    ),
    "DeadLetters": object_of({"items": list_of(object_of(_LETTER)), "next": NEXT}),
    "DeadLetter": object_of({**_LETTER, "record": TEXT, "record_base64": TEXT}, "record", "record_base64"),
    "Sources": object_of(
        {
            "items": list_of(
                object_of(
                    {
                        "name": TEXT,
                        "type": TEXT,
                        "format": TEXT,
                        "state": {"enum": ["away", "reading", "idle", "stalled", "ended"]},
                        "positions": {"type": "object", "additionalProperties": TEXT},
                        **dict.fromkeys(("read", "matched", "rejected"), COUNT),
                        **OF_SOURCES,
                    }
                )
            )
        }
    ),
    "Sinks": object_of(
        {
            "items": list_of(
                object_of(
                    {
                        "name": TEXT,
                        "type": TEXT,
                        "state": {"enum": ["working", "away", "stalled", "down", "no_room", "disabled", "removed"]},
                        "delivered": COUNT,
                        "dead": COUNT,
                        "spool": object_of({"messages": COUNT, "bytes": COUNT, "oldest_s": {"type": "number"}}),
                        **OF_SINKS,
                    },
                    *("spool", *OF_SINKS),
                )
            )
        }
    ),
    "Forgotten": object_of({"messages": COUNT}),
    "Reloaded": object_of({"changed": list_of(TEXT), "subscriptions": COUNT}),
    "LastReload": object_of({"good": BOOL, "at": TEXT, "good_at": TEXT, "error": TEXT}, "error"),
    **OBSERVED,
    "Document": {"type": "object"},
    "Text": TEXT,
    "Health": object_of({"status": {"const": "alive"}}),
    "Readiness": object_of(
        {
            "status": {"enum": ["ready", "not ready", "loading"]},
            "reason": {"enum": ["loading", "pipeline_failed", "store_gone", "store_not_writable", "away", "stalled"]},
            "subscriptions": object_of({"loaded": COUNT, "total": COUNT}),
            "seconds": {"type": "number", "minimum": 0, "description": "For how long it has been loading."},
        },
        *("reason", "subscriptions", "seconds"),
    ),
    "Error": _ERROR,
    "Problem": object_of(
        {
            "type": {"enum": [f"urn:streamer:problem:{kind}" for kind in KINDS]},
            "title": TEXT,
            "status": {"type": "integer"},
            "detail": TEXT,
            "request_id": {"type": "string", "description": "That of `X-Request-Id`, which the log has."},
            "errors": list_of(ref("Error")),
            "more_errors": COUNT,
        },
        *("request_id", "errors", "more_errors"),
    ),
}
_QUESTION: Final = {
    "type": "object",
    "properties": {
        "event": {"description": "An object; of a `format`, what a record is."},
        "id": {"type": "string"},
        "subscription": ref("Written"),
    },
    "required": ["event"],
    "not": {"required": ["id", "subscription"]},
    "additionalProperties": False,
}
_DRAFT: Final = {
    "type": "object",
    "properties": {
        "subscription": {"type": "object"},
        "text": {
            "type": "string",
            "description": "The text of a subscription, instead of `subscription`; errors name its lines.",
        },
        "id": {"type": "string", "description": "The id of the existing subscription, if the draft has none."},
    },
    "oneOf": [{"required": ["text"]}, {"required": ["subscription"]}],
    "additionalProperties": False,
}
_REPLAY: Final = {
    "type": "object",
    "properties": {
        "numbers": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 1, "maxItems": 1000},
        **dict.fromkeys(CRITERIA, TEXT),
    },
    "minProperties": 1,
    "additionalProperties": False,
    "description": "`numbers`, or some of the others.",
}
_BODIES: Final[Mapping[Body, Any]] = {
    "subscription": ref("Written"),
    "subscriptions": ref("Subscription"),
    "event": {"type": "object", "description": "An event, as `matching.format` of the configuration has it."},
    "question": _QUESTION,
    "record": {"description": "A record, as a source of the `format` has it."},
    "draft": _DRAFT,
    "replay": _REPLAY,
    "gateway": _GATEWAY,
    "configuration": {"type": "string", "description": "As a file has it."},
}
#: The problems that any route may answer, those of routes with a token, and those of routes with a body.
_ALWAYS: Final = ("bad-request", "not-acceptable", "too-slow", "too-long", "host", "origin", "internal", "unavailable", "loading")
_WITH_TOKEN: Final = ("no-token", "not-allowed", "too-many", "busy")
_WITH_BODY: Final = ("media-type",)
_WORDS: Final = {
    200: "Done",
    201: "Written for the first time",
    202: "Begun",
    204: "Done",
    304: "It is as before",
    503: "Not ready",
}


def document(limits: Limits, topic_dialect: TopicDialect) -> dict[str, Any]:
    """Return the document of an API whose engine has these limits."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Streamer",
            "version": VERSION,
            "summary": "Which of a million subscriptions want this change event?",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**_subscriptions(limits, topic_dialect), **_SCHEMAS},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "streamer tokens create makes one."}
            },
        },
    }


def _subscriptions(limits: Limits, topic_dialect: TopicDialect) -> dict[str, Any]:
    """Return the schema of a subscription and its parts, under names of their own."""
    text = json.dumps(subscription_schema(limits, topic_dialect)).replace('"#/$defs/', '"#/components/schemas/subscription-')
    schema = json.loads(text)
    parts = {f"subscription-{name}": part for name, part in schema.pop("$defs").items()}
    del schema["$schema"]
    # Files may have longer ones, and those are shown.
    schema["properties"]["id"] |= {
        "description": f"unique within a tenant; at most {MOST_ID:,} bytes of UTF-8 if you write it with this API."
    }
    # The id is in the path.
    without = {**schema, "required": [], "title": "A subscription that is written"}
    return {"Subscription": schema, "Written": without, **parts}


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "parameters": [
            *_in_path(route),
            *map(_in_query, route.params),
            *(_conditions() if route.is_conditional else ()),
            *([_LAST_ID] if route.path.endswith("/matches") else []),
        ],
        "responses": _responses(route),
        "security": [] if route.scope is None else [{"token": []}],
    }
    if route.scope is not None:
        operation["description"] = "Needs a token." if route.scope == "any" else f"Needs the scope `{route.scope}`."
    if route.body is not None:
        schema = _BODIES[route.body]
        operation["requestBody"] = {"required": True, "content": {each: {"schema": schema} for each in route.consumes}}
    return operation


def _in_path(route: Route) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name in ("id", "number", "name")
        if f"{{{name}}}" in route.path
    ]


def _in_query(param: Any) -> dict[str, Any]:
    return {"name": param.name, "in": "query", "description": param.description, "schema": dict(param.schema)}


def _conditions() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "description": what,
            # Tags with commas between them, or a star.
            "schema": {"type": "string", "pattern": r'^(\*|"[0-9]+"(, *"[0-9]+")*)$'},
        }
        for name, what in (("If-Match", "Only if it is one of these."), ("If-None-Match", "Only if it is none of these."))
    ]


_LAST_ID: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The `id` of the last received event: the ones after it are sent, or an event `reset` if they are gone.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9]{1,14}$"},
}


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, schema in route.answers.items():
        responses[str(status)] = {"description": _WORDS[status]}
        if schema is not None:
            responses[str(status)]["content"] = {route.produces: {"schema": ref(schema)}}
        if schema in ("Stored", "Gateway"):
            responses[str(status)]["headers"] = {"ETag": {"schema": TEXT}}
    kinds = [*_ALWAYS, *(_WITH_TOKEN if route.scope else ()), *(_WITH_BODY if route.body else ()), *route.problems]
    by_status: dict[int, list[str]] = {}
    for kind in kinds:
        by_status.setdefault(KINDS[kind][0], []).append(KINDS[kind][1])
    for status, titles in by_status.items():
        problem = {"schema": ref("Problem")}
        response = responses.setdefault(str(status), {"description": "; ".join(dict.fromkeys(titles))})
        response.setdefault("content", {})[MEDIA_TYPE] = problem
    return dict(sorted(responses.items()))
