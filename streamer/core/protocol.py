"""What an engine needs of a backend: the `Core` protocol.

```
Engine (the facade: argument checks, lazy results)  ──►  Core (subscriptions, index, matching)
                                                          ├── reference: plain Python objects
                                                          └── native: everything in its own memory
```

Contract of every core, which the tests in tests/api and tests/threads hold both backends to:

- One immutable version. A match begins on the version that is current then and sees nothing of later changes. It takes no
  lock and never waits for a writer, wherever that writer stands.
- Writers take turns. Each prepares its whole change out of readers' sight and publishes it with one assignment. So every event
  sees all of the change or nothing of it, also of a `replace` that moves a subscription to another tenant or collection, of a
  `write` of a million, and of an `apply`.
- What a write has returned from is seen by every match that begins later.

A core owns ids and texts. What it hands out for an event is `Matches` over its `Hits`: packed, without a Python object for each
match until one is asked for.
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
    from streamer.telemetry import PartitionCounts, PartitionSize, Telemetry

OnBare: TypeAlias = Callable[[EventSource], None]
"""What a core calls with the first event in which the layout finds no collection, type or document."""

Source: TypeAlias = Subscription | Mapping[str, Any] | bytes | str
"""A subscription as a user may give it; bytes and str are JSON text."""

Held: TypeAlias = bytes | Subscription
"""A subscription as a core keeps it: its JSON text, or the object where JSON does not say all of it."""

Mode = Literal["add", "replace", "apply"]
"""`add` refuses an id that is held, `replace` puts the new one in its place, `apply` also removes all others."""


@final
@dataclass(frozen=True, slots=True)
class Changes:
    """What a write changed, as ids in the order of the call; true if anything changed.

    Attributes:
        added: ids that were not held before.
        replaced: ids whose subscription is another one now.
        removed: ids that are no longer held.
        unchanged: ids given to `apply` that were already held just so.
        errors: the bad subscriptions that `on_error="skip"` passed over, each with its `index`.
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
    """Which subscriptions are meant: those that meet every criterion given.

    `tenant` is the one in force, with the default filled in, and `"*"` selects those of every tenant; `collection="*"`
    selects those of every collection. Neither is a pattern.
    """

    ids: frozenset[str] | None = None
    gateway_id: str | None = None
    tenant: str | None = None
    collection: str | None = None


class Encoder(Protocol):
    """Writes the messages of hits as `streamer.service.messages` does, byte for byte, with no object of Python for a match."""

    def attributes(self, event: bytes, key: str | None) -> bytes | None:
        """Return what all messages say of the event; None where that is left to Python.

        Args:
            key: that of the record, if it says one; else the event's id.
        """

    def messages(self, place: bytes, source: str, attributes: bytes, tail: bytes) -> list[bytes]:
        """Return a message for each match, aligned with the positions.

        Args:
            place: what the ids are made of besides transition and subscription.
            source: what stands from the end of the id to the type.
            attributes: as returned.
            tail: what follows the labels.
        """


class Hits(Protocol):
    """The subscriptions that one event matched, packed, in no promised order.

    Immutable. It pins the version of the engine that it was taken from, so that a position means the same subscription
    whatever writers do meanwhile.
    """

    @property
    def ignored(self) -> str | None:
        """Why the event was ignored, an `Ignored`; None for one that was matched."""

    def __len__(self) -> int: ...

    def ids(self) -> list[str]:
        """Return the subscription ids, aligned with the positions."""

    def gateway_ids(self) -> list[str | None]:
        """Return who gets each match, aligned with the positions."""

    def find(self, subscription_id: str) -> int:
        """Return the position of a subscription, or -1."""

    def match(self, position: int, event: EventSource) -> Match:
        """Make the `Match` at a position, from 0 to `len - 1`."""

    def matches(self, event: EventSource) -> Iterator[Match]:
        """Make the `Match` at each position as it is asked for."""

    def take(self, positions: Sequence[int]) -> Hits:
        """Return some of the hits, in the order given."""

    def in_order(self) -> Hits:
        """Return the same hits in the order in which their subscriptions were added."""

    @property
    def encoder(self) -> Encoder | None:
        """What writes the messages of these hits; None where that is left to Python."""


class Results(Protocol):
    """What several events came to, in their order: `Matches`, perhaps made anew each time that they are asked for, and errors."""

    @property
    def rejected(self) -> int:
        """How many of them are errors."""

    def matched(self) -> list[int]:
        """Return the positions of events that something matches, and of errors, in order."""

    def lines(self, numbers: Sequence[int]) -> Iterator[LineResult]:
        """Make each of them the result of a line; *numbers* are those of the lines."""

    def jsonl(self) -> bytes:
        """Return what `BatchMatches.jsonl` does. Raises ValueError."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Matches | EventError]: ...

    def __getitem__(self, position: int, /) -> Matches | EventError:
        """Return what the event at a position came to, from 0 to `len - 1`. Raises IndexError."""


class Core(Protocol):
    """Subscriptions and the way from an event to those that match. Safe to use from any number of threads.

    Made from `Options`, the engine's `ProgramCache` and the `ErrorLog` that is told of errors of CEL.
    """

    def write(self, sources: Iterable[Source | SubscriptionError], mode: Mode, *, skip: bool = False) -> Changes:
        """Add, replace or apply subscriptions at once; an error among *sources* stands for one that could not be read.

        An id that comes twice in one call is an error in its second place. *sources* is read to its end before
        anything is changed and before any lock is taken. A replaced subscription keeps its place in the order of adding.

        Raises:
            BulkSubscriptionError: some are bad and not *skip*; nothing was changed.
        """

    def remove(self, selection: Selection) -> Changes:
        """Remove the selected subscriptions at once."""

    def open_snapshot(self, head: Head, names: Set[tuple[str, str]] | None) -> None:
        """Hold what a snapshot holds, or its sections of these names; nothing may have been held before.

        A core may leave sections in the file until they are needed; what is damaged there is then found, and raised, by those who
        need it.

        Raises:
            SnapshotError: it is damaged, or another one than that which the caller read.
        """

    @property
    def image_kind(self) -> int:
        """What images of this core are for; 0 for one that makes none."""

    def image(self, lines: bytes, seed: int) -> bytes | None:
        """Compile the lines of a section for a snapshot whose images have *seed*; None where that would not pay."""

    def canonical(self, held: Held) -> tuple[str, str, bytes]:
        """Return tenant and collection, `*` for every one, of a subscription that `given` returned, and its text for a snapshot.

        Raises:
            SubscriptionError: JSON does not say all of it.
        """

    def get(self, subscription_id: str) -> Subscription | None:
        """Return a subscription as it was given, or None."""

    def select(self, selection: Selection) -> list[Subscription]:
        """Return the selected subscriptions of one version, in order of adding."""

    def ids(self, selection: Selection) -> list[str]:
        """Return only their ids."""

    def given(self, selection: Selection) -> Sequence[Held]:
        """Return them as they are held, for `write` to take again."""

    def __len__(self) -> int: ...

    def __contains__(self, subscription_id: object) -> bool: ...

    def match(self, event: EventSource, tenant: str | None, collection: str | None) -> Matches:
        """Match one event; *tenant* and *collection* win over what it says.

        This and the next three refuse a name that no event can have, before anything is counted: for single events no Python need
        look at it, too.

        Raises:
            EventError: the event cannot be read, or a name.
            TypeError: a name that is no string.
        """

    def match_ids(self, event: EventSource, tenant: str | None, collection: str | None) -> list[str]:
        """Return only the ids, in no promised order. Raises EventError."""

    def match_count(self, event: EventSource, tenant: str | None, collection: str | None) -> int:
        """Return only how many match. Raises EventError."""

    def matches_any(self, event: EventSource, tenant: str | None, collection: str | None) -> bool:
        """Tell whether any matches; may stop at the first. Raises EventError."""

    def match_batch(self, events: list[EventSource], tenant: str | None, collection: str | None, threads: int = 1) -> Results:
        """Match several events on one version; aligned, with the error in a bad event's place.

        Args:
            events: kept by what is returned, so nobody may change it.
            threads: how many may be used.
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
            max_matches: the first event with which there are so many is the last that is matched.

        Raises:
            ValueError: an array whose buffers are not those of a valid one.
        """

    def locate_arrow(
        self, arrays: Sequence[pa.Array], tenant: str | None, collection: str | None, threads: int
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return `ArrowMatches.events` and `.rejected` without matching, and without counting the events. Raises ValueError."""

    def reconfigure(self, options: Options) -> None:
        """Take the options that may change while events are matched: the budget of CEL and the size of its cache.

        A match that is under way may see the old or the new ones.
        """

    def dump(self, max_subscriptions: int) -> str:
        """Print what is held and how it is found, of at most so many subscriptions."""

    def lint(self) -> list[Finding]:
        """Return what is suspicious about the subscriptions that are held, in order of adding."""

    def plan(self, subscription_id: str) -> Plan | None:
        """Tell how a subscription is found and decided here, or None for an unknown id."""

    def reject(self, code: str) -> None:
        """Count an event that was rejected on its way here, by its `EventCode`."""

    def partitions(self) -> Sequence[PartitionSize]:
        """Return what each partition holds."""

    def partition_counts(self) -> Sequence[PartitionCounts]:
        """Return what was counted of each partition.

        Natively of a sample: of one event in 16 on average, drawn at random. At most 4,096 partitions are counted.
        """

    def telemetry(self) -> Telemetry:
        """Return what was counted, each event that was begun once: matched, unmatched, ignored or rejected."""

    # Phase 1. A partition is named by tenant and collection, "*" for every one; one that is not there has no filter.

    def filters(self) -> Sequence[FilterState]:
        """Return the state of each filter there is, of one version."""

    def rebuild_filter(self, tenant: str, collection: str, capacity: int, key_fp_rate: float) -> None:
        """Build a filter of the live keys of a partition beside the present one, and put it in its place.

        Matching goes on meanwhile; what is added meanwhile is in the new filter too. Its version is one more, and its
        samples begin anew. Nothing is done where the partition has no filter.

        Args:
            capacity: keys to have room for; never less than there are.
            key_fp_rate: share of foreign keys that may pass when it is full.
        """

    def gather_keys(self, partitions: Sequence[tuple[str, str]]) -> Gathered:
        """Return the live keys of partitions, with a filter or without, of one version."""

    def measure_filter(self, tenant: str, collection: str) -> None:
        """Settle the samples that wait to be compared with the live keys; `FilterState` then counts them."""
