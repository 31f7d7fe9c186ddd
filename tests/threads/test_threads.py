"""Any number of threads match while others change what is held: every result is that of one state."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamer import Engine
from streamer.reference import core as reference_core
from tests.tools.hooks import hooks
from tests.tools.marked import MarkedLabels

MakeEngine = Callable[..., Engine]

EVENT = b'{"collection": "c", "data": {"a": 1}}'
ONE = [{"field": "a", "op": "==", "value": 1}]
#: Seconds after which a thread that should have finished has not.
PATIENCE = 30


class Paused:
    """Something that stops a thread where it stands until `release`."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def here(self) -> None:
        self._reached.set()
        assert self._released.wait(PATIENCE)

    def wait_until_reached(self) -> None:
        assert self._reached.wait(PATIENCE)

    def release(self) -> None:
        self._released.set()


def test_matches_go_on_while_a_writer_stands_inside_add_many(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "old", "filters": ONE})
    pause = Paused()

    def slow() -> Iterator[Any]:
        yield {"id": "new", "filters": ONE}
        pause.here()

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(e.add_many, slow())
        pause.wait_until_reached()
        assert all(e.match_ids(EVENT) == ["old"] for _ in range(1000))
        e.add({"id": "meanwhile", "filters": ONE})
        assert sorted(e.match_ids(EVENT)) == ["meanwhile", "old"]
        assert not writing.done()
        pause.release()
        assert writing.result(PATIENCE).added == ("new",)
    assert sorted(e.match_ids(EVENT)) == ["meanwhile", "new", "old"]


def test_matches_go_on_while_a_writer_holds_the_lock_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer._backend.BACKEND", "reference")
    e = Engine()
    e.add({"id": "old", "filters": ONE})
    pause = Paused()
    changed = reference_core.Partition.changed

    def stopping(*arguments: Any) -> Any:
        result = changed(*arguments)
        pause.here()
        return result

    monkeypatch.setattr(reference_core.Partition, "changed", stopping)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(e.replace, {"id": "old", "collection": "c", "filters": ONE})
        pause.wait_until_reached()
        assert all(e.match_ids(EVENT) == ["old"] for _ in range(1000))
        assert e.get("old") is not None
        assert len(e) == 1
        assert not writing.done()
        pause.release()
        writing.result(PATIENCE)
    assert e.match_ids(EVENT) == ["old"]


def test_every_result_is_that_of_some_state_between(engine: MakeEngine, backend: str) -> None:
    """4 match, 1 changes: what a match returns was held at a moment between its beginning and its end.

    On native one more merges segments all the while.
    """
    e = engine()
    rounds = 300 if backend == "native" else 60
    states: list[frozenset[str]] = [frozenset()]  # by version
    begun = published = 0
    done = threading.Event()

    def write() -> None:
        nonlocal begun, published
        try:
            for version, change in enumerate(_changes(e, rounds), start=1):
                states.append(change.after)
                begun = version
                change.make()
                published = version
        finally:
            done.set()

    def match() -> int:
        count = 0
        while not done.is_set():
            first = published
            result = frozenset(e.match_ids(EVENT))
            last = begun
            assert result in states[first : last + 1], (sorted(result), first, last)
            count += 1
        return count

    def merge() -> int:
        count = 0
        while not done.is_set():
            hooks(e).merge()
            count += 1
        return count

    with ThreadPoolExecutor(6) as pool:
        matching = [pool.submit(match) for _ in range(4)]
        if backend == "native":
            matching.append(pool.submit(merge))
        pool.submit(write).result(4 * PATIENCE)
        assert all(future.result(PATIENCE) > 0 for future in matching)


class _Change:
    def __init__(self, after: frozenset[str], make: Callable[[], Any]) -> None:
        self.after = after
        self.make = make


def _changes(e: Engine, rounds: int) -> Iterator[_Change]:
    """Changes of every kind, each with the ids that match EVENT after it."""

    def wanting(name: str, **members: Any) -> dict[str, Any]:
        return {"id": name, "filters": ONE, **members}

    for n in range(rounds):
        one, two, three = f"a{n % 3}", f"b{n % 5}", f"c{n}"
        base = frozenset({"x", "y"})
        yield _Change(base, lambda: e.apply([wanting("x"), wanting("y", tenant="*")]))
        yield _Change(base | {one}, lambda o=one: e.add(wanting(o)))  # type: ignore[misc]
        yield _Change(base | {one, two, three}, lambda t=two, h=three: e.add_many([wanting(t, collection="c"), {"id": h}]))  # type: ignore[misc]
        yield _Change(base | {two, three}, lambda o=one: e.replace(wanting(o, collection="other")))  # type: ignore[misc]
        yield _Change(base | {one, two, three}, lambda o=one: e.replace(wanting(o, collection="c")))  # type: ignore[misc]
        yield _Change(base | {one, three}, lambda t=two: e.remove(t))  # type: ignore[misc]
        yield _Change(frozenset({"y"}), lambda: e.remove_many(tenant="default"))


def test_a_replace_across_partitions_is_never_neither_and_never_both(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "collection": "c", "filters": ONE})
    done = threading.Event()

    def move() -> None:
        places = itertools.cycle([("*", "c"), ("*", "*"), ("default", "*"), ("default", "c")])
        for tenant, collection in itertools.islice(places, 400):
            e.replace({"id": "s", "tenant": tenant, "collection": collection, "filters": ONE})
        done.set()

    def match() -> None:
        while not done.is_set():
            assert e.match_ids(EVENT) == ["s"]

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(match) for _ in range(3)]
        pool.submit(move).result(PATIENCE)
        for future in futures:
            future.result(PATIENCE)


def test_a_bulk_change_is_seen_whole_or_not_at_all(engine: MakeEngine) -> None:
    e = engine()
    done = threading.Event()
    many = [{"id": f"s{n}", "collection": "c" if n % 2 else "*", "filters": ONE[: n % 3]} for n in range(50)]

    def write() -> None:
        for _ in range(30):
            e.add_many(many)
            e.remove_many(tenant="default")
        done.set()

    def match() -> set[int]:
        seen = set()
        while not done.is_set():
            seen.add(e.match_count(EVENT))
        return seen

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(match) for _ in range(2)]
        pool.submit(write).result(PATIENCE)
        assert set().union(*(future.result(PATIENCE) for future in futures)) <= {0, 50}


def test_every_thread_reads_its_own_writes(engine: MakeEngine) -> None:
    e = engine()

    def work(name: str) -> None:
        for n in range(60):
            own = f"{name}-{n}"
            e.add({"id": own, "filters": ONE})
            assert own in e.match(EVENT)
            e.remove(own)
            assert own not in e.match(EVENT)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, f"t{n}") for n in range(4)]:
            future.result(PATIENCE)
    assert len(e) == 0


def test_siblings_match_all_the_time_that_others_come_and_go(engine: MakeEngine) -> None:
    e = engine()
    siblings = {f"sibling{n}" for n in range(5)}
    e.add_many([{"id": name, "filters": ONE} for name in siblings])
    done = threading.Event()

    def come_and_go() -> None:
        for n in range(300):
            e.add({"id": f"guest{n}", "filters": ONE})
            e.remove(f"guest{n}")
            assert f"guest{n}" not in e.match_ids(EVENT)
        done.set()

    def match() -> None:
        while not done.is_set():
            assert siblings <= set(e.match_ids(EVENT))

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(match) for _ in range(2)]
        pool.submit(come_and_go).result(PATIENCE)
        for future in futures:
            future.result(PATIENCE)


def test_1000_rounds_of_adding_and_removing_leave_nothing_behind(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "stays", "filters": ONE})

    def round_of(n: int) -> None:
        e.add({"id": f"s{n}", "collection": f"c{n % 7}", "filters": [{"field": "a", "op": "==", "value": n}]})
        e.remove(f"s{n}")

    for n in range(50):
        round_of(n)
    gc.collect()
    before = len(gc.get_objects())
    for n in range(1000):
        round_of(n)
    gc.collect()
    assert len(gc.get_objects()) - before < 200
    assert e.match_ids(EVENT) == ["stays"]


def test_a_dropped_result_lets_go_of_what_it_saw(engine: MakeEngine) -> None:
    marked = MarkedLabels()
    e = engine()
    e.add_many({"id": f"s{n}", "filters": ONE, "labels": marked.new()} for n in range(500))
    assert marked.alive() == 500
    matches = e.match(EVENT)
    e.apply([])
    e.add({"id": "later"})
    assert marked.alive() == 500
    assert len(matches.ids()) == 500
    assert all(match.labels == marked.new() for match in matches)
    del matches
    # What is no longer wanted goes with one of the writes that follow.
    for n in range(3):
        e.add({"id": f"later{n}"})
    assert marked.alive() == 0


def test_writers_take_turns(engine: MakeEngine) -> None:
    e = engine()

    def add(worker: int) -> int:
        added = 0
        for n in range(50):
            changes = e.add_many([{"id": f"s{n}", "labels": {"by": worker}}], on_error="skip")
            added += len(changes.added)
        return added

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(add, range(4))) == 50
    assert len(e) == 50
    # Every one has a place of its own in the order of adding.
    assert len(e.match(EVENT).sorted()) == 50


def test_a_match_is_not_slowed_by_a_waiting_writer(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": ONE})
    pause = Paused()

    def slow() -> Iterator[Any]:
        pause.here()
        yield {"id": "new"}

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(e.apply, slow())
        pause.wait_until_reached()
        begun = time.perf_counter()
        assert e.match_ids(EVENT) == ["s"]
        assert time.perf_counter() - begun < 1
        pause.release()
        writing.result(PATIENCE)
