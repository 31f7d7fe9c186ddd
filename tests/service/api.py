"""A service with its API on a port, and a client of it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from streamer import Config
from streamer.config.loader import Loaded
from streamer.service.api import tokens
from streamer.service.run.serve import Service
from tests.service.conftest import event, so_far


@dataclass(frozen=True)
class Reply:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def kind(self) -> str:
        """The kind of a problem, which has its status and media type."""
        assert self.headers["content-type"] == "application/problem+json", (self.status, self.body)
        assert self.json["status"] == self.status
        return str(self.json["type"]).removeprefix("urn:streamer:problem:")


@dataclass
class Api:
    """The API of a running service.

    Attributes:
        directory: where its files are: `in.jsonl`, which it follows, `out.jsonl`, `data`, `tokens.json`.
        token: what requests carry where they do not say.
        config: what the next reload reads.
    """

    port: int
    directory: Path
    service: Service
    token: str
    config: dict[str, Any]

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send a request; a body that is no bytes is sent as JSON."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            sent = {"Authorization": f"Bearer {self.token if token is None else token}"}
            if body is not None and not isinstance(body, bytes):
                body, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
            sent |= headers or {}
            connection.request(method, path, body, {name: value for name, value in sent.items() if value})
            reply = connection.getresponse()
            told = {name.lower(): value for name, value in reply.getheaders()}
            # A stream of events has no end.
            is_endless = told.get("content-type", "").startswith("text/event-stream")
            return Reply(reply.status, told, b"" if is_endless else reply.read())
        finally:
            connection.close()

    def raw(self, sent: bytes, *, wait: float = 30) -> bytes:
        """Send bytes, and return all that comes until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            connection.sendall(sent)
            found = b""
            while piece := connection.recv(65_536):
                found += piece
            return found

    def make_token(self, tenant: str | None, *scopes: tokens.Scope) -> str:
        """Make a token, which the service knows at once."""
        return tokens.create(self.directory / "tokens.json", tenant, scopes)[1]

    def read(self, *events: bytes) -> None:
        """Let the source read events, and wait until they are confirmed."""
        before = self.counts()["events_read"]
        with open(self.directory / "in.jsonl", "ab") as file:
            file.write(b"".join(each + b"\n" for each in events))
        until(lambda: self.counts()["events_read"] >= before + len(events) and not self.counts()["matches_pending"])

    @property
    def door(self) -> Any:
        """The connections of the server."""
        assert self.service.api is not None
        return self.service.api.door

    def counts(self) -> dict[str, int]:
        return self.service.counts.totals()

    def delivered(self) -> list[str]:
        """Return the ids of the subscriptions of all matches."""
        return [each["subject"] for each in so_far(self.directory / "out.jsonl")]


def until(told: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not (found := told()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@contextmanager
def running(
    directory: Path, *, dev: bool = False, sign_in: Callable[[str], None] | None = None, **sections: Any
) -> Iterator[Api]:
    """Run a service in this process until the block ends."""
    (directory / "in.jsonl").touch()
    _, token = tokens.create(directory / "tokens.json", "acme", ("read", "write"))
    config: dict[str, Any] = {
        "sources": {"orders": {"type": "file", "path": str(directory / "in.jsonl"), "poll": "5ms"}},
        "sinks": {"out": {"type": "file", "path": str(directory / "out.jsonl")}},
        "service": {"data_dir": str(directory / "data")},
    }
    config |= sections
    config["api"] = {"port": 0, "tokens": {"file": str(directory / "tokens.json")}, **config.get("api", {})}
    service = Service(lambda: Loaded(Config.from_dict(config)), dev=dev, sign_in=sign_in)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            service.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="service", daemon=True)
    thread.start()
    until(lambda: service.api_port or failed)
    if failed:
        raise failed[0]
    try:
        yield Api(service.api_port or 0, directory, service, token, config)
    finally:
        service.stop()
        thread.join(30)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


BIG = {"collection": "orders", "gateway_id": "billing", "filters": [{"field": "amount", "op": ">", "value": 100}]}
LINES = {"Content-Type": "application/x-ndjson"}


def order(number: int = 1, amount: int = 250, tenant: str = "acme", **more: Any) -> bytes:
    """Return an event of a tenant that `BIG` matches, unless its amount is small."""
    return event(number, amount, tenant=tenant, **more)
