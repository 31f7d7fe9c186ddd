"""What templates say of values: somebody's data so that it drives no page, numbers and times so that people read them."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup, escape

#: Characters that a value shows before it is cut, and those that it shows when it is opened.
SHOWN: Final = 120
OPENED: Final = 20_000
#: Of characters in a row that do not print, so many are named.
_NAMED: Final = 5
#: What stands for a value that is not there. Each filter takes None: what the API may leave null ends no page.
NONE: Final = "–"


def said(value: Any, most: int = SHOWN) -> Markup:
    """Return somebody's data: escaped, with what does not print shown by its number, and opened on demand where it is long.

    What is no text is written as JSON. The result may hold `<details>`, so it stands in a cell or a block, not in a `<p>`.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= most:
        return Markup('<bdi class="said">{}</bdi>').format(shown(text))
    cut = shown(text[:most])
    opened = shown(text[:OPENED], keep="\n\t")
    rest = len(text) - OPENED
    more = (
        Markup('<p class="muted">… and {} characters more; use the API to read them</p>').format(number(rest)) if rest > 0 else ""
    )
    return Markup(
        '<details class="said"><summary><bdi>{}…</bdi> <span class="muted">{} characters</span></summary>'
        '<pre class="wrap" tabindex="0"><bdi>{}</bdi></pre>{}</details>'
    ).format(cut, number(len(text)), opened, more)


def lines(value: str | None) -> Markup:
    """Return somebody's text of several lines, escaped; it stands in a `<pre>`. Of a long one the rest is cut."""
    if value is None:
        return Markup(NONE)
    rest = len(value) - OPENED
    more = Markup('<span class="muted">… and {} characters more</span>').format(number(rest)) if rest > 0 else ""
    return Markup("<bdi>{}</bdi>{}").format(shown(value[:OPENED], keep="\n\t"), more)


def plain(value: str | None, most: int = SHOWN, none: str = NONE) -> str:
    """Return somebody's data as text alone, for titles and attributes: the template escapes it. *none* stands for null."""
    if value is None:
        return none
    text = value if value.isprintable() else "".join(char if char.isprintable() else _name(char) for char in value[: most + 1])
    return text if len(text) <= most else f"{text[:most]}…"


def shown(text: str, keep: str = "") -> Markup:
    """Return a text escaped, with each character that does not print as its number; those to *keep* stay."""
    if text.isprintable():
        return escape(text)
    pieces = []
    for is_plain, run in groupby(text, lambda char: char.isprintable() or char in keep):
        if is_plain:
            pieces.append(escape("".join(run)))
        else:
            chars = list(run)
            names = ", ".join(unicodedata.name(char, "control") for char in chars[:_NAMED])
            numbers = " ".join(map(_name, chars))
            pieces.append(Markup('<span class="control" title="{}">{}</span>').format(names, numbers))
    return Markup("").join(pieces)


def _name(char: str) -> str:
    return f"U+{ord(char):04X}"


def number(value: float | None) -> str:
    """Return a number with its thousands apart; a dash where nobody knows."""
    if value is None:
        return NONE
    return (
        f"{value:,.0f}"
        if float(value).is_integer() or abs(value) >= 100
        else f"{value:,.2f}"
        if abs(value) < 10
        else f"{value:,.1f}"
    )


def rate(value: float | None) -> str:
    """Return so many a second."""
    return NONE if value is None else f"{number(value)}/s"


def share(value: float | None) -> str:
    """Return a part of one as percent."""
    return NONE if value is None else f"{value * 100:.3g} %"


def size(value: float | None) -> str:
    """Return so many bytes."""
    if value is None:
        return NONE
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    unit = units[0]
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def span(seconds: float | None) -> str:
    """Return a length of time, in at most two units."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    whole = int(seconds)
    units = ((60, "min"), (3600, "h"), (86_400, "d"))
    at = sum(whole >= length for length, _ in units) - 1
    (length, big), (shorter, small) = units[at], units[at - 1] if at else (1, "s")
    rest = whole % length // shorter
    return f"{whole // length} {big} {rest} {small}" if rest else f"{whole // length} {big}"


def moment(value: str | float | None) -> Markup:
    """Return a time as `<time>` in UTC; the script adds the reader's zone. Seconds since the epoch, or RFC 3339."""
    if value is None:
        return Markup(NONE)
    try:
        at = (
            datetime.fromtimestamp(value, UTC)
            if isinstance(value, int | float)
            else datetime.fromisoformat(value).astimezone(UTC)
        )
    except (OverflowError, ValueError):
        return said(value)
    return Markup('<time datetime="{}">{} UTC</time>').format(at.strftime("%Y-%m-%dT%H:%M:%SZ"), at.strftime("%Y-%m-%d %H:%M:%S"))


def address(path: str, **query: Any) -> str:
    """Return the address of a page of the console, with what is not None in its query; half of a surrogate pair becomes `?`."""
    given = urlencode({name: value for name, value in query.items() if value is not None}, errors="replace")
    return f"/console/{path}" + (f"?{given}" if given else "")


def pretty(value: Any) -> str:
    """Return JSON on several lines."""
    return json.dumps(value, ensure_ascii=False, indent=2)
