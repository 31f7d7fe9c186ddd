"""Engines travel between processes by what they hold."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streamer import Engine, Filter, Limits, Subscription
from streamer.locks import Lock

MakeEngine = Callable[..., Engine]

EVENT = {"tenant": "t", "collection": "c", "data": {"a": 1, "gone": 0}}


def _full(engine: MakeEngine) -> Engine:
    e = engine(default_tenant="t", soft_delete="gone", limits=Limits(max_depth=40), layout={"ts_format": "s"})
    e.add(Subscription(id="z", filters=[Filter("a", "==", 1)], gateway_id="g", labels={"n": [1]}))
    e.add({"id": "p", "pattern": {"data": {"a": [{"numeric": [">", 0]}]}}, "collection": "c", "transitions": True})
    e.add({"id": "c", "cel": "data.a > 0", "tenant": "*"})
    e.add({"id": "other", "topic": "a.#"})
    return e


@pytest.mark.parametrize(
    "duplicate", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"]
)
def test_an_engine_comes_back_with_options_and_subscriptions(engine: MakeEngine, duplicate: Callable[[Engine], Engine]) -> None:
    e = _full(engine)
    twin = duplicate(e)
    assert twin.subscriptions() == e.subscriptions()
    assert list(twin.match(EVENT).sorted()) == list(e.match(EVENT).sorted())
    assert twin.match(EVENT).sorted().ids() == ["z", "p", "c"]
    assert twin.match({**EVENT, "data": {"a": 1, "gone": True}}).ids() == []
    twin.remove("z")
    assert "z" in e


def _exit_code_of_fork(child_does: Callable[[], bool]) -> int:
    with warnings.catch_warnings():
        # Python warns of what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if child_does() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_is_an_engine_of_its_own_also_while_a_writer_writes(engine: MakeEngine) -> None:
    e = _full(engine)
    inside, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[Any]:
        yield {"id": "late"}
        inside.set()
        go_on.wait(30)

    writer = threading.Thread(target=lambda: e.add_many(slow()))
    writer.start()
    inside.wait(30)

    def child_does() -> bool:
        as_before = e.match(EVENT).sorted().ids() == ["z", "p", "c"]
        return as_before and bool(e.remove("z")) and "z" not in e.match(EVENT) and bool(e.add({"id": "child"}))

    code = _exit_code_of_fork(child_does)
    go_on.set()
    writer.join(30)
    assert code == 0
    assert "late" in e
    assert "child" not in e
    assert "z" in e


def test_a_fork_can_take_a_lock_that_another_thread_held() -> None:
    lock = Lock()
    with lock, ThreadPoolExecutor(1) as pool:

        def take() -> bool:
            with lock:
                return True

        assert pool.submit(_exit_code_of_fork, take).result(30) == 0
