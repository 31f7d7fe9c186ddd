"""Events at a fixed rate against many subscriptions of mixed complexity: the time until each has its answer.

```console
python -m benchmarks.load [--smoke | --record] [--rate 10000] [--seconds 60]
```

Event *n* is due at *n* / rate, even if the previous one is not done, and its latency counts from its due time. For example, a
pause of 100 ms makes 1,000 events late at 10,000 a second, and the stream's consumers wait for all of them. If the latency
counted from the beginning of the match, the pause would be one slow event. For comparison, *match only* has the times from the
beginning of a match.

One thread matches, through `match_ids`. Half of the events have values that no subscription looks for, because most events of a
stream are of no interest. *changes* is the number of subscriptions that a second thread replaces each second. The new ones match
no event, so the matches stay the same. All events are first matched once without a clock. That pass must find the case's number
of matches, and the timed pass must find as many as that pass.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from streamer.engine.costs import percentiles, play
from streamer.sizes import format_percentiles, format_size, format_time

COUNTRIES: Final = ("DE", "FR", "GB", "ES", "IT", "NL", "PL", "SE", "US", "JP")
STATES: Final = ("new", "paid", "sent", "returned")
ABOUT: Final = (
    "One thread matches, through `match_ids`, with full validation; the latency of an event counts from its due time. A "
    "second thread makes the changes. Events of about 350 bytes, made beforehand; the garbage collector runs as usual."
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    Attributes:
        collections: that they are in, as many in each.
        events: different ones; they are matched again and again.
        matches: of all of them, once.
        changes: subscriptions that are replaced a second.
    """

    subscriptions: int
    collections: int
    events: int
    matches: int
    rate: int
    seconds: float
    changes: int = 0

    @property
    def customers(self) -> int:
        """How many different ones are asked for: five subscriptions of a collection for each."""
        return self.subscriptions // self.collections // 5

    @property
    def products(self) -> int:
        """How many different ones are asked for."""
        return 2 * self.customers


CASES: Final = (Case(100_000, 20, 50_000, 105_882, 10_000, 60), Case(100_000, 20, 50_000, 105_882, 10_000, 60, changes=100))
SMOKE: Final = (Case(300, 2, 200, 203, 1_000, 0.3), Case(300, 2, 200, 203, 1_000, 0.3, changes=50))


def subscriptions(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the subscriptions: two in five with one condition, others with several, patterns, topics, CEL, and all of them."""
    random = Random(1)
    for index in range(case.subscriptions):
        customer, product, amount = (
            random.randrange(case.customers),
            random.randrange(case.products),
            random.randrange(900, 1_000),
        )
        country, state, sku = random.choice(COUNTRIES), random.choice(STATES), f"{random.randrange(1_000):03}"
        one_product = {"field": "product", "op": "==", "value": product}
        kinds: list[dict[str, Any]] = [
            {"filters": [{"field": "customer.id", "op": "==", "value": customer}]},
            {
                "filters": [
                    {"field": "customer.country", "op": "in", "value": [country, "CH"]},
                    {"field": "product", "op": "in", "value": [product, product + 1, product + 2]},
                    {"field": "amount", "op": ">=", "value": amount - 900},
                    {"field": "state", "op": "!=", "value": state},
                ]
            },
            {"pattern": {"data": {"tags": [{"prefix": f"vip-{sku}"}], "state": [{"anything-but": [state]}]}}},
            {"pattern": {"data": {"customer": {"name": [{"wildcard": f"*-{sku}-*"}]}, "amount": [{"numeric": [">", amount]}]}}},
            {"topic": f"{country}.{product}.#"},
            {"cel": f"data.customer.country != '{country}' && data.product == {product} && data.amount > {amount - 800}.0"},
            {"cel": f"data.lines.exists(l, l.sku < 'k{sku}' && l.pieces > {amount % 5})", "filters": [one_product]},
            {"cel": f"data.amount * 2.0 > {amount - 500}.0 + double(data.product)", "topic": f"{country}.*.{state}.web"},
            {
                "filters": [one_product, {"field": "amount", "op": ">", "value": amount - 900}],
                "pattern": {"data": {"customer": {"country": [country, "US"]}}},
                "topic": "#.web",
                "cel": "size(data.lines) > 1 && data.lines.all(l, l.pieces > 0)",
            },
        ]
        parts = random.choices(kinds, weights=[40, 20, 8, 2, 10, 8, 4, 4, 4])[0]
        yield {"id": f"s{index}", "gateway_id": f"g{index % 100}", "collection": f"c{index % case.collections}", **parts}


def events(case: Case) -> list[bytes]:
    """Return orders of about 350 bytes; of every two, one names nothing that anybody asked for."""
    random = Random(2)
    made = []
    for index in range(case.events):
        is_wanted = index % 2 == 0
        country, state = random.choice(COUNTRIES) if is_wanted else "ZZ", random.choice(STATES)
        product = random.randrange(case.products) + (0 if is_wanted else case.products)
        order = {
            "amount": round(random.uniform(1, 1_000), 2),
            "customer": {
                "id": random.randrange(case.customers) + (0 if is_wanted else case.customers),
                "country": country,
                "name": f"customer-{random.randrange(1_000):03}-of-many" if is_wanted else f"customer {index}",
            },
            "product": product,
            "state": state,
            "tags": [f"vip-{random.randrange(1_000):03}" if is_wanted else "none", f"lot-{random.randrange(500)}"],
            "lines": [{"sku": f"k{random.randrange(1_000):03}", "pieces": random.randrange(1, 9)} for _ in range(3)],
        }
        topic = f"{country}.{product}.{state}.{'web' if is_wanted else 'shop'}"
        event = {
            "id": index,
            "collection": f"c{random.randrange(case.collections)}",
            "type": "insert",
            "topic": topic,
            "data": order,
        }
        made.append(json.dumps(event).encode())
    return made


class Changes:
    """Replaces so many subscriptions a second while it is entered, in a thread of its own."""

    def __init__(self, engine: streamer.Engine, case: Case) -> None:
        self._engine, self._case = engine, case
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.made = 0

    def __enter__(self) -> Changes:
        if self._case.changes:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._case.changes:
            self._thread.join()

    def _run(self) -> None:
        began = time.perf_counter()
        while not self._stop.wait(max(began + self.made / self._case.changes - time.perf_counter(), 0)):
            # Held beside those of the case, of which each goes on matching.
            number = self.made % (self._case.subscriptions // 10)
            no_customer = {"field": "customer.id", "op": "==", "value": -1 - self.made}
            changed = {"id": f"changing{number}", "collection": f"c{number % self._case.collections}", "filters": [no_customer]}
            self._engine.add(changed, replace=True)
            self.made += 1


def measure(case: Case) -> list[tuple[str, str]]:
    """Run a case; return what was measured, in words.

    Raises:
        WrongMatches: another number of matches than the case says, or than the same events had before.
    """
    engine = streamer.Engine()
    begun = time.perf_counter()
    engine.add_many(subscriptions(case))
    adding = time.perf_counter() - begun
    given = events(case)
    found = [len(engine.match_ids(event)) for event in given]
    if sum(found) != case.matches:
        raise WrongMatches(f"{case}: {sum(found)} matches on the {streamer.BACKEND} backend")
    count = int(case.rate * case.seconds)
    before = engine.stats()
    with Changes(engine, case) as changes:
        played = play(engine.match_ids, given, case.rate, count)
    again, rest = divmod(count, case.events)
    if played.matches != again * case.matches + sum(found[:rest]):
        raise WrongMatches(f"{case}: {played.matches} matches in the timed pass")
    return [
        ("subscriptions", f"{case.subscriptions:,} in {case.collections} collections, added in {format_time(adding)}"),
        ("planned", f"{case.rate:,} events/s for {case.seconds:g} s, {case.changes:,} changes/s"),
        ("done", f"{count / played.seconds:,.0f} events/s, {changes.made / played.seconds:,.0f} changes/s"),
        ("latency", format_percentiles(percentiles(played.latencies))),
        ("match only", format_percentiles(percentiles(played.alone))),
        *held(engine, before),
    ]


def held(engine: streamer.Engine, before: streamer.Stats) -> Iterator[tuple[str, str]]:
    """Yield what the phases did, in words; *before* is from before the run."""
    told, filters, programs = engine.stats(), engine.bloom.filters(), engine._programs
    seen = told.events - before.events
    matches, candidates = told.matches - before.matches, told.candidates - before.candidates
    yield "an event", f"{matches / seen:.2f} matches, {candidates / seen:.2f} candidates"
    asked, no = sum(each.asked for each in filters), sum(each.no for each in filters)
    sampled = sum(each.sampled for each in filters)
    if asked:
        fills = [each.fill for each in filters]
        wrong = f"{sum(each.false_positives for each in filters) / sampled:.2%}" if sampled else "no"
        yield "filters", f"{len(filters)}, fill {min(fills):.1%} to {max(fills):.1%}, {told.rebuilds:,} rebuilds"
        yield "phase 1", f"stopped {no / asked:.1%} of the events; {wrong} false positives of {sampled:,} sampled without a key"
    looked = programs.hits + programs.misses
    yield "CEL cache", f"{programs.hits / max(looked, 1):.1%} hits of {looked:,} lookups, {programs.programs:,} programs kept"
    yield "memory", f"{format_size(told.memory_bytes)} of subscriptions, index and filters"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print or record a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a little data, to check that it runs: ignore the figures")
    parser.add_argument("--record", action="store_true", help="write a dated record")
    parser.add_argument("--rate", type=int, help="events a second (10,000)")
    parser.add_argument("--seconds", type=float, help="how long each case runs (60)")
    options = parser.parse_args(arguments)
    began = machine()
    report: list[str] = []
    for case in SMOKE if options.smoke else CASES:
        asked = {"rate": options.rate, "seconds": options.seconds}
        rows = measure(replace(case, **{name: value for name, value in asked.items() if value}))
        report += ["| what | |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows), ""]
        print(f"# {streamer.BACKEND}", *report[-len(rows) - 3 :], sep="\n", flush=True)
    if options.record:
        print(Record("load", began, ABOUT).write(report))


if __name__ == "__main__":
    main()
