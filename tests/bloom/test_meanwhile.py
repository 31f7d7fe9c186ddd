"""Rebuilding stops nobody and loses nothing while subscriptions come and go and events are matched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from streamer import Engine

SECONDS = 1.5


def subscription(name: str, value: int) -> dict[str, Any]:
    return {"id": name, "collection": "c", "filters": [{"field": "a", "op": "==", "value": value}], "transitions": True}


def test_what_is_held_is_found_while_filters_are_rebuilt(engine: Any) -> None:
    e: Engine = engine()
    e.add_many(subscription(f"stays {n}", n) for n in range(200))
    end = threading.Event()

    def repeat(work: Callable[[int], object]) -> int:
        n = 0
        while not end.is_set():
            work(n)
            n += 1
        return n

    def write(n: int) -> None:
        e.add(subscription("comes and goes", 1000 + n))
        # What a write has returned from is seen by every match that begins later.
        assert e.match_ids({"collection": "c", "data": {"a": 1000 + n}}) == ["comes and goes"]
        e.replace(subscription("comes and goes", -1 - n))
        assert e.match_ids({"collection": "c", "data": {"a": -1 - n}}) == ["comes and goes"]
        assert e.remove("comes and goes")

    def rebuild(n: int) -> None:
        for state in e.bloom.filters():
            e.bloom.rebuild(*state.name)
        time.sleep(0.001)

    def match(n: int) -> None:
        leaves = {"collection": "c", "type": "update", "data": {"a": 0.5}, "before": {"a": n % 200}}
        assert e.match_ids(leaves) == [f"stays {n % 200}"]
        unknown = {"collection": "c", "data": {}, "unknown": ["/data/a"]}
        assert len(e.match_ids(unknown)) >= 200 if n % 50 == 0 else True
        assert e.match_ids({"collection": "c", "data": {"a": n % 200}}) == [f"stays {n % 200}"]

    with ThreadPoolExecutor() as pool:
        running = [pool.submit(repeat, work) for work in (write, rebuild, match, match)]
        time.sleep(SECONDS)
        end.set()
        rounds = [future.result() for future in running]
    assert min(rounds) > 1
    for state in e.bloom.filters():
        assert state.version > rounds[1] / 2
        assert state.keyed == 200
