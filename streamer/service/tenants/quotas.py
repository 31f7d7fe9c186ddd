"""The number and size of tenants' subscriptions, and their limits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, final

from streamer.config.schema.config import Config
from streamer.service.store.subscriptions import PAGE, Amount, Room, Stored, Table
from streamer.service.tenants.declined import Declined

#: The name of each kind of amount.
_WHAT: Final = ("subscriptions", "subscriptions of which no condition can be looked up", "bytes of subscriptions")
#: The pause before the next count, as a multiple of the time that the count took.
_PATIENCE: Final = 20.0


@final
@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of a tenant; None means unlimited.

    Attributes:
        unindexed: the most subscriptions without any indexable condition.
        history: bytes of the log of changes.
        texts: bytes of the subscriptions.
    """

    subscriptions: int | None = None
    unindexed: int | None = None
    history: int | None = None
    texts: int | None = None

    @classmethod
    def of(cls, config: Config) -> Quotas:
        """Return the limits of a configuration."""
        quotas = config.api.quotas
        return cls(quotas.subscriptions, quotas.unindexed, quotas.history, quotas.texts)

    def most(self, after: Amount, before: Amount) -> Amount:
        """Return the limits for a change; an amount that does not grow by it has no limit."""
        bounds = (self.subscriptions, self.unindexed, self.texts)
        grown = zip(bounds, after, before, strict=True)
        return Amount(*(inf if bound is None or now <= then else bound for bound, now, then in grown))

    def check(self, after: Amount, before: Amount) -> None:
        """Refuse a change that exceeds a tenant's limits. Raises Declined."""
        for bound, amount, what in zip(self.most(after, before), after, _WHAT, strict=True):
            if amount > bound:
                raise Declined("quota", f"a tenant may have at most {bound:,} {what}")


@final
class Counted:
    """The amounts of each tenant. Its user has a lock.

    This process's own writes are counted at once, those of other processes a little after they were seen.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.stored: Counter[str] = Counter()
        self.unindexed: Counter[str] = Counter()
        self.texts: Counter[str] = Counter()
        self.paused: Counter[str] = Counter()
        # The version up to which writes of other processes are counted, and the tenants with uncounted ones.
        self._upto = 0
        self._dirty: set[str] = set()
        self._due = 0.0

    def count(self, version: int) -> None:
        """Count all subscriptions; *version* is the last version that this process has read."""
        self._upto = version
        self.stored, self.unindexed, self.texts, self.paused = Counter(), Counter(), Counter(), Counter()
        for tenant, counts in self._table.counts().items():
            self._take(tenant, *counts)

    def _take(self, tenant: str, amount: Amount, paused: int) -> None:
        self.stored[tenant], self.unindexed[tenant], self.texts[tenant] = map(int, amount)
        self.paused[tenant] = paused

    def of(self, tenant: str) -> Amount:
        """Return the amounts of a tenant."""
        return Amount(self.stored[tenant], self.unindexed[tenant], self.texts[tenant])

    def change(self, row: Stored | None, before: Stored | None) -> None:
        """Count a row in place of the one before, which this process wrote."""
        for each, sign in ((row, 1), (before, -1)):
            if each is not None:
                self.stored[each.tenant] += sign
                self.unindexed[each.tenant] += sign * each.unindexed
                self.texts[each.tenant] += sign * len(each.text)
                self.paused[each.tenant] += sign * each.paused

    def write(self, before: int, version: int) -> None:
        """Note that only this process wrote the versions after *before*, up to *version*."""
        if self._upto == before:
            self._upto = version

    def distrust(self, tenants: Iterable[str], *, at_once: bool = False) -> None:
        """Have some tenants counted again, because other processes wrote for them."""
        self._dirty.update(tenants)
        if at_once:
            self._due = 0.0

    def look(self, version: int) -> None:
        """Count the writes of other processes. The longer a count takes, the less often it is done."""
        if not self._dirty:
            self._upto = version
        if not self._dirty or (began := time.monotonic()) < self._due:
            return
        dirty, self._dirty = sorted(self._dirty)[:PAGE], set(sorted(self._dirty)[PAGE:])
        counts = self._table.counts(dirty)
        if not self._dirty:
            self._upto = version
        for tenant in dirty:
            self._take(tenant, *counts.get(tenant, (Amount(), 0)))
        self._due = began + _PATIENCE * (time.monotonic() - began)

    def room(self, quotas: Quotas, tenant: str, amount: Amount, largest: int) -> Room:
        """Return the limits for a change after which a tenant has these amounts, in texts of at most *largest* bytes."""
        return Room(tenant, quotas.most(amount, self.of(tenant)), amount, self._upto, largest)
