"""Recording and alert rules for Prometheus, made of the names in `names`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from streamer.metrics import names
from streamer.metrics.names import Metric


@final
@dataclass(frozen=True, slots=True)
class Recording:
    """A rule that records an expression under a name, as `level:metric:operations`."""

    record: str
    expr: str


@final
@dataclass(frozen=True, slots=True)
class Alert:
    """A rule that calls somebody.

    Attributes:
        wait: how long *expr* must hold, as Prometheus writes durations.
        severity: `page` where matches may be lost or late, else `ticket`.
    """

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    description: str


def rate(metric: Metric, by: str = "engine", window: str = "5m") -> str:
    """Write the rate of a counter, or of the buckets of a histogram."""
    return f"sum by ({by}) (rate({metric.sample}[{window}]))"


def quantile(metric: Metric, share: float, window: str = "5m") -> str:
    """Write a quantile of a histogram, in seconds."""
    return f"histogram_quantile({share}, {rate(metric, 'engine, le', window)})"


EVENTS_RATE: Final = "engine:streamer_events:rate5m"
REJECTED_SHARE: Final = "engine:streamer_events_rejected:ratio_rate5m"
MATCHES_PER_EVENT: Final = "engine:streamer_matches_per_event:rate5m"
P99: Final = "engine:streamer_event_duration_seconds:p99_5m"
STOPPED_SHARE: Final = "engine_collection:streamer_bloom_stopped:ratio_rate5m"
CEL_ERRORS_RATE: Final = "engine:streamer_cel_errors:rate5m"
CEL_CACHE_SHARE: Final = "engine:streamer_cel_cache_hits:ratio_rate5m"

RECORDINGS: Final = (
    Recording(EVENTS_RATE, rate(names.EVENTS)),
    Recording(REJECTED_SHARE, f"{rate(names.REJECTED)} / {rate(names.EVENTS)}"),
    Recording(MATCHES_PER_EVENT, f"{rate(names.MATCHES)} / {rate(names.EVENTS)}"),
    Recording(P99, quantile(names.EVENT_SECONDS, 0.99)),
    Recording(
        STOPPED_SHARE,
        f"{rate(names.BLOOM_MISSES, 'engine, collection')} / "
        f"({rate(names.BLOOM_MISSES, 'engine, collection')} + {rate(names.BLOOM_HITS, 'engine, collection')})",
    ),
    Recording(CEL_ERRORS_RATE, rate(names.CEL_ERRORS)),
    Recording(CEL_CACHE_SHARE, f"{rate(names.CEL_HITS)} / ({rate(names.CEL_HITS)} + {rate(names.CEL_MISSES)})"),
)

ALERTS: Final = (
    Alert(
        "StreamerRejectsEvents",
        f"{REJECTED_SHARE} > 0.01",
        "10m",
        "page",
        "More than 1 % of the events cannot be read",
        "Engine {{ $labels.engine }} rejects {{ $value | humanizePercentage }} of its events. Their codes tell why: "
        f"{names.REJECTED.sample}.",
    ),
    Alert(
        "StreamerFails",
        f'increase({names.REJECTED.sample}{{code="internal"}}[10m]) > 0',
        "0m",
        "page",
        "The engine failed at an event",
        "Engine {{ $labels.engine }} failed or was interrupted at {{ $value | humanize }} events.",
    ),
    Alert(
        "StreamerIsSlow",
        f"{P99} > 0.01",
        "10m",
        "ticket",
        "One event in a hundred takes more than 10 ms",
        "Engine {{ $labels.engine }} takes {{ $value | humanizeDuration }} for the slowest hundredth of its events.",
    ),
    Alert(
        "StreamerCelErrors",
        f"{CEL_ERRORS_RATE} > 0.1 * {EVENTS_RATE}",
        "30m",
        "ticket",
        "CEL programs end in errors for more than a tenth of the events",
        "Engine {{ $labels.engine }}: an error is no match, so subscriptions may miss what they were meant for. "
        f"{names.CEL_ERRORS.sample} has the reasons.",
    ),
    Alert(
        "StreamerBudgetExceeded",
        f'increase({names.CEL_ERRORS.sample}{{reason=~"(|pattern_|regexp_)budget"}}[10m]) > 0',
        "0m",
        "ticket",
        "CEL programs, patterns or regexps were stopped for what they cost",
        "Engine {{ $labels.engine }}: {{ $value | humanize }} evaluations went past their budget "
        "({{ $labels.reason }}) and count as no match.",
    ),
    Alert(
        "StreamerFilterSaturated",
        f"{names.BLOOM_SATURATED.sample} > 0",
        "30m",
        "ticket",
        "A Bloom filter passes too much at any size",
        "Engine {{ $labels.engine }}, collection {{ $labels.collection }}: matches stay exact, phase 1 saves less.",
    ),
    Alert(
        "StreamerRebuildsFail",
        f"increase({names.REBUILD_FAILURES.sample}[1h]) > 0",
        "0m",
        "ticket",
        "Rebuilding a Bloom filter failed",
        "Engine {{ $labels.engine }}, collection {{ $labels.collection }}: the filter before stays in force.",
    ),
    Alert(
        "StreamerRebuildsTooOften",
        f"sum by (engine, collection) (increase({names.REBUILDS.sample}[1h])) > 12",
        "0m",
        "ticket",
        "A Bloom filter is rebuilt again and again",
        "Engine {{ $labels.engine }}, collection {{ $labels.collection }}: {{ $value | humanize }} rebuilds in an hour.",
    ),
    Alert(
        "StreamerReloadFailed",
        f"{names.RELOAD_GOOD.sample} == 0",
        "5m",
        "ticket",
        "The last configuration was refused",
        "Engine {{ $labels.engine }} runs on the one before. Its log, and `streamer config check`, tell what is wrong.",
    ),
)


def write() -> str:
    """Return the rules as YAML."""
    lines = ["# Made by `python -m streamer.metrics`; change streamer/metrics/rules.py instead.", "groups:"]
    lines += ["  - name: streamer.recordings", "    rules:"]
    for recording in RECORDINGS:
        lines += [f"      - record: {recording.record}", f"        expr: {_quoted(recording.expr)}"]
    lines += ["  - name: streamer.alerts", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {_quoted(alert.expr)}",
            f"        for: {alert.wait}",
            f"        labels: {{severity: {alert.severity}}}",
            "        annotations:",
            f"          summary: {_quoted(alert.summary)}",
            f"          description: {_quoted(alert.description)}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
