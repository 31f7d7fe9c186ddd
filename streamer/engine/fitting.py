"""Check that the layout fits the events, and warn if it found no collection, type or document in any of them.

A wrong layout is not an error: every event is read, and none matches.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, final

from streamer.core.options import Options
from streamer.errors import EventError, Ignored
from streamer.events.layout import EventLayout, FormatName
from streamer.events.reading import EventSource, IgnoredEvent, is_bare
from streamer.model import Event

#: The number of events that decide which format would fit.
LOOKS: Final = 20
#: All formats but `document`, which fits every object.
_TELLING: Final[tuple[FormatName, ...]] = tuple(name for name in EventLayout.PRESETS if name != "document")

_SCORE: Final = itemgetter(0)

LOGGER: Final = logging.getLogger(__name__)


@final
class FirstEvents:
    """Keeps the first non-empty events of a run, for a check after its end."""

    def __init__(self) -> None:
        self._events: list[EventSource] = []

    def saw(self, event: EventSource, ignored: str | None) -> None:
        """Record an event, unless there are enough."""
        if len(self._events) < LOOKS and ignored not in (Ignored.EMPTY, Ignored.NULL):
            self._events.append(event)

    def misfit(self, layout: EventLayout) -> str | None:
        """Return a sentence if *layout* does not fit the recorded events; see the function `misfit`."""
        return misfit(self._events, layout)


def misfit(events: Iterable[EventSource], layout: EventLayout) -> str | None:
    """Return a sentence that names a fitting format if a layout finds no collection, type or document in any of these events.

    The result is None if the layout finds one of these or a topic, if every event is unreadable, or if the layout has none of
    these three parts.
    """
    if (better := _better(events, layout)) is None:
        return None
    says = "the events have no collection, type or document at the layout's places"
    if better != "document":
        return f"{says}; --format {better} would fit"
    return f"{says}, and no format fits; --format document takes each event for the document itself"


@final
class Fitting:
    """Checks that the layout of an engine fits its events, and logs one warning, for the first event in which it finds no part.

    Attributes:
        hint: a better format; None without a warning.
    """

    def __init__(self, layout: EventLayout) -> None:
        self._layout: Final = layout
        self.hint: str | None = None

    def bare(self, event: EventSource) -> None:
        """Check the first event in which the layout finds no collection, type or document."""
        if (better := _better([event], self._layout)) is None:
            return
        self.hint = f'format="{better}" would fit'
        if better == "document":
            self.hint = 'no format fits; format="document" reads each event as the document itself'
        LOGGER.warning("an event has no collection, type or document at the layout's places; %s", self.hint)


def _better(events: Iterable[EventSource], layout: EventLayout) -> FormatName | None:
    """Return a format that fits events in which a layout finds no part; None if it finds one, or all events are unreadable."""
    if not any(layout.pointers(part) for part in ("collection", "type", "data")):
        return None
    options = Options(layout=layout)
    read = [(event, _read(event, options)) for event in events]
    bare = [event for event, result in read if result is Ignored.NO_CHANGE or _is_bare(result, layout)]
    if not bare or any(isinstance(result, Event) and not _is_bare(result, layout) for _, result in read):
        return None
    others = [name for name in _TELLING if EventLayout.preset(name) != layout]
    scores = {name: _of_format(name, bare)[0] for name in others}
    best = max(others, key=scores.__getitem__)
    return best if scores[best] else "document"


def _is_bare(result: Event | Ignored | None, layout: EventLayout) -> bool:
    return isinstance(result, Event) and bool(result.raw) and result.topic is None and is_bare(result, layout)


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """How well a way of reading events fits them.

    Attributes:
        name: the name of a format.
        events: the number of events with a document and its collection or type.
        collections: the collections of the events, in order of appearance.
    """

    name: str
    events: int
    collections: tuple[str, ...]


def detect(events: Iterable[EventSource]) -> list[Fit]:
    """Return the formats that fit some events, best first: those that find the most parts.

    The format `document` is left out, because it fits every object.
    """
    events = list(events)
    scored = [_of_format(name, events) for name in _TELLING]
    return [fit for _, fit in sorted(scored, key=_SCORE, reverse=True) if fit.events]


def _of_format(name: FormatName, events: Iterable[EventSource]) -> tuple[int, Fit]:
    options = Options(layout=EventLayout.preset(name))
    return _scored(name, (_read(event, options) for event in events))


def _scored(name: str, results: Iterable[Event | Ignored | None]) -> tuple[int, Fit]:
    readable = [event for event in results if isinstance(event, Event) and _parts(event)]
    collections = dict.fromkeys(event.collection for event in readable if event.collection is not None)
    return sum(map(_parts, readable)), Fit(name, len(readable), tuple(collections))


def _parts(event: Event) -> int:
    """Return the number of parts that name a document's collection and its change; 0 without a document."""
    has_document = event.data is not None or event.unknown
    return (event.type is not None) + (event.collection is not None) if has_document else 0


def _read(event: EventSource, options: Options) -> Event | Ignored | None:
    try:
        return options.read(event, None, None)
    except IgnoredEvent as ignored:
        return ignored.reason
    except EventError:
        return None
