"""The cost of counting: the same events with counting on and off, in interleaved pairs.

```console
python -m benchmarks.metrics [--smoke | --record]
```

A pair is one round over the same events with counting and one without, in slices that take turns, so that other programs slow
both down. The figure is processor time, and its ratio is the cost of counting. The report has the median of the pairs, with the
interval that contains it in 95 % of the cases (the order statistics of a binomial distribution, which need no assumption about
the distribution of the times).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import report
from streamer.reference.core import ReferenceCore

PAIRS = 20
#: Events that are matched before the other of a pair has its turn.
SLICE = 250
SUBSCRIPTIONS, EVENTS = 20_000, 20_000
ABOUT = "Processor time, in pairs that take turns; in brackets the interval that contains the median in 95 % of the cases."
#: What the median may be at most.
MOST = 1.03
#: Of 20 sorted pairs, the 6th and the 15th hold the median in 95.9 % of the cases.
LOW, HIGH = 5, 14


def engine_of(count: int) -> streamer.Engine:
    """Return an engine in which each event matches one subscription of *count*."""
    engine = streamer.Engine()
    engine.add_many(
        {"id": f"s{n}", "collection": "orders", "filters": [{"field": "customer", "op": "==", "value": n}]} for n in range(count)
    )
    return engine


def events_of(count: int, customers: int, *, wanted: bool) -> list[bytes]:
    """Return events of about 150 bytes, each of a customer that is wanted, or none of which is."""
    first = 0 if wanted else customers
    return [
        json.dumps(
            {
                "id": str(n),
                "collection": "orders",
                "type": "insert",
                "data": {"customer": first + n * 7919 % customers, "amount": n % 100, "status": "paid", "country": "DE"},
            }
        ).encode()
        for n in range(count)
    ]


def ways_of(engine: streamer.Engine) -> dict[str, Callable[[Sequence[bytes]], int]]:
    """Return the ways of matching, each to how many matches its events have."""
    count = engine.match_count
    return {
        "match_count": lambda events: sum(map(count, events)),
        "match_batch": lambda events: sum(map(len, engine.match_batch(events))),  # type: ignore[arg-type]
    }


def switch_of(engine: streamer.Engine) -> Callable[[bool], None]:
    """Return what turns the counting of an engine's core on and off."""
    core: Any = engine._core
    if isinstance(core, ReferenceCore):
        recorder = core._recorder
        return lambda on: setattr(recorder, "is_on", on)
    from streamer import _native

    return _native.CoreHooks(core).record


def compare(
    engine: streamer.Engine, way: Callable[[Sequence[bytes]], int], events: Sequence[bytes], expected: int
) -> list[float]:
    """Return the sorted ratios of *on* to *off*, one for each pair.

    Raises:
        WrongMatches: another number of matches than expected.
    """

    slices = [events[at : at + SLICE] for at in range(0, len(events), SLICE)]

    record = switch_of(engine)

    def pair() -> float:
        seconds = {True: 0.0, False: 0.0}
        found = {True: 0, False: 0}
        for number, each in enumerate(slices):
            for on in (True, False) if number % 2 else (False, True):
                record(on)
                began = time.process_time()
                found[on] += way(each)
                seconds[on] += time.process_time() - began
        if set(found.values()) != {expected}:
            raise WrongMatches(f"{found} matches, not {expected}")
        return seconds[True] / seconds[False]

    pair()
    ratios = [pair() for _ in range(PAIRS)]
    record(True)
    return sorted(ratios)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print a line for each way and kind of event."""
    with report("metrics", __doc__, ABOUT, arguments) as (smoke, tell):
        subscriptions, events = (200, 200) if smoke else (SUBSCRIPTIONS, EVENTS)
        engine = engine_of(subscriptions)
        tell(f"counting on / off, median of {PAIRS} interleaved pairs of {events:,} events, {streamer.BACKEND}")
        for wanted in (True, False):
            given = events_of(events, subscriptions, wanted=wanted)
            for name, way in ways_of(engine).items():
                ratios = compare(engine, way, given, events if wanted else 0)
                middle = median(ratios)
                verdict = "" if smoke else f"  {'within' if middle <= MOST else 'ABOVE'} {MOST}"
                kind = "each matches one" if wanted else "none matches"
                tell(f"{name:<12} {kind:<17} {middle:.3f}  [{ratios[LOW]:.3f}, {ratios[HIGH]:.3f}]{verdict}")


if __name__ == "__main__":
    main()
