"""Does the layout fit the events? What a run says where it found no collection, type or document in any of them.

A wrong layout is no error: every event is read, and nothing matches.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from streamer.errors import EventError, Ignored
from streamer.events.layout import EventLayout
from streamer.events.reading import EventSource, IgnoredEvent, is_bare, read_event
from streamer.model import Event, Limits

#: So many events tell which preset would fit.
LOOKS: Final = 20
#: Of `document` one can only guess, since it fits whatever is an object.
_TELLING: Final = ("change", "debezium", "eventbridge", "cloudevents")


@final
class FirstEvents:
    """Keeps the first events of a run that hold something, to be asked once it is over."""

    def __init__(self) -> None:
        self._events: list[EventSource] = []

    def saw(self, event: EventSource, ignored: str | None) -> None:
        """Keep an event if there are few so far."""
        if len(self._events) < LOOKS and ignored not in (Ignored.EMPTY, Ignored.NULL):
            self._events.append(event)

    def misfit(self, layout: EventLayout) -> str | None:
        """See `misfit`."""
        return misfit(self._events, layout)


def misfit(events: Iterable[EventSource], layout: EventLayout) -> str | None:
    """Say in a sentence that a layout finds no collection, type or document in any of these events, and which preset would.

    None where it finds one, where there is no event that could be read, and of a layout that has none of the three parts.
    """
    if not any(layout.pointers(part) for part in ("collection", "type", "data")):
        return None
    read = [(event, _read(event, layout)) for event in events]
    bare = [event for event, found in read if found is Ignored.NO_CHANGE or (isinstance(found, Event) and is_bare(found, layout))]
    if not bare or any(isinstance(found, Event) and not is_bare(found, layout) for _, found in read):
        return None
    others = [name for name in _TELLING if EventLayout.preset(name) != layout]
    best = max(others, key=lambda name: _fits(bare, EventLayout.preset(name)))
    says = "no event had a collection, a type or a document where the layout looks for them"
    if _fits(bare, EventLayout.preset(best)):
        return f"{says}; --layout {best} would fit"
    return f"{says}, and no preset fits; --layout document takes each event for the document itself"


def _fits(events: Iterable[EventSource], layout: EventLayout) -> int:
    """Count the events in which a layout finds a document, and whose it is or what happened to it."""
    found = (_read(event, layout) for event in events)
    return sum(isinstance(event, Event) and event.data is not None and _is_told(event) for event in found)


def _is_told(event: Event) -> bool:
    return event.type is not None or event.collection is not None


def _read(event: EventSource, layout: EventLayout) -> Event | Ignored | None:
    try:
        return read_event(event, layout=layout, default_tenant="default", limits=Limits())
    except IgnoredEvent as ignored:
        return ignored.reason
    except EventError:
        return None
