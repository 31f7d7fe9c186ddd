"""The stages that Spark ran in each phase of a job: the data that their tasks read and shuffled, their duration.

    stages = Stages(spark, time.time())
    with stages.phase("matching"):
        frame.write...
    stages.ran()

The data comes from the status store that Spark's web page reads too, and that exists even if that page is off. Spark Connect has
no JVM: there the list is empty, and the job runs as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Look for this many ids past the last known one: Spark numbers stages that it then skips.
_AHEAD: Final = 20
#: Reading a task costs some calls into the JVM.
_TASKS: Final = 200
#: Other stages are planned, or skipped because their output exists.
_RAN: Final = ("ACTIVE", "COMPLETE", "FAILED")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task that read rows: its first second since the job began, its duration, and its rows."""

    began: float
    seconds: float
    records: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of Spark's: the seconds that its tasks ran, and the data that they read and shuffled.

    Attributes:
        durations: `min`, `p25`, `median`, `p75`, `max` of the tasks.
        readers: the tasks that read rows; none if the stage has more than 200 tasks.
    """

    id: int
    phase: str
    tasks: int
    durations: dict[str, float]
    records: int
    shuffled_records: int
    shuffled_bytes: int
    readers: list[Task]


@final
class Stages:
    """The stages of a session that ran in named phases.

    Args:
        began: when the job began, in seconds since 1970.
    """

    def __init__(self, spark: SparkSession, began: float) -> None:
        self._store, self._array = _store(spark)
        self._began = began
        self._phases: dict[int, str] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the stages that begin within as those of a phase."""
        first = self._next(max(self._phases, default=-1) + 1)
        try:
            yield
        finally:
            self._phases |= dict.fromkeys(range(first, self._next(first)), name)

    def ran(self) -> list[Stage]:
        """Return the stages that ran in a phase, in order."""
        stages = []
        for number, phase in sorted(self._phases.items()):
            # The store forgets old stages.
            with suppress(Exception):
                data = self._store.lastStageAttempt(number)
                if data.status().toString() in _RAN:
                    stages.append(self._stage(number, phase, data))
        return stages

    def _stage(self, number: int, phase: str, data: Any) -> Stage:
        tasks = int(data.numTasks())
        return Stage(
            id=number,
            phase=phase,
            tasks=tasks,
            durations=self._durations(number, data, max(tasks, 1)),
            records=int(data.inputRecords()),
            shuffled_records=int(data.shuffleWriteRecords()),
            shuffled_bytes=int(data.shuffleWriteBytes()),
            readers=list(self._readers(number, data)) if data.inputRecords() and tasks <= _TASKS else [],
        )

    def _durations(self, number: int, data: Any, tasks: int) -> dict[str, float]:
        # Spark's quantile is the duration of one task, of an even number the upper of the two in the middle.
        quantiles = (0.0, 0.25, ((tasks - 1) // 2 + 0.5) / tasks, 0.5, 0.75, 1.0)
        summary = self._store.taskSummary(number, data.attemptId(), self._array(quantiles))
        if not summary.isDefined():
            return {}
        times = summary.get().executorRunTime()
        least, low, lower, upper, high, most = (float(times.apply(index)) / 1000 for index in range(len(quantiles)))
        return {"min": least, "p25": low, "median": (lower + upper) / 2, "p75": high, "max": most}

    def _readers(self, number: int, data: Any) -> Iterator[Task]:
        tasks = self._store.taskList(number, data.attemptId(), _TASKS)
        for task in (tasks.apply(index) for index in range(tasks.size())):
            took, metrics = task.duration(), task.taskMetrics()
            if task.status() == "SUCCESS" and took.isDefined() and metrics.isDefined():
                yield Task(
                    began=max(task.launchTime().getTime() / 1000 - self._began, 0.0),
                    seconds=float(took.get()) / 1000,
                    records=int(metrics.get().inputMetrics().recordsRead()),
                )

    def _next(self, start: int) -> int:
        """Return the number after the last stage that the store has, of those from *start* on."""
        while (known := [each for each in range(start, start + _AHEAD) if self._has(each)]) != []:
            start = known[-1] + 1
        return start

    def _has(self, number: int) -> bool:
        with suppress(Exception):
            self._store.lastStageAttempt(number)
            return True
        return False


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
