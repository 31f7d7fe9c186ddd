"""`streamer why` prints what keeps a subscription from matching the events of a file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_why_counts_conditions_and_names_the_nearest_events(run: Run, place: Path) -> None:
    ran = run("why", "-s", "subs.jsonl", "--id", "big", "events.jsonl")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.decode().splitlines() == [
        "'big' matches 1 of 3 events",
        "     HELD    FAILED   UNKNOWN     ALONE  CONDITION",
        "        3         0         0         0  tenant 'default'",
        "        3         0         0         0  collection 'orders'",
        "        1         2         0         2  data.amount > 100",
        "nearest events that do not match:",
        "  line 4:",
        "    data.amount > 100: false, saw 8",
        "  line 3:",
        "    data.amount > 100: false, saw 7",
    ]


def test_why_as_json_goes_on_after_a_bad_event(run: Run) -> None:
    ran = run("why", "-s", "subs.jsonl", "--id", "big", "-o", "json", stdin=b'{}\n{\n{"collection": "orders"}\n')
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"<stdin>:2: malformed_json")
    told = json.loads(ran.stdout)
    assert (told["subscription_id"], told["events"], [each["event"] for each in told["nearest"]]) == ("big", 2, [3, 1])


def test_why_of_an_id_that_is_not_there_says_so(run: Run) -> None:
    ran = run("why", "-s", "subs.jsonl", "--id", "none", stdin=b"{}")
    assert (ran.returncode, ran.stderr) == (2, b"streamer: subs.jsonl: unknown subscription 'none'\n")
