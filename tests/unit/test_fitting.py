"""Where a layout finds nothing in any event, the preset is named that would."""

from __future__ import annotations

from typing import Any

import pytest

from streamer.engine.fitting import LOOKS, FirstEvents, misfit
from streamer.events.layout import EventLayout

EVENTS: dict[str, list[dict[str, Any]]] = {
    "change": [{"collection": "orders", "type": "insert", "data": {"id": 1}}],
    "debezium": [
        {"op": "c", "before": None, "after": {"id": 1}, "source": {"table": "orders"}},
        {"schema": {}, "payload": {"op": "u", "before": {"id": 1}, "after": {"id": 1}, "source": {"table": "orders"}}},
    ],
    "cloudevents": [{"specversion": "1.0", "id": "1", "source": "/shop", "type": "com.example.paid", "data": {"id": 1}}],
    "eventbridge": [{"version": "0", "id": "1", "detail-type": "Paid", "source": "shop", "detail": {"id": 1}}],
}


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("events", EVENTS)
def test_the_preset_that_fits_is_named_where_the_one_in_use_finds_nothing(name: str, events: str) -> None:
    told = misfit(EVENTS[events], EventLayout.preset(name))
    # These two have a collection in one place, so that either finds something in what is the other's.
    if name == events or {name, events} == {"cloudevents", "eventbridge"}:
        assert told is None
    elif told is not None:
        assert f"--format {events} would fit" in told
    else:
        # A CloudEvent's type is no type of a change: an error, which is told at its line.
        assert (name, events) == ("change", "cloudevents") or {name, events} & {"cloudevents", "eventbridge"}


@pytest.mark.parametrize(("name", "events"), [("change", "debezium"), ("debezium", "change"), ("change", "eventbridge")])
def test_these_are_told_for_certain(name: str, events: str) -> None:
    assert f"--format {events} would fit" in str(misfit(EVENTS[events], EventLayout.preset(name)))


def test_one_event_in_which_it_finds_something_is_enough_to_say_nothing() -> None:
    assert misfit([*EVENTS["debezium"], *EVENTS["change"]], EventLayout()) is None


def test_without_a_preset_that_fits_document_is_offered() -> None:
    told = str(misfit([{"order": 1}, {"order": 2}], EventLayout()))
    assert "no format fits; --format document takes each event for the document itself" in told


@pytest.mark.parametrize("layout", [EventLayout.preset("document"), EventLayout(collection=None, type=None, data=None)])
def test_a_layout_that_looks_for_none_of_the_three_cannot_miss_them(layout: EventLayout) -> None:
    assert misfit([{"order": 1}], layout) is None


def test_where_nothing_could_be_read_nothing_is_said() -> None:
    assert misfit([], EventLayout()) is None
    assert misfit([b"null", b"", b"[1]", b"{"], EventLayout()) is None


def test_the_first_events_that_hold_something_are_kept() -> None:
    first = FirstEvents()
    for _ in range(2 * LOOKS):
        first.saw(b"null", "null")
    for event in EVENTS["debezium"]:
        first.saw(event, None)
    for _ in range(2 * LOOKS):
        first.saw(EVENTS["change"][0], None)
    assert first.misfit(EventLayout()) is None
    assert len(first._events) == LOOKS
