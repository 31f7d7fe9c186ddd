"""Fold the case of strings, one code point to one: CaseFolding.txt, statuses C and S (semantics.md 5.13).

Python has only the full folding (C and F: `ß` to `ss`), so the simple one is derived from it. If the full folding is a single
code point, status C, it is the simple one. Otherwise, status F, the simple folding is the simple lower case, or none. The
additions of Unicode 15.1 and 16.0 are listed, because the tables of Python 3.11 are those of Unicode 14.0.
"""

from __future__ import annotations

from typing import Any

from streamer.subscriptions.cel_text import regexp_of

_NEWER = {
    0x1FD3: 0x0390,
    0x1FE3: 0x03B0,
    0xFB05: 0xFB06,
    0x1C89: 0x1C8A,
    0xA7CB: 0x0264,
    0xA7CC: 0xA7CD,
    0xA7DA: 0xA7DB,
    0xA7DC: 0x019B,
} | {garay: garay + 0x20 for garay in range(0x10D50, 0x10D66)}


class _Foldings(dict[int, int]):
    """Foldings by code point, computed on use; at most one entry for each of Unicode's code points."""

    def __missing__(self, code: int) -> int:
        char = chr(code)
        folded = char.casefold()
        if len(folded) > 1:
            folded = char.lower()
        self[code] = target = _NEWER.get(code, ord(folded) if len(folded) == 1 else code)
        return target


_FOLDINGS = _Foldings()


def simple_fold(text: str) -> str:
    """Return *text* with its case folded. Two texts are equal ignoring case if and only if their foldings are equal.

    The folding has as many code points as *text*, so prefixes and suffixes may be compared after it.
    """
    return text.lower() if text.isascii() else text.translate(_FOLDINGS)


def folded(value: Any) -> Any:
    """Return a JSON value with its case folded if it is a text, and that of the texts in it if it is a list."""
    if isinstance(value, str):
        return simple_fold(value)
    return [simple_fold(each) if isinstance(each, str) else each for each in value] if isinstance(value, list) else value


#: RE2's own tables may be older than the additions, so both letters of a pair are spelled out.
_BOTH = {ord(letter): f"[{chr(one)}{chr(two)}]" for one, two in _NEWER.items() for letter in (chr(one), chr(two))}


def ignoring_case(text: str) -> str:
    """Return the regexp of RE2, for use after `(?i)`, that matches the texts whose folding is that of *text*."""
    return regexp_of(text).translate(_BOTH)
