"""The JSON Schema of the events of a layout (2020-12), for editors and for authors of events: generated from the layout.

Invariant: an engine with the layout refuses every event that the schema refuses. An engine refuses more, such as a duplicate name
of the envelope; tests/unit/test_schemas.py lists the errors that a schema cannot express.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from streamer.events.layout import IGNORE, PARTS, POINTER, EventLayout, Way
from streamer.events.timestamps import EARLIEST_NS, LATEST_NS, NANOSECONDS, RFC3339
from streamer.model import INT64_MIN, UINT64_MAX, Pointer

Schema: TypeAlias = dict[str, Any]

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_WORDS: Final[Mapping[str, str]] = {
    "id": "The event's id.",
    "tenant": "The owner of the event; left out, the engine's `default_tenant`.",
    "collection": "The collection of the document.",
    "type": "What happened to the document.",
    "ts": "When it happened at the source.",
    "topic": "The routing key.",
    "data": "The document after the change.",
    "before": "The document before the change.",
    "unknown": "JSON Pointers, from the event's root, of values that the source did not carry.",
}
_NAME: Final[Schema] = {"type": ["string", "null"]}


def event_schema(layout: EventLayout | None = None) -> Schema:
    """Return the JSON Schema of an event.

    Args:
        layout: the layout of the events; by default that of the preset `change`.
    """
    layout = EventLayout() if layout is None else layout
    if layout.has_changes:
        # The layout describes the changes in a record, not the record.
        whole = f"A record of {layout.format}; null is one without a value, which has no matches."
        kind: Schema = {"type": ["object", "null"]}
        if layout.format == "pgoutput":
            kind = {"type": ["string", "null"], "pattern": r"^(\\x([0-9a-fA-F]{2})*)?\s*$"}
        return {"$schema": DRAFT, "title": "Streamer's event", "description": whole, **kind}
    schema: Schema = {}
    for part in PARTS:
        for pointer in layout.pointers(part):
            _describe(schema, pointer, _WORDS[part])
    conditions: list[Schema] = []
    for part in PARTS:
        conditions += _conditions(layout, part)
    rules: Schema = {"allOf": conditions}
    if (ignored := list(_ignored(layout))) and conditions:
        # The other parts of an ignored event may have any value.
        rules = {"if": {"anyOf": ignored}, "else": rules}
    return {
        "$schema": DRAFT,
        "title": "Streamer's event",
        "description": "A change event; null is one without a value, which has no matches.",
        "type": ["object", "null"],
        **schema,
        **(rules if conditions else {}),
    }


def _describe(schema: Schema, pointer: Pointer, words: str) -> None:
    """Add a description to the value at a pointer; if two parts are there, it has both descriptions."""
    for name in pointer:
        schema = schema.setdefault("properties", {}).setdefault(name, {})
    if pointer:
        schema["description"] = " ".join(filter(None, (schema.get("description"), words)))


def _conditions(layout: EventLayout, part: str) -> Iterator[Schema]:
    """Yield the schema of a part at each of its possible places: it applies if no earlier place has the part."""
    missing: list[Schema] = []
    for way in layout.ways(part):
        pointers = _pointers(way)
        kind = _kind(layout, part) if len(way) == 1 else _NAME
        for pointer in pointers:
            condition = _at(pointer, kind)
            yield {"if": {"allOf": list(missing)}, "then": condition} if missing else condition
        missing.append({"not": {"allOf": [_stands(pointer) for pointer in pointers]}})


def _ignored(layout: EventLayout) -> Iterator[Schema]:
    """Yield the conditions that make an event ignored, by its type or because it has no change."""
    words = [word for word in layout.type_words if layout.event_type(word) == IGNORE]
    missing: list[Schema] = []
    for way in layout.ways("type"):
        (pointer,) = _pointers(way)
        if words:
            yield {"allOf": [*missing, _stands(pointer, {"enum": words})]}
        missing.append({"not": _stands(pointer)})
    if layout.no_change == "ignore":
        ways = [way for part in ("type", "data", "before", "unknown") for way in layout.ways(part)]
        yield {"allOf": [{"not": _stands(pointer)} for way in ways for pointer in _pointers(way)]}


def _pointers(way: Way) -> list[Pointer]:
    return [step for step in way if not isinstance(step, str)]


def _at(pointer: Pointer, schema: Schema) -> Schema:
    """Return a schema that applies *schema* to the value at a pointer, if there is one."""
    for name in reversed(pointer):
        schema = {"properties": {name: schema}}
    return schema


def _stands(pointer: Pointer, schema: Schema | None = None) -> Schema:
    """Return a schema that requires a value at a pointer: one that fits *schema*, by default any but null."""
    condition: Schema = {"not": {"type": "null"}} if schema is None else schema
    for name in reversed(pointer):
        condition = {"type": "object", "required": [name], "properties": {name: condition}}
    return condition


def _kind(layout: EventLayout, part: str) -> Schema:
    """Return the schema of a part's value; null counts as missing."""
    if part == "id":
        return {"type": ["string", "integer", "null"], "minimum": INT64_MIN, "maximum": UINT64_MAX}
    if part in ("tenant", "collection"):
        return {**_NAME, "not": {"const": "*"}}
    if part == "type":
        return {"enum": [*layout.type_words, None]}
    if part == "ts":
        if layout.ts_format == "rfc3339":
            return {"type": ["string", "null"], "pattern": f"^(?:{RFC3339.pattern})$"}
        if layout.format == "debezium":
            return {"type": ["integer", "null"]}  # a time outside of the years 1 to 9999 is missing
        unit = NANOSECONDS[layout.ts_format]
        return {"type": ["integer", "null"], "minimum": -(-EARLIEST_NS // unit), "maximum": LATEST_NS // unit}
    if part in ("data", "before"):
        if layout.format == "cloudevents":
            return {}
        if layout.encoded is None:
            return {"type": ["object", "null"]}
        return {"type": ["object", "string", "null"], "contentMediaType": "application/json"}
    if part == "unknown":
        return {"type": ["array", "null"], "items": {"type": "string", "pattern": f"^({POINTER})?$"}}
    return _NAME
