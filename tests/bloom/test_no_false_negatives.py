"""Phase 1 loses nothing: with it and without it the same subscriptions match, whatever is added, removed or unknown."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from streamer import Engine, Subscription
from streamer.bloom.answer import Answer
from streamer.bloom.guard import CollectionFilter
from streamer.cel_eval import ProgramCache
from streamer.events.layout import EventLayout
from streamer.events.reading import read_event
from streamer.model import Limits
from streamer.reference.transition import find_outcome
from streamer.subscriptions.compile import compile_subscription
from tests.parts import in_parts, in_seeds

VALUES: list[Any] = [0, 1, 1.0, 2**53, 2**53 + 1, 0.5, True, False, None, "", "1", "x", "paid"]
#: What ranges, texts and nets are asked for, and values on both sides of their edges.
NUMBERS: list[Any] = [*range(-3, 20), -0.0, 1e300, -1e300, 2**63, 2**64 - 1, 99.5, 100, 100.5, 1_700_000_000_000, 2**53 + 2]
TEXTS = ["paid", "Paid", "unpaid", "paid-late", "aid", "pa", "", "straße", "STRAẞE", "10.0.0.7", "10.1.2.3", "2001:db8::7"]
FIELDS = ["a", "b", "c.d", "c.e"]
TOPICS = ["", "a", "a.b", "a.b.c", "b", "a.", "x.b.c.d.e.f"]
OPERATORS = ["==", "==", "==", "!=", "in", "in", "not in", "contains", "exists", "changed", "changed_to", "changed_from"]
OPERATORS += ["<", "<=", ">", ">=", "starts_with", "ends_with", "matches"]


#: What the native core makes keys of, and what it does not; errors and unknown values among them.
CEL = [
    "data.a == 1",
    "data.a > 3 && data.c.d == 'paid'",
    "data.b in ['paid', 'x'] || data.a == true",
    "(data.a == 1 ? data.b == 'x' : data.b == 'paid') && data.c.d > 0",
    "data.b.startsWith('paid') && type == 'update'",
    "'x' in data.a || has(before.a) && before.a < 0.5",
    "!(data.a != 1) && topic == 'a.b'",
]


def random_filter(rng: random.Random) -> dict[str, Any]:
    op = rng.choice(OPERATORS)
    made: dict[str, Any] = {"field": rng.choice(FIELDS), "op": op}
    if op in ("in", "not in"):
        made["value"] = rng.sample(VALUES, rng.randrange(4))
    elif op == "exists":
        made["value"] = rng.random() < 0.5
    elif op in ("<", "<=", ">", ">="):
        made["value"] = rng.choice([*NUMBERS, "m", True, False])
    elif op in ("starts_with", "ends_with", "matches"):
        made["value"] = re.escape(rng.choice(TEXTS)) if op == "matches" else rng.choice(TEXTS)
    elif op == "contains":
        made["value"] = rng.choice([*VALUES, *TEXTS])
    elif op != "changed":
        made["value"] = rng.choice(VALUES)
    return made


def random_leaf(rng: random.Random) -> list[Any]:
    text = rng.choice([text for text in TEXTS if text])
    match rng.randrange(9):
        case 0:
            operand: Any = {"equals-ignore-case": text} if rng.random() < 0.5 else text
            return [{rng.choice(["prefix", "suffix"]): operand}]
        case 1:
            return [{"exists": rng.random() < 0.5}]
        case 2:
            return [{"anything-but": ["x"]}]
        case 3:
            low, high = sorted(rng.sample(sorted(set(NUMBERS)), 2))
            return [{"numeric": rng.choice([[">", low], ["<=", high], [">=", low, "<", high]])}]
        case 4:
            return [{"wildcard": rng.choice(["pa*", "*aid", "p*d", "*pai*", "*", "10.*", "u*-*e"])}]
        case 5:
            return [{"cidr": rng.choice(["10.0.0.0/8", "10.0.0.0/30", "10.1.2.3/32", "0.0.0.0/0", "2001:db8::/32", "::/0"])}]
        case 6:
            return [{"equals-ignore-case": text}, rng.choice(VALUES)]
        case _:
            return rng.sample(VALUES, rng.randint(1, 3))


def random_pattern(rng: random.Random) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in rng.sample(["a", "b", "c"], rng.randint(1, 2)):
        document[field] = {"d": random_leaf(rng)} if field == "c" else random_leaf(rng)
    side = "before" if rng.random() < 0.15 else "data"
    if rng.random() < 0.25:
        return {"$or": [{side: document}, {"type": [rng.choice(["insert", "update"])]}]}
    return {side: document}


def random_subscription(rng: random.Random, name: str) -> Subscription:
    return Subscription(
        id=name,
        tenant=rng.choice([None, None, "t", "*"]),
        collection=rng.choice([None, "c", "c", "d"]),
        types=rng.choice([None, None, None, ["insert"], ["update", "delete"]]),
        filters=[random_filter(rng) for _ in range(rng.choice([0, 1, 1, 2]))],
        pattern=random_pattern(rng) if rng.random() < 0.4 else None,
        topic=rng.choice([None, None, None, "a.#", "a.b", "*", "b", "a.b.*", "#.c", "*.b.c.d.#", "#.d.e.f"]),
        cel=rng.choice([None] * 6 + CEL),
        on_unknown=rng.choice(["deliver", "deliver", "skip"]),
        transitions=rng.random() < 0.5,
    )


def random_value(rng: random.Random) -> Any:
    kind = rng.randrange(12)
    if kind == 0:
        return [rng.choice([*VALUES, *TEXTS, [1]]) for _ in range(rng.randrange(3))]
    if kind == 1:
        return {"d": rng.choice(VALUES)}
    if kind < 5:
        return rng.choice([*NUMBERS, *TEXTS, "paid and " * 9])
    return rng.choice(VALUES)


def random_document(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.05:
        return None
    document = {field: random_value(rng) for field in ("a", "b", "flag") if rng.random() < 0.7}
    if rng.random() < 0.6:
        document["c"] = rng.choice(
            [{"d": random_value(rng)}, {"d": random_value(rng), "e": 1}, [{"d": random_value(rng)}, {"d": 1}], 7, None]
        )
    return document


HOLES = [
    "/data/a",
    "/data/c",
    "/data/c/d",
    "/data/c/0/d",
    "/before",
    "/before/a",
    "/before/b",
    "/data",
    "/type",
    "/topic",
    "/data/flag",
    "",
]


LAYOUTS = [
    EventLayout(),
    EventLayout(data=["/after", "/data"], before=["/old", "/before"]),
    EventLayout(data=""),
    EventLayout(before_holds="partial", unknown_value="unpaid"),
    EventLayout(before_holds="changed", unknown_value=["aid", "straße"]),
]


def random_event(rng: random.Random) -> dict[str, Any]:
    event: dict[str, Any] = {"data": random_document(rng)}
    if rng.random() < 0.5:
        event["before"] = random_document(rng)
    if rng.random() < 0.8:
        event["type"] = rng.choice(["insert", "update", "update", "delete"])
    if event.get("type") == "delete" and rng.random() < 0.7:
        del event["data"]
    if rng.random() < 0.5:
        event["tenant"] = rng.choice(["t", "u"])
    if rng.random() < 0.8:
        event["collection"] = rng.choice(["c", "d"])
    if rng.random() < 0.5:
        event["topic"] = rng.choice(TOPICS)
    if rng.random() < 0.3:
        event["unknown"] = rng.sample(HOLES, rng.randint(1, 2))
    return event


@in_seeds(12, 80)
def test_the_filter_never_loses_a_match(engine: Any, seed: int) -> None:
    rng = random.Random(seed)
    layout = LAYOUTS[seed % len(LAYOUTS)]
    soft_delete = "flag" if seed % 4 == 0 else None
    e: Engine = engine(layout=layout, soft_delete=soft_delete)
    programs = ProgramCache(100)
    held: dict[str, Subscription] = {}
    matched = 0
    for step in range(12):
        new = [random_subscription(rng, f"s{rng.randrange(60)}") for _ in range(5)]
        for subscription in new:
            e.replace(subscription)
            held[subscription.id] = subscription
        for name in rng.sample(sorted(held), min(len(held), step % 5)):
            e.remove(name)
            del held[name]
        for state in e._core.filters():
            if rng.random() < 0.3:
                e._core.rebuild_filter(*state.name, rng.choice([1, 100]), 0.01)
        compiled = [compile_subscription(s, programs=programs) for s in held.values()]
        for _ in range(8):
            event = random_event(rng)
            read = read_event(event, layout=layout, default_tenant="default", limits=Limits())
            outcomes = {c.id: find_outcome(c, read, layout, soft_delete) for c in compiled}
            expected = {(name, o.transition, o.certain) for name, o in outcomes.items() if o is not None}
            found = {(m.subscription_id, m.transition, m.certain) for m in e.match(event)}
            assert found == expected, (event, [held[name].to_dict() for name, *_ in found ^ expected])
            matched += len(found)
    assert matched > 0


def asking(rng: random.Random) -> dict[str, Any]:
    """Return one condition of a kind that makes keys, on words that begin and end alike now and then."""
    text = "".join(rng.choice("abß.") for _ in range(rng.randint(1, 9)))
    low = rng.randrange(200)
    leaf: Any = rng.choice(
        [
            {"prefix": text},
            {"suffix": text},
            {"prefix": {"equals-ignore-case": text.upper()}},
            {"suffix": {"equals-ignore-case": text.upper()}},
            {"equals-ignore-case": text.upper()},
            {"wildcard": f"{text}*{text[:2]}"},
            {"numeric": [">=", low, "<", low + rng.randrange(1, 20)]},
            {"cidr": f"{rng.randrange(3)}.{rng.randrange(9)}.0.0/{rng.choice([8, 12, 16, 20, 32])}"},
            text,
        ]
    )
    if rng.random() < 0.1:
        return {"topic": f"{text.replace('.', '')}.{rng.choice(['*', '#', 'x.#', '*.y'])}"}
    if rng.random() < 0.1:
        return {"cel": f"data.a.startsWith('{text}') || data.b > {low} && data.b < {low + 9}"}
    return {"pattern": {"data": {rng.choice("ab"): [leaf], **({"c": {"d": [low % 5]}} if rng.random() < 0.1 else {})}}}


def carrying(rng: random.Random) -> Any:
    text = "".join(rng.choice("abß.") for _ in range(rng.randint(1, 12)))
    number = rng.randrange(400) / 2
    return rng.choice([text, text.upper(), number, f"{rng.randrange(4)}.{rng.randrange(12)}.0.0", [text, number]])


@pytest.mark.later_on_the_reference
@in_parts(4, slow=0)
def test_a_filter_of_all_kinds_over_many_loses_nothing(engine: Any, part: int) -> None:
    """So many of one partition that the native engine has a filter for them, which says NO and is rebuilt meanwhile."""
    rng = random.Random(part)
    soft_delete = None if part else "flag"
    e: Engine = engine(soft_delete=soft_delete)
    programs = ProgramCache(100)
    held: dict[str, Subscription] = {}
    matched = 0
    for step in range(10):
        for _ in range(120 if step == 0 else 8):
            new = Subscription(id=f"s{rng.randrange(200)}", collection="c", transitions=rng.random() < 0.3, **asking(rng))
            e.replace(new)
            held[new.id] = new
        for name in rng.sample(sorted(held), 5):
            e.remove(name)
            del held[name]
        for state in e._core.filters():
            if rng.random() < 0.4:
                e._core.rebuild_filter(*state.name, rng.choice([1, 300]), 0.001)
        compiled = [compile_subscription(s, programs=programs) for s in held.values()]
        for _ in range(25):
            event: dict[str, Any] = {
                "collection": "c",
                "data": {"a": carrying(rng), "b": carrying(rng)},
                "topic": rng.choice(TOPICS),
            }
            event["data"] |= {"flag": rng.random() < 0.3, "c": {"d": rng.randrange(9)}}
            if rng.random() < 0.4:
                event |= {"type": "update", "before": {"a": carrying(rng), "b": carrying(rng)}}
            if rng.random() < 0.1:
                event["unknown"] = [rng.choice(["/data/a", "/data/c", "/before", "/topic"])]
            read = read_event(event, layout=EventLayout(), default_tenant="default", limits=Limits())
            outcomes = {c.id: find_outcome(c, read, EventLayout(), soft_delete) for c in compiled}
            expected = {(name, o.transition, o.certain) for name, o in outcomes.items() if o is not None}
            found = {(m.subscription_id, m.transition, m.certain) for m in e.match(event)}
            assert found == expected, (event, [held[name].to_dict() for name, *_ in found ^ expected])
            matched += len(found)
    (state,) = e._core.filters()
    assert matched > 50
    assert state.no > 10
    assert state.keyed > 50


def test_events_that_nobody_wants_are_mostly_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the contract could be met by always saying MAYBE."""
    monkeypatch.setattr("streamer._backend.BACKEND", "reference")
    answers: list[Answer] = []
    ask = CollectionFilter.ask

    def counting(self: CollectionFilter, carried: Any) -> Answer:
        answers.append(ask(self, carried))
        return answers[-1]

    monkeypatch.setattr(CollectionFilter, "ask", counting)
    e = Engine()
    e.add_many(
        {"id": f"s{n}", "collection": "c", "filters": [{"field": f"f{n % 10}", "op": "==", "value": n}]} for n in range(1000)
    )
    for n in range(1000):
        # One event in a hundred is interesting.
        value = n if n % 100 == 0 else n + 1_000_000
        e.match({"collection": "c", "data": {f"f{field}": value for field in range(10)}})
    assert len(answers) == 1000
    assert answers.count(Answer.MAYBE) >= 10
    assert answers.count(Answer.NO) >= 0.9 * 990


def test_keys_of_removed_subscriptions_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer._backend.BACKEND", "reference")
    e = Engine()
    e.add({"id": "stays", "collection": "c", "filters": [{"field": "a", "op": "==", "value": "stays"}]})
    for n in range(500):
        e.add({"id": "s", "collection": "c", "filters": [{"field": f"f{n}", "op": "==", "value": n}]})
        e.remove("s")
    ((_, partition),) = e._core._version.partitions.items()  # type: ignore[attr-defined]
    assert partition.filter is not None
    assert len(partition.filter.places) <= 4
