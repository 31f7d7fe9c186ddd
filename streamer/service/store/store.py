"""What outlives a process: positions, dead letters, the spool. One class, whatever database is below.

A commit holds the positions of some batches together with their dead letters and with what they put into the spool, so none is
there without the others.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from math import inf
from types import MappingProxyType
from typing import Any, Final, final

from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.store.database import Execute, Place, Reader, T, open_beside, open_database
from streamer.service.store.rows import (
    BITS,
    LANES,
    Changes,
    Confirmed,
    DeadLetter,
    Lane,
    Spooled,
    Waiting,
    milliseconds,
    position_of,
)

_LOGGER: Final = logging.getLogger("streamer.service")
#: What the name of the sink of a tenant's own gateway begins with, which is `gateway:TENANT/ID`, percent-encoded.
OWN: Final = "gateway:"
#: Where dead letters leave no room, this part of it is taken from those of tenants' own gateways.
_FORGOTTEN: Final = 16
#: Dead letters that left no room are measured again so often, in seconds.
_LOOK: Final = 1.0


@final
class Store:
    """The store of a process. Any thread may use it.

    Args:
        place: a directory, made if it is not there, for its owner alone; or a server.

    Attributes:
        where: what errors call it.
        is_shared: whether other processes use it, too.
        dead_letter_bytes: room for dead letters; a reload may change it.

    Raises:
        ServiceError: another process uses it alone, it is no store, of a later version, damaged, or cannot be written.
    """

    def __init__(self, place: Place, *, dead_letter_bytes: int = 1024**3) -> None:
        self.dead_letter_bytes = dead_letter_bytes
        self._looked = -inf
        self._database = open_database(place)
        self.where, self.is_shared = self._database.where, self._database.is_shared
        try:
            self._dead = self._measured()
        except BaseException:
            self._database.close()
            raise

    # Positions, and what could not be delivered

    def positions(self, source: str) -> dict[str, str]:
        """Return where each partition of a source was confirmed last, in the order in which they were begun."""
        rows = self.rows("SELECT partition, position FROM positions WHERE source = ? ORDER BY number", source)
        return dict(rows)

    def begin(self, source: str, partition: str, position: str) -> None:
        """Keep a partition before anything of it is read."""
        statement = "INSERT INTO positions (source, partition, position) VALUES (?, ?, ?)"
        self.write(lambda execute: execute(statement, (source, partition, position)))
        faults.point("source.begin")

    def commit(
        self,
        confirmed: Iterable[Confirmed],
        dead: Sequence[DeadLetter] = (),
        dropped: Sequence[int] = (),
        spooled: Sequence[Spooled] = (),
    ) -> list[tuple[int, Spooled]]:
        """Put positions down together with dead letters and messages; a dead letter that is there already has failed once more.

        Args:
            dropped: numbers of dead letters that were delivered now.
            spooled: messages for the spool, in their order.

        Returns:
            The messages with their numbers, but for those whose sink was forgotten meanwhile.
        """
        size = self._room_for(dead)
        confirmed = list(confirmed)

        def put_down(execute: Execute) -> list[tuple[int, Spooled]]:
            taken: list[tuple[int, Spooled]] = []
            _bury(execute, dead)
            if dead:
                faults.point("store.dead")
            if spooled:
                taken = _spool(execute, spooled)
                faults.point("store.spooled")
            for number in dropped:
                execute("DELETE FROM dead_letters WHERE id = ?", (number,))
            for source, partition, position in ((each.source, each.partition, each.position) for each in confirmed):
                if position is None:
                    execute("DELETE FROM positions WHERE source = ? AND partition = ?", (source, partition))
                else:
                    execute(_CONFIRM, (source, partition, position))
            return taken

        taken = self.write(put_down)
        self._dead = self._measured() if dropped else self._dead + size
        faults.point("store.committed")
        return taken

    def _room_for(self, dead: Sequence[DeadLetter]) -> int:
        """Return how many bytes some dead letters take. Raises ServiceError where there is no room for them."""
        size = sum(len(each.record) + len(each.reason) for each in dead)
        if not self._makes_room(size):
            raise ServiceError(
                f"{self.where}: the dead letters would take more than the {self.dead_letter_bytes:,} bytes of "
                "delivery.dead_letter_bytes; streamer dead-letters shows, replays and drops them"
            )
        return size

    def has_room(self, size: int) -> bool:
        """Tell whether there is room for dead letters of so many bytes; where there was none, it is looked for once a second."""
        if self._dead + size > self.dead_letter_bytes and time.monotonic() - self._looked < _LOOK:
            return False
        return self._makes_room(size)

    def _makes_room(self, size: int) -> bool:
        if self._dead + size <= self.dead_letter_bytes:
            return True
        self._looked = time.monotonic()
        self._dead = self._measured()
        while self._dead + size > self.dead_letter_bytes and self._forget_letters():
            self._dead = self._measured()
        return bool(self._dead + size <= self.dead_letter_bytes)

    def _measured(self) -> int:
        """Return how much room the dead letters take; what is added up meanwhile may be more, since some fail again."""
        return int(self.rows(_ROOM)[0][0])

    def _forget_letters(self) -> bool:
        """Forget the oldest letters of the tenant whose own gateways have most of them; tell whether there were any.

        So no tenant ends the service by an endpoint that takes nothing, nor has others' letters forgotten.
        """
        sizes: Counter[str] = Counter()
        for sink, size in self.rows(f"SELECT sink, sum({_SIZE}) FROM dead_letters WHERE {_OF_GATEWAYS} GROUP BY sink"):
            sizes[sink.partition("/")[0] + "/"] += size
        if not sizes:
            return False
        ((whose, _),) = sizes.most_common(1)
        last = freed = 0
        for number, size in self.rows(_OLDEST_OF_A_TENANT, len(whose), whose):
            last, freed = number, freed + size
            if freed >= self.dead_letter_bytes // _FORGOTTEN:
                break
        count = self.write(lambda execute: execute(_FORGET_OLDEST, (len(whose), whose, last)).rowcount)
        told = whose.removeprefix(OWN).rstrip("/")
        _LOGGER.warning("there is no more room for dead letters: %d of the gateways of tenant %s are forgotten", count, told)
        return True

    def dead_letters(self) -> int:
        """Count the dead letters."""
        return int(self.rows("SELECT count(*) FROM dead_letters")[0][0])

    def drop(self, numbers: Iterable[int] | None) -> int:
        """Drop dead letters by their numbers, or all of them, and what waits for them; return how many there were."""
        wanted = None if numbers is None else list(numbers)

        def drop(execute: Execute) -> int:
            if wanted is None:
                execute("DELETE FROM spool WHERE number IN (SELECT spooled FROM dead_letters)")
                return execute("DELETE FROM dead_letters").rowcount
            count = 0
            for number in wanted:
                execute("DELETE FROM spool WHERE number IN (SELECT spooled FROM dead_letters WHERE id = ?)", (number,))
                count += execute("DELETE FROM dead_letters WHERE id = ?", (number,)).rowcount
            return count

        count = self.write(drop)
        self._dead = self._measured()
        return count

    def letters(self, after: int = 0, most: int = 1000, chosen: Mapping[str, str] = MappingProxyType({})) -> list[DeadLetter]:
        """Return dead letters in the order of their numbers, from the first after one; only those with the *chosen* members."""
        statement = _LETTERS.replace("id > ?", f"id > ?{_where(chosen)}")
        return _letters(self.rows(statement, after, *chosen.values(), most))

    def count_letters(self, chosen: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of the last dead letter, and how many have the *chosen* members. Nobody waits for it."""
        statement = f"SELECT coalesce(max(id), 0), count(*) FROM dead_letters WHERE 1 = 1{_where(chosen)}"
        with closing(self.reader()) as reader:
            ((last, count),) = reader.rows(statement, *chosen.values())
        return int(last), int(count)

    def letters_by_reason(self, most: int) -> list[tuple[str, str, str, str, int, int, int]]:
        """Return stage, code, source and sink of the last dead letters, how many these are, and when the first and last failed.

        Args:
            most: so many letters are looked at. Nobody waits for it.
        """
        with closing(self.reader()) as reader:
            return reader.rows(_BY_REASON, most)

    # The spool

    def lane(self, name: str) -> Lane:
        """Return what the spool holds for a sink, which it knows from now on."""

        def make(execute: Execute) -> None:
            # One process at a time looks for a number that is free.
            execute("UPDATE versions SET last = last")
            ((number,),) = execute(_FREE_LANE).fetchall()
            if number >= LANES:
                raise ServiceError(f"{self.where}: there are {LANES:,} sinks and gateways, and no room for more")
            execute(
                "INSERT INTO lanes (number, name, last, mark) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
                (number, name, number << BITS, secrets.token_hex(4)),
            )

        while not (rows := self.rows("SELECT number, gone, target, last, mark FROM lanes WHERE name = ?", name)):
            self.write(make)
        return Lane(name, *rows[0])

    def forget(self, name: str, execute: Execute) -> tuple[int, int, int]:
        """Drop what the spool holds for a sink, and all that is known of it, within a change; return what that was.

        Its dead letters stay. What is to be spooled for it from now on is left out.
        """
        # Who would add to it waits from here on, and finds that it is gone.
        found = execute("UPDATE lanes SET last = last WHERE name = ? RETURNING number", (name,)).fetchall()
        if not found:
            return 0, 0, 0
        ((number,),) = found
        ((messages, size, matches),) = execute(_HELD, _range(number)).fetchall()
        execute("DELETE FROM spool WHERE number > ? AND number < ?", _range(number))
        execute("DELETE FROM lanes WHERE number = ?", (number,))
        execute("UPDATE dead_letters SET spooled = NULL WHERE sink = ?", (name,))
        return messages, size, matches

    def trim(self, lane: Lane, last: int) -> None:
        """Take the oldest messages of a lane out, up to one. Their numbers are not given again."""
        self.write(lambda execute: execute("DELETE FROM spool WHERE number > ? AND number <= ?", (lane.first, last)))

    def oldest_of(self, lane: Lane, most: int) -> list[tuple[int, int, int]]:
        """Return number, bytes and time of the oldest messages of a lane."""
        return self.rows(_OLDEST_OF, *_range(lane.number), most)

    def held(self, lane: Lane) -> tuple[int, int, int]:
        """Count the messages for a sink, their bytes, and the matches that they tell of."""
        ((messages, size, matches),) = self.rows(_HELD, *_range(lane.number))
        return messages, size, matches

    def lanes(self) -> list[tuple[str, int, int]]:
        """Return the sinks that the spool holds messages for, tenants' own aside, how many, and their bytes."""
        return _lanes(self._database)

    def waiting(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Waiting]:
        """Return messages for a sink in their order, from the first after one; the last of them may pass the bound in bytes."""
        first, end = max(after, lane.first), _range(lane.number)[1]
        last = size = 0
        for number, length in self.rows(_SIZES, first, end, most):
            last, size = number, size + length
            if size >= most_bytes:
                break
        return _messages(self.rows(_WAITING, first, last)) if last else []

    def waiting_of(self, lane: Lane, key: int, after: int, last: int, most: int) -> list[Waiting]:
        """Return messages of one key in their order, after one and not after another."""
        return _messages(self.rows(_WAITING_OF, key, max(after, lane.first), last, most))

    def oldest(self, lane: Lane) -> int | None:
        """Return when the first of the messages for a sink came, in milliseconds since the epoch; None where there are none."""
        rows = self.rows("SELECT at FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT 1", *_range(lane.number))
        return rows[0][0] if rows else None

    def settle(self, changes: Changes, spooled: Sequence[Spooled] = ()) -> list[tuple[int, Spooled]]:
        """Put down what came of messages: what is delivered or given up leaves the spool.

        Args:
            spooled: messages for the spool that follow from that.

        Returns:
            These with their numbers, as `commit` does.
        """
        dead = [letter for _, letter in changes.dead]
        size = self._room_for(dead)
        left = [(number,) for number in changes.delivered]
        left += [(number,) for number, letter in changes.dead if letter.spooled is None]

        def put_down(execute: Execute) -> list[tuple[int, Spooled]]:
            _bury(execute, dead)
            execute.many("DELETE FROM spool WHERE number = ?", left)
            execute.many("UPDATE spool SET attempts = ?, due = ? WHERE number = ?", changes.tried)
            for name, target in changes.gone:
                execute("UPDATE lanes SET gone = ?, target = ? WHERE name = ?", (milliseconds(), target, name))
            taken = _spool(execute, spooled) if spooled else []
            faults.point("spool.settling")
            return taken

        taken = self.write(put_down)
        self._dead += size
        faults.point("spool.settled")
        return taken

    def enable(self, name: str) -> bool:
        """Deliver again to a sink whose endpoint wanted no more; tell whether it was so."""
        statement = "UPDATE lanes SET gone = NULL, target = NULL WHERE name = ? AND gone IS NOT NULL"
        return bool(self.write(lambda execute: execute(statement, (name,)).rowcount))

    def clear(self, name: str) -> int | None:
        """Forget the messages for a sink; return how many there were, None where it never had any. Their dead letters stay."""
        if not self.rows("SELECT 1 FROM lanes WHERE name = ?", name):
            return None
        return self.write(lambda execute: self.forget(name, execute)[0])

    def respool(self, letters: Sequence[DeadLetter]) -> None:
        """Put messages that were given up into the spool again, with their ids; the letters are dropped.

        One that waits in the spool for its letter is due where it stands. Any other stands behind all that wait.
        """
        for letter in letters:
            self.lane(letter.sink)

        def put_back(execute: Execute) -> None:
            again = []
            for letter in letters:
                execute("DELETE FROM dead_letters WHERE id = ?", (letter.id,))
                here = (letter.spooled,)
                if here != (None,) and execute("UPDATE spool SET attempts = 0, due = 0 WHERE number = ?", here).rowcount:
                    continue
                where = (letter.source, letter.partition, letter.position, letter.part)
                again.append(Spooled(letter.sink, letter.key, letter.message, letter.matches, *where, letter.record))
            _spool(execute, again)

        self.write(put_back)
        self._dead = self._measured()

    # What others build on

    def is_writable(self) -> bool:
        """Tell whether the last change succeeded; where it failed, whether one would now."""
        return self._database.is_writable()

    def close(self) -> None:
        """Close it; one that is ours alone another process may have then."""
        self._database.close()

    def rows(self, statement: str, *values: object) -> list[Any]:
        """Return all that a query finds. Raises ServiceError."""
        return self._database.rows(statement, *values)

    def write(self, work: Callable[[Execute], T]) -> T:
        """Make a change that is on the disk when it is over, or not there at all; see `Database`. Raises ServiceError."""
        return self._database.write(work)

    def reader(self) -> Reader:
        """Return what reads beside changes. Raises ServiceError."""
        return self._database.reader()

    def hear(self, heard: Callable[[str], None]) -> None:
        """See `Database`."""
        self._database.hear(heard)


def look(place: Place, after: int = 0, most: int = 1000, number: int | None = None) -> list[DeadLetter]:
    """Read dead letters beside the processes that use the store. Raises ServiceError.

    Args:
        number: only this one.
    """
    if number is not None:
        after, most = number - 1, 1
    with closing(open_beside(place)) as reader:
        return [each for each in _letters(reader.rows(_LETTERS, after, most)) if number in (None, each.id)]


def look_at_spool(place: Place) -> list[tuple[str, int, int]]:
    """Read as `Store.lanes`, beside the processes that use the store. Raises ServiceError."""
    with closing(open_beside(place)) as reader:
        return _lanes(reader)


#: What a dead letter takes.
_SIZE: Final = "length(record) + length(reason)"
_ROOM: Final = f"SELECT coalesce(sum({_SIZE}), 0) FROM dead_letters"
_CONFIRM: Final = (
    "INSERT INTO positions (source, partition, position) VALUES (?, ?, ?)"
    " ON CONFLICT (source, partition) DO UPDATE SET position = excluded.position"
)
_LETTERS: Final = (
    "SELECT id, source, partition, position, part, stage, code, reason, attempts, at, size, record, sink, message, matches, key,"
    " spooled FROM dead_letters WHERE id > ? ORDER BY id LIMIT ?"
)
_BY_REASON: Final = (
    "SELECT stage, code, source, sink, count(*), min(at), max(at) FROM"
    " (SELECT stage, code, source, sink, at FROM dead_letters ORDER BY id DESC LIMIT ?) AS latest"
    " GROUP BY stage, code, source, sink ORDER BY 5 DESC"
)
_MEMBERS: Final = tuple(name.strip() for name in _LETTERS.removeprefix("SELECT ").partition(" FROM")[0].split(","))
_KEPT: Final = _MEMBERS[1:]
_BURY: Final = (
    f"INSERT INTO dead_letters ({', '.join(_KEPT)}) VALUES ({', '.join('?' * len(_KEPT))})"
    " ON CONFLICT (source, partition, position, part, sink, message) DO UPDATE SET"
    " attempts = CASE dead_letters.stage WHEN 'decode' THEN dead_letters.attempts + 1 ELSE excluded.attempts END,"
    " at = excluded.at, code = excluded.code, reason = excluded.reason, spooled = excluded.spooled"
)
_HELD: Final = (
    "SELECT count(*), coalesce(sum(length(body)), 0), coalesce(sum(matches), 0) FROM spool WHERE number > ? AND number < ?"
)
_OLDEST_OF: Final = "SELECT number, length(body), at FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT ?"
_FREE_LANE: Final = (
    "SELECT min(number) + 1 FROM (SELECT 0 AS number UNION ALL SELECT number FROM lanes) AS taken"
    " WHERE number + 1 NOT IN (SELECT number FROM lanes)"
)
_OF_GATEWAYS: Final = f"substr(sink, 1, {len(OWN)}) = '{OWN}' AND spooled IS NULL"
_OF_A_TENANT: Final = f"FROM dead_letters WHERE {_OF_GATEWAYS} AND substr(sink, 1, ?) = ?"
_OLDEST_OF_A_TENANT: Final = f"SELECT id, {_SIZE} {_OF_A_TENANT} ORDER BY id"
_FORGET_OLDEST: Final = f"DELETE {_OF_A_TENANT} AND id <= ?"
_SIZES: Final = "SELECT number, length(body) FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT ?"
_WAITING: Final = f"SELECT {', '.join(Waiting._fields)} FROM spool WHERE number > ? AND number <= ? ORDER BY number"
_WAITING_OF: Final = (
    f"SELECT {', '.join(Waiting._fields)} FROM spool WHERE key = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?"
)
_NUMBERS: Final = "UPDATE lanes SET last = last + ? WHERE name = ? RETURNING last"
_SPOOL: Final = f"INSERT INTO spool VALUES ({', '.join('?' * len(Waiting._fields))})"


def _range(lane: int) -> tuple[int, int]:
    """Return the numbers between which the messages of a lane are."""
    return lane << BITS, (lane + 1) << BITS


def _lanes(reader: Reader) -> list[tuple[str, int, int]]:
    lanes = reader.rows("SELECT name, number FROM lanes ORDER BY number")
    held = [(name, *reader.rows(_HELD, *_range(number))[0][:2]) for name, number in lanes if not name.startswith(OWN)]
    return [each for each in held if each[1]]


def _spool(execute: Execute, spooled: Sequence[Spooled]) -> list[tuple[int, Spooled]]:
    """Insert messages, within a change; return those whose lane there is, with their numbers.

    A lane's row is ours until the change is there, so what has a larger number is there later.
    """
    counts = Counter(each.sink for each in spooled)
    last: dict[str, int] = {}
    for name in sorted(counts):
        for (number,) in execute(_NUMBERS, (counts[name], name)).fetchall():
            last[name] = number - counts[name]
    taken = []
    for each in spooled:
        if each.sink in last:
            last[each.sink] += 1
            taken.append((last[each.sink], each))
    now = milliseconds()
    execute.many(
        _SPOOL, [(number, key, message, matches, 0, 0, now, *where) for number, (_, key, message, matches, *where) in taken]
    )
    return taken


def _bury(execute: Execute, dead: Iterable[DeadLetter]) -> None:
    execute.many(_BURY, [tuple(getattr(letter, name) for name in _KEPT) for letter in dead])


def _where(chosen: Mapping[str, str]) -> str:
    assert chosen.keys() <= set(_MEMBERS), chosen
    return "".join(f" AND {name} = ?" for name in chosen)


def _letters(rows: Iterable[Sequence[Any]]) -> list[DeadLetter]:
    return [DeadLetter(**dict(zip(_MEMBERS, row, strict=True)) | {"position": position_of(row[3])}) for row in rows]


def _messages(rows: Iterable[Sequence[Any]]) -> list[Waiting]:
    return [Waiting._make((*row[:9], position_of(row[9]), *row[10:])) for row in rows]
