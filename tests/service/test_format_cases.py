"""A service finds what the table of cases expects, for a file of records of each wire format."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from streamer import Config
from streamer.cdc.envelopes import WITH_ENVELOPE
from streamer.config.loader import Loaded
from streamer.service.run.serve import Service
from tests.conformance.together import by_format
from tests.service.conftest import so_far

FORMATS = by_format()
#: A record of these can have several changes, so a source decodes them. A service reads all others as a library does. Those that
#: a source can also decode have a table of their own, testdata/cdc.
DECODED = ("canal", "debezium_unwrapped", "dynamodb", "mongodb", "wal2json")
#: What a service does otherwise, and why.
OTHERWISE = {
    "changes.toml::Canal: two rows with different transitions have none": "it delivers each change by itself",
    "changes.toml::Debezium, unwrapped: a row without a table has no collection": "it refuses a row without one",
    "changes.toml::wal2json: an update may lack a large column": "an insert before it had all columns of the table",
}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", FORMATS)
def test_the_cases_of_a_format_hold_for_a_service_that_reads_its_records(tmp_path: Path, name: str) -> None:
    cases = FORMATS[name]
    (tmp_path / "cases.jsonl").write_text("".join(f"{text}\n" for text in cases.subscriptions))
    lines = [event + b"\n" for event in cases.events]
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines))
    source: dict[str, Any] = {"type": "file", "path": str(tmp_path / "records.jsonl"), "follow": False}
    if name in DECODED:
        source |= {"format": name, "envelope": name in WITH_ENVELOPE}
    config = {
        "subscriptions": str(tmp_path / "cases.jsonl"),
        "sources": {"records": source},
        "matching": {} if name in DECODED else {"format": name},
        "sinks": {"out": {"type": "file", "path": str(tmp_path / "out.jsonl"), "event": "reference"}},
        "service": {"data_dir": str(tmp_path / "data")},
    }
    Service(lambda: Loaded(Config.from_dict(config))).run()

    # The position of a record is where its line ends.
    numbers = {end: number for number, end in enumerate(accumulate(map(len, lines)))}
    found = []
    for match in so_far(tmp_path / "out.jsonl"):
        transition = match["type"].removeprefix("streamer.match").removeprefix(".") or None
        found.append((numbers[match["data"]["reference"]["position"]], (match["subject"], transition, match["certain"])))
    with closing(sqlite3.connect(tmp_path / "data" / "store.db")) as store:
        bad = {numbers[int(position)] for (position,) in store.execute("SELECT position FROM dead_letters")}
    wrong = cases.wrong(found, bad)
    assert wrong.keys() - OTHERWISE.keys() == set(), wrong
