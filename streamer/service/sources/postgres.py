"""Changes of PostgreSQL, from a logical replication slot.

```
 slot ──► Begin 0/A  row row row  Commit … 0/B   Begin 0/C  row row …        whole transactions, in order of their commits
                │     │   │   │                         │    │   │
 positions     ids: 0/A:0 … 0/A:2                    0/C:0  0/C:1            of a row: its commit, and its index there
 confirmed           │                  0/B                  │               a slot knows the ends of transactions
 in the store   0/…, 0/A, 2             0/B           0/B, 0/C, 2            ends, and how much of the next one was delivered
```

A row's own place in the log is no position: rows of transactions that ran at once lie between each other, and come transaction by
transaction. Who took the highest place for what was read would lose rows. A commit's place only grows, and a transaction that
is read again is the same rows in the same order. So a large transaction is delivered in parts, of which none is held in memory
for the others, and what was delivered of it is passed over when it comes again.

The slot never is further than the store. So one that is was moved, or made anew, by somebody else: changes are lost, as where it
is gone or invalidated. `on_lost` says what is done then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, TypeAlias, final

import psycopg
from psycopg import sql

from streamer.cdc.pgoutput import Begin, Commit
from streamer.config.schema.sources import PostgresSource
from streamer.errors import EventError, ServiceError
from streamer.service import faults, formats, protocols
from streamer.service.away import delay
from streamer.service.protocols import NOTHING, Batch, Busy, Lost, Record, Refused, Wrong
from streamer.service.sources.lines import CHUNK, KEPT
from streamer.service.sources.plugins import Wal2json, plugged
from streamer.service.sources.replication import Keepalive, Replication, connect, is_away, lsn_text, said
from streamer.service.sources.slot import Place, Server, Slot, check_room, look, primary_keys
from streamer.service.sources.snapshot import rows_of

#: A server is told that its log may go at most this often, in seconds, unless it asks.
_TELL: Final = 1.0
#: A server needs about so many seconds to find out that a connection was closed.
_CLOSING: Final = 0.1
#: A slot or its log is gone, its publication is not there in what is read, a file of the log is gone.
_NOT_READY, _UNDEFINED, _NO_FILE = "55000", "42704", "58P01"
#: No right, no plugin, and what this server does not know: waiting does not help.
_LASTING: Final = frozenset({"42501", "58P01", "0A000", "22023", "42601"})
Rows: TypeAlias = Generator[Batch, None, None]
_LOGGER: Final = logging.getLogger("streamer.service")


#: How each message of wal2json begins.
_OF_WAL2JSON: Final = b'{"action":'


class _InUseError(Exception):
    """Another process reads the slot."""


@final
class PostgresChanges:
    """The changes of a publication. What it reads are events of `cdc.LAYOUT`."""

    is_shared: Final = False

    def __init__(self, section: PostgresSource) -> None:
        self._section = section
        self._slot = section.slot
        self._interval = section.status_interval.total_seconds()
        self._stream: Replication | None = None
        self._snapshot: Rows | None = None
        self._columns: Mapping[str, Sequence[str]] = {}  # of tables, as wal2json is told of them
        self._gone: deque[str] = deque()
        self._partition = ""
        self._keys: dict[str, list[str]] = {}
        self._place: Place | None = None  # all up to there was given out, or holds nothing
        self._emitted: Place | None = None  # what the store was given last
        self._emitted_at = 0.0
        self._held = 0  # what the store has, and the server may forget
        self._told_at = 0.0
        self._is_asked = False
        self._lost_because: str | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._transaction: int | None = None
        self._index = self._skip = 0
        self._closing = threading.Event()

    # Opening

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """See `Source`."""
        with self._told(), closing(Replication(self._section.dsn)) as stream:
            server = look(stream, self._section)
            slot = server.slot
            self._partition = f"{server.system}.{server.timeline}"
            self._resume(server, confirmed, lambda *_: None)
            if self._section.on_lost == "fail":
                if self._place is not None and (reason := self._why_lost(server)) is not None:
                    raise self._lost(reason)
                if slot is not None and slot.is_lost:
                    raise Lost(f"{self._invalidated()}; see on_lost")
            if slot is None:
                check_room(stream)
            elif slot.process is not None:
                raise Busy(f"process {slot.process} of the server reads slot {self._slot}; one process reads a slot")

    def open(self, confirmed: Mapping[str, str], begin: protocols.Begin, others: protocols.Others = protocols.NO_OTHERS) -> None:
        """See `Source`."""
        with self._told(), closing(Replication(self._section.dsn)) as stream:
            server = look(stream, self._section)
            self._partition = f"{server.system}.{server.timeline}"
            self._resume(server, confirmed, begin)
            if self._place is None:
                if server.slot is None:
                    _LOGGER.info("slot %s is made; that waits for the transactions that run now", self._slot)
                    self._place = Place(self._create(stream, export=False)[0])
                    faults.point("source.slot")
                else:
                    self._place = Place(server.slot.confirmed)
                begin(self._partition, self._place.text())
            elif (reason := self._why_lost(server)) is not None:
                self._look_for(server.slot, others)
                if self._section.on_lost == "fail":
                    raise self._lost(reason)
        self._held = self._place.end
        self._emitted = self._place
        threading.Thread(target=self._keep_alive, name=f"streamer-{self._slot}-alive", daemon=True).start()

    def _look_for(self, slot: Slot | None, others: protocols.Others) -> None:
        """Refuse to take changes for lost that may have been delivered as another source. Raises ServiceError."""
        assert self._place is not None
        if slot is None or slot.is_lost or self._lost_because is not None:
            return
        for name, positions in others.positions.items():
            if self._partition in positions and (held := Place.of(positions[self._partition]).end) >= slot.confirmed:
                at, place, end = lsn_text(slot.confirmed), lsn_text(self._place.end), lsn_text(held)
                raise ServiceError(
                    f"slot {self._slot} is at {at}, and this source was confirmed at {place}, before that. The store has source "
                    f"{name!r}, which is not configured, at {end}. {others.hint(name)}"
                )

    def _resume(self, server: Server, confirmed: Mapping[str, str], begin: protocols.Begin) -> None:
        """Find the place where this server was read last, if it was."""
        self._place = self._lost_because = None
        self._gone.clear()
        places = dict(confirmed.items())
        if (text := places.pop(self._partition, None)) is not None:
            self._place = Place.of(text)
        elif places:
            partition, text = list(places.items())[-1]
            if partition.partition(".")[0] == server.system:
                # A standby was promoted, and the log goes on; what was in flight gets other ids.
                self._place = Place(Place.of(text).end)
            else:
                # Before all that its slot may have: what it has not is lost, also if this process dies now.
                self._place, self._lost_because = Place(0), "this is another server than the one that was read"
            begin(self._partition, self._place.text())
        self._gone.extend(places)

    def _why_lost(self, server: Server) -> str | None:
        """Return why changes that were not read are gone; None where none are."""
        assert self._place is not None
        slot = server.slot
        if slot is None:
            return f"slot {self._slot} is gone"
        if slot.is_lost:
            return self._invalidated()
        if self._lost_because is not None:
            return self._lost_because
        if slot.confirmed > self._place.end:
            return f"slot {self._slot} was made anew or moved by another one, to {lsn_text(slot.confirmed)}"
        if self._place.end > server.end:
            # What it writes up to there would be passed over as if it had been delivered.
            return f"the log of the server ends at {lsn_text(server.end)}, before what was read of it: an older copy is back"
        return None

    def _invalidated(self) -> str:
        return f"slot {self._slot} was invalidated, since it would have kept more of the log than max_slot_wal_keep_size allows"

    def _lost(self, reason: str) -> Lost:
        assert self._place is not None
        return Lost(
            f"{reason}; changes after {lsn_text(self._place.end)} cannot be read. With on_lost: resnapshot all rows of the "
            "tables are read, with on_lost: skip only what comes from then on"
        )

    def _create(self, stream: Replication, *, export: bool) -> tuple[int, str]:
        try:
            return stream.create(self._slot, self._section.plugin, export=export)
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            raise ServiceError(f"slot {self._slot} cannot be made: {said(error, self._section.dsn)}") from None

    def _establish(self) -> None:
        """Connect, and begin to stream, or to read the tables."""
        assert self._place is not None
        stream = Replication(self._section.dsn)
        try:
            server = look(stream, self._section)
            if f"{server.system}.{server.timeline}" != self._partition:
                raise ServiceError("this is another server than before, or it was promoted: start the service again")
            if (reason := self._why_lost(server)) is not None:
                self._recover(stream, server, reason)
            if self._snapshot is not None:
                stream.close()
                return
            if server.slot is not None and server.slot.process is not None:
                raise _InUseError(f"process {server.slot.process} of the server reads slot {self._slot}")
            self._keys = primary_keys(stream)
            self._plugin, options = plugged(stream, self._section, self._key)
            if isinstance(self._plugin, Wal2json):
                self._columns = self._plugin.columns
            stream.start(self._slot, self._place.end, options)
        except BaseException:
            stream.close()
            raise
        most = self._section.status_interval.total_seconds()
        self._interval = min(most, server.sender_timeout / 3) if server.sender_timeout else most
        self._transaction = None
        self._stream = stream
        if self._failures:
            _LOGGER.info("slot %s is read again, from %s", self._slot, lsn_text(self._place.end))

    def _key(self, table: str) -> list[str] | None:
        """Return the primary key of a table, which may be newer than the connection."""
        if table not in self._keys:
            with closing(Replication(self._section.dsn, streams=False)) as asked:
                self._keys = primary_keys(asked)
            self._keys.setdefault(table, [])
        return self._keys[table]

    # What is lost

    def _recover(self, stream: Replication, server: Server, reason: str) -> None:
        """Make a slot in the place of one that is lost, and say from where it goes on."""
        assert self._place is not None
        if self._section.on_lost == "fail":
            raise self._lost(reason)
        if server.slot is not None:
            if server.slot.process is not None:
                raise _InUseError(f"process {server.slot.process} of the server reads slot {self._slot}")
            stream.rows(f'DROP_REPLICATION_SLOT "{self._slot}"')
        is_read = self._section.on_lost == "resnapshot"
        begin, snapshot = self._create(stream, export=is_read)
        faults.point("source.lost")
        before = lsn_text(self._place.end)
        if is_read:
            _LOGGER.warning("%s; all rows are read, as of %s, instead of the changes after %s", reason, lsn_text(begin), before)
            reading = connect(self._section.dsn, replication=False)
            try:
                reading.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                reading.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
                keys = primary_keys(stream)
            except BaseException:
                reading.close()
                raise
            self._snapshot = self._rows(reading, keys, begin)
        else:
            _LOGGER.warning("%s; changes after %s and before %s are lost", reason, before, lsn_text(begin))
            self._place, self._emitted_at = Place(begin), 0.0
        # The store is behind the new slot until it has where that begins: nothing is confirmed meanwhile.
        self._held = 0
        self._lost_because = None

    def _rows(
        self, reading: psycopg.Connection[Any], keys: Mapping[str, Sequence[str]], begin: int
    ) -> Generator[Batch, None, None]:
        """Yield all rows of the tables; last of all where their changes go on."""
        # Rows are no changes at a commit: their partition is the snapshot, and its name never comes again.
        yield from rows_of(reading, self._section, f"{self._partition}@{lsn_text(begin)}", keys)
        self._place = self._emitted = Place(begin)
        faults.point("source.snapshot")
        yield Batch(self._partition, [], _nowhere, self._place.text())

    # Reading

    def read(self, wait: float) -> Batch | None:
        """See `Source`."""
        if self._gone:
            return Batch(self._gone.popleft(), [], _nowhere, None, is_last=True)
        try:
            if self._snapshot is not None:
                if (batch := next(self._snapshot, None)) is None:
                    self._snapshot = None
                return batch
            if self._stream is None:
                if (left := self._retry_at - time.monotonic()) > 0:
                    time.sleep(min(left, wait))
                else:
                    self._establish()
                return None
            received = self._stream.receive(CHUNK)
            if not received and self._stream.wait(wait):
                received = self._stream.receive(CHUNK)
            return self._taken(received)
        except (psycopg.Error, _InUseError) as error:
            self._lose_connection(error)
            return None

    def again(self, record: bytes, key: bytes | str | None = None) -> list[formats.Decoded]:
        """Decode a message that could not be decoded when it came, in any thread. Raises EventError.

        Of pgoutput none can be: it is told of a table once, before the table's changes.
        """
        if self._section.plugin == "wal2json" and record.startswith(_OF_WAL2JSON):
            return formats.wal2json(self._columns)(record, key)
        return [(record, formats.text_of(key))]

    def _taken(self, received: Sequence[Any]) -> Batch | None:
        """Return the events of what was received, and how far that is."""
        assert self._place is not None
        records: list[Record] = []
        keys: list[str | None] = []
        places: list[tuple[int, int]] = []
        # What the store has of a transaction that was begun holds until that one is over.
        end, begun, done = self._place
        transaction, index, skip = self._transaction, self._index, self._skip
        is_swollen = self._stream is not None and self._stream.is_swollen
        for each in received:
            if isinstance(each, Keepalive):
                # In a transaction it tells of the log before its commit.
                if transaction is None:
                    end = max(end, each.end)
                if each.wants_reply:
                    # Now, and once what it tells of is held: a server that stops waits for that.
                    self._is_asked = True
                    self._tell()
                continue
            changes: list[tuple[Record, str | None]]
            try:
                found = self._plugin.read(each.payload)
            except EventError as error:
                if transaction is None:
                    raise ServiceError(f"slot {self._slot}: a message outside of transactions cannot be read: {error}") from None
                found = None
                changes = [(Refused(error, each.payload[:KEPT], len(each.payload)), None)]
            if isinstance(found, Begin):
                transaction, index = found.lsn, 0
                skip = done if transaction == begun else 0
                continue
            if isinstance(found, Commit):
                end, transaction = found.end, None
                if found.lsn >= begun:
                    begun = done = 0
                if is_swollen:
                    # The next connection brings the rest.
                    break
                continue
            if found is not None:
                # Of wal2json, messages that belong to no transaction: they are no changes, and have no place.
                changes = [] if transaction is None else list(found)
            for record, key in changes:
                if index >= skip:
                    records.append(record)
                    keys.append(key)
                    places.append((transaction or 0, index))
                index += 1
        self._transaction, self._index, self._skip = transaction, index, skip
        place = Place(end, begun, done) if transaction is None else Place(end, transaction, max(index, skip))
        if place != self._place:
            self._place, self._failures = place, 0
        if is_swollen and transaction is None:
            # Within a transaction the large message would come again, and swell the next connection.
            self._shrink()
        if not records and not self._is_due():
            return None
        self._emitted, self._emitted_at = self._place, time.monotonic()
        return Batch(self._partition, records, _at(places), self._place.text(), keys=keys)

    def _is_due(self) -> bool:
        """Tell whether a place without events is to be put down: the server waits for it, or the last one was long ago."""
        if self._place == self._emitted or (self._place and self._place.transaction):
            return False
        return self._is_asked or time.monotonic() - self._emitted_at >= self._interval

    def _shrink(self) -> None:
        """Close the connection, which frees its memory; the next one reads on from the place that was reached."""
        assert self._stream is not None
        _LOGGER.debug("slot %s: connects again, to free the memory of a large message", self._slot)
        self._tell()
        self._stream.close()
        self._stream = None
        self._retry_at = time.monotonic() + _CLOSING

    def _lose_connection(self, error: psycopg.Error | _InUseError) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        reason = said(error, self._section.dsn) if isinstance(error, psycopg.Error) else str(error)
        if isinstance(error, psycopg.Error):
            if error.sqlstate == _NOT_READY or (error.sqlstate == _NO_FILE and self._section.plugin not in reason):
                self._lost_because = reason
            elif error.sqlstate == _UNDEFINED:
                self._lost_because = f"the publication was made after the changes that come next: {reason}"
            elif error.sqlstate in _LASTING:
                raise ServiceError(reason) from None
        wait = delay(self._failures)
        self._failures += 1
        self._retry_at = time.monotonic() + wait
        # A server needs a moment to find out that the last run of the service is over.
        level = logging.INFO if isinstance(error, _InUseError) and self._failures < 5 else logging.WARNING
        _LOGGER.log(level, "slot %s: %s; tried again in %.1f s", self._slot, reason, wait)

    # Saying how far it is held

    def acknowledge(self, partition: str, confirm: str) -> None:
        """See `Source`."""
        if partition != self._partition:
            return
        self._held = max(self._held, Place.of(confirm).end)
        if self._is_asked or time.monotonic() - self._told_at >= _TELL:
            self._is_asked = False
            self._tell()

    def progress(self) -> None:
        """See `Source`: what the server says of its log goes as far as it has sent it."""

    def _tell(self) -> None:
        stream, self._told_at = self._stream, time.monotonic()
        if stream is not None and self._place is not None:
            try:
                stream.tell(max(self._place.end, self._held), self._held)
            except psycopg.Error:
                # Who reads finds out, too.
                return

    def _keep_alive(self) -> None:
        """Speak as long as nothing else does: a sink may keep the one who reads for long."""
        while not self._closing.wait(self._interval):
            self._tell()

    def lost(self, partition: str) -> None:
        """See `Source`."""
        raise Wrong("another process reads it now; one process reads such a source")

    def close(self) -> None:
        """See `Source`."""
        self._closing.set()
        if self._snapshot is not None:
            self._snapshot.close()
        if self._stream is not None:
            self._tell()
            self._stream.close()
            self._stream = None

    def _told(self) -> _Told:
        return _Told(self._section)


@final
class _Told:
    """Makes one clear error of what the server says, without the password."""

    def __init__(self, section: PostgresSource) -> None:
        self._section = section

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, psycopg.Error):
            told = protocols.Away if is_away(error, self._section.dsn) else ServiceError
            raise told(said(error, self._section.dsn)) from None


def _at(places: Sequence[tuple[int, int]]) -> Callable[[int], str]:
    def position(at: int) -> str:
        transaction, index = places[at]
        return f"{lsn_text(transaction)}:{index}"

    return position


def _nowhere(_: int) -> int:
    raise IndexError
