"""What a service logs: each line is JSON or has a time, requests have ids, and secrets do not appear."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from streamer.service.api import tokens
from tests.cli.conftest import place  # noqa: F401  # fixture
from tests.service.api import running, until
from tests.service.conftest import SUBSCRIPTIONS, event
from tests.service.receiver import Receiver

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
SECRET = "whsec_c2VjcmV0LW9mLXRoZS13ZWJob29rLXNpZ25pbmc="


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_run_of_a_service_is_logged_line_by_line_without_a_secret(
    place: Path,  # noqa: F811
    form: str,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bad record, requests, a receiver that wants no more, a reload that is refused: at the lowest level."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv("STREAMER_LOGGING__FORMAT", form)
    receiver.answer = lambda _: 410
    (place / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    (place / "in.jsonl").write_bytes(event(1) + b'\n{"hidden-value\n' + b'{"hidden-value\n' * 20)
    token = tokens.create(place / "tokens.json", None, ("read", "write", "admin"))[1]
    config: dict[str, Any] = {
        "subscriptions": "subs.jsonl",
        "sources": {"orders": {"type": "file", "path": "in.jsonl", "poll": "10ms"}},
        "sinks": {"hook": receiver.sink(secret={"env": "HOOK_SECRET"})},
        "service": {"data_dir": "data"},
        "api": {"port": 0, "tokens": {"file": "tokens.json"}},
        "logging": {"level": "debug"},
    }
    (place / "streamer.yaml").write_text(json.dumps(config))
    log = place / "log"
    with open(log, "wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "streamer", "serve", "-c", "streamer.yaml"], cwd=place, stderr=file)
    try:
        port = int(until(lambda: re.findall(r"api: http://127\.0\.0\.1:(\d+)", log.read_text()))[0])
        until(lambda: "started: " in log.read_text() and "is disabled" in log.read_text() and "was rejected" in log.read_text())

        def ask(path: str) -> int:
            connection = HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "X-Request-Id": "asked-1"})
            reply = connection.getresponse()
            assert reply.getheader("x-request-id") == "asked-1"
            connection.close()
            return reply.status

        until(lambda: ask("/readyz") == 200)
        assert ask("/v1/subscriptions?prefix=hidden-value") == 200
        assert ask("/v1/nosuch/hidden-value") == 404
        (place / "streamer.yaml").write_text("sinks: [\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: "reload: refused, without any change" in log.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
    text = log.read_bytes()
    for hidden in (SECRET, SECRET[6:], token, "hidden-value", "token=hidden"):
        assert hidden.encode() not in text
    lines = text.decode().splitlines()
    rejected, asked = r"sources\.orders: the record at \S+ \d+ was rejected: malformed_json", r"GET /v1/subscriptions 200 "
    if form == "text":
        assert all(re.match(TIME + r" (DEBUG|INFO|WARNING|ERROR) [\w.]+: \S", line) for line in lines), text
        assert any(re.search(rejected, line) for line in lines)
        assert any(re.search(asked + ".* request_id=asked-1$", line) for line in lines)
        return
    told = [json.loads(line) for line in lines]
    for each in told:
        assert re.fullmatch(TIME, each["time"])
        assert list(each)[:4] == ["time", "level", "logger", "event"]
    (first, *_) = [each for each in told if re.match(rejected, each["event"])]
    assert (first["source"], first["code"], first["level"]) == ("orders", "malformed_json", "warning")
    assert (first["count"], first["reason"]) == (21, "malformed_json at byte 14")
    assert first["offset"] > len(event(1))
    assert "and 20 more in the last 10 s" in first["event"]
    (request,) = [each for each in told if re.match(asked, each["event"])]
    assert {name: request[name] for name in ("request_id", "method", "route", "status")} == {
        "request_id": "asked-1",
        "method": "GET",
        "route": "/v1/subscriptions",
        "status": 200,
    }
    assert any(each.get("sink") == "hook" and "is disabled" in each["event"] for each in told)


def test_an_id_of_a_request_is_taken_if_it_is_one_word_else_made(tmp_path: Path, backend: str) -> None:
    with running(tmp_path) as api:
        for good in ("a", "Root=1-67891233-abcdef012345678912345678", "4bf92f35-77b3:4da6/a+b@c~", "x" * 128):
            assert api.ask("GET", "/healthz", headers={"X-Request-Id": good}).headers["x-request-id"] == good
        made = set()
        for bad in ("a b", 'a"', "a\tb", "x" * 129, "ü", "", "a,b"):
            made.add(api.ask("GET", "/healthz", headers={"X-Request-Id": bad}).headers["x-request-id"])
        twice = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\r\nX-Request-Id: b\r\nConnection: close\r\n\r\n"
        made.add(re.findall(r"x-request-id: (\S+)", api.raw(twice).decode())[0])
        assert len(made) == 8
        assert all(re.fullmatch("[0-9a-f]{16}", each) for each in made)


def test_a_problem_has_the_id_and_so_has_each_line_about_its_request(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from streamer import logs

    seen: list[tuple[str, str | None]] = []

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((record.getMessage(), logs.field("request_id")))

    def broken(*_: object) -> None:
        logging.getLogger("streamer.service").warning("in the thread of a handler")
        raise RuntimeError("hidden-value")

    noted = Noted()
    logging.getLogger("streamer").addHandler(noted)
    try:
        with running(tmp_path) as api:
            unknown = api.ask("GET", "/v1/subscriptions/none", headers={"X-Request-Id": "one"})
            assert (unknown.kind, unknown.json["request_id"]) == ("unknown", "one")
            assert api.ask("GET", "/v1/subscriptions/none").json["request_id"] not in ("one", "")
            monkeypatch.setattr(api.service.subscriptions, "get", broken)
            defect = api.ask("GET", "/v1/subscriptions/none", headers={"X-Request-Id": "two"})
            assert (defect.kind, defect.json["request_id"]) == ("internal", "two")
            # An answer in pieces, a page, and the requests that the page makes are of one request each.
            for path in ("/v1/subscriptions:export", "/console/sign-in"):
                reply = api.ask("GET", path, headers={"X-Request-Id": "three"})
                assert (reply.status, reply.headers["x-request-id"]) == (200, "three")
    finally:
        logging.getLogger("streamer").removeHandler(noted)
    assert ("in the thread of a handler", "two") in seen
    assert ("a request ended in RuntimeError", "two") in seen
    assert ("there are no subscriptions, so no event matches", None) in seen
    assert "hidden-value" not in caplog.text
