"""A core's report on one filter: enough to decide whether to rebuild it, and to display it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, final

from streamer.bloom.sizing import event_fp_rate

#: The number of bits in one word that a key sets in the blocked layout (crates/streamer-core/src/bloom/blocked.rs).
BITS_OF_A_KEY: Final = 5
WORD_BITS: Final = 64

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
        keys: the number of keys set since it was built.
        capacity: the number of keys that it was sized for.
        stale: an upper bound of its keys that belong to removed subscriptions.
        keyed: the number of subscriptions that it guards.
        unkeyed: the number of subscriptions of its partition that it does not guard.
        bits: its size in bits.
        fill: the share of its bits that are set.
        asked: the number of events that queried it, since the first version.
        no: the number of these events that it stopped.
        probes: the number of keys looked up, since the first version; the mean per event is `probes / asked`.
        sampled: the number of sampled events without any live key, since it was built.
        false_positives: the number of sampled events that it passed.
        grown: the number of its versions that a write made, because it had more keys than it was sized for.
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
        """Running mean of keys looked up per event, at least 1."""
        return max(1.0, self.probes / self.asked) if self.asked else 1.0

    @property
    def measured_rate(self) -> float | None:
        """Share of the events without any live key that passed; None before any was sampled."""
        return self.false_positives / self.sampled if self.sampled else None

    @property
    def estimated_rate(self) -> float:
        """Share of the events without any live key that should pass, from its size and its keys."""
        key_rate = self._blocked_rate if self.layout == "blocked" else self._portable_rate
        # A rate of 1 has no logarithm.
        return event_fp_rate(min(key_rate, 1 - 1e-12), self.probes_per_event)

    @property
    def _portable_rate(self) -> float:
        # A key has the number of bits that is best for what the filter was sized for.
        return float(self.fill ** max(1, round(self.bits / max(self.capacity, 1) * math.log(2))))

    @property
    def _blocked_rate(self) -> float:
        # Keys are spread over words in a Poisson distribution. The mean fill is too optimistic: full words pass most keys.
        mean = self.keys * WORD_BITS / max(self.bits, WORD_BITS)
        most = int(mean + 10 * math.sqrt(mean + 1)) + 1
        rate, share = 0.0, math.exp(-mean)
        for keys in range(most):
            rate += share * (1 - (1 - 1 / WORD_BITS) ** (BITS_OF_A_KEY * keys)) ** BITS_OF_A_KEY
            share *= mean / (keys + 1)
        return rate
