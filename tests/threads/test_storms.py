"""Interrupts, signal handlers, finalizers and forks in the midst of anything: no lock stays held, nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from streamer import Engine, Subscription, locks
from streamer.errors import ReentryError
from streamer.reference import core as reference_core
from streamer.subscriptions.values import same_subscription
from tests.tools.hooks import hooks

MakeEngine = Callable[..., Engine]

EVENT = b'{"collection": "c", "data": {"a": 1}}'
ONE = [{"field": "a", "op": "==", "value": 1}]

needs_signals = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs fork and timers")


def _storm(backend: str, *arguments: str) -> str:
    """Run storms in a process of their own, which ends itself where it stands still."""
    command = [sys.executable, "-m", "tests.tools.storms", *arguments]
    done = subprocess.run(command, env={**os.environ, "STREAMER_BACKEND": backend}, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return done.stdout


@needs_signals
@pytest.mark.parametrize("kind", ["interrupts", "handlers"])
def test_a_small_storm_leaves_every_lock_free_and_everything_whole(backend: str, kind: str) -> None:
    assert kind in _storm(backend, f"--{kind}", "60", "--no-record")


@needs_signals
def test_no_child_of_a_busy_process_hangs(backend: str) -> None:
    assert '"children": {"0": 4}' in _storm(backend, "--forks", "4", "--no-record")


@needs_signals
@pytest.mark.integration
def test_storms_are_recorded(backend: str) -> None:
    _storm(backend, "--interrupts", "5000", "--handlers", "3000", "--forks", "200")


class Labels(dict[str, Any]):
    """Labels as they are given, whose end can be seen."""


def test_a_finalizer_that_removes_a_subscription_does_so_within_a_write(engine: MakeEngine) -> None:
    """What is given is copied, and dies in the midst of the write that it is given to."""
    e = engine()
    removed: list[bool] = []

    def given(n: int) -> Iterator[dict[str, Any]]:
        labels = Labels(n=2**70)
        weakref.finalize(labels, lambda: removed.append(bool(e.remove(f"other{n}"))))
        yield {"id": "s", "filters": ONE, "labels": labels}
        del labels
        yield {"id": f"more{n}", "filters": ONE}

    for n in range(30):
        e.add({"id": f"other{n}", "filters": ONE})
        e.add_many(given(n), replace=True)
        assert removed == [True] * (n + 1)
        assert sorted(e) == sorted(["s", *(f"more{k}" for k in range(n + 1))])
    e.apply([{"id": "last", "filters": ONE}])
    for n in range(3):
        e.add({"id": f"later{n}"})
    assert sorted(e.match_ids(EVENT)) == ["last", "later0", "later1", "later2"]


def test_a_mapping_of_python_that_writes_does_so_before_apply(engine: MakeEngine) -> None:
    """What it writes while it is read is gone with all else that is not desired; what is held is plain, and calls nothing."""
    written: list[str] = []

    def write(*_: object) -> None:
        e.add({"id": "from within", "filters": ONE}, replace=True)
        written.append("from within")

    class Writes(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            write()
            return {"n": 2**70}[name]

        def __iter__(self) -> Iterator[str]:
            write()
            return iter("n")

        def __len__(self) -> int:
            return 1

    class Text(str):
        __slots__ = ()
        __eq__ = __ne__ = __str__ = write  # type: ignore[assignment]
        __hash__ = str.__hash__

    e = engine(default=lambda _: write())
    for labels, writes in ((Writes(), True), ({"n": object()}, True), ({"n": Text("x"), "beyond": 2**70}, False)):
        given = {"id": "s", "filters": ONE, "labels": labels}
        e.add(given, replace=True)
        written.clear()
        assert e.apply([given]).unchanged == ("s",)
        assert bool(written) is writes
        assert list(e) == ["s"]
    e.apply([{"id": "last", "filters": ONE}])
    assert e.match_ids(EVENT) == ["last"]


def test_what_writes_each_time_that_a_write_compares_is_an_error(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler or a finalizer would that runs just then."""
    if backend != "reference":
        pytest.skip("natively nothing in Python runs between the version that a write begins with and its own")
    e = Engine()
    e.add({"id": "s", "filters": ONE})

    def writes(one: Subscription, other: Subscription) -> bool:
        e.add({"id": "from within", "filters": ONE}, replace=True)
        return same_subscription(one, other)

    monkeypatch.setattr(reference_core, "same_subscription", writes)
    with pytest.raises(ReentryError, match="this thread"):
        e.apply([{"id": "s", "filters": ONE}])
    e.apply([{"id": "last", "filters": ONE}])
    assert e.match_ids(EVENT) == ["last"]


def test_a_write_by_what_a_write_calls_is_an_error_and_never_waits_for_itself(backend: str) -> None:
    if backend != "native":
        pytest.skip("in the reference a write within a write comes before it")
    e = Engine()
    e.add({"id": "s", "filters": ONE})
    told: list[BaseException] = []

    def write() -> None:
        for act in (lambda: e.add({"id": "within"}), lambda: e.remove("s"), lambda: e.apply([])):
            with pytest.raises(ReentryError, match="write after it") as caught:
                act()
            told.append(caught.value)

    hooks(e).before_publish(write)
    e.add({"id": "other", "filters": ONE})
    hooks(e).before_publish(None)
    assert len(told) == 3
    assert sorted(e.match_ids(EVENT)) == ["other", "s"]


def test_a_lock_is_not_waited_for_by_its_own_thread_and_is_by_others() -> None:
    lock = locks.Lock()
    got: list[Any] = []
    with lock, lock:
        thread = threading.Thread(target=lambda: got.append(lock.acquire(timeout=0.05)))
        thread.start()
        thread.join()
    assert got == [False]
