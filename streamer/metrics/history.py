"""Record samples of an engine's filters over time, at most a few hundred, as JSON lines.

```
sample  {"at": 12.0, "events": …, "filters": [{"tenant": …, "collection": …, "asked": …, "no": …, …}], "rebuilds": […]}
   │
   ▼      if full, every second sample is dropped, and the interval doubles
[ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪ ]  ──►  [ ▪   ▪   ▪   ▪ ]  ──►  …
```

Samples contain counters that only grow, such as rebuilds by reason. The activity between two samples is their difference, so
dropping a sample only loses precision in time. A sample costs a pass over the filters' keys, to complete their measurements; the
file is written at once.

Rejected: a thread that samples. The program that matches can choose the time, and an unused history should be free.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from streamer.bloom.state import FilterState
from streamer.files import replacing

if TYPE_CHECKING:
    from streamer.metrics.measured import Measured

T = TypeVar("T", FilterState, "Rebuilds", "Sample")

_TEXTS: Final = frozenset(("tenant", "collection", "layout", "reason"))
#: The most filters in a sample, chosen by the number of queries, because an engine may have very many.
MOST_FILTERS: Final = 20
MOST_SAMPLES: Final = 500
#: The initial interval between samples, in seconds.
EVERY: Final = 0.25


@final
@dataclass(frozen=True, slots=True)
class Rebuilds:
    """The number of rebuilds of a filter for one reason."""

    tenant: str
    collection: str
    reason: str
    count: int


@final
@dataclass(frozen=True, slots=True)
class Sample:
    """An engine at one moment.

    Attributes:
        at: seconds since the first sample.
        events: all events so far, including ignored and rejected ones. The counters of `filters` and `rebuilds` start at the same
            time.
        subscriptions: the number of subscriptions.
        fp_rate: the filters' target rate at that time; see `BloomOptions`.
        threshold: the measured rate at which a filter is rebuilt.
        filters: the filters with the most queries.
        rebuilds: the rebuilds of all filters.
    """

    at: float
    events: int
    matched: int
    subscriptions: int
    fp_rate: float
    threshold: float
    filters: tuple[FilterState, ...]
    rebuilds: tuple[Rebuilds, ...]

    def to_json(self) -> str:
        """Return the sample as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def from_json(line: str) -> Sample:
        """Return the sample in a line that `to_json` wrote. Raises ValueError."""
        try:
            read: dict[str, Any] = json.loads(line)
            filters = tuple(_read(FilterState, each) for each in read.pop("filters"))
            rebuilds = tuple(_read(Rebuilds, each) for each in read.pop("rebuilds"))
            return _read(Sample, {**read, "filters": filters, "rebuilds": rebuilds})
        except (TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"this is not a sample of an engine: {error}") from None


def _read(kind: type[T], members: dict[str, Any]) -> T:
    made = kind(**members)
    for each in fields(made):
        value, is_text = getattr(made, each.name), each.name in _TEXTS
        if not isinstance(value, str if is_text else int | float | tuple) or not (is_text or value == value):
            raise TypeError(f"{each.name} is {value!r}")
    return made


@final
class History:
    """Samples of one engine's filters, thinned out as they accumulate. Only one thread may use it.

    Args:
        most: the most samples that are kept.
        every: the initial interval in seconds; it doubles whenever samples are thinned out.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, engine: Measured, *, most: int = MOST_SAMPLES, every: float = EVERY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if most < 2:
            raise ValueError(f"most: expected 2 samples or more, not {most}")
        self._engine: Final = engine
        self._most: Final = most
        self._every = every
        self._clock: Final = clock
        self._began: float | None = None
        self._due = -math.inf
        self._samples: list[Sample] = []

    @property
    def samples(self) -> list[Sample]:
        """The samples, oldest first."""
        return list(self._samples)

    def tick(self) -> None:
        """Take a sample if it is due; cheap otherwise, so call it as often as you like."""
        now = self._clock()
        if now >= self._due:
            self._take(now)
            self._due = now + self._every

    def sample(self) -> Sample:
        """Take a sample now."""
        self._take(self._clock())
        return self._samples[-1]

    def _take(self, now: float) -> None:
        if len(self._samples) >= self._most:
            # The first stays, because no difference covers the time before it.
            del self._samples[1::2]
            self._every *= 2
        if self._began is None:
            self._began = now
        engine = self._engine
        telemetry = engine._core.telemetry()
        options = engine.bloom.options
        filters = sorted(engine.bloom.filters(), key=lambda state: (-state.asked, state.name))[:MOST_FILTERS]
        shown = {state.name for state in filters}
        rebuilds = tuple(
            Rebuilds(*name, reason.value, count)
            for (name, reason), count in sorted(engine.bloom.rebuilds.items())
            if name in shown
        )
        self._samples.append(
            Sample(
                at=round(now - self._began, 6),
                events=telemetry.events,
                matched=telemetry.matched,
                subscriptions=telemetry.subscriptions,
                fp_rate=options.fp_rate,
                threshold=options.threshold,
                filters=tuple(filters),
                rebuilds=rebuilds,
            )
        )

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the samples into a file, whose suffix selects the format; see `streamer.metrics.plot.plot`."""
        from streamer.metrics.plot import plot

        plot(self._samples, path)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the samples as JSON lines, replacing an existing file. Raises OSError."""
        with replacing(path) as file:
            file.writelines(f"{sample.to_json()}\n".encode() for sample in self._samples)


def read_history(path: str | os.PathLike[str]) -> list[Sample]:
    """Return the samples in a file that `History.write` wrote.

    Raises:
        ValueError: the file is not a history; the text states the position.
        OSError: the file cannot be read.
    """
    samples: list[Sample] = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                samples.append(Sample.from_json(line.decode()))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    if not samples:
        raise ValueError("no samples")
    return samples
