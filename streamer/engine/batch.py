"""Streams of JSON lines into and through an engine, in constant memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from streamer.engine.core import Changes, Core, Mode, Options, Source
from streamer.engine.lines import LineSource, read_blocks, read_lines
from streamer.engine.matches import Matches
from streamer.errors import BulkSubscriptionError, EventError, SubscriptionError


@final
@dataclass(frozen=True, slots=True)
class LineResult:
    """What one line of a stream came to.

    Attributes:
        line: its number, from 1; blank lines are counted and have no result.
        result: `Matches`, or the `EventError` in a bad line's place.
    """

    line: int
    result: Matches | EventError

    @property
    def error(self) -> EventError | None:
        """Why the line is bad; None for a good one."""
        return self.result if isinstance(self.result, EventError) else None

    @property
    def matches(self) -> Matches:
        """The subscriptions that match. Raises the EventError of a bad line."""
        if isinstance(self.result, EventError):
            raise self.result
        return self.result


def match_lines(
    core: Core,
    source: LineSource,
    options: Options,
    tenant: str | None,
    collection: str | None,
    *,
    batch_size: int | None = None,
    threads: int = 1,
) -> Iterator[LineResult]:
    """Match lines as they are read, up to *batch_size* at once; nothing waits for a line that has not come yet."""
    for block in read_blocks(source, max_bytes=options.limits.max_event_bytes):
        together = batch_size or options.batch_size
        for at in range(0, len(block), together):
            yield from _match_lines(core, block[at : at + together], tenant, collection, threads)


def _match_lines(
    core: Core, block: Sequence[tuple[int, bytes | EventError]], tenant: str | None, collection: str | None, threads: int
) -> Iterator[LineResult]:
    events = [line for _, line in block if not isinstance(line, EventError)]
    results = core.match_batch(events, tenant, collection, threads)
    position = 0
    for number, line in block:
        if isinstance(line, EventError):
            core.reject(line.code.value)
            yield LineResult(number, line)
            continue
        result = results[position]
        position += 1
        if isinstance(result, EventError):
            result.index = number - 1
            yield LineResult(number, result)
        else:
            yield LineResult(number, Matches(result, line))


def write_lines(core: Core, source: LineSource, options: Options, mode: Mode, *, skip: bool) -> Changes:
    """Write the subscription on each line; the `index` of an error is its line, from 0."""
    numbers = array("Q")  # of the lines that are not blank

    def sources() -> Iterator[Source | SubscriptionError]:
        for number, line in read_lines(source, max_bytes=options.limits.max_event_bytes):
            numbers.append(number - 1)
            yield SubscriptionError(line.reason) if isinstance(line, EventError) else line

    def number_lines(errors: tuple[SubscriptionError, ...]) -> tuple[SubscriptionError, ...]:
        for error in errors:
            if error.index is not None:
                error.index = numbers[error.index]
        return errors

    try:
        changes = core.write(sources(), mode, skip=skip)
    except BulkSubscriptionError as bulk:
        # Made anew, since its message spells the indexes out.
        raise BulkSubscriptionError(number_lines(bulk.errors)) from None
    number_lines(changes.errors)
    return changes
