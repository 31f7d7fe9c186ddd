"""Subscriptions of a service: from files and from the API into the store, and from there into the engine.

```
files ── whole ──┐
                 ├─► checked aside ─► store: one commit ─► engine
API ── one, many ┘
```

Contract: a change is answered after it is committed and indexed. So each later match uses it, and it survives if the process dies
after the answer. The engine only has committed subscriptions. If either step fails, the change is undone whole.

Each subscription has an *origin*, which owns it. The files are the whole truth about subscriptions from files: the API cannot
change these. Files cannot take over an id that the API has: such files are refused, with the place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, final

from streamer.config.loader import Loaded
from streamer.engine.engine import Engine
from streamer.errors import (
    BulkConfigError,
    ConfigError,
    ServiceError,
    SubscriptionError,
)
from streamer.locks import Lock
from streamer.service import faults
from streamer.service.store.changes import Entry
from streamer.service.store.database import Moved
from streamer.service.store.ids import Written, inside, stored
from streamer.service.store.rows import milliseconds
from streamer.service.store.store import Store
from streamer.service.store.subscriptions import Amount, Key, Room, Stored, Table
from streamer.service.tenants.declined import Condition, Declined
from streamer.service.tenants.expiry import Upkeep
from streamer.service.tenants.loading import Loading
from streamer.service.tenants.quotas import Counted, Quotas
from streamer.service.tenants.shards import Shard
from streamer.service.tenants.snapshot import EngineSnapshot
from streamer.service.tenants.subscription_files import are_from_files, put
from streamer.service.tenants.validation import Examination
from streamer.subscriptions.subscription import Subscription

#: The origin of subscriptions from files in the store. Those that were removed from the files are deleted.
FILES: Final = "files"
API: Final = "api"
#: The author of deletions of expired subscriptions in the log of changes.
EXPIRY: Final = "expiry"
#: Larger than any version.
MOST_VERSION: Final = 2**62
_T = TypeVar("_T")
_LOGGER: Final = logging.getLogger("streamer.service")


class Result(NamedTuple):
    """The result of a write: *stored*, or *error*.

    Attributes:
        before: the replaced subscription; equal to *stored* if the write changed no part of it.
    """

    stored: Stored | None
    before: Stored | None = None
    error: SubscriptionError | Declined | None = None


@final
class Subscriptions:
    """The subscriptions of a store and of an engine. Any thread may use it; changes take turns, and reads do not wait.

    Attributes:
        expired: the number of leases that have expired since the start.
        quotas: the limits of a tenant; a reload may change them.
        shard: the tenants that this engine has; the store has all tenants.
        history: how long the log of changes keeps an entry; a reload may change it.
        options: of the engine.

    Args:
        snapshot: of the engine, to begin with and to write; None without.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        quotas: Quotas | None = None,
        shard: Shard | None = None,
        history: timedelta = timedelta(days=30),
        snapshot: EngineSnapshot | None = None,
    ) -> None:
        self.shard, self.history, self._snapshot = shard or Shard(), history, snapshot
        self.options: Final = engine._options
        self._engine, self._store, self._table = engine, store, Table(store)
        self.quotas = quotas or Quotas()
        self._lock = Lock()
        self._upkeep = Upkeep(self._table, self.expire, lambda: (self.history, self.quotas.history))
        self.expired = 0
        # The version up to which the engine has the changes of other processes, and this process's own changes after it.
        self._version = 0
        self._own: set[int] = set()
        self._counted = Counted(self._table)
        self._counted.count(0)
        self._upkeep.wrote(self._counted.stored)

    # Files, as a whole

    def begin(
        self, loaded: Loaded, rows: Sequence[Written], places: Sequence[tuple[Path, int]], *, loading: Loading | None = None
    ) -> int:
        """Replace the subscriptions of files in store and engine, if the configuration has files, and load those of the API.

        Args:
            loading: counts those of the API at the start, when the engine has exactly the subscriptions of the files.

        Returns:
            The number of subscriptions in the store that were changed.

        Raises:
            BulkConfigError: the errors, each with file and line; the change was refused whole.
            ServiceError: the store failed; the change was undone whole.
        """
        with self._lock:
            self._version, _ = self._table.last()
            self._own.clear()
            if not are_from_files(loaded.config):
                if loading is None:
                    put(self._engine, loaded, self._active())
                else:
                    self._load(loaded, loading, (), but=None)
                # At the start, only another process can have changed what was counted a moment ago.
                if loading is None or self._store.database.is_shared:
                    self._counted.count(self._version)
                return 0
            is_applied = False
            try:
                while True:
                    self._check_clashes(loaded, rows, places)
                    mine, of_mine = self.shard.mine(rows, places)
                    if loading is None:
                        others = self._active(but=FILES)
                        put(self._engine, loaded, chain((each.source for each in mine), others), of_mine)
                    else:
                        self._load(loaded, loading, mine, but=FILES)
                        loading = None
                    is_applied = True
                    # If another process wrote one of these ids meanwhile, the check is repeated.
                    with suppress(Moved):
                        count = self._table.hold(FILES, rows)
                        break
                if count and self._table.last()[0] == self._version + count:
                    self._version += count
            except (BulkConfigError, ServiceError):
                if is_applied:
                    self._engine.apply(self._active())
                raise
            self._counted.count(self._version)
            self._upkeep.wrote(self._counted.stored)
            return count

    def _load(self, loaded: Loaded, loading: Loading, mine: Sequence[Written], *, but: str | None) -> None:
        """Add the subscriptions of the store to an engine that has those of files, *mine*."""
        is_loaded = self._snapshot is not None and self._snapshot.load(self._version, loading)
        if is_loaded or not len(self._engine):
            # The attempt removed them.
            self._engine.add_many(each.source for each in mine)
        if not is_loaded:
            put(self._engine, loaded, self._active(but=but, loading=loading), adds=True)

    def _check_clashes(self, loaded: Loaded, rows: Sequence[Written], places: Sequence[tuple[Path, int]]) -> None:
        others = set(self._table.others(FILES))
        if clashes := [place for each, place in zip(rows, places, strict=True) if (each.tenant, each.id) in others]:
            reason = "the API has this id: delete it there, or choose another"
            raise BulkConfigError([ConfigError(reason, source=loaded.file(file), line=line) for file, line in clashes])

    def _active(self, *, but: str | None = None, loading: Loading | None = None) -> Iterator[bytes | Subscription]:
        """Yield the texts for the engine of the active subscriptions of the store, except those of an origin."""
        rows = self._table.active(but=but)
        several = rows if loading is None else loading.counted(rows)
        return (self._for_engine(*row) for row in several if self.shard.holds(row[0]))

    def _for_engine(self, tenant: str, subscription_id: str, text: bytes) -> bytes | Subscription:
        return stored(tenant, subscription_id, text, self.options.limits.max_subscription_bytes)

    # Reading

    def get(self, tenant: str, subscription_id: str) -> Stored | None:
        """Return a subscription; None if it does not exist. Raises ServiceError."""
        row = self._table.get(tenant, subscription_id)
        return None if row is None or row.is_over(milliseconds()) else row

    def each(self, tenant: str | None, after: Key) -> Iterator[Stored]:
        """Yield the subscriptions of a tenant, or of all, by tenant and id, from the first after *after*; some may have expired.

        Raises:
            ServiceError: the store cannot be read.
        """
        is_last = False
        while not is_last:
            rows, is_last = self._table.walk(after) if tenant is None else self._table.page(tenant, after[1])
            for row in rows:
                after = row.tenant, row.id
                yield row

    def changes(self, tenant: str, subscription_id: str, before: int, most: int) -> list[Entry] | None:
        """Return the changes of a subscription, the latest first, from the first before a version; None if it is unknown.

        Raises:
            ServiceError: the store failed.
        """
        entries = self._table.history(tenant, subscription_id, before, most)
        return entries if entries or before < MOST_VERSION or self.get(tenant, subscription_id) is not None else None

    def totals(self) -> dict[str, int]:
        """Return the total numbers of subscriptions, `held` and `paused`."""
        with self._lock:
            return {"held": self._counted.stored.total(), "paused": self._counted.paused.total()}

    def expiring(self) -> int:
        """Return how many subscriptions have less than a tenth of their lease left; see `Table`. Raises ServiceError."""
        return self._table.expiring()

    # Writes of the API, of one or many

    def put(self, each: Written, may: Condition, lease: int | None = None, *, who: str = API) -> Result:
        """Store a subscription, in place of the existing one if there is one.

        Args:
            may: checks the existing one.
            lease: its time to live, in milliseconds; None for ever.
            who: the author in the log of changes.

        Raises:
            SubscriptionError: it is invalid.
            Declined: the change is not allowed now.
            ServiceError: the store failed. In all three cases the change was refused whole.
        """
        (result,) = self.put_many(each.tenant, [each], lease=lease, may=may, who=who)
        if result.error is not None:
            raise result.error
        return result

    def put_many(
        self,
        tenant: str,
        several: Sequence[Written | SubscriptionError],
        examined: Sequence[SubscriptionError | bool] | None = None,
        *,
        lease: int | None = None,
        may: Condition = lambda _: None,
        partly: bool = False,
        who: str = API,
    ) -> list[Result]:
        """Store several subscriptions of one tenant in one commit and one step of the engine.

        Args:
            several: an error stands for one that could not be read.
            examined: what `Examination` returns for them, if they are examined already.
            partly: whether to store the valid ones if some are invalid; otherwise all are refused.

        Returns:
            A result for each, in their order. If one is an error and *partly* is false, those without error are not stored,
            either.

        Raises:
            ServiceError: the store failed, and the change was undone whole.
        """
        checked = Examination(self.options).examine(several) if examined is None else examined
        return self._tried(lambda: self._put_many(tenant, several, checked, lease, may, partly=partly, who=who))

    def _put_many(
        self,
        tenant: str,
        several: Sequence[Written | SubscriptionError],
        examined: Sequence[SubscriptionError | bool],
        lease: int | None,
        may: Condition,
        *,
        partly: bool,
        who: str,
    ) -> list[Result]:
        with self._lock:
            results, amount, over = self._decided(tenant, several, examined, self.amount(tenant), lease, may)
            if not partly and any(result.error is not None for result in results):
                return results
            # The log of changes has the deletion of an expired subscription before the new one of its id.
            self._drop(over)
            room = self._counted.room(self.quotas, tenant, amount, self.options.limits.max_subscription_bytes)
            return self._hold(results, who, room)

    def would_put(
        self,
        tenant: str,
        several: Sequence[Written | SubscriptionError],
        examined: Sequence[SubscriptionError | bool],
        amount: Amount,
    ) -> tuple[list[Result], Amount]:
        """Return the results that `put_many` would return to a tenant with this *amount*, and the amount after them."""
        results, amount, _ = self._decided(tenant, several, examined, amount, None, lambda _: None)
        return results, amount

    def amount(self, tenant: str) -> Amount:
        """Return the amounts of a tenant's subscriptions."""
        return self._counted.of(tenant)

    def _decided(
        self,
        tenant: str,
        several: Sequence[Written | SubscriptionError],
        examined: Sequence[SubscriptionError | bool],
        amount: Amount,
        lease: int | None,
        may: Condition,
    ) -> tuple[list[Result], Amount, list[Stored]]:
        """Return a result for each, the amount after all of them, and the expired ones in their place. It writes no row."""
        now = milliseconds()
        results: list[Result] = []
        over: list[Stored] = []
        befores = self._table.find(tenant, [each.id for each in several if isinstance(each, Written)])
        for each, checked in zip(several, examined, strict=True):
            if isinstance(each, SubscriptionError):
                results.append(Result(None, error=each))
                continue
            if isinstance(checked, SubscriptionError):
                results.append(Result(None, error=checked))
                continue
            before = befores.get(each.id)
            if before is not None and before.is_over(now):
                over.append(before)
                amount, before = amount.without(before), None
            try:
                may(before)
                _check_origin(before)
                after = (amount if before is None else amount.without(before)).with_one(each.text, unindexed=checked)
                self.quotas.check(after, amount)
            except Declined as declined:
                results.append(Result(None, before, declined))
                continue
            amount = after
            results.append(Result(_next(each, before, checked, lease, now), before))
        return results, amount, over

    def _hold(self, results: list[Result], who: str, room: Room) -> list[Result]:
        new = [result for result in results if result.stored is not None and result.stored is not result.before]
        rows = self._write(
            [result.stored for result in new if result.stored is not None], [result.before for result in new], who=who, room=room
        )
        faults.point("subscriptions.committed")
        befores = [result.before for result in new]
        self._index(rows, befores, [self._for_engine(row.tenant, row.id, row.text) for row in rows if not row.paused])
        for row, before in zip(rows, befores, strict=True):
            self._recount(row, before)
        written_rows = iter(rows)
        return [
            result if result.stored is None or result.stored is result.before else result._replace(stored=next(written_rows))
            for result in results
        ]

    def _tried(self, change: Callable[[], _T]) -> _T:
        """Repeat a change if another process changed the rows that it was decided by."""
        while True:
            try:
                return change()
            except Moved:
                self.follow()

    def _write(
        self,
        rows: Sequence[Stored],
        befores: Sequence[Stored | None],
        gone: Sequence[Stored] = (),
        *,
        who: str,
        room: Room | None = None,
    ) -> list[Stored]:
        """Write rows in place of those before, and delete others. Raises Moved if these have changed."""
        if not rows and not gone:
            return []
        try:
            written, versions = self._table.write(rows, befores, gone, who=who, room=room)
        except Moved:
            # The next decision uses the current rows.
            self._counted.distrust((row.tenant for row in (*rows, *gone)), at_once=True)
            raise
        self._upkeep.wrote(row.tenant for row in (*rows, *gone))
        self._note(versions)
        return written

    def _note(self, versions: range) -> None:
        """Note that the engine has these changes: they are this process's own."""
        if self._version + 1 == versions.start:
            self._counted.write(self._version, versions.stop - 1)
            self._version = versions.stop - 1
        elif self._store.database.is_shared:
            self._own.update(versions)

    def _index(self, rows: Sequence[Stored], befores: Sequence[Stored | None], texts: Sequence[bytes | Subscription]) -> None:
        """Add committed subscriptions to the engine; undo the commit if that fails, which takes a defect or a lack of memory."""
        try:
            if all(self.shard.holds(tenant) for tenant in {row.tenant for row in rows}):
                self._engine.add_many(texts, replace=True)
        except BaseException:
            gone = [(row.tenant, row.id) for row in rows]
            versions = [row.version for row in rows]
            self._table.restore([before for before in befores if before is not None], gone, versions)
            raise

    def remove(self, tenant: str, subscription_id: str, may: Condition, *, who: str = API) -> None:
        """Delete a subscription. Raises Declined and ServiceError, and then leaves it unchanged."""

        def remove() -> None:
            with self._lock:
                before = self._known(tenant, subscription_id, may)
                self._write([], [], [before], who=who)
                self._engine.remove_many(ids=[inside(tenant, subscription_id)])
                self._recount(None, before)

        self._tried(remove)

    def pause(self, tenant: str, subscription_id: str, may: Condition, *, paused: bool, who: str = API) -> Stored:
        """Pause a subscription, or resume it. Raises Declined and ServiceError, and then leaves it unchanged."""

        def pause() -> Stored:
            with self._lock:
                before = self._known(tenant, subscription_id, may)
                if before.paused == paused:
                    return before
                (row,) = self._write([replace(before, paused=paused, updated=milliseconds())], [before], who=who)
                if paused:
                    self._engine.remove_many(ids=[inside(tenant, subscription_id)])
                else:
                    self._index([row], [before], [self._for_engine(tenant, row.id, row.text)])
                self._recount(row, before)
                return row

        return self._tried(pause)

    def renew(self, tenant: str, subscription_id: str, may: Condition, lease: int | None) -> Stored:
        """Begin a lease again. Raises Declined and ServiceError, and then leaves it unchanged.

        Args:
            lease: in milliseconds; None for the same time as before.
        """

        def renew() -> Stored:
            with self._lock:
                before = self._known(tenant, subscription_id, may)
                wanted = before.lease if lease is None else lease
                if wanted is None:
                    raise Declined("precondition", "it has no lease yet: set its length")
                now = milliseconds()
                (row,) = self._write([replace(before, lease=wanted, expires_at=now + wanted, updated=now)], [before], who=API)
                self._upkeep.wake()
                return row

        return self._tried(renew)

    def _known(self, tenant: str, subscription_id: str, may: Condition) -> Stored:
        row = self._table.get(tenant, subscription_id)
        if row is None or row.is_over(milliseconds()):
            raise Declined("unknown", "no such subscription")
        may(row)
        _check_origin(row)
        return row

    def _recount(self, row: Stored | None, before: Stored | None) -> None:
        self._counted.change(row, before)
        if row is not None and row.expires_at is not None:
            self._upkeep.wake()

    # Changes that other processes write into the store

    def follow(self) -> None:
        """Add the changes of other processes to the engine. Raises ServiceError, and then keeps the changes added so far."""
        if not self._store.database.is_shared:
            return
        with self._lock:
            last, forgotten = self._table.last()
            if self._version < forgotten:
                # The log no longer has some of the deletions since then.
                _LOGGER.warning("this process was disconnected too long, so it reads all subscriptions again")
                self._engine.apply(self._active())
                self._version = last
                self._counted.count(last)
            while self._version < last:
                changes, upto = self._table.since(self._version, last)
                self._take_over({key: row for key, (version, row) in changes.items() if version not in self._own})
                self._version = upto
            self._own = {version for version in self._own if version > self._version}
            self._counted.look(self._version)

    def _take_over(self, changed: Mapping[Key, Stored | None]) -> None:
        now = milliseconds()
        put = {key: row for key, row in changed.items() if row is not None and not row.paused and not row.is_over(now)}
        self._engine.remove_many(ids=[inside(*key) for key in changed.keys() - put.keys()])
        texts = [self._for_engine(row.tenant, row.id, row.text) for row in put.values() if self.shard.holds(row.tenant)]
        for error in self._engine.add_many(texts, replace=True, on_error="skip").errors:
            # It was accepted by another version of Streamer.
            _LOGGER.error("a subscription that another process accepted is invalid here: %s", error)
        self._counted.distrust(tenant for tenant, _ in changed)
        self._upkeep.wake()

    # Leases

    def start(self) -> None:
        """Begin to delete expired subscriptions, and to write snapshots, each in a thread of its own."""
        self._upkeep.start()
        if self._snapshot is not None:
            self._snapshot.start(lambda: (self._table.last()[0], self._counted.stored.total()))

    def close(self) -> None:
        """Stop these threads."""
        if self._snapshot is not None:
            self._snapshot.close()
        self._upkeep.close()
        self._table.close()

    def expire(self) -> int:
        """Delete some expired subscriptions; return their number. Raises ServiceError; expired ones never match in any case."""
        with self._lock:
            over = self._table.due(milliseconds()).rows
            try:
                self._drop(over)
            except Moved:
                # Another process renewed one, or deleted it; the rest is due the next time.
                self.follow()
            return len(over)

    def _drop(self, over: Sequence[Stored]) -> None:
        self._write([], [], over, who=EXPIRY)
        self._engine.remove_many(ids=[inside(row.tenant, row.id) for row in over])
        for row in over:
            self._recount(None, row)
        self.expired += len(over)


def _check_origin(before: Stored | None) -> None:
    if before is not None and before.origin != API:
        raise Declined("other_origin", "this id is defined in files: change it there")


def _next(each: Written, before: Stored | None, unindexed: bool, lease: int | None, now: int) -> Stored:
    """Return the row to write; *before* itself if it would not change."""
    if before is not None and before.text == each.text and before.lease is None and lease is None:
        return before
    return Stored(
        tenant=each.tenant,
        id=each.id,
        origin=API,
        text=each.text,
        created=now if before is None else before.created,
        updated=now,
        paused=before is not None and before.paused,
        unindexed=unindexed,
        lease=lease,
        expires_at=None if lease is None else now + lease,
    )
