"""The cost of the console: its pages with many subscriptions, and clients that watch events.

```console
python -m benchmarks.console [--smoke | --record]
```

The whole service runs in this process, with subscriptions of a thousand collections, ten gateways and a label. A client requests
one page at a time, as a browser does; its processor time counts as the service's. A page has two figures: its first request, and
the median of the next ones. The benchmark checks that each page has its expected content.

Then the service reads a file while zero, one and ten clients watch the events, in turns. Each client is a process of its own. A
ratio compares the processor time of an event with clients and without.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode

from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from benchmarks.streams import until
from streamer import Config
from streamer.config.loader import Loaded
from streamer.service.run.serve import Service

#: Milliseconds that the first page may take, and any page of the service's processor.
FIRST, EACH = 300, 50
#: Milliseconds in which what somebody types is checked.
CHECKED = 100
#: How much more processor time an event may take while somebody watches.
WATCHED = 1.02
_FORM = re.compile(r'name="form" value="([^"]+)"')
_GATEWAYS, _COLLECTIONS = 10, 1000


@dataclass(frozen=True, slots=True)
class Work:
    """So many subscriptions, pages asked for again, and events read beside those who watch."""

    subscriptions: int
    again: int
    events: int
    turns: int


WORK = Work(subscriptions=1_000_000, again=9, events=300_000, turns=5)
SMOKE = Work(subscriptions=2_000, again=1, events=500, turns=1)
#: Watchers at once.
WATCHERS = (0, 1, 10)
HEADER = "| page | first, ms | then, ms | of the processor, ms | at most | met |\n|---|--:|--:|--:|--:|---|"
WATCHING_HEADER = "| watchers | µs of CPU an event | events/s | CPU, watched ÷ not | at most | met |\n|--:|--:|--:|--:|--:|---|"


def write_subscriptions(path: Path, work: Work) -> None:
    """Write them, each with a gateway, a label and a filter."""
    with open(path, "w") as file:
        for number in range(work.subscriptions):
            told = {
                "id": f"s{number:07}",
                "gateway_id": f"g{number % _GATEWAYS}",
                "collection": f"c{number % _COLLECTIONS}",
                "labels": {"team": f"t{number % 100}"},
                "filters": [{"field": "customer", "op": "==", "value": number}],
            }
            file.write(json.dumps(told) + "\n")


def write_events(path: Path, work: Work) -> None:
    """Append events, one in five of which matches one subscription."""
    with open(path, "a") as file:
        for number in range(work.events):
            customer = number * 7919 % work.subscriptions
            data = {"customer": customer if number % 5 == 0 else -1, "note": "x" * 150}
            told = {"id": number, "collection": f"c{customer % _COLLECTIONS}", "type": "insert", "data": data}
            file.write(json.dumps(told) + "\n")


class Visitor:
    """Asks for pages, as a browser of somebody who needs no sign-in."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._host, self._cookie = f"127.0.0.1:{port}", ""

    def ask(self, path: str, form: dict[str, str] | None = None, body: str | None = None) -> str:
        """Return a page, or an answer of the API."""
        headers = {"Origin": f"http://{self._host}"} | ({"Cookie": self._cookie} if self._cookie else {})
        if form is not None:
            body, headers["Content-Type"] = urlencode(form), "application/x-www-form-urlencoded"
        elif body is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request("GET" if body is None else "POST", path, body, headers)
        reply = self._connection.getresponse()
        text = reply.read().decode()
        if cookie := reply.getheader("set-cookie"):
            self._cookie = cookie.partition(";")[0]
        if reply.status != 200:
            raise WrongMatches(f"{path}: status {reply.status}: {text[:300]}")
        return text

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def value_of_forms(self) -> str:
        """Return what the console wants to see in each form."""
        found = _FORM.search(self.ask("/console/subscription"))
        if found is None:
            raise WrongMatches("a form without its value")
        return found[1]


@contextmanager
def service(folder: Path, work: Work, source: Path) -> Iterator[Service]:
    """Run a service beside its subscriptions."""
    subscriptions = folder / "subscriptions.jsonl"
    write_subscriptions(subscriptions, work)
    source.touch()
    config = {
        "subscriptions": [str(subscriptions)],
        "sources": {"orders": {"type": "file", "path": str(source), "poll": "5ms"}},
        "sinks": {"out": {"type": "file", "path": str(folder / "out.jsonl")}},
        "service": {"data_dir": str(folder / "data")},
        "api": {"port": 0, "quotas": {"requests_a_second": 100_000, "subscriptions": 10_000_000, "streams": 1000}},
    }
    made = Service(lambda: Loaded(Config.from_dict(config)), dev=True)
    running = threading.Thread(target=made.run)
    running.start()
    try:
        until(lambda: made.api_port or not running.is_alive())
        yield made
    finally:
        made.stop()
        running.join()


def pages(work: Work, visitor: Visitor) -> list[tuple[str, float, Callable[[], str], str]]:
    """Return name, limit in milliseconds, how it is asked for, and what it must say."""
    form = visitor.value_of_forms()
    middle = work.subscriptions // 2
    name = f"s{middle:07}"
    event = {"collection": f"c{middle % _COLLECTIONS}", "type": "insert", "data": {"customer": middle}}
    draft = {"collection": "c1", "filters": [{"field": "customer", "op": "==", "value": 1}]}

    def get(path: str, **query: str) -> Callable[[], str]:
        return lambda: visitor.ask(f"/console/{path}?{urlencode(query)}")

    return [
        ("Overview", EACH, get(""), "orders"),
        ("Subscriptions", EACH, get("subscriptions"), "s0000049"),
        ("Subscriptions, by id", EACH, get("subscriptions", prefix=name), name),
        ("Subscriptions, by gateway", EACH, get("subscriptions", gateway="g7"), "s0000007"),
        ("Subscriptions, by collection", EACH, get("subscriptions", collection="c999"), "s0000999"),
        ("Subscriptions, by label", EACH, get("subscriptions", label="team=t42"), "s0000042"),
        ("Subscriptions, by text that is nowhere", EACH, get("subscriptions", text="nowhere"), "Subscriptions"),
        ("One subscription", EACH, get("subscription", id=name), name),
        ("Try, with near misses", EACH, lambda: visitor.ask("/console/try", {"form": form, "event": json.dumps(event)}), name),
        ("Live", EACH, get("live"), "Live"),
        ("Deliveries", EACH, get("deliveries"), "Deliveries"),
        ("Metrics", EACH, get("metrics"), "Metrics"),
        ("Filters", EACH, get("filters"), "Filters"),
        ("Configuration", EACH, get("configuration"), "subscriptions"),
        (
            "A draft, checked as it is typed",
            CHECKED,
            lambda: visitor.ask("/v1/subscriptions:try", body=json.dumps({"text": json.dumps(draft)})),
            '"good"',
        ),
    ]


def measure_pages(work: Work, port: int) -> Iterator[str]:
    """Yield a row for each page. Raises WrongMatches where one does not say what it must."""
    began = time.perf_counter()
    with closing(Visitor(port)) as visitor:
        visitor.ask("/console/")
        first = (time.perf_counter() - began) * 1000
        yield f"| the first of all | {first:.0f} | | | {FIRST} | {_met(first <= FIRST)} |"
        for name, most, ask, must in pages(work, visitor):
            times, cpus = [], []
            for _ in range(work.again + 1):
                began, cpu = time.perf_counter(), time.process_time()
                text = ask()
                times.append((time.perf_counter() - began) * 1000)
                cpus.append((time.process_time() - cpu) * 1000)
                if must not in text:
                    raise WrongMatches(f"{name}: the page lacks {must!r}")
            cost = median(cpus[1:])
            row = f"{times[0]:.1f} | {median(times[1:]):.1f} | {cost:.1f} | {most} | {_met(cost <= most)}"
            yield f"| {name} | {row} |"


def watch(port: int, count: int, open_: Any, seen: Any) -> None:
    """Watch events as they come, so many times at once; the process of those who watch."""
    watching = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]

    def read(connected: socket.socket) -> None:
        while data := connected.recv(65_536):
            with seen.get_lock():
                seen.value += data.count(b"\ndata: ")

    # One after the other: a token has few requests at once, and a stream is one until it begins.
    for each in watching:
        each.sendall(b"GET /v1/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        if not (data := each.recv(65_536)).startswith(b"HTTP/1.1 200"):
            raise WrongMatches(data[:300].decode("ascii", "replace"))
        open_.value += 1
        threading.Thread(target=read, args=(each,), daemon=True).start()
    threading.Event().wait()


def measure_watching(work: Work, running: Service, port: int, source: Path, out: Path) -> Iterator[str]:
    """Yield a row for each number of watchers. Raises WrongMatches where matches are missing, or nothing is seen."""
    spawn = multiprocessing.get_context("spawn")
    costs: dict[int, list[tuple[float, float]]] = {count: [] for count in WATCHERS}
    written = 0
    for _ in range(work.turns):
        for count in WATCHERS:
            open_, seen = spawn.Value("i", 0), spawn.Value("q", 0)
            watching = spawn.Process(target=watch, args=(port, count, open_, seen), daemon=True)
            if count:
                watching.start()
                until(lambda open_=open_, count=count: open_.value == count)
            written += len(range(0, work.events, 5))
            # The events are there before the clock runs, so that who writes them is not counted.
            events = source.with_name("next")
            events.unlink(missing_ok=True)
            write_events(events, work)
            text = events.read_bytes()
            began, cpu = time.perf_counter(), time.process_time()
            with open(source, "ab") as file:
                file.write(text)
            until(lambda wanted=written: running.counts.totals()["matches_delivered"] >= wanted)
            costs[count].append(((time.process_time() - cpu) / work.events * 1e6, work.events / (time.perf_counter() - began)))
            if count:
                # A fast run may be over before one of its events is shown.
                until(lambda seen=seen: seen.value or _another(source))
                watching.terminate()
                watching.join()
    with open(out, "rb") as lines:
        found = sum(1 for _ in lines)
    if found != written:
        raise WrongMatches(f"{found} matches of {written}")
    for count in WATCHERS:
        micros, rate = (median(each) for each in zip(*costs[count], strict=True))
        ratio = median(mine / none for (mine, _), (none, _) in zip(costs[count], costs[0], strict=True))
        limit = f"{ratio:.3f} | {WATCHED} | {_met(ratio <= WATCHED)}" if count else "| |"
        yield f"| {count} | {micros:.2f} | {rate:,.0f} | {limit} |"


def _another(source: Path) -> bool:
    """Append an event that nobody wants; there is nothing to be seen yet."""
    with open(source, "a") as file:
        file.write('{"id": -1, "collection": "c1", "type": "insert", "data": {"customer": -1}}\n')
    return False


def _met(is_met: bool) -> str:
    return "yes" if is_met else "no"


def _memory() -> float:
    """Return the memory that this process holds, in MiB."""
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def main(arguments: list[str] | None = None) -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a little data, to check that it runs: ignore the figures")
    parser.add_argument("--record", action="store_true", help="write a dated record")
    options = parser.parse_args(arguments)
    work = SMOKE if options.smoke else WORK
    rows: list[str] = []

    def say(row: str) -> None:
        rows.append(row)
        print(row, flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "events.jsonl"
        try:
            with service(folder, work, source) as running:
                port = running.api_port
                if port is None:
                    sys.exit("the service did not start: see its log above")
                say(f"{work.subscriptions:,} subscriptions, {_memory():,.0f} MiB of memory.\n")
                say(HEADER)
                for row in measure_pages(work, port):
                    say(row)
                say("")
                say(WATCHING_HEADER)
                for row in measure_watching(work, running, port, source, folder / "out.jsonl"):
                    say(row)
        except WrongMatches as wrong:
            sys.exit(f"wrong: {wrong}")
    if options.record:
        about = "The pages of the console, and clients that watch events, with the whole service in one process."
        print(Record("console", machine(), about).write(rows))


if __name__ == "__main__":
    main()
