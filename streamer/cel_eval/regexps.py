r"""Compile regular expressions of RE2, and compute a size from the text, so that every implementation counts the same cost units
(docs/cel-cost.md).

    ^(ab|[c-e]\d){3}$          1 + ((2 + 1 + (3 + 1)) x 3) + 1, and 1 for the whole: 24

A character, an escape, `.`, `|` and an anchor are 1. A class is the number of its items, at least 1; a class by name (`\pL`) is
64. Brackets are the sum of their content, at least 1. `{n}`, `{n,}` and `{n,m}` multiply by the last number, at least by 1. The
whole adds 1. That is about the number of states that may be active at once, in RE2 as in any other automaton. Texts that RE2
refuses have a size, too.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import re2

MAX_SIZE: Final = 1_000_000
NAMED_CLASS: Final = 64

#: A piece of an expression, outside of a class: quoted text, a class by name, an escape, a count, a class, any other character.
_PIECE: Final = re.compile(
    r"""
      \\Q (?P<quoted> .*?) (?: \\E | \Z)
    | (?P<named> \\[pP] (?: \{ [^}]* (?: \} | \Z) | [^{] | \Z))
    | (?P<escape> \\x\{ [^}]* (?: \} | \Z) | \\. | \\\Z)
    | \{ (?P<low> [0-9]+) (?: (?P<comma> ,) (?P<high> [0-9]*))? \}
    | (?P<class> \[)
    | (?P<other> .)
    """,
    re.VERBOSE | re.DOTALL,
)

#: An item of a class. The first character of a class is an item, even if it is `]`.
_ITEM: Final = re.compile(
    r"(?P<named>\\[pP](?:\{[^}]*(?:\}|\Z)|[^{]|\Z))|\\x\{[^}]*(?:\}|\Z)|\\.|\\\Z|\[:.*?:\]|(?P<other>.)", re.DOTALL
)


@lru_cache(maxsize=1024)
def regexp_size(source: str) -> int:
    """Return the size of a regexp."""
    groups: list[int] = []  # the content of the surroundings of each open bracket
    total = last = at = 0
    while at < len(source):
        piece = _PIECE.match(source, at)
        assert piece is not None  # any character is a piece
        at = piece.end()
        kind = piece.lastgroup
        if kind == "quoted":
            total, last = total + len(piece["quoted"]), 1 if piece["quoted"] else last
        elif kind in ("low", "comma", "high"):
            digits = (piece["high"] or piece["low"]).lstrip("0")[:7]  # more digits exceed `MAX_SIZE` anyway
            repeated = min(MAX_SIZE, last * int(digits or 1))
            total, last = total + repeated - last, repeated
        elif kind == "other" and piece["other"] == "(":
            groups.append(total)
            total = last = 0
        elif kind == "other" and piece["other"] == ")" and groups:
            last = max(1, total)
            total = groups.pop() + last
        elif kind == "other" and piece["other"] in "*+?":
            continue
        else:
            if kind == "class":
                last, at = _class(source, at)
            else:
                last = NAMED_CLASS if kind == "named" else 1
            total += last
            if kind == "other" and piece["other"] == "|":
                last = 0
        total = min(MAX_SIZE, total)
    for outer in reversed(groups):
        total = min(MAX_SIZE, outer + total)
    return total + 1


def _class(source: str, at: int) -> tuple[int, int]:
    """Return the size of a class, and the position of its end."""
    at += source.startswith("^", at)
    size, start = 0, at
    while at < len(source):
        item = _ITEM.match(source, at)
        assert item is not None
        at = item.end()
        if item["other"] == "]" and item.start() > start:
            break
        size += NAMED_CLASS if item["named"] else 1
    return min(MAX_SIZE, max(1, size)), at


def compile_regexp(source: str, max_bytes: int | None = None) -> Any:
    """Return a compiled regexp of RE2.

    Raises:
        re2.error: RE2 refuses the regexp, or needs more than *max_bytes* of memory for it.
    """
    options = re2.Options()
    options.log_errors = False
    if max_bytes is not None:
        options.max_mem = max_bytes
    compiled = re2.compile(source, options)
    if compiled.groups:
        # With captures, a search copies the positions of all groups at every byte, for each active state, without any use.
        # But compile with groups first, because they count in RE2's memory limit.
        options.never_capture = True
        compiled = re2.compile(source, options)
    return compiled


def too_large(size: int, most: int) -> str:
    """Return the error for a regexp that is larger than a limit."""
    return f"a regular expression of size {size}; at most {most} is allowed (limits.max_regexp_size)"


def regexp_error(error: Exception) -> str:
    """Return the text of RE2's error."""
    detail = error.args[0] if error.args else "malformed"
    text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
    # RE2 repeats the invalid part, which may be long.
    return f"expected a regular expression of RE2: {text if len(text) <= 200 else f'{text[:200]}...'}"
