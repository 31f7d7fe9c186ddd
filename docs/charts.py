"""Charts of the site, drawn from the newest records of the benchmarks, so that no figure is typed by hand.

A chart has the colours of the page that it stands on, light or dark; the same figures stand below it as a table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

RECORDS: Final = Path(__file__).resolve().parents[1] / "benchmarks" / "records"
SIZES: Final = {"W4": 10_000, "W5a": 100_000, "W8": 10_000}
TITLES: Final = {
    "W4": "Tenant, collection, status and country",
    "W5a": "Mixed patterns: user ids, ranges, sets",
    "W8": "Ranges of numbers",
}
#: The picture's own units; the page scales it.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE = 470, 300, 52, 100, 10, 40, 14

Point = tuple[float, float]


def newest(name: str) -> Path | None:
    """Return the newest record of a benchmark."""
    dated = re.compile(rf"\d{{4}}-\d\d-\d\d-{re.escape(name)}\.md")
    return max((path for path in RECORDS.glob(f"*-{name}.md") if dated.fullmatch(path.name)), default=None)


def table(text: str, first: str) -> list[dict[str, str]]:
    """Return the rows of the first table of a record whose first column is *first*, by column."""
    found: list[list[str]] = []
    for line in text[text.index(f"| {first} |") :].splitlines():
        if not line.startswith("|"):
            break
        found.append([cell.strip(" *") for cell in line.strip("|").split("|")])
    return [dict(zip(found[0], row, strict=True)) for row in found[2:]]


def duration(nanoseconds: float) -> str:
    """Return a time with its unit, at most three digits of it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def chart(series: Mapping[str, Sequence[Point]], about: str) -> str:
    """Return an SVG of nanoseconds over numbers of subscriptions, both logarithmic, with a label at the end of each line."""
    points = [point for line in series.values() for point in line]
    rounded = [digit * 10.0**power for power in range(10) for digit in (1, 2, 5)]
    bottom = max(step for step in rounded if step <= min(y for _, y in points))
    top = min(step for step in rounded if step >= max(y for _, y in points))
    low, high = math.log10(bottom), math.log10(top)
    right = math.log10(max(x for x, _ in points))
    left = math.log10(min(x for x, _ in points))

    def at(x: float, y: float) -> Point:
        across = (math.log10(x) - left) / (right - left)
        up = (math.log10(y) - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(about)}">']
    for step in sorted({bottom, top, *(step for step in rounded[::3] if bottom < step < top)}):
        y = at(10**left, step)[1]
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{duration(step)}</text>')
    for power in range(math.ceil(left), math.floor(right) + 1):
        x = at(10**power, bottom)[0]
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{10**power:,}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">subscriptions</text>')
    ends = {name: at(*line[-1]) for name, line in series.items()}
    labels = apart({name: y for name, (_, y) in ends.items()})
    # Lines that end early come last: their labels stand upon the others.
    for number, (name, line) in sorted(enumerate(series.items()), key=lambda each: -each[1][1][-1][0]):
        parts.append(f'<g class="line-{number}">')
        parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line))}"/>')
        for x, y in line:
            across, up = at(x, y)
            told = f"{name}: {duration(y)} an event, {x:,.0f} subscriptions"
            parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3"><title>{escape(told)}</title></circle>')
        parts.append(f'<text x="{ends[name][0] + 8:.1f}" y="{labels[name] + 4:.1f}">{escape(name)}</text></g>')
    return "\n".join(['<div class="chart">', *parts, "</svg>", "</div>"])


def apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Return where labels stand, near where they want to, and none upon another."""
    placed: dict[str, float] = {}
    above = -math.inf
    for name, y in sorted(wanted.items(), key=lambda each: each[1]):
        above = placed[name] = max(y, above + LINE)
    surplus = max(0.0, above - (HEIGHT - BOTTOM))
    return {name: y - surplus for name, y in placed.items()}


def figures(series: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    """Yield the figures as a table."""
    sizes = sorted({x for line in series.values() for x, _ in line})
    yield f"| subscriptions | {' | '.join(series)} |"
    yield f"|--:|{'--:|' * len(series)}"
    for size in sizes:
        cells = [
            next((duration(y).replace(" ", "\N{NO-BREAK SPACE}") for x, y in line if x == size), "–") for line in series.values()
        ]
        yield f"| {size:,.0f} | {' | '.join(cells)} |"


def beside_peers(record: Path) -> Iterator[str]:
    """Yield a chart for each workload that was measured at several sizes."""
    rows = table(record.read_text(encoding="utf-8"), "workload")
    peers = [name for name in list(rows[0])[2:] if "÷" not in name and name != "ids"]
    for workload, largest in SIZES.items():
        series: dict[str, list[Point]] = {}
        for row in rows:
            name, _, head = row["workload"].partition(":")
            for peer in peers if name == workload else ():
                if row[peer] != "–":
                    series.setdefault(peer, []).append((float(head or largest), float(row[peer].replace(",", ""))))
        if series:
            told = f"Time of an event over the number of subscriptions, {workload}: {TITLES[workload]}"
            yield from ("", f"### {TITLES[workload]}", "", chart(series, told), "", *figures(series))


def alone(record: Path) -> Iterator[str]:
    """Yield the chart of the native core by itself, a line for each number of matches."""
    series: dict[str, list[Point]] = {}
    for row in table(record.read_text(encoding="utf-8"), "subscriptions"):
        name = "no match" if row["set"] == "none" else f"{row['set']} matches"
        series.setdefault(name, []).append((float(row["subscriptions"]), float(row["p50 µs"]) * 1e3))
    yield from (
        "",
        chart(series, "Time of an event over the number of subscriptions, by matches of an event"),
        "",
        *figures(series),
    )


def page() -> str:
    """Return the page of charts."""
    lines = [
        "# What does an event cost?",
        "",
        "The charts are drawn from the newest [records](README.md) of the benchmarks. Each record says machine and versions.",
        "Both axes are logarithmic. A line that stays level costs the same however many subscriptions there are.",
    ]
    if peers := newest("peers-sizes"):
        lines += ["", "## Beside its peers", ""]
        lines += ["Time of one core for an event, its JSON included, against more and more patterns, by turns in one run."]
        lines += ["A peer's line ends where it takes no more patterns, or takes minutes to take them."]
        lines += [f"[The record](records/{peers.name}) says which, and how busy the machine was."]
        lines += beside_peers(peers)
    if core := newest("core"):
        lines += ["", "## By itself", ""]
        lines += ["The native core, with sets of subscriptions of which an event matches more or fewer at the largest size:"]
        lines += [f"the median of [the record](records/{core.name})."]
        lines += alone(core)
    return "\n".join(lines) + "\n"
