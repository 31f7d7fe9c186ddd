"""Goals next to measurements: the table of performance.md, which `make docs` generates from the newest records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.charts import RECORDS, newest, table

#: Peers of which a workload of `benchmarks.peers` may have figures.
PEERS: Final = ("event-ruler", "quamina-rs", "a-tree", "quamina-go")


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal for one figure.

    Attributes:
        what: the figure and its unit.
        limit: the most that the figure may be; the least if *least* is true.
        record: the benchmark whose newest record has the figure.
        figure: reads the figure of a record; None if the record lacks it.
    """

    what: str
    limit: float
    record: str
    figure: Callable[[Path], float | None]
    least: bool = False

    def row(self) -> str | None:
        """Return the goal's row of the table; None if the figure was not recorded."""
        path = newest(self.record)
        figure = None if path is None else self.figure(path)
        return None if path is None or figure is None else row(path, self.what, self.limit, self.least, figure)


def row(path: Path, what: str, limit: float, least: bool, figure: float) -> str:
    """Return a row of the table."""
    met = figure >= limit if least else figure <= limit
    link = f"[{path.stem}](../benchmarks/records/{path.name})"
    bound = f"{'at least' if least else 'at most'} {limit:,g}"
    return f"| {what} | {bound} | {written(figure)} | {'yes' if met else '**no**'} | {link} |"


def of_edge() -> Iterator[str]:
    """Yield the rows of `benchmarks.edge`, which keeps its goals in its record."""
    path = max(RECORDS.glob("*-edge-native.json"), default=None)
    for goal in [] if path is None else json.loads(path.read_text(encoding="utf-8")).get("goals", []):
        assert path is not None
        yield row(path, f"{goal['figure']}, {goal['unit']}", goal["goal"], goal["more"], goal["measured"])


def written(figure: float) -> str:
    """Return a figure with three digits, or whole where it has more."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def cell(first: str, row: str, column: str) -> Callable[[Path], float | None]:
    """Return what reads a cell of the table whose first column is *first*."""

    def read(path: Path) -> float | None:
        text = path.read_text(encoding="utf-8")
        rows = table(text, first) if f"| {first} |" in text else []
        found = next((each.get(column) for each in rows if each[first] == row), None)
        return None if found in (None, "", "–") else number(found)

    return read


def number(text: str) -> float:
    """Read a number as tables have it."""
    return float(text.replace(",", "").rstrip("% !"))


def beside(workload: str, driver: str, *peers: str) -> Callable[[Path], float | None]:
    """Return what reads a driver's time as a share of that of the fastest of *peers* that have one."""

    def read(path: Path) -> float | None:
        own, *others = (cell("workload", workload, each)(path) for each in (driver, *peers))
        found = [other for other in others if other]
        return own / min(found) if own and found else None

    return read


def beside_patterns(workload: str, patterns: str, peer: str) -> Callable[[Path], float | None]:
    """Return what reads a workload's time from Python as a share of what a peer takes for the same as patterns."""

    def read(path: Path) -> float | None:
        own, other = cell("workload", workload, "streamer-py")(path), cell("workload", patterns, peer)(path)
        return own / other if own and other else None

    return read


def beyond_identity(way: str) -> Callable[[Path], float | None]:
    """Return what reads what a way of Spark takes beyond its plan without matching, in times the embedded engine."""

    def read(path: Path) -> float | None:
        took, identity, embedded = (cell("way", each, "best, s")(path) for each in (way, "identity", "embedded"))
        return (took - identity) / embedded if took and identity and embedded else None

    return read


def of_million(name: str, column: str) -> Callable[[Path], float | None]:
    """Return what reads a column of the core's table of events, of a set of a million subscriptions."""

    def read(path: Path) -> float | None:
        rows = table(path.read_text(encoding="utf-8"), "subscriptions")
        return next((number(row[column]) for row in rows if (row["subscriptions"], row["set"]) == ("1000000", name)), None)

    return read


def most(first: str, column: str) -> Callable[[Path], float | None]:
    """Return what reads the largest figure of a column, of the table whose first column is *first*."""

    def read(path: Path) -> float | None:
        text = path.read_text(encoding="utf-8")
        return max((number(row[column]) for row in table(text, first)), default=None) if f"| {first} |" in text else None

    return read


def stays(kind: str) -> Callable[[Path], float | None]:
    """Return what reads how much of the memory of a kind stays when half of the subscriptions are removed, in percent."""

    def read(path: Path) -> float | None:
        half, whole = (cell(HELD, kind, column)(path) for column in ("after half", "resident"))
        return 100 * half / whole if half and whole else None

    return read


def median_of(events: str) -> Callable[[Path], float | None]:
    """Return what reads the median of `match` over *events* of a set, all subscriptions being held, in microseconds."""

    def read(path: Path) -> float | None:
        text = path.read_text(encoding="utf-8")
        first = next((line[2:].partition(" |")[0] for line in text.splitlines() if events in line), None)
        if first is None:
            return None
        row = next(each for each in table(text, first) if each[first] == "all")
        return number(row["match p50 / p99, ns"].partition(" /")[0]) / 1000

    return read


#: The first column of a record of `benchmarks.memory`.
HELD: Final = "250,000 of a kind, 50 collections, bytes each"
#: Its row of a million, of which a byte each is a megabyte.
MILLION: Final = "all four, 1,000,000"

#: The first column of the last table of `benchmarks.core`.
PYTHON: Final = "set of `match`"
#: Its sets, how many of a million match in each, and what an event may take, p50 and p99 in microseconds.
SETS: Final = (
    ("none", "no match", 1.2, 2.5),
    ("200", "some 130 matches", 10, 20),
    ("2,000", "some 1,750 matches", 20, 40),
)

#: The column of `benchmarks.python_peers` that compares Streamer with the fastest peer.
RATIO: Final = "streamer ÷ fastest"

GOALS: Final = (
    *(
        Goal(f"{workload}, from Python ÷ the fastest peer", 1, "peers", beside(workload, "streamer-py", *PEERS))
        for workload in ("W1", "W2", "W3", "W4", "W5", "W6")
    ),
    *(
        Goal(f"{workload}, the core, {how} ÷ quamina-rs", limit, "peers", beside(workload, driver, "quamina-rs"))
        for workload in ("W1", "W3")
        for how, driver, limit in (("reading lazily", "streamer-lazy", 0.75), ("full validation", "streamer", 1))
    ),
    *(
        Goal(f"{workload}, from Python ÷ the fastest peer", 1, "peers-lists", beside(workload, "streamer-py", *PEERS))
        for workload in ("W9", "W12")
    ),
    *(
        Goal(
            f"{workload}, from Python ÷ Event Ruler on W10n",
            0.19,
            "peers-lists",
            beside_patterns(workload, "W10n", "event-ruler"),
        )
        for workload in ("W10n", "W10nf", "W10nc", "W10", "W10f", "W10c")
    ),
    *(
        Goal(f"rules: {count}, from Python ÷ the fastest that could be installed", 1, "python-peers", cell("rules", count, RATIO))
        for count in ("1", "10", "100", "1,000", "10,000", "100,000")
    ),
    *(
        Goal(
            f"{workload} in a checkout's build ÷ in a wheel's",
            1.05,
            "build",
            cell("workload, ns an event", workload, "editable ÷ wheel"),
        )
        for workload in ("W1", "W2", "W3", "W4", "W5", "W6", "W8")
    ),
    Goal("an update of a flight, `match`, p50, µs", 8, "real", median_of("updates of")),
    Goal("an insert of a flight, `match`, p50, µs", 2.5, "real", median_of("inserts of")),
    Goal("resident bytes a subscription, four kinds", 350, "memory", cell(HELD, "all four", "resident")),
    Goal(
        "share of resident bytes that `stats` reports, four kinds, %", 90, "memory", cell(HELD, "all four", "share"), least=True
    ),
    Goal("share of resident bytes that stays after half are removed, four kinds, %", 55, "memory", stays("all four")),
    Goal("resident MB of 1,000,000, four kinds", 400, "memory", cell(HELD, MILLION, "resident")),
    Goal("share of the MB of 1,000,000 that `stats` reports, %", 90, "memory", cell(HELD, MILLION, "share"), least=True),
    Goal("share of the MB of 1,000,000 that stays after half are removed, %", 55, "memory", stays(MILLION)),
    Goal("loaded by `add_jsonl`, four kinds, subscriptions/s", 300_000, "memory", cell(HELD, "all four", "load/s"), least=True),
    *(
        Goal(f"1,000,000 subscriptions, {matches}, the core, {column}", limit, "core", of_million(name, column))
        for name, matches, p50, p99 in SETS
        for column, limit in (("p50 µs", p50), ("p99 µs", p99))
    ),
    *(
        Goal(f"1,000,000 subscriptions, {matches}, `match` ÷ the core, p50", 1.3, "core", cell(PYTHON, name, "÷ core p50"))
        for name, matches, _, _ in SETS
    ),
    Goal("1,000 subscriptions with 999,000 others ÷ without them, p50", 3, "core", most("set, crowded", "beside ÷ alone, p50")),
    Goal("2,000 added and removed a second ÷ none, p99", 2, "core", most("set, changing", "p99")),
    Goal("cogroup on Spark beyond a plan without matching ÷ embedded", 2.5, "spark", beyond_identity("cogroup")),
    Goal("broadcast on Spark beyond a plan without matching ÷ embedded", 1.5, "spark", beyond_identity("broadcast")),
)


def goals() -> str:
    """Return the table."""
    return "\n".join(lines())


def lines() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| what | goal | measured | met | record |"
    yield "|---|---|--:|---|---|"
    for goal in GOALS:
        if (told := goal.row()) is not None:
            yield told
    yield from of_edge()
