"""`Engine.stats()` tells what is held and what happened, and prints it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from streamer import Engine

MakeEngine = Callable[..., Engine]


def filled(engine: MakeEngine) -> Engine:
    e = engine()
    e.add_many({"id": f"s{n}", "collection": "orders", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(500))
    e.add({"id": "few", "tenant": "acme", "collection": "users", "filters": [{"field": "a", "op": "==", "value": 1}]})
    return e


def test_collections_are_told_with_what_phase_1_does_for_them(engine: MakeEngine) -> None:
    e = filled(engine)
    e.match_batch([b'{"collection": "orders", "data": {"a": %d}}' % n for n in range(0, 5000, 10)])
    e.match_batch([b"{"])
    stats = e.stats()
    assert (stats.subscriptions, stats.events, stats.matched, stats.unmatched, stats.rejected) == (501, 501, 50, 450, 1)
    assert (stats.matches, stats.matches_per_event) == (50, 0.1)
    orders, users = stats.collections
    assert (orders.tenant, orders.collection, orders.subscriptions) == ("default", "orders", 500)
    # Counted are those that set a bit: a few find all of theirs set.
    assert 490 <= orders.keys <= 500
    assert orders.version is not None
    assert orders.stopped is not None
    assert 0.85 <= orders.stopped <= 0.9
    assert orders.fill is not None
    assert 0 < orders.fill < 0.6
    assert orders.estimated_rate is not None
    assert orders.estimated_rate < 0.05
    assert (users.tenant, users.collection, users.subscriptions) == ("acme", "users", 1)
    assert stats.segments == sum(each.segments for each in stats.collections)


def test_candidates_and_matches_are_told_for_each_collection(engine: MakeEngine, backend: str) -> None:
    # The native core samples one event in 16.
    times = 2000 if backend == "native" else 30
    e = engine()
    e.add_many(
        {"id": f"o{n}", "collection": "orders", "filters": [{"field": "a", "op": "==", "value": n % 3}]} for n in range(300)
    )
    e.add_many({"id": f"u{n}", "collection": "users", "cel": f"data.a + 0 == {n}"} for n in range(4))
    e.add({"id": "left", "collection": "users", "transitions": True, "filters": [{"field": "a", "op": "==", "value": 9}]})
    e.add({"id": "all"})
    e.add({"id": "quiet", "collection": "quiet"})
    for _ in range(times):
        e.match_ids(b'{"collection": "orders", "data": {"a": 1}}')
        e.match_ids(b'{"collection": "users", "type": "update", "data": {"a": 1}, "before": {"a": 9}}')
    stats = {each.collection: each for each in e.stats().collections}
    assert stats["orders"].matches_per_event == 100
    assert 1 <= stats["orders"].candidates_per_event <= 100
    # One by its CEL, one that no longer matches.
    assert stats["users"].matches_per_event == 2
    assert 1 <= stats["users"].candidates_per_event <= 5
    assert stats["*"].matches_per_event == stats["*"].candidates_per_event == 1
    assert stats["quiet"].matches_per_event is stats["quiet"].candidates_per_event is None
    e.replace({"id": "all", "types": ["insert"]})
    e.match_batch([b'{"collection": "orders", "data": {"a": 1}}'] * (3 * times))
    after = {each.collection: each for each in e.stats().collections}
    assert after["orders"].matches_per_event == 100
    assert 0.2 < after["*"].matches_per_event < 0.7, "what was counted before a change goes on being counted"
    e.remove_many(ids=["quiet", "all"])
    assert {each.collection for each in e.stats().collections} == {"orders", "users"}


@pytest.mark.later_on_the_reference
def test_so_many_collections_are_counted_and_no_more(engine: MakeEngine, backend: str) -> None:
    e = engine()
    e.add_many({"id": f"s{n}", "collection": f"c{n}"} for n in range(5000))
    for n in range(5000):
        event = b'{"collection": "c%d", "data": {}}' % n
        for _ in range(60 if backend == "native" else 1):
            e.match_count(event)
    counted = sum(each.matches_per_event == 1 for each in e.stats().collections)
    assert 3900 < counted <= 4096


def test_it_prints_as_a_table_and_as_json(engine: MakeEngine) -> None:
    stats = filled(engine).stats()
    lines = str(stats).splitlines()
    assert lines[0].startswith("501 subscriptions in ")
    header = next(at for at, line in enumerate(lines) if line.startswith("TENANT"))
    assert lines[header + 1].split()[:3] == ["default", "orders", "500"]
    assert len({len(line) for line in lines[header:]}) == 1
    told = json.loads(json.dumps(stats.to_dict()))
    assert told["collections"][0]["collection"] == "orders"


def test_an_engine_that_holds_nothing_has_stats_too(engine: MakeEngine) -> None:
    stats = engine().stats()
    assert (stats.events, stats.matches_per_event, stats.collections) == (0, 0.0, ())
    assert "0 subscriptions" in str(stats)


@pytest.mark.later_on_the_reference
def test_the_estimated_rate_is_near_the_one_that_is_measured(engine: MakeEngine, backend: str) -> None:
    e = engine()
    e.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(2000))
    # Until it is sampled enough: the native core samples one event in 16, the reference each.
    events = 40_000 if backend == "native" else 2_500
    e.match_batch([b'{"collection": "c", "data": {"a": %d}}' % n for n in range(-events, 0)])
    (stats,) = e.stats().collections
    assert stats.measured_rate is not None
    assert stats.estimated_rate is not None
    assert abs(stats.measured_rate - stats.estimated_rate) < 0.01
    assert 1e-4 < stats.estimated_rate < 0.05


@pytest.mark.later_on_the_reference
def test_memory_is_told_by_what_holds_it_and_returns(engine: MakeEngine, backend: str) -> None:
    e = engine()
    texts = [
        json.dumps({"id": f"s{n:05}", "collection": "orders", "filters": [{"field": "a", "op": "==", "value": n}]}).encode()
        for n in range(20_000 if backend == "native" else 2_000)
    ]
    before = e.stats().memory
    e.add_many(texts)
    held = e.stats()
    assert held.memory_bytes == sum(held.memory.values())
    assert held.to_dict()["memory"] == held.memory
    if backend == "native":
        # What they have in common is held once.
        assert 12 * len(texts) < held.memory["texts"] < sum(map(len, texts)) / 2
        assert all(held.memory[part] > 20_000 for part in ("records", "conditions", "index", "filters"))
        assert "(texts " in str(held)
    else:
        assert held.memory_bytes == held.memory["filters"]
    e.remove_many(collection="orders")
    assert e.stats().memory["texts"] == before["texts"] == 0
