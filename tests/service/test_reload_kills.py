"""A service that is killed in the midst of a reload is under one configuration or the other when it is started again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import KILLS, event
from tests.tools.records import append_run

pytestmark = pytest.mark.later_on_the_reference

#: Runs the service, which kills itself so long after it has passed a point of a reload for the first time.
KILLED = """
import os, signal, sys, threading
from streamer.cli.main import main
from streamer.service import faults
after, point = float(sys.argv.pop(1)), sys.argv.pop(1)
faults.arm(point, lambda: threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start())
main()
"""


def configure(place: Path, name: str) -> None:
    """Put one of two configurations in place: its sink and subscriptions, how a source is read, and of `b` a source more."""
    source = {"type": "file", "path": str(place / "in.jsonl"), "poll": "5ms" if name == "a" else "6ms"}
    other = {"type": "file", "path": str(place / "in-2.jsonl"), "poll": "5ms"}
    config = {
        "subscriptions": [str(place / f"{name}.subs")],
        "sources": {"orders": source, **({"other": other} if name == "b" else {})},
        "sinks": {f"out_{name}": {"type": "file", "path": str(place / f"{name}.jsonl")}},
        "service": {"data_dir": str(place / "data")},
    }
    (place / "new.yaml").write_text(json.dumps(config))
    (place / "new.yaml").rename(place / "streamer.yaml")


class Seen:
    """What the two sinks were given."""

    def __init__(self, place: Path) -> None:
        self.events: set[tuple[str, int]] = set()
        self.messages = 0
        for name in "ab":
            last: dict[str, int] = {}
            ids: dict[tuple[str, int], str] = {}
            path = place / f"{name}.jsonl"
            for line in path.read_bytes().splitlines() if path.exists() else ():
                try:
                    message = json.loads(line)
                except ValueError:
                    continue  # it is being written
                assert (message["subject"], message["data"]["labels"]) == (name, {"of": name}), "matched under the other one"
                at = source, number = message["source"], int(message["partitionkey"])
                assert ids.setdefault(at, message["id"]) == message["id"]
                if at not in self.events:
                    assert last.get(source, -1) < number, "out of order"
                    last[source] = number
                self.events.add(at)
                self.messages += 1


def kill_amid_reloads(place: Path, kills: int, backend: str) -> dict[str, int]:
    """Have a service reload while events come, and kill itself at a random moment of that; return what came of it."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    log, written = place / "log", {"in": 0, "in-2": 0}
    for name in "ab":
        (place / f"{name}.subs").write_text(json.dumps({"id": name, "labels": {"of": name}}) + "\n")
    for path in (log, place / "in.jsonl", place / "in-2.jsonl"):
        path.touch()

    def write(count: int) -> None:
        for name, first in written.items():
            with open(place / f"{name}.jsonl", "ab", buffering=0) as file:
                file.write(b"".join(event(number) + b"\n" for number in range(first, first + count)))
            written[name] += count

    def start(*command: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "STREAMER_BACKEND": backend, "PYTHONPATH": path}
        begun = log.stat().st_size
        with open(log, "ab") as file:
            running = subprocess.Popen([sys.executable, *command], stderr=file, env=environment)
        deadline = time.monotonic() + 60
        while b"started" not in log.read_bytes()[begun:]:
            assert running.poll() is None and time.monotonic() < deadline, (seed, log.read_text()[-3000:])  # noqa: PT018
            time.sleep(0.005)
        return running

    serve = ("serve", "-c", str(place / "streamer.yaml"))
    for killed in range(kills):
        configure(place, "ab"[killed % 2])
        write(200)
        point = rng.choice(("reload.checked", "reload.paused"))
        running = start("-c", KILLED, str(rng.expovariate(1 / 0.01)), point, *serve)
        configure(place, "ba"[killed % 2])
        running.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while running.poll() is None:
            assert time.monotonic() < deadline, (seed, log.read_text()[-3000:])
            write(5)
            time.sleep(0.001)
        assert running.returncode == -signal.SIGKILL, (seed, log.read_text()[-3000:])
    configure(place, "b")
    running = start("-m", "streamer", *serve)
    deadline = time.monotonic() + 60
    wanted = {(f"/streamer/{name}", at) for name, file in (("orders", "in"), ("other", "in-2")) for at in range(written[file])}
    while (seen := Seen(place)).events != wanted:
        assert time.monotonic() < deadline, (seed, log.read_text()[-3000:])
        time.sleep(0.2)
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0, (seed, log.read_text()[-3000:])
    return {"killed": kills, "events": len(wanted), "delivered_twice": seen.messages - len(wanted)}


@pytest.mark.slow
def test_a_service_that_is_killed_amid_a_reload_loses_nothing(tmp_path: Path, backend: str) -> None:
    assert kill_amid_reloads(tmp_path, 2, backend)["killed"] == 2


@pytest.mark.integration
def test_a_service_that_is_killed_amid_many_reloads_loses_nothing(tmp_path: Path, backend: str) -> None:
    """What came of it is a line of tests/records/service.jsonl."""
    began = time.monotonic()
    counts: dict[str, Any] = kill_amid_reloads(tmp_path, KILLS[backend], backend)
    what = "file to file, killed at random moments of a reload that changes sources, sinks and subscriptions while events come"
    append_run(what, began, backend, **counts, lost=0, out_of_order=0)
