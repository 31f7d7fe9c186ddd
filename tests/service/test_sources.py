"""A file is read on where it was confirmed, through rotations, truncations and restarts."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.connectors.file.source import FileLines
from streamer.service.connectors.lines import Lines
from streamer.service.connectors.protocols import EndOfSource, Progress, Refused


class Place:
    """A file, and what a store would have of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.positions: dict[str, str] = {}
        self.source = self.open()

    def open(self, *, follow: bool = True) -> FileLines:
        self.source = FileLines(self.path, follow=follow, poll=0.01, max_bytes=1000)
        self.source.open(self.positions, self.positions.__setitem__)
        return self.source

    def read(self, tries: int = 8, *, confirm: bool = True) -> list[tuple[str, int, bytes]]:
        """Return partition, position and text of what comes."""
        found: list[tuple[str, int, bytes]] = []
        for _ in range(tries):
            try:
                batch = self.source.read(0.01)
            except EndOfSource:
                break
            if batch is None:
                continue
            found += [
                (batch.partition, batch.positions(at), record)
                for at, record in enumerate(batch.records)
                if isinstance(record, bytes)
            ]
            if confirm and batch.is_last:
                del self.positions[batch.partition]
            elif confirm and batch.confirm is not None:
                self.positions[batch.partition] = batch.confirm
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "log")


def texts(found: list[tuple[str, int, bytes]]) -> list[bytes]:
    return [text for _, _, text in found]


def append(path: Path, text: bytes) -> None:
    with open(path, "ab") as file:
        file.write(text)


def test_a_file_is_waited_for_and_followed_by_whole_lines(place: Place) -> None:
    assert place.read() == []
    append(place.path, b"a\nb")
    assert texts(place.read()) == [b"a"]
    append(place.path, b"c\n\n \r\nd\r\n")
    assert [found[1:] for found in place.read()] == [(5, b"bc"), (12, b"d")]


def test_it_goes_on_after_the_last_line_that_was_confirmed(place: Place) -> None:
    append(place.path, b"a\nb\n")
    first = place.read()
    append(place.path, b"c\nd")
    unconfirmed = place.read(confirm=False)
    assert texts(unconfirmed) == [b"c"]
    place.open()
    assert place.read() == unconfirmed
    append(place.path, b"e\n")
    place.open()
    again = place.read()
    assert texts(again) == [b"de"]
    assert {found[0] for found in (*first, *again)} == {first[0][0]}


def test_a_file_tells_how_far_it_was_read_and_counts_with_the_one_that_takes_its_place(place: Place) -> None:
    assert place.source.progress() is None
    append(place.path, b"a\nb")
    place.read()
    assert place.source.progress() == Progress(3, 3, "bytes")
    append(place.path, b"c\nd\n")
    assert place.source.progress() == Progress(3, 7, "bytes")
    os.rename(place.path, place.path.with_name("log.1"))
    assert place.source.progress() == Progress(3, 7, "bytes"), "it is not read yet, wherever it is"
    append(place.path, b"e\n")
    assert place.source.progress() == Progress(3, 9, "bytes")
    while texts(place.read(1))[-1:] != [b"e"]:
        pass
    assert place.source.progress() == Progress(9, 9, "bytes"), "positions only grow"
    place.source.close()
    assert place.source.progress() is None


def test_a_compressed_file_tells_how_many_of_its_own_bytes_were_read(place: Place) -> None:
    text = b"".join(b"%s\n" % random.Random(at).randbytes(100).hex().encode() for at in range(4000))
    place.path.write_bytes(gzip.compress(text))
    source, size = place.open(follow=False), place.path.stat().st_size
    found, places = [], []
    while sum(map(len, found)) < len(text) - len(text.splitlines()):
        found += texts(place.read(1, confirm=False))
        places.append(source.progress())
    assert found == text.splitlines()
    assert places[0] is not None
    assert 0 < places[0].read < size / 2
    assert places[-1] == Progress(size, size, "bytes")
    assert places == sorted(places)


def test_a_file_that_was_renamed_is_read_to_its_end_and_the_new_one_is_another_partition(place: Place) -> None:
    append(place.path, b"a\n")
    first = place.read()
    seen: list[int] = []
    faults.arm("source.rotated", lambda: seen.append(1))
    old = os.open(place.path, os.O_WRONLY | os.O_APPEND)
    os.rename(place.path, place.path.with_name("log.1"))
    os.write(old, b"b\nlast")
    os.close(old)
    append(place.path, b"a\n")
    found = place.read(30)
    assert texts(found) == [b"b", b"last", b"a"]
    assert found[0][0] == found[1][0] == first[0][0] != found[2][0]
    assert list(place.positions) == [found[2][0]]
    assert seen == [1]


def test_who_writes_on_after_a_rotation_is_read_to_the_end(place: Place) -> None:
    """logrotate's `create` makes the new file first, and says so a while later; half a line may stand there meanwhile."""
    append(place.path, b"a\n")
    place.read()
    old = os.open(place.path, os.O_WRONLY | os.O_APPEND)
    os.rename(place.path, place.path.with_name("log.1"))
    place.path.touch()
    found = []
    for number in range(10):
        os.write(old, b"%d\nhal" % number)
        found += place.read(5)
        os.write(old, b"f\n")
        found += place.read(5)
    os.close(old)
    append(place.path, b"new\n")
    found += place.read(40)
    assert texts(found) == [line for number in range(10) for line in (b"%d" % number, b"half")] + [b"new"]


def test_a_file_that_was_renamed_while_nobody_read_is_read_on(place: Place) -> None:
    append(place.path, b"a\nb\n")
    place.read()
    append(place.path, b"c\n")
    os.rename(place.path, place.path.with_name("log.1"))
    append(place.path, b"d\n")
    place.open()
    assert texts(place.read(20)) == [b"c", b"d"]
    place.open()
    assert place.read() == []


def test_a_file_that_was_renamed_and_is_gone_is_told_and_forgotten(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    append(place.path, b"a\n")
    place.read()
    os.rename(place.path, place.path.with_name("elsewhere"))
    append(place.path, b"b\n")
    place.open()
    assert texts(place.read()) == [b"b"]
    assert "a file that was read up to byte 2 is gone" in caplog.text
    assert len(place.positions) == 1


@pytest.mark.parametrize("text", [b"x\n", b"x\ny\nz\nmore than there was\n"])
def test_a_file_that_was_cut_off_begins_anew_under_another_name(place: Place, text: bytes) -> None:
    append(place.path, b"a\nb\nc\nbegun")
    first = place.read()
    place.path.write_bytes(text)
    found = place.read(20)
    assert texts(found) == text.splitlines()
    assert found[0][0] != first[0][0]


@pytest.mark.parametrize("text", [b"x\n", b"x\ny\nz\nmore than there was\n"])
def test_a_file_that_was_cut_off_while_nobody_read_begins_anew(place: Place, text: bytes) -> None:
    append(place.path, b"a\nb\nc\n")
    first = place.read()
    place.path.write_bytes(text)
    place.open()
    found = place.read(20)
    assert texts(found) == text.splitlines()
    assert found[0][0] != first[0][0]


def test_a_file_that_is_not_followed_ends_with_its_last_line(place: Place) -> None:
    append(place.path, b"a\nb")
    place.open(follow=False)
    assert texts(place.read()) == [b"a", b"b"]
    place.open(follow=False)
    assert place.read() == []


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("pipe", "no file"), (".", "no file"), ("nosuch", "No such file")):
        with pytest.raises(ServiceError, match=reason):
            FileLines(tmp_path / name, follow=False, poll=1, max_bytes=10).check()
    FileLines(tmp_path / "nosuch", follow=True, poll=1, max_bytes=10).check()
    with pytest.raises(ServiceError, match="No such file"):
        FileLines(tmp_path / "no" / "such", follow=True, poll=1, max_bytes=10).check()


PIECES = strategies.lists(
    strategies.binary(max_size=12).map(lambda text: text.translate(bytes([10, 13, 32, 65, 65, 10, 9, 66] * 32)))
)


@hypothesis.given(PIECES, strategies.integers(1, 20))
def test_lines_do_not_depend_on_where_a_text_is_cut(pieces: list[bytes], most: int) -> None:
    def split(pieces: list[bytes]) -> list[tuple[int, bytes | int]]:
        lines, found = Lines(most), []
        for piece in [*pieces, None]:
            records, end = lines.end() if piece is None else lines.feed(piece)
            found += [(end(at), each.size if isinstance(each, Refused) else each) for at, each in enumerate(records)]
        return found

    text = b"".join(pieces)
    whole = split([text])
    assert split(pieces) == whole
    assert split([bytes([byte]) for byte in text]) == whole
    expected, at = [], 0
    for piece in text.split(b"\n"):
        line = piece.removesuffix(b"\r")
        at += len(piece) + 1
        if len(line) > most or len(piece) > most + 1:
            expected.append((min(at, len(text)), len(piece)))
        elif line.strip(b" \t\r"):
            expected.append((min(at, len(text)), line))
    assert whole == expected


def test_a_line_without_an_end_costs_no_memory() -> None:
    lines = Lines(1000)
    for _ in range(1000):
        records, _ = lines.feed(b"x" * 10_000)
        assert records == []
        assert sum(map(len, lines._begun)) <= 64 * 1024 + 10_000
    (refused,), end = lines.feed(b"\nx")
    assert isinstance(refused, Refused)
    assert (refused.size, end(0)) == (10_000_000, 10_000_001)
