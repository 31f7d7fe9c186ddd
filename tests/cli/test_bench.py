"""`streamer bench` measures an engine; how long things take is no matter of a test, what they were is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import EVENTS, Run

#: Long enough for all of three events and subscriptions, whatever else the machine does.
SHORT = ("--seconds", "0.3")


def test_all_figures_are_of_the_events_and_subscriptions_that_were_given(run: Run) -> None:
    ran = run("bench", "-s", "subs.jsonl", "events.jsonl", *SHORT, "-o", "json", "--rate", "2000")
    assert (ran.returncode, ran.stderr) == (0, b"")
    told = json.loads(ran.stdout)
    # Three events: one matches `big`, one `paid`.
    assert (told["subscriptions"], told["events"], told["matches"]) == (2, 3, pytest.approx(2 / 3))
    third = pytest.approx(1 / 3)
    assert {(each["kind"], each["subscriptions"], each["matches"] == third) for each in told["kinds"]} == {
        ("filters", 1, True),
        ("topic", 1, True),
    }
    assert {(each["subscription_id"], each["matches"] == third) for each in told["alone"]} == {("big", True), ("paid", True)}
    for table in (told["kinds"], told["alone"]):
        assert [each["seconds"] for each in table] == sorted((each["seconds"] for each in table), reverse=True)
    assert told["events_per_second"] > 0
    assert told["reading"] > 0
    assert told["finding"] + told["objects"] >= 0
    assert list(told["latency"]) == list(told["at_rate"]["latency"]) == ["p50", "p99", "p99.9", "slowest"]
    assert told["at_rate"]["rate"] == 2000


def test_the_text_names_what_costs_most(run: Run, place: Path) -> None:
    # No index leads to `slow`, which each event evaluates; two kinds of subscriptions have a part in common.
    slow = {"id": "slow", "cel": "double(data.amount) * 2.0 > 1e9", "filters": [{"field": "amount", "op": ">=", "value": 0}]}
    with (place / "subs.jsonl").open("a") as file:
        file.write(json.dumps(slow))
    ran = run("bench", "-s", "subs.jsonl", "events.jsonl", *SHORT)
    assert (ran.returncode, ran.stderr) == (0, b"")
    text = ran.stdout.decode()
    assert text.startswith("3 subscriptions; 3 events of 63 B, 0.667 matches an event; ")
    assert "SINGLE SUBSCRIPTIONS, BY THEMSELVES (all tried)" in text
    rows = {line.split()[-1] for line in text.splitlines() if line}
    assert rows >= {"filters", "topic", "filters+cel", "big", "paid", "slow"}
    assert "events/s, from when each was due" not in text


def test_a_bad_event_is_named_and_the_others_are_measured(run: Run) -> None:
    ran = run("bench", "-s", "subs.jsonl", *SHORT, "-o", "json", stdin=b"{\n" + EVENTS)
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"<stdin>:1: malformed_json")
    assert json.loads(ran.stdout)["events"] == 3


def test_what_is_held_of_the_events_is_bounded(run: Run) -> None:
    ran = run("bench", "-s", "subs.jsonl", "events.jsonl", *SHORT, "-o", "json", "--max-events", "1")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["events"] == 1
    assert ran.stderr == b"events.jsonl: the first 1 line; --max-events reads more\n"


@pytest.mark.parametrize(
    ("options", "stdin", "said"),
    [
        ((), b"", b"streamer: <stdin>: no event to measure with\n"),
        ((), b"{\n", b"<stdin>:1: malformed_json"),
        (("--rate", "1e10"), b"{}", b"streamer: --rate 1e+10 for --seconds 0.3: expected from 1 to 10,000,000 events in all\n"),
        (("--rate", "1"), b"{}", b"streamer: --rate 1 for --seconds 0.3: expected from 1 to 10,000,000 events in all\n"),
        (("--rate", "nan"), b"{}", b"streamer: --rate nan for"),
    ],
)
def test_what_cannot_be_measured_is_an_error(run: Run, options: tuple[str, ...], stdin: bytes, said: bytes) -> None:
    ran = run("bench", "-s", "subs.jsonl", *SHORT, *options, stdin=stdin)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.startswith(said)
