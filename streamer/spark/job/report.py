"""A job's report, as one self-contained HTML page: without scripts, fonts and network.

```
 tiles      events · matched · matches · pruned · ignored · rejected · events a second
 events     one bar: where each event ended
 skew       a bar a collection: its share of the events, and of the matches
 time       events a second, and for a stream each micro-batch and the version of the subscriptions
 tasks      the quickest, the middle and the slowest task of each stage
 tables     the same in figures
```

Invariant: all text that may come from an event or a subscription is escaped. Colours come from two palettes, light and dark; the
reader's system chooses one. Cost: linear in the output, which is bounded: collections past a few are drawn as one, points in time
are averaged, and only the last micro-batches of a stream are shown. Rejected: matplotlib, whose text cannot be selected and does
not follow the reader's colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from importlib.resources import files
from statistics import fmean
from typing import Final, final

from streamer.cli.output import count
from streamer.sizes import format_size

#: More collections than this are drawn as one.
COLLECTIONS: Final = 20
#: More points in time than this are averaged.
POINTS: Final = 240
WIDTH: Final = 880


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The counts of one tenant and collection."""

    tenant: str | None
    collection: str | None
    events: int
    matched: int = 0
    matches: int = 0
    rejected: int = 0
    ignored: int = 0
    pruned: int = 0

    @property
    def is_unread(self) -> bool:
        """Whether this group is the unreadable events, which have no tenant and collection."""
        return self.tenant is None and self.collection is None and self.rejected + self.ignored > 0

    @property
    def name(self) -> str:
        """The name that the report shows."""
        if self.is_unread:
            return "rejected or ignored" if self.ignored else "could not be read"
        collection = "no collection" if self.collection is None else self.collection
        return collection if self.tenant in (None, "default") else f"{self.tenant} / {collection}"


@final
@dataclass(frozen=True, slots=True)
class Point:
    """Events a second, at a time in seconds since the job began."""

    seconds: float
    rate: float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch of a stream: when it began, in seconds since the job did, and how long it took."""

    id: int
    began: float
    seconds: float
    events: int
    matches: int = 0
    version: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of Spark's: the seconds that its tasks ran (least, quartiles, most), and the data that they read and shuffled."""

    id: int
    name: str
    tasks: int
    durations: tuple[float, float, float, float, float]
    records: int = 0
    shuffled_records: int = 0
    shuffled_bytes: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a job.

    Attributes:
        facts: the job's settings, in the words of its options.
        parts: the events of each tenant and collection; they add up to all events.
        codes: number of rejected events for each reason.
        seconds: total duration.
        matching: duration of the matching; the rest is starting, planning and writing.
    """

    title: str
    began: datetime
    seconds: float
    matching: float = 0.0
    facts: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[Part] = ()
    codes: Mapping[str, int] = field(default_factory=dict)
    points: Sequence[Point] = ()
    batches: Sequence[Batch] = ()
    stages: Sequence[Stage] = ()

    @property
    def events(self) -> int:
        """The number of events."""
        return sum(part.events for part in self.parts)

    def total(self, name: str) -> int:
        """Add up one of the counts of the parts."""
        return sum(getattr(part, name) for part in self.parts)

    @property
    def rate(self) -> float:
        """Events a second, while they were matched."""
        seconds = self.matching or self.seconds
        return self.events / seconds if seconds > 0 else 0.0

    @property
    def skew(self) -> float:
        """Return the largest collection's share as a multiple of the mean; 1 if all are equal, 0 without collections."""
        events = [part.events for part in self.parts if not part.is_unread]
        return max(events) * len(events) / sum(events) if sum(events) else 0.0


def render(report: Report) -> str:
    """Return the page."""
    sections = [_tiles(report), _outcomes(report), _skew(report), _time(report), _batches(report), _tasks(report), _codes(report)]
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in report.facts.items())
    began = report.began.strftime("%Y-%m-%d %H:%M:%S %Z").strip()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(report.title)}</title>\n<style>{_style()}</style>\n</head>\n<body>\n<main>\n"
        f'<header><h1>{escape(report.title)}</h1><p class="when">{escape(began)}, {_duration(report.seconds)}</p></header>\n'
        + "\n".join(filter(None, sections))
        + (f'\n<section><h2>Arguments</h2><dl class="facts">{facts}</dl></section>' if facts else "")
        + "\n</main>\n</body>\n</html>\n"
    )


def _style() -> str:
    return files("streamer.spark").joinpath("report.css").read_text(encoding="utf-8").partition("*/")[2].strip()


# The sections, in the order of the page.


def _tiles(report: Report) -> str:
    events = report.events
    matched, matches, pruned = (report.total(name) for name in ("matched", "matches", "pruned"))
    ignored, rejected = report.total("ignored"), report.total("rejected")
    tiles = [
        (_short(events), "events", f"{_short(report.rate)} a second"),
        (_short(matched), "matched", _share(matched, events)),
        (_short(matches), "matches", f"{matches / events:.2f} an event" if events else ""),
        (_short(pruned), "pruned by Bloom", _share(pruned, events)),
        *([(_short(ignored), "ignored", _share(ignored, events))] if ignored else []),
        (_short(rejected), "rejected", _share(rejected, events)),
    ]
    made = "".join(f"<li><b>{number}</b><span>{label}</span><small>{more}</small></li>" for number, label, more in tiles)
    return f'<section><ul class="tiles">{made}</ul></section>'


def _outcomes(report: Report) -> str:
    events = report.events
    if not events:
        return '<section><p class="said">There was no event.</p></section>'
    matched, pruned, ignored, rejected = (report.total(name) for name in ("matched", "pruned", "ignored", "rejected"))
    parts = [
        ("matched", matched, "matched at least one subscription"),
        ("looked", max(events - matched - pruned - ignored - rejected, 0), "were matched without a match"),
        ("pruned", pruned, "were stopped by a Bloom filter"),
        ("ignored", ignored, "were ignored: no change, such as a tombstone or a heartbeat"),
        ("rejected", rejected, "could not be read"),
    ]
    x, bars = 0.0, []
    for kind, number, says in parts:
        if number:
            width = max(number / events * WIDTH, 3.0)
            bars.append(_bar(kind, x, 0, width - 2, 26, f"{number:,} {says}"))
            x += width
    drawing = _drawing(26, "Outcome of each event", *bars, width=max(x, WIDTH))
    legend = _legend((kind, f"<b>{_share(number, events)}</b> {says}") for kind, number, says in parts if number)
    return _section("Outcomes of the events", "", drawing, legend)


def _skew(report: Report) -> str:
    parts = sorted(report.parts, key=lambda part: (-part.events, part.name))
    if not parts:
        return ""
    shown, others = parts[:COLLECTIONS], parts[COLLECTIONS:]
    if others:
        rest = {name: sum(getattr(part, name) for part in others) for name in _COUNTS}
        shown = [*shown, Part(tenant=None, collection=f"{len(others):,} others", **rest)]
    events, matches = max(report.events, 1), max(report.total("matches"), 1)
    shares = [(part.events / events, part.matches / matches) for part in shown]
    row, left, right = 34, 190, 150
    scale = (WIDTH - left - right) / max(1e-9, *map(max, shares))
    drawn = []
    for index, (part, (of_events, of_matches)) in enumerate(zip(shown, shares, strict=True)):
        y = index * row
        figures = f'{_share(part.events, events)}<tspan class="dim" dx="6">{_short(part.events)}</tspan>'
        drawn += [
            _word("name", left - 12, y + 17, f"{escape(_cut(part.name, 26))}<title>{escape(part.name)}</title>", "end"),
            _bar("events", left, y + 4, max(of_events * scale, 1), 11),
            _bar("matches", left, y + 17, max(of_matches * scale, 0.5), 6),
            _word("figure", left + max(of_events, of_matches) * scale + 8, y + 18, figures),
        ]
    readable = [part for part in parts if not part.is_unread]
    said = ""
    if readable:
        names = f"{len(readable):,} collections; the largest" if len(readable) > 1 else "One collection"
        times = f", {report.skew:.1f} times the mean" if len(readable) > 1 else ""
        said = f"{names}, {escape(readable[0].name)}, has {_share(readable[0].events, events)} of the events{times}."
    rows = [[escape(part.name), *(f"{getattr(part, name):,}" for name in _COUNTS)] for part in shown]
    return _section(
        "Skew by collection",
        said,
        _drawing(row * len(shown) + 4, "Events and matches by collection", *drawn),
        _legend([("events", "share of the events"), ("matches", "share of the matches")]),
        _folded(_table(("collection", *_COUNTS), rows)),
    )


def _time(report: Report) -> str:
    points = _thinned(report.points)
    if len([point for point in points if point.rate]) < 2:
        return ""
    height, left, bottom = 220, 64, 30
    end, base = max(point.seconds for point in points), height - bottom
    top, steps = _axis(max(point.rate for point in points))
    across, up = (WIDTH - left - 16) / end, (base - 14) / top
    places = [(left + point.seconds * across, base - point.rate * up) for point in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    area = f"{places[0][0]:.1f},{base} {line} {places[-1][0]:.1f},{base}"
    flags, before = [], None
    for batch in report.batches:
        if batch.version != before and before is not None and batch.version is not None:
            flags.append(_flag(left + batch.began * across, 6, base, batch.version[:8]))
        before = batch.version or before
    drawing = _drawing(
        height,
        "Events a second over time",
        _grid(steps, up, left, base, _short),
        _ticks(end, left, across, base),
        f'<polygon class="area" points="{area}"/><polyline class="line" points="{line}"/>',
        *flags,
    )
    peak = max(points, key=lambda point: point.rate)
    said = f"At most {_short(peak.rate)} events a second, {_duration(peak.seconds)} after it began."
    return _section("Events a second", said, drawing)


def _batches(report: Report) -> str:
    batches = report.batches
    if not batches:
        return ""
    height, left, bottom = 190, 64, 30
    shown, base = batches[-POINTS:], height - bottom
    top, steps = _axis(max(batch.seconds for batch in shown))
    across, up = (WIDTH - left - 16) / len(shown), (base - 14) / top
    every = math.ceil(len(shown) / 12)
    drawn, before = [], None
    for index, batch in enumerate(shown):
        x, tall = left + index * across, max(batch.seconds * up, 1)
        title = f"batch {batch.id}: {batch.events:,} events in {_duration(batch.seconds)}, {batch.matches:,} matches"
        drawn.append(
            _bar("events", x + across * 0.1, base - tall, across * 0.8, tall, f"{title}, {batch.version or ''}".rstrip(", "))
        )
        if batch.version and batch.version != before:
            drawn.append(_flag(x + across * 0.05, 6, base, batch.version[:8]))
        if index % every == 0:
            drawn.append(_word("axis", x + across / 2, base + 19, f"{batch.id}", "middle"))
        before = batch.version
    versions = len({batch.version for batch in batches if batch.version})
    said = f"{len(batches):,} micro-batch{'es' if len(batches) > 1 else ''}"
    said += (
        f", {versions} version{'s' if versions > 1 else ''} of the subscriptions; each flag marks the start of one."
        if versions
        else "."
    )
    drawing = _drawing(height, "How long each micro-batch took", _grid(steps, up, left, base, _duration), *drawn)
    return _section("Micro-batches", said, drawing)


def _tasks(report: Report) -> str:
    stages = sorted((stage for stage in report.stages if stage.tasks), key=lambda stage: -stage.durations[-1])[:12]
    if not stages:
        return ""
    slowest = stages[0]
    stages.sort(key=lambda stage: stage.id)
    row, left, right = 30, 230, 120
    scale = (WIDTH - left - right) / (slowest.durations[-1] or 1.0)
    drawn = []
    for index, stage in enumerate(stages):
        y = index * row + 15
        least, low, middle, high, most = (left + seconds * scale for seconds in stage.durations)
        name = f"{escape(_cut(stage.name, 22))} · {stage.tasks:,}<title>stage {stage.id}, {count(stage.tasks, 'task')}</title>"
        drawn += [
            _word("name", left - 12, y + 4, name, "end"),
            _line("track", left, y, least, y),
            _line("whisker", least, y, most, y),
            _bar("events", low, y - 6, max(high - low, 2), 12),
            _line("middle", middle, y - 8, middle, y + 8),
            f'<circle class="most" cx="{most:.1f}" cy="{y}" r="3.5"/>',
            _word("figure", most + 10, y + 4, _duration(stage.durations[-1])),
        ]
    ratio = slowest.durations[-1] / slowest.durations[2] if slowest.durations[2] else 1.0
    times = f", {ratio:.1f} times the median of its stage" if slowest.tasks > 1 else ""
    said = (
        f"The slowest task took {_duration(slowest.durations[-1])}{times}. "
        "Bars span the middle half of a stage's tasks, whose number is next to its name; the dot is the slowest."
    )
    rows = [
        [
            f"{stage.id}: {escape(_cut(stage.name, 48))}",
            f"{stage.tasks:,}",
            f"{stage.records:,}",
            f"{stage.shuffled_records:,}",
            format_size(stage.shuffled_bytes),
            _duration(stage.durations[2]),
            _duration(stage.durations[-1]),
        ]
        for stage in stages
    ]
    table = _table(("stage", "tasks", "rows read", "rows shuffled", "bytes shuffled", "median", "slowest"), rows)
    drawing = _drawing(row * len(stages) + 4, "Durations of the tasks of each stage", *drawn)
    return _section("Skew by task", said, drawing, _folded(table))


def _codes(report: Report) -> str:
    if not report.codes:
        return ""
    codes = sorted(report.codes.items(), key=lambda each: (-each[1], each[0]))
    rows = [[f"<code>{escape(code)}</code>", f"{number:,}", _share(number, report.events)] for code, number in codes]
    return _section("Rejected events", "", _table(("code", "events", "of all"), rows))


# Pieces of drawings, and words for numbers.

_COUNTS: Final = ("events", "matched", "matches", "pruned", "ignored", "rejected")


def _drawing(height: float, label: str, *parts: str, width: float = WIDTH) -> str:
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _bar(kind: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    tooltip = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2">{tooltip}</rect>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _word(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _grid(steps: Sequence[float], up: float, left: float, y: float, word: Callable[[float], str]) -> str:
    lines = (
        _line("grid", left, y - step * up, WIDTH - 16, y - step * up)
        + _word("axis", left - 10, y - step * up + 4, word(step), "end")
        for step in steps
    )
    return "".join(lines)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _folded(table: str) -> str:
    return f"<details><summary>The figures</summary>{table}</details>"


def _legend(items: Iterable[tuple[str, str]]) -> str:
    return f'<ul class="legend">{"".join(f"<li><i class={kind!r}></i>{text}</li>" for kind, text in items)}</ul>'


def _section(title: str, said: str, *parts: str) -> str:
    note = f'<p class="said">{said}</p>' if said else ""
    return f"<section><h2>{title}</h2>{note}{''.join(parts)}</section>"


def _flag(x: float, top: float, bottom: float, text: str) -> str:
    return _line("flag", x, top, x, bottom) + _word("flagged", x + 4, top + 8, escape(text))


def _ticks(end: float, left: float, across: float, y: float) -> str:
    step = next((each for each in _STEPS if end / each <= 8), _STEPS[-1] * math.ceil(end / _STEPS[-1] / 8))
    times = (index * step for index in range(int(end / step) + 1))
    return "".join(_word("axis", left + time * across, y + 19, _duration(time), "middle") for time in times)


_STEPS: Final = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)


def _axis(most: float) -> tuple[float, list[float]]:
    """Return the end of an axis, and its lines: round numbers, four or five of them."""
    if most <= 0:
        return 1.0, [0.0, 1.0]
    size = 10 ** math.floor(math.log10(most))
    step = next(step for step in (size / 5, size / 4, size / 2, size, size * 2, size * 2.5) if most / step <= 5)
    steps = max(1, math.ceil(most / step - 1e-9))
    return step * steps, [step * index for index in range(steps + 1)]


def _thinned(points: Sequence[Point]) -> list[Point]:
    size = math.ceil(len(points) / POINTS) or 1
    groups = [points[index : index + size] for index in range(0, len(points), size)]
    return [Point(fmean(each.seconds for each in group), fmean(each.rate for each in group)) for group in groups]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _short(number: float) -> str:
    """Write a number with three digits: 1.23M, 45.6k, 789."""
    for unit, size in (("bn", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size * 0.9995:
            scaled = number / size
            return (
                f"{scaled:.2f}".rstrip("0").rstrip(".") + unit
                if scaled < 10
                else f"{scaled:.3g}{unit}"
                if scaled < 1e3
                else f"{scaled:,.0f}{unit}"
            )
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


def _share(part: float, whole: float) -> str:
    """Write a share as HTML."""
    if not whole or not part:
        return "0 %"
    share = part / whole * 100
    if share < 0.1:
        return "&lt; 0.1 %"
    return f"{share:.1f} %" if share < 99.95 or part == whole else "&gt; 99.9 %"


def _duration(seconds: float) -> str:
    if seconds < 1e-9:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
