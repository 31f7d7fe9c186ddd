"""A record that is rejected leaves a line in the log, and many of them few lines."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamer.quiet import KEYS, Quiet
from streamer.service.delivery.rejected import Rejected
from streamer.service.store.rows import DeadLetter, dead_letter
from streamer.service.store.store import Store
from tests.service.conftest import Make, event


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_key_has_so_many_messages_in_so_many_seconds() -> None:
    clock = Clock()
    quiet = Quiet(10, 2, clock)
    assert [quiet.due("a") for _ in range(5)] == [1, 1, None, None, None]
    assert quiet.due("b", 7) == 7
    assert quiet.rest() == []
    clock.now = 10.0
    assert quiet.due("a") == 4
    quiet = Quiet(10, clock=clock)
    assert (quiet.due("a"), quiet.due("a"), quiet.due("b"), quiet.due("c", 3), quiet.due("c")) == (1, None, 1, 3, None)
    clock.now = 19.9
    assert quiet.rest() == []
    assert quiet.rest(is_over=True) == [("a", 1), ("c", 1)]
    assert quiet.rest(is_over=True) == []
    assert quiet.due("a") is None
    clock.now = 30.0
    assert quiet.rest() == [("a", 1)]


def test_keys_that_were_heard_of_long_ago_are_forgotten() -> None:
    clock = Clock()
    quiet = Quiet(10, clock=clock)
    for number in range(3 * KEYS):
        clock.now += 1e-6
        quiet.due(number)
    assert len(quiet._periods) <= KEYS
    assert quiet.due(3 * KEYS - 1) is None


def letter(**changed: Any) -> DeadLetter:
    made = dead_letter(
        "orders", "0", 7, -1, "malformed_json", "malformed_json at byte 3: expected a value", b'{"a\x1b[31m' + b"x" * 5000
    )
    return replace(made, **changed)


def test_a_line_has_count_example_and_the_command_that_shows_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    log = logging.getLogger("streamer.service")
    rejected = Rejected(log.warning, lambda _: 17)
    monkeypatch.setattr(rejected, "_quiet", Quiet(10, clock=clock))
    rejected.add([letter(), letter(position=8), letter(code="not_an_object"), letter(source="other")])
    for _ in range(100):
        rejected.add([letter(position=9)])
    rejected.add([letter(stage="deliver", sink="hooks")])
    rejected.rest()
    assert len(caplog.messages) == 3
    assert caplog.messages[0] == (
        "sources.orders: the record at 0 8 was rejected: malformed_json at byte 3, and 1 more in the last 10 s; "
        "streamer dead-letters show 17 shows it"
    )
    assert all(len(each) < 700 and each.isprintable() for each in caplog.messages)
    assert caplog.messages[1].startswith("sources.orders: the record at 0 7 was rejected: malformed_json at byte 3; streamer ")
    clock.now = 10.0
    rejected.rest()
    assert len(caplog.messages) == 4
    assert "the record at 0 9 was rejected: malformed_json at byte 3, and 99 more in the last 10 s;" in caplog.messages[3]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_service_logs_what_it_rejects_and_the_command_names_the_letter(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two reasons are two lines; what comes within ten seconds is counted at the end."""
    many = b"".join(b'{"collection": 5, "n": %d}\n' % number for number in range(3000))
    (tmp_path / "in.jsonl").write_bytes(event(1) + b'\n{"not": "whole\n' + many)
    with caplog.at_level(logging.INFO, logger="streamer.service"):
        make().run()
    records = [each for each in caplog.records if "was rejected:" in each.getMessage()]
    lines = [each.getMessage() for each in records]
    assert 2 <= len(lines) <= 3
    assert sum(vars(each)["count"] for each in records) == 3001
    (line,) = [each for each in lines if "malformed_json" in each]
    assert "whole" not in line
    found = re.search(r"streamer dead-letters show (\d+) shows it", line)
    assert found is not None
    (record,) = [each for each in records if vars(each)["code"] == "malformed_json"]
    assert {name: vars(record)[name] for name in ("source", "offset", "dead_letter")} == {
        "source": "orders",
        "offset": len(event(1)) + 1 + len(b'{"not": "whole\n'),
        "dead_letter": int(found[1]),
    }
    store = Store(tmp_path / "data")
    (shown,) = store.letters(int(found[1]) - 1, 1)
    store.database.close()
    assert shown.record == b'{"not": "whole'
