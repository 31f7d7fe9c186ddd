"""CEL's extension library strings. Positions are in characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streamer.cel_eval.extensions.formatting import format_text
from streamer.cel_eval.extensions.rows import Row, out_of_range, readable, row
from streamer.cel_eval.values import CelReason, Failure, Value, no_overload, utf8_length

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run

_UPPER: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TO_LOWER: Final = str.maketrans(_UPPER, _UPPER.lower())
_TO_UPPER: Final = str.maketrans(_UPPER.lower(), _UPPER)
#: Unicode's White_Space. `str.strip` also removes four control characters.
_SPACES: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED: Final = str.maketrans(
    {
        **dict(zip("\a\b\f\n\r\t\v", (f"\\{letter}" for letter in "abfnrtv"), strict=True)),
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _lower_ascii(run: Run, text: str) -> Value:
    run.charge_text(text)
    return text.translate(_TO_LOWER)


def _upper_ascii(run: Run, text: str) -> Value:
    run.charge_text(text)
    return text.translate(_TO_UPPER)


def _trim(run: Run, text: str) -> Value:
    run.charge_text(text)
    return text.strip(_SPACES)


def _reverse(run: Run, value: str | list[Value]) -> Value:
    if isinstance(value, list):
        run.charge(len(value))
    else:
        run.charge_text(value)
    return value[::-1]


def _quote(run: Run, text: str) -> Value:
    # Each character may become two.
    run.charge_text(text, text)
    return f'"{text.translate(_QUOTED)}"'


def _char_at(run: Run, text: str, index: int) -> Value:
    run.charge_text(text)
    return text[index : index + 1] if 0 <= index <= len(text) else out_of_range(index, len(text), "string")


def _substring(run: Run, text: str, start: int, end: int | None = None) -> Value:
    run.charge_text(text)
    end = len(text) if end is None else end
    for index in (start, end):
        if not 0 <= index <= len(text):
            return out_of_range(index, len(text), "string")
    if start > end:
        return Failure(CelReason.INDEX_OUT_OF_RANGE, f"a part of a string from {start} to {end}")
    return text[start:end]


def _index_of(run: Run, text: str, part: str, first: int = 0) -> Value:
    run.charge_text(text, part)
    if not part:
        return first
    return text.find(part, first) if 0 <= first <= len(text) else out_of_range(first, len(text), "string")


def _last_index_of(run: Run, text: str, part: str, last: int | None = None) -> Value:
    run.charge_text(text, part)
    last = len(text) if last is None else last
    if not part:
        return last
    if not 0 <= last <= len(text):
        return out_of_range(last, len(text), "string")
    text = text[: last + len(part)]
    # `rfind` takes quadratic time for some texts, `find` does not.
    offset = text[::-1].find(part[::-1])
    return -1 if offset < 0 else len(text) - offset - len(part)


def _replace(run: Run, text: str, old: str, new: str, limit: int = -1) -> Value:
    run.charge_text(text, old)
    count = text.count(old)
    count = count if limit < 0 else min(count, limit)
    run.charge_bulk(-(-(utf8_length(text) + count * (utf8_length(new) - utf8_length(old))) // 16))
    return text.replace(old, new, count)


def _split(run: Run, text: str, separator: str, limit: int = -1) -> Value:
    run.charge_text(text, separator)
    count = text.count(separator) + 1 if separator else len(text)
    count = count if limit < 0 else min(count, limit)
    run.charge(count)
    if count == 0:
        return []
    return text.split(separator, count - 1) if separator else [*text[: count - 1], text[count - 1 :]]


def _join(run: Run, items: list[Value], separator: str = "") -> Value:
    run.charge(len(items))
    texts = readable(items)
    if isinstance(texts, Failure):
        return texts
    for text in texts:
        if type(text) is not str:
            return no_overload("join", [text])
    run.charge_bulk(-(-(sum(map(utf8_length, texts)) + utf8_length(separator) * max(0, len(texts) - 1)) // 16))
    return separator.join(texts)


ROWS: Final[Mapping[str, Row]] = {
    "charAt": row(_char_at, "string, int -> string"),
    "format": row(format_text, "string, list -> string"),
    "indexOf": row(_index_of, "string, string -> int", "string, string, int -> int"),
    "join": row(_join, "list -> string", "list, string -> string"),
    "lastIndexOf": row(_last_index_of, "string, string -> int", "string, string, int -> int"),
    "lowerAscii": row(_lower_ascii, "string -> string"),
    "replace": row(_replace, "string, string, string -> string", "string, string, string, int -> string"),
    "reverse": row(_reverse, "string -> string", "list -> list"),
    "split": row(_split, "string, string -> list", "string, string, int -> list"),
    "strings.quote": row(_quote, "string -> string"),
    "substring": row(_substring, "string, int -> string", "string, int, int -> string"),
    "trim": row(_trim, "string -> string"),
    "upperAscii": row(_upper_ascii, "string -> string"),
}
