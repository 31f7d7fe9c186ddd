"""Print JSON values and paths as CEL, for the CEL form of filters and subscriptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from streamer.model import INT64_MAX

_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_DOTTED = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*(?:\.[_a-zA-Z][_a-zA-Z0-9]*)*")
_QUOTABLE = re.compile(r"[a-zA-Z0-9_.\-/ ]+")
_RESERVED = frozenset(
    "as break const continue else false for function if import in let loop namespace "
    "null package return true var void while".split()
)
#: The characters of a literal text that a regexp of RE2 must escape.
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def cel_literal(value: Any) -> str:
    """Return a JSON value as CEL text; numbers read back as the same value of the same type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}u" if value > INT64_MAX else str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return f"'{value if _is_plain(value) else ''.join(map(_escape, value))}'"
    if isinstance(value, list):
        return "[" + ", ".join(map(cel_literal, value)) + "]"
    return "{" + ", ".join(f"{cel_literal(name)}: {cel_literal(item)}" for name, item in value.items()) + "}"


def _is_plain(text: str) -> bool:
    return text.isprintable() and "\\" not in text and "'" not in text


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _name(name: str) -> str | None:
    """Return a member name for use after a dot, in quotes if necessary; None if it is not possible even with quotes."""
    if _IDENTIFIER.fullmatch(name) and name not in _RESERVED:
        return name
    return f"`{name}`" if _QUOTABLE.fullmatch(name) else None


def cel_path(root: str, path: tuple[str, ...]) -> str:
    """Return a path from a part of the event as CEL text, such as ``data.user.`content-type` ``."""
    dotted = ".".join(path)
    if _DOTTED.fullmatch(dotted) and dotted.count(".") < len(path) and _RESERVED.isdisjoint(path):
        return f"{root}.{dotted}"
    printed = root
    for name in path:
        plain = _name(name)
        printed += f".{plain}" if plain is not None else f"[{cel_literal(name)}]"
    return printed


def steps(root: str, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each name of a path after the CEL text of the path up to it."""
    for name in path:
        yield root, name
        root = cel_path(root, (name,))


def has(root: str, path: tuple[str, ...]) -> str:
    """Return a CEL test of whether the last step of a path exists; it is an error if the value before it is not an object."""
    parent, plain = cel_path(root, path[:-1]), _name(path[-1])
    if plain is not None:
        return f"has({parent}.{plain})"
    # On a list, `in` would look for an element; with null, it is an error as `has` is.
    return f"{cel_literal(path[-1])} in (type({parent}) == map ? {parent} : null)"


def present(root: str, path: tuple[str, ...]) -> str:
    """Return a CEL test of whether every step of a path exists; it is false, never an error, if one does not."""
    tests = []
    for parent, name in steps(root, path):
        plain = _name(name)
        test = f"has({parent}.{plain})" if plain is not None else f"{cel_literal(name)} in {parent}"
        tests.append(f"type({parent}) == map && {test}")
    return " && ".join(tests)


def regexp_of(text: str) -> str:
    """Return the regexp of RE2 that matches a literal text."""
    return _SPECIAL.sub(lambda match: f"\\{match.group()}", text)
