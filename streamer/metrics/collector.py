"""Register engines: they are read during a scrape, so that no code runs between scrapes.

One collector serves all engines of a registry, because each metric may appear in a scrape once. It refers to engines weakly: a
dropped engine disappears from the next scrape.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from streamer.locks import Lock
from streamer.metrics.names import METRICS, Metric
from streamer.metrics.samples import Labels, Sample, read
from streamer.model import is_unicode
from streamer.telemetry import Distribution

if TYPE_CHECKING:
    from streamer.metrics.measured import Measured

#: The number of collections with their own series.
COLLECTIONS: Final = 20


@final
class Registration:
    """The registration of an engine. `close()` removes it; so does dropping the engine.

    Attributes:
        name: the value of the label `engine`.

    Raises:
        TypeError: the name is not a string.
        ValueError: the name contains half of a surrogate pair.
    """

    def __init__(self, engine: Measured, name: str, labels: Labels) -> None:
        # Check the name here: an invalid name would make every scrape of the registry fail.
        if not isinstance(name, str):
            raise TypeError(f"name is a string, not {type(name).__name__}")
        if not is_unicode(name):
            raise ValueError("name: half of a surrogate pair")
        self._engine: Callable[[], Measured | None] = weakref.ref(engine)
        self.name: Final = name
        self.labels: Final = labels

    @property
    def is_alive(self) -> bool:
        """Whether the engine still exists and is registered."""
        return self._engine() is not None

    def read(self) -> Iterator[Sample]:
        """Yield the samples of the engine, or none if it was dropped."""
        engine = self._engine()
        if engine is not None:
            yield from read(engine, self.labels)

    def close(self) -> None:
        """Remove the engine from the registry."""
        self._engine = lambda: None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class _EngineCollector(Collector):
    """The collector of one registry."""

    def __init__(self) -> None:
        self._registrations: list[Registration] = []
        self._lock = Lock()

    def add(self, engine: Measured, name: str | None, labels: Labels) -> Registration:
        with self._lock:
            while True:
                before = self._registrations
                living = [each for each in before if each.is_alive]
                registration = Registration(engine, _free_name(name, {each.name for each in living}), labels)
                living.append(registration)
                if self._registrations is before:
                    self._registrations = living
                    return registration

    def describe(self) -> Iterable[Family]:
        # The registry reads the names on registration; without this method it would scrape for them.
        return [_family(metric, ()) for metric in METRICS]

    def collect(self) -> Iterable[Family]:
        families: dict[tuple[Metric, tuple[str, ...]], Family] = {}
        for registration in self._registrations:
            for sample in registration.read():
                more = registration.labels.more if "collection" in sample.metric.labels else ()
                family = families.get((sample.metric, more))
                if family is None:
                    family = families[sample.metric, more] = _family(sample.metric, more)
                _add(family, sample.metric, (registration.name, *sample.labels), sample.value)
        merged: dict[Metric, Family] = {}
        for (metric, _), family in families.items():
            if metric in merged:
                merged[metric].samples.extend(family.samples)
            else:
                merged[metric] = family
        return merged.values()


def _free_name(name: str | None, used: Collection[str]) -> str:
    """Return the name, or a number for an engine without one. Raises ValueError if the name is in use."""
    if name is None:
        return next(str(number) for number in range(1, len(used) + 2) if str(number) not in used)
    if name in used:
        raise ValueError(f"this registry has an engine named {name!r} already")
    return name


def _family(metric: Metric, more: tuple[str, ...]) -> Family:
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family: Family = kinds[metric.kind](metric.name, metric.help, labels=("engine", *more, *metric.labels))
    return family


def _add(family: Family, metric: Metric, labels: tuple[str, ...], value: float | Distribution) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(value, Distribution):
        buckets, total = [], 0
        for bound, count in zip(metric.buckets, value.counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric(labels, buckets, value.total / metric.unit)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily) and not isinstance(value, Distribution):
        family.add_metric(labels, value)


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, _EngineCollector] = weakref.WeakKeyDictionary()
_lock = Lock()


def register(
    engine: Measured,
    registry: CollectorRegistry = REGISTRY,
    *,
    name: str | None = None,
    collections: int = COLLECTIONS,
    tenants: bool = False,
) -> Registration:
    """Register an engine; see `EngineMetrics.register`."""
    with _lock:
        collector = _collectors.get(registry)
        if collector is None:
            collector = _collectors[registry] = _EngineCollector()
            try:
                registry.register(collector)
            except BaseException:
                # An interrupt, perhaps after it was registered.
                _collectors.pop(registry, None)
                with suppress(KeyError):
                    registry.unregister(collector)
                raise
    return collector.add(engine, name, Labels(collections, tenants=tenants))
