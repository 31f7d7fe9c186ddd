"""What matched: a lazy sequence over packed hits, which makes a `Match` only where one is asked for.

Invariant: it pins the state of the engine in which the match began, so what it says never changes, whatever is added or
removed meanwhile. Drop it to release that state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import JSONEncoder
from typing import Any, Final, final, overload

from streamer.core.protocol import Hits, HitsOfSeveral
from streamer.errors import EventError
from streamer.events.reading import EventSource
from streamer.model import Match


@final
class Matches(Sequence[Match]):
    """The subscriptions that match one event, each once, in no promised order (semantics.md 7.6).

    A sequence of `Match`: `len()`, truth, iteration, indexing, slicing. `in` asks for a subscription id.
    Pickled, it becomes a plain list of `Match`.
    """

    __slots__ = ("_hits", "event")

    SHOWN = 5

    def __init__(self, hits: Hits, event: EventSource) -> None:
        self._hits = hits
        self.event = event

    def __len__(self) -> int:
        return len(self._hits)

    @overload
    def __getitem__(self, index: int) -> Match: ...
    @overload
    def __getitem__(self, index: slice) -> Matches: ...
    def __getitem__(self, index: int | slice) -> Match | Matches:
        # range() does the arithmetic of negative indexes and slices, and raises the IndexError.
        chosen = range(len(self._hits))[index]
        if isinstance(chosen, range):
            return Matches(self._hits.take(chosen), self.event)
        return self._hits.match(chosen, self.event)

    def __iter__(self) -> Iterator[Match]:
        return self._hits.matches(self.event)

    def __contains__(self, subscription_id: object) -> bool:
        return isinstance(subscription_id, str) and self._hits.find(subscription_id) >= 0

    @property
    def ignored(self) -> str | None:
        """Why the event was ignored, an `Ignored`; None for one that was matched, whether or not anything matches it."""
        return self._hits.ignored

    def ids(self) -> list[str]:
        """Return the ids of the subscriptions, in the order of this sequence."""
        return self._hits.ids()

    def by_gateway(self) -> dict[str | None, Matches]:
        """Group by `gateway_id`, with None for subscriptions that name none."""
        positions: dict[str | None, list[int]] = {}
        for position, gateway_id in enumerate(self._hits.gateway_ids()):
            positions.setdefault(gateway_id, []).append(position)
        return {gateway_id: Matches(self._hits.take(taken), self.event) for gateway_id, taken in positions.items()}

    def sorted(self) -> Matches:
        """Return the same matches in the order in which the subscriptions were added; a replaced one keeps its place."""
        return Matches(self._hits.in_order(), self.event)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[: self.SHOWN].ids()))
        more = ", ..." if len(self) > self.SHOWN else ""
        return f"<Matches: {len(self)} [{shown}{more}]>"


def packed(matches: Matches) -> Hits:
    """Return what matches stand on, for who reads many of them without an object for each."""
    return matches._hits


@final
class BatchMatches(Sequence[Matches | EventError]):
    """What several events matched, in their order: `Matches`, or the `EventError` in a bad event's place, with its `index`.

    A sequence that makes each `Matches` when it is asked for, so that events whose matches nobody looks at cost no object of
    Python. Pickled, it becomes a plain list.
    """

    __slots__ = ("_events", "_results")

    def __init__(self, results: HitsOfSeveral, events: list[EventSource]) -> None:
        self._results = results
        self._events = events

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, index: int) -> Matches | EventError: ...
    @overload
    def __getitem__(self, index: slice) -> list[Matches | EventError]: ...
    def __getitem__(self, index: int | slice) -> Matches | EventError | list[Matches | EventError]:
        chosen = range(len(self._events))[index]
        if isinstance(chosen, range):
            return [self[position] for position in chosen]
        result = self._results[chosen]
        return result if isinstance(result, EventError) else Matches(result, self._events[chosen])

    def __iter__(self) -> Iterator[Matches | EventError]:
        results = self._results
        if (maker := results.maker) is not None:
            return maker.results(self._events)
        made = (results[position] for position in range(len(self)))
        return (
            result if isinstance(result, EventError) else Matches(result, event)
            for result, event in zip(made, self._events, strict=True)
        )

    def matched(self) -> Iterator[tuple[int, Matches | EventError]]:
        """Yield position and result of each event that something matches, or that is bad: no object is made for the others."""
        results = self._results
        for position in results.matched():
            result = results[position]
            yield position, result if isinstance(result, EventError) else Matches(result, self._events[position])

    def jsonl(self) -> bytes:
        """Return a line of JSON for each match, by event, in no promised order within one.

        The members of a line are those of `ArrowMatches.matches` and the labels. `row` is the position of the event:
        `{"row":0,"subscription_id":"s","gateway_id":"g","transition":"enter","certain":true,"labels":null}`. An event that is bad
        or that nothing matches has no line. The native backend makes no object of Python for a match.

        Raises:
            ValueError: labels that JSON cannot say.
        """
        if (maker := self._results.maker) is not None:
            return maker.jsonl()
        lines = (_line(row, match) for row, result in self.matched() if isinstance(result, Matches) for match in result)
        return "".join(lines).encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"<BatchMatches: {len(self)} events>"


_JSON: Final = JSONEncoder(ensure_ascii=False).encode


def _line(row: int, match: Match) -> str:
    """Return what the native core writes, too: `crates/streamer-py/src/messages.rs`."""
    from streamer.subscriptions.text import labels_text  # it imports all that reads subscriptions

    names = f'"subscription_id":{_JSON(match.subscription_id)},"gateway_id":{_JSON(match.gateway_id)}'
    how = f'"transition":{_JSON(match.transition)},"certain":{_JSON(match.certain)}'
    labels = "null" if match.labels is None else labels_text(match.labels)
    return f'{{"row":{row},{names},{how},"labels":{labels}}}\n'
