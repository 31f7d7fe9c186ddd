"""Subscriptions in, events in, exact matches out: the facade over a core.

It checks arguments, gives results their lazy form, and holds nothing of its own that depends on the subscriptions. What matches
stands in docs/semantics.md; the two phases are in the core of the backend that runs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, final, overload

from streamer import _backend
from streamer.bloom.options import BloomOptions
from streamer.cel_eval.cache import ProgramCache
from streamer.cel_eval.errors import WORST, CelErrors, ErrorLog
from streamer.core.arrow import ArrowExportable, ArrowMatches, read_arrays
from streamer.core.matches import LineResult, Matches
from streamer.core.options import Options
from streamer.core.protocol import Changes, Core, Mode, OnBare, Selection, Source
from streamer.engine.arguments import OnError, check_positive, selection, several, skips
from streamer.engine.batch import AT_ONCE, AT_ONCE_A_THREAD, match_lines, write_lines
from streamer.engine.bloom import Bloom
from streamer.engine.fitting import Fitting
from streamer.engine.lines import LineSource
from streamer.engine.matches import BatchMatches
from streamer.engine.metrics import EngineMetrics
from streamer.engine.stream import StreamResult, stream, stream_async
from streamer.errors import BulkSubscriptionError, ConfigError, SnapshotError, UnknownSubscriptionError
from streamer.events.layout import EventLayout, PresetName
from streamer.events.reading import EventSource, check_names
from streamer.locks import NO_FORK
from streamer.model import CelEvaluator, Limits, TopicDialect, is_text
from streamer.subscriptions.subscription import Subscription
from streamer.subscriptions.values import packed, unpacked

if TYPE_CHECKING:
    import pyarrow as pa
    from prometheus_client import CollectorRegistry

    # Imported when used: pydantic takes longer to import than the rest.
    from streamer.config import Config
    from streamer.core.lint import Finding
    from streamer.core.plan import Plan
    from streamer.engine.explain import Explanation
    from streamer.engine.misses import NearMisses
    from streamer.engine.reload import Configured, Reload
    from streamer.engine.stats import Stats
    from streamer.metrics import Server
    from streamer.subscriptions.compile import CompiledSubscription


@final
class Engine:
    """Which of many subscriptions want an event?

    Thread-safe: any number of threads match while others add and remove. A match begins on one state of the engine, takes
    no lock and never waits; every change is atomic, and seen by each match that begins after it returned.

    Pickles by its options and subscriptions. Has `len()`, `in` for an id, and iterates over ids in order of adding.

    Args:
        layout: where the parts of an event stand: an `EventLayout`, the name of a preset, or a mapping as `from_dict` reads it.
        default_tenant: tenant of events and subscriptions that name none; None makes it an error to name none.
        topic_dialect: of topic patterns of subscriptions that do not say: `amqp`, `mqtt` or `nats` (semantics.md section 6).
        validation: `full` checks the whole of each event, `lazy` only what is walked.
        limits: bounds on what a subscription or an event may cost.
        soft_delete: dotted path in `data` of the field that marks a document as deleted (semantics.md 7.14).
        cache_size: how many compiled CEL programs to keep for reuse.
        bloom: how phase 1 is sized and kept healthy (docs/bloom.md); a mapping as `BloomOptions.from_dict` reads it.
        batch_size: how many events are matched at once, at most, of a stream of lines and on Spark. None for what suits each: 100
            lines, or 2,000 for each of several threads, and on Spark as many events as make about 65,536 matches.
        threads: how many match several events, where a call does not say; the native backend uses them.
        default: converts values in events and subscriptions that JSON does not have, as in `json.dumps`.
        cel_evaluator: what evaluates CEL expressions of subscriptions that do not say: `native`, or `portable` (docs/cel.md).
        cel_functions: functions in Python, by name, that expressions of the portable evaluator may call.

    Raises:
        ConfigError: an option that cannot be.
    """

    def __init__(
        self,
        *,
        layout: EventLayout | PresetName | Mapping[str, Any] = "change",
        default_tenant: str | None = "default",
        topic_dialect: TopicDialect = "amqp",
        validation: Literal["full", "lazy"] = "full",
        limits: Limits | None = None,
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
            layout=layout,
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
        """Make an engine of options that were checked."""
        engine = cls.__new__(cls)
        engine._begin(options, seed)
        return engine

    @classmethod
    def from_config(
        cls,
        source: str | os.PathLike[str] | Config,
        *,
        default: Callable[[Any], Any] | None = None,
        cel_functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Engine:
        """Make an engine as a configuration says (docs/configuration.md), with the subscriptions of its files.

        Args:
            source: the path of a YAML file, which the environment overrides, or a `Config`.
            default: as of `Engine`.
            cel_functions: as of `Engine`.

        Raises:
            BulkConfigError: all that is wrong in the configuration, or in the files that it names.
            OSError: the file cannot be read, or metrics cannot be served where it says.
        """
        from streamer.engine.reload import Configured, fill, serve

        configured = Configured(source)
        config = configured.loaded.config
        engine = cls(**config.engine_options(), default=default, cel_functions=cel_functions)
        engine._configured = configured
        fill(engine, configured.loaded)
        configured.server = serve(engine, config)
        return engine

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, collections: Iterable[tuple[str, str]] | None = None, **overrides: Any
    ) -> Engine:
        """Make an engine of a snapshot, which `save` wrote (docs/snapshots.md).

        Args:
            collections: pairs of tenant and collection: only what their events may match is taken. The engine then holds no more:
                `len`, ids and `add` know of nothing else.
            overrides: options of `Engine` that do not change what matches: `validation`, `bloom`, `cache_size`, `batch_size`,
                `threads`, `default`, and `cel_functions`, which no file holds. All others are the file's; naming another value
                for one is an error.

        Raises:
            SnapshotError: it is no snapshot, damaged, cut off, or of a later version.
            ConfigError: an option that cannot be, or is the file's.
            OSError: it cannot be read.
            TypeError: what is no path as text.
        """
        with NO_FORK:
            from streamer.core import snapshot
        head = snapshot.read_head(path)
        options = head.options_with(overrides)
        # Tables in the file were hashed with its seed; an engine whose core cannot use them has one of its own.
        engine = cls._of(options, head.seed if head.images else None)
        try:
            engine._core.open_snapshot(head, snapshot.seen_by(collections))
        except BulkSubscriptionError as bulk:
            raise SnapshotError(f"subscriptions that this version refuses: {bulk.errors[0]}", path=head.path) from bulk
        engine._bloom.watch()
        return engine

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that is held, and the options, as one file that `load` reads (docs/snapshots.md).

        The file is there whole, or not at all; only its owner may read it, unless it takes the place of one that others may read.
        What is added meanwhile may be left out.

        Raises:
            SubscriptionError: one whose JSON text is too long for a snapshot.
            OSError: it cannot be written, or what is there is no regular file, which stays.
            TypeError: what is no path as text.
        """
        with NO_FORK:
            from streamer.core import snapshot
        snapshot.save(path, self._options, self._core.given(Selection()), self._core)

    @property
    def config(self) -> Config | None:
        """The configuration in force; None for an engine that was made without, or unpickled: it has the options alone."""
        return None if self._configured is None else self._configured.loaded.config

    @property
    def last_reload(self) -> Reload | None:
        """How the last attempt to take a configuration went, making the engine included; None for one made without."""
        return None if self._configured is None else self._configured.last

    @property
    def metrics_server(self) -> Server | None:
        """What serves the metrics as the configuration says, until it is closed; None where it does not say so."""
        return None if self._configured is None else self._configured.server

    def reload(self, source: str | os.PathLike[str] | Config | None = None) -> Reload:
        """Take another configuration while events are matched, all of it or nothing.

        What may change so is marked in docs/configuration.md. The files of subscriptions are not read again.

        Args:
            source: as of `from_config`; by default where the last good one came from, read again.

        Raises:
            ConfigError: this engine was made without a configuration.
            BulkConfigError: all that is wrong, or every place that would need a new engine; nothing was changed.
            OSError: the file cannot be read; nothing was changed.
        """
        if self._configured is None:
            raise ConfigError("this engine was made without a configuration; Engine.from_config makes one that can reload")
        return self._configured.reload(source, self._reconfigure)

    def refuse_reload(self, error: Exception) -> None:
        """Note that a configuration around this engine was not taken, and why, as `last_reload` and the metrics tell."""
        if self._configured is not None:
            self._configured.refuse(error)

    def _reconfigure(self, config: Config) -> None:
        options = config.engine_options()
        live = {name: options[name] for name in ("limits", "cache_size", "bloom", "batch_size", "threads")}
        self._options = replace(self._options, **live)
        self._programs.resize(self._options.cache_size)
        self._core.reconfigure(self._options)
        self._bloom.reconfigure(self._options)

    # Changing what is held. Every one of these is atomic and returns what it changed.

    def add(self, subscription: Source, *, replace: bool = False) -> Changes:
        """Add one subscription.

        Args:
            subscription: a `Subscription`, a mapping, or JSON text.
            replace: put it in the place of one with the same id, if there is one.

        Raises:
            SubscriptionError: it cannot be accepted; nothing was changed.
            DuplicateSubscriptionError: its id is held and not *replace*.
        """
        try:
            return self._written(self._core.write([subscription], "replace" if replace else "add"))
        except BulkSubscriptionError as bulk:
            error = bulk.errors[0]
            error.index = None
            raise error from None

    def replace(self, subscription: Source) -> Changes:
        """Put a subscription in the place of the one with its id, or add it where there is none.

        Every event sees the old or the new one, also where tenant or collection differ.
        It keeps its place in the order of adding.

        Raises:
            SubscriptionError: it cannot be accepted; the old one stays.
        """
        return self.add(subscription, replace=True)

    def add_many(self, subscriptions: Iterable[Source], *, replace: bool = False, on_error: OnError = "raise") -> Changes:
        """Add subscriptions at once, by default all or none.

        An id that comes twice in one call is an error in its second place, with *replace* too.

        Args:
            subscriptions: any mix of `Subscription`, mappings and JSON text; read to the end before anything changes.
            replace: put them in the place of those with the same ids.
            on_error: `raise`, or `skip` to add the good ones and return the bad in `Changes.errors`.

        Raises:
            BulkSubscriptionError: some are bad; `errors` has each with index, id, place and reason. Nothing was changed.
        """
        return self._written(self._core.write(several(subscriptions), "replace" if replace else "add", skip=skips(on_error)))

    def add_jsonl(self, source: LineSource, *, replace: bool = False, on_error: OnError = "raise") -> Changes:
        """Add the subscriptions of a JSON-lines file, one a line, as `add_many` does; `index` of an error is its line from 0.

        Args:
            source: a path, bytes, or a binary file object; gzip and zstd are recognised.

        Raises:
            BulkSubscriptionError: some are bad; nothing was changed.
        """
        mode: Mode = "replace" if replace else "add"
        return self._written(write_lines(self._core, source, self._options, mode, skip=skips(on_error)))

    def remove(self, subscription_id: str) -> Changes:
        """Remove one subscription; an id that is not held changes nothing, so `if engine.remove(id):` tells."""
        return self._written(self._core.remove(selection([subscription_id], None, None, None)))

    def remove_many(
        self,
        *,
        ids: Iterable[str] | None = None,
        gateway_id: str | None = None,
        tenant: str | None = None,
        collection: str | None = None,
    ) -> Changes:
        """Remove the subscriptions that meet every criterion given.

        Args:
            ids: only these; those that are not held are passed over.
            tenant: as in force, with the default filled in; `"*"` selects those of every tenant.
            collection: `"*"` selects those of every collection.

        Raises:
            TypeError: no criterion; `apply([])` removes everything.
        """
        if ids is None and gateway_id is None and tenant is None and collection is None:
            raise TypeError("remove_many() needs at least one criterion; apply([]) removes everything")
        if isinstance(ids, str):
            raise TypeError("ids: expected several ids, not a str; remove(id) removes one")
        return self._written(self._core.remove(selection(ids, gateway_id, tenant, collection)))

    def apply(self, desired: Iterable[Source]) -> Changes:
        """Make the engine hold exactly these subscriptions, in one step.

        Raises:
            BulkSubscriptionError: some are bad; nothing was changed.
        """
        return self._written(self._core.write(several(desired), "apply"))

    def _written(self, changes: Changes) -> Changes:
        self._bloom.watch()
        self._cel_errors.forget(chain(changes.replaced, changes.removed))
        return changes

    # Looking at what is held

    def get(self, subscription_id: str) -> Subscription | None:
        """Return a subscription, or None where the id is not held."""
        return self._core.get(subscription_id) if is_text(subscription_id) else None

    def subscriptions(
        self, *, tenant: str | None = None, collection: str | None = None, gateway_id: str | None = None
    ) -> list[Subscription]:
        """Return the subscriptions that meet every criterion given (see `remove_many`), in order of adding."""
        return self._core.select(selection(None, gateway_id, tenant, collection))

    def __len__(self) -> int:
        return len(self._core)

    def __bool__(self) -> bool:
        # Without this an engine that holds nothing yet would be false, and `engine or Engine()` a trap.
        return True

    def __contains__(self, subscription_id: object) -> bool:
        return is_text(subscription_id) and subscription_id in self._core

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.ids(Selection()))

    # Matching

    def match(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> Matches:
        """Return the subscriptions that match an event.

        Args:
            event: a JSON object as UTF-8 bytes, as text, or as a mapping; None for one without a value, a tombstone of Kafka.
            tenant: wins over what the event says.
            collection: wins over what the event says.

        Raises:
            EventError: the event cannot be read.
        """
        return self._core.match(event, tenant, collection)

    def match_ids(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> list[str]:
        """Return the ids of the subscriptions that match an event, in no promised order. Raises EventError."""
        return self._core.match_ids(event, tenant, collection)

    def match_count(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> int:
        """Return how many subscriptions match an event. Raises EventError."""
        return self._core.match_count(event, tenant, collection)

    def matches_any(self, event: EventSource, tenant: str | None = None, collection: str | None = None) -> bool:
        """Tell whether any subscription matches an event. Raises EventError."""
        return self._core.matches_any(event, tenant, collection)

    def match_batch(
        self,
        events: Iterable[EventSource],
        tenant: str | None = None,
        collection: str | None = None,
        *,
        threads: int | None = None,
    ) -> BatchMatches:
        """Match several events on one state of the engine, with less effort for each than one by one.

        Args:
            threads: how many to use, this one included, with the GIL released, if not as many as the engine was told; the
                reference backend uses one.

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

        Each batch is matched on the state of the engine at that time. Up to *batch_size* events are read ahead of their results.

        Args:
            events: an iterable, whose batches are full, so its events should be there without waiting; or an asynchronous one,
                of which what has come is matched without waiting for more.
            batch_size: events that are matched at once, at most, if not as many as the engine was told.
            threads: as in `match_batch`.

        Returns:
            An iterator, asynchronous as *events* are: `Matches`, or the `EventError` in a bad event's place, whose `index` is the
            position in the stream. What *events* raises comes after the results of the events before.
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

        Lines are matched as they come, a few at once, on the state of the engine at that time. A bad line is reported in its
        place, and the others match.

        Args:
            source: a path, bytes, a binary file object, or an iterable of the text in pieces, cut anywhere; gzip and zstd are
                recognised. Events that are no lines of a text go to `match_stream`.
            batch_size: lines that are matched at once, at most, if not as many as the engine was told; no line waits for one that
                has not come yet.
            threads: as in `match_batch`; they match more lines at once, if nobody says how many.
        """
        threads = self._threads(threads)
        at_once = self._at_once(batch_size, AT_ONCE if threads == 1 else threads * AT_ONCE_A_THREAD)
        if tenant is not None or collection is not None:
            check_names(tenant, collection)
        return match_lines(self._core, source, self._options, tenant, collection, at_once=at_once, threads=threads)

    def match_arrow(
        self,
        events: pa.Array | pa.ChunkedArray | ArrowExportable,
        tenant: str | None = None,
        collection: str | None = None,
        *,
        threads: int | None = None,
        max_matches: int | None = None,
    ) -> ArrowMatches:
        """Match an Arrow array of events on one state of the engine, into Arrow batches.

        The native backend reads the array's buffers where they lie and writes those of the batches: no Python object is made
        for an event or a match.

        Args:
            events: of `binary`, `string` or their `large_` kinds; anything with `__arrow_c_array__` or `__arrow_c_stream__`.
            tenant: as in `match`.
            collection: as in `match`.
            threads: as in `match_batch`; with *max_matches* one thread matches.
            max_matches: the first event with which there are so many matches is the last that is matched. `ArrowMatches.events`
                has a row for each event that was, so `events.slice(result.events.num_rows)` is what is left.

        Raises:
            ImportError: there is no pyarrow.
            TypeError: *events* are no Arrow array of texts.
            ValueError: an array whose buffers are not those of a valid one, or a *max_matches* under 1.
        """
        threads = self._threads(threads)
        if max_matches is not None:
            check_positive("max_matches", max_matches)
        if tenant is not None or collection is not None:
            check_names(tenant, collection)
        return self._core.match_arrow(read_arrays(events), tenant, collection, threads, max_matches)

    def locate_arrow(
        self,
        events: pa.Array | pa.ChunkedArray | ArrowExportable,
        tenant: str | None = None,
        collection: str | None = None,
        *,
        threads: int | None = None,
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Tell what the events of an Arrow array are called and where they belong, without matching them.

        Such events are counted by no metric. Arguments and errors are those of `match_arrow`.

        Returns:
            `ArrowMatches.events` and `ArrowMatches.rejected`, as `match_arrow` returns them; a row without a tenant that was not
            rejected was ignored. Where validation is lazy, `match_arrow` may reject more: it reads more of an event.
        """
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
        """Tell why a subscription matches an event, or why not: each condition, the value seen, and the outcome.

        Raises:
            EventError: the event cannot be read.
            UnknownSubscriptionError: the id is not held.
        """
        subscription = self.get(subscription_id)
        if subscription is None:
            raise UnknownSubscriptionError(subscription_id)
        with NO_FORK:
            from streamer.engine.explain import explain
        return explain(self._compile(subscription), event, self._options, tenant, collection)

    def near_misses(
        self,
        event: EventSource,
        n: int = 3,
        tenant: str | None = None,
        collection: str | None = None,
        *,
        max_subscriptions: int = 1000,
    ) -> NearMisses:
        """Return the subscriptions that do not match an event for one condition alone, the nearest first.

        The operands of an expression that are joined by `&&` count as conditions of their own.

        Args:
            n: how many to return, at most.
            tenant: as in `match`.
            collection: as in `match`.
            max_subscriptions: how many of the event's tenant and collection to examine, at most; some 5,000 a second.

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
        """Tell how a subscription is found and decided: normal form, access keys, Bloom keys, CEL program, residual.

        Raises:
            UnknownSubscriptionError: the id is not held.
        """
        plan = self._core.plan(subscription_id) if is_text(subscription_id) else None
        if plan is None:
            raise UnknownSubscriptionError(subscription_id)
        return plan

    def dump(self, max_subscriptions: int = 1000) -> str:
        """Print how the subscriptions are held: partitions, segments, buckets, what each asks, and where it leads.

        The reference has no index, and prints the conditions of each subscription.

        Args:
            max_subscriptions: what is more is counted, not printed. Printing costs as much as indexing once more.
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
        """Return what is suspicious, in order of adding: never or always matching, duplicates, slow, probable mistakes.

        Args:
            events: real ones, of which those that cannot be read are left out. Then what none of them has is found, too: fields
                that a subscription asks for, its collection, its types.
            tenant: of the events, as in `match`.
            collection: of the events, as in `match`.
            max_events: how many to look at, at most; some 5,000 a second.
        """
        check_positive("max_events", max_events)
        check_names(tenant, collection)
        with NO_FORK:
            from streamer.engine.lint import in_order, mistakes
            from streamer.engine.occurrences import not_in_events
        given = () if events is None else islice(several(events), max_events)
        return in_order(self, self._core.lint(), mistakes(self), not_in_events(self, given, tenant, collection))

    @property
    def bloom(self) -> Bloom:
        """The filters of phase 1: their state, a rebuild by hand, and filters to ship."""
        return self._bloom

    @property
    def cel_functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions in Python that expressions of the portable evaluator may call, by name; fixed for the engine's life."""
        return self._options.cel_functions

    @property
    def cel_errors(self) -> CelErrors:
        """How many evaluations of CEL expressions ended in an error, and so in no match, by reason (semantics.md 4.3).

        `cel_errors.worst` names the subscriptions with the most errors.
        """
        # A few more, since an event may still have failed for one that was being removed.
        worst = [each for each in self._cel_errors.worst(10 * WORST) if each.subscription_id in self]
        return CelErrors(self._cel_errors.counts, tuple(worst[:WORST]))

    def stats(self) -> Stats:
        """Return what it holds and what it did, in all and for each collection; printed, it is a table."""
        with NO_FORK:
            from streamer.engine.stats import read_stats
        for state in self._bloom.filters():
            self._core.measure_filter(*state.name)
        return read_stats(self._core, sum(self._bloom.rebuilds.values()), self._programs, self.cel_errors, self._fitting.hint)

    @property
    def metrics(self) -> EngineMetrics:
        """Its metrics for Prometheus: `engine.metrics.register()` puts them on a registry (docs/metrics.md)."""
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
        """Serve the metrics over HTTP, in a thread, until what is returned is closed.

        In prometheus_client's multiprocess mode they are those of all processes.

        Args:
            port: 0 for any that is free; `Server.port` tells.
            addr: `0.0.0.0` for every address of this machine.
            registry: serve all that is on it; by default one of its own, with this engine and this process.
            name: as of `EngineMetrics.register`.
            collections: as of `EngineMetrics.register`.
            tenants: as of `EngineMetrics.register`.

        Raises:
            OSError: it cannot listen there.
        """
        from streamer.metrics import serve

        return serve(self, port, addr, registry=registry, name=name, collections=collections, tenants=tenants)

    def _compile(self, subscription: Subscription) -> CompiledSubscription:
        with NO_FORK:
            from streamer.subscriptions.compile import compile_subscription
        return compile_subscription(
            subscription,
            default_tenant=self._options.default_tenant,
            topic_dialect=self._options.topic_dialect,
            limits=self._options.limits,
            programs=self._programs,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        held = [packed(each) if isinstance(each, Subscription) else each for each in self._core.given(Selection())]
        return _unpickle, (self._options, held)

    def __repr__(self) -> str:
        return f"<Engine: {len(self)} subscriptions>"


def _make_core(options: Options, programs: ProgramCache, cel_errors: ErrorLog, on_bare: OnBare, seed: int | None) -> Core:
    # Asked for when it is used, so that a test may change it; the native core may not be there to be imported.
    if _backend.BACKEND == "native":
        from streamer.native.core import NativeCore

        return NativeCore(options, programs, cel_errors, seed, on_bare)
    from streamer.reference.core import ReferenceCore

    return ReferenceCore(options, programs, cel_errors, on_bare)


def _unpickle(options: Options, held: Sequence[Any]) -> Engine:
    engine = Engine._of(options)
    engine.add_many(unpacked(*each) if isinstance(each, tuple) else each for each in held)
    return engine
