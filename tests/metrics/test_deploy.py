"""Dashboard and rules query only metrics that exist, and each alert fires and clears."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.monitoring import dashboard, rules
from streamer import Engine
from streamer.metrics import names, service
from tests.tools.ports import free_port

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

MakeEngine = Callable[..., Engine]

ROOT = Path(__file__).parents[2]
RULES, GRAFANA = ROOT / "deploy/prometheus-rules.yaml", ROOT / "deploy/grafana.json"
RUNBOOK = ROOT / "docs/runbook.md"
METRICS = (*names.METRICS, *service.METRICS)
SAMPLES = {sample for metric in METRICS for sample in metric.samples}

# Where Prometheus is not installed there is nothing to ask: CI installs it.
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
GRAFANA_SDK = importlib.util.find_spec("grafana_foundation_sdk")
SDK_MODULES = ("cog.encoder", "cog.plugins", "models.dashboard")


def asked_for(expression: str) -> set[str]:
    return set(re.findall(r"\bstreamer_[a-z_]+", re.sub(r"\w+:[a-z_:0-9]+", "", expression)))


def expressions() -> Iterator[str]:
    yield from (each.expr for each in (*rules.RECORDINGS, *rules.ALERTS))
    yield from (expr for _, row in dashboard.ROWS for panel in row for expr, _ in panel.queries)


def test_each_metric_that_is_asked_for_is_there_and_each_that_is_there_is_shown() -> None:
    asked = {name for expression in expressions() for name in asked_for(expression)}
    assert asked <= SAMPLES
    shown = {name for _, row in dashboard.ROWS for panel in row for expr, _ in panel.queries for name in asked_for(expr)}
    assert {metric.name for metric in METRICS if not set(metric.samples) & shown} == set()


def test_recorded_names_that_alerts_use_are_recorded() -> None:
    recorded = {each.record for each in rules.RECORDINGS}
    used = {name for alert in rules.ALERTS for name in re.findall(r"\w+:[a-z_:0-9]+", alert.expr)}
    assert used
    assert used <= recorded


def test_labels_that_are_asked_for_are_there() -> None:
    # The processes of one store differ in the last two.
    ours = {label for metric in METRICS for label in metric.labels} | {"tenant", "instance", "pod"}
    theirs = {"job", "instance", "engine", "le"}
    for expression in expressions():
        for how, labels in re.findall(r"(by|without) \(([^)]*)\)", expression):
            assert set(labels.split(", ")) <= (ours if how == "without" else ours | theirs), expression


def test_no_rule_adds_up_engines_of_several_processes() -> None:
    """An engine's name is one in its process: ten pods may all have an engine 1."""
    for rule in (*rules.RECORDINGS, *rules.ALERTS):
        assert not re.search(r"\bby \(", rule.expr), rule


def test_each_alert_has_a_severity_and_a_place_in_the_runbook() -> None:
    sections = RUNBOOK.read_text(encoding="utf-8").split("\n### ")[1:]
    assert [section.partition("\n")[0] for section in sections] == [alert.name for alert in rules.ALERTS]
    for alert, section in zip(rules.ALERTS, sections, strict=True):
        assert alert.severity in ("critical", "warning")
        assert alert.runbook == f"docs/runbook.md#{alert.name.lower()}"
        parts = [section.find(part) for part in ("**Meaning.**", "**Look at**", "**Do.**")]
        assert -1 < parts[0] < parts[1] < parts[2], alert.name


def test_what_concerns_a_store_names_no_process() -> None:
    """Each process of a shared store reports it, or the one that delivers now."""
    assert "StreamerStoreIsNearlyFull" in OF_STORES
    for alert in rules.ALERTS:
        assert ("$labels.instance" in alert.description) == (alert.name not in OF_STORES), alert.name


def test_panels_stand_on_the_grid_without_touching() -> None:
    panels = json.loads(GRAFANA.read_text(encoding="utf-8"))["panels"]
    seen: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & seen, panel["title"]
        assert at["x"] + at["w"] <= dashboard.COLUMNS
        seen |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


if GRAFANA_SDK is not None:

    def test_grafanas_own_types_know_every_member_of_the_dashboard() -> None:
        """Each comes back from them as it was given; what Grafana does not know it would drop in silence."""
        encoder, plugins, models = (importlib.import_module(f"grafana_foundation_sdk.{name}") for name in SDK_MODULES)
        plugins.register_default_plugins()
        given = dashboard.dashboard()
        known = json.loads(encoder.JSONEncoder(sort_keys=True, indent=None).encode(models.Dashboard.from_json(given)))
        # A member of Prometheus' annotations alone.
        known["annotations"]["list"][0]["titleFormat"] = "{{alertname}}"
        assert list(lost(given, known)) == []


def lost(given: Any, known: Any, place: str = "") -> Iterator[str]:
    """Yield the places of what was given and is not known, or known to be something else."""
    if isinstance(given, dict) and isinstance(known, dict):
        for name, value in given.items():
            yield from lost(value, known.get(name), f"{place}.{name}")
    elif isinstance(given, list) and isinstance(known, list) and len(given) == len(known):
        for at, (one, other) in enumerate(zip(given, known, strict=True)):
            yield from lost(one, other, f"{place}[{at}]")
    elif given != known:
        yield f"{place}: {given!r}, not {known!r}"


EVENTS, REJECTED = 'streamer_events_total{engine="e"}', 'streamer_events_rejected_total{engine="e", code="%s"}'
BUCKET = 'streamer_event_duration_seconds_bucket{engine="e", le="%s"}'
CEL_ERRORS = 'streamer_cel_errors_total{engine="e", reason="%s"}'
OF_ORDERS = '{engine="e", collection="orders"}'
OF_SOURCE, OF_OTHER, OF_SINK, STARTED = '{source="s"}', '{source="o"}', '{sink="hooks"}', "process_start_time_seconds{}"
#: Of each alert series that raise it within 50 minutes, and some that just do not. The last minutes count.
ALARMING: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    # What it is quiet about is a target that never had an engine.
    "StreamerIsDown": ({"up{}": "1x40 0x10", 'streamer_build_info{engine="e"}': "1x40 stale"}, {"up{}": "0x50"}),
    "StreamerSeesNoEvents": ({EVENTS: "0+100x10 1000x40"}, {EVENTS: "0+100x30 3000x20"}),
    "StreamerRejectsEvents": (
        {EVENTS: "0+1000x50", REJECTED % "too_deep": "0+11x50"},
        {EVENTS: "0+1000x50", REJECTED % "too_deep": "0+9x50"},
    ),
    "StreamerFails": ({REJECTED % "internal": "0x45 1x5"}, {REJECTED % "internal": "7x50", REJECTED % "too_deep": "0+9x50"}),
    "StreamerIsSlow": (
        {BUCKET % "0.01": "0+98x50", BUCKET % "0.1": "0+100x50", BUCKET % "+Inf": "0+100x50"},
        {BUCKET % "0.01": "0+100x50", BUCKET % "0.1": "0+100x50", BUCKET % "+Inf": "0+100x50"},
    ),
    "StreamerCelErrors": (
        {EVENTS: "0+1000x50", CEL_ERRORS % "not_bool": "0+60x50", CEL_ERRORS % "overflow": "0+60x50"},
        {EVENTS: "0+1000x50", CEL_ERRORS % "not_bool": "0+90x50"},
    ),
    "StreamerBudgetExceeded": (
        {CEL_ERRORS % "budget": "0x50", CEL_ERRORS % "regexp_budget": "0x45 1x5"},
        {CEL_ERRORS % "budget": "5x50", CEL_ERRORS % "overflow": "0+9x50"},
    ),
    "StreamerFilterSaturated": (
        {f"streamer_bloom_filter_saturated{OF_ORDERS}": "1x50"},
        {f"streamer_bloom_filter_saturated{OF_ORDERS}": "0x40 1x10"},
    ),
    "StreamerRebuildsFail": (
        {f"streamer_bloom_rebuild_failures_total{OF_ORDERS}": "0x45 1x5"},
        {f"streamer_bloom_rebuild_failures_total{OF_ORDERS}": "3x50"},
    ),
    "StreamerRebuildsTooOften": (
        {'streamer_bloom_rebuilds_total{engine="e", collection="orders", reason="rate"}': "0x40 20x10"},
        {'streamer_bloom_rebuilds_total{engine="e", collection="orders", reason="rate"}': "0+0.15x50"},
    ),
    "StreamerReloadFailed": (
        {'streamer_config_last_reload_successful{engine="e"}': "1x40 0x10"},
        {'streamer_config_last_reload_successful{engine="e"}': "1x47 0x3"},
    ),
    "StreamerServiceNotReady": ({"streamer_service_ready{}": "1x40 0x10"}, {"streamer_service_ready{}": "1x49 0x1"}),
    "StreamerServiceRestarts": (
        {STARTED: "1x10 2x10 3x10 4x20", "streamer_service_ready{}": "1x50"},
        {STARTED: "1x10 2x10 3x30", "streamer_service_ready{}": "1x50"},
    ),
    "StreamerServiceRejectsEvents": (
        {
            f"streamer_service_events_read_total{OF_SOURCE}": "0+1000x50",
            f"streamer_service_events_rejected_total{OF_SOURCE}": "0+11x50",
        },
        {
            f"streamer_service_events_read_total{OF_SOURCE}": "0+1000x50",
            f"streamer_service_events_rejected_total{OF_SOURCE}": "0+9x50",
        },
    ),
    "StreamerSourceIsDown": (
        {f"streamer_service_source_up{OF_SOURCE}": "1x40 0x10"},
        {f"streamer_service_source_up{OF_SOURCE}": "1x46 0x4"},
    ),
    "StreamerSourceIsLate": (
        {f"streamer_service_source_lag_seconds{OF_SOURCE}": "0x20 0+60x30"},
        {f"streamer_service_source_lag_seconds{OF_SOURCE}": "0x46 301x4"},
    ),
    "StreamerSourceIsBehind": (
        {f"streamer_service_source_lag_messages{OF_SOURCE}": "0x20 2000000x30"},
        {
            f"streamer_service_source_lag_messages{OF_SOURCE}": "1000000x50",
            f"streamer_service_source_lag_bytes{OF_SOURCE}": "1000000000x40 2000000000x10",
        },
    ),
    "StreamerSlotGrows": (
        # It grows fast, and one scrape in the last minutes has no value.
        {f"streamer_service_slot_bytes{OF_SOURCE}": "0x30 0+1000000000x15 _ 16000000000 17000000000 18000000000"},
        # It is large and stays so, as after a burst; a small one may grow.
        {f"streamer_service_slot_bytes{OF_SOURCE}": "20000000000x50", f"streamer_service_slot_bytes{OF_OTHER}": "0+1000x50"},
    ),
    "StreamerDeadLettersGrow": (
        {f"streamer_service_matches_dead_total{OF_SINK}": "0x45 1x5"},
        {
            f"streamer_service_matches_dead_total{OF_SINK}": "7x50",
            'streamer_service_matches_dead_total{sink="gateways:webhook"}': "0+9x50",
            f"streamer_service_events_rejected_total{OF_SOURCE}": "3x50",
        },
    ),
    "StreamerSpoolIsOld": (
        {f"streamer_service_spool_oldest_seconds{OF_SINK}": "0x20 0+60x30"},
        {
            f"streamer_service_spool_oldest_seconds{OF_SINK}": "0x46 901x4",
            'streamer_service_spool_oldest_seconds{sink="gateways:stream"}': "86400x50",
        },
    ),
    "StreamerBreakerIsOpen": (
        {f"streamer_service_breaker{OF_SINK}": "0x30 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1"},
        {f"streamer_service_breaker{OF_SINK}": "2x30 0x15 2x5"},
    ),
    "StreamerKeysAreStuck": (
        {
            f"streamer_service_spool_blocked_keys{OF_SINK}": "0x10 1x40",
            f"streamer_service_spool_oldest_seconds{OF_SINK}": "0x10 0+60x40",
            f"streamer_service_spool_stuck_messages{OF_SINK}": "0x50",
        },
        {
            # A busy endpoint has some other key that waits in each scrape.
            f"streamer_service_spool_blocked_keys{OF_SINK}": "3x50",
            f"streamer_service_spool_oldest_seconds{OF_SINK}": "2x50",
            'streamer_service_spool_oldest_seconds{sink="gateways:webhook"}': "86400x50",
            'streamer_service_spool_blocked_keys{sink="gateways:webhook"}': "7x50",
        },
    ),
    "StreamerMatchesUnrouted": (
        {"streamer_service_matches_unrouted_total{}": "0x45 1x5"},
        {"streamer_service_matches_unrouted_total{}": "5x50", "streamer_service_matches_dropped_total{}": "5+9x50"},
    ),
    "StreamerLeaseExpires": (
        {"streamer_service_subscriptions_expiring{}": "0x45 1x5", "streamer_service_subscriptions_expired_total{}": "3x50"},
        {"streamer_service_subscriptions_expiring{}": "0x50", "streamer_service_subscriptions_expired_total{}": "3x50"},
    ),
    "StreamerStoreIsNearlyFull": (
        {'streamer_service_store_used_ratio{part="disk"}': "0.5x20 0.95x30"},
        {'streamer_service_store_used_ratio{part="disk"}': "0.9x42 0.95x8"},
    ),
}
#: A second way to raise an alert that has several.
ALSO: dict[str, dict[str, str]] = {
    "StreamerDeadLettersGrow": {f"streamer_service_events_rejected_total{OF_SOURCE}": "0x45 1x5"},
    "StreamerSourceIsBehind": {f"streamer_service_source_lag_bytes{OF_SOURCE}": "2000000000x50"},
    "StreamerBreakerIsOpen": {f"streamer_service_breaker{OF_SINK}": "3x50"},
    "StreamerKeysAreStuck": {
        f"streamer_service_spool_blocked_keys{OF_SINK}": "0x50",
        f"streamer_service_spool_stuck_messages{OF_SINK}": "1x50",
    },
    "StreamerLeaseExpires": {
        "streamer_service_subscriptions_expiring{}": "0x50",
        "streamer_service_subscriptions_expired_total{}": "3x45 4x5",
    },
}
#: What concerns a store, and not one of its processes.
OF_STORES = {alert.name for alert in rules.ALERTS if "max without (instance, pod)" in alert.expr}
#: The series of a process that is well again, if the ones that are just quiet have too much in two times 50 minutes.
CLEARED: dict[str, dict[str, str]] = {
    "StreamerIsDown": {"up{}": "1x102", 'streamer_build_info{engine="e"}': "1x102"},
    "StreamerServiceRestarts": {STARTED: "4x102", "streamer_service_ready{}": "1x102"},
}


def at(instance: str, series: dict[str, str], job: str) -> Iterator[str]:
    """Write the series of one of the processes of a job."""
    for name, values in series.items():
        name = name.replace("{", f'{{job="{job}", instance="{instance}", ').replace(", }", "}")
        yield f"{{series: '{name}', values: '{values}'}}"


def test_each_alert_has_series_that_raise_it() -> None:
    """Also where promtool is missing, and cannot try them."""
    assert ALARMING.keys() == {alert.name for alert in rules.ALERTS}
    assert ALSO.keys() <= ALARMING.keys()
    for alert in rules.ALERTS:
        alarming, quiet = ALARMING[alert.name]
        for series in (alarming, quiet, ALSO.get(alert.name, {})):
            given = {name.partition("{")[0] for name in series}
            assert {name for name in given if name.startswith("streamer_")} <= SAMPLES


if PROMTOOL is not None:

    def test_promtool_accepts_the_rules() -> None:
        found = subprocess.run([str(PROMTOOL), "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        assert f"{len(rules.RECORDINGS) + len(rules.ALERTS)} rules found" in found.stdout

    def test_each_alert_is_raised_for_what_it_tells_of_and_for_nothing_less_and_clears(tmp_path: Path) -> None:
        """Also where nine other processes with an engine of this name do well. Each alert has jobs of its own."""
        short, long = Cases(), Cases()
        for alert, (alarming, quiet) in ALARMING.items():
            well = CLEARED.get(alert) or {name: f"{values} {values}" for name, values in quiet.items()}
            # A series that only one of them has is new, or ends.
            both = {name: f"{alarming.get(name, '_x50')} {well.get(name, 'stale')}" for name in {**alarming, **well}}
            short.add(alert, "raised", [("one", alarming), *((f"other-{n}", quiet) for n in range(9))], {50: True})
            short.add(alert, "quiet", [("one", quiet), *((f"other-{n}", quiet) for n in range(9))], {50: False})
            # The longest range of a rule is an hour.
            long.add(alert, "cleared", [("one", both)], {50: True, 152: False})
            if alert in ALSO:
                short.add(alert, "raised by the other cause", [("one", ALSO[alert])], {50: True})
        check(tmp_path, short, long)

    class Cases:
        """A test of promtool: series of jobs that have nothing to do with each other, and which alerts they raise."""

        def __init__(self) -> None:
            self._series: list[str] = []
            self._expected: list[str] = []

        def add(self, alert: str, name: str, processes: list[tuple[str, dict[str, str]]], fires: dict[int, bool]) -> None:
            """Add a job: whether an alert of its process `one` fires after so many minutes, and no other one's."""
            job = f"{alert} {name}"
            self._series += (each for instance, series in processes for each in at(instance, series, job))
            firing = f'count by (job, instance) (ALERTS{{job="{job}", alertname="{alert}", alertstate="firing"}})'
            # What is true of a store is raised once, for all of its processes.
            instance = "" if alert in OF_STORES else ', instance="one"'
            one = f"""[{{labels: '{{job="{job}"{instance}}}', value: 1}}]"""
            self._expected += (
                f"{{expr: '{firing}', eval_time: {minute}m, exp_samples: {one if does else '[]'}}}"
                for minute, does in fires.items()
            )

        def __str__(self) -> str:
            series, expected = ", ".join(self._series), ", ".join(self._expected)
            return f"  - interval: 1m\n    input_series: [{series}]\n    promql_expr_test: [{expected}]\n"

    def check(folder: Path, *cases: Cases) -> None:
        path = folder / "cases.yaml"
        path.write_text(f"rule_files: ['{RULES}']\nevaluation_interval: 1m\ntests:\n" + "".join(map(str, cases)))
        found = subprocess.run([str(PROMTOOL), "test", "rules", str(path)], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr

    def test_an_alert_outlasts_a_change_of_the_process_that_delivers(tmp_path: Path) -> None:
        breaker = f"streamer_service_breaker{OF_SINK}"
        moved = Cases()
        moved.add(
            "StreamerBreakerIsOpen", "moved", [("one", {breaker: "2x45 stale"}), ("two", {breaker: "_x45 2x5"})], {50: True}
        )
        check(tmp_path, moved)

    def test_promtool_finds_the_names_conventional(engine: MakeEngine) -> None:
        e = engine()
        e.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(200))
        with e.serve_metrics(0) as server:
            text = get(server.url)
        ours = "\n".join(line for line in text.decode().splitlines() if "streamer_" in line) + "\n"
        found = subprocess.run([str(PROMTOOL), "check", "metrics"], input=ours, capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, "")


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: bytes = answer.read()
        return text


if PROMETHEUS is not None:

    def test_a_real_prometheus_counts_what_happened(engine: MakeEngine, tmp_path: Path) -> None:
        e = engine()
        e.add({"id": "a", "filters": [{"field": "a", "op": "==", "value": 1}]})
        with e.serve_metrics(0, name="real") as server:
            config = tmp_path / "prometheus.yml"
            config.write_text(
                f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{RULES}']\n"
                f"scrape_configs: [{{job_name: streamer, static_configs: [{{targets: ['127.0.0.1:{server.port}']}}]}}]\n"
            )
            address = f"127.0.0.1:{free_port()}"
            arguments = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}"]
            with (tmp_path / "log").open("wb") as log:
                process = subprocess.Popen([str(PROMETHEUS), *arguments], stdout=log, stderr=log)
            try:
                for _ in range(5):
                    e.match_batch([b'{"data": {"a": 1}}', b'{"data": {"a": 2}}', b"{", b"[]"])

                def ask(query: str) -> dict[str, float]:
                    url = f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": query})
                    try:
                        told: dict[str, Any] = json.loads(get(url))
                    except OSError:
                        return {}
                    return {each["metric"].get("code", ""): float(each["value"][1]) for each in told["data"]["result"]}

                deadline = time.monotonic() + 30
                while ask(names.EVENTS.sample) != {"": 20.0}:
                    assert process.poll() is None, (tmp_path / "log").read_text()
                    assert time.monotonic() < deadline, ask(names.EVENTS.sample)
                    time.sleep(0.1)
                assert ask(names.MATCHED.sample) == ask(names.UNMATCHED.sample) == {"": 5.0}
                rejected = {"malformed_json": 5.0, "not_an_object": 5.0}
                assert ask(f"{names.REJECTED.sample} > 0") == rejected
                left = f"{names.EVENTS.sample} - {names.MATCHED.sample} - {names.UNMATCHED.sample}"
                assert ask(f"{left} - on (engine) sum by (engine) ({names.REJECTED.sample})") == {"": 0.0}
                for expression in expressions():
                    query = re.sub(r"\$(job|instance|engine)", ".*", expression).replace("$__rate_interval", "1m")
                    # An error of the query is one of HTTP.
                    assert json.loads(get(f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": query})))
                groups = json.loads(get(f"http://{address}/api/v1/rules"))["data"]["groups"]
                assert sum(len(group["rules"]) for group in groups) == len(rules.RECORDINGS) + len(rules.ALERTS)
            finally:
                process.terminate()
                process.wait(30)
