"""The engine in plain Python: two phases, each as simple as possible.

```
event ─► version ─► partitions that it sees ─► phase 1: candidates ─► find_outcome ─► hits
```

An event sees four partitions: its own, (its tenant, every collection), (every tenant, its collection) and (every, every).

Invariant: a version is immutable (version.py). A reader reads `self._version` once; a writer, under the lock, makes a new version
and assigns it.

Cost: a match checks every subscription of four partitions, except those that the filter excludes; a write copies the partitions
that it changes. Rejected: one dict with a lock for matches, too, because a write of a million subscriptions would block them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar, final

from rpds import HashTrieMap

from streamer.bloom.shipping import Gathered
from streamer.bloom.state import FilterState
from streamer.cel_eval import ErrorLog, ProgramCache
from streamer.core import arrow
from streamer.core.arrow import ArrowMatches
from streamer.core.lint import Finding, findings_of
from streamer.core.matches import LineResult, Matches, json_line
from streamer.core.options import Options
from streamer.core.plan import Plan
from streamer.core.protocol import Changes, Mode, OnBare, Selection, Source, StoredForm
from streamer.core.snapshot import Head, read_named
from streamer.errors import BulkSubscriptionError, DuplicateSubscriptionError, EventError, ReentryError, SubscriptionError
from streamer.events.reading import EventSource, IgnoredEvent, as_before, check_names, is_bare
from streamer.locks import TRIES, Lock
from streamer.model import Event, Match
from streamer.reference.conditions import evaluate
from streamer.reference.dump import dump
from streamer.reference.lint import examine
from streamer.reference.plan import plan_of
from streamer.reference.searches import REFUSED
from streamer.reference.stopwatch import CEL_TIME
from streamer.reference.transition import Outcome, find_outcome
from streamer.reference.version import Entry, Partition, PartitionName, Version, Work, partition_name, selected
from streamer.subscriptions.compile import CompiledSubscription, compile_subscription
from streamer.subscriptions.keys import Key, access_keys
from streamer.subscriptions.normal_form import normal_form
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import Subscription
from streamer.subscriptions.text import canonical_text, check_length
from streamer.subscriptions.values import private_copy, same_subscription
from streamer.telemetry import PartitionCounts, PartitionSize, Recorder, Telemetry

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


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

    def matches(self, event: EventSource) -> Iterator[Match]:
        return (self.match(position, event) for position in range(len(self)))

    def take(self, positions: Sequence[int]) -> ReferenceHits:
        return ReferenceHits([self._pairs[position] for position in positions], self.ignored)

    def in_order(self) -> ReferenceHits:
        return ReferenceHits(sorted(self._pairs, key=lambda pair: pair[0].order), self.ignored)

    @property
    def encoder(self) -> None:
        return None


@final
class ReferenceResults(list[Matches | EventError]):
    """The results of several events; see `streamer.core.protocol.Results`."""

    @property
    def rejected(self) -> int:
        return sum(isinstance(result, EventError) for result in self)

    def matched(self) -> list[int]:
        return [at for at, result in enumerate(self) if isinstance(result, EventError) or len(result)]

    def lines(self, numbers: Sequence[int]) -> Iterator[LineResult]:
        return map(LineResult, numbers, self)

    def jsonl(self) -> bytes:
        lines = (json_line(match, row) for row, result in enumerate(self) if isinstance(result, Matches) for match in result)
        return "".join(lines).encode()


@final
@dataclass(frozen=True, slots=True)
class _Draft:
    """An accepted subscription without a position in the engine."""

    index: int
    compiled: CompiledSubscription
    keys: frozenset[Key] | None


@final
class ReferenceCore:
    """The core of the reference backend; see `streamer.core.protocol.Core` for what each method does.

    Thread-safe: readers use no lock, and writers run one at a time.
    """

    def __init__(self, options: Options, programs: ProgramCache, cel_errors: ErrorLog, on_bare: OnBare | None = None) -> None:
        self._options = options
        self._on_bare = on_bare
        self._programs: Final = programs
        self._cel_errors: Final = cel_errors
        self._version = Version(HashTrieMap(), HashTrieMap())
        self._orders: Final = count()
        self._lock = Lock()
        self._recorder: Final = Recorder()

    def reconfigure(self, options: Options) -> None:
        def switched(version: Version) -> tuple[Version, None]:
            partitions = version.partitions
            for name, partition in version.partitions.items():
                partitions = partitions.insert(name, partition.switched(options.bloom))
            return Version(version.entries, partitions), None

        was, self._options = self._options.bloom.enabled, options
        if was != options.bloom.enabled:
            self._change(switched)

    # Writing

    def write(
        self, sources: Iterable[Source | SubscriptionError], mode: Mode, *, skip: bool = False, among: Set[str] | None = None
    ) -> Changes:
        drafts, refused = self._prepare(sources)

        def written(version: Version) -> tuple[Version, Changes]:
            errors = list(refused)
            accepted: list[_Draft] = []
            for draft in drafts:
                subscription_id = draft.compiled.subscription.id
                is_fixed = mode == "add" or not (among is None or subscription_id in among)
                if is_fixed and subscription_id in version.entries:
                    reason = "this id exists already; replace=True replaces its subscription"
                    errors.append(
                        DuplicateSubscriptionError(reason, place="id", subscription_id=subscription_id, index=draft.index)
                    )
                else:
                    accepted.append(draft)
            errors.sort(key=lambda error: error.index or 0)
            if errors and not skip:
                raise BulkSubscriptionError(errors)
            return self._written(version, accepted, mode, tuple(errors), among)

        return self._change(written)

    def open_snapshot(self, head: Head, names: Set[tuple[str, str]] | None, *, at_once: bool = False) -> None:
        self.write(read_named(head.path, names), "add")

    image_kind: Final = 0

    def image(self, lines: bytes, seed: int) -> None:
        """Return None: the reference compiles no image."""

    def canonical(self, stored: StoredForm) -> tuple[str, str, bytes]:
        return canonical_text(stored, self._options.default_tenant)

    def remove(self, selection: Selection) -> Changes:
        def without(version: Version) -> tuple[Version, Changes]:
            gone = selected(version, selection)
            return self._next(version, gone, []), Changes(removed=tuple(entry.id for entry in gone))

        return self._change(without)

    def _change(self, make: Callable[[Version], tuple[Version, T]]) -> T:
        """Replace the current version by the one that *make* builds from it, and return the other result of *make*.

        Retries if a signal handler or finalizer in this thread has replaced the version meanwhile. Raises ReentryError.
        """
        with self._lock:
            for _ in range(TRIES):
                version = self._version
                made, result = make(version)
                # Between this check and the assignment, Python runs no signal handler.
                if self._version is version:
                    self._version = made
                    return result
            raise ReentryError(
                f"what this thread changes is changed again by its own signal handlers or finalizers, {TRIES} times"
            )

    def _prepare(self, sources: Iterable[Source | SubscriptionError]) -> tuple[list[_Draft], list[SubscriptionError]]:
        """Check and compile sources, and return the drafts and the errors. The engine is not changed."""
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
                    subscription = private_copy(parse_subscription(source, default=self._options.default))
                    check_length(subscription, self._options.limits)
                compiled = compile_subscription(
                    subscription,
                    default_tenant=self._options.default_tenant,
                    topic_dialect=self._options.topic_dialect,
                    limits=self._options.limits,
                    programs=self._programs,
                )
                if subscription.id in seen:
                    raise DuplicateSubscriptionError("this id appears twice in one call", place="id")
                seen.add(subscription.id)
                keys = access_keys(normal_form(compiled, self._options.limits))
                if keys is None and not self._options.limits.allow_unindexed:
                    reason = "its conditions cannot be looked up, so it may match any event"
                    raise SubscriptionError(f"{reason} (limits.allow_unindexed)")
                drafts.append(_Draft(index, compiled, keys))
            except SubscriptionError as error:
                error.index = index
                if error.subscription_id is None and subscription is not None:
                    error.subscription_id = subscription.id
                if error.subscription_id is not None:
                    seen.add(error.subscription_id)
                # Drop the traceback: with a million bad sources, it would keep the frames of each alive.
                errors.append(error.with_traceback(None))
        return drafts, errors

    def _written(
        self,
        version: Version,
        drafts: Sequence[_Draft],
        mode: Mode,
        errors: tuple[SubscriptionError, ...],
        among: Set[str] | None,
    ) -> tuple[Version, Changes]:
        added: list[Entry] = []
        replaced: list[Entry] = []
        unchanged: list[str] = []
        gone: list[Entry] = []
        for draft in drafts:
            previous = version.entries.get(draft.compiled.subscription.id)
            if previous is None:
                added.append(Entry(next(self._orders), draft.compiled, draft.keys))
            elif mode == "apply" and same_subscription(previous.compiled.subscription, draft.compiled.subscription):
                unchanged.append(previous.id)
            else:
                replaced.append(Entry(previous.order, draft.compiled, draft.keys))
                gone.append(previous)
        removed: list[Entry] = []
        if mode == "apply":
            desired = {draft.compiled.subscription.id for draft in drafts}
            others = (i for i in (version.entries if among is None else among) if i in version.entries and i not in desired)
            removed = sorted((version.entries[i] for i in others), key=lambda entry: entry.order)
        changes = Changes(
            added=tuple(entry.id for entry in added),
            replaced=tuple(entry.id for entry in replaced),
            removed=tuple(entry.id for entry in removed),
            unchanged=tuple(unchanged),
            errors=errors,
        )
        return self._next(version, [*gone, *removed], [*added, *replaced]), changes

    def _next(self, version: Version, gone: Sequence[Entry], new: Sequence[Entry]) -> Version:
        """Return the next version, without the entries *gone* and with the entries *new*."""
        if not gone and not new:
            return version
        entries, partitions = version.entries, version.partitions
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
        return Version(entries, partitions)

    # Reading

    def get(self, subscription_id: str) -> Subscription | None:
        entry = self._version.entries.get(subscription_id)
        return None if entry is None else entry.compiled.subscription

    def compiled(self, subscription_id: str) -> CompiledSubscription | None:
        entry = self._version.entries.get(subscription_id)
        return None if entry is None else entry.compiled

    def select(self, selection: Selection) -> list[Subscription]:
        return [entry.compiled.subscription for entry in selected(self._version, selection)]

    def ids(self, selection: Selection) -> list[str]:
        return [entry.id for entry in selected(self._version, selection)]

    def stored_forms(self, selection: Selection) -> list[Subscription]:
        return self.select(selection)

    def __len__(self) -> int:
        return len(self._version.entries)

    def __contains__(self, subscription_id: object) -> bool:
        return isinstance(subscription_id, str) and subscription_id in self._version.entries

    def match(self, event: EventSource, tenant: str | None, collection: str | None) -> Matches:
        return Matches(self._settled(self._version, event, tenant, collection), event)

    def match_ids(self, event: EventSource, tenant: str | None, collection: str | None) -> list[str]:
        return self._settled(self._version, event, tenant, collection).ids()

    def match_count(self, event: EventSource, tenant: str | None, collection: str | None) -> int:
        return len(self._settled(self._version, event, tenant, collection))

    def matches_any(self, event: EventSource, tenant: str | None, collection: str | None) -> bool:
        # One match would be enough, but the native core finds all, and the counts of both must be equal.
        return bool(self._settled(self._version, event, tenant, collection))

    def match_batch(
        self, events: list[EventSource], tenant: str | None, collection: str | None, threads: int = 1
    ) -> ReferenceResults:
        """See `Core`; *threads* has no effect, because the GIL allows only one thread to run at a time."""
        version = self._version
        results = ReferenceResults()
        for index, event in enumerate(events):
            try:
                results.append(Matches(self._settled(version, event, tenant, collection), event))
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
        """See `Core`; *threads* has no effect."""
        version = self._version
        rows = arrow.Rows()
        for text in arrow.texts(arrays):
            if max_matches is not None and len(rows.matches) >= max_matches:
                break
            try:
                hits = self._settled(version, text, tenant, collection)
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
        version = self._version
        return self._recorder.read(subscriptions=len(version.entries), partitions=len(version.partitions))

    def partitions(self) -> list[PartitionSize]:
        by_name = self._version.partitions
        return [
            PartitionSize(tenant, collection or "*", len(entries), 1, 0, 0) for (tenant, collection), entries in by_name.items()
        ]

    def partition_counts(self) -> list[PartitionCounts]:
        by_name = self._version.partitions
        counted = self._recorder.partitions()
        present = (name for name in counted if by_name.get(partition_name(*name)) is not None)
        return [PartitionCounts(*name, *counted[name]) for name in present]

    def _settled(self, version: Version, event: EventSource, tenant: str | None, collection: str | None) -> ReferenceHits:
        """Return the hits of an event, and count the result."""
        check_names(tenant, collection)
        began, cel_runs, cel_began = time.perf_counter_ns(), CEL_TIME.runs, CEL_TIME.nanoseconds
        work = Work()
        try:
            hits = self._hits(version, event, tenant, collection, work)
        except IgnoredEvent as ignored:
            self._recorder.ignore(ignored.reason.value)
            return ReferenceHits((), ignored.reason.value)
        except BaseException as error:
            self._recorder.reject(error.code.value if isinstance(error, EventError) else "internal")
            raise
        self._recorder.settle(
            matches=len(hits),
            uncertain=sum(1 for _, outcome in hits if not outcome.certain),
            candidates=sum(candidates for _, candidates, _ in work.partitions),
            partitions=work.partitions,
            total=time.perf_counter_ns() - began,
            bloom=work.bloom,
            cel=CEL_TIME.nanoseconds - cel_began if CEL_TIME.runs > cel_runs else None,
            is_bare=work.is_bare,
        )
        if work.is_bare and (on_bare := self._on_bare) is not None:
            self._on_bare = None
            on_bare(event)
        return ReferenceHits(hits)

    def _hits(
        self, version: Version, event: EventSource, tenant: str | None, collection: str | None, work: Work
    ) -> list[tuple[Entry, Outcome]]:
        """Return the matches of a record: an event, or several changes that each can match."""
        hits: dict[str, tuple[Entry, Outcome]] = {}
        for read in self._options.read_all(event, tenant, collection):
            for entry, outcome in self._hits_of(version, read, work):
                _, known = hits.get(entry.id, (entry, outcome))
                hits[entry.id] = entry, known | outcome
        return list(hits.values())

    def _hits_of(self, version: Version, read: Event, work: Work) -> Iterator[tuple[Entry, Outcome]]:
        """Yield the matches of an event: phase 1 finds candidates, phase 2 evaluates them."""
        options = self._options
        REFUSED.begin()
        work.is_bare = is_bare(read, options.layout)
        sides = [read, as_before(read, options.layout)] if read.tells_of_before else [read]
        budget, on_cel_error = options.limits.cel_budget, self._cel_errors.record
        for (name, within), partition in version.visible_to(read):
            candidates = matches = 0
            for entry in partition.candidates(sides, work):
                candidates += 1
                judge = partial(evaluate, entry.compiled, budget=budget, on_cel_error=on_cel_error)
                outcome = find_outcome(entry.compiled, read, options.layout, options.soft_delete, judge)
                if outcome is not None:
                    matches += 1
                    yield entry, outcome
            work.partitions.append(((name, within or "*"), candidates, matches))

    # Phase 1

    def filters(self) -> list[FilterState]:
        states = (partition.state(name) for name, partition in self._version.partitions.items())
        return [state for state in states if state is not None]

    def rebuild_filter(self, tenant: str, collection: str, capacity: int, key_fp_rate: float) -> None:
        name = partition_name(tenant, collection)
        pinned = self._version.partitions.get(name)
        if pinned is None or pinned.filter is None:
            return
        rebuilt = pinned.rebuilt(capacity, key_fp_rate, pinned.filter)

        def swapped(version: Version) -> tuple[Version, None]:
            now = version.partitions.get(name)
            if now is None or now.filter is None or rebuilt.filter is None:
                return version, None
            arrived = [entry for entry in now.keyed.values() if pinned.keyed.get(entry.id) is not entry]
            gone = [entry for entry in pinned.keyed.values() if now.keyed.get(entry.id) is not entry]
            guard = rebuilt.filter.including({key for entry in arrived for key in entry.keys or ()})
            stale = sum(len(entry.keys or ()) for entry in gone)
            guard = replace(guard, version=now.filter.version + 1)
            guard.tally.begin_anew()
            partition = Partition(now.keyed, now.unkeyed, guard.places, guard, stale)
            return Version(version.entries, version.partitions.insert(name, partition)), None

        self._change(swapped)

    def gather_keys(self, partitions: Sequence[tuple[str, str]]) -> Gathered:
        version = self._version
        selection = [version.partitions.get(partition_name(*name), Partition()) for name in dict.fromkeys(partitions)]
        keys = frozenset(key for partition in selection for key in partition.live_keys())
        return Gathered(
            count=len(keys),
            places=frozenset(key.place for key in keys),
            unkeyed=sum(len(partition.unkeyed) for partition in selection),
            transitions=any(
                entry.compiled.subscription.transitions
                for partition in selection
                for entry in (*partition.keyed.values(), *partition.unkeyed.values())
            ),
            # The reference makes no keys from CEL.
            unknown_passes=False,
            fill=lambda bits: bits.fill(key.to_bytes() for key in keys),
        )

    def measure_filter(self, tenant: str, collection: str) -> None:
        """Ignore the call: there is no pending work, because every match compares the event with the live keys."""

    def plan(self, subscription_id: str) -> Plan | None:
        entry = self._version.entries.get(subscription_id)
        return None if entry is None else plan_of(entry.compiled, entry.keys, self._options.limits)

    def lint(self) -> list[Finding]:
        limits = self._options.limits
        return findings_of(examine(entry.compiled, limits) for entry in self._in_order())

    def dump(self, max_subscriptions: int) -> str:
        return dump((entry.compiled for entry in self._in_order()), self._options.limits, max_subscriptions)

    def _in_order(self) -> list[Entry]:
        return sorted(self._version.entries.values(), key=lambda entry: entry.order)
