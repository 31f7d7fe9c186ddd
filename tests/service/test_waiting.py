"""What waits for sinks is bounded, and taken in order."""

from __future__ import annotations

import threading

from streamer.service.delivery.queue import MOST_BYTES, Part, Waiting
from streamer.service.store.rows import Confirmed


def part(size: int) -> Part:
    made = Part("s", Confirmed("s", "p", None))
    made.size = size
    return made


def test_who_reads_waits_while_too_much_waits_for_its_sinks() -> None:
    waiting = Waiting()
    parts = [part(MOST_BYTES // 2) for _ in range(5)]

    def put() -> None:
        for each in parts:
            waiting.put(each)
        waiting.end()

    reader = threading.Thread(target=put)
    reader.start()
    taken = []
    while some := waiting.take():
        assert len(some) <= 2
        taken += some
    reader.join()
    assert list(map(id, taken)) == list(map(id, parts))


def test_nobody_waits_once_nothing_is_delivered_any_more() -> None:
    waiting = Waiting()
    waiting.put(part(MOST_BYTES))
    reader = threading.Thread(target=waiting.put, args=(part(1),))
    reader.start()
    waiting.end(drop=True)
    reader.join(60)
    assert not reader.is_alive()
    assert waiting.take() == []
