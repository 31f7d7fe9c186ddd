"""The counts of the API, and of expired leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streamer.errors import ServiceError
from streamer.metrics import service as names
from streamer.metrics.names import Metric
from streamer.service.api.app import App
from streamer.service.tenants.gateways import Gateways
from streamer.service.tenants.subscriptions import Subscriptions

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily


@final
class ApiCounts(Collector):
    """Collects the current counts of an API.

    Args:
        expiring: counts the subscriptions whose lease ends soon. Raises ServiceError.
    """

    def __init__(self, app: App, subscriptions: Subscriptions, gateways: Gateways, expiring: Callable[[], int]) -> None:
        self._app, self._subscriptions, self._gateways, self._expiring = app, subscriptions, gateways, expiring

    def describe(self) -> Iterable[Family]:
        """Name the families, so that registering does not scrape."""
        return [_family(metric, {}) for metric in names.OF_API]

    def collect(self) -> Iterator[Family]:
        """Yield the current counts."""
        door, totals = self._app.door, self._subscriptions.totals()
        try:
            expiring = {(): self._expiring()}
        except ServiceError:
            expiring = {}
        values: dict[Metric, Mapping[Any, int]] = {
            names.REQUESTS: self._app.counts.copy(),
            names.CONNECTIONS: {(): len(door)},
            names.CLOSED: {(reason,): count for reason, count in door.refused.copy().items()},
            names.STORED: {(): totals["held"]},
            names.PAUSED: {(): totals["paused"]},
            names.EXPIRING: expiring,
            names.EXPIRED: {(): self._subscriptions.expired},
            names.STREAMS: {(): len(self._app.streams)},
            names.ENDED: {(reason,): count for reason, count in self._app.streams.ended.copy().items()},
            names.STREAMED: {(): self._app.streams.messages},
            names.GATEWAYS: {(state,): count for state, count in self._gateways.states().items()},
        }
        for metric, counts in values.items():
            yield _family(metric, counts)


def _family(metric: Metric, values: Mapping[Any, int]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
