"""A scrape tells exactly what happened, of every engine on the registry, in Prometheus' own format."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from streamer import ConfigError, Engine, EventError
from streamer.bloom.manager import Reason
from streamer.bloom.state import FilterState
from streamer.metrics import METRICS, names
from streamer.metrics.samples import OTHER, Labels

MakeEngine = Callable[..., Engine]

ONE = [{"field": "a", "op": "==", "value": 1}]
GOOD, OTHER_EVENT = b'{"collection": "c", "data": {"a": 1}}', b'{"collection": "c", "data": {"a": 2}}'


def scrape(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Read what a scrape gives: name and labels to value."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return scrape(registry)[name, tuple(sorted(labels.items()))]


def buckets_of(registry: CollectorRegistry, name: str) -> dict[str, float]:
    """Read a histogram: upper bounds to how many there are up to them."""
    found = {dict(labels)["le"]: value for (sample, labels), value in scrape(registry).items() if sample == f"{name}_bucket"}
    assert list(map(float, found)) == sorted(map(float, found))
    assert list(found.values()) == sorted(found.values())
    return found


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def use(e: Engine) -> None:
    """Seven events: three match, two do not, two cannot be read."""
    for event in (GOOD, GOOD, OTHER_EVENT):
        e.match_ids(event)
    e.match_batch([GOOD, OTHER_EVENT, b"{"])
    with pytest.raises(EventError):
        e.match(b"[]")


def test_counts_are_exact_and_add_up(engine: MakeEngine, registry: CollectorRegistry) -> None:
    e = engine()
    e.add_many([{"id": "a", "filters": ONE}, {"id": "b", "filters": ONE}])
    e.metrics.register(registry)
    use(e)
    assert value(registry, "streamer_events_total", engine="1") == 7
    assert value(registry, "streamer_events_matched_total", engine="1") == 3
    assert value(registry, "streamer_events_unmatched_total", engine="1") == 2
    assert value(registry, "streamer_events_rejected_total", engine="1", code="malformed_json") == 1
    assert value(registry, "streamer_events_rejected_total", engine="1", code="not_an_object") == 1
    assert value(registry, "streamer_matches_total", engine="1") == 6
    assert value(registry, "streamer_subscriptions", engine="1") == 2
    rejected = sum(value for (name, _), value in scrape(registry).items() if name == "streamer_events_rejected_total")
    assert 3 + 2 + rejected == 7


def test_errors_of_cel_and_the_cache_are_counted(engine: MakeEngine, registry: CollectorRegistry) -> None:
    e = engine()
    e.add({"id": "a", "cel": "data.a + 9223372036854775807 > 0"})
    e.metrics.register(registry)
    e.match_ids(GOOD)
    (reason,) = e.cel_errors
    assert value(registry, "streamer_cel_errors_total", engine="1", reason=reason) == 1
    assert value(registry, "streamer_cel_duration_seconds_count", engine="1") == 1
    assert value(registry, "streamer_cel_cache_programs", engine="1") == 1
    e.add({"id": "again", "cel": "data.a + 9223372036854775807 > 0"})
    assert value(registry, "streamer_cel_cache_hits_total", engine="1") == e._programs.hits >= 1
    assert value(registry, "streamer_cel_cache_misses_total", engine="1") == e._programs.misses


def test_the_subscriptions_with_the_most_errors_are_named(engine: MakeEngine) -> None:
    """Whichever evaluator has them, natively counted or not; one that was removed is not."""
    e = engine()
    wrong = "data.a + 9223372036854775807 > 0"
    e.add_many(
        [{"id": "always", "cel": wrong}, {"id": "rarely", "cel": f"data.b == 1 && {wrong}"}, {"id": "never", "cel": "true"}]
    )
    e.add({"id": "portable", "cel": f"data.c == 1 && {wrong}", "cel_evaluator": "portable"})
    e.add({"id": "removed", "cel": wrong})
    for n in range(20):
        e.match_ids({"data": {"a": 1, "b": int(n < 5), "c": int(n < 3)}})
    e.remove("removed")
    worst = [(each.subscription_id, each.errors) for each in e.cel_errors.worst]
    assert worst == [("always", 20), ("rarely", 5), ("portable", 3)]
    assert sum(e.cel_errors.values()) == 48
    told = e.stats()
    assert told.failing == e.cel_errors.worst
    assert told.to_dict()["failing"][0] == {"subscription_id": "always", "errors": 20, "reason": told.failing[0].reason}
    assert f"most of them in always 20 ({told.failing[0].reason}), rarely 5" in str(told)


def test_errors_of_a_subscription_begin_anew_with_another_text(engine: MakeEngine) -> None:
    """Somebody who mends one sees that it is mended; what failed in all stays counted."""
    e = engine()
    wrong = "data.a + 9223372036854775807 > 0"
    ways = [{"id": each, "cel": wrong, "cel_evaluator": each} for each in ("native", "portable")]
    e.add_many(ways)
    for _ in range(5):
        e.match_ids({"data": {"a": 1}})
    assert {each.subscription_id: each.errors for each in e.cel_errors.worst} == {"native": 5, "portable": 5}
    e.apply(ways)
    assert [each.errors for each in e.cel_errors.worst] == [5, 5], "the same text goes on"
    e.add_many([each | {"cel": f"{wrong} || {wrong}"} for each in ways], replace=True)
    assert e.cel_errors.worst == ()
    e.match_ids({"data": {"a": 1}})
    assert [each.errors for each in e.cel_errors.worst] == [1, 1]
    for each in ways:
        e.remove(each["id"])
    e.add_many(ways)
    assert e.cel_errors.worst == ()
    assert e.stats().failing == ()
    assert sum(e.cel_errors.values()) == 12


def test_histograms_resolve_microseconds_and_are_cumulative(engine: MakeEngine, registry: CollectorRegistry) -> None:
    e = engine()
    e.metrics.register(registry)
    for _ in range(100):
        e.match_ids(GOOD)
    buckets = buckets_of(registry, "streamer_event_duration_seconds")
    assert sum(1e-6 <= float(bound) <= 1e-3 for bound in buckets) == 10
    assert buckets["+Inf"] == value(registry, "streamer_event_duration_seconds_count", engine="1") >= 1


def test_matches_and_candidates_of_each_event_that_could_be_read_are_in_buckets(
    engine: MakeEngine, registry: CollectorRegistry
) -> None:
    e = engine()
    e.add_many([{"id": f"s{n}", "filters": ONE} for n in range(7)])
    e.metrics.register(registry)
    use(e)
    matches, candidates = (buckets_of(registry, f"streamer_event_{name}") for name in ("matches", "candidates"))
    assert (matches["0.0"], matches["5.0"], matches["10.0"], matches["+Inf"]) == (2, 2, 5, 5)
    # The reference looks at all seven for each event; the native core at one for all of them, and where nothing matches at none.
    assert candidates["0.0"] <= 2
    assert candidates["10.0"] == candidates["+Inf"] == 5
    for name in ("matches", "candidates"):
        assert value(registry, f"streamer_event_{name}_count", engine="1") == 5
        assert value(registry, f"streamer_event_{name}_sum", engine="1") == value(registry, f"streamer_{name}_total", engine="1")


def test_two_engines_share_a_registry(engine: MakeEngine, registry: CollectorRegistry) -> None:
    orders, users = engine(), engine()
    orders.metrics.register(registry, name="orders")
    users.metrics.register(registry, name="users")
    use(orders)
    assert value(registry, "streamer_events_total", engine="orders") == 7
    assert value(registry, "streamer_events_total", engine="users") == 0
    text = generate_latest(registry).decode()
    assert len(re.findall(r"^# HELP streamer_events_total ", text, re.M)) == 1
    with pytest.raises(ValueError, match="'users'"):
        engine().metrics.register(registry, name="users")


def test_engines_without_a_name_are_numbered(engine: MakeEngine, registry: CollectorRegistry) -> None:
    engines = [engine() for _ in range(3)]
    registrations = [e.metrics.register(registry) for e in engines]
    assert [each.name for each in registrations] == ["1", "2", "3"]
    registrations[1].close()
    assert engine().metrics.register(registry).name == "2"


def test_a_dropped_engine_disappears(engine: MakeEngine, registry: CollectorRegistry) -> None:
    e = engine()
    e.metrics.register(registry, name="gone")
    assert value(registry, "streamer_events_total", engine="gone") == 0
    del e
    gc.collect()
    assert scrape(registry) == {}
    again = engine()
    with again.metrics.register(registry, name="gone"):
        assert value(registry, "streamer_events_total", engine="gone") == 0
    assert scrape(registry) == {}


def test_every_metric_has_a_conventional_name_and_a_help(engine: MakeEngine, registry: CollectorRegistry) -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"streamer_[a-z_]+", metric.name), metric
        assert metric.help.endswith("."), metric
        assert not metric.name.endswith("_total"), metric
        assert ("_seconds" in metric.name) == (metric.unit > 1 or metric is names.RELOAD_AT), metric


def test_both_formats_can_be_read_and_hold_nothing_that_is_not_declared(engine: MakeEngine, registry: CollectorRegistry) -> None:
    e = engine()
    e.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(200))
    e.add({"id": "cel", "collection": "c", "cel": "data.missing == 1"})
    e.metrics.register(registry, tenants=True)
    use(e)
    declared = {sample for metric in METRICS for sample in metric.samples}
    assert {name for name, _ in scrape(registry)} <= declared
    found = {family.name: family for family in read_openmetrics(openmetrics(registry).decode())}
    for name, family in found.items():
        metric = next(metric for metric in METRICS if metric.name == name)
        assert (family.type, family.documentation) == (metric.kind, metric.help)


# The labels of filters


def filter_state(collection: str, tenant: str = "t", **other: object) -> FilterState:
    state = FilterState(
        tenant, collection, "blocked", version=1, keys=10, capacity=100, stale=0, keyed=10, unkeyed=0, bits=800, fill=0.1
    )
    return replace(state, **other)  # type: ignore[arg-type]


def sums(
    labels: Labels, *states: FilterState, rebuilds: dict[tuple[tuple[str, str], Reason], int] | None = None
) -> dict[object, float]:
    read = labels.read(states, (), rebuilds or {}, {})
    return {(sample.metric, *sample.labels): sample.value for sample in read if isinstance(sample.value, int | float)}


def test_what_comes_after_the_first_collections_is_other() -> None:
    labels = Labels(2, tenants=False)
    states = [filter_state(f"c{n}", keyed=n, asked=10 * n, no=n) for n in range(1, 5)]
    told = sums(labels, *states)
    assert told[names.BLOOM_SUBSCRIPTIONS, "c4"] == 4
    assert told[names.BLOOM_SUBSCRIPTIONS, "c3"] == 3
    assert told[names.BLOOM_SUBSCRIPTIONS, OTHER] == 3
    assert told[names.BLOOM_MISSES, OTHER] == 3
    assert told[names.BLOOM_HITS, "c4"] == 36
    assert not any("c1" in key for key in told if isinstance(key, tuple))


def test_no_counter_falls_when_a_filter_goes_or_another_grows() -> None:
    labels = Labels(1, tenants=False)
    sums(labels, filter_state("a", keyed=50, asked=10), filter_state("b", asked=20), filter_state("d", asked=5))
    # What was small is large now, and one of the others is gone.
    told = sums(labels, filter_state("a", asked=11), filter_state("b", keyed=500, asked=25))
    assert (told[names.BLOOM_HITS, "a"], told[names.BLOOM_HITS, OTHER]) == (11, 30)
    told = sums(labels, filter_state("d", asked=2))
    assert (told[names.BLOOM_HITS, "a"], told[names.BLOOM_HITS, OTHER]) == (11, 32)


def test_tenants_of_a_collection_are_one_series_unless_asked_for() -> None:
    states = [filter_state("c", "t1", asked=1), filter_state("c", "t2", asked=2, sampled=4, false_positives=1)]
    assert sums(Labels(9, tenants=False), *states)[names.BLOOM_HITS, "c"] == 3
    told = sums(Labels(9, tenants=True), *states)
    assert told[names.BLOOM_HITS, "t2", "c"] == 2
    assert told[names.BLOOM_RATE, "t2", "c"] == 0.25
    assert (names.BLOOM_RATE, "t1", "c") not in told


def test_what_has_not_happened_yet_is_told_as_none(engine: MakeEngine, registry: CollectorRegistry) -> None:
    """A rate needs a value before the first: an alert on failures would miss it."""
    e = engine()
    e.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(100))
    e.metrics.register(registry, name="e")
    told = scrape(registry)
    labels = (("collection", "c"), ("engine", "e"))
    assert told["streamer_bloom_rebuild_failures_total", labels] == 0
    reasons = {dict(of)["reason"]: value for (name, of), value in told.items() if name == "streamer_bloom_rebuilds_total"}
    assert reasons == dict.fromkeys(("capacity", "stale", "rate", "interval", "asked"), 0)


def test_rebuilds_are_counted_by_reason() -> None:
    told = sums(
        Labels(9, tenants=False), filter_state("c"), rebuilds={(("t", "c"), Reason.RATE): 2, (("u", "c"), Reason.RATE): 1}
    )
    assert told[names.REBUILDS, "c", "rate"] == 3


def test_the_last_reload_is_told(engine: MakeEngine, registry: CollectorRegistry, tmp_path: Path) -> None:
    file = tmp_path / "streamer.yaml"
    file.write_text("matching: {cel: {cache_size: 10}}\n")
    e = Engine.from_config(file)
    e.metrics.register(registry)
    assert value(registry, "streamer_config_last_reload_successful", engine="1") == 1
    good_at = value(registry, "streamer_config_last_reload_success_timestamp_seconds", engine="1")
    file.write_text("matching: {cel: {cache_size: none}}\n")
    with pytest.raises(ConfigError):
        e.reload()
    assert value(registry, "streamer_config_last_reload_successful", engine="1") == 0
    assert value(registry, "streamer_config_last_reload_success_timestamp_seconds", engine="1") == good_at
    plain = engine()
    plain.metrics.register(registry, name="plain")
    assert ("streamer_config_last_reload_successful", (("engine", "plain"),)) not in scrape(registry)
