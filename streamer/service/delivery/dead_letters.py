"""Dead letters of messages, and messages about dead letters for the sink of `delivery.dead_letter`, in CloudEvents."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from secrets import token_hex
from typing import Final

from mmh3 import mmh3_x64_128_digest

from streamer.service.delivery.messages import rfc3339
from streamer.service.store.rows import DeadLetter, Spooled, Waiting, milliseconds

_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def message(letter: DeadLetter) -> tuple[str, bytes]:
    """Return the id and the text of the message about a dead letter; the id stays the same if it fails again."""
    members = (letter.source, letter.partition, letter.position, letter.part, letter.sink, letter.message)
    identity = mmh3_x64_128_digest("\0".join(map(str, ("dead letter", *members))).encode()).hex()
    data = {
        "stage": letter.stage,
        "code": letter.code,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "partition": letter.partition,
        "position": letter.position,
        "index": letter.part,
        **({"sink": letter.sink, "message": letter.message} if letter.sink else {}),
        "size": letter.size,
    }
    try:
        data["record"] = letter.record.decode()
    except UnicodeDecodeError:
        data["record_base64"] = base64.b64encode(letter.record).decode()
    body = {
        "specversion": "1.0",
        "id": identity,
        "source": f"/streamer/{letter.source}",
        "type": "streamer.dead_letter",
        "time": rfc3339(letter.at * 10**6).decode(),
        "datacontenttype": "application/json",
        "data": data,
    }
    return identity, _JSON(body).encode() + b"\n"


def test(sink: str) -> tuple[str, bytes]:
    """Return the id and the text of a test message, which contains no event."""
    identity = token_hex(16)
    body = {
        "specversion": "1.0",
        "id": identity,
        "source": "/streamer/test",
        "type": "streamer.test",
        "subject": sink,
        "time": rfc3339(milliseconds() * 10**6).decode(),
        "datacontenttype": "application/json",
        "data": {"test": True},
    }
    return identity, _JSON(body).encode() + b"\n"


def undelivered(
    sink: str, message: Spooled | Waiting, code: str, reason: str, attempts: int = 1, *, waits: int | None = None
) -> DeadLetter:
    """Return the dead letter of a message.

    Args:
        waits: the number of the message in the spool, if it waits there for its letter.
    """
    return DeadLetter(
        source=message.source,
        partition=message.partition,
        position=message.position,
        part=message.part,
        stage="deliver",
        code=code,
        reason=reason,
        attempts=attempts,
        at=milliseconds(),
        size=len(message.body),
        record=message.body,
        sink=sink,
        message=message.message,
        matches=message.matches,
        key=message.key,
        spooled=waits,
    )


def spooled(sink: str, letters: Iterable[DeadLetter]) -> list[Spooled]:
    """Return messages about dead letters for a webhook, except its own letters. They have no matches, and no order."""
    made = []
    for letter in letters:
        if letter.sink != sink:
            identity, text = message(letter)
            where = (letter.source, letter.partition, letter.position, letter.part)
            made.append(Spooled(sink, None, identity, 0, *where, text))
    return made
