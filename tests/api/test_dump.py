"""`dump` prints how the subscriptions are held, of small engines and within bounds."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine, _backend
from streamer.errors import ConfigError
from tests.generators import random_subscription
from tests.tools.hooks import hooks

MakeEngine = Callable[..., Engine]


def merge(engine: Engine) -> None:
    """Make one segment of each partition, which happens by itself only after a while."""
    if _backend.BACKEND == "native":
        hooks(engine).merge()


def orders(number: int, *filters: tuple[str, str, Any], **parts: Any) -> dict[str, Any]:
    conditions = [{"field": field, "op": op, "value": value} for field, op, value in filters]
    return {"id": f"s{number}", "collection": "orders", "filters": conditions, **parts}


def every_matcher() -> list[dict[str, Any]]:
    """Subscriptions of which each kind of matcher finds some; enough to be worth an index."""
    made = [orders(n, ("status", "==", f"v{n % 4}"), ("n", "==", n)) for n in range(64)]
    filters: list[tuple[str, str, Any]] = [
        ("n", ">", 5),
        ("n", "!=", 7),
        ("t", "<=", "m"),
        ("t", "starts_with", "ab"),
        ("t", "ends_with", "yz"),
        ("t", "contains", "mid"),
        ("t", "matches", "^a+$"),
        ("t", "exists", False),
    ]
    made += [orders(100 + at, each) for at, each in enumerate(filters)]
    made += [
        orders(200, pattern={"data": {"ip": [{"cidr": "10.0.0.0/8"}]}}),
        orders(201, pattern={"data": {"t": [{"equals-ignore-case": "Straße"}]}}),
        orders(202, topic="orders.*.paid"),
        orders(203, cel="timestamp(data.at) < timestamp('2026-01-01T00:00:00Z')"),
        orders(204, cel="data.a + data.b > 3"),
        orders(205, pattern={"data": {"a": [1], "b": [2]}}),
    ]
    return made


def test_it_names_each_subscription_and_says_where_it_is_held(engine: MakeEngine) -> None:
    e: Engine = engine()
    e.add_many(every_matcher())
    merge(e)
    told = e.dump()
    assert 'partition tenant "default", collection "orders": 78 subscriptions' in told
    assert [each["id"] for each in every_matcher() if f'"{each["id"]}"' not in told] == []
    if _backend.BACKEND == "reference":
        assert told.startswith("the reference has no index: ")
        assert '  data.n > 5 ─► "s100"\n' in told
        return
    assert "bucket 0" in told
    kinds = ["equal values", "ranges of numbers", "ranges of strings", "ranges of times", "prefixes", "suffixes"]
    kinds += ["texts in any case", "wildcards", "regexps", "nets", "topic patterns", "anything but", "kinds of value"]
    assert [kind for kind in kinds if f" for {kind}\n" not in told] == []
    assert 'looks up data.n for ranges of numbers\n        > 5 ─► "s100"\n' in told
    assert 'looks up data.t for ranges of strings\n        <= "m" ─► "s102"\n' in told
    assert 'in 10.0.0.0/8 ─► "s200"\n' in told
    assert '"s204" and its CEL' in told
    assert '"s205" and one choice of array elements' in told


def test_what_lies_below_a_bucket_is_one_of_its_conditions(engine: MakeEngine) -> None:
    """64 subscriptions share four values of one field: each value leads to a bucket that asks for the other field."""
    e: Engine = engine()
    e.add_many(every_matcher())
    merge(e)
    told = e.dump()
    if _backend.BACKEND == "reference":
        assert 'data.n = 5 and data.status = "v1" ─► "s5"' in told
    else:
        assert '= 5 ─► "s5" if data.status = "v1"' in told or '= 5 ─► "s5"\n' in told


def test_more_subscriptions_than_asked_for_are_counted_and_not_printed(engine: MakeEngine) -> None:
    e: Engine = engine()
    e.add_many(every_matcher())
    merge(e)
    told = e.dump(max_subscriptions=77)
    assert "78 subscriptions" in told
    assert "not shown: more than 77 subscriptions in all" in told or "not shown: more than 77 in all" in told
    assert '"s100"' not in told
    assert len(told) < 500


def test_a_segment_that_is_no_index_is_a_list(engine: MakeEngine) -> None:
    e: Engine = engine()
    e.add(orders(1, ("n", "in", [1, 2])))
    e.add({"id": "all"})
    told = e.dump()
    assert 'data.n = 1 or = 2 ─► "s1"' in told
    assert 'everything ─► "all"' in told
    assert 'collection "*"' in told


def test_an_empty_engine_says_so_and_a_negative_number_is_refused(engine: MakeEngine) -> None:
    e: Engine = engine()
    assert e.dump() == "no subscriptions\n"
    with pytest.raises(ConfigError, match="max_subscriptions"):
        e.dump(-1)


@pytest.mark.parametrize("seed", range(8))
def test_any_set_is_printed_whole(engine: MakeEngine, seed: int) -> None:
    """What was added, replaced, removed and merged, and what lies in a file."""
    rng = random.Random(seed)
    e: Engine = engine()
    e.add_many([random_subscription(rng, f"r{n}") for n in range(150)], on_error="skip")
    for n in range(0, 150, 3):
        e.remove(f"r{n}")
    if seed % 2:
        merge(e)
    told = e.dump(10_000)
    assert "cannot be" not in told
    assert [each for each in e if f'"{each}"' not in told] == []


def test_what_lies_in_a_file_is_printed_once_it_was_read(engine: MakeEngine, tmp_path: Path) -> None:
    e: Engine = engine()
    e.add_many(every_matcher())
    e.save(tmp_path / "s.bin")
    opened = Engine.load(tmp_path / "s.bin")
    before = opened.dump()
    opened.match({"collection": "orders", "data": {"n": 7}})
    after = opened.dump()
    assert '"s100"' in after
    if _backend.BACKEND == "native":
        assert "in a file that is not read yet" in before
        assert "cannot be" not in after
