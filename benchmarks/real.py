"""The cost of an event of real shape from Python, against 100,000 subscriptions of mixed kinds.

```console
python -m benchmarks.real [--smoke | --record] [--beside CHECKOUT]
```

There are three sets: the flights of `make demo`, each as it is scheduled and as it left, with the subscriptions of the demo; rows
of a shop as Debezium sends them; public events of GitHub of 5 kB (`shapes.py`). Every figure is of one thread, in a process of
its own, and of the fastest of several rounds for each event; p50 and p99 are over the events.

The subscriptions of each kind are also measured in an engine of their own. *parts* is the sum of these times: an event's fixed
cost, measured with an engine whose only subscription matches no event, and for each kind the time that it adds. *whole over
parts* is the additional cost of all kinds in one engine.

`--beside` names another checkout of Streamer whose core is built, for example an older one. Both match by turns, round by round,
with this interpreter. The ratio is the median of the ratios of the rounds: below 1, this checkout is faster.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, Final

import streamer
from benchmarks import shapes
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine, parser_for
from benchmarks.turns import SUBSCRIPTIONS, WAYS, Turns
from examples.flights import generated, records
from examples.flights.__main__ import HAND_WRITTEN

ROOT: Final = Path(__file__).parents[1]
COUNT, EVENTS, ROUNDS, TURNS = 100_000, 1_000, 5, 6
ALL: Final = "all"
ABOUT: Final = "An event counts with its fastest round; p50 and p99 are over the events. One thread."


@dataclass(frozen=True, slots=True)
class Set:
    """Subscriptions with an id of `<kind>-<number>`, events by what they are called, and how many matches these have in all."""

    name: str
    layout: str
    subscriptions: list[dict[str, Any]]
    events: dict[str, list[bytes]]
    matches: dict[str, int]

    def kinds(self) -> dict[str, list[dict[str, Any]]]:
        """Return the subscriptions by kind, and before these the one that wants nothing."""
        found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list, {"nothing": [shapes.NOTHING]})
        for each in self.subscriptions:
            found[each["id"].rpartition("-")[0] if "labels" not in each else "by hand"].append(each)
        return dict(found)


def sets(count: int, events: int, matches: dict[str, dict[str, int]]) -> Iterator[Set]:
    """Yield the three sets, with *count* subscriptions and at most *events* events of each name."""
    by_hand = [json.loads(line) for line in HAND_WRITTEN.read_text().splitlines()]
    flights = [event for event in records.events(records.FLIGHTS // events) if b'"collection":"flights"' in event]
    flown = {
        f"{kind}s": [event for event in flights if f'"type":"{kind}"'.encode() in event][:events] for kind in ("update", "insert")
    }
    drawn = [each.to_dict() for each in generated.subscriptions(count)]
    yield Set("flights", "change", by_hand + drawn, flown, matches["flights"])
    for name, layout, subscriptions, made in (
        ("orders", "debezium", shapes.order_subscriptions(count), shapes.orders(events)),
        ("github", "document", shapes.github_subscriptions(count), shapes.github_events(events)),
    ):
        yield Set(name, layout, list(subscriptions), {"events": list(made)}, matches[name])


#: How many matches the events must have, by set and name.
MATCHES: Final = {
    "flights": {"updates": 27_195, "inserts": 448},
    "orders": {"events": 9_036},
    "github": {"events": 4_184},
}
SMOKE: Final = {"flights": {"updates": 25, "inserts": 0}, "orders": {"events": 9}, "github": {"events": 5}}


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one kind and name of events: matches, and by way the ns of each event, here and beside, and the ratios of the turns."""

    matches: int
    here: dict[str, list[int]]
    ratios: dict[str, list[float]]


def measure(
    data: Path, subscriptions: Iterable[dict[str, Any]], given: Set, checkouts: Sequence[Path], rounds: int, turns: int
) -> dict[str, Figures]:
    """Match the events of *given* against *subscriptions*, the checkouts by turns; the first is the one that is told of.

    Raises:
        WrongMatches: the checkouts find different numbers of matches.
    """
    (data / SUBSCRIPTIONS).write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in subscriptions))
    found = {}
    with ExitStack() as stack:
        processes = [stack.enter_context(Turns(checkout, data, given.layout)) for checkout in checkouts]
        for name, events in given.events.items():
            (data / name).write_bytes(b"\n".join(events))
            counts, ratios = set(), defaultdict[str, list[float]](list)
            here: dict[str, list[int]] = {}
            for way in WAYS:
                for _ in range(turns):
                    answers = [process.turn(way, name, rounds) for process in processes]
                    counts |= {matches for matches, _ in answers}
                    means = [mean(nanoseconds) for _, nanoseconds in answers]
                    ratios[way] += [means[0] / other for other in means[1:]]
                    best = answers[0][1]
                    here[way] = [min(pair) for pair in zip(here.get(way, best), best, strict=True)]
            if len(counts) != 1:
                raise WrongMatches(f"{given.name}, {name}: {sorted(counts)} matches on the {streamer.BACKEND} backend")
            found[name] = Figures(counts.pop(), here, ratios)
    return found


def cells(figures: Figures, events: int) -> Iterator[str]:
    """Yield the cells of a line: matches an event, percentiles by way, ratios where there are some."""
    yield f"{figures.matches / events:.2f}"
    for way in WAYS:
        cuts = quantiles(figures.here[way], n=100)
        yield f"{cuts[49]:,.0f} / {cuts[98]:,.0f}"
    yield from (f"{median(figures.ratios[way]):.3f}" for way in WAYS if figures.ratios[way])


def table(given: Set, checkouts: Sequence[Path], rounds: int, turns: int) -> Iterator[str]:
    """Measure a set, whole and by kind, and yield a table for each name of its events.

    Raises:
        WrongMatches: other matches than there must be, or the kinds have others alone than together.
    """
    kinds = given.kinds()
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, subscriptions in {ALL: given.subscriptions, **kinds}.items():
            measured[kind] = measure(Path(folder), subscriptions, given, checkouts, rounds, turns)
    beside = [f"{way} by turns" for way in WAYS if len(checkouts) > 1]
    for name, events in given.events.items():
        by_kind = {kind: figures[name] for kind, figures in measured.items()}
        whole = by_kind.pop(ALL)
        alone = sum(figures.matches for figures in by_kind.values())
        if not whole.matches == alone == given.matches[name]:
            raise WrongMatches(f"{given.name}, {name}: {whole.matches}, not {given.matches[name]}; by kind {alone}")
        about = f"{given.name}, {len(events):,} {name} of {mean(map(len, events)):,.0f} bytes"
        head = (about, "subscriptions", "matches", *(f"{way} p50 / p99, ns" for way in WAYS))
        yield f"| {' | '.join((*head, *beside))} |"
        yield f"|---|{'--:|' * (4 + len(beside))}"
        for kind, figures in {ALL: whole, **by_kind}.items():
            held = len(given.subscriptions if kind == ALL else kinds[kind])
            yield f"| {' | '.join((kind, f'{held:,}', *cells(figures, len(events))))} |"
        average = {kind: mean(figures.here["match_ids"]) for kind, figures in by_kind.items()}
        fixed = average.pop("nothing")
        parts, taken = fixed + sum(each - fixed for each in average.values()), mean(whole.here["match_ids"])
        yield f"\nmatch_ids, mean: whole {taken:,.0f} ns, parts {parts:,.0f}, whole over parts {taken / parts:.2f}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print or record the tables."""
    parser = parser_for(__doc__)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout, which takes turns with this one")
    options = parser.parse_args(arguments)
    checkouts, began = [ROOT, *([options.beside.resolve()] if options.beside else [])], machine()
    # The reference judges each subscription in Python.
    small = options.smoke or streamer.BACKEND == "reference"
    count, events, rounds, turns, matches = (1_500, 50, 1, 1, SMOKE) if small else (COUNT, EVENTS, ROUNDS, TURNS, MATCHES)
    print(f"# {streamer.BACKEND}")
    report = []
    for given in sets(count, events, matches):
        for line in table(given, checkouts, rounds, turns):
            report.append(line)
            print(line, flush=True)
    if options.record:
        print(Record("real", began, ABOUT).write(report))


if __name__ == "__main__":
    main()
