"""Read JSON lines from anywhere, compressed or not, in constant memory.

```
source ──► chunks ──► decompressed chunks ──► no byte order mark, no other format ──► lines, at most max_bytes each
```

At most one chunk and one line are in memory. A line that is longer than an event may be is dropped while it is read and reported
in its place; so an endless line costs time, never memory.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, Protocol, TypeAlias

from streamer.engine.foreign import BOM, LOOKS, foreign
from streamer.errors import EventCode, EventError, InputError
from streamer.extras import needed
from streamer.locks import NO_FORK

LineSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Iterable[bytes]
"""A path, the text itself as bytes, a binary file object, which may be a pipe, or the text in pieces that may be cut anywhere."""

_CHUNK = 256 * 1024
_GZIP = b"\x1f\x8b"
# A Zstandard file may begin with a skippable frame, as parallel compressors write.
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes((byte,)) + b"\x2a\x4d\x18" for byte in range(0x50, 0x60)))
_MAGICS = (_GZIP, *_ZSTD)

# The input that is decompressed at once, so that neither a bomb nor a file of tiny members costs much. zlib bounds its output;
# Zstandard does not, and its smallest block of 4 bytes can expand to 128 KiB, so that 1 KiB of input is at most 32 MiB.
_GZIP_INPUT = 16 * 1024
_GZIP_OUTPUT = 256 * 1024
_ZSTD_INPUT = 1024


def read_chunks(source: LineSource) -> Iterator[bytes]:
    """Yield the text of a source in pieces, cut anywhere, and decompress it if necessary.

    Raises:
        InputError: the compressed data is damaged or cut off.
        OSError: the file cannot be read.
    """
    return _decompressed(_chunks(source))


def may_be_compressed(head: bytes) -> bool:
    """Return whether a text with this beginning may be compressed; JSON never is."""
    return bool(head) and any(magic.startswith(head[: len(magic)]) for magic in _MAGICS)


def read_lines(source: LineSource, *, max_bytes: int) -> Iterator[tuple[int, bytes | EventError]]:
    """Yield each line that is not blank, with its number from 1.

    A line ends in LF or CRLF, which are not part of it; the last line may lack them. A byte order mark is skipped. gzip and
    Zstandard are recognised by their first bytes, also with several members or frames. A pipe is read as it fills: a line is
    yielded as soon as its end has arrived.

    Args:
        source: a file object, which stays open, or a path, whose file is closed after reading.
        max_bytes: a longer line is an `EventError` in its place.

    Raises:
        InputError: the source has another format, such as CSV or a JSON array, or compressed data is damaged or cut off. All
            complete lines before the damage have been yielded.
        OSError: the file cannot be read.
    """
    for numbers, lines in read_blocks(source, max_bytes=max_bytes):
        yield from zip(numbers, lines, strict=True)


Block: TypeAlias = tuple[range, list[bytes]] | tuple[list[int], list[bytes | EventError]]
"""Some lines, with their numbers: a range if every line was matched (none blank or too long)."""


def read_blocks(source: LineSource, *, max_bytes: int) -> Iterator[Block]:
    """Yield the lines of `read_lines` in blocks: all lines that ended in one read, so that no line waits for the next read."""
    number = 1  # the number of the next line
    blocks = _blocks(_recognised(_decompressed(_chunks(source))), max_bytes)
    while True:
        try:
            lines = next(blocks, None)
        except InputError as error:
            error.line = number
            raise
        if lines is None:
            return
        numbers = range(number, number + len(lines))
        number += len(lines)
        yield _without_blanks(numbers, lines, max_bytes)


def _without_blanks(numbers: range, lines: list[bytes | None], max_bytes: int) -> Block:
    whole = [line for line in lines if line is not None]
    # A blank line sorts before lines that begin with any character after the space, so usually one comparison per line is enough.
    if len(whole) == len(lines) and min(whole, default=b"") > b" \xff":
        return numbers, whole
    selected: list[int] = []
    readable: list[bytes | EventError] = []
    for number, line in zip(numbers, lines, strict=True):
        if line is None:
            reason = f"the line is longer than the {max_bytes} bytes that are allowed"
            readable.append(EventError(EventCode.TOO_LONG, reason, offset=max_bytes, index=number - 1))
        elif line.strip(b" \t\r"):
            readable.append(line)
        else:
            continue
        selected.append(number)
    return selected, readable


def _blocks(chunks: Iterator[bytes], max_bytes: int) -> Iterator[list[bytes | None]]:
    """Yield lines split at LF; None stands for a line that is too long."""
    begun: list[bytes] = []  # parts of the line whose end has not arrived
    size = 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        lines: list[bytes | None] = []
        if ended:
            lines.append(_whole(begun, size, ended[0], max_bytes))
            begun, size = [], 0
            # All these lines are complete. Usually, there is no CR to strip, and no line is too long.
            is_plain = b"\r" not in chunk and (len(chunk) <= max_bytes or max(map(len, ended)) <= max_bytes)
            lines += ended[1:] if is_plain else (_whole([], 0, piece, max_bytes) for piece in ended[1:])
        yield lines
        size += len(rest)
        # One additional byte may be the CR of the line's end.
        if size <= max_bytes + 1:
            begun.append(rest)
        else:
            begun = []
    if size:
        yield [_whole(begun, size, b"", max_bytes)]


def _whole(begun: list[bytes], size: int, piece: bytes, max_bytes: int) -> bytes | None:
    if size > max_bytes + 1:
        return None
    line = b"".join((*begun, piece)).removesuffix(b"\r")
    return line if len(line) <= max_bytes else None


def _chunks(source: LineSource) -> Iterator[bytes]:
    """Yield the bytes of a source in pieces, as soon as they are available."""
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source).cast("B")
        for at in range(0, len(view), _CHUNK):
            yield bytes(view[at : at + _CHUNK])
        return
    with ExitStack() as opened:
        stream: Any = source
        if isinstance(source, str | os.PathLike):
            # Unbuffered, because reads are large already.
            stream = opened.enter_context(open(source, "rb", buffering=0))
        # A buffered reader's read() would wait for a full chunk.
        read: Callable[[int], bytes] | None = getattr(stream, "read1", None) or getattr(stream, "read", None)
        if read is not None:
            chunks, what = iter(partial(read, _CHUNK), b""), "a file opened in binary mode, its read() gives"
        elif isinstance(stream, Iterable) and not isinstance(stream, Mapping):
            chunks, what = iter(stream), "pieces of text as bytes, not"
        else:
            raise TypeError(f"expected a path, bytes, a binary file object or an iterable of bytes, not {type(source).__name__}")
        for chunk in chunks:
            if not isinstance(chunk, bytes):
                raise TypeError(f"expected {what} {type(chunk).__name__}")
            # An empty chunk is not the end.
            if chunk:
                yield chunk


def _decompressed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    head = b""
    # A pipe's first bytes may arrive one by one; wait for more only while they may still become a magic number.
    while any(len(head) < len(magic) and magic.startswith(head) for magic in _MAGICS):
        chunk = next(chunks, b"")
        if not chunk:
            break
        head += chunk
    if head.startswith(_GZIP):
        yield from _inflated(_prepended(head, chunks), _Gzip, _GZIP_INPUT, "gzip")
    elif head.startswith(_ZSTD):
        yield from _inflated(_prepended(head, chunks), _Zstd, _ZSTD_INPUT, "zstd")
    else:
        yield from _prepended(head, chunks)


def _recognised(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Skip a byte order mark, and refuse a source without lines of JSON. Raises InputError."""
    head, problem = b"", None
    while problem is None:
        chunk = next(chunks, b"")
        # A decompressed chunk may be long, so it is copied as rarely as possible.
        head = head + chunk if head else chunk
        problem = foreign(head[:LOOKS], is_all=not chunk or len(head) >= LOOKS)
    if problem:
        raise InputError(problem)
    rest = chain(iter([head.removeprefix(BOM)]), chunks)
    head = chunk = b""  # else they stay in memory until the last chunk is read
    yield from filter(None, rest)


def _prepended(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from chunks


class _Member(Protocol):
    """The decompressor of one gzip member or Zstandard frame."""

    ended: bool
    rest: bytes  # the input after its end

    def feed(self, data: bytes) -> Iterator[bytes]: ...


class _Gzip:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self.ended = False
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        full = True
        # A full output may leave more behind, even if the input is used up.
        while not self.ended and (data or full):
            output = self._inflate.decompress(data, _GZIP_OUTPUT)
            yield output
            full = len(output) == _GZIP_OUTPUT
            data = self._inflate.unconsumed_tail
            self.ended = self._inflate.eof
        self.rest = self._inflate.unused_data


class _Zstd:
    def __init__(self) -> None:
        try:
            with NO_FORK, needed("zstd input needs zstandard", "zstd"):
                import zstandard
        except ModuleNotFoundError as error:
            raise InputError(str(error)) from error
        self._inflate = zstandard.ZstdDecompressor().decompressobj()
        self._damaged = zstandard.ZstdError
        self.ended = False
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            inflated = self._inflate.decompress(data)
        except self._damaged as error:
            raise zlib.error(str(error)) from error
        yield inflated
        self.ended = self._inflate.eof
        self.rest = self._inflate.unused_data


def _inflated(chunks: Iterator[bytes], start: Callable[[], _Member], step: int, name: str) -> Iterator[bytes]:
    """Yield the decompressed members, one after the other; zero bytes may follow the last, as padding of block devices."""
    member: _Member | None = None
    try:
        for data in (chunk[at : at + step] for chunk in chunks for at in range(0, len(chunk), step)):
            rest = data
            while rest := rest if member else rest.lstrip(b"\0"):
                member = member or start()
                yield from filter(None, member.feed(rest))
                rest = member.rest
                if member.ended:
                    member = None
    except zlib.error as error:
        raise InputError(f"damaged {name} data: {error}") from error
    if member is not None:
        raise InputError(f"the {name} data is cut off")
