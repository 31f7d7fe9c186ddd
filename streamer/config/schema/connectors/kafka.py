"""The sections of Kafka: a source, a sink, and what both share: brokers, the client's identity, further options of the client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from streamer.config.schema.claims import ADDS, OWNS, READS, Claim, KafkaTopics, Named
from streamer.config.schema.encoded import Format, FormatOrName, SourceFormat
from streamer.config.schema.sinks import Sink
from streamer.config.schema.sources import Source
from streamer.config.schema.values import Bool, File, Section, as_list, as_names, wrong_inside
from streamer.config.secret import Secret
from streamer.config.units import Duration
from streamer.config.yaml import shown


def _broker(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not _HOST.fullmatch(host) or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise PydanticCustomError("broker", "{shown}: expected HOST:PORT", {"shown": repr(shown(text))})
    return text


def _several(value: Any) -> Any:
    """Turn a text into a list, split at commas, and refuse an empty list."""
    listed = [each.strip() for each in value.split(",")] if isinstance(value, str) else as_list(value)
    if not listed:
        raise PydanticCustomError("several", "expected one, or a list of some", {})
    return listed


def checked_topic(text: str) -> str:
    """Return the name of a topic, or refuse it if Kafka would."""
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        expected = "expected a topic of Kafka: up to 249 letters, digits, '.', '_' and '-'"
        raise PydanticCustomError("topic", "{reason}", {"reason": f"{shown(text)!r}: {expected}"})
    return text


def _topics(text: str) -> str:
    if not text.startswith("^"):
        return checked_topic(text)
    try:
        re.compile(text)
    except re.error as error:
        raise PydanticCustomError("topic", "{reason}", {"reason": f"{shown(text)!r}: no pattern: {error}"}) from None
    return text


_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: The options of librdkafka that may be set: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md. The service
#: needs the others as they are (group, commits, order, acknowledgements), or they run or load code, or are secrets.
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
    """The login at the brokers of Kafka."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """The mechanism; null for no login."""
    user: str | None = None
    """The name."""
    password: Secret | None = None
    """The password, as a variable or a file that contains it."""

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        names = [name for name in ("mechanism", "user", "password") if getattr(self, name) is not None]
        if names and len(names) < 3:
            missing = [name for name in ("mechanism", "user", "password") if name not in names]
            raise wrong_inside([((name,), f"expected together with {' and '.join(names)}") for name in missing])
        return self


class Kafka(Section):
    """The connection to brokers of Kafka."""

    brokers: Brokers
    """The first brokers, as `host:9092` or a list; they name the others."""
    tls: Bool = False
    """Whether to use TLS. The names of the brokers are checked."""
    ca: File | None = None
    """Trusted certificates that replace the system's, in PEM; relative to the configuration file."""
    certificate: File | None = None
    """A certificate of the client in PEM, if brokers require one; relative to the configuration file."""
    key: File | None = None
    """Its private key in PEM; relative to the configuration file."""
    sasl: Sasl = Field(default_factory=Sasl)
    options: Annotated[dict[str, str | int | float | bool], BeforeValidator(as_names)] = Field(default_factory=dict)
    """Settings of librdkafka, by their names (docs/service.md lists them)."""

    #: The options that `options` allows.
    ALLOWED: ClassVar[frozenset[str]] = OF_CLIENTS

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wrong: list[tuple[tuple[str | int, ...], str]] = []
        for name in self.options:
            if name not in self.ALLOWED:
                near = get_close_matches(name, self.ALLOWED, 1)
                hint = f"; did you mean {near[0]!r}?" if near else "; docs/service.md has all"
                wrong.append((("options", name), f"this setting of librdkafka cannot be set here{hint}"))
        of_tls = [name for name in ("ca", "certificate", "key") if getattr(self, name) is not None]
        wrong += [((name,), "expected tls: true with it") for name in of_tls if not self.tls]
        if (self.certificate is None) != (self.key is None):
            wrong.append((("key" if self.key is None else "certificate",), "expected certificate and key, or none of them"))
        if wrong:
            raise wrong_inside(wrong)
        return self


@final
class KafkaSource(Kafka, Source):
    """Messages of topics of Kafka, shared with other processes of one consumer group (docs/service.md)."""

    type: Literal["kafka"]
    """The kind of source."""
    topics: Topics
    """Names of topics, or patterns that begin with `^`, such as `^shop\\..*`; one, or a list."""
    format: FormatOrName = Field(default_factory=Format)
    envelope: Bool = False
    """Whether events of a decoder have the rest of their record as `envelope`, for conditions and receivers (docs/sources.md)."""
    group: Annotated[str, Field(min_length=1, max_length=249)] = "streamer"
    """The consumer group: processes of one group share the partitions."""
    start: Literal["earliest", "latest"] = "earliest"
    """The start in a topic without a position in the store or the group: at its beginning, or with messages from now on."""
    on_lost: Literal["fail", "skip"] = "fail"
    """If unread messages are lost, for example after retention or when a topic is recreated: end; or continue with the remaining
    ones."""

    ALLOWED = OF_CONSUMERS

    @property
    def record_format(self) -> SourceFormat:
        """See `Source`."""
        return self.format.name

    @property
    def has_envelope(self) -> bool:
        """See `Source`."""
        return self.envelope

    def claims(self) -> Iterator[Claim]:
        """See `Source`."""
        brokers, of_one = frozenset(self.brokers), "{} is of this group; name the topics of both in one"
        yield from self.reads("ca", "certificate", "key")
        yield Claim(("group",), OWNS, Named("group", self.group, brokers), of_one)
        yield Claim(("topics",), READS, KafkaTopics(brokers, self.topics), "{} reads this topic")


@final
class KafkaSink(Kafka, Sink):
    """A topic of Kafka. A message counts as delivered when all replicas in sync have it."""

    type: Literal["kafka"]
    """The kind of sink."""
    topic: Annotated[str, AfterValidator(checked_topic)]
    """The topic; you create it."""
    timeout: Duration = timedelta(minutes=5)
    """How long brokers may take to confirm a message, retries included. Then the service ends, without loss."""

    ALLOWED = OF_PRODUCERS

    def claims(self) -> Iterator[Claim]:
        """See `Sink`."""
        yield from self.reads("ca", "certificate", "key")
        yield Claim(("topic",), ADDS, KafkaTopics(frozenset(self.brokers), (self.topic,)), "{} writes this topic")
