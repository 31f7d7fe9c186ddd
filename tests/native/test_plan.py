"""What the native core plans has the keys that the reference plans: a filter made by one is asked by the other."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from streamer import Engine
from streamer.cel_eval import ProgramCache
from streamer.errors import SubscriptionError
from streamer.model import Limits
from streamer.reference.plan import make_plan
from streamer.subscriptions.compile import compile_subscription
from tests.generators import random_subscription

pytestmark = pytest.mark.usefixtures("backend")


def test_both_cores_plan_the_same_partition_and_keys() -> None:
    """Orderings of booleans apart, which have keys natively, since true and false are all there is, and groups, as CEL."""
    counted = Counter[str]()
    for seed in range(300):
        rng = random.Random(seed)
        made = random_subscription(rng, "s", cel=0.0)
        has_groups = any("op" not in each for each in made.get("filters", ()))
        orders_bools = any(
            each.get("op") in ("<", "<=", ">", ">=") and isinstance(each["value"], bool) for each in made.get("filters", ())
        )
        engine = Engine()
        try:
            engine.add(made)
        except SubscriptionError:
            continue
        native = engine.plan("s")
        reference = make_plan(compile_subscription(made, programs=ProgramCache(8)), Limits())
        assert (native.tenant, native.collection) == (reference.tenant, reference.collection)
        if orders_bools:
            counted["bools"] += 1
        elif has_groups:
            # The clauses of a group may have better keys.
            assert native.bloom_keys or not reference.bloom_keys, made
            counted["groups"] += 1
        elif native.normal_form:
            assert set(native.bloom_keys) == set(reference.bloom_keys), made
            assert len(native.normal_form) <= len(reference.normal_form)
            counted["keyed" if native.bloom_keys else "unkeyed"] += 1
    assert counted["keyed"] > 100
    assert counted["unkeyed"] > 20


def test_a_plan_makes_no_engine_and_compiles_nothing_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the core knows what it does with a subscription, and it says so itself."""
    engine = Engine()
    engine.add({"id": "s", "cel": "data.a == 1 && data.b - data.c > 2", "filters": [{"field": "f", "op": "changed"}]})

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("streamer.subscriptions.compile.compile_subscription", refuse)
    monkeypatch.setattr("streamer.native.core.NativeCore.__new__", refuse)
    plan = engine.plan("s")
    assert plan.cel == "data.a == 1 && data.b - data.c > 2"
    assert plan.normal_form == (
        (
            "before.f differs from data.f",
            "data.a = 1",
            "data.b is a number",
            "data.c is a number",
            "cel: data.a == 1 && data.b - data.c > 2",
        ),
    )
    assert plan.bloom_keys == (b'["data","value",["a"],"number","1"]',)
