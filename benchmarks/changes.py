"""The cost of an event that has more than a document: the document before the change, a flag of deletion, unknown parts.

```console
python -m benchmarks.changes [--smoke | --record]
```

Each line compares two cases that differ in one thing. Each event matches one of many subscriptions by its document. The two
cases take turns, round by round. The figures are the best of all rounds, the ratio is the median of the ratios of the rounds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import report

ROUNDS = 15
SUBSCRIPTIONS, EVENTS = 100_000, 1_000
ABOUT = "Best of all rounds for each case; the ratio is the median of the rounds' ratios. From Python, one thread."


@dataclass(frozen=True)
class Side:
    """Subscriptions, events, and how many matches each of the events has."""

    engine: streamer.Engine
    events: Sequence[bytes]
    matches: int = 1

    def run(self) -> float:
        """Return the seconds that it took. Raises WrongMatches."""
        count, began = self.engine.match_count, time.perf_counter()
        found = sum(map(count, self.events))
        seconds = time.perf_counter() - began
        if found != len(self.events) * self.matches:
            raise WrongMatches(f"{found} matches of {len(self.events)} events on the {streamer.BACKEND} backend")
        return seconds


def engine_of(count: int, *, soft_delete: str | None = None, **members: Any) -> streamer.Engine:
    """Return an engine with a subscription for each of *count* customers."""
    engine = streamer.Engine(soft_delete=soft_delete)
    engine.add_many(
        {"id": f"s{n}", "collection": "orders", "filters": [{"field": "customer", "op": "==", "value": n}], **members}
        for n in range(count)
    )
    return engine


def events_of(count: int, customers: int, change: Callable[[dict[str, Any]], None] = lambda event: None) -> list[bytes]:
    """Return updates of about 250 bytes, each of a customer that one subscription is for, as *change* leaves them."""
    events = []
    for n in range(count):
        document = {"customer": n * 7919 % customers, "amount": n % 100, "status": "paid", "note": "x" * 40}
        event = {"id": n, "collection": "orders", "type": "update", "data": document, "before": {**document, "status": "open"}}
        change(event)
        events.append(json.dumps(event).encode())
    return events


def moved(event: dict[str, Any]) -> None:
    """Let the document have been another customer's, of whom nobody asks."""
    event["before"]["customer"] = -1


def holed(pointer: str) -> Callable[[dict[str, Any]], None]:
    """Leave one value open."""

    def change(event: dict[str, Any]) -> None:
        event["unknown"] = [pointer]

    return change


def pairs(subscriptions: int, events: int) -> dict[str, tuple[Side, Side]]:
    """Return what is compared: without and with, by name."""
    plain = engine_of(subscriptions)
    told = engine_of(subscriptions, transitions=True)
    soft = engine_of(subscriptions, soft_delete="deleted")
    updates, moves = events_of(events, subscriptions), events_of(events, subscriptions, moved)
    # An unknown is weighed against every subscription that reads there, so there are few of both.
    few = engine_of(subscriptions // 100)
    some = events_of(max(1, events // 10), subscriptions // 100)
    return {
        "transitions, stays": (Side(plain, updates), Side(told, updates)),
        "transitions, enters": (Side(plain, moves), Side(told, moves)),
        "soft_delete, not deleted": (Side(plain, updates), Side(soft, updates)),
        f"unknown, unread; {subscriptions // 100:,} subscriptions": (
            Side(few, some),
            Side(few, events_of(len(some), subscriptions // 100, holed("/data/note"))),
        ),
        f"unknown, read by all; {subscriptions // 100:,} subscriptions": (
            Side(few, some),
            Side(few, events_of(len(some), subscriptions // 100, holed("/data/customer")), subscriptions // 100),
        ),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print a line for each pair."""
    with report("changes", __doc__, ABOUT, arguments) as (smoke, tell):
        is_small = smoke or streamer.BACKEND == "reference"
        subscriptions, events, rounds = (400, 20, 2) if is_small else (SUBSCRIPTIONS, EVENTS, ROUNDS)
        tell(f"{subscriptions:,} subscriptions, {events:,} updates, {streamer.BACKEND}: ns an event, and the median ratio")
        for name, (without, with_) in pairs(subscriptions, events).items():
            seconds = [(without.run(), with_.run()) for _ in range(rounds)]
            ratio = median(one / other for other, one in seconds)
            best = [
                min(each) * 1e9 / len(side.events)
                for each, side in zip(zip(*seconds, strict=True), (without, with_), strict=True)
            ]
            tell(f"{name:<50} {best[0]:>11,.0f} {best[1]:>11,.0f} {ratio:>9,.2f}")


if __name__ == "__main__":
    main()
