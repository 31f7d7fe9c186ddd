"""A batch in several threads is what its events are one by one, in their order, whatever happens meanwhile."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import streamer
from streamer import Engine, EventError, Matches
from tests.generators import agreeing_event, agreeing_subscription, random_text
from tests.parts import in_seeds

MakeEngine = Callable[..., Engine]


def random_events(rng: random.Random, count: int) -> list[Any]:
    """Events of several collections and tenants, some of them bad, some no texts."""
    events: list[Any] = []
    for number in range(count):
        event = agreeing_event(rng)
        if rng.random() < 0.5:
            event["collection"] = rng.choice(["orders", "users", "c"])
            event["tenant"] = rng.choice(["default", "acme"])
        text = random_text(rng, event)
        match rng.randrange(12):
            case 0:
                events.append(text[: rng.randrange(len(text))])
            case 1:
                events.append(b'{"collection": 7}')
            case 2:
                events.append(
                    {"collection": "orders", "data": {"a": rng.choice([1, object()])}, "before": {"a": 2}, "type": "update"}
                )
            case 3:
                events.append(bytearray(text))
            case 4:
                # Two names for the collection: what is located first is not what counts.
                events.append(b'{"collection": "orders", "collection": "users", "data": {"a": %d}}' % number)
            case _:
                events.append(text)
    return events


def told(result: Matches | EventError) -> Any:
    if isinstance(result, EventError):
        return result.code, result.offset, result.place, result.reason
    return {(match.subscription_id, match.transition, match.certain) for match in result}


def alone(engine: Engine, event: Any, *names: str | None) -> Any:
    try:
        return told(engine.match(event, *names))
    except EventError as error:
        return told(error)


def filled(engine: MakeEngine, rng: random.Random, **options: Any) -> Engine:
    made = engine(**options)
    subscriptions = [agreeing_subscription(rng, f"s{n}") for n in range(40)]
    for subscription in subscriptions[::3]:
        subscription["collection"] = rng.choice(["orders", "users", "*"])
        subscription["tenant"] = rng.choice(["acme", "*"])
    made.add_many(subscriptions)
    return made


@in_seeds(3, 20)
def test_a_batch_is_its_events_one_by_one_in_their_order(engine: MakeEngine, backend: str, seed: int) -> None:
    rng = random.Random(seed)
    made = filled(engine, rng, soft_delete=rng.choice([None, "a"]))
    events = random_events(rng, 900 if backend == "native" else 60)
    names = rng.choice([(), (), ("acme",), (None, "orders"), ("acme", "orders")])
    expected = [alone(made, event, *names) for event in events]
    assert sum(isinstance(one, tuple) for one in expected) > len(events) / 20
    for threads in (1, 2, 3, 8):
        results = made.match_batch(events, *names, threads=threads)
        assert [told(result) for result in results] == expected
        wanted = [(at, one) for at, one in enumerate(expected) if isinstance(one, tuple) or results[at]]
        assert [(at, told(result)) for at, result in results.matched()] == wanted
        assert [result.index for result in results if isinstance(result, EventError)] == [
            at for at, one in enumerate(expected) if isinstance(one, tuple)
        ]


@pytest.mark.parametrize("validation", ["full", "lazy"])
def test_what_an_event_is_does_not_depend_on_those_beside_it(engine: MakeEngine, validation: str, backend: str) -> None:
    """Events of one collection, of many, and of one after the other in turn, so that every guess is right, or none."""
    made = engine(validation=validation)
    half = 300 if backend == "native" else 60
    for n in range(half):
        made.add({"id": f"s{n}", "collection": f"c{n}", "filters": [{"field": f"f{n}", "op": "==", "value": 1}]})
    made.add({"id": "all", "filters": [{"field": "z", "op": "exists", "value": True}]})

    def event(n: int, end: str = "}") -> bytes:
        return f'{{"collection": "c{n}", "data": {{"f{n}": 1}}, "more": {json.dumps("x" * (n % 9))}{end}'.encode()

    orders = (
        [7] * 2 * half,
        list(range(half)) * 2,
        [1, 2] * half,
        [5] * half + [6] + [5] * half,
        [n // 37 for n in range(2 * half)],
    )
    for order in orders:
        events = [event(n, "" if at % 91 == 90 else "}") for at, n in enumerate(order)]
        expected = [alone(made, each) for each in events]
        for threads in (1, 2):
            assert [told(result) for result in made.match_batch(events, threads=threads)] == expected
        lines = list(made.match_jsonl(b"\n".join(events), threads=2, batch_size=half * 2 // 3))
        assert [told(line.result) for line in lines] == expected


def test_a_batch_sees_one_state_while_others_write(engine: MakeEngine, backend: str) -> None:
    made = engine()
    made.add_many({"id": f"s{n}"} for n in range(10))
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            made.add_many({"id": f"t{n}"} for n in range(7))
            made.remove_many(ids=[f"t{n}" for n in range(7)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20 if backend == "native" else 3):
            results = made.match_batch([b"{}"] * (2000 if backend == "native" else 50), threads=3)
            assert {len(result) for result in results if isinstance(result, Matches)} in ({10}, {17})
    finally:
        is_over.set()
        writer.join()


def test_an_exception_of_the_reader_of_events_ends_the_batch(engine: MakeEngine) -> None:
    class Odd(dict[str, Any]):
        def items(self) -> Any:
            raise ZeroDivisionError("as it was asked to")

    made = engine()
    made.add({"id": "s"})
    with pytest.raises(ZeroDivisionError):
        made.match_batch([b"{}", Odd(a=1)] * 40, threads=2)
    assert [len(result) for result in made.match_batch([b"{}"] * 2) if isinstance(result, Matches)] == [1, 1]


def test_threads_of_the_engine_are_used_where_a_call_does_not_say(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine(threads=3)
    core = type(made._core)
    seen: list[int] = []
    match_batch = core.match_batch

    def counted(self: Any, events: Any, tenant: Any, collection: Any, threads: int) -> Any:
        seen.append(threads)
        return match_batch(self, events, tenant, collection, threads)

    monkeypatch.setattr(core, "match_batch", counted)
    made.match_batch([b"{}"])
    made.match_batch([b"{}"], threads=1)
    list(made.match_jsonl(b"{}"))
    list(made.match_jsonl(b"{}", threads=2))
    assert seen == [3, 1, 3, 2]
    for bad in (0, -1, True, 2**63):
        with pytest.raises(streamer.ConfigError, match="threads"):
            engine(threads=bad)
    configured = Engine.from_config(streamer.Config.from_dict({"matching": {"threads": 2}}))
    assert configured._options.threads == 2
    assert configured.reload(streamer.Config.from_dict({"matching": {"threads": 4}})).changed == ("matching.threads",)
    assert configured._options.threads == 4
