"""Replays of many dead letters: a job, whose progress can be read, and which can be ended."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Final, Literal, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service.store.rows import DeadLetter, milliseconds, time_of
from streamer.service.store.store import Store

#: The most jobs that are listed, and the most that may wait for their turn.
MOST: Final = 50
MOST_WAITING: Final = 10
#: The letters that are read at once, and the most numbers of refused ones in a report.
_PAGE: Final = 20
_NAMED: Final = 20
_LOGGER: Final = logging.getLogger("streamer.service")


@final
@dataclass(slots=True, eq=False)
class Replay:
    """One job.

    Attributes:
        wanted: the members that letters must have: `code`, `stage`, `source`, `sink`.
        numbers: of letters, in place of that; None for all with these members.
        last: letters after this number are not replayed, so that one which fails again is not retried for ever.
        total: the number of letters at the beginning.
        replayed, refused: the number of letters that were passed to their sinks, and that cannot be replayed.
    """

    id: str
    wanted: Mapping[str, str]
    numbers: tuple[int, ...] | None
    last: int
    total: int
    begun: int = field(default_factory=milliseconds)
    ended: int | None = None
    replayed: int = 0
    refused: int = 0
    refused_numbers: list[int] = field(default_factory=list)
    error: str | None = None
    is_ended_by_user: bool = False

    @property
    def state(self) -> Literal["running", "done", "ended", "failed"]:
        """The state of the job; *ended* by a user."""
        if self.ended is None:
            return "running"
        return "failed" if self.error is not None else "ended" if self.is_ended_by_user else "done"

    def members(self) -> dict[str, Any]:
        """Return the job as plain JSON."""
        return {
            "id": self.id,
            "state": self.state,
            "chosen": dict(self.wanted),
            "total": self.total,
            "replayed": self.replayed,
            "refused": self.refused,
            "refused_numbers": self.refused_numbers,
            "begun": time_of(self.begun),
            "ended": None if self.ended is None else time_of(self.ended),
            "error": self.error,
        }


@final
class Replays:
    """All jobs since the start. They take turns, in a thread that lives while there are jobs.

    Args:
        replay: matches or sends a letter again; returns False if that is impossible.
    """

    def __init__(self, store: Store, replay: Callable[[DeadLetter], bool]) -> None:
        self._store, self._replay = store, replay
        self._lock = Lock()
        self._jobs: OrderedDict[str, Replay] = OrderedDict()
        self._turn = threading.Lock()
        self._is_over = False

    def begin(self, criteria: Mapping[str, str], numbers: tuple[int, ...] | None) -> Replay | None:
        """Begin a job; None if too many wait."""
        last, total = self._store.count_letters(criteria)
        job = Replay(token_hex(8), criteria, numbers, last, total if numbers is None else len(numbers))
        with self._lock:
            if sum(each.ended is None for each in self._jobs.values()) >= MOST_WAITING:
                return None
            self._jobs[job.id] = job
            for old in [each.id for each in self._jobs.values() if each.ended is not None][: max(len(self._jobs) - MOST, 0)]:
                del self._jobs[old]
        threading.Thread(target=self._run, args=(job,), name="streamer-replay", daemon=True).start()
        return job

    def all(self) -> list[Replay]:
        """Return the listed jobs, the newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def find(self, job_id: str) -> Replay | None:
        """Return a job by its id; None if it is unknown."""
        return self._jobs.get(job_id)

    def end(self, job: Replay) -> None:
        """End a job."""
        job.is_ended_by_user = job.ended is None

    def close(self) -> None:
        """End all jobs."""
        self._is_over = True
        with self._turn:
            pass

    def _run(self, job: Replay) -> None:
        try:
            with self._turn:
                for letter in self._letters(job):
                    if self._is_over or job.is_ended_by_user:
                        job.is_ended_by_user = True
                        break
                    if letter.is_whole and self._replay(letter):
                        job.replayed += 1
                        continue
                    job.refused += 1
                    if len(job.refused_numbers) < _NAMED:
                        job.refused_numbers.append(letter.id)
        except ServiceError as error:
            job.error = str(error)
        except Exception as error:
            _LOGGER.exception("a replay of dead letters ended")
            job.error = type(error).__name__
        finally:
            job.ended = milliseconds()

    def _letters(self, job: Replay) -> Iterator[DeadLetter]:
        if job.numbers is not None:
            for number in job.numbers:
                yield from (each for each in self._store.letters(number - 1, 1) if each.id == number)
            return
        at = 0
        while letters := self._store.letters(at, _PAGE, job.wanted):
            for letter in letters:
                at = letter.id
                if at > job.last:
                    return
                yield letter
