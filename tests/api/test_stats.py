"""`Engine.stats()` tells what is held and what happened, and prints it."""

from __future__ import annotations

import json
from collections.abc import Callable

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


def test_the_estimated_rate_is_near_the_one_that_is_measured(engine: MakeEngine) -> None:
    e = engine()
    e.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(2000))
    # Until it is sampled enough: the native core samples one event in 16.
    e.match_batch([b'{"collection": "c", "data": {"a": %d}}' % n for n in range(-40_000, 0)])
    (stats,) = e.stats().collections
    assert stats.measured_rate is not None
    assert stats.estimated_rate is not None
    assert abs(stats.measured_rate - stats.estimated_rate) < 0.01
    assert 1e-4 < stats.estimated_rate < 0.05
