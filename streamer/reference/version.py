"""The complete content of a reference engine at one moment.

```
version ─┬─ entries     id → Entry                                    for get, in, len, replace, remove
         └─ partitions  (tenant, collection) → Partition ─┬─ filter    phase 1: NO → the keyed ones are skipped
                                                          ├─ keyed     candidates if the event has one of their keys
                                                          └─ unkeyed   always candidates
```

Invariant: everything that a version refers to is immutable, with one exception. Bits of a filter may be set for a later version,
which turns a NO into a MAYBE, never the reverse. The maps are persistent (`rpds`), so the cost of a new version depends on the
size of the change, not of the engine.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, final

from rpds import HashTrieMap

from streamer.bloom.answer import Answer
from streamer.bloom.guard import CollectionFilter, carried_keys
from streamer.bloom.options import BloomOptions
from streamer.bloom.sizing import key_fp_rate
from streamer.bloom.state import FilterState
from streamer.core.protocol import Selection
from streamer.model import Event
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.keys import Key, Place
from streamer.telemetry import Name

#: The filter of fewer subscriptions is built as part of a write.
SMALL: Final = 64

PartitionName: TypeAlias = tuple[str, str | None]
"""A tenant or "*", and a collection or None for every one."""


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """A stored subscription.

    Attributes:
        order: its position in the order of adding.
        keys: its access keys; every event that it matches has one of them. None if it is unkeyed.
    """

    order: int
    compiled: CompiledSubscription
    keys: frozenset[Key] | None

    @property
    def id(self) -> str:
        return self.compiled.subscription.id

    @property
    def partition(self) -> PartitionName:
        return self.compiled.tenant, self.compiled.collection


@final
@dataclass(slots=True)
class Work:
    """Measurements of one match.

    Attributes:
        partitions: for each partition that was searched, by tenant and collection, the numbers of candidates and of matches.
        bloom: nanoseconds spent on filters, None if no partition had one.
        is_bare: see `streamer.events.reading.is_bare`.
    """

    partitions: list[tuple[Name, int, int]] = field(default_factory=list)
    bloom: int | None = None
    is_bare: bool = False


@final
@dataclass(frozen=True, slots=True)
class Partition:
    """The subscriptions of one (tenant, collection); its filter guards the keyed ones.

    Attributes:
        places: the places of the keys of its subscriptions, and perhaps of some that were removed.
        filter: None if the partition never had a keyed subscription, or if the engine has no phase 1.
        stale: the number of keys in the filter, or at the places, of subscriptions that were removed.
    """

    keyed: Mapping[str, Entry] = field(default_factory=dict)
    unkeyed: Mapping[str, Entry] = field(default_factory=dict)
    places: frozenset[Place] = frozenset()
    filter: CollectionFilter | None = None
    stale: int = 0

    def __len__(self) -> int:
        return len(self.keyed) + len(self.unkeyed)

    def live_keys(self) -> frozenset[Key]:
        """Return the keys of all subscriptions in the partition."""
        return frozenset(key for entry in self.keyed.values() for key in entry.keys or ())

    def changed(self, removed: Iterable[str], added: Iterable[Entry], bloom: BloomOptions) -> Partition:
        """Return the partition without the ids *removed*, then with the entries *added*."""
        keyed, unkeyed, stale = dict(self.keyed), dict(self.unkeyed), self.stale
        for subscription_id in removed:
            entry = keyed.pop(subscription_id, None)
            if entry is None:
                del unkeyed[subscription_id]
            else:
                stale += len(entry.keys or ())
        new_keys: set[Key] = set()
        for entry in added:
            if entry.keys is None:
                unkeyed[entry.id] = entry
            else:
                keyed[entry.id] = entry
                new_keys |= entry.keys
        places = self.places | {key.place for key in new_keys}
        if not bloom.enabled:
            # The manager rebuilds only filters. Without one, drop places without keys here.
            after = Partition(keyed, unkeyed, places, None, stale)
            live = after.live_keys() if stale > len(keyed) else None
            return after if live is None else replace(after, places=frozenset(key.place for key in live), stale=0)
        guard = self.filter
        # The writer rebuilds a filter if that costs no more than the write itself; the manager rebuilds all others.
        is_small = len(keyed) < SMALL and (stale > len(keyed) or (guard is not None and not guard.has_room_for(len(new_keys))))
        is_new = guard is None or (not guard.has_room_for(len(new_keys)) and len(new_keys) > len(guard.bits))
        if guard is None or is_small or is_new:
            after = Partition(keyed, unkeyed, places)
            if guard is not None and keyed and not guard.has_room_for(len(new_keys)):
                guard.tally.count_growth()
            return after.rebuilt(bloom.initial_capacity, key_fp_rate(bloom.fp_rate, len(places)), guard) if keyed else after
        return Partition(keyed, unkeyed, places, guard.including(new_keys), stale)

    def rebuilt(self, capacity: int, key_rate: float, before: CollectionFilter | None) -> Partition:
        """Return the partition with a filter of its live keys."""
        keys = self.live_keys()
        guard = CollectionFilter.build(keys, capacity, key_rate, before)
        return Partition(self.keyed, self.unkeyed, guard.places, guard)

    def switched(self, bloom: BloomOptions) -> Partition:
        """Return the partition with or without a filter, by the new options *bloom*."""
        if not bloom.enabled:
            return replace(self, filter=None)
        return self.rebuilt(bloom.initial_capacity, key_fp_rate(bloom.fp_rate, len(self.places)), None) if self.keyed else self

    def candidates(self, sides: Sequence[Event], work: Work) -> Iterator[Entry]:
        """Yield the candidates for an event (phase 1)."""
        yield from self.unkeyed.values()
        if not self.keyed:
            return
        began = time.perf_counter_ns()
        carried = carried_keys(sides, self.places)
        if self.filter is not None:
            answer = self.filter.ask(carried)
            work.bloom = (work.bloom or 0) + time.perf_counter_ns() - began
            if answer is Answer.NO:
                return
        is_false = carried is not None
        for entry in self.keyed.values():
            if carried is None or entry.keys is None or not entry.keys.isdisjoint(carried):
                is_false = False
                yield entry
        if is_false and self.filter is not None:
            self.filter.tally.count_false_positive()

    def state(self, name: PartitionName) -> FilterState | None:
        """Return the state of the filter, or None if there is none."""
        if self.filter is None:
            return None
        bits, tally = self.filter.bits, self.filter.tally
        return FilterState(
            tenant=name[0],
            collection=name[1] or "*",
            layout="portable",
            version=self.filter.version,
            keys=len(bits),
            capacity=self.filter.capacity,
            stale=self.stale,
            keyed=len(self.keyed),
            unkeyed=len(self.unkeyed),
            bits=bits.num_bits,
            fill=bits.filled,
            asked=tally.asked,
            no=tally.no,
            probes=tally.probes,
            sampled=tally.sampled,
            false_positives=tally.false_positives,
            grown=tally.grown,
        )


@final
@dataclass(frozen=True, slots=True)
class Version:
    """The complete content of an engine at one moment."""

    entries: HashTrieMap[str, Entry]
    partitions: HashTrieMap[PartitionName, Partition]

    def visible_to(self, event: Event) -> Iterator[tuple[PartitionName, Partition]]:
        """Yield the partitions whose subscriptions may match an event, each with its name."""
        collections = (None,) if event.collection is None else (event.collection, None)
        for tenant in (event.tenant, "*"):
            for collection in collections:
                partition = self.partitions.get((tenant, collection))
                if partition is not None:
                    yield (tenant, collection), partition


def partition_name(tenant: str, collection: str) -> PartitionName:
    return tenant, None if collection == "*" else collection


def selected(version: Version, selection: Selection) -> list[Entry]:
    """Return the entries that meet every criterion, in order of adding."""
    if selection.ids is not None:
        named = (version.entries.get(subscription_id) for subscription_id in selection.ids)
        entries: Iterable[Entry] = (entry for entry in named if entry is not None)
    else:
        entries = version.entries.values()
    if selection.gateway_id is not None:
        entries = (e for e in entries if e.compiled.subscription.gateway_id == selection.gateway_id)
    if selection.tenant is not None:
        entries = (e for e in entries if e.compiled.tenant == selection.tenant)
    if selection.collection is not None:
        wanted = None if selection.collection == "*" else selection.collection
        entries = (e for e in entries if e.compiled.collection == wanted)
    return sorted(entries, key=lambda entry: entry.order)
