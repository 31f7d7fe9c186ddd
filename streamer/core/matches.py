"""A core's results for an event and for a line: `Matches`, a lazy sequence over packed hits, and `LineResult`.

The native core makes these objects itself: calling a Python class takes as long as matching a short event.

Invariant: `Matches` pins the state of the engine in which the match began, so its content never changes, whatever is added or
removed meanwhile. Drop it to release that state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import JSONEncoder
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final, overload

from streamer.errors import EventError
from streamer.events.reading import EventSource
from streamer.model import Match, is_text, type_of
from streamer.subscriptions.subscription import Filter, FilterGroup, Subscription

if TYPE_CHECKING:
    from streamer.core.protocol import Hits


@final
class Matches(Sequence[Match]):
    """The subscriptions that match one event, each once, in an undefined order (semantics.md 7.6).

    A sequence of `Match`: `len()`, truth, iteration, indexing, slicing. `in` checks for a subscription id.
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
        selection = range(len(self._hits))[index]
        if isinstance(selection, range):
            return Matches(self._hits.take(selection), self.event)
        return self._hits.match(selection, self.event)

    def __iter__(self) -> Iterator[Match]:
        return self._hits.matches(self.event)

    def __contains__(self, subscription_id: object) -> bool:
        return is_text(subscription_id) and self._hits.find(subscription_id) >= 0

    @property
    def ignored(self) -> str | None:
        """Why the event was ignored, an `Ignored`; None for one that was matched, with or without matches."""
        return self._hits.ignored

    def ids(self) -> list[str]:
        """Return the ids of the subscriptions, in the order of this sequence."""
        return self._hits.ids()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each match, as `Match.to_dict` does, ready for `json.dumps`."""
        return [match.to_dict() for match in self]

    def jsonl(self) -> bytes:
        """Return a line of JSON for each match, with the members of `to_dicts`."""
        return "".join(map(json_line, self)).encode()

    def by_gateway(self) -> dict[str | None, Matches]:
        """Group by `gateway_id`, with None for subscriptions without one."""
        positions: dict[str | None, list[int]] = {}
        for position, gateway_id in enumerate(self._hits.gateway_ids()):
            positions.setdefault(gateway_id, []).append(position)
        return {gateway_id: Matches(self._hits.take(rows), self.event) for gateway_id, rows in positions.items()}

    def sorted(self) -> Matches:
        """Return the same matches in the order in which the subscriptions were added; a replaced one keeps its place."""
        return Matches(self._hits.in_order(), self.event)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[: self.SHOWN].ids()))
        more = ", ..." if len(self) > self.SHOWN else ""
        return f"<Matches: {len(self)} [{shown}{more}]>"


_JSON: Final = JSONEncoder(ensure_ascii=False).encode


def json_line(match: Match, row: int | None = None) -> str:
    """Return a match as a JSON line, with the *row* of its event, as the native core writes it
    (`crates/streamer-py/src/messages.rs`)."""
    where = "" if row is None else f'"row":{row},'
    names = f'"subscription_id":{_JSON(match.subscription_id)},"gateway_id":{_JSON(match.gateway_id)}'
    how = f'"transition":{_JSON(match.transition)},"certain":{_JSON(match.certain)}'
    labels = "null"
    if match.labels is not None:
        # It imports the parsers, which take longer than the rest of the package.
        from streamer.subscriptions.text import labels_text

        labels = labels_text(match.labels)
    return f'{{{where}{names},{how},"labels":{labels}}}\n'


def json_default(value: Any) -> Any:
    """Convert a `Match`, `Matches`, `Subscription`, `Filter` or `FilterGroup` for `json.dumps(.., default=json_default)`.

    Raises:
        TypeError: the value is of another type.
    """
    if isinstance(value, Matches):
        return value.to_dicts()
    if isinstance(value, Match | Subscription | Filter | FilterGroup):
        return value.to_dict()
    raise TypeError(f"expected a Match, Matches, Subscription or Filter, not {type_of(value)}")


def packed(matches: Matches) -> Hits:
    """Return the hits of matches, for code that reads many of them without an object for each."""
    return matches._hits


@final
class LineResult(NamedTuple):
    """The result of one line of a stream.

    Attributes:
        line: its number, from 1; blank lines are counted and have no result.
        result: `Matches`, or the `EventError` in a bad line's place.
    """

    # A tuple, because one is made for each line, and a frozen dataclass takes four times as long.
    line: int
    result: Matches | EventError

    @property
    def error(self) -> EventError | None:
        """The error of a bad line; None for a good line."""
        return self.result if isinstance(self.result, EventError) else None

    @property
    def matches(self) -> Matches:
        """The subscriptions that match. Raises the EventError of a bad line."""
        result = self.result
        if isinstance(result, Matches):
            return result
        raise result
