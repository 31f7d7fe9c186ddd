"""A service that dies anywhere loses nothing: what it delivers twice has one id, and order is kept."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.store.opened import look
from tests.service.conftest import KILLS, SUBSCRIPTIONS, Make, event, lines
from tests.tools.records import append_run

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

COUNT = 4000
#: So large that there are many batches.
EVENTS = b"".join((event(number, number % 300, pad="x" * 400) if number % 50 else b"{") + b"\n" for number in range(COUNT))
WANTED = [str(number) for number in range(COUNT) if number % 50 and number % 300 > 100]


class Fault(Exception):
    """What a test lets happen."""


def check(directory: Path, *, duplicates: bool = True) -> None:
    """Check that all was delivered, that what came twice has one id, and that what came first is in order."""
    messages = lines(directory / "out.jsonl")
    ids: dict[str, str] = {}
    for each in messages:
        assert ids.setdefault(each["partitionkey"], each["id"]) == each["id"]
    assert list(ids) == WANTED
    assert len(set(ids.values())) == len(WANTED)
    assert duplicates or len(messages) == len(WANTED)
    assert len(look(directory / "data")) == COUNT // 50


def after(count: int, action: Any) -> Any:
    """Do something when a point is passed for the *count*-th time."""
    passed = [0]
    lock = threading.Lock()

    def at_point() -> None:
        with lock:
            passed[0] += 1
            if passed[0] != count:
                return
        action()

    return at_point


def fail() -> None:
    raise Fault


#: Which a run of file to file passes once for each batch, and those that it passes once.
EACH = ("source.read", "pipeline.matched", "pipeline.queued", "sink.written", "sink.flushed", "store.dead", "store.committed")
ONCE = ("source.begin",)


@pytest.mark.parametrize(("point", "count"), [*((each, count) for each in EACH for count in (1, 3)), ("source.begin", 1)])
def test_a_failure_at_any_point_loses_nothing(make: Make, tmp_path: Path, point: str, count: int) -> None:
    (tmp_path / "in.jsonl").write_bytes(EVENTS)
    met = []
    faults.arm(point, after(count, lambda: (met.append(1), fail())))
    try:
        make().run()
    except Fault:
        pass
    faults.disarm()
    # Where sinks are fast, all that waits is one commit: what is passed for each batch may be passed once.
    assert met or count > 1
    make().run()
    check(tmp_path)


CUT = b'{"specversion":"1.0","id":"torn'


def test_a_torn_last_line_is_cut_off_and_a_failure_there_loses_nothing(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(EVENTS)
    (tmp_path / "out.jsonl").write_bytes(CUT)
    faults.arm("sink.cut", fail)
    with pytest.raises(Fault):
        make().run()
    faults.disarm()
    (tmp_path / "out.jsonl").write_bytes(CUT)
    make().run()
    check(tmp_path, duplicates=False)


def test_every_point_is_passed_by_some_test() -> None:
    here = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [point for point in sorted(faults.POINTS) if f'"{point}"' not in here] == []
    with pytest.raises(ValueError, match="unknown point 'nosuch'; there are "):
        faults.arm("nosuch", fail)


def test_every_point_stands_in_the_code_once() -> None:
    package = Path(faults.__file__).parent
    passed = re.findall(r'faults\.point\("([^"]+)"\)', "".join(path.read_text() for path in package.rglob("*.py")))
    assert sorted(passed) == sorted(faults.POINTS)


#: Runs the service in a process of its own, in which nothing can be larger than so many bytes.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
from streamer.cli.main import main
sys.argv = ["streamer", *{arguments!r}]
main()
"""


@pytest.fixture
def arguments(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What follows `streamer` to serve from `in.jsonl` to `out.jsonl`."""
    monkeypatch.setenv("STREAMER_BACKEND", backend)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    (tmp_path / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    (tmp_path / "streamer.yaml").write_text(
        "subscriptions: subs.jsonl\nsources: {orders: {type: file, path: in.jsonl, follow: no}}\n"
        "sinks: {out: {type: file, path: out.jsonl}}\nservice: {data_dir: data}\n"
    )
    return ["serve", "-c", str(tmp_path / "streamer.yaml")]


@pytest.mark.slow
@pytest.mark.parametrize("size", [30_000, 300_000])
def test_a_full_disk_is_one_clear_error_and_nothing_is_lost(tmp_path: Path, arguments: list[str], size: int) -> None:
    """The smaller one is met by the store, the larger by the sink."""
    (tmp_path / "in.jsonl").write_bytes(EVENTS)
    code = LIMITED.format(size=size, arguments=arguments)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 4, ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert re.match(r"\S+Z (ERROR streamer: |INFO )", last), ran.stderr
    assert "Traceback" not in ran.stderr
    assert re.search("File too large|disk is full|disk I/O error", ran.stderr), ran.stderr
    done = subprocess.run(
        [sys.executable, "-m", "streamer", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    check(tmp_path)


def kill_again_and_again(tmp_path: Path, arguments: list[str], kills: int) -> int:
    """Kill a service at random moments until it was killed so often or came to its end; return how often it was."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    command = [sys.executable, "-m", "streamer", *arguments]
    killed = 0
    while killed < kills:
        with open(tmp_path / "log", "ab") as log:
            running = subprocess.Popen(command, stderr=log)
        # From when it is there at the earliest: a start takes much longer than all of its work.
        begun = (tmp_path / "log").stat().st_size
        deadline = time.monotonic() + 60
        while (tmp_path / "log").stat().st_size == begun and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.expovariate(1 / 0.02))
        running.send_signal(signal.SIGKILL)
        running.wait()
        if running.returncode == 0:
            break
        killed += 1
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, (seed, done.stderr)
    check(tmp_path)
    return killed


@pytest.mark.slow
def test_a_service_that_is_killed_at_random_moments_loses_nothing(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "in.jsonl").write_bytes(EVENTS)
    assert kill_again_and_again(tmp_path, arguments, 2) >= 1


@pytest.mark.integration
def test_a_service_that_is_killed_again_and_again_loses_nothing(tmp_path: Path, arguments: list[str], backend: str) -> None:
    """What came of it is a line of tests/records/service.jsonl."""
    killed = runs = twice = 0
    began = time.monotonic()
    while killed < KILLS[backend]:
        for path in (tmp_path / "out.jsonl", tmp_path / "log", *(tmp_path / "data").glob("*")):
            path.unlink(missing_ok=True)
        (tmp_path / "in.jsonl").write_bytes(EVENTS)
        killed += kill_again_and_again(tmp_path, arguments, 10)
        runs += 1
        twice += len(lines(tmp_path / "out.jsonl")) - len(WANTED)
    append_run(
        "file to file, killed at random moments until it was killed 10 times or came to its end, then run to its end",
        began,
        backend,
        killed=killed,
        runs=runs,
        matches_of_a_run=len(WANTED),
        lost=0,
        out_of_order=0,
        delivered_twice=twice,
    )


def test_a_failing_sink_is_named_and_nothing_is_confirmed(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(EVENTS)
    service = make()
    faults.arm("pipeline.queued", after(1, lambda: (tmp_path / "out.jsonl").rename(tmp_path / "gone")))
    (tmp_path / "out.jsonl").write_bytes(b"")
    service.run()
    faults.disarm()
    (tmp_path / "sinks").mkdir()
    with pytest.raises(ServiceError, match=r"sinks\.out: .*: Is a directory"):
        make(sinks={"out": {"type": "file", "path": str(tmp_path / "sinks")}}).run()
