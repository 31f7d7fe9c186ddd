"""Match and add streams of JSON lines, in constant memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import chain, islice
from typing import Final, cast

from streamer.core.matches import LineResult, Matches
from streamer.core.options import Options
from streamer.core.protocol import Changes, Core, Mode, Source
from streamer.engine.lines import LineSource, read_blocks
from streamer.errors import BulkSubscriptionError, EventError, SubscriptionError
from streamer.events.reading import EventSource

#: The default number of events of a stream that are matched at once: more would gain little, and delay results.
AT_ONCE: Final = 100
#: The default number of lines for each of several threads: starting a thread costs as much as matching a hundred lines.
AT_ONCE_A_THREAD: Final = 2000


def match_lines(
    core: Core,
    source: LineSource,
    options: Options,
    tenant: str | None,
    collection: str | None,
    *,
    at_once: int,
    threads: int,
) -> Iterator[LineResult]:
    """Match lines as they are read, up to *at_once* together, without waiting for a line that has not arrived yet."""
    batches = _batches(core, source, options, (tenant, collection, threads), at_once)
    # The native backend runs no Python code per line; otherwise this would be slower than a loop over `match`.
    return chain.from_iterable(batches)


def _batches(
    core: Core, source: LineSource, options: Options, how: tuple[str | None, str | None, int], at_once: int
) -> Iterator[Iterable[LineResult]]:
    """Yield the results of up to *at_once* lines at a time."""
    for numbers, lines in read_blocks(source, max_bytes=options.limits.max_event_bytes):
        for at in range(0, len(lines), at_once):
            numbered, batch = numbers[at : at + at_once], lines[at : at + at_once]
            # If the numbers are a range, then all lines could be read.
            is_whole = isinstance(numbered, range)
            readable = batch if is_whole else [line for line in batch if isinstance(line, bytes)]
            results = core.match_batch(cast("list[EventSource]", readable), *how)
            if len(readable) < len(batch) or results.rejected:
                yield _with_errors(core, numbered, batch, iter(results))
            else:
                yield results.lines(numbered)


def _with_errors(
    core: Core, numbers: Iterable[int], lines: Iterable[bytes | EventError], results: Iterator[Matches | EventError]
) -> Iterator[LineResult]:
    """Yield the result of each line; a line that could not be read is an error without one of *results*."""
    for number, line in zip(numbers, lines, strict=True):
        if isinstance(line, EventError):
            core.reject(line.code.value)
            yield LineResult(number, line)
            continue
        result = next(results)
        if isinstance(result, EventError):
            result.index = number - 1
        yield LineResult(number, result)


#: Errors of the first subscriptions of a call get hints; those of a load of millions are not kept for that.
_HINTED: Final = 1000


def write(
    core: Core,
    sources: Iterable[Source | SubscriptionError],
    mode: Mode,
    *,
    skip: bool = False,
    among: Set[str] | None = None,
) -> Changes:
    """Write subscriptions; an error of one that is written as in another language names the language."""
    rest = iter(sources)
    first = list(islice(rest, _HINTED))

    def hinted(error: SubscriptionError) -> SubscriptionError:
        # Only an error needs the expressions that recognise languages.
        from streamer.subscriptions.languages import with_hint

        at = error.index
        return error if at is None or at >= len(first) else with_hint(error, first[at])

    try:
        changes = core.write(chain(first, rest), mode, skip=skip, among=among)
    except BulkSubscriptionError as bulk:
        # Make a new error, because the message contains the others.
        raise BulkSubscriptionError([*map(hinted, bulk.errors)]) from None
    for error in changes.errors:
        hinted(error)
    return changes


def write_lines(core: Core, source: LineSource, options: Options, mode: Mode, *, skip: bool) -> Changes:
    """Write the subscription on each line; the `index` of an error is its line, from 0."""
    blocks: list[Sequence[int]] = []  # the numbers of the lines that are not blank

    def read() -> Iterator[Iterable[Source | SubscriptionError]]:
        for numbers, lines in read_blocks(source, max_bytes=options.limits.max_event_bytes):
            blocks.append(numbers)
            yield map(refused, lines) if isinstance(numbers, list) else cast("list[bytes]", lines)

    def number_lines(errors: tuple[SubscriptionError, ...]) -> tuple[SubscriptionError, ...]:
        numbers = array("Q", chain.from_iterable(blocks)) if errors else ()
        for error in errors:
            if error.index is not None:
                error.index = numbers[error.index] - 1
        return errors

    try:
        changes = write(core, chain.from_iterable(read()), mode, skip=skip)
    except BulkSubscriptionError as bulk:
        # Make a new error, because the message contains the indexes.
        raise BulkSubscriptionError(number_lines(bulk.errors)) from None
    number_lines(changes.errors)
    return changes


def apply_good(core: Core, rows: Sequence[Source | SubscriptionError]) -> Changes:
    """Replace all subscriptions by the good ones of *rows*. The present subscription with the id of a bad one stays."""
    try:
        return write(core, rows, "apply")
    except BulkSubscriptionError as bulk:
        errors = bulk.errors
    bad = {error.index for error in errors}
    ids = dict.fromkeys(error.subscription_id for error in errors if error.subscription_id is not None)
    present = [subscription for each in ids if (subscription := core.get(each)) is not None]
    # Where another row with such an id is good, the present one comes second, and is left out.
    good = [row for index, row in enumerate(rows) if index not in bad]
    return replace(core.write([*good, *present], "apply", skip=True), errors=errors)


def apply_lines(core: Core, source: LineSource, options: Options, *, skip: bool) -> Changes:
    """Replace all subscriptions by those of lines; the `index` of an error is its line, from 0."""
    if not skip:
        return write_lines(core, source, options, "apply", skip=False)
    rows: list[Source | SubscriptionError] = []
    at: list[int] = []
    for numbers, lines in read_blocks(source, max_bytes=options.limits.max_event_bytes):
        at += numbers
        rows += map(refused, lines)
    changes = apply_good(core, rows)
    for error in changes.errors:
        if error.index is not None:
            error.index = at[error.index] - 1
    return changes


def refused(line: bytes | EventError) -> Source | SubscriptionError:
    """Return a line as `write` accepts it."""
    return SubscriptionError(line.reason) if isinstance(line, EventError) else line
