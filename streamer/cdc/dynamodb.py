"""Records of Amazon DynamoDB Streams, as Lambda functions and GetRecords get them, and of Kinesis Data Streams for DynamoDB.

A value is an object whose only member names its type, such as `{"N": "42"}`. The StreamViewType of the table decides which images
a record has; a missing image is unknown.
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_Record.html
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from streamer.cdc.messages import ChangeEvent, ChangeType, Keyed, change, columns_within, needed, part, within, without_document
from streamer.cdc.messages import read as read_object
from streamer.errors import EventCode, EventError
from streamer.events.layout import encode_pointer
from streamer.events.literal_json import Message, named, number

_TYPES: Final[dict[str, ChangeType]] = {"INSERT": "insert", "MODIFY": "update", "REMOVE": "delete"}
_WHAT: Final = "dynamodb"
_MOST_SECONDS: Final = 253_402_300_800
_MOST_MILLISECONDS: Final = 10**18
#: The nesting limit, above DynamoDB's own; it bounds the recursion.
_MAX_DEPTH: Final = 40


def decode(message: Message) -> list[ChangeEvent]:
    """Return the change of a record, or those of all `Records` of a batch, as `read` does, without keys."""
    return [event for event, _ in read(message)]


def read(message: Message, *, most: int | None = None) -> list[Keyed]:
    """Return the change of a record, or those of all `Records` of a batch. The collection is the name of the table.

    Strings, numbers, booleans, lists and maps become those of JSON. Sets become arrays. Bytes become base64 text. The key has the
    values of `Keys`, in the order of their names.

    Args:
        most: the most records that a batch may have; None for any number.

    Raises:
        EventError: the message is not such a record or batch, or the batch has more records.
    """
    members = read_object(message, _WHAT)
    records = part(members, "Records", list, _WHAT)
    if records is None:
        return [_decode(members, "")]
    within(records, most, _WHAT, "/Records")
    return [
        _decode(read_object(record, _WHAT, at), at)
        for at, record in ((f"/Records/{at}", each) for at, each in enumerate(records))
    ]


def _decode(record: Mapping[str, Any], at: str) -> Keyed:
    event = _change(record, at)
    keys = record["dynamodb"].get("Keys") or {}
    # {"id": {"N": "42"}}: drop the type of each value, and keep its text.
    return event, [next(iter(keys[name].values())) for name in sorted(keys)]


def _change(record: Mapping[str, Any], at: str) -> ChangeEvent:
    word = needed(record, "eventName", str, _WHAT, at)
    kind = _TYPES.get(word)
    if kind is None:
        raise EventError(
            EventCode.WRONG_TYPE, f"{_WHAT}: eventName is one of {', '.join(_TYPES)}, not {word[:40]!r}", place=f"{at}/eventName"
        )
    collection = _table(record, at)
    change_of = needed(record, "dynamodb", Mapping, _WHAT, at)
    new, old, keys = (_image(change_of, name, f"{at}/dynamodb") for name in ("NewImage", "OldImage", "Keys"))
    ts, event_id = _milliseconds(change_of), part(record, "eventID", str, _WHAT, at)
    if kind == "delete":
        # With KEYS_ONLY, the image of the item is missing or empty. An image includes the key.
        return change(kind, collection, before={**(keys or {}), **(old or {})} or None, ts=ts, event_id=event_id)
    if not new and keys:
        # The item is unknown, except its key.
        return change(kind, collection, data=keys, before=old or None, ts=ts, event_id=event_id) | {"partial": True}
    if not new:
        return without_document(kind, collection, before=old or None, ts=ts, event_id=event_id)
    return change(kind, collection, data=new, before=old or None, ts=ts, event_id=event_id)


def _table(record: Mapping[str, Any], at: str) -> str:
    name = part(record, "tableName", str, _WHAT, at)
    if name is None:
        # arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/LABEL
        resource = needed(record, "eventSourceARN", str, _WHAT, at).partition(":table/")[2]
        name = resource.partition("/")[0]
    if not name:
        raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: eventSourceARN does not name a table", place=f"{at}/eventSourceARN")
    return str(name)


def _milliseconds(change_of: Mapping[str, Any]) -> int | None:
    moment = change_of.get("ApproximateCreationDateTime")
    if isinstance(moment, datetime):
        moment = moment.timestamp()
    if not isinstance(moment, int | float) or isinstance(moment, bool):
        return None
    precision = change_of.get("ApproximateCreationDateTimePrecision")
    # Kinesis writes milliseconds, and does not always say so; seconds of this size are after the year 9999.
    unit = {"MILLISECOND": 1, "MICROSECOND": 0.001}.get(str(precision), 1000 if abs(moment) < _MOST_SECONDS else 1)
    milliseconds = moment * unit
    # An infinity, or no time.
    return int(milliseconds) if -_MOST_MILLISECONDS < milliseconds < _MOST_MILLISECONDS else None


def _image(change_of: Mapping[str, Any], name: str, at: str) -> dict[str, Any] | None:
    image = part(change_of, name, Mapping, _WHAT, at)
    if image is None:
        return None
    columns_within(image, _WHAT, f"{at}/{name}")
    return {key: _value(value, f"{at}/{name}{encode_pointer((key,))}", 0) for key, value in image.items()}


def _bytes(value: Any) -> str:
    # GetRecords of boto3 returns bytes; JSON has their base64.
    return base64.b64encode(value).decode() if isinstance(value, bytes | bytearray) else _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a string, not {named(value)}")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected a boolean, not {named(value)}")
    return value


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "S": _text,
    "N": lambda value: number(_text(value)),
    "B": _bytes,
    "BOOL": _bool,
    "NULL": lambda _: None,
}
_SETS: Final = {"SS": _SCALARS["S"], "NS": _SCALARS["N"], "BS": _SCALARS["B"]}


def _value(typed: Any, place: str, depth: int) -> Any:
    if not isinstance(typed, Mapping) or len(typed) != 1 or depth > _MAX_DEPTH:
        reason = f"nested deeper than {_MAX_DEPTH}" if depth > _MAX_DEPTH else 'a value is an object of one type, as {"N": "42"}'
        raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: {reason}", place=place)
    ((kind, value),) = typed.items()
    if kind == "M" and isinstance(value, Mapping):
        return {name: _value(member, f"{place}/M{encode_pointer((name,))}", depth + 1) for name, member in value.items()}
    if kind == "L" and isinstance(value, list):
        return [_value(item, f"{place}/L/{at}", depth + 1) for at, item in enumerate(value)]
    if kind in _SETS and isinstance(value, list):
        return [_scalar(_SETS[kind], item, f"{place}/{kind}/{at}") for at, item in enumerate(value)]
    if kind in _SCALARS:
        return _scalar(_SCALARS[kind], value, f"{place}/{kind}")
    known = ", ".join(("M", "L", *_SCALARS, *_SETS))
    reason = f"{_WHAT}: a value has one of the types {known}, not {kind[:40]!r} of {named(value)}"
    raise EventError(EventCode.BAD_VALUE, reason, place=place)


def _scalar(convert: Callable[[Any], Any], value: Any, place: str) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: {error}", place=place) from None
