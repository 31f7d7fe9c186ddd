"""Put a file in the place of another: it is there whole, or what was there before stays.

Every file that Streamer writes as a whole is written here, so one rule holds: symbolic links are followed and stay; what is no
regular file is refused; mode and owner of a file that is replaced stay. What is appended to is a sink's.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def check_target(path: str | os.PathLike[str]) -> Path:
    """Return where a file would be put, links followed.

    Raises:
        OSError: something else than a regular file is there, or no directory is above it.
    """
    # The links of /proc lead to no name: what they lead to is looked at first.
    with suppress(FileNotFoundError):
        kind = stat.S_IFMT(os.stat(path).st_mode)
        if kind != stat.S_IFREG:
            code = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
            reason = f"expected a regular file or a new name, and this is {_KINDS.get(kind, 'none')}; choose another path"
            raise OSError(code, reason, os.fspath(path))
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        code = errno.ENOTDIR if target.parent.exists() else errno.ENOENT
        raise OSError(code, os.strerror(code), str(target.parent))
    return target


@contextmanager
def replacing(path: str | os.PathLike[str], *, is_private: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to be written, which takes the place of what *path* leads to when it is whole and on the disk.

    Args:
        is_private: only its owner may read it, unless a file was there that others may read.

    Raises:
        OSError: it cannot be written, or what is there is no regular file; what was there stays.
    """
    target = check_target(path)
    draft = target.with_name(f".streamer-{secrets.token_hex(8)}")
    # Of what is new, os.open takes off what the umask does.
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600 if is_private else 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            _like(target, draft, os.fstat(file.fileno()))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    # So that the name, too, outlives a power cut; where a directory cannot be opened, that is left to the system.
    with suppress(OSError):
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _like(target: Path, draft: Path, new: os.stat_result) -> None:
    """Give a new file the owner and the mode of the one whose place it takes: who read that may read this."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return
    if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.chown(draft, old.st_uid, old.st_gid)
        except PermissionError:
            if old.st_uid != new.st_uid:
                reason = "it is another user's, who could not read what you write: run this as its owner"
                raise PermissionError(errno.EPERM, reason, str(target)) from None
    os.chmod(draft, stat.S_IMODE(old.st_mode))
