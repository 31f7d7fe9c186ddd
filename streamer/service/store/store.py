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
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Final, final

from streamer.config.schema.service import SharedStore
from streamer.service import faults
from streamer.service.protocols import Wrong
from streamer.service.store import lanes, positions
from streamer.service.store.database import Execute, Fenced
from streamer.service.store.lanes import HELD, OLDEST_OF, WAITING, WAITING_OF, lanes_of, range_of, runs, waiting_of
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
#: Where dead letters leave no room, this part of it is taken from those of tenants' own gateways.
_FORGOTTEN: Final = 16
#: Dead letters that left no room are measured again so often, in seconds.
_LOOK: Final = 1.0


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
        self._looked, self._counted = -inf, 0
        self._is_told = False
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

    def others(self, configured: Container[str]) -> dict[str, dict[str, str]]:
        """Return where the partitions of sources that are not configured were confirmed last."""
        return {source: self.positions(source) for source in self.sources() if source not in configured}

    def sources(self) -> list[str]:
        """Return the names of the sources that have positions."""
        return [source for (source,) in self.database.rows("SELECT DISTINCT source FROM positions ORDER BY source")]

    def move(self, source: str, target: str) -> None:
        """Have a source go on where another one was confirmed, which loses its positions. Dead letters of records move, too.

        A partition that both have is kept at the position of the first. Whoever reads either of them can confirm nothing more.
        """

        def move(execute: Execute) -> None:
            positions.move(execute, source, target)
            execute(MOVE_LETTERS, (target, source, target))

        self.database.change(move, tells=True)

    def take(self, source: str) -> None:
        """Have all partitions of a source be ours: who had them before confirms nothing of them any more."""

        generation, partitions = self.database.change(lambda execute: positions.take(execute, source))
        for partition in partitions:
            self._generations[source, partition] = generation

    def begin(self, source: str, partition: str, position: str) -> int:
        """Have a partition be ours, before anything of it is read; one that is not known is kept at this position.

        Returns:
            Its generation, as of which it is read from here on.
        """

        found = self._generations[source, partition] = self.database.change(
            lambda execute: positions.begin(execute, source, partition, position), patient=True
        )
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
            positions.confirm(execute, confirmed)
            bury(execute, dead)
            if dead:
                faults.point("store.dead")
            taken = lanes.put(execute, self._lanes, spooled)
            if spooled:
                faults.point("store.spooled")
            for number in dropped:
                execute("DELETE FROM dead_letters WHERE id = ?", (number,))
            return taken

        taken = self.database.change(commit, patient=True, tells=bool(spooled))
        if dropped:
            self._dead = self._measured()
        elif not self.database.is_shared:
            # In a shared store they are counted with those of other processes.
            self._dead += size
        faults.point("store.committed")
        return taken

    def _room_for(self, dead: Sequence[DeadLetter]) -> int:
        """Return how many bytes some dead letters take. Raises ServiceError where there is no room for them."""
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
        """Tell whether there is room for dead letters of so many bytes; where there was none, it is looked for once a second."""
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
        """Return how much room the dead letters take; what is added up meanwhile may be more, since some fail again."""
        ((room, self._counted),) = self.database.rows(ROOM, patient=True)
        return int(room)

    def _count_others(self) -> None:
        """Count the letters since the last look, which any process of a shared store may have written."""
        if self.database.is_shared:
            ((room, last),) = self.database.rows(ROOM_AFTER, self._counted, patient=True)
            if last is not None:
                self._dead, self._counted = self._dead + int(room), int(last)

    def _forget_letters(self) -> bool:
        """Forget the oldest letters of the tenant whose own gateways have most of them; tell whether there were any.

        So no tenant ends the service by an endpoint that takes nothing, nor has others' letters forgotten.
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
        told = whose.removeprefix(OWN)
        _LOGGER.warning("there is no more room for dead letters: %d of the gateways of tenant %s are forgotten", count, told)
        return True

    def dead_letters(self) -> int:
        """Count the dead letters."""
        return int(self.database.rows("SELECT count(*) FROM dead_letters")[0][0])

    def drop(self, numbers: Iterable[int] | None) -> int:
        """Drop dead letters by their numbers, or all of them, and what waits for them; return how many there were."""

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
        self, after: int = 0, most: int = 1000, chosen: Mapping[str, str] = MappingProxyType({}), *, records: bool = True
    ) -> list[DeadLetter]:
        """Return dead letters in the order of their numbers, from the first after one; only those with the *chosen* members.

        Args:
            records: whether their records are read, too, of which each may have a megabyte.
        """
        return letters_of(self.database, after, most, chosen, records=records)

    def number_of(self, letter: DeadLetter) -> int | None:
        """Return the number of a dead letter that was put down; None if it is gone."""
        return number_of(self.database, letter)

    def count_letters(self, chosen: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of the last dead letter, and how many have the *chosen* members. Nobody waits for it."""
        statement = f"SELECT coalesce(max(id), 0), count(*) FROM dead_letters WHERE id > 0{where(chosen)}"
        with closing(self.database.reader()) as reader:
            ((last, count),) = reader.rows(statement, *chosen.values())
            return int(last), int(count)

    def letters_by_reason(self, most: int) -> list[tuple[str, str, str, str, int, int, int]]:
        """Return stage, code, source and sink of the last dead letters, how many these are, and when the first and last failed.

        Args:
            most: so many letters are looked at. Nobody waits for it.
        """
        with closing(self.database.reader()) as reader:
            return reader.rows(BY_REASON, most)

    # The spool

    def lane(self, name: str, *, anew: bool = False) -> Lane:
        """Return what the spool holds for a sink, which it knows from now on; *anew* as the store has it now.

        Nobody finds the sink unknown meanwhile: what is for one that is unknown is left out.
        """
        if anew or (known := self._lanes.get(name)) is None:
            known = self._lanes[name] = self.database.change(
                lambda execute: lanes.lane_of(execute, name, self.database.name), patient=True
            )
        return known

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
        (held,) = execute(HELD, range_of(lane)).fetchall()
        execute("DELETE FROM spool WHERE number > ? AND number < ?", range_of(lane))
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
        return self.database.rows(OLDEST_OF, *range_of(lane), most, patient=True)

    def held(self, lane: Lane, after: int = 0) -> tuple[int, int, int]:
        """Count the messages for a sink, from the first after one, their bytes, and the matches that they tell of.

        In a shared store no further than the lane is known: what comes meanwhile is counted when it is looked at next.
        """
        end = lane.last + 1 if self.database.is_shared else range_of(lane)[1]
        ((messages, size, matches),) = self.database.rows(HELD, max(after, lane.first), end, patient=True)
        return int(messages), int(size), int(matches)

    def lanes(self) -> list[tuple[str, int, int]]:
        """Return the sinks that the spool holds messages for, tenants' own aside, how many, and their bytes."""
        return lanes_of(self.database)

    def waiting(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Waiting]:
        """Return messages for a sink in their order, from the first after one; the last of them may pass the bound in bytes."""
        values = (max(after, lane.first), range_of(lane)[1], most)
        return list(map(waiting_of, self.database.some(WAITING, values, most_bytes, patient=True)))

    def waiting_of(self, lane: Lane, key: int, after: int, last: int, most: int) -> list[Waiting]:
        """Return messages of one key in their order, after one and not after another."""
        return [waiting_of(row) for row in self.database.rows(WAITING_OF, key, max(after, lane.first), last, most, patient=True)]

    def oldest(self, lane: Lane) -> int | None:
        """Return when the first of the messages for a sink came, in milliseconds since the epoch; None where there are none."""
        rows = self.database.rows("SELECT at FROM spool WHERE number > ? AND number < ? ORDER BY number LIMIT 1", *range_of(lane))
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
        left = runs([*changes.delivered, *(number for number, letter in changes.dead if letter.spooled is None)])

        def settle(execute: Execute) -> list[tuple[int, Spooled]]:
            self._leading(execute)
            bury(execute, dead)
            execute.many("DELETE FROM spool WHERE number BETWEEN ? AND ?", left)
            execute.many("UPDATE spool SET attempts = ?, due = ? WHERE number = ?", changes.tried)
            for name, target in changes.gone:
                execute("UPDATE lanes SET gone = ?, target = ? WHERE name = ?", (milliseconds(), target, name))
            taken = lanes.put(execute, self._lanes, spooled)
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

    def unseat(self, execute: Execute) -> None:
        """Have who delivers begin anew where that is another process, since what it knows is changed here.

        It is the same one still: it alone knows what is on its way, and waits for that.
        """
        if self._leads is None:
            execute("UPDATE leader SET generation = generation + 1")

    def lasts(self) -> list[tuple[str, str, int]]:
        """Return name and mark of each lane, and the number that was given there last."""
        return self.database.rows("SELECT name, mark, last FROM lanes", patient=True)

    def _leading(self, execute: Execute) -> None:
        """Raise Fenced where another process delivers the messages in the spool."""
        if self.database.is_shared:
            statement = "UPDATE leader SET until = until WHERE holder = ? AND generation = ?"
            if not execute(statement, (self._holder, self._leads or 0)).rowcount:
                raise Fenced("another process delivers the messages in the spool")

    def enable(self, name: str) -> bool:
        """Deliver again to a sink whose endpoint wanted no more; tell whether it was so."""
        statement = "UPDATE lanes SET gone = NULL, target = NULL WHERE name = ? AND gone IS NOT NULL"

        def enable(execute: Execute) -> int:
            self.unseat(execute)
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
            self.unseat(execute)
            return self.forget(name, execute)[0]

        return self.database.change(clear, tells=True)

    def respool(self, letters: Sequence[DeadLetter]) -> None:
        """Put messages that were given up into the spool again, with their ids; the letters are dropped.

        One that waits in the spool for its letter is due where it stands. Any other stands behind all that wait.
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

    # What others build on

    def is_writable(self) -> bool:
        """Tell whether the last change succeeded; where it failed, whether one would now. See `Database`."""
        return self.database.is_writable()

    def gone(self) -> str | None:
        """Return what of the store was deleted or replaced while it was open, and log it once. See `Database`."""
        told = self.database.gone()
        if told is not None and not self._is_told:
            self._is_told = True
            _LOGGER.error("%s", told)
        return told

    def close(self) -> None:
        """Close it, and let another process have it."""
        self.database.close()


#: Of PostgreSQL alone; by its clock, so that processes' clocks need not agree.
_LEAD: Final = (
    "UPDATE leader SET generation = CASE WHEN holder = ? THEN generation ELSE generation + 1 END, holder = ?,"
    " until = clock_timestamp() + make_interval(secs => ?) WHERE holder = ? OR until < clock_timestamp() RETURNING generation"
)
