"""Decode the records of a source: records in, events and their keys out.

A `json` record is an event, which `matching.format` describes. The records of each other format become events of the layout
`cdc.LAYOUT`. A record may contain several events, or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast, final

from streamer import _backend, cdc
from streamer.cdc.debezium import TOMBSTONE
from streamer.cdc.envelopes import envelopes
from streamer.cdc.messages import no_change
from streamer.config.schema.encoded import SourceFormat
from streamer.errors import EventError
from streamer.events.format_options import Tables
from streamer.events.layout import IGNORE
from streamer.events.literal_json import is_nothing, parsed, too_deep, written
from streamer.model import is_unicode
from streamer.service.connectors.protocols import Batch, Position, Refused
from streamer.service.connectors.registry import Messages

NOT_KNOWN: Final = Tables()
#: An event's text, and its key if the record has one.
Decoded: TypeAlias = tuple[bytes, str | None]


class Decoder(Protocol):
    """Decodes the records of one source, in their order."""

    def __call__(self, record: bytes, key: bytes | str | None = None, partition: str = "", /) -> list[Decoded]:
        """Return the events of a record.

        Args:
            key: the record's own, for example the key of a Kafka message.
            partition: that of the source; the topic of Kafka in it may name the table.

        Raises:
            EventError: the record is not one of the format.
        """


@final
class Place(NamedTuple):
    """The place of an event in its source.

    Attributes:
        record: the index of its record in the batch.
        position: the position of the record in its partition.
        part: the index of the event in its record; -1 for the record itself.
        key: the key that the record has for it; None if it has none.
    """

    record: int
    position: Position
    part: int
    key: str | None


@final
@dataclass(slots=True)
class BatchEvents:
    """The events of a batch. The place of an event is computed on demand.

    Attributes:
        texts: the texts of the events.
        refused: the places of records that could not be decoded, with the reason.
    """

    batch: Batch
    texts: list[bytes]
    refused: list[tuple[Place, EventError]] = field(default_factory=list)
    _places: list[tuple[int, int, str | None]] | None = None

    def place(self, at: int) -> Place:
        """Return the place of an event."""
        record, index, key = (at, 0, _key_of(self.batch, at)) if self._places is None else self._places[at]
        return Place(record, self.batch.positions(record), index, key)


def events_of(decode: Decoder | None, batch: Batch) -> BatchEvents:
    """Return the events of a batch; *decode* is None if each record is an event."""
    records = batch.records
    if decode is None and Refused not in set(map(type, records)):
        return BatchEvents(batch, cast("list[bytes]", records))
    texts: list[bytes] = []
    places: list[tuple[int, int, str | None]] = []
    refused: list[tuple[Place, EventError]] = []
    for number, record in enumerate(records):
        try:
            if isinstance(record, Refused):
                raise record.error
            key = None if batch.keys is None else batch.keys[number]
            events: list[Decoded] = [(record, text_of(key))] if decode is None else decode(record, key, batch.partition)
        except EventError as error:
            refused.append((Place(number, batch.positions(number), -1, None), error))
            continue
        for index, (text, own) in enumerate(events):
            texts.append(text)
            places.append((number, index, own))
    return BatchEvents(batch, texts, refused, places)


def _key_of(batch: Batch, record: int) -> str | None:
    return None if batch.keys is None else text_of(batch.keys[record])


def decoder(
    name: SourceFormat,
    *,
    most: int | None = None,
    messages: Messages | None = None,
    envelope: bool = False,
    tables: Tables = NOT_KNOWN,
    columns: Mapping[str, Iterable[str]] | None = None,
    of_topics: bool = False,
) -> Decoder | None:
    """Return the decoder for the records of one source; None if each record is an event.

    The native core reads the records. Without it, the decoders of `streamer.cdc` do, which define what it must read.

    Args:
        most: the most events that one record may have; None for any number.
        messages: decodes records with schemas first, before the decoder of the format; None if all records are JSON.
        envelope: whether each event gets the rest of its record as its `envelope`.
        tables: which tables have whole rows, which one is that of rows that do not name theirs, and the prefix of members that
            are no columns.
        columns: of wal2json, the columns of the tables that are known in advance.
        of_topics: whether a partition is one of a topic of Kafka, which may name the table of its rows.
    """
    if name == "json":
        return None if messages is None else _encoded(messages)
    if _backend.BACKEND == "native":
        from streamer import _native

        known = [(table, list(names)) for table, names in (columns or {}).items()]
        reader = _native.RecordReader(
            name,
            envelope=envelope,
            most=most,
            whole_rows=tables.whole,
            table=tables.unnamed,
            prefix=tables.prefix,
            columns=known,
        )
        read: _Read = reader.read
    else:
        read = _reference(name, most, envelope, tables, columns)
    table_of = _table_of if of_topics and name == "debezium_unwrapped" else _no_table
    return _plain(read, table_of) if messages is None else _with_schemas(read, name, messages, table_of)


#: Reads a record, with its own key if it has one, as events with their keys; None for a tombstone. The last argument is the
#: collection of a row that does not name its table.
_Read: TypeAlias = Callable[[bytes, bytes | str | None, str | None], list[Decoded] | None]
_TableOf: TypeAlias = Callable[[str], str | None]


@lru_cache(1024)
def _table_of(partition: str) -> str | None:
    """Return the collection that the topic of a partition of Kafka names: `orders/0@ID` is a partition of `orders`."""
    return cdc.debezium.collection_of(partition.partition("@")[0].rpartition("/")[0])


def _no_table(_: str) -> None:
    return None


def _plain(read: _Read, table_of: _TableOf) -> Decoder:
    def decoded(record: bytes, key: bytes | str | None = None, partition: str = "") -> list[Decoded]:
        events = read(record, key, table_of(partition))
        if events is None:
            # A tombstone: the engine ignores it under every layout.
            return [(record, text_of(key))]
        return events if key is None else [(event, own or text_of(key)) for event, own in events]

    return decoded


def _with_schemas(read: _Read, name: str, messages: Messages, table_of: _TableOf) -> Decoder:
    def decoded(record: bytes, key: bytes | str | None = None, partition: str = "") -> list[Decoded]:
        if is_nothing(record):
            return [(record, text_of(key))]
        own = messages.key(key)
        try:
            plain_key = own if isinstance(own, str) or own is None else _text(own)
            events = read(_text(messages.value(record)), plain_key, table_of(partition))
        except RecursionError:
            raise too_deep(record, name) from None
        if events is None:
            return [(b"null", _key_of_value(own))]
        return [(event, event_key or _key_of_value(own)) for event, event_key in events]

    return decoded


def _text(value: Any) -> bytes:
    return value if isinstance(value, bytes) else written(value).encode()


#: Decodes a record, with its own key and the table of its topic if it has them, to events with their keys.
_Keyed: TypeAlias = Callable[[Any, Any, str | None], list[cdc.Keyed]]


def _reference(name: str, most: int | None, envelope: bool, tables: Tables, columns: Mapping[str, Iterable[str]] | None) -> _Read:
    """Return a function that reads records as the decoders of `streamer.cdc` do."""

    def unwrapped(record: Any, key: Any, table: str | None) -> list[cdc.Keyed]:
        table = table if tables.unnamed is None else tables.unnamed
        return cdc.debezium.read_unwrapped(record, key, whole_rows=tables.whole, table=table, prefix=tables.prefix)

    decoders: dict[str, _Keyed] = {
        "canal": lambda record, *_: cdc.canal.read(record, most=most),
        "cloudevents": lambda record, *_: cdc.cloudevents.read(record, most=most),
        "debezium": lambda record, key, _: cdc.debezium.read(record, key, whole_rows=tables.whole),
        "debezium_unwrapped": unwrapped,
        "dynamodb": lambda record, *_: cdc.dynamodb.read(record, most=most),
        "mongodb": lambda record, *_: cdc.mongodb.read(record),
    }
    if name == "wal2json":
        of_slot = cdc.wal2json.Decoder(columns)
        decoders[name] = lambda record, *_: of_slot.read(record)
    keyed = _with_envelope(decoders[name], name, tables.prefix) if envelope else decoders[name]

    def read(record: bytes, key: bytes | str | None, table: str | None) -> list[Decoded] | None:
        if is_nothing(record):
            return None
        try:
            return [(written(event).encode(), _key(parts)) for event, parts in keyed(record, key, table)]
        except RecursionError:
            # A value that could be read may still be too deep to be compared, or written.
            raise too_deep(record, name) from None

    return read


def _with_envelope(keyed: _Keyed, name: str, prefix: str) -> _Keyed:
    """Return a function that adds to each event the envelope of its record; one that is no change has none."""

    def read(record: Any, key: Any, table: str | None) -> list[cdc.Keyed]:
        value = parsed(record, name)
        pairs = keyed(value, key, table)
        if pairs and pairs[0][0].get("type") == IGNORE:
            return pairs
        with_them = zip(pairs, envelopes(name, value, len(pairs), prefix), strict=True)
        return [(event | {"envelope": envelope}, parts) for (event, parts), envelope in with_them]

    return read


def _encoded(messages: Messages) -> Decoder:
    """Return the decoder for records that are events with schemas."""

    def decoded(record: bytes, key: bytes | str | None = None, _: str = "") -> list[Decoded]:
        own = _key_of_value(messages.key(key))
        value = messages.plain(record)
        try:
            return [(value if isinstance(value, bytes) else written(value).encode(), own)]
        except RecursionError:
            raise too_deep(record, "json") from None

    return decoded


#: The first bytes of an event that a decoder makes of a record that is not a change.
_NO_CHANGE: Final = written(no_change(""))[:-2].encode()


def no_change_of(event: bytes) -> str | None:
    """Return a description of the record if a decoder did not make a change of it; None if the event is a change."""
    if is_nothing(event):
        return TOMBSTONE
    return str(json.loads(event)["ignored"]) if event.startswith(_NO_CHANGE) else None


def text_of(key: bytes | str | None) -> str | None:
    """Return a record's own key as text, in hex if its bytes are not text; None for an empty one."""
    if isinstance(key, str):
        return key or None
    try:
        return key.decode() if key else None
    except UnicodeDecodeError:
        return key.hex() if key else None


def _key_of_value(key: Any) -> str | None:
    """Return a key as text: one that was decoded by a schema is written like the key of a row."""
    if key is None or isinstance(key, bytes | str):
        return text_of(key)
    return _key(list(key.values()) if isinstance(key, Mapping) else [key])


def _key(parts: Any) -> str | None:
    """Return a key as text: the value of one column, or a JSON array of the values of several columns in order."""
    if not isinstance(parts, Sequence) or not parts or any(part is None for part in parts):
        return None
    one = parts[0] if len(parts) == 1 else None
    if type(one) is int:
        return str(one)
    key = one if isinstance(one, str) else written(one if isinstance(one, int | float) else list(parts))
    # A key with half of a surrogate pair is left out, because it is not valid Unicode.
    return key if is_unicode(key) else None
