"""The envelope of a change: its record without the documents and their descriptions (docs/semantics.md 1.80 and 1.84)."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from streamer.cdc.debezium import is_added, payload_of
from streamer.events.layout import ADDED

Members = Mapping[str, Any]
_UNWRAPPED: Final = "debezium_unwrapped"


def envelopes(format_: str, record: Any, count: int, prefix: str = ADDED) -> Sequence[Members]:
    """Return an envelope for each event of a record.

    Args:
        format_: one of `WITH_ENVELOPE`.
        record: the record's JSON value, which the decoder has accepted.
        count: the number of its events.
        prefix: see `debezium.read_unwrapped`.
    """
    if format_ == _UNWRAPPED:
        return [{name: value for name, value in payload_of(record).items() if is_added(name, prefix)}] * count
    return _ENVELOPES[format_](record, count)


def _without(members: Members, names: Container[str]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in names}


def _of_all(*names: str) -> Callable[[Members, int], Sequence[Members]]:
    """Return a function for records whose events share an envelope: the record without some members."""
    return lambda record, count: [_without(record, names)] * count


def _debezium(record: Members, count: int) -> Sequence[Members]:
    return [_without(payload_of(record), ("before", "after"))] * count


def _dynamodb(record: Members, count: int) -> Sequence[Members]:
    records = [record] if record.get("Records") is None else record["Records"]
    return [{**each, "dynamodb": _without(each["dynamodb"], ("Keys", "NewImage", "OldImage"))} for each in records]


def _cloudevents(record: Any, count: int) -> Sequence[Members]:
    return [_without(each, ("data", "data_base64")) for each in (record if isinstance(record, list) else [record])]


_ENVELOPES: Final[dict[str, Callable[[Any, int], Sequence[Members]]]] = {
    "canal": _of_all("data", "old", "sqlType", "mysqlType"),
    "cloudevents": _cloudevents,
    "debezium": _debezium,
    "dynamodb": _dynamodb,
    "mongodb": _of_all("fullDocument", "fullDocumentBeforeChange"),
    "wal2json": _of_all("columns", "identity"),
}
#: The formats whose records have an envelope.
WITH_ENVELOPE: Final = tuple(sorted((*_ENVELOPES, _UNWRAPPED)))
