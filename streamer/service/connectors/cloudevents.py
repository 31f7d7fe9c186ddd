"""Read the id and the key of a message, which `streamer.service.delivery.messages` writes as a CloudEvent."""

from __future__ import annotations

import json
from typing import Final

#: The beginning of each message; its id follows.
BEGIN: Final = b'{"specversion":"1.0","id":"'
#: The name of the attribute with the key of a message.
KEYED: Final = b',"partitionkey":'
_BEFORE_DATA: Final = b',"datacontenttype":'
_ID: Final = slice(len(BEGIN), len(BEGIN) + 32)
_STRING: Final = json.JSONDecoder().raw_decode


def id_of(message: bytes) -> str:
    """Return the id of a message."""
    return message[_ID].decode()


def key_of(message: bytes) -> bytes | None:
    """Return the `partitionkey` of a message; None if it has none."""
    # In a text its quote would be escaped, so this is the attribute. The event after it may have a member of this name.
    at = message.find(KEYED, 0, message.find(_BEFORE_DATA))
    if at < 0:
        return None
    begin = at + len(KEYED) + 1
    end = message.index(b'"', begin)
    if b"\\" not in (plain := message[begin:end]):
        return plain
    key, _ = _STRING(message[begin - 1 :].decode())
    return str(key).encode()
