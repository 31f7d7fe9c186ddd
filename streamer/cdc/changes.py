"""Read the change events in the records of formats that no layout can describe (semantics.md section 1, "Records").

A record of Canal, DynamoDB, MongoDB, pgoutput or wal2json, or a row that Debezium unwrapped, becomes change events first, and
an engine matches each of them. The engine's layout describes these events, not the record. The rest of the record is their
`envelope`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from streamer.cdc import canal, debezium, dynamodb, mongodb, wal2json
from streamer.cdc.envelopes import envelopes
from streamer.cdc.messages import ChangeEvent, columns_within
from streamer.cdc.stream import Stream, message_of
from streamer.errors import EventCode, EventError, Ignored
from streamer.events.layout import IGNORE, EventLayout
from streamer.events.literal_json import parsed, too_deep, written
from streamer.events.reading import Default, EventSource, IgnoredEvent, encode, nothing, read_event, read_object
from streamer.model import INT64_MAX, Event, Limits

#: How many times longer than the longest event the changes of one record may be together.
_MOST: Final = 8
#: The most changes of a record.
MOST_CHANGES: Final = 10_000
#: The envelope of a change is one level deeper than its record.
_AROUND: Final = 1


def read_events(
    event: EventSource,
    *,
    layout: EventLayout,
    limits: Limits,
    default: Default | None = None,
    stream: Stream | None = None,
    **names: str | None,
) -> list[Event]:
    """Return the events in a record: itself, or its changes, at least one. See `read_event` for the arguments and errors.

    Args:
        stream: reads the events if they are messages of one.
        names: `default_tenant`, `tenant` and `collection`.
    """
    if not layout.has_changes:
        return [read_event(event, layout=layout, limits=limits, default=default, **names)]
    read = []
    for number, change in enumerate(changes(event, layout=layout, limits=limits, default=default, stream=stream), 1):
        try:
            read.append(read_change(change, layout=layout, limits=limits, **names))
        except EventError as error:
            # An offset in the change is none in the record.
            raise EventError(error.code, f"change {number} of the record: {error.reason}", place=error.place) from None
    return read


def read_change(change: bytes, *, layout: EventLayout, limits: Limits, **names: str | None) -> Event:
    """Return the parts of one of the `changes` of a record. Raises EventError, whose offset is one in the change."""
    return read_event(change, layout=layout, limits=_wider(limits), default=None, **names)


@lru_cache(maxsize=16)
def _wider(limits: Limits) -> Limits:
    """Return the limits for a change of a record that is within *limits*."""
    return replace(
        limits,
        max_depth=min(limits.max_depth + _AROUND, INT64_MAX),
        max_event_bytes=min(limits.max_event_bytes * _MOST, INT64_MAX),
    )


def changes(
    record: EventSource,
    *,
    layout: EventLayout,
    limits: Limits,
    default: Default | None = None,
    stream: Stream | None = None,
) -> list[bytes]:
    """Return the change events in a record as JSON texts, at least one.

    Raises:
        EventError: the record is not one of the layout's format, or its changes are too long together.
        IgnoredEvent: the record has no change.
    """
    if isinstance(record, str):
        record = encode(record)
    if (blank := nothing(record, limits)) is not None:
        raise IgnoredEvent(blank)
    if layout.format == "pgoutput":
        return _of_message(record, stream, limits)
    name = layout.format or ""
    # It has the errors of any other event first.
    document = read_object(record, layout=layout, limits=limits, default=default)
    members = document.value if isinstance(record, Mapping) else parsed(bytes(record or b""), name)
    columns_within(members, name, "")
    try:
        events = _DECODE[name](members, layout)
        pairs = zip(events, envelopes(name, members, len(events), layout.added_prefix), strict=True)
        texts = _written([event | {"envelope": envelope} for event, envelope in pairs], limits.max_event_bytes * _MOST)
    except RecursionError:
        raise too_deep(record if isinstance(record, Mapping) else bytes(record or b""), name) from None
    if not texts:
        raise IgnoredEvent(Ignored.TYPE if events else Ignored.NO_CHANGE)
    return texts


def _of_message(message: EventSource, stream: Stream | None, limits: Limits) -> list[bytes]:
    if stream is None:
        raise EventError(EventCode.WRONG_TYPE, "pgoutput: a message needs those before it: match it with an engine")
    if (length := len(message_of(message))) > (most := limits.max_event_bytes):
        raise EventError(EventCode.TOO_LONG, f"{length} bytes, at most {most} are allowed", offset=most)
    texts = stream.changes(message)
    if sum(map(len, texts)) > most * _MOST:
        raise _too_long(most * _MOST)
    if not texts:
        raise IgnoredEvent(Ignored.TYPE)
    return texts


def _too_long(most: int) -> EventError:
    return EventError(EventCode.TOO_LONG, f"the changes of the record have more than {most} bytes together")


def _written(events: list[ChangeEvent], most: int) -> list[bytes]:
    texts = []
    length = 0
    for event in events:
        if event.get("type") == IGNORE:
            continue
        texts.append(written(event).encode())
        length += len(texts[-1])
        if length > most:
            raise _too_long(most)
    return texts


def _unwrapped(members: Mapping[str, Any], layout: EventLayout) -> list[ChangeEvent]:
    whole = layout.whole_rows or ()
    read = debezium.read_unwrapped(members, whole_rows=whole, table="", prefix=layout.added_prefix)
    return [event for event, _ in read]


_DECODE: Final[dict[str, Callable[[Mapping[str, Any], EventLayout], list[ChangeEvent]]]] = {
    "canal": lambda members, _: [event for event, _ in canal.read(members, most=MOST_CHANGES)],
    "debezium_unwrapped": _unwrapped,
    "dynamodb": lambda members, _: [event for event, _ in dynamodb.read(members, most=MOST_CHANGES)],
    "mongodb": lambda members, _: mongodb.decode(members),
    "wal2json": lambda members, _: wal2json.decode(members),
}
