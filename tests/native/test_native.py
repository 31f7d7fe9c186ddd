"""What only the native engine can be asked: panics, forks, signals, shutdown, memory, a writer stopped inside a write."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks import memory
from streamer import BulkSubscriptionError, ConfigError, Engine, EventError, InternalError, Match, Subscription, _native
from streamer.native.core import COMPILED, COMPILED_BYTES, NativeCore, Recent
from streamer.telemetry import BOUNDS, REJECTIONS, SIZES
from tests.tools.hooks import hooks
from tests.tools.marked import MarkedLabels

MakeEngine = Callable[..., Engine]

ONE = [{"field": "a", "op": "==", "value": 1}]
EVENT = b'{"data": {"a": 1}}'


def core_of(e: Engine) -> NativeCore:
    core = e._core
    assert isinstance(core, NativeCore)
    return core


@pytest.mark.skipif(sys.platform != "linux", reason="the file is of another kind")
def test_the_core_leaves_room_for_the_thread_variables_of_other_modules() -> None:
    """glibc has some 1,600 bytes of static thread-local storage for all modules of a process; past them, imports fail."""
    file = Path(_native.__file__).read_bytes()
    at, size, count = (int.from_bytes(file[start:end], "little") for start, end in ((32, 40), (54, 56), (56, 58)))
    headers = [file[at + size * number :][:size] for number in range(count)]
    (variables,) = (int.from_bytes(header[40:48], "little") for header in headers if header[0] == 7)
    assert 0 < variables <= 600


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if sys.platform == "linux" else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_panic_is_an_internal_error_and_the_engine_goes_on(engine: MakeEngine, capfd: pytest.CaptureFixture[str]) -> None:
    e = engine()
    e.add({"id": "s", "filters": ONE})
    for _ in range(3):
        with pytest.raises(InternalError, match="the native core failed: as it was asked to"):
            hooks(e).panic()
        assert e.match_ids(EVENT) == ["s"]
    assert e.add({"id": "t"}).added == ("t",)
    assert "panicked" in capfd.readouterr().err


@pytest.mark.parametrize("threads", [2, 5])
def test_a_panic_in_one_thread_stops_the_others_and_ends_the_call(engine: MakeEngine, threads: int) -> None:
    e = engine()
    e.add({"id": "s", "filters": ONE})
    with pytest.raises(InternalError, match="as it was asked to"):
        hooks(e).panic(threads)
    assert [len(hits) for hits in e.match_batch([EVENT] * 100, threads=threads)] == [1] * 100  # type: ignore[arg-type]


def test_a_fork_after_a_batch_in_threads(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": ONE})

    def is_good() -> bool:
        return [len(hits) for hits in e.match_batch([EVENT] * 500, threads=3)] == [1] * 500  # type: ignore[arg-type]

    assert is_good()
    child = os.fork()
    if child == 0:
        os._exit(0 if is_good() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_good()


def test_a_panic_in_the_midst_of_a_write_changes_nothing(engine: MakeEngine) -> None:
    e = engine()
    e.add_many([{"id": "s", "filters": ONE}, {"id": "t", "filters": ONE}])

    def fail() -> None:
        raise RuntimeError("in the midst")

    for write in (
        lambda: e.add({"id": "new"}),
        lambda: e.replace({"id": "s", "collection": "other"}),
        lambda: e.remove("t"),
        lambda: e.apply([]),
    ):
        hooks(e).before_publish(fail)
        with pytest.raises(InternalError, match="in the midst"):
            write()
        hooks(e).before_publish(None)
        assert sorted(e.match_ids(EVENT)) == ["s", "t"]
        assert sorted(e) == ["s", "t"]
    e.add({"id": "new", "filters": ONE})
    assert sorted(e.match_ids(EVENT)) == ["new", "s", "t"]
    assert e.remove("s")
    assert sorted(e.match_ids(EVENT)) == ["new", "t"]


def test_1000000_matches_and_a_scrape_finish_while_a_writer_stands_inside_add(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "old", "filters": ONE})
    inside, go_on = threading.Event(), threading.Event()

    def stop() -> None:
        inside.set()
        assert go_on.wait(120)

    hooks(e).before_publish(stop)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(e.add, {"id": "new", "filters": ONE})
        assert inside.wait(30)
        batch = [EVENT] * 10_000
        assert sum(len(hits) for _ in range(100) for hits in core_of(e).match_batch(batch)) == 1_000_000  # type: ignore[arg-type]
        assert e.match_ids(EVENT) == ["old"]
        assert e.stats().memory_bytes > 0
        assert not writing.done()
        hooks(e).before_publish(None)
        go_on.set()
        writing.result(30)
    assert sorted(e.match_ids(EVENT)) == ["new", "old"]


@pytest.mark.integration
def test_memory_returns_after_1000000_rounds_of_adding_and_removing(engine: MakeEngine) -> None:
    """No match in between; a thousand a call, since a call each would measure Python."""
    e = engine()
    e.add({"id": "stays", "filters": ONE})

    def rounds(count: int) -> None:
        for n in range(count):
            names = [f"s{n}-{k}" for k in range(1000)]
            filters = f'[{{"field": "f{n % 9}", "op": "==", "value": {n}}}]'
            e.add_many(f'{{"id": "{name}", "filters": {filters}}}'.encode() for name in names)
            e.remove_many(ids=names)

    rounds(50)
    gc.collect()
    before = resident()
    rounds(950)
    gc.collect()
    assert resident() - before < 100 * 1024 * 1024
    assert e.match_ids(EVENT) == ["stays"]
    assert core_of(e).counters()["partitions"] == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_was_parsed_for_a_large_load_is_given_back() -> None:
    """In a process of its own, which has nothing left free. Without that it is 2,200 bytes a subscription."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        size, _, loaded, *_ = pool.apply(memory.measure, ("lowered CEL", 100_000))
    assert 100 < size < loaded < 1_600


def test_what_removed_subscriptions_needed_of_python_is_bounded() -> None:
    recent: Recent[int] = Recent()
    for number in range(100):
        assert recent.keep(b"%d" % number + b" " * 1_000_000, number) == number
        assert sum(len(key) for key in recent.made if isinstance(key, bytes)) <= COMPILED_BYTES
    for number in range(COMPILED + 1):
        recent.keep(number, number)
    assert len(recent.made) <= COMPILED


@pytest.mark.parametrize("way", ["apply", "remove_many"])
def test_programs_of_thousands_that_are_removed_are_forgotten(engine: MakeEngine, way: str) -> None:
    full = engine()
    full.add_many({"id": str(n), "cel": f"data.a * 2 > {n}"} for n in range(10_000))
    assert full._programs.programs == 10_000
    assert len(full.apply([]).removed if way == "apply" else full.remove_many(ids=list(full)).removed) == 10_000
    assert full._programs.programs == 0


def test_memory_returns_after_10000_single_rounds(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "stays", "filters": ONE})
    for n in range(10_000):
        e.add(b'{"id": "s%d", "collection": "c%d", "filters": [{"field": "a", "op": "==", "value": %d}]}' % (n, n % 7, n))
        e.remove(f"s{n}")
    assert core_of(e).counters()["partitions"] == 1
    assert core_of(e).counters()["store_bytes"] < 10_000
    assert e.match_ids(EVENT) == ["stays"]


def test_what_text_does_not_say_is_kept_as_it_is_and_let_go(engine: MakeEngine) -> None:
    marked = MarkedLabels()
    e = engine()
    e.add(Subscription(id="s", labels=marked.new(), pattern=b'{"data": {"a": [1]}}'))
    matches = e.match(EVENT)
    assert matches[0].labels == marked.new()
    held = e.get("s")
    assert held == Subscription(id="s", labels=matches[0].labels, pattern=b'{"data": {"a": [1]}}')
    assert held.labels is matches[0].labels
    del held
    e.remove("s")
    assert matches[0].labels == marked.new()
    assert marked.alive() == 1
    del matches
    for n in range(3):
        e.add({"id": f"other{n}"})
    assert marked.alive() == 0


def test_the_collector_walks_through_results_only_where_they_may_lead_back_to_themselves(engine: MakeEngine) -> None:
    e = engine()
    e.add_many([{"id": "s"}, {"id": "t", "labels": {"team": "x"}}])
    matches = e.match(EVENT).sorted()
    line = next(e.match_jsonl(EVENT))
    assert [gc.is_tracked(each) for each in (line, line.matches, *matches)] == [False, False, False, True]
    matches = e.match({"data": {"a": 1}}).sorted()
    assert all(gc.is_tracked(each) for each in (matches, *matches))
    bad = next(e.match_jsonl(b"{"))
    assert gc.is_tracked(bad)


def test_matches_keep_their_state_while_slots_are_given_to_others(engine: MakeEngine) -> None:
    e = engine()
    e.add_many({"id": f"old{n}", "gateway_id": "g", "filters": ONE} for n in range(2000))
    matches = e.match(EVENT)
    for n in range(5):
        e.apply({"id": f"new{n}-{k}", "filters": ONE} for k in range(2000))
    assert sorted(matches.ids()) == sorted(f"old{n}" for n in range(2000))
    assert {m.gateway_id for m in matches} == {"g"}
    assert matches.sorted().ids() == [f"old{n}" for n in range(2000)]
    assert "old7" in matches
    assert len(e.match(EVENT)) == 2000


def test_a_fork_while_another_thread_matches_and_one_merges(engine: MakeEngine) -> None:
    e = engine()
    e.add_many({"id": f"s{n}", "filters": [{"field": "a", "op": "==", "value": n % 10}]} for n in range(20_000))
    done = threading.Event()
    batch = [EVENT] * 1000

    def match() -> None:
        while not done.is_set():
            assert all(len(hits) == 2000 for hits in e.match_batch(batch))  # type: ignore[arg-type]

    with ThreadPoolExecutor(1) as pool:
        matching = pool.submit(match)
        statuses = []
        for _ in range(3):
            e.add_many({"id": f"t{_}-{n}", "filters": [{"field": "b", "op": ">", "value": n}]} for n in range(5000))
            child = os.fork()
            if child == 0:
                ok = e.match_count(EVENT) == 2000
                for n in range(40):
                    e.add_many({"id": f"u{n}-{k}", "filters": ONE} for k in range(50))
                ok = ok and e.match_count(EVENT) == 4000 and len(e) == 20_000 + 5000 * (_ + 1) + 2000
                os._exit(0 if ok else 1)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        done.set()
        matching.result(60)
    assert statuses == [0, 0, 0]
    e.add({"id": "after"})
    assert "after" in e


def test_threads_may_fork_at_once() -> None:
    """Each brings the cores to rest, and none waits for what another one holds."""
    found = python(
        """
        import faulthandler, os, threading, warnings
        import streamer

        # Python 3.12 warns of a fork beside threads: that is what is tried.
        warnings.simplefilter("ignore", DeprecationWarning)
        faulthandler.dump_traceback_later(60, exit=True)
        engines = [streamer.Engine() for _ in range(3)]

        def fork():
            for _ in range(50):
                if (child := os.fork()) == 0:
                    engines[0].add({"id": "s"})
                    os._exit(len(engines[0].match_ids(b"{}")))
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1

        threads = [threading.Thread(target=fork) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print("done", engines[0].add({"id": "s"}).added)
        """
    )
    assert (found.stdout, found.stderr, found.returncode) == ("done ('s',)\n", "", 0)


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run *code* on the native backend."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "STREAMER_BACKEND": "native"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_the_interpreter_ends_while_the_merging_thread_is_at_work() -> None:
    ran = python(
        """
        import streamer, threading
        e = streamer.Engine()
        for k in range(12):
            e.add_many({"id": f"s{k}-{n}", "labels": {"n": 2**70}, "pattern": {"data": {"a": [n]}}} for n in range(1000))
        threading.Thread(target=lambda: [e.match_batch([b'{"data": {"a": 1}}'] * 100) for _ in range(20)], daemon=True).start()
        matches = e.match(b'{"data": {"a": 1}}')
        print(len(matches))
        """
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "12\n", "")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_ctrl_c_stops_a_long_batch(engine: MakeEngine, threads: int) -> None:
    e = engine()
    e.add_many({"id": f"s{n}", "filters": [{"field": "a", "op": "!=", "value": n + 5}]} for n in range(2000))
    events = [EVENT] * 1_000_000
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        e.match_batch(events, threads=threads)
    assert time.perf_counter() - begun < 10
    assert e.match_count(EVENT) == 2000


def test_a_large_event_is_matched_with_the_gil_released(engine: MakeEngine) -> None:
    """A thread that only counts gets on while another matches one large event after the other."""
    e = engine()
    e.add({"id": "s", "filters": ONE})
    event = b'{"data": {"a": 1, "pad": [%s]}}' % b", ".join(b"%d" % n for n in range(1_000_000))
    counted, done = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in range(20):
            assert e.match_ids(event) == ["s"]
    finally:
        done.set()
        thread.join()
    assert counted > 100


def test_a_transition_is_told_by_a_match_that_is_looked_at_later(engine: MakeEngine) -> None:
    e = engine()
    e.add_many([{"id": "now", "filters": ONE}, {"id": "before", "filters": [{"field": "a", "op": "changed"}]}])
    update = {"type": "update", "data": {"a": 1}, "before": {"a": 0}}
    matches = e.match(update)
    assert sorted(matches.ids()) == ["before", "now"]
    assert sorted(e.match_ids(update)) == ["before", "now"]
    # The state in which it matched counts, not that in which somebody looks.
    e.add({"id": "now", "filters": [{"field": "a", "op": "==", "value": 0}]}, replace=True)
    told = {match.subscription_id: match.transition for match in matches}
    assert told == {"now": "enter", "before": None}
    e.add({"id": "now", "filters": ONE}, replace=True)
    assert [m.transition for m in e.match({**update, "before": {"a": 1, "b": 2}})] == ["stay"]


def test_lazily_an_old_side_that_cannot_be_read_tells_no_transition(engine: MakeEngine) -> None:
    e = engine(validation="lazy")
    e.add({"id": "s", "filters": ONE})
    text = b'{"type": "update", "before": {"a": tru}, "data": {"a": 1}}'
    try:
        (match,) = e.match(text)
    except EventError:
        return
    assert match == Match("s", None, text, None)


@pytest.mark.parametrize("event", [7, [], object(), {1: 2}, {"a": {1}}, "\ud800", memoryview(b"x")])
def test_what_is_no_event_is_an_error_with_a_code(engine: MakeEngine, event: Any) -> None:
    e = engine()
    with pytest.raises(EventError) as raised:
        e.match_ids(event)
    (result,) = e.match_batch([event])
    assert isinstance(result, EventError)
    assert (result.code, result.index) == (raised.value.code, 0)


def test_a_layout_with_too_many_indexes_is_a_config_error(engine: MakeEngine) -> None:
    with pytest.raises(ConfigError, match="array indexes") as raised:
        engine(layout={"data": "/1" * 9})
    assert raised.value.place == "layout"


def test_a_bad_subscription_object_says_what_is_wrong(engine: MakeEngine) -> None:
    e = engine()
    bad: list[Any] = [
        {"id": "nan", "filters": [{"field": "a", "op": "==", "value": float("nan")}]},
        {"id": "set", "filters": [{"field": "a", "op": "==", "value": {1}}]},
        {"id": "large", "filters": [{"field": "a", "op": "==", "value": 2**70}]},
        {"id": "name", "pattern": {"a": {1: [1]}}},
        {"id": "bytes", "pattern": b"\xff"},
        {"id": "half", "topic": "\ud800"},
    ]
    with pytest.raises(BulkSubscriptionError) as raised:
        e.add_many(bad)
    assert [(error.index, error.subscription_id) for error in raised.value.errors] == [(n, s["id"]) for n, s in enumerate(bad)]
    assert all(error.place for error in raised.value.errors)


def test_the_core_counts_its_work(engine: MakeEngine) -> None:
    e = engine()
    e.add_many({"id": f"s{n}", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(1000))
    hooks(e).merge()
    for n in range(100):
        assert e.match_count(b'{"data": {"a": %d}}' % (n + 1_000_000)) == 0
    counters = core_of(e).counters()
    assert (counters["events"], counters["candidates"][1], counters["segments"]) == (100, 0, 1)


def test_both_backends_count_in_the_same_buckets_and_by_the_same_reasons(engine: MakeEngine) -> None:
    assert _native.LATENCY_BOUNDS == list(BOUNDS)
    assert _native.SIZE_BOUNDS == list(SIZES)
    assert list(core_of(engine()).counters()["rejected"]) == list(REJECTIONS)


def test_writers_and_the_thread_count_their_merges(engine: MakeEngine) -> None:
    e = engine()
    for n in range(8):
        e.add({"id": f"s{n}", "filters": [{"field": "a", "op": "==", "value": n}]})
    counters = core_of(e).counters()
    assert (counters["merges"], counters["segments"]) == (1, 1)
