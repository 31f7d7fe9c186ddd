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

```
pipeline.py  its threads, from start to end, and its pauses
reading.py   the threads that read       matching.py  from a batch to parts
queue.py     the parts that wait         writing.py   from parts to sinks and store
```
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, final

from streamer.engine.engine import Engine
from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service.connectors.protocols import Outcome, SinkGone
from streamer.service.connectors.unavailable import Absent
from streamer.service.delivery import dead_letters
from streamer.service.delivery.matching import Matcher
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.queue import Waiting
from streamer.service.delivery.reading import Reading
from streamer.service.delivery.setup import Setup
from streamer.service.delivery.spool import Spool
from streamer.service.delivery.writing import Writer
from streamer.service.observed.attempts import Attempt, Attempts
from streamer.service.store.rows import DeadLetter, milliseconds
from streamer.service.store.store import Store

_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Pipeline:
    """Runs until all sources have ended, `stop` is called, or something fails.

    Attributes:
        matcher, reading, writer: its parts.
        absent: the sources and sinks that were unavailable at the start, and still are.
        failed: the error that ended the pipeline, if any.
    """

    def __init__(self, engine: Engine, store: Store, setup: Setup, counts: Counts, spool: Spool) -> None:
        self._spool, self._waiting = spool, Waiting()
        self.absent = Absent()
        self.matcher = Matcher(engine, store, setup, counts)
        self.reading = Reading(self.matcher, self._waiting, self.absent)
        self.writer = Writer(store, setup, counts, spool, self.absent)
        # For a thread that matches dead letters while the sources run, and for a reload.
        self._turn = Lock()
        self._is_stopping = False
        self._lock, self._running = Lock(), 0
        self._ended = threading.Event()
        self.failed: Exception | None = None
        self._delivering_since: float | None = None

    @property
    def setup(self) -> Setup:
        """The current setup."""
        return self.matcher.setup

    # Threads

    def start(self) -> None:
        """Start the threads of the pipeline."""
        readers = self.reading.readers(self.setup.feeds.values())
        # A capital letter, because names of sources have none.
        self._begin({"Deliver": self._deliver, "Spool": self._spool.run} | readers)

    def _begin(self, work: Mapping[str, Callable[[], None]]) -> None:
        with self._lock:
            self._running += len(work)
        for name, run in work.items():
            threading.Thread(target=self._run, args=(run,), name=f"streamer-{name}", daemon=True).start()

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

    def _deliver(self) -> None:
        try:
            if not self._has_sinks():
                _LOGGER.warning("some sinks were unavailable, so no message was delivered; the next run delivers them")
                self._waiting.end(drop=True)
                return
            while parts := self._waiting.take():
                self._delivering_since = time.monotonic()
                self.writer.deliver(parts)
                self._delivering_since = None
                # Free the memory before the wait for the next parts, because these may be large.
                del parts
            self.writer.rejected.rest(is_over=True)
        finally:
            self._spool.complete()

    def _has_sinks(self) -> bool:
        """Wait for the sinks that are away; return whether all are available."""
        while not self._is_stopping:
            if (name := self.writer.away()) is None:
                return True
            self.absent.wait(f"sinks.{name}", self.setup.sinks[name], lambda: not self._is_stopping)
        return self.writer.away() is None

    def stop(self) -> None:
        """Stop reading. The pipeline ends once all records that were read are delivered, or in the spool."""
        self._is_stopping = True
        self.reading.stop()
        self._spool.stop()

    def fail(self, error: Exception) -> None:
        """End the pipeline with an error from elsewhere, without confirming any further position."""
        self.failed = self.failed or error
        self._give_up()

    def _give_up(self) -> None:
        self.stop()
        self._waiting.end(drop=True)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the pipeline, at most *seconds*; return whether it has ended."""
        return self._ended.wait(seconds)

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
            self._drain(deadline)
            yield
        finally:
            self.reading.resume()
            self._turn.release()

    def _drain(self, deadline: float) -> None:
        is_parked = self.reading.pause(max(deadline - time.monotonic(), 0.0))
        is_drained = self._waiting.drained(max(deadline - time.monotonic(), 0.0))
        if self._is_stopping:
            raise ServiceError("the service is ending")
        if not is_parked:
            raise ServiceError("a source did not come to rest")
        if not is_drained:
            raise ServiceError("the sinks have not confirmed the matches of earlier events; you can try again")

    def take(self, setup: Setup) -> None:
        """Replace the setup, while the pipeline is paused.

        Feeds that both setups have continue. The caller opens the new feeds before, and closes the removed ones.
        """
        before = self.setup.feeds
        new = [feed for name, feed in setup.feeds.items() if before.get(name) is not feed]
        self.writer.setup = self.matcher.setup = setup
        parts: dict[str, object] = {f"sources.{name}": feed for name, feed in setup.feeds.items()}
        self.absent.retain(parts | {f"sinks.{name}": sink for name, sink in setup.sinks.items()})
        self.reading.forget(before.keys() - setup.feeds.keys())
        self._begin(self.reading.readers(new))

    # Dead letters

    def replay(self, letters: Iterable[DeadLetter]) -> tuple[int, int]:
        """Match dead letters again, deliver the matches and drop the letters, in the calling thread, before the start.

        Returns:
            The numbers of letters that were dropped, and of those that could not be read again.
        """
        good = bad = 0
        for letter in letters:
            is_bad = False
            for part in self.matcher.parts_of(letter):
                is_bad = is_bad or bool(part.dead)
                self.writer.deliver([part])
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
                if letter.sink in self.setup.sinks:
                    return self.writer.resend(letter)
            if letter.sink not in self._spool.sinks:
                return False
            self._spool.replay([letter])
            return True
        with self._turn:
            if letter.source not in self.setup.feeds:
                return False
            is_bad = False
            for part in self.matcher.parts_of(letter):
                is_bad = is_bad or bool(part.dead)
                self._waiting.put(part)
        return not is_bad

    def drop_beside(self, letter: DeadLetter) -> bool:
        """Drop a dead letter and its waiting message while the pipeline runs; return whether it existed."""
        return bool(self._spool.drop([letter]))

    # Endpoints and numbers

    def enable(self, sink: str) -> bool | None:
        """Resume delivery to a disabled endpoint; return whether it was disabled, or None if there is no such endpoint."""
        return self._spool.enable(sink) if sink in self._spool.sinks else None

    def forget(self, sink: str) -> int | None:
        """Drop the messages for a sink that the configuration no longer has; return how many, or None for any other sink."""
        return self._spool.clear(sink)

    def attempts(self, sink: str) -> Attempts | None:
        """Return the results of the last attempts to deliver to a sink; None if the sink is not in the spool."""
        return self._spool.attempts if sink in self._spool.sinks else None

    def test(self, sink: str) -> Attempt | None:
        """Send a test message at once, ahead of all waiting messages; return the attempt, or None if the sink is missing."""
        identity, text = dead_letters.test(sink)
        began = time.monotonic()
        if (outcome := self._spool.test(sink, identity, text)) is None:
            with self._turn:
                if sink not in self.setup.sinks:
                    return None
                if self.writer.is_away(sink):
                    outcome = Outcome("later", "away", "it is away; it is waited for")
                else:
                    outcomes = self.writer.send(sink, [text])
                    outcome = outcomes[0][1] if outcomes else Outcome("delivered")
        return Attempt(milliseconds(), time.monotonic() - began, 1, identity, outcome)

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
