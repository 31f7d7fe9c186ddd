"""Objects that are found while they live, and whose end runs nothing."""

from __future__ import annotations

import gc
import threading
from weakref import WeakSet

from streamer.living import FEWEST, Living


class Member:
    def __init__(self) -> None:
        self.itself = self


def test_those_that_live_are_found_oldest_first() -> None:
    living: Living[Member] = Living()
    held = [Member() for _ in range(3)]
    for member in held:
        living.add(member)
    assert list(living) == held
    del held[1], member
    gc.collect()
    assert list(living) == held


def test_what_is_kept_of_the_dead_is_bounded() -> None:
    living: Living[Member] = Living()
    held = [Member() for _ in range(100)]
    for member in held:
        living.add(member)
    for _ in range(10_000):
        living.add(dead := Member())
        dead.itself = None  # type: ignore[assignment]
    del dead
    assert list(living) == held
    assert len(living._members) <= 2 * (100 + FEWEST)


def test_threads_lose_no_member() -> None:
    living: Living[Member] = Living()
    held: list[Member] = []

    def add() -> None:
        for _ in range(2_000):
            member = Member()
            living.add(member)
            held.append(member)
            living.add(Member())

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert {id(member) for member in living} == {id(member) for member in held}


def test_nothing_runs_when_a_member_dies() -> None:
    """It might be at the recursion limit, where what a `WeakSet` calls fails and leaves the dead behind."""

    def down() -> None:
        try:
            down()
        except RecursionError:
            gc.collect()

    gc.collect()
    living: Living[Member] = Living()
    standard: WeakSet[Member] = WeakSet()
    living.add(Member())
    standard.add(Member())
    assert [reference.__callback__ for reference in living._members.values()] == [None]
    down()
    assert len(standard.data) == 1  # type: ignore[attr-defined]
    assert not list(living)
