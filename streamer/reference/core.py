"""The engine in plain Python: two phases, each as naive as it can be.

```
root ─┬─ entries     id → Entry                                    for get, in, len, replace, remove
      └─ partitions  (tenant, collection) → Partition ─┬─ filter    phase 1: NO → the keyed ones are passed over
                                                       ├─ keyed     phase 2: each of whose keys the event carries one is judged
                                                       └─ unkeyed   always judged
```

An event sees four partitions: its own, (its tenant, every collection), (every tenant, its collection) and (every, every).

Invariant: everything that a root reaches is immutable, with one exception. The bits of a filter may be set for a later root,
which turns a NO into a MAYBE and never the other way. A reader takes `self._root` once; a writer, under the lock, makes a new
root and assigns it. The maps are persistent (`rpds`), so a root costs what changed, not what is held.

Cost: a match looks at every subscription of four partitions where the filter does not say NO; a write copies the partitions that
it touches. Rejected: one dict guarded by a lock that matches take too, since a writer in the middle of a million subscriptions
would stop them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, final

from rpds import HashTrieMap

from streamer.bloom.guard import CollectionFilter, carried_keys
from streamer.bloom.options import BloomOptions
from streamer.bloom.portable import Answer
from streamer.bloom.shipping import Gathered
from streamer.bloom.sizing import key_fp_rate
from streamer.bloom.state import FilterState
from streamer.cel_eval import ErrorLog, ProgramCache
from streamer.core import arrow
from streamer.core.arrow import ArrowMatches
from streamer.core.options import Options
from streamer.core.plan import Plan, make_plan
from streamer.core.protocol import Changes, Held, Mode, Selection, Source
from streamer.core.snapshot import Head, read_named
from streamer.errors import (
    BulkSubscriptionError,
    DuplicateSubscriptionError,
    EventError,
    ReentryError,
    SubscriptionError,
)
from streamer.events.reading import EventSource, IgnoredEvent, as_before, is_bare
from streamer.locks import TRIES, Lock
from streamer.model import Event, Match
from streamer.reference.dump import dump
from streamer.reference.judge import Outcome, judge
from streamer.reference.searches import REFUSED
from streamer.reference.stopwatch import CEL_TIME
from streamer.subscriptions.compile import CompiledSubscription, compile_subscription
from streamer.subscriptions.keys import Key, Place, access_keys
from streamer.subscriptions.normal_form import normal_form
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import Subscription
from streamer.subscriptions.text import canonical_text, check_length
from streamer.subscriptions.values import private_copy, same_subscription
from streamer.telemetry import Name, PartitionCounts, PartitionSize, Recorder, Telemetry

if TYPE_CHECKING:
    import pyarrow as pa

#: A filter of fewer subscriptions is built in the time of a write.
SMALL: Final = 64

#: A tenant or "*", and a collection or None for every one.
T = TypeVar("T")
PartitionName: TypeAlias = tuple[str, str | None]


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """A subscription that is held.

    Attributes:
        order: position in the order of adding.
        keys: values of which every event that it matches carries one; None if it is unkeyed.
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
class _Work:
    """What one event came to.

    Attributes:
        partitions: tenant and collection of each that it saw, with the entries judged there and those that matched.
        bloom: nanoseconds spent on filters, None where there was none to ask.
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
        places: where the keys of the keyed ones stand, and perhaps those of some that were removed.
        filter: None where nothing was ever keyed, and where the engine has no phase 1.
        stale: keys in the filter, or at the places, of subscriptions that were removed.
    """

    keyed: Mapping[str, Entry] = field(default_factory=dict)
    unkeyed: Mapping[str, Entry] = field(default_factory=dict)
    places: frozenset[Place] = frozenset()
    filter: CollectionFilter | None = None
    stale: int = 0

    def __len__(self) -> int:
        return len(self.keyed) + len(self.unkeyed)

    def live_keys(self) -> frozenset[Key]:
        """Return the live keys."""
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
            # Nothing rebuilds what is not there, so that places without keys are dropped here.
            after = Partition(keyed, unkeyed, places, None, stale)
            live = after.live_keys() if stale > len(keyed) else None
            return after if live is None else replace(after, places=frozenset(key.place for key in live), stale=0)
        guard = self.filter
        # Where it costs no more than the write itself the writer builds anew; the manager sees to all else.
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
        """Return the partition with a filter or without, as *bloom* has it now."""
        if not bloom.enabled:
            return replace(self, filter=None)
        return self.rebuilt(bloom.initial_capacity, key_fp_rate(bloom.fp_rate, len(self.places)), None) if self.keyed else self

    def candidates(self, sides: Sequence[Event], work: _Work) -> Iterator[Entry]:
        """Phase 1: yield what the event may match."""
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
        """Return what there is to know of the filter; None where there is none."""
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
class Root:
    """All that an engine holds at one moment."""

    entries: HashTrieMap[str, Entry]
    partitions: HashTrieMap[PartitionName, Partition]

    def seen_by(self, event: Event) -> Iterator[tuple[PartitionName, Partition]]:
        """Yield the partitions whose subscriptions may match an event, each with its name."""
        collections = (None,) if event.collection is None else (event.collection, None)
        for tenant in (event.tenant, "*"):
            for collection in collections:
                partition = self.partitions.get((tenant, collection))
                if partition is not None:
                    yield (tenant, collection), partition


@final
class ReferenceHits:
    """Hits as plain pairs; see `streamer.core.protocol.Hits`."""

    __slots__ = ("_pairs", "ignored")

    def __init__(self, pairs: Sequence[tuple[Entry, Outcome]], ignored: str | None = None) -> None:
        self._pairs = pairs
        self.ignored = ignored

    def __len__(self) -> int:
        return len(self._pairs)

    def ids(self) -> list[str]:
        return [entry.id for entry, _ in self._pairs]

    def gateway_ids(self) -> list[str | None]:
        return [entry.compiled.subscription.gateway_id for entry, _ in self._pairs]

    def find(self, subscription_id: str) -> int:
        return next((at for at, (entry, _) in enumerate(self._pairs) if entry.id == subscription_id), -1)

    def match(self, position: int, event: EventSource) -> Match:
        entry, outcome = self._pairs[position]
        subscription = entry.compiled.subscription
        return Match(
            subscription_id=subscription.id,
            gateway_id=subscription.gateway_id,
            event=event,
            transition=outcome.transition,
            certain=outcome.certain,
            labels=subscription.labels,
        )

    def take(self, positions: Sequence[int]) -> ReferenceHits:
        return ReferenceHits([self._pairs[position] for position in positions], self.ignored)

    def in_order(self) -> ReferenceHits:
        return ReferenceHits(sorted(self._pairs, key=lambda pair: pair[0].order), self.ignored)


@final
class ReferenceBatch(list[ReferenceHits | EventError]):
    """What several events came to."""

    @property
    def rejected(self) -> int:
        """See `HitsOfSeveral`."""
        return sum(isinstance(result, EventError) for result in self)


@final
@dataclass(frozen=True, slots=True)
class _Draft:
    """A subscription that was accepted and has no place yet."""

    index: int
    compiled: CompiledSubscription
    keys: frozenset[Key] | None


@final
class ReferenceCore:
    """The core of the reference backend; see `streamer.core.protocol.Core` for what each method does.

    Thread-safe: readers take no lock, writers take turns.
    """

    def __init__(self, options: Options, programs: ProgramCache, cel_errors: ErrorLog) -> None:
        self._options = options
        self._programs: Final = programs
        self._cel_errors: Final = cel_errors
        self._root = Root(HashTrieMap(), HashTrieMap())
        self._orders: Final = count()
        self._lock = Lock()
        self._recorder: Final = Recorder()

    def reconfigure(self, options: Options) -> None:
        def switched(root: Root) -> tuple[Root, None]:
            partitions = root.partitions
            for name, partition in root.partitions.items():
                partitions = partitions.insert(name, partition.switched(options.bloom))
            return Root(root.entries, partitions), None

        was, self._options = self._options.bloom.enabled, options
        if was != options.bloom.enabled:
            self._change(switched)

    # Writing

    def write(self, sources: Iterable[Source | SubscriptionError], mode: Mode, *, skip: bool = False) -> Changes:
        drafts, refused = self._prepare(sources)

        def written(root: Root) -> tuple[Root, Changes]:
            errors = list(refused)
            accepted: list[_Draft] = []
            for draft in drafts:
                if mode == "add" and (subscription_id := draft.compiled.subscription.id) in root.entries:
                    reason = "this id is held already; replace=True puts the new one in its place"
                    errors.append(
                        DuplicateSubscriptionError(reason, place="id", subscription_id=subscription_id, index=draft.index)
                    )
                else:
                    accepted.append(draft)
            errors.sort(key=lambda error: error.index or 0)
            if errors and not skip:
                raise BulkSubscriptionError(errors)
            return self._written(root, accepted, mode, tuple(errors))

        return self._change(written)

    def open_snapshot(self, head: Head, names: Set[tuple[str, str]] | None) -> None:
        self.write(read_named(head.path, names), "add")

    image_kind: Final = 0

    def image(self, lines: bytes, seed: int) -> None:
        """Nothing is compiled ahead."""

    def canonical(self, held: Held) -> tuple[str, str, bytes]:
        return canonical_text(held, self._options.default_tenant)

    def remove(self, selection: Selection) -> Changes:
        def without(root: Root) -> tuple[Root, Changes]:
            gone = _selected(root, selection)
            return self._next(root, gone, []), Changes(removed=tuple(entry.id for entry in gone))

        return self._change(without)

    def _change(self, make: Callable[[Root], tuple[Root, T]]) -> T:
        """Put the root that *make* makes of the present one in its place, and return what it returns besides.

        Made again where this thread has put another there in between, in a signal handler or a finalizer. Raises ReentryError.
        """
        with self._lock:
            for _ in range(TRIES):
                root = self._root
                made, result = make(root)
                # From here to the end of the assignment Python looks for no signal.
                if self._root is root:
                    self._root = made
                    return result
            raise ReentryError(
                f"what this thread changes is changed again by its own signal handlers or finalizers, {TRIES} times"
            )

    def _prepare(self, sources: Iterable[Source | SubscriptionError]) -> tuple[list[_Draft], list[SubscriptionError]]:
        """Check and compile; touches nothing that others see."""
        drafts: list[_Draft] = []
        errors: list[SubscriptionError] = []
        seen: set[str] = set()
        for index, source in enumerate(sources):
            subscription: Subscription | None = None
            try:
                if isinstance(source, SubscriptionError):
                    raise source
                if isinstance(source, bytes | bytearray | str):
                    check_length(source, self._options.limits)
                    subscription = parse_subscription(source)
                else:
                    subscription = private_copy(parse_subscription(source))
                    check_length(subscription, self._options.limits)
                compiled = compile_subscription(
                    subscription,
                    default_tenant=self._options.default_tenant,
                    limits=self._options.limits,
                    programs=self._programs,
                )
                if subscription.id in seen:
                    raise DuplicateSubscriptionError("this id comes twice in one call", place="id")
                seen.add(subscription.id)
                keys = access_keys(normal_form(compiled, self._options.limits))
                if keys is None and not self._options.limits.allow_unindexed:
                    reason = "it would be evaluated for every event, since no condition of it can be looked up"
                    raise SubscriptionError(f"{reason} (limits.allow_unindexed)")
                drafts.append(_Draft(index, compiled, keys))
            except SubscriptionError as error:
                error.index = index
                if error.subscription_id is None and subscription is not None:
                    error.subscription_id = subscription.id
                if error.subscription_id is not None:
                    seen.add(error.subscription_id)
                # A traceback would keep the frames of every bad one of a million alive.
                errors.append(error.with_traceback(None))
        return drafts, errors

    def _written(
        self, root: Root, drafts: Sequence[_Draft], mode: Mode, errors: tuple[SubscriptionError, ...]
    ) -> tuple[Root, Changes]:
        added: list[Entry] = []
        replaced: list[Entry] = []
        unchanged: list[str] = []
        gone: list[Entry] = []
        for draft in drafts:
            held = root.entries.get(draft.compiled.subscription.id)
            if held is None:
                added.append(Entry(next(self._orders), draft.compiled, draft.keys))
            elif mode == "apply" and same_subscription(held.compiled.subscription, draft.compiled.subscription):
                unchanged.append(held.id)
            else:
                replaced.append(Entry(held.order, draft.compiled, draft.keys))
                gone.append(held)
        removed: list[Entry] = []
        if mode == "apply":
            desired = {draft.compiled.subscription.id for draft in drafts}
            removed = sorted((root.entries[i] for i in root.entries if i not in desired), key=lambda entry: entry.order)
        changes = Changes(
            added=tuple(entry.id for entry in added),
            replaced=tuple(entry.id for entry in replaced),
            removed=tuple(entry.id for entry in removed),
            unchanged=tuple(unchanged),
            errors=errors,
        )
        return self._next(root, [*gone, *removed], [*added, *replaced]), changes

    def _next(self, root: Root, gone: Sequence[Entry], new: Sequence[Entry]) -> Root:
        """Build the next root beside the present one."""
        if not gone and not new:
            return root
        entries, partitions = root.entries, root.partitions
        gone_from: dict[PartitionName, set[str]] = {}
        new_in: dict[PartitionName, list[Entry]] = {}
        for entry in gone:
            gone_from.setdefault(entry.partition, set()).add(entry.id)
            entries = entries.remove(entry.id)
        for entry in new:
            new_in.setdefault(entry.partition, []).append(entry)
            entries = entries.insert(entry.id, entry)
        for name in gone_from.keys() | new_in.keys():
            before = partitions.get(name) or Partition()
            after = before.changed(gone_from.get(name, ()), new_in.get(name, ()), self._options.bloom)
            partitions = partitions.insert(name, after) if len(after) else partitions.remove(name)
        return Root(entries, partitions)

    # Reading

    def get(self, subscription_id: str) -> Subscription | None:
        entry = self._root.entries.get(subscription_id)
        return None if entry is None else entry.compiled.subscription

    def select(self, selection: Selection) -> list[Subscription]:
        return [entry.compiled.subscription for entry in _selected(self._root, selection)]

    def ids(self, selection: Selection) -> list[str]:
        return [entry.id for entry in _selected(self._root, selection)]

    def given(self, selection: Selection) -> list[Subscription]:
        return self.select(selection)

    def __len__(self) -> int:
        return len(self._root.entries)

    def __contains__(self, subscription_id: object) -> bool:
        return isinstance(subscription_id, str) and subscription_id in self._root.entries

    def match(self, event: EventSource, tenant: str | None, collection: str | None) -> ReferenceHits:
        return self._settled(self._root, event, tenant, collection)

    def match_ids(self, event: EventSource, tenant: str | None, collection: str | None) -> list[str]:
        return self._settled(self._root, event, tenant, collection).ids()

    def match_count(self, event: EventSource, tenant: str | None, collection: str | None) -> int:
        return len(self._settled(self._root, event, tenant, collection))

    def matches_any(self, event: EventSource, tenant: str | None, collection: str | None) -> bool:
        # All of them, though one would do: what is counted is then what the native core counts, which finds them together.
        return bool(self._settled(self._root, event, tenant, collection))

    def match_batch(
        self, events: Sequence[EventSource], tenant: str | None, collection: str | None, threads: int = 1
    ) -> ReferenceBatch:
        """See `Core`; *threads* makes no difference here, since the GIL lets one run at a time."""
        root = self._root
        results = ReferenceBatch()
        for index, event in enumerate(events):
            try:
                results.append(self._settled(root, event, tenant, collection))
            except EventError as error:
                error.index = index
                results.append(error.with_traceback(None))
        return results

    def match_arrow(
        self,
        arrays: Sequence[pa.Array],
        tenant: str | None,
        collection: str | None,
        threads: int,
        max_matches: int | None = None,
    ) -> ArrowMatches:
        """See `Core`; *threads* makes no difference here."""
        root = self._root
        rows = arrow.Rows()
        for text in arrow.texts(arrays):
            if max_matches is not None and len(rows.matches) >= max_matches:
                break
            try:
                hits = self._settled(root, text, tenant, collection)
                event = self._options.read(text, tenant, collection)
            except EventError as error:
                rows.reject(error)
            except IgnoredEvent as ignored:
                rows.ignore(ignored.reason)
            else:
                rows.add(event, [hits.match(position, text) for position in range(len(hits))])
        return rows.batches()

    def locate_arrow(
        self, arrays: Sequence[pa.Array], tenant: str | None, collection: str | None, threads: int
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """See `Core`."""
        rows = arrow.Rows()
        for text in arrow.texts(arrays):
            try:
                event = self._options.read(text, tenant, collection)
            except EventError as error:
                rows.reject(error)
            except IgnoredEvent as ignored:
                rows.ignore(ignored.reason)
            else:
                rows.add(event, ())
        batches = rows.batches()
        return batches.events, batches.rejected

    def reject(self, code: str) -> None:
        self._recorder.reject(code)

    def telemetry(self) -> Telemetry:
        root = self._root
        return self._recorder.read(subscriptions=len(root.entries), partitions=len(root.partitions))

    def partitions(self) -> list[PartitionSize]:
        held = self._root.partitions
        return [PartitionSize(tenant, collection or "*", len(entries), 1, 0, 0) for (tenant, collection), entries in held.items()]

    def partition_counts(self) -> list[PartitionCounts]:
        held = self._root.partitions
        counted = self._recorder.partitions()
        present = (name for name in counted if held.get(_partition_name(*name)) is not None)
        return [PartitionCounts(*name, *counted[name]) for name in present]

    def _settled(self, root: Root, event: EventSource, tenant: str | None, collection: str | None) -> ReferenceHits:
        """Match an event, and count what became of it."""
        began, cel_runs, cel_began = time.perf_counter_ns(), CEL_TIME.runs, CEL_TIME.nanoseconds
        work = _Work()
        try:
            found = list(self._hits(root, event, tenant, collection, work))
        except IgnoredEvent as ignored:
            self._recorder.ignore(ignored.reason.value)
            return ReferenceHits((), ignored.reason.value)
        except BaseException as error:
            self._recorder.reject(error.code.value if isinstance(error, EventError) else "internal")
            raise
        self._recorder.settle(
            matches=len(found),
            uncertain=sum(1 for _, outcome in found if not outcome.certain),
            candidates=sum(candidates for _, candidates, _ in work.partitions),
            partitions=work.partitions,
            total=time.perf_counter_ns() - began,
            bloom=work.bloom,
            cel=CEL_TIME.nanoseconds - cel_began if CEL_TIME.runs > cel_runs else None,
            is_bare=work.is_bare,
        )
        return ReferenceHits(found)

    def _hits(
        self, root: Root, event: EventSource, tenant: str | None, collection: str | None, work: _Work
    ) -> Iterator[tuple[Entry, Outcome]]:
        """The two phases: what may match, then what does."""
        options = self._options
        read = options.read(event, tenant, collection)
        REFUSED.begin()
        work.is_bare = is_bare(read, options.layout)
        sides = [read, as_before(read, options.layout)] if read.tells_of_before else [read]
        budget, on_cel_error = options.limits.cel_budget, self._cel_errors.record
        for (name, within), partition in root.seen_by(read):
            candidates = matches = 0
            for entry in partition.candidates(sides, work):
                candidates += 1
                outcome = judge(
                    entry.compiled, read, options.layout, options.soft_delete, budget=budget, on_cel_error=on_cel_error
                )
                if outcome is not None:
                    matches += 1
                    yield entry, outcome
            work.partitions.append(((name, within or "*"), candidates, matches))

    # Phase 1

    def filters(self) -> list[FilterState]:
        states = (partition.state(name) for name, partition in self._root.partitions.items())
        return [state for state in states if state is not None]

    def rebuild_filter(self, tenant: str, collection: str, capacity: int, key_fp_rate: float) -> None:
        name = _partition_name(tenant, collection)
        pinned = self._root.partitions.get(name)
        if pinned is None or pinned.filter is None:
            return
        rebuilt = pinned.rebuilt(capacity, key_fp_rate, pinned.filter)

        def swapped(root: Root) -> tuple[Root, None]:
            now = root.partitions.get(name)
            if now is None or now.filter is None or rebuilt.filter is None:
                return root, None
            arrived = [entry for entry in now.keyed.values() if pinned.keyed.get(entry.id) is not entry]
            gone = [entry for entry in pinned.keyed.values() if now.keyed.get(entry.id) is not entry]
            guard = rebuilt.filter.including({key for entry in arrived for key in entry.keys or ()})
            stale = sum(len(entry.keys or ()) for entry in gone)
            guard = replace(guard, version=now.filter.version + 1)
            guard.tally.begin_anew()
            partition = Partition(now.keyed, now.unkeyed, guard.places, guard, stale)
            return Root(root.entries, root.partitions.insert(name, partition)), None

        self._change(swapped)

    def gather_keys(self, partitions: Sequence[tuple[str, str]]) -> Gathered:
        root = self._root
        held = [root.partitions.get(_partition_name(*name), Partition()) for name in dict.fromkeys(partitions)]
        keys = frozenset(key for partition in held for key in partition.live_keys())
        return Gathered(
            count=len(keys),
            places=frozenset(key.place for key in keys),
            unkeyed=sum(len(partition.unkeyed) for partition in held),
            transitions=any(
                entry.compiled.subscription.transitions
                for partition in held
                for entry in (*partition.keyed.values(), *partition.unkeyed.values())
            ),
            # CEL makes no keys here.
            holes_pass=False,
            fill=lambda bits: bits.fill(key.to_bytes() for key in keys),
        )

    def measure_filter(self, tenant: str, collection: str) -> None:
        """Nothing waits: every event is compared with the live keys as it is matched."""

    def plan(self, subscription_id: str) -> Plan | None:
        entry = self._root.entries.get(subscription_id)
        return None if entry is None else make_plan(entry.compiled, self._options.limits)

    def dump(self, max_subscriptions: int) -> str:
        entries = sorted(self._root.entries.values(), key=lambda entry: entry.order)
        return dump((entry.compiled for entry in entries), self._options.limits, max_subscriptions)


def _partition_name(tenant: str, collection: str) -> PartitionName:
    return tenant, None if collection == "*" else collection


def _selected(root: Root, selection: Selection) -> list[Entry]:
    """Return the entries that meet every criterion, in order of adding."""
    if selection.ids is not None:
        named = (root.entries.get(subscription_id) for subscription_id in selection.ids)
        chosen: Iterable[Entry] = (entry for entry in named if entry is not None)
    else:
        chosen = root.entries.values()
    if selection.gateway_id is not None:
        chosen = (e for e in chosen if e.compiled.subscription.gateway_id == selection.gateway_id)
    if selection.tenant is not None:
        chosen = (e for e in chosen if e.compiled.tenant == selection.tenant)
    if selection.collection is not None:
        wanted = None if selection.collection == "*" else selection.collection
        chosen = (e for e in chosen if e.compiled.collection == wanted)
    return sorted(chosen, key=lambda entry: entry.order)
