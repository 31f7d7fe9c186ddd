"""Decode CloudEvents 1.0 in structured JSON: one event, or a batch of them in an array.

The preset `cloudevents` reads one event natively. This decoder also reads batches, `data_base64`, and the key, which is the
extension `partitionkey`. In binary mode, the attributes are in the headers of HTTP or Kafka instead of the message: use
`structured` first, with the headers.
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from streamer.cdc.messages import ChangeEvent, Keyed, needed, part, within
from streamer.errors import EventCode, EventError
from streamer.events.literal_json import Message, named, parsed
from streamer.events.timestamps import parse_rfc3339

_WHAT: Final = "cloudevents"


def decode(message: Message | list[Any]) -> list[ChangeEvent]:
    """Return the event in a message, or the events in a batch, as `read` does, without keys."""
    return [event for event, _ in read(message)]


def read(message: Message | list[Any], *, most: int | None = None) -> list[Keyed]:
    """Return the event in a message, or the events in a batch in their order, each with its `partitionkey`.

    The collection is `source`, and the topic is `type`. The event has no type such as insert, update or delete. The document is
    `data` if that is an object, or `data_base64` if `datacontenttype` is JSON. With any other data, the event has no document.

    Args:
        most: the most events that a batch may have; None for any number.

    Raises:
        EventError: the message is not a CloudEvent, or the batch has more events. An error refuses the whole batch.
    """
    value = parsed(message, _WHAT)
    if isinstance(value, list):
        within(value, most, _WHAT, "")
        return [_read(each, f"/{at}") for at, each in enumerate(value)]
    return [_read(value, "")]


def structured(attributes: Mapping[str, str], data: bytes | None) -> bytes:
    """Return an event of binary mode in structured mode, for `read`.

    Args:
        attributes: the attributes from its headers, without the prefix of the protocol, including `datacontenttype`.
        data: its body.
    """
    encoded = {} if not data else {"data_base64": base64.b64encode(data).decode()}
    return json.dumps({**attributes, **encoded}).encode()


def _read(members: Any, at: str) -> Keyed:
    if not isinstance(members, Mapping):
        reason = f"{_WHAT}: an event is a JSON object, not {named(members)}"
        raise EventError(EventCode.NOT_AN_OBJECT, reason, place=at)
    version = part(members, "specversion", str, _WHAT, at)
    if version != "1.0":
        if version is None:
            reason = "specversion is missing: expected structured mode; binary mode, whose attributes are headers, is not read"
        else:
            reason = f"specversion is 1.0, not {version[:20]!r}"
        raise EventError(EventCode.WRONG_TYPE, f"{_WHAT}: {reason}", place=f"{at}/specversion")
    event: ChangeEvent = {
        "id": needed(members, "id", str, _WHAT, at),
        "collection": needed(members, "source", str, _WHAT, at),
        "topic": needed(members, "type", str, _WHAT, at),
    }
    if (time := part(members, "time", str, _WHAT, at)) is not None:
        event["ts"] = _milliseconds(time, f"{at}/time")
    if (data := _data(members, at)) is not None:
        event["data"] = data
    key = part(members, "partitionkey", str, _WHAT, at)
    return event, [key] if key else None


def _milliseconds(time: str, place: str) -> int:
    try:
        return parse_rfc3339(time) // 10**6
    except ValueError as error:
        raise EventError(EventCode.BAD_TIMESTAMP, f"{_WHAT}: {error}", place=place) from None


def _data(members: Mapping[str, Any], at: str) -> Any:
    data, place = members.get("data"), f"{at}/data"
    if (encoded := part(members, "data_base64", str, _WHAT, at)) is not None:
        place = f"{at}/data_base64"
        if data is not None:
            raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: data and data_base64 exclude each other", place=place)
        data = _decoded(encoded, members, at, place)
    # Data may have any type, but a document is an object.
    return data if isinstance(data, Mapping) else None


def _decoded(encoded: str, members: Mapping[str, Any], at: str, place: str) -> Any:
    kind = (part(members, "datacontenttype", str, _WHAT, at) or "").partition(";")[0].strip().lower()
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: data_base64 is not base64", place=place) from None
    # Data of another content type does not become a document.
    return parsed(raw, _WHAT, place) if kind.endswith(("/json", "+json")) else None
