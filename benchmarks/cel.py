"""The cost of CEL: programs that no index can decide (macros over lists), on the same events, by three runtimes.

```console
python -m benchmarks.cel [--smoke] [--record]
```

An evaluation is one program for one event, and includes the event's conversion: the native runtime reads the JSON text,
cel-python converts the result of `json.loads` to its own types, cel-expr-python makes an activation. Each runtime converts an
event once for all programs, and all must find the same matches. Each figure is the best of several rounds, in which the
runtimes take turns, because other programs can only make a round slower.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import celpy.adapter
from cel_expr_python import cel as google

from benchmarks.measure import WrongMatches, order
from streamer import _native
from streamer.events.layout import EventLayout
from streamer.model import Limits

PROGRAMS = 1_000
EVENTS = 200
#: The slower two see only the first events: enough for a mean.
SEEN_BY_GOOGLE = 20
SEEN_BY_CEL_PYTHON = 2
ROUNDS = 3
RECORDS = Path(__file__).parent / "records"

Runtime = Callable[[bytes], int]
"""Reads an event, and counts the programs that are true of it."""


def programs(count: int) -> list[str]:
    """Return distinct expressions, each with a macro over a list of the event."""
    shapes = (
        "data.items.exists(i, i.sku == 'sku-{n}' && i.quantity > {small})",
        "data.items.all(i, i.price < {large}.5)",
        "data.items.filter(i, i.quantity > {small} && i.price > {n}.0).size() > 1",
        "data.items.map(i, i.price * 2.0).exists(p, p > {n}.25)",
        "data.tags.exists_one(t, t.startsWith('t{small}')) && data.total > {n}.0",
        "data.items.exists(i, i.tags.exists(t, t == 't{small}-{n}')) || data.tags.exists(t, t.endsWith('-{n}'))",
        "!data.items.exists(i, i.quantity == {small}) && data.country in ['DE', 'FR', 'c{n}']",
        "data.items.map(i, i.quantity).filter(q, q % 2 == 0).size() >= {small} && data.total != {n}.0",
    )
    return [shapes[n % len(shapes)].format(n=n, small=n % 7, large=n % 500 + 400) for n in range(count)]


def events(count: int) -> list[bytes]:
    """Return orders of about 1 kB with 4 to 12 items."""
    choose = random.Random(7)

    def tags() -> list[str]:
        return [f"t{choose.randrange(7)}-{choose.randrange(1000)}" for _ in range(3)]

    def item() -> dict[str, Any]:
        price = choose.randrange(100_000) / 100
        return {"sku": f"sku-{choose.randrange(1000)}", "quantity": choose.randrange(10), "price": price + 0.001, "tags": tags()}

    return [
        order(
            n,
            {
                "country": choose.choice(("DE", "FR", "US")),
                "total": choose.randrange(1000) + 0.5,
                "tags": tags(),
                "items": [item() for _ in range(choose.randrange(4, 13))],
            },
        )
        for n in range(count)
    ]


def native(sources: Sequence[str]) -> Runtime:
    """Ours."""
    limits = Limits()
    layout = json.dumps(EventLayout().to_dict()).encode()
    compiled = _native.CelPrograms(
        list(sources),
        layout,
        default_tenant="default",
        max_depth=limits.max_depth,
        max_event_bytes=limits.max_event_bytes,
        max_cel_bytes=limits.max_cel_bytes,
        max_cel_depth=limits.max_cel_depth,
    )
    return lambda event: compiled.count(event, limits.cel_budget)


def cel_python(sources: Sequence[str]) -> Runtime:
    """The pure Python one, by its interpreter: its own compiler (`celpy.CompiledRunner`) fails on some of these programs."""
    environment = celpy.Environment()
    compiled = [environment.program(environment.compile(source)) for source in sources]

    def count(event: bytes) -> int:
        activation = {"data": celpy.adapter.json_to_cel(json.loads(event)["data"])}
        return sum(bool(program.evaluate(activation)) for program in compiled)

    return count


def cel_expr_python(sources: Sequence[str]) -> Runtime:
    """Google's C++ runtime."""
    environment = google.NewEnv(variables={"data": google.Type.Map(google.Type.STRING, google.Type.DYN)})
    compiled = [environment.compile(source) for source in sources]

    def count(event: bytes) -> int:
        activation = environment.Activation({"data": json.loads(event)["data"]})
        return sum(program.eval(activation).value() for program in compiled)

    return count


def measure(count: int, given: Sequence[bytes], seen: dict[str, int]) -> dict[str, float]:
    """Return ns an evaluation for each runtime.

    Raises:
        WrongMatches: two runtimes found different numbers of matches, or nothing.
    """
    sources = programs(count)
    makers: dict[str, Callable[[Sequence[str]], Runtime]] = {
        "native": native,
        "cel-expr-python": cel_expr_python,
        "cel-python": cel_python,
    }
    runtimes = {name: make(sources) for name, make in makers.items()}
    found = {name: [runtime(event) for event in given[: seen[name]]] for name, runtime in runtimes.items()}
    for name, counts in found.items():
        if counts != found["native"][: seen[name]] or not 0 < sum(counts) < count * len(counts):
            raise WrongMatches(f"{name}: {counts} matches, native {found['native'][: seen[name]]}")
    best = dict.fromkeys(runtimes, float("inf"))
    for _ in range(ROUNDS):
        for name, runtime in runtimes.items():
            begun = time.perf_counter()
            for event in given[: seen[name]]:
                runtime(event)
            best[name] = min(best[name], (time.perf_counter() - begun) / seen[name] / count * 1e9)
    return best


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cel", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a little data, to check that it runs: ignore the figures")
    parser.add_argument("--record", action="store_true", help=f"write the figures into {RECORDS.name}/")
    options = parser.parse_args(arguments)
    count, most = (40, 3) if options.smoke else (PROGRAMS, EVENTS)
    given = events(most)
    seen = {
        "native": most,
        "cel-expr-python": min(most, SEEN_BY_GOOGLE),
        "cel-python": min(most, SEEN_BY_CEL_PYTHON),
    }
    nanoseconds = measure(count, given, seen)
    size = sum(map(len, given)) // most
    print(f"{count:,} programs, events of {size:,} bytes, one thread; ns an evaluation, the event's conversion included")
    for name, ns in nanoseconds.items():
        print(f"{name:>16} {ns:>12,.0f}   {ns / nanoseconds['native']:>8,.1f} times native")
    if options.record:
        today = datetime.now(UTC)
        record = {
            "benchmark": "cel",
            "date": today.isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "python": platform.python_version(),
            "programs": count,
            "event_bytes": size,
            "ns_an_evaluation": {name: round(ns) for name, ns in nanoseconds.items()},
        }
        RECORDS.mkdir(exist_ok=True)
        (RECORDS / f"{today:%Y-%m-%d}-cel.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
