"""The interface between an engine and a backend: the `Core` protocol.

```
Engine (the facade: argument checks, lazy results)  ──►  Core (subscriptions, index, matching)
                                                          ├── reference: plain Python objects
                                                          └── native: everything in its own memory
```

Contract of every core, which tests/api and tests/threads check on both backends:

- One immutable version. A match uses the version that is current when it begins, and is not affected by later changes. It uses no
  lock and never waits for a writer.
- Writers run one at a time. Each prepares its whole change separately and publishes it with one assignment. So every event is
  matched with all of the change or none of it, even if a `replace` moves a subscription to another tenant or collection, for a
  `write` of a million subscriptions, and for an `apply`.
- After a write has returned, every match that begins later uses the change.

A core owns ids and texts. It returns `Matches` over an event's `Hits`: packed, without a Python object for a match until you read
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, final

from streamer.bloom.state import FilterState
from streamer.core.options import Options
from streamer.errors import EventError, SubscriptionError
from streamer.events.reading import EventSource
from streamer.model import Match
from streamer.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow as pa

    from streamer.bloom.shipping import Gathered
    from streamer.core.arrow import ArrowMatches
    from streamer.core.lint import Finding
    from streamer.core.matches import LineResult, Matches
    from streamer.core.plan import Plan
    from streamer.core.snapshot import Head
    from streamer.subscriptions.compile import CompiledSubscription
    from streamer.telemetry import PartitionCounts, PartitionSize, Telemetry

OnBare: TypeAlias = Callable[[EventSource], None]
"""What a core calls with the first event in which the layout finds no collection, type or document."""

Source: TypeAlias = Subscription | Mapping[str, Any] | bytes | str
"""A subscription as a user may give it; bytes and str are JSON text."""

StoredForm: TypeAlias = bytes | Subscription
"""A subscription as a core keeps it: its JSON text, or the object if JSON cannot express all of it."""

Mode = Literal["add", "replace", "apply"]
"""`add` refuses an existing id, `replace` replaces its subscription, `apply` also removes all others."""


@final
@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a write, as ids in the order of the call; true if there are any.

    Attributes:
        added: ids that are new.
        replaced: ids whose subscription changed.
        removed: ids that no longer exist.
        unchanged: ids given to `apply` whose subscription was already equal.
        errors: the bad subscriptions that `on_error="skip"` skipped, each with its `index`.
    """

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    errors: tuple[SubscriptionError, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.removed)

    def __repr__(self) -> str:
        counts = [f"{len(getattr(self, name))} {name}" for name in self.__slots__ if getattr(self, name)]
        return f"<Changes: {', '.join(counts) or 'none'}>"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of subscriptions: those that meet all criteria that are set.

    `tenant` is the effective one, with the default filled in, and `"*"` selects those of every tenant; `collection="*"`
    selects those of every collection. Neither is a pattern.
    """

    ids: frozenset[str] | None = None
    gateway_id: str | None = None
    tenant: str | None = None
    collection: str | None = None


class Encoder(Protocol):
    """Writes the messages of hits, byte for byte as `streamer.service.delivery.messages`, without a Python object for a match."""

    def attributes(self, event: bytes, key: str | None) -> bytes | None:
        """Return the attributes that all messages of the event share; None if Python must write them.

        Args:
            key: the record's key, if it has one; else the event's id.
        """

    def messages(self, place: bytes, source: str, attributes: bytes, tail: bytes) -> list[bytes]:
        """Return a message for each match, aligned with the positions.

        Args:
            place: the part of the ids without transition and subscription.
            source: the text between the end of the id and the type.
            attributes: as `attributes` returned them.
            tail: the text after the labels.
        """


class Hits(Protocol):
    """The subscriptions that one event matched, packed, in an undefined order.

    Immutable. It pins the engine's version that produced it, so writers do not change the meaning of a position.
    """

    @property
    def ignored(self) -> str | None:
        """Why the event was ignored, an `Ignored`; None for one that was matched."""

    def __len__(self) -> int: ...

    def ids(self) -> list[str]:
        """Return the subscription ids, aligned with the positions."""

    def gateway_ids(self) -> list[str | None]:
        """Return the gateway of each match, aligned with the positions."""

    def find(self, subscription_id: str) -> int:
        """Return the position of a subscription, or -1."""

    def match(self, position: int, event: EventSource) -> Match:
        """Return the `Match` at a position, from 0 to `len - 1`."""

    def matches(self, event: EventSource) -> Iterator[Match]:
        """Yield the `Match` at each position."""

    def take(self, positions: Sequence[int]) -> Hits:
        """Return the hits at *positions*, in their order."""

    def in_order(self) -> Hits:
        """Return the same hits in the order in which their subscriptions were added."""

    @property
    def encoder(self) -> Encoder | None:
        """The writer of the messages of these hits; None if Python must write them."""


class Results(Protocol):
    """The results of several events, in their order: `Matches`, which may be made again on each access, and errors."""

    @property
    def rejected(self) -> int:
        """The number of errors."""

    def matched(self) -> list[int]:
        """Return the positions of events with matches, and of errors, in order."""

    def lines(self, numbers: Sequence[int]) -> Iterator[LineResult]:
        """Yield each result as the result of a line; *numbers* are the numbers of the lines."""

    def jsonl(self) -> bytes:
        """Return the lines of `BatchMatches.jsonl`. Raises ValueError."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Matches | EventError]: ...

    def __getitem__(self, position: int, /) -> Matches | EventError:
        """Return the result of the event at a position, from 0 to `len - 1`. Raises IndexError."""


class Core(Protocol):
    """Subscriptions, and the index that finds those that match an event. Safe to use from any number of threads.

    Made from `Options`, the engine's `ProgramCache` and the `ErrorLog` that records errors of CEL.
    """

    def write(
        self, sources: Iterable[Source | SubscriptionError], mode: Mode, *, skip: bool = False, among: Set[str] | None = None
    ) -> Changes:
        """Add, replace or apply subscriptions at once; an error among *sources* represents one that could not be read.

        The second use of an id in one call is an error. *sources* is read completely before any change, and before any lock is
        acquired. A replaced subscription keeps its place in the order of adding.

        Args:
            among: replace and remove only these ids; another id that exists is an error.

        Raises:
            BulkSubscriptionError: some are bad, and *skip* is False; the core stays unchanged.
        """

    def remove(self, selection: Selection) -> Changes:
        """Remove the selected subscriptions at once."""

    def open_snapshot(self, head: Head, names: Set[tuple[str, str]] | None, *, at_once: bool = False) -> None:
        """Load the contents of a snapshot, or its sections of these names; the core must be empty.

        A core may leave sections in the file until they are needed. It then finds damage in them only on use, and raises it
        there.

        Args:
            at_once: whether to open all sections now, so that no later use finds damage.

        Raises:
            SnapshotError: the file is damaged, or differs from the file that the caller read.
        """

    @property
    def image_kind(self) -> int:
        """The kind of this core's images; 0 for a core without images."""

    def image(self, lines: bytes, seed: int) -> bytes | None:
        """Return the compiled lines of a section, for a snapshot whose images have *seed*; None if it is not worthwhile.

        Raises:
            SubscriptionError: a line is invalid under the options of this core.
        """

    def canonical(self, stored: StoredForm) -> tuple[str, str, bytes]:
        """Return tenant and collection (`*` for every one) of a subscription from `stored_forms`, and its text for a snapshot.

        Raises:
            SubscriptionError: JSON cannot express the subscription.
        """

    def get(self, subscription_id: str) -> Subscription | None:
        """Return a subscription as the user wrote it, or None."""

    def compiled(self, subscription_id: str) -> CompiledSubscription | None:
        """Return a subscription with its parts parsed, or None."""

    def select(self, selection: Selection) -> list[Subscription]:
        """Return the selected subscriptions of one version, in order of adding."""

    def ids(self, selection: Selection) -> list[str]:
        """Return only the ids of the selected subscriptions."""

    def stored_forms(self, selection: Selection) -> Sequence[StoredForm]:
        """Return the selected subscriptions in their stored form, which `write` accepts again."""

    def __len__(self) -> int: ...

    def __contains__(self, subscription_id: object) -> bool: ...

    def match(self, event: EventSource, tenant: str | None, collection: str | None) -> Matches:
        """Match one event; *tenant* and *collection* override the event's own.

        This method and the next three refuse a name that events cannot have, before they count anything, so that the Python side
        need not check names for single events.

        Raises:
            EventError: the event cannot be read, or a name cannot be used.
            TypeError: a name is not a string.
        """

    def match_ids(self, event: EventSource, tenant: str | None, collection: str | None) -> list[str]:
        """Return only the ids, in an undefined order. Raises EventError."""

    def match_count(self, event: EventSource, tenant: str | None, collection: str | None) -> int:
        """Return only the number of matches. Raises EventError."""

    def matches_any(self, event: EventSource, tenant: str | None, collection: str | None) -> bool:
        """Return whether any subscription matches; may stop at the first. Raises EventError."""

    def match_batch(self, events: list[EventSource], tenant: str | None, collection: str | None, threads: int = 1) -> Results:
        """Return the results of several events on one version, aligned with *events*; a bad event has its error there.

        Args:
            events: the returned results keep this list, so it must not change.
            threads: the most threads to use.
        """

    def match_arrow(
        self,
        arrays: Sequence[pa.Array],
        tenant: str | None,
        collection: str | None,
        threads: int,
        max_matches: int | None = None,
    ) -> ArrowMatches:
        """Match the rows of arrays of binary or string, one array after the other, on one version.

        Args:
            max_matches: stop after the first event that reaches this number of matches.

        Raises:
            ValueError: an array has invalid buffers.
        """

    def locate_arrow(
        self, arrays: Sequence[pa.Array], tenant: str | None, collection: str | None, threads: int
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return `ArrowMatches.events` and `.rejected` without matching, and without counting the events. Raises ValueError."""

    def reconfigure(self, options: Options) -> None:
        """Apply the options that may change while events are matched: the budget of CEL and the size of its cache.

        A running match may see the old or the new ones.
        """

    def dump(self, max_subscriptions: int) -> str:
        """Return the index as text, with at most *max_subscriptions* of its subscriptions."""

    def lint(self) -> list[Finding]:
        """Return suspicious subscriptions, in order of adding."""

    def plan(self, subscription_id: str) -> Plan | None:
        """Return how this core finds and decides a subscription, or None for an unknown id."""

    def reject(self, code: str) -> None:
        """Count an event that was rejected before it reached the core, by its `EventCode`."""

    def partitions(self) -> Sequence[PartitionSize]:
        """Return the size of each partition."""

    def partition_counts(self) -> Sequence[PartitionCounts]:
        """Return the counts of each partition.

        The native core counts a sample: one event in 16 on average, drawn at random. At most 4,096 partitions are counted.
        """

    def telemetry(self) -> Telemetry:
        """Return the counters: each event whose matching has begun is counted once: matched, unmatched, ignored or rejected."""

    # Phase 1. Tenant and collection name a partition, "*" for every one; an unknown partition has no filter.

    def filters(self) -> Sequence[FilterState]:
        """Return the state of each existing filter, from one version."""

    def rebuild_filter(self, tenant: str, collection: str, capacity: int, key_fp_rate: float) -> None:
        """Build a filter of the live keys of a partition and swap it in.

        Matching continues during the build, and the new filter also gets the keys that are added meanwhile. Its version is one
        higher, and its samples start from zero. Without a filter in the partition the call has no effect.

        Args:
            capacity: the number of keys that fit; the filter always has room for the existing keys.
            key_fp_rate: the share of foreign keys that may pass when it is full.
        """

    def gather_keys(self, partitions: Sequence[tuple[str, str]]) -> Gathered:
        """Return the live keys of partitions, with or without a filter, from one version."""

    def measure_filter(self, tenant: str, collection: str) -> None:
        """Compare the pending samples with the live keys; `FilterState` then counts them."""
