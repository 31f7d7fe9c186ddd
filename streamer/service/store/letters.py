"""The table of dead letters: records and messages that could not be delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from streamer.service.store.database import Execute, Reader
from streamer.service.store.rows import OWN, DeadLetter, position_of


def letters_of(
    reader: Reader, after: int = 0, most: int = 1000, chosen: Mapping[str, str] = MappingProxyType({})
) -> list[DeadLetter]:
    """Read as `Store.letters`. Raises ServiceError."""
    statement = _LETTERS.replace("id > ?", f"id > ?{where(chosen)}")
    return [
        DeadLetter(**{**(told := dict(zip(_MEMBERS, row, strict=True))), "position": position_of(told["position"])})
        for row in reader.rows(statement, after, *chosen.values(), most)
    ]


def number_of(reader: Reader, letter: DeadLetter) -> int | None:
    """Return the number of a letter, by where its record stands. Raises ServiceError."""
    where = (letter.source, letter.partition, str(letter.position), letter.part, letter.sink, letter.message)
    found = reader.rows(f"SELECT id FROM dead_letters WHERE {_WHERE}", *where)
    return int(found[0][0]) if found else None


def bury(execute: Execute, dead: Iterable[DeadLetter]) -> None:
    """Put letters down; one that is there already has failed once more."""
    for letter in dead:
        values = {name: getattr(letter, name) for name in _KEPT}
        # Not every database keeps U+0000 in texts; of these only the reason may have one, which is for people.
        values |= {"position": str(letter.position), "reason": letter.reason.replace("\0", "␀")}
        execute(_BURY, tuple(values.values()))


def where(chosen: Mapping[str, str]) -> str:
    """Return the condition that letters have some members."""
    assert chosen.keys() <= set(_MEMBERS), chosen
    return "".join(f" AND {name} = ?" for name in chosen)


_LETTERS: Final = (
    "SELECT id, source, partition, position, part, stage, code, reason, attempts, at, size, record, sink, message, matches, key,"
    " spooled FROM dead_letters WHERE id > ? ORDER BY id LIMIT ?"
)
_WHERE: Final = "source = ? AND partition = ? AND position = ? AND part = ? AND sink = ? AND message = ?"
_MEMBERS: Final = tuple(name.strip() for name in _LETTERS.removeprefix("SELECT ").partition(" FROM")[0].split(","))
_KEPT: Final = _MEMBERS[1:]
_BURY: Final = (
    f"INSERT INTO dead_letters ({', '.join(_KEPT)}) VALUES ({', '.join('?' * len(_KEPT))}) ON CONFLICT"
    " (source, partition, position, part, sink, message) DO UPDATE SET"
    " attempts = CASE dead_letters.stage WHEN 'decode' THEN dead_letters.attempts + 1 ELSE excluded.attempts END,"
    " at = excluded.at, code = excluded.code, reason = excluded.reason, spooled = excluded.spooled"
)
#: How much room all letters take.
ROOM: Final = "SELECT coalesce(sum(length(record) + length(reason)), 0) FROM dead_letters"
#: What the last letters failed of.
BY_REASON: Final = (
    "SELECT stage, code, source, sink, count(*), min(at), max(at) FROM (SELECT stage, code, source, sink, at FROM dead_letters"
    " ORDER BY id DESC LIMIT ?) AS newest GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC"
)
_OF_GATEWAYS: Final = f"substr(sink, 1, {len(OWN)}) = '{OWN}' AND spooled IS NULL"
#: How much room those of tenants' own gateways take that nothing waits for.
OF_SINKS: Final = f"SELECT sink, sum(length(record) + length(reason)) FROM dead_letters WHERE {_OF_GATEWAYS} GROUP BY sink"
_OF_A_TENANT: Final = "substr(sink, 1, ?) = ? AND spooled IS NULL"
#: The oldest of those, of one tenant, and the room of each.
OLDEST_OF_A_TENANT: Final = f"SELECT id, length(record) + length(reason) FROM dead_letters WHERE {_OF_A_TENANT} ORDER BY id"
#: Gives letters about records to another source, which has the same ones.
MOVE_LETTERS: Final = (
    "UPDATE dead_letters SET source = ? WHERE source = ? AND stage <> 'deliver' AND NOT EXISTS"
    " (SELECT 1 FROM dead_letters AS other WHERE other.source = ? AND other.partition = dead_letters.partition"
    " AND other.position = dead_letters.position"
    " AND other.part = dead_letters.part AND other.sink = dead_letters.sink AND other.message = dead_letters.message)"
)
#: Forgets them.
FORGET_OLDEST: Final = f"DELETE FROM dead_letters WHERE {_OF_A_TENANT} AND id <= ?"
