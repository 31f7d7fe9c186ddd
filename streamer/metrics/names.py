"""Every metric: name, kind, labels, help. Units are those of Prometheus: seconds, bytes and ratios from 0 to 1.

Each metric also has the label `engine`. `collection` is bounded: all collections after the first few share the value `other`.
The label `tenant` is optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, final

from prometheus_client.utils import floatToGoString

from streamer.telemetry import BOUNDS, SIZES

Kind = Literal["counter", "gauge", "histogram"]

#: How to aggregate the values of several processes: their sum, or the largest or smallest if they describe the same thing.
Together = Literal["sum", "max", "min"]


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: its name without the suffix that its kind adds to samples.
        labels: its labels in addition to `engine`.
        help: its meaning, in a sentence.
        together: how to aggregate the gauges of several processes.
        bounds: the upper bounds of a histogram's buckets, in the engine's unit.
        unit: the number of the engine's units in one exported unit, for example 10**9 for nanoseconds.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    together: Together = "sum"
    bounds: tuple[int, ...] = ()
    unit: int = 1

    @property
    def buckets(self) -> tuple[str, ...]:
        """The label `le` of each bucket of a histogram."""
        return (*map(floatToGoString, (bound / self.unit for bound in self.bounds)), "+Inf")

    @property
    def sample(self) -> str:
        """The name to query in PromQL; for a histogram, the name of its buckets."""
        return self.name + {"counter": "_total", "gauge": "", "histogram": "_bucket"}[self.kind]

    @property
    def samples(self) -> tuple[str, ...]:
        """All names of its samples in a scrape."""
        return tuple(self.name + end for end in ("_bucket", "_sum", "_count")) if self.kind == "histogram" else (self.sample,)


_BLOOM = ("collection",)


def _seconds(name: str, meaning: str) -> Metric:
    return Metric(name, "histogram", (), meaning, bounds=BOUNDS, unit=10**9)


def _how_many(name: str, meaning: str) -> Metric:
    return Metric(name, "histogram", (), meaning, bounds=SIZES)


EVENTS = Metric("streamer_events", "counter", (), "Events with an outcome: matched + unmatched + ignored + rejected.")
MATCHED = Metric("streamer_events_matched", "counter", (), "Events that matched at least one subscription.")
UNMATCHED = Metric("streamer_events_unmatched", "counter", (), "Events that matched no subscription.")
IGNORED = Metric(
    "streamer_events_ignored",
    "counter",
    ("reason",),
    "Valid events that cannot match, by reason: for example heartbeats and tombstones.",
)
BARE = Metric(
    "streamer_events_bare",
    "counter",
    (),
    "Matched and unmatched events in which the layout finds no collection, type or document.",
)
REJECTED = Metric("streamer_events_rejected", "counter", ("code",), "Events that could not be read, by the code of the error.")
EVENT_SECONDS = _seconds("streamer_event_duration_seconds", "Time from an event's text to its matches, for a sample of events.")

MATCHES = Metric("streamer_matches", "counter", (), "Matches found: subscriptions that matched, summed over events.")
EVENT_MATCHES = _how_many("streamer_event_matches", "Matches of an event, for all events that could be read.")
UNCERTAIN = Metric("streamer_matches_uncertain", "counter", (), "Uncertain matches, because the source left values out.")
CANDIDATES = Metric("streamer_candidates", "counter", (), "Candidates that the exact phase examined.")
EVENT_CANDIDATES = _how_many(
    "streamer_event_candidates", "Candidates that the exact phase examined for an event, for all events that could be read."
)

BLOOM_SECONDS = _seconds("streamer_bloom_duration_seconds", "Time to query the filters for an event, for a sample of events.")
BLOOM_HITS = Metric("streamer_bloom_hits", "counter", _BLOOM, "Events that a filter let pass (MAYBE).")
BLOOM_MISSES = Metric("streamer_bloom_misses", "counter", _BLOOM, "Events that a filter stopped (NO).")
BLOOM_PROBES = Metric("streamer_bloom_probes", "counter", _BLOOM, "Keys that were looked up in filters.")
BLOOM_RATE = Metric(
    "streamer_bloom_false_positive_ratio",
    "gauge",
    _BLOOM,
    "Share of sampled events without any live key that passed nevertheless.",
    "max",
)
BLOOM_VERSION = Metric(
    "streamer_bloom_filter_version", "gauge", _BLOOM, "Version of the filter; each rebuild adds 1. The latest of a group.", "max"
)
BLOOM_KEYS = Metric("streamer_bloom_filter_keys", "gauge", _BLOOM, "Keys set in the filter since it was built.", "max")
BLOOM_CAPACITY = Metric("streamer_bloom_filter_capacity_keys", "gauge", _BLOOM, "Keys that the filter was sized for.", "max")
BLOOM_STALE = Metric(
    "streamer_bloom_filter_stale_keys",
    "gauge",
    _BLOOM,
    "Upper bound of keys in the filter whose subscriptions were removed.",
    "max",
)
BLOOM_BYTES = Metric("streamer_bloom_filter_size_bytes", "gauge", _BLOOM, "Memory of the filter's bits.")
BLOOM_FILL = Metric("streamer_bloom_filter_fill_ratio", "gauge", _BLOOM, "Share of the filter's bits that are set.", "max")
BLOOM_SATURATED = Metric(
    "streamer_bloom_filter_saturated", "gauge", _BLOOM, "Filters that pass too many events at every size that was tried.", "max"
)
BLOOM_SUBSCRIPTIONS = Metric(
    "streamer_bloom_filter_subscriptions", "gauge", _BLOOM, "Subscriptions that the filter guards.", "max"
)
BLOOM_UNKEYED = Metric(
    "streamer_bloom_unkeyed_subscriptions",
    "gauge",
    _BLOOM,
    "Subscriptions outside the filter, which lets every event pass to them.",
    "max",
)
REBUILDS = Metric("streamer_bloom_rebuilds", "counter", (*_BLOOM, "reason"), "Rebuilds of filters, by reason.")
REBUILD_FAILURES = Metric(
    "streamer_bloom_rebuild_failures", "counter", _BLOOM, "Rebuilds of filters that failed; the previous filter stays in use."
)

CEL_SECONDS = _seconds("streamer_cel_duration_seconds", "Time of CEL programs for an event, for a sample of events.")
CEL_ERRORS = Metric(
    "streamer_cel_errors", "counter", ("reason",), "Evaluations of CEL programs that ended in an error, by reason."
)
CEL_HITS = Metric("streamer_cel_cache_hits", "counter", (), "CEL programs that were found in the cache.")
CEL_MISSES = Metric("streamer_cel_cache_misses", "counter", (), "CEL programs that had to be compiled.")
CEL_PROGRAMS = Metric("streamer_cel_cache_programs", "gauge", (), "Compiled CEL programs in the cache.", "max")
CEL_PORTABLE_PROGRAMS = Metric(
    "streamer_cel_portable_programs", "gauge", (), "Compiled CEL programs in the cache that cel-python evaluates.", "max"
)
CEL_PORTABLE_SECONDS = _seconds(
    "streamer_cel_portable_duration_seconds",
    "Time of each evaluation of a CEL program by cel-python, functions in Python included.",
)

SUBSCRIPTIONS = Metric("streamer_subscriptions", "gauge", (), "Subscriptions of the engine.", "max")
PARTITIONS = Metric("streamer_partitions", "gauge", (), "Pairs of tenant and collection that have subscriptions.", "max")
SEGMENTS = Metric("streamer_segments", "gauge", (), "Segments of the index.", "max")
MERGES = Metric("streamer_merges", "counter", (), "Merges of segments.")
SUBSCRIPTION_BYTES = Metric("streamer_subscriptions_size_bytes", "gauge", (), "Memory of the subscriptions' conditions.")
INDEX_BYTES = Metric("streamer_index_size_bytes", "gauge", (), "Memory of the index.")
RECORD_BYTES = Metric("streamer_records_size_bytes", "gauge", (), "Memory of ids and of other data of each subscription.")
TEXT_BYTES = Metric("streamer_texts_size_bytes", "gauge", (), "Memory of the subscriptions' texts.")

BUILD = Metric("streamer_build_info", "gauge", ("version", "backend", "python"), "1, labelled with the running version.", "max")
RELOAD_GOOD = Metric(
    "streamer_config_last_reload_successful", "gauge", (), "1 if the last configuration that was tried is in use, else 0.", "min"
)
RELOAD_AT = Metric(
    "streamer_config_last_reload_success_timestamp_seconds",
    "gauge",
    (),
    "When a configuration was last accepted, since the epoch.",
    "min",
)

METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
