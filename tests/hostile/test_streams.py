"""Nothing in a stream of lines crashes an engine or takes memory without measure: a bad line is told in its place."""

from __future__ import annotations

import functools
import gzip
import io
import random
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from streamer import BulkSubscriptionError, Engine, InputError, Limits

GOOD = b'{"data":{"a":1}}\n'
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

#: What is held at most while an endless line goes by: a chunk, what one step decompresses to, and the longest line.
MEMORY = 128 << 20


class Endless(io.RawIOBase):
    """A file of one line that goes on until more than enough was read."""

    def __init__(self, text: bytes, size: int) -> None:
        self.text, self.left = text, size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        taken = min(size, self.left)
        self.left -= taken
        return (self.text * (taken // len(self.text) + 1))[:taken]


def results(engine: Engine, source: Any) -> list[tuple[int, str]]:
    """The number of each line, and the code of its error or its number of matches."""
    return [(each.line, each.error.code if each.error else f"{len(each.matches)}") for each in engine.match_jsonl(source)]


@pytest.fixture
def filled(engine: Callable[..., Engine]) -> Engine:
    """An engine with a subscription to every event, that takes lines of a megabyte."""
    filled = engine(limits=Limits(max_event_bytes=1 << 20))
    filled.add({"id": "s"})
    return filled


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\n" * 100_000, [], id="blank lines"),
        pytest.param(b" \t\r\n" * 1000 + b"{}", [(1001, "1")], id="lines of white space"),
        pytest.param(b"\0" * 1000, [(1, "malformed_json")], id="NUL"),
        pytest.param(b"\0\n" + GOOD, [(1, "malformed_json"), (2, "1")], id="a line of NUL"),
        pytest.param(b"\xff\xfe{}\n" + GOOD, [(1, "bad_utf8"), (2, "1")], id="a line that is no UTF-8"),
        pytest.param(b"{}{}\n" + GOOD, [(1, "malformed_json"), (2, "1")], id="two events in a line"),
        pytest.param(
            b'{"data":\n{}}\n' + GOOD, [(1, "malformed_json"), (2, "malformed_json"), (3, "1")], id="an event of two lines"
        ),
        pytest.param(b"{}\r{}\n" + GOOD, [(1, "malformed_json"), (2, "1")], id="a line that ends in CR"),
        pytest.param(b'{"a":"' + b"x" * (1 << 20) + b'"}\n' + GOOD, [(1, "too_long"), (2, "1")], id="a line that is too long"),
        pytest.param(GOOD + b"[" * 100_000 + b"\n" + GOOD, [(1, "1"), (2, "too_deep"), (3, "1")], id="a line that is too deep"),
        pytest.param(b"\x1f", [(1, "malformed_json")], id="half of gzip's first bytes"),
        pytest.param(ZSTD_MAGIC[:3], [(1, "malformed_json")], id="three of zstd's first bytes"),
        pytest.param(gzip.compress(GOOD) + bytes(5000), [(1, "1")], id="gzip padded with zeros"),
        pytest.param(gzip.compress(b"") * 5000 + gzip.compress(GOOD), [(1, "1")], id="thousands of empty gzip members"),
        pytest.param(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstandard.compress(GOOD), [(1, "1")], id="a skippable frame"),
        pytest.param(gzip.compress(gzip.compress(GOOD, mtime=0)), [(1, "malformed_json")], id="gzip in gzip is no text"),
    ],
)
def test_a_hostile_stream_is_read_to_its_end(filled: Engine, text: bytes, expected: list[tuple[int, str]]) -> None:
    assert results(filled, text) == expected
    assert results(filled, io.BytesIO(text)) == expected


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_junk_is_told_line_by_line(filled: Engine, compress: Callable[[bytes], bytes]) -> None:
    junk = b"".join(random.Random(7).randbytes(50).replace(b"\n", b"") + b"\n" for _ in range(200))
    found = results(filled, compress(b"x" + junk + GOOD))
    assert [line for line, _ in found] == list(range(1, 202))
    assert found[-1] == (201, "1")
    assert {code for _, code in found[:-1]} <= {"malformed_json", "bad_utf8"}


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(gzip.compress(GOOD * 1000)[:-5], "cut off", id="gzip without its end"),
        pytest.param(b"\x1f\x8b", "cut off", id="gzip's first bytes alone"),
        pytest.param(gzip.compress(GOOD)[:-8] + bytes(8), "damaged", id="gzip with a wrong checksum"),
        pytest.param(gzip.compress(GOOD) + b"junk", "damaged", id="gzip and junk"),
        pytest.param(b"\x1f\x8b\x08" + bytes(range(200)), "damaged", id="gzip's first bytes and junk"),
        pytest.param(zstandard.compress(GOOD * 1000)[:-3], "cut off", id="zstd without its end"),
        pytest.param(ZSTD_MAGIC, "cut off", id="zstd's first bytes alone"),
        pytest.param(ZSTD_MAGIC + b"\xff" * 100, "damaged", id="zstd's first bytes and junk"),
        pytest.param(ZSTD_MAGIC + b"\x00\xff" + bytes(100), "damaged", id="zstd that asks for a terabyte"),
    ],
)
def test_damaged_compression_is_an_input_error(filled: Engine, text: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        list(filled.match_jsonl(text))
    with pytest.raises(InputError, match=reason):
        filled.add_jsonl(text)
    assert len(filled) == 1


@functools.cache
def _bomb(name: str) -> bytes:
    zeros = bytes(1 << 20)
    gz: Any = zlib.compressobj(1, zlib.DEFLATED, 31)
    compressor = gz if name == "gzip" else zstandard.ZstdCompressor(level=1).compressobj()
    return b"".join([*(compressor.compress(zeros) for _ in range(300)), compressor.compress(b"\n" + GOOD), compressor.flush()])


SOURCES: dict[str, Callable[[], Any]] = {
    "a gzip bomb": lambda: _bomb("gzip"),
    "a zstd bomb": lambda: _bomb("zstd"),
    "an endless line": lambda: Endless(b"x", 300 << 20),
}


@pytest.mark.usefixtures("time_limit")
@pytest.mark.parametrize("source", SOURCES)
def test_300_megabytes_in_a_line_are_never_held(filled: Engine, source: str) -> None:
    stream = SOURCES[source]()
    tracemalloc.start()
    try:
        found = results(filled, stream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found[0] == (1, "too_long")
    assert peak < MEMORY


def test_bad_subscriptions_are_told_by_line(filled: Engine) -> None:
    text = b'\xff\n{"id":"a"}\n\n{}\n[]\n{"id":"b","cel":"("}\n{"id":"a"}\n' + b"[" * 100_000 + b"\n"
    with pytest.raises(BulkSubscriptionError) as raised:
        filled.add_jsonl(text)
    assert [error.index for error in raised.value.errors] == [0, 3, 4, 5, 6, 7]
    assert len(filled) == 1


def test_what_is_no_source_is_told(filled: Engine) -> None:
    for source in (5, None, ["{}"], [b"{}", 5], {b"{}": 1}, object(), io.StringIO("{}"), io.StringIO("")):
        with pytest.raises(TypeError, match=r"bytes|binary"):
            list(filled.match_jsonl(source))  # type: ignore[arg-type]
