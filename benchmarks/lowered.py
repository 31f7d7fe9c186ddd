"""The cost of subscriptions in CEL and of the same ones as filters: an event, and adding them; and the time to compile CEL.

```console
python -m benchmarks.lowered [--smoke | --record]
```

The two engines take turns, round by round, and must find the same matches. The ratio is the median of the ratios of the rounds.
The benchmark fails unless `plan` shows for each subscription in CEL that the index decides all of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import streamer
from benchmarks.measure import WrongMatches, order
from benchmarks.records import report
from streamer import _backend, _native
from streamer.model import Limits

ROUNDS = 15
SUBSCRIPTIONS, EVENTS = 100_000, 2_000
ABOUT = "Best of the rounds for each engine; the ratio is the median of the rounds' ratios. From Python, `match_ids`, one thread."


def as_filters(n: int) -> dict[str, Any]:
    """Return a subscription as filters."""
    filters = [
        {"field": "customer", "op": "==", "value": n},
        {"field": "amount", "op": ">", "value": n % 100},
        {"field": "country", "op": "in", "value": ["DE", f"C{n % 50}"]},
        {"field": "name", "op": "starts_with", "value": f"n{n % 7}"},
    ]
    return {"id": f"s{n}", "collection": "orders", "filters": filters}


def as_cel(n: int) -> dict[str, Any]:
    """Return the same subscription as an expression."""
    parts = (
        f"data.customer == {n}",
        f"data.amount > {n % 100}",
        f"data.country in ['DE', 'C{n % 50}']",
        f"data.name.startsWith('n{n % 7}')",
    )
    return {"id": f"s{n}", "collection": "orders", "cel": " && ".join(parts)}


def events(count: int, customers: int) -> list[bytes]:
    """Return orders, each of a customer that one subscription is for; about every second one matches it."""
    return [
        order(
            n,
            {
                "customer": (customer := n * 7919 % customers),
                "amount": 50 + n % 100,
                "country": "DE" if n % 2 else f"C{customer % 50}",
                "name": f"n{customer % 7}-{n}",
            },
        )
        for n in range(count)
    ]


def compare(subscriptions: int, given: Sequence[bytes], rounds: int) -> dict[str, tuple[float, float]]:
    """Return for filters and for CEL: best ns an event, and subscriptions added a second; and the ratio of the two.

    Raises:
        WrongMatches: the two found different matches, or none, or CEL is not decided by the index.
    """
    engines, added = [], []
    for make in (as_filters, as_cel):
        engine, texts = streamer.Engine(), [json.dumps(make(n)) for n in range(subscriptions)]
        began = time.perf_counter()
        engine.add_many(texts)
        added.append(subscriptions / (time.perf_counter() - began))
        engines.append(engine)
    filters, cel = ([sorted(engine.match_ids(event)) for event in given] for engine in engines)
    found = sum(map(len, filters))
    if filters != cel or not 0 < found <= len(given):
        raise WrongMatches(f"{found} and {sum(map(len, cel))} matches")
    if _backend.BACKEND == "native" and engines[1].plan("s0").cel is not None:
        raise WrongMatches(f"not lowered: {engines[1].plan('s0')}")

    def run(engine: streamer.Engine) -> float:
        count, began = engine.match_count, time.perf_counter()
        for event in given:
            count(event)
        return time.perf_counter() - began

    seconds = [(run(engines[0]), run(engines[1])) for _ in range(rounds)]
    best = [min(each) * 1e9 / len(given) for each in zip(*seconds, strict=True)]
    ratio = median(two / one for one, two in seconds)
    return {"filters": (best[0], added[0]), "CEL": (best[1], added[1]), "ratio": (ratio, added[0] / added[1])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print."""
    with report("lowered", __doc__, ABOUT, arguments) as (smoke, tell):
        is_small = smoke or streamer.BACKEND == "reference"
        subscriptions, count, rounds = (300, 30, 2) if is_small else (SUBSCRIPTIONS, EVENTS, ROUNDS)
        found = compare(subscriptions, events(count, subscriptions), rounds)
        tell(f"{subscriptions:,} subscriptions, {streamer.BACKEND}: ns an event, subscriptions added a second")
        for name in ("filters", "CEL"):
            tell(f"{name:>8} {found[name][0]:>10,.0f} {found[name][1]:>12,.0f}")
        tell(f"CEL takes {found['ratio'][0]:.2f} times as long to match, {found['ratio'][1]:.2f} times as long to add")
        if streamer.BACKEND == "native":
            limits = Limits()
            sources = [as_cel(n)["cel"] for n in range(subscriptions)]
            began = time.perf_counter()
            _native.CelPrograms(
                sources,
                json.dumps(streamer.EventLayout().to_dict()).encode(),
                default_tenant="default",
                max_depth=limits.max_depth,
                max_event_bytes=limits.max_event_bytes,
                max_cel_bytes=limits.max_cel_bytes,
                max_cel_depth=limits.max_cel_depth,
            )
            tell(f"{subscriptions:,} distinct expressions are parsed and checked in {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
