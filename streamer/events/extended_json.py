"""MongoDB's Extended JSON as plain JSON: object ids and UUIDs as text, numbers as numbers, dates as RFC 3339 text.

Other types, such as regular expressions, stay objects.
https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from streamer.errors import EventCode, EventError
from streamer.events.layout import encode_pointer
from streamer.events.literal_json import Number, named, number
from streamer.events.timestamps import parse_rfc3339

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHAT: Final = "mongodb"
#: The nesting limit of MongoDB; it bounds the recursion.
_MAX_DEPTH: Final = 100


def plain(document: Mapping[str, Any], place: str, what: str = _WHAT) -> dict[str, Any]:
    """Return a document, relaxed or canonical, as plain JSON. Raises EventError, which names the format *what*."""
    return {name: _value(value, f"{place}{encode_pointer((name,))}", 0, what) for name, value in document.items()}


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
            return moment(value, place).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        except EventError:
            if isinstance(inner, int) or _FAR_DATE(inner):
                return given
            raise
    return moment(value, place).isoformat()


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


def moment(given: Any, place: str) -> datetime:
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
