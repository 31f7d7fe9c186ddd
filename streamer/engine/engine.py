"""Subscriptions in, events in, exact matches out: the facade over a core.

The engine checks arguments and returns lazy results. All state that depends on the subscriptions is in the core.
docs/semantics.md defines what matches; the core of the chosen backend runs the two phases.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final, overload

from streamer import _backend
from streamer.bloom.options import BloomOptions
from streamer.cel_eval.cache import ProgramCache
from streamer.cel_eval.errors import WORST, CelErrors, ErrorLog
from streamer.core.arrow import ArrowExportable, ArrowMatches, read_arrays
from streamer.core.matches import LineResult, Matches
from streamer.core.options import Options
from streamer.core.protocol import Changes, Core, Mode, OnBare, Selection, Source, StoredForm
from streamer.effort import EFFORT
from streamer.engine.arguments import OnError, check_no_stream, check_positive, selection, several, skips
from streamer.engine.batch import AT_ONCE, AT_ONCE_A_THREAD, apply_good, apply_lines, match_lines, write, write_lines
from streamer.engine.bloom import Bloom
from streamer.engine.fitting import Fitting
from streamer.engine.lines import LineSource
from streamer.engine.matches import BatchMatches
from streamer.engine.metrics import EngineMetrics
from streamer.engine.stream import StreamResult, stream, stream_async
from streamer.errors import BulkSubscriptionError, ConfigError, SnapshotError, SubscriptionError, UnknownSubscriptionError
from streamer.events.layout import EventLayout, FormatName
from streamer.events.reading import EventSource, check_names
from streamer.locks import NO_FORK
from streamer.model import CelEvaluator, Limits, TopicDialect, is_text
from streamer.subscriptions.subscription import Subscription
from streamer.subscriptions.values import packed, unpacked

if TYPE_CHECKING:
    import pyarrow as pa
    from prometheus_client import CollectorRegistry

    # Imported on use: pydantic takes longer to import than the rest.
    from streamer.config import Config
    from streamer.core.lint import Finding
    from streamer.core.plan import Plan
    from streamer.core.snapshot import Head
    from streamer.engine.explain import Explanation
    from streamer.engine.misses import NearMisses
    from streamer.engine.reload import Configured, Reload
    from streamer.engine.stats import Stats
    from streamer.metrics import Server
    from streamer.subscriptions.compile import CompiledSubscription


T = TypeVar("T")


@final
class Engine:
    """Find the subscriptions, among many, that match an event.

    Thread-safe: any number of threads can match while others add and remove. A match uses the state of the engine at its start,
    takes no lock and never waits. Every change is atomic, and each match that begins after the change returned sees it.

    Pickles its options and subscriptions. Supports `len()`, `in` for an id, and iteration over ids in order of adding.

    Args:
        format: the wire format of events: `change` (the default), `debezium`, `debezium_unwrapped`, `maxwell`, `canal`, `dms`,
            `wal2json`, `pgoutput`, `dynamodb`, `mongodb`, `supabase`, `hasura`, `sequin`, `cloudevents`, `eventbridge`, `sns` or
            `document` (docs/sources.md). Events of `pgoutput` are the messages of one stream, in their order.
        layout: the places of the parts of events of another shape: an `EventLayout`, or a mapping as its `from_dict` reads it.
        format_options: tables whose updates and deletes have all columns, which a record does not show, as
            `{"debezium": {"tables": {"shop.orders": {"identity": "full"}}}}`; or the table of rows that do not name theirs, as
            `{"debezium_unwrapped": {"table": "shop.orders"}}` (docs/sources.md).
        default_tenant: tenant of events and subscriptions that name none; with None, a missing tenant is an error.
        topic_dialect: dialect of topic patterns in subscriptions that do not set it: `amqp`, `mqtt` or `nats` (semantics.md
            section 6).
        validation: `full` checks the whole of each event, `lazy` only the parts that matching reads.
        limits: bounds on the cost of a subscription or an event: a `Limits`, or a mapping of those that differ from the defaults.
        soft_delete: dotted path in `data` of the field that marks a document as deleted (semantics.md 7.14).
        cache_size: how many compiled CEL programs to keep for reuse.
        bloom: size and upkeep of the phase-1 filters (docs/bloom.md); also a mapping as `BloomOptions.from_dict` reads it.
        batch_size: the most events that are matched at once, in a stream of lines and on Spark. The default, None, means 100
            lines, or 2,000 for each of several threads, and on Spark the events that make about 65,536 matches.
        threads: threads that match several events, if a call does not set it; only the native backend uses them.
        default: converts values in events and subscriptions that JSON does not have, as in `json.dumps`.
        cel_evaluator: evaluator of CEL expressions in subscriptions that do not set it: `native`, or `portable` (docs/cel.md).
        cel_functions: Python functions, by name, that expressions of the portable evaluator may call.

    Raises:
        ConfigError: an option is invalid.
    """

    def __init__(
        self,
        *,
        format: FormatName | None = None,  # noqa: A002
        layout: EventLayout | Mapping[str, Any] | None = None,
        format_options: Mapping[str, Any] | None = None,
        default_tenant: str | None = "default",
        topic_dialect: TopicDialect = "amqp",
        validation: Literal["full", "lazy"] = "full",
        limits: Limits | Mapping[str, Any] | None = None,
        soft_delete: str | None = None,
        cache_size: int = 10_000,
        bloom: BloomOptions | Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        threads: int = 1,
        default: Callable[[Any], Any] | None = None,
        cel_evaluator: CelEvaluator = "native",
        cel_functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        options = Options.checked(
            format=format,
            layout=layout,
            format_options=format_options,
            default_tenant=default_tenant,
            topic_dialect=topic_dialect,
            validation=validation,
            limits=limits,
            soft_delete=soft_delete,
            cache_size=cache_size,
            bloom=bloom,
            batch_size=batch_size,
            threads=threads,
            default=default,
            cel_evaluator=cel_evaluator,
            cel_functions=cel_functions,
        )
        self._begin(options)

    def _begin(self, options: Options, seed: int | None = None) -> None:
        self._options = options
        self._configured: Configured | None = None
        self._programs = ProgramCache(options.cache_size, options.cel_functions, options.cel_evaluator)
        self._cel_errors = ErrorLog()
        self._fitting = Fitting(options.layout)
        self._core = _make_core(options, self._programs, self._cel_errors, self._fitting.bare, seed)
        self._bloom = Bloom(self._core, options)

    @classmethod
    def _of(cls, options: Options, seed: int | None = None) -> Engine:
        """Make an engine from checked options."""
        engine = cls.__new__(cls)
        engine._begin(options, seed)
        return engine

    @classmethod
    def from_config(
        cls,
        source: str | os.PathLike[str] | Config | Mapping[str, Any],
        *,
        default: Callable[[Any], Any] | None = None,
        cel_functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Engine:
        """Make an engine from a configuration (docs/configuration.md), with the subscriptions of its files.

        Args:
            source: the path of a YAML file, which the environment overrides; a `Config`; or a mapping with the same members as
                the file, which `Config.from_dict` reads.
            default: see `Engine`.
            cel_functions: see `Engine`.

        Raises:
            BulkConfigError: the configuration, or files that it names, have faults; the error lists all of them.
            OSError: the file cannot be read, or the configured address for metrics cannot be used.
        """
        from streamer.config.loader import from_dict as config_from_dict
        from streamer.engine.reload import Configured, serve

        configured = Configured(source if not isinstance(source, Mapping) else config_from_dict(source))
        config = configured.loaded.config
        engine = cls(**config.engine_options(), default=default, cel_functions=cel_functions)
        engine._configured = configured
        configured.fill(engine)
        configured.server = serve(engine, config)
        return engine

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, collections: Iterable[tuple[str, str]] | None = None, **overrides: Any
    ) -> Engine:
        """Make an engine from a snapshot that `save` wrote (docs/snapshots.md).

        Args:
            collections: pairs of tenant and collection: load only the subscriptions that their events may match. The engine then
                contains no others: `len`, ids and `add` do not see them.
            overrides: options of `Engine` that do not change what matches: `validation`, `bloom`, `cache_size`, `batch_size`,
                `threads`, `default`, and `cel_functions`, which a file never contains. All other options come from the file;
                another value for one of them is an error.

        Raises:
            SnapshotError: the file is not a snapshot, or it is damaged, cut off, or of a later version.
            ConfigError: an option is invalid, or comes from the file.
            OSError: the file cannot be read.
            TypeError: *path* is not a path as text.
        """
        with NO_FORK:
            from streamer.core import snapshot
        head = snapshot.read_head(path)
        options = head.options_with(overrides)
        # Tables in the file were hashed with its seed. An engine whose core cannot use them gets its own seed.
        engine = cls._of(options, head.seed if head.images else None)
        try:
            engine._core.open_snapshot(head, snapshot.visible_to(collections))
        except BulkSubscriptionError as bulk:
            raise SnapshotError(f"subscriptions that this version refuses: {bulk.errors[0]}", path=head.path) from bulk
        engine._bloom.watch()
        return engine

    def _begin_with(self, head: Head | None) -> None:
        """Replace everything that the engine has by the content of a snapshot with its options; by nothing without one.

        No other thread may match or change the engine meanwhile.

        Raises:
            SnapshotError: any part of the file is damaged, or the file was replaced. The engine is then to begin without one.
            OSError: it cannot be read.
        """
        configured = self._configured
        self._begin(self._options, head.seed if head is not None and head.images else None)
        self._configured = configured
        if head is not None:
            self._core.open_snapshot(head, None, at_once=True)
            self._bloom.watch()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all subscriptions, and the options, to one file that `load` reads (docs/snapshots.md).

        The file appears whole or not at all. Only its owner may read it, unless it replaces a file that others may read.
        Subscriptions that are added during the call may be missing.

        Raises:
            SubscriptionError: the JSON text of a subscription is too long for a snapshot.
            OSError: the file cannot be written, or *path* exists and is not a regular file; it stays as it was.
            TypeError: *path* is not a path as text.
        """
        with NO_FORK:
            from streamer.core import snapshot
        snapshot.save(path, self._options, self._core.stored_forms(Selection()), self._core)

    @property
    def config(self) -> Config | None:
        """The current configuration; None for an engine made without one, or unpickled: a pickle has only the options."""
        return None if self._configured is None else self._configured.loaded.config

    @property
    def last_reload(self) -> Reload | None:
        """The result of the last attempt to apply a configuration, also of the first; None for an engine made without one."""
        return None if self._configured is None else self._configured.last

    @property
    def metrics_server(self) -> Server | None:
        """The configured metrics server, until it is closed; None if the configuration sets none."""
        return None if self._configured is None else self._configured.server

    def reload(self, source: str | os.PathLike[str] | Config | None = None) -> Reload:
        """Apply another configuration, and its files of subscriptions, while events are matched, completely or not at all.

        docs/configuration.md marks the settings that may change this way. The subscriptions of files become those that the files
        have now. Subscriptions that you added with `add` and the other methods stay.

        Args:
            source: see `from_config`; by default the source of the last good configuration, read again.

        Raises:
            ConfigError: this engine was made without a configuration.
            BulkConfigError: the configuration or its files have faults, or it changes settings that need a new engine. The error
                lists all of them; the engine is unchanged.
            OSError: the configuration cannot be read; the engine is unchanged.
        """
        if self._configured is None:
            raise ConfigError("this engine was made without a configuration; Engine.from_config makes one that can reload")
        return self._configured.reload(source, self)

    def refuse_reload(self, error: Exception) -> None:
        """Record that a configuration around this engine was refused, and why, for `last_reload` and the metrics."""
        if self._configured is not None:
            self._configured.refuse(error)

    def _reconfigure(self, config: Config) -> None:
        options = config.engine_options()
        live = {name: options[name] for name in ("limits", "cache_size", "bloom", "batch_size", "threads")}
        self._options = self._options.changed(**live)
        self._programs.resize(self._options.cache_size)
        self._core.reconfigure(self._options)
        self._bloom.reconfigure(self._options)

    def _apply_files(self, rows: Iterable[Source | SubscriptionError], among: Set[str]) -> Changes:
        """Replace the subscriptions *among* these ids by *rows*, in one step. Raises BulkSubscriptionError."""
        return self._written(write(self._core, rows, "apply", among=among))

    # Changing the subscriptions. Each of these methods is atomic and returns what it changed.

    def add(self, subscription: Source, *, replace: bool = False) -> Changes:
        """Add one subscription.

        Args:
            subscription: a `Subscription`, a mapping, or JSON text.
            replace: replace a subscription with the same id, if there is one.

        Raises:
            SubscriptionError: the subscription is invalid; the engine is unchanged.
            DuplicateSubscriptionError: the engine has its id already, and *replace* is not set.
        """
        try:
            return self._written(write(self._core, [subscription], "replace" if replace else "add"))
        except BulkSubscriptionError as bulk:
            error = bulk.errors[0]
            error.index = None
            raise error from None

    def replace(self, subscription: Source) -> Changes:
        """Replace the subscription with the same id, or add it if the id is new.

        Every event sees the old or the new one, also if they differ in tenant or collection. The subscription keeps its place in
        the order of adding.

        Raises:
            SubscriptionError: the subscription is invalid; the old one stays.
        """
        return self.add(subscription, replace=True)

    def add_many(self, subscriptions: Iterable[Source], *, replace: bool = False, on_error: OnError = "raise") -> Changes:
        """Add subscriptions at once, by default all or none.

        The second use of an id in one call is an error, also with *replace*.

        Args:
            subscriptions: any mix of `Subscription`, mappings and JSON text; read to the end before anything changes.
            replace: replace subscriptions with the same ids.
            on_error: `raise`, or `skip` to add the good ones and return the bad in `Changes.errors`.

        Raises:
            BulkSubscriptionError: some are bad; `errors` lists each with index, id, place and reason. The engine is unchanged.
        """
        return self._written(write(self._core, several(subscriptions), "replace" if replace else "add", skip=skips(on_error)))

    def add_jsonl(self, source: LineSource, *, replace: bool = False, on_error: OnError = "raise") -> Changes:
        """Add the subscriptions of a JSON-lines file, one per line, as `add_many` does; an error's `index` is its line, from 0.

        Args:
            source: a path, bytes, or a binary file object; gzip and zstd are recognised.

        Raises:
            BulkSubscriptionError: some are bad; the engine is unchanged.
        """
        mode: Mode = "replace" if replace else "add"
        return self._written(write_lines(self._core, source, self._options, mode, skip=skips(on_error)))

    def remove(self, subscription_id: str) -> Changes:
        """Remove one subscription. An unknown id has no effect and returns a false result: `if engine.remove(id):`."""
        return self._written(self._core.remove(selection([subscription_id], None, None, None)))

    def remove_many(
        self,
        *,
        ids: Iterable[str] | None = None,
        gateway_id: str | None = None,
        tenant: str | None = None,
        collection: str | None = None,
    ) -> Changes:
        """Remove the subscriptions that meet every given criterion.

        Args:
            ids: only these; unknown ids are ignored.
            tenant: the effective tenant, with the default filled in; `"*"` selects subscriptions to every tenant.
            collection: `"*"` selects those of every collection.

        Raises:
            TypeError: there is no criterion; `apply([])` removes everything.
        """
        if ids is None and gateway_id is None and tenant is None and collection is None:
            raise TypeError("remove_many() needs at least one criterion; apply([]) removes everything")
        if isinstance(ids, str):
            raise TypeError("ids: expected several ids, not a str; remove(id) removes one")
        return self._written(self._core.remove(selection(ids, gateway_id, tenant, collection)))

    def apply(self, desired: Iterable[Source], *, on_error: OnError = "raise") -> Changes:
        """Replace all subscriptions of the engine by exactly these, in one step.

        Args:
            on_error: with `skip`, bad subscriptions are left out, and `Changes.errors` has an error for each. If the engine has a
                subscription with the id of a bad one, it stays.

        Raises:
            BulkSubscriptionError: some are bad; the engine is unchanged.
        """
        if skips(on_error):
            return self._written(apply_good(self._core, list(several(desired))))
        return self._written(write(self._core, several(desired), "apply"))

    def apply_jsonl(self, source: LineSource, *, on_error: OnError = "raise") -> Changes:
        """Replace all subscriptions of the engine by those of a JSON-lines file, as `apply` does; an error's `index` is its line,
        from 0.

        Args:
            source: a path, bytes, or a binary file object; gzip and zstd are recognised.
            on_error: as in `apply`.

        Raises:
            BulkSubscriptionError: some are bad; the engine is unchanged.
        """
        return self._written(apply_lines(self._core, source, self._options, skip=skips(on_error)))

    def _written(self, changes: Changes) -> Changes:
        self._bloom.watch()
        self._cel_errors.forget(chain(changes.replaced, changes.removed))
        return changes

    # Reading the subscriptions

    @overload
    def get(self, subscription_id: str) -> Subscription | None: ...
    @overload
    def get(self, subscription_id: str, default: T) -> Subscription | T: ...
    def get(self, subscription_id: str, default: T | None = None) -> Subscription | T | None:
        """Return a subscription, or *default* if the id is unknown."""
        subscription = self._core.get(subscription_id) if is_text(subscription_id) else None
        return default if subscription is None else subscription

    def __getitem__(self, subscription_id: str) -> Subscription:
        """Return a subscription. Raises UnknownSubscriptionError, which is a KeyError, if the id is unknown."""
        subscription = self.get(subscription_id)
        if subscription is None:
            raise UnknownSubscriptionError(subscription_id)
        return subscription

    def items(self) -> Iterator[tuple[str, Subscription]]:
        """Yield the id and the subscription of each, in order of adding, as the engine is at the first one."""
        return ((each.id, each) for each in self.subscriptions())

    def subscriptions(
        self, *, tenant: str | None = None, collection: str | None = None, gateway_id: str | None = None
    ) -> list[Subscription]:
        """Return the subscriptions that meet every given criterion (see `remove_many`), in order of adding."""
        return self._core.select(selection(None, gateway_id, tenant, collection))

    def __len__(self) -> int:
        return len(self._core)

    def __bool__(self) -> bool:
        # Otherwise, an empty engine would be false, and `engine or Engine()` would replace it.
        return True

    def __contains__(self, subscription_id: object) -> bool:
        return is_text(subscription_id) and subscription_id in self._core

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.ids(Selection()))

    # Matching

    def match(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> Matches:
        """Return the subscriptions that match an event.

        Args:
            event: a JSON object as UTF-8 bytes, as text, or as a mapping; None for an event without a value, such as a tombstone
                of Kafka.
            tenant: overrides the event's own tenant.
            collection: overrides the event's own collection.

        Raises:
            EventError: the event cannot be read.
        """
        return self._core.match(event, tenant, collection)

    def match_ids(
        self,
        event: EventSource,
        tenant: str | None = None,
        collection: str | None = None,
        sorted: bool = False,  # noqa: A002
    ) -> list[str]:
        """Return the ids of the subscriptions that match an event. Raises EventError.

        Args:
            sorted: return them in the order in which the subscriptions were added, at some cost for each id. Otherwise their
                order is undefined, and differs between engines with the same subscriptions.
        """
        if sorted:
            return self._core.match(event, tenant, collection).sorted().ids()
        return self._core.match_ids(event, tenant, collection)

    def match_count(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> int:
        """Return the number of subscriptions that match an event. Raises EventError."""
        return self._core.match_count(event, tenant, collection)

    def matches_any(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> bool:
        """Return whether any subscription matches an event. Raises EventError."""
        return self._core.matches_any(event, tenant, collection)

    def match_batch(
        self,
        events: Iterable[EventSource],
        tenant: str | None = None,
        collection: str | None = None,
        *,
        threads: int | None = None,
    ) -> BatchMatches:
        """Match several events on one state of the engine, at a lower cost for each than one by one.

        Args:
            threads: threads to use, this one included, with the GIL released; by default the engine's setting. The reference
                backend uses one.

        Returns:
            A sequence aligned with *events*: `Matches`, or the `EventError` in a bad event's place, with its `index`.
        """
        threads = self._threads(threads)
        if tenant is not None or collection is not None:
            check_names(tenant, collection)
        return BatchMatches(self._core.match_batch(list(several(events)), tenant, collection, threads))

    @overload
    def match_stream(
        self,
        events: Iterable[EventSource],
        tenant: str | None = None,
        collection: str | None = None,
        *,
        batch_size: int | None = None,
        threads: int | None = None,
    ) -> Iterator[StreamResult]: ...
    @overload
    def match_stream(
        self,
        events: AsyncIterable[EventSource],
        tenant: str | None = None,
        collection: str | None = None,
        *,
        batch_size: int | None = None,
        threads: int | None = None,
    ) -> AsyncGenerator[StreamResult]: ...
    def match_stream(
        self,
        events: Iterable[EventSource] | AsyncIterable[EventSource],
        tenant: str | None = None,
        collection: str | None = None,
        *,
        batch_size: int | None = None,
        threads: int | None = None,
    ) -> Iterator[StreamResult] | AsyncGenerator[StreamResult]:
        """Match a stream of events, a few at once; results come in the order of the events, one for each.

        Each batch is matched on the state of the engine at that time. Up to *batch_size* events are read before their results.

        Args:
            events: an iterable, whose batches are full, so its events should be available without waiting; or an asynchronous
                iterable, whose available events are matched without waiting for more.
            batch_size: at most this many events are matched at once; by default the engine's setting.
            threads: as in `match_batch`.

        Returns:
            An iterator, asynchronous if *events* is: `Matches`, or the `EventError` in a bad event's place, whose `index` is the
            position in the stream. An error that *events* raises comes after the results of the events before it.
        """
        at_once = self._at_once(batch_size)
        match = partial(self.match_batch, tenant=tenant, collection=collection, threads=self._threads(threads))
        if tenant is not None or collection is not None:
            check_names(tenant, collection)
        if isinstance(events, AsyncIterable):
            return stream_async(events, match, at_once)
        return stream(several(events), match, at_once)

    def match_jsonl(
        self,
        source: LineSource,
        tenant: str | None = None,
        collection: str | None = None,
        *,
        batch_size: int | None = None,
        threads: int | None = None,
    ) -> Iterator[LineResult]:
        """Match each line of a JSON-lines source as it is read, in constant memory.

        Lines are matched as they arrive, a few at once, on the state of the engine at that time. A bad line is reported in its
        place, and the others match.

        Args:
            source: a path, bytes, a binary file object, or an iterable of the text in pieces, cut anywhere; gzip and zstd are
                recognised. For events that are not lines of a text, use `match_stream`.
            batch_size: at most this many lines are matched at once; by default the engine's setting. A line never waits for one
                that has not arrived yet.
            threads: as in `match_batch`; with more threads, the default batch has more lines.
        """
        threads = self._threads(threads)
        at_once = self._at_once(batch_size, AT_ONCE if threads == 1 else threads * AT_ONCE_A_THREAD)
        if tenant is not None or collection is not None:
            check_names(tenant, collection)
        return match_lines(self._core, source, self._options, tenant, collection, at_once=at_once, threads=threads)

    def match_arrow(
        self,
        events: pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray | ArrowExportable,
        tenant: str | None = None,
        collection: str | None = None,
        *,
        threads: int | None = None,
        max_matches: int | None = None,
    ) -> ArrowMatches:
        """Match an Arrow array or table of events on one state of the engine, into Arrow batches.

        The native backend reads the array's buffers in place and writes those of the batches: it makes no Python object for an
        event or a match. Each row of a table is an event whose members are the columns; Arrow writes its JSON first.

        Args:
            events: an array of texts: `binary`, `string` or their `large_` kinds; or a table, a batch, or an array of structs;
                anything with `__arrow_c_array__` or `__arrow_c_stream__`, such as a DataFrame.
            tenant: as in `match`.
            collection: as in `match`.
            threads: as in `match_batch`; with *max_matches* one thread matches.
            max_matches: stop after the first event that reaches this number of matches. `ArrowMatches.events` has a row for each
                matched event, so `events.slice(result.events.num_rows)` is the rest.

        Raises:
            ImportError: pyarrow is not installed.
            TypeError: *events* is not an Arrow array of texts or a table, or a column cannot be written as JSON.
            ValueError: an array has invalid buffers, a time of a column is out of range, or *max_matches* is under 1.
            ConfigError: *max_matches* is set, and events are messages of pgoutput.
        """
        threads = self._threads(threads)
        if max_matches is not None:
            check_positive("max_matches", max_matches)
            check_no_stream(self._options)
        if tenant is not None or collection is not None:
            check_names(tenant, collection)
        return self._core.match_arrow(read_arrays(events), tenant, collection, threads, max_matches)

    def locate_arrow(
        self,
        events: pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray | ArrowExportable,
        tenant: str | None = None,
        collection: str | None = None,
        *,
        threads: int | None = None,
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return id, tenant, collection and type of the events of an Arrow array, without matching them.

        Metrics do not count these events. Arguments and errors are those of `match_arrow`.

        Returns:
            `ArrowMatches.events` and `ArrowMatches.rejected`, as `match_arrow` returns them; a row without a tenant that was not
            rejected was ignored. With lazy validation, `match_arrow` may reject more, because it reads more of an event.
        """
        check_no_stream(self._options)
        threads = self._threads(threads)
        if tenant is not None or collection is not None:
            check_names(tenant, collection)
        return self._core.locate_arrow(read_arrays(events), tenant, collection, threads)

    def _at_once(self, batch_size: int | None, default: int = AT_ONCE) -> int:
        if batch_size is not None:
            check_positive("batch_size", batch_size)
        return batch_size or self._options.batch_size or default

    def _threads(self, threads: int | None) -> int:
        if threads is None:
            return self._options.threads
        check_positive("threads", threads)
        return threads

    # Understanding

    def explain(
        self, event: EventSource, subscription_id: str, tenant: str | None = None, collection: str | None = None
    ) -> Explanation:
        """Explain why a subscription matches an event, or why not: each condition, the value seen, and the outcome.

        Raises:
            EventError: the event cannot be read.
            UnknownSubscriptionError: the engine does not have the id.
        """
        with NO_FORK:
            from streamer.engine.explain import explain
        return explain(subscription_id, self._read, event, self._options, tenant, collection)

    def near_misses(
        self,
        event: EventSource,
        n: int = 3,
        tenant: str | None = None,
        collection: str | None = None,
        *,
        max_subscriptions: int = 1000,
    ) -> NearMisses:
        """Return the subscriptions that fail to match an event by exactly one condition, nearest first.

        The operands of an expression that are joined by `&&` count as separate conditions.

        Args:
            n: the most subscriptions to return.
            tenant: as in `match`.
            collection: as in `match`.
            max_subscriptions: the most subscriptions for the event's tenant and collection to examine; about 5,000 take a second.

        Raises:
            EventError: the event cannot be read.
        """
        check_positive("n", n)
        check_positive("max_subscriptions", max_subscriptions)
        check_names(tenant, collection)
        with NO_FORK:
            from streamer.engine.misses import near_misses
        return near_misses(self, event, n, tenant, collection, max_subscriptions)

    def plan(self, subscription_id: str) -> Plan:
        """Return how a subscription is found and decided: normal form, access keys, Bloom keys, CEL program, residual.

        Raises:
            UnknownSubscriptionError: the engine does not have the id.
        """
        plan = self._core.plan(subscription_id) if is_text(subscription_id) else None
        if plan is None:
            raise UnknownSubscriptionError(subscription_id)
        return plan

    def dump(self, max_subscriptions: int = 1000) -> str:
        """Return the index as text: partitions, segments, buckets, the condition of each, and the next bucket.

        The reference has no index, so the text has the conditions of each subscription.

        Args:
            max_subscriptions: further subscriptions are counted, not printed. Printing costs as much as indexing once more.
        """
        if max_subscriptions < 0:
            raise ConfigError(f"expected a number of subscriptions, not {max_subscriptions}", place="max_subscriptions")
        return self._core.dump(max_subscriptions)

    def lint(
        self,
        events: Iterable[EventSource] | None = None,
        tenant: str | None = None,
        collection: str | None = None,
        *,
        max_events: int = 10_000,
    ) -> list[Finding]:
        """Return suspicious subscriptions, in order of adding: never or always matching, duplicates, slow, probable mistakes.

        Args:
            events: real events; those that cannot be read are skipped. With events, lint also reports fields, collections and
                types that subscriptions use and none of the events has.
            tenant: tenant of the events, as in `match`.
            collection: collection of the events, as in `match`.
            max_events: the most events to examine; about 5,000 take a second.
        """
        check_positive("max_events", max_events)
        check_names(tenant, collection)
        with NO_FORK:
            from streamer.engine.lint import in_order, mistakes
            from streamer.engine.occurrences import not_in_events
        sample = () if events is None else islice(several(events), max_events)
        return in_order(self, self._core.lint(), mistakes(self), not_in_events(self, sample, tenant, collection))

    @property
    def bloom(self) -> Bloom:
        """The filters of phase 1: their state, a rebuild by hand, and filters to ship."""
        return self._bloom

    @property
    def cel_functions(self) -> Mapping[str, Callable[..., Any]]:
        """The Python functions that expressions of the portable evaluator may call, by name; fixed for the engine's life."""
        return self._options.cel_functions

    @property
    def cel_errors(self) -> CelErrors:
        """The number of CEL evaluations that ended in an error, and so without a match, by reason (semantics.md 4.3).

        `cel_errors.worst` lists the subscriptions with the most errors.
        """
        # A few more, because an event may still have failed for a subscription that was being removed.
        worst = [each for each in self._cel_errors.worst(10 * WORST) if each.subscription_id in self]
        return CelErrors(self._cel_errors.counts, tuple(worst[:WORST]))

    def stats(self) -> Stats:
        """Return the engine's contents and activity, in total and for each collection; printed, it is a table."""
        with NO_FORK:
            from streamer.engine.stats import read_stats
        for state in self._bloom.filters():
            self._core.measure_filter(*state.name)
        return read_stats(self._core, sum(self._bloom.rebuilds.values()), self._programs, self.cel_errors, self._fitting.hint)

    @property
    def metrics(self) -> EngineMetrics:
        """The engine's metrics for Prometheus: `engine.metrics.register()` puts them on a registry (docs/metrics.md)."""
        return EngineMetrics(self)

    def serve_metrics(
        self,
        port: int,
        addr: str = "127.0.0.1",
        *,
        registry: CollectorRegistry | None = None,
        name: str | None = None,
        collections: int = 20,
        tenants: bool = False,
    ) -> Server:
        """Serve the metrics over HTTP, in a thread, until the returned server is closed.

        In prometheus_client's multiprocess mode it serves the metrics of all processes.

        Args:
            port: 0 for any free port; read it from `Server.port`.
            addr: `0.0.0.0` for every address of this machine.
            registry: serve everything on it; by default a new registry with this engine and this process.
            name: see `EngineMetrics.register`.
            collections: see `EngineMetrics.register`.
            tenants: see `EngineMetrics.register`.

        Raises:
            OSError: the address cannot be used.
        """
        from streamer.metrics import serve

        return serve(self, port, addr, registry=registry, name=name, collections=collections, tenants=tenants)

    def _compiled(self, subscription_id: str) -> CompiledSubscription | None:
        return self._core.compiled(subscription_id) if is_text(subscription_id) else None

    def _read(self, subscription_id: str) -> CompiledSubscription | None:
        """Return a subscription with its parts parsed, as far as the current answer has the units for it, or None."""
        compiled = self._compiled(subscription_id)
        return compiled if compiled is None or compiled.cost <= EFFORT.to_read else self._compile(compiled.subscription)

    def _compile(self, stored: StoredForm) -> CompiledSubscription:
        with NO_FORK:
            from streamer.subscriptions.compile import compile_subscription
        return compile_subscription(
            stored,
            default_tenant=self._options.default_tenant,
            topic_dialect=self._options.topic_dialect,
            limits=self._options.limits,
            programs=self._programs,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        content = [packed(each) if isinstance(each, Subscription) else each for each in self._core.stored_forms(Selection())]
        return _unpickle, (self._options, content)

    def __repr__(self) -> str:
        return f"<Engine: {len(self)} subscriptions>"


def _make_core(options: Options, programs: ProgramCache, cel_errors: ErrorLog, on_bare: OnBare, seed: int | None) -> Core:
    # Imported on use, so that a test may change the backend, and because the native core may be missing.
    if _backend.BACKEND == "native":
        from streamer.native.core import NativeCore

        return NativeCore(options, programs, cel_errors, seed, on_bare)
    from streamer.reference.core import ReferenceCore

    return ReferenceCore(options, programs, cel_errors, on_bare)


def _unpickle(options: Options, content: Sequence[Any]) -> Engine:
    engine = Engine._of(options)
    engine.add_many(unpacked(*each) if isinstance(each, tuple) else each for each in content)
    return engine
