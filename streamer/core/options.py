"""The options for reading and evaluating events, checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, final, get_args

from streamer.bloom.options import BloomOptions
from streamer.cdc.changes import read_change, read_events
from streamer.cdc.stream import Stream
from streamer.cel_eval.registered import Functions
from streamer.errors import ConfigError, SubscriptionError
from streamer.events.format_options import with_options
from streamer.events.layout import EventLayout, FormatName, layout_of
from streamer.events.reading import EventSource
from streamer.model import INT64_MAX, CelEvaluator, Event, Limits, TopicDialect, is_unicode


class _WithStream:
    """Keeps the state of an engine's stream next to its options. A copy of the options begins a stream of its own."""

    __slots__ = ("_stream",)
    _stream: Stream | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Options(_WithStream):
    """The options of an engine for a core; `Engine` documents each, and `checked` reads the user's values."""

    layout: EventLayout
    default_tenant: str | None = "default"
    topic_dialect: TopicDialect = "amqp"
    validation: Literal["full", "lazy"] = "full"
    limits: Limits = field(default_factory=Limits)
    soft_delete: str | None = None
    cache_size: int = 10_000
    bloom: BloomOptions = field(default_factory=BloomOptions)
    batch_size: int | None = None
    threads: int = 1
    default: Callable[[Any], Any] | None = None
    cel_evaluator: CelEvaluator = "native"
    cel_functions: Functions = field(default_factory=Functions)

    @property
    def stream(self) -> Stream | None:
        """The reader of events that are messages, each of which needs those before it; None for other formats."""
        try:
            return self._stream
        except AttributeError:
            made = Stream(self.limits.max_event_bytes) if self.layout.format == "pgoutput" else None
            object.__setattr__(self, "_stream", made)
            return made

    def changed(self, **options: Any) -> Self:
        """Return these options with others in their place, for the same engine and its stream."""
        made = replace(self, **options)
        object.__setattr__(made, "_stream", self.stream)
        return made

    @classmethod
    def checked(
        cls,
        *,
        format: FormatName | None = None,  # noqa: A002
        layout: EventLayout | Mapping[str, Any] | None = None,
        format_options: Mapping[str, Any] | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        bloom: BloomOptions | Mapping[str, Any] | None = None,
        cel_functions: Mapping[str, Callable[..., Any]] | None = None,
        **others: Any,
    ) -> Self:
        """Return options from the arguments of `Engine`. Raises ConfigError for an invalid one."""
        if limits is None:
            limits = Limits()
        elif not isinstance(limits, Limits):
            limits = Limits.from_dict(limits)
        if bloom is None:
            bloom = BloomOptions()
        elif not isinstance(bloom, BloomOptions):
            bloom = BloomOptions.from_dict(bloom)
        options = cls(
            layout=with_options(layout_of(format, layout), format, format_options),
            limits=limits,
            bloom=bloom,
            cel_functions=cel_functions if isinstance(cel_functions, Functions) else Functions(cel_functions),
            **others,
        )
        options._check_choices()
        options._check_tenant()
        options._check_soft_delete()
        options._check_numbers()
        return options

    def _check_choices(self) -> None:
        if self.validation not in ("full", "lazy"):
            raise ConfigError(f"expected 'full' or 'lazy', not {self.validation!r}", place="validation")
        if self.topic_dialect not in get_args(TopicDialect):
            raise ConfigError(f"expected 'amqp', 'mqtt' or 'nats', not {self.topic_dialect!r}", place="topic_dialect")
        if self.cel_evaluator not in get_args(CelEvaluator):
            raise ConfigError(f"expected 'native' or 'portable', not {self.cel_evaluator!r}", place="cel_evaluator")
        if self.default is not None and not callable(self.default):
            raise ConfigError(f"expected a function, not {type(self.default).__name__}", place="default")

    def _check_tenant(self) -> None:
        if self.default_tenant is None:
            return
        _check_type("default_tenant", self.default_tenant, str)
        if self.default_tenant in ("", "*"):
            raise ConfigError(f"{self.default_tenant!r} is not a tenant; name one, or None for none", place="default_tenant")

    def _check_soft_delete(self) -> None:
        if self.soft_delete is None:
            return
        from streamer.subscriptions.filters import parse_path

        _check_type("soft_delete", self.soft_delete, str)
        try:
            parse_path(self.soft_delete, place="soft_delete")
        except SubscriptionError as error:
            raise ConfigError(error.reason, place="soft_delete") from None

    def _check_numbers(self) -> None:
        for name in ("cache_size", "threads", "batch_size"):
            number = getattr(self, name)
            if name == "batch_size" and number is None:
                continue
            _check_type(name, number, int)
            if number < 1:
                raise ConfigError(f"expected at least 1, not {number}", place=name)
            if number > INT64_MAX:
                raise ConfigError(f"expected at most {INT64_MAX}, not {number}", place=name)

    def read(self, event: EventSource, tenant: str | None, collection: str | None) -> Event:
        """Return the parts of an event as an engine with these options reads it; of a record with several changes, the first.

        Raises:
            EventError: the event cannot be read.
            IgnoredEvent: the event is ignored.
        """
        return self.read_all(event, tenant, collection)[0]

    def read_change(self, change: bytes, tenant: str | None, collection: str | None) -> Event:
        """Return the parts of an event that a core has read of a record."""
        if not self.layout.has_changes:
            return self.read(change, tenant, collection)
        names = {"default_tenant": self.default_tenant, "tenant": tenant, "collection": collection}
        return read_change(change, layout=self.layout, limits=self.limits, **names)

    def read_all(self, event: EventSource, tenant: str | None, collection: str | None) -> list[Event]:
        """Return the events in a record, at least one; see `read`."""
        return read_events(
            event,
            layout=self.layout,
            default_tenant=self.default_tenant,
            limits=self.limits,
            tenant=tenant,
            collection=collection,
            default=self.default,
            stream=self.stream,
        )


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ConfigError(f"expected {kind.__name__}, not {type(value).__name__}", place=name)
    if isinstance(value, str) and not is_unicode(value):
        raise ConfigError("half of a surrogate pair", place=name)
