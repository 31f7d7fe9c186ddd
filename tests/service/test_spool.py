"""Messages for endpoints: order, retries, their schedule, what is given up, and what a crash leaves."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

from streamer.service import faults
from streamer.service.connectors.protocols import Outcome
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.spool import Spool, Terms, lines
from streamer.service.delivery.spool.delivery import Owner
from streamer.service.store.opened import look
from streamer.service.store.rows import NEVER, DeadLetter, Spooled
from streamer.service.store.store import Store
from tests.service.conftest import Make, event
from tests.service.receiver import Receiver

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

GOOD, DOWN = Outcome("delivered", "200"), Outcome("later", "503", "HTTP status 503")
FAST = Terms(first=0.02, most=0.1, attempts=4)


class Endpoint:
    """Answers what a test says, and keeps what it was sent."""

    def __init__(self, answer: Callable[[str, int], Outcome]) -> None:
        self.answer = answer
        self.sent: list[tuple[str, float]] = []
        self.requests: list[list[str]] = []
        self.at_once = self.most_at_once = 0
        self.flying: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.times: Counter[str] = Counter()
        self.took: list[list[str]] = []
        self._threads = ThreadPoolExecutor(64)

    def check(self) -> None:
        """All is well."""

    def close(self) -> None:
        """Nothing is open."""

    async def send(self, ids: Sequence[str], messages: Sequence[bytes]) -> Outcome:
        # An answer may wait; no other one waits for it.
        outcome = await asyncio.get_running_loop().run_in_executor(self._threads, self._send, ids)
        if outcome.result == "delivered":
            self.took.append(list(ids))
        return outcome

    def _send(self, ids: Sequence[str]) -> Outcome:
        keys = {identity.partition("-")[0] for identity in ids}
        with self._lock:
            for key in keys:
                self.flying[key] += 1
                assert key == "none" or self.flying[key] == 1, "one key twice at once"
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.requests.append(list(ids))
            for identity in ids:
                self.sent.append((identity, time.monotonic()))
                self.times[identity] += 1
        worst = GOOD
        for identity in ids:
            outcome = self.answer(identity, self.times[identity])
            worst = outcome if outcome.result != "delivered" else worst
        with self._lock:
            self.at_once -= 1
            for key in keys:
                self.flying[key] -= 1
        return worst

    def accepted(self) -> dict[str, list[str]]:
        """Return what it has taken of each key, in order."""
        found: dict[str, list[str]] = defaultdict(list)
        for ids in self.took:
            for identity in ids:
                found[identity.partition("-")[0]].append(identity)
        return found


class Place:
    """A store, and spools on it, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.open()

    def open(self) -> None:
        self.store = Store(self.directory)
        self.counts = Counts(self.store.dead_letters)

    def put(self, ids: Sequence[str], running: Spool | None = None, body: bytes = b"{}\n") -> None:
        """Spool messages; an id `KEY-NUMBER` says its key, and the key `none` that there is none."""
        self.store.lane("out")
        rows = []
        for identity in ids:
            key = identity.partition("-")[0]
            rows.append(Spooled("out", None if key == "none" else hash(key), identity, 1, "s", "p", 1, 0, body))
        if running is not None:
            running.await_room({"out": sum(len(row.body) for row in rows)})
        if running is not None:
            self.counts.recover(len(rows))
            running.hold(rows, lambda: self.store.commit([], [], [], rows))
        else:
            self.store.commit([], [], [], rows)

    def run(self, endpoint: Endpoint, terms: Terms = FAST, *, target: str = "t") -> Spool:
        """Run until all is delivered or given up."""
        running = self.start(endpoint, terms, target=target)
        running.complete()
        self.wait()
        return running

    def start(self, endpoint: Endpoint, terms: Terms = FAST, *, target: str = "t", owner: Owner | None = None) -> Spool:
        running = Spool(self.store, self.counts)
        running.add("out", endpoint, terms, target, owner)
        self.failed: list[BaseException] = []

        def run() -> None:
            try:
                running.run()
            except BaseException as error:
                self.failed.append(error)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        return running

    def wait(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failed:
            raise self.failed[0]

    def left(self) -> list[tuple[str, int, int]]:
        rows: list[tuple[str, int, int]] = self.store.database.rows("SELECT message, attempts, due FROM spool ORDER BY number")
        return rows

    def letters(self) -> list[tuple[str, str, int]]:
        return [(each.message, each.code, each.attempts) for each in self.store.letters()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "data")
    yield made
    made.store.close()


def ids_of(keys: Sequence[str], count: int) -> list[str]:
    return [f"{key}-{number:04}" for number in range(count) for key in keys]


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_each_key_is_delivered_in_order_whatever_fails(place: Place, batch: int, concurrency: int) -> None:
    ids = ids_of([f"k{number}" for number in range(20)], 30)
    place.put(ids)

    def answer(identity: str, times: int) -> Outcome:
        return DOWN if hash(identity) % 11 == 0 and times < 3 else GOOD

    endpoint = Endpoint(answer)
    place.run(endpoint, Terms(first=0.001, most=0.01, batch=batch, concurrency=concurrency, attempts=50))
    assert endpoint.accepted() == {f"k{key}": [each for each in ids if each.startswith(f"k{key}-")] for key in range(20)}
    assert endpoint.most_at_once <= concurrency
    assert max(map(len, endpoint.requests)) <= batch
    assert place.left() == []
    assert place.letters() == []


def test_a_failing_key_waits_alone(place: Place) -> None:
    place.put(ids_of(["bad", "a", "b", "c"], 300))
    # It fails until all others are through.
    endpoint = Endpoint(lambda identity, _: DOWN if identity == "bad-0000" and len(endpoint.took) < 900 else GOOD)
    place.run(endpoint, Terms(first=0.02, most=0.1, attempts=1000))
    assert endpoint.accepted()["bad"] == ids_of(["bad"], 300)


def test_a_key_with_very_many_messages_keeps_no_other_waiting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_IN_MEMORY", 50)
    monkeypatch.setattr(lines, "MOST_OF_A_KEY", 10)
    place.put([*ids_of(["hot"], 500), "cold-0000"])
    endpoint = Endpoint(lambda *_: GOOD)
    place.run(endpoint)
    assert [each for ids in endpoint.took for each in ids].index("cold-0000") < 100
    assert endpoint.accepted()["hot"] == ids_of(["hot"], 500)


def test_messages_without_a_key_wait_for_none(place: Place) -> None:
    place.put([*ids_of(["none"], 50)])
    endpoint = Endpoint(lambda identity, times: DOWN if identity == "none-0000" and times < 3 else GOOD)
    place.run(endpoint)
    assert sorted(each for ids in endpoint.took for each in ids) == ids_of(["none"], 50)
    assert endpoint.took[-1] == ["none-0000"]


def test_attempts_wait_twice_as_long_each_time_and_then_the_message_is_a_dead_letter(place: Place) -> None:
    place.put(["a-0000", "a-0001"])
    endpoint = Endpoint(lambda identity, _: DOWN if identity == "a-0000" else GOOD)
    place.run(endpoint, Terms(first=0.1, most=0.15, attempts=4))
    at = [moment for identity, moment in endpoint.sent if identity == "a-0000"]
    waits = [after - before for before, after in itertools.pairwise(at)]
    assert len(at) == 4
    for wait, (least, most) in zip(waits, [(0.05, 0.1), (0.075, 0.15), (0.075, 0.15)], strict=True):
        assert least - 0.01 <= wait < most + 0.5
    assert place.letters() == [("a-0000", "503", 4)]
    (letter,) = place.store.letters()
    assert (letter.stage, letter.sink, letter.record, letter.source, letter.position) == ("deliver", "out", b"{}\n", "s", 1)
    # The key has gone on.
    assert endpoint.took == [["a-0001"]]
    assert place.counts.totals()["matches_dead"] == 1


def test_with_block_a_key_waits_for_its_dead_letter_through_restarts(place: Place) -> None:
    blocking = Terms(first=0.01, most=0.01, attempts=2, on_exhausted="block")
    place.put(["a-0000", "a-0001", "b-0000"])
    endpoint = Endpoint(lambda identity, _: DOWN if identity == "a-0000" else GOOD)
    place.run(endpoint, blocking)
    for _ in range(2):
        assert endpoint.took == [["b-0000"]]
        assert [each[0] for each in place.left()] == ["a-0000", "a-0001"]
        assert place.left()[0][2] == NEVER
        assert place.letters() == [("a-0000", "503", 2)]
        place.store.close()
        place.open()
        place.run(endpoint, blocking)
    assert place.counts.totals()["matches_pending"] == 2
    place.store.respool(place.store.letters())
    assert place.letters() == []
    better = Endpoint(lambda *_: GOOD)
    place.run(better, blocking)
    assert better.took == [["a-0000"], ["a-0001"]]


def test_a_dead_letter_that_is_dropped_lets_its_key_go_on(place: Place) -> None:
    place.put(["a-0000", "a-0001"])
    blocking = Terms(first=0.01, most=0.01, attempts=1, on_exhausted="block")
    place.run(Endpoint(lambda *_: DOWN), blocking)
    assert place.store.drop(None) == 1
    endpoint = Endpoint(lambda *_: GOOD)
    place.run(endpoint, blocking)
    assert endpoint.took == [["a-0001"]]


@pytest.mark.parametrize("on_exhausted", ["block", "dead_letter"])
@pytest.mark.parametrize("first", ["replay", "drop"])
@pytest.mark.parametrize("then", ["replay", "drop"])
def test_of_two_who_replay_or_drop_a_letter_at_once_one_does(
    place: Place, first: str, then: str, on_exhausted: Literal["block", "dead_letter"]
) -> None:
    endpoint = Endpoint(lambda identity, times: DOWN if identity == "a-0000" and times == 1 else GOOD)
    running = place.start(endpoint, Terms(first=0.01, most=0.01, attempts=1, on_exhausted=on_exhausted))
    place.put(["a-0000", "a-0001", "b-0000"], running)
    until(lambda: len(place.letters()) == 1)
    letters = place.store.letters()
    for verb in (first, then):
        getattr(running, verb)(letters)
    running.complete()
    place.wait()
    took = sorted(identity for request in endpoint.took for identity in request)
    assert took == ["a-0000"] * (first == "replay") + ["a-0001", "b-0000"]
    assert (place.left(), place.letters(), running.waits_for()) == ([], [], {})
    told = place.counts.totals()
    assert (told["matches"], told["matches_pending"]) == (told["matches_delivered"] + told["matches_dead"], 0)


def test_what_cannot_get_better_is_given_up_at_once_and_alone(place: Place) -> None:
    place.put(ids_of(["a", "b", "c"], 10))
    endpoint = Endpoint(lambda identity, _: Outcome("never", "422", "HTTP status 422") if identity == "b-0004" else GOOD)
    place.run(endpoint, Terms(batch=8))
    assert place.letters() == [("b-0004", "422", 1)]
    accepted = endpoint.accepted()
    assert accepted["b"] == [each for each in ids_of(["b"], 10) if each != "b-0004"]
    assert accepted["a"] == ids_of(["a"], 10)
    assert endpoint.times["b-0004"] == 2


def test_replayed_messages_have_their_ids_and_the_bytes_that_they_had(place: Place) -> None:
    place.put(["a-0000"], body=b"x" * 2_000_000)
    place.run(Endpoint(lambda *_: Outcome("never", "400", "HTTP status 400")))
    (letter,) = place.store.letters()
    assert letter.is_whole
    place.store.respool([letter])
    endpoint = Endpoint(lambda *_: GOOD)
    place.run(endpoint)
    assert endpoint.took == [["a-0000"]]
    assert place.left() == place.letters() == []


def test_the_schedule_is_kept_through_a_restart(place: Place) -> None:
    place.put(["a-0000", "a-0001"])
    endpoint = Endpoint(lambda identity, times: DOWN if times < 3 else GOOD)
    running = place.start(endpoint, Terms(first=1.0, most=2.0, attempts=5))
    until(lambda: place.left()[0][1] == 1)
    running.stop()
    running.complete()
    place.wait()
    first, second = place.left()
    assert (first[0], first[1], second) == ("a-0000", 1, ("a-0001", 0, 0))
    assert 0 < first[2] / 1000 - time.time() < 1
    place.store.close()
    place.open()
    place.run(endpoint, Terms(first=1.0, most=1.0, attempts=5))
    at = [moment for identity, moment in endpoint.sent if identity == "a-0000"]
    # It was not tried when the process began, but when it was due.
    assert at[1] - at[0] > 0.45
    assert endpoint.took == [["a-0000"], ["a-0001"]]
    assert endpoint.times["a-0000"] == 3


def test_a_clock_that_was_set_back_lets_nobody_wait_longer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put(["a-0000"])
    place.store.database.rows("UPDATE spool SET attempts = 1, due = ?", int(time.time() * 1000) + 10**9)
    endpoint = Endpoint(lambda *_: GOOD)
    place.run(endpoint)
    assert endpoint.took == [["a-0000"]]


def test_a_breaker_asks_one_request_at_a_time_whether_an_endpoint_is_back(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    place.put(ids_of([f"k{number}" for number in range(200)], 2))
    is_back = threading.Event()
    down = [0]

    def answer(*_: object) -> Outcome:
        if is_back.is_set():
            return GOOD
        down[0] += 1
        return DOWN

    endpoint = Endpoint(answer)
    running = place.start(endpoint, Terms(first=0.02, most=0.05, attempts=100))
    until(lambda: running.gauges()[0].state == "open" and down[0] > 15)
    began, before = time.monotonic(), down[0]
    time.sleep(0.5)
    # Without it 200 keys would each be tried about ten times.
    assert down[0] - before < 30 * (time.monotonic() - began) + 10
    is_back.set()
    running.complete()
    place.wait()
    assert sorted(each for ids in endpoint.took for each in ids) == sorted(ids_of([f"k{number}" for number in range(200)], 2))
    told = [record.getMessage() for record in caplog.records]
    assert any("sinks.out: does not answer as it should: HTTP status 503; retried in " in text for text in told)
    assert "sinks.out: answers again" in told
    assert running.gauges()[0].attempts["delivered"] == 400


def test_an_endpoint_that_asks_for_time_is_left_alone_so_long_but_no_longer_than_most(place: Place) -> None:
    place.put(ids_of(["a", "b"], 2))
    for after, most, least in ((0.3, 5.0, 0.3), (900.0, 0.4, 0.4)):
        place.put(ids_of(["a", "b"], 1))
        patience = Outcome("later", "429", "HTTP status 429", after)
        first = [True]

        def answer(*_: object, first: list[bool] = first, patience: Outcome = patience) -> Outcome:
            return patience if first and first.pop() else GOOD

        endpoint = Endpoint(answer)
        place.run(endpoint, Terms(first=0.01, most=most, attempts=5, concurrency=1))
        at = [moment for _, moment in endpoint.sent]
        assert least <= at[1] - at[0] < least + 2


def test_an_endpoint_that_wants_no_more_is_not_asked_again_until_somebody_says_so(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.put(["a-0000", "b-0000"])
    gone = Endpoint(lambda *_: Outcome("gone", "410", "HTTP status 410"))
    running = place.run(gone, Terms(concurrency=1))
    assert len(gone.sent) == 1
    assert running.gauges()[0].state == "disabled"
    assert [each[0] for each in place.left()] == ["a-0000", "b-0000"]
    assert "its endpoint is disabled after its answer (HTTP status 410)" in caplog.text
    place.store.close()
    place.open()
    same = Endpoint(lambda *_: GOOD)
    place.run(same)
    assert same.sent == []
    assert "start with --enable out" in caplog.text
    assert place.store.enable("out")
    assert not place.store.enable("out")
    place.run(same)
    assert sorted(same.took) == [["a-0000"], ["b-0000"]]


def test_another_url_is_asked_again(place: Place) -> None:
    place.put(["a-0000"])
    place.run(Endpoint(lambda *_: Outcome("gone", "410", "HTTP status 410")))
    place.store.close()
    place.open()
    endpoint = Endpoint(lambda *_: GOOD)
    place.run(endpoint, target="another")
    assert endpoint.took == [["a-0000"]]


def test_what_the_endpoint_before_answers_says_nothing_of_the_next(place: Place) -> None:
    """The usual way in which an address is given up: it says 410 once its successor is configured."""
    hold = threading.Event()
    before = Endpoint(lambda *_: Outcome("gone", "410", "HTTP status 410") if hold.wait(30) else DOWN)
    running = place.start(before)
    place.put(["a-0000"], running)
    until(lambda: before.sent)
    after = Endpoint(lambda *_: GOOD)
    running.add("out", after, FAST, "another")
    hold.set()
    place.put(["b-0000"], running)
    running.complete()
    place.wait()
    assert sorted(after.took) == [["a-0000"], ["b-0000"]]
    assert place.store.lane("out", reread=True).gone is None


def test_what_was_on_its_way_does_not_shorten_what_an_endpoint_asks_for(place: Place) -> None:
    hold = threading.Event()

    def answer(identity: str, times: int) -> Outcome:
        if identity == "a-0000" and times == 1:
            until(lambda: len(endpoint.sent) == 3)
            return Outcome("later", "429", "HTTP status 429", 1.0)
        return GOOD if hold.wait(30) else DOWN

    endpoint = Endpoint(answer)
    place.put(["a-0000", "b-0000", "c-0000", "b-0001", "c-0001"])
    running = place.start(endpoint, Terms(first=0.01, most=5.0, attempts=5, concurrency=3))
    until(lambda: running.gauges()[0].state == "open")
    hold.set()
    running.complete()
    place.wait()
    asked = endpoint.sent[0][1]
    assert len(endpoint.sent) == 6
    assert all(moment - asked >= 0.9 for _, moment in endpoint.sent[3:])


def test_where_nobody_delivers_nobody_waits_for_room(place: Place) -> None:
    """Dead letters are replayed beside a store that no service uses; its tenants may be over what they may hold."""
    place.put(["a-0000"], body=b"x" * 400)
    running = Spool(place.store, place.counts)
    running.add("out", Endpoint(lambda *_: GOOD), Terms(bytes=500), "t", Owner("acme", 500, 4))
    running.stop()
    running.await_room({"out": 400})


def test_a_full_spool_lets_who_fills_it_wait(place: Place) -> None:
    hold = threading.Event()
    endpoint = Endpoint(lambda *_: GOOD if hold.wait(30) else DOWN)
    running = place.start(endpoint, Terms(bytes=1000))
    put: list[int] = []

    def fill() -> None:
        for number in range(10):
            place.put([f"a-{number:04}"], running, b"x" * 400)
            put.append(number)

    filling = threading.Thread(target=fill)
    filling.start()
    time.sleep(0.5)
    assert put == [0, 1]
    assert running.gauges()[0].bytes == 800
    hold.set()
    filling.join(60)
    running.complete()
    place.wait()
    assert endpoint.accepted()["a"] == ids_of(["a"], 10)


def test_who_stops_does_not_wait_for_room(place: Place) -> None:
    """What was read of standard input cannot be read again, so it goes into the spool all the same."""
    hold = threading.Event()
    endpoint = Endpoint(lambda *_: GOOD if hold.wait(30) else DOWN)
    running = place.start(endpoint, Terms(bytes=1000))
    place.put(["a-0000", "a-0001"], running, b"x" * 400)
    filling = threading.Thread(target=place.put, args=(["a-0002"], running, b"x" * 400))
    filling.start()
    until(lambda: endpoint.sent)
    assert filling.is_alive()
    running.stop()
    filling.join(60)
    running.complete()
    hold.set()
    place.wait()
    # The request that was on its way has ended, and no other one began.
    assert endpoint.took == [["a-0000"]]
    assert [each[0] for each in place.left()] == ["a-0001", "a-0002"]


def test_a_full_spool_gives_up_the_oldest_that_are_not_on_their_way(place: Place) -> None:
    hold = threading.Event()
    endpoint = Endpoint(lambda *_: GOOD if hold.wait(30) else DOWN)
    running = place.start(endpoint, Terms(bytes=1000, when_full="dead_letter", concurrency=1))
    place.put(["a-0000"], running, b"x" * 400)
    until(lambda: endpoint.sent)
    for number in range(1, 6):
        place.put([f"a-{number:04}"], running, b"x" * 400)
    assert [letter[0] for letter in place.letters()] == ids_of(["a"], 5)[1:]
    assert {letter[1:] for letter in place.letters()} == {("spool_full", 0)}
    hold.set()
    running.complete()
    place.wait()
    assert endpoint.accepted()["a"] == ["a-0000", "a-0005"]
    told = place.counts.totals()
    assert (told["matches"], told["matches_delivered"], told["matches_dead"], told["matches_pending"]) == (6, 2, 4, 0)


def test_a_message_that_is_larger_than_all_the_room_passes(place: Place) -> None:
    endpoint = Endpoint(lambda *_: GOOD)
    running = place.start(endpoint, Terms(bytes=10))
    for number in range(3):
        place.put([f"a-{number:04}"], running, b"x" * 400)
    running.complete()
    place.wait()
    assert endpoint.accepted()["a"] == ids_of(["a"], 3)


def test_memory_holds_a_window_of_a_full_spool(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_IN_MEMORY", 100)
    monkeypatch.setattr(lines, "PAGE", 10)
    monkeypatch.setattr(lines, "MOST_BLOCKED", 30)
    place.put(ids_of([f"k{number}" for number in range(150)], 3))
    endpoint = Endpoint(lambda identity, times: DOWN if times == 1 and hash(identity) % 3 else GOOD)
    running = place.start(endpoint, FAST)
    running.complete()
    each = running.delivery("out")
    assert each is not None
    while place._thread.is_alive():
        assert each.lines.messages <= 110 + 10 * 100
        assert each.lines.blocked <= 30 + 100 + 8
        time.sleep(0.001)
    place.wait()
    for key in range(150):
        assert endpoint.accepted()[f"k{key}"] == ids_of([f"k{key}"], 3)
    assert (each.lines.messages, each.lines.bytes, len(each.lines), each.messages, each.bytes) == (0, 0, 0, 0, 0)


class Fault(Exception):
    """What a test lets happen."""


def fail() -> None:
    raise Fault


@pytest.mark.parametrize("point", ["spool.taken", "spool.answered", "spool.settling", "spool.settled"])
def test_a_failure_at_any_point_loses_nothing_and_keeps_ids_and_order(place: Place, point: str) -> None:
    ids = ids_of(["a", "b", "c"], 20)
    place.put(ids)
    endpoint = Endpoint(lambda identity, times: DOWN if times == 1 and identity.endswith("3") else GOOD)
    met = [0]

    def sometimes() -> None:
        met[0] += 1
        if met[0] == 2:
            fail()

    faults.arm(point, sometimes)
    with pytest.raises(Fault):
        place.run(endpoint)
    faults.disarm()
    place.store.close()
    place.open()
    place.run(endpoint)
    for key in ("a", "b", "c"):
        # What comes first is in order; what comes twice has its id.
        assert list(dict.fromkeys(endpoint.accepted()[key])) == ids_of([key], 20)
    assert place.left() == place.letters() == []


def until(told: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := told()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


# The service on it

HOOKS = {"retry": {"first": "20ms", "most": "100ms", "attempts": 5}}


def test_matches_are_posted_and_the_run_ends_when_all_are(make: Make, tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"".join(event(number) + b"\n" for number in range(300)))
    failing = [True] * 20
    receiver.answer = lambda _: 503 if failing and failing.pop() else 200
    make(sinks={"out": receiver.sink()}, delivery=HOOKS).run()
    taken = [request.messages[0]["partitionkey"] for request in receiver.requests[20:]]
    assert set(taken) == {str(number) for number in range(300)}
    assert len({message["id"] for message in receiver.messages}) == 300
    for request in receiver.requests:
        assert request.headers["webhook-id"] == request.messages[0]["id"]
    assert look(tmp_path / "data") == []
    make(sinks={"out": receiver.sink()}, delivery=HOOKS).run()
    assert len(receiver.requests) == 320


def test_messages_of_a_gateway_count_all_their_matches(make: Make, tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "in.jsonl").write_bytes(event(1, topic="orders.eu.paid") + b"\n")
    (tmp_path / "subs.jsonl").write_bytes(b'{"id": "a"}\n{"id": "b"}\n{"id": "c", "gateway_id": "g"}\n')
    service = make(sinks={"out": receiver.sink(per="gateway", batch=10)})
    service.run()
    assert sorted(len(each["data"]["subscriptions"]) for each in receiver.messages) == [1, 2]
    store = Store(tmp_path / "data")
    assert store.backlog(store.lane("out")) == (0, 0, 0)
    store.close()


def test_a_dead_endpoint_stops_neither_the_source_nor_other_sinks(
    make: Make, tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "in.jsonl").write_bytes(b"".join(event(number, topic="orders.eu.paid") + b"\n" for number in range(2000)))
    receiver.answer = lambda _: 410
    sinks = {"hooks": receiver.sink(), "out": {"type": "file", "path": str(tmp_path / "out.jsonl")}}
    routes = [{"gateway": "billing", "sink": "hooks"}, {"gateway": "*", "sink": "out"}]
    make(sinks=sinks, routes=routes).run()
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 2000
    assert "sinks.hooks: 2000 messages stay in the spool for the next run" in caplog.text
    assert "ended: 2000 events read, 0 rejected, 4000 matches, 2000 delivered, 0 dropped" in caplog.text
    assert "hidden" not in caplog.text
    receiver.answer = lambda _: 204
    made = make(sinks=sinks, routes=routes)
    made.run(enable=["hooks"])
    assert len({message["id"] for message in receiver.messages}) == 2000
    assert "ended: 0 events read, 0 rejected, 2000 matches, 2000 delivered, 0 dropped" in caplog.text
    # Without its section nothing is lost, and the log says so.
    (tmp_path / "in.jsonl").write_bytes(event(1) + b"\n")


def test_dead_letters_of_deliveries_are_replayed_with_their_ids(make: Make, tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "in.jsonl").write_bytes(event(1) + b"\n{\n")
    receiver.answer = lambda _: 422
    make(sinks={"out": receiver.sink()}).run()
    record, message = sorted(look(tmp_path / "data"), key=lambda letter: letter.stage)
    assert (record.stage, message.stage, message.code, message.sink) == ("decode", "deliver", "422", "out")
    (told,) = receiver.messages
    assert message.message == told["id"]
    assert json.loads(message.record) == told
    receiver.answer = lambda _: 204
    assert make(sinks={"out": receiver.sink()}).replay(lambda store: store.letters()) == (1, 1)
    assert len(receiver.messages) == 1
    make(sinks={"out": receiver.sink()}).run()
    assert receiver.messages == [told, told]
    assert [letter.stage for letter in look(tmp_path / "data")] == ["decode"]


def test_the_sink_for_dead_letters_is_told_of_each(make: Make, tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "in.jsonl").write_bytes(event(1, topic="orders.eu.paid") + b"\n{\xff\n")
    receiver.answer = lambda request: 422 if request.messages[0]["type"] != "streamer.dead_letter" else 204
    sinks = {"hooks": receiver.sink(), "out": {"type": "file", "path": str(tmp_path / "out.jsonl")}}
    routes = [{"gateway": "billing", "sink": "hooks"}, {"gateway": "*", "sink": "out"}]
    make(sinks=sinks, routes=routes, delivery={"dead_letter": "out"}).run()
    told = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    decode, deliver = sorted(
        (each for each in told if each["type"] == "streamer.dead_letter"), key=lambda each: each["data"]["stage"]
    )
    assert decode["data"]["record_base64"] == "e/8="
    assert (deliver["data"]["sink"], deliver["data"]["code"], deliver["data"]["attempts"]) == ("hooks", "422", 1)
    assert json.loads(deliver["data"]["record"])["id"] == deliver["data"]["message"] == receiver.messages[0]["id"]
    assert len(look(tmp_path / "data")) == 2
    (tmp_path / "data" / "store.db").unlink()
    make(sinks=sinks, routes=routes, delivery={"dead_letter": "hooks"}).run()
    # Of what was for itself it is not told.
    assert [each["data"]["stage"] for each in receiver.messages if each["type"] == "streamer.dead_letter"] == ["decode"]
    with pytest.raises(Exception, match=r"delivery\.dead_letter: unknown sink 'nosuch'"):
        make(sinks=sinks, routes=routes, delivery={"dead_letter": "nosuch"})


@pytest.mark.parametrize("point", ["store.spooled", "store.committed", "sink.flushed", "pipeline.acknowledged"])
def test_a_failure_around_the_spools_commit_loses_nothing(make: Make, tmp_path: Path, receiver: Receiver, point: str) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"".join(event(number, pad="x" * 400) + b"\n" for number in range(2000)))
    faults.arm(point, fail)
    with pytest.raises(Fault):
        make(sinks={"out": receiver.sink(batch=100)}).run()
    faults.disarm()
    make(sinks={"out": receiver.sink(batch=100)}).run()
    assert len({message["id"] for message in receiver.messages}) == 2000
    assert {message["partitionkey"] for message in receiver.messages} == {str(number) for number in range(2000)}


def test_counts_add_up_at_any_moment_with_a_spool(
    make: Make, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Counts] = []
    before = Counts.__init__

    def init(self: Counts, _: Any) -> None:
        before(self)
        made.append(self)

    monkeypatch.setattr(Counts, "__init__", init)
    seen: list[dict[str, int]] = []
    for name in ("pipeline.matched", "store.committed", "spool.taken", "spool.settled", "pipeline.acknowledged"):
        faults.arm(name, lambda: seen.append(made[0].totals()))
    bad = Counter({"7": 1, "8": 1})
    receiver.answer = lambda request: 400 if request.messages[0]["partitionkey"] in bad else 204
    (tmp_path / "in.jsonl").write_bytes(b"".join(event(number) + b"\n" for number in range(500)))
    make(sinks={"out": receiver.sink()}).run()
    for told in seen:
        ends = ("matches_delivered", "matches_dead", "matches_dropped", "matches_pending")
        assert told["matches"] == sum(told[name] for name in ends)
        assert told["matches_pending"] >= 0
    told = made[0].totals()
    assert (told["matches_delivered"], told["matches_dead"], told["matches_pending"]) == (498, 2, 0)
    assert (told["spool_messages"], told["spool_bytes"], told["attempts"], told["breaker"]) == (0, 0, 500, 0)


def test_letters_of_messages_are_one_a_message(place: Place) -> None:
    place.put(["a-0000", "b-0000"])
    place.run(Endpoint(lambda *_: Outcome("never", "400", "HTTP status 400")))
    letters: list[DeadLetter] = place.store.letters()
    assert [each.message for each in letters] == ["a-0000", "b-0000"]
    assert {(each.source, each.position) for each in letters} == {("s", 1)}


def test_what_is_added_while_the_store_is_read_is_not_passed_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint(lambda *_: GOOD)
    running = place.start(endpoint)
    waiting, added = place.store.waiting, [False]

    def meanwhile(*arguments: Any) -> Any:
        rows = waiting(*arguments)
        if not rows and not added[0]:
            added[0] = True
            place.put(["a-0000"], running)
            running.complete()
        return rows

    monkeypatch.setattr(place.store, "waiting", meanwhile, raising=False)
    if (each := running.delivery("out")) is not None:
        each.lines.more()
    running.hold([], list)
    place.wait()
    assert endpoint.took == [["a-0000"]]


@pytest.mark.parametrize("on_exhausted", ["block", "dead_letter"])
@pytest.mark.parametrize("outcome", [DOWN, Outcome("never", "422", "HTTP status 422")])
def test_where_dead_letters_have_no_room_a_message_waits_with_its_key_and_all_else_goes_on(
    place: Place, on_exhausted: Literal["block", "dead_letter"], outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    """A letter that a key waits for is never forgotten for another one."""
    is_back = threading.Event()
    endpoint = Endpoint(lambda identity, _: GOOD if is_back.is_set() or identity.startswith("good") else outcome)
    place.store.dead_letter_bytes = 1000
    terms = Terms(first=0.01, most=0.05, attempts=2, on_exhausted=on_exhausted)
    keys = [f"k{number}" for number in range(8)]
    running = place.start(endpoint, terms)
    place.put([*ids_of(keys, 2), "good-0000"], running, body=b"x" * 400)
    until(lambda: place.store.dead_letters() == 2 and sum(each.stuck for each in running.gauges()) >= 6)
    assert "there is no room for dead letters, so" in caplog.text
    assert ["good-0000"] in endpoint.took
    # Once there is room, they go on by themselves.
    before = place.store.letters()
    place.store.dead_letter_bytes = 1500
    until(lambda: place.store.dead_letters() == 3)
    assert {each.message for each in before} <= {each[0] for each in place.letters()}
    is_back.set()
    until(lambda: not sum(each.stuck for each in running.gauges()))
    running.replay(place.store.letters())
    running.complete()
    place.wait()
    accepted = endpoint.accepted()
    for key in keys:
        taken = accepted[key]
        assert sorted(taken) == ids_of([key], 2)
        # One that was given up is replayed behind what its key had; one that the key waits for is not.
        assert on_exhausted == "dead_letter" or outcome is not DOWN or taken == ids_of([key], 2)
    assert (place.left(), place.letters()) == ([], [])


def test_a_full_spool_makes_no_dead_letters_that_have_no_room(place: Place) -> None:
    is_back = threading.Event()
    endpoint = Endpoint(lambda *_: GOOD if is_back.is_set() else DOWN)
    place.store.dead_letter_bytes = 100
    running = place.start(endpoint, Terms(first=0.01, most=0.05, attempts=1000, bytes=5000, when_full="dead_letter"))
    filling = threading.Thread(target=lambda: [place.put([each], running, b"x" * 1000) for each in ids_of(["a"], 8)])
    filling.start()
    until(lambda: len(place.left()) == 5)
    filling.join(0.3)
    assert filling.is_alive()
    assert place.letters() == []
    is_back.set()
    filling.join(20)
    running.complete()
    place.wait()
    assert endpoint.accepted()["a"] == ids_of(["a"], 8)


def test_a_tenant_that_holds_too_much_ends_nothing_where_dead_letters_have_no_room(place: Place) -> None:
    endpoint = Endpoint(lambda *_: DOWN)
    place.store.dead_letter_bytes = 100
    running = place.start(endpoint, Terms(first=0.01, most=0.05, attempts=1000), owner=Owner("acme", 5000, 8))
    for each in ids_of(["a"], 12):
        place.put([each], running, b"x" * 1000)
    until(lambda: running.gauges()[0].bytes <= 5000)
    assert place.letters() == []
    running.stop()
    running.complete()
    place.wait()
    assert place.left()[-1][0] == "a-0011"
