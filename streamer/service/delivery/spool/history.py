"""The latest messages of a tenant's gateway without a URL, in the store. Streams read them, and resume in them.

```
… gone │ first+1 … … … … … last │ ◄─ committed with the events' positions
       └ trimmed by size and age
```

A message counts as delivered once it is here: it is on the disk, and outlives the process. Numbers only grow and are never
reused, so a reader that has a number finds the messages after it, or learns that some of them are gone. The rejected alternative
was to keep each message until a reader confirms it: a reader that never returns would keep all of them, and there may be many
readers.
"""

from __future__ import annotations

from math import inf
from typing import Final, final

from streamer.service.delivery.spool.delivery import Owner
from streamer.service.store.rows import Lane, milliseconds
from streamer.service.store.store import Store

#: The name in metrics of all histories together.
STREAMS: Final = "gateways:stream"
#: A full history is cut by this fraction of its limit, so that it is not cut for each message.
_PARTS: Final = 8
#: The most messages that one cut examines, so that commits do not wait long for it.
_LOOKED_AT: Final = 2_000
#: The interval between checks for old messages, in seconds.
_LOOK: Final = 10.0


@final
class History:
    """The history of one gateway. The spool's thread cuts it; any other thread may read its attributes.

    Attributes:
        mark: distinguishes its numbers from those of another history that had its name.
        first: the number before the oldest message. It moves before those messages are deleted: if it has not moved after a read,
            the reader has missed no message.
        last: the number of the newest message.
    """

    def __init__(self, name: str, lane: Lane, store: Store, owner: Owner, most_bytes: int, most_age: float) -> None:
        self.name, self.lane, self.mark, self._store, self.owner = name, lane, lane.mark, store, owner
        self.most_bytes, self.most_age = most_bytes, most_age
        self.is_forgotten = False
        self.messages, self.bytes, self.matches = store.backlog(lane)
        owner.bytes += self.bytes
        self.last = lane.last
        self.find()
        self.delivered = 0
        self._looked = -inf

    def find(self) -> None:
        """Read its beginning from the store: another process may have cut it."""
        last, oldest = self.last, self._store.oldest_of(self.lane, 1)
        self.first = oldest[0][0] - 1 if oldest else last

    def added(self, messages: int, size: int, matches: int) -> None:
        """Count new messages of the store."""
        self.delivered += matches
        self.change(messages, size)

    def forget(self) -> None:
        """Note that it was deleted."""
        self.is_forgotten = True
        self.owner.bytes -= self.bytes

    def look(self, now: float) -> None:
        """Delete messages beyond the limits of size and age, if a check is due."""
        if self.bytes > self.most_bytes or now - self._looked >= min(self.most_age, _LOOK):
            self._looked = now
            self.cut(milliseconds())

    def cut(self, now: int, excess: int = 0) -> int:
        """Delete messages beyond the limits of size and age, and at least *excess* bytes. Return the number of bytes deleted.

        Args:
            now: in milliseconds since the epoch.
        """
        if self.bytes > self.most_bytes:
            excess = max(excess, self.bytes - self.most_bytes + self.most_bytes // _PARTS)
        before = now - int(self.most_age * 1000)
        last = messages = size = 0
        for number, length, at in self._store.oldest_of(self.lane, _LOOKED_AT):
            if size >= excess and at >= before:
                break
            last, messages, size = number, messages + 1, size + length
        if last:
            first, self.first = self.first, last
            try:
                self._store.trim(self.lane, last)
            except BaseException:
                self.first = first
                raise
            self.change(-messages, -size)
        return size

    def change(self, messages: int, size: int, matches: int = 0) -> None:
        """Add to its numbers; negative values subtract."""
        self.messages += messages
        self.matches += matches
        self.bytes += size
        self.owner.bytes += size
