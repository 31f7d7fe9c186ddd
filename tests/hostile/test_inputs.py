"""Nothing that a user or an event can write crashes or hangs an engine: each row of the table gets what it must."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, EventError, SubscriptionError
from tests.hostile import made, table
from tests.hostile.table import Row

ROWS = [*table.load(), *made.rows()]

#: Names and texts of a hostile input are shown in part only.
LONGEST_MESSAGE = 2_000


def test_the_table_is_a_table_of_at_least_a_hundred() -> None:
    names = [row.name for row in ROWS]
    assert len(names) >= 100
    assert len(set(names)) == len(names)


def _marks(row: Row) -> list[pytest.MarkDecorator]:
    later = row.later_on_the_reference or row.is_one_of_many
    return [pytest.mark.later_on_the_reference] * later + [pytest.mark.slow] * row.is_one_of_many


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name, marks=_marks(row)) for row in ROWS])
def test_a_hostile_input_gets_what_it_must(engine: Callable[..., Engine], backend: str, row: Row) -> None:
    row = row.made()
    full = engine(layout=row.layout, limits=row.limits)
    if row.subscription_error is not None:
        check_refused(full, row.subscription, row.subscription_error)
        return
    full.add(row.subscription)
    if row.event_error is not None:
        check_event_error(full, row.event, row.event_error)
    else:
        matches = full.match(row.event)
        assert bool(matches) is row.expect
        assert all(match.certain is row.certain for match in matches)
        (plan,) = map(full.plan, full)
        # What the index decides of an expression is not evaluated; refused regexps and topics are counted with CEL's errors.
        is_counted = row.cel_error in ("regexp_budget", "topic_budget") or (row.cel_error is not None and plan.cel is not None)
        assert dict(full.cel_errors) == ({row.cel_error: 1} if is_counted else {})
    if backend != "reference":  # which checks every event in full
        check_lazy(engine, row)
    # Whatever it was given, the engine goes on.
    full.add({"id": "another"})
    assert "another" in full.match_ids(b"{}")


def check_refused(engine: Engine, subscription: Any, expected: Any) -> None:
    """The error is as expected, can be read and pickled, and nothing was added."""
    with pytest.raises(SubscriptionError) as raised:
        engine.add(subscription)
    error, expected = raised.value, dict(expected)
    assert expected.pop("contains", "") in str(error)
    assert expected.pop("type", type(error).__name__) == type(error).__name__, repr(error)
    assert {member: getattr(error, member) for member in expected} == expected, str(error)[:LONGEST_MESSAGE]
    check_message(error)
    assert len(engine) == 0
    assert engine.match_ids(b"{}") == []


def check_event_error(engine: Engine, event: Any, expected: Any) -> None:
    """The error is as expected, alone and in a batch, and the others of the batch match."""
    with pytest.raises(EventError) as raised:
        engine.match(event)
    error = raised.value
    assert {member: getattr(error, member) for member in expected} == dict(expected), str(error)[:LONGEST_MESSAGE]
    check_message(error)
    bad, good = engine.match_batch([event, b"{}"])
    assert isinstance(bad, EventError)
    assert (bad.code, bad.offset, bad.place, bad.index) == (error.code, error.offset, error.place, 0)
    assert not isinstance(good, EventError)


def check_message(error: Exception) -> None:
    """An error is short, prints on one line without what a terminal would obey, and travels between processes."""
    text = str(error)
    assert len(text) <= LONGEST_MESSAGE
    assert text.isprintable(), ascii(text)
    assert str(pickle.loads(pickle.dumps(error))) == text


def check_lazy(engine: Callable[..., Engine], row: Row) -> None:
    """Under `lazy` an event may be wrong where nobody looks, but what is good matches just so."""
    lazy = engine(layout=row.layout, limits=row.limits, validation="lazy")
    lazy.add(row.subscription)
    if row.event_error is None:
        assert row.is_full or bool(lazy.match_ids(row.event)) is row.expect
        lazy.match_ids(row.event)
        return
    try:
        lazy.match_ids(row.event)
    except EventError as error:
        check_message(error)
