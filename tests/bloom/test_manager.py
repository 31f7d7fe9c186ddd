"""The manager: a test for each reason to rebuild, for what must not rebuild, and for what a failure leaves behind."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streamer import Engine
from streamer.bloom.loop import Loop
from streamer.bloom.manager import GROWTHS, Manager, Reason
from streamer.bloom.options import BloomOptions
from streamer.bloom.sizing import event_fp_rate, key_fp_rate, wilson_lower
from streamer.bloom.state import FilterState

HOUR = 3600.0
NAME = ("default", "c")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer._backend.BACKEND", "reference")


@pytest.fixture
def sampling(backend: str) -> int:
    """How many events there are for each that the backend under test samples."""
    return 16 if backend == "native" else 1


def engine_with(options: BloomOptions, count: int, fields: int = 1) -> Engine:
    e = Engine(bloom=options)
    e.add_many(subscription(n, fields) for n in range(count))
    # Here the tests look after the filter.
    e.bloom.stop()
    return e


def subscription(n: int, fields: int = 1) -> dict[str, Any]:
    return {"id": f"s{n}", "collection": "c", "filters": [{"field": f"f{n % fields}", "op": "==", "value": n}]}


def foreign(n: int, fields: int = 1) -> dict[str, Any]:
    """An event that carries no live key."""
    return {"collection": "c", "data": {f"f{field}": f"foreign {n} {field}" for field in range(fields)}}


def state_of(e: Engine) -> FilterState:
    (state,) = e._core.filters()
    return state


def test_a_filter_past_its_capacity_is_rebuilt_for_what_is_there_now(clock: Clock, backend: str) -> None:
    # The native writer sees to a small filter itself.
    count = 20_000 if backend == "native" else 90
    options = BloomOptions(initial_capacity=100)
    e = engine_with(options, count)
    manager = Manager(e._core, options, clock)
    assert manager.tick() == 0
    step = count // 10
    for at in range(count, 5 * count, step):
        e.add_many(subscription(n) for n in range(at, at + step))
        e.bloom.stop()
        count_now = at + step
        before = state_of(e)
        if before.keys > before.capacity:
            break
    assert before.keys > before.capacity
    assert manager.tick() == 1
    after = state_of(e)
    assert after.version == before.version + 1
    assert 0.95 * count_now <= after.keys <= count_now
    assert after.capacity >= 1.25 * count_now
    assert manager.rebuilds == {(NAME, Reason.CAPACITY): 1 + after.grown}
    assert manager.tick() == 0


@pytest.mark.usefixtures("backend")
def test_a_filter_that_a_write_enlarges_is_a_rebuild_for_its_capacity(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamer.bloom")
    options = BloomOptions(initial_capacity=100)
    e = engine_with(options, 90)
    manager = Manager(e._core, options, clock)
    assert manager.tick() == 0
    assert manager.rebuilds == {}
    # Each write brings more than there was: so much either writer sees to itself.
    for count in (300, 1000):
        e.add_many(subscription(n) for n in range(len(e), count))
    e.bloom.stop()
    state = state_of(e)
    assert state.grown == state.version - 1 > 0
    for _ in range(3):
        assert manager.tick() == 0, "the writer has seen to it"
        assert manager.rebuilds == {(NAME, Reason.CAPACITY): state.grown}, "counted once"
    (line,) = caplog.messages
    told = f"collection 'c': version {state.version}, {state.keyed} subscriptions (0 outside it), {state.keys} keys, "
    assert told in line
    assert re.search(r"false positives [0-9.]+% estimated before, [0-9.]+% estimated now; ", line)
    assert "reason: capacity, by " in line
    # A rebuild of the manager's own is counted beside them.
    assert manager.rebuild(*NAME)
    assert manager.rebuilds == {(NAME, Reason.CAPACITY): state.grown, (NAME, Reason.REQUESTED): 1}
    assert state_of(e).version == state.version + 1
    # Emptied and filled again it is another filter, which counts from nothing.
    e.remove_many(collection="c")
    manager.tick()
    e.add_many(subscription(n) for n in range(100))
    assert manager.tick() == 0
    assert manager.rebuilds[NAME, Reason.CAPACITY] == state.grown


@pytest.mark.usefixtures("backend")
def test_the_log_tells_what_a_rebuild_was_for_and_what_it_changed(
    clock: Clock, caplog: pytest.LogCaptureFixture, sampling: int
) -> None:
    caplog.set_level(logging.INFO, "streamer.bloom")
    options = BloomOptions(initial_capacity=10)
    e = engine_with(options, 200)
    e.add({"id": "any", "collection": "c"})
    manager = Manager(e._core, options, clock)
    e.match_batch([foreign(n) for n in range(1200 * sampling)])
    clock.now += 61
    manager.tick()
    before = state_of(e)
    assert before.sampled >= 1000
    assert manager.rebuild(*NAME)
    line, after = caplog.messages[-1], state_of(e)
    assert line == (
        f"rebuilt the filter of tenant 'default', collection 'c': version {after.version}, 200 subscriptions (1 outside it), "
        f"{after.keys} keys, room for {after.capacity}; false positives {before.measured_rate:.2%} measured before, "
        f"{after.estimated_rate:.2%} estimated now; reason: asked"
    )


@pytest.mark.usefixtures("backend")
def test_who_looks_at_an_engine_sees_its_growths_at_once() -> None:
    e = engine_with(BloomOptions(initial_capacity=100), 90)
    e.add_many(subscription(n) for n in range(90, 2000))
    e.bloom.stop()
    (state,) = e.bloom.filters()
    assert state.grown > 0
    assert e.bloom.rebuilds == {(NAME, Reason.CAPACITY): state.grown}
    assert e.bloom.filters() == [state]
    assert e.bloom.rebuilds == {(NAME, Reason.CAPACITY): state.grown}


@pytest.mark.usefixtures("backend")
def test_a_filter_of_removed_keys_is_rebuilt_smaller(clock: Clock) -> None:
    options = BloomOptions(initial_capacity=10)
    e = engine_with(options, 1000)
    manager = Manager(e._core, options, clock)
    assert manager.tick() == 0
    e.remove_many(ids=[f"s{n}" for n in range(600)])
    before = state_of(e)
    assert manager.tick() == 0, "not before the cooldown is over"
    clock.now += 301
    assert manager.tick() == 1
    after = state_of(e)
    # A key all of whose bits others set is not counted.
    assert 380 <= after.keys <= 400
    assert after.stale == 0
    assert after.capacity < before.capacity
    assert after.bits < before.bits
    assert manager.rebuilds == {(NAME, Reason.STALE): 1}
    for n in range(1000):
        assert e.match_count({"collection": "c", "data": {"f0": n}}) == (n >= 600)


@pytest.mark.later_on_the_reference
def test_a_filter_that_passes_too_much_is_rebuilt_for_its_measured_probes(clock: Clock, sampling: int) -> None:
    """60 keys an event, one simulated hour: the first rebuild mends it, and it is left alone from then on."""
    options = BloomOptions()
    e = engine_with(options, 600, fields=60)
    # As the usual sketch sizes it: 1 % a key, which is 45 % an event.
    e._core.rebuild_filter(*NAME, 600, 0.01)
    manager = Manager(e._core, options, clock)
    measured: list[float | None] = []
    n = 0
    for _ in range(60):
        for _ in range(50 * sampling):
            e.match_count(foreign(n, 60))
            n += 1
        clock.now += 60
        manager.tick()
        measured.append(state_of(e).measured_rate)
    assert max(rate for rate in measured[:30] if rate is not None) > 0.2
    assert sum(manager.rebuilds.values()) <= 2
    state = state_of(e)
    assert state.probes_per_event == pytest.approx(60)
    assert state.sampled > 1000
    assert state.measured_rate is not None
    assert state.measured_rate <= 1.2 * options.fp_rate


@pytest.mark.later_on_the_reference
def test_sixty_probes_are_sized_for_from_the_beginning(clock: Clock, sampling: int) -> None:
    options = BloomOptions()
    e = engine_with(options, 600, fields=60)
    manager = Manager(e._core, options, clock)
    for n in range(1500 * sampling):
        e.match_count(foreign(n, 60))
        clock.now += 2.4 / sampling
        if n % 50 == 0:
            manager.tick()
    assert sum(manager.rebuilds.values()) == 0
    e._core.measure_filter(*NAME)
    state = state_of(e)
    assert state.sampled == 1500
    assert state.no >= 0.98 * state.asked


@pytest.mark.usefixtures("backend")
def test_an_old_filter_is_rebuilt(clock: Clock) -> None:
    options = BloomOptions(rebuild_interval=timedelta(hours=1))
    e = engine_with(options, 100)
    manager = Manager(e._core, options, clock)
    manager.tick()
    clock.now += HOUR - 1
    assert manager.tick() == 0
    clock.now += 1
    assert manager.tick() == 1
    assert manager.rebuilds == {(NAME, Reason.INTERVAL): 1}
    assert state_of(e).version == 2
    never = Manager(e._core, BloomOptions(rebuild_interval=None), clock)
    never.tick()
    clock.now += 10_000 * HOUR
    assert never.tick() == 0


@pytest.mark.usefixtures("backend")
def test_an_event_that_carries_a_key_and_matches_nothing_is_no_false_positive(clock: Clock) -> None:
    options = BloomOptions()
    e = Engine(bloom=options)
    e.add_many(
        {**subscription(n), "filters": [*subscription(n)["filters"], {"field": "never", "op": "==", "value": 1}]}
        for n in range(100)
    )
    manager = Manager(e._core, options, clock)
    for n in range(2000):
        assert not e.match_ids({"collection": "c", "data": {"f0": n % 100, "never": 2}})
    state = state_of(e)
    assert (state.asked, state.no, state.sampled, state.false_positives) == (2000, 0, 0, 0)
    clock.now += HOUR
    assert manager.tick() == 0


@pytest.mark.usefixtures("reference")
def test_what_is_added_and_removed_during_a_rebuild_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamer.bloom.guard import CollectionFilter

    e = engine_with(BloomOptions(), 100)
    build = CollectionFilter.build

    def slow(*arguments: Any) -> CollectionFilter:
        built = build(*arguments)
        monkeypatch.setattr(CollectionFilter, "build", build)
        e.add(subscription(1000))
        e.remove("s5")
        e.replace({**subscription(6), "filters": [{"field": "other", "op": "==", "value": 6}]})
        return built

    monkeypatch.setattr(CollectionFilter, "build", slow)
    e._core.rebuild_filter(*NAME, 1, 0.01)
    assert e.match_ids({"collection": "c", "data": {"f0": 1000}}) == ["s1000"]
    assert e.match_ids({"collection": "c", "data": {"other": 6}}) == ["s6"]
    assert e.match_ids({"collection": "c", "data": {"f0": 5}}) == []
    state = state_of(e)
    assert (state.version, state.keyed, state.stale) == (2, 100, 2)


@pytest.mark.usefixtures("backend")
def test_each_rebuild_is_one_line_of_the_log(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    e = engine_with(BloomOptions(), 100)
    with caplog.at_level(logging.INFO, "streamer.bloom"):
        assert Manager(e._core, BloomOptions(), clock).rebuild(*NAME)
    (record,) = caplog.records
    for part in ("'default'", "'c'", "version 2", " keys, room for 1000", "asked"):
        assert part in record.getMessage()


class Fake:
    """A core with one filter, whose rate no rebuild mends."""

    def __init__(self) -> None:
        self.state = FilterState("default", "c", "portable", 1, 1000, 2000, 0, 1000, 0, 20_000, 0.4)
        self.sized: list[tuple[int, float]] = []
        self.broken = False

    def filters(self) -> list[FilterState]:
        return [self.state]

    def measure_filter(self, tenant: str, collection: str) -> None:
        assert (tenant, collection) == NAME

    def rebuild_filter(self, tenant: str, collection: str, capacity: int, key_fp_rate: float) -> None:
        if self.broken:
            raise MemoryError("no room")
        self.sized.append((capacity, key_fp_rate))
        self.state = replace(self.state, version=self.state.version + 1, sampled=0, false_positives=0)

    def sample(self, rate: float, count: int = 10_000) -> None:
        asked = self.state.asked + count
        self.state = replace(
            self.state, sampled=count, false_positives=int(rate * count), asked=asked, no=asked, probes=10 * asked
        )


def test_where_a_fresh_filter_is_no_better_it_grows_and_then_is_saturated(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    core = Fake()
    manager = Manager(core, BloomOptions(), clock)
    for _ in range(100):
        core.sample(0.5)
        clock.now += 301
        manager.tick()
    rates = [rate for _, rate in core.sized]
    assert len(rates) == 1 + GROWTHS
    assert rates[0] == pytest.approx(key_fp_rate(0.01, 10))
    assert rates == sorted(rates, reverse=True)
    assert manager.saturated == {NAME}
    assert sum("saturated" in record.getMessage() for record in caplog.records) == 1


def test_a_filter_is_sized_for_what_events_ask_now(clock: Clock) -> None:
    """A mean over all events that ever were would take weeks to see that they have changed."""
    core = Fake()
    core.state = replace(core.state, asked=10_000_000, probes=10_000_000, no=10_000_000)
    manager = Manager(core, BloomOptions(), clock)
    manager.tick()
    core.state = replace(core.state, asked=10_010_000, probes=10_600_000, sampled=10_000, false_positives=4500)
    clock.now += 301
    assert manager.tick() == 1
    ((_, rate),) = core.sized
    assert rate == pytest.approx(key_fp_rate(0.01, 60))


def test_few_samples_and_chance_rebuild_nothing(clock: Clock) -> None:
    core = Fake()
    manager = Manager(core, BloomOptions(fp_rate=0.01, rebuild_fp_threshold=0.02), clock)
    for rate, count in ((1.0, 999), (0.024, 1000), (0.019, 1_000_000)):
        core.sample(rate, count)
        clock.now += HOUR / 2
        assert manager.tick() == 0, (rate, count)
    core.sample(0.024, 100_000)
    clock.now += HOUR / 2
    assert manager.tick() == 1


def test_the_rate_rebuilds_once_in_a_cooldown(clock: Clock) -> None:
    core = Fake()
    manager = Manager(core, BloomOptions(rebuild_cooldown=timedelta(minutes=10)), clock)
    for _ in range(20):
        core.sample(0.5)
        manager.tick()
        clock.now += 60
    assert len(core.sized) == 2


def test_a_rate_of_keys_is_never_compared_with_a_threshold_of_events() -> None:
    """The usual sketch: 1 % a key and 25 keys an event is 22 % an event, past any threshold, for ever."""
    assert event_fp_rate(0.01, 25) == pytest.approx(0.222, abs=0.001)
    assert event_fp_rate(key_fp_rate(0.01, 25), 25) == pytest.approx(0.01)
    assert wilson_lower(0, 0) == 0
    assert wilson_lower(20, 1000) < 0.02 < wilson_lower(40_000, 1_000_000)


def test_a_failed_rebuild_keeps_the_filter_and_waits_longer_each_time(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    core = Fake()
    core.broken = True
    core.state = replace(core.state, keys=3000)
    manager = Manager(core, BloomOptions(), clock)
    tries = []
    for second in range(3600):
        before = manager.failures.get(NAME, 0)
        manager.tick()
        if manager.failures[NAME] > before:
            tries.append(second)
        clock.now += 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert pauses[:4] == [10, 20, 40, 80]
    assert core.state.version == 1
    assert sum(manager.rebuilds.values()) == 0
    assert "stays" in caplog.records[0].getMessage()
    with pytest.raises(MemoryError):
        manager.rebuild(*NAME)
    core.broken = False
    clock.now += HOUR
    assert manager.tick() == 1


# The thread


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


#: Threads of engines that tests of other files keep in this process.
OTHERS: set[threading.Thread] = set()


def threads() -> int:
    return sum(thread.name == "streamer-bloom" and thread not in OTHERS for thread in threading.enumerate())


@pytest.fixture
def no_threads() -> Iterator[None]:
    gc.collect()
    OTHERS.clear()
    OTHERS.update(thread for thread in threading.enumerate() if thread.name == "streamer-bloom")
    yield
    gc.collect()
    assert eventually(lambda: threads() == 0)


@pytest.mark.usefixtures("reference", "no_threads")
def test_the_thread_rebuilds_and_ends_with_its_manager() -> None:
    options = BloomOptions(initial_capacity=100)
    e = engine_with(options, 90)
    e.add_many(subscription(n) for n in range(90, 150))
    e.bloom.stop()
    loop = Loop(Manager(e._core, options), period=0.01)
    loop.start()
    loop.start()
    assert eventually(lambda: state_of(e).version == 2)
    assert threads() == 1
    loop.stop()
    assert eventually(lambda: threads() == 0)
    loop.start()
    assert threads() == 1


@pytest.mark.usefixtures("no_threads")
def test_an_engine_begins_a_thread_when_it_holds_enough_and_takes_it_along(engine: Callable[..., Engine]) -> None:
    e = engine()
    e.add(subscription(0))
    assert threads() == 0
    e.add_many(subscription(n) for n in range(1, 200))
    assert threads() == 1
    off = engine(bloom={"enabled": False})
    off.add_many(subscription(n) for n in range(200))
    assert threads() == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.usefixtures("no_threads")
def test_a_forked_child_has_a_thread_of_its_own(engine: Callable[..., Engine]) -> None:
    e = engine()
    e.add_many(subscription(n) for n in range(200))
    child = os.fork()
    if child == 0:
        # Engines of other tests have theirs anew, too.
        os._exit(0 if 1 <= threads() <= 1 + len(OTHERS) and e.match_count({"collection": "c", "data": {"f0": 7}}) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert threads() == 1
