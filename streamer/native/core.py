"""The core of the native backend: subscriptions and index are in native memory; Python does only what Rust cannot.

```
sources ──► Draft (parsed, CEL compiled) ──► commit: the next version
event   ──► flatten, index, CEL, sides, unknowns ──► numbers of the subscriptions that match, packed hits
```

Methods that match an event come from `streamer._native.Core`, so no Python code runs between an event and its matches.
"""

from __future__ import annotations

import itertools
import json
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar, final

from streamer import _native
from streamer.cdc.stream import message_of
from streamer.cel_eval.cache import ProgramCache, ProgramCounts
from streamer.cel_eval.errors import ErrorLog
from streamer.cel_eval.registered import Functions
from streamer.cel_eval.values import CelReason
from streamer.core import arrow
from streamer.core.arrow import ArrowMatches
from streamer.core.options import Options
from streamer.core.protocol import Changes, Mode, OnBare, Selection, Source, StoredForm
from streamer.errors import BulkSubscriptionError, CelError, ConfigError, EventCode, EventError, SubscriptionError
from streamer.events.layout import EventLayout
from streamer.events.reading import Default, EventSource, as_before, check_names, encode, json_value, kind_of
from streamer.locks import NO_FORK
from streamer.model import Event, Verdict, is_unicode
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import EVERY, Subscription
from streamer.subscriptions.text import canonical_text, check_length, event_text, exact_text, labels_text, partial_text
from streamer.subscriptions.values import private_copy, same_subscription
from streamer.telemetry import Distribution, Telemetry

if TYPE_CHECKING:
    import pyarrow as pa

    from streamer._native import _Examined
    from streamer.bloom.portable import PortableBloomFilter
    from streamer.bloom.shipping import Gathered
    from streamer.cel_eval.program import Program
    from streamer.core.lint import Examined, Finding
    from streamer.core.plan import Plan
    from streamer.core.snapshot import Head
    from streamer.subscriptions.compile import CompiledSubscription

#: The number of sources that are parsed in one call, with the GIL released.
CHUNK: Final = 4096
#: The most entries, and the most bytes of their keys, in the cache of compiled subscriptions and in that of labels. A full
#: cache is cleared.
COMPILED: Final = 20_000
COMPILED_BYTES: Final = 8 << 20
V = TypeVar("V")
Answer: TypeAlias = tuple[Any, Any, BaseException | None]
"""A value that was passed to `default`, and what `default` returned or raised."""


@final
class Sides:
    """An event for the portable evaluator, with the event before the change. Each is read once for all programs."""

    __slots__ = ("_layout", "_old", "new")

    def __init__(self, new: Event, layout: EventLayout) -> None:
        self.new = new
        self._layout = layout
        self._old: Event | None = None

    @property
    def old(self) -> Event:
        """The event before the change."""
        if self._old is None:
            self._old = as_before(self.new, self._layout)
        return self._old


@final
class Recent(Generic[V]):
    """A cache of values made from subscriptions. It may still contain subscriptions that were removed from the engine."""

    def __init__(self) -> None:
        self.made: dict[bytes | int, V] = {}
        self._bytes = 0

    def keep(self, key: bytes | int, made: V) -> V:
        """Store a value under *key* and return it."""
        length = len(key) if isinstance(key, bytes) else 0
        if len(self.made) >= COMPILED or self._bytes + length > COMPILED_BYTES:
            # Replace the dict instead of clearing it: another thread may still read the old one.
            self.made, self._bytes = {}, 0
        self.made[key] = made
        self._bytes += length
        return made


@final
class Host:
    """The Python functions that the core calls: to encode Python objects, log CEL errors, read labels, and run portable CEL.

    The host has no reference to the core, so the two form no reference cycle.
    """

    def __init__(self, options: Options, programs: ProgramCache, cel_errors: ErrorLog, on_bare: OnBare | None = None) -> None:
        self.options = options
        self._on_bare: Final = on_bare
        self._programs: Final = programs
        self._cel_errors: Final = cel_errors
        self._compiled: Final[Recent[CompiledSubscription]] = Recent()
        self._labels: Final[Recent[Mapping[str, Any] | None]] = Recent()

    @property
    def default(self) -> Default | None:
        """The function that turns other objects in an event into JSON values, if there is one."""
        return self.options.default

    def check_names(self, tenant: str | None, collection: str | None) -> None:
        """Raise TypeError or EventError if a tenant or a collection is not a valid name."""
        check_names(tenant, collection)

    def encode(self, event: EventSource, answers: Sequence[Answer] = ()) -> bytes:
        """Return an event as JSON text.

        Args:
            answers: the earlier results of `default` for the first values that it converts in this event.

        Raises:
            EventError: the event cannot be encoded.
        """
        if event is None:
            return b"null"
        if self.options.stream is not None:
            return message_of(event)
        if isinstance(event, str):
            return encode(event)
        if isinstance(event, bytes | bytearray | memoryview):
            return bytes(event)
        default = _going_on(answers, self.default) if answers else self.default
        value = json_value(event, default=default, limits=self.options.limits)
        if not isinstance(value, dict):
            raise EventError(EventCode.NOT_AN_OBJECT, f"an event is a JSON object, not {kind_of(value)}")
        return event_text(value, self.options.limits.max_depth)

    @property
    def functions(self) -> Functions:
        """The functions in Python that programs may call."""
        return self._programs.functions

    def cel_error(self, subscription_id: str | None, reason: str, detail: str, errors: int) -> None:
        """Log an error of CEL, which the core has counted."""
        self._cel_errors.log(subscription_id, CelReason(reason), detail, errors)

    def bare(self, text: bytes) -> None:
        """Report the first event in which the layout finds no field."""
        if self._on_bare is not None:
            self._on_bare(text)

    def read(self, text: bytes, tenant: str | None, collection: str | None) -> Sides:
        """Read an event for `verdict`."""
        return Sides(self.options.read_change(text, tenant, collection), self.options.layout)

    def verdict(self, compiled: CompiledSubscription, event: Sides, is_old: bool) -> str:
        """Return the verdict of the CEL part of a subscription for the event after or, with *is_old*, before the change."""
        if compiled.cel is None:
            return Verdict.TRUE.value
        from streamer.cel_eval.program import evaluate_cel

        outcome = evaluate_cel(compiled.cel, event.old if is_old else event.new, self.options.limits.cel_budget)
        if outcome.reason is not None:
            self._cel_errors.record(compiled.id, outcome.reason, outcome.detail)
        return outcome.verdict.value

    def explained(self, error: SubscriptionError) -> SubscriptionError:
        """Return an error of the core, with the details that only Python can add."""
        return self._programs.explained(error) if isinstance(error, CelError) else error

    def labels(self, stored: StoredForm) -> Mapping[str, Any] | None:
        """Return the labels of a subscription."""
        if isinstance(stored, Subscription):
            return stored.labels
        known = self._labels.made
        return known[stored] if stored in known else self._labels.keep(stored, parse_subscription(stored).labels)

    def labels_text(self, stored: StoredForm) -> str | None:
        """Return the labels of a subscription as JSON text for lines and messages; None without labels. Raises ValueError."""
        labels = self.labels(stored)
        return None if labels is None else labels_text(labels)

    def compiled(self, stored: StoredForm) -> CompiledSubscription:
        """Return the compiled form of a stored subscription."""
        # A subscription cannot be hashed. Its id() stays valid, because the compiled form keeps the object alive.
        key = stored if isinstance(stored, bytes) else id(stored)
        known = self._compiled.made.get(key)
        if known is None or (known.subscription is not stored and not isinstance(stored, bytes)):
            known = self._compiled.keep(key, self.compile(stored))
        return known

    def compile(self, source: Source) -> CompiledSubscription:
        """Check and compile a subscription. Raises SubscriptionError."""
        with NO_FORK:
            from streamer.subscriptions.compile import compile_subscription
        options = self.options
        return compile_subscription(
            source,
            default_tenant=options.default_tenant,
            topic_dialect=options.topic_dialect,
            limits=options.limits,
            programs=self._programs,
        )


@final
class NativeCore(_native.Core):
    """The core of the native backend; see `streamer.core.protocol.Core` for what each method does.

    Thread-safe: readers use no lock, and writers run one at a time. A writer runs no Python code while it has the lock, so a
    signal handler or finalizer that writes runs before or after it, and so does a fork.
    """

    _options: Options
    _host: Host

    def __new__(
        cls,
        options: Options,
        programs: ProgramCache,
        cel_errors: ErrorLog,
        seed: int | None = None,
        on_bare: OnBare | None = None,
    ) -> Self:
        host = Host(options, programs, cel_errors, on_bare)
        try:
            core = super().__new__(
                cls,
                host,
                json.dumps(options.layout.to_dict()).encode(),
                default_tenant=options.default_tenant,
                topic_dialect=options.topic_dialect,
                lazy=options.validation == "lazy",
                soft_delete=_soft_delete(options),
                max_depth=options.limits.max_depth,
                max_event_bytes=options.limits.max_event_bytes,
                max_subscription_bytes=options.limits.max_subscription_bytes,
                max_conditions=options.limits.max_conditions,
                max_alternatives=options.limits.max_alternatives,
                max_pattern_states=options.limits.max_pattern_states,
                max_regexp_size=options.limits.max_regexp_size,
                max_conjunctions=options.limits.max_conjunctions,
                max_cel_bytes=options.limits.max_cel_bytes,
                max_cel_depth=options.limits.max_cel_depth,
                cel_budget=options.limits.cel_budget,
                cache_size=programs.size,
                allow_unindexed=options.limits.allow_unindexed,
                bloom=_phase1(options),
                portable=options.cel_evaluator == "portable",
                seed=seed,
                stream=None if options.stream is None else options.stream.native(),
            )
        except ValueError as error:
            raise ConfigError(str(error), place="layout") from None
        core._options = options
        core._host = host
        # A weak reference, because the core refers to its host, which refers to the log.
        this = weakref.ref(core)
        cel_errors.also(this)
        programs.also(lambda: core.programs() if (core := this()) is not None else ProgramCounts())
        return core

    def reconfigure(self, options: Options) -> None:
        self._options = self._host.options = options
        self.set_cel(options.limits.cel_budget, options.cache_size)
        self.set_bloom(_phase1(options))

    # Writing

    def write(
        self, sources: Iterable[Source | SubscriptionError], mode: Mode, *, skip: bool = False, among: Set[str] | None = None
    ) -> Changes:
        draft = self.draft()
        errors = self._fill(draft, sources)
        if mode == "apply":
            self._keep_same(draft)
        changes = self.commit(draft, mode, skip, among)
        refused = []
        for position, error in changes["errors"]:
            error = errors.get(position) or self._host.explained(error)
            error.index = position
            refused.append(error)
        if refused and not skip:
            raise BulkSubscriptionError(refused)
        return Changes(
            added=tuple(changes["added"]),
            replaced=tuple(changes["replaced"]),
            removed=tuple(changes["removed"]),
            unchanged=tuple(changes["unchanged"]),
            errors=tuple(refused),
        )

    def open_snapshot(self, head: Head, names: Set[tuple[str, str]] | None, *, at_once: bool = False) -> None:
        if head.is_portable:
            # Portable programs must be compiled to find the fields that they read and the functions that they call.
            from streamer.core.snapshot import read_named

            self.write(read_named(head.path, names), "add")
            return
        self.open(head.path, head.checksum, None if names is None else set(names))
        if at_once:
            self.open_sections()

    @property
    def image_kind(self) -> int:
        return _native.IMAGES

    def canonical(self, stored: StoredForm) -> tuple[str, str, bytes]:
        default_tenant = self._options.default_tenant
        written = _native.canonical(stored) if isinstance(stored, bytes) else None
        if written is None:
            return canonical_text(stored, default_tenant)
        tenant, collection, text = written
        return tenant or str(default_tenant), collection or EVERY, text

    def remove(self, selection: Selection) -> Changes:
        return Changes(removed=tuple(self.discard(*_criteria(selection))))

    def _fill(self, draft: _native.Draft, sources: Iterable[Source | SubscriptionError]) -> dict[int, SubscriptionError]:
        """Parse sources into the draft and return the errors found in Python, by position. The engine is not changed."""
        errors: dict[int, SubscriptionError] = {}

        def refuse(position: int, error: SubscriptionError) -> None:
            # Drop the traceback: with a million bad sources, it would keep the frames of each alive.
            errors[position] = error.with_traceback(None)
            # The core compares the id with those of other subscriptions, which are all valid Unicode.
            id_ = error.subscription_id
            draft.refuse(position, id_ if id_ is not None and is_unicode(id_) else None)

        def extend(texts: list[Any]) -> None:
            for position in draft.extend(texts):
                source = draft.source(position)
                if source is None:
                    continue
                try:
                    compiled = self._host.compile(source)
                    draft.external(position, compiled.mentions_before, compiled.cel and _narrowing(compiled.cel))
                except SubscriptionError as error:
                    refuse(position, error)

        chunks = iter(sources)
        first = 0
        while chunk := list(itertools.islice(chunks, CHUNK)):
            if set(map(type, chunk)) == {bytes}:
                # Fast path: the core parses the chunk without Python code for each source.
                extend(chunk)
            else:
                texts = []
                for position, source in enumerate(chunk, first):
                    try:
                        texts.append(self._text(source))
                    except SubscriptionError as error:
                        extend(texts)
                        texts = []
                        refuse(position, error)
                extend(texts)
            first += len(chunk)
        return errors

    def _text(self, source: Source | SubscriptionError) -> bytes | tuple[bytes, bytes, Subscription]:
        """Return the JSON text of a source; if JSON cannot express it in full, also a unique name and the object itself."""
        if isinstance(source, SubscriptionError):
            raise source
        most = self._options.limits.max_subscription_bytes
        if isinstance(source, str):
            # The parser reports a lone surrogate.
            return source.encode("utf-8", "surrogatepass")
        if isinstance(source, bytes | bytearray):
            return bytes(source)
        if type(source) in (Subscription, dict) and (text := exact_text(source, most, _native.plain_json)) is not None:
            # The parser reports errors in it.
            return text
        subscription = private_copy(parse_subscription(source, default=self._options.default))
        if (text := exact_text(subscription, most, _native.plain_json)) is not None:
            return text
        check_length(subscription, self._options.limits)
        # It is invalid, or valid but beyond plain JSON: a pattern of bytes, long labels, integers beyond 64 bits.
        self._host.compile(subscription)
        try:
            text = partial_text(subscription, most)
        except ValueError as error:
            raise SubscriptionError(str(error), subscription_id=subscription.id) from None
        # JSON never begins with a zero byte. The number distinguishes subscriptions that differ only in their labels.
        return text, b"\0%d" % next(_names), subscription

    def _keep_same(self, draft: _native.Draft) -> None:
        """Keep the stored subscription if the new one differs from it only in spelling."""
        for position, stored, name in draft.held_otherwise():
            source = draft.source(position)
            if source is not None and same_subscription(_subscription(stored), _subscription(source)):
                draft.keep(position, name)

    # Reading

    def get(self, subscription_id: str) -> Subscription | None:
        source = self.source(subscription_id)
        return None if source is None else _subscription(source)

    def compiled(self, subscription_id: str) -> CompiledSubscription | None:
        # A cache of these objects would need many times the memory of the core.
        source = self.source(subscription_id)
        return None if source is None else self._host.compile(source)

    def select(self, selection: Selection) -> list[Subscription]:
        return [_subscription(source) for _, source in self.sources(*_criteria(selection))]

    def ids(self, selection: Selection) -> list[str]:
        return [subscription_id for subscription_id, _ in self.sources(*_criteria(selection))]

    def stored_forms(self, selection: Selection) -> list[StoredForm]:
        return [source for _, source in self.sources(*_criteria(selection))]

    # Arrow

    def match_arrow(
        self,
        arrays: Sequence[pa.Array],
        tenant: str | None,
        collection: str | None,
        threads: int,
        max_matches: int | None = None,
    ) -> ArrowMatches:
        columns = arrow.lend(arrays)
        result = self.match_columns(columns, tenant, collection, threads, arrow.TEXT_LIMIT, max_matches)
        return ArrowMatches(
            *arrow.make_batches(
                (arrow.MATCHES, result.matches),
                (arrow.EVENTS, result.events),
                (arrow.REJECTED, result.rejected),
                (arrow.IGNORED, result.ignored),
            )
        )

    def locate_arrow(
        self, arrays: Sequence[pa.Array], tenant: str | None, collection: str | None, threads: int
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        columns = arrow.lend(arrays)
        result = self.locate_columns(columns, tenant, collection, threads, arrow.TEXT_LIMIT)
        located, refused = arrow.make_batches((arrow.EVENTS, result.events), (arrow.REJECTED, result.rejected))
        return located, refused

    # Phase 1

    def gather_keys(self, partitions: Sequence[tuple[str, str]]) -> Gathered:
        from streamer.bloom.shipping import Gathered, places_from_json

        keys = self.gathered(list(dict.fromkeys(partitions)))

        def fill(bits: PortableBloomFilter) -> None:
            bits.count += keys.fill(bits.bitarray, bits.num_slices, bits.bits_per_slice)

        return Gathered(
            count=len(keys),
            places=frozenset(places_from_json(keys.places)),
            unkeyed=keys.unkeyed,
            transitions=keys.transitions,
            unknown_passes=keys.unknown_passes,
            fill=fill,
        )

    def telemetry(self) -> Telemetry:
        counters = self.counters()
        return Telemetry(
            ignored=counters["ignored"],
            bare=counters["bare"],
            rejected=counters["rejected"],
            matches_by_event=_distribution(*counters["matches"]),
            uncertain=counters["uncertain"],
            candidates_by_event=_distribution(*counters["candidates"]),
            merges=counters["merges"],
            total=_distribution(*counters["total"]),
            bloom=_distribution(*counters["bloom"]),
            cel=_distribution(*counters["cel"]),
            subscriptions=len(self),
            partitions=counters["partitions"],
            segments=counters["segments"],
            subscription_bytes=counters["store_bytes"],
            index_bytes=counters["index_bytes"],
            record_bytes=counters["record_bytes"],
            text_bytes=counters["text_bytes"],
        )

    def lint(self) -> list[Finding]:
        with NO_FORK:
            from streamer.core.lint import findings_of
        examined = map(self._examined, self.ids(Selection()))
        return findings_of(each for each in examined if each is not None)

    def _examined(self, subscription_id: str) -> Examined | None:
        with NO_FORK:
            from streamer.core.lint import FindingCode, remarked
            from streamer.subscriptions.impossible import impossible
            from streamer.subscriptions.normal_form import normal_form
        description = self.lint_in_words(subscription_id)
        remarks: tuple[tuple[str, str], ...] = ()
        if description is None or not (description["is_portable"] or description["is_suspect"]):
            return None if description is None else _as_examined(subscription_id, description, description["findings"])
        source = self.source(subscription_id)
        compiled = None if source is None else self._host.compiled(source)
        program = None if compiled is None else compiled.cel
        if compiled is None or (program is None and not compiled.groups):
            # Another thread has removed the subscription.
            return None
        if program is not None and description["is_portable"]:
            with NO_FORK:
                from streamer.cel_eval.program import constant_verdict
            constant = constant_verdict(program, self._options.limits.cel_budget)
            description = self.lint_in_words(subscription_id, _narrowing(program), None if constant is None else constant.value)
            remarks = remarked(program.remarks)
        findings = [*description["findings"], *remarks] if description is not None else []
        if description is None or not description["is_suspect"] or any(code == FindingCode.NEVER_MATCHES for code, _ in findings):
            return None if description is None else _as_examined(subscription_id, description, findings)
        limits = self._options.limits
        if (reason := impossible(compiled, normal_form(compiled, limits), limits)) is not None:
            # Drop the other findings, for example that it always matches: they do not apply if it never matches.
            about_cel = (FindingCode.LITERAL_COMPARISON, FindingCode.SPELLED_ARITHMETIC)
            findings = [(FindingCode.NEVER_MATCHES.value, reason), *(each for each in findings if each[0] in about_cel)]
        return _as_examined(subscription_id, description, findings)

    def plan(self, subscription_id: str) -> Plan | None:
        with NO_FORK:
            from streamer.native.plan import as_plan
        description = self.plan_in_words(subscription_id)
        if description is None or not (description["is_portable"] or description["open_groups"]):
            return None if description is None else as_plan(subscription_id, description)
        source = self.source(subscription_id)
        compiled = None if source is None else self._host.compiled(source)
        if compiled is None:
            return None
        groups = [group.in_words() for group in compiled.groups]
        if not description["is_portable"]:
            return as_plan(subscription_id, description, groups=groups)
        program = compiled.cel
        # Another thread may have removed the subscription.
        description = None if program is None else self.plan_in_words(subscription_id, _narrowing(program))
        return None if description is None or program is None else as_plan(subscription_id, description, program.source, groups)


def _as_examined(subscription_id: str, description: _Examined, findings: Sequence[tuple[str, str]]) -> Examined:
    with NO_FORK:
        from streamer.core.lint import Examined
    return Examined(subscription_id, tuple(findings), description["identity"], description["partition"], description["found_by"])


def _going_on(answers: Sequence[Answer], default: Default | None) -> Default:
    """Return a `default` that replays its earlier results and calls *default* only for later values."""
    remaining = list(reversed(answers))

    def answer(value: Any) -> Any:
        if remaining and remaining[-1][0] is value:
            _, made, error = remaining.pop()
            if error is not None:
                raise error
            return made
        assert default is not None
        return default(value)

    return answer


def _phase1(options: Options) -> tuple[float, int] | None:
    bloom = options.bloom
    return (bloom.fp_rate, bloom.initial_capacity) if bloom.enabled else None


def _soft_delete(options: Options) -> tuple[str, ...] | None:
    if options.soft_delete is None:
        return None
    from streamer.subscriptions.filters import parse_path

    return parse_path(options.soft_delete, place="soft_delete")


def _narrowing(program: Program) -> str | None:
    with NO_FORK:
        from streamer.cel_eval.narrowing import narrowing
    return narrowing(program)


def _distribution(counts: list[int], total: int) -> Distribution:
    return Distribution(tuple(counts), total)


def _subscription(stored: StoredForm) -> Subscription:
    return parse_subscription(stored) if isinstance(stored, bytes) else stored


def _criteria(selection: Selection) -> tuple[list[str] | None, str | None, str | None, str | None]:
    ids = None if selection.ids is None else list(selection.ids)
    return ids, selection.gateway_id, selection.tenant, selection.collection


_names = itertools.count()

if hasattr(os, "register_at_fork"):
    # These are native functions, so no signal handler can run before them.
    os.register_at_fork(
        before=_native.before_fork, after_in_parent=_native.after_fork, after_in_child=_native.after_fork_in_child
    )
