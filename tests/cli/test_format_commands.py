"""`streamer formats`: which format or decoder fits a file of events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamer.events.layout import EventLayout
from tests.cdc.test_decoders import GOOD
from tests.cli.conftest import Run

RECORDS = {
    "change": {"collection": "orders", "type": "insert", "data": {"id": 1}},
    "debezium": {"op": "c", "before": None, "after": {"id": 1}, "source": {"table": "orders"}},
    "maxwell": {"database": "shop", "table": "orders", "type": "update", "data": {"id": 1}, "old": {}},
    "dms": {"data": {"id": 1}, "metadata": {"operation": "load", "schema-name": "public", "table-name": "orders"}},
    "supabase": {"type": "DELETE", "schema": "public", "table": "orders", "record": None, "old_record": {"id": 1}},
    "hasura": {
        "event": {"op": "INSERT", "data": {"old": None, "new": {"id": 1}}},
        "table": {"schema": "public", "name": "orders"},
    },
    "sequin": {"record": {"id": 1}, "changes": {}, "action": "update", "metadata": {"table_schema": "public", "table_name": "t"}},
    "cloudevents": {"specversion": "1.0", "id": "1", "source": "/shop", "type": "com.example.paid", "data": {"id": 1}},
    "eventbridge": {"id": "1", "detail-type": "Paid", "source": "shop", "detail": {"id": 1}},
    "sns": {"Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:eu-central-1:1:orders", "Message": '{"id": 1}'},
    **GOOD,
}


def test_the_formats_are_listed(run: Run) -> None:
    ran = run("formats")
    assert (ran.returncode, ran.stdout.decode().split()) == (0, list(EventLayout.PRESETS))


@pytest.mark.parametrize("name", RECORDS)
def test_the_one_that_fits_comes_first(run: Run, place: Path, name: str) -> None:
    (place / "records.jsonl").write_text(f"{json.dumps(RECORDS[name])}\n" * 3)
    ran = run("formats", "detect", "records.jsonl")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.decode().splitlines()[0].split()[:5] == [name, "3", "of", "3", "events"]


def test_its_collections_are_named(run: Run) -> None:
    ran = run("formats", "detect", "-", stdin=json.dumps(RECORDS["change"]).encode())
    # Maxwell's records have a document and a type in the same places, and their table in another.
    assert ran.stdout.decode().splitlines() == [
        "change                 1 of 1 events   collections: orders",
        "maxwell                1 of 1 events",
    ]


def test_where_none_fits_it_says_so(run: Run) -> None:
    ran = run("formats", "detect", "-", stdin=b'{"order": 1}\n[1]\nx\n')
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"no format finds a document" in ran.stderr


def test_a_file_that_cannot_be_read_is_named(run: Run) -> None:
    ran = run("formats", "detect", "nosuch.jsonl")
    assert (ran.returncode, ran.stderr) == (2, b"streamer: nosuch.jsonl: No such file or directory\n")
