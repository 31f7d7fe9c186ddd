"""A service that posts, killed at random moments, or to an endpoint that is down: nothing is lost, and keys keep their order."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from streamer.service.store.opened import look
from tests.service.conftest import KILLS, SUBSCRIPTIONS, event
from tests.service.receiver import Receiver
from tests.tools.records import append_run

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

COUNT, KEYS = 3000, 60
EVENTS = b"".join(event(number % KEYS, seq=number, pad="x" * 300) + b"\n" for number in range(COUNT))


@pytest.fixture
def environment(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_BACKEND", backend)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


def configure(tmp_path: Path, receiver: Receiver, **more: Any) -> list[str]:
    """Return the command that serves from `in.jsonl` to an endpoint."""
    (tmp_path / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    config = {
        "subscriptions": "subs.jsonl",
        "sources": {"orders": {"type": "file", "path": "in.jsonl", "follow": False}},
        "sinks": {"hooks": receiver.sink(batch=5)},
        "delivery": {"retry": {"first": "5ms", "most": "50ms", "attempts": 1000}},
        "service": {"data_dir": "data"},
    }
    (tmp_path / "streamer.yaml").write_text(json.dumps(config | more))
    return [sys.executable, "-m", "streamer", "serve", "-c", str(tmp_path / "streamer.yaml")]


def sequence(message: Any) -> int:
    return int(message["data"]["event"]["seq"])


def check(receiver: Receiver, taken: list[Any]) -> int:
    """Check that all was taken, that what came twice has one id, and that each key is in order; return how many came twice."""
    ids: dict[int, str] = {}
    firsts: dict[str, list[int]] = defaultdict(list)
    for message in taken:
        number = sequence(message)
        if number not in ids:
            firsts[message["partitionkey"]].append(number)
        assert ids.setdefault(number, message["id"]) == message["id"]
    assert sorted(ids) == list(range(COUNT))
    assert len(set(ids.values())) == COUNT
    for numbers in firsts.values():
        assert numbers == sorted(numbers)
    return len(taken) - COUNT


def kill_again_and_again(tmp_path: Path, receiver: Receiver, kills: int) -> tuple[int, int]:
    """Kill a service at random moments, then let it come to its end; return how often it was killed, and what came twice."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    command = configure(tmp_path, receiver)
    (tmp_path / "in.jsonl").write_bytes(EVENTS)
    taken: list[Any] = []
    lock = threading.Lock()
    chance = random.Random(seed)

    def answer(request: Any) -> int:
        with lock:
            if chance.random() < 0.1:
                return 503
            taken.extend(request.messages)
            return 204

    receiver.answer = answer
    killed = 0
    while killed < kills:
        with open(tmp_path / "log", "ab") as log:
            running = subprocess.Popen(command, stderr=log, cwd=tmp_path)
        begun, deadline = (tmp_path / "log").stat().st_size, time.monotonic() + 60
        while (tmp_path / "log").stat().st_size == begun and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.expovariate(1 / 0.1))
        running.send_signal(signal.SIGKILL)
        running.wait()
        if running.returncode == 0:
            break
        killed += 1
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, (seed, done.stderr)
    assert look(tmp_path / "data") == []
    twice = check(receiver, taken)
    # At most what was on its way and not put down when it died: requests at once, and what is gathered for one commit.
    assert twice <= killed * (8 * 5 + 1000 + 500), seed
    return killed, twice


@pytest.mark.slow
def test_a_service_that_posts_and_is_killed_at_random_moments_loses_nothing(
    tmp_path: Path, environment: None, receiver: Receiver
) -> None:
    assert kill_again_and_again(tmp_path, receiver, 2)[0] >= 1


@pytest.mark.integration
def test_a_service_that_posts_and_is_killed_again_and_again_loses_nothing(
    tmp_path: Path, environment: None, receiver: Receiver, backend: str
) -> None:
    """What came of it is a line of tests/records/service.jsonl."""
    killed = runs = twice = 0
    began = time.monotonic()
    while killed < KILLS[backend]:
        place = tmp_path / str(runs)
        place.mkdir()
        more, again = kill_again_and_again(place, receiver, 10)
        killed, runs, twice = killed + more, runs + 1, twice + again
    append_run(
        "file to webhook, of which a tenth of the requests fails, killed at random moments until it was killed 10 times "
        "or came to its end, then run to its end",
        began,
        backend,
        killed=killed,
        runs=runs,
        matches_of_a_run=COUNT,
        lost=0,
        out_of_order=0,
        delivered_twice=twice,
    )


def down_for(tmp_path: Path, receiver: Receiver, seconds: float, rate: int) -> dict[str, Any]:
    """Let an endpoint be down beside a file that is not; return what was seen of it."""
    out = tmp_path / "out.jsonl"
    command = configure(
        tmp_path,
        receiver,
        sources={"orders": {"type": "file", "path": "in.jsonl", "poll": "10ms"}},
        sinks={"hooks": receiver.sink(batch=200, concurrency=4), "out": {"type": "file", "path": "out.jsonl", "event": "none"}},
        routes=[{"gateway": "billing", "sink": "hooks"}, {"gateway": "*", "sink": "out"}],
        delivery={"retry": {"first": "100ms", "most": "1s", "attempts": 1000}},
    )
    is_down = threading.Event()
    is_down.set()
    ids: set[str] = set()
    lock = threading.Lock()

    def answer(request: Any) -> int:
        if is_down.is_set():
            return 503
        with lock:
            ids.update(message["id"] for message in request.messages)
        return 204

    receiver.answer = answer
    (tmp_path / "in.jsonl").write_bytes(b"")
    with open(tmp_path / "log", "ab") as log:
        running = subprocess.Popen(command, stderr=log, cwd=tmp_path)
    try:
        count, most_memory, behind = 0, 0, 0
        began = time.monotonic()
        with open(tmp_path / "in.jsonl", "ab") as file:
            while (passed := time.monotonic() - began) < seconds:
                wanted = int(passed * rate)
                file.write(b"".join(event(each, topic="orders.eu.paid") + b"\n" for each in range(count, wanted)))
                file.flush()
                count = wanted
                status = Path(f"/proc/{running.pid}/status").read_text()
                most_memory = max(most_memory, int(status.partition("VmRSS:")[2].split()[0]) // 1024)
                time.sleep(0.05)

        def written() -> int:
            return out.read_bytes().count(b"\n") if out.exists() else 0

        behind = count - written()
        until = time.monotonic() + 60
        while written() < count:
            assert time.monotonic() < until, (written(), count)
            time.sleep(0.1)
        assert ids == set()
        is_down.clear()
        back = time.monotonic()
        until = back + 600
        while len(ids) < count:
            assert time.monotonic() < until, (len(ids), count)
            assert running.poll() is None
            time.sleep(0.1)
        took = time.monotonic() - back
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
    assert look(tmp_path / "data") == []
    return {
        "matches": count,
        "other_sink_behind": behind,
        "most_memory_mib": most_memory,
        "delivered_in_s": round(took, 1),
    }


@pytest.mark.slow
def test_an_endpoint_that_is_down_lets_another_sink_go_on(tmp_path: Path, environment: None, receiver: Receiver) -> None:
    seen = down_for(tmp_path, receiver, 3, 1000)
    assert seen["matches"] > 1000


@pytest.mark.integration
def test_an_endpoint_that_is_down_for_a_minute_under_load(
    tmp_path: Path, environment: None, receiver: Receiver, backend: str
) -> None:
    """What came of it is a line of tests/records/service.jsonl. The reference matches no 10,000 events a second."""
    rate = 10_000 if backend == "native" else 1_000
    began = time.monotonic()
    seen = down_for(tmp_path, receiver, 60, rate)
    assert seen["most_memory_mib"] < 400
    append_run(f"an endpoint that is down for 60 s at {rate:,} events/s, beside a file", began, backend, **seen, lost=0)


@pytest.mark.slow
def test_a_full_disk_under_the_spool_is_one_clear_error_and_nothing_is_lost(
    tmp_path: Path, environment: None, receiver: Receiver
) -> None:
    command = configure(tmp_path, receiver)
    (tmp_path / "in.jsonl").write_bytes(EVENTS)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000));"
        f" from streamer.cli.main import main; sys.argv = ['streamer', *{command[3:]!r}]; main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert ran.returncode == 4, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "the store cannot be used: " in ran.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check(receiver, receiver.messages)


@pytest.mark.slow
def test_a_signal_leaves_in_the_spool_what_is_not_on_its_way(tmp_path: Path, environment: None, receiver: Receiver) -> None:
    command = configure(tmp_path, receiver, sinks={"hooks": receiver.sink(concurrency=2)})
    (tmp_path / "in.jsonl").write_bytes(EVENTS)
    begun = threading.Event()

    def slow(_: Any) -> int:
        begun.set()
        time.sleep(0.3)
        return 204

    receiver.answer = slow
    with open(tmp_path / "log", "ab") as log:
        running = subprocess.Popen(command, stderr=log, cwd=tmp_path)
    assert begun.wait(60)
    running.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    assert running.wait(60) == 0
    assert time.monotonic() - asked < 8
    assert "messages stay in the spool for the next run" in (tmp_path / "log").read_text()
    receiver.answer = lambda _: 204
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0
    # What had been answered was put down.
    assert check(receiver, receiver.messages) == 0
