"""Phase 1 of the native core as its protocol tells of it: what it stops, what it counts, what a rebuild does."""

from __future__ import annotations

import math
import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamer.bloom.options import BloomOptions
from streamer.bloom.portable import PortableBloomFilter
from streamer.cel_eval import ErrorLog, ProgramCache
from streamer.core.options import Options
from streamer.core.protocol import Selection
from streamer.events.layout import EventLayout
from streamer.model import Limits
from streamer.subscriptions.atoms import Mode, Path, Root
from streamer.subscriptions.compile import compile_subscription
from streamer.subscriptions.keys import Key, access_keys
from streamer.subscriptions.normal_form import normal_form
from tests.bloom.test_no_false_negatives import random_subscription
from tests.generators import random_document_pattern, random_filter

pytest.importorskip("streamer._native")
from streamer.native.core import NativeCore  # there is no native core before the line above

USERS = 2000


def _core(**options: Any) -> NativeCore:
    return NativeCore(Options(layout=EventLayout(), bloom=BloomOptions(**options)), ProgramCache(100), ErrorLog())


def _user(number: int) -> dict[str, Any]:
    return {"id": f"s{number}", "collection": "c", "filters": [{"field": "user", "op": "==", "value": f"u{number}"}]}


def _event(user: object) -> dict[str, Any]:
    return {"collection": "c", "data": {"user": user}}


@pytest.fixture
def core() -> NativeCore:
    made = _core(fp_rate=0.01)
    made.write(map(_user, range(USERS)), "add")
    return made


def test_one_percent_of_interesting_events_pass_and_nearly_no_others(core: NativeCore) -> None:
    events = [_event(f"u{n % USERS if n % 100 == 0 else n + USERS}") for n in range(20_000)]
    assert sum(core.match_count(event) for event in events) == 200
    (state,) = core.filters()
    assert (state.layout, state.name, state.asked, state.probes) == ("blocked", ("default", "c"), 20_000, 20_000)
    assert state.no >= 0.9 * 19_800
    passed = (state.asked - state.no - 200) / 19_800
    assert passed <= 1.2 * 0.01
    core.measure_filter("default", "c")
    (state,) = core.filters()
    assert state.sampled == pytest.approx(19_800 / 16, rel=0.02)
    assert state.measured_rate is not None
    assert state.measured_rate == pytest.approx(passed, abs=0.003)


def test_a_rebuild_drops_what_is_stale_and_counts_one_version_more(core: NativeCore) -> None:
    core.remove(Selection(ids=frozenset(f"s{n}" for n in range(USERS // 2))))
    (old,) = core.filters()
    assert (old.version, old.keyed, old.unkeyed, old.stale) == (1, USERS // 2, 0, USERS // 2)
    core.rebuild_filter("default", "c", 10, 0.001)
    (new,) = core.filters()
    assert (new.version, new.stale, new.capacity) == (2, 0, USERS // 2 * 5 // 4)
    assert new.keys == pytest.approx(USERS // 2, abs=5)
    assert core.match_ids(_event("u1999")) == ["s1999"]
    assert core.match_ids(_event("u1")) == []


@pytest.mark.parametrize("name", [("default", "other"), ("nobody", "c"), ("*", "*")])
def test_where_nothing_is_there_is_nothing_to_rebuild_or_measure(core: NativeCore, name: tuple[str, str]) -> None:
    core.rebuild_filter(*name, 10, 0.01)
    core.measure_filter(*name)
    assert core.keys_of(*name) == ([], 0)
    assert core.gather_keys([name]).count == 0
    assert [state.version for state in core.filters()] == [1]


def test_without_phase_1_there_is_no_filter_and_the_same_is_found() -> None:
    off = _core(enabled=False)
    off.write(map(_user, range(USERS)), "add")
    assert not off.filters()
    assert off.match_ids(_event("u7")) == ["s7"]
    assert off.gather_keys([("default", "c")]).count == USERS


def test_any_key_rate_is_reached() -> None:
    """60 keys an event and one event in a hundred: a rate of 1.7e-4 a key."""
    core = _core()
    core.write(map(_user, range(USERS)), "add")
    core.rebuild_filter("default", "c", USERS, 1.7e-4)
    count = 200_000
    wrong = 0
    for start in range(0, count, 50):
        before = core.filters()[0].no
        core.match_count({"collection": "c", "data": {"user": f"w{start}"}})
        wrong += 1 - (core.filters()[0].no - before)
    assert wrong <= 5
    (state,) = core.filters()
    assert state.bits <= 80 * state.capacity


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs fork")
def test_a_process_forked_in_the_midst_of_rebuilds_goes_on(core: NativeCore) -> None:
    stop = threading.Event()

    def rebuild() -> None:
        while not stop.is_set():
            core.rebuild_filter("default", "c", USERS, 0.01)
            core.measure_filter("default", "c")

    thread = threading.Thread(target=rebuild)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                core.write([_user(USERS)], "add")
                core.rebuild_filter("default", "c", USERS, 0.01)
                core.measure_filter("default", "c")
                is_right = core.match_ids(_event(f"u{USERS}")) == [f"s{USERS}"] and len(core.filters()) == 1
                os._exit(0 if is_right else 1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        thread.join()


SCALARS: tuple[Any, ...] = (
    *(0, 1, 1.0, -0.0, 0.1, -2.5, 1e-5, 1.5e-7, 123456.789, 2**53, 2**53 + 1, -(2**63), 2**64 - 1, 1e16, 1e300, 5e-324),
    *(True, False, None, "", "paid", 'quoted "\\" \n\t\b\f\r\x01\x7f', "ü\u2028😀", "1"),
)


def _clauses(rng: random.Random, number: int) -> dict[str, Any]:
    """A subscription whose conditions are equalities, or make no key on either side."""
    made: dict[str, Any] = {"id": f"s{number}", "collection": "c", "filters": []}
    for _ in range(rng.randrange(3)):
        field = rng.choice(["a", "b", "c.d"])
        if rng.random() < 0.4:
            made["filters"].append({"field": field, "op": "in", "value": rng.sample(SCALARS, rng.randint(0, 3))})
        else:
            made["filters"].append({"field": field, "op": rng.choice(["==", "==", "!=", "exists"]), "value": rng.choice(SCALARS)})
            if made["filters"][-1]["op"] == "exists":
                made["filters"][-1]["value"] = True
    if rng.random() < 0.4:
        made["pattern"] = {"data": {rng.choice(["a", "ü.x", ""]): rng.sample(SCALARS, 2)}, "$or": [{"x": [1]}, {"y": [True, 2]}]}
    if rng.random() < 0.3:
        made["topic"] = rng.choice(["a.b", "", "a."])
    if rng.random() < 0.3:
        made["types"] = rng.choice([["insert"], ["update", "delete"]])
    return made


def _any_kind(rng: random.Random, number: int) -> dict[str, Any]:
    """A subscription with conditions of every kind but CEL and orderings of bools, which make keys on the native side alone."""
    made = random_subscription(rng, f"s{number}").to_dict() | {"tenant": "default", "collection": "c"}
    made.pop("cel", None)
    if rng.random() < 0.5:
        made |= {"filters": [random_filter(rng) for _ in range(rng.randint(1, 3))]}
    filters = made.get("filters", [])
    made |= {"filters": [each for each in filters if each["op"][0] not in "<>" or not isinstance(each["value"], bool)]}
    if rng.random() < 0.3:
        made |= {"pattern": random_document_pattern(rng)}
    return made


@pytest.mark.slow
@pytest.mark.parametrize("make", [_clauses, _any_kind])
@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.integration)])
def test_keys_have_the_same_bytes_on_both_sides(make: Callable[[random.Random, int], dict[str, Any]], count: int) -> None:
    rng = random.Random(5)
    checked = 0
    for number in range(count):
        core = _core()
        core.write([make(rng, number)], "add")
        native, native_unkeyed = core.keys_of("default", "c")
        held = core.get(f"s{number}")
        assert held is not None
        keys = access_keys(normal_form(compile_subscription(held, programs=ProgramCache(1)), Limits()))
        expected = [] if keys is None else sorted(key.to_bytes() for key in keys)
        assert (sorted(native), native_unkeyed) == (expected, int(keys is None)), held
        gathered = core.gather_keys([("default", "c"), ("*", "*")])
        places = frozenset() if keys is None else frozenset(key.place for key in keys)
        assert (gathered.count, gathered.places, gathered.unkeyed) == (len(expected), places, int(keys is None))
        is_bool = any(key.tag == "bool" and key.place.mode is Mode.VALUE for key in keys or ())
        assert (gathered.transitions, gathered.unknown_passes) == (held.transitions, is_bool)
        checked += len(expected)
    assert checked > count


@pytest.mark.slow
def test_the_keys_of_a_hundred_thousand_are_gathered_and_filled_at_once() -> None:
    core = _core()
    core.write(
        ({**_user(n), "filters": [{"field": "user", "op": "starts_with", "value": f"{n:016}"}]} for n in range(100_000)),
        "add",
    )
    gathered = core.gather_keys([("default", "c")])
    assert gathered.count == 100_000
    bits = PortableBloomFilter(gathered.count, 0.01)
    gathered.fill(bits)
    other = PortableBloomFilter(gathered.count, 0.01)
    other.fill(core.keys_of("default", "c")[0])
    assert bits.bitarray == other.bitarray


def test_a_float_between_two_texts_has_the_same_bytes_on_both_sides() -> None:
    # 1695705067772579.25 is as near to .2 as to .3, and both read back as it.
    rng = random.Random(3)
    floats = [-1695705067772579.25, 5e-324, 2.2250738585072014e-308, 0.1 + 0.2, 1e-5, 123456.789e-9]
    # Below a power of two the nearest text of so many digits may read back as another number.
    floats += [sign * 2.0**-exponent for exponent in range(1, 1075) for sign in (1, -1)]
    floats += [rng.randrange(2**50, 2**53) / 2 ** rng.randint(0, 4) for _ in range(3000)]
    floats += [math.ldexp(rng.randrange(2**52, 2**53), -rng.randint(53, 120)) for _ in range(3000)]
    core = _core()
    core.write(
        [{"id": f"s{n}", "collection": "c", "filters": [{"field": "a", "op": "==", "value": x}]} for n, x in enumerate(floats)],
        "add",
    )
    native, _ = core.keys_of("default", "c")
    assert sorted(native) == sorted({Key.equal(Path(Root.DATA, ("a",)), Mode.VALUE, x).to_bytes() for x in floats})
