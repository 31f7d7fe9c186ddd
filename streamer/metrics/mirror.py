"""Export the metrics of a service with several processes: prometheus_client's multiprocess mode.

In this mode each process keeps its numbers in files, and a scrape of any process reads all of them. A collector that is read
during the scrape would report only its own process, so a thread copies an engine's numbers into such files, once a second and at
exit.

Counters and histograms are summed over all processes, including ended ones. Gauges are aggregated over living processes only:
sizes in bytes are summed; all others use the largest value, because each process has the same subscriptions.

A forked child begins at 0: its parent's numbers include the engine's counts before the fork.
"""

from __future__ import annotations

import os
import threading
from multiprocessing import util
from typing import TYPE_CHECKING, Any, Final, final

from prometheus_client import values

from streamer.locks import NO_FORK, Lock
from streamer.metrics.collector import COLLECTIONS, Registration
from streamer.metrics.names import Metric
from streamer.metrics.samples import Labels
from streamer.telemetry import Distribution

if TYPE_CHECKING:
    from streamer.metrics.measured import Measured

#: The variable that names the directory of the files, as prometheus_client reads it when it is imported.
VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def is_on() -> bool:
    """Return whether this process is one of several."""
    return VARIABLE in os.environ


@final
class Mirror:
    """Copies an engine's numbers to the files that other processes read, until it is closed or the engine is dropped."""

    def __init__(self, registration: Registration, interval: float) -> None:
        self._registration = registration
        self._interval = interval
        self._values: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._before: dict[tuple[str, tuple[str, ...]], float] = {}
        self._lock = Lock()
        self._stop = threading.Event()
        # The files are created here: reading a file at the moment of its creation, while it is empty, fails.
        self.flush()
        self._start()
        _mirrors.add(self)

    def _start(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stop,), daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Copy the current numbers to the files."""
        with self._lock:
            for sample in self._registration.read():
                more = self._registration.labels.more if "collection" in sample.metric.labels else ()
                labelnames = ("engine", *more, *sample.metric.labels)
                labels = (self._registration.name, *sample.labels)
                if isinstance(sample.value, Distribution):
                    name = sample.metric.name
                    for bound, count in zip(sample.metric.buckets, sample.value.counts, strict=True):
                        self._set(sample.metric, f"{name}_bucket", (*labelnames, "le"), (*labels, bound), count)
                    self._set(sample.metric, f"{name}_sum", labelnames, labels, sample.value.total / sample.metric.unit)
                else:
                    self._set(sample.metric, sample.metric.sample, labelnames, labels, sample.value)

    def _set(self, metric: Metric, name: str, labelnames: tuple[str, ...], labels: tuple[str, ...], value: float) -> None:
        # prometheus_client takes a lock here; a forked child would inherit it locked.
        with NO_FORK:
            child = self._values.get((name, labels))
            if child is None:
                child = self._values[name, labels] = values.ValueClass(
                    metric.kind, metric.name, name, labelnames, labels, metric.help, multiprocess_mode=f"live{metric.together}"
                )
            child.set(value if metric.kind == "gauge" else value - self._before.get((name, labels), 0.0))

    def close(self) -> None:
        """Copy the numbers a last time, and stop."""
        self._stop.set()
        self.flush()
        _mirrors.discard(self)

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval):
            if not self._registration.is_alive:
                _mirrors.discard(self)
                return
            self.flush()

    def _forked(self) -> None:
        """Restart at 0 in a child."""
        self._before = {}
        values, self._values = self._values, {}
        engine_name = self._registration.name
        for sample in self._registration.read():
            labels = (engine_name, *sample.labels)
            if isinstance(sample.value, Distribution):
                for bound, count in zip(sample.metric.buckets, sample.value.counts, strict=True):
                    self._before[f"{sample.metric.name}_bucket", (*labels, bound)] = count
                self._before[f"{sample.metric.name}_sum", labels] = sample.value.total / sample.metric.unit
            elif sample.metric.kind == "counter":
                self._before[sample.metric.sample, labels] = sample.value
        self._values = values
        self._start()


_mirrors: set[Mirror] = set()


def _at_exit() -> None:
    for mirror in list(_mirrors):
        mirror.close()


def _finish(_: object = None) -> None:
    """Copy the numbers a last time when this process ends. A child of multiprocessing skips `atexit`, but runs finalizers."""
    util.Finalize(None, _at_exit, exitpriority=0)


def _after_fork() -> None:
    # A finalizer only runs in the process that made it.
    _finish()
    for mirror in list(_mirrors):
        mirror._forked()


_finish()
# A child of multiprocessing forgets all finalizers, those of `_after_fork` included, before it calls this.
util.register_after_fork(_finish, _finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def mirror(
    engine: Measured,
    *,
    name: str | None = None,
    collections: int = COLLECTIONS,
    tenants: bool = False,
    interval: float = 1.0,
) -> Mirror:
    """Copy an engine's numbers for the other processes; see `EngineMetrics.mirror`."""
    if not is_on():
        raise RuntimeError(f"{VARIABLE} names no directory; set it before this process begins")
    return Mirror(Registration(engine, "1" if name is None else name, Labels(collections, tenants=tenants)), interval)
