"""The counts of the API, and of expired leases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streamer.metrics.names import Metric
from streamer.service.api.app import App
from streamer.service.gateways import Gateways
from streamer.service.subscriptions import Subscriptions

REQUESTS = Metric("streamer_service_api_requests", "counter", ("route", "status"), "Requests that were answered.")
CONNECTIONS = Metric("streamer_service_api_connections", "gauge", (), "Connections that are open.")
CLOSED = Metric(
    "streamer_service_api_connections_closed",
    "counter",
    ("reason",),
    "Connections that were closed because they were too slow or too many.",
)
HELD = Metric("streamer_service_subscriptions", "gauge", (), "Subscriptions in the store, including paused ones.")
PAUSED = Metric("streamer_service_subscriptions_paused", "gauge", (), "Subscriptions that are paused.")
EXPIRED = Metric(
    "streamer_service_subscriptions_expired", "counter", (), "Subscriptions that were deleted at the end of their lease."
)
GATEWAYS = Metric("streamer_service_gateways", "gauge", ("state",), "Tenants' own gateways.")
STREAMS = Metric("streamer_service_streams", "gauge", (), "Streams of matches that are open.")
ENDED = Metric(
    *("streamer_service_streams_ended", "counter", ("reason",)),
    "Streams that have ended: `client`, `deleted`, `off`, `revoked`, `stopped`.",
)
STREAMED = Metric("streamer_service_stream_messages", "counter", (), "Messages that were sent to streams.")

METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily


@final
class ApiCounts(Collector):
    """Collects the current counts of an API."""

    def __init__(self, app: App, subscriptions: Subscriptions, gateways: Gateways) -> None:
        self._app, self._subscriptions, self._gateways = app, subscriptions, gateways

    def describe(self) -> Iterable[Family]:
        """Name the families, so that registering does not scrape."""
        return [_family(metric, {}) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield the current counts."""
        door, totals = self._app.door, self._subscriptions.totals()
        values: dict[Metric, Mapping[Any, int]] = {
            REQUESTS: self._app.counts.copy(),
            CONNECTIONS: {(): len(door)},
            CLOSED: {(reason,): count for reason, count in door.refused.copy().items()},
            HELD: {(): totals["held"]},
            PAUSED: {(): totals["paused"]},
            EXPIRED: {(): self._subscriptions.expired},
            STREAMS: {(): len(self._app.streams)},
            ENDED: {(reason,): count for reason, count in self._app.streams.ended.copy().items()},
            STREAMED: {(): self._app.streams.messages},
            GATEWAYS: {(state,): count for state, count in self._gateways.states().items()},
        }
        for metric, found in values.items():
            yield _family(metric, found)


def _family(metric: Metric, values: Mapping[Any, int]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
