"""The waits of others while `streamer serve` imports subscriptions of one tenant.

```console
python -m benchmarks.service --import [--smoke | --record]
```

Two threads send one request, or one event, every 50 ms: a PUT of another tenant's subscription, from the request to its answer,
and a line of the source, from its write to its match in the sink. They do so before the import, and during it. A wait longer than
50 ms also counts for the requests that would have been sent meanwhile, each 50 ms later, so that one long wait is not one sample.
"""

from __future__ import annotations

import http.client
import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.restart import started, texts

HEADER = "| while | waits of | samples | p50 | p99 | longest | goal for p99 |\n|---|---|--:|--:|--:|--:|--:|"
_PAUSE = 0.05
_QUIET = 5.0
_LINES = {"Content-Type": "application/x-ndjson"}


def measure(count: int) -> Iterator[str]:
    """Yield the rows of the report."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "in.jsonl").touch()
        config = {
            "service": {"data_dir": "data"},
            "sources": {"in": {"type": "file", "path": "in.jsonl", "poll": "10ms"}},
            "sinks": {"out": {"type": "file", "path": "out.jsonl"}},
            "api": {"port": 0, "quotas": {"requests_a_second": 1000, "subscriptions": 1_000_000}},
        }
        (place / "streamer.yaml").write_text(json.dumps(config))
        with started(place, 3600) as service:
            (port,) = re.findall(r"api: http://[0-9.]+:(\d+)", service.wait("started: "))
            client = Client(int(port))
            client.send("PUT", "/v1/subscriptions/probe?tenant=other", b'{"collection": "probe"}')
            with probing(client, place) as waits:
                time.sleep(_QUIET if count > 1000 else 0.5)
            yield from rows("idle", waits, "")
            lines = b"\n".join(json.dumps(members).encode() for _, members in texts(count))
            with probing(client, place) as waits:
                began = time.monotonic()
                client.send("POST", "/v1/subscriptions:import?tenant=large", lines, _LINES)
                taken = time.monotonic() - began
            yield from rows(f"an import of {count:,}, {taken:.1f} s", waits, "0.2 s")


class Client:
    """Sends requests, each on a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def send(self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a request, and read its answer. Raises RuntimeError if it is refused."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request(method, path, body, headers or {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")


@contextmanager
def probing(client: Client, place: Path) -> Iterator[dict[str, list[float]]]:
    """Measure the waits of PUTs and of events, in seconds, until the context ends."""
    waits: dict[str, list[float]] = {"PUT": [], "event": []}
    is_over = threading.Event()

    def put() -> None:
        body = json.dumps({"collection": "c", "filters": [{"field": "a", "op": "==", "value": time.time()}]}).encode()
        client.send("PUT", "/v1/subscriptions/changing?tenant=other", body)

    def event() -> None:
        out = place / "out.jsonl"
        size = out.stat().st_size if out.exists() else 0
        with open(place / "in.jsonl", "ab") as source:
            source.write(b'{"collection": "probe", "type": "insert", "tenant": "other", "data": {"a": 1}}\n')
        while not out.exists() or out.stat().st_size == size:
            time.sleep(0.002)

    def probe(name: str, each: Callable[[], None]) -> None:
        while not is_over.is_set():
            began = time.monotonic()
            each()
            waits[name].append(time.monotonic() - began)
            time.sleep(_PAUSE)

    threads = [threading.Thread(target=probe, args=each) for each in (("PUT", put), ("event", event))]
    for thread in threads:
        thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def rows(name: str, waits: dict[str, list[float]], goal: str) -> Iterator[str]:
    """Yield a row for each kind of wait."""
    for kind, measured in waits.items():
        several = sorted(wait - missed * _PAUSE for wait in measured for missed in range(1 + int(wait / _PAUSE)))
        p50, p99, longest = (f"{several[int(share * (len(several) - 1))]:.3f} s" for share in (0.5, 0.99, 1))
        yield f"| {name} | {kind} | {len(several)} | {p50} | {p99} | {longest} | {goal} |"
