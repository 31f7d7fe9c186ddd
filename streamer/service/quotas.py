"""How many subscriptions tenants have, how large, and how many they may."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, final

from streamer.config.schema.config import Config
from streamer.service.declined import Declined
from streamer.service.store.subscriptions import PAGE, Amount, Room, Stored, Table

#: What of each kind of amount there is, in words.
_WHAT: Final = ("subscriptions", "subscriptions of which no condition can be looked up", "bytes of subscriptions")
#: So much longer than counting took one waits until one counts again.
_PATIENCE: Final = 20.0


@final
@dataclass(frozen=True, slots=True)
class Quotas:
    """How much a tenant may hold. None is no bound.

    Attributes:
        unindexed: of those, how many may be candidates for every event of their collection.
        history: bytes of the log of changes.
        texts: bytes of the subscriptions.
    """

    subscriptions: int | None = None
    unindexed: int | None = None
    history: int | None = None
    texts: int | None = None

    @classmethod
    def of(cls, config: Config) -> Quotas:
        """Return those of a configuration."""
        quotas = config.api.quotas
        return cls(quotas.subscriptions, quotas.unindexed, quotas.history, quotas.texts)

    def most(self, after: Amount, before: Amount) -> Amount:
        """Return how much there may be after a change; what does not grow by it is not judged."""
        bounds = (self.subscriptions, self.unindexed, self.texts)
        grown = zip(bounds, after, before, strict=True)
        return Amount(*(inf if bound is None or now <= then else bound for bound, now, then in grown))

    def check(self, after: Amount, before: Amount) -> None:
        """Refuse more than a tenant may hold. Raises Declined."""
        for bound, held, what in zip(self.most(after, before), after, _WHAT, strict=True):
            if held > bound:
                raise Declined("quota", f"a tenant may hold {bound:,} {what}")


@final
class Counted:
    """How much each tenant has. Who uses it holds a lock.

    What this process writes is counted at once; what others write is, a little after it was seen.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.held: Counter[str] = Counter()
        self.unindexed: Counter[str] = Counter()
        self.texts: Counter[str] = Counter()
        self.paused: Counter[str] = Counter()
        # Up to which version what other processes wrote is counted, and of whom something is not.
        self._upto = 0
        self._dirty: set[str] = set()
        self._due = 0.0

    def count(self, seen: int) -> None:
        """Count all that there is; *seen* is the last version that this process knows."""
        self._upto = seen
        self.held, self.unindexed, self.texts, self.paused = Counter(), Counter(), Counter(), Counter()
        for tenant, counts in self._table.counts().items():
            self._take(tenant, *counts)

    def _take(self, tenant: str, amount: Amount, paused: int) -> None:
        self.held[tenant], self.unindexed[tenant], self.texts[tenant] = map(int, amount)
        self.paused[tenant] = paused

    def of(self, tenant: str) -> Amount:
        """Return how much a tenant has."""
        return Amount(self.held[tenant], self.unindexed[tenant], self.texts[tenant])

    def change(self, row: Stored | None, before: Stored | None) -> None:
        """Count a row in the place of the one before, which this process wrote."""
        for each, sign in ((row, 1), (before, -1)):
            if each is not None:
                self.held[each.tenant] += sign
                self.unindexed[each.tenant] += sign * each.unindexed
                self.texts[each.tenant] += sign * len(each.text)
                self.paused[each.tenant] += sign * each.paused

    def write(self, before: int, seen: int) -> None:
        """Take note that this process alone wrote what follows one version, up to another."""
        if self._upto == before:
            self._upto = seen

    def distrust(self, tenants: Iterable[str], *, at_once: bool = False) -> None:
        """Have some tenants counted anew, since other processes wrote for them."""
        self._dirty.update(tenants)
        if at_once:
            self._due = 0.0

    def look(self, seen: int) -> None:
        """Count what other processes wrote; that may take a while, and is done the less often then."""
        if not self._dirty:
            self._upto = seen
        if not self._dirty or (began := time.monotonic()) < self._due:
            return
        dirty, self._dirty = sorted(self._dirty)[:PAGE], set(sorted(self._dirty)[PAGE:])
        counts = self._table.counts(dirty)
        if not self._dirty:
            self._upto = seen
        for tenant in dirty:
            self._take(tenant, *counts.get(tenant, (Amount(), 0)))
        self._due = began + _PATIENCE * (time.monotonic() - began)

    def room(self, quotas: Quotas, tenant: str, held: Amount, largest: int) -> Room:
        """Return what a change may make of a tenant that is to hold so much, in texts of so many bytes at most."""
        return Room(tenant, quotas.most(held, self.of(tenant)), held, self._upto, largest)
