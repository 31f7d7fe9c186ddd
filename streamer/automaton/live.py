"""Live pairs of a name and a text: their storage, and an index of them for concurrent matching."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from streamer.automaton.storage import LivePatterns, MemoryPatterns
from streamer.locks import Lock

X = TypeVar("X", bound=Hashable)
AnIndex = TypeVar("AnIndex", bound="Index[Any]")


class Index(Protocol[X]):
    """Finds the names whose texts match. Changes happen under a lock; any thread may match."""

    #: Whether the index equals the storage. False during a change, and after a change that did not finish.
    is_whole: bool

    def add(self, pairs: Iterable[tuple[X, str]]) -> None:
        """Add pairs; existing ones stay as they are. If one is invalid, raises SubscriptionError and adds none."""

    def holds(self, x: X, text: str) -> bool:
        """Return whether a pair exists."""

    def discard(self, x: X, text: str) -> None:
        """Remove a pair, if it exists."""

    def delete(self, x: X) -> None:
        """Remove all pairs of *x*, if there are any."""

    def count(self, x: X) -> int:
        """Return the number of pairs of *x*."""

    def __len__(self) -> int:
        """Return the number of pairs."""

    def match_event(self, event: Any) -> list[X]:
        """Return the names whose texts match a JSON event, each once. Raises EventError."""

    def match_fields(self, fields: Iterable[Any]) -> list[X]:
        """Return the names whose texts match the leaves of a flattener, each once. Raises EventError."""


class Live(Generic[X, AnIndex]):
    """Live pairs, and their index.

    If a change does not finish (an interrupt, a concurrent fork), or another change runs inside it (in a signal handler), the
    index is not whole: it is rebuilt from the storage. A match uses no lock, except while a change is in progress.
    """

    def __init__(self, make: Callable[[], AnIndex], storage: LivePatterns) -> None:
        self._make = make
        self._lock = Lock()
        self._storage = storage
        #: The index for matching, if it is whole; else see `whole`.
        self.current = self._load()

    def whole(self) -> AnIndex:
        """Return the index after waiting for a change in progress."""
        with self._lock:
            return self._whole()

    def add(self, x: X, text: str) -> bool:
        """Add a pair, and return whether it is new. Raises SubscriptionError."""
        with self._lock:
            index = self._whole()
            if index.holds(x, text):
                return False
            index.is_whole = False
            try:
                index.add([(x, text)])
                try:
                    self._storage.add(x, text)
                except Exception:
                    index.discard(x, text)
                    raise
            except Exception:
                # The pair was refused, so the index is unchanged. An interrupt, which may come after the change, is not caught.
                index.is_whole = True
                raise
            self._changed(index)
            return True

    def delete(self, x: X) -> int:
        """Remove all pairs of *x*, and return their number."""
        with self._lock:
            index = self._whole()
            if count := index.count(x):
                self._remove(index, lambda: self._storage.delete(x), lambda: index.delete(x))
            return count

    def _remove(self, index: AnIndex, forget: Callable[[], object], follow: Callable[[], None]) -> None:
        # Before this line, another change may have run inside this one and removed the same pairs.
        index.is_whole = False
        try:
            forget()
        except Exception:
            index.is_whole = True
            raise
        follow()
        self._changed(index)

    def _load(self) -> AnIndex:
        index = self._make()
        index.add(self._storage)
        return index

    def _whole(self) -> AnIndex:
        while not (index := self.current).is_whole:
            made = self._load()
            if self.current is index:
                self.current = made
        return index

    def _changed(self, index: AnIndex) -> None:
        # If another index was made meanwhile, it may or may not contain the change.
        self.current.is_whole = self.current is index


class Bindings(Live[X, AnIndex]):
    """Live pairs in memory, which are removed one by one."""

    def __init__(self, make: Callable[[], AnIndex]) -> None:
        self._pairs = MemoryPatterns()
        super().__init__(make, self._pairs)

    def discard(self, x: X, text: str) -> bool:
        """Remove a pair, and return whether it existed."""
        with self._lock:
            index = self._whole()
            if not index.holds(x, text):
                return False
            self._remove(index, lambda: self._pairs.discard(x, text), lambda: index.discard(x, text))
            return True

    def pairs(self) -> list[tuple[X, str]]:
        """Return all pairs."""
        with self._lock:
            return list(self._pairs)
