"""What a source's records say: records in, events and their keys out.

`json` is an event as it is, read by `matching.layout`. Each other format has a decoder in `streamer.cdc`, which makes events
of the layout `cdc.LAYOUT`: a record may come to several events, or to none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast, final

from streamer import cdc
from streamer.cdc.json import is_nothing, parsed, too_deep, written
from streamer.cdc.messages import read
from streamer.config.schema.sources import SourceFormat
from streamer.errors import EventError
from streamer.model import is_unicode
from streamer.service.protocols import Batch, Position, Refused

#: An event's text, and its key where the record says one.
Decoded: TypeAlias = tuple[bytes, str | None]


class Decoder(Protocol):
    """What reads the records of one source, in their order."""

    def __call__(self, record: bytes, key: bytes | str | None = None, /) -> list[Decoded]:
        """Return the events of a record; *key* is its own, as a message of Kafka has one. Raises EventError."""


@final
class Place(NamedTuple):
    """Where an event stands.

    Attributes:
        record: which of a batch.
        position: of the record, in its partition.
        part: which event of the record; -1 for the record itself.
        key: what the record says of it; None where it says none.
    """

    record: int
    position: Position
    part: int
    key: str | None


@final
@dataclass(slots=True)
class Taken:
    """The events of a batch. Where they stand is worked out for those that somebody asks for.

    Attributes:
        texts: of the events.
        refused: records that are none, with the reason.
    """

    batch: Batch
    texts: list[bytes]
    refused: list[tuple[Place, EventError]] = field(default_factory=list)
    _places: list[tuple[int, int, str | None]] | None = None

    def place(self, at: int) -> Place:
        """Return where an event stands."""
        record, index, key = (at, 0, _key_of(self.batch, at)) if self._places is None else self._places[at]
        return Place(record, self.batch.positions(record), index, key)


def taken(decode: Decoder | None, batch: Batch) -> Taken:
    """Return the events of a batch. *decode* is None where each record is one."""
    records = batch.records
    if decode is None and Refused not in set(map(type, records)):
        return Taken(batch, cast("list[bytes]", records))
    texts: list[bytes] = []
    places: list[tuple[int, int, str | None]] = []
    refused: list[tuple[Place, EventError]] = []
    for number, record in enumerate(records):
        try:
            if isinstance(record, Refused):
                raise record.error
            key = None if batch.keys is None else batch.keys[number]
            events: list[Decoded] = [(record, text_of(key))] if decode is None else decode(record, key)
        except EventError as error:
            refused.append((Place(number, batch.positions(number), -1, None), error))
            continue
        for index, (text, own) in enumerate(events):
            texts.append(text)
            places.append((number, index, own))
    return Taken(batch, texts, refused, places)


def _key_of(batch: Batch, record: int) -> str | None:
    return None if batch.keys is None else text_of(batch.keys[record])


def decoder(name: SourceFormat) -> Decoder | None:
    """Return what reads the records of one source, in their order; None where a record is an event as it is.

    A decoder raises EventError for a record that it cannot read.
    """
    if name == "json":
        return None
    if name == "wal2json":
        return wal2json()
    decoders: dict[str, _Keyed] = {
        "canal": _by_record("canal", cdc.canal.decode, _canal_keys),
        "cloudevents": lambda record, _: cdc.cloudevents.read(record),
        "debezium": cdc.debezium.read,
        "debezium_unwrapped": cdc.debezium.read_unwrapped,
        "dynamodb": _by_record("dynamodb", cdc.dynamodb.decode, _dynamodb_keys),
        "mongodb": _by_record("mongodb", cdc.mongodb.decode, _mongodb_keys),
    }
    return _made(decoders[name], name)


def wal2json(columns: Mapping[str, Iterable[str]] | None = None) -> Decoder:
    """Return what reads messages of wal2json. *columns* are those of tables, as far as they are known beforehand."""
    return _made(_by_record("wal2json", cdc.wal2json.Decoder(columns).decode, _wal2json_keys), "wal2json")


#: Events of a record and of its own key, where it has one; with what they say of their keys.
_Keyed: TypeAlias = Callable[[bytes, bytes | str | None], list[cdc.Keyed]]


def _by_record(
    name: str,
    decode: Callable[[Mapping[str, Any]], list[cdc.ChangeEvent]],
    keys: Callable[[Mapping[str, Any]], Iterator[Any]],
) -> _Keyed:
    """Return what reads records that say all of their keys by themselves."""

    def read_record(record: bytes, _: bytes | str | None) -> list[cdc.Keyed]:
        message = read(record, name)
        events = decode(message)
        try:
            found = list(keys(message))
        except (AttributeError, KeyError, TypeError):
            # What says the keys is not as it should be, and the decoder had no need of it.
            found = []
        return list(zip(events, found if len(found) == len(events) else [None] * len(events), strict=True))

    return read_record


def _made(keyed: _Keyed, name: str) -> Decoder:
    def decoded(record: bytes, key: bytes | str | None = None) -> list[Decoded]:
        if is_nothing(record):
            # A tombstone: the engine ignores it under every layout.
            return [(record, text_of(key))]
        try:
            return [(written(event).encode(), _key(parts) or text_of(key)) for event, parts in keyed(record, key)]
        except RecursionError:
            # What was read may still be too deep to be compared, or written.
            raise too_deep(record, name) from None

    return decoded


_TOMBSTONE: Final = "a tombstone: the record before it told of the delete"
#: What operations of Debezium and of wal2json are no changes of rows.
_NO_CHANGES: Final = {
    "t": "a truncate",
    "T": "a truncate",
    "m": "a message",
    "M": "a message",
    "B": "the begin of a transaction",
    "C": "the commit of a transaction",
}


def no_change(name: SourceFormat, record: bytes) -> str:
    """Return in words what a record tells that its decoder made no change of."""
    if is_nothing(record):
        return _TOMBSTONE
    message = parsed(record, name)
    if isinstance(message, list) or "Records" in message:
        return "a batch of no events"
    if "payload" in message and "schema" in message:
        message = message["payload"] or {}
    word = next((message[name] for name in ("op", "__op", "action", "operationType", "type") if name in message), None)
    match name:
        case "debezium" | "debezium_unwrapped" if word is None:
            if "status" in message:
                return "the begin or the end of a transaction"
            return "a change of the schema" if "ddl" in message or "tableChanges" in message else _bare(message)
        case "canal" if message.get("isDdl") is True:
            return "a change of the schema"
        case "mongodb" | "canal":
            return f"the operation {str(word)[:40]!r}, which changes no {'document' if name == 'mongodb' else 'row'}"
    return _NO_CHANGES.get(str(word), "no change of a row")


def _bare(message: Mapping[str, Any]) -> str:
    return "a heartbeat" if message else _TOMBSTONE


def text_of(key: bytes | str | None) -> str | None:
    """Return a record's own key as text: that of bytes in hex where they are none; None for an empty one."""
    if isinstance(key, str):
        return key or None
    try:
        return key.decode() if key else None
    except UnicodeDecodeError:
        return key.hex() if key else None


def _key(parts: Any) -> str | None:
    """Return a key as text: of one column its value, of several the JSON of them in order."""
    if not isinstance(parts, Sequence) or not parts or any(part is None for part in parts):
        return None
    one = parts[0] if len(parts) == 1 else None
    key = one if isinstance(one, str) else written(one if isinstance(one, int | float) else list(parts))
    # Half of a surrogate pair: the event itself need not hold the key.
    return key if is_unicode(key) else None


def _wal2json_keys(message: Mapping[str, Any]) -> Iterator[Any]:
    # With its option include-pk; an identity may be the whole row.
    row = {column["name"]: column.get("value") for part in ("identity", "columns") for column in message.get(part) or []}
    yield [row.get(column.get("name")) for column in message.get("pk") or [] if isinstance(column, Mapping)]


def _canal_keys(message: Mapping[str, Any]) -> Iterator[Any]:
    names = message.get("pkNames")
    for row in message.get("data") or []:
        yield [row.get(name) for name in names] if isinstance(names, list) else None


def _dynamodb_keys(message: Mapping[str, Any]) -> Iterator[Any]:
    for record in message.get("Records") or [message]:
        keys = record["dynamodb"].get("Keys") or {}
        # {"id": {"N": "42"}}: in the order of names, whose values say their type.
        yield [next(iter(keys[name].values()), None) for name in sorted(keys)]


def _mongodb_keys(message: Mapping[str, Any]) -> Iterator[Any]:
    key = message.get("documentKey")
    values = [key[name] for name in sorted(key)] if isinstance(key, Mapping) else []
    yield [value.get("$oid", value) if isinstance(value, Mapping) else value for value in values]
