"""Spark's report of its own work: the stages of a phase, the data that their tasks read and shuffled, their duration.

    with Watch(spark) as watch:
        with watch.phase("matching"):
            frame.write...
    watch.stages()      # as the report draws them
    watch.points        # rows read a second, over time

The data comes from the status store that Spark's web page reads too, and that exists even if that page is off. A thread reads it
twice a second while a phase runs; each time costs a few calls into the JVM. Spark Connect has no JVM: then the watch sees no
stages, and the job runs as usual.

Spark reports the input of a task when the task ends. So rows a second over time are those of each task, spread over its duration.
Rejected: the differences from one reading of the store to the next, which are 0 for a minute and then a minute's rows in half a
second. Running tasks have only these differences, and they are kept if there are too many tasks to look at each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, final

from streamer.locks import Lock
from streamer.spark.job.report import Point, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY: Final = 0.5
#: Look for this many ids past the last known one: Spark numbers stages that it then skips.
_AHEAD: Final = 20
#: Looking at a task costs some calls into the JVM.
_TASKS: Final = 200
#: Other stages are planned, or skipped because their output exists.
_RAN: Final = ("ACTIVE", "COMPLETE", "FAILED")


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the running stages."""

    phase: str
    tasks: int
    done: int
    records: int
    rate: float


@final
class Watch:
    """Follows a session's stages; a context manager.

    Args:
        shown: called with the progress whenever it was read.
        timed: the phase of which `points` are kept.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        spark: SparkSession,
        shown: Callable[[Progress], None] | None = None,
        *,
        timed: str = "matching",
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._array = _store(spark)
        self._shown = shown
        self._timed = timed
        self._every = every
        self._clock = clock
        self._began = clock()
        self._began_at = time.time()
        self._phase = ""
        self._phases: dict[int, str] = {}
        self._next = self._first_unknown(0)
        self._over = Event()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._last: tuple[float, int] | None = None
        self.points: list[Point] = []

    def __enter__(self) -> Watch:
        if self._store is not None:
            self._thread = Thread(target=self._run, name="streamer-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the stages that run within as a phase of this name."""
        self._look()
        self._phase, self._last = name, None
        try:
            yield
        finally:
            self._look()
            if name == self._timed:
                with suppress(Exception):
                    self.points = self._by_task() or self.points
            self._phase = ""

    def stages(self) -> list[Stage]:
        """Return the stages that ran in a named phase, in order."""
        self._look()
        return [stage for each, name in sorted(self._phases.items()) if name and (stage := self._stage(each, name)) is not None]

    # Reading the store

    def _run(self) -> None:
        while not self._over.wait(self._every):
            # The session may be stopping.
            with suppress(Exception):
                self._look()

    def _look(self) -> None:
        if self._store is not None:
            with self._lock:
                self._look_locked()

    def _look_locked(self) -> None:
        last = self._first_unknown(self._next)
        for each in range(self._next, last):
            self._phases.setdefault(each, self._phase)
        self._next = last
        current = [self._data(each) for each, name in self._phases.items() if name and name == self._phase]
        running = [data for data in current if data is not None and data.status().toString() in _RAN]
        if not running:
            return
        records = sum(int(data.inputRecords()) for data in running)
        now = self._clock()
        rate = 0.0
        if self._last is not None and now > self._last[0]:
            rate = max(records - self._last[1], 0) / (now - self._last[0])
            if self._phase == self._timed:
                self.points.append(Point(now - self._began, rate))
        self._last = now, records
        if self._shown is not None:
            tasks = sum(int(data.numTasks()) for data in running)
            done = sum(int(data.numCompleteTasks()) for data in running)
            self._shown(Progress(self._phase, tasks, done, records, rate))

    def _by_task(self) -> list[Point]:
        """Return rows a second as steps, from the input and the times of each task of the timed phase; none above `_TASKS`."""
        steps: dict[float, float] = {}
        for number in [each for each, name in self._phases.items() if name == self._timed]:
            data = self._data(number)
            if data is None or not data.inputRecords():
                continue
            if data.numTasks() > _TASKS:
                return []
            tasks = self._store.taskList(number, data.attemptId(), _TASKS)
            for task in (tasks.apply(index) for index in range(tasks.size())):
                took, metrics = task.duration(), task.taskMetrics()
                if task.status() != "SUCCESS" or not took.isDefined() or not metrics.isDefined():
                    continue
                begin = max(task.launchTime().getTime() / 1000 - self._began_at, 0.0)
                seconds = max(float(took.get()), 1.0) / 1000
                rate = int(metrics.get().inputMetrics().recordsRead()) / seconds
                steps[begin] = steps.get(begin, 0.0) + rate
                steps[begin + seconds] = steps.get(begin + seconds, 0.0) - rate
        points, rate = [], 0.0
        for at, change in sorted(steps.items()):
            points += [Point(at, rate), Point(at, max(rate + change, 0.0))]
            rate = points[-1].rate
        return points

    def _first_unknown(self, start: int) -> int:
        number = start
        while self._store is not None and any(self._data(each) is not None for each in range(number, number + _AHEAD)):
            number = next(each for each in range(number + _AHEAD - 1, number - 1, -1) if self._data(each) is not None) + 1
        return number

    def _data(self, stage: int) -> Any:
        try:
            return self._store.lastStageAttempt(stage)
        except Exception:
            # The store does not have the stage yet, or not any more.
            return None

    def _stage(self, number: int, name: str) -> Stage | None:
        data = self._data(number)
        if data is None or data.status().toString() not in _RAN:
            return None
        # Spark's quantile is the duration of one task, of an even number the upper of the two in the middle.
        tasks = max(int(data.numTasks()), 1)
        quantiles = (0.0, 0.25, ((tasks - 1) // 2 + 0.5) / tasks, 0.5, 0.75, 1.0)
        summary = self._store.taskSummary(number, data.attemptId(), self._array(quantiles))
        durations = (0.0, 0.0, 0.0, 0.0, 0.0)
        if summary.isDefined():
            times = summary.get().executorRunTime()
            least, low, lower, upper, high, most = (float(times.apply(index)) / 1000 for index in range(len(quantiles)))
            durations = (least, low, (lower + upper) / 2, high, most)
        return Stage(
            id=number,
            name=name,
            tasks=int(data.numTasks()),
            durations=durations,
            records=int(data.inputRecords()),
            shuffled_records=int(data.shuffleWriteRecords()),
            shuffled_bytes=int(data.shuffleWriteBytes()),
        )


def _store(spark: SparkSession) -> tuple[Any, Callable[[Sequence[float]], Any]]:
    try:
        context: Any = spark.sparkContext
        store = context._jsc.sc().statusStore()
    except Exception:
        return None, lambda _: None

    def array(values: Sequence[float]) -> Any:
        made = context._gateway.new_array(context._jvm.double, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    return store, array
