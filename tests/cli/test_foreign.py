"""What is no file of JSON lines is one error that names it; what may be one is read line by line."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine
from streamer.engine.lines import read_lines
from streamer.errors import BulkConfigError, EventError, InputError
from tests.cli.conftest import Run

MakeEngine = Callable[..., Engine]

ROWS: list[dict[str, Any]] = [
    {"id": "one", "collection": "c", "data": {"a": 1}},
    {"id": "two", "collection": "c", "data": {"a": [1, 2]}},
]
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS)


def table(delimiter: str) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["id", "collection", "amount"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows([{"id": 1, "collection": "orders, old", "amount": 2}, {"id": 2, "collection": "x", "amount": 3}])
    return out.getvalue().encode()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("lines.jsonl", LINES)
    return out.getvalue()


#: A text, what it is called, and a part of what to do.
FOREIGN: dict[str, tuple[bytes, str, str]] = {
    "UTF-16": (LINES.encode("utf-16"), "UTF-16", "iconv -f UTF-16"),
    "UTF-16LE": (LINES.encode("utf-16-le"), "UTF-16LE", "iconv -f UTF-16LE"),
    "UTF-16BE": (LINES.encode("utf-16-be"), "UTF-16BE", "iconv -f UTF-16BE"),
    "UTF-16BE with a mark": (codecs.BOM_UTF16_BE + LINES.encode("utf-16-be"), "UTF-16", "iconv"),
    "UTF-32": (LINES.encode("utf-32"), "UTF-32", "iconv -f UTF-32"),
    "UTF-32LE": (LINES.encode("utf-32-le"), "UTF-32LE", "iconv"),
    "UTF-32BE": (LINES.encode("utf-32-be"), "UTF-32BE", "iconv"),
    "array": (json.dumps(ROWS).encode(), "a JSON array", "jq -c"),
    "array with an end": (json.dumps(ROWS).encode() + b"\n", "a JSON array", "jq -c"),
    "array on lines": (b"[" + b",\n".join(json.dumps(row).encode() for row in ROWS) + b"]\n", "a JSON array", "jq -c"),
    "array alone": (b"[\n" + b",\n".join(json.dumps(row).encode() for row in ROWS) + b"\n]\n", "a JSON array", "jq -c"),
    "array laid out": (json.dumps(ROWS, indent=2).encode(), "a JSON array", "jq -c"),
    "array behind a mark": (codecs.BOM_UTF8 + b"\n\n  " + json.dumps(ROWS).encode(), "a JSON array", "jq -c"),
    "laid out": (json.dumps(ROWS[0], indent=2).encode(), "laid out over several lines", "jq -c"),
    "laid out with tabs": (json.dumps(ROWS[0], indent="\t").encode(), "laid out over several lines", "jq -c"),
    "laid out without indent": (json.dumps(ROWS[0], indent=0).encode(), "laid out over several lines", "jq -c"),
    "laid out with CRLF": (json.dumps(ROWS[0], indent=4).replace("\n", "\r\n").encode(), "laid out over", "jq -c"),
    "laid out from the second member on": (b'{"id": "one",\n "collection": "c"}\n', "laid out over several lines", "jq -c"),
    "several laid out": ("\n".join(json.dumps(row, indent=2) for row in ROWS).encode(), "laid out over several lines", "jq -c"),
    "commas": (b"".join(json.dumps(row).encode() + b",\n" for row in ROWS), "commas between them", "take the commas"),
    "CSV": (table(","), "CSV", "to_json"),
    "CSV with semicolons": (table(";"), "semicolons", "to_json"),
    "TSV": (table("\t"), "TSV", "to_json"),
    "CSV behind a mark": (codecs.BOM_UTF8 + table(","), "CSV", "to_json"),
    "YAML": (b"- id: one\n  collection: c\n- id: two\n", "YAML", "yq"),
    "YAML of one": (b"id: one\ncollection: c\n", "YAML", "yq"),
    "YAML with a comment": (b"# what is wanted\nid: one\n", "YAML", "yq"),
    "YAML with a mark": (b"---\nid: one\n", "YAML", "yq"),
    "YAML with a list": (b"subscriptions:\n  - id: one\n", "YAML", "yq"),
    "XML": (b'<?xml version="1.0"?>\n<a/>\n', "XML or HTML", "an object on a line"),
    "HTML": (b"<!DOCTYPE html>\n<html>\n", "XML or HTML", "an object on a line"),
    "SSE": (b"data: " + json.dumps(ROWS[0]).encode() + b"\n\ndata: {}\n\n", "server-sent events", "sed"),
    "SSE with names": (b"event: change\ndata: {}\n\n", "server-sent events", "sed"),
    "sequence": (b"\x1e" + b"\x1e".join(json.dumps(row).encode() + b"\n" for row in ROWS), "RFC 7464", "tr -d"),
    "bzip2": (bz2.compress(LINES.encode()), "bzip2", "bzcat"),
    "xz": (lzma.compress(LINES.encode()), "xz", "xzcat"),
    "zip": (zipped(), "zip", "unzip -p"),
    "gzip of an array": (gzip.compress(json.dumps(ROWS).encode()), "a JSON array", "jq -c"),
    "gzip of UTF-16": (gzip.compress(LINES.encode("utf-16")), "UTF-16", "iconv"),
    "pickle": (pickle.dumps(ROWS), "a pickle", "JSON"),
    "Parquet": (b"PAR1\x15\x04\x15\n", "Parquet", "to_json"),
    "Avro": (b"Obj\x01\x04\x16avro.schema", "Avro", "avro-tools"),
    "SQLite": (b"SQLite format 3\0\n", "SQLite", "to_json"),
}

#: Lines that are no format: the bad ones are errors of their own.
OURS: dict[str, tuple[bytes, int]] = {
    "lines": (LINES.encode(), 2),
    "without an end": (LINES.encode().rstrip(), 2),
    "CRLF": (LINES.replace("\n", "\r\n").encode(), 2),
    "indented": (b"   " + LINES.encode(), 2),
    "blank lines": (b"\n \n\t\r\n" + LINES.encode(), 2),
    "a mark": (codecs.BOM_UTF8 + LINES.encode(), 2),
    "a mark and blank lines": (codecs.BOM_UTF8 + b"\r\n\r\n" + LINES.encode(), 2),
    "gzip": (gzip.compress(codecs.BOM_UTF8 + LINES.encode()), 2),
    "torn": (b'{"a": 1\n' + LINES.encode(), 3),
    "only a brace": (b"{\n{}\n", 2),
    "only an opening brace": (b"{", 1),
    "prose": (b"hello, world\n" + LINES.encode(), 3),
    "log lines": (b"ERROR: something, failed\n" + LINES.encode(), 3),
    "numbers": (b"1\n2\n", 2),
    "a list of numbers": (b"[1, 2]\n" + LINES.encode(), 3),
    "an empty list": (b"[]\n{}\n", 2),
    "texts": (b'"a"\n"b"\n', 2),
    "null": (b"null\nnull\n", 2),
    "a number with a comma": (b"1,5\n{}\n", 2),
    "nothing": (b"", 0),
    "only a mark": (codecs.BOM_UTF8, 0),
    "only blanks": (b" \n\n", 0),
}


@pytest.mark.parametrize(("text", "what", "advice"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("size", [1, 7, 1 << 20], ids=str)
def test_another_format_is_one_error_that_names_it(
    engine: MakeEngine, tmp_path: Path, text: bytes, what: str, advice: str, size: int
) -> None:
    e = engine()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    for read in (lambda source: list(e.match_jsonl(source)), e.add_jsonl, lambda source: e.add_jsonl(source, on_error="skip")):
        with pytest.raises(InputError) as caught:
            read(iter(pieces))
        assert what in str(caught.value)
        assert advice in str(caught.value)
        assert "expected lines of JSON in UTF-8, an object each" in str(caught.value)
    assert len(e) == 0
    assert e.stats().events == 0


@pytest.mark.parametrize(("text", "count"), OURS.values(), ids=OURS)
@pytest.mark.parametrize("size", [1, 1 << 20], ids=str)
def test_what_may_be_lines_is_read_line_by_line(text: bytes, count: int, size: int) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert len(list(read_lines(iter(pieces), max_bytes=1000))) == count


def test_a_byte_order_mark_is_no_part_of_the_first_line(engine: MakeEngine) -> None:
    e = engine()
    e.add_jsonl(codecs.BOM_UTF8 + b'{"id": "s"}\n')
    (first, second) = e.match_jsonl(codecs.BOM_UTF8 + b'{"collection": "c"}\n{"a": ?}\n')
    assert first.matches.ids() == ["s"]
    assert isinstance(second.error, EventError)
    assert (second.line, second.error.offset) == (2, 6)


def test_a_snapshot_is_named(engine: MakeEngine, tmp_path: Path) -> None:
    engine().save(tmp_path / "held")
    with pytest.raises(InputError, match=r"a snapshot of an engine.*Engine\.load"):
        engine().add_jsonl(tmp_path / "held")


@pytest.mark.parametrize("name", ["array", "laid out", "CSV", "YAML", "UTF-16", "bzip2"])
def test_the_command_line_tells_one_error_for_events_and_for_subscriptions(run: Run, place: Path, name: str) -> None:
    text, what, _ = FOREIGN[name]
    (place / "bad").write_bytes(text)
    (place / "good").write_text('{"id": "s"}\n')
    for arguments in (
        ("match", "-s", "good", "bad"),
        ("match", "-s", "bad", "good"),
        ("check", "-s", "bad"),
        ("stats", "-s", "good", "bad"),
        ("lint", "-s", "good", "--events", "bad"),
        ("explain", "-s", "good", "--id", "s", "--line", "1", "bad"),
    ):
        ran = run(*arguments)
        assert ran.returncode in (1, 2), arguments
        told = (ran.stderr + ran.stdout).decode()
        assert (what in told, told.count("this is ")) == (True, 1), arguments
        assert b"Traceback" not in ran.stderr


def test_files_of_a_configuration_are_one_error_each(engine: MakeEngine, tmp_path: Path) -> None:
    (tmp_path / "subs.json").write_text(json.dumps(ROWS))
    (tmp_path / "config.yaml").write_text("subscriptions: [subs.json]\n")
    with pytest.raises(BulkConfigError) as caught:
        engine.from_config(tmp_path / "config.yaml")  # type: ignore[attr-defined]
    (error,) = caught.value.errors
    assert "a JSON array" in str(error)


def test_one_event_may_be_laid_out_over_lines(run: Run, place: Path) -> None:
    (place / "good").write_text('{"id": "s"}\n')
    (place / "event.json").write_bytes(codecs.BOM_UTF8 + json.dumps(ROWS[0], indent=2).encode())
    ran = run("explain", "-s", "good", "--id", "s", "event.json")
    assert (ran.returncode, ran.stderr) == (0, b"")
    (place / "event.json").write_bytes(json.dumps(ROWS[0], indent=2).encode("utf-16"))
    ran = run("explain", "-s", "good", "--id", "s", "event.json")
    assert ran.returncode == 2
    assert b"UTF-16" in ran.stderr
