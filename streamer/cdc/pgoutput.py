"""Messages of PostgreSQL's own output plugin, pgoutput, protocol version 1: binary, whole transactions in order of their commits.

```
Begin   Relation orders: id int4 (key), note text   Insert   Update   Commit
                          │                            │        │
                          ▼                            ▼        ▼
                a table: how each column is read    an event   an event; delete and insert where the key changed
```

For each column, a message contains a text, null, or a mark that a large value did not change (TOAST). An update has the whole
old row (`REPLICA IDENTITY FULL`), only the old key, or no old row. A value that the message does not contain is left out of the
event and unknown. In particular, a row with only the old key has null in all other columns; those nulls are left out, too.

The decoder writes JSON directly, without Python objects for values: numbers keep all their digits, documents their spelling.
Protocol versions 2 to 4 add transactions that are sent before they commit, and two-phase commit. The decoder supports neither:
request version 1.
https://www.postgresql.org/docs/15/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, final

from streamer.cdc.messages import ChangeEvent, no_change
from streamer.errors import EventCode, EventError
from streamer.events.layout import encode_pointer
from streamer.events.literal_json import parsed, written

#: An event of `cdc.LAYOUT` as JSON, and its key as text; None if the table has none.
Change: TypeAlias = tuple[bytes, str | None]
#: Converts the text form of a PostgreSQL value to JSON. Raises ValueError, EventError.
Convert: TypeAlias = Callable[[str], str]

_WHAT: Final = "pgoutput"
#: 2000-01-01, from which PostgreSQL counts microseconds, in milliseconds since the Unix epoch.
_EPOCH: Final = 946_684_800_000
_BEGIN: Final = Struct(">QqI")
_COMMIT: Final = Struct(">BQQq")
_RELATION: Final = Struct(">I")
_COUNT: Final = Struct(">H")
_TYPED: Final = Struct(">Ii")
_IGNORED: Final = {kind: written(no_change(what)).encode() for kind, what in ((0x54, "a truncate"), (0x4D, "a message"))}
#: The kinds of message that other protocol versions add.
_STREAMED: Final = b"SEcAbPKrp"
_BEGINNING: Final = "read the stream from its beginning"
#: The most tables and types of a stream, and the most bytes of the messages that describe them.
MOST_TABLES: Final = 100_000
MOST_BYTES: Final = 64 << 20
#: The hex digits of whole bytes.
_DIGITS: Final = b"0123456789abcdefABCDEF"
_PAIRS: Final = re.compile(rb"(?:[0-9a-fA-F]{2})*").match


class Begin(NamedTuple):
    """The begin of a transaction.

    Attributes:
        lsn: the position of its commit in the log, unique to the transaction.
        ts: the time of its commit, in milliseconds since the epoch.
    """

    lsn: int
    ts: int


class Commit(NamedTuple):
    """The commit of a transaction.

    Attributes:
        lsn: the `lsn` of its `Begin`.
        end: the end of its commit in the log; everything before it has been read.
    """

    lsn: int
    end: int


class _Unchanged:
    """The type of the placeholder for a value that a message does not contain."""


_UNCHANGED: Final = _Unchanged()
Row: TypeAlias = Sequence[str | _Unchanged | None]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        convert: the function that converts its values to JSON.
        is_key: whether the column is part of the replica identity.
    """

    name: str
    convert: Convert
    is_key: bool = False


@final
class Table:
    """Builds the events of rows of a table.

    Args:
        collection: `schema.table`.
        key: the names of its key columns.
        named: `"schema":…,"table":…` for envelopes.
    """

    def __init__(self, collection: str, columns: Sequence[Column], key: Sequence[str], named: str = "") -> None:
        self.columns = columns
        self.named = named
        self._read = [(encode_basestring(column.name) + ":", column.convert) for column in columns]
        self._collection = f'"collection":{encode_basestring(collection)},'
        self._pointers = [encode_basestring(encode_pointer(("data", column.name))) for column in columns]
        places = {column.name: at for at, column in enumerate(columns)}
        # If a publication leaves out a key column, the table has no key.
        self._key = [places[name] for name in key] if all(name in places for name in key) else []

    def insert(self, row: Row, ts: str) -> Change:
        """Return the event of a new row. *ts* is `"ts":…,`, also with an envelope, or empty."""
        text = f'{{"type":"insert",{self._collection}{ts}"data":{{{self._members(row, "data")}}}{self._unknown(row)}}}'
        return text.encode(), self._key_of(row)

    def delete(self, old: Row, ts: str) -> Change:
        """Return the event of a deleted row."""
        text = f'{{"type":"delete",{self._collection}{ts}"before":{{{self._members(old, "before")}}}}}'
        return text.encode(), self._key_of(old)

    def update(self, row: Row, old: Row | None, ts: str) -> list[Change]:
        """Return the events of a changed row: a delete and an insert if the key changed. Without *old*, the key did not."""
        if old is None:
            old = [value if column.is_key else _UNCHANGED for value, column in zip(row, self.columns, strict=True)]
        elif _has_holes(row):
            # The new row marks these values as unchanged, so take them from the old row.
            row = [before if value is _UNCHANGED else value for value, before in zip(row, old, strict=True)]
        if any(old[at] != row[at] for at in self._key):
            return [self.delete(old, ts), self.insert(row, ts)]
        before = f'"before":{{{self._members(old, "before")}}}'
        data = f'"data":{{{self._members(row, "data")}}}'
        text = f'{{"type":"update",{self._collection}{ts}{data},{before}{self._unknown(row)}}}'
        return [(text.encode(), self._key_of(row))]

    def carried(self, row: Row) -> Row:
        """Return a row that contains only the key, with its other columns marked as unchanged."""
        return [value if column.is_key else _UNCHANGED for value, column in zip(row, self.columns, strict=True)]

    def _members(self, row: Row, side: str) -> str:
        members: list[str] = []
        add = members.append
        name = ""
        try:
            for (name, convert), value in zip(self._read, row, strict=True):
                if isinstance(value, str):
                    add(name + convert(value))
                elif value is None:
                    add(name + "null")
        except (EventError, ValueError) as error:
            if not isinstance(error, EventError):
                error = EventError(EventCode.BAD_VALUE, f"{_WHAT}: {error}")
            raise EventError(error.code, error.reason, place=encode_pointer((side, json.loads(name[:-1])))) from None
        return ",".join(members)

    def _unknown(self, row: Row) -> str:
        if not _has_holes(row):
            return ""
        return f',"unknown":[{",".join(at for at, value in zip(self._pointers, row, strict=True) if value is _UNCHANGED)}]'

    def _key_of(self, row: Row) -> str | None:
        if len(self._key) == 1:
            value = row[self._key[0]]
            return value if isinstance(value, str) else None
        values = [row[at] for at in self._key]
        texts = [value for value in values if isinstance(value, str)]
        if not texts or len(texts) < len(values):
            return None
        return f"[{','.join(self.columns[at].convert(text) for at, text in zip(self._key, texts, strict=True))}]"


def _has_holes(row: Row) -> bool:
    # Most rows have none, and collecting the types is faster than comparing each value with the placeholder.
    return _Unchanged in set(map(type, row))


@final
class Decoder:
    """Decodes the messages of one replication slot, in their order. One thread at a time may use it.

    Args:
        keys: returns the names of the primary key's columns for a `schema.table`, or None. The decoder calls it for tables whose
            replica identity does not name a key: FULL and NOTHING. If the key is unknown, a change of the key is an update.
        has_envelope: whether each change has its action, table and transaction as `envelope`.
    """

    def __init__(self, keys: Callable[[str], Sequence[str] | None] | None = None, *, has_envelope: bool = False) -> None:
        self._keys = keys
        self._has_envelope = has_envelope
        self._tables: dict[int, Table] = {}
        self._types: dict[int, Convert] = {}
        #: The lengths of the messages that described tables and types, by kind and number.
        self._lengths: dict[tuple[int, int], int] = {}
        self._bytes = 0
        self._ts: str | None = None
        self._transaction = ""

    def decode(self, message: bytes) -> list[ChangeEvent]:
        """Return the changes in a message, as `read` does. Any other message gives an event that the engine ignores.

        Raises:
            EventError: see `read`.
        """
        result = self.read(message)
        if isinstance(result, Begin | Commit):
            return [no_change(f"the {'begin' if isinstance(result, Begin) else 'commit'} of a transaction")]
        if not result:
            return [no_change("a description of a table or a type" if message[:1] != b"O" else "the origin of a transaction")]
        return [parsed(text, _WHAT) for text, _ in result]

    def read(self, message: bytes) -> Begin | Commit | list[Change]:
        """Return the content of a message: the begin or commit of a transaction, or the events of a change as JSON.

        The collection is `schema.table`. Truncates and messages of `pg_logical_emit_message` become events that the engine
        ignores. Descriptions of tables and types give an empty list.

        Raises:
            EventError: the message does not follow protocol version 1.
        """
        try:
            return self._read(message)
        except (struct.error, IndexError, _Cut):
            raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: the message is cut off", offset=len(message)) from None

    def _read(self, message: bytes) -> Begin | Commit | list[Change]:
        kind = message[0]
        if kind in b"IUD":
            return self._change(message, kind)
        if kind == 0x42:  # B
            lsn, us, xid = _BEGIN.unpack_from(message, 1)
            begin = Begin(lsn, us // 1000 + _EPOCH)
            self._ts = f'"ts":{begin.ts},'
            self._transaction = f'"xid":{xid},"lsn":"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"'
            return begin
        if kind == 0x43:  # C
            _, lsn, end, _ = _COMMIT.unpack_from(message, 1)
            self._ts = None
            return Commit(lsn, end)
        if kind in _IGNORED:
            return [(_IGNORED[kind], None)]
        if kind == 0x52:  # R
            self._relation(message)
        elif kind == 0x59:  # Y
            self._type(message)
        elif kind != 0x4F:  # O
            reason = "is of another protocol version; request version 1" if kind in _STREAMED else "is unknown"
            raise EventError(EventCode.WRONG_TYPE, f"{_WHAT}: a message that begins with byte {kind} {reason}", offset=0)
        return []

    def _change(self, message: bytes, kind: int) -> list[Change]:
        (relation,) = _RELATION.unpack_from(message, 1)
        table, ts = self._tables.get(relation), self._ts
        if table is None:
            reason = f"{_WHAT}: a change of table {relation}, which no message described: {_BEGINNING}"
            raise EventError(EventCode.BAD_VALUE, reason, offset=1)
        if ts is None:
            raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: a change outside of a transaction: {_BEGINNING}", offset=0)
        if self._has_envelope:
            ts += f'"envelope":{{"action":"{kind:c}",{table.named},{self._transaction}}},'
        old: Row | None = None
        at = 5
        mark = message[at]
        if kind != 0x49 and mark in b"KO":
            row, at = _row(table, message, at + 1)
            old = table.carried(row) if mark == 0x4B else row
            mark = message[at] if kind == 0x55 else 0x4E
        if mark != 0x4E or (kind == 0x44 and old is None):
            expected = "K or O" if kind == 0x44 else "N"
            raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: expected a row, marked {expected}, not byte {mark}", offset=at)
        if kind == 0x44:
            assert old is not None
            return [table.delete(old, ts)]
        row, at = _row(table, message, at + 1)
        return [table.insert(row, ts)] if kind == 0x49 else table.update(row, old, ts)

    def _relation(self, message: bytes) -> None:
        (relation,) = _RELATION.unpack_from(message, 1)
        schema, at = _string(message, 5)
        name, at = _string(message, at)
        identity = message[at]
        (count,) = _COUNT.unpack_from(message, at + 1)
        at += 3
        columns = []
        for _ in range(count):
            is_key = message[at] & 1 == 1
            column, at = _string(message, at + 1)
            type_oid, _ = _TYPED.unpack_from(message, at)
            at += 8
            columns.append(Column(column, self._types.get(type_oid) or converter(type_oid), is_key))
        schema = schema or "pg_catalog"
        collection = f"{schema}.{name}"
        key: Sequence[str] = [column.name for column in columns if column.is_key]
        if identity == 0x66 or not key:  # FULL marks all columns
            key = (self._keys(collection) if self._keys is not None else None) or ()
        self._remember(0x52, relation, len(message))
        named = f'"schema":{encode_basestring(schema)},"table":{encode_basestring(name)}'
        self._tables[relation] = Table(collection, columns, key, named)

    def _type(self, message: bytes) -> None:
        """Remember a type that is not built in. For a domain, the message names its base type."""
        (oid,) = _RELATION.unpack_from(message, 1)
        schema, at = _string(message, 5)
        name, _ = _string(message, at)
        self._remember(0x59, oid, len(message))
        self._types[oid] = named_converter(schema, name)

    def _remember(self, kind: int, number: int, length: int) -> None:
        """Make room for the description of a table or a type, in place of a former one. Raises EventError."""
        former = self._lengths.get((kind, number))
        total = self._bytes - (former or 0) + length
        most = ""
        if former is None and len(self._lengths) >= MOST_TABLES:
            most = f"more than {MOST_TABLES:,} tables and types"
        elif total > MOST_BYTES:
            most = f"descriptions of tables of more than {MOST_BYTES:,} bytes together"
        if most:
            raise EventError(EventCode.TOO_LONG, f"{_WHAT}: {most}: publish fewer tables", offset=0)
        self._bytes = total
        self._lengths[kind, number] = length


def bytes_of(record: bytes) -> bytes:
    """Return the bytes of a message that is given as they are, or in hex as `\\x…`, which is how psql prints them.

    No message begins with a backslash.

    Raises:
        EventError: the hex is not whole bytes.
    """
    if not record.startswith(b"\\x"):
        return record
    digits = record[2:].rstrip()
    pairs = _PAIRS(digits)
    end = pairs.end() if pairs is not None else 0
    if end < len(digits):
        end += digits[end] in _DIGITS
        raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: expected a pair of hex digits", offset=2 + end)
    return bytes.fromhex(digits.decode())


class _Cut(Exception):
    """A message is shorter than its content requires."""


def _string(message: bytes, at: int) -> tuple[str, int]:
    """Return the null-terminated text at an offset, and the offset of the next part."""
    end = message.find(b"\0", at)
    if end < 0:
        raise _Cut
    try:
        return message[at:end].decode(), end + 1
    except UnicodeDecodeError as bad:
        raise _ill_formed(at, bad) from None


def _ill_formed(at: int, bad: UnicodeDecodeError) -> EventError:
    """Return the error for a text at an offset that is not UTF-8."""
    return EventError(EventCode.BAD_UTF8, f"{_WHAT}: invalid UTF-8", offset=at + bad.start)


def _row(table: Table, message: bytes, at: int) -> tuple[Row, int]:
    """Return the row at an offset, and the offset of the next part."""
    (count,) = _COUNT.unpack_from(message, at)
    if count != len(table.columns):
        reason = f"{_WHAT}: a row of {count} columns, but its table was described with {len(table.columns)}"
        raise EventError(EventCode.BAD_VALUE, reason, offset=at)
    at += 2
    row: list[str | _Unchanged | None] = []
    add, length_at = row.append, _RELATION.unpack_from
    for _ in range(count):
        kind = message[at]
        if kind == 0x74:  # t
            begin = at + 5
            at = begin + length_at(message, at + 1)[0]
            if at > len(message):
                raise _Cut
            try:
                add(str(message[begin:at], "utf-8"))
            except UnicodeDecodeError as bad:
                raise _ill_formed(begin, bad) from None
        elif kind == 0x6E:  # n
            row.append(None)
            at += 1
        elif kind == 0x75:  # u
            row.append(_UNCHANGED)
            at += 1
        else:
            reason = "binary, which was not requested" if kind == 0x62 else f"byte {kind}, and n, t or u was expected"
            raise EventError(EventCode.BAD_VALUE, f"{_WHAT}: a value is {reason}", offset=at)
    return row, at


# Values

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)").fullmatch
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*").fullmatch
_ZONED: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9:]{8}(?:\.[0-9]+)?)([+-][0-9]{2})(:[0-9]{2})?").fullmatch
#: A token of an array: a brace or comma, a quoted element, or a plain element.
_TOKEN: Final = re.compile(r'([{},])|"((?:[^"\\]|\\.)*)"|([^{},"\\]+)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
#: JSON has no such numbers, and null would mean that there is no value.
_NO_NUMBERS: Final = {word: f'"{word}"' for word in ("NaN", "Infinity", "-Infinity")}
#: A number with more digits before its point may exceed the range of float64.
_MOST_DIGITS: Final = 308


def _integer(text: str) -> str:
    if not (text.isdigit() and text.isascii() and text[0] != "0") and _INTEGER(text) is None:
        raise ValueError(f"{text[:40]!r} is not an integer")
    return text


def _number(text: str) -> str:
    if _NUMBER(text) is None:
        if (word := _NO_NUMBERS.get(text)) is None:
            raise ValueError(f"{text[:40]!r} is not a number")
        return word
    # An engine compares numbers as float64, so a longer number stays a string.
    return text if len(text) <= _MOST_DIGITS or len(text.partition(".")[0]) <= _MOST_DIGITS else encode_basestring(text)


def _boolean(text: str) -> str:
    if text not in ("t", "f"):
        raise ValueError(f"{text[:40]!r} is neither t nor f")
    return "true" if text == "t" else "false"


def _document(text: str) -> str:
    # Only checks that it is JSON: its spelling stays.
    parsed(text, _WHAT, "/")
    # A message must be one line. In JSON, line breaks occur only between tokens.
    return text.replace("\n", " ").replace("\r", " ") if "\n" in text or "\r" in text else text


def _bytes(text: str) -> str:
    if not text.startswith("\\x"):
        # The other output format (`bytea_output = escape`).
        return encode_basestring(text)
    if _HEX(text, 2) is None:
        raise ValueError(f"{text[:40]!r} is not hex")
    return f'"{base64.b64encode(bytes.fromhex(text[2:])).decode()}"'


def _zoned(text: str) -> str:
    """Return a time with its zone as RFC 3339 text, which CEL's `timestamp` reads; other years than 0000 to 9999 stay as text."""
    if (match := _ZONED(text)) is None:
        return encode_basestring(text)
    date, time, hours, minutes = match.groups()
    zone = "Z" if hours in ("+00", "-00") and minutes in (None, ":00") else hours + (minutes or ":00")
    return f'"{date}T{time}{zone}"'


def _array(convert: Convert) -> Convert:
    def converted(text: str) -> str:
        # [2:4]={…}: drop the bounds of the index, which JSON cannot express.
        body = text.partition("=")[2] if text.startswith("[") else text
        parts: list[str] = []
        depth, at, is_value_due = 0, 0, True
        while at < len(body) and (depth or not at):
            token = _TOKEN.match(body, at)
            if token is None:
                break
            at = token.end()
            mark, quoted, plain = token.groups()
            if mark == "{" and is_value_due:
                depth += 1
                parts.append("[")
            elif mark == "}" and depth and (not is_value_due or parts[-1] == "["):
                depth -= 1
                parts.append("]")
                is_value_due = False
            elif mark == "," and depth and not is_value_due:
                parts.append(",")
                is_value_due = True
            elif mark is None and depth and is_value_due:
                if quoted is not None:
                    parts.append(convert(_ESCAPED.sub(r"\1", quoted)))
                else:
                    parts.append("null" if plain == "NULL" else convert(plain))
                is_value_due = False
            else:
                break
        if depth or at < len(body) or not parts:
            raise ValueError(f"{text[:40]!r} is not an array")
        return "".join(parts)

    return converted


def _array_or_text(text: str) -> str:
    try:
        return _TEXTS(text)
    except ValueError:
        return encode_basestring(text)


_TEXTS: Final = _array(encode_basestring)

#: Types of PostgreSQL whose values do not become plain strings: name, oid, oid of its arrays, conversion.
_BUILT_IN: Final[tuple[tuple[str, int, int, Convert], ...]] = (
    ("bool", 16, 1000, _boolean),
    ("bytea", 17, 1001, _bytes),
    ("int8", 20, 1016, _integer),
    ("int2", 21, 1005, _integer),
    ("int4", 23, 1007, _integer),
    ("oid", 26, 1028, _integer),
    ("json", 114, 199, _document),
    ("float4", 700, 1021, _number),
    ("float8", 701, 1022, _number),
    ("timestamptz", 1184, 1185, _zoned),
    ("numeric", 1700, 1231, _number),
    ("jsonb", 3802, 3807, _document),
)
#: Arrays of strings: text, varchar, bpchar, name, char, uuid, date, time, timestamp, interval, inet, cidr.
_OF_STRINGS: Final = (1009, 1015, 1014, 1003, 1002, 2951, 1182, 1183, 1115, 1187, 1041, 651)
_BY_OID: Final[Mapping[int, Convert]] = {
    **{oid: convert for _, oid, _, convert in _BUILT_IN},
    **{of_arrays: _array(convert) for _, _, of_arrays, convert in _BUILT_IN},
    **dict.fromkeys(_OF_STRINGS, _TEXTS),
}
_BY_NAME: Final[Mapping[str, Convert]] = {
    **{name: convert for name, _, _, convert in _BUILT_IN},
    **{f"_{name}": _array(convert) for name, _, _, convert in _BUILT_IN},
}


def converter(type_oid: int) -> Convert:
    """Return the conversion of a type's values; those of an unknown type become strings, as PostgreSQL writes them."""
    return _BY_OID.get(type_oid, encode_basestring)


def named_converter(schema: str, name: str) -> Convert:
    """Return the conversion for a type that a message names: a domain's base type, an enum, an array."""
    if schema in ("", "pg_catalog") and name in _BY_NAME:
        return _BY_NAME[name]
    return _array_or_text if name.startswith("_") else encode_basestring
