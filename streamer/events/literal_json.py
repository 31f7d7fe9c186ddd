"""Read the JSON of records by RFC 8259 and the rules of events, in one place, so that all decoders report the same errors.

The standard library parses valid JSON, because it is fast. It is too lax for the rest: it guesses the encoding of bytes, accepts
`NaN` and lone surrogates, and its errors change with its version. So a text that it refuses, or that may have a lone surrogate,
goes to the strict parser of events, which finds the exact error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn, Self, TypeAlias

from streamer.errors import EventCode, EventError
from streamer.events import json as strict
from streamer.model import INT64_MIN, UINT64_MAX

Message: TypeAlias = bytes | bytearray | str | Mapping[str, Any]
"""One message of a source: its JSON text, or the object that was read of it."""

#: The types of an object. `isinstance` is fast for a dict and slow for Mapping, so dict comes first.
OBJECT: Final = (dict, Mapping)
#: A lone surrogate, or a possible one: after two backslashes, only a full parse can decide.
_HALF: Final = re.compile(
    r"\\u[dD][89aAbB]..(?!\\u[dD][c-fC-F])" r"|(?<!\\u[dD][89aAbB]..)\\u[dD][c-fC-F]" r"|\\\\u[dD][89a-fA-F]"
)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch
#: An integer with more characters exceeds 64 bits.
_LONGEST_INTEGER: Final = 20
_SPACE: Final = " \t\n\r"
#: The error of a longer text has less detail: the strict parser would need a second for a million bytes.
_EXPLAINED: Final = 65_536


class Number(float):
    """A JSON number other than a 64-bit integer. An engine reads it as float64 (semantics.md 1.59); *text* has all digits."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        self = super().__new__(cls, text)
        self.text = text
        return self


def parsed(message: Message | list[Any] | None, what: str, place: str = "") -> Any:
    """Return the JSON value of a message, or of a text at a *place* in a message. A parsed value is returned as it is.

    Args:
        what: the name of the format, for the error.

    Raises:
        EventError: the text is not JSON in UTF-8. It has the offset in the message, or the place of the text.
    """
    if not isinstance(message, bytes | bytearray | str):
        return message
    try:
        # Encoding a str refuses lone surrogates, which UTF-8 cannot represent.
        text = (message.encode() if isinstance(message, str) else message).decode()
        value = json.loads(text, parse_int=_integer, parse_float=Number, parse_constant=_no_number)
        if "\\u" in text and _HALF.search(text) is not None:
            # Encoding finds a lone surrogate anywhere in the value.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (EventError, RecursionError, ValueError):
        raise _wrong(message, what, place) from None


def is_nothing(message: Message | None) -> bool:
    """Return whether a message is a tombstone: empty, or null."""
    if isinstance(message, str):
        return message.strip(_SPACE) in ("", "null")
    return message is None or (isinstance(message, bytes | bytearray) and message.strip(_SPACE.encode()) in (b"", b"null"))


def too_deep(message: Message, what: str) -> EventError:
    """Return the error for a message that is nested deeper than Python's recursion limit."""
    return _wrong(message, what, "") if isinstance(message, bytes | bytearray | str) else _unfollowed(what, "")


def number(text: str) -> int | Number:
    """Return the number in a text as parsed JSON has it: an int if it fits in 64 bits, else a `Number`.

    Raises:
        ValueError: the text is not a JSON number; the message names the expected form.
    """
    if _NUMBER(text) is None:
        raise ValueError(f"expected a number as JSON has it, not {text[:40]!r}")
    return _integer(text) if text.lstrip("-").isdigit() else Number(text)


def written(value: Any) -> str:
    """Return a value as JSON text, with numbers in their original spelling.

    Raises:
        RecursionError: the value is nested deeper than Python's recursion limit.
    """
    out: list[str] = []
    _write(value, out.append)
    return "".join(out)


def _write(value: Any, write: Callable[[str], None]) -> None:
    # The encoder of the standard library writes a subclass of float as a plain float, and so loses digits of a `Number`.
    kind = type(value)
    if kind is dict and value:
        mark = "{"
        for name, member in value.items():
            # Fast path: most members have one of these types.
            of = type(member)
            if of is str:
                write(f"{mark}{encode_basestring(name)}:{encode_basestring(member)}")
            elif of is int:
                write(f"{mark}{encode_basestring(name)}:{member}")
            elif member is None:
                write(f"{mark}{encode_basestring(name)}:null")
            elif of is Number:
                write(f"{mark}{encode_basestring(name)}:{member.text}")
            elif of is bool:
                write(f"{mark}{encode_basestring(name)}:{'true' if member else 'false'}")
            else:
                write(f"{mark}{encode_basestring(name)}:")
                _write(member, write)
            mark = ","
        write("}")
    elif kind is str:
        write(encode_basestring(value))
    elif kind is Number:
        write(value.text)
    elif kind is list and value:
        mark = "["
        for item in value:
            write(mark)
            _write(item, write)
            mark = ","
        write("]")
    elif kind is bool:
        write("true" if value else "false")
    elif kind not in _PLAIN and isinstance(value, Mapping | tuple):
        _write(dict(value) if isinstance(value, Mapping) else list(value), write)
    else:
        write(_TEXT(value))


_PLAIN: Final = (int, bool, float, type(None), dict, list)


_TEXT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def named(value: Any) -> str:
    """Return the name of a value's JSON type, with its article."""
    for types, name in _NAMES:
        if isinstance(value, types):
            return name
    return "null" if value is None else type(value).__name__


_NAMES: Final[tuple[tuple[Any, str], ...]] = (
    (bool, "a boolean"),
    (str, "a string"),
    ((int, float), "a number"),
    (list, "an array"),
    (Mapping, "an object"),
)


def _integer(text: str) -> int | Number:
    if len(text) > _LONGEST_INTEGER:
        return Number(text)
    integer = int(text)
    return integer if INT64_MIN <= integer <= UINT64_MAX else Number(text)


def _no_number(word: str) -> NoReturn:
    raise ValueError


def _wrong(message: bytes | bytearray | str, what: str, place: str, *, of_deep: bool = False) -> EventError:
    """Return the error of an invalid text. With *of_deep*, the text is the beginning of one that is nested too deep."""
    text = message.encode("utf-8", "surrogatepass") if isinstance(message, str) else bytes(message)
    try:
        strict.parse(text, max_bytes=_EXPLAINED)
    except EventError as error:
        if error.code == EventCode.TOO_LONG:
            return _briefly(text, what, place)
        if of_deep and error.code != EventCode.TOO_DEEP:
            return _unfollowed(what, place)
        if place:
            return EventError(error.code, f"{what}: the JSON in it, at byte {error.offset}: {error.reason}", place=place)
        return EventError(error.code, f"{what}: {error.reason}", offset=error.offset)
    return _unfollowed(what, place)


def _briefly(text: bytes, what: str, place: str) -> EventError:
    """Return the error of a long text, with the details that the standard library reports."""
    code, offset = EventCode.MALFORMED_JSON, None
    try:
        json.loads(text.decode())
    except UnicodeDecodeError as error:
        code, offset = EventCode.BAD_UTF8, error.start
    except json.JSONDecodeError as error:
        offset = len(error.doc[: error.pos].encode())
    except RecursionError:
        # The beginning is usually enough to find the position that is too deep.
        return _wrong(text[:_EXPLAINED], what, place, of_deep=True)
    except ValueError:
        pass
    reason = f"{what}: expected JSON in UTF-8, as RFC 8259 has it"
    return EventError(code, reason, place=place) if place else EventError(code, reason, offset=offset)


def _unfollowed(what: str, place: str) -> EventError:
    return EventError(EventCode.TOO_DEEP, f"{what}: nested too deep", place=place)
