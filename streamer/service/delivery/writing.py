"""From parts to the sinks: messages are written, and results and positions are stored."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, final

from streamer.locks import Lock
from streamer.service import faults
from streamer.service.connectors.protocols import Outcome
from streamer.service.connectors.unavailable import Absent
from streamer.service.delivery import dead_letters
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.queue import Part
from streamer.service.delivery.rejected import Rejected
from streamer.service.delivery.setup import Setup, named
from streamer.service.delivery.spool import Spool, tally
from streamer.service.store.database import Fenced
from streamer.service.store.rows import Confirmed, DeadLetter
from streamer.service.store.store import Store

_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Writer:
    """Writes to the sinks, and stores the results. One thread at a time writes.

    Args:
        absent: the sinks that were unavailable at the start, among others.

    Attributes:
        rejected: logs the records that could not be read.
    """

    def __init__(self, store: Store, setup: Setup, counts: Counts, spool: Spool, absent: Absent) -> None:
        self._store, self._setup, self._counts, self._spool, self._absent = store, setup, counts, spool, absent
        self._writing = Lock()
        self.rejected = Rejected(_LOGGER.warning, store.number_of)
        spool.announce = self.announce

    @property
    def setup(self) -> Setup:
        """The current setup. A new one takes effect once the current write has ended."""
        return self._setup

    @setup.setter
    def setup(self, setup: Setup) -> None:
        with self._writing:
            self._setup = setup

    def deliver(self, parts: Sequence[Part]) -> None:
        """Write parts, store their results, and confirm their positions."""
        with self._writing:
            refused = self._write(parts)
        faults.point("sink.flushed")
        while True:
            try:
                self._commit(parts, refused)
                break
            except Fenced as fenced:
                parts = self._ours(parts, fenced)
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
            self.announce(dead)
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

    def _ours(self, parts: Sequence[Part], fenced: Fenced) -> list[Part]:
        """Return the parts that are still ours. If a partition moved away and back, these are the parts read since it came back.

        Raises:
            ServiceError: another process reads a source that must have one process.
        """
        ours = []
        for part in parts:
            if part.whose not in fenced.partitions:
                ours.append(part)
                continue
            # Its sinks have stored these messages already, so they count as delivered.
            self._counts.delivered(part.delivering)
            self._counts.drop(sum(each.matches for each in part.spooled))
        for source, partition, generation in fenced.partitions:
            if generation == self._store.generation(source, partition):
                with named("sources", source):
                    self._setup.feeds[source].source.lost(partition)
        return ours

    def _write(self, parts: Sequence[Part]) -> list[DeadLetter]:
        """Write messages and make them durable; return dead letters for those that their sinks refuse for good."""
        written: dict[str, list[Part]] = {}
        for part in parts:
            for sink, queue in part.direct.items():
                self._setup.sinks[sink].write(queue.messages)
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

    def announce(self, dead: Sequence[DeadLetter]) -> None:
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
            for at, outcome in self.send(sink, [dead_letters.message(letter)[1] for letter in announced]):
                of = announced[at]
                _LOGGER.warning(
                    "sinks.%s: cannot send a message about a dead letter of %s, %s %s: %s",
                    *(sink, of.source, of.partition, of.position, outcome.reason),
                )

    def send(self, sink: str, messages: Sequence[bytes]) -> Sequence[tuple[int, Outcome]]:
        """Write messages to a sink and make them durable; return those that it refused, by their index."""
        with self._writing:
            self._setup.sinks[sink].write(messages)
            return self._setup.sinks[sink].flush()

    def resend(self, letter: DeadLetter) -> bool:
        """Write a refused message again, and drop its dead letter; return False if the sink does not accept it now."""
        if self.is_away(letter.sink) or self.send(letter.sink, [letter.record]):
            return False
        self._store.drop([letter.id])
        self._counts.recover(letter.matches)
        self._counts.delivered({letter.sink: letter.matches})
        return True

    def away(self) -> str | None:
        """Return the name of a sink that was away at the start, and still is; None if all are available."""
        return next(filter(self.is_away, self._setup.sinks), None)

    def is_away(self, sink: str) -> bool:
        """Return whether a sink was away at the start, and still is."""
        return sink in self._setup.sinks and self._absent.has(f"sinks.{sink}", self._setup.sinks[sink])


def _last(parts: Iterable[Part]) -> list[Confirmed]:
    """Return the state to store for each partition: its last one, because that includes the earlier ones."""
    last: dict[tuple[str, str, int], Confirmed] = {}
    for part in parts:
        each = part.confirmed
        if each.position is not None or each.is_over or part.whose not in last:
            last[part.whose] = each
    return list(last.values())
