"""Objects that can be found for as long as they live."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Final, Generic, TypeVar, final

T = TypeVar("T")

#: The set is this large before dead members are removed.
FEWEST: Final = 64


@final
class Living(Generic[T]):
    """A set of weak references, by identity. Thread-safe, without a lock that a forked child could inherit locked.

    Invariant: no code runs when a member dies. The garbage collector may run anywhere, also a frame below the recursion limit;
    there the callback of a `weakref.WeakSet` fails, and is printed as an ignored exception.

    Cost: a weak reference for each member, and for at most as many dead ones, or `FEWEST`.
    """

    def __init__(self) -> None:
        # A number is used once, so that removing a dead member cannot remove its successor.
        self._numbers: Final = itertools.count()
        self._held: Final[dict[int, weakref.ref[T]]] = {}
        self._most = FEWEST

    def add(self, member: T) -> None:
        """Add a new member."""
        self._held[next(self._numbers)] = weakref.ref(member)
        if len(self._held) > self._most:
            for number, reference in self._held.copy().items():
                if reference() is None:
                    self._held.pop(number, None)
            self._most = max(FEWEST, 2 * len(self._held))

    def __iter__(self) -> Iterator[T]:
        """Go through those that live, oldest first."""
        for reference in self._held.copy().values():
            member = reference()
            if member is not None:
                yield member
