"""Dashboard, rules and the table of metrics are those of this version, and ask only for what is there."""

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

from streamer import Engine
from streamer.metrics import METRICS, dashboard, names, rules, table
from tests.tools.ports import free_port

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

MakeEngine = Callable[..., Engine]

ROOT = Path(__file__).parents[2]
RULES, GRAFANA, PAGE = ROOT / "deploy/prometheus-rules.yaml", ROOT / "deploy/grafana.json", ROOT / "docs/metrics.md"
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


def test_what_is_committed_is_what_would_be_made() -> None:
    assert RULES.read_text(encoding="utf-8") == rules.write()
    assert GRAFANA.read_text(encoding="utf-8") == dashboard.write()
    page = PAGE.read_text(encoding="utf-8")
    assert page == table.into(page)


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
    ours = {label for metric in METRICS for label in metric.labels} | {"tenant"}
    theirs = {"job", "instance", "engine", "le"}
    for expression in expressions():
        for how, labels in re.findall(r"(by|without) \(([^)]*)\)", expression):
            assert set(labels.split(", ")) <= (ours if how == "without" else ours | theirs), expression


def test_no_rule_adds_up_engines_of_several_processes() -> None:
    """An engine's name is one in its process: ten pods may all have an engine 1."""
    for rule in (*rules.RECORDINGS, *rules.ALERTS):
        assert not re.search(r"\bby \(", rule.expr), rule


def test_each_alert_has_a_severity_and_a_place_in_the_runbook() -> None:
    headings = {line.removeprefix("### ").strip() for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:4] == "### "}
    assert headings == {alert.name for alert in rules.ALERTS}
    for alert in rules.ALERTS:
        assert alert.severity in ("critical", "warning")
        assert alert.runbook == f"docs/metrics.md#{alert.name.lower()}"


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
        {'streamer_bloom_rebuilds_total{engine="e", collection="orders", reason="rate"}': "0x40 8x10"},
    ),
    "StreamerReloadFailed": (
        {'streamer_config_last_reload_successful{engine="e"}': "1x40 0x10"},
        {'streamer_config_last_reload_successful{engine="e"}': "1x47 0x3"},
    ),
}


def at(instance: str, series: dict[str, str]) -> Iterator[str]:
    """Write the series of one of the processes of a job."""
    for name, values in series.items():
        name = name.replace("{", f'{{job="j", instance="{instance}", ')
        yield f"{{series: '{name}', values: '{values}'}}"


if PROMTOOL is not None:

    def test_promtool_accepts_the_rules() -> None:
        found = subprocess.run([str(PROMTOOL), "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        assert f"{len(rules.RECORDINGS) + len(rules.ALERTS)} rules found" in found.stdout

    @pytest.mark.parametrize("fires", [True, False])
    @pytest.mark.parametrize("alert", [alert.name for alert in rules.ALERTS])
    def test_each_alert_is_raised_for_what_it_tells_of_and_for_nothing_less(alert: str, fires: bool, tmp_path: Path) -> None:
        """Also where nine other processes with an engine of this name do well."""
        alarming, quiet = ALARMING[alert]
        others = [each for number in range(9) for each in at(f"other-{number}", quiet)]
        series = ", ".join([*at("one", alarming if fires else quiet), *others])
        samples = """[{labels: '{job="j", instance="one"}', value: 1}]""" if fires else "[]"
        firing = f'count by (job, instance) (ALERTS{{alertname="{alert}", alertstate="firing"}})'
        cases = tmp_path / "cases.yaml"
        cases.write_text(
            f"rule_files: ['{RULES}']\nevaluation_interval: 1m\ntests:\n"
            f"  - interval: 1m\n    input_series: [{series}]\n"
            f"    promql_expr_test: [{{expr: '{firing}', eval_time: 50m, exp_samples: {samples}}}]\n"
        )
        found = subprocess.run([str(PROMTOOL), "test", "rules", str(cases)], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr

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
