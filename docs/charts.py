"""Charts, drawn from the newest records of the benchmarks, so that no figure is typed by hand.

On the site a chart has the colours of the page that it stands on, light or dark; the same figures stand below it as a table.
`make docs` also writes some as pictures of their own, `assets/*.svg`, and `*.png` where Chromium is here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

RECORDS: Final = Path(__file__).resolve().parents[1] / "benchmarks" / "records"
ASSETS: Final = Path(__file__).resolve().parent / "assets"
#: The first column of the table of memory.
HELD: Final = "MB held"
#: Of which workload there are pictures.
SHOWN: Final = "W5a"
#: A picture that stands by itself has no page to take colours from: it has those of assets/site.css, light or dark as the reader
#: has set it.
STYLE: Final = """
text { font: 11px system-ui, sans-serif; fill: #555; } .axis { font-style: italic; }
.ground { fill: #fff; } .grid { stroke: #ddd; fill: none; }
polyline { fill: none; stroke: var(--line); stroke-width: 1.6; } .line-0 polyline { stroke-width: 3; }
.line-0 { --line: #2f6fed; } .line-1 { --line: #d9622b; } .line-2 { --line: #2f9e44; } .line-3 { --line: #b04fc4; }
.line-4 { --line: #c99700; } .line-5 { --line: #0e8f8f; } .line-6 { --line: #c2255c; } .line-7 { --line: #7a6a5a; }
.line-8 { --line: #6a8f00; } g circle, g text { fill: var(--line); }
g text { font-weight: 600; paint-order: stroke; stroke: #fff; stroke-width: 4px; }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117; } .grid { stroke: #30363d; } text { fill: #b0b8c0; } g text { stroke: #0d1117; }
.line-0 { --line: #6b9bff; } .line-1 { --line: #f08a55; } .line-2 { --line: #56c271; } .line-3 { --line: #d58be4; }
.line-4 { --line: #e0b030; } .line-5 { --line: #35bdbd; } .line-6 { --line: #f0709a; } .line-7 { --line: #b8a896; }
.line-8 { --line: #a5cc3a; }
}
"""
SIZES: Final = {"W4": 10_000, "W5a": 100_000, "W8": 10_000}
TITLES: Final = {
    "W4": "Tenant, collection, status and country",
    "W5a": "Mixed patterns: user ids, ranges, sets",
    "W8": "Ranges of numbers",
}
RULES: Final = "Time of an event over the number of rules, for Streamer and the Python packages that you could install instead"
#: The picture's own units; the page scales it.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE = 470, 300, 52, 110, 10, 40, 14

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


def amount(megabytes: float) -> str:
    """Return an amount of memory with its unit, at most three digits of it."""
    return f"{megabytes / 1000:.3g} GB" if megabytes >= 1000 else f"{megabytes:.3g} MB"


@dataclass(frozen=True, slots=True)
class Measure:
    """What a chart shows over the number of subscriptions: how a value is written, and what it is."""

    written: Callable[[float], str]
    what: str


TIME: Final = Measure(duration, "an event")
MEMORY: Final = Measure(amount, "of memory")


def chart(series: Mapping[str, Sequence[Point]], about: str, measure: Measure = TIME) -> str:
    """Return an SVG over numbers of subscriptions, both axes logarithmic, with a label at the end of each line."""
    points = [point for line in series.values() for point in line]
    rounded = [digit * 10.0**power for power in range(-4, 12) for digit in (1, 2, 5)]
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
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{measure.written(step)}</text>')
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
            told = f"{name}: {measure.written(y)} {measure.what}, {x:,.0f} subscriptions"
            parts.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3"><title>{escape(told)}</title></circle>')
        parts.append(f'<text x="{ends[name][0] + 8:.1f}" y="{labels[name] + 4:.1f}">{escape(name)}</text></g>')
    return "\n".join([*parts, "</svg>"])


def apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Return where labels stand, near where they want to, and none upon another."""
    placed: dict[str, float] = {}
    above = -math.inf
    for name, y in sorted(wanted.items(), key=lambda each: each[1]):
        above = placed[name] = max(y, above + LINE)
    surplus = max(0.0, above - (HEIGHT - BOTTOM))
    return {name: y - surplus for name, y in placed.items()}


def figures(series: Mapping[str, Sequence[Point]], measure: Measure = TIME) -> Iterator[str]:
    """Yield the figures as a table."""
    sizes = sorted({x for line in series.values() for x, _ in line})
    yield f"| subscriptions | {' | '.join(series)} |"
    yield f"|--:|{'--:|' * len(series)}"
    for size in sizes:
        cells = [
            next((measure.written(y).replace(" ", "\N{NO-BREAK SPACE}") for x, y in line if x == size), "–")
            for line in series.values()
        ]
        yield f"| {size:,.0f} | {' | '.join(cells)} |"


def by_size(record: Path, first: str, workload: str) -> dict[str, list[Point]]:
    """Return each driver's figures of a workload over the number of patterns, from the table whose first column is *first*."""
    text = record.read_text(encoding="utf-8")
    series: dict[str, list[Point]] = {}
    for row in table(text, first) if f"| {first} |" in text else ():
        name, _, head = row[first].partition(":")
        for peer, cell in row.items() if name == workload else ():
            if peer not in (first, "matches an event", "ids") and "÷" not in peer:
                line = series.setdefault(peer, [])
                # Less than a megabyte of a process cannot be told from noise.
                if cell != "–" and (value := float(cell.replace(",", ""))) >= 1:
                    line.append((float(head or SIZES[workload]), value))
    return {peer: line for peer, line in series.items() if line}


def beside_peers(record: Path) -> Iterator[str]:
    """Yield the charts of each workload that was measured at several sizes."""
    for workload, title in TITLES.items():
        if series := by_size(record, "workload", workload):
            told = f"Time of an event over the number of subscriptions, {workload}: {title}"
            yield from ("", f"### {title}", "", placed(chart(series, told)), "", *figures(series))
        if series := by_size(record, HELD, workload):
            told = f"Memory over the number of subscriptions, {workload}: {title}"
            yield from ("", "Memory of these patterns:", "", placed(chart(series, told, MEMORY)), "", *figures(series, MEMORY))


def placed(svg: str) -> str:
    """Return a chart as it stands on a page."""
    return f'<div class="chart">\n{svg}\n</div>'


def beside_python(record: Path) -> dict[str, list[Point]]:
    """Return the figures of each peer that Python has, over the number of rules."""
    series: dict[str, list[Point]] = {}
    for row in table(record.read_text(encoding="utf-8"), "rules"):
        for peer, cell in row.items():
            if peer not in ("rules", "matches an event", "fastest other") and "÷" not in peer and cell != "–":
                series.setdefault(peer, []).append((float(row["rules"].replace(",", "")), float(cell.replace(",", ""))))
    return series


def pictures() -> dict[Path, str]:
    """Return the charts that are files of their own, as SVG: what an event costs and what is held, beside the peers."""
    found: dict[Path, str] = {}
    if record := newest("python-peers"):
        found[ASSETS / "rules.svg"] = alone_standing(chart(beside_python(record), RULES))
    record = newest("peers-sizes")
    for name, first, measure in (("cost", "workload", TIME), ("memory", HELD, MEMORY)):
        if record and (series := by_size(record, first, SHOWN)):
            svg = chart(series, f"{TITLES[SHOWN]}: {name} over the number of subscriptions", measure)
            found[ASSETS / f"{name}.svg"] = alone_standing(svg)
    return found


def alone_standing(svg: str) -> str:
    """Return a chart as a file of its own."""
    head, _, rest = svg.partition(">\n")
    ground = f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>'
    return f'{head} xmlns="http://www.w3.org/2000/svg">\n<style>{STYLE}</style>\n{ground}\n{rest}\n'


def alone(record: Path) -> Iterator[str]:
    """Yield the chart of the native core by itself, a line for each number of matches."""
    series: dict[str, list[Point]] = {}
    for row in table(record.read_text(encoding="utf-8"), "subscriptions"):
        name = "no match" if row["set"] == "none" else f"{row['set']} matches"
        series.setdefault(name, []).append((float(row["subscriptions"]), float(row["p50 µs"]) * 1e3))
    yield from (
        "",
        placed(chart(series, "Time of an event over the number of subscriptions, by matches of an event")),
        "",
        *figures(series),
    )


def page() -> str:
    """Return the page of charts."""
    lines = [
        "# What does an event cost?",
        "",
        "You can compare the cost of an event with few and many subscriptions: if a line is level, the cost is constant.",
        "Both axes are logarithmic. The charts are drawn from the newest [records of the benchmarks](README.md), which also name",
        "machine and versions.",
    ]
    if peers := newest("peers-sizes"):
        lines += ["", "## Next to other engines", ""]
        lines += ["The time of one core for an event, its JSON included, with growing numbers of patterns, by turns in one run."]
        lines += ["A line that ends early belongs to an engine that accepts no more patterns, or takes minutes to load them."]
        lines += [f"[The record](records/{peers.name}) has the reasons, and the load of the machine."]
        lines += beside_peers(peers)
    if python := newest("python-peers"):
        series = beside_python(python)
        lines += ["", "## Next to Python packages", ""]
        lines += ["The same rules on the demo's flights, in the packages that you could install instead, bytes in and ids out:"]
        lines += [f"[the record](records/{python.name}). A line ends early if loading the rules or matching takes minutes."]
        lines += ["", placed(chart(series, RULES)), "", *figures(series)]
    if core := newest("core"):
        lines += ["", "## The native core", ""]
        lines += ["The native core with sets of subscriptions, of which an event matches more or fewer at the largest size;"]
        lines += [f"the figures are medians of [the record](records/{core.name})."]
        lines += alone(core)
    return "\n".join(lines) + "\n"
