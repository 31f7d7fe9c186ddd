"""Resolve a JSON Pointer in a parsed event (RFC 6901)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamer.model import REST, Pointer


def resolve(value: Any, pointer: Pointer) -> tuple[bool, Any]:
    """Return whether a pointer leads to a value, and the value (RFC 6901)."""
    for token in pointer:
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and _is_index(token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return False, None
    return True, value


def substitute(value: Any, pointer: Pointer, new: Any) -> Any:
    """Return a copy with the value at a pointer replaced, sharing the rest; missing objects of the path are created."""
    if not pointer:
        return new
    token, rest = pointer[0], pointer[1:]
    if isinstance(value, list) and _is_index(token) and int(token) < len(value):
        copy = list(value)
        copy[int(token)] = substitute(copy[int(token)], rest, new)
        return copy
    members = value if isinstance(value, Mapping) else {}
    return {**members, token: substitute(members.get(token), rest, new)}


def is_prefix(short: Pointer, long: Pointer) -> bool:
    return long[: len(short)] == short


def covers(unknown: Pointer, place: Pointer, value: Any) -> bool:
    """Return whether an unknown in *value* hides the value at a place."""
    if unknown[-1:] != (REST,):
        return is_prefix(unknown, place)
    return len(place) >= len(unknown) and is_prefix(unknown[:-1], place) and not resolve(value, place[: len(unknown)])[0]


def _is_index(token: str) -> bool:
    return token.isascii() and token.isdigit() and (token == "0" or token[0] != "0") and len(token) < 10
