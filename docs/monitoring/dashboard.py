"""A Grafana dashboard, made of the names in `names` and `service`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, final

from docs.monitoring import rules
from streamer.metrics import names, service
from streamer.metrics.names import Metric

#: Panels stand on a grid of 24 columns.
COLUMNS: Final = 24
HEIGHT: Final = 8


@final
@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: expressions with their legends, and the unit of its axis as Grafana names it."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str
    description: str
    width: int = 8
    kind: str = "timeseries"


#: Labels whose values the reader chooses, and the selector of each label's query.
VARIABLES: Final = {"job": "", "instance": '{job=~"$job"}', "engine": '{job=~"$job", instance=~"$instance"}'}


def _only(metric: Metric) -> str:
    # The metrics of the service have no label `engine`.
    labels = [label for label in VARIABLES if label != "engine" or metric not in service.METRICS]
    selector = ", ".join(f'{label}=~"${label}"' for label in labels)
    return f"{metric.sample}{{{selector}}}"


def _rate(metric: Metric, by: str = "job, engine") -> str:
    return f"sum by ({by}) (rate({_only(metric)}[$__rate_interval]))"


def _quantiles(metric: Metric) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({share}, {_rate(metric, 'le')})", f"p{share * 100:g}") for share in (0.5, 0.9, 0.99, 0.999)
    )


def _collections(metric: Metric) -> tuple[tuple[str, str], ...]:
    return ((f"max by (job, engine, collection) ({_only(metric)})", "{{job}} {{engine}} {{collection}}"),)


def _of_one_process(metric: Metric) -> str:
    # Processes of a job have the same subscriptions: the number of one process, not the sum.
    return f"max by (job, engine, collection) (sum without (tenant) ({_only(metric)}))"


def _of_all_partitions(metric: Metric) -> str:
    return f"sum without (tenant, collection) ({_only(metric)})"


def _each(metric: Metric, legend: str = "") -> tuple[tuple[str, str], ...]:
    """Return the query of a gauge of the service."""
    labels = " ".join(f"{{{{{label}}}}}" for label in ("instance", *metric.labels))
    return ((_only(metric), f"{labels} {legend}".rstrip()),)


def _rates(metric: Metric, legend: str = "") -> tuple[tuple[str, str], ...]:
    """Return the query of a counter of the service."""
    labels = " ".join(f"{{{{{label}}}}}" for label in ("job", *metric.labels))
    return ((_rate(metric, ", ".join(("job", *metric.labels))), f"{labels} {legend}".rstrip()),)


_HITS, _MISSES = _rate(names.BLOOM_HITS, "job, engine, collection"), _rate(names.BLOOM_MISSES, "job, engine, collection")

ROWS: Final = (
    (
        "Events",
        (
            Panel(
                "Events by outcome",
                (
                    (_rate(names.MATCHED), "{{job}} {{engine}} matched"),
                    (_rate(names.UNMATCHED), "{{job}} {{engine}} unmatched"),
                    (_rate(names.IGNORED), "{{job}} {{engine}} ignored"),
                    (_rate(names.REJECTED), "{{job}} {{engine}} rejected"),
                ),
                "ops",
                names.EVENTS.help,
            ),
            Panel("Time of an event", _quantiles(names.EVENT_SECONDS), "s", names.EVENT_SECONDS.help),
            Panel("Rejected by code", ((_rate(names.REJECTED, "code") + " > 0", "{{code}}"),), "ops", names.REJECTED.help),
            Panel(
                "Matches and candidates an event",
                (
                    (f"{_rate(names.MATCHES)} / {_rate(names.EVENTS)}", "{{job}} {{engine}} matches"),
                    (f"{_rate(names.UNCERTAIN)} / {_rate(names.EVENTS)}", "{{job}} {{engine}} uncertain"),
                    (f"{_rate(names.CANDIDATES)} / {_rate(names.EVENTS)}", "{{job}} {{engine}} candidates"),
                ),
                "short",
                names.CANDIDATES.help,
            ),
            Panel("Matches of an event", _quantiles(names.EVENT_MATCHES), "short", names.EVENT_MATCHES.help),
            Panel("Candidates of an event", _quantiles(names.EVENT_CANDIDATES), "short", names.EVENT_CANDIDATES.help),
            Panel(
                "Ignored by reason, and bare",
                (
                    (_rate(names.IGNORED, "reason") + " > 0", "{{reason}}"),
                    (_rate(names.BARE) + " > 0", "{{job}} {{engine}} bare"),
                ),
                "ops",
                f"{names.IGNORED.help} Bare: {names.BARE.help}",
            ),
            Panel(
                "Time of events, as a heat map",
                ((f"sum by (le) (increase({_only(names.EVENT_SECONDS)}[$__rate_interval]))", "{{le}}"),),
                "s",
                names.EVENT_SECONDS.help,
                16,
                "heatmap",
            ),
        ),
    ),
    (
        "Phase 1: Bloom filters",
        (
            Panel(
                "Share of events stopped",
                ((f"{_MISSES} / ({_HITS} + {_MISSES})", "{{job}} {{engine}} {{collection}}"),),
                "percentunit",
                names.BLOOM_MISSES.help,
            ),
            Panel("Measured false-positive rate", _collections(names.BLOOM_RATE), "percentunit", names.BLOOM_RATE.help),
            Panel(
                "Rebuilds an hour by reason",
                ((f"sum by (collection, reason) (increase({_only(names.REBUILDS)}[1h]))", "{{collection}} {{reason}}"),),
                "short",
                names.REBUILDS.help,
            ),
            Panel("Time querying filters", _quantiles(names.BLOOM_SECONDS), "s", names.BLOOM_SECONDS.help),
            Panel("Fill", _collections(names.BLOOM_FILL), "percentunit", names.BLOOM_FILL.help),
            Panel(
                "Keys, room and stale keys",
                (
                    (_of_all_partitions(names.BLOOM_KEYS), "{{instance}} {{engine}} keys"),
                    (_of_all_partitions(names.BLOOM_CAPACITY), "{{instance}} {{engine}} room"),
                    (_of_all_partitions(names.BLOOM_STALE), "{{instance}} {{engine}} stale"),
                ),
                "short",
                names.BLOOM_KEYS.help,
            ),
            Panel(
                "Subscriptions inside and outside the filter",
                (
                    (_of_one_process(names.BLOOM_SUBSCRIPTIONS), "{{job}} {{engine}} {{collection}} guarded"),
                    (_of_one_process(names.BLOOM_UNKEYED), "{{job}} {{engine}} {{collection}} outside"),
                ),
                "short",
                names.BLOOM_UNKEYED.help,
            ),
            Panel(
                "Keys looked up for an event",
                (
                    (
                        f"{_rate(names.BLOOM_PROBES, 'job, engine, collection')} / ({_HITS} + {_MISSES})",
                        "{{job}} {{engine}} {{collection}}",
                    ),
                ),
                "short",
                names.BLOOM_PROBES.help,
            ),
            Panel(
                "Version, failures, saturation",
                (
                    *_collections(names.BLOOM_VERSION),
                    (f"sum by (collection) (increase({_only(names.REBUILD_FAILURES)}[1h])) > 0", "{{collection}} failed"),
                    (f"max by (collection) ({_only(names.BLOOM_SATURATED)}) > 0", "{{collection}} saturated"),
                ),
                "short",
                names.BLOOM_VERSION.help,
            ),
        ),
    ),
    (
        "CEL",
        (
            Panel("Time in CEL programs", _quantiles(names.CEL_SECONDS), "s", names.CEL_SECONDS.help),
            Panel(
                "Errors by reason", ((_rate(names.CEL_ERRORS, "reason") + " > 0", "{{reason}}"),), "ops", names.CEL_ERRORS.help
            ),
            Panel(
                "Programs found in the cache",
                (
                    (
                        f"{_rate(names.CEL_HITS)} / ({_rate(names.CEL_HITS)} + {_rate(names.CEL_MISSES)})",
                        "{{job}} {{engine}} share",
                    ),
                    (_only(names.CEL_PROGRAMS), "{{instance}} {{engine}} kept"),
                ),
                "short",
                names.CEL_HITS.help,
            ),
            Panel(
                "Time of an evaluation by cel-python",
                _quantiles(names.CEL_PORTABLE_SECONDS),
                "s",
                names.CEL_PORTABLE_SECONDS.help,
            ),
            Panel(
                "Programs that cel-python evaluates",
                ((_only(names.CEL_PORTABLE_PROGRAMS), "{{instance}} {{engine}}"),),
                "short",
                names.CEL_PORTABLE_PROGRAMS.help,
            ),
        ),
    ),
    (
        "Contents",
        (
            Panel(
                "Subscriptions", ((_only(names.SUBSCRIPTIONS), "{{instance}} {{engine}}"),), "short", names.SUBSCRIPTIONS.help, 6
            ),
            Panel(
                "Memory",
                (
                    (_only(names.SUBSCRIPTION_BYTES), "{{instance}} {{engine}} subscriptions"),
                    (_only(names.INDEX_BYTES), "{{instance}} {{engine}} index"),
                    (_only(names.RECORD_BYTES), "{{instance}} {{engine}} records"),
                    (_only(names.TEXT_BYTES), "{{instance}} {{engine}} texts"),
                    (_of_all_partitions(names.BLOOM_BYTES), "{{instance}} {{engine}} filters"),
                ),
                "bytes",
                names.INDEX_BYTES.help,
                6,
            ),
            Panel(
                "Partitions and segments",
                (
                    (_only(names.PARTITIONS), "{{instance}} {{engine}} partitions"),
                    (_only(names.SEGMENTS), "{{instance}} {{engine}} segments"),
                ),
                "short",
                names.SEGMENTS.help,
                6,
            ),
            Panel("Merges", ((_rate(names.MERGES), "{{job}} {{engine}}"),), "ops", names.MERGES.help, 6),
            Panel(
                "Last reload succeeded",
                ((_only(names.RELOAD_GOOD), "{{instance}} {{engine}}"),),
                "bool_yes_no",
                names.RELOAD_GOOD.help,
                6,
                "stat",
            ),
            Panel(
                "Since the last good configuration",
                ((f"time() - {_only(names.RELOAD_AT)}", "{{instance}} {{engine}}"),),
                "s",
                names.RELOAD_AT.help,
                6,
                "stat",
            ),
            Panel(
                "Version",
                ((_only(names.BUILD), "{{instance}} {{engine}}: {{version}}, {{backend}}, Python {{python}}"),),
                "short",
                names.BUILD.help,
                12,
                "stat",
            ),
        ),
    ),
    (
        "The service: sources and store",
        (
            Panel("Ready", _each(service.READY), "bool_yes_no", service.READY.help, 6, "stat"),
            Panel(
                "Restarts within an hour",
                (
                    (
                        "changes(process_start_time_seconds[1h])"
                        f" and on (job, instance) present_over_time({_only(service.READY)}[1h])",
                        "{{instance}}",
                    ),
                ),
                "short",
                "How often the process was started again.",
                6,
                "stat",
            ),
            Panel("Share of the store in use", _each(service.ROOM), "percentunit", service.ROOM.help, 12),
            Panel("Servers of sources that answer", _each(service.UP), "bool_yes_no", service.UP.help),
            Panel(
                "Lag in seconds, and the age of events",
                (*_each(service.LAG_SECONDS, "lag"), *_each(service.AGE, "age")),
                "s",
                f"{service.LAG_SECONDS.help} {service.AGE.help}",
            ),
            Panel(
                "Lag in bytes, and the log of slots",
                (*_each(service.LAG_BYTES, "lag"), *_each(service.SLOT, "slot")),
                "bytes",
                f"{service.LAG_BYTES.help} {service.SLOT.help}",
            ),
            Panel("Lag in messages", _each(service.LAG_MESSAGES), "short", service.LAG_MESSAGES.help),
            Panel("Events read", _rates(service.READ), "ops", service.READ.help),
            Panel(
                "Events by outcome",
                (
                    *_rates(service.MATCHED, "matched"),
                    *_rates(service.UNMATCHED, "unmatched"),
                    *_rates(service.REJECTED, "rejected"),
                ),
                "ops",
                service.UNMATCHED.help,
            ),
            Panel("Dead letters", _each(service.LETTERS), "short", service.LETTERS.help),
        ),
    ),
    (
        "The service: delivery",
        (
            Panel(
                "Matches by outcome",
                (
                    *_rates(service.MATCHES, "found"),
                    *_rates(service.DELIVERED, "delivered"),
                    *_rates(service.DEAD, "dead"),
                    *_rates(service.DROPPED, "dropped"),
                    *_rates(service.UNROUTED, "unrouted"),
                ),
                "ops",
                service.MATCHES.help,
            ),
            Panel("Pending matches", _each(service.PENDING), "short", service.PENDING.help),
            Panel("Requests by result", _rates(service.ATTEMPTS), "ops", service.ATTEMPTS.help),
            Panel("Age of the oldest message", _each(service.OLDEST), "s", service.OLDEST.help),
            Panel("Messages in the spool", _each(service.SPOOLED), "short", service.SPOOLED.help),
            Panel("Bytes in the spool", _each(service.SPOOLED_BYTES), "bytes", service.SPOOLED_BYTES.help),
            Panel(
                "Keys that wait, and messages without room",
                (*_each(service.BLOCKED, "keys"), *_each(service.STUCK, "stuck")),
                "short",
                f"{service.BLOCKED.help} {service.STUCK.help}",
            ),
            Panel("Breakers", _each(service.BREAKER), "short", service.BREAKER.help),
            Panel(
                "Tenants' gateways and streams",
                (
                    *_each(service.GATEWAYS, "gateways"),
                    *_each(service.STREAMS, "streams"),
                ),
                "short",
                service.GATEWAYS.help,
            ),
        ),
    ),
    (
        "The service: API",
        (
            Panel(
                "Requests of the API by status",
                ((_rate(service.REQUESTS, "status"), "{{status}}"),),
                "ops",
                service.REQUESTS.help,
            ),
            Panel(
                "Connections",
                (*_each(service.CONNECTIONS, "open"), *_rates(service.CLOSED, "closed")),
                "short",
                service.CLOSED.help,
            ),
            Panel(
                "Subscriptions",
                (*_each(service.STORED), *_each(service.PAUSED, "paused"), *_each(service.EXPIRING, "expiring")),
                "short",
                service.EXPIRING.help,
            ),
            Panel("Expired subscriptions", _rates(service.EXPIRED), "ops", service.EXPIRED.help),
            Panel("Messages of streams", _rates(service.STREAMED), "ops", service.STREAMED.help),
            Panel("Streams that ended", _rates(service.ENDED), "ops", service.ENDED.help),
        ),
    ),
)


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    shown: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": source,
                "expr": expr,
                "legendFormat": legend,
                "format": "heatmap" if panel.kind == "heatmap" else "time_series",
            }
            for at, (expr, legend) in enumerate(panel.queries)
        ],
    }
    if panel.kind == "timeseries":
        shown["fieldConfig"]["defaults"]["custom"] = {"fillOpacity": 8}
        shown["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "stat" and panel.title == "Version":
        shown["options"] = {"textMode": "name"}
    if panel.kind == "heatmap":
        shown["options"] = {"calculate": False, "yAxis": {"unit": "s"}}
    return shown


def _variable(label: str, among: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "label": label.capitalize(),
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": f"label_values({names.EVENTS.sample}{among}, {label})", "refId": label},
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
                "panels": [],
            }
        )
        x, y = 0, y + 1
        for panel in row:
            if x + panel.width > COLUMNS:
                x, y = 0, y + HEIGHT
            panels.append(_panel(panel, len(panels) + 1, x, y))
            x += panel.width
        y += HEIGHT
    return {
        "title": "Streamer",
        "uid": "streamer",
        "tags": ["streamer"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                *(_variable(label, among) for label, among in VARIABLES.items()),
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "Alerts",
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "enable": True,
                    "iconColor": "red",
                    "expr": f'ALERTS{{alertname=~"{"|".join(alert.name for alert in rules.ALERTS)}", alertstate="firing"}}',
                    "titleFormat": "{{alertname}}",
                }
            ]
        },
        "panels": panels,
    }


def write() -> str:
    """Return the dashboard as JSON."""
    return json.dumps(dashboard(), indent=2) + "\n"
