"""Changes of PostgreSQL, from a logical replication slot.

```
 slot ──► Begin 0/A  row row row  Commit … 0/B   Begin 0/C  row row …        whole transactions, in order of their commits
                │     │   │   │                         │    │   │
 positions     ids: 0/A:0 … 0/A:2                    0/C:0  0/C:1            of a row: its commit, and its index there
 confirmed           │                  0/B                  │               a slot knows the ends of transactions
 in the store   0/…, 0/A, 2             0/B           0/B, 0/C, 2            ends, and how much of the next one was delivered
```

A row's own place in the log cannot be its position: concurrent transactions interleave in the log, but arrive one after another,
so confirming the highest place that was read would lose rows. A commit's place only grows, and a transaction that is read again
has the same rows in the same order. So a large transaction is delivered in parts that need not be in memory together, and the
delivered part is skipped when it comes again.

The slot is never ahead of the store. If it is, another program has moved it or created it again: changes are lost, as after the
slot was deleted or invalidated. `on_lost` defines what to do then.
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
from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.errors import EventError, ServiceError
from streamer.service import faults
from streamer.service.connectors import formats, protocols
from streamer.service.connectors.lines import CHUNK, MOST_REFUSED
from streamer.service.connectors.postgres.initial_rows import rows_of
from streamer.service.connectors.postgres.plugins import Wal2json, plugged
from streamer.service.connectors.postgres.replication import Keepalive, Replication, connect, is_away, lsn_text, said
from streamer.service.connectors.postgres.slot import Place, Server, Slot, check_room, look, primary_keys
from streamer.service.connectors.postgres.slot_lag import SlotLag
from streamer.service.connectors.protocols import NOTHING, Batch, Busy, Lost, Progress, Record, Refused, Wrong
from streamer.service.connectors.unavailable import delay

#: The client sends its confirmed position at most this often, in seconds, unless the server requests it.
_TELL: Final = 1.0
#: The seconds that a server needs to notice that a connection was closed.
_CLOSING: Final = 0.1
#: A new stream that is quiet for this many seconds works.
_QUIET: Final = 2.0
#: The slot or its log is gone; the publication does not exist in the log that is read; a file of the log is gone.
_NOT_READY, _UNDEFINED, _NO_FILE = "55000", "42704", "58P01"
#: Missing privileges, a missing plugin, or a feature that this server lacks: waiting does not help.
_LASTING: Final = frozenset({"42501", "58P01", "0A000", "22023", "42601"})
Rows: TypeAlias = Generator[Batch, None, None]
_LOGGER: Final = logging.getLogger("streamer.service")


#: The beginning of each message of wal2json.
_OF_WAL2JSON: Final = b'{"action":'


class _InUseError(Exception):
    """Another process reads the slot."""


@final
class PostgresChanges:
    """The changes of a publication, as events of `cdc.LAYOUT`."""

    is_shared: Final = False

    def __init__(self, section: PostgresSource) -> None:
        self._section = section
        self._slot = section.slot
        self._interval = section.status_interval.total_seconds()
        self._stream: Replication | None = None
        self._snapshot: Rows | None = None
        self._columns: Mapping[str, Sequence[str]] = {}  # of tables, passed to the wal2json decoder
        self._gone: deque[str] = deque()
        self._partition = ""
        self._keys: dict[str, list[str]] = {}
        self._place: Place | None = None  # all rows up to there were returned by `read`
        self._emitted: Place | None = None  # the last place that was returned for the store
        self._emitted_at = 0.0
        self._durable = 0  # the store has it, so the server may delete its log
        self._acknowledged_at = 0.0
        self._is_reply_due = False
        self._lost_because: str | None = None
        self._failures = 0
        self._retry_at = 0.0
        self.down_since: float | None = None  # the server has answered nothing since then
        self._streams_since = 0.0
        self._transaction: int | None = None
        self._index = self._skip = 0
        self._closing = threading.Event()
        self._lag: SlotLag | None = None

    # Opening

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """See `Source`."""
        with self._mapped(), closing(Replication(self._section.dsn)) as stream:
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
        with self._mapped(), closing(Replication(self._section.dsn)) as stream:
            server = look(stream, self._section)
            self._partition = f"{server.system}.{server.timeline}"
            self._resume(server, confirmed, begin)
            if self._place is None:
                if server.slot is None:
                    _LOGGER.info("creating slot %s; this waits for the running transactions", self._slot)
                    self._place = Place(self._create(stream, export=False)[0])
                    faults.point("source.slot")
                else:
                    self._place = Place(server.slot.confirmed)
                begin(self._partition, self._place.text())
            elif (reason := self._why_lost(server)) is not None:
                self._look_for(server.slot, others)
                if self._section.on_lost == "fail":
                    raise self._lost(reason)
        self._durable = self._place.end
        self._emitted = self._place
        threading.Thread(target=self._keep_alive, name=f"streamer-{self._slot}-alive", daemon=True).start()
        self._lag = SlotLag(self._section, lambda: self._durable)

    def _look_for(self, slot: Slot | None, others: protocols.Others) -> None:
        """Refuse to treat changes as lost that may have been delivered as another source. Raises ServiceError."""
        assert self._place is not None
        if slot is None or slot.is_lost or self._lost_because is not None:
            return
        for name, positions in others.positions.items():
            if self._partition in positions and (stored := Place.of(positions[self._partition]).end) >= slot.confirmed:
                at, place, end = lsn_text(slot.confirmed), lsn_text(self._place.end), lsn_text(stored)
                raise ServiceError(
                    f"slot {self._slot} is at {at}, and this source was confirmed at {place}, before that. The store has source "
                    f"{name!r}, which is not configured, at {end}. {others.hint(name)}"
                )

    def _resume(self, server: Server, confirmed: Mapping[str, str], begin: protocols.Begin) -> None:
        """Find the last confirmed place of this server, if there is one."""
        self._place = self._lost_because = None
        self._gone.clear()
        places = dict(confirmed.items())
        if (text := places.pop(self._partition, None)) is not None:
            self._place = Place.of(text)
        elif places:
            partition, text = list(places.items())[-1]
            if partition.partition(".")[0] == server.system:
                # A standby was promoted, and its log continues; rows in flight get other ids.
                self._place = Place(Place.of(text).end)
            else:
                # Before all rows that its slot may have. The missing ones are lost, even if this process dies now.
                self._place, self._lost_because = Place(0), "this is another server than the one that was read"
            begin(self._partition, self._place.text())
        self._gone.extend(places)

    def _why_lost(self, server: Server) -> str | None:
        """Return why unread changes are gone; None if they are not."""
        assert self._place is not None
        slot = server.slot
        if slot is None:
            return f"slot {self._slot} is gone"
        if slot.is_lost:
            return self._invalidated()
        if self._lost_because is not None:
            return self._lost_because
        if slot.confirmed > self._place.end:
            return f"slot {self._slot} was recreated or moved by another client, to {lsn_text(slot.confirmed)}"
        if self._place.end > server.end:
            # New changes up to there would be skipped as if they had been delivered.
            return f"the server's log ends at {lsn_text(server.end)}, before the last position read: the server is an older copy"
        return None

    def _invalidated(self) -> str:
        return f"slot {self._slot} was invalidated, since it would have kept more of the log than max_slot_wal_keep_size allows"

    def _lost(self, reason: str) -> Lost:
        assert self._place is not None
        return Lost(
            f"{reason}; changes after {lsn_text(self._place.end)} cannot be read. With on_lost: resnapshot the "
            "service reads all rows of the tables, with on_lost: skip only later changes"
        )

    def _create(self, stream: Replication, *, export: bool) -> tuple[int, str]:
        try:
            return stream.create(self._slot, self._section.plugin, export=export)
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            raise ServiceError(f"slot {self._slot} cannot be made: {said(error, self._section.dsn)}") from None

    def _establish(self) -> None:
        """Connect, and begin to stream or to read the tables."""
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
        self._stream, self._streams_since = stream, time.monotonic()
        if self._failures:
            _LOGGER.info("slot %s is read again, from %s", self._slot, lsn_text(self._place.end))

    def _key(self, table: str) -> list[str] | None:
        """Return the primary key of a table, which may be newer than the connection."""
        if table not in self._keys:
            with closing(Replication(self._section.dsn, streams=False)) as connection:
                self._keys = primary_keys(connection)
            self._keys.setdefault(table, [])
        return self._keys[table]

    # Lost changes

    def _recover(self, stream: Replication, server: Server, reason: str) -> None:
        """Create a slot in place of a lost one, and log its starting position."""
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
        # Confirm no position before the store has the beginning of the new slot, because the store is behind it.
        self._durable = 0
        self._lost_because = None

    def _rows(
        self, reading: psycopg.Connection[Any], keys: Mapping[str, Sequence[str]], begin: int
    ) -> Generator[Batch, None, None]:
        """Yield all rows of the tables, and finally the place from which their changes continue."""
        # These rows are not changes of a commit: their partition is the snapshot, and its name is never used again.
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
                self.down_since = None
                return batch
            if self._stream is None:
                if (remaining := self._retry_at - time.monotonic()) > 0:
                    time.sleep(min(remaining, wait))
                else:
                    self._establish()
                return None
            received = self._stream.receive(CHUNK)
            if not received and self._stream.wait(wait):
                received = self._stream.receive(CHUNK)
            # A server that has nothing to send is quiet; one that cannot decode its log ends the stream soon after its begin.
            if self.down_since is not None and (received or time.monotonic() - self._streams_since >= _QUIET):
                self.down_since = None
            return self._batch_of(received)
        except (psycopg.Error, _InUseError) as error:
            self._lose_connection(error)
            return None

    def again(self, record: bytes, key: bytes | str | None = None) -> list[formats.Decoded]:
        """Decode a message whose decoding failed earlier, in any thread. Raises EventError.

        This is impossible with pgoutput, which describes a table only once, before the table's changes.
        """
        if self._section.plugin == "wal2json" and record.startswith(_OF_WAL2JSON):
            decode = formats.decoder("wal2json", columns=self._columns)
            assert decode is not None
            return decode(record, key)
        return [(record, formats.text_of(key))]

    def _batch_of(self, received: Sequence[Any]) -> Batch | None:
        """Return the events of received messages, and the place that they reach."""
        assert self._place is not None
        records: list[Record] = []
        keys: list[str | None] = []
        places: list[tuple[int, int]] = []
        # The store's count of rows in a transaction is valid until that transaction ends.
        end, begun, done = self._place
        transaction, index, skip = self._transaction, self._index, self._skip
        is_swollen = self._stream is not None and self._stream.is_swollen
        for each in received:
            if isinstance(each, Keepalive):
                # During a transaction, the message reports a place before its commit.
                if transaction is None:
                    end = max(end, each.end)
                if each.wants_reply:
                    # Answer now, and again once the changes up to there are durable: a server that stops waits for that.
                    self._is_reply_due = True
                    self._tell()
                continue
            changes: list[tuple[Record, str | None]]
            try:
                change = self._plugin.read(each.payload)
            except EventError as error:
                if transaction is None:
                    raise ServiceError(f"slot {self._slot}: a message outside of transactions cannot be read: {error}") from None
                change = None
                changes = [(Refused(error, each.payload[:MOST_REFUSED], len(each.payload)), None)]
            if isinstance(change, Begin):
                transaction, index = change.lsn, 0
                skip = done if transaction == begun else 0
                continue
            if isinstance(change, Commit):
                end, transaction = change.end, None
                if change.lsn >= begun:
                    begun = done = 0
                if is_swollen:
                    # The next connection brings the rest.
                    break
                continue
            if change is not None:
                # Messages of wal2json outside of transactions are not changes, and have no position.
                changes = [] if transaction is None else list(change)
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
            # During a transaction, the large message would come again, and swell the next connection.
            self._shrink()
        if not records and not self._is_due():
            return None
        self._emitted, self._emitted_at = self._place, time.monotonic()
        return Batch(self._partition, records, _at(places), self._place.text(), keys=keys)

    def _is_due(self) -> bool:
        """Return whether to store a place without events: the server waits for it, or the last one was long ago."""
        if self._place == self._emitted or (self._place and self._place.transaction):
            return False
        return self._is_reply_due or time.monotonic() - self._emitted_at >= self._interval

    def _shrink(self) -> None:
        """Close the connection, which frees its memory; the next one continues at the place that was reached."""
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
        if self.down_since is None:
            self.down_since = time.monotonic()
        wait = delay(self._failures)
        self._failures += 1
        self._retry_at = time.monotonic() + wait
        # A server needs a moment to notice that the previous run of the service has ended.
        level = logging.INFO if isinstance(error, _InUseError) and self._failures < 5 else logging.WARNING
        _LOGGER.log(level, "slot %s: %s; retrying in %.1f s", self._slot, reason, wait)

    # Confirming positions

    def acknowledge(self, partition: str, confirm: str) -> None:
        """See `Source`."""
        if partition != self._partition:
            return
        self._durable = max(self._durable, Place.of(confirm).end)
        if self._is_reply_due or time.monotonic() - self._acknowledged_at >= _TELL:
            self._is_reply_due = False
            self._tell()

    def progress(self) -> Progress | None:
        """See `Source`. What was read and is not confirmed counts, because the server keeps its log from there on."""
        return None if self._lag is None else self._lag.progress()

    def _tell(self) -> None:
        stream, self._acknowledged_at = self._stream, time.monotonic()
        if stream is not None and self._place is not None:
            try:
                stream.tell(max(self._place.end, self._durable), self._durable)
            except psycopg.Error:
                # The thread that reads finds out, too.
                return

    def _keep_alive(self) -> None:
        """Send confirmations while no other thread does: a sink may block the reader for long."""
        while not self._closing.wait(self._interval):
            self._tell()

    def lost(self, partition: str) -> None:
        """See `Source`."""
        raise Wrong("another process reads it now; one process reads such a source")

    def close(self) -> None:
        """See `Source`."""
        self._closing.set()
        if self._lag is not None:
            self._lag.close()
        if self._snapshot is not None:
            self._snapshot.close()
        if self._stream is not None:
            self._tell()
            self._stream.close()
            self._stream = None

    def _mapped(self) -> _Mapped:
        return _Mapped(self._section)


@final
class _Mapped:
    """Raises one clear error for an error of the server, without the password."""

    def __init__(self, section: PostgresSource) -> None:
        self._section = section

    def __enter__(self) -> None:
        """Do not act; `__exit__` maps the error."""

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, psycopg.Error):
            kind = protocols.Away if is_away(error, self._section.dsn, replication=True) else ServiceError
            raise kind(said(error, self._section.dsn)) from None


def _at(places: Sequence[tuple[int, int]]) -> Callable[[int], str]:
    def position(at: int) -> str:
        transaction, index = places[at]
        return f"{lsn_text(transaction)}:{index}"

    return position


def _nowhere(_: int) -> int:
    raise IndexError
