"""Match streams of events in automatic batches, with results in the order of the events.

A plain iterator cannot report whether its next event is available, so its batches are full, except for the last. An asynchronous
iterator is advanced ahead of time: available events are matched, and no event waits for one that has not arrived.

If the source fails, the results of the earlier events come first. Then its exception is raised.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from streamer.core.matches import Matches
from streamer.engine.matches import BatchMatches
from streamer.errors import EventError
from streamer.events.reading import EventSource

if TYPE_CHECKING:
    import asyncio

StreamResult: TypeAlias = Matches | EventError
"""The result of one event of a stream. A bad event gives an `EventError`, whose `index` is the event's position in the stream."""

MatchBatch: TypeAlias = Callable[[list[EventSource]], BatchMatches]


def stream(events: Iterable[EventSource], match: MatchBatch, at_once: int) -> Iterator[StreamResult]:
    """Yield the result of each event, matching *at_once* events at a time."""
    source, position, failed = iter(events), 0, None
    while failed is None:
        batch: list[EventSource] = []
        try:
            while len(batch) < at_once:
                batch.append(next(source))
        except Exception as error:
            failed = error
        yield from _numbered(match(batch), position)
        position += len(batch)
    if not isinstance(failed, StopIteration):
        raise failed


async def stream_async(events: AsyncIterable[EventSource], match: MatchBatch, at_once: int) -> AsyncGenerator[StreamResult]:
    """Yield the result of each event, matching the available events, up to *at_once* at a time."""
    import asyncio  # an awaiting program has imported it; other programs need not pay for it

    source, position, failed = aiter(events), 0, None
    coming = _ask(source)
    try:
        while failed is None:
            batch: list[EventSource] = []
            try:
                batch.append(await coming)
                coming = _ask(source)
                while len(batch) < at_once:
                    # One turn of the loop: a source with an available event yields it within this turn.
                    await asyncio.sleep(0)
                    if not coming.done():
                        break
                    batch.append(coming.result())
                    coming = _ask(source)
            except Exception as error:
                failed = error
            for result in _numbered(match(batch), position):
                yield result
            position += len(batch)
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
    if not isinstance(failed, StopAsyncIteration):
        raise failed


def _ask(source: AsyncIterator[EventSource]) -> asyncio.Future[EventSource]:
    import asyncio

    return asyncio.ensure_future(anext(source))


def _numbered(results: Iterable[StreamResult], position: int) -> Iterator[StreamResult]:
    for result in results:
        if isinstance(result, EventError) and result.index is not None:
            result.index += position
        yield result
