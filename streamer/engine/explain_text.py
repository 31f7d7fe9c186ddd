"""Print an explanation: a row for each condition, in lines that fit a terminal."""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from streamer.model import BeyondFloat64, Verdict
from streamer.reference.conditions import Condition, Values
from streamer.reference.filters import Absence
from streamer.terminal import WIDTH

if TYPE_CHECKING:
    from streamer.engine.explain import Explanation

#: The most characters of a value, and the most paths of a list, that are printed.
SHOWN, SHOWN_PATHS = 60, 8
#: The most lines of an expression that are printed.
_MAX_LINES: Final = 6

_SIGNS: Final = {Verdict.TRUE: "✓", Verdict.FALSE: "✗", Verdict.ERROR: "!", Verdict.UNKNOWN: "?"}
_COLOURS: Final = {Verdict.TRUE: 32, Verdict.FALSE: 31, Verdict.ERROR: 33, Verdict.UNKNOWN: 33}


def write(explanation: Explanation, *, colour: bool) -> str:
    """Return an explanation as text."""
    headline = explanation.headline
    lines = [f"\x1b[1m{headline}\x1b[0m" if colour else headline]
    rows = _Rows([*explanation.conditions, *explanation.before], colour=colour)
    lines += rows.lines(explanation.conditions)
    if explanation.before:
        lines += ["before the update:", *rows.lines(explanation.before)]
    if explanation.note is not None:
        lines += textwrap.wrap(on_one_line(explanation.note), WIDTH)
    return "\n".join(lines)


class _Rows:
    """Formats conditions in columns: sign, place, condition, outcome. Longer text continues on the lines below."""

    def __init__(self, rows: Sequence[Condition], *, colour: bool) -> None:
        self._colour = colour
        self._places = min(max((len(on_one_line(row.place)) for row in rows), default=0), 30)
        short = [
            len(on_one_line(row.text)) for row in rows if self._indent + len(on_one_line(row.text) + outcome_of(row)) + 2 <= WIDTH
        ]
        self._texts = max(short, default=0)

    @property
    def _indent(self) -> int:
        return len("  ✓ ") + self._places + 2

    def lines(self, rows: Sequence[Condition]) -> Iterator[str]:
        for row in rows:
            place = f"{_shortened(on_one_line(row.place), WIDTH - 6):{self._places}}"
            yield from self._row(row, f"{place}  ", self._texts)
            yield from self._parts(row, 1)

    def _parts(self, row: Condition, level: int) -> Iterator[str]:
        for part in row.parts:
            yield from self._row(part, "  " * level, 0, indent=2 * level + 4)
            yield from self._parts(part, level + 1)

    def _row(self, row: Condition, before: str, texts: int, indent: int | None = None) -> Iterator[str]:
        """Yield the lines of one condition, the place or the depth *before* it."""
        text, outcome = on_one_line(row.text), outcome_of(row)
        start = f"  {_SIGNS[row.verdict]} {before}"
        margin = " " * (self._indent if indent is None else indent)
        first = f"{start}{text:{texts}}  "
        if len(first) + len(outcome) <= WIDTH:
            yield self._painted(first, row.verdict, _SIGNS[row.verdict]) + self._painted(outcome, row.verdict, row.verdict.value)
            return
        wrapped = _wrapped(text, WIDTH - len(margin), _MAX_LINES)
        # A long place gets its own line.
        first = start + wrapped.pop(0) if len(start) <= len(margin) else start.rstrip()
        yield self._painted(first, row.verdict, _SIGNS[row.verdict])
        yield from (margin + line for line in wrapped)
        opening, *more = _wrapped(outcome, WIDTH - len(margin), 12)
        yield margin + self._painted(opening, row.verdict, row.verdict.value)
        yield from (margin + line for line in more)

    def _painted(self, text: str, verdict: Verdict, word: str) -> str:
        """Return a text with the first occurrence of a word in the colour of a verdict."""
        return text.replace(word, f"\x1b[{_COLOURS[verdict]}m{word}\x1b[0m", 1) if self._colour else text


def outcome_of(row: Condition) -> str:
    """Return the result of a condition as text, with the value that it read and a hint at the probable intention."""
    reason = f" ({on_one_line(row.reason)})" if row.reason and not (row.hint and row.kind == "filter") else ""
    decided = ", which decides" if row.decided else ""
    # If there are operands, their rows show the values.
    shown = "" if row.parts else on_one_line(_actual(row))
    meant = f"; {on_one_line(row.hint)}" if row.hint and not row.parts else ""
    return f"{row.verdict.value}{reason}{decided}{f', {shown}' if shown else ''}{meant}"


def _actual(row: Condition) -> str:
    actual = row.seen
    if isinstance(actual, Values) and actual and row.kind == "filter":
        was, now = map(show_value, actual.values())
        return f"was {was}, is {now}"
    if not isinstance(actual, Values):
        shown = show_value(actual)
        return f"saw {shown}" if shown else ""
    several = [f"{path} = {show_value(value)}" for path, value in itertools.islice(actual.items(), SHOWN_PATHS)]
    return "saw " + ", ".join([*several, *(["..."] if len(actual) > SHOWN_PATHS else [])]) if actual else ""


def _wrapped(text: str, width: int, lines: int) -> list[str]:
    # Cut text far beyond the last line before it is split into words.
    text = text[: 20 * WIDTH * lines]
    return textwrap.wrap(text, max(width, 20), max_lines=lines, placeholder=" ...", break_on_hyphens=False) or [""]


def on_one_line(text: str) -> str:
    """Return a text with control characters escaped; the line breaks of an expression become spaces."""
    text = text.strip()
    if text.isprintable():
        return text
    text = " ".join(filter(None, map(str.strip, text.split("\n"))))
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def show_value(value: Any) -> str:
    """Return a value of an event as short JSON, or as `<missing>` or `<unknown>`."""
    if isinstance(value, Absence):
        return repr(value)
    return _shortened(json.dumps(_first_of(value, [SHOWN]), ensure_ascii=False, default=_spelled), SHOWN)


def _first_of(value: Any, budget: list[int]) -> Any:
    """Return the beginning of a value that is enough to show: the value itself may be as long as an event.

    Args:
        left: the number of values that may still be added. Each takes at least one character, so that also bounds the depth.
    """
    budget[0] -= 1
    if isinstance(value, str):
        return value[: SHOWN + 1]
    if isinstance(value, Mapping):
        copy = {}
        for name, inner in value.items():
            if budget[0] < 0:
                break
            copy[name[: SHOWN + 1] if isinstance(name, str) else name] = _first_of(inner, budget)
        return copy
    if isinstance(value, list | tuple):
        shown = []
        for inner in value:
            if budget[0] < 0:
                break
            shown.append(_first_of(inner, budget))
        return shown
    return value


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _spelled(value: Any) -> Any:
    return value.text if isinstance(value, BeyondFloat64) else repr(value)


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as plain JSON values; event values are shortened texts, as they are printed."""
    return {
        "subscription_id": explanation.subscription_id,
        "matched": explanation.matched,
        "transition": explanation.transition,
        "certain": explanation.certain,
        "verdict": explanation.verdict.value,
        "conditions": [row_as_json(row) for row in explanation.conditions],
        "before": [row_as_json(row) for row in explanation.before],
        "note": explanation.note,
        "cel": explanation.cel,
    }


def row_as_json(row: Condition) -> dict[str, Any]:
    """Return a condition as plain JSON values."""
    actual = row.seen
    members: dict[str, Any] = {
        "kind": row.kind,
        "place": row.place,
        "text": row.text,
        "verdict": row.verdict.value,
        "seen": {path: show_value(value) for path, value in actual.items()} if isinstance(actual, Values) else show_value(actual),
        "reason": row.reason,
        "hint": row.hint,
    }
    if row.parts:
        members["parts"] = [{**row_as_json(part), "decided": part.decided} for part in row.parts]
    return members
