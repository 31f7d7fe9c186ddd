"""How often each subscription matched: what is counted, what it costs, and who is told."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streamer
from streamer.service.observed import matches as counting
from streamer.service.observed.matches import MINUTE, MINUTES, MatchCounts
from streamer.service.store.ids import inside
from tests.service.api import BIG, Api, order, running

pytestmark = pytest.mark.later_on_the_reference
ONE = "/v1/subscriptions/big"
#: A moment in the middle of a minute, in seconds since the epoch.
NOON = 1_800_000_030.0


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


class Clock:
    """The time as the counts have it, which goes on when it is told."""

    def __init__(self) -> None:
        self.now = NOON

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(counting, "time", made)
    return made


def engine_of(*ids: str) -> streamer.Engine:
    engine = streamer.Engine()
    engine.add_many({"id": each, "collection": "orders"} for each in ids)
    return engine


def count(counts: MatchCounts, *ids: str, times: int = 1) -> None:
    """Count so many events, each of which these match."""
    found = engine_of(*ids).match({"collection": "orders"}, "default")
    tally = counts.begin()
    if tally is not None:
        for _ in range(times):
            tally.add(found)
        counts.add(tally)


def told(api: Api, path: str = ONE, token: str | None = None) -> dict[str, Any]:
    reply = api.ask("GET", f"{path.partition('?')[0]}/matches?{path.partition('?')[2]}", token=token)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


def test_each_match_is_counted_in_its_minute(api: Api) -> None:
    began = time.time()
    api.ask("PUT", ONE, BIG)
    api.ask("PUT", "/v1/subscriptions/none", BIG | {"collection": "others"})
    api.read(*(order(number) for number in range(7)), order(8, amount=1), b"{")
    found = told(api)
    assert (found["total"], sum(filter(None, found["matches"]))) == (7, 7)
    assert (len(found["at"]), len(found["matches"]), found["every_s"], found["one_of"]) == (MINUTES, MINUTES, MINUTE, 1)
    assert abs(found["at"][-1] + MINUTE / 2 - time.time()) <= MINUTE
    assert found["matches"][0] is None, "what was before the service began is not known"
    assert abs(_seconds(found["since"]) - began) < 60
    silent = told(api, "/v1/subscriptions/none")
    assert (silent["total"], silent["matches"][-1]) == (0, 0)
    assert api.ask("GET", "/v1/subscriptions/nosuch/matches").kind == "unknown"


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_nobody_is_told_of_another_tenants_matches(api: Api) -> None:
    """Nor of one of the same id, and who may neither read subscriptions nor is signed in is told nothing."""
    other, admin = api.make_token("other", "read", "write", "consume"), api.make_token(None, "admin")
    for token in (api.token, other):
        assert api.ask("PUT", ONE, BIG, token=token).status == 201
    api.read(order(1), order(2), order(3, tenant="other"))
    assert (told(api)["total"], told(api, token=other)["total"]) == (2, 1)
    assert (told(api, f"{ONE}?tenant=other", admin)["total"], told(api, f"{ONE}?tenant=acme", admin)["total"]) == (1, 2)
    assert api.ask("GET", f"{ONE}/matches?tenant=acme", token=other).kind == "not-allowed"
    assert api.ask("GET", f"{ONE}/matches", token=api.make_token("acme", "write")).kind == "not-allowed"
    assert api.ask("GET", f"{ONE}/matches", token="").kind == "no-token"
    api.ask("PUT", "/v1/subscriptions/mine", BIG)
    assert api.ask("GET", "/v1/subscriptions/mine/matches", token=other).kind == "unknown"


def test_what_is_only_asked_is_not_counted(api: Api) -> None:
    api.ask("PUT", ONE, BIG)
    assert api.ask("POST", "/v1/match", order(1), headers={"Content-Type": "application/json"}).json["matches"]
    assert told(api)["total"] == 0


def test_one_that_was_deleted_leaves_its_matches_to_nobody(api: Api) -> None:
    counts = api.service._running.pipeline.matcher.matches  # type: ignore[union-attr]
    counts._since -= 10 * MINUTE
    api.ask("PUT", ONE, BIG)
    row = api.service.subscriptions.get("acme", "big")
    assert row is not None
    found = told(api)
    assert _seconds(found["since"]) == row.created / 1000
    assert found["matches"][-3] is None


def test_a_reload_bounds_it_anew(api: Api) -> None:
    api.ask("PUT", ONE, BIG)
    api.read(order(1))
    admin = api.make_token(None, "admin")
    api.config["service"]["match_counts"] = 0
    assert api.ask("POST", "/v1/reload", token=admin).json["changed"] == ["service.match_counts"]
    off = told(api)
    assert (off["since"], off["total"], off["most_counts"], set(off["matches"])) == (None, 0, 0, {None})
    api.read(order(2))
    api.config["service"]["match_counts"] = 10
    assert api.ask("POST", "/v1/reload", token=admin).status == 200
    api.read(order(3))
    assert (told(api)["total"], told(api)["most_counts"]) == (1, 10)


def test_minutes_are_forgotten_after_three_hours(clock: Clock, backend: str) -> None:
    counts = MatchCounts()
    count(counts, "a", times=3)
    clock.now += MINUTE
    count(counts, "a", "b")
    found = counts.counted("a")
    assert (found.since, found.counts[-3:]) == (NOON, [None, 3, 1])
    assert found.at[-1] == NOON + MINUTE / 2
    assert counts.counted("b").counts[-2:] == [0, 1]
    clock.now += MINUTE * (MINUTES - 1)
    assert (counts.counted("a").counts[0], sum(filter(None, counts.counted("a").counts))) == (1, 1)
    clock.now += MINUTE
    found = counts.counted("a")
    assert set(found.counts) == {0}
    assert found.since == found.at[0]
    assert counts._size == 0
    # A clock that is put back tells nothing twice.
    clock.now -= 10 * MINUTE
    count(counts, "a")
    assert sum(filter(None, counts.counted("a").counts)) == 1


def test_where_there_are_too_many_the_oldest_minutes_are_forgotten(clock: Clock, backend: str) -> None:
    counts = MatchCounts(5)
    count(counts, "a", "b", times=9)
    clock.now += MINUTE
    count(counts, "a", "c")
    assert counts.counted("a").counts[-2:] == [9, 1]
    clock.now += MINUTE
    count(counts, "a", "d")
    found = counts.counted("a")
    assert found.counts[-3:] == [None, 1, 1]
    assert found.since == found.at[-2], "it says since when it is counted"
    assert counts.counted("b").counts[-3:] == [None, 0, 0]


def test_a_minute_in_which_too_many_match_counts_none(clock: Clock, backend: str) -> None:
    """So nobody is told too little; with the next minute it begins anew."""
    counts = MatchCounts(3)
    count(counts, "a")
    clock.now += MINUTE
    count(counts, "a", "b", "c", "d")
    assert (counts.counted("a").since, counts._size) == (None, 0)
    count(counts, "a")
    assert counts.counted("a").counts[-1] is None
    clock.now += MINUTE
    count(counts, "a")
    found = counts.counted("a")
    assert found.counts[-2:] == [None, 1]
    assert found.since == found.at[-1]


def test_of_many_matches_some_are_counted_and_stand_for_all(clock: Clock, backend: str) -> None:
    """At full load it costs no more than at `RATE`, and what is told is near the truth, and says that it is an estimate."""
    random.seed(7)
    counts = MatchCounts()
    found = engine_of(*map(str, range(10))).match({"collection": "orders"}, "default")
    counted = 0
    for batch in range(20_000):
        clock.now += 0.00025
        if (tally := counts.begin()) is not None:
            counted += 10
            for _ in range(10):
                tally.add(found)
            counts.add(tally)
        assert counted == 10 * (batch + 1) or counted >= counting.BURST / 10, "the first are counted one and all"
    assert counted * 10 < counting.BURST + 5 * 1.5 * counting.RATE
    minutes = counts.counted("3")
    total = sum(filter(None, minutes.counts))
    assert 0.8 * 200_000 < total < 1.2 * 200_000
    assert 64 <= minutes.one_of <= 512
    for _ in range(2):
        clock.now += 10
        counts.begin()
    assert all(counts.begin() is not None for _ in range(20)), "where few come again, each is counted"


def test_of_an_event_that_matches_many_some_are_counted(clock: Clock, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MANY", 10)
    counts = MatchCounts()
    count(counts, *map(str, range(95)))
    found = [counts.counted(str(number)) for number in range(95)]
    totals = [sum(filter(None, each.counts)) for each in found]
    assert {each.one_of for each in found} == {10}
    assert set(totals) == {0, 10}
    assert 9 <= totals.count(10) <= 10


def test_all_threads_count(backend: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    counts = MatchCounts()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: count(counts, "a", "b"), range(40)))
    assert sum(filter(None, counts.counted("a").counts)) == 40


def test_ids_of_tenants_are_kept_apart(clock: Clock, backend: str) -> None:
    counts = MatchCounts()
    count(counts, inside("acme", "x"))
    assert sum(filter(None, counts.counted(inside("acme", "x")).counts)) == 1
    assert sum(filter(None, counts.counted(inside("acm", "ex")).counts)) == 0
