"""The messages of one replication stream as change events: an engine keeps what later messages need of earlier ones.

```
Begin, Relation orders, Insert, …  ─►  Stream  ─►  nothing, nothing, [an insert], …
                                         └ the descriptions of tables, the transaction
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from streamer.cdc import pgoutput
from streamer.errors import EventCode, EventError
from streamer.events.reading import EventSource, encode
from streamer.locks import Lock

if TYPE_CHECKING:
    from streamer import _native

#: The beginning of what a reader makes of a message without a change.
_NO_CHANGE: Final = b'{"type":"ignore"'


@final
class Stream:
    """Reads the messages of pgoutput in their order.

    Thread-safe, but a message must come after those before it.

    Args:
        max_event_bytes: the most bytes of a message.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes: Final = max_event_bytes
        self._lock: Final = Lock()
        self._decoder: Final = pgoutput.Decoder(has_envelope=True)
        self._native: _native.RecordReader | None = None

    def native(self) -> _native.RecordReader:
        """Return the reader of a native core, which has the state of this stream from now on."""
        from streamer import _native

        if self._native is None:
            self._native = _native.RecordReader("pgoutput", envelope=True, max_event_bytes=self._max_event_bytes)
        return self._native

    def changes(self, event: EventSource) -> list[bytes]:
        """Return the change events of the next message as JSON texts, with their envelopes; none if it has no change.

        Args:
            event: the message as bytes, or in hex as `\\x…`.

        Raises:
            EventError: the message cannot be read, or needs one that was not read.
        """
        record = message_of(event)
        if self._native is not None:
            texts = [text for text, _ in self._native.read(record) or ()]
        else:
            with self._lock:
                texts = self._decoded(record)
        return [] if texts and texts[0].startswith(_NO_CHANGE) else texts

    def _decoded(self, record: bytes) -> list[bytes]:
        message = pgoutput.bytes_of(record)
        try:
            read = self._decoder.read(message)
        except EventError as error:
            if error.offset is None or message is record:
                raise
            # Of the two digits of the byte.
            raise EventError(error.code, error.reason, offset=2 + 2 * error.offset, place=error.place) from None
        return [text for text, _ in read] if isinstance(read, list) else []


def message_of(event: EventSource) -> bytes:
    """Return a message as its bytes, or its text in UTF-8. Raises EventError for a mapping."""
    if isinstance(event, str):
        return encode(event)
    if event is None or isinstance(event, Mapping):
        what = "null" if event is None else "an object"
        reason = f"pgoutput: a message is bytes, or their hex in a text that begins with \\x, not {what}"
        raise EventError(EventCode.WRONG_TYPE, reason)
    return bytes(event)
