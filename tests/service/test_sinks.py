"""A file sink holds whole lines only, through crashes and rotations."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streamer.errors import ServiceError
from streamer.service.connectors.file.sink import FileAppender


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"a\n", b"a\n"),
        (b'a\n{"id', b"a\n"),
        (b"{", b""),
        (b"a\n{" + b"x" * 200_000, b"a\n"),
        (b"a\n" + b"\0" * 5000, b"a\n"),
        (b"\n\n", b"\n\n"),
    ],
)
def test_a_torn_last_line_is_cut_off(path: Path, before: bytes, after: bytes) -> None:
    path.write_bytes(before)
    sink = FileAppender(path)
    sink.open()
    sink.write([b"c\n", b"d\n"])
    sink.flush()
    sink.close()
    assert path.read_bytes() == after + b"c\nd\n"


@pytest.mark.parametrize("text", [b"no newline at the end", b"a\nb"])
def test_a_file_of_somebody_else_is_not_cut(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    with pytest.raises(ServiceError, match="no sink has written this file"):
        FileAppender(path).open()
    assert path.read_bytes() == text


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_what_is_no_regular_file_is_refused_at_once(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    sink = FileAppender(Path("/dev/null") if kind == "device" else path)
    for act in (sink.check, sink.open):
        with pytest.raises(ServiceError, match="no regular file"):
            act()


def test_half_of_a_line_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on after a disk was full, as after a test, would write the next line behind it."""
    sink = FileAppender(path)
    sink.open()
    sink.write([b"a\n"])
    write = os.write

    def half(file: int, text: memoryview) -> int:
        if len(text) < 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, text[:5])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(ServiceError, match="No space left"):
        sink.write([b'{"id":1}\n'])
    monkeypatch.undo()
    sink.write([b"c\n"])
    sink.close()
    assert path.read_bytes() == b"a\nc\n"


def test_after_a_rename_lines_go_to_a_new_file(path: Path) -> None:
    sink = FileAppender(path)
    sink.open()
    sink.write([b"a\n"])
    os.rename(path, path.with_name("out.1"))
    sink.write([b"b\n"])
    path.unlink()
    sink.write([b"c\n"])
    sink.flush()
    sink.close()
    assert path.with_name("out.1").read_bytes() == b"a\n"
    assert path.read_bytes() == b"c\n"


def test_two_do_not_write_one_file(path: Path) -> None:
    one, other = FileAppender(path), FileAppender(path)
    one.open()
    with pytest.raises(ServiceError, match="another process of Streamer writes it"):
        other.open()
    one.close()
    other.open()
    other.close()


def test_checking_changes_nothing(path: Path) -> None:
    FileAppender(path).check()
    assert not path.exists()
    path.write_bytes(b'{"torn')
    FileAppender(path).check()
    assert path.read_bytes() == b'{"torn'
    path.write_bytes(b"other's")
    with pytest.raises(ServiceError, match="no sink has written this file"):
        FileAppender(path).check()
    assert path.read_bytes() == b"other's"
    with pytest.raises(ServiceError, match="directory does not exist"):
        FileAppender(path.parent / "no" / "out").check()
    with pytest.raises(ServiceError, match="no regular file"):
        FileAppender(path.parent).check()
