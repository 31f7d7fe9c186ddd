"""The public result of matching several events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final, overload

from streamer.core.matches import Matches
from streamer.core.protocol import Results
from streamer.errors import EventError


@final
class BatchMatches(Sequence[Matches | EventError]):
    """The matches of several events, in their order: `Matches`, or the `EventError` in a bad event's place, with its `index`.

    The sequence makes each `Matches` on access, so events whose matches you never read cost no Python object. Pickled, it becomes
    a plain list.
    """

    __slots__ = ("_results",)

    def __init__(self, results: Results) -> None:
        self._results = results

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, index: int) -> Matches | EventError: ...
    @overload
    def __getitem__(self, index: slice) -> list[Matches | EventError]: ...
    def __getitem__(self, index: int | slice) -> Matches | EventError | list[Matches | EventError]:
        selection = range(len(self._results))[index]
        if isinstance(selection, range):
            return [self._results[position] for position in selection]
        return self._results[selection]

    def __iter__(self) -> Iterator[Matches | EventError]:
        return iter(self._results)

    def matched(self) -> Iterator[tuple[int, Matches | EventError]]:
        """Yield the position and the result of each event that has matches or is bad, without an object for the others."""
        results = self._results
        return ((position, results[position]) for position in results.matched())

    def jsonl(self) -> bytes:
        """Return a line of JSON for each match, in the order of the events; the order within one event is undefined.

        The members of a line are those of `ArrowMatches.matches` and the labels. `row` is the position of the event:
        `{"row":0,"subscription_id":"s","gateway_id":"g","transition":"enter","certain":true,"labels":null}`. An event that is
        bad or without matches has no line. The native backend makes no Python object for a match.
        """
        return self._results.jsonl()

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"<BatchMatches: {len(self)} events>"
