"""The JSON Schema of a subscription (2020-12), for editors: generated from the tables that the parser uses.

Invariant: the parser refuses every subscription that the schema refuses. The parser refuses more, such as CEL that does not
compile, or a duplicate name; tests/unit/test_schemas.py lists the errors that a schema cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, get_args

from streamer.events.layout import POINTER
from streamer.events.schema import DRAFT, Schema
from streamer.model import Dialect, Limits, TopicDialect
from streamer.subscriptions.filters import MAX_FIELD_BYTES, ROOTS
from streamer.subscriptions.operands import FOLDED, MAX_REGEXP_BYTES, NOTHING, REGEXP, Operand
from streamer.subscriptions.operators import IGNORING_CASE, OPERATORS
from streamer.subscriptions.parse import READ
from streamer.subscriptions.patterns import EXCLUDABLE, EXCLUSIVE, OPERATOR_NAMES, OPERATORS_OF
from streamer.subscriptions.subscription import GROUPS, Filter, Subscription

_TEXT: Final[Schema] = {"type": "string"}
_SOME_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_NUMBER: Final[Schema] = {"type": "number"}
_ONE_MEMBER: Final[Schema] = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
_AFFIX: Final[Schema] = {
    "type": ["string", "object"],
    "properties": {"equals-ignore-case": _TEXT},
    **_ONE_MEMBER,
}
#: Two stars in a row are invalid; a backslash precedes only a star or a backslash.
_WILDCARD: Final[Schema] = {"type": "string", "pattern": r"^([^*\\]|\\[*\\]|[*](?![*]))*$"}
_EXCLUDED: Final[Mapping[str, Schema]] = {"prefix": _SOME_TEXT, "suffix": _SOME_TEXT, "wildcard": _WILDCARD}

#: The operand of each operator of a pattern, and its meaning in words. A schema has the operators that the parser has.
_MATCHERS: Final[Mapping[str, Schema]] = {
    "prefix": {"description": "A text that begins so.", **_AFFIX},
    "suffix": {"description": "A text that ends so.", **_AFFIX},
    "equals-ignore-case": {"description": "The text, in letters of either case.", **_TEXT},
    "wildcard": {"description": "A text of this form: `*` stands for any characters, `\\*` for a star.", **_WILDCARD},
    "shellstyle": {
        "description": "A text of this form: `*` stands for any characters.",
        "type": "string",
        "not": {"pattern": "[*][*]"},
    },
    "regexp": {"description": "A text that is this regexp from its beginning to its end.", **_TEXT},
    "numeric": {
        "description": 'A number in a range: `["=", 5]`, `[">", 0]`, `[">=", 0, "<", 5]`.',
        "type": "array",
        "minItems": 2,
        "if": {"maxItems": 2},
        "then": {"prefixItems": [{"enum": ["=", "<", "<=", ">", ">="]}, _NUMBER]},
        "else": {
            "prefixItems": [{"enum": [">", ">="]}, _NUMBER, {"enum": ["<", "<="]}, _NUMBER],
            "minItems": 4,
            "maxItems": 4,
        },
    },
    "cidr": {"description": "An address of this network, such as `10.0.0.0/24`.", **_TEXT},
    "exists": {"description": "true: the field is there; false: it is not.", "type": "boolean"},
    "anything-but": {
        "description": "Anything except this text or number, those of a list, or the values of another operator.",
        "type": ["string", "number", "array", "object"],
        "minItems": 1,
        "anyOf": [{"items": _TEXT}, {"items": _NUMBER}],
        "properties": {
            name: {**_EXCLUDED.get(name, _TEXT), "type": ["string", "array"], "items": _EXCLUDED.get(name, _TEXT), "minItems": 1}
            for name in EXCLUDABLE
        },
        **_ONE_MEMBER,
    },
    "exactly": {"description": "The text itself, as Event Ruler writes it.", **_TEXT},
    "all": {
        "description": "A value that satisfies each of these.",
        "type": "array",
        "minItems": 1,
        "items": {"$ref": "#/$defs/element", "properties": {"all": False, "exists": {"const": True}}},
    },
}


#: A filter that compares `before` with `data` has no other root.
_WITH_BEFORE: Final[Schema] = {
    "if": {"properties": {"op": {"enum": [row.name for row in OPERATORS.values() if row.mentions_before]}}, "required": ["op"]},
    "then": {"properties": {"root": {"const": "data"}}},
}

#: Of the operators that may ignore case, some then take only a text.
_IGNORING: Final[Schema] = {
    "if": {"properties": {"ignore_case": {"const": True}}, "required": ["ignore_case"]},
    "then": {
        "properties": {"op": {"enum": list(IGNORING_CASE)}},
        "if": {"properties": {"op": {"enum": [row.name for row in IGNORING_CASE.values() if row.operand is FOLDED]}}},
        "then": {"properties": {"value": {"type": list(FOLDED.types)}}},
    },
}

#: The rules of a topic pattern by dialect, except the number of its words.
_TOPICS: Final[Mapping[TopicDialect, Schema]] = {
    "amqp": {},
    "mqtt": {
        "minLength": 1,
        "pattern": r"^(?!\$share/)(?:#|(?:\+|[^/+#\u0000]*)(?:/(?:\+|[^/+#\u0000]*))*(?:/#)?)$(?!\n)",
    },
    "nats": {
        "pattern": r"^(?:(?!>\.)[^.\u0000 \t\n\f\r]+\.)*[^.\u0000 \t\n\f\r]+$(?!\n)",
    },
}


def subscription_schema(limits: Limits | None = None, topic_dialect: TopicDialect = "amqp") -> Schema:
    """Return the JSON Schema of a subscription.

    Args:
        limits: the limits of the engine that will accept it; by default the default limits of an engine.
        topic_dialect: the `topic_dialect` of this engine.
    """
    limits = Limits() if limits is None else limits
    words = arguments(Subscription)
    members = {name: {"description": words.get(name, ""), **member.schema} for name, member in READ.items()}
    members["filters"] |= {"items": {"$ref": "#/$defs/entry"}, "maxItems": limits.max_conditions}
    # Both limits are in bytes, and a text has at least one byte per character.
    members["cel"]["maxLength"] = limits.max_cel_bytes
    return {
        "$schema": DRAFT,
        "title": "Streamer's subscription",
        "description": "The change events that a subscriber wants. All given parts must be true; a part left out is true.",
        "type": "object",
        "required": ["id"],
        "additionalProperties": False,
        "properties": members,
        "if": {"properties": {"dialect": {"const": "strict"}}, "required": ["dialect"]},
        "then": {"properties": {"pattern": {"$ref": "#/$defs/strict"}}},
        "else": {"properties": {"pattern": {"$ref": "#/$defs/eventbridge"}}},
        "allOf": [_of_topic(dialect, dialect == topic_dialect) for dialect in get_args(TopicDialect) if _TOPICS[dialect]],
        "$defs": {
            "entry": {
                "type": "object",
                "if": {"anyOf": [{"required": [op]} for op in GROUPS]},
                "then": {"$ref": "#/$defs/group"},
                "else": {"$ref": "#/$defs/filter"},
            },
            "group": _group(),
            "filter": _filter(limits),
            "element": {
                "description": "A value, or one operator.",
                "type": ["string", "number", "boolean", "null", "object"],
                "properties": {name: _MATCHERS[name] for name in OPERATORS_OF["eventbridge"]},
                **_ONE_MEMBER,
            },
            **{dialect: _pattern(dialect) for dialect in get_args(Dialect)},
            **{f"{dialect}-values": _values(dialect, limits) for dialect in get_args(Dialect)},
        },
    }


def arguments(documented: type) -> dict[str, str]:
    """Return the docstring of each argument of a class; empty if Python runs without docstrings."""
    section = (documented.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
    return {name: " ".join(text.split()) for name, text in re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", section, re.M)}


def _group() -> Schema:
    entry: Schema = {"$ref": "#/$defs/entry"}
    entries: Schema = {"type": "array", "minItems": 1, "items": entry}
    return {
        "description": "A group of filters.",
        "properties": {
            "any": {"description": "At least one of these is true.", **entries},
            "all": {"description": "Each of these is true.", **entries},
            "not": {"description": "This is false.", **entry},
        },
        **_ONE_MEMBER,
    }


def _filter(limits: Limits) -> Schema:
    words = arguments(Filter)
    takes: dict[int, list[str]] = {}
    for row in OPERATORS.values():
        takes.setdefault(id(row.operand), []).append(row.name)
    return {
        "description": "One condition on a field of the document or of the envelope.",
        "type": "object",
        "required": ["field", "op"],
        "additionalProperties": False,
        "properties": {
            "field": {
                "description": words.get("field", ""),
                "type": "string",
                "pattern": f"^({POINTER}|[^./][^.]*([.][^.]+)*)$",
                "maxLength": MAX_FIELD_BYTES,
            },
            "op": {
                "description": words.get("op", ""),
                "oneOf": [{"const": row.name, "description": f"The field {row.words}."} for row in OPERATORS.values()],
            },
            "value": {"description": words.get("value", "")},
            "root": {"description": words.get("root", ""), "enum": list(ROOTS), "default": "data"},
            "ignore_case": {"description": words.get("ignore_case", ""), "type": "boolean", "default": False},
        },
        "allOf": [*(_with_value(names, limits) for names in takes.values()), _WITH_BEFORE, _IGNORING],
    }


def _with_value(names: Sequence[str], limits: Limits) -> Schema:
    """Return the schema of operators that accept the same values."""
    operand = OPERATORS[names[0]].operand
    value = {"properties": {"value": _operand(operand, limits)}, "required": ["value"]}
    return {
        "if": {"properties": {"op": {"enum": list(names)}}, "required": ["op"]},
        "then": {"properties": {"value": False}} if operand is NOTHING else value,
    }


def _operand(operand: Operand, limits: Limits) -> Schema:
    schema: Schema = {"type": list(operand.types)}
    if operand is REGEXP:
        schema["maxLength"] = MAX_REGEXP_BYTES
    if operand.element is not None:
        schema |= {"items": _operand(operand.element, limits), "maxItems": limits.max_alternatives}
    return schema


def _of_topic(dialect: TopicDialect, is_default: bool) -> Schema:
    """Return the rules for subscriptions whose topic pattern has a dialect."""
    condition = {"properties": {"topic_dialect": {"const": dialect}}}
    return {
        "if": condition if is_default else {**condition, "required": ["topic_dialect"]},
        "then": {"properties": {"topic": _TOPICS[dialect]}},
    }


def _pattern(dialect: Dialect) -> Schema:
    """Return the schema of an object in a pattern, whose members are arrays of values and objects."""
    below = {
        "type": ["array", "object"],
        "if": {"type": "array"},
        "then": {"$ref": f"#/$defs/{dialect}-values"},
        "else": {"$ref": f"#/$defs/{dialect}"},
    }
    schema: Schema = {"minProperties": 1, "additionalProperties": below}
    if dialect != "strict":
        # If an object in it has the name of an operator, `$or` is an ordinary field.
        alternatives = {
            "type": "array",
            "contains": {"type": "object"},
            "minContains": 2,
            "items": {"propertyNames": {"not": {"enum": sorted(OPERATOR_NAMES)}}},
        }
        schema["properties"] = {
            "$or": {
                "description": "Alternatives, at least two objects, of which one must be true.",
                "if": alternatives,
                "then": {"items": {"type": "object", "$ref": f"#/$defs/{dialect}"}},
                "else": below,
            }
        }
    return schema


def _values(dialect: Dialect, limits: Limits) -> Schema:
    schema: Schema = {
        "description": "The allowed values of the field: one of these.",
        "items": {"$ref": "#/$defs/element"},
        "maxItems": limits.max_alternatives,
    }
    if dialect != "strict":
        return {**schema, "minItems": 1}
    alone = {"items": {"properties": dict.fromkeys(sorted(EXCLUSIVE), False)}}
    lacking = {name: False for name in _MATCHERS if name not in OPERATORS_OF[dialect]}
    known = {"allOf": [schema.pop("items"), {"properties": lacking}]}
    return {**schema, "items": known, "if": {"minItems": 2}, "then": alone}
