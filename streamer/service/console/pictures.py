"""Pictures as SVG, drawn here so that scripts are unnecessary. Each has a table with the same data next to it.

Colours and fonts come from classes of the stylesheet, which a Content-Security-Policy without inline styles allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, final

from markupsafe import Markup

from streamer.service.console.text import number, plain, rate, share, size, span

__all__ = ["SIGNS", "STATES", "legend", "lines", "pipeline", "share", "state"]

#: The kind of each state, which sets colour and sign, and its word.
STATES: Final[Mapping[str, tuple[str, str]]] = {
    "reading": ("good", "reading"),
    "working": ("good", "working"),
    "streams": ("good", "streams"),
    "idle": ("rest", "idle"),
    "ended": ("rest", "ended"),
    "off": ("rest", "off"),
    "paused": ("rest", "paused"),
    "stalled": ("warn", "stalled"),
    "removed": ("warn", "removed"),
    "down": ("bad", "down"),
    "gone": ("bad", "gone"),
    "disabled": ("bad", "disabled"),
    "no_room": ("bad", "no room"),
    "failed": ("bad", "failed"),
}
#: The sign and the word show a state; the colour repeats it.
SIGNS: Final = {"good": "●", "rest": "○", "warn": "▲", "bad": "✖"}
#: The most boxes of a column; the table has all.
_MOST: Final = 8
_BOX: Final = (216, 92)
_GAP: Final = 18
_COLUMNS: Final = (1, 288, 532, 776)
_NARROW: Final = 172


def state(name: str) -> Markup:
    """Return a state as a badge."""
    kind, word = STATES.get(name, ("rest", name))
    return Markup('<span class="badge {}"><span aria-hidden="true">{}</span> {}</span>').format(
        kind, SIGNS[kind], plain(word, 40)
    )


@final
@dataclass(frozen=True, slots=True)
class Box:
    """A part of the pipeline: its name, its state, and lines about it."""

    name: str
    state: str | None
    lines: tuple[str, ...]


def pipeline(status: Mapping[str, Any]) -> Markup:
    """Draw sources, engine, routes and sinks, from left to right."""
    rates, routes = status["rates_per_s"], status["routes"]
    engine = Box(
        "engine",
        None if status["ready"] else "stalled" if status["reason"] == "stalled" else "failed",
        (
            f"{number(status['subscriptions'])} subscriptions",
            f"{rate(rates['events_read'])} events",
            f"{rate(rates['matches'])} matches",
        ),
    )
    way = Box(
        "routes",
        None,
        (f"{len(routes)} in order" if routes else "all to every sink", f"{size(status['waiting_bytes'])} in flight"),
    )
    columns = (
        _few([Box(each["name"], each["state"], _of_source(each)) for each in status["sources"]], "sources"),
        [engine],
        [way],
        _few([Box(each["name"], each["state"], _of_sink(each)) for each in status["sinks"]], "sinks"),
    )
    height = max(len(column) * (_BOX[1] + _GAP) - _GAP for column in columns) + 2
    pieces: list[Markup] = []
    middles: list[list[tuple[float, float, float]]] = []
    for at, (x, column) in enumerate(zip(_COLUMNS, columns, strict=True)):
        wide = _NARROW if at in (1, 2) else _BOX[0]
        top = (height - (len(column) * (_BOX[1] + _GAP) - _GAP)) / 2
        middles.append([])
        for row, box in enumerate(column):
            y = top + row * (_BOX[1] + _GAP)
            middles[-1].append((x, x + wide, y + _BOX[1] / 2))
            pieces.append(_box(box, x, y, wide))
    ways = [_way(left, right) for from_, to in pairwise(middles) for left in from_ for right in to]
    whole = _COLUMNS[-1] + _BOX[0] + 1
    svg = Markup(
        '<svg class="pipeline" viewBox="0 0 {0} {1:.0f}" width="{0}" height="{1:.0f}" role="img" aria-label="{2}">{3}</svg>'
    )
    return svg.format(whole, height, "The pipeline; the tables below have the same values.", Markup("").join((*ways, *pieces)))


def _few(boxes: list[Box], what: str) -> list[Box]:
    if not boxes:
        return [Box(f"no {what}", None, ())]
    if len(boxes) <= _MOST:
        return boxes
    # Parts in a good state are left out first.
    boxes.sort(key=lambda box: {"bad": 0, "warn": 1}.get(STATES.get(box.state or "", ("rest", ""))[0], 2))
    return [*boxes[: _MOST - 1], Box(f"{len(boxes) - _MOST + 1} {what} more", None, ("see the table",))]


def _of_source(source: Mapping[str, Any]) -> tuple[str, ...]:
    lag = source["lag"]
    if lag is None:
        behind = "lag unknown"
    elif not lag["positions"]:
        behind = "nothing to read"
    else:
        amount = size(lag["positions"]) if lag["unit"] == "bytes" else f"{number(lag['positions'])} {lag['unit']}"
        behind = f"behind {amount}, {span(lag['seconds'])}"
    return (f"{rate(source['read_per_s'])} · {source['type']}", behind)


def _of_sink(sink: Mapping[str, Any]) -> tuple[str, ...]:
    spool = sink.get("spool")
    waits = f"{number(spool['messages'])} wait" if spool else f"oldest {span(sink.get('oldest_undelivered_s'))}"
    if spool and spool["messages"]:
        waits += f", oldest {span(spool['oldest_s'])}"
    return (f"{rate(sink.get('delivered_per_s'))} · {sink['type']}", waits)


def _box(box: Box, x: float, y: float, wide: float) -> Markup:
    kind, word = STATES.get(box.state or "", ("rest", box.state or ""))
    pieces = [
        Markup('<rect class="box {}" x="{}" y="{:.1f}" width="{}" height="{}" rx="8"/>').format(
            kind if box.state else "", x, y + 1, wide, _BOX[1] - 2
        ),
        Markup('<text class="name" x="{}" y="{:.1f}">{}</text>').format(
            x + 14, y + 25, plain(box.name, 20 if wide > _NARROW else 16)
        ),
    ]
    lines = [(kind, f"{SIGNS[kind]} {word}")] if box.state else []
    lines += [("", line) for line in box.lines]
    for at, (class_, line) in enumerate(lines):
        pieces.append(
            Markup('<text class="{}" x="{}" y="{:.1f}">{}</text>').format(class_, x + 14, y + 44 + 18 * at, plain(line, 32))
        )
    return Markup("<g>{}</g>").format(Markup("").join(pieces))


def _way(left: tuple[float, float, float], right: tuple[float, float, float]) -> Markup:
    x1, y1, x2, y2 = left[1], left[2], right[0], right[2]
    middle = (x1 + x2) / 2
    return Markup('<path class="way" d="M{} {:.1f} C{} {:.1f} {} {:.1f} {} {:.1f}"/>').format(
        x1, y1, middle, y1, middle, y2, x2, y2
    )


# Values over time

_WIDE, _HIGH = 560, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 8, 22


def lines(
    title: str,
    at: Sequence[float],
    values: Mapping[str, Sequence[float | None]],
    *,
    says: Any = number,
    marks: Iterable[float] = (),
) -> Markup:
    """Draw values over time, one line a name; at most six lines are distinguishable.

    Args:
        at: moments in seconds, ascending.
        says: formats a value at the scale.
        marks: moments of events, such as a rebuild.
    """
    known = [value for line in values.values() for value in line if value is not None]
    top = _round(max(known, default=0.0))
    first, last = (at[0], at[-1]) if at else (0.0, 0.0)
    length = last - first

    def x(moment: float) -> float:
        # A single moment is now.
        return _WIDE - _RIGHT - 0.1 if not length else _LEFT + (moment - first) / length * (_WIDE - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HIGH - _BOTTOM - value / top * (_HIGH - _TOP - _BOTTOM)

    pieces = []
    for part in (0.0, 0.5, 1.0):
        level = top * part
        pieces.append(Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(_LEFT, y(level), _WIDE - _RIGHT))
        # A label would be wrong at half of one thing.
        said = "" if part == 0.5 and says(level) in (says(0.0), says(top)) else says(level)
        pieces.append(Markup('<text class="scale end" x="{}" y="{:.1f}">{}</text>').format(_LEFT - 6, y(level) + 4, said))
    ago = f"{span(length)} ago" if len(at) > 1 else ""
    pieces.append(Markup('<text class="scale" x="{}" y="{}">{}</text>').format(_LEFT, _HIGH - 6, ago))
    pieces.append(Markup('<text class="scale end" x="{}" y="{}">now</text>').format(_WIDE - _RIGHT, _HIGH - 6))
    pieces += [
        Markup('<path class="mark" d="M{:.1f} {}V{}"/>').format(x(mark), _TOP, _HIGH - _BOTTOM)
        for mark in marks
        if first <= mark <= last
    ]
    for number_, line in enumerate(values.values()):
        drawn = _drawn([(x(moment), None if value is None else y(value)) for moment, value in zip(at, line, strict=True)])
        pieces.append(Markup('<path class="line l{}" d="{}"/>').format(number_ % 6, drawn))
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDE, _HIGH, plain(title), Markup("").join(pieces)
    )


def legend(names: Iterable[str]) -> Markup:
    """Return the legend of lines."""
    item = Markup('<li><svg viewBox="0 0 28 10" aria-hidden="true"><path class="l{}" d="M0 5H28"/></svg> {}</li>')
    return Markup('<ul class="legend">{}</ul>').format(
        Markup("").join(item.format(at % 6, plain(name, 60)) for at, name in enumerate(names))
    )


def _drawn(points: Iterable[tuple[float, float | None]]) -> str:
    """Return the path of a line, which is interrupted at missing values."""
    path, is_down = [], False
    for x, y in points:
        if y is None:
            is_down = False
            continue
        path.append(f"{'L' if is_down else 'M'}{x:.1f} {y:.1f}" + ("" if is_down else "h.1"))
        is_down = True
    return "".join(path)


def _round(value: float) -> float:
    """Return the next round number for the top of a scale."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 10.0 ** -next(n for n in range(1, 300) if value * 10**n >= 1)
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value)
