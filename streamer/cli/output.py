"""The output of `streamer match`: matches, progress, the summary."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, BinaryIO, Final, TextIO

import streamer
from streamer.core.histogram import Histogram
from streamer.core.matches import Matches
from streamer.engine.stats import ignored_text
from streamer.sizes import format_percentiles
from streamer.terminal import json_text, printable, printable_json, quoted, show


class Format(StrEnum):
    """The format of printed matches."""

    jsonl = "jsonl"
    json = "json"
    table = "table"
    ids = "ids"


class PlainFormat(StrEnum):
    """The format of one printed result."""

    text = "text"
    json = "json"


class FaultFormat(StrEnum):
    """The format of printed errors."""

    text = "text"
    json = "json"
    github = "github"


@dataclass(slots=True)
class Tally:
    """The counts of `match` so far; their text is the summary."""

    events: int = 0
    matches: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    bad: int = 0
    durations: Histogram = field(default_factory=Histogram)
    started: float = field(default_factory=time.monotonic)

    @property
    def rate(self) -> float:
        """Events a second, reading and writing included."""
        return self.events / max(time.monotonic() - self.started, 1e-9)

    def __str__(self) -> str:
        parts = [
            f"{count(self.events, 'event')}, {count(self.matches, 'match', 'matches')}, {count(self.bad, 'bad event')}",
        ]
        if self.ignored:
            parts.append(ignored_text(self.ignored))
        if self.events > self.bad:
            parts += [
                f"{format_percentiles(self.durations.percentiles())} an event",
                f"{self.rate:,.0f} events/s",
            ]
        parts.append(f"{streamer.BACKEND} backend")
        return "; ".join(parts)


@contextmanager
def progress(source: BinaryIO, tally: Tally, *, shown: bool) -> Iterator[Callable[[], None]]:
    """Show progress on a terminal, unless matches may appear there, too; yield the function to call for each event."""
    if not shown or not sys.stderr.isatty() or _may_be_shown(sys.stdout) or os.environ.get("TERM") == "dumb":
        yield lambda: None
        return
    status = os.fstat(source.fileno())
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    before, line = sys.stderr, _Line(sys.stderr)
    due = 0.0

    def show() -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + 0.1
            part = f"{source.tell() / size:4.0%}  " if size else ""
            line.show(f"{part}{tally.events:,} events, {tally.rate:,.0f} events/s, {tally.matches:,} matches")

    sys.stderr = line
    try:
        yield show
    finally:
        line.clear()
        sys.stderr = before


def _may_be_shown(out: TextIO) -> bool:
    """Return whether this output may appear on the terminal; that includes pipes, because their reader may print it."""
    if out.closed:
        return False
    return out.isatty() or not stat.S_ISREG(os.fstat(out.fileno()).st_mode)


class _Line:
    """The last line of a terminal, which shows progress; other output meanwhile appears above it."""

    _CLEAR: Final = "\r\x1b[2K"

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the text of the line."""
        self._terminal.write(self._CLEAR + text[: os.get_terminal_size(self._terminal.fileno()).columns - 1])
        self._terminal.flush()
        self._shown = True

    def clear(self) -> None:
        """Clear the line."""
        if self._shown:
            self._shown = False
            self._terminal.write(self._CLEAR)
            self._terminal.flush()

    def write(self, text: str) -> int:
        self.clear()
        return self._terminal.write(text)

    def flush(self) -> None:
        self._terminal.flush()


def writer(output: Format, engine: streamer.Engine) -> Callable[[int, Matches], None]:
    """Return the function that prints the matches of an event, from the number of its line."""
    write = sys.stdout.write
    if output is Format.ids:

        def ids(number: int, matches: Matches) -> None:
            for subscription_id in matches.sorted().ids():
                write(f"{quoted(subscription_id)}\n")

        return ids

    if output is Format.table:
        by_id = engine.subscriptions()
        width = min(max([12, *(len(each.id) for each in by_id)]), 40)
        gateway = min(max([7, *(len(each.gateway_id or "") for each in by_id)]), 24)
        write(f"{'LINE':>8}  {'SUBSCRIPTION':<{width}}  {'GATEWAY':<{gateway}}  {'TRANSITION':<10}  CERTAIN\n")

        def table(number: int, matches: Matches) -> None:
            for each in matches.sorted():
                columns = f"{quoted(each.subscription_id):<{width}}  {quoted(each.gateway_id or '-'):<{gateway}}"
                write(f"{number:>8}  {columns}  {each.transition or '-':<10}  {'yes' if each.certain else 'no'}\n")

        return table

    def jsonl(number: int, matches: Matches) -> None:
        for each in matches.sorted():
            shown: dict[str, Any] = {
                "line": number,
                "subscription_id": each.subscription_id,
                "gateway_id": each.gateway_id,
                "transition": each.transition,
                "certain": each.certain,
            }
            text = printable_json(json.dumps(shown, ensure_ascii=False))
            if each.labels is not None:
                text = f'{text[:-1]}, "labels": {json_text(each.labels)}}}'
            write(f"{text}\n")

    return jsonl


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 event`, `2,000 events`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def show_json(members: Mapping[str, Any]) -> None:
    """Print one JSON object on a line."""
    show(printable_json(json.dumps(members, ensure_ascii=False)))


def annotation(
    text: str, *, file: str, line: int | None = None, column: int | None = None, title: str = "", level: str = "error"
) -> str:
    """Write an error or a warning as GitHub reads it from the output of a step: it is then shown at its line of the file."""
    places = {"file": file, "line": line, "col": column, "title": title}
    said = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in places.items() if value)
    return f"::{level} {said}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    for char in f"%\r\n{more}":
        text = text.replace(char, f"%{ord(char):02X}")
    return printable(text)
