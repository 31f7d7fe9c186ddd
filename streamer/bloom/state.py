"""What a core tells of one filter: enough to judge whether it should be rebuilt, and to show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

Layout = Literal["blocked", "portable"]


@final
@dataclass(frozen=True, slots=True)
class FilterState:
    """One filter at one moment.

    Attributes:
        tenant: a name, or `"*"` for every tenant.
        collection: a name, or `"*"` for every collection.
        layout: `blocked` in the native core, `portable` in the reference.
        version: 1 for the first filter of its partition; each rebuild adds 1.
        keys: keys set since it was built.
        capacity: keys it was sized for.
        stale: how many of its keys belonged to subscriptions that were removed, at most.
        keyed: subscriptions that it guards.
        unkeyed: subscriptions of its partition that it does not guard.
        bits: its size.
        fill: share of its bits that are set.
        asked: events it was asked for, ever.
        no: how many of them it stopped.
        probes: keys that it was asked for, ever; a mean of `probes / asked` an event.
        sampled: events without any live key among those that were sampled since it was built.
        false_positives: how many of these passed all the same.
        grown: how many of its versions a write made, because it held more keys than it was sized for.
    """

    tenant: str
    collection: str
    layout: Layout
    version: int
    keys: int
    capacity: int
    stale: int
    keyed: int
    unkeyed: int
    bits: int
    fill: float
    asked: int = 0
    no: int = 0
    probes: int = 0
    sampled: int = 0
    false_positives: int = 0
    grown: int = 0

    @property
    def name(self) -> tuple[str, str]:
        """Tenant and collection, as `Core.rebuild_filter` takes them."""
        return self.tenant, self.collection

    @property
    def probes_per_event(self) -> float:
        """Running mean of keys asked for an event, at least 1."""
        return max(1.0, self.probes / self.asked) if self.asked else 1.0

    @property
    def measured_rate(self) -> float | None:
        """Share of the events without any live key that passed; None before any was sampled."""
        return self.false_positives / self.sampled if self.sampled else None
