"""What outlives a process, by what is asked of it: positions, dead letters, the spool.

A commit holds the positions of some batches together with their dead letters and with what they put into the spool, so none is
there without the others.

Several processes may use one database. Then a partition, and the delivery of the spool, is one process's at a time: who takes it
over raises a *generation*, and what was begun under the one before is refused when it is committed (`Fenced`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

from streamer.config.schema.service import SharedStore
from streamer.errors import ServiceError
from streamer.extras import needed
from streamer.service import faults
from streamer.service.store.database import Database, Execute, Fenced, Reader
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
from streamer.service.store.sqlite import Beside, Sqlite

_LOGGER: Final = logging.getLogger("streamer.service")
#: What the name of the sink of a tenant's own gateway begins with, which is `gateway:TENANT/ID`, percent-encoded.
OWN: Final = "gateway:"
#: Where dead letters leave no room, this part of it is taken from those of tenants' own gateways.
_FORGOTTEN: Final = 16
#: Dead letters that left no room are measured again so often, in seconds.
_LOOK: Final = 1.0


def opened(place: Path | SharedStore) -> Database:
    """Open the database of a store. Raises ServiceError."""
    if isinstance(place, Path):
        return Sqlite(place)
    try:
        with needed("a store on PostgreSQL needs psycopg", "postgres"):
            from streamer.service.store.postgres import Postgres
    except ImportError as error:
        raise ServiceError(str(error)) from error
    return Postgres(place)


@contextmanager
def beside(place: Path | SharedStore) -> Iterator[Reader]:
    """Read a store beside the processes that use it. Raises ServiceError."""
    reader: Reader = Beside(place) if isinstance(place, Path) else opened(place)
    with closing(reader):
        yield reader


@final
class Store:
    """The store of a process. Any thread may use it.

    Args:
        place: the directory of an embedded store, or where a shared one is.

    Attributes:
        dead_letter_bytes: room for dead letters; a reload may change it.

    Raises:
        ServiceError: it cannot be opened, see `Sqlite` and `Postgres`. Every method raises it where the store cannot be used.
    """

    def __init__(self, place: Path | SharedStore, *, dead_letter_bytes: int = 1024**3) -> None:
        self.database = opened(place)
        self.dead_letter_bytes = dead_letter_bytes
        self._looked = -inf
        self._generations: dict[tuple[str, str], int] = {}
        self._lanes: dict[str, Lane] = {}
        self._holder, self._leads = secrets.token_hex(8), None if self.database.is_shared else 0
        try:
            self._dead = self._measured()
        except BaseException:
            self.database.close()
            raise

    # Positions, and what could not be delivered

    def positions(self, source: str, *, patient: bool = False) -> dict[str, str]:
        """Return where each partition of a source was confirmed last, in the order in which they were begun."""
        statement = "SELECT partition, position FROM positions WHERE source = ? ORDER BY number"
        return dict(self.database.rows(statement, source, patient=patient))

    def take(self, source: str) -> None:
        """Have all partitions of a source be ours: who had them before confirms nothing of them any more."""

        def take(execute: Execute) -> tuple[int, list[tuple[str]]]:
            generation = _generation(execute)
            statement = "UPDATE positions SET generation = ? WHERE source = ? RETURNING partition"
            return generation, execute(statement, (generation, source)).fetchall()

        generation, partitions = self.database.change(take)
        for (partition,) in partitions:
            self._generations[source, partition] = generation

    def begin(self, source: str, partition: str, position: str) -> int:
        """Have a partition be ours, before anything of it is read; one that is not known is kept at this position.

        Returns:
            Its generation, as of which it is read from here on.
        """

        def begin(execute: Execute) -> int:
            generation = _generation(execute)
            execute(_BEGIN, (source, partition, position, generation))
            return generation

        found = self._generations[source, partition] = self.database.change(begin, patient=True)
        faults.point("source.begin")
        return found

    def generation(self, source: str, partition: str) -> int:
        """Return what a partition was given when this process took it over, and was never given before; 0 where it did not."""
        return self._generations.get((source, partition), 0)

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

        Raises:
            Fenced: another process has taken partitions over; nothing is put down.
        """
        size = self._room_for(dead)
        confirmed = list(confirmed)

        def commit(execute: Execute) -> list[tuple[int, Spooled]]:
            self._confirm(execute, confirmed)
            _bury(execute, dead)
            if dead:
                faults.point("store.dead")
            taken = self._spool(execute, spooled)
            if spooled:
                faults.point("store.spooled")
            for number in dropped:
                execute("DELETE FROM dead_letters WHERE id = ?", (number,))
            return taken

        taken = self.database.change(commit, patient=True, tells=bool(spooled))
        self._dead = self._measured() if dropped else self._dead + size
        faults.point("store.committed")
        return taken

    def _confirm(self, execute: Execute, confirmed: Iterable[Confirmed]) -> None:
        """Put positions down first: so no other process takes a partition over before all is committed."""
        fenced = set()
        for each in sorted(confirmed, key=lambda each: (each.source, each.partition)):
            name = (each.source, each.partition)
            if each.is_over:
                is_ours = execute(_END, (*name, each.generation)).rowcount
            else:
                is_ours = execute(_CONFIRM, (each.position, *name, each.generation)).rowcount
            # What was never begun is nobody's.
            if not is_ours and not (not each.generation and _is_new(execute, each)):
                fenced.add((*name, each.generation))
        if fenced:
            named = ", ".join(f"{source}: {partition}" for source, partition, _ in sorted(fenced))
            raise Fenced(f"another process reads these now, and goes on where they were confirmed: {named}", frozenset(fenced))

    def _room_for(self, dead: Sequence[DeadLetter]) -> int:
        """Return how many bytes some dead letters take. Raises ServiceError where there is no room for them."""
        size = sum(len(each.record) + len(each.reason) for each in dead)
        if not self._makes_room(size):
            raise ServiceError(
                f"{self.database.name}: the dead letters would take more than the {self.dead_letter_bytes:,} bytes of "
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
        return int(self.database.rows(_ROOM, patient=True)[0][0])

    def _forget_letters(self) -> bool:
        """Forget the oldest letters of the tenant whose own gateways have most of them; tell whether there were any.

        So no tenant ends the service by an endpoint that takes nothing, nor has others' letters forgotten.
        """
        sizes: Counter[str] = Counter()
        for sink, size in self.database.rows(_OF_SINKS):
            sizes[sink.partition("/")[0]] += int(size)
        if not sizes:
            return False
        ((whose, _),) = sizes.most_common(1)
        beginning = f"{whose}/"
        last = freed = 0
        for number, size in self.database.rows(_OLDEST_OF_A_TENANT, len(beginning), beginning):
            last, freed = number, freed + size
            if freed >= self.dead_letter_bytes // _FORGOTTEN:
                break
        count = self.database.change(lambda execute: execute(_FORGET_OLDEST, (len(beginning), beginning, last)).rowcount)
        told = whose.removeprefix(OWN)
        _LOGGER.warning("there is no more room for dead letters: %d of the gateways of tenant %s are forgotten", count, told)
        return True

    def dead_letters(self) -> int:
        """Count the dead letters."""
        return int(self.database.rows("SELECT count(*) FROM dead_letters")[0][0])

    def drop(self, numbers: Iterable[int] | None) -> int:
        """Drop dead letters by their numbers, or all of them, and what waits for them; return how many there were."""

        def drop(execute: Execute) -> int:
            self._unseat(execute)
            if numbers is None:
                execute("DELETE FROM spool WHERE number IN (SELECT spooled FROM dead_letters)")
                return int(execute("DELETE FROM dead_letters").rowcount)
            count = 0
            for number in numbers:
                execute("DELETE FROM spool WHERE number IN (SELECT spooled FROM dead_letters WHERE id = ?)", (number,))
                count += execute("DELETE FROM dead_letters WHERE id = ?", (number,)).rowcount
            return count

        numbers = None if numbers is None else list(numbers)
        count = self.database.change(drop, tells=True)
        self._dead = self._measured()
        return count

    def letters(self, after: int = 0, most: int = 1000, chosen: Mapping[str, str] = MappingProxyType({})) -> list[DeadLetter]:
        """Return dead letters in the order of their numbers, from the first after one; only those with the *chosen* members."""
        return letters_of(self.database, after, most, chosen)

    def count_letters(self, chosen: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of the last dead letter, and how many have the *chosen* members. Nobody waits for it."""
        statement = f"SELECT coalesce(max(id), 0), count(*) FROM dead_letters WHERE id > 0{_where(chosen)}"
        with closing(self.database.reader()) as reader:
            ((last, count),) = reader.rows(statement, *chosen.values())
            return int(last), int(count)

    def letters_by_reason(self, most: int) -> list[tuple[str, str, str, str, int, int, int]]:
        """Return stage, code, source and sink of the last dead letters, how many these are, and when the first and last failed.

        Args:
            most: so many letters are looked at. Nobody waits for it.
        """
        with closing(self.database.reader()) as reader:
            return reader.rows(_BY_REASON, most)

    # The spool

    def lane(self, name: str, *, anew: bool = False) -> Lane:
        """Return what the spool holds for a sink, which it knows from now on; *anew* as the store has it now.

        Nobody finds the sink unknown meanwhile: what is for one that is unknown is left out.
        """
        if anew or (known := self._lanes.get(name)) is None:
            known = self._lanes[name] = self.database.change(lambda execute: self._lane(execute, name), patient=True)
        return known

    def _lane(self, execute: Execute, name: str) -> Lane:
        rows = execute(_LANE, (name,)).fetchall()
        if not rows:
            # One process at a time looks for a number that is free.
            execute("UPDATE versions SET last = last")
            ((number,),) = execute(_FREE_LANE).fetchall()
            if number >= LANES:
                raise ServiceError(f"{self.database.name}: there are {LANES:,} sinks and gateways, and no room for more")
            new = "INSERT INTO lanes (number, name, last, mark) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
            execute(new, (number, name, number << BITS, secrets.token_hex(4)))
            rows = execute(_LANE, (name,)).fetchall()
        return Lane(name, *rows[0])

    def forgotten(self, name: str) -> None:
        """Learn that another process has forgotten a sink."""
        self._lanes.pop(name, None)

    def forget(self, name: str, execute: Execute) -> tuple[int, int, int]:
        """Drop what the spool holds for a sink, and all that is known of it, within a transaction; return what that was.

        Its dead letters stay. What is to be spooled for it from now on is left out.
        """
        lane = self.lane(name)
        # Whoever adds to it is through by then, or finds that it is gone: nothing is left for the next lane of its number.
        execute("DELETE FROM lanes WHERE number = ? AND mark = ?", (lane.number, lane.mark))
        (held,) = execute(_HELD, _range(lane)).fetchall()
        execute("DELETE FROM spool WHERE number > ? AND number < ?", _range(lane))
        execute("UPDATE dead_letters SET spooled = NULL WHERE sink = ?", (name,))
        self._lanes.pop(name, None)
        return int(held[0]), int(held[1]), int(held[2])

    def trim(self, lane: Lane, last: int) -> None:
        """Take the oldest messages of a lane out, up to one. Their numbers are not given again."""
        self.database.change(
            lambda execute: execute("DELETE FROM spool WHERE number > ? AND number <= ?", (lane.first, last)), patient=True
        )

    def oldest_of(self, lane: Lane, most: int) -> list[tuple[int, int, int]]:
        """Return number, bytes and time of the oldest messages of a lane."""
        return self.database.rows(_OLDEST_OF, *_range(lane), most, patient=True)

    def held(self, lane: Lane, after: int = 0) -> tuple[int, int, int]:
        """Count the messages for a sink, from the first after one, their bytes, and the matches that they tell of."""
        ((messages, size, matches),) = self.database.rows(_HELD, max(after, lane.first), _range(lane)[1], patient=True)
        return int(messages), int(size), int(matches)

    def lanes(self) -> list[tuple[str, int, int]]:
        """Return the sinks that the spool holds messages for, tenants' own aside, how many, and their bytes."""
        return lanes_of(self.database)

    def _spool(self, execute: Execute, spooled: Sequence[Spooled]) -> list[tuple[int, Spooled]]:
        """Insert messages; return those whose lane there is, with their numbers, each lane's without a gap.

        A lane's row is locked from here until the commit, so that its numbers are seen in their order.
        """
        by_lane: dict[str, list[Spooled]] = {}
        for each in spooled:
            by_lane.setdefault(each.sink, []).append(each)
        known = [(lane, found) for sink, found in by_lane.items() if (lane := self._lanes.get(sink)) is not None]
        taken: list[tuple[int, Spooled]] = []
        for lane, found in sorted(known, key=lambda each: each[0].number):
            rows = execute(_GIVE_NUMBERS, (len(found), lane.number, lane.mark)).fetchall()
            if rows:
                taken += enumerate(found, rows[0][0] - len(found) + 1)
        now = milliseconds()
        execute.many(
            f"INSERT INTO spool VALUES ({', '.join('?' * len(Waiting._fields))})",
            (
                (number, key, message, matches, 0, 0, now, source, partition, str(position), part, body)
                for number, (_, key, message, matches, source, partition, position, part, body) in taken
            ),
        )
        return taken

    def waiting(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Waiting]:
        """Return messages for a sink in their order, from the first after one; the last of them may pass the bound in bytes."""
        values = (max(after, lane.first), _range(lane)[1], most)
        return list(map(_waiting, self.database.some(_WAITING, values, most_bytes, patient=True)))

    def waiting_of(self, lane: Lane, key: int, after: int, last: int, most: int) -> list[Waiting]:
        """Return messages of one key in their order, after one and not after another."""
        return [_waiting(row) for row in self.database.rows(_WAITING_OF, key, max(after, lane.first), last, most, patient=True)]

    def oldest(self, lane: Lane) -> int | None:
        """Return when the first of the messages for a sink came, in milliseconds since the epoch; None where there are none."""
        rows = self.database.rows("SELECT at FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT 1", *_range(lane))
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
        left = _runs([*changes.delivered, *(number for number, letter in changes.dead if letter.spooled is None)])

        def settle(execute: Execute) -> list[tuple[int, Spooled]]:
            self._leading(execute)
            _bury(execute, dead)
            execute.many("DELETE FROM spool WHERE number BETWEEN ? AND ?", left)
            execute.many("UPDATE spool SET attempts = ?, due = ? WHERE number = ?", changes.tried)
            for name, target in changes.gone:
                execute("UPDATE lanes SET gone = ?, target = ? WHERE name = ?", (milliseconds(), target, name))
            taken = self._spool(execute, spooled)
            faults.point("spool.settling")
            return taken

        taken = self.database.change(settle, patient=True, tells=bool(spooled))
        self._dead += size
        faults.point("spool.settled")
        return taken

    # Who delivers what the spool holds, of several processes

    def lead(self, seconds: float) -> int | None:
        """Have this process deliver what the spool holds, for so long; another one only does so after that.

        Returns:
            A number, another one whenever somebody began to; None where another process delivers.
        """

        def lead(execute: Execute) -> int | None:
            rows = execute(_LEAD, (self._holder, self._holder, seconds, self._holder)).fetchall()
            return rows[0][0] if rows else None

        self._leads = self.database.change(lead, patient=True)
        return self._leads

    def leave(self) -> None:
        """Have another process deliver what the spool holds, at once."""
        if self.database.is_shared and self._leads is not None:
            statement = "UPDATE leader SET holder = '', until = '-infinity' WHERE holder = ?"
            self.database.change(lambda execute: execute(statement, (self._holder,)), tells=True)
            self._leads = None

    def _unseat(self, execute: Execute) -> None:
        """Have who delivers begin anew where that is another process, since what it knows is changed here.

        It is the same one still: it alone knows what is on its way, and waits for that.
        """
        if self._leads is None:
            execute("UPDATE leader SET generation = generation + 1")

    def lasts(self) -> list[tuple[str, str, int]]:
        """Return name and mark of each lane, and the number that was given there last."""
        return self.database.rows("SELECT name, mark, last FROM lanes", patient=True)

    def _leading(self, execute: Execute) -> None:
        """Raise Fenced where another process delivers what the spool holds."""
        if self.database.is_shared:
            statement = "UPDATE leader SET until = until WHERE holder = ? AND generation = ?"
            if not execute(statement, (self._holder, self._leads or 0)).rowcount:
                raise Fenced("another process delivers what the spool holds")

    def enable(self, name: str) -> bool:
        """Deliver again to a sink whose endpoint wanted no more; tell whether it was so."""
        statement = "UPDATE lanes SET gone = NULL, target = NULL WHERE name = ? AND gone IS NOT NULL"

        def enable(execute: Execute) -> int:
            self._unseat(execute)
            return int(execute(statement, (name,)).rowcount)

        found = self.database.change(enable, tells=True)
        if name in self._lanes:
            self._lanes[name].gone = self._lanes[name].target = None
        return bool(found)

    def clear(self, name: str) -> int | None:
        """Forget the messages for a sink; return how many there were, None where it never had any. Their dead letters stay."""
        if not self.database.rows("SELECT 1 FROM lanes WHERE name = ?", name):
            return None
        self.lane(name)

        def clear(execute: Execute) -> int:
            self._unseat(execute)
            return self.forget(name, execute)[0]

        return self.database.change(clear, tells=True)

    def respool(self, letters: Sequence[DeadLetter]) -> None:
        """Put messages that were given up into the spool again, with their ids; the letters are dropped.

        One that waits in the spool for its letter is due where it stands. Any other stands behind all that wait.
        """
        for letter in letters:
            self.lane(letter.sink)

        def respool(execute: Execute) -> None:
            self._unseat(execute)
            again = []
            for letter in letters:
                execute("DELETE FROM dead_letters WHERE id = ?", (letter.id,))
                here = (letter.spooled,)
                if here != (None,) and execute("UPDATE spool SET attempts = 0, due = 0 WHERE number = ?", here).rowcount:
                    continue
                where = (letter.source, letter.partition, letter.position, letter.part)
                again.append(Spooled(letter.sink, letter.key, letter.message, letter.matches, *where, letter.record))
            self._spool(execute, again)

        self.database.change(respool, tells=True)
        self._dead = self._measured()

    # What others build on

    def is_writable(self) -> bool:
        """Tell whether the last change succeeded; where it failed, whether one would now. See `Database`."""
        return self.database.is_writable()

    def close(self) -> None:
        """Close it, and let another process have it."""
        self.database.close()


def _generation(execute: Execute) -> int:
    """Return a generation that no partition ever had."""
    ((generation,),) = execute("UPDATE generations SET last = last + 1 RETURNING last").fetchall()
    return int(generation)


def _is_new(execute: Execute, each: Confirmed) -> bool:
    """Put a partition down that the store does not know; tell whether that is so."""
    if each.is_over:
        return not execute("SELECT 1 FROM positions WHERE source = ? AND partition = ?", (each.source, each.partition)).fetchall()
    return each.position is None or bool(execute(_CONFIRM_NEW, (each.source, each.partition, each.position)).rowcount)


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of numbers without a gap; a run is deleted at about the cost of one row."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


def letters_of(
    reader: Reader, after: int = 0, most: int = 1000, chosen: Mapping[str, str] = MappingProxyType({})
) -> list[DeadLetter]:
    """Read as `Store.letters`. Raises ServiceError."""
    statement = _LETTERS.replace("id > ?", f"id > ?{_where(chosen)}")
    return [
        DeadLetter(**{**(told := dict(zip(_MEMBERS, row, strict=True))), "position": position_of(told["position"])})
        for row in reader.rows(statement, after, *chosen.values(), most)
    ]


def lanes_of(reader: Reader) -> list[tuple[str, int, int]]:
    """Read as `Store.lanes`. Raises ServiceError."""
    lanes = [Lane(*row) for row in reader.rows("SELECT name, number, gone, target, last, mark FROM lanes ORDER BY number")]
    held = [(lane.name, *reader.rows(_HELD, *_range(lane))[0][:2]) for lane in lanes if not lane.name.startswith(OWN)]
    return [(name, int(count), int(size)) for name, count, size in held if count]


def look(place: Path | SharedStore, after: int = 0, most: int = 1000, number: int | None = None) -> list[DeadLetter]:
    """Read dead letters beside the processes that use a store. Raises ServiceError.

    Args:
        number: only this one.
    """
    if number is not None:
        after, most = number - 1, 1
    with beside(place) as reader:
        return [each for each in letters_of(reader, after, most) if number in (None, each.id)]


_CONFIRM: Final = "UPDATE positions SET position = coalesce(?, position) WHERE source = ? AND partition = ? AND generation = ?"
_END: Final = "DELETE FROM positions WHERE source = ? AND partition = ? AND generation = ?"
_BEGIN: Final = (
    "INSERT INTO positions (source, partition, position, generation) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (source, partition) DO UPDATE SET generation = excluded.generation"
)
_CONFIRM_NEW: Final = (
    "INSERT INTO positions (source, partition, position) VALUES (?, ?, ?) ON CONFLICT (source, partition) DO NOTHING"
)
_LANE: Final = "SELECT number, gone, target, last, mark FROM lanes WHERE name = ?"
_GIVE_NUMBERS: Final = "UPDATE lanes SET last = last + ? WHERE number = ? AND mark = ? RETURNING last"
#: Of PostgreSQL alone; by its clock, so that processes' clocks need not agree.
_LEAD: Final = (
    "UPDATE leader SET generation = CASE WHEN holder = ? THEN generation ELSE generation + 1 END, holder = ?,"
    " until = clock_timestamp() + make_interval(secs => ?) WHERE holder = ? OR until < clock_timestamp() RETURNING generation"
)
_ROOM: Final = "SELECT coalesce(sum(length(record) + length(reason)), 0) FROM dead_letters"
_LETTERS: Final = (
    "SELECT id, source, partition, position, part, stage, code, reason, attempts, at, size, record, sink, message, matches, key,"
    " spooled FROM dead_letters WHERE id > ? ORDER BY id LIMIT ?"
)
_BY_REASON: Final = (
    "SELECT stage, code, source, sink, count(*), min(at), max(at) FROM (SELECT stage, code, source, sink, at FROM dead_letters"
    " ORDER BY id DESC LIMIT ?) AS newest GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC"
)
_MEMBERS: Final = tuple(name.strip() for name in _LETTERS.removeprefix("SELECT ").partition(" FROM")[0].split(","))
_KEPT: Final = _MEMBERS[1:]
_BURY: Final = (
    f"INSERT INTO dead_letters ({', '.join(_KEPT)}) VALUES ({', '.join('?' * len(_KEPT))}) ON CONFLICT"
    " (source, partition, position, part, sink, message) DO UPDATE SET"
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
_OF_SINKS: Final = f"SELECT sink, sum(length(record) + length(reason)) FROM dead_letters WHERE {_OF_GATEWAYS} GROUP BY sink"
_OF_A_TENANT: Final = "substr(sink, 1, ?) = ? AND spooled IS NULL"
_OLDEST_OF_A_TENANT: Final = f"SELECT id, length(record) + length(reason) FROM dead_letters WHERE {_OF_A_TENANT} ORDER BY id"
_FORGET_OLDEST: Final = f"DELETE FROM dead_letters WHERE {_OF_A_TENANT} AND id <= ?"
_WAITING: Final = f"SELECT {', '.join(Waiting._fields)} FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT ?"
_POSITION: Final = Waiting._fields.index("position")
_WAITING_OF: Final = (
    f"SELECT {', '.join(Waiting._fields)} FROM spool WHERE key = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?"
)


def _range(lane: Lane) -> tuple[int, int]:
    """Return the numbers between which the messages of a lane are."""
    return lane.first, (lane.number + 1) << BITS


def _where(chosen: Mapping[str, str]) -> str:
    assert chosen.keys() <= set(_MEMBERS), chosen
    return "".join(f" AND {name} = ?" for name in chosen)


def _waiting(row: Sequence[Any]) -> Waiting:
    return Waiting._make((*row[:_POSITION], position_of(row[_POSITION]), *row[_POSITION + 1 :]))


def _bury(execute: Execute, dead: Iterable[DeadLetter]) -> None:
    for letter in dead:
        values = {name: getattr(letter, name) for name in _KEPT}
        # Not every database keeps U+0000 in texts; of these only the reason may have one, which is for people.
        values |= {"position": str(letter.position), "reason": letter.reason.replace("\0", "␀")}
        execute(_BURY, tuple(values.values()))
