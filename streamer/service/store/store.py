"""The data that outlives a process: positions, dead letters, the spool.

A commit contains the positions of some batches together with their dead letters and their messages for the spool, so none of
these is stored without the others.

Several processes may use one database. Then a partition, and the delivery of the spool, belongs to one process at a time. A
process that takes it over raises a *generation*; commits of work under an earlier generation are refused (`Fenced`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

from streamer.config.schema.service import SharedStore
from streamer.service import faults
from streamer.service.connectors.protocols import Wrong
from streamer.service.store import lanes, positions
from streamer.service.store.database import Execute, Fenced
from streamer.service.store.lanes import BACKLOG, OLDEST_OF, WAITING, WAITING_OF, lanes_of, range_of, runs, waiting_of
from streamer.service.store.letters import (
    BY_REASON,
    FORGET_OLDEST,
    MOVE_LETTERS,
    OF_SINKS,
    OLDEST_OF_A_TENANT,
    ROOM,
    ROOM_AFTER,
    bury,
    letters_of,
    number_of,
    where,
)
from streamer.service.store.opened import opened
from streamer.service.store.rows import (
    OWN,
    Changes,
    Confirmed,
    DeadLetter,
    Lane,
    Spooled,
    Waiting,
    milliseconds,
)

_LOGGER: Final = logging.getLogger("streamer.service")
#: If there is no room for dead letters, this fraction of the room is freed from those of tenants' own gateways.
_FORGOTTEN: Final = 16
#: While there is no room, dead letters are measured again at this interval, in seconds.
_LOOK: Final = 1.0
#: Dead letters of others, and those that may be forgotten, are measured for a metric at most once in this interval, in seconds.
_LOOK_AT_OTHERS: Final = 60.0


@final
class Store:
    """The store of a process. Any thread may use it.

    Args:
        place: the directory of an embedded store, or the section of a shared one.

    Attributes:
        dead_letter_bytes: room for dead letters; a reload may change it.

    Raises:
        ServiceError: it cannot be opened, see `Sqlite` and `Postgres`. Every method raises it if the store cannot be used.
    """

    def __init__(self, place: Path | SharedStore, *, dead_letter_bytes: int = 1024**3) -> None:
        self.database = opened(place)
        self.dead_letter_bytes = dead_letter_bytes
        self._looked, self._counted = -inf, 0
        self._others_at, self._forgettable = -inf, 0
        self._is_logged = False
        self._generations: dict[tuple[str, str], int] = {}
        self._lanes: dict[str, Lane] = {}
        self._holder, self._leads = secrets.token_hex(8), None if self.database.is_shared else 0
        try:
            self._dead = self._measured()
        except BaseException:
            self.database.close()
            raise

    # Positions, and dead letters

    def positions(self, source: str, *, patient: bool = False) -> dict[str, str]:
        """Return the last confirmed position of each partition of a source, in the order in which they were begun."""
        statement = "SELECT partition, position FROM positions WHERE source = ? ORDER BY number"
        return dict(self.database.rows(statement, source, patient=patient))

    def others(self, configured: Container[str]) -> dict[str, dict[str, str]]:
        """Return the last confirmed positions of sources that are not configured."""
        return {source: self.positions(source) for source in self.sources() if source not in configured}

    def sources(self) -> list[str]:
        """Return the names of the sources that have positions."""
        return [source for (source,) in self.database.rows("SELECT DISTINCT source FROM positions ORDER BY source")]

    def move(self, source: str, target: str) -> None:
        """Move the positions of one source to another, and the dead letters of its records. The first source loses its positions.

        A partition that both have gets the position of the first. A process that reads either source can no longer confirm.
        """

        def move(execute: Execute) -> None:
            positions.move(execute, source, target)
            execute(MOVE_LETTERS, (target, source, target))

        self.database.change(move, tells=True)

    def forget_positions(self, source: str) -> None:
        """Delete the positions of a source, which then begins as a new one. A process that reads it can no longer confirm."""
        self.database.change(lambda execute: execute("DELETE FROM positions WHERE source = ?", (source,)), tells=True)

    def take(self, source: str) -> None:
        """Take over all partitions of a source: the previous owner can no longer confirm them."""

        generation, partitions = self.database.change(lambda execute: positions.take(execute, source))
        for partition in partitions:
            self._generations[source, partition] = generation

    def begin(self, source: str, partition: str, position: str) -> int:
        """Take over a partition before it is read. A new partition is stored at this position.

        Returns:
            Its generation, under which it is read from here on.
        """

        generation = self._generations[source, partition] = self.database.change(
            lambda execute: positions.begin(execute, source, partition, position), patient=True
        )
        faults.point("source.begin")
        return generation

    def generation(self, source: str, partition: str) -> int:
        """Return the generation of a partition that this process took over, which is unique; 0 if it did not take it over."""
        return self._generations.get((source, partition), 0)

    def commit(
        self,
        confirmed: Iterable[Confirmed],
        dead: Sequence[DeadLetter] = (),
        dropped: Sequence[int] = (),
        spooled: Sequence[Spooled] = (),
    ) -> list[tuple[int, Spooled]]:
        """Store positions together with dead letters and messages; a dead letter that already exists has failed once more.

        Args:
            dropped: numbers of dead letters that were delivered now.
            spooled: messages for the spool, in their order.

        Returns:
            The messages with their numbers, except those whose sink was deleted meanwhile.

        Raises:
            Fenced: another process took partitions over; the commit was refused whole.
        """
        size = self._room_for(dead)
        confirmed = list(confirmed)

        def commit(execute: Execute) -> list[tuple[int, Spooled]]:
            positions.confirm(execute, confirmed)
            bury(execute, dead)
            if dead:
                faults.point("store.dead")
            numbered = lanes.put(execute, self._lanes, spooled)
            if spooled:
                faults.point("store.spooled")
            for number in dropped:
                execute("DELETE FROM dead_letters WHERE id = ?", (number,))
            return numbered

        numbered = self.database.change(commit, patient=True, tells=bool(spooled))
        if dropped:
            self._dead = self._measured()
        elif not self.database.is_shared:
            # A shared store counts them with those of other processes.
            self._dead += size
        faults.point("store.committed")
        return numbered

    def _room_for(self, dead: Sequence[DeadLetter]) -> int:
        """Return the bytes of some dead letters. Raises ServiceError if there is no room for them."""
        size = sum(each.room for each in dead)
        if dead:
            self._count_others()
        if not self._makes_room(size):
            raise Wrong(
                f"{self.database.name}: the dead letters would take more than the {self.dead_letter_bytes:,} bytes of "
                "delivery.dead_letter_bytes; streamer dead-letters shows, replays and drops them"
            )
        return size

    def has_room(self, size: int) -> bool:
        """Return whether there is room for dead letters of this many bytes; once full, it is measured at most once a second."""
        self._count_others()
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
        """Return the room of all dead letters. The running sum may be larger, because some letters fail again."""
        ((room, self._counted),) = self.database.rows(ROOM, patient=True)
        return int(room)

    def _count_others(self) -> None:
        """Count the letters since the last look, which any process of a shared store may have written."""
        if self.database.is_shared:
            ((room, last),) = self.database.rows(ROOM_AFTER, self._counted, patient=True)
            if last is not None:
                self._dead, self._counted = self._dead + int(room), int(last)

    def _forget_letters(self) -> bool:
        """Delete the oldest letters of the tenant whose own gateways have most of them; return whether there were any.

        So a tenant's failing endpoint neither ends the service, nor causes the deletion of other tenants' letters.
        """
        sizes: Counter[str] = Counter()
        for sink, size in self.database.rows(OF_SINKS):
            sizes[sink.partition("/")[0]] += int(size)
        if not sizes:
            return False
        ((whose, _),) = sizes.most_common(1)
        beginning = f"{whose}/"
        last = freed = 0
        for number, size in self.database.rows(OLDEST_OF_A_TENANT, len(beginning), beginning):
            last, freed = number, freed + size
            if freed >= self.dead_letter_bytes // _FORGOTTEN:
                break
        count = self.database.change(lambda execute: execute(FORGET_OLDEST, (len(beginning), beginning, last)).rowcount)
        tenant = whose.removeprefix(OWN)
        _LOGGER.warning("the room for dead letters is used up: deleted %d of the gateways of tenant %s", count, tenant)
        return True

    def dead_letters(self) -> int:
        """Return the number of dead letters."""
        return int(self.database.rows("SELECT count(*) FROM dead_letters")[0][0])

    def drop(self, numbers: Iterable[int] | None) -> int:
        """Delete dead letters by their numbers, or all of them, and the messages that wait for them. Return their number."""

        def drop(execute: Execute) -> int:
            self.unseat(execute)
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

    def letters(
        self, after: int = 0, most: int = 1000, criteria: Mapping[str, str] = MappingProxyType({}), *, records: bool = True
    ) -> list[DeadLetter]:
        """Return dead letters in the order of their numbers, from the first after *after*; only those with *criteria*.

        Args:
            records: whether to read their records, too; each may have a megabyte.
        """
        return letters_of(self.database, after, most, criteria, records=records)

    def number_of(self, letter: DeadLetter) -> int | None:
        """Return the number of a stored dead letter; None if it was deleted."""
        return number_of(self.database, letter)

    def count_letters(self, criteria: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of the last dead letter, and how many have the members of *criteria*. Blocks no other call."""
        statement = f"SELECT coalesce(max(id), 0), count(*) FROM dead_letters WHERE id > 0{where(criteria)}"
        with closing(self.database.reader()) as reader:
            ((last, count),) = reader.rows(statement, *criteria.values())
            return int(last), int(count)

    def letters_by_reason(self, most: int) -> list[tuple[str, str, str, str, int, int, int]]:
        """Group the last dead letters by stage, code, source and sink; return their count and the first and last time of failure.

        Args:
            most: the number of letters to read. Blocks no other call.
        """
        with closing(self.database.reader()) as reader:
            return reader.rows(BY_REASON, most)

    # The spool

    def lane(self, name: str, *, reread: bool = False) -> Lane:
        """Return the lane of a sink in the spool, which exists from now on; *reread* reads it again from the store.

        The lane is always found meanwhile: messages for a sink without a lane are dropped.
        """
        if reread or (known := self._lanes.get(name)) is None:
            known = self._lanes[name] = self.database.change(
                lambda execute: lanes.lane_of(execute, name, self.database.name), patient=True
            )
        return known

    def forgotten(self, name: str) -> None:
        """Forget a lane that another process has deleted."""
        self._lanes.pop(name, None)

    def forget(self, name: str, execute: Execute) -> tuple[int, int, int]:
        """Delete the lane of a sink and its messages within a transaction; return the messages, bytes and matches deleted.

        Its dead letters stay. From now on, messages for the sink are dropped.
        """
        lane = self.lane(name)
        # Other writers have finished by then, or find the lane deleted: no message is left for the next lane of its number.
        execute("DELETE FROM lanes WHERE number = ? AND mark = ?", (lane.number, lane.mark))
        (totals,) = execute(BACKLOG, range_of(lane)).fetchall()
        execute("DELETE FROM spool WHERE number > ? AND number < ?", range_of(lane))
        execute("UPDATE dead_letters SET spooled = NULL WHERE sink = ?", (name,))
        self._lanes.pop(name, None)
        return int(totals[0]), int(totals[1]), int(totals[2])

    def trim(self, lane: Lane, last: int) -> None:
        """Delete the oldest messages of a lane, up to a number. Numbers are not reused."""
        self.database.change(
            lambda execute: execute("DELETE FROM spool WHERE number > ? AND number <= ?", (lane.first, last)), patient=True
        )

    def oldest_of(self, lane: Lane, most: int) -> list[tuple[int, int, int]]:
        """Return number, bytes and time of the oldest messages of a lane."""
        return self.database.rows(OLDEST_OF, *range_of(lane), most, patient=True)

    def backlog(self, lane: Lane, after: int = 0) -> tuple[int, int, int]:
        """Return the number of messages for a sink, from the first after a number, with their bytes and matches.

        A shared store counts only up to the lane's known end: later messages count at the next look.
        """
        end = lane.last + 1 if self.database.is_shared else range_of(lane)[1]
        ((messages, size, matches),) = self.database.rows(BACKLOG, max(after, lane.first), end, patient=True)
        return int(messages), int(size), int(matches)

    def lanes(self) -> list[tuple[str, int, int]]:
        """Return the sinks that have messages in the spool, with their number and bytes; without tenants' own gateways."""
        return lanes_of(self.database)

    def waiting(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Waiting]:
        """Return messages for a sink in their order, from the first after a number; the last may exceed the limit of bytes."""
        values = (max(after, lane.first), range_of(lane)[1], most)
        return list(map(waiting_of, self.database.some(WAITING, values, most_bytes, patient=True)))

    def waiting_of(self, lane: Lane, key: int, after: int, last: int, most: int) -> list[Waiting]:
        """Return messages of one key in their order, after one number and up to another."""
        return [waiting_of(row) for row in self.database.rows(WAITING_OF, key, max(after, lane.first), last, most, patient=True)]

    def oldest(self, lane: Lane) -> int | None:
        """Return the time of the oldest message for a sink, in milliseconds since the epoch; None if there is none."""
        rows = self.database.rows("SELECT at FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT 1", *range_of(lane))
        return rows[0][0] if rows else None

    def settle(self, changes: Changes, spooled: Sequence[Spooled] = ()) -> list[tuple[int, Spooled]]:
        """Store the results of messages: those that are delivered or dead letters leave the spool.

        Args:
            spooled: messages for the spool about these dead letters.

        Returns:
            These with their numbers, as `commit` does.
        """
        dead = [letter for _, letter in changes.dead]
        size = self._room_for(dead)
        ranges = runs([*changes.delivered, *(number for number, letter in changes.dead if letter.spooled is None)])

        def settle(execute: Execute) -> list[tuple[int, Spooled]]:
            self._leading(execute)
            bury(execute, dead)
            execute.many("DELETE FROM spool WHERE number BETWEEN ? AND ?", ranges)
            execute.many("UPDATE spool SET attempts = ?, due = ? WHERE number = ?", changes.tried)
            for name, target in changes.gone:
                execute("UPDATE lanes SET gone = ?, target = ? WHERE name = ?", (milliseconds(), target, name))
            numbered = lanes.put(execute, self._lanes, spooled)
            faults.point("spool.settling")
            return numbered

        numbered = self.database.change(settle, patient=True, tells=bool(spooled))
        self._dead += size
        faults.point("spool.settled")
        return numbered

    # Which of several processes delivers the spool

    def lead(self, seconds: float) -> int | None:
        """Have this process deliver the spool for *seconds*; another process can do so only after that.

        Returns:
            A number that changes with each new leader; None if another process delivers.
        """

        def lead(execute: Execute) -> int | None:
            rows = execute(_LEAD, (self._holder, self._holder, seconds, self._holder)).fetchall()
            return rows[0][0] if rows else None

        self._leads = self.database.change(lead, patient=True)
        return self._leads

    def leave(self) -> None:
        """Let another process deliver the spool at once."""
        if self.database.is_shared and self._leads is not None:
            statement = "UPDATE leader SET holder = '', until = '-infinity' WHERE holder = ?"
            self.database.change(lambda execute: execute(statement, (self._holder,)), tells=True)
            self._leads = None

    def unseat(self, execute: Execute) -> None:
        """Have the leader restart its deliveries if it is another process, because this change is unknown to it.

        The leader stays the same process: only it has the list of requests in flight, and waits for them.
        """
        if self._leads is None:
            execute("UPDATE leader SET generation = generation + 1")

    def lasts(self) -> list[tuple[str, str, int]]:
        """Return the name, the mark and the last number of each lane."""
        return self.database.rows("SELECT name, mark, last FROM lanes", patient=True)

    def _leading(self, execute: Execute) -> None:
        """Raise Fenced if another process delivers the messages in the spool."""
        if self.database.is_shared:
            statement = "UPDATE leader SET until = until WHERE holder = ? AND generation = ?"
            if not execute(statement, (self._holder, self._leads or 0)).rowcount:
                raise Fenced("another process delivers the messages in the spool")

    def enable(self, name: str) -> bool:
        """Deliver again to a sink with a disabled endpoint; return whether it was disabled."""
        statement = "UPDATE lanes SET gone = NULL, target = NULL WHERE name = ? AND gone IS NOT NULL"

        def enable(execute: Execute) -> int:
            self.unseat(execute)
            return int(execute(statement, (name,)).rowcount)

        was_disabled = self.database.change(enable, tells=True)
        if name in self._lanes:
            self._lanes[name].gone = self._lanes[name].target = None
        return bool(was_disabled)

    def clear(self, name: str) -> int | None:
        """Delete the messages for a sink; return their number, None if it never had any. Their dead letters stay."""
        if not self.database.rows("SELECT 1 FROM lanes WHERE name = ?", name):
            return None
        self.lane(name)

        def clear(execute: Execute) -> int:
            self.unseat(execute)
            return self.forget(name, execute)[0]

        return self.database.change(clear, tells=True)

    def respool(self, letters: Sequence[DeadLetter]) -> None:
        """Return messages of dead letters to the spool, with their ids; the letters are deleted.

        A message that waits in the spool for its letter becomes due in its place. Any other is appended.
        """
        for letter in letters:
            self.lane(letter.sink)

        def respool(execute: Execute) -> None:
            self.unseat(execute)
            again = []
            for letter in letters:
                execute("DELETE FROM dead_letters WHERE id = ?", (letter.id,))
                here = (letter.spooled,)
                if here != (None,) and execute("UPDATE spool SET attempts = 0, due = 0 WHERE number = ?", here).rowcount:
                    continue
                where = (letter.source, letter.partition, letter.position, letter.part)
                again.append(Spooled(letter.sink, letter.key, letter.message, letter.matches, *where, letter.record))
            lanes.put(execute, self._lanes, again)

        self.database.change(respool, tells=True)
        self._dead = self._measured()

    # For the modules that build on the store

    def used(self) -> dict[str, float]:
        """Return the used share of the room for dead letters, and of a disk of this machine. Raises ServiceError.

        Letters of tenants' own gateways are not counted: they are forgotten when others need the room.
        """
        if time.monotonic() - self._others_at >= _LOOK_AT_OTHERS:
            self._others_at = time.monotonic()
            if self.database.is_shared:
                # Other processes delete letters, too.
                ((room, self._counted),) = self.database.rows(ROOM)
                self._dead = int(room)
            with closing(self.database.reader()) as reader:
                self._forgettable = sum(int(size) for _, size in reader.rows(OF_SINKS))
        shares = {"dead_letters": max(self._dead - self._forgettable, 0) / self.dead_letter_bytes}
        disk = self.database.disk_used()
        return shares if disk is None else shares | {"disk": disk}

    def is_writable(self) -> bool:
        """Return whether the last change succeeded; if it failed, whether one would now. See `Database`."""
        return self.database.is_writable()

    def gone(self) -> str | None:
        """Return the part of the store that was deleted or replaced while it was open, and log it once. See `Database`."""
        reason = self.database.gone()
        if reason is not None and not self._is_logged:
            self._is_logged = True
            _LOGGER.error("%s", reason)
        return reason

    def close(self) -> None:
        """Close it, so that another process can use it."""
        self.database.close()


#: For PostgreSQL only; it uses the server's clock, so that processes' clocks need not agree.
_LEAD: Final = (
    "UPDATE leader SET generation = CASE WHEN holder = ? THEN generation ELSE generation + 1 END, holder = ?,"
    " until = clock_timestamp() + make_interval(secs => ?) WHERE holder = ? OR until < clock_timestamp() RETURNING generation"
)
