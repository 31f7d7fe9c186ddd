"""Lines come from anywhere, in constant memory, each in its place."""

from __future__ import annotations

import gzip
import io
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamer.engine.foreign import BOM, foreign
from streamer.engine.lines import LineSource, read_lines
from streamer.errors import EventCode, EventError, InputError, StreamerError

TEXT = b'{"a":1}\r\n\n \t\r\n{"b":2}\n' + b"x" * 50 + b'\n{"c":3}'
EXPECTED = [(1, b'{"a":1}'), (4, b'{"b":2}'), (5, "too_long"), (6, b'{"c":3}')]

compress_zstd = zstandard.ZstdCompressor().compress
COMPRESSIONS = pytest.mark.parametrize("compress", [gzip.compress, compress_zstd], ids=["gzip", "zstd"])
Compress = Callable[[bytes], bytes]


class OneByOne:
    """A pipe that gives one byte at a time."""

    def __init__(self, content: bytes) -> None:
        self.content = io.BytesIO(content)

    def read(self, size: int) -> bytes:
        return self.content.read(min(size, 1))


def lines(source: LineSource, max_bytes: int = 20) -> list[tuple[int, bytes | str]]:
    return [
        (number, line if isinstance(line, bytes) else line.code.value) for number, line in read_lines(source, max_bytes=max_bytes)
    ]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, compress_zstd], ids=["plain", "gzip", "zstd"])
def test_every_source_gives_the_same_lines(compress: Compress, tmp_path: Path) -> None:
    content = compress(TEXT)
    path = tmp_path / "lines"
    path.write_bytes(content)
    sources: list[LineSource] = [content, bytearray(content), memoryview(content), path, str(path), io.BytesIO(content)]
    for source in [*sources, OneByOne(content)]:
        assert lines(source) == EXPECTED  # type: ignore[arg-type]


def test_a_line_that_is_too_long_is_an_error_in_its_place() -> None:
    (_, first), (_, error), (_, third) = read_lines(b"a\n" + b"x" * 21 + b"\nb\n", max_bytes=20)
    assert (first, third) == (b"a", b"b")
    assert isinstance(error, EventError)
    assert (error.code, error.offset, error.index) == (EventCode.TOO_LONG, 20, 1)


def test_the_end_of_a_line_does_not_count() -> None:
    assert lines(b"x" * 20 + b"\r\n" + b"y" * 20 + b"\n" + b"z" * 20) == [(1, b"x" * 20), (2, b"y" * 20), (3, b"z" * 20)]


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n \n\t", gzip.compress(b"", mtime=0), compress_zstd(b"")])
def test_there_may_be_no_lines(content: bytes) -> None:
    assert lines(content) == []


def test_a_byte_of_white_space_that_json_does_not_have_is_no_blank_line() -> None:
    assert lines(b"\x0c\n\x00\n") == [(1, b"\x0c"), (2, b"\x00")]


@COMPRESSIONS
def test_several_members_are_one_stream(compress: Compress) -> None:
    parts = [compress(TEXT[:10]), compress(b""), compress(TEXT[10:30]), compress(TEXT[30:])]
    assert lines(b"".join(parts)) == EXPECTED
    assert lines(b"".join(parts) + bytes(600)) == EXPECTED


def test_a_skippable_zstd_frame_is_skipped() -> None:
    assert lines(b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + compress_zstd(TEXT)) == EXPECTED


@COMPRESSIONS
@pytest.mark.parametrize("cut", [1, 4, 9])
def test_what_is_cut_off_is_an_error_after_the_whole_lines(compress: Compress, cut: int) -> None:
    # Bytes that do not compress, so that the lines before the cut have come.
    content = b"".join(os.urandom(30).hex().encode() + b"\n" for _ in range(2000))
    seen = []
    with pytest.raises(InputError, match="cut off") as raised:
        seen.extend(line for _, line in read_lines(compress(content) + compress(b"{}\n" * 100)[:-cut], max_bytes=100))
    assert seen[:2000] == content.split()
    assert isinstance(raised.value, StreamerError | OSError)


@COMPRESSIONS
def test_what_follows_the_compressed_data_is_an_error(compress: Compress) -> None:
    with pytest.raises(InputError, match="damaged"):
        lines(compress(TEXT) + b"garbage")


def test_a_damaged_stream_is_an_error() -> None:
    content = bytearray(gzip.compress(TEXT))
    content[-5] ^= 1
    with pytest.raises(InputError, match="damaged gzip data"):
        lines(bytes(content))


@COMPRESSIONS
@pytest.mark.parametrize("length", [262_143, 262_144, 262_145, 524_288, 1_048_577])
def test_no_byte_is_lost_where_a_buffer_ends(compress: Compress, length: int) -> None:
    assert lines(compress(b"a" * length), max_bytes=2**21) == [(1, b"a" * length)]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, compress_zstd], ids=["plain", "gzip", "zstd"])
def test_an_endless_line_costs_no_memory(compress: Compress, tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(compress(b"x" * 100_000_000 + b"\n{}\n"))
    tracemalloc.start()
    try:
        assert lines(path) == [(1, "too_long"), (2, b"{}")]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 80_000_000


def test_a_line_of_a_pipe_comes_when_its_end_has_come() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as sink:
        sink.write(b"{}\n{")
        came = read_lines(source, max_bytes=20)
        assert next(came) == (1, b"{}")
        sink.write(b"}\n")
        assert next(came) == (2, b"{}")
        threading.Timer(0.01, sink.close).start()
        assert list(came) == []


def test_a_file_object_stays_open_and_a_path_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(TEXT)
    with path.open("rb") as source:
        assert lines(source) == EXPECTED
        assert not source.closed
    came = read_lines(path, max_bytes=20)
    next(came)
    came.close()  # type: ignore[attr-defined]


def test_text_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="binary mode"):
        lines(io.StringIO("{}"))  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        lines(tmp_path / "none")


@given(st.lists(st.binary(max_size=12)), st.integers(1, 9), st.booleans())
def test_lines_are_what_splitting_gives(pieces: list[bytes], max_bytes: int, ends: bool) -> None:
    content = b"\n".join(pieces) + (b"\n" if ends else b"")
    if content.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", BOM)) or foreign(content, is_all=True):
        return
    wanted = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        line = line.removesuffix(b"\r")
        if len(line) > max_bytes:
            wanted.append((number, "too_long"))
        elif line.strip(b" \t\r"):
            wanted.append((number, line))  # type: ignore[arg-type]
    assert lines(content, max_bytes) == wanted
