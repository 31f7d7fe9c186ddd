"""Events that are rows of a table: the JSON of each row of an Arrow array of structs, by a few calls of Arrow for each column.

| in Arrow | in JSON |
|---|---|
| integers, decimals | the number, with all its digits |
| floats | the shortest number that has the same value as a double: `250.0`, `0.1`; a `float` 0.1 is `0.10000000149011612` |
| NaN and infinities | `"NaN"`, `"Infinity"`, `"-Infinity"` |
| string, bool | the same |
| timestamp with a zone | RFC 3339 in UTC, with six digits of a second, nanoseconds with nine: `"2026-11-22T10:15:30.123456Z"` |
| timestamp without a zone, date, time | without an offset: `"2026-11-22T10:15:30.123456"`, `"2026-11-22"`, `"10:15:30.123456"` |
| binary | base64 |
| null | null, at every depth: the member exists |
| list, struct | an array, an object |
| map | an object of its keys as text |
| dictionary, run-end encoded, extension | as the values, as the storage |

Other types are an error with the column: durations and intervals, which have no usual form in JSON, and unions.

`streamer.spark.structs` has the same table, except for floats of 32 bits, which Spark writes with fewer digits.

Rejected: a Python object for each row (three times the time); nulls left out (`exists` could not distinguish a null column from a
missing one).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

#: Characters that JSON escapes in a string, the backslash first.
_ESCAPED: Final = ("\\", '"', *map(chr, range(32)))


def texts_of_rows(rows: Any, pa: Any) -> Any:
    """Return a `large_binary` array with the JSON of each row of an array of structs or maps; null for a null row.

    Raises:
        TypeError: a column has a type without a form in JSON; the error names it.
        ValueError: the array has invalid buffers, two columns of one name, or a time that is out of range.
    """
    rows.validate(full=True)
    texts = _Writer(pa).write(rows, "")
    return texts if not rows.null_count else pa.compute.if_else(rows.is_valid(), texts, pa.scalar(None, pa.large_binary()))


class _Writer:
    """Writes arrays as arrays of JSON texts, of `large_binary` without nulls."""

    def __init__(self, pa: Any) -> None:
        import pyarrow.compute  # noqa: F401

        self._pa, self._pc = pa, pa.compute
        self._text = pa.large_binary()

    def write(self, array: Any, place: str) -> Any:
        """Return the JSON of each value; *place* is the column's name in errors."""
        write = self._writer(array.type)
        if write is None:
            name = f"column {place!r}" if place else "the array"
            raise TypeError(f"{name} is {array.type}, which has no form in JSON; cast it, for example to a string or an integer")
        try:
            texts = write(array, place)
        except self._pa.ArrowInvalid as error:
            raise ValueError(f"column {place!r}: {error}") from None
        return self._pc.fill_null(texts, self._constant(b"null"))

    def _writer(self, kind: Any) -> Callable[[Any, str], Any] | None:
        types = self._pa.types
        if isinstance(kind, self._pa.BaseExtensionType):
            return lambda array, place: self.write(array.storage, place)
        for accepts, write in (
            (lambda kind: types.is_integer(kind) or types.is_decimal(kind) or types.is_boolean(kind), self._plain),
            (types.is_null, self._plain),
            (types.is_floating, self._floats),
            (lambda kind: types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind), self._strings),
            (lambda kind: types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind), self._bytes),
            (types.is_fixed_size_binary, self._bytes),
            (types.is_timestamp, self._timestamps),
            (lambda kind: types.is_date(kind) or types.is_time(kind), self._days),
            (types.is_struct, self._structs),
            (types.is_map, self._maps),
            (lambda kind: types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind), self._lists),
            (lambda kind: types.is_list_view(kind) or types.is_large_list_view(kind), self._lists),
            (types.is_dictionary, lambda array, place: self.write(array.dictionary, place).take(array.indices)),
            (types.is_run_end_encoded, lambda array, place: self.write(self._pc.run_end_decode(array), place)),
        ):
            if accepts(kind):
                return write
        return None

    def _constant(self, text: bytes) -> Any:
        return self._pa.scalar(text, self._text)

    def _joined(self, *parts: Any) -> Any:
        return self._pc.binary_join_element_wise(*parts, self._constant(b""))

    def _cast(self, array: Any) -> Any:
        return array.cast(self._pa.large_string()).cast(self._text)

    def _plain(self, array: Any, _: str) -> Any:
        return self._cast(array)

    def _floats(self, array: Any, _: str) -> Any:
        texts = array.cast(self._pa.float64()).cast(self._pa.large_string())
        # A double is spelled as one, also if it is whole.
        texts = self._pc.replace_substring_regex(texts, r"^(-?[0-9]+)$", r"\1.0")
        if not self._pc.all(self._pc.is_finite(array)).as_py():
            texts = self._pc.replace_substring_regex(texts, "^-?nan$", '"NaN"')
            texts = self._pc.replace_substring_regex(texts, "^(-?)inf$", r'"\1Infinity"')
        return texts.cast(self._text)

    def _strings(self, array: Any, _: str) -> Any:
        texts = array.cast(self._pa.large_string()).cast(self._text)
        if self._pc.any(self._pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')).as_py():
            for character in _ESCAPED:
                texts = self._pc.replace_substring(texts, character, json.dumps(character)[1:-1])
        return self._quoted(texts)

    def _quoted(self, texts: Any) -> Any:
        return self._joined(self._constant(b'"'), texts, self._constant(b'"'))

    def _bytes(self, array: Any, _: str) -> Any:
        values = array.cast(self._text).to_pylist()
        return self._quoted(self._pa.array([None if each is None else base64.b64encode(each) for each in values], self._text))

    def _timestamps(self, array: Any, _: str) -> Any:
        kind = array.type
        unit = "ns" if kind.unit == "ns" else "us"
        texts = array.cast(self._pa.timestamp(unit, kind.tz)).view(self._pa.timestamp(unit)).cast(self._pa.large_string())
        texts = self._pc.replace_substring(self._in_range(texts), " ", "T").cast(self._text)
        return self._quoted(texts if kind.tz is None else self._joined(texts, self._constant(b"Z")))

    def _days(self, array: Any, _: str) -> Any:
        if self._pa.types.is_time(array.type) and array.type.unit != "ns":
            array = array.cast(self._pa.time64("us"))
        return self._quoted(self._in_range(array.cast(self._pa.large_string())).cast(self._text))

    def _in_range(self, texts: Any) -> Any:
        if self._pc.any(self._pc.starts_with(texts, "<")).as_py():
            raise self._pa.ArrowInvalid("a time is out of range")
        return texts

    def _structs(self, array: Any, place: str) -> Any:
        names = [field.name for field in array.type]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two columns have the name {_below(place, twice[0])!r}")
        # Null for a null struct, so that the texts of all members are null or not.
        parts: list[Any] = [self._pc.if_else(array.is_valid(), self._constant(b""), self._pa.scalar(None, self._text))]
        for position, name in enumerate(names):
            start = "," if position else ""
            parts += (
                self._constant(f"{start}{json.dumps(name)}:".encode()),
                self.write(array.field(position), _below(place, name)),
            )
        return self._joined(self._constant(b"{"), *parts, self._constant(b"}"))

    def _lists(self, array: Any, place: str) -> Any:
        lengths = self._pc.list_value_length(array).cast(self._pa.int64())
        ends = self._pc.cumulative_sum(self._pc.fill_null(lengths, 0))
        offsets = self._pa.concat_arrays([self._pa.array([0], self._pa.int64()), ends])
        # Without the elements of null lists.
        return self._enclosed(array, b"[]", self.write(array.flatten(), f"{place}[]"), offsets)

    def _maps(self, array: Any, place: str) -> Any:
        kind, types = array.type.key_type, self._pa.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        if not (is_text or types.is_integer(kind) or types.is_decimal(kind) or types.is_boolean(kind)):
            raise TypeError(f"column {place!r} is {array.type}; the names of an object are text: cast its keys")

        first, last = (array.offsets[at].as_py() for at in (0, len(array)))
        names = self.write(array.keys.slice(first, last - first), place)
        values = self.write(array.items.slice(first, last - first), f"{place}{{}}")
        members = self._joined(names if is_text else self._quoted(names), self._constant(b":"), values)
        return self._enclosed(array, b"{}", members, self._pc.subtract(array.offsets, array.offsets[0]))

    def _enclosed(self, array: Any, brackets: bytes, texts: Any, offsets: Any) -> Any:
        """Return the texts of the values of each list, joined by commas, between *brackets*; null for a null list."""
        lists = self._pa.LargeListArray.from_arrays(offsets.cast(self._pa.int64()), texts)
        joined = self._pc.binary_join(lists, self._constant(b","))
        joined = self._pc.if_else(array.is_valid(), joined, self._pa.scalar(None, self._text))
        return self._joined(self._constant(brackets[:1]), joined, self._constant(brackets[1:]))


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
