"""Replace a file by another: the new one appears whole, or the old one stays.

Streamer writes every whole file here, so one rule applies: symbolic links are followed and stay; a target that is not a regular
file is refused; a replaced file keeps its mode and owner. Sinks append to their files themselves.
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
    """Return the path at which a file would be written, links followed.

    Raises:
        OSError: the target exists and is not a regular file, or its directory does not exist.
    """
    # Links in /proc may not lead to a name, so check the kind of their target first.
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
    """Yield a new file to write to, which replaces the target of *path* after it is complete and synced to disk.

    Args:
        is_private: whether only its owner may read it, unless it replaces a file that others may read.

    Raises:
        OSError: the file cannot be written, or the target is not a regular file; an existing file stays.
    """
    target = check_target(path)
    draft = target.with_name(f".streamer-{secrets.token_hex(8)}")
    # For a new file, os.open applies the umask.
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
    # Sync the directory, so that the name, too, survives a power loss; not all systems allow that.
    with suppress(OSError):
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _like(target: Path, draft: Path, new: os.stat_result) -> None:
    """Set the owner and the mode of a new file to those of the replaced one, so that the same users may read it."""
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
