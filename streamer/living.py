"""A set of objects that does not keep them alive."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Final, Generic, TypeVar, final

T = TypeVar("T")

#: The smallest size at which dead members are removed.
FEWEST: Final = 64


@final
class Living(Generic[T]):
    """A set of weak references, by identity. Thread-safe, without a lock that a forked child could inherit locked.

    Invariant: no code runs when a member dies. The garbage collector may run anywhere, even just below the recursion limit.
    There, the callback of a `weakref.WeakSet` would fail, and Python would print an ignored exception.

    Cost: a weak reference for each member, and for at most the same number of dead members, or `FEWEST`.
    """

    def __init__(self) -> None:
        # Numbers are unique, so removing a dead member cannot remove another member.
        self._numbers: Final = itertools.count()
        self._members: Final[dict[int, weakref.ref[T]]] = {}
        self._most = FEWEST

    def add(self, member: T) -> None:
        """Add a new member."""
        self._members[next(self._numbers)] = weakref.ref(member)
        if len(self._members) > self._most:
            for number, reference in self._members.copy().items():
                if reference() is None:
                    self._members.pop(number, None)
            self._most = max(FEWEST, 2 * len(self._members))

    def __iter__(self) -> Iterator[T]:
        """Yield the living members, oldest first."""
        for reference in self._members.copy().values():
            member = reference()
            if member is not None:
                yield member
