"""Recording and alert rules for Prometheus, made of the names in `names` and `service`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from streamer.metrics import names, service
from streamer.metrics.names import Metric


@final
@dataclass(frozen=True, slots=True)
class Recording:
    """A rule that records an expression under a name of the form `level:metric:operations`."""

    record: str
    expr: str


@final
@dataclass(frozen=True, slots=True)
class Alert:
    """An alert rule. `RUNBOOK` has the instructions under its name.

    Attributes:
        wait: how long *expr* must be true, as Prometheus writes durations.
        severity: `critical` if matches may be lost or late, else `warning`.
    """

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """The path and anchor of its runbook, relative to the project's folder."""
        return f"{RUNBOOK}#{self.name.lower()}"


RUNBOOK: Final = "docs/runbook.md"


def rate(metric: Metric, *without: str) -> str:
    """Return the rate of a counter, or of a histogram's buckets, for each engine of each target.

    Only our own labels are summed over, because an engine's name is unique only within its process.
    """
    each = f"rate({metric.sample}[5m])"
    return f"sum without ({', '.join(without)}) ({each})" if without else each


def _of_store(metric: Metric, selector: str = "") -> str:
    """Return a gauge of a store, which each of its processes reports, or the one that delivers now: one alert for all."""
    return f"max without ({_PROCESS}) ({metric.sample}{selector})"


EVENTS_RATE: Final = "instance_engine:streamer_events:rate5m"
REJECTED_SHARE: Final = "instance_engine:streamer_events_rejected:ratio_rate5m"
MATCHES_PER_EVENT: Final = "instance_engine:streamer_matches_per_event:rate5m"
P99: Final = "instance_engine:streamer_event_duration_seconds:p99_5m"
STOPPED_SHARE: Final = "instance_engine_collection:streamer_bloom_stopped:ratio_rate5m"
CEL_ERRORS_RATE: Final = "instance_engine:streamer_cel_errors:rate5m"
CEL_CACHE_SHARE: Final = "instance_engine:streamer_cel_cache_hits:ratio_rate5m"

RECORDINGS: Final = (
    Recording(EVENTS_RATE, rate(names.EVENTS)),
    Recording(REJECTED_SHARE, f"{rate(names.REJECTED, 'code')} / {rate(names.EVENTS)}"),
    Recording(MATCHES_PER_EVENT, f"{rate(names.MATCHES)} / {rate(names.EVENTS)}"),
    Recording(P99, f"histogram_quantile(0.99, {rate(names.EVENT_SECONDS)})"),
    Recording(
        STOPPED_SHARE,
        f"{rate(names.BLOOM_MISSES)} / ({rate(names.BLOOM_MISSES)} + {rate(names.BLOOM_HITS)})",
    ),
    Recording(CEL_ERRORS_RATE, rate(names.CEL_ERRORS, "reason")),
    Recording(CEL_CACHE_SHARE, f"{rate(names.CEL_HITS)} / ({rate(names.CEL_HITS)} + {rate(names.CEL_MISSES)})"),
)

_WHO: Final = "Engine {{ $labels.engine }} at {{ $labels.instance }} of {{ $labels.job }}"
_WHERE: Final = f"{_WHO}, collection {{{{ $labels.collection }}}}"
_SERVICE: Final = "The service at {{ $labels.instance }} of {{ $labels.job }}"
_SOURCE: Final = "Source {{ $labels.source }} at {{ $labels.instance }} of {{ $labels.job }}"
_JOB: Final = "The service {{ $labels.job }}"
_SINK_OF_JOB: Final = "Sink {{ $labels.sink }} of {{ $labels.job }}"
#: The labels of a process, in which the processes of one store differ.
_PROCESS: Final = "instance, pod"
#: Not tenants' own gateways: their endpoints are not the operator's, and their streams keep messages that were delivered.
_CONFIGURED: Final = '{sink!~"gateways:.*"}'

ALERTS: Final = (
    Alert(
        "StreamerIsDown",
        # Independent of job names: any target that exported engine metrics within a day.
        f"up == 0 and on (job, instance) present_over_time({names.BUILD.sample}[1d])",
        "5m",
        "critical",
        "A process with engines cannot be scraped",
        "{{ $labels.instance }} of {{ $labels.job }} has not answered for 5 minutes.",
    ),
    Alert(
        "StreamerSeesNoEvents",
        f"{EVENTS_RATE} == 0",
        "30m",
        "warning",
        "Streamer has seen no event for half an hour",
        f"{_WHO} runs and receives no events.",
    ),
    Alert(
        "StreamerRejectsEvents",
        f"{REJECTED_SHARE} > 0.01",
        "10m",
        "critical",
        "More than 1 % of the events cannot be read",
        f"{_WHO} rejects {{{{ $value | humanizePercentage }}}} of its events. The codes show why: {names.REJECTED.sample}.",
    ),
    Alert(
        "StreamerFails",
        f'increase({names.REJECTED.sample}{{code="internal"}}[10m]) > 0',
        "0m",
        "critical",
        "The engine failed at an event",
        f"{_WHO} failed or was interrupted at {{{{ $value | humanize }}}} events.",
    ),
    Alert(
        "StreamerIsSlow",
        f"{P99} > 0.01",
        "10m",
        "warning",
        "One event in a hundred takes more than 10 ms",
        f"{_WHO} takes {{{{ $value | humanizeDuration }}}} for the slowest hundredth of its events.",
    ),
    Alert(
        "StreamerCelErrors",
        f"{CEL_ERRORS_RATE} > 0.1 * {EVENTS_RATE}",
        "30m",
        "warning",
        "CEL programs end in errors for more than a tenth of the events",
        f"{_WHO}: an expression that fails does not match, so subscriptions may miss events. "
        f"{names.CEL_ERRORS.sample} has the reasons, engine.stats() the subscriptions.",
    ),
    Alert(
        "StreamerBudgetExceeded",
        f'increase({names.CEL_ERRORS.sample}{{reason=~".*budget"}}[10m]) > 0',
        "0m",
        "warning",
        "CEL programs, patterns, topics or regexps were stopped by their budget",
        f"{_WHO}: {{{{ $value | humanize }}}} evaluations exceeded their budget ({{{{ $labels.reason }}}}): no match.",
    ),
    Alert(
        "StreamerFilterSaturated",
        f"{names.BLOOM_SATURATED.sample} > 0",
        "30m",
        "warning",
        "A Bloom filter passes too much at any size",
        f"{_WHERE}: matches stay exact, phase 1 saves less time.",
    ),
    Alert(
        "StreamerRebuildsFail",
        f"increase({names.REBUILD_FAILURES.sample}[1h]) > 0",
        "0m",
        "warning",
        "Rebuilding a Bloom filter failed",
        f"{_WHERE}: the previous filter stays in use.",
    ),
    Alert(
        "StreamerRebuildsTooOften",
        f"sum without (reason) (increase({names.REBUILDS.sample}[1h])) > 12",
        "0m",
        "warning",
        "A Bloom filter is rebuilt again and again",
        f"{_WHERE}: {{{{ $value | humanize }}}} rebuilds in an hour.",
    ),
    Alert(
        "StreamerReloadFailed",
        f"{names.RELOAD_GOOD.sample} == 0",
        "5m",
        "warning",
        "The last configuration was refused",
        f"{_WHO} runs with the previous one. Its log, and `streamer config check`, list the errors.",
    ),
    # The service. Prometheus' own metric of a process counts restarts.
    Alert(
        "StreamerServiceNotReady",
        f"{service.READY.sample} == 0",
        "2m",
        "critical",
        "The service does not do its work",
        f"{_SERVICE} answers, but does not do its work; /readyz returns the reason.",
    ),
    Alert(
        "StreamerServiceRestarts",
        f"changes(process_start_time_seconds[1h]) > 2 and on (job, instance) present_over_time({service.READY.sample}[1h])",
        "0m",
        "warning",
        "The service was restarted three times within an hour",
        f"{_SERVICE} was started {{{{ $value }}}} times within an hour.",
    ),
    Alert(
        "StreamerServiceRejectsEvents",
        # The engine counts only records that the source and the decoder of the service have passed on to it.
        f"{rate(service.REJECTED)} / {rate(service.READ)} > 0.01",
        "10m",
        "critical",
        "More than 1 % of the records of a source cannot be read",
        f"{_SOURCE}: {{{{ $value | humanizePercentage }}}} of its records cannot be read; they are dead letters.",
    ),
    Alert(
        "StreamerSourceIsDown",
        f"{service.UP.sample} == 0",
        "5m",
        "critical",
        "The server of a source does not answer",
        f"{_SOURCE} has had no connection to its server for 5 minutes, so it reads no events, and its lag is unknown.",
    ),
    Alert(
        "StreamerSourceIsLate",
        f"{service.LAG_SECONDS.sample} > 300",
        "5m",
        "critical",
        "A source is behind by more than 5 minutes",
        f"{_SOURCE} has been behind for {{{{ $value | humanizeDuration }}}} at least.",
    ),
    Alert(
        "StreamerSourceIsBehind",
        f"{service.LAG_BYTES.sample} > 1e9 or {service.LAG_MESSAGES.sample} > 1e6",
        "15m",
        "warning",
        "A source is behind by more than 1 GB, or by a million messages",
        f"{_SOURCE} is behind by {{{{ $value | humanize }}}} bytes, or messages if it reads Kafka.",
    ),
    Alert(
        "StreamerSlotGrows",
        # A range outlasts single scrapes without a value.
        f"max_over_time({service.SLOT.sample}[5m]) > 10e9 and deriv({service.SLOT.sample}[10m]) > 0",
        "5m",
        "critical",
        "A replication slot makes the server keep more and more of its log",
        f"{_SOURCE}: the server keeps {{{{ $value | humanize1024 }}}}B of its log for the slot.",
    ),
    Alert(
        "StreamerDeadLettersGrow",
        # Not tenants' own gateways, whose letters are forgotten if there are too many.
        f"increase({service.DEAD.sample}{_CONFIGURED}[15m]) > 0 or increase({service.REJECTED.sample}[15m]) > 0",
        "0m",
        "warning",
        "There are new dead letters",
        f"{_SERVICE} has {{{{ $value | humanize }}}} new dead letters of {{{{ $labels.sink }}}}{{{{ $labels.source }}}}.",
    ),
    Alert(
        "StreamerSpoolIsOld",
        f"{_of_store(service.OLDEST, _CONFIGURED)} > 900",
        "5m",
        "critical",
        "A message has waited in the spool for more than 15 minutes",
        f"{_SINK_OF_JOB}: its oldest message has waited for {{{{ $value | humanizeDuration }}}}.",
    ),
    Alert(
        "StreamerBreakerIsOpen",
        f"{_of_store(service.BREAKER)} > 0",
        "10m",
        "critical",
        "An endpoint is down, or has disabled itself",
        f"{_SINK_OF_JOB} gets only probes, or no messages: the state of its breaker is {{{{ $value }}}}.",
    ),
    Alert(
        "StreamerKeysAreStuck",
        # A busy endpoint always has some keys that wait for a moment.
        f"{_of_store(service.STUCK)} > 0"
        f" or ({_of_store(service.BLOCKED, _CONFIGURED)} > 0 and {_of_store(service.OLDEST, _CONFIGURED)} > 1800)",
        "5m",
        "warning",
        "Keys of a sink wait for another attempt",
        f"{_SINK_OF_JOB} has {{{{ $value }}}} keys that wait, one for half an hour, or messages without room.",
    ),
    Alert(
        "StreamerMatchesUnrouted",
        f"increase({service.UNROUTED.sample}[15m]) > 0",
        "0m",
        "warning",
        "Matches were dropped because no route leads to a sink",
        f"{_SERVICE} dropped {{{{ $value | humanize }}}} matches; its log names the gateways.",
    ),
    Alert(
        "StreamerLeaseExpires",
        f"{_of_store(service.EXPIRING)} > 0 or max without ({_PROCESS}) (increase({service.EXPIRED.sample}[15m])) > 0",
        "0m",
        "warning",
        "Subscriptions were not renewed in time",
        f"{_JOB}: {{{{ $value | humanize }}}} subscriptions have expired, or are about to.",
    ),
    Alert(
        "StreamerStoreIsNearlyFull",
        f"{_of_store(service.ROOM)} > 0.9",
        "10m",
        "critical",
        "More than 90 % of a part of the store is in use",
        f"{_JOB} uses {{{{ $value | humanizePercentage }}}} of its room for {{{{ $labels.part }}}}.",
    ),
)


def write() -> str:
    """Return the rules as YAML."""
    lines = ["# Made by `make docs`; change docs/monitoring/rules.py instead.", "groups:"]
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
            f"          runbook_url: {_quoted(alert.runbook)}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
