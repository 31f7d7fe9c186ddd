"""Parse JSON strictly (RFC 8259), and report the byte offset of an error.

The standard library's parser is not strict enough: it accepts `NaN`, lone surrogates and a byte order mark, recurses, and refuses
integers of more than 4,300 digits. This parser is a loop over an explicit stack, so that deep nesting is an error instead of a
crash, and its time is linear in the text.

Values below the watched places, nearly all of a long event, are first parsed by the standard library, which is ten times faster.
If it refuses a value or may differ for it, this parser reads the value again and finds the error.

Errors are reported in order of their offset; `testdata/README.md` lists the offset that belongs to each code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from json import JSONDecoder
from typing import Any, TypeAlias

from streamer.errors import EventCode, EventError
from streamer.model import INT64_MIN, UINT64_MAX, BeyondFloat64, Limits, Pointer

_LIMITS = Limits()

Watch: TypeAlias = Mapping[str, "Watch"]
"""A trie of member names (and array indexes, as text) whose positions and duplicates are wanted."""

_SPACE = re.compile(r"[ \t\n\r]*")
_SIMPLE = re.compile(r'"([^"\\\x00-\x1f]*)"')  # nearly every string
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)?")
_FRACTION = re.compile(r"\.[0-9]*")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]*")
_HEX = re.compile(r"[0-9A-Fa-f]{0,4}")
_LOW_SURROGATE = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})")

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, tuple[str, object]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}

_LONG_DIGITS = re.compile(r"[0-9]{19}")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

# An integer literal longer than this cannot be in [-2^63, 2^64), so it is read as a float and never reaches int(),
# which is quadratic and refuses more than 4,300 digits.
_LONGEST_INTEGER = 20


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its (name, value) pairs in order, with all duplicates; see `parse`."""


@dataclass(frozen=True, slots=True)
class LongInteger:
    """An integer literal beyond 64 bits in its original spelling; see `parse`."""

    text: str


@dataclass(slots=True)
class Document:
    """A parsed text with the positions of its watched values.

    Attributes:
        value: the value of the whole text.
        offsets: the byte offset of the first byte of each watched value that exists.
        duplicate: the pointer and the byte offset of the first name that repeats a watched member; None if there is none.
    """

    value: Any
    offsets: dict[Pointer, int] = field(default_factory=dict)
    duplicate: tuple[Pointer, int] | None = None


def parse(
    text: bytes,
    *,
    max_depth: int = _LIMITS.max_depth,
    max_bytes: int = _LIMITS.max_event_bytes,
    pairs: bool = False,
    long_integers: bool = False,
) -> Any:
    """Return the value of a JSON text.

    An integer literal in the range of int64 or uint64 becomes an int. Any other number becomes a float, or a `BeyondFloat64` if
    it exceeds float64. The last of duplicate names wins, at the position of the first. With *pairs*, objects become `Pairs`,
    which keep duplicates. With *long_integers*, an integer literal beyond 64 bits becomes a `LongInteger`, which `number`
    converts.

    Raises:
        EventError: malformed_json, bad_utf8, lone_surrogate, too_deep or too_long, with the byte offset.
    """
    return read(text, max_depth=max_depth, max_bytes=max_bytes, pairs=pairs, long_integers=long_integers).value


def ordinary(text: bytes, *, max_depth: int = _LIMITS.max_depth, max_bytes: int = _LIMITS.max_event_bytes) -> Any:
    """Return the value of a JSON text much faster than `parse` does with *pairs*.

    Returns:
        None for a text with an error, a duplicate name, an integer of 19 digits or half of a surrogate pair; `parse` reads it.
    """
    if len(text) > max_bytes:
        return None
    try:
        return _Reader(text.decode(), max_depth, pairs=False, long_integers=False).ordinary()
    except UnicodeDecodeError:
        return None


def number(literal: str) -> float | BeyondFloat64:
    """Return the value of a number literal other than a 64-bit integer."""
    value = float(literal)
    return value if math.isfinite(value) else BeyondFloat64(literal)


def read(
    text: bytes,
    *,
    max_depth: int = _LIMITS.max_depth,
    max_bytes: int = _LIMITS.max_event_bytes,
    pairs: bool = False,
    watch: Watch | None = None,
    long_integers: bool = False,
) -> Document:
    """Parse a JSON text as `parse` does, and record the positions and duplicates of the *watch*ed members."""
    if len(text) > max_bytes:
        raise EventError(EventCode.TOO_LONG, f"{len(text)} bytes, at most {max_bytes} are allowed", offset=max_bytes)
    try:
        return _Reader(text.decode(), max_depth, pairs, long_integers).read(watch)
    except UnicodeDecodeError as bad:
        ill_formed = EventError(EventCode.BAD_UTF8, "invalid UTF-8", offset=bad.start)
    # An error before the ill-formed sequence comes first. An error at the end of the text before it is the sequence itself.
    try:
        _Reader(text[: ill_formed.offset].decode(), max_depth, pairs, long_integers).read(watch)
    except EventError as error:
        if error.offset != ill_formed.offset:
            raise
    raise ill_formed


@dataclass(slots=True)
class _Frame:
    """An open container."""

    value: dict[str, Any] | Pairs | list[Any]
    watch: Watch | None  # the watched places below it
    name: str = ""  # in an object, the member whose value is read now


class _Reader:
    """A cursor over the decoded text; offsets become byte offsets only when one is reported."""

    def __init__(self, text: str, max_depth: int, pairs: bool, long_integers: bool) -> None:
        self.text = text
        self.at = 0
        self.max_depth = max_depth
        self.pairs = pairs
        self.long_integers = long_integers
        self.slow_until = 0  # before this offset, `_quick` does not try again
        self.stack: list[_Frame] = []
        self.positions: dict[Pointer, int] = {}
        self.duplicate: tuple[Pointer, int] | None = None

    def read(self, watch: Watch | None) -> Document:
        value = self._document(watch)
        offsets = {pointer: self._byte_offset(at) for pointer, at in self.positions.items()}
        duplicate = self.duplicate and (self.duplicate[0], self._byte_offset(self.duplicate[1]))
        return Document(value, offsets, duplicate)

    def ordinary(self) -> Any:
        """See the function of this name."""
        if self._next() not in ("{", "["):
            return None
        quick = self._quick(_QUICK_UNIQUE, checks_integers=True)
        return quick[0] if quick and not self._next() else None

    def _document(self, watch: Watch | None) -> Any:
        below = watch
        decoder = _QUICK_PAIRS if self.pairs else _QUICK
        while True:
            # A value begins here. A scalar or an empty container is complete at once; any other container opens a frame.
            char = self._next()
            if below is not None:
                self.positions.setdefault(self._path(), self.at)
            value: Any
            if (char == "{" or char == "[") and below is None and (quick := self._quick(decoder)):
                (value,) = quick
            elif char == "{" or char == "[":
                frame = self._open(char, below)
                if self._next() != ("}" if char == "{" else "]"):
                    self.stack.append(frame)
                    below = self._name(frame) if char == "{" else self._element(frame)
                    continue
                self.at += 1
                value = frame.value
            else:
                value = self._scalar(char)
            # A value is complete here: add it to its container, and close the containers that end with it.
            while self.stack:
                frame = self.stack[-1]
                self._put(frame, value)
                is_list = type(frame.value) is list
                char = self._next()
                if char == ",":
                    self.at += 1
                    below = self._element(frame) if is_list else self._name(frame)
                    break
                if char != ("]" if is_list else "}"):
                    raise self._malformed("expected ',' or ']'" if is_list else "expected ',' or '}'")
                self.at += 1
                value = self.stack.pop().value
            else:
                if self._next():
                    raise self._malformed("expected the text to end after the value")
                return value

    def _quick(self, decoder: JSONDecoder, *, checks_integers: bool = False) -> tuple[Any] | tuple[()]:
        """Return the container that begins here, as the standard library parses it; empty if this parser may differ."""
        if self.at < self.slow_until:
            return ()
        try:
            value, end = decoder.raw_decode(self.text, self.at)
        except (ValueError, RecursionError):
            end = len(self.text)
        else:
            is_long = not checks_integers and _LONG_DIGITS.search(self.text, self.at, end)
            is_odd = is_long or _SURROGATE_ESCAPE.search(self.text, self.at, end)
            most = self.max_depth - len(self.stack)
            # Counting brackets is fast: a text with few of them cannot be deep.
            is_flat = self.text.count("[", self.at, end) + self.text.count("{", self.at, end) <= most
            if not is_odd and (is_flat or _depth(value, most) is not None):
                self.at = end
                return (value,)
        # Do not try again at each level inside the container.
        self.slow_until = end
        return ()

    def _open(self, char: str, below: Watch | None) -> _Frame:
        if len(self.stack) >= self.max_depth:
            raise self._error(EventCode.TOO_DEEP, f"nested deeper than {self.max_depth} levels", self.at)
        self.at += 1
        if char == "[":
            return _Frame([], below)
        return _Frame(Pairs() if self.pairs else {}, below)

    def _put(self, frame: _Frame, value: Any) -> None:
        container = frame.value
        if isinstance(container, dict):
            container[frame.name] = value
        elif isinstance(container, Pairs):
            container.append((frame.name, value))
        else:
            container.append(value)

    def _name(self, frame: _Frame) -> Watch | None:
        """Read a member's name and its colon, and return the watched places below it."""
        if self._next() != '"':
            raise self._malformed("expected a member name in double quotes")
        at = self.at
        frame.name = self._string()
        if self._next() != ":":
            raise self._malformed("expected ':'")
        self.at += 1
        if frame.watch is None or frame.name not in frame.watch:
            return None
        path = self._path()
        if path in self.positions and self.duplicate is None:
            self.duplicate = path, at
        return frame.watch[frame.name]

    def _element(self, frame: _Frame) -> Watch | None:
        return None if frame.watch is None else frame.watch.get(str(len(frame.value)))

    def _path(self) -> Pointer:
        """Return the pointer to the value that begins here; it is called only at watched places."""
        return tuple(str(len(f.value)) if type(f.value) is list else f.name for f in self.stack)

    def _scalar(self, char: str) -> Any:
        if char == '"':
            return self._string()
        if char == "-" or "0" <= char <= "9":
            return self._number()
        if char in _LITERALS:
            word, value = _LITERALS[char]
            for expected in word:
                if self.text[self.at : self.at + 1] != expected:
                    raise self._malformed(f"expected {word!r}")
                self.at += 1
            return value
        raise self._malformed("expected a value")

    def _number(self) -> int | float | BeyondFloat64 | LongInteger:
        start = self.at
        integer = self._take(_INTEGER)
        if integer in ("", "-"):
            raise self._malformed("expected a digit")
        is_integer = True
        for part in (_FRACTION, _EXPONENT):
            if digits := self._take(part):
                is_integer = False
                if not "0" <= digits[-1] <= "9":
                    raise self._malformed("expected a digit")
        if is_integer and len(integer) <= _LONGEST_INTEGER:
            whole = int(integer)
            if INT64_MIN <= whole <= UINT64_MAX:
                return whole
        literal = self.text[start : self.at]
        return LongInteger(literal) if is_integer and self.long_integers else number(literal)

    def _string(self) -> str:
        plain = _SIMPLE.match(self.text, self.at)
        if plain is not None:
            self.at = plain.end()
            return plain[1]
        self.at += 1
        pieces = [self._take(_PLAIN)]
        while (char := self.text[self.at : self.at + 1]) == "\\":
            pieces.append(self._escape())
            pieces.append(self._take(_PLAIN))
        if char != '"':
            raise self._malformed("a control character in a string must be escaped" if char else "the string does not end")
        self.at += 1
        return "".join(pieces)

    def _escape(self) -> str:
        start = self.at
        char = self.text[start + 1 : start + 2]
        self.at += 1
        if char in _ESCAPES:
            self.at += 1
            return _ESCAPES[char]
        if char != "u":
            raise self._malformed("unknown escape in a string")
        self.at += 1
        digits = self._take(_HEX)
        if len(digits) < 4:
            raise self._malformed("expected four hexadecimal digits")
        unit = int(digits, 16)
        if not 0xD800 <= unit <= 0xDFFF:
            return chr(unit)
        low = _LOW_SURROGATE.match(self.text, self.at)
        if unit >= 0xDC00 or low is None:
            raise self._error(EventCode.LONE_SURROGATE, "half of a surrogate pair", start)
        self.at = low.end()
        return chr(0x10000 + ((unit - 0xD800) << 10) + (int(low[1], 16) - 0xDC00))

    def _next(self) -> str:
        """Skip white space and return the next character, or an empty string at the end."""
        char = self.text[self.at : self.at + 1]
        if char > " ":
            return char
        self._take(_SPACE)
        return self.text[self.at : self.at + 1]

    def _take(self, token: re.Pattern[str]) -> str:
        match = token.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def _malformed(self, reason: str) -> EventError:
        if self.at == len(self.text):
            reason += ", but the text ends"
        return self._error(EventCode.MALFORMED_JSON, reason, self.at)

    def _error(self, code: EventCode, reason: str, at: int) -> EventError:
        return EventError(code, reason, offset=self._byte_offset(at))

    def _byte_offset(self, at: int) -> int:
        return len(self.text[:at].encode())


def _float(literal: str) -> float | BeyondFloat64:
    number = float(literal)
    return number if math.isfinite(number) else BeyondFloat64(literal)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _integer(literal: str) -> int:
    if len(literal) > 18:
        raise ValueError("it may be beyond 64 bits")
    return int(literal)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name stands here twice")
    return members


_QUICK = JSONDecoder(parse_float=_float, parse_constant=_no_constant)
_CONTAINERS = (dict, list, Pairs)
_QUICK_PAIRS = JSONDecoder(parse_float=_float, parse_constant=_no_constant, object_pairs_hook=Pairs)
_QUICK_UNIQUE = JSONDecoder(parse_float=_float, parse_int=_integer, parse_constant=_no_constant, object_pairs_hook=_unique)


def _depth(value: Any, most: int) -> int | None:
    """Return the nesting depth of a container, from 1, or None if it is more than *most*."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > most:
            return None
        children = chain.from_iterable(map(_children, level))
        level = [each for each in children if type(each) in _CONTAINERS]
    return depth


def _children(container: Any) -> Iterable[Any]:
    if type(container) is Pairs:
        return [value for _, value in container]
    return container.values() if type(container) is dict else container
