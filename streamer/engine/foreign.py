"""Detect input that is not lines of JSON: a file of another format gives one error, not one per line.

Only the beginning of a source is examined, usually just its first line, which is an object. A single line that is not JSON is an
error of that line, and the others are read. So a format is reported only if two lines, or bytes that cannot begin JSON, prove it.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from typing import Final

BOM: Final = codecs.BOM_UTF8
#: The most bytes of a source that are examined.
LOOKS: Final = 64 * 1024

EXPECTED: Final = "expected lines of JSON in UTF-8, an object each"
_UNPACK: Final = "unpack it first, as in `{} FILE | streamer …`; gzip and zstd are unpacked as they are read"
_ROWS: Final = 'write each row as an object on a line: with pandas `frame.to_json(FILE, orient="records", lines=True)`'

#: The first bytes of files, their format, and the next step.
_MAGICS: Final = (
    (b"BZh", "data that is compressed with bzip2", _UNPACK.format("bzcat")),
    (b"\xfd7zXZ\0", "data that is compressed with xz", _UNPACK.format("xzcat")),
    (b"\x04\x22\x4d\x18", "data that is compressed with LZ4", _UNPACK.format("lz4cat")),
    (b"\xff\x06\0\0sNaPpY", "data that is compressed with Snappy", _UNPACK.format("snzip -dc")),
    (b"PK\x03\x04", "a zip archive", _UNPACK.format("unzip -p")),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK.format("7z x -so")),
    (b"PAR1", "a Parquet file", f"{_ROWS}, or match it on Spark"),
    (b"ORC", "an ORC file", f"{_ROWS}, or match it on Spark"),
    (b"Obj\x01", "an Avro file", "write its records as JSON: `avro-tools tojson FILE`"),
    (b"ARROW1", "an Arrow file", "match its column of events with Engine.match_arrow"),
    (b"SQLite format 3\0", "an SQLite database", _ROWS),
    (b"\x89STRM\r\n\x1a", "a snapshot of an engine", "open it with Engine.load"),
    (b"\x80\x04\x95", "a pickle", "write each object as JSON on a line"),
    (b"\x80\x05\x95", "a pickle", "write each object as JSON on a line"),
    (b"\x1e", "a JSON text sequence (RFC 7464)", "take the record separators out: `tr -d '\\036'`"),
)
_ENCODINGS: Final = (
    # UTF-32 first, because its mark begins with the mark of UTF-16.
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: The encoding of text without a mark, by the positions of zeros in its first four bytes.
_ZEROS: Final = {
    (False, True, True, True): "UTF-32LE",
    (True, True, True, False): "UTF-32BE",
    (False, True, False, True): "UTF-16LE",
    (True, False, True, False): "UTF-16BE",
}
_OF_YAML: Final = re.compile(rb"(?:- |\s*(?:- )?[\w\"'][\w .\"'-]*:(?:\s|$)|\s+- |-$|\s*#)")
_OF_SSE: Final = re.compile(rb"data:\s*[\[{]|(?:event|id|retry):[^{]*$|:")
_LINES: Final = "write each of them on a line of its own: `jq -c '.[]' FILE`"


def foreign(head: bytes, *, is_all: bool) -> str | None:
    """Return the format of a source that is not lines of JSON, with the next step; empty if it may be, None to get more of it.

    Args:
        head: the beginning of the source.
        is_all: whether *head* is the whole source, or enough to decide.
    """
    if len(head) < 4 and not is_all and (b"\0" in head or _may_be_binary(head)):
        return None
    if head.startswith(_UTF16) and not is_all and b"\0" not in head and b"\n" not in head:
        return None
    if (problem := no_text(head)) is not None:
        return problem
    *lines, rest = head.removeprefix(BOM).split(b"\n")
    if is_all:
        lines.append(rest)
    lines = [line.rstrip() for line in lines if line.strip()]
    if not lines:
        return "" if is_all else None
    first = lines[0]
    if first.lstrip()[:1] == b"{" and first.endswith(b"}"):
        return ""
    problem = _by_first_line(first.lstrip())
    if problem is not None:
        return problem
    if len(lines) < 2:
        return "" if is_all else None
    return _by_two_lines(first, lines[1])


def no_text(head: bytes) -> str | None:
    """Return the encoding of a source that is not UTF-8 text, with the next step; None if it may be UTF-8."""
    for magic, what, advice in _MAGICS:
        if head.startswith(magic):
            return _said(what, advice)
    # A mark without a NUL after it may be damage: UTF-16 has a NUL in each line, at least in its end.
    is_marked = not head.startswith(_UTF16) or b"\0" in head or len(head) == 2
    marked = next((name for mark, name in _ENCODINGS if head.startswith(mark)), None) if is_marked else None
    name = marked or (_ZEROS.get(tuple(byte == 0 for byte in head[:4])) if len(head) >= 4 else None)  # type: ignore[arg-type]
    return None if name is None else _said(f"text in {name}", f"convert it: `iconv -f {name} -t UTF-8 FILE`")


def _may_be_binary(head: bytes) -> bool:
    marks = (*(magic for magic, _, _ in _MAGICS), *(mark for mark, _ in _ENCODINGS))
    return not head or any(mark.startswith(head) for mark in marks)


def _by_first_line(line: bytes) -> str | None:
    """Return the format that one line proves, empty for lines of JSON, or None if a second line is needed."""
    if line.startswith(b"["):
        # A line may be an array by mistake; if it contains an object, the user needs that object without the list.
        if line[1:].lstrip()[:1] in (b"{", b"") or not _is_json(line):
            return _said("a JSON array", _LINES)
        return ""
    if line.startswith(b"<"):
        return _said("XML or HTML", "write each record as an object on a line")
    if line == b"---" or line.startswith((b"%YAML", b"--- ")):
        return _said("YAML", _LINES_OF_YAML)
    return None


_LINES_OF_YAML: Final = "convert it: `yq -o=json -I=0 '.[]' FILE`"


def _by_two_lines(first: bytes, second: bytes) -> str:
    start, after = first.lstrip(), second.lstrip()
    if start.startswith(b"{"):
        if start.endswith(b"},") and _is_json(start[:-1]) and after.startswith(b"{"):
            return _said("JSON objects with commas between them", "take the commas at the ends of the lines off")
        if after[:1] in (b'"', b"}", b"{", b"]") and _is_open(start) and (not after.startswith(b"{") or start.endswith(b"[")):
            return _said("JSON that is laid out over several lines", "write each object on one line: `jq -c . FILE`")
        return ""
    if after.startswith(b"{") and not _OF_SSE.match(start):
        return ""
    if _OF_SSE.match(start) and (_OF_SSE.match(after) or start.startswith(b"data:")):
        return _said("a stream of server-sent events", "write the data of each event on a line: `sed -n 's/^data: *//p'`")
    if _OF_YAML.match(first) and _OF_YAML.match(second):
        return _said("YAML", _LINES_OF_YAML)
    if (delimiter := _delimiter(first, second)) is not None:
        name = {"\t": "TSV, a table with tabs", ";": "CSV, a table with semicolons"}.get(delimiter, "CSV")
        return _said(name, _ROWS)
    return ""


def _is_open(line: bytes) -> bool:
    """Return whether a line is the beginning of JSON that continues on the next line."""
    try:
        json.loads(line.decode())
    except json.JSONDecodeError as error:
        # The standard library reports the missing token at the end of the text.
        return error.pos >= len(error.doc.rstrip())
    except (UnicodeDecodeError, RecursionError, ValueError):
        return False
    return False


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _delimiter(first: bytes, second: bytes) -> str | None:
    """Return the delimiter of the fields of two lines of a table; None if there is none."""
    try:
        lines = [first.decode(), second.decode()]
    except UnicodeDecodeError:
        return None
    for delimiter in ("\t", ";", ","):
        try:
            names, row = csv.reader(lines, delimiter=delimiter, strict=True)
        except (csv.Error, ValueError):
            continue
        if len(names) == len(row) > 1 and all(names) and len(set(names)) == len(names):
            return delimiter
    return None


def _said(what: str, advice: str) -> str:
    return f"this is {what}; {EXPECTED}: {advice}"
