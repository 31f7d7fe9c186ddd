"""The page about a job: whole, self-contained, and safe whatever events and subscriptions are called."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from urllib.request import urlopen

import pytest

from streamer.spark.job.metrics import METRICS, Counts
from streamer.spark.job.report import COLLECTIONS, POINTS, Batch, Part, Point, Report, Stage, render

EMPTY = Report(title="A job", began=datetime(2026, 11, 21, 12, tzinfo=UTC), seconds=0.0)
FULL = Report(
    title="Flights",
    began=datetime(2026, 11, 21, 12, tzinfo=UTC),
    seconds=30.4,
    matching=20.0,
    facts={"strategy": "broadcast"},
    parts=[
        Part(tenant="default", collection="flights", events=900, matched=500, matches=2_500, pruned=100),
        Part(tenant="acme", collection="orders", events=90, matched=9, matches=9, pruned=80),
        Part(tenant=None, collection=None, events=10, rejected=10),
    ],
    codes={"malformed_json": 7, "bad_utf8": 3},
    points=[Point(0.5 * index, 40.0 + index) for index in range(20)],
    batches=[
        Batch(
            id=index,
            began=index * 1.0,
            seconds=0.5,
            events=50,
            matches=3,
            version="aaaabbbbcccc" if index < 5 else "ddddeeeeffff",
        )
        for index in range(20)
    ],
    stages=[Stage(id=3, name="matching", tasks=8, durations=(1.0, 1.5, 2.0, 2.5, 9.0), records=1_000, shuffled_bytes=5_000)],
)


class Checked(HTMLParser):
    """Reads a page, and insists that what is opened is closed."""

    VOID = frozenset({"meta"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data + " "

    def count(self, tag: str, kind: str) -> int:
        return sum(seen == tag and attributes.get("class") == kind for seen, attributes in self.seen)


def test_a_page_shows_what_was_counted() -> None:
    page = Checked(render(FULL))
    for text in (
        "Flights",
        "1k",
        "50 a second",
        "50.9 %",
        "2.51k",
        "flights",
        "acme / orders",
        "90.0 %",
        "malformed_json",
        "broadcast",
    ):
        assert text in page.text, text
    assert "2 collections; the largest, flights, has 90.0 % of the events, 1.8 times the mean." in page.text
    assert "The slowest task took 9 s, 4.5 times the median of its stage." in page.text
    assert "20 micro-batches, 2 versions of the subscriptions" in page.text


def test_each_new_version_of_the_subscriptions_has_a_flag() -> None:
    page = Checked(render(FULL))
    # Once beside the throughput, where the second begins, and twice beside the micro-batches.
    assert page.count("line", "flag") == 3
    assert "ddddeeee" in page.text


@pytest.mark.parametrize("report", [EMPTY, FULL, replace(FULL, batches=[]), replace(FULL, points=[], stages=[], codes={})])
def test_a_page_needs_nothing_else(report: Report) -> None:
    text = render(report)
    page = Checked(text)
    assert not [tag for tag, _ in page.seen if tag in ("script", "link", "img", "iframe")]
    assert not re.search(r"https?:|url\(|@import|src=", text)
    assert not re.search(r"\b(?:nan|inf)\b", text)


def test_a_job_without_events_says_so() -> None:
    assert "There was no event." in Checked(render(EMPTY)).text


def test_one_task_is_no_skew_and_a_small_share_no_markup() -> None:
    parts = [Part(tenant="default", collection="flights", events=100_000, matched=1, matches=1, pruned=99_999)]
    text = render(replace(FULL, parts=parts, stages=[replace(FULL.stages[0], tasks=1)]))
    assert "<small>&lt; 0.1 %</small>" in text
    assert not re.search(r"<\s|[^>]> 99", text)
    assert "<title>stage 3, 1 task</title>" in text
    assert "The slowest task took 9 s. " in text


def test_nobodys_names_become_markup() -> None:
    bad = '<script>alert("1")</script>&'
    report = replace(
        FULL,
        title=bad,
        facts={bad: bad},
        parts=[Part(tenant=bad, collection=bad, events=1)],
        codes={bad: 1},
        batches=[replace(FULL.batches[0], version=bad)],
        stages=[replace(FULL.stages[0], name=bad)],
    )
    text = render(report)
    page = Checked(text)
    assert "<script" not in text
    assert bad in page.text


def test_what_is_drawn_is_bounded() -> None:
    parts = [Part(tenant="default", collection=f"c{index}", events=1000 - index, matches=1) for index in range(900)]
    points = [Point(float(index), 10.0) for index in range(100_000)]
    batches = [Batch(id=index, began=float(index), seconds=1.0, events=1) for index in range(2_000)]
    text = render(replace(FULL, parts=parts, points=points, batches=batches))
    page = Checked(text)
    assert f"{900 - COLLECTIONS} others" in page.text
    assert page.count("rect", "matches") == COLLECTIONS + 1
    assert len(text) < 150_000
    assert text.count("batch ") <= POINTS + 10


def test_shares_and_counts_add_up() -> None:
    assert (FULL.events, FULL.total("matched"), FULL.total("rejected")) == (1000, 509, 10)
    assert FULL.skew == pytest.approx(900 / 495)
    assert EMPTY.skew == 0
    assert FULL.rate == 50


def test_the_guide_lists_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        assert f"| `{metric.sample}` | {metric.kind} | {labels} | {metric.help} |" in page


def test_metrics_add_up_and_are_bounded(tmp_path: Path) -> None:
    counts = Counts()
    rows = [
        {
            "tenant": "default",
            "collection": f"c{number}",
            "events": 10 + number,
            "matched": 2,
            "matches": 3,
            "rejected": 0,
            "ignored": 0,
            "pruned": 1,
        }
        for number in range(30)
    ]
    unread = {
        "tenant": None,
        "collection": None,
        "events": 4,
        "matched": 0,
        "matches": 0,
        "rejected": 4,
        "ignored": 0,
        "pruned": 0,
    }
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
