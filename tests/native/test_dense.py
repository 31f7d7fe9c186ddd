"""Many conditions of which none is selective are ruled out together: the same is found, and few are looked at one by one.

Work is counted as candidates: conjunctions that are verified or handed out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine, _backend
from tests.tools.hooks import hooks

FIELDS = 12
#: So many of a kind are ruled out together, and some more.
COUNT, EVENTS = 1_300, 6
NAMES = [f"v{n}" for n in range(8)]
COUNTRIES = ["DE", "FR", "IT", "US"]
DAYS = [f"2026-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)]


def chosen(rng: random.Random, count: int) -> list[str]:
    """Fields, each once."""
    return [f"f{field}" for field in rng.sample(range(FIELDS), count)]


def numbers(rng: random.Random) -> dict[str, Any]:
    found = []
    for name in chosen(rng, 4):
        low = rng.randrange(60)
        found += [{"field": name, "op": rng.choice([">", ">="]), "value": low}]
        found += [{"field": name, "op": rng.choice(["<", "<="]), "value": low + 40}]
    return {"filters": found}


def fractions(rng: random.Random) -> dict[str, Any]:
    found = []
    for name in chosen(rng, 4):
        low = rng.random() * 60
        found += [{"field": name, "op": ">=", "value": low}, {"field": name, "op": "<", "value": low + 40}]
    return {"filters": found}


def texts(rng: random.Random) -> dict[str, Any]:
    found = []
    for name in chosen(rng, 3):
        low = rng.randrange(len(DAYS) // 2)
        found += [{"field": name, "op": ">=", "value": DAYS[low]}, {"field": name, "op": "<", "value": DAYS[low + 100]}]
    return {"filters": found}


def not_in(rng: random.Random) -> dict[str, Any]:
    excluded = [(name, rng.sample([*NAMES, 7, True, None], 4)) for name in chosen(rng, 6)]
    return {"filters": [{"field": name, "op": "not in", "value": values} for name, values in excluded]}


def unequal(rng: random.Random) -> dict[str, Any]:
    return {"filters": [{"field": name, "op": "!=", "value": rng.choice(NAMES[:2])} for name in chosen(rng, 8)]}


def anything_but(rng: random.Random) -> dict[str, Any]:
    leaves = {name: [{"anything-but": rng.sample(NAMES, 4)}] for name in chosen(rng, 6)}
    return {"pattern": {"data": leaves}}


def numeric(rng: random.Random) -> dict[str, Any]:
    ranges = {}
    for name in chosen(rng, 3):
        low = rng.randrange(60)
        ranges[name] = [{"numeric": [">=", low, "<", low + 40]}, *rng.choice([[], ["v1"], [{"exists": False}]])]
    return {"pattern": {"data": ranges}}


def beside_a_flag(rng: random.Random) -> dict[str, Any]:
    """What all or half of them share, and ranges."""
    flags = [{"field": "active", "op": "==", "value": rng.random() < 0.5}, {"field": "kind", "op": "==", "value": "order"}]
    return {"filters": flags + numbers(rng)["filters"]}


def cel(rng: random.Random) -> dict[str, Any]:
    one, other, third = chosen(rng, 3)
    low = rng.randrange(60)
    parts = [
        f"data.{one} >= {low} && data.{one} < {low + 40}",
        f"!(data.{other} in ['v1', 'v{rng.randrange(8)}'])",
        rng.choice([f"data.{third} > {low}"] * 20 + [f"size(data.{third}) < {low % 4}", f"data.{third} != before.{third}"]),
    ]
    return {"cel": " && ".join(parts)}


def booleans(rng: random.Random) -> dict[str, Any]:
    wanted = {name: rng.random() < 0.5 for name in chosen(rng, 6)}
    match rng.randrange(3):
        case 0:
            return {"pattern": {"data": {name: [value] for name, value in wanted.items()}}}
        case 1:
            return {"cel": " && ".join(f"data.{name} == {json.dumps(value)}" for name, value in wanted.items())}
    return {"filters": [{"field": name, "op": "==", "value": value} for name, value in wanted.items()]}


def booleans_and_texts(rng: random.Random) -> dict[str, Any]:
    """Equalities alone, of which no two subscriptions share many."""
    flags = [{"field": name, "op": "==", "value": rng.random() < 0.5} for name in chosen(rng, 4)]
    countries = [
        {"field": "country", "op": "==", "value": rng.choice(COUNTRIES)},
        {"field": "country", "op": "in", "value": rng.sample(COUNTRIES, 2)},
    ]
    return {"filters": [*flags, rng.choice(countries)]}


KINDS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "ranges of whole numbers": numbers,
    "ranges of numbers": fractions,
    "ranges of texts": texts,
    "not in": not_in,
    "unequal": unequal,
    "anything but": anything_but,
    "numeric": numeric,
    "ranges beside a flag": beside_a_flag,
    "cel": cel,
    "booleans": booleans,
    "booleans and texts": booleans_and_texts,
}


def value(rng: random.Random, name: str) -> Any:
    """What a kind of subscriptions mostly asks for, and sometimes something else."""
    usual: list[Any] = [rng.choice(NAMES), rng.choice(DAYS), rng.randrange(100), rng.random() * 100, rng.random() < 0.5]
    if rng.random() < 0.85:
        at = {
            "ranges of whole numbers": 2,
            "ranges of numbers": 3,
            "ranges of texts": 1,
            "ranges beside a flag": 2,
            "numeric": 2,
            "cel": 2,
            "booleans": 4,
            "booleans and texts": 4,
        }
        return usual[at.get(name, 0)]
    some = [*usual, None, True, False, {"a": 1}, [], [3, "v1", 70], [[5], {"b": 2}], "", "v10", 1e300, -1, 7, 7.0]
    return rng.choice(some)


def shared(rng: random.Random) -> dict[str, Any]:
    """Fields that kinds of subscriptions share."""
    return {"active": rng.random() < 0.5, "kind": "order", "country": rng.choice(COUNTRIES)}


def event(rng: random.Random, name: str) -> dict[str, Any]:
    """An event of a kind, some of whose fields are missing."""
    data = {f"f{field}": value(rng, name) for field in range(FIELDS) if rng.random() < 0.95}
    made = {"type": rng.choice(["insert", "update"]), "data": data | shared(rng)}
    if made["type"] == "update":
        made["before"] = {f"f{field}": value(rng, name) for field in range(FIELDS)}
    return made


def subscription(rng: random.Random, name: str, number: int) -> dict[str, Any]:
    extra = {"transitions": True} if rng.random() < 0.1 and name != "cel" else {}
    return {"id": f"s{number}", **extra, **KINDS[name](rng)}


def told(engine: Engine, text: bytes) -> dict[str, Any]:
    return {match.subscription_id: (match.transition, match.certain) for match in engine.match(text)}


@pytest.mark.parametrize("share", [10, pytest.param(1, marks=pytest.mark.integration)])
@pytest.mark.parametrize("name", KINDS)
def test_what_is_ruled_out_together_is_what_the_reference_rules_out(
    name: str, share: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The reference has one in so many subscriptions, since it looks at each."""
    rng = random.Random(name)
    in_both = {f"s{number}" for number in range(0, COUNT, share)}
    native = Engine()
    monkeypatch.setattr(_backend, "BACKEND", "reference")
    reference = Engine()
    given = [subscription(rng, name, number) for number in range(COUNT)]
    reference.add_many(given[::share])
    monkeypatch.setattr(_backend, "BACKEND", "native")
    # In two segments, of which one is too small, until they are merged.
    native.add_many(given[:-100])
    native.add_many(given[-100:])
    assert "many values at once" in native.dump(COUNT)
    found = 0

    def compare(one: Engine, count: int) -> None:
        nonlocal found
        for _ in range(count):
            text = json.dumps(event(rng, name)).encode()
            expected = told(reference, text)
            matched = told(one, text)
            assert {each: matched[each] for each in matched.keys() & in_both} == expected, text
            found += len(expected)

    compare(native, EVENTS)
    gone = [f"s{number}" for number in rng.sample(range(COUNT), 50)]
    changed = [subscription(rng, name, number) for number in rng.sample(range(COUNT), 50)]
    native.remove_many(ids=gone)
    native.add_many(changed, replace=True)
    reference.remove_many(ids=sorted(in_both.intersection(gone)))
    reference.add_many([each for each in changed if each["id"] in in_both], replace=True)
    compare(native, EVENTS // 3)
    hooks(native).merge()
    compare(native, EVENTS // 3)
    native.save(tmp_path / "saved")
    compare(Engine.load(tmp_path / "saved"), EVENTS // 3)
    assert found > 20 / share


#: Of each kind, how many are looked at for one that matches, at most: what lies near the ends of ranges is compared.
LOOKED = {
    "ranges of numbers": 5,
    "ranges of whole numbers": 5,
    "not in": 1,
    "ranges beside a flag": 5,
    "ranges of texts": 5,
    "booleans": 1,
    "booleans and texts": 1,
}


@pytest.mark.parametrize("name", LOOKED)
def test_few_are_looked_at_one_by_one(name: str) -> None:
    rng = random.Random(name)
    engine = Engine()
    engine.add_many([{"id": f"s{number}", **KINDS[name](rng)} for number in range(4 * COUNT)])
    matches = 0
    for _ in range(100):
        data = {f"f{field}": value(random.Random(rng.random()), name) for field in range(FIELDS)}
        matches += engine.match_count(json.dumps({"data": data | shared(rng)}).encode())
    assert matches > 100
    assert engine.stats().candidates <= LOOKED[name] * matches


def test_equalities_on_the_same_fields_are_looked_up() -> None:
    rng = random.Random(2)
    engine = Engine()
    names = chosen(rng, 10)
    filters = [[{"field": name, "op": "==", "value": rng.random() < 0.5} for name in names] for _ in range(4 * COUNT)]
    engine.add_many([{"id": f"s{number}", "filters": some} for number, some in enumerate(filters)])
    hooks(engine).merge()
    assert "many values at once" not in engine.dump(4 * COUNT)


def test_few_conditions_of_a_segment_are_no_reason_to_rule_out_together() -> None:
    rng = random.Random(1)
    engine = Engine()
    engine.add_many([{"id": f"s{number}", **numbers(rng)} for number in range(COUNT // 2)])
    engine.add_many(
        [
            {"id": f"t{number}", "filters": [{"field": "user", "op": "==", "value": number}, *numbers(rng)["filters"]]}
            for number in range(COUNT)
        ]
    )
    hooks(engine).merge()
    assert "many values at once" not in engine.dump(4 * COUNT)
