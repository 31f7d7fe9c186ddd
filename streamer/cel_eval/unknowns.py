"""The values of an event for a CEL expression, with those that its source left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from streamer.cel_eval import times
from streamer.cel_eval.values import NONE, UNKNOWN, CelReason, Failure, OptionalValue, Value, no_overload, read
from streamer.model import REST, BeyondFloat64, Event, Pointer

Unknowns: TypeAlias = dict[str, "Unknowns | None"]
"""The unknown pointers below a value, by their first token; None: the whole value is unknown."""


@final
@dataclass(frozen=True, slots=True)
class Partial:
    """A value with unknowns somewhere below: a map or list, unless the event contradicts itself."""

    value: Any
    unknowns: Unknowns


MISSING: Final = object()


def select(value: Value, name: str) -> Value:
    """Return a member of a value, `value.name`."""
    container, unknowns = (value.value, value.unknowns) if type(value) is Partial else (value, {})
    if container is UNKNOWN or type(container) is Failure:
        return container
    if type(container) is not dict:
        return no_overload(f".{name}", [container])
    return below(container.get(name, MISSING), unknowns, name)


def below(value: Any, unknowns: Unknowns, key: Value) -> Value:
    """Return the value at *key* of a container with these unknowns."""
    if type(key) is str and key in unknowns:
        below = unknowns[key]
        # A missing value above an unknown is unknown, too, because the source left it out.
        if below is None or value is MISSING:
            return UNKNOWN
        if type(value) is not BeyondFloat64:
            return Partial(value, below)
    if value is MISSING:
        if type(key) is str and REST in unknowns:
            return UNKNOWN
        return Failure(CelReason.NO_SUCH_FIELD, f"no such field: {_shown(key)}")
    return read(value)


# --- optionals: one whose value has unknowns below is a `Partial` ------------------------------------------------------


def is_optional(value: Value) -> bool:
    return type(value) is OptionalValue or (type(value) is Partial and type(value.value) is OptionalValue)


def content(value: Value) -> Value:
    """Return the value of an optional, NONE if it has none; any other value as it is."""
    match value:
        case OptionalValue():
            return value.value if value.has_value else NONE
        case Partial(OptionalValue() as optional, unknowns):
            return Partial(optional.value, unknowns)
        case _:
            return value


def some(value: Value) -> Value:
    """Return an optional with a value, which is neither an error nor unknown."""
    return Partial(OptionalValue(value.value), value.unknowns) if type(value) is Partial else OptionalValue(value)


_ABSENT: Final = frozenset({CelReason.NO_SUCH_FIELD, CelReason.INDEX_OUT_OF_RANGE})


def result_or_none(result: Value, *operands: Value) -> Value:
    """Return the result of a select or an index of *operands* as an optional: none if only the member is missing."""
    if result is UNKNOWN:
        return result
    if type(result) is not Failure:
        return some(result)
    is_absent = result.reason in _ABSENT and not any(type(operand) is Failure for operand in operands)
    return NONE if is_absent else result


def _shown(key: Value) -> str:
    return repr(key) if type(key) is not str or len(key) <= 60 else f"{key[:60]!r}..."


def variables(event: Event) -> dict[str, Value]:
    """Return the variables of an expression for one event."""
    return {
        **{root: _document(*event.document(root)) for root in ("data", "before", "envelope")},
        "collection": event.collection or "",
        "tenant": event.tenant,
        "type": event.type or "",
        "topic": event.topic or "",
        "ts": None if event.ts_ns is None else times.timestamp(event.ts_ns),
        **dict.fromkeys(event.unknown_parts, UNKNOWN),
    }


def _document(document: Mapping[str, Any] | None, at: Pointer | None, unknown: tuple[Pointer, ...]) -> Value:
    """Return `data` or `before` with its unknowns; the pointers in *unknown* start at the root of the event."""
    if at is None or not unknown:
        return document
    unknowns: Unknowns = {}
    for pointer in unknown:
        if at[: len(pointer)] == pointer:
            return UNKNOWN
        if pointer[: len(at)] != at:
            continue
        *way, last = pointer[len(at) :]
        level: Unknowns | None = unknowns
        for token in way:
            level = level.setdefault(token, {}) if level is not None else None
        if level is not None:
            level[last] = None
    if not unknowns:
        return document
    return UNKNOWN if document is None else Partial(document, unknowns)
