"""While a service loads its subscriptions it can be asked, says how far it is, and can be ended."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine
from streamer.service.api import tokens
from streamer.service.store.ids import claimed
from streamer.service.store.store import Store
from streamer.service.tenants.subscriptions import Subscriptions
from tests.cli.conftest import place  # noqa: F401  # fixture
from tests.service.api import Reply, until
from tests.service.conftest import event, so_far

#: Loads two subscriptions, and the next one once there is a file `go`.
SLOW = """
import pathlib, sys, time
from streamer.cli.main import main
from streamer.service.tenants import loading, subscription_files, subscriptions

def held_up(module, name):
    before, seen = getattr(module, name), []

    def slow(*arguments):
        seen.append(1)
        while len(seen) == 3 and not pathlib.Path("go").exists():
            time.sleep(0.01)
        return before(*arguments)

    setattr(module, name, slow)

held_up(subscriptions, "stored")
held_up(subscription_files, "written")
loading._TELL = 0.2
main()
"""
CONFIG: dict[str, Any] = {
    "sources": {"orders": {"type": "file", "path": "in.jsonl", "poll": "10ms"}},
    "sinks": {"out": {"type": "file", "path": "out.jsonl"}},
    "service": {"data_dir": "data"},
    "api": {"port": 0, "tokens": {"file": "tokens.json"}},
    "logging": {"format": "json"},
}


class Slow:
    """A service that has loaded two of five subscriptions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.token = tokens.create(directory / "tokens.json", "default", ("read", "write"))[1]
        with open(directory / "log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SLOW, "serve", "-c", "streamer.yaml"], cwd=directory, stderr=log
            )
        self.port = int(until(lambda: re.findall(r"api: http://127\.0\.0\.1:(\d+)", self.log()))[0])

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.log().splitlines()]

    def go(self) -> None:
        (self.directory / "go").touch()

    def ask(self, method: str, path: str, connection: HTTPConnection | None = None, **headers: str) -> Reply:
        """Send a request, on a connection that stays or on one of its own."""
        asked = connection or HTTPConnection("127.0.0.1", self.port, timeout=30)
        asked.request(method, path, headers={"Authorization": f"Bearer {self.token}", **headers})
        reply = asked.getresponse()
        told = Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        if connection is None:
            asked.close()
        return told


Start = Callable[[str], Slow]


@pytest.fixture
def start(place: Path) -> Iterator[Start]:  # noqa: F811
    """Start a service whose subscriptions come from its `store`, or from `files`."""
    started: list[Slow] = []

    def start(where: str) -> Slow:
        texts = [json.dumps({"id": f"s{number}"}).encode() for number in range(5)]
        config = dict(CONFIG)
        if where == "files":
            (place / "subs.jsonl").write_bytes(b"\n".join(texts))
            config["subscriptions"] = "subs.jsonl"
        else:
            store = Store(place / "data")
            held = Subscriptions(Engine(), store)
            assert all(result.error is None for result in held.put_many("default", [claimed(text, "default") for text in texts]))
            held.close()
            store.close()
        (place / "in.jsonl").write_bytes(event(1) + b"\n")
        (place / "streamer.yaml").write_text(json.dumps(config))
        started.append(Slow(place))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.mark.parametrize("where", ["store", "files"])
def test_it_answers_while_it_loads_and_reads_its_sources_afterwards(start: Start, where: str) -> None:
    service = start(where)
    known = {"store": {"loaded": 2, "total": 5}, "files": {"loaded": 0, "total": 2}}[where]
    ready = until(lambda: (told := service.ask("GET", "/readyz")).json["subscriptions"] == known and told)
    assert (ready.status, ready.json["status"], ready.json["reason"]) == (503, "loading", "loading")
    assert ready.json.keys() == {"status", "reason", "subscriptions", "seconds"}
    assert ready.json["seconds"] >= 0
    kept = HTTPConnection("127.0.0.1", service.port, timeout=30)
    health = service.ask("GET", "/healthz", kept)
    assert (health.status, health.json) == (200, {"status": "alive"})
    assert service.ask("HEAD", "/readyz").status == 503
    others = (
        "GET /v1/subscriptions",
        "PUT /v1/subscriptions/a",
        "POST /v1/match",
        "GET /metrics",
        "GET /console/",
        "POST /readyz",
    )
    for other in others:
        method, path = other.split()
        refused = service.ask(method, path)
        assert (refused.status, refused.kind, refused.headers["retry-after"]) == (503, "loading", "5"), other
    # What a browser may not do later it may not do now.
    assert service.ask("GET", "/healthz", Host="evil.example").kind == "host"
    told = f"loading: {known['loaded']} of {known['total']} subscriptions after "
    until(lambda: len([each for each in service.events() if each.startswith(told)]) >= 2)
    assert so_far(service.directory / "out.jsonl") == []
    service.process.send_signal(signal.SIGHUP)
    service.go()
    until(lambda: service.ask("GET", "/readyz").json == {"status": "ready"})
    listed = service.ask("GET", "/v1/subscriptions", kept)
    assert [each["id"] for each in listed.json["items"]] == ["s0", "s1", "s2", "s3", "s4"]
    kept.close()
    until(lambda: len(so_far(service.directory / "out.jsonl")) == 5)
    # A reload that was asked for meanwhile comes afterwards.
    until(lambda: any(each.startswith("reload: 0 subscriptions changed") for each in service.events()))
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_while_it_loads_and_the_next_run_has_all(start: Start, number: signal.Signals) -> None:
    service = start("store")
    until(lambda: service.ask("GET", "/readyz").json["subscriptions"]["loaded"] == 2)
    service.process.send_signal(number)
    assert service.process.wait(10) == 0
    assert service.events()[-1] == f"{number.name}: ended before it had started"
    assert "Traceback" not in service.log()
    assert not (service.directory / "out.jsonl").exists()
    service.go()
    again = Slow(service.directory)
    try:
        until(lambda: len(so_far(again.directory / "out.jsonl")) == 5)
        again.process.send_signal(number)
        assert again.process.wait(60) == 0
    finally:
        again.process.kill()


def test_bad_subscriptions_end_it_with_each_of_them_in_the_log(start: Start, place: Path) -> None:  # noqa: F811
    service = start("files")
    service.process.kill()
    service.process.wait()
    (place / "subs.jsonl").write_bytes(b'{"id": "a"}\n{"id": "b", "cel": "1 +"}\n{"id": "c", "cel": "("}\n')
    service.go()
    again = Slow(place)
    assert again.process.wait(60) == 2
    errors = [told for line in again.log().splitlines() if (told := json.loads(line))["level"] == "error"]
    assert [told["event"].partition(": cel: ")[0] for told in errors] == [
        "subs.jsonl:2: subscription 'b'",
        "subs.jsonl:3: subscription 'c'",
    ]
    assert {told["logger"] for told in errors} == {"streamer"}
