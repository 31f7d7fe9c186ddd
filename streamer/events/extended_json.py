"""MongoDB's Extended JSON as plain JSON: object ids and UUIDs as text, numbers as numbers, dates as RFC 3339 text.

Other types, such as regular expressions, stay objects.
https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from streamer.errors import EventCode, EventError
from streamer.events.literal_json import named, number
from streamer.events.timestamps import parse_rfc3339

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHAT: Final = "mongodb"
#: The nesting limit of MongoDB; it bounds the recursion.
_MAX_DEPTH: Final = 100


def plain(document: Any, depth: int = 0) -> Any:
    """Return a document, relaxed or canonical, as plain JSON. A value that cannot be read stays as it is."""
    if depth > _MAX_DEPTH:
        return document
    if isinstance(document, list):
        return [plain(item, depth + 1) for item in document]
    if not isinstance(document, Mapping):
        return document
    if len(document) == 1 and depth:
        with suppress(EventError, ValueError):
            if (scalar := _scalar(document)) is not document:
                return scalar
    return {name: member if name == "$date" else plain(member, depth + 1) for name, member in document.items()}


def _scalar(wrapper: Mapping[str, Any]) -> Any:
    """Return the value of an object with one member, or the object itself if it is no value of Extended JSON."""
    ((name, value),) = wrapper.items()
    if name in ("$oid", "$uuid", "$symbol") and isinstance(value, str):
        return value
    if name in ("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal") and isinstance(value, str):
        # JSON has no such number, so the value stays text.
        return value if value in ("NaN", "Infinity", "-Infinity") else number(value)
    if name == "$date":
        return moment(value, "").isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return wrapper if name != "$binary" or (uuid := _uuid(value)) is None else uuid


def _uuid(value: Any) -> str | None:
    """Return the UUID in a binary value of subtype 4 in Extended JSON; None for any other value."""
    if not isinstance(value, Mapping) or str(value.get("subType")).lstrip("0") != "4" or not isinstance(value.get("base64"), str):
        return None
    try:
        return str(UUID(bytes=base64.b64decode(value["base64"], validate=True)))
    except (binascii.Error, ValueError):
        return None


def moment(value: Any, place: str) -> datetime:
    """Return the time of a `$date`: milliseconds since the epoch, or text."""
    value = value.get("$numberLong") if isinstance(value, Mapping) else value
    try:
        if isinstance(value, str):
            value = number(value) if value.lstrip("-").isdigit() else parse_rfc3339(value) // 10**6
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError
        return _EPOCH + timedelta(milliseconds=value)
    except (ValueError, OverflowError):
        shown = repr(value)[:40] if isinstance(value, str | int | float) else named(value)
        reason = f"{_WHAT}: expected milliseconds or RFC 3339 in $date, as 2026-01-31T12:00:00.5Z, not {shown}"
        raise EventError(EventCode.BAD_TIMESTAMP, reason, place=place) from None
