"""Claims: the files and other resources that sections read, write and own, and the conflicts between them.

```
each section ──► claims() ──► one list ──► conflicts(): each claim against all before it
```

For example, a sink must not write a file that a source reads: it would feed its own matches back, and cut off the last line. The
code has no list of such pairs: a section declares the things that it uses, and any two claims of different sections are compared.
So a new kind of sink only needs to declare its claims. A path in a section without a claim counts as owned, the strictest use.

One thing may have several names. A file is compared by its path, by the targets of links, and by its inode; a set of files by its
directory and by the names in it.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias, final

_Steps: TypeAlias = tuple[str | int, ...]
#: Addresses that listen for all others.
_ALL: Final = frozenset({"0.0.0.0", "::"})
_LOCAL: Final = frozenset({"127.0.0.1", "::1"})


class Thing(ABC):
    """A resource outside of the process that sections may use."""

    @abstractmethod
    def meets(self, other: Thing) -> bool:
        """Return whether both overlap. Call it both ways: the result is `False` for a thing of an unknown kind."""


@final
class Access(Enum):
    """A section's use of a thing. Several may read one at once, or add to one; only one section may own it."""

    READS = auto()
    ADDS = auto()
    OWNS = auto()


READS, ADDS, OWNS = Access.READS, Access.ADDS, Access.OWNS


@final
@dataclass(frozen=True)
class Claim:
    """A section's use of a thing.

    Attributes:
        field: the setting that names it, relative to the section; empty for the section as a whole.
        says: the error for another section that uses the thing, too; `{}` is replaced by the name of this section.
    """

    field: _Steps
    access: Access
    thing: Thing
    says: str

    def goes_with(self, other: Claim) -> bool:
        """Return whether both claims are compatible."""
        is_shared = self.access is other.access and self.access is not OWNS
        return is_shared or not (self.thing.meets(other.thing) or other.thing.meets(self.thing))


@final
@dataclass(frozen=True)
class Placed:
    """A claim with the place of its section."""

    section: _Steps
    claim: Claim

    @property
    def place(self) -> _Steps:
        """The setting that names the thing."""
        return (*self.section, *self.claim.field)


def conflicts(claims: Iterable[Placed]) -> Iterator[tuple[_Steps, str]]:
    """Yield each claim that conflicts with an earlier claim of another section: its place and one reason."""
    before: list[Placed] = []
    wrong: set[_Steps] = set()
    for each in claims:
        for other in before:
            if other.section != each.section and each.place not in wrong and not other.claim.goes_with(each.claim):
                wrong.add(each.place)
                yield each.place, other.claim.says.format(shown(other.section))
        before.append(each)


def shown(place: _Steps) -> str:
    """Return a place as text, such as `sinks.hook.secret[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")


# Things


@final
@dataclass(frozen=True)
class File(Thing):
    """One file, which may not exist yet."""

    path: Path

    @cached_property
    def names(self) -> frozenset[tuple[object, str]]:
        """The directories and names of the file, before and after following links."""
        return frozenset((_directory(path.parent), path.name) for path in (self.path, _resolved(self.path)))

    @cached_property
    def inode(self) -> tuple[int, int] | None:
        """The identity that all hard links of the file share; None if it is missing or not a regular file."""
        return _inode(self.path) if self.path.is_file() else None

    def meets(self, other: Thing) -> bool:
        """See `Thing`."""
        if not isinstance(other, File):
            return False
        return not self.names.isdisjoint(other.names) or (self.inode is not None and self.inode == other.inode)


@final
@dataclass(frozen=True)
class Files(Thing):
    """All files of a directory with this beginning and end of the name. As in a shell, `*` excludes names with a leading dot."""

    directory: Path
    begin: str = ""
    end: str = ""

    def has(self, name: str) -> bool:
        """Return whether a file of this name in the directory is one of them."""
        is_long_enough = len(name) >= len(self.begin) + len(self.end)
        is_hidden = name.startswith(".") and not self.begin
        return is_long_enough and not is_hidden and name.startswith(self.begin) and name.endswith(self.end)

    def meets(self, other: Thing) -> bool:
        """See `Thing`."""
        if isinstance(other, Files):
            (short, long), (tail, longer) = (
                sorted((self.begin, other.begin), key=len),
                sorted((self.end, other.end), key=len),
            )
            is_one = _directory(self.directory) == _directory(other.directory)
            return is_one and long.startswith(short) and longer.endswith(tail)
        if not isinstance(other, File):
            return False
        here = _directory(self.directory)
        return any(directory == here and self.has(name) for directory, name in other.names) or self._links_to(other)

    def _links_to(self, file: File) -> bool:
        """Return whether a file in another directory has a link among these."""
        try:
            entries = file.inode is not None and [entry for entry in os.scandir(self.directory) if self.has(entry.name)]
        except OSError:
            return False
        return any(_inode(Path(entry.path)) == file.inode for entry in entries or ())


@final
@dataclass(frozen=True)
class Port(Thing):
    """A port of this machine that a server listens on."""

    address: str
    number: int

    def meets(self, other: Thing) -> bool:
        """See `Thing`."""
        if not isinstance(other, Port) or self.number != other.number or not self.number:
            return False
        one, two = ((_LOCAL if each.address == "localhost" else {each.address}) for each in (self, other))
        return bool(one & two) or bool((one | two) & _ALL)


@final
@dataclass(frozen=True)
class KafkaTopics(Thing):
    """Topics of brokers: names, or patterns that begin with `^`."""

    brokers: frozenset[str]
    names: Sequence[str]

    def meets(self, other: Thing) -> bool:
        """See `Thing`. Two patterns meet if they are equal: other overlaps are unknown before there are topics."""
        if not isinstance(other, KafkaTopics) or self.brokers.isdisjoint(other.brokers):
            return False
        return any(
            one == two or (one.startswith("^") and re.match(one, two) is not None) for one in self.names for two in other.names
        )


@final
@dataclass(frozen=True)
class Named(Thing):
    """Any other thing, by its kind and name: a replication slot, a consumer group, a standard stream.

    Attributes:
        what: the kind of thing.
        name: unique within its kind.
        servers: its servers; things of two servers are different. Empty for things of this process.
    """

    what: str
    name: object = None
    servers: frozenset[object] = frozenset()

    def meets(self, other: Thing) -> bool:
        """See `Thing`."""
        if not isinstance(other, Named) or (self.what, self.name) != (other.what, other.name):
            return False
        return not (self.servers or other.servers) or not self.servers.isdisjoint(other.servers)


def _directory(path: Path) -> object:
    """Return a value that identifies a directory, under any of its names."""
    return _inode(path) or _resolved(path)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()  # links that lead around in a circle
