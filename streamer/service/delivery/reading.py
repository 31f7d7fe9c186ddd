"""From the sources to the queue: a thread for each source reads batches, and matches them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Final, Literal, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.logs import about
from streamer.service import faults
from streamer.service.connectors import formats
from streamer.service.connectors.protocols import Away, Batch, EndOfSource
from streamer.service.connectors.unavailable import Absent
from streamer.service.delivery.matching import Matcher
from streamer.service.delivery.queue import Waiting
from streamer.service.delivery.setup import Feed

#: The longest wait for records of a source, in seconds; then its thread checks whether the pipeline is stopping.
WAIT: Final = 0.25


@final
class Reading:
    """Reads sources until they end. It can be paused: then each thread waits between two batches.

    Args:
        waiting: gets the matches of each batch; it is ended with the last source.
        absent: the sources that were unavailable at the start, among others.
    """

    def __init__(self, matcher: Matcher, waiting: Waiting, absent: Absent) -> None:
        self._matcher, self._waiting, self._absent = matcher, waiting, absent
        self._is_paused = self._is_stopping = False
        self._parked = self._threads = 0
        self._moved = threading.Condition(Lock())
        self._read_at: dict[str, float] = {}
        self._ended: set[str] = set()

    def readers(self, feeds: Iterable[Feed]) -> dict[str, Callable[[], None]]:
        """Add sources; return the work of a thread for each, by its name."""
        work: dict[str, Callable[[], None]] = {feed.name: partial(self._run, feed) for feed in feeds}
        with self._moved:
            self._threads += len(work)
            self._ended -= work.keys()
        return work

    def forget(self, feeds: Iterable[str]) -> None:
        """Forget that removed sources have ended: one of the same name may come."""
        with self._moved:
            self._ended -= set(feeds)

    def stop(self) -> None:
        """Stop after the current batch of each source."""
        self._is_stopping = True

    @property
    def is_over(self) -> bool:
        """Whether all sources have ended."""
        return not self._threads

    # Pauses

    def pause(self, seconds: float) -> bool:
        """Pause all sources; return whether each has finished its batch within *seconds*.

        Raises:
            ServiceError: the service is stopping.
        """
        self._is_paused = True
        with self._moved:
            if self._is_stopping or self.is_over:
                raise ServiceError("the service is ending")
            return self._moved.wait_for(lambda: self._parked == self._threads, seconds)

    def resume(self) -> None:
        """End a pause."""
        with self._moved:
            self._is_paused = False
            self._moved.notify_all()

    def _park(self, feed: Feed) -> bool:
        """Wait while reading is paused; return whether the setup still has the feed afterwards."""
        with self._moved:
            self._parked += 1
            self._moved.notify_all()
            while self._is_paused:
                self._moved.wait()
            self._parked -= 1
        return self._is_current(feed)

    def _is_current(self, feed: Feed) -> bool:
        return self._matcher.setup.feeds.get(feed.name) is feed

    def _continues(self, feed: Feed) -> bool:
        """Return whether to continue reading a feed; wait while reading is paused."""
        return not self._is_stopping and (not self._is_paused or self._park(feed))

    # The thread of a source

    def _run(self, feed: Feed) -> None:
        try:
            # Sources log without their names.
            with about(source=feed.name):
                self._read(feed)
        finally:
            faults.point("source.ended")
            with self._moved:
                # Under one lock, so that `pause` sees each source either as ended, or as parked here and counted.
                if self._is_paused:
                    self._park(feed)
                if self._is_current(feed):
                    self._ended.add(feed.name)
                self._threads -= 1
                self._moved.notify_all()
                if self.is_over:
                    self._waiting.end()

    def _read(self, feed: Feed) -> None:
        if not self._absent.wait(f"sources.{feed.name}", feed, partial(self._continues, feed)):
            return
        while self._continues(feed):
            try:
                self._read_batch(feed)
            except EndOfSource:
                return

    def _read_batch(self, feed: Feed) -> None:
        """Read a batch and put its parts into the queue. The batch is freed before the next one is read.

        Raises:
            EndOfSource: the source has no more records.
        """
        batch = feed.source.read(WAIT)
        if batch is not None:
            self._read_at[feed.name] = time.monotonic()
            faults.point("source.read")
            for part in self._matcher.parts(feed, self._records(feed, batch)):
                self._waiting.put(part)
                faults.point("pipeline.queued")

    def _records(self, feed: Feed, batch: Batch) -> formats.BatchEvents:
        """Return the events of a batch; wait while its schemas cannot be read.

        Raises:
            EndOfSource: the feed stopped during the wait. The batch is not confirmed, so it will be read again.
        """
        while True:
            try:
                return feed.events_of(batch)
            except Away:
                name = f"sources.{feed.name}"
                self._absent.open(name, feed, lambda: _discard(feed.events_of(batch)))
                if not self._absent.wait(name, feed, partial(self._continues, feed)):
                    raise EndOfSource from None

    # The states of sources

    def state_of(self, feed: str, *, idle: float, is_stalled: bool) -> Literal["away", "reading", "idle", "stalled", "ended"]:
        """Return the state of a source: idle after *idle* seconds without events."""
        if feed in self._ended:
            return "ended"
        if self.down_for(feed):
            return "away"
        if is_stalled:
            return "stalled"
        since = self.idle_for(feed)
        return "idle" if since is None or since >= idle else "reading"

    def down_for(self, name: str) -> float:
        """Return for how many seconds the server of a source has not answered; infinity if it has not since the start."""
        feed = self._matcher.setup.feeds.get(name)
        if feed is None or name in self._ended:
            return 0.0
        if self._absent.has(f"sources.{name}", feed):
            return inf
        since = feed.source.down_since
        # At the moment of its failure, too, it is above 0.
        return 0.0 if since is None else max(time.monotonic() - since, 0.001)

    def idle_for(self, feed: str) -> float | None:
        """Return the seconds since the last batch of a source; None before its first one."""
        since = self._read_at.get(feed)
        return None if since is None else time.monotonic() - since


def _discard(_: object) -> None:
    pass
