"""The cache of programs, and the log of their errors."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamer.cel_eval import CelReason, ErrorLog, ProgramCache
from streamer.errors import CelError
from streamer.model import Limits

LIMITS = Limits()


def test_equal_expressions_are_compiled_once() -> None:
    cache = ProgramCache()
    assert cache.compile("data.a == 1", LIMITS) is cache.compile("data.a == 1", LIMITS)
    assert (cache.hits, cache.misses, len(cache)) == (1, 1, 1)


def test_the_program_unused_longest_goes_first() -> None:
    cache = ProgramCache(size=2)
    first = cache.compile("data.a == 1", LIMITS)
    cache.compile("data.a == 2", LIMITS)
    cache.compile("data.a == 1", LIMITS)
    cache.compile("data.a == 3", LIMITS)
    assert cache.compile("data.a == 1", LIMITS) is first
    cache.compile("data.a == 2", LIMITS)
    assert (cache.hits, cache.misses, len(cache)) == (2, 4, 2)


def test_other_limits_are_another_program() -> None:
    cache = ProgramCache()
    cache.compile("((data.a))", LIMITS)
    with pytest.raises(CelError):
        cache.compile("((data.a))", Limits(max_cel_depth=1))


def test_a_refused_expression_is_not_remembered() -> None:
    cache = ProgramCache()
    for _ in range(2):
        with pytest.raises(CelError):
            cache.compile("data.a ==", LIMITS)
    assert (cache.hits, cache.misses, len(cache)) == (0, 2, 0)


def test_a_cache_of_no_programs_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ProgramCache(size=0)


def test_every_compile_of_many_threads_is_counted() -> None:
    cache = ProgramCache(size=5)
    with ThreadPoolExecutor(8) as pool:
        programs = list(pool.map(lambda number: cache.compile(f"data.a == {number % 10}", LIMITS).source, range(400)))
    assert programs == [f"data.a == {number % 10}" for number in range(400)]
    assert cache.hits + cache.misses == 400
    assert len(cache) == 5


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_errors_are_counted_by_reason_and_logged_at_most_once_a_minute_for_a_subscription(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    log = ErrorLog(clock)
    with caplog.at_level(logging.INFO, logger="streamer.cel_eval"):
        for second in range(0, 130, 10):
            clock.now = float(second)
            log.record("s1", CelReason.NO_SUCH_FIELD, "no such field: 'a'")
        log.record("s2", CelReason.BUDGET, None)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "subscription 's1': CEL error no_such_field: no such field: 'a'",
        "subscription 's1': CEL error no_such_field: no such field: 'a' (7 errors so far)",
        "subscription 's1': CEL error no_such_field: no such field: 'a' (13 errors so far)",
        "subscription 's2': CEL error budget: no details",
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert log.counts == {CelReason.NO_SUCH_FIELD: 13, CelReason.BUDGET: 1}
    assert [(each.subscription_id, each.errors, each.reason) for each in log.worst(5)] == [
        ("s1", 13, "no_such_field"),
        ("s2", 1, "budget"),
    ]


def test_of_many_that_fail_few_are_logged_and_those_that_fail_most_are_remembered(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = ErrorLog(clock)
    for _ in range(3):
        log.record("worst", CelReason.BUDGET, None)
    for number in range(30_000):
        log.record(f"s{number}", CelReason.BUDGET, None)
        log.record("worst", CelReason.OVERFLOW, None)
    assert len(caplog.records) == 10
    clock.now = 60.0
    log.record("late", CelReason.BUDGET, None)
    (message,) = [record.getMessage() for record in caplog.records[10:]]
    assert message == "subscription 'late': CEL error budget: no details; 29,991 messages about others were left out"
    assert sum(log.counts.values()) == 60_004
    assert len(log._heard) <= 10_000
    (worst,) = log.worst(1)
    assert (worst.subscription_id, worst.errors, worst.reason) == ("worst", 30_003, "overflow")
