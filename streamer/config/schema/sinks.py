"""The sections of sinks: one for each kind, and the rules for a URL of a webhook."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from streamer.config.schema.claims import ADDS, OWNS, Claim, KafkaTopics, Named
from streamer.config.schema.claims import File as OneFile
from streamer.config.schema.kafka import OF_PRODUCERS, Kafka, checked_topic
from streamer.config.schema.values import Bool, File, Section, as_list, number, wrong_inside
from streamer.config.secret import Secret
from streamer.config.units import Duration, Size


@final
@dataclass(frozen=True, slots=True)
class Spooled:
    """How the spool delivers to a sink.

    Attributes:
        target: the identity of the endpoint.
        concurrency: the most concurrent requests.
        batch, batch_bytes: the most messages of a request, and the most bytes of them.
    """

    target: str
    concurrency: int = 8
    batch: int = 1
    batch_bytes: int = 1024**2


class Sink(Section):
    """A sink of matches."""

    type: str
    """The kind of sink; it decides which other fields exist."""
    event: Literal["full", "reference", "none"] = "full"
    """The part of the event in a message: all of it, a reference to its position, or none."""
    per: Literal["match", "gateway"] = "match"
    """Whether a message reports one match, or all matches of an event for one gateway."""

    @abstractmethod
    def claims(self) -> Iterable[Claim]:
        """Yield claims for the things that the sink writes. `streamer.config.schema.claims` compares those of all sections."""

    @property
    def spooled(self) -> Spooled | None:
        """Return how the spool delivers to the sink, or None if messages are written to it directly."""
        return None

    @property
    def caution(self) -> str | None:
        """Return a warning for the log about risky settings that may be intended, or None."""
        return None


@final
class FileSink(Sink):
    """A file to which JSON lines are appended; they are on the disk before the source confirms."""

    type: Literal["file"]
    """The kind of sink."""
    path: File
    """The file; relative to the configuration file."""

    def claims(self) -> Iterator[Claim]:
        """See `Sink`."""
        yield Claim(("path",), OWNS, OneFile(self.path), "{} writes this file")


@final
class StdoutSink(Sink):
    """Standard output, JSON lines."""

    type: Literal["stdout"]
    """The kind of sink."""

    def claims(self) -> Iterator[Claim]:
        """See `Sink`."""
        yield Claim(("type",), OWNS, Named("standard output"), "only one of the sinks can be stdout")
        if (path := Path("/dev/stdout")).is_file():
            yield Claim((), OWNS, OneFile(path), "{} writes this file")


def checked_url(url: str, instead: str = "requests are signed with `secret`") -> str:
    """Return a URL, or refuse it. The error does not contain the URL, because it may have a secret.

    Args:
        instead: the alternative to a user and a password in the URL, for the error.
    """
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
            reason = f"a user or a password in a URL is not sent; {instead}"
        elif "#" in url:
            reason = "a fragment, from # on, is never sent"
        elif port == 0:
            reason = "port 0 is none"
    if reason is not None:
        raise PydanticCustomError("url", "{reason}", {"reason": reason})
    return url


def _secrets(value: Any) -> Any:
    """Turn a single secret into a list, and null into an empty list. Any other value may be the secret itself."""
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
    BeforeValidator(as_list),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
]
Ports: TypeAlias = Annotated[
    tuple[Annotated[int, Field(ge=1, le=65_535), BeforeValidator(number)], ...], BeforeValidator(as_list)
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
    """An HTTP endpoint that receives messages by POST. They wait in the spool, so it may be down."""

    type: Literal["webhook"]
    """The kind of sink."""
    url: Url
    """The target: `https://HOST/PATH`."""
    secret: Secrets = ()
    """The secret that signs requests, as in Standard Webhooks: `whsec_` and base64. Two while you replace one."""
    batch: Annotated[int, Field(ge=1, le=1000), BeforeValidator(number)] = 1
    """Most messages of a request. With more than 1 the body is a JSON array, even of one message."""
    batch_bytes: Size = 1024**2
    """Most bytes of the messages of a request, unless it has only one."""
    concurrency: Annotated[int, Field(ge=1, le=64), BeforeValidator(number)] = 8
    """Simultaneous requests."""
    timeout: Duration = timedelta(seconds=30)
    """Longest time of a request, from its connection to its response."""
    connect_timeout: Duration = timedelta(seconds=10)
    """Longest time of its connection, TLS included."""
    allow_http: Bool = False
    """Whether the URL may be without TLS. Others can then read and change the messages in transit."""
    ports: Ports = (443,)
    """Ports that the URL may name; without TLS 80 is one, too."""
    networks: Networks = ()
    """Networks for the endpoint in addition to the public ones, such as `[10.0.0.0/8]`. All other private addresses are
    refused."""
    ca: File | None = None
    """Trusted certificates that replace the system's, in PEM; relative to the configuration file."""

    @model_validator(mode="after")
    def _may_be_posted_to(self) -> Self:
        reason = refused(self.url, self.ports, allow_http=self.allow_http)
        if reason is not None:
            raise wrong_inside([(("url",), reason)])
        return self

    def claims(self) -> Iterator[Claim]:
        """See `Sink`. The URL is not claimed, because several senders may post to one endpoint."""
        return self.reads("ca")

    @property
    def spooled(self) -> Spooled:
        """See `Sink`."""
        return Spooled(self.url, self.concurrency, self.batch, self.batch_bytes)

    @property
    def caution(self) -> str | None:
        """See `Sink`."""
        return None if self.secret else "no secret, so the receiver of its messages cannot verify the sender"


def refused(url: str, ports: Sequence[int] | None, *, allow_http: bool) -> str | None:
    """Return the reason why messages may not be posted to a URL, or None if they may.

    Args:
        ports: the allowed ports; None for any.
    """
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    if not is_tls and not allow_http:
        return "expected https://…, or allow_http: true"
    port = parts.port or (443 if is_tls else 80)
    if ports is not None and port not in ports and (is_tls or port != 80):
        return f"port {port} is none of `ports`: {', '.join(map(str, ports))}"
    return None


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


AnySink: TypeAlias = Annotated[FileSink | StdoutSink | WebhookSink | KafkaSink, Field(discriminator="type")]
