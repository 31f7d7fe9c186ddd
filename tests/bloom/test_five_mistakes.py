"""The five mistakes of the usual sketch of a Bloom phase, each with what it would lose or cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streamer import Engine
from streamer.bloom.manager import Manager
from streamer.bloom.options import BloomOptions
from streamer.reference import core as reference_core
from streamer.reference.transition import find_outcome


def test_what_makes_no_key_is_not_lost(engine: Any) -> None:
    """First: `!=`, `not in`, `contains` and no filter at all make no equality key, and would never be found."""
    e: Engine = engine()
    e.add_many(
        {"id": f"s{n}", "collection": "c", "filters": [{"field": "status", "op": "==", "value": f"v{n}"}]} for n in range(100)
    )
    unkeyed = {
        "not equal": [{"field": "a", "op": "!=", "value": 1}],
        "in": [{"field": "a", "op": "in", "value": [2, 3]}],
        "not in": [{"field": "a", "op": "not in", "value": [1]}],
        "contains": [{"field": "text", "op": "contains", "value": "b"}],
        "holds": [{"field": "tags", "op": "contains", "value": "vip"}],
        "matches": [{"field": "text", "op": "matches", "value": "b+"}],
        "range": [{"field": "a", "op": "<", "value": 3}],
        "exists": [{"field": "gone", "op": "exists", "value": False}],
        "none": [],
    }
    e.add_many({"id": name, "collection": "c", "filters": filters} for name, filters in unkeyed.items())
    event = {"collection": "c", "data": {"status": "other", "a": 2, "text": "abc", "tags": ["vip"]}}
    assert set(e.match_ids(event)) == set(unkeyed)


@pytest.mark.parametrize("asked", [1, 1.0])
@pytest.mark.parametrize("op", ["==", "in", ">=", "contains"])
def test_a_key_is_made_of_the_value_not_of_its_spelling(engine: Any, asked: object, op: str) -> None:
    """Second: made from the text, `1` and `1.0` would be two keys."""
    e: Engine = engine()
    e.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "b", "op": "==", "value": n}]} for n in range(100))
    e.add({"id": "s", "collection": "c", "filters": [{"field": "a", "op": op, "value": [asked] if op == "in" else asked}]})
    for spelled in (b"1", b"1.0", b"10e-1", b"1E0"):
        value = b"[%s]" % spelled if op == "contains" else spelled
        assert e.match_ids(b'{"collection": "c", "data": {"a": %s}}' % value) == ["s"]


def test_a_field_that_is_there_does_not_let_an_event_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Third: keys made from a field's name alone let nearly every event pass, since nearly every event has the field."""
    monkeypatch.setattr("streamer._backend.BACKEND", "reference")
    e = Engine()
    e.add_many(
        {"id": f"s{n}", "collection": "c", "filters": [{"field": "status", "op": "==", "value": f"v{n}"}]} for n in range(1000)
    )
    for n in range(2000):
        e.match({"collection": "c", "data": {"status": f"other {n}"}})
    (state,) = e.bloom.filters()
    assert state.asked == 2000
    assert state.no >= (1 - 1.2 * 0.01) * 2000


def test_what_passes_is_compared_with_the_candidates_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fourth: after phase 1 the sketch judges every subscription of the collection."""
    monkeypatch.setattr("streamer._backend.BACKEND", "reference")
    judged = []

    def counting(compiled: Any, *rest: Any, **named: Any) -> Any:
        judged.append(compiled.id)
        return find_outcome(compiled, *rest, **named)

    monkeypatch.setattr(reference_core, "find_outcome", counting)
    e = Engine()
    e.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(1000))
    e.add_many({"id": f"r{n}", "collection": "c", "filters": [{"field": "p", "op": ">", "value": 2**n}]} for n in range(40))
    assert e.match_ids({"collection": "c", "data": {"a": 7}}) == ["s7"]
    assert judged == ["s7"]
    judged.clear()
    assert sorted(e.match_ids({"collection": "c", "data": {"p": 9}})) == ["r0", "r1", "r2", "r3"]
    # Those whose range begins in the bucket of 9, from 9 to 9.5, and none above.
    assert sorted(judged) == ["r0", "r1", "r2", "r3"]


@pytest.mark.integration
def test_it_does_not_rebuild_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifth: a rate of keys that is compared with a threshold for events is past it after every rebuild."""
    monkeypatch.setattr("streamer._backend.BACKEND", "reference")
    options = BloomOptions(rebuild_cooldown=timedelta(seconds=1))
    e = Engine(bloom=options)
    e.add_many(
        {"id": f"s{n}", "collection": "c", "filters": [{"field": f"f{n % 25}", "op": "==", "value": n}]} for n in range(500)
    )
    e._core.rebuild_filter("default", "c", 500, 0.01)
    now = 0.0
    manager = Manager(e._core, options, lambda: now)
    # A rebuild takes a thousand samples, so in so many events there could be three.
    for n in range(3500):
        e.match({"collection": "c", "data": {f"f{field}": f"foreign {n}" for field in range(25)}})
        now += 1
        if n % 20 == 0:
            manager.tick()
    assert 1 <= sum(manager.rebuilds.values()) <= 2
