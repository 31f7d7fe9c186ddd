"""The document that says what the API does (OpenAPI 3.1), made of the table of routes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from streamer.model import Limits, TopicDialect
from streamer.service.api.calls import EVENTS, Body
from streamer.service.api.problems import KINDS, MEDIA_TYPE
from streamer.service.api.routes import ROUTES, Route
from streamer.service.gateways import MOST_BATCH, MOST_SECRETS, MOST_URL
from streamer.subscriptions.schema import subscription_schema
from streamer.version import VERSION

_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "format": "date-time"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_BOOL: Final = {"type": "boolean"}
_MAYBE: Final = {"type": ["string", "null"]}
_NEXT: Final = {"type": ["string", "null"], "description": "What `cursor` takes for the next page; null on the last."}
_TRANSITION: Final = {"enum": ["enter", "stay", "leave", None]}


def _object(properties: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": [name for name in properties if name not in optional]}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_ERROR: Final = _object(
    {
        "reason": _TEXT,
        "place": {"type": "string", "description": "The member at fault, as `filters[0].op`; a JSON Pointer for an event."},
        "line": {"type": "integer", "description": "Of a body of lines, from 1."},
        "cel_line": {"type": "integer", "description": "In the expression, from 1."},
        "cel_column": {"type": "integer", "description": "In characters, from 1."},
        "offset": _COUNT,
        "code": _TEXT,
    },
    *("place", "line", "cel_line", "cel_column", "offset", "code"),
)
_LETTER: Final = {
    **dict.fromkeys(("id", "attempts", "size", "matches"), _COUNT),
    "position": {"type": ["integer", "string"], "description": "Of a replication slot a text."},
    "part": {"type": "integer"},
    **dict.fromkeys(("source", "partition", "stage", "code", "reason", "sink", "message"), _TEXT),
    "at": _TIME,
    "is_whole": _BOOL,
}
_HELD: Final = _object({"messages": _COUNT, "bytes": _COUNT, "oldest_s": {"type": "number"}})
_URL: Final = {
    "type": ["string", "null"],
    "maxLength": MOST_URL,
    "pattern": "^https?://[!-~]+$",
    "description": "Where matches are posted; null where streams read them.",
}
_SETTINGS: Final = {
    "url": _URL,
    "batch": {"type": "integer", "minimum": 1, "maximum": MOST_BATCH, "description": "Messages of a request at most."},
    "per": {"enum": ["match", "gateway"], "description": "Whether a message tells of one match, or of all of an event."},
    "event": {"enum": ["full", "reference", "none"], "description": "What a message says of its event."},
    "enabled": {"type": "boolean", "description": "Whether matches are handed out; else they wait."},
}
_GIVEN: Final = {
    **_object(
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
_SCHEMAS: Final[Mapping[str, Any]] = {
    "Gateway": _object(
        {
            "tenant": _TEXT,
            "id": _TEXT,
            "etag": _TEXT,
            "created": _TIME,
            "updated": _TIME,
            "gateway": _object(_SETTINGS),
            "secrets": {"type": "integer", "minimum": 0, "description": "How many there are."},
            "state": {"enum": ["working", "down", "gone", "off", "streams"], "description": "`gone` is after 410."},
            "pending": _HELD,
            "history": _HELD,
            "delivered": {"type": "integer", "minimum": 0, "description": "Matches since the service started."},
            "dead": {"type": "integer", "minimum": 0, "description": "Matches given up since the service started."},
        },
        *("pending", "history"),
    ),
    "Gateways": _object({"items": _list(_ref("Gateway")), "next": _NEXT}),
    "Stored": _object(
        {
            "tenant": _TEXT,
            "id": _TEXT,
            "origin": {"enum": ["files", "api"], "description": "Who wrote it, and alone may change it."},
            "etag": _TEXT,
            "created": _TIME,
            "updated": _TIME,
            "paused": _BOOL,
            "unindexed": {"type": "boolean", "description": "Whether it is a candidate for every event of its collection."},
            "lease": {
                "type": ["integer", "null"],
                "description": "Seconds that it stays each time it is renewed; null for ever.",
            },
            "expires": {"type": ["string", "null"], "format": "date-time"},
            "subscription": _ref("Subscription"),
        }
    ),
    "Subscriptions": _object({"items": _list(_ref("Stored")), "next": _NEXT}),
    "Imported": _object(
        {
            "line": _COUNT,
            "id": _TEXT,
            "result": {"enum": ["created", "replaced", "unchanged", "refused"]},
            "etag": _TEXT,
            "error": _ref("Error"),
        },
        *("id", "etag", "error"),
    ),
    "Matches": _object(
        {
            "matches": _list(
                _object({"tenant": _TEXT, "id": _TEXT, "gateway": _MAYBE, "transition": _TRANSITION, "certain": _BOOL})
            ),
            "more": {"type": "boolean", "description": "Whether there are more than `limit`."},
            "ignored": {"type": ["string", "null"], "description": "Why the event is no change; null where it is one."},
        }
    ),
    "Explanation": _object({"subscription_id": _TEXT, "matched": _BOOL}),
    "Findings": _object(
        {
            "errors": _list(_ref("Error")),
            "findings": _list(
                _object({"line": _COUNT, "id": _TEXT, "code": _TEXT, "reason": _TEXT, "related": _list(_TEXT)}),
            ),
        }
    ),
    "DeadLetters": _object({"items": _list(_object(_LETTER)), "next": _NEXT}),
    "DeadLetter": _object({**_LETTER, "record": _TEXT, "record_base64": _TEXT}, "record", "record_base64"),
    "Sources": _object(
        {
            "items": _list(
                _object(
                    {
                        "name": _TEXT,
                        "type": _TEXT,
                        "format": _TEXT,
                        "state": {"enum": ["reading", "idle", "stalled", "ended"]},
                        "positions": {"type": "object", "additionalProperties": _TEXT},
                        **dict.fromkeys(("read", "matched", "rejected"), _COUNT),
                    }
                )
            )
        }
    ),
    "Sinks": _object(
        {
            "items": _list(
                _object(
                    {
                        "name": _TEXT,
                        "type": _TEXT,
                        "state": {"enum": ["working", "stalled", "down", "disabled", "removed"]},
                        "delivered": _COUNT,
                        "dead": _COUNT,
                        "spool": _object({"messages": _COUNT, "bytes": _COUNT, "oldest_s": {"type": "number"}}),
                    },
                    "spool",
                )
            )
        }
    ),
    "Forgotten": _object({"messages": _COUNT}),
    "Reloaded": _object({"changed": _list(_TEXT), "subscriptions": _COUNT}),
    "LastReload": _object({"good": _BOOL, "at": _TEXT, "good_at": _TEXT, "error": _TEXT}, "error"),
    "Document": {"type": "object"},
    "Text": _TEXT,
    "Health": _object({"status": {"const": "alive"}}),
    "Readiness": _object(
        {
            "status": {"enum": ["ready", "not ready"]},
            "reason": {"enum": ["pipeline_failed", "store_not_writable", "stalled"]},
        },
        "reason",
    ),
    "Error": _ERROR,
    "Problem": _object(
        {
            "type": {"enum": [f"urn:streamer:problem:{kind}" for kind in KINDS]},
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "errors": _list(_ref("Error")),
            "more_errors": _COUNT,
        },
        "errors",
        "more_errors",
    ),
}
_QUESTION: Final = {
    "type": "object",
    "properties": {"event": {"type": "object"}, "id": {"type": "string"}, "subscription": _ref("Written")},
    "required": ["event"],
    "oneOf": [{"required": ["id"]}, {"required": ["subscription"]}],
    "additionalProperties": False,
}
_BODIES: Final[Mapping[Body, Any]] = {
    "subscription": _ref("Written"),
    "subscriptions": _ref("Subscription"),
    "event": {"type": "object", "description": "An event, as the `matching.layout` of the configuration has it."},
    "question": _QUESTION,
    "gateway": _GIVEN,
}
#: What any route may answer, and one that needs a token, and one that reads a body.
_ALWAYS: Final = ("bad-request", "not-acceptable", "too-slow", "too-long", "host", "origin", "internal", "unavailable")
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
    # The path says the id.
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
            *([_LAST_ID] if route.produces == EVENTS else []),
        ],
        "responses": _responses(route),
        "security": [] if route.scope is None else [{"token": []}],
    }
    if route.scope is not None:
        operation["description"] = f"Needs the scope `{route.scope}`."
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
    "description": "The `id` of the last event that was seen: what follows it is sent, or an event `reset` where that is gone.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9]{1,14}$"},
}


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, schema in route.answers.items():
        responses[str(status)] = {"description": _WORDS[status]}
        if schema is not None:
            responses[str(status)]["content"] = {route.produces: {"schema": _ref(schema)}}
        if schema in ("Stored", "Gateway"):
            responses[str(status)]["headers"] = {"ETag": {"schema": _TEXT}}
    kinds = [*_ALWAYS, *(_WITH_TOKEN if route.scope else ()), *(_WITH_BODY if route.body else ()), *route.problems]
    told: dict[int, list[str]] = {}
    for kind in kinds:
        told.setdefault(KINDS[kind][0], []).append(KINDS[kind][1])
    for status, titles in told.items():
        problem = {"schema": _ref("Problem")}
        response = responses.setdefault(str(status), {"description": "; ".join(dict.fromkeys(titles))})
        response.setdefault("content", {})[MEDIA_TYPE] = problem
    return dict(sorted(responses.items()))
