"""Filters of templates: user data so that it cannot control a page, numbers and times so that people can read them."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup, escape

#: The characters of a value that are shown, and the most when it is opened.
SHOWN: Final = 120
OPENED: Final = 20_000
#: The most unprintable characters in a row that are named.
_NAMED: Final = 5
#: Stands for a missing value. Each filter accepts None, so that a null from the API never breaks a page.
NONE: Final = "–"


def said(value: Any, most: int = SHOWN) -> Markup:
    """Return user data: escaped, with unprintable characters as their numbers, and expandable if it is long.

    Values other than text are written as JSON. The result may contain `<details>`, so it belongs in a cell or a block, not in a
    `<p>`.
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
    """Return user text of several lines, escaped, for a `<pre>`; a long text is cut."""
    if value is None:
        return Markup(NONE)
    rest = len(value) - OPENED
    more = Markup('<span class="muted">… and {} characters more</span>').format(number(rest)) if rest > 0 else ""
    return Markup("<bdi>{}</bdi>{}").format(shown(value[:OPENED], keep="\n\t"), more)


def plain(value: str | None, most: int = SHOWN, none: str = NONE) -> str:
    """Return user data as plain text, for titles and attributes: the template escapes it. *none* stands for null."""
    if value is None:
        return none
    text = value if value.isprintable() else "".join(char if char.isprintable() else _name(char) for char in value[: most + 1])
    return text if len(text) <= most else f"{text[:most]}…"


def shown(text: str, keep: str = "") -> Markup:
    """Return a text escaped, with unprintable characters as their numbers, except those to *keep*."""
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
    """Return a number with thousands separators; a dash for None."""
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
    """Return a rate per second."""
    return NONE if value is None else f"{number(value)}/s"


def share(value: float | None) -> str:
    """Return a fraction as percent."""
    return NONE if value is None else f"{value * 100:.3g} %"


def size(value: float | None) -> str:
    """Return a number of bytes with its unit."""
    if value is None:
        return NONE
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    unit = units[0]
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def span(seconds: float | None) -> str:
    """Return a duration in at most two units."""
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
    """Return the address of a page of the console, with a query of all values except None; an unpaired surrogate becomes `?`."""
    text = urlencode({name: value for name, value in query.items() if value is not None}, errors="replace")
    return f"/console/{path}" + (f"?{text}" if text else "")


def pretty(value: Any) -> str:
    """Return JSON on several lines."""
    return json.dumps(value, ensure_ascii=False, indent=2)
