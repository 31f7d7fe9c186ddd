"""The native core: subscriptions, their index, their CEL.

`streamer.native.core` makes an engine of it. It calls its *host*, a `streamer.native.core.Host`, for the rest.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Literal, Self, TypeAlias, TypedDict, final

from typing_extensions import Buffer, disjoint_base

from streamer.automaton.native import Host as MatcherHost
from streamer.bloom.state import FilterState
from streamer.cel_eval.cache import ProgramCounts
from streamer.cel_eval.errors import FailingSubscription
from streamer.core.arrow import Chunk, Columns
from streamer.core.estimate import Access
from streamer.core.matches import Matches
from streamer.core.protocol import Mode, StoredForm
from streamer.errors import EventError, SubscriptionError
from streamer.events.reading import EventSource
from streamer.model import Dialect, Match, TopicDialect
from streamer.native.core import Host
from streamer.subscriptions.subscription import Subscription
from streamer.telemetry import PartitionCounts, PartitionSize

__all__ = [
    "IMAGES",
    "LATENCY_BOUNDS",
    "SIZE_BOUNDS",
    "Batch",
    "CelPrograms",
    "Core",
    "CoreHooks",
    "Draft",
    "GatheredKeys",
    "Hits",
    "MatchIterator",
    "Matcher",
    "RecordReader",
    "ResultIterator",
    "ShippedFilter",
    "__version__",
    "after_fork",
    "after_fork_in_child",
    "before_fork",
    "bloom_fill",
    "bloom_probe",
    "bloom_probe_any",
    "canonical",
    "cel_check",
    "plain_json",
]

__version__: str

IMAGES: int
"""What images of this core are for: a core of another number does not use them."""

LATENCY_BOUNDS: list[int]
"""Upper bounds of a latency's buckets in nanoseconds; what is longer goes into one more."""

SIZE_BOUNDS: list[int]
"""Upper bounds of the buckets of how many there were of something; what is more goes into one more."""

_Distribution: TypeAlias = tuple[list[int], int]  # how many fell into each bucket, and the sum of all

def bloom_fill(bits: Buffer, num_slices: int, bits_per_slice: int, keys: Iterable[bytes]) -> int:
    """Set the bits of *keys* in the portable layout, as `PortableBloomFilter.add` does for each.

    Args:
        bits: a contiguous, writable buffer, such as `PortableBloomFilter.bitarray`.

    Returns:
        How many keys set a bit that was not set before.

    Raises:
        ValueError: the buffer is too small for the slices.
        BufferError: it cannot be written, or is not contiguous.
    """

def bloom_probe(bits: bytes, num_slices: int, bits_per_slice: int, key: bytes) -> bool:
    """Return whether all bits of *key* are set in the portable layout. Raises ValueError for a buffer that is too small."""

def bloom_probe_any(bits: bytes, num_slices: int, bits_per_slice: int, keys: Iterable[bytes]) -> bool:
    """Return whether all bits of any of *keys* are set: phase 1 for an event that carries them. Raises ValueError."""

@final
class GatheredKeys:
    """The keys of a filter to ship, from the subscriptions that existed when they were gathered.

    Attributes:
        unkeyed: how many of these have no key.
        transitions: whether any of them wants to know when a document no longer matches.
        unknown_passes: whether an event with unknown values has to pass.
        places: root, mode, names and kind of each place at which an event is checked for keys.
    """

    unkeyed: int
    transitions: bool
    unknown_passes: bool
    places: list[tuple[str, str, list[str], str]]

    def __len__(self) -> int: ...
    def fill(self, bits: Buffer, num_slices: int, bits_per_slice: int) -> int:
        """Set the bits of all keys, as `bloom_fill` does of some."""

@final
class ShippedFilter:
    """A filter that was exported, for rows of events; `streamer.bloom.ShippedFilter.probe_arrow`. Thread-safe.

    Args:
        layout: JSON of `EventLayout.to_dict`.
        places: root, mode, names and kind of each.

    Raises:
        ValueError: an unknown place, or fewer bits than slices.
    """

    def __new__(
        cls,
        layout: bytes,
        places: list[tuple[str, str, list[str], str]],
        bits: bytes,
        num_slices: int,
        bits_per_slice: int,
        *,
        default_tenant: str | None,
        tenant: str,
        collection: str | None,
        transitions: bool,
        max_depth: int,
        max_event_bytes: int,
    ) -> Self: ...
    def ask_rows(
        self,
        offsets: Buffer,
        wide: bool,
        data: Buffer,
        valid: Buffer | None,
        first: int,
        tenant: str | None,
        collection: str | None,
    ) -> tuple[bytes, list[int]]:
        """Return which rows may match.

        Args:
            offsets: the offsets of the rows and of the end of the last, of 8 bytes if *wide*, else of 4.
            data: the bytes from the first row's on.
            valid: Arrow's bits of the rows that are not null, the first of them at bit *first*.

        Returns:
            Arrow's bits of the rows that may match, bad and null ones among them; and the rows, bits not set, of events with
            unknown values, which are left to the caller.

        Raises:
            ValueError: offsets that do not fit the data.
        """

@final
class RecordReader:
    """Reads the records of one source as events of the layout `streamer.cdc.LAYOUT`, in their order. Thread-safe.

    Args:
        format: one that a source has, other than `json`.
        envelope: whether each event has the rest of its record as `envelope`.
        most: the most events of a record; None for any number.
        whole_rows: the collections whose deleted rows are whole.
        table: the collection of rows of Debezium that do not name their table.
        prefix: the prefix of the members that Debezium's transform adds to rows.
        columns: the columns of tables of wal2json, as far as they are known in advance.
        max_event_bytes: the most bytes of a record that an engine reads.

    Raises:
        ValueError: an unknown format.
    """

    def __new__(
        cls,
        format: str,  # noqa: A002
        *,
        envelope: bool = False,
        most: int | None = None,
        whole_rows: Sequence[str] = ...,
        table: str | None = None,
        prefix: str = "__",
        columns: Sequence[tuple[str, Sequence[str]]] = ...,
        max_event_bytes: int | None = None,
    ) -> Self: ...
    def read(
        self, record: bytes, key: bytes | str | None = None, table: str | None = None
    ) -> list[tuple[bytes, str | None]] | None:
        """Return the events in a record, each with its key as text or None; for no change, one event of the type `ignore`.

        Args:
            key: the record's own key. Formats that do not describe keys do not use it.
            table: the collection of a row of Debezium that does not name its table, unless the reader has one.

        Returns:
            None for a tombstone: a record that is empty or null.

        Raises:
            EventError: the record is not one of the format.
        """

class _Changes(TypedDict):
    added: list[str]
    replaced: list[str]
    removed: list[str]
    unchanged: list[str]
    errors: list[tuple[int, SubscriptionError]]

@final
class CelPrograms:
    """CEL expressions evaluated without an engine. For tests and benchmarks. Immutable, so any number of threads may use it.

    Args:
        sources: the expressions.
        layout: the JSON text of `EventLayout.to_dict()`.

    Raises:
        CelError: one of them is not acceptable; with its *index*.
        ValueError: a layout that cannot be.
    """

    def __new__(
        cls,
        sources: list[str],
        layout: bytes,
        *,
        default_tenant: str | None,
        max_depth: int,
        max_event_bytes: int,
        max_cel_bytes: int,
        max_cel_depth: int,
    ) -> Self: ...
    def evaluate(self, event: bytes, budget: int, old_side: bool = False) -> list[tuple[str, str | None, str | None, int]]:
        """Evaluate each for an event, or for its old side (`data` := `before`, `before` := null).

        Returns:
            For each the verdict, the reason of an error, the same in words, and the cost units used.

        Raises:
            EventError: the event cannot be read.
        """

    def count(self, event: bytes, budget: int) -> int:
        """Count the programs that are true for an event. Raises EventError."""

class _Plan(TypedDict):
    tenant: str
    collection: str
    alternatives: list[list[str]]
    pattern: str | None  # what no clause says of it
    access: list[str] | None  # by which equality each alternative is found
    keys: list[bytes]  # those of a filter to ship
    cel: str | None  # what is evaluated of it natively
    is_portable: bool
    open_groups: bool  # whether its groups of filters are evaluated on candidates
    cost: Literal["keyed", "indexed", "unkeyed"]
    found_by: list[Access]  # how its alternatives are found

class _Examined(TypedDict):
    findings: list[tuple[str, str]]  # codes and reasons
    identity: str  # the same for two that ask for the same
    is_portable: bool
    is_suspect: bool  # whether its expression or a group may be true for no event
    partition: tuple[str, str]  # tenant and collection
    found_by: list[Access]  # how its alternatives are found

class _Counters(TypedDict):
    events: int
    matched: int
    unmatched: int
    ignored: dict[str, int]
    bare: int
    rejected: dict[str, int]
    matches: _Distribution
    uncertain: int
    candidates: _Distribution  # conjunctions that were looked at
    listed: int  # those of them of plain lists
    evaluated: int  # subscriptions that were found and then evaluated
    merges: int
    total: _Distribution
    bloom: _Distribution
    cel: _Distribution
    partitions: int
    segments: int
    store_bytes: int
    index_bytes: int
    record_bytes: int
    text_bytes: int

@disjoint_base
class Core:
    """The subscriptions of one engine and the index over them.

    Thread-safe: readers are lock-free, writers queue. A panic inside becomes an `InternalError`, and the core stays
    usable.

    Args:
        layout: the JSON text of `EventLayout.to_dict()`.
        lazy: check only the parts of an event that are walked.
        cache_size: how many compiled CEL programs to keep for reuse.
        soft_delete: the names down to the field of `data` that flags a document as deleted.
        bloom: `fp_rate` and `initial_capacity` of `BloomOptions`; None leaves phase 1 out.
        portable: the host evaluates the CEL of subscriptions that do not choose an evaluator.
        seed: the seed of all hashes, from a snapshot; None for a random one.
        stream: reads events that are messages, each of which needs those before it.

    Raises:
        ValueError: a layout that cannot be.
    """

    def __new__(
        cls,
        host: Host,
        layout: bytes,
        *,
        default_tenant: str | None,
        topic_dialect: TopicDialect,
        lazy: bool,
        soft_delete: Sequence[str] | None,
        max_depth: int,
        max_event_bytes: int,
        max_subscription_bytes: int,
        max_conditions: int,
        max_alternatives: int,
        max_pattern_states: int,
        max_regexp_size: int,
        max_conjunctions: int,
        max_cel_bytes: int,
        max_cel_depth: int,
        cel_budget: int,
        cache_size: int,
        allow_unindexed: bool,
        bloom: tuple[float, int] | None,
        portable: bool,
        seed: int | None = None,
        stream: RecordReader | None = None,
    ) -> Self: ...
    def open(self, path: str, checksum: bytes, collections: set[tuple[str, str]] | None) -> None:
        """Load the content of a snapshot, or only the sections with these names, into an empty core.

        Args:
            checksum: the checksum of header and directory, as the caller has read them.

        Raises:
            SnapshotError: its directory is damaged, or not the one with this checksum.
            OSError: it cannot be read.
        """

    def image(self, lines: bytes, seed: int) -> bytes | None:
        """Compile the lines of a section for a snapshot whose images have *seed*; None if that is not worth it."""

    def open_sections(self) -> None:
        """Read all of a snapshot now, so that no later event or write can find damage."""

    def match(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> Matches:
        """Match one event. Raises EventError."""

    def match_ids(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> list[str]:
        """Return only the ids, in no promised order. Raises EventError."""

    def match_count(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> int:
        """Return only how many match. Raises EventError."""

    def matches_any(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> bool:
        """Return whether any subscription matches. Raises EventError."""

    def match_batch(
        self, events: list[EventSource], tenant: str | None = None, collection: str | None = None, threads: int = 1
    ) -> Batch:
        """Match several events on one state, with the GIL released; a bad event has its error in its place.

        Args:
            threads: how many are used, this one included.
        """

    def match_columns(
        self,
        chunks: Iterable[Chunk],
        tenant: str | None,
        collection: str | None,
        threads: int,
        text_limit: int,
        max_matches: int | None = None,
    ) -> Columns:
        """Match the rows of Arrow arrays, with the GIL released, reading the buffers in place.

        Args:
            threads: how many are used, this one included; with *max_matches* it is this one.
            text_limit: a column of more bytes has offsets of 64 bits.
            max_matches: the event that reaches this number of matches is the last one.

        Returns:
            The batches of `ArrowMatches`.

        Raises:
            ValueError: an array whose buffers are not those of a valid one.
        """

    def locate_columns(
        self, chunks: Iterable[Chunk], tenant: str | None, collection: str | None, threads: int, text_limit: int
    ) -> Columns:
        """Do the same without matching and without counting the events; the first batch is empty. Raises ValueError."""

    def draft(self) -> Draft:
        """Begin to take subscriptions in."""

    def commit(self, draft: Draft, mode: Mode, skip: bool, among: Set[str] | None = None) -> _Changes:
        """Write and empty a draft. With errors and not *skip*, change only the draft and return the errors."""

    def discard(self, ids: list[str] | None, gateway_id: str | None, tenant: str | None, collection: str | None) -> list[str]:
        """Remove the subscriptions that satisfy every criterion, and return the ids in order of adding."""

    def source(self, subscription_id: str) -> StoredForm | None:
        """Return a subscription as it is kept, or None."""

    def sources(
        self, ids: list[str] | None, gateway_id: str | None, tenant: str | None, collection: str | None
    ) -> list[tuple[str, StoredForm]]:
        """Return ids and subscriptions that satisfy every criterion, in order of adding."""

    def plan_in_words(self, subscription_id: str, narrowing: str | None = None) -> _Plan | None:
        """Return how a subscription is found and decided, or None for an unknown id.

        Args:
            narrowing: the part of an expression that cel-python evaluates by which the index may narrow it.
        """

    def lint_in_words(self, subscription_id: str, narrowing: str | None = None, constant: str | None = None) -> _Examined | None:
        """Return the findings about a subscription, or None for an unknown id.

        Args:
            narrowing: see `plan_in_words`.
            constant: the verdict of an expression that the host evaluates, if it is the same for every event.
        """

    def filters(self) -> list[FilterState]:
        """Return the state of each filter there is."""

    def rebuild_filter(self, tenant: str, collection: str, capacity: int, key_fp_rate: float) -> None:
        """Build a new filter next to the present one and replace it; without a filter, do not change anything."""

    def measure_filter(self, tenant: str, collection: str) -> None:
        """Compare the samples of a filter with the live keys."""

    def gathered(self, partitions: list[tuple[str, str]]) -> GatheredKeys:
        """Gather the keys of these partitions, each a tenant and a collection; a missing partition has none."""

    def keys_of(self, tenant: str, collection: str) -> tuple[list[bytes], int]:
        """Return the live keys of a partition, and how many of its subscriptions have none."""

    def counters(self) -> _Counters:
        """Return the counts since the core was made, and its present sizes."""

    def dump(self, max_subscriptions: int) -> str:
        """Print partitions, segments, buckets and matchers of at most *max_subscriptions* subscriptions."""

    def partitions(self) -> list[PartitionSize]:
        """Return the sizes of each partition."""

    def partition_counts(self) -> list[PartitionCounts]:
        """Return the counts of each partition, from a sample of the events."""

    def set_bloom(self, bloom: tuple[float, int] | None) -> None:
        """Set the options of phase 1 for new filters, or switch it off; existing filters keep their size."""

    def reject(self, code: str) -> None:
        """Count an event that was rejected before the core read it; for a word other than an `EventCode`, as `internal`."""

    def set_cel(self, budget: int, cache_size: int) -> None:
        """Set the budget of a CEL program, and how many compiled programs to keep."""

    def cel_errors(self) -> list[tuple[str, int]]:
        """Return how many errors of CEL there were, by reason."""

    def failing(self, most: int) -> list[FailingSubscription]:
        """Return the subscriptions with the most errors of CEL, the worst first."""

    def programs(self) -> ProgramCounts:
        """Return the counts of the cache of CEL programs, and its size."""

    def __len__(self) -> int: ...
    def __contains__(self, subscription_id: object, /) -> bool: ...

@final
class CoreHooks:
    """Hooks into a core for tests and benchmarks only."""

    def __new__(cls, core: Core) -> Self: ...
    def record(self, on: bool) -> None:
        """Switch counting on or off, to measure its cost."""

    def merge(self) -> None:
        """Merge the segments of each partition into one, in this thread; else that happens by itself."""

    def naive_ids(self, texts: list[bytes], event: bytes, tenant: str, collection: str | None) -> list[str]:
        """Return the sorted ids that match by the naive oracle, which judges for the fuzzers.

        Args:
            texts: subscriptions without `cel` and `transitions`, as JSON.
            tenant: whose the event is.
            collection: the event's.
        """

    def before_publish(self, call: Callable[[], object] | None) -> None:
        """Call this inside each write before it is published; an exception of it is a panic there."""

    def panic(self, threads: int = 1) -> None:
        """Panic, in a thread that is not the caller's if there are several."""

@final
class Draft:
    """Subscriptions to add to a core, numbered from 0. For one thread."""

    def __len__(self) -> int: ...
    def extend(self, sources: Sequence[bytes | tuple[bytes, bytes, Subscription]]) -> list[int]:
        """Parse JSON texts and compile their CEL, with the GIL released.

        A source that has more than JSON is a text to parse, a unique name to keep instead, and the object.

        Returns:
            The positions of those whose CEL is the host's: it refuses them, or calls `external`.
        """

    def external(self, position: int, mentions_before: bool, narrowing: str | None = None) -> None:
        """Add the host's findings about a source whose CEL it evaluates.

        Args:
            narrowing: an expression that is true for every event for which the source's is: the index uses it.
        """

    def refuse(self, position: int, subscription_id: str | None) -> None:
        """Put an error of the host in the place of a source."""

    def id(self, position: int) -> str | None:
        """Return the id of a source that was read."""

    def source(self, position: int) -> StoredForm | None:
        """Return a source that was read."""

    def held_otherwise(self) -> list[tuple[int, StoredForm, bytes]]:
        """Return, for each id that is stored with another text, its position, the subscription and its stored name."""

    def keep(self, position: int, name: bytes) -> None:
        """Mark a source as equal to the subscription stored as *name*: while that exists, `apply` keeps it."""

@final
class Batch:
    """The results of several events: `Matches`, made when they are read, and the errors of bad events."""

    @property
    def rejected(self) -> int:
        """How many of them are errors."""

    def matched(self) -> list[int]:
        """The positions of events that something matches, and of errors, in order."""

    def lines(self, numbers: Sequence[int]) -> ResultIterator:
        """Make the result of each line, with its number, when the iterator reaches it."""

    def jsonl(self) -> bytes:
        """Return a line of JSON for each match, by event."""

    def __len__(self) -> int: ...
    def __iter__(self) -> ResultIterator: ...
    def __getitem__(self, position: int, /) -> Matches | EventError: ...

@final
class Hits:
    """The matches of one event; see `streamer.core.protocol.Hits`."""

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
        """Make the `Match` at a position."""

    def matches(self, event: EventSource) -> MatchIterator:
        """Make the `Match` at each position when the iterator reaches it."""

    def take(self, positions: Sequence[int]) -> Hits:
        """Return some of the hits, in the order of *positions*."""

    def in_order(self) -> Hits:
        """Return the same hits in the order in which their subscriptions were added."""

    @property
    def encoder(self) -> Hits:
        """The writer of messages for these hits; see `streamer.core.protocol.Encoder`."""

    def attributes(self, event: bytes, key: str | None) -> bytes | None:
        """Return the event's part of messages, or None if Python has to write it."""

    def messages(self, place: bytes, source: str, attributes: bytes, tail: bytes) -> list[bytes]:
        """Return a message for each match, in their order."""

@final
class MatchIterator:
    """Makes the matches of hits one after the other, when the iterator reaches them."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Match: ...

@final
class ResultIterator:
    """Makes the results of a batch one after the other, when the iterator reaches them."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...

@final
class Matcher:
    """Patterns or topics under names, without subscriptions around them; `streamer.automaton` is made of it.

    Thread-safe as `Core` is. A name is any object; the same object under several texts is one name, and equal objects are two.

    Args:
        dialect: of its patterns.
        topic_dialect: of its topic patterns.
        max_depth: with the other limits, of its patterns; see `streamer.Limits`.
        event_depth: `max_depth` of events.
        event_bytes: `max_event_bytes` of events.
    """

    def __new__(
        cls,
        host: MatcherHost,
        *,
        dialect: Dialect,
        topic_dialect: TopicDialect,
        max_depth: int,
        max_event_bytes: int,
        max_conditions: int,
        max_alternatives: int,
        max_pattern_states: int,
        max_regexp_size: int,
        max_conjunctions: int,
        event_depth: int,
        event_bytes: int,
    ) -> Self: ...
    def add(self, items: list[tuple[Any, str]], *, topics: bool = False) -> list[int]:
        """Add names, each with the text of a pattern, or with *topics* of a topic pattern. One bad item refuses all.

        Returns:
            A number for each, by which it is removed. Numbers are unique, and later ones are larger.

        Raises:
            PatternError: with the path in the pattern.
            SubscriptionError: a text that is not a topic pattern.
        """

    def remove(self, numbers: list[int]) -> int:
        """Remove the items with these numbers, and return how many there were."""

    def match_event(self, event: Any) -> list[Any]:
        """Return the names of the patterns that match a JSON event, each once, in order of adding. Raises EventError."""

    def match_fields(self, fields: Iterable[Any]) -> list[Any]:
        """Return the names of the patterns that match an event of leaves, each with path, value and array positions.

        Raises:
            EventError: a value that is not a scalar, or leaves of two places for one value, if a pattern uses them.
        """

    def match_topic(self, key: str) -> list[Any]:
        """Return the names of the topic patterns that match a routing key, each once, in order of adding.

        Raises:
            UnicodeEncodeError: the key contains half a surrogate pair.
        """

    def looked_at(self) -> int:
        """Return how many conjunctions of patterns were looked at for all events so far."""

    def __len__(self) -> int: ...

def before_fork() -> None:
    """Wait, before a fork, until the locks of a core are free, and keep other threads from locking them."""

def after_fork() -> None:
    """Let the other threads continue, in the parent."""

def after_fork_in_child() -> None:
    """Reset the state, in the child."""

def cel_check(source: str, max_bytes: int, max_depth: int) -> tuple[int, int, str] | None:
    """Check a CEL expression; return line, column and fault, or None. For tests: an engine checks by itself."""

def canonical(text: bytes) -> tuple[str | None, str | None, bytes] | None:
    """Return tenant, collection and text of an accepted subscription, as a snapshot has it; None for one that Python writes."""

def plain_json(value: Any, max_bytes: int) -> bytes | None:
    """Return the compact JSON text of a value that is made of `dict`, `list`, `str`, `int`, `float`, `bool` and None themselves.

    Return None for a value of another type, one that JSON does not have or that is nested deep, and one of more than
    *max_bytes*.
    """
