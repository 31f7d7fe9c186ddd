"""What a tenant's gateway without a URL was given lately, in the store: streams read it, and begin again in it.

```
… gone │ first+1 … … … … … last │ ◄─ committed with the events' positions
       └ trimmed by size and age
```

A message is delivered when it is here: it is on the disk, and outlives the process. Numbers only grow, and none is given twice,
so a reader that knows a number finds what came after it, or that some of it is gone. Rejected was to keep each message until
somebody confirms it: who never comes back would keep all of them, and there may be many readers.
"""

from __future__ import annotations

from math import inf
from typing import Final, final

from streamer.service.spool.delivery import Owner
from streamer.service.store.rows import Lane, milliseconds
from streamer.service.store.store import Store

#: What metrics call all histories together.
STREAMS: Final = "gateways:stream"
#: A history that is full is cut by one part of so many, so that it is not cut for each message.
_PARTS: Final = 8
#: So many messages are looked at in one cut, so that no commit waits long for it.
_LOOKED_AT: Final = 2_000
#: How often one looks for what is too old, in seconds.
_LOOK: Final = 10.0


@final
class History:
    """One gateway's. The thread of the spool cuts it; any other may read its attributes.

    Attributes:
        mark: tells its numbers from those of another history that had its name.
        first: the number before the oldest message. It is moved before those messages are gone: who reads, and finds it where it
            was, has missed nothing.
        last: the number of the newest one.
    """

    def __init__(self, name: str, lane: Lane, store: Store, owner: Owner, most_bytes: int, most_age: float) -> None:
        self.name, self.lane, self.mark, self._store, self.owner = name, lane, lane.mark, store, owner
        self.most_bytes, self.most_age = most_bytes, most_age
        self.is_forgotten = False
        self.messages, self.bytes, self.matches = store.held(lane)
        owner.bytes += self.bytes
        self.last = lane.last
        self.find()
        self.delivered = 0
        self._looked = -inf

    def find(self) -> None:
        """Find where it begins: another process may have cut it."""
        last, oldest = self.last, self._store.oldest_of(self.lane, 1)
        self.first = oldest[0][0] - 1 if oldest else last

    def added(self, messages: int, size: int, matches: int) -> None:
        """Learn that the store has more."""
        self.delivered += matches
        self.change(messages, size)

    def forget(self) -> None:
        """Learn that it is gone."""
        self.is_forgotten = True
        self.owner.bytes -= self.bytes

    def look(self, now: float) -> None:
        """Take out what is too much or too old, if it is time to look whether anything is."""
        if self.bytes > self.most_bytes or now - self._looked >= min(self.most_age, _LOOK):
            self._looked = now
            self.cut(milliseconds())

    def cut(self, now: int, excess: int = 0) -> int:
        """Take out what is too much or too old, or of so many bytes at least; return the bytes that are gone.

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
        """Note that it has more, or less."""
        self.messages += messages
        self.matches += matches
        self.bytes += size
        self.owner.bytes += size
