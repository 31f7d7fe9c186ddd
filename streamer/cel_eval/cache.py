"""Cache compiled programs, so that equal expressions are compiled once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, final

from streamer.cel_eval.registered import Functions
from streamer.cel_eval.runs import Runs
from streamer.errors import CelError
from streamer.locks import NO_FORK, Lock
from streamer.model import CelEvaluator, Limits

if TYPE_CHECKING:
    from streamer.cel_eval.program import Program

DEFAULT_SIZE = 10_000
PORTABLE: Final = 'select it with "cel_evaluator": "portable"'


@final
class ProgramCounts(NamedTuple):
    """The hits and misses of a cache, and its number of programs."""

    hits: int = 0
    misses: int = 0
    held: int = 0


@final
class ProgramCache:
    """The most recently used programs, up to *size*.

    Thread-safe. Two threads that need the same new expression at once may both compile it, because compiling under the lock would
    block all other threads.

    A native core has its own cache; `also` adds its counts to those of this cache.

    Attributes:
        functions: the engine's Python functions, which programs of the portable evaluator may call.
        evaluator: the evaluator of subscriptions that do not name one.
        runs: the evaluations by the portable evaluator.
    """

    def __init__(self, size: int = DEFAULT_SIZE, functions: Functions | None = None, evaluator: CelEvaluator = "native") -> None:
        if size < 1:
            raise ValueError(f"a cache of {size} programs; expected at least 1")
        self.size = size
        self.functions: Final = functions if functions is not None else Functions()
        self.evaluator: Final[CelEvaluator] = evaluator
        self.runs: Final = Runs()
        self._hits = 0
        self._misses = 0
        self._also: list[Callable[[], ProgramCounts]] = []
        self._programs: OrderedDict[tuple[str, Limits, CelEvaluator], Program] = OrderedDict()
        self._lock = Lock()

    @property
    def hits(self) -> int:
        """The number of programs that were found in a cache."""
        return self._hits + sum(counts().hits for counts in self._also)

    @property
    def misses(self) -> int:
        """The number of expressions that had to be compiled, including invalid ones."""
        return self._misses + sum(counts().misses for counts in self._also)

    @property
    def programs(self) -> int:
        """The number of cached programs, here and in a native core."""
        return len(self) + sum(counts().held for counts in self._also)

    @property
    def portable(self) -> int:
        """The number of programs in this cache for the portable evaluator."""
        with self._lock:
            # Use the method of `dict`: iterating in order hashes every key in Python code, so another thread could interfere.
            return sum(evaluator == "portable" for _, _, evaluator in list(dict.keys(self._programs)))

    def also(self, counts: Callable[[], ProgramCounts]) -> None:
        """Add the counts of a native core to those of this cache."""
        self._also.append(counts)

    def __len__(self) -> int:
        return len(self._programs)

    def resize(self, size: int) -> None:
        """Keep at most *size* programs from now on."""
        with self._lock:
            self.size = size
            self._forget()

    def compile(self, source: str, limits: Limits, evaluator: CelEvaluator | None = None) -> Program:
        """Return the program of *source*.

        Raises:
            CelError: the expression is invalid; this result is not cached.
        """
        evaluator = evaluator or self.evaluator
        key = (source, limits, evaluator)
        with self._lock:
            program = self._programs.pop(key, None)
            if program is not None:
                self._programs[key] = program
                self._hits += 1
                return program
            self._misses += 1
        program = self._compile(source, limits, evaluator)
        with self._lock:
            self._programs.pop(key, None)
            self._programs[key] = program
            self._forget()
        return program

    def _compile(self, source: str, limits: Limits, evaluator: CelEvaluator) -> Program:
        if evaluator == "native":
            with NO_FORK:
                from streamer.cel_eval.program import compile_cel
            try:
                return compile_cel(source, limits)
            except CelError as error:
                raise self.explained(error) from None
        try:
            # Imported on use, because importing cel-python takes a third of a second.
            with NO_FORK:
                from streamer.cel_eval.portable import compile_portable
        except ImportError as error:
            raise CelError(str(error), place="cel") from error
        return compile_portable(source, limits, self.functions, self.runs)

    def explained(self, error: CelError) -> CelError:
        """Return an error of a native expression; if its unknown function is a Python function, the error explains that."""
        for name in self.functions:
            if error.reason.startswith(f"unknown function `{name}`"):
                error.reason = f"`{name}` is a function in Python, which only the portable evaluator calls: {PORTABLE}"
                error.args = (error.reason,)
        return error

    def _forget(self) -> None:
        while len(self._programs) > self.size:
            self._programs.popitem(last=False)
