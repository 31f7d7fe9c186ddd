"""Functions that all decoders share: read a message, and build an event."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from typing import Any, Final, Literal, TypeAlias

from streamer.errors import EventCode, EventError
from streamer.events.layout import EVENT_TYPES, IGNORE, EventLayout, encode_pointer
from streamer.events.literal_json import OBJECT, Message, named, parsed, written

ChangeEvent: TypeAlias = dict[str, Any]
"""An event of the layout `LAYOUT`."""

ChangeType: TypeAlias = Literal["insert", "update", "delete"]

Keyed: TypeAlias = tuple[ChangeEvent, Sequence[Any] | None]
"""An event, and the values of its key in their order; None if the message has no key."""

LAYOUT: Final = EventLayout(
    envelope="/envelope",
    before_holds="partial",
    type_map={**{word: word for word in EVENT_TYPES}, IGNORE: IGNORE},
    format="cdc",
)
"""Of every decoder's events: the parts of a change event (docs/semantics.md section 1). A source that sends less than the whole
document before a change leaves the rest unknown. A change with `partial: true` leaves every member unknown that it lacks."""


def read(message: Message, what: str, place: str = "") -> Mapping[str, Any]:
    """Return a message as an object; *place* is its place if it is inside another message.

    Args:
        what: the name of the format, for the error.

    Raises:
        EventError: the message is not a JSON object.
    """
    value = parsed(message, what)
    if not isinstance(value, OBJECT):
        reason = f"{what}: a message is a JSON object, not {named(value)}"
        raise EventError(EventCode.NOT_AN_OBJECT, reason, place=place)
    return value


_WORDS: Final[dict[type, str]] = {Mapping: "an object", list: "an array", str: "a string", int: "an integer"}


def part(message: Mapping[str, Any], name: str, kind: type, what: str, place: str = "") -> Any:
    """Return a member of a message, or None if it is null or missing. Raises EventError if it has another type than *kind*."""
    value = message.get(name)
    is_kind = isinstance(value, OBJECT if kind is Mapping else kind) and (kind is not int or not isinstance(value, bool))
    if value is not None and not is_kind:
        reason = f"{what}: {name} is {_WORDS[kind]}, not {named(value)}"
        raise EventError(EventCode.WRONG_TYPE, reason, place=place + encode_pointer((name,)))
    return value


def needed(message: Mapping[str, Any], name: str, kind: type, what: str, place: str = "") -> Any:
    """Return a member of a message, as `part` does. Raises EventError also if it is missing."""
    value = part(message, name, kind, what, place)
    if value is None:
        raise EventError(EventCode.WRONG_TYPE, f"{what}: {name} is missing", place=place + encode_pointer((name,)))
    return value


def change(
    kind: ChangeType,
    collection: str,
    *,
    data: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    unknown: Iterable[str] = (),
    ts: int | None = None,
    event_id: str | None = None,
) -> ChangeEvent:
    """Return an event; parts that are None are left out.

    Args:
        unknown: the names of members of `data` that the message does not contain.
        ts: milliseconds since the epoch.
    """
    parts = {"id": event_id, "type": kind, "collection": collection, "ts": ts, "data": data, "before": before}
    event: ChangeEvent = {name: value for name, value in parts.items() if value is not None}
    pointers = [encode_pointer(("data", name)) for name in unknown]
    return event | {"unknown": pointers} if pointers else event


def without_document(
    kind: ChangeType,
    collection: str,
    *,
    before: Mapping[str, Any] | None = None,
    ts: int | None = None,
    event_id: str | None = None,
) -> ChangeEvent:
    """Return an event whose document after the change is unknown."""
    return change(kind, collection, before=before, ts=ts, event_id=event_id) | {"unknown": ["/data"]}


def no_change(what: str) -> ChangeEvent:
    """Return an event that the engine ignores and counts; *what* describes the message, such as `a truncate`."""
    return {"type": IGNORE, "ignored": what}


def within(rows: Sequence[Any], most: int | None, what: str, place: str) -> None:
    """Raise EventError if a message has more than *most* events; *place* is the place of its *rows*."""
    if most is not None and len(rows) > most:
        reason = f"{what}: the record has {len(rows):,} events: expected at most {most:,}"
        raise EventError(EventCode.TOO_LONG, reason, place=place)


#: The most columns of a row, and members of a record: more than any database has.
MOST_COLUMNS: Final = 65_536


def columns_within(columns: Sized, what: str, place: str) -> None:
    """Raise EventError if a row or a record has too many members."""
    if len(columns) > MOST_COLUMNS:
        raise EventError(EventCode.TOO_LONG, f"{what}: {len(columns):,} members: expected at most {MOST_COLUMNS:,}", place=place)


def is_moved(key: Collection[str], before: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Return whether an update changes the key, which makes it a delete and an insert. A value that is missing did not change."""
    return any(_differ(before[name], data[name]) for name in key if name in before and name in data)


def _differ(value: Any, other: Any) -> bool:
    if type(value) is type(other) and type(value) in (int, str):
        return bool(value != other)
    try:
        # Numbers beyond float64 differ only in their spelling.
        return written(value) != written(other)
    except ValueError:  # an infinity or NaN, which a message that is a dict can have
        return bool(value != other)
