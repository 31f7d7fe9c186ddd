"""The report of a job and its metrics: they add up, and the guide describes them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from streamer.spark.job.arguments import Arguments, OnError, Strategy
from streamer.spark.job.metrics import FIELDS, METRICS, Batch, Counts
from streamer.spark.job.places import Format, Place
from streamer.spark.job.report import Account
from streamer.spark.job.stages import Stage, Task

GUIDE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def row(tenant: str | None, collection: str | None, **counts: int) -> dict[str, object]:
    return {"tenant": tenant, "collection": collection, **dict.fromkeys(FIELDS, 0), **counts}


def account(report: Path) -> Account:
    """An account of a thousand events in two collections, of which ten cannot be read."""
    counts = Counts()
    rows = [
        row("default", "flights", events=900, matched=500, matches=2_500, pruned=100),
        row("acme", "orders", events=90, matched=9, matches=9, pruned=80),
        row(None, None, events=10, rejected=10),
    ]
    counts.add(rows, {"malformed_json": 7, "bad_utf8": 3})
    counts.add_batch(Batch(id=0, began=1.0, seconds=20.0, events=1_000, matches=2_509, version="aaaa"))
    places = {"events": Place("in", Format.jsonl, {}), "out": Place("out", Format.parquet, {}), "rejected": None}
    rest = dict.fromkeys(("keep_event", "by_gateway", "overwrite", "stream"), False)
    none = dict.fromkeys(("backend", "batch_size", "checkpoint", "trigger", "metrics_file"))
    options = {"subscriptions": "s", "event_col": "value", "keep": (), "strategy": Strategy.auto, "on_error": OnError.reject}
    made = Account(Arguments(**places, **options, **rest, **none, report=str(report)), counts)  # type: ignore[arg-type]
    durations = {"min": 1.0, "p25": 1.5, "median": 2.0, "p75": 2.5, "max": 9.0}
    read = {"records": 1_000, "shuffled_records": 0, "shuffled_bytes": 5_000}
    tasks = [Task(began=0.5, seconds=9.0, records=1_000)]
    made.stages = [Stage(id=3, phase="matching", tasks=8, durations=durations, readers=tasks, **read)]
    return made


def test_a_report_adds_up(tmp_path: Path) -> None:
    made = account(tmp_path / "report.json")
    made.write(force=True)
    report = json.loads((tmp_path / "report.json").read_text())
    assert {name: report[name] for name in FIELDS} == {name: sum(part[name] for part in report["collections"]) for name in FIELDS}
    assert (report["events"], report["matched"], report["rejected"]) == (1_000, 509, sum(report["codes"].values()))
    assert report["skew"] == pytest.approx(900 / 495)
    assert (report["matching_seconds"], report["events_per_second"]) == (20, 50)
    assert Counts().skew == 0


def test_the_guide_lists_every_member_of_a_report(tmp_path: Path) -> None:
    report = account(tmp_path / "report.json").report()
    members = [report, report["arguments"], *(report[name][0] for name in ("collections", "batches", "stages"))]
    members += [report["stages"][0]["durations"], report["stages"][0]["readers"][0]]
    section = GUIDE.partition("### Its report")[2].partition("### ")[0]
    assert [name for each in members for name in each if f"`{name}`" not in section] == []


def test_the_guide_lists_every_metric() -> None:
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        assert f"| `{metric.sample}` | {metric.kind} | {labels} | {metric.help} |" in GUIDE


def test_metrics_add_up_and_are_bounded(tmp_path: Path) -> None:
    counts = Counts()
    rows = [row("default", f"c{number}", events=10 + number, matched=2, matches=3, pruned=1) for number in range(30)]
    unread = row(None, None, events=4, rejected=4)
    counts.add([*rows, unread], {"malformed_json": 4})
    counts.add(rows[:1])
    counts.write(tmp_path / "job.prom")
    samples = dict(line.rsplit(" ", 1) for line in (tmp_path / "job.prom").read_text().splitlines() if not line.startswith("#"))
    series = {name: float(value) for name, value in samples.items() if name.startswith("streamer_spark_events_total")}
    assert len(series) == 22
    assert sum(series.values()) == counts.total("events") == sum(10 + number for number in range(30)) + 4 + 10
    # The largest that came first keep their series.
    assert series['streamer_spark_events_total{collection="c29"}'] == 39
    assert series['streamer_spark_events_total{collection="other"}'] == sum(10 + number for number in range(10)) + 10
    assert samples['streamer_spark_events_rejected_total{code="malformed_json"}'] == "4.0"
    port, server = counts.serve(0)
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert "streamer_spark_matches_total" in answer.read().decode()
    server.shutdown()
    server.server_close()
