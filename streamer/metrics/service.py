"""Every metric of the service: as `names` for the engine, without the label `engine`.

`streamer.service` counts them; rules, the dashboard and the table of `docs/metrics.md` are made of them.
"""

from __future__ import annotations

from typing import Final

from streamer.metrics.names import Metric

_SOURCE, _SINK = ("source",), ("sink",)

READY = Metric(
    *("streamer_service_ready", "gauge", ()), "1 if the service does its work, else 0; `/readyz` returns the reason.", "min"
)

READ = Metric("streamer_service_events_read", "counter", _SOURCE, "Events that were read: matched + unmatched + rejected.")
MATCHED = Metric("streamer_service_events_matched", "counter", _SOURCE, "Events that matched at least one subscription.")
UNMATCHED = Metric(
    "streamer_service_events_unmatched", "counter", _SOURCE, "Events that matched no subscription, including ignored ones."
)
REJECTED = Metric("streamer_service_events_rejected", "counter", _SOURCE, "Events that could not be read; they are dead letters.")
UP = Metric(
    *("streamer_service_source_up", "gauge", _SOURCE),
    "1 if the server of a source answers, else 0; always 1 for a file.",
    "min",
)
LAG_BYTES = Metric(
    *("streamer_service_source_lag_bytes", "gauge", _SOURCE),
    "Bytes that a source has not read yet; for PostgreSQL, bytes of the server's log that are not confirmed yet.",
)
LAG_MESSAGES = Metric(
    "streamer_service_source_lag_messages", "gauge", _SOURCE, "Messages that a source of Kafka has not read yet."
)
LAG_SECONDS = Metric(
    *("streamer_service_source_lag_seconds", "gauge", _SOURCE),
    "The least time for which a source has been behind; 0 if it is not.",
    "max",
)
AGE = Metric(
    *("streamer_service_source_event_age_seconds", "gauge", _SOURCE),
    "How old the latest event was when it was read, by its own time, if it has one.",
    "max",
)
SLOT = Metric(
    *("streamer_service_slot_bytes", "gauge", _SOURCE),
    "Bytes of its log that a server of PostgreSQL keeps for the replication slot of a source.",
)

MATCHES = Metric(
    *("streamer_service_matches", "counter", ()),
    "Matches found, and those in the spool at the start: delivered + dead + dropped + pending.",
)
DELIVERED = Metric("streamer_service_matches_delivered", "counter", _SINK, "Matches that their sink has confirmed.")
DEAD = Metric("streamer_service_matches_dead", "counter", _SINK, "Matches that their sink refused; they are dead letters.")
DROPPED = Metric(
    *("streamer_service_matches_dropped", "counter", ()), "Matches of gateways without a route, and messages that were deleted."
)
UNROUTED = Metric(
    "streamer_service_matches_unrouted", "counter", (), "Matches of gateways without a route; they are part of the dropped ones."
)
PENDING = Metric("streamer_service_matches_pending", "gauge", (), "Matches that wait for their sinks.")
LETTERS = Metric("streamer_service_dead_letters", "gauge", (), "Dead letters in the store.", "max")
ROOM = Metric(
    *("streamer_service_store_used_ratio", "gauge", ("part",)),
    "Used share of the store's room: `dead_letters` (without tenants' gateways), `spool` (of its fullest sink), `disk`.",
    "max",
)

SPOOLED = Metric("streamer_service_spool_messages", "gauge", _SINK, "Messages in the spool.")
SPOOLED_BYTES = Metric("streamer_service_spool_bytes", "gauge", _SINK, "Bytes of the messages in the spool.")
OLDEST = Metric("streamer_service_spool_oldest_seconds", "gauge", _SINK, "Age of the oldest message in the spool.")
BLOCKED = Metric("streamer_service_spool_blocked_keys", "gauge", _SINK, "Keys that wait for another attempt.")
STUCK = Metric(
    *("streamer_service_spool_stuck_messages", "gauge", _SINK),
    "Messages beyond their last attempt, retried because the store has no room for their dead letters.",
)
ATTEMPTS = Metric(
    *("streamer_service_attempts", "counter", (*_SINK, "result")),
    "Requests, by result: `delivered`, `retried`, `refused`, `gone`.",
)
BREAKER = Metric(
    *("streamer_service_breaker", "gauge", _SINK),
    "State of an endpoint: 0 closed; 1 probing, 2 open (it is failing); 3 disabled after HTTP 410.",
    "max",
)

REQUESTS = Metric("streamer_service_api_requests", "counter", ("route", "status"), "Requests that the API answered.")
CONNECTIONS = Metric("streamer_service_api_connections", "gauge", (), "Connections to the API that are open.")
CLOSED = Metric(
    *("streamer_service_api_connections_closed", "counter", ("reason",)),
    "Connections that were closed because they were too slow or too many.",
)
STORED = Metric("streamer_service_subscriptions", "gauge", (), "Subscriptions in the store, including paused ones.", "max")
PAUSED = Metric("streamer_service_subscriptions_paused", "gauge", (), "Subscriptions that are paused.", "max")
EXPIRING = Metric(
    *("streamer_service_subscriptions_expiring", "gauge", ()),
    "Subscriptions with less than a tenth of their lease left, among the 10,000 that expire first.",
    "max",
)
EXPIRED = Metric(
    "streamer_service_subscriptions_expired", "counter", (), "Subscriptions that were deleted at the end of their lease."
)
GATEWAYS = Metric("streamer_service_gateways", "gauge", ("state",), "Tenants' own gateways.", "max")
STREAMS = Metric("streamer_service_streams", "gauge", (), "Streams of matches that are open.")
ENDED = Metric(
    *("streamer_service_streams_ended", "counter", ("reason",)),
    "Streams that have ended: `client`, `deleted`, `off`, `revoked`, `stopped`.",
)
STREAMED = Metric("streamer_service_stream_messages", "counter", (), "Messages that were sent to streams.")

METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
#: The metrics of `streamer.service.delivery.metrics.Condition`, and of `streamer.service.api.metrics.ApiCounts`. `Counts` has the
#: others.
OF_CONDITION: Final = (READY, UP, LAG_BYTES, LAG_MESSAGES, LAG_SECONDS, AGE, SLOT, ROOM)
OF_API: Final = (REQUESTS, CONNECTIONS, CLOSED, STORED, PAUSED, EXPIRING, EXPIRED, GATEWAYS, STREAMS, ENDED, STREAMED)
