"""The embedded store: one SQLite database in a directory that one process uses.

```
data_dir/ (0700)      lock          held by the process that uses it, whose number it has
                      store.db      WAL, synchronous=FULL: a commit is on the disk when it returns
```

A commit holds the positions of some batches together with their dead letters and with what they put into the spool, so none is
there without the others. A write-ahead log that was cut at any byte is read up to its last whole commit: the store then is as it
was before, and what came after is read from the sources again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service import faults
from streamer.service.store.rows import BITS, LANES, Changes, Confirmed, DeadLetter, Lane, Spooled, Waiting, milliseconds

#: "Strm": what tells our databases from others'.
APPLICATION: Final = 0x5374726D
_DATABASE: Final = "store.db"
_LOGGER: Final = logging.getLogger("streamer.service")
#: Bytes that a store which failed must take to be writable again: more than most changes need.
_TRIED: Final = 256 * 1024

#: What each version of the schema adds to the one before. A store of an earlier version is upgraded when it is opened.
UPGRADES: Final[list[str]] = [
    """
    CREATE TABLE subscriptions (
        tenant TEXT NOT NULL, id TEXT NOT NULL, origin TEXT NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID;
    CREATE TABLE positions (
        number INTEGER PRIMARY KEY, source TEXT NOT NULL, partition TEXT NOT NULL, position TEXT NOT NULL,
        UNIQUE (source, partition)
    );
    CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, stage TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL,
        at INTEGER NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL,
        UNIQUE (source, partition, position, part)
    );
    """,
    # What the API keeps of a subscription. A version is given once, so that no tag of one that was deleted comes again.
    """
    ALTER TABLE subscriptions ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN updated INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN unindexed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE subscriptions ADD COLUMN lease INTEGER;
    ALTER TABLE subscriptions ADD COLUMN expires_at INTEGER;
    CREATE INDEX subscriptions_by_expiry ON subscriptions (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE versions (last INTEGER NOT NULL);
    INSERT INTO versions VALUES (0);
    """,
    # `spool.number` is the number of its lane, and in its lowest 44 bits the order in it; so a lane is a range of one tree.
    # `spooled` of a dead letter is the message that waits for it, where its key does.
    """
    CREATE TABLE letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, stage TEXT NOT NULL, code TEXT NOT NULL, reason TEXT NOT NULL, attempts INTEGER NOT NULL,
        at INTEGER NOT NULL, size INTEGER NOT NULL, record BLOB NOT NULL,
        sink TEXT NOT NULL DEFAULT '', message TEXT NOT NULL DEFAULT '', matches INTEGER NOT NULL DEFAULT 0,
        key INTEGER, spooled INTEGER,
        UNIQUE (source, partition, position, part, sink, message)
    );
    INSERT INTO letters (id, source, partition, position, part, stage, code, reason, attempts, at, size, record)
        SELECT id, source, partition, position, part, stage, code, reason, attempts, at, size, record FROM dead_letters;
    DROP TABLE dead_letters;
    ALTER TABLE letters RENAME TO dead_letters;
    CREATE TABLE lanes (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, gone INTEGER, target TEXT
    );
    CREATE TABLE spool (
        number INTEGER PRIMARY KEY, key INTEGER, message TEXT NOT NULL, matches INTEGER NOT NULL, attempts INTEGER NOT NULL,
        due INTEGER NOT NULL, at INTEGER NOT NULL, source TEXT NOT NULL, partition TEXT NOT NULL, position INTEGER NOT NULL,
        part INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX spool_keys ON spool (key, number) WHERE key IS NOT NULL;
    """,
    # Of a lane, `last` is the number of a message that was trimmed, and `mark` tells it from others of its name or number.
    """
    CREATE TABLE gateways (
        tenant TEXT NOT NULL, id TEXT NOT NULL, settings TEXT NOT NULL, secrets TEXT NOT NULL, version INTEGER NOT NULL,
        created INTEGER NOT NULL, updated INTEGER NOT NULL,
        PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID;
    ALTER TABLE lanes ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE lanes ADD COLUMN mark TEXT NOT NULL DEFAULT '';
    UPDATE lanes SET mark = lower(hex(randomblob(4)));
    """,
]

#: What the name of the sink of a tenant's own gateway begins with, which is `gateway:TENANT/ID`, percent-encoded.
OWN: Final = "gateway:"
#: Where dead letters leave no room, this part of it is taken from those of tenants' own gateways.
_FORGOTTEN: Final = 16
#: Dead letters that left no room are measured again so often, in seconds.
_LOOK: Final = 1.0


@final
class Store:
    """The store of one process. Any thread may use it; calls take turns.

    Args:
        directory: made if it is not there, for its owner alone.

    Attributes:
        dead_letter_bytes: room for dead letters; a reload may change it.

    Raises:
        ServiceError: another process uses it, it is no store, of a later version, damaged, or cannot be written.
    """

    def __init__(self, directory: Path, *, dead_letter_bytes: int = 1024**3) -> None:
        self.directory = directory
        self.dead_letter_bytes = dead_letter_bytes
        self._turn = Lock()
        self._is_failing = False
        self._looked = -inf
        with self._told():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _lock(directory)
        try:
            with self._told():
                path = directory / _DATABASE
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=5)
                try:
                    self._begin()
                except BaseException:
                    self._database.close()
                    raise
        except BaseException:
            os.close(self._lock)
            raise

    def _begin(self) -> None:
        execute = self._database.execute
        application, version = execute("PRAGMA application_id").fetchone()[0], execute("PRAGMA user_version").fetchone()[0]
        is_new = (application, version) == (0, 0) and not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not is_new and application != APPLICATION:
            raise ServiceError(f"{self.directory / _DATABASE}: no store of Streamer")
        if version > len(UPGRADES):
            reason = f"written by a later version of Streamer: schema {version}, and this one knows {len(UPGRADES)}"
            raise ServiceError(f"{self.directory / _DATABASE}: {reason}")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        if (damage := execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"damaged: {damage}")
        for number, upgrade in enumerate(UPGRADES[version:], version + 1):
            marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {number};"
            try:
                self._database.executescript(f"BEGIN IMMEDIATE; {upgrade} {marks} COMMIT;")
            except BaseException:
                if self._database.in_transaction:
                    execute("ROLLBACK")
                raise
        self._dead = execute(_ROOM).fetchone()[0]
        self._lanes: dict[str, Lane] = {}

    # Positions, and what could not be delivered

    def positions(self, source: str) -> dict[str, str]:
        """Return where each partition of a source was confirmed last, in the order in which they were begun."""
        rows = self.rows("SELECT partition, position FROM positions WHERE source = ? ORDER BY number", source)
        return dict(rows)

    def begin(self, source: str, partition: str, position: str) -> None:
        """Keep a partition before anything of it is read."""
        with self.transaction() as execute:
            execute("INSERT INTO positions (source, partition, position) VALUES (?, ?, ?)", (source, partition, position))
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
        taken: list[tuple[int, Spooled]] = []
        with self.transaction() as execute:
            _bury(execute, dead)
            if dead:
                faults.point("store.dead")
            if spooled:
                taken = self._spool(spooled)
                faults.point("store.spooled")
            for number in dropped:
                execute("DELETE FROM dead_letters WHERE id = ?", (number,))
            for source, partition, position in ((each.source, each.partition, each.position) for each in confirmed):
                if position is None:
                    execute("DELETE FROM positions WHERE source = ? AND partition = ?", (source, partition))
                else:
                    execute(
                        "INSERT INTO positions (source, partition, position) VALUES (?, ?, ?)"
                        " ON CONFLICT DO UPDATE SET position = excluded.position",
                        (source, partition, position),
                    )
        self._dead = self._measured() if dropped else self._dead + size
        faults.point("store.committed")
        return taken

    def _room_for(self, dead: Sequence[DeadLetter]) -> int:
        """Return how many bytes some dead letters take. Raises ServiceError where there is no room for them."""
        size = sum(len(each.record) + len(each.reason) for each in dead)
        if not self._makes_room(size):
            raise ServiceError(
                f"{self.directory}: the dead letters would take more than the {self.dead_letter_bytes:,} bytes of "
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
        whose = self.rows(_MOST_OF_A_TENANT)
        if not whose:
            return False
        last = freed = 0
        for number, size in self.rows(_OLDEST_OF_A_TENANT, whose[0][0]):
            last, freed = number, freed + size
            if freed >= self.dead_letter_bytes // _FORGOTTEN:
                break
        with self.transaction() as execute:
            count = execute(_FORGET_OLDEST, (whose[0][0], last)).rowcount
        told = whose[0][0].removeprefix(OWN).rstrip("/")
        _LOGGER.warning("there is no more room for dead letters: %d of the gateways of tenant %s are forgotten", count, told)
        return True

    def dead_letters(self) -> int:
        """Count the dead letters."""
        return int(self.rows("SELECT count(*) FROM dead_letters")[0][0])

    def drop(self, numbers: Iterable[int] | None) -> int:
        """Drop dead letters by their numbers, or all of them, and what waits for them; return how many there were."""
        with self.transaction() as execute:
            if numbers is None:
                execute("DELETE FROM spool WHERE number IN (SELECT spooled FROM dead_letters)")
                count = execute("DELETE FROM dead_letters").rowcount
            else:
                count = 0
                for number in numbers:
                    execute("DELETE FROM spool WHERE number IN (SELECT spooled FROM dead_letters WHERE id = ?)", (number,))
                    count += execute("DELETE FROM dead_letters WHERE id = ?", (number,)).rowcount
        self._dead = self._measured()
        return int(count)

    def letters(self, after: int = 0, most: int = 1000, chosen: Mapping[str, str] = MappingProxyType({})) -> list[DeadLetter]:
        """Return dead letters in the order of their numbers, from the first after one; only those with the *chosen* members."""
        statement = _LETTERS.replace("id > ?", f"id > ?{_where(chosen)}")
        return _letters(self.rows(statement, after, *chosen.values(), most))

    def count_letters(self, chosen: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of the last dead letter, and how many have the *chosen* members. Nobody waits for it."""
        with self._told(), closing(self.reader()) as database:
            statement = f"SELECT coalesce(max(id), 0), count(*) FROM dead_letters WHERE 1{_where(chosen)}"
            last, count = database.execute(statement, tuple(chosen.values())).fetchone()
            return int(last), int(count)

    def letters_by_reason(self, most: int) -> list[tuple[str, str, str, str, int, int, int]]:
        """Return stage, code, source and sink of the last dead letters, how many these are, and when the first and last failed.

        Args:
            most: so many letters are looked at. Nobody waits for it.
        """
        with self._told(), closing(self.reader()) as database:
            return database.execute(_BY_REASON, (most,)).fetchall()

    # The spool

    def lane(self, name: str) -> Lane:
        """Return what the spool holds for a sink, which it knows from now on."""
        if name not in self._lanes:
            rows = self.rows("SELECT number, gone, target, last, mark FROM lanes WHERE name = ?", name)
            if not rows:
                with self.transaction() as execute:
                    ((number,),) = execute(_FREE_LANE).fetchall()
                    if number >= LANES:
                        raise ServiceError(f"{self.directory}: there are {LANES:,} sinks and gateways, and no room for more")
                    execute("INSERT INTO lanes (number, name, mark) VALUES (?, ?, lower(hex(randomblob(4))))", (number, name))
                return self.lane(name)
            lane = Lane(name, *rows[0])
            ((last,),) = self.rows("SELECT max(number) FROM spool WHERE number > ? AND number < ?", *_range(lane))
            lane.last = max(last or lane.first, lane.last)
            self._lanes[name] = lane
        return self._lanes[name]

    def forget(self, name: str, execute: Any) -> tuple[int, int, int]:
        """Drop what the spool holds for a sink, and all that is known of it, within a transaction; return what that was.

        Its dead letters stay. What is to be spooled for it from now on is left out.
        """
        lane = self.lane(name)
        (held,) = execute(_HELD, _range(lane)).fetchall()
        execute("DELETE FROM spool WHERE number > ? AND number < ?", _range(lane))
        execute("DELETE FROM lanes WHERE number = ?", (lane.number,))
        execute("UPDATE dead_letters SET spooled = NULL WHERE sink = ?", (name,))
        del self._lanes[name]
        return held[0], held[1], held[2]

    def trim(self, lane: Lane, last: int) -> None:
        """Take the oldest messages of a lane out, up to one. Their numbers are not given again."""
        with self.transaction() as execute:
            execute("UPDATE lanes SET last = max(last, ?) WHERE number = ?", (last, lane.number))
            execute("DELETE FROM spool WHERE number > ? AND number <= ?", (lane.first, last))

    def oldest_of(self, lane: Lane, most: int) -> list[tuple[int, int, int]]:
        """Return number, bytes and time of the oldest messages of a lane."""
        return self.rows(_OLDEST_OF, *_range(lane), most)

    def held(self, lane: Lane) -> tuple[int, int, int]:
        """Count the messages for a sink, their bytes, and the matches that they tell of."""
        ((messages, size, matches),) = self.rows(_HELD, *_range(lane))
        return messages, size, matches

    def lanes(self) -> list[tuple[str, int, int]]:
        """Return the sinks that the spool holds messages for, tenants' own aside, how many, and their bytes."""
        names = [name for (name,) in self.rows("SELECT name FROM lanes ORDER BY number") if not name.startswith(OWN)]
        held = [(name, *self.held(self.lane(name))[:2]) for name in names]
        return [each for each in held if each[1]]

    def _spool(self, spooled: Sequence[Spooled]) -> list[tuple[int, Spooled]]:
        """Insert messages, within a transaction; return those whose lane there is, with their numbers."""
        now = milliseconds()
        taken = []
        for each in spooled:
            if (lane := self._lanes.get(each.sink)) is not None:
                # What a transaction that fails has taken is not used again; nothing follows from numbers but order.
                lane.last += 1
                taken.append((lane.last, each))
        self._database.executemany(
            f"INSERT INTO spool VALUES ({', '.join('?' * len(Waiting._fields))})",
            ((number, key, message, matches, 0, 0, now, *where) for number, (_, key, message, matches, *where) in taken),
        )
        return taken

    def waiting(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Waiting]:
        """Return messages for a sink in their order, from the first after one; the last of them may pass the bound in bytes."""
        found: list[Waiting] = []
        size = 0
        with self._turn, self._told():
            rows = self._database.execute(_WAITING, (max(after, lane.first), _range(lane)[1], most))
            for row in map(Waiting._make, rows):
                found.append(row)
                size += len(row.body)
                if size >= most_bytes:
                    break
            rows.close()
        return found

    def waiting_of(self, lane: Lane, key: int, after: int, last: int, most: int) -> list[Waiting]:
        """Return messages of one key in their order, after one and not after another."""
        return [Waiting._make(row) for row in self.rows(_WAITING_OF, key, max(after, lane.first), last, most)]

    def oldest(self, lane: Lane) -> int | None:
        """Return when the first of the messages for a sink came, in milliseconds since the epoch; None where there are none."""
        rows = self.rows("SELECT at FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT 1", *_range(lane))
        return rows[0][0] if rows else None

    def settle(self, changes: Changes, spooled: Sequence[Spooled] = ()) -> list[tuple[int, Spooled]]:
        """Put down what came of messages: what is delivered or given up leaves the spool.

        Args:
            spooled: messages for the spool that follow from that.

        Returns:
            These with their numbers, as `commit` does.
        """
        taken: list[tuple[int, Spooled]] = []
        dead = [letter for _, letter in changes.dead]
        size = self._room_for(dead)
        left = [(number,) for number in changes.delivered]
        left += [(number,) for number, letter in changes.dead if letter.spooled is None]
        with self.transaction() as execute:
            _bury(execute, dead)
            self._database.executemany("DELETE FROM spool WHERE number = ?", left)
            self._database.executemany("UPDATE spool SET attempts = ?, due = ? WHERE number = ?", changes.tried)
            for name, target in changes.gone:
                execute("UPDATE lanes SET gone = ?, target = ? WHERE name = ?", (milliseconds(), target, name))
            if spooled:
                taken = self._spool(spooled)
            faults.point("spool.settling")
        self._dead += size
        faults.point("spool.settled")
        return taken

    def enable(self, name: str) -> bool:
        """Deliver again to a sink whose endpoint wanted no more; tell whether it was so."""
        with self.transaction() as execute:
            found = execute("UPDATE lanes SET gone = NULL, target = NULL WHERE name = ? AND gone IS NOT NULL", (name,)).rowcount
        if name in self._lanes:
            self._lanes[name].gone = self._lanes[name].target = None
        return bool(found)

    def clear(self, name: str) -> int | None:
        """Forget the messages for a sink; return how many there were, None where it never had any. Their dead letters stay."""
        if not self.rows("SELECT 1 FROM lanes WHERE name = ?", name):
            return None
        self.lane(name)
        with self.transaction() as execute:
            return self.forget(name, execute)[0]

    def respool(self, letters: Sequence[DeadLetter]) -> None:
        """Put messages that were given up into the spool again, with their ids; the letters are dropped.

        One that waits in the spool for its letter is due where it stands. Any other stands behind all that wait.
        """
        for letter in letters:
            self.lane(letter.sink)
        with self.transaction() as execute:
            again = []
            for letter in letters:
                execute("DELETE FROM dead_letters WHERE id = ?", (letter.id,))
                here = (letter.spooled,)
                if here != (None,) and execute("UPDATE spool SET attempts = 0, due = 0 WHERE number = ?", here).rowcount:
                    continue
                where = (letter.source, letter.partition, letter.position, letter.part)
                again.append(Spooled(letter.sink, letter.key, letter.message, letter.matches, *where, letter.record))
            self._spool(again)
        self._dead = self._measured()

    # What others build on

    def is_writable(self) -> bool:
        """Tell whether the last change succeeded; where it failed, whether one would now."""
        if self._is_failing:
            try:
                # A full disk still takes a page or two, in what the write-ahead log has already.
                with self.transaction() as execute:
                    execute("CREATE TABLE IF NOT EXISTS tried (zeros)")
                    execute("INSERT INTO tried VALUES (zeroblob(?))", (_TRIED,))
                with self.transaction() as execute:
                    execute("DROP TABLE tried")
            except ServiceError:
                return False
        return True

    def close(self) -> None:
        """Close it, and let another process have it."""
        with self._turn:
            self._database.close()
            os.close(self._lock)

    def rows(self, statement: str, *values: object) -> list[Any]:
        """Return all that a query finds. Raises ServiceError."""
        with self._turn, self._told():
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Make a change that is on the disk when it is over, or not there at all. Raises ServiceError."""
        with self._turn, self._told():
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield self._database.execute
                self._database.execute("COMMIT")
            except BaseException as error:
                self._is_failing = isinstance(error, sqlite3.Error | OSError)
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            self._is_failing = False

    def reader(self) -> sqlite3.Connection:
        """Open another connection, which only reads, and waits for no change. Any thread may use it, one at a time."""
        with self._told():
            return _reader(self.directory / _DATABASE)

    @contextmanager
    def _told(self) -> Iterator[None]:
        with told(self.directory):
            yield


def _reader(path: Path) -> sqlite3.Connection:
    name = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(name, uri=True, check_same_thread=False, isolation_level=None, timeout=5)


@contextmanager
def told(directory: Path) -> Iterator[None]:
    """Make one clear error of what went wrong with a store."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ServiceError(f"{directory}: the store cannot be used: {reason}") from error


def look(directory: Path, after: int = 0, most: int = 1000, number: int | None = None) -> list[DeadLetter]:
    """Read dead letters beside the process that uses the store. Raises ServiceError.

    Args:
        number: only this one.
    """
    with _beside(directory) as database:
        if number is not None:
            after, most = number - 1, 1
        found = _letters(database.execute(_LETTERS, (after, most)).fetchall())
        return [each for each in found if number in (None, each.id)]


def look_at_spool(directory: Path) -> list[tuple[str, int, int]]:
    """Read as `Store.lanes`, beside the process that uses the store. Raises ServiceError."""
    with _beside(directory) as database:
        lanes = [Lane(*row) for row in database.execute("SELECT name, number, gone, target FROM lanes ORDER BY number")]
        held = [(lane.name, *database.execute(_HELD, _range(lane)).fetchone()[:2]) for lane in lanes]
        return [each for each in held if each[1]]


@contextmanager
def _beside(directory: Path) -> Iterator[sqlite3.Connection]:
    """Open a store to read it beside the process that uses it. Raises ServiceError."""
    path = directory / _DATABASE
    if not path.exists():
        raise ServiceError(f"{directory}: no store")
    with told(directory), closing(_reader(path)) as database:
        if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise ServiceError(f"{path}: no store of Streamer")
        if (version := database.execute("PRAGMA user_version").fetchone()[0]) < len(UPGRADES):
            reason = f"written by an earlier version of Streamer: schema {version}; it is upgraded when the service starts"
            raise ServiceError(f"{path}: {reason}")
        yield database


_ROOM: Final = "SELECT coalesce(sum(length(record) + length(reason)), 0) FROM dead_letters"
_LETTERS: Final = (
    "SELECT id, source, partition, position, part, stage, code, reason, attempts, at, size, record, sink, message, matches, key,"
    " spooled FROM dead_letters WHERE id > ? ORDER BY id LIMIT ?"
)
_BY_REASON: Final = (
    "SELECT stage, code, source, sink, count(*), min(at), max(at) FROM"
    " (SELECT stage, code, source, sink, at FROM dead_letters ORDER BY id DESC LIMIT ?) GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC"
)
_MEMBERS: Final = tuple(name.strip() for name in _LETTERS.removeprefix("SELECT ").partition(" FROM")[0].split(","))
_KEPT: Final = _MEMBERS[1:]
_BURY: Final = (
    f"INSERT INTO dead_letters ({', '.join(_KEPT)}) VALUES ({', '.join('?' * len(_KEPT))}) ON CONFLICT DO UPDATE SET"
    " attempts = CASE stage WHEN 'decode' THEN attempts + 1 ELSE excluded.attempts END,"
    " at = excluded.at, code = excluded.code, reason = excluded.reason, spooled = excluded.spooled"
)
_HELD: Final = (
    "SELECT count(*), coalesce(sum(length(body)), 0), coalesce(sum(matches), 0) FROM spool WHERE number > ? AND number < ?"
)
_OLDEST_OF: Final = "SELECT number, length(body), at FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT ?"
_FREE_LANE: Final = (
    "SELECT min(number) + 1 FROM (SELECT 0 AS number UNION ALL SELECT number FROM lanes)"
    " WHERE number + 1 NOT IN (SELECT number FROM lanes)"
)
_TENANT: Final = "substr(sink, 1, instr(sink, '/'))"
_OF_GATEWAYS: Final = f"sink GLOB '{OWN}*' AND spooled IS NULL"
_MOST_OF_A_TENANT: Final = (
    f"SELECT {_TENANT} FROM dead_letters WHERE {_OF_GATEWAYS}"
    " GROUP BY 1 ORDER BY sum(length(record) + length(reason)) DESC LIMIT 1"
)
_OLDEST_OF_A_TENANT: Final = (
    f"SELECT id, length(record) + length(reason) FROM dead_letters WHERE {_OF_GATEWAYS} AND {_TENANT} = ? ORDER BY id"
)
_FORGET_OLDEST: Final = f"DELETE FROM dead_letters WHERE {_OF_GATEWAYS} AND {_TENANT} = ? AND id <= ?"
_WAITING: Final = f"SELECT {', '.join(Waiting._fields)} FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT ?"
_WAITING_OF: Final = (
    f"SELECT {', '.join(Waiting._fields)} FROM spool WHERE key = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?"
)


def _range(lane: Lane) -> tuple[int, int]:
    """Return the numbers between which the messages of a lane are."""
    return lane.first, (lane.number + 1) << BITS


def _bury(execute: Any, dead: Iterable[DeadLetter]) -> None:
    for letter in dead:
        execute(_BURY, tuple(getattr(letter, name) for name in _KEPT))


def _where(chosen: Mapping[str, str]) -> str:
    assert chosen.keys() <= set(_MEMBERS), chosen
    return "".join(f" AND {name} = ?" for name in chosen)


def _letters(rows: Iterable[Sequence[Any]]) -> list[DeadLetter]:
    return [DeadLetter(**dict(zip(_MEMBERS, row, strict=True))) for row in rows]


def _lock(directory: Path) -> int:
    """Return a file that is locked until it is closed, with this process's number in it. Raises ServiceError."""
    file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        raise ServiceError(
            f"{directory}: process {holder or '(unknown)'} uses this store; one process uses it at a time"
        ) from None
    except BaseException:
        os.close(file)
        raise
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file
