"""Events of MongoDB's change streams, as Extended JSON (`bson.json_util.dumps` of what `watch` yields).

An update has the whole document only if the stream was opened with `full_document`, and the document before the change only with
`full_document_before_change`. Otherwise, they are unknown. `updateLookup` reads the document when the event is read, which may be
later than the change; `required` and `whenAvailable` return the document right after the change.
https://www.mongodb.com/docs/manual/reference/change-events/
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from streamer.cdc.json import Message, Number, named, number
from streamer.cdc.messages import ChangeEvent, ChangeType, Keyed, change, needed, no_change, part, without_document
from streamer.cdc.messages import read as read_object
from streamer.errors import EventCode, EventError
from streamer.events.layout import encode_pointer
from streamer.events.reading import parse_rfc3339

_TYPES: Final[dict[str, ChangeType]] = {"insert": "insert", "update": "update", "replace": "update", "delete": "delete"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHAT: Final = "mongodb"
#: The nesting limit of MongoDB; it bounds the recursion.
_MAX_DEPTH: Final = 100


def decode(message: Message) -> list[ChangeEvent]:
    """Return the change of an event, as `read` does, without its key."""
    return [event for event, _ in read(message)]


def read(message: Message) -> list[Keyed]:
    """Return the change of an event, and the values of its `documentKey`. The collection is `database.collection`.

    In Extended JSON, object ids and UUIDs become text, numbers become numbers, and dates become RFC 3339 text. Other types, such
    as regular expressions, stay objects.

    Raises:
        EventError: the message is not an event of a change stream.
    """
    members = read_object(message, _WHAT)
    word = needed(members, "operationType", str, _WHAT)
    kind = _TYPES.get(word)
    if kind is None:
        return [(no_change(f"the operation {word[:40]!r}, which changes no document"), None)]
    space = needed(members, "ns", Mapping, _WHAT)
    collection = f"{needed(space, 'db', str, _WHAT, '/ns')}.{needed(space, 'coll', str, _WHAT, '/ns')}"
    new, before, key = (_document(members, name) for name in ("fullDocument", "fullDocumentBeforeChange", "documentKey"))
    ts, event_id = _milliseconds(members), _token(members)
    if kind == "delete":
        event = change(kind, collection, before=key if before is None else before, ts=ts, event_id=event_id)
    elif new is None:
        event = without_document(kind, collection, before=before, ts=ts, event_id=event_id)
    else:
        event = change(kind, collection, data=new, before=before, ts=ts, event_id=event_id)
    return [(event, _key(members.get("documentKey")))]


def plain(document: Mapping[str, Any], place: str, what: str = _WHAT) -> dict[str, Any]:
    """Return a document of Extended JSON, relaxed or canonical, as `read` does. Raises EventError."""
    return {name: _value(value, f"{place}{encode_pointer((name,))}", 0, what) for name, value in document.items()}


def _key(key: Mapping[str, Any] | None) -> Sequence[Any]:
    values = [key[name] for name in sorted(key)] if key else []
    return [value.get("$oid", value) if isinstance(value, Mapping) else value for value in values]


def _document(members: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    document = part(members, name, Mapping, _WHAT)
    return None if document is None else plain(document, f"/{name}")


def _token(members: Mapping[str, Any]) -> str | None:
    token = part(members, "_id", Mapping, _WHAT) or {}
    data = token.get("_data")
    return data if isinstance(data, str) else None


def _milliseconds(members: Mapping[str, Any]) -> int | None:
    wall = members.get("wallTime")
    if isinstance(wall, Mapping) and "$date" in wall:
        return (_moment(wall["$date"], "/wallTime") - _EPOCH) // timedelta(milliseconds=1)
    cluster = members.get("clusterTime")
    stamp = cluster.get("$timestamp") if isinstance(cluster, Mapping) else None
    seconds = stamp.get("t") if isinstance(stamp, Mapping) else None
    return seconds * 1000 if isinstance(seconds, int) else None


def _value(given: Any, place: str, depth: int, what: str) -> Any:
    if depth > _MAX_DEPTH:
        raise EventError(EventCode.TOO_DEEP, f"{what}: nested deeper than {_MAX_DEPTH}", place=place)
    if isinstance(given, list):
        return [_value(item, f"{place}/{at}", depth + 1, what) for at, item in enumerate(given)]
    if not isinstance(given, Mapping):
        return given
    if len(given) == 1 and (found := _scalar(given, place, what)) is not given:
        return found
    if "$date" in given and len(given) == 1:
        return given
    return {name: _value(member, f"{place}{encode_pointer((name,))}", depth + 1, what) for name, member in given.items()}


def _scalar(given: Mapping[str, Any], place: str, what: str) -> Any:
    """Return the value of an object with one member, or the object itself if it is no value of Extended JSON."""
    ((name, value),) = given.items()
    if name in ("$oid", "$uuid", "$symbol") and isinstance(value, str):
        return value
    if name in ("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal") and isinstance(value, str):
        return _number(value, place, what)
    if name == "$date":
        return _date(value, given, place)
    return given if name != "$binary" or (uuid := _uuid(value)) is None else uuid


def lenient(given: Any, depth: int = 0) -> Any:
    """Return a document as `plain` does, in which a value that cannot be read stays as it is."""
    if depth > _MAX_DEPTH:
        return given
    if isinstance(given, list):
        return [lenient(item, depth + 1) for item in given]
    if not isinstance(given, Mapping):
        return given
    if len(given) == 1 and depth:
        with suppress(EventError):
            if (found := _scalar(given, "", _WHAT)) is not given:
                return found
    return {name: member if name == "$date" else lenient(member, depth + 1) for name, member in given.items()}


def _number(text: str, place: str, what: str) -> int | Number | str:
    if text in ("NaN", "Infinity", "-Infinity"):
        # JSON has no such number, so the value stays text.
        return text
    try:
        return number(text)
    except ValueError as error:
        raise EventError(EventCode.BAD_VALUE, f"{what}: {error}", place=place) from None


def _date(value: Any, given: Any, place: str) -> Any:
    """Return a date as text. A date outside the years 1 to 9999, which MongoDB allows, stays an object."""
    inner = value.get("$numberLong") if isinstance(value, Mapping) else value
    if isinstance(inner, int | str) and not isinstance(inner, bool):
        try:
            return _moment(value, place).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        except EventError:
            if isinstance(inner, int) or _FAR_DATE(inner):
                return given
            raise
    return _moment(value, place).isoformat()


#: Milliseconds, or a text whose year has another number of digits than four, or is 0000.
_FAR_DATE: Final = re.compile(r"-?[1-9][0-9]{11,19}|[+-]?(?:[0-9]{5,}|[+-][0-9]{4}|0000)-[0-9]{2}-[0-9]{2}T.*").fullmatch


def _uuid(value: Any) -> str | None:
    """Return the UUID in a binary value of subtype 4 in Extended JSON; None for any other value."""
    if not isinstance(value, Mapping) or str(value.get("subType")).lstrip("0") != "4" or not isinstance(value.get("base64"), str):
        return None
    try:
        return str(UUID(bytes=base64.b64decode(value["base64"], validate=True)))
    except (binascii.Error, ValueError):
        return None


def _moment(given: Any, place: str) -> datetime:
    """Return the time of a `$date`: milliseconds since the epoch, or text."""
    given = given.get("$numberLong") if isinstance(given, Mapping) else given
    try:
        if isinstance(given, str):
            given = number(given) if given.lstrip("-").isdigit() else parse_rfc3339(given) // 10**6
        if not isinstance(given, int) or isinstance(given, bool):
            raise ValueError
        return _EPOCH + timedelta(milliseconds=given)
    except (ValueError, OverflowError):
        shown = repr(given)[:40] if isinstance(given, str | int | float) else named(given)
        reason = f"{_WHAT}: expected milliseconds or RFC 3339 in $date, as 2026-01-31T12:00:00.5Z, not {shown}"
        raise EventError(EventCode.BAD_TIMESTAMP, reason, place=place) from None
