"""From read to acknowledge.

```
a thread for each source                                     one thread
read ─► decode ─► match ─► messages ─► [ waiting, bounded ] ─► write ─► flush ─► store ─► acknowledge
                                                                                   └─► the spool ─► endpoints
```

One thread delivers, so what a source read first is at each sink first. While it waits for a disk, the others match on. A batch is
matched on one version of the engine. A failure anywhere ends the pipeline with nothing more confirmed. Messages for endpoints go
into the store in the commit that confirms their events, and from there at the endpoints' own pace.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, final

from streamer.engine.batch import AT_ONCE
from streamer.engine.engine import Engine
from streamer.errors import EventError
from streamer.locks import Lock
from streamer.service import faults, formats, letters
from streamer.service.messages import Speaker, Told
from streamer.service.metrics import Counts
from streamer.service.protocols import Batch, EndOfSource, Outcome, Position, Sink, SinkGone, Source
from streamer.service.spool import Spool, tally
from streamer.service.store.sqlite import Confirmed, DeadLetter, Store
from streamer.service.waiting import PART_BYTES, Part, Waiting

#: How long a source is waited for, in seconds, before one looks whether all is to end.
WAIT: Final = 0.25
_LOGGER: Final = logging.getLogger("streamer.service")


@final
@dataclass(frozen=True, slots=True)
class Feed:
    """A source under its name, and what reads its records; None where they are events as they are."""

    name: str
    source: Source
    decode: formats.Decoder | None


@final
class Pipeline:
    """Runs until all sources have ended, `stop` is called, or something fails.

    Args:
        sinks: that are written to here; *spool* has the others.
        at_once: events that are matched together, at most.
        dead_letter: the sink that gets a message about each dead letter; None for none.

    Attributes:
        failed: what ended it; None where nothing failed.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        feeds: Sequence[Feed],
        sinks: Mapping[str, Sink],
        speaker: Speaker,
        counts: Counts,
        at_once: int = AT_ONCE,
        spool: Spool | None = None,
        dead_letter: str | None = None,
    ) -> None:
        self._engine, self._store, self._sinks, self._speaker, self._counts = engine, store, sinks, speaker, counts
        self._feeds = {feed.name: feed for feed in feeds}
        self._at_once = at_once
        self._spool = spool
        self._dead_letter = dead_letter
        self._writing = Lock()
        if spool is not None:
            spool.announce = self._announce
        self._waiting = Waiting()
        self._is_stopping = False
        self._lock = Lock()
        self._ended = threading.Event()
        self.failed: Exception | None = None
        self._read_at: dict[str, float] = {}
        self._ended_feeds: set[str] = set()
        self._delivering_since: float | None = None

    # The way of an event

    def _consume(self, feed: Feed) -> None:
        while not self._is_stopping:
            try:
                batch = feed.source.read(WAIT)
            except EndOfSource:
                return
            if batch is not None:
                self._read_at[feed.name] = time.monotonic()
                faults.point("source.read")
                for part in self._matched(feed, batch):
                    self._waiting.put(part)
                    faults.point("pipeline.queued")

    def _matched(self, feed: Feed, batch: Batch, only: int | None = None) -> Iterator[Part]:
        taken = formats.taken(feed.decode, batch)
        part = Part(feed.name)
        for place, error in taken.refused:
            part.refuse(feed.name, batch, place, error)
        part.events += len(taken.refused)
        for first in range(0, len(taken.texts), self._at_once):
            texts = taken.texts[first : first + self._at_once]
            part.events += len(texts)
            for at, found in self._engine.match_batch(texts).matched():
                place = taken.place(first + at)
                if only is not None and place.part != only:
                    continue
                if isinstance(found, EventError):
                    part.refuse(feed.name, batch, place, found)
                    continue
                part.matched += 1
                for told in self._speaker.messages(feed.name, batch.partition, place, texts[at], found):
                    if told.sink is None or told.sink in self._sinks:
                        part.add(told)
                    else:
                        part.spool(self._speaker.spooled(told))
                    if part.size >= PART_BYTES:
                        yield self._counted(part)
                        part = Part(feed.name)
        if batch.confirm is not None or batch.is_last:
            part.confirmed = Confirmed(feed.name, batch.partition, None if batch.is_last else batch.confirm)
        faults.point("pipeline.matched")
        yield self._counted(part)

    def _deliver(self) -> None:
        try:
            while parts := self._waiting.take():
                self._delivering_since = time.monotonic()
                self._hold(parts)
                self._delivering_since = None
        finally:
            if self._spool is not None:
                self._spool.complete()

    def _hold(self, parts: Sequence[Part]) -> None:
        with self._writing:
            refused = self._write(parts)
        dead = [letter for part in parts for letter in part.dead] + refused
        spooled = [each for part in parts for each in part.spooled]
        if dead and self._spool is not None and self._dead_letter is not None and self._dead_letter in self._spool.sinks:
            spooled += letters.spooled(self._dead_letter, dead)
        sums = tally(spooled)
        if self._spool is not None and sums:
            self._spool.await_room({sink: size for sink, (_, size, _) in sums.items()})
        if dead:
            self._announce(dead)
        faults.point("sink.flushed")
        # The last of each partition says all that those before it say.
        confirmed = {(each.source, each.partition): each for part in parts if (each := part.confirmed) is not None}
        dropped = [number for part in parts for number in part.dropped]
        commit = partial(self._store.commit, confirmed.values(), dead, dropped, spooled)
        if self._spool is not None and spooled:
            self._spool.hold(spooled, commit)
        elif confirmed or dead or dropped:
            commit()
        lost: Counter[str] = Counter()
        for letter in refused:
            lost[letter.sink] += letter.matches
        delivering: Counter[str] = Counter()
        for part in parts:
            delivering += part.delivering
        self._counts.delivered(delivering - lost, lost)
        for each in confirmed.values():
            if each.position is not None:
                self._feeds[each.source].source.acknowledge(each.partition, each.position)
        faults.point("pipeline.acknowledged")

    def _write(self, parts: Sequence[Part]) -> list[DeadLetter]:
        """Have messages held; return the letters of those that their sinks will never take."""
        written: dict[str, list[Told]] = {}
        for part in parts:
            for sink, told in part.told.items():
                self._sinks[sink].write([message for each in told for message in each.messages])
                written.setdefault(sink, []).extend(told)
        faults.point("sink.written")
        refused = []
        for sink, told in written.items():
            if outcomes := self._sinks[sink].flush():
                messages = [message for each in told for message in self._speaker.spooled(each)]
                refused += [letters.undelivered(sink, messages[at], each.code, each.reason) for at, each in outcomes]
        if refused:
            faults.point("sink.refused")
        return refused

    def _announce(self, dead: Sequence[DeadLetter]) -> None:
        """Write messages about dead letters, where their sink is one that is written to. The spool's thread calls it, too."""
        if self._dead_letter is not None and self._dead_letter in self._sinks:
            # A sink is not told of its own.
            if not (told := [letter for letter in dead if letter.sink != self._dead_letter]):
                return
            for at, outcome in self._given(self._dead_letter, [letters.message(letter)[1] for letter in told]):
                of = told[at]
                _LOGGER.warning(
                    "sinks.%s: it is not told of a dead letter of %s, %s %s: %s",
                    *(self._dead_letter, of.source, of.partition, of.position, outcome.reason),
                )

    def _given(self, sink: str, messages: Sequence[bytes]) -> Sequence[tuple[int, Outcome]]:
        with self._writing:
            self._sinks[sink].write(messages)
            return self._sinks[sink].flush()

    def resend(self, letter: DeadLetter) -> bool:
        """Write a message again that its sink would not take, and drop its letter; False where the sink does not take it now."""
        if self._given(letter.sink, [letter.record]):
            return False
        self._store.drop([letter.id])
        self._counts.found(letter.matches)
        self._counts.delivered({letter.sink: letter.matches})
        return True

    def _counted(self, part: Part) -> Part:
        self._counts.read(part)
        return part

    # Around it

    def start(self) -> None:
        """Begin, in threads of its own."""
        # No source has a name with a capital.
        work = {"Deliver": self._deliver} | {name: partial(self._read_out, feed) for name, feed in self._feeds.items()}
        self._running, self._reading = len(work), len(self._feeds)
        if self._spool is not None:
            work["Spool"] = self._spool.run
            self._running += 1
        for name, run in work.items():
            threading.Thread(target=self._run, args=(run,), name=f"streamer-{name}", daemon=True).start()

    def stop(self) -> None:
        """Read no more. What was read is delivered, or in the spool, and then it has ended."""
        self._is_stopping = True
        if self._spool is not None:
            self._spool.stop()

    @property
    def has_read(self) -> bool:
        """Whether all sources have ended."""
        return not self._reading

    def wait(self, seconds: float) -> bool:
        """Tell whether it has ended, after so long at most."""
        return self._ended.wait(seconds)

    def replay(self, letters: Iterable[DeadLetter]) -> tuple[int, int]:
        """Match dead letters again, deliver what they match, and drop them; in the calling thread, and not started.

        Returns:
            How many were dropped, and how many could not be read again.
        """
        good = bad = 0
        for letter in letters:
            parts = self._again(letter)
            is_bad = any(part.dead for part in parts)
            good, bad = good + (not is_bad), bad + is_bad
            self._hold(parts)
        return good, bad

    def replay_beside(self, letter: DeadLetter) -> bool:
        """Match a dead letter again while all runs; it is dropped once what it matches is held. A message goes to the spool.

        Returns:
            Whether it could be read again, or has a sink.
        """
        if letter.stage == "deliver":
            if letter.sink in self._sinks:
                return self.resend(letter)
            if self._spool is None or letter.sink not in self._spool.sinks:
                return False
            self._spool.replay([letter])
            return True
        parts = self._again(letter)
        for part in parts:
            self._waiting.put(part)
        return not any(part.dead for part in parts)

    def drop_beside(self, letter: DeadLetter) -> bool:
        """Drop a dead letter while all runs, and the message that waits for it; tell whether it was there."""
        if self._spool is not None and letter.sink in self._spool.sinks:
            return bool(self._spool.drop([letter]))
        return bool(self._store.drop([letter.id]))

    def enable(self, sink: str) -> bool | None:
        """Ask an endpoint again that wanted no more; tell whether it was so, or None where there is no such endpoint."""
        return self._spool.enable(sink) if self._spool is not None and sink in self._spool.sinks else None

    def _again(self, letter: DeadLetter) -> list[Part]:
        feed = self._feeds[letter.source]
        batch = Batch(letter.partition, [letter.record], partial(_always, letter.position), None)
        parts = list(self._matched(feed, batch, None if letter.part < 0 else letter.part))
        if not any(part.dead for part in parts):
            parts[-1].dropped.append(letter.id)
        return parts

    def state_of(self, feed: str, *, idle: float, stalled: float) -> Literal["reading", "idle", "stalled", "ended"]:
        """Tell what a source is doing: nothing came of it for *idle* seconds, or its matches wait for as much as *stalled*."""
        if feed in self._ended_feeds:
            return "ended"
        if self.stalled_for() >= stalled:
            return "stalled"
        since = self._read_at.get(feed)
        return "idle" if since is None or time.monotonic() - since >= idle else "reading"

    def stalled_for(self) -> float:
        """Return for how many seconds the sinks have not held what they were given; 0 where they were given nothing."""
        since = self._delivering_since
        return 0.0 if since is None else time.monotonic() - since

    def _read_out(self, feed: Feed) -> None:
        try:
            self._consume(feed)
        finally:
            self._ended_feeds.add(feed.name)
            with self._lock:
                self._reading -= 1
                if not self._reading:
                    self._waiting.end()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SinkGone as gone:
            _LOGGER.info("%s; nothing more is read", gone)
            self._give_up()
        except Exception as error:
            # The first one is what went wrong; others may follow from it.
            self.failed = self.failed or error
            self._give_up()
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._ended.set()

    def _give_up(self) -> None:
        self._is_stopping = True
        self._waiting.end(drop=True)
        if self._spool is not None:
            self._spool.stop()


def _always(position: Position, _: int) -> Position:
    return position
