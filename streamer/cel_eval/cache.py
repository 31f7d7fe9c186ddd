"""Equal expressions are compiled once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import final

from streamer.locks import Lock
from streamer.model import Limits
from streamer.reference.cel import Program, compile_cel

DEFAULT_SIZE = 10_000


@final
class ProgramCache:
    """The programs compiled last, up to *size*; the one longest unused goes first.

    Any number of threads may use it. Two that ask for the same new expression at once may both compile it: compiling under the
    lock would make every other thread wait.

    A native core has a cache of its own, whose hits and misses `also` adds to these.
    """

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        if size < 1:
            raise ValueError(f"a cache of {size} programs; expected at least 1")
        self.size = size
        self._hits = 0
        self._misses = 0
        self._also: list[Callable[[], tuple[int, int, int]]] = []
        self._programs: OrderedDict[tuple[str, Limits], Program] = OrderedDict()
        self._lock = Lock()

    @property
    def hits(self) -> int:
        """How many programs were found here."""
        return self._hits + sum(counts()[0] for counts in self._also)

    @property
    def misses(self) -> int:
        """How many had to be compiled, those that turned out not to be CEL included."""
        return self._misses + sum(counts()[1] for counts in self._also)

    @property
    def held(self) -> int:
        """How many programs are kept, here and in a native core."""
        return len(self) + sum(counts()[2] for counts in self._also)

    def also(self, counts: Callable[[], tuple[int, int, int]]) -> None:
        """Add the hits and misses of a native core, and how many programs it keeps, to these."""
        self._also.append(counts)

    def __len__(self) -> int:
        return len(self._programs)

    def resize(self, size: int) -> None:
        """Keep at most *size* programs from now on."""
        with self._lock:
            self.size = size
            self._forget()

    def compile(self, source: str, limits: Limits) -> Program:
        """Return the program of *source*.

        Raises:
            CelError: it is not an acceptable expression; that is not remembered.
        """
        key = (source, limits)
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
                self._hits += 1
                return program
            self._misses += 1
        program = compile_cel(source, limits)
        with self._lock:
            self._programs[key] = program
            self._programs.move_to_end(key)
            self._forget()
        return program

    def _forget(self) -> None:
        while len(self._programs) > self.size:
            self._programs.popitem(last=False)
