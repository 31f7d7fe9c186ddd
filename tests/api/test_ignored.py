"""An event that is no change is ignored: it matches no subscription, is no error, and is counted by its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamer import Engine, EventError, Ignored, Matches
from streamer.bloom.answer import Answer
from streamer.bloom.shipping import ShippedFilter
from streamer.events.layout import EventLayout
from streamer.telemetry import IGNORED

MakeEngine = Callable[..., Engine]

SOURCE = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}
CHANGE = json.dumps({"op": "c", "before": None, "after": {"id": 1}, "source": SOURCE}).encode()
#: As Debezium sends them, with what they are ignored for.
OTHERS: dict[bytes, Ignored] = {
    b"": Ignored.EMPTY,
    b" \n": Ignored.EMPTY,
    b"null": Ignored.NULL,
    b'{"schema": null, "payload": null}': Ignored.NO_CHANGE,
    json.dumps({"op": "t", "source": SOURCE, "ts_ms": 1}).encode(): Ignored.TYPE,
    json.dumps({"op": "m", "source": SOURCE, "message": {"prefix": "p", "content": ""}}).encode(): Ignored.TYPE,
    b'{"ts_ms": 1}': Ignored.NO_CHANGE,
    b'{"status": "BEGIN", "id": "571:1", "event_count": null, "data_collections": null, "ts_ms": 1}': Ignored.NO_CHANGE,
    json.dumps({"source": SOURCE, "databaseName": "shop", "ddl": "DROP TABLE x"}).encode(): Ignored.NO_CHANGE,
}


@pytest.fixture
def filled(engine: MakeEngine) -> Engine:
    """An engine whose subscriptions want as much as can be wanted."""
    made = engine(format="debezium")
    made.add_many(
        [{"id": "all", "tenant": "*"}, {"id": "any collection"}, {"id": "orders", "collection": "orders", "transitions": True}]
    )
    return made


def counted(engine: Engine) -> dict[str, int]:
    told = engine._core.telemetry()
    assert told.events == told.matched + told.unmatched + sum(told.ignored.values()) + sum(told.rejected.values())
    assert not any(told.rejected.values())
    assert tuple(told.ignored) == IGNORED
    return {reason: count for reason, count in told.ignored.items() if count}


@pytest.mark.parametrize("validation", ["full", "lazy"])
@pytest.mark.parametrize(("event", "reason"), OTHERS.items())
def test_every_way_of_asking_says_that_nobody_wants_it(
    engine: MakeEngine, event: bytes, reason: Ignored, validation: str
) -> None:
    made = engine(format="debezium", validation=validation)
    made.add({"id": "all", "tenant": "*"})
    matches = made.match(event)
    assert (matches.ignored, len(matches), list(matches), matches.ids()) == (reason, 0, [], [])
    assert matches.sorted().ignored == matches[:0].ignored == reason
    assert made.match_ids(event) == []
    assert made.match_count(event) == 0
    assert made.matches_any(event) is False
    assert made.match(event, tenant="acme", collection="orders").ignored == reason
    assert counted(made) == {reason: 5}


def test_one_that_is_matched_has_no_reason_whether_or_not_anything_matches(filled: Engine) -> None:
    assert filled.match(CHANGE).ignored is None
    filled.apply([])
    assert filled.match(CHANGE).ignored is None


def test_none_is_an_event_without_a_value(filled: Engine) -> None:
    assert filled.match(None).ignored == "null"
    assert [each.ignored for each in filled.match_batch([None, CHANGE]) if isinstance(each, Matches)] == ["null", None]
    assert counted(filled) == {"null": 2}


@pytest.mark.parametrize("threads", [1, 2])
def test_in_a_batch_and_a_stream_it_stands_in_its_place(filled: Engine, threads: int) -> None:
    events = [each for other in OTHERS for each in (other, CHANGE)] * 10
    found = filled.match_batch(events, threads=threads)
    expected = [each for reason in OTHERS.values() for each in ((reason, 0), (None, 3))] * 10
    assert [(each.ignored, len(each)) for each in found if isinstance(each, Matches)] == expected
    # Blank lines are no events.
    lines = b"".join(event + b"\n" for event in events if event.strip())
    told = [(line.matches.ignored, len(line.matches)) for line in filled.match_jsonl(lines, threads=threads)]
    assert told == [each for each in expected if each[0] is not Ignored.EMPTY]
    assert counted(filled) == {"empty": 20, "null": 20, "type": 40, "no_change": 80}


def test_in_arrow_it_is_a_row_of_ignored_and_of_nothing_else(filled: Engine) -> None:
    pa = pytest.importorskip("pyarrow")
    events = [None, *(each for other in OTHERS for each in (other, CHANGE))]
    found = filled.match_arrow(pa.array(events, pa.binary()))
    expected = [(0, "null"), *((2 * n + 1, reason) for n, reason in enumerate(OTHERS.values()))]
    assert [(row["row"], row["reason"]) for row in found.ignored.to_pylist()] == expected
    assert found.rejected.num_rows == 0
    assert {row % 2 for row in found.matches.column("row").to_pylist()} == {0}
    assert found.events.column("tenant").to_pylist() == [None, *[None, "default"] * len(OTHERS)]
    assert filled.locate_arrow(pa.array(events, pa.binary())) == (found.events, found.rejected)


def test_explain_says_that_the_event_is_ignored(filled: Engine) -> None:
    told = filled.explain(b'{"ts_ms": 1}', "all")
    assert not told
    assert str(told) == "'all' does not match\nthe event is ignored (no_change): it matches no subscription"


def test_a_shipped_filter_lets_it_pass_to_where_it_is_counted(filled: Engine) -> None:
    filled.remove("orders")
    filled.add({"id": "keyed", "collection": "orders", "filters": [{"field": "id", "op": "==", "value": 7}]})
    shipped = ShippedFilter.load(filled.bloom.export("default", "orders", lease=timedelta(minutes=1)))
    assert {shipped.ask(event) for event in OTHERS} == {Answer.MAYBE}


def test_stats_say_how_many_and_why(filled: Engine) -> None:
    for event in (CHANGE, b"null", b'{"ts_ms": 1}', b'{"ts_ms": 2}'):
        filled.match(event)
    stats = filled.stats()
    assert stats.ignored == {"null": 1, "no_change": 2}
    assert stats.events == stats.matched + stats.unmatched + sum(stats.ignored.values()) + stats.rejected
    assert "4 events: 1 matched, 0 unmatched, 3 ignored (1 null, 2 no_change), 0 rejected" in str(stats)
    assert json.loads(json.dumps(stats.to_dict()))["ignored"] == {"null": 1, "no_change": 2}


@pytest.mark.parametrize(
    ("event", "bare"),
    [
        ({}, 1),
        ({"id": 1, "topic": "a.b", "ts": 1}, 1),
        ({"before": {}}, 1),
        ({"collection": "c"}, 0),
        ({"type": "update"}, 0),
        ({"data": {}}, 0),
        ({"unknown": ["/data"]}, 0),
        ({"unknown": []}, 1),
    ],
)
def test_an_event_in_which_the_layout_finds_nothing_is_bare(engine: MakeEngine, event: dict[str, Any], bare: int) -> None:
    made = engine()
    made.add({"id": "all", "tenant": "*"})
    # What the caller says of it is not the event's.
    for how in ({}, {"tenant": "t"}, {"collection": "c"}):
        made.match_ids(json.dumps(event), **how)
    assert made._core.telemetry().bare == 3 * bare


def test_a_layout_that_finds_nothing_in_any_event_is_told_by_the_stats(engine: MakeEngine) -> None:
    made = engine()
    assert not made.stats().finds_nothing
    made.match(b"null")
    assert not made.stats().finds_nothing
    made.match(CHANGE)
    assert made.stats().finds_nothing
    made.match(b'{"collection": "orders"}')
    assert not made.stats().finds_nothing
    other = engine(format="debezium")
    other.match(b'{"collection": "orders", "data": {}}')
    assert other.stats().finds_nothing


def test_an_ignored_event_that_is_malformed_is_rejected_all_the_same(filled: Engine) -> None:
    for event in (b'{"op": "t",}', b"nulll", b'{"ts_ms": 1', b'{"op": "t"} x'):
        with pytest.raises(EventError):
            filled.match(event)


def test_the_layout_says_which_words_are_ignored(engine: MakeEngine) -> None:
    made = engine(layout=EventLayout(type="/op", type_map={"c": "insert", "x": "ignore"}))
    made.add({"id": "all"})
    assert made.match({"op": "x", "data": {}}).ignored == "type"
    assert made.match_ids({"op": "c", "data": {}}) == ["all"]
    with pytest.raises(EventError, match=r"type is one of c, x, not .ignore"):
        made.match({"op": "ignore"})
