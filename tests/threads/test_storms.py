"""Interrupts, signal handlers, finalizers and forks in the midst of anything: no lock stays held, nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine, locks
from streamer.errors import ReentryError
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
    assert kind in _storm(backend, f"--{kind}", "200", "--no-record")


@needs_signals
def test_no_child_of_a_busy_process_hangs(backend: str) -> None:
    assert '"children": {"0": 8}' in _storm(backend, "--forks", "8", "--no-record")


@needs_signals
@pytest.mark.integration
def test_storms_are_recorded(backend: str) -> None:
    _storm(backend, "--interrupts", "5000", "--handlers", "3000", "--forks", "200")


class Label:
    """Something whose end can be seen."""


def test_a_finalizer_that_removes_a_subscription_does_so_within_a_write(engine: MakeEngine) -> None:
    """The label of what is replaced dies in the midst of the write that replaces it, or of one that follows."""
    e = engine()
    removed: list[bool] = []
    for n in range(30):
        label = Label()
        weakref.finalize(label, lambda n=n: removed.append(bool(e.remove(f"other{n}"))))
        e.add_many([{"id": "s", "filters": ONE, "labels": {"label": label}}, {"id": f"other{n}", "filters": ONE}], replace=True)
        del label
    e.apply([{"id": "last", "filters": ONE}])
    for n in range(3):
        e.add({"id": f"later{n}"})
    assert len(removed) == 30
    assert sorted(e.match_ids(EVENT)) == ["last", "later0", "later1", "later2"]


def test_an_equality_of_python_that_writes_does_so_within_apply(engine: MakeEngine, backend: str) -> None:
    e = engine()

    class Writes:
        def __eq__(self, other: object) -> bool:
            e.add({"id": "from within", "filters": ONE}, replace=True)
            return isinstance(other, Writes)

        __hash__ = object.__hash__

    given = {"id": "s", "filters": ONE, "labels": {"it": Writes()}}
    e.add(given)
    desired = [{**given, "labels": {"it": Writes()}}]
    if backend == "native":
        # What is written in between is gone with all else that is not desired.
        e.apply(desired)
        assert list(e) == ["s"]
    else:
        with pytest.raises(ReentryError, match="this thread"):
            e.apply(desired)
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
