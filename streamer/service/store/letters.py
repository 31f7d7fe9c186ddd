"""The table of dead letters: records and messages that could not be delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final

from streamer.service.store.database import Execute, Reader
from streamer.service.store.rows import OWN, DeadLetter, position_of

#: The number of letters that are read at once with their records, which may have a megabyte each.
PAGE: Final = 20


def letters_of(
    reader: Reader,
    after: int = 0,
    most: int = 1000,
    criteria: Mapping[str, str] = MappingProxyType({}),
    *,
    records: bool = True,
) -> list[DeadLetter]:
    """Read as `Store.letters`. Raises ServiceError."""
    members = ", ".join(_MEMBERS if records else (*(name for name in _MEMBERS if name not in _OF_RECORDS), "length(record)"))
    statement = f"SELECT {members} FROM dead_letters WHERE id > ?{where(criteria)} ORDER BY id LIMIT ?"
    letters = []
    for row in reader.rows(statement, after, *criteria.values(), most):
        columns = dict(zip(_MEMBERS if records else _WITHOUT, row, strict=True))
        letters.append(DeadLetter(**{"record": b"", **columns, "position": position_of(columns["position"])}))
    return letters


def number_of(reader: Reader, letter: DeadLetter) -> int | None:
    """Return the number of a letter, by the place of its record. Raises ServiceError."""
    where = (letter.source, letter.partition, str(letter.position), letter.part, letter.sink, letter.message)
    ids = reader.rows(f"SELECT id FROM dead_letters WHERE {_WHERE}", *where)
    return int(ids[0][0]) if ids else None


def bury(execute: Execute, dead: Iterable[DeadLetter]) -> None:
    """Store letters; one that already exists has failed once more."""
    for letter in dead:
        values = {name: getattr(letter, name) for name in _COLUMNS}
        # PostgreSQL refuses U+0000 in texts; only the reason may contain it, which is for people.
        values |= {"position": str(letter.position), "reason": letter.reason.replace("\0", "␀")}
        execute(_BURY, tuple(values.values()))


def where(criteria: Mapping[str, str]) -> str:
    """Return the SQL condition that letters have some members."""
    assert criteria.keys() <= set(_MEMBERS), criteria
    return "".join(f" AND {name} = ?" for name in criteria)


_WHERE: Final = "source = ? AND partition = ? AND position = ? AND part = ? AND sink = ? AND message = ?"
_MEMBERS: Final = tuple(each.name for each in fields(DeadLetter) if each.name != "kept")
_OF_RECORDS: Final = ("record", "record_key")
_WITHOUT: Final = (*(name for name in _MEMBERS if name not in _OF_RECORDS), "kept")
_COLUMNS: Final = _MEMBERS[1:]
_BURY: Final = (
    f"INSERT INTO dead_letters ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT"
    " (source, partition, position, part, sink, message) DO UPDATE SET"
    " attempts = CASE dead_letters.stage WHEN 'decode' THEN dead_letters.attempts + 1 ELSE excluded.attempts END,"
    " at = excluded.at, code = excluded.code, reason = excluded.reason, spooled = excluded.spooled"
)
#: The room of all letters.
_SIZE: Final = "length(record) + length(reason) + coalesce(length(record_key), 0)"
ROOM: Final = f"SELECT coalesce(sum({_SIZE}), 0), coalesce(max(id), 0) FROM dead_letters"
#: The room of the letters after a number, and the number of the last.
ROOM_AFTER: Final = f"SELECT sum({_SIZE}), max(id) FROM dead_letters WHERE id > ?"
#: Groups the last letters by the cause of their failure.
BY_REASON: Final = (
    "SELECT stage, code, source, sink, count(*), min(at), max(at) FROM (SELECT stage, code, source, sink, at FROM dead_letters"
    " ORDER BY id DESC LIMIT ?) AS newest GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC"
)
_OF_GATEWAYS: Final = f"substr(sink, 1, {len(OWN)}) = '{OWN}' AND spooled IS NULL"
#: The room of letters of tenants' own gateways that have no waiting message.
OF_SINKS: Final = f"SELECT sink, sum({_SIZE}) FROM dead_letters WHERE {_OF_GATEWAYS} GROUP BY sink"
_OF_A_TENANT: Final = "substr(sink, 1, ?) = ? AND spooled IS NULL"
#: The oldest of those of one tenant, and the room of each.
OLDEST_OF_A_TENANT: Final = f"SELECT id, {_SIZE} FROM dead_letters WHERE {_OF_A_TENANT} ORDER BY id"
#: Moves letters about records to another source, which has the same records.
MOVE_LETTERS: Final = (
    "UPDATE dead_letters SET source = ? WHERE source = ? AND stage <> 'deliver' AND NOT EXISTS"
    " (SELECT 1 FROM dead_letters AS other WHERE other.source = ? AND other.partition = dead_letters.partition"
    " AND other.position = dead_letters.position"
    " AND other.part = dead_letters.part AND other.sink = dead_letters.sink AND other.message = dead_letters.message)"
)
#: Deletes the oldest of those of one tenant.
FORGET_OLDEST: Final = f"DELETE FROM dead_letters WHERE {_OF_A_TENANT} AND id <= ?"
