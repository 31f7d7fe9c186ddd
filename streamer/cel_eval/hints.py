"""Give hints for an expression that is written as in another language.

A hint ends an error of syntax or of a name. crates/streamer-core/src/cel/hints.rs returns the same hints; the table of cases
compares them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from streamer.cel_eval.extensions import EXTENSIONS

#: Why there is no clock, and an alternative.
NO_NOW: Final = (
    "an event must have the same answer whenever it is evaluated, after a replay too; "
    "compare with the event's own time, as in timestamp(data.at) < ts - duration('1h')"
)

#: Words of other languages, with CEL's spelling or an alternative.
_MEANT: Final[Mapping[str, str]] = {
    **{word: f"`{word}` is written `null`" for word in ("None", "NULL", "Null", "nil", "undefined")},
    **{word: f"`{word}` is written `{word.lower()}`" for word in ("True", "TRUE", "False", "FALSE")},
    **{word: f"`{word}` is written `{sign}`" for word, sign in (("and", "&&"), ("AND", "&&"), ("or", "||"), ("OR", "||"))},
    **{word: f"`{word}` is written `!`" for word in ("not", "NOT")},
    **dict.fromkeys(("is", "IS"), "test for null with `==`, as in data.a == null"),
    **dict.fromkeys(("like", "LIKE"), "a part of a text is found by contains, startsWith, endsWith or matches"),
    **dict.fromkeys(("between", "BETWEEN"), "a range is two comparisons joined by `&&`"),
    **{word: f"`{word}` is written `size`" for word in ("len", "length", "count")},
    "includes": "an element is found by `in`, a part of a text by contains",
    "now": NO_NOW,
    "old": "the document before the change is `before`",
    "new": "the document after the change is `data`",
}

#: Words after which an expression was expected to begin.
_LEADS: Final[Mapping[str, str]] = {
    **{word: _MEANT[word] for word in ("not", "NOT")},
    "if": "a choice is written `condition ? a : b`",
}

#: CEL's extension libraries that are not supported, and alternatives.
_LIBRARIES: Final[Mapping[str, str]] = {
    "regex": "a regular expression is searched for by matches",
    "proto": "a field of the document is written `data.a`",
}

#: Methods of these libraries.
_METHODS: Final[Mapping[str, str]] = {
    **dict.fromkeys("extract extractAll find findAll".split(), "regex"),
}

#: The functions of each namespace.
_NAMESPACES: Final[dict[str, list[str]]] = {"cel": ["bind"]}
for _name in sorted(name for name in EXTENSIONS if "." in name):
    _NAMESPACES.setdefault(_name.partition(".")[0], []).append(_name.partition(".")[2])

_WORD: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
#: Longer names are left out of hints.
_LONGEST: Final = 40


def hint(before: str, rest: str) -> str | None:
    """Return a hint for an error, or None.

    Args:
        before: the text before the error.
        rest: the text from the error on.
    """
    if match := _WORD.match(rest):
        word = match[0]
        name = _last_word(before[:-1]) if before.endswith("-") else ""
        if name and max(len(name), len(word)) <= _LONGEST:
            return f"a name with a hyphen is written as in data['{name}-{word}']"
        if rest[len(word) : len(word) + 1] == "." and not before.endswith(".") and word in _LIBRARIES:
            return _of_library(f"`{word}`", word)
        if rest[len(word) : len(word) + 1] == "." and not before.endswith(".") and word in _NAMESPACES:
            return f"the functions of `{word}` are {', '.join(_NAMESPACES[word])}"
        if before.endswith(".") and word in _METHODS:
            return _of_library(f"`{word}`", _METHODS[word])
        return _MEANT.get(word) or _LEADS.get(_last_word(before.rstrip(" \t\r\n\f")))
    sign = rest[:1]
    if sign == "=":
        if rest[1:2] == "~":
            return "a regular expression is searched for by matches"
        return f"`{'=' * 3 if before.endswith('==') else '='}` is written `==`"
    if sign == ">" and before.endswith("<"):
        return "`<>` is written `!=`"
    if sign in ("&", "|"):
        return f"`{sign}` is written `{sign * 2}`"
    return "a regular expression is searched for by matches" if sign == "~" else None


def _of_library(what: str, library: str) -> str:
    return f"{what} is of CEL's extension library {library}, which is not available here; {_LIBRARIES[library]}"


def _last_word(text: str) -> str:
    """Return the word at the end of a text; empty if there is none."""
    start = len(text)
    while start and (text[start - 1] == "_" or (text[start - 1].isascii() and text[start - 1].isalnum())):
        start -= 1
    return text[start:] if _WORD.match(text, start) else ""
