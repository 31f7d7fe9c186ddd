"""From a batch of records to parts: its events are matched, and their matches become messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import final

from streamer.core.matches import Matches
from streamer.engine.engine import Engine
from streamer.errors import EventError
from streamer.service import faults
from streamer.service.connectors import formats
from streamer.service.connectors.protocols import Batch, Position
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.queue import Part
from streamer.service.delivery.setup import Feed, Setup
from streamer.service.observed.events import Events
from streamer.service.observed.matches import MatchCounts
from streamer.service.observed.rates import Delays
from streamer.service.store.rows import Confirmed, DeadLetter
from streamer.service.store.store import Store


@final
class Matcher:
    """Matches batches. The threads of all sources use it.

    Attributes:
        setup: the current setup.
        events: a sample of the events that were matched.
        matches: how often each subscription matched.
        delays: how old the latest events were when they were read.
    """

    def __init__(self, engine: Engine, store: Store, setup: Setup, counts: Counts) -> None:
        self._engine, self._store, self._counts = engine, store, counts
        self.setup = setup
        self.events, self.matches, self.delays = Events(engine._options), MatchCounts(), Delays(engine._options)

    def parts(self, feed: Feed, decoded: formats.BatchEvents, only: int | None = None) -> Iterator[Part]:
        """Match the events of a batch, and yield their messages part by part. The last part confirms the batch.

        Args:
            only: the event of a record; None for all.
        """
        setup, batch = self.setup, decoded.batch
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
            for at, result in self._engine.match_batch(texts).matched():
                place = decoded.place(first + at)
                if only is not None and place.part != only:
                    continue
                if sampled and at in sampled:
                    results[at] = result
                if isinstance(result, EventError):
                    part.refuse(feed.name, batch, place, result)
                    if part.is_full:
                        yield self._counted(part)
                        part = part.following()
                    continue
                part.matched += 1
                if tally is not None:
                    tally.add(result)
                for message in setup.speaker.messages(feed.name, batch.partition, place, texts[at], result):
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

    def parts_of(self, letter: DeadLetter) -> Iterator[Part]:
        """Match the record of a letter again, and yield the results part by part; the last part drops the letter.

        Only one part is in memory at a time, because the matches of one record may exceed the memory.
        """
        feed = self.setup.feeds[letter.source]
        if letter.part < 0 and feed.again is not None:
            feed = replace(feed, decode=feed.again)
        # Generation 0: it confirms no position, so it is valid whichever process has the partition now.
        batch = Batch(
            letter.partition, [letter.record], partial(_always, letter.position), None, keys=[letter.record_key], generation=0
        )
        last, is_bad = None, False
        for part in self.parts(feed, feed.events_of(batch), None if letter.part < 0 else letter.part):
            if last is not None:
                yield last
            last, is_bad = part, is_bad or bool(part.dead)
        assert last is not None
        if not is_bad:
            last.dropped.append(letter.id)
        yield last

    def _counted(self, part: Part) -> Part:
        self._counts.read(part)
        return part


def _always(position: Position, _: int) -> Position:
    return position
