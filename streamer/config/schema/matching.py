"""How an engine matches: the shape of events, phase 1, CEL, and their limits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, final, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from streamer.bloom.options import BloomOptions
from streamer.config.schema.values import Bool, Section, Share, Whole, number, wrong_inside
from streamer.config.units import Duration, Size
from streamer.core.options import Options
from streamer.errors import ConfigError, SubscriptionError
from streamer.events import format_options
from streamer.events.format_options import Fault, Tables
from streamer.events.layout import (
    BOTH,
    MAX_TEXT_BYTES,
    MEANINGS,
    PARTS,
    EventLayout,
    FormatName,
    RecordFormat,
    faults,
    layout_of,
    unknown_format,
)
from streamer.model import MAX_CEL_DEPTH, CelEvaluator, Limits, TopicDialect
from streamer.subscriptions.filters import parse_path

_LOGGER: Final = logging.getLogger("streamer.config")
_BLOOM: Final = BloomOptions()
_LIMITS: Final = Limits()
_DEFAULTS: Final = Options(layout=EventLayout())
MICROSECOND: Final = timedelta(microseconds=1)


def as_members(layout: Any) -> Any:
    """Return a layout as a mapping; the name of a preset is short for a mapping with only this preset."""
    return {"preset": layout} if isinstance(layout, str) else layout


def _format(value: Any) -> Any:
    if value not in EventLayout.PRESETS:
        raise wrong_inside([((), unknown_format(value))])
    return value


def _layout(value: Any) -> EventLayout:
    if isinstance(value, EventLayout):
        return value
    members = as_members(value)
    if isinstance(value, str) and value in EventLayout.PRESETS:
        # Compat: before there was `format`, the name of a preset was a layout.
        _LOGGER.warning("matching.layout: %s is the name of a format: set matching.format", value)
    if problems := faults(members):
        # If the layout is the name of a preset, the error is at the layout itself.
        raise wrong_inside([(() if isinstance(value, str) else steps, reason) for steps, reason in problems])
    return EventLayout.from_dict(members)


def shown_layout(layout: EventLayout) -> dict[str, Any]:
    """Return a layout as a user would write it: the nearest preset, with the parts that differ."""
    members = layout.to_dict()
    differing: dict[str, dict[str, Any]] = {}
    for name in EventLayout.PRESETS:
        preset = EventLayout.preset(name).to_dict()
        differing[name] = {part: value for part, value in members.items() if value != preset[part]}
    nearest = min(differing, key=lambda name: len(differing[name]))
    # A mapping without a preset is based on `change`.
    return {**({} if nearest == "change" and differing[nearest] else {"preset": nearest}), **differing[nearest]}


def _tenant(name: str) -> str:
    if name in ("", "*"):
        raise PydanticCustomError("tenant", "{shown} is not a tenant; name one, or null for none", {"shown": repr(name)})
    return name


def _path_in_data(path: str) -> str:
    try:
        parse_path(path, place="")
    except SubscriptionError as error:
        raise PydanticCustomError("path", "{reason}", {"reason": error.reason}) from None
    return path


_POINTERS: Final = {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_TEXTS: Final = {
    "anyOf": [
        {"type": ["string", "null"], "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ]
}
_CONSTANT: Final = {"type": "object", "properties": {"constant": {"type": ["string", "integer"]}}, "required": ["constant"]}
_LAYOUT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"enum": list(EventLayout.PRESETS)},
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "preset": {"enum": list(EventLayout.PRESETS), "default": "change"},
                **{part: {"anyOf": [*_POINTERS["anyOf"], _CONSTANT]} for part in PARTS},
                "type_map": {"type": ["object", "null"], "additionalProperties": {"enum": list(MEANINGS)}},
                "ts_format": {"enum": ["ms", "us", "ns", "s", "rfc3339"], "default": "ms"},
                "before_holds": {"enum": ["all", "partial", "changed"], "default": "all"},
                "envelope": _POINTERS,
                "unknown_value": _TEXTS,
                "encoded": {"enum": ["json", None], "default": None},
                "format": {"enum": [*get_args(RecordFormat), None], "default": None},
                "whole_rows": _TEXTS,
                "added_prefix": {"type": "string", "minLength": 1, "default": "__"},
                "no_change": {"enum": ["match", "ignore"], "default": "match"},
            },
        },
    ]
}
LAYOUT_MEMBERS: Final = (
    "preset",
    *PARTS,
    "type_map",
    "ts_format",
    "no_change",
    "before_holds",
    "envelope",
    "unknown_value",
    "encoded",
    "format",
    "whole_rows",
    "added_prefix",
)
Format: TypeAlias = Annotated[FormatName, PlainValidator(_format), WithJsonSchema({"enum": list(EventLayout.PRESETS)})]
_IDENTITY: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"identity": {"enum": list(format_options.IDENTITIES)}},
    "required": ["identity"],
}
_OPTIONS_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "propertyNames": {"enum": list(format_options.FORMATS)},
    "additionalProperties": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "tables": {
                "type": "object",
                "propertyNames": {"minLength": 1, "maxLength": MAX_TEXT_BYTES},
                "additionalProperties": _IDENTITY,
            },
            "table": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT_BYTES},
            "prefix": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT_BYTES},
        },
    },
}
FormatOptions: TypeAlias = Annotated[dict[str, Any], PlainValidator(lambda value: value), WithJsonSchema(_OPTIONS_SCHEMA)]
Layout: TypeAlias = Annotated[
    EventLayout, PlainValidator(_layout), PlainSerializer(shown_layout, when_used="json"), WithJsonSchema(_LAYOUT_SCHEMA)
]


@final
class Bloom(Section):
    """Phase 1: can an event match anything of its collection at all? Zero false negatives with all settings."""

    enabled: Bool = _BLOOM.enabled
    """Whether the filters are queried first. Matches are the same either way."""
    fp_rate: Share = _BLOOM.fp_rate
    """Share of events without any subscribed key that may pass nevertheless, from 0 to 1."""
    initial_capacity: Whole = _BLOOM.initial_capacity
    """Least number of keys that a new filter has room for."""
    rebuild_interval: Duration | None = _BLOOM.rebuild_interval
    """Age at which a filter is rebuilt in any state; null for never."""
    rebuild_fp_threshold: Share | None = _BLOOM.rebuild_fp_threshold
    """Measured share, like `fp_rate`, from which a filter is rebuilt; null for twice `fp_rate`."""
    rebuild_cooldown: Duration = _BLOOM.rebuild_cooldown
    """Shortest time between two rebuilds of one filter for its measured share."""

    @model_validator(mode="after")
    def _as_an_engine_takes_it(self) -> Bloom:
        try:
            self.options()
        except ConfigError as error:
            raise wrong_inside([((error.place.removeprefix("bloom."),), error.reason)]) from None
        return self

    def options(self) -> BloomOptions:
        """Return the options of the engine."""
        return BloomOptions(**{name: getattr(self, name) for name in type(self).model_fields})


@final
class Cel(Section):
    """Phase 2b: CEL expressions."""

    evaluator: CelEvaluator = "native"
    """The evaluator of subscriptions without `cel_evaluator`: the engine itself, or cel-python (docs/cel.md)."""
    cache_size: Whole = 10_000
    """Compiled programs that are kept for reuse."""
    evaluation_timeout: Duration = _LIMITS.evaluation_timeout_us * MICROSECOND
    """The budget of one evaluation, in cost units, ten to a microsecond: equal on every machine (semantics.md 4.18). For
    cel-python it also limits the processor's time."""

    @field_validator("evaluation_timeout")
    @classmethod
    def _as_limits_take_it(cls, timeout: timedelta) -> timedelta:
        try:
            Limits(evaluation_timeout_us=timeout // MICROSECOND)
        except ConfigError as error:
            raise PydanticCustomError("timeout", "{reason} microseconds", {"reason": error.reason}) from None
        return timeout


@final
class LimitsSection(Section):
    """Limits of a subscription or an event. Beyond them it is refused with an error that names the limit."""

    max_depth: Whole = _LIMITS.max_depth
    """Levels of objects and lists in an event."""
    max_event_bytes: Size = _LIMITS.max_event_bytes
    """Length of an event."""
    max_subscription_bytes: Size = _LIMITS.max_subscription_bytes
    """Length of the JSON text of a subscription; labels of one that is given as an object are left out."""
    max_conditions: Whole = _LIMITS.max_conditions
    """Filters and fields of the pattern of one subscription."""
    max_alternatives: Whole = _LIMITS.max_alternatives
    """Values in lists of `in` and `not in`, in arrays of the pattern and in lists of `anything-but` of one subscription."""
    max_pattern_states: Whole = _LIMITS.max_pattern_states
    """States of the automata of one pattern."""
    max_regexp_size: Whole = _LIMITS.max_regexp_size
    """Size of a regexp of a filter or a pattern, which is searched in texts of up to 16 MB divided by it."""
    max_conjunctions: Whole = _LIMITS.max_conjunctions
    """Alternatives that a subscription is expanded to; beyond them it is evaluated as written."""
    max_cel_bytes: Size = _LIMITS.max_cel_bytes
    """Length of a CEL expression."""
    max_cel_depth: Annotated[int, Field(ge=1, le=MAX_CEL_DEPTH), BeforeValidator(number)] = _LIMITS.max_cel_depth
    """Levels of brackets, calls and similar in a CEL expression."""
    allow_unindexed: Bool = _LIMITS.allow_unindexed
    """Whether subscriptions without any indexable condition are accepted. They may be about any event."""


@final
class Matching(Section):
    """How events are read and matched."""

    format: Format | None = None
    """The wire format of events (docs/sources.md); null without `layout` means `change`."""
    format_options: FormatOptions | None = None
    """Tables whose updates and deletes have all columns: `{debezium: {tables: {shop.orders: {identity: full}}}}`; the `table` and
    the `prefix` of rows of `debezium_unwrapped`. Of `format`, or of the formats of sources."""
    layout: Layout | None = None
    """The layout of events of another shape: a mapping of parts to JSON Pointers (docs/engine.md)."""
    default_tenant: Annotated[str, AfterValidator(_tenant)] | None = "default"
    """Tenant of events and subscriptions without one; null makes a missing tenant an error."""
    topic_dialect: TopicDialect = "amqp"
    """Dialect of topic patterns of subscriptions without one: words at `.` as AMQP, levels at `/` as MQTT, tokens as NATS."""
    validation: Literal["full", "lazy"] = "full"
    """`full` checks the whole of each event, `lazy` only the parts that are read."""
    soft_delete: Annotated[str, AfterValidator(_path_in_data)] | None = None
    """Dotted path in `data` of the field that flags a document as deleted."""
    batch_size: Whole | None = _DEFAULTS.batch_size
    """Most events matched at once; null for a good size: 100 lines of a stream, or 2,000 for each of several threads, on Spark as
    many as give about 65,536 matches."""
    threads: Whole = _DEFAULTS.threads
    """Threads that match the events of a batch, of lines and of Arrow arrays, if a call does not set them."""
    bloom: Bloom = Field(default_factory=Bloom)
    cel: Cel = Field(default_factory=Cel)
    limits: LimitsSection = Field(default_factory=LimitsSection)

    @model_validator(mode="after")
    def _describes_events_once(self) -> Self:
        if self.format is not None and self.layout is not None:
            raise wrong_inside([(("layout",), BOTH)])
        return self

    def faults_of_options(self, sources: Iterable[str]) -> Iterator[Fault]:
        """Yield the faults of `format_options`, each with the names that lead to it; *sources* are the formats of sources."""
        if self.format_options is not None:
            names = (*sources,) if self.format is None and self.layout is None else (self.format,)
            yield from format_options.faults(self.format_options, names or (None,))

    def tables_of(self, format: str) -> Tables:  # noqa: A002
        """Return what `format_options` declares about the tables of the sources of a format."""
        return format_options.tables_of((self.format_options or {}).get(format, {}))

    @property
    def event_layout(self) -> EventLayout:
        """The layout that `format` or `layout` describes. Without them the options are those of the sources' formats."""
        if self.format is None:
            return layout_of(None, self.layout)
        return format_options.with_options(layout_of(self.format, self.layout), self.format, self.format_options)
