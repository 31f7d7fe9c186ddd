"""The lanes of the spool in the store: one for each sink, with messages by their numbers."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from streamer.errors import ServiceError
from streamer.service.store.database import Execute, Reader
from streamer.service.store.rows import BITS, LANES, OWN, Lane, Spooled, Waiting, milliseconds, position_of


def lane_of(execute: Execute, name: str, store: str) -> Lane:
    """Return the lane of a sink, which is created if it does not exist. Raises ServiceError if the *store* is full of lanes."""
    rows = execute(_LANE, (name,)).fetchall()
    if not rows:
        # This lock lets one process at a time look for a free number.
        execute("UPDATE versions SET last = last")
        ((number,),) = execute(_FREE_LANE).fetchall()
        if number >= LANES:
            raise ServiceError(f"{store}: there are {LANES:,} sinks and gateways, and no room for more")
        new = "INSERT INTO lanes (number, name, last, mark) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
        execute(new, (number, name, number << BITS, secrets.token_hex(4)))
        rows = execute(_LANE, (name,)).fetchall()
    return Lane(name, *rows[0])


def put(execute: Execute, lanes: Mapping[str, Lane], spooled: Sequence[Spooled]) -> list[tuple[int, Spooled]]:
    """Insert messages; return those whose lane exists, with their numbers, without gaps within a lane.

    A lane's row is locked from here until the commit, so that readers see its numbers in order.
    """
    by_lane: dict[str, list[Spooled]] = {}
    for each in spooled:
        by_lane.setdefault(each.sink, []).append(each)
    known = [(lane, messages) for sink, messages in by_lane.items() if (lane := lanes.get(sink)) is not None]
    numbered: list[tuple[int, Spooled]] = []
    for lane, messages in sorted(known, key=lambda each: each[0].number):
        rows = execute(_GIVE_NUMBERS, (len(messages), lane.number, lane.mark)).fetchall()
        if rows:
            numbered += enumerate(messages, rows[0][0] - len(messages) + 1)
    now = milliseconds()
    execute.many(
        f"INSERT INTO spool VALUES ({', '.join('?' * len(Waiting._fields))})",
        (
            (number, key, message, matches, 0, 0, now, source, partition, str(position), part, body)
            for number, (_, key, message, matches, source, partition, position, part, body) in numbered
        ),
    )
    return numbered


def lanes_of(reader: Reader) -> list[tuple[str, int, int]]:
    """Read as `Store.lanes`. Raises ServiceError."""
    lanes = [Lane(*row) for row in reader.rows("SELECT name, number, gone, target, last, mark FROM lanes ORDER BY number")]
    totals = [(lane.name, *reader.rows(BACKLOG, *range_of(lane))[0][:2]) for lane in lanes if not lane.name.startswith(OWN)]
    return [(name, int(count), int(size)) for name, count, size in totals if count]


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of numbers without a gap; a run is deleted at about the cost of one row."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


def range_of(lane: Lane) -> tuple[int, int]:
    """Return the numbers between which the messages of a lane are."""
    return lane.first, (lane.number + 1) << BITS


def waiting_of(row: Sequence[Any]) -> Waiting:
    """Make a message of a row."""
    return Waiting._make((*row[:_POSITION], position_of(row[_POSITION]), *row[_POSITION + 1 :]))


_LANE: Final = "SELECT number, gone, target, last, mark FROM lanes WHERE name = ?"
_GIVE_NUMBERS: Final = "UPDATE lanes SET last = last + ? WHERE number = ? AND mark = ? RETURNING last"
_FREE_LANE: Final = (
    "SELECT min(number) + 1 FROM (SELECT 0 AS number UNION ALL SELECT number FROM lanes) AS taken"
    " WHERE number + 1 NOT IN (SELECT number FROM lanes)"
)
#: The number of messages between two numbers, with their bytes and matches.
BACKLOG: Final = (
    "SELECT count(*), coalesce(sum(length(body)), 0), coalesce(sum(matches), 0) FROM spool WHERE number > ? AND number < ?"
)
#: Number, bytes and time of the oldest messages between two numbers.
OLDEST_OF: Final = "SELECT number, length(body), at FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT ?"
#: Messages between two numbers.
WAITING: Final = f"SELECT {', '.join(Waiting._fields)} FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT ?"
_POSITION: Final = Waiting._fields.index("position")
#: Messages of one key, after one and up to another.
WAITING_OF: Final = (
    f"SELECT {', '.join(Waiting._fields)} FROM spool WHERE key = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?"
)
