"""`streamer match --format` finds what the table of cases expects, for a file of records of each wire format."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.conformance.together import by_format

# An engine reads each format on both backends in tests/conformance; a command passes it whole lines on each.
pytestmark = pytest.mark.later_on_the_reference

FORMATS = by_format()


@pytest.mark.parametrize("name", FORMATS)
def test_the_cases_of_a_format_hold_for_a_file_of_its_records(run: Run, place: Path, name: str) -> None:
    cases = FORMATS[name]
    (place / "cases.jsonl").write_text("".join(f"{text}\n" for text in cases.subscriptions))
    (place / "records.jsonl").write_bytes(b"".join(event + b"\n" for event in cases.events))
    ran = run("match", "-s", "cases.jsonl", "-f", name, "records.jsonl")
    bad = {int(line) - 1 for line in re.findall(rb"^records\.jsonl:(\d+): ", ran.stderr, re.MULTILINE)}
    matches = [json.loads(line) for line in ran.stdout.splitlines()]
    found = [(each["line"] - 1, (each["subscription_id"], each["transition"], each["certain"])) for each in matches]
    assert cases.wrong(found, bad) == {}, ran.stderr[:2000]
    ignored = sum(case.ignored is not None for case in cases.cases)
    assert (f"{ignored:,} ignored" in ran.stderr.decode()) == (ignored > 0)
    assert ran.returncode == (1 if bad else 0)
