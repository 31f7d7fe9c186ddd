"""Carry records from their source to the sinks: from read to acknowledge.

```
a thread for each source                                     one thread
read ─► decode ─► match ─► messages ─► [ waiting, bounded ] ─► write ─► flush ─► store ─► acknowledge
                                                                                   └─► the spool ─► endpoints
```

One thread delivers, so each sink gets messages in the order in which their source was read. While that thread waits for a disk,
the others continue to match. A batch is matched on one version of the engine. Any failure ends the pipeline, without confirming a
later position. Messages for endpoints are stored in the commit that confirms their events. They leave the store at the pace of
their endpoints.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final, Literal, final

from streamer.core.matches import Matches
from streamer.engine.batch import AT_ONCE
from streamer.engine.engine import Engine
from streamer.errors import EventError, ServiceError
from streamer.locks import Lock
from streamer.logs import about
from streamer.service import faults
from streamer.service.connectors import formats
from streamer.service.connectors.protocols import NOTHING, Away, Batch, EndOfSource, Outcome, Position, Sink, SinkGone, Source
from streamer.service.connectors.registry import Messages
from streamer.service.connectors.unavailable import Absent
from streamer.service.delivery import dead_letters
from streamer.service.delivery.messages import Speaker
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.queue import Part, Waiting
from streamer.service.delivery.rejected import Rejected
from streamer.service.delivery.spool import Spool, tally
from streamer.service.observed.attempts import Attempt, Attempts
from streamer.service.observed.events import Events
from streamer.service.observed.matches import MatchCounts
from streamer.service.observed.rates import Delays
from streamer.service.store.database import Fenced
from streamer.service.store.rows import Confirmed, DeadLetter, milliseconds
from streamer.service.store.store import Store

#: The longest wait for records of a source, in seconds; then its thread checks whether the pipeline is stopping.
WAIT: Final = 0.25
_LOGGER: Final = logging.getLogger("streamer.service")


@contextmanager
def named(kind: str, name: str) -> Iterator[None]:
    """Add the section and the name of a part to its errors."""
    try:
        yield
    except ServiceError as error:
        raise type(error)(f"{kind}.{name}: {error}") from error


@final
@dataclass(frozen=True, slots=True)
class Feed:
    """A source with its name and the decoder of its records.

    Attributes:
        decode: the decoder; None if each record is an event.
        again: decodes a record that the source itself could not decode; None for a source that decodes no records.
        messages: has the schemas of the records; None if they need none.
    """

    name: str
    source: Source
    decode: formats.Decoder | None
    again: formats.Decoder | None = None
    messages: Messages | None = None

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """Check whether the source could be opened, as `Source.check` does, and whether the schemas can be read."""
        self.source.check(confirmed)
        if self.messages is not None:
            self.messages.check()

    def taken(self, batch: Batch) -> formats.Taken:
        """Return the events of a batch. Raises ServiceError: Away if the schemas cannot be read now."""
        with named("sources", self.name):
            return formats.taken(self.decode, batch)


@final
@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a pipeline that come from the configuration. A reload replaces all of them at once.

    Attributes:
        sinks: those that the pipeline writes to; the spool has the others.
        at_once: the most events that are matched together.
        dead_letter: the sink that gets a message about each dead letter; None for none.
    """

    feeds: Mapping[str, Feed]
    sinks: Mapping[str, Sink]
    speaker: Speaker
    at_once: int = AT_ONCE
    dead_letter: str | None = None


@final
class Pipeline:
    """Runs until all sources have ended, `stop` is called, or something fails.

    Attributes:
        events: a sample of the events that were matched.
        matches: how often each subscription matched.
        delays: how old the latest events were when they were read.
        failed: the error that ended the pipeline, if any.
    """

    def __init__(self, engine: Engine, store: Store, setup: Setup, counts: Counts, spool: Spool) -> None:
        self._engine, self._store, self._setup, self._counts = engine, store, setup, counts
        self._spool = spool
        self.events, self.matches, self.delays = Events(engine._options), MatchCounts(), Delays(engine._options)
        self._writing = Lock()
        # For a thread that matches dead letters while the sources run, and for a reload.
        self._turn = Lock()
        self.absent = Absent()
        self._is_paused = False
        self._parked = self._reading = self._running = 0
        spool.announce = self._announce
        self._waiting = Waiting()
        self.rejected = Rejected(_LOGGER.warning, store.number_of)
        self._is_stopping = False
        self._lock = Lock()
        self._moved = threading.Condition(self._lock)
        self._ended = threading.Event()
        self.failed: Exception | None = None
        self._read_at: dict[str, float] = {}
        self._ended_feeds: set[str] = set()
        self._delivering_since: float | None = None

    # From a source to the sinks

    def _consume(self, feed: Feed) -> None:
        if not self.absent.wait(f"sources.{feed.name}", feed, partial(self._is_read, feed)):
            return
        while not self._is_stopping:
            if self._is_paused and not self._park(feed):
                return
            try:
                self._pass_on(feed)
            except EndOfSource:
                return

    def _pass_on(self, feed: Feed) -> None:
        """Read a batch and put its parts into the queue. The batch is freed before the next one is read.

        Raises:
            EndOfSource: the source has no more records.
        """
        batch = feed.source.read(WAIT)
        if batch is not None:
            self._read_at[feed.name] = time.monotonic()
            faults.point("source.read")
            for part in self._matched(feed, self._taken(feed, batch)):
                self._waiting.put(part)
                faults.point("pipeline.queued")

    def _taken(self, feed: Feed, batch: Batch) -> formats.Taken:
        """Return the events of a batch; wait while its schemas cannot be read.

        Raises:
            EndOfSource: the feed stopped during the wait. The batch is not confirmed, so it will be read again.
        """
        while True:
            try:
                return feed.taken(batch)
            except Away:
                name = f"sources.{feed.name}"
                self.absent.open(name, feed, lambda: _none(feed.taken(batch)))
                if not self.absent.wait(name, feed, partial(self._is_read, feed)):
                    raise EndOfSource from None

    def _matched(self, feed: Feed, decoded: formats.Taken, only: int | None = None) -> Iterator[Part]:
        setup, batch = self._setup, decoded.batch
        known = self._store.generation(feed.name, batch.partition)
        ours = Confirmed(feed.name, batch.partition, None, known if batch.generation is None else batch.generation)
        part = Part(feed.name, ours)
        for place, error in decoded.refused:
            part.events += 1
            part.refuse(feed.name, batch, place, error)
            if part.is_full:
                yield self._counted(part)
                part = part.following()
        for first in range(0, len(decoded.texts), setup.at_once):
            texts = decoded.texts[first : first + setup.at_once]
            part.events += len(texts)
            sampled, tally = self.events.wanted(len(texts)), self.matches.begin()
            results: dict[int, Matches | EventError] = {}
            for at, found in self._engine.match_batch(texts).matched():
                place = decoded.place(first + at)
                if only is not None and place.part != only:
                    continue
                if sampled and at in sampled:
                    results[at] = found
                if isinstance(found, EventError):
                    part.refuse(feed.name, batch, place, found)
                    if part.is_full:
                        yield self._counted(part)
                        part = part.following()
                    continue
                part.matched += 1
                if tally is not None:
                    tally.add(found)
                for message in setup.speaker.messages(feed.name, batch.partition, place, texts[at], found):
                    if message.sink is None or message.sink in setup.sinks:
                        part.add(message)
                    else:
                        part.spool(setup.speaker.spooled(message))
                    if part.is_full:
                        yield self._counted(part)
                        part = part.following()
            if tally is not None:
                self.matches.add(tally)
            self.delays.add(feed.name, texts[-1])
            for at in sampled:
                place = decoded.place(first + at)
                self.events.add(feed.name, batch.partition, (place.position, place.part), texts[at], results.get(at))
        part.confirmed = replace(ours, position=None if batch.is_last else batch.confirm, is_over=batch.is_last)
        faults.point("pipeline.matched")
        yield self._counted(part)

    def _is_read(self, feed: Feed) -> bool:
        """Return whether to continue reading a feed; wait while the pipeline is paused."""
        return not self._is_stopping and (not self._is_paused or self._park(feed))

    def _has_sinks(self) -> bool:
        """Wait for the sinks that are away; return whether all are available."""
        while not self._is_stopping:
            if (name := next(filter(self.is_away, self._setup.sinks), None)) is None:
                return True
            sink = self._setup.sinks[name]
            self.absent.wait(f"sinks.{name}", sink, lambda: not self._is_stopping)
        return not any(map(self.is_away, self._setup.sinks))

    def is_away(self, sink: str) -> bool:
        """Return whether a sink was away at the start, and still is."""
        return sink in self._setup.sinks and self.absent.has(f"sinks.{sink}", self._setup.sinks[sink])

    def _deliver(self) -> None:
        try:
            if not self._has_sinks():
                _LOGGER.warning("some sinks were unavailable, so no message was delivered; the next run delivers them")
                self._waiting.end(drop=True)
                return
            while parts := self._waiting.take():
                self._delivering_since = time.monotonic()
                self._hold(parts)
                self._delivering_since = None
                # Free the memory before the wait for the next parts, because these may be large.
                del parts
            self.rejected.rest(is_over=True)
        finally:
            self._spool.complete()

    def _hold(self, parts: Sequence[Part]) -> None:
        with self._writing:
            refused = self._write(parts)
        faults.point("sink.flushed")
        while True:
            try:
                self._commit(parts, refused)
                break
            except Fenced as fenced:
                parts = self._left(parts, fenced)
                ours = {part.whose[:2] for part in parts}
                refused = [letter for letter in refused if (letter.source, letter.partition) in ours]
        self.rejected.add(letter for part in parts for letter in part.dead)
        for each in _last(parts):
            if each.position is not None:
                self._setup.feeds[each.source].source.acknowledge(each.partition, each.position)
        faults.point("pipeline.acknowledged")

    def _commit(self, parts: Sequence[Part], refused: Sequence[DeadLetter]) -> None:
        """Store the results of some parts in one transaction. Raises Fenced."""
        dead = [*(letter for part in parts for letter in part.dead), *refused]
        spooled = [each for part in parts for each in part.spooled]
        sink = self._setup.dead_letter
        if dead and sink is not None and sink in self._spool.sinks:
            spooled += dead_letters.spooled(sink, dead)
        sums = tally(spooled)
        if sums:
            self._spool.await_room({sink: size for sink, (_, size, _) in sums.items()})
        if dead:
            self._announce(dead)
        confirmed = _last(parts)
        dropped = [number for part in parts for number in part.dropped]
        commit = partial(self._store.commit, confirmed, dead, dropped, spooled)
        if spooled:
            self._spool.hold(spooled, commit)
        elif dead or dropped or any(each.position is not None or each.is_over for each in confirmed):
            commit()
        lost: Counter[str] = Counter()
        for letter in refused:
            lost[letter.sink] += letter.matches
        delivering: Counter[str] = Counter()
        for part in parts:
            delivering += part.delivering
        self._counts.delivered(delivering - lost, lost)

    def _left(self, parts: Sequence[Part], fenced: Fenced) -> list[Part]:
        """Return the parts that are still ours. If a partition moved away and back, these are the parts read since it came back.

        Raises:
            ServiceError: another process reads a source that must have one process.
        """
        left = []
        for part in parts:
            if part.whose not in fenced.partitions:
                left.append(part)
                continue
            # Its sinks have stored these messages already, so they count as delivered.
            self._counts.delivered(part.delivering)
            self._counts.drop(sum(each.matches for each in part.spooled))
        for source, partition, generation in fenced.partitions:
            if generation == self._store.generation(source, partition):
                with named("sources", source):
                    self._setup.feeds[source].source.lost(partition)
        return left

    def _write(self, parts: Sequence[Part]) -> list[DeadLetter]:
        """Write messages and make them durable; return dead letters for those that their sinks refuse for good."""
        written: dict[str, list[Part]] = {}
        for part in parts:
            for sink, held in part.held.items():
                self._setup.sinks[sink].write(held.messages)
                written.setdefault(sink, []).append(part)
        faults.point("sink.written")
        refused = []
        for sink, several in written.items():
            if outcomes := self._setup.sinks[sink].flush():
                messages = [message for part in several for message in part.undelivered(sink)]
                refused += [dead_letters.undelivered(sink, messages[at], each.code, each.reason) for at, each in outcomes]
        if refused:
            faults.point("sink.refused")
        return refused

    def _announce(self, dead: Sequence[DeadLetter]) -> None:
        """Write messages about dead letters, if the sink for them is not in the spool. The spool's thread calls it, too."""
        with self._writing:
            sink = self._setup.dead_letter
            # Leave out dead letters of this sink itself: messages about them would go to the same sink.
            announced = [letter for letter in dead if letter.sink != sink]
            if sink is None or sink not in self._setup.sinks or not announced:
                return
            if self.is_away(sink):
                _LOGGER.warning("sinks.%s: it is unavailable, so messages about %d dead letters are lost", sink, len(announced))
                return
            for at, outcome in self._given(sink, [dead_letters.message(letter)[1] for letter in announced]):
                of = announced[at]
                _LOGGER.warning(
                    "sinks.%s: cannot send a message about a dead letter of %s, %s %s: %s",
                    *(sink, of.source, of.partition, of.position, outcome.reason),
                )

    def _given(self, sink: str, messages: Sequence[bytes]) -> Sequence[tuple[int, Outcome]]:
        with self._writing:
            self._setup.sinks[sink].write(messages)
            return self._setup.sinks[sink].flush()

    def attempts(self, sink: str) -> Attempts | None:
        """Return the results of the last attempts to deliver to a sink; None if the sink is not in the spool."""
        return self._spool.attempts if sink in self._spool.sinks else None

    def test(self, sink: str) -> Attempt | None:
        """Send a test message at once, ahead of all waiting messages; return the attempt, or None if the sink is missing."""
        identity, text = dead_letters.test(sink)
        began = time.monotonic()
        if (outcome := self._spool.test(sink, identity, text)) is None:
            with self._turn:
                if sink not in self._setup.sinks:
                    return None
                if self.is_away(sink):
                    outcome = Outcome("later", "away", "it is away; it is waited for")
                else:
                    outcomes = self._given(sink, [text])
                    outcome = outcomes[0][1] if outcomes else Outcome("delivered")
        return Attempt(milliseconds(), time.monotonic() - began, 1, identity, outcome)

    def resend(self, letter: DeadLetter) -> bool:
        """Write a refused message again, and drop its dead letter; return False if the sink does not accept it now."""
        if self.is_away(letter.sink) or self._given(letter.sink, [letter.record]):
            return False
        self._store.drop([letter.id])
        self._counts.found(letter.matches)
        self._counts.delivered({letter.sink: letter.matches})
        return True

    def _counted(self, part: Part) -> Part:
        self._counts.read(part)
        return part

    # Start and stop

    def start(self) -> None:
        """Start the threads of the pipeline."""
        feeds = self._setup.feeds.values()
        self._reading = len(feeds)
        # A capital letter, because names of sources have none.
        self._begin({"Deliver": self._deliver, "Spool": self._spool.run} | self._readers(feeds))

    def _readers(self, feeds: Iterable[Feed]) -> dict[str, Callable[[], None]]:
        return {feed.name: partial(self._read_out, feed) for feed in feeds}

    def _begin(self, work: Mapping[str, Callable[[], None]]) -> None:
        with self._lock:
            self._running += len(work)
        for name, run in work.items():
            threading.Thread(target=self._run, args=(run,), name=f"streamer-{name}", daemon=True).start()

    def stop(self) -> None:
        """Stop reading. The pipeline ends once all records that were read are delivered, or in the spool."""
        self._is_stopping = True
        self._spool.stop()

    # Reload

    @contextmanager
    def paused(self, seconds: float) -> Iterator[None]:
        """Pause the sources while the context lasts, after all records that were read are delivered, or in the spool.

        Raises:
            ServiceError: delivery took longer than *seconds*, or the service is stopping. Either way, it delivers these records.
        """
        deadline = time.monotonic() + seconds
        if not self._turn.acquire(timeout=seconds):
            raise ServiceError("the sinks have not confirmed the matches of a replayed dead letter; you can try again")
        try:
            self._is_paused = True
            try:
                self._drain(deadline)
                yield
            finally:
                with self._moved:
                    self._is_paused = False
                    self._moved.notify_all()
        finally:
            self._turn.release()

    def _drain(self, deadline: float) -> None:
        with self._moved:
            if self._is_stopping or not self._reading:
                raise ServiceError("the service is ending")
            is_parked = self._moved.wait_for(lambda: self._parked == self._reading, deadline - time.monotonic())
        is_drained = self._waiting.drained(max(deadline - time.monotonic(), 0.0))
        if self._is_stopping:
            raise ServiceError("the service is ending")
        if not is_parked:
            raise ServiceError("a source did not come to rest")
        if not is_drained:
            raise ServiceError("the sinks have not confirmed the matches of earlier events; you can try again")

    @property
    def setup(self) -> Setup:
        """The current setup."""
        return self._setup

    def take(self, setup: Setup) -> None:
        """Replace the setup, while the pipeline is paused.

        Feeds that both setups have continue. The caller opens the new feeds before, and closes the removed ones.
        """
        before = self._setup.feeds
        new = [feed for name, feed in setup.feeds.items() if before.get(name) is not feed]
        with self._writing:
            self._setup = setup
        named: dict[str, object] = {f"sources.{name}": feed for name, feed in setup.feeds.items()}
        self.absent.retain(named | {f"sinks.{name}": sink for name, sink in setup.sinks.items()})
        with self._lock:
            self._reading += len(new)
            self._ended_feeds -= {feed.name for feed in new} | (before.keys() - setup.feeds.keys())
        self._begin(self._readers(new))

    def _park(self, feed: Feed) -> bool:
        """Wait while the pipeline is paused; return whether the setup still has the feed afterwards."""
        with self._moved:
            self._parked += 1
            self._moved.notify_all()
            while self._is_paused:
                self._moved.wait()
            self._parked -= 1
        return self._setup.feeds.get(feed.name) is feed

    @property
    def has_read(self) -> bool:
        """Whether all sources have ended."""
        return not self._reading

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the pipeline, at most *seconds*; return whether it has ended."""
        return self._ended.wait(seconds)

    def replay(self, letters: Iterable[DeadLetter]) -> tuple[int, int]:
        """Match dead letters again, deliver the matches and drop the letters, in the calling thread, before the start.

        Returns:
            The numbers of letters that were dropped, and of those that could not be read again.
        """
        good = bad = 0
        for letter in letters:
            is_bad = False
            for part in self._again(letter):
                is_bad = is_bad or bool(part.dead)
                self._hold([part])
            good, bad = good + (not is_bad), bad + is_bad
        return good, bad

    def replay_beside(self, letter: DeadLetter) -> bool:
        """Match a dead letter again while the pipeline runs, and drop it once its matches are durable.

        A dead letter of a message is delivered again instead, directly or by the spool.

        Returns:
            Whether the record could be read again, or the sink accepted the message or has it in the spool.
        """
        if letter.stage == "deliver":
            with self._turn:
                if letter.sink in self._setup.sinks:
                    return self.resend(letter)
            if letter.sink not in self._spool.sinks:
                return False
            self._spool.replay([letter])
            return True
        with self._turn:
            if letter.source not in self._setup.feeds:
                return False
            is_bad = False
            for part in self._again(letter):
                is_bad = is_bad or bool(part.dead)
                self._waiting.put(part)
        return not is_bad

    def drop_beside(self, letter: DeadLetter) -> bool:
        """Drop a dead letter and its waiting message while the pipeline runs; return whether it existed."""
        return bool(self._spool.drop([letter]))

    def enable(self, sink: str) -> bool | None:
        """Resume delivery to a disabled endpoint; return whether it was disabled, or None if there is no such endpoint."""
        return self._spool.enable(sink) if sink in self._spool.sinks else None

    def forget(self, sink: str) -> int | None:
        """Drop the messages for a sink that the configuration no longer has; return how many, or None for any other sink."""
        return self._spool.clear(sink)

    def fail(self, error: Exception) -> None:
        """End the pipeline with an error from elsewhere, without confirming any further position."""
        self.failed = self.failed or error
        self._give_up()

    def _again(self, letter: DeadLetter) -> Iterator[Part]:
        """Match the record of a letter again, and yield the results part by part; the last part drops the letter.

        Only one part is in memory at a time, because the matches of one record may exceed the memory.
        """
        feed = self._setup.feeds[letter.source]
        if letter.part < 0 and feed.again is not None:
            feed = replace(feed, decode=feed.again)
        # Generation 0: it confirms no position, so it is valid whichever process has the partition now.
        batch = Batch(
            letter.partition, [letter.record], partial(_always, letter.position), None, keys=[letter.record_key], generation=0
        )
        last, is_bad = None, False
        for part in self._matched(feed, feed.taken(batch), None if letter.part < 0 else letter.part):
            if last is not None:
                yield last
            last, is_bad = part, is_bad or bool(part.dead)
        assert last is not None
        if not is_bad:
            last.dropped.append(letter.id)
        yield last

    def state_of(self, feed: str, *, idle: float, stalled: float) -> Literal["away", "reading", "idle", "stalled", "ended"]:
        """Return the state of a source: idle after *idle* seconds without events, stalled after *stalled* seconds of waiting."""
        if feed in self._ended_feeds:
            return "ended"
        if self.down_for(feed):
            return "away"
        if self.stalled_for() >= stalled:
            return "stalled"
        since = self.idle_for(feed)
        return "idle" if since is None or since >= idle else "reading"

    def down_for(self, feed: str) -> float:
        """Return for how many seconds the server of a source has not answered; infinity if it has not since the start."""
        found = self._setup.feeds.get(feed)
        if found is None or feed in self._ended_feeds:
            return 0.0
        if self.absent.has(f"sources.{feed}", found):
            return inf
        since = found.source.down_since
        # At the moment of its failure, too, it is above 0.
        return 0.0 if since is None else max(time.monotonic() - since, 0.001)

    def idle_for(self, feed: str) -> float | None:
        """Return the seconds since the last batch of a source; None before its first one."""
        since = self._read_at.get(feed)
        return None if since is None else time.monotonic() - since

    @property
    def spool_used(self) -> float:
        """The used share of the spool's room, for its fullest sink."""
        return self._spool.used()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of messages that wait to be written."""
        return self._waiting.size

    def stalled_for(self) -> float:
        """Return for how many seconds the current delivery has lasted; 0 if there is none."""
        since = self._delivering_since
        return 0.0 if since is None else time.monotonic() - since

    def _read_out(self, feed: Feed) -> None:
        try:
            # Sources log without their names.
            with about(source=feed.name):
                self._consume(feed)
        finally:
            faults.point("source.ended")
            with self._moved:
                # Under one lock, so that `paused` sees each source either as ended, or as parked here and counted.
                if self._is_paused:
                    self._park(feed)
                if self._setup.feeds.get(feed.name) is feed:
                    self._ended_feeds.add(feed.name)
                self._reading -= 1
                self._moved.notify_all()
                if not self._reading:
                    self._waiting.end()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SinkGone as gone:
            _LOGGER.info("%s; reading has ended", gone)
            self._give_up()
        except Exception as error:
            # `fail` keeps the first error; later ones may be its consequences.
            self.fail(error)
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._ended.set()

    def _give_up(self) -> None:
        self._is_stopping = True
        self._waiting.end(drop=True)
        self._spool.stop()


def _none(_: object) -> None:
    """Discard a return value."""


def _always(position: Position, _: int) -> Position:
    return position


def _last(parts: Iterable[Part]) -> list[Confirmed]:
    """Return the state to store for each partition: its last one, because that includes the earlier ones."""
    found: dict[tuple[str, str, int], Confirmed] = {}
    for part in parts:
        each = part.confirmed
        if each.position is not None or each.is_over or part.whose not in found:
            found[part.whose] = each
    return list(found.values())
