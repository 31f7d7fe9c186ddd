"""Every file that is written as a whole is written by one rule: links stay, what is no regular file is refused."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import streamer
from streamer.files import replacing
from streamer.metrics.history import History
from streamer.service.api import tokens


def write(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"new")


def history(path: Path) -> None:
    History(streamer.Engine()).write(path)


def plot(path: Path) -> None:
    from streamer.metrics.history import read_history
    from streamer.metrics.plot import plot as draw

    lines = path.with_name("lines.jsonl")
    made = History(engine := streamer.Engine())
    engine.add_many({"id": str(n), "collection": "c", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(200))
    made.sample()
    engine.match({"collection": "c", "data": {"a": 1}})
    made.sample()
    made.write(lines)
    draw(read_history(lines), path)


#: What writes a file, by name: whether it is private, and how.
WRITERS: dict[str, tuple[bool, Callable[[Path], object]]] = {
    "replacing": (False, write),
    "save": (True, lambda path: streamer.Engine().save(path)),
    "history": (False, history),
    "plot": (False, plot),
    "tokens": (True, lambda path: tokens.create(path, None, ("admin",), "n")),
}


@pytest.fixture(params=WRITERS)
def writer(
    request: pytest.FixtureRequest, backend: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[bool, Callable[[Path], object]]:
    if request.param == "plot":
        pytest.importorskip("matplotlib")
        # What is drawn takes long, and does not matter here.
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **options: file.write(b"drawn"))
    return WRITERS[request.param]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A path whose ending is one that pictures have, too."""
    return tmp_path / "target.svg"


def test_a_link_is_followed_and_stays(target: Path, tmp_path: Path, writer: tuple[bool, Callable[[Path], object]]) -> None:
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "file.svg"
    (tmp_path / "link.svg").symlink_to(Path("real", "file.svg"))
    target.symlink_to("link.svg")
    writer[1](target)
    real.write_bytes(b"another")
    writer[1](target) if writer is not WRITERS["tokens"] else None
    assert [path.is_symlink() for path in (target, tmp_path / "link.svg", real)] == [True, True, False]
    assert writer is WRITERS["tokens"] or real.read_bytes() != b"another"
    assert [each.name for each in real.parent.iterdir()] == ["file.svg"]


def test_what_is_no_regular_file_is_refused_and_stays(target: Path, writer: tuple[bool, Callable[[Path], object]]) -> None:
    def refuse(path: Path, kind: str) -> None:
        before = os.stat(path)
        with pytest.raises((OSError, streamer.StreamerError), match=kind):
            writer[1](path)
        after = os.stat(path)
        assert (before.st_mode, before.st_ino, before.st_dev) == (after.st_mode, after.st_ino, after.st_dev)

    os.mkfifo(target)
    refuse(target, "a pipe")
    target.unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(target))
        refuse(target, "a socket")
    target.unlink()
    target.mkdir()
    refuse(target, "a directory")
    target.rmdir()
    target.symlink_to("/dev/null")
    refuse(target, "a device")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    target.unlink()
    # A pipe that is open, as a shell's >(…) gives one.
    reading, writing = os.pipe()
    try:
        target.symlink_to(f"/dev/fd/{writing}")
        refuse(target, "a pipe")
    finally:
        os.close(reading)
        os.close(writing)


def test_a_link_in_a_circle_and_a_folder_that_is_missing_are_errors(
    target: Path, writer: tuple[bool, Callable[[Path], object]]
) -> None:
    target.symlink_to(target)
    with pytest.raises((OSError, streamer.StreamerError), match="symbolic links"):
        writer[1](target)
    target.unlink()
    target.symlink_to(target.parent / "missing" / "file.svg")
    with pytest.raises((OSError, streamer.StreamerError), match="No such file or directory"):
        writer[1](target)


def test_the_mode_stays_and_is_private_where_it_must(target: Path, writer: tuple[bool, Callable[[Path], object]]) -> None:
    is_private, act = writer
    old = os.umask(0o027)
    try:
        act(target)
        assert stat.S_IMODE(os.stat(target).st_mode) == (0o600 if is_private else 0o640)
        os.chmod(target, 0o644)
        act(target)
        assert stat.S_IMODE(os.stat(target).st_mode) == 0o644
    finally:
        os.umask(old)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays(target: Path, writer: tuple[bool, Callable[[Path], object]]) -> None:
    writer[1](target)
    os.chown(target, 12345, 23456)
    writer[1](target)
    found = os.stat(target)
    assert (found.st_uid, found.st_gid) == (12345, 23456)


def test_what_fails_leaves_what_was_there(target: Path) -> None:
    target.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(target) as file:
        file.write("half of it is no bytes")  # type: ignore[arg-type]
    assert [(each.name, each.read_bytes()) for each in target.parent.iterdir()] == [(target.name, b"old")]


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write(path)
    assert path.read_bytes() == b"new"
