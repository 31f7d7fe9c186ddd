"""What a configuration holds: the one tree of sections, each field with its unit, default and bounds.

```
Config ─┬─ matching ─┬─ bloom    phase 1
        │            ├─ cel      phase 2b
        │            └─ limits   what subscriptions and events may cost
        ├─ subscriptions
        ├─ sources ─── NAME: what `type` makes of it ─┐
        ├─ sinks ───── NAME: what `type` makes of it ─┤
        ├─ routes      which sink gets what           ├─ the service
        ├─ delivery                                   │
        ├─ service                                    │
        ├─ api ───── tokens, tls, limits, quotas ─────┘
        ├─ metrics
        └─ logging
```

A section under a name that the user chose is one of several kinds, told apart by its `type`. A kind is here once it exists.

The docstring of a field is its text in docs/configuration.md, in the JSON Schema and so in editors. What the engine checks
itself is checked by the engine's own types (`EventLayout`, `Limits`, `BloomOptions`): a configuration that loads is one that an
engine takes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from streamer.bloom.options import BloomOptions
from streamer.config.secret import Secret, SecretValue
from streamer.config.units import Duration, Size
from streamer.config.yaml import kind_of, leading_zero, shown
from streamer.core.options import Options
from streamer.errors import ConfigError, SubscriptionError
from streamer.events.layout import MEANINGS, PARTS, EventLayout, faults
from streamer.model import INT64_MAX, MAX_CEL_DEPTH, CelEvaluator, Limits, TopicDialect
from streamer.subscriptions.filters import parse_path

_BLOOM: Final = BloomOptions()
_LIMITS: Final = Limits()
_DEFAULTS: Final = Options(layout=EventLayout())
_MICROSECOND: Final = timedelta(microseconds=1)


def _number(value: Any) -> Any:
    """Refuse for a number what is none in a file: pydantic takes true for 1, and `010` of the environment for 10."""
    if isinstance(value, bool):
        raise PydanticCustomError("number", "expected a number, not {shown}", {"shown": str(value).lower()})
    if isinstance(value, str) and (reason := leading_zero(value)) is not None:
        raise PydanticCustomError("number", "{reason}", {"reason": reason})
    return value


def _no_number(value: Any) -> Any:
    """Refuse a number for true or false; of the environment, `1` is text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise PydanticCustomError("bool", "expected true or false, not {shown}", {"shown": shown(value)})
    return value


def _wrong_inside(faults: Sequence[tuple[tuple[str | int, ...], str]]) -> PydanticCustomError:
    """Make one error of all that is wrong inside a value, each with the names that lead to it; the loader takes it apart."""
    return PydanticCustomError(
        "inside", "{reason}", {"reason": "; ".join(reason for _, reason in faults), "faults": list(faults)}
    )


def as_members(layout: Any) -> Any:
    """Return a layout as a mapping, of which the name of a preset is short for one that names nothing else."""
    return {"preset": layout} if isinstance(layout, str) else layout


def _layout(value: Any) -> EventLayout:
    if isinstance(value, EventLayout):
        return value
    members = as_members(value)
    if found := faults(members):
        # The name of a preset stands where the layout does.
        raise _wrong_inside([(() if isinstance(value, str) else steps, reason) for steps, reason in found])
    return EventLayout.from_dict(members)


def shown_layout(layout: EventLayout) -> str | dict[str, Any]:
    """Return a layout as one would write it: the name of a preset, or the nearest one and what differs from it."""
    members = layout.to_dict()
    differing: dict[str, dict[str, Any]] = {}
    for name in EventLayout.PRESETS:
        preset = EventLayout.preset(name).to_dict()
        differing[name] = {part: value for part, value in members.items() if value != preset[part]}
    nearest = min(differing, key=lambda name: len(differing[name]))
    if not differing[nearest]:
        return nearest
    # A mapping that names no preset is one over `change`.
    return {**({} if nearest == "change" else {"preset": nearest}), **differing[nearest]}


def _tenant(name: str) -> str:
    if name in ("", "*"):
        raise PydanticCustomError("tenant", "{shown} is no tenant; name one, or null for none", {"shown": repr(name)})
    return name


def _path_in_data(path: str) -> str:
    try:
        parse_path(path, place="")
    except SubscriptionError as error:
        raise PydanticCustomError("path", "{reason}", {"reason": error.reason}) from None
    return path


def _files(value: Any) -> Any:
    """Take one path for a list of it, as `STREAMER_SUBSCRIPTIONS=a.jsonl` says it, and nothing for none."""
    if isinstance(value, str | os.PathLike):
        return [value]
    if value is not None and not isinstance(value, list | tuple):
        raise PydanticCustomError("files", "expected the path of a file, or a list of them, not {kind}", {"kind": kind_of(value)})
    return value or ()


def _named(value: Any) -> Any:
    """Take nothing, as where every line of it is a comment, for no names."""
    return {} if value is None else value


def _listed(value: Any) -> Any:
    return () if value is None else value


def _address(text: str) -> str:
    from streamer.metrics.address import parse_address

    try:
        return parse_address(text)
    except ValueError as error:
        raise PydanticCustomError("address", "{shown}: {reason}", {"shown": repr(shown(text)), "reason": str(error)}) from None


def _path(value: Any) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise PydanticCustomError("file", "expected the path of a file", {})
    if "\0" in os.fsdecode(value):
        raise PydanticCustomError("file", "expected a path without U+0000", {})
    return Path(value)


Whole: TypeAlias = Annotated[int, Field(ge=1, le=INT64_MAX), BeforeValidator(_number)]
Bool: TypeAlias = Annotated[bool, BeforeValidator(_no_number)]
Share: TypeAlias = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False), BeforeValidator(_number)]
File: TypeAlias = Annotated[
    Path,
    PlainValidator(_path),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
_FILES_SCHEMA: Final = {
    "anyOf": [
        {"type": "array", "items": {"type": "string", "minLength": 1}},
        {"type": "string", "minLength": 1},
        {"type": "null"},
    ]
}
Files: TypeAlias = Annotated[tuple[File, ...], BeforeValidator(_files), WithJsonSchema(_FILES_SCHEMA)]

_POINTERS: Final = {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
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
                "unknown_value": {
                    "anyOf": [
                        {"type": ["string", "null"], "minLength": 1},
                        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
                    ]
                },
                "encoded": {"enum": ["json", None], "default": None},
                "no_change": {"enum": ["match", "ignore"], "default": "match"},
            },
        },
    ]
}
LAYOUT_MEMBERS: Final = ("preset", *PARTS, "type_map", "ts_format", "no_change", "before_holds", "unknown_value", "encoded")

Layout: TypeAlias = Annotated[
    EventLayout, PlainValidator(_layout), PlainSerializer(shown_layout, when_used="json"), WithJsonSchema(_LAYOUT_SCHEMA)
]


class Section(BaseModel):
    """A part of the tree. Unknown names are errors; null, as where every line of a section is a comment, is its defaults."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # it may be a secret that stands where none may
    )

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_the_defaults(cls, value: Any) -> Any:
        return {} if value is None else value


@final
class Bloom(Section):
    """Phase 1: can an event match anything of its collection at all? Zero false negatives, whatever stands here."""

    enabled: Bool = _BLOOM.enabled
    """Whether events are asked of the filters first. Matches are the same either way."""
    fp_rate: Share = _BLOOM.fp_rate
    """Share of the events without any key that is subscribed to that may pass all the same, from 0 to 1."""
    initial_capacity: Whole = _BLOOM.initial_capacity
    """Keys that a new filter has room for at least."""
    rebuild_interval: Duration | None = _BLOOM.rebuild_interval
    """Age at which a filter is built anew, whatever its state; null for never."""
    rebuild_fp_threshold: Share | None = _BLOOM.rebuild_fp_threshold
    """Measured share, as of `fp_rate`, from which a filter is built anew; null for twice `fp_rate`."""
    rebuild_cooldown: Duration = _BLOOM.rebuild_cooldown
    """Least time between two rebuilds of one filter for its measured share."""

    @model_validator(mode="after")
    def _as_an_engine_takes_it(self) -> Bloom:
        try:
            self.options()
        except ConfigError as error:
            raise _wrong_inside([((error.place.removeprefix("bloom."),), error.reason)]) from None
        return self

    def options(self) -> BloomOptions:
        """Return them as the engine takes them."""
        return BloomOptions(**{name: getattr(self, name) for name in type(self).model_fields})


@final
class Cel(Section):
    """Phase 2b: CEL expressions."""

    evaluator: CelEvaluator = "native"
    """What evaluates expressions of subscriptions without `cel_evaluator`: the engine itself, or cel-python (docs/cel.md)."""
    cache_size: Whole = 10_000
    """Compiled programs that are kept for reuse."""
    evaluation_timeout: Duration = _LIMITS.evaluation_timeout_us * _MICROSECOND
    """What one evaluation may cost, in cost units, ten to a microsecond: equal on every machine (semantics.md 4.18). For
    cel-python it also limits the processor's time."""

    @field_validator("evaluation_timeout")
    @classmethod
    def _as_limits_take_it(cls, timeout: timedelta) -> timedelta:
        try:
            Limits(evaluation_timeout_us=timeout // _MICROSECOND)
        except ConfigError as error:
            raise PydanticCustomError("timeout", "{reason} microseconds", {"reason": error.reason}) from None
        return timeout


@final
class LimitsSection(Section):
    """What a subscription or an event may cost. Past it, it is refused with an error that says so."""

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
    """Size of a regexp of a filter or a pattern, which is looked for in texts of up to 16 MB divided by it."""
    max_conjunctions: Whole = _LIMITS.max_conjunctions
    """Alternatives that a subscription is expanded to; past it, it is evaluated as written."""
    max_cel_bytes: Size = _LIMITS.max_cel_bytes
    """Length of a CEL expression."""
    max_cel_depth: Annotated[int, Field(ge=1, le=MAX_CEL_DEPTH), BeforeValidator(_number)] = _LIMITS.max_cel_depth
    """Levels of brackets, calls and the like in a CEL expression."""
    allow_unindexed: Bool = _LIMITS.allow_unindexed
    """Whether subscriptions are taken of which no condition can be looked up, so that they are candidates for every event."""


@final
class Matching(Section):
    """How events are read and matched."""

    layout: Layout = EventLayout()
    """Where an event's parts stand: a preset, or a mapping of parts to JSON Pointers (docs/engine.md)."""
    default_tenant: Annotated[str, AfterValidator(_tenant)] | None = "default"
    """Tenant of events and subscriptions that name none; null makes it an error to name none."""
    topic_dialect: TopicDialect = "amqp"
    """Dialect of topic patterns of subscriptions that name none: words at `.` as AMQP, levels at `/` as MQTT, tokens as NATS."""
    validation: Literal["full", "lazy"] = "full"
    """`full` checks the whole of each event, `lazy` only what is walked."""
    soft_delete: Annotated[str, AfterValidator(_path_in_data)] | None = None
    """Dotted path in `data` of the field that flags a document as deleted."""
    batch_size: Whole | None = _DEFAULTS.batch_size
    """Events matched at once, at most; null for what suits: 100 lines of a stream, on Spark what makes about 65,536 matches."""
    threads: Whole = _DEFAULTS.threads
    """Threads that match the events of a batch, of lines and of Arrow arrays, where a call does not say how many."""
    bloom: Bloom = Field(default_factory=Bloom)
    cel: Cel = Field(default_factory=Cel)
    limits: LimitsSection = Field(default_factory=LimitsSection)


@final
class Metrics(Section):
    """What Prometheus is served (docs/metrics.md) by `Engine.from_config` and by `streamer match`."""

    enabled: Bool = False
    """Whether metrics are served over HTTP, at `/metrics`."""
    address: Annotated[str, AfterValidator(_address)] = "127.0.0.1"
    """IP address or name of a host to listen at; `0.0.0.0` for every address of this machine."""
    port: Annotated[int, Field(ge=0, le=65_535), BeforeValidator(_number)] = 9464
    """Port to listen at; 0 for any that is free."""
    name: str | None = None
    """Value of the label `engine`; null for a number."""
    collections: Whole = 20
    """Collections that have series of their own; all others are `other`."""
    tenants: Bool = False
    """Whether series are labelled by tenant too."""


@final
class Logging(Section):
    """What the command line says on standard error; a program that embeds an engine sets up its own logging."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    """Least severe messages of `streamer` that are shown."""


#: `json` is read by `matching.layout`; a decoder of `streamer.cdc` makes events of all others.
SourceFormat: TypeAlias = Literal[
    "json", "canal", "cloudevents", "debezium", "debezium_unwrapped", "dynamodb", "mongodb", "wal2json"
]

#: As an environment variable can say it, too: its two underscores stand between names.
Name: TypeAlias = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$", max_length=63)]


class Source(Section):
    """Where events come from."""

    type: str
    """What kind of source it is; it decides which fields there are."""

    @property
    def is_decoded(self) -> bool:
        """Whether its events are made by a decoder of `streamer.cdc`, and so have the layout of decoders."""
        return True


class LinesSource(Source):
    """Where lines come from, or messages whose values are read as lines are."""

    format: SourceFormat = "json"
    """What a line is: `json` is an event as `matching.layout` says; the others are messages for a decoder (docs/sources.md)."""

    @property
    def is_decoded(self) -> bool:
        """Whether lines are messages for a decoder."""
        return self.format != "json"


@final
class FileSource(LinesSource):
    """A file of JSON lines, read from where the last run was confirmed."""

    type: Literal["file"]
    """What kind of source it is."""
    path: File
    """The file; relative to the configuration file."""
    follow: Bool = True
    """Whether to wait for lines that are appended, through rotations; if not, the end of the file is the end of the source."""
    poll: Duration = timedelta(milliseconds=250)
    """How often to look for new lines where there were none."""


@final
class StdinSource(LinesSource):
    """Standard input, JSON lines. It cannot be read again: what was read and not delivered when the process dies is lost."""

    type: Literal["stdin"]
    """What kind of source it is."""


@final
class PostgresSource(Source):
    """Changes of tables of PostgreSQL, read from a logical replication slot (docs/service.md)."""

    type: Literal["postgres"]
    """What kind of source it is."""
    dsn: Secret
    """How to connect, as `postgresql://user:password@host/database` or `host=… dbname=…`: where it stands, never itself."""
    slot: Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=63)] = "streamer"
    """The replication slot; it is made if it is not there. One process reads a slot."""
    publication: Annotated[str, Field(min_length=1, max_length=63)] = "streamer"
    """The publication, which says what tables are read; you make it. `wal2json` reads all tables, and asks for none."""
    plugin: Literal["pgoutput", "wal2json"] = "pgoutput"
    """What writes the changes on the server: `pgoutput` is a part of PostgreSQL, `wal2json` is installed there."""
    on_lost: Literal["fail", "resnapshot", "skip"] = "fail"
    """Where unread changes are gone: end; read all rows of the tables as inserts; or go on with what comes from then on."""
    status_interval: Duration = timedelta(seconds=10)
    """How often the server is told how far changes are delivered, and so may forget them; more often if it waits for less."""


def _broker(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not _HOST.fullmatch(host) or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise PydanticCustomError("broker", "{shown}: expected HOST:PORT", {"shown": repr(shown(text))})
    return text


def _several(value: Any) -> Any:
    """Take one text for a list of it, and one with commas for several; there is one at least."""
    listed = [each.strip() for each in value.split(",")] if isinstance(value, str) else _listed(value)
    if not listed:
        raise PydanticCustomError("several", "expected one, or a list of some", {})
    return listed


def _topic(text: str) -> str:
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        expected = "expected a topic of Kafka: up to 249 letters, digits, '.', '_' and '-'"
        raise PydanticCustomError("topic", "{reason}", {"reason": f"{shown(text)!r}: {expected}"})
    return text


def _topics(text: str) -> str:
    if not text.startswith("^"):
        return _topic(text)
    try:
        re.compile(text)
    except re.error as error:
        raise PydanticCustomError("topic", "{reason}", {"reason": f"{shown(text)!r}: no pattern: {error}"}) from None
    return text


_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: What of librdkafka may be set: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md. All else is what the
#: service needs as it is (group, commits, order, acknowledgements), runs or loads code, or is a secret.
OF_CLIENTS: Final = frozenset(
    "broker.address.family broker.address.ttl client.dns.lookup client.id client.rack connections.max.idle.ms metadata.max.age.ms"
    " receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms socket.connection.setup.timeout.ms"
    " socket.keepalive.enable socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms"
    " ssl.cipher.suites ssl.curves.list ssl.sigalgs.list topic.metadata.refresh.interval.ms".split()
)
OF_CONSUMERS: Final = OF_CLIENTS | frozenset(
    "check.crcs fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms"
    " fetch.wait.max.ms group.instance.id heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms"
    " queued.max.messages.kbytes queued.min.messages session.timeout.ms".split()
)
OF_PRODUCERS: Final = OF_CLIENTS | frozenset(
    "batch.num.messages batch.size compression.level compression.type linger.ms message.max.bytes request.timeout.ms"
    " retry.backoff.max.ms retry.backoff.ms".split()
)
_SEVERAL: Final = WithJsonSchema(
    {"anyOf": [{"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "string", "minLength": 1}]}
)
Brokers: TypeAlias = Annotated[tuple[Annotated[str, AfterValidator(_broker)], ...], BeforeValidator(_several), _SEVERAL]
Topics: TypeAlias = Annotated[tuple[Annotated[str, AfterValidator(_topics)], ...], BeforeValidator(_several), _SEVERAL]


@final
class Sasl(Section):
    """Who one is for the brokers of Kafka."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """How it is proved; null for not at all."""
    user: str | None = None
    """The name."""
    password: Secret | None = None
    """The password: where it stands, never itself."""

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        given = [name for name in ("mechanism", "user", "password") if getattr(self, name) is not None]
        if given and len(given) < 3:
            missing = [name for name in ("mechanism", "user", "password") if name not in given]
            raise _wrong_inside([((name,), f"expected beside {' and '.join(given)}") for name in missing])
        return self


class Kafka(Section):
    """How brokers of Kafka are reached."""

    brokers: Brokers
    """Brokers to begin with, as `host:9092` or a list; they name the others."""
    tls: Bool = False
    """Whether to speak TLS. The names of the brokers are checked."""
    ca: File | None = None
    """Certificates to trust in place of the system's, in PEM; relative to the configuration file."""
    certificate: File | None = None
    """A certificate of the client in PEM, where brokers want one; relative to the configuration file."""
    key: File | None = None
    """Its private key in PEM; relative to the configuration file."""
    sasl: Sasl = Field(default_factory=Sasl)
    options: Annotated[dict[str, str | int | float | bool], BeforeValidator(_named)] = Field(default_factory=dict)
    """Settings of librdkafka, by their names (docs/service.md says which)."""

    #: Which options there may be.
    ALLOWED: ClassVar[frozenset[str]] = OF_CLIENTS

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wrong: list[tuple[tuple[str | int, ...], str]] = []
        for name in self.options:
            if name not in self.ALLOWED:
                near = get_close_matches(name, self.ALLOWED, 1)
                hint = f"; did you mean {near[0]!r}?" if near else "; docs/service.md has all"
                wrong.append((("options", name), f"no setting of librdkafka that may be given here{hint}"))
        of_tls = [name for name in ("ca", "certificate", "key") if getattr(self, name) is not None]
        wrong += [((name,), "expected tls: true beside it") for name in of_tls if not self.tls]
        if (self.certificate is None) != (self.key is None):
            wrong.append((("key" if self.key is None else "certificate",), "expected certificate and key, or none of them"))
        if wrong:
            raise _wrong_inside(wrong)
        return self


@final
class KafkaSource(Kafka, LinesSource):
    """Messages of topics of Kafka, shared with other processes of one consumer group (docs/service.md)."""

    type: Literal["kafka"]
    """What kind of source it is."""
    topics: Topics
    """Names of topics, or patterns that begin with `^`, such as `^shop\\..*`; one, or a list."""
    group: Annotated[str, Field(min_length=1, max_length=249)] = "streamer"
    """The consumer group: processes that name one share the partitions."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a topic is begun that neither the store nor the group has a position of: at its beginning, or with what comes now."""
    on_lost: Literal["fail", "skip"] = "fail"
    """Where unread messages are gone, as after retention or where a topic is made anew: end; or go on with what is there."""

    ALLOWED = OF_CONSUMERS


AnySource: TypeAlias = Annotated[FileSource | StdinSource | PostgresSource | KafkaSource, Field(discriminator="type")]


class Sink(Section):
    """Where matches go."""

    type: str
    """What kind of sink it is; it decides which fields there are."""
    event: Literal["full", "reference", "none"] = "full"
    """What a message says of its event: all of it, where it came from, or nothing."""
    per: Literal["match", "gateway"] = "match"
    """Whether a message tells of one match, or of all that an event has for one gateway."""


@final
class FileSink(Sink):
    """A file that JSON lines are appended to; they are on the disk before the source is told."""

    type: Literal["file"]
    """What kind of sink it is."""
    path: File
    """The file; relative to the configuration file."""


@final
class StdoutSink(Sink):
    """Standard output, JSON lines."""

    type: Literal["stdout"]
    """What kind of sink it is."""


def checked_url(url: str) -> str:
    """Check a URL that is posted to. What is wrong is said without it: it may hold a secret."""
    reason = None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        reason = "no URL"
    else:
        if parts.scheme not in ("http", "https") or not parts.hostname:
            reason = "expected https://HOST…"
        elif not _VISIBLE.fullmatch(url):
            reason = "expected ASCII without spaces; write other characters as %XX, and names of hosts in Punycode"
        elif parts.username is not None or parts.password is not None:
            reason = "a user or a password in a URL is not sent; requests are signed with `secret`"
        elif "#" in url:
            reason = "a fragment, from # on, is never sent"
        elif port == 0:
            reason = "port 0 is none"
    if reason is not None:
        raise PydanticCustomError("url", "{reason}", {"reason": reason})
    return url


def _secrets(value: Any) -> Any:
    """Take one secret for a list of it, and nothing for none. What else stands here may be the secret itself."""
    if value is None or isinstance(value, list | tuple):
        return value or ()
    return [value]


def _network(text: Any) -> Network:
    if isinstance(text, IPv4Network | IPv6Network):
        return text
    try:
        if not isinstance(text, str):
            raise ValueError
        return ip_network(text)
    except ValueError:
        expected = "expected a network such as 10.0.0.0/8, of which no bit behind the length is set"
        raise PydanticCustomError("network", "{reason}", {"reason": expected}) from None


_VISIBLE: Final = re.compile("[!-~]+")
Network: TypeAlias = IPv4Network | IPv6Network
Networks: TypeAlias = Annotated[
    tuple[Annotated[Network, PlainValidator(_network), PlainSerializer(str, when_used="json")], ...],
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
]
Ports: TypeAlias = Annotated[
    tuple[Annotated[int, Field(ge=1, le=65_535), BeforeValidator(_number)], ...], BeforeValidator(_listed)
]
Url: TypeAlias = Annotated[str, AfterValidator(checked_url), WithJsonSchema({"type": "string", "pattern": "^https?://[!-~]+$"})]
_SECRET_SCHEMA: Final = TypeAdapter(Secret).json_schema()
Secrets: TypeAlias = Annotated[
    tuple[Secret, ...],
    Field(max_length=2),
    BeforeValidator(_secrets),
    WithJsonSchema(
        {"anyOf": [*_SECRET_SCHEMA["anyOf"], {"type": "array", "items": _SECRET_SCHEMA, "maxItems": 2}, {"type": "null"}]}
    ),
]


@final
class WebhookSink(Sink):
    """An endpoint that messages are posted to over HTTP. They wait for it in the spool, so it may be down."""

    type: Literal["webhook"]
    """What kind of sink it is."""
    url: Url
    """Where to post: `https://HOST/PATH`."""
    secret: Secrets = ()
    """What requests are signed with, as Standard Webhooks have it: `whsec_` and base64. Two while one takes another's place."""
    batch: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_number)] = 1
    """Messages of a request at most. With more than 1 the body is a JSON array, even of one message."""
    batch_bytes: Size = 1024**2
    """Bytes of the messages of a request, unless it has one."""
    concurrency: Annotated[int, Field(ge=1, le=64), BeforeValidator(_number)] = 8
    """Requests at once."""
    timeout: Duration = timedelta(seconds=30)
    """How long a request may take, from its connection to its response."""
    connect_timeout: Duration = timedelta(seconds=10)
    """How long its connection may take, TLS included."""
    allow_http: Bool = False
    """Whether the URL may be without TLS: what it is sent can then be read and changed on its way."""
    ports: Ports = (443,)
    """Ports that the URL may name; without TLS 80 is one, too."""
    networks: Networks = ()
    """Networks besides the public ones that it may be in, such as `[10.0.0.0/8]`. No other private address is connected to."""
    ca: File | None = None
    """Certificates to trust in place of the system's, in PEM; relative to the configuration file."""

    @model_validator(mode="after")
    def _may_be_posted_to(self) -> Self:
        reason = refused(self.url, self.ports, allow_http=self.allow_http)
        if reason is not None:
            raise _wrong_inside([(("url",), reason)])
        return self


def refused(url: str, ports: Sequence[int], *, allow_http: bool) -> str | None:
    """Return why a URL may not be posted to; None where it may."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    if not is_tls and not allow_http:
        return "expected https://…, or allow_http: true"
    port = parts.port or (443 if is_tls else 80)
    if port not in ports and (is_tls or port != 80):
        return f"port {port} is none of `ports`: {', '.join(map(str, ports))}"
    return None


@final
class KafkaSink(Kafka, Sink):
    """A topic of Kafka. Messages are held once all replicas in sync have them."""

    type: Literal["kafka"]
    """What kind of sink it is."""
    topic: Annotated[str, AfterValidator(_topic)]
    """The topic; you make it."""
    timeout: Duration = timedelta(minutes=5)
    """How long brokers may take to hold what was sent, retries included. Then the service ends, and nothing is lost."""

    ALLOWED = OF_PRODUCERS


AnySink: TypeAlias = Annotated[FileSink | StdoutSink | WebhookSink | KafkaSink, Field(discriminator="type")]


@final
class Route(Section):
    """Which sink gets the matches of a gateway."""

    gateway: Annotated[str, Field(min_length=1)]
    """The `gateway_id` of subscriptions; `*` for any, and for those that name none."""
    sink: str
    """A name under `sinks`."""


@final
class Retry(Section):
    """When a message that an endpoint did not take is sent again."""

    first: Duration = timedelta(seconds=1)
    """How long to wait before the second attempt, and twice as long before each one that follows, less a random part."""
    most: Duration = timedelta(minutes=10)
    """How long to wait between two attempts at most, also where an endpoint asks for more."""
    attempts: Annotated[int, Field(ge=1, le=1000), BeforeValidator(_number)] = 12
    """After so many a message is given up, and a dead letter."""


@final
class SpoolSection(Section):
    """Where messages wait for endpoints: in the store."""

    bytes: Size = 1024**3
    """Room for the messages of each sink."""
    when_full: Literal["pause", "dead_letter"] = "pause"
    """Where a sink has no more room: `pause` lets the sources wait, `dead_letter` gives up its oldest messages."""


@final
class Gateways(Section):
    """Tenants' own gateways, which are written by the API: where their webhooks may be, and what is kept for streams."""

    timeout: Duration = timedelta(seconds=10)
    """How long a request may take, from its connection to its response."""
    connect_timeout: Duration = timedelta(seconds=5)
    """How long its connection may take, TLS included."""
    concurrency: Annotated[int, Field(ge=1, le=64), BeforeValidator(_number)] = 4
    """Requests at once to one gateway."""
    concurrency_of_a_tenant: Annotated[int, Field(ge=1, le=128), BeforeValidator(_number)] = 16
    """Requests at once to all gateways of a tenant."""
    allow_http: Bool = False
    """Whether a URL may be without TLS: what it is sent can then be read and changed on its way."""
    ports: Ports = (443,)
    """Ports that a URL may name; without TLS 80 is one, too."""
    networks: Networks = ()
    """Networks besides the public ones that any tenant's endpoint may be in. No other private address is connected to."""
    ca: File | None = None
    """Certificates to trust in place of the system's, in PEM; relative to the configuration file."""
    history: Size = 16 * 1024**2
    """Room for the matches of a gateway without a URL, from which its streams begin again; the oldest ones leave it."""
    history_time: Duration = timedelta(days=1)
    """How long they stay there."""


@final
class Delivery(Section):
    """How matches are delivered, and what becomes of what cannot be."""

    retry: Retry = Field(default_factory=Retry)
    on_exhausted: Literal["dead_letter", "block"] = "dead_letter"
    """What becomes of the key of a message that was given up: it goes on, or waits until the letter is replayed or dropped."""
    dead_letter: str | None = None
    """A name under `sinks`, which gets a message about each dead letter; null for none. They are in the store either way."""
    spool: SpoolSection = Field(default_factory=SpoolSection)
    gateways: Gateways = Field(default_factory=Gateways)
    dead_letter_bytes: Size = 1024**3
    """Room for dead letters. When it is full the oldest ones of tenants' own gateways are forgotten. Where there are none the
    service ends, since it may lose no other: see `streamer dead-letters`."""


@final
class Service(Section):
    """What `streamer serve` keeps."""

    data_dir: File | None = None
    """Directory of the store: subscriptions, positions, dead letters. It is relative to the configuration file; null is
    `streamer-data` in the working directory. One process uses it at a time."""
    watch: File | None = None
    """Directory whose files `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst` are read like those of `subscriptions`. All of them are
    read again when one changes. Names that begin with a dot are passed over. It is relative to the configuration file."""


@final
class ApiTokens(Section):
    """Who may use the API."""

    file: File | None = None
    """The file that `streamer tokens` writes; relative to the configuration file. It is read again when it changes. The API is
    served where it is named, or with `streamer serve --dev`."""


@final
class ApiTls(Section):
    """TLS 1.2 or later. Both files are read again when they change."""

    certificate: File | None = None
    """Certificates in PEM, the server's own first; null for HTTP without TLS. It is relative to the configuration file."""
    key: File | None = None
    """The private key in PEM; relative to the configuration file. It may stand in the file of the certificate."""


@final
class ApiLimits(Section):
    """What a connection or a request may cost. Past it the request is refused, or the connection closed."""

    body: Size = 1024**2
    """Length of the body of a request."""
    import_body: Size = 16 * 1024**2
    """Length of the body of an import of subscriptions."""
    head: Size = 16 * 1024
    """Length of a request's line and headers."""
    head_time: Duration = timedelta(seconds=10)
    """How long the line and the headers of a request may take to come, from its first byte or from the connection on."""
    body_time: Duration = timedelta(seconds=30)
    """How long the body of a request may take to come."""
    idle_time: Duration = timedelta(seconds=60)
    """How long a connection may wait for its next request, and for its peer to take some of an answer."""
    connections: Whole = 512
    """Connections at once. The one that has waited longest without a whole request gives way to a new one."""
    connections_of_a_peer: Whole = 256
    """Connections from one address at once; as of `connections`."""
    requests: Whole = 64
    """Requests that are answered at once."""
    requests_of_a_token: Whole = 8
    """Requests with one token that are answered at once."""
    streams: Whole = 256
    """Streams of matches at once, each of which is a connection."""
    heartbeat: Duration = timedelta(seconds=15)
    """A stream that has nothing to send for so long is sent a comment, so that nobody takes it for dead."""


@final
class ApiQuotas(Section):
    """How much a tenant may have and ask. Requests past it are refused, and others are left alone."""

    subscriptions: Whole = 1_000_000
    """Subscriptions of a tenant."""
    unindexed: Whole = 1000
    """Of those, how many no condition can be looked up of, so that they are candidates for every event of their collection."""
    requests_a_second: Whole = 100
    """Requests of a tenant a second; twice as many may come at once."""
    gateways: Annotated[int, Field(ge=0, le=10_000), BeforeValidator(_number)] = 100
    """Gateways of a tenant's own."""
    streams: Whole = 64
    """Streams of matches of a tenant at once."""
    spool: Size = 256 * 1024**2
    """Bytes of messages that a tenant's own gateways hold together: those that wait, and those kept for streams. When it is
    full the oldest ones kept for streams leave it, and then the oldest that wait become dead letters. Others wait for nobody."""


@final
class Api(Section):
    """The HTTP API of `streamer serve` (docs/api.md)."""

    address: Annotated[str, AfterValidator(_address)] = "127.0.0.1"
    """IP address or name of a host to listen at; `0.0.0.0` for every address of this machine."""
    port: Annotated[int, Field(ge=0, le=65_535), BeforeValidator(_number)] = 8474
    """Port to listen at; 0 for any that is free."""
    hosts: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Names by which clients know the server, as a list. Addresses, `localhost` and `address` are taken as they are."""
    origins: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    """Origins of pages that may use the API from a browser besides the server's own, as `https://console.example.com`."""
    tokens: ApiTokens = Field(default_factory=ApiTokens)
    tls: ApiTls = Field(default_factory=ApiTls)
    limits: ApiLimits = Field(default_factory=ApiLimits)
    quotas: ApiQuotas = Field(default_factory=ApiQuotas)

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Self:
        if self.tls.key is not None and self.tls.certificate is None:
            raise _wrong_inside([(("tls", "certificate"), "expected the certificate of the key")])
        return self


class Config(Section):
    """All that an engine is made from; immutable. `Config.load` reads a file, `Config.from_dict` a mapping."""

    model_config = ConfigDict(title="Streamer")

    matching: Matching = Field(default_factory=Matching)
    subscriptions: Files = ()
    """One path or a list: JSON lines of subscriptions to begin with, plain, gzip or zstd; relative to the configuration file."""
    sources: Annotated[dict[Name, AnySource], BeforeValidator(_named)] = Field(
        default_factory=dict, json_schema_extra={"additionalProperties": False}
    )
    """Where `streamer serve` reads events, by names that you choose; none is standard input."""
    sinks: Annotated[
        dict[Name, Annotated[FileSink | StdoutSink | WebhookSink | KafkaSink, Field(discriminator="type")]],
        BeforeValidator(_named),
    ] = Field(default_factory=dict, json_schema_extra={"additionalProperties": False})
    """Where `streamer serve` delivers matches, by names that you choose; none is standard output."""
    routes: Annotated[tuple[Route, ...], BeforeValidator(_listed)] = ()
    """A list of `{gateway: NAME, sink: NAME}`; the first that fits a match decides. It may be left out if there is one sink."""
    delivery: Delivery = Field(default_factory=Delivery)
    service: Service = Field(default_factory=Service)
    api: Api = Field(default_factory=Api)
    metrics: Metrics = Field(default_factory=Metrics)
    logging: Logging = Field(default_factory=Logging)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        wrong: list[tuple[tuple[str | int, ...], str]] = []
        names = ", ".join(self.sinks) or "none"
        for index, route in enumerate(self.routes):
            if route.sink not in self.sinks:
                wrong.append((("routes", index, "sink"), f"no sink {shown(route.sink)!r}; there are: {names}"))
        if self.delivery.dead_letter is not None and self.delivery.dead_letter not in self.sinks:
            wrong.append((("delivery", "dead_letter"), f"no sink {shown(self.delivery.dead_letter)!r}; there are: {names}"))
        if len(self.sinks) > 1 and not self.routes:
            wrong.append((("routes",), f"expected which sink gets what, as there are {len(self.sinks)}: {names}"))
        read = {each.path: name for name, each in self.sources.items() if isinstance(each, FileSource)}
        written: dict[Path, str] = {}
        for name, sink in self.sinks.items():
            if isinstance(sink, FileSink):
                if sink.path in read:
                    wrong.append((("sinks", name, "path"), f"sources.{read[sink.path]} reads this file"))
                if sink.path in written:
                    wrong.append((("sinks", name, "path"), f"sinks.{written[sink.path]} writes this file"))
                written[sink.path] = name
        slots: dict[tuple[SecretValue, str], str] = {}
        for name, source in self.sources.items():
            if isinstance(source, PostgresSource) and (other := slots.setdefault((source.dsn, source.slot), name)) != name:
                wrong.append((("sources", name, "slot"), f"sources.{other} reads this slot"))
        wrong += self._of_kafka()
        for what, sections in (("sources", self.sources), ("sinks", self.sinks)):
            of_streams = [name for name, each in sections.items() if each.type in ("stdin", "stdout")]
            wrong += [((what, name, "type"), f"only one of the {what} can be {sections[name].type}") for name in of_streams[1:]]
        if wrong:
            raise _wrong_inside(wrong)
        return self

    def _of_kafka(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what is wrong between sources and sinks of Kafka: two members of one group, a topic that is read and written."""
        read = {name: each for name, each in self.sources.items() if isinstance(each, KafkaSource)}
        groups: dict[tuple[frozenset[str], str], str] = {}
        for name, source in read.items():
            if (other := groups.setdefault((frozenset(source.brokers), source.group), name)) != name:
                yield ("sources", name, "group"), f"sources.{other} is of this group; name the topics of both in one"
        written = {name: each for name, each in self.sinks.items() if isinstance(each, KafkaSink)}
        for name, sink in written.items():
            for other, source in read.items():
                patterns = [topic if topic.startswith("^") else re.escape(topic) for topic in source.topics]
                if {*source.brokers} & {*sink.brokers} and any(re.fullmatch(each, sink.topic) for each in patterns):
                    yield ("sinks", name, "topic"), f"sources.{other} reads this topic"

    @classmethod
    def load(cls, path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> Config:
        """Read a YAML file, and the environment over it.

        Args:
            path: the file.
            environment: variables such as `STREAMER_MATCHING__BLOOM__FP_RATE`; by default those of the process, `{}` for none.

        Raises:
            BulkConfigError: `errors` has all that is wrong, each with file, line and column or with its variable.
            OSError: the file cannot be read.
        """
        from streamer.config.loader import load

        return load(path, environment).config

    @classmethod
    def from_dict(cls, members: Mapping[str, Any]) -> Config:
        """Make a configuration from a mapping, as a YAML file has it. The environment is left alone.

        Raises:
            BulkConfigError: `errors` has all that is wrong, each with its place.
        """
        from streamer.config.loader import from_dict

        return from_dict(members)

    def engine_options(self) -> dict[str, Any]:
        """Return the arguments of `Engine`."""
        matching = self.matching
        limits = matching.limits.model_dump()
        return {
            "layout": matching.layout,
            "default_tenant": matching.default_tenant,
            "topic_dialect": matching.topic_dialect,
            "validation": matching.validation,
            "limits": Limits(**limits, evaluation_timeout_us=matching.cel.evaluation_timeout // _MICROSECOND),
            "soft_delete": matching.soft_delete,
            "cel_evaluator": matching.cel.evaluator,
            "cache_size": matching.cel.cache_size,
            "bloom": matching.bloom.options(),
            "batch_size": matching.batch_size,
            "threads": matching.threads,
        }
