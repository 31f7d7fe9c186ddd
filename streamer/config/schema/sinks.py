"""Where matches go: a section for each kind of sink, and what a URL may be that is posted to."""

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
        target: what tells one endpoint from another.
        concurrency: requests at once.
        batch, batch_bytes: messages of a request at most, and their bytes.
    """

    target: str
    concurrency: int = 8
    batch: int = 1
    batch_bytes: int = 1024**2


class Sink(Section):
    """Where matches go."""

    type: str
    """What kind of sink it is; it decides which fields there are."""
    event: Literal["full", "reference", "none"] = "full"
    """What a message says of its event: all of it, where it came from, or nothing."""
    per: Literal["match", "gateway"] = "match"
    """Whether a message tells of one match, or of all that an event has for one gateway."""

    @abstractmethod
    def claims(self) -> Iterable[Claim]:
        """Yield what it writes. `streamer.config.schema.claims` compares it with what all others read and write."""

    @property
    def spooled(self) -> Spooled | None:
        """How the spool delivers to it, if its messages wait there; None if they are written to it at once."""
        return None

    @property
    def caution(self) -> str | None:
        """What the log warns of when it is opened, though it may be meant so."""
        return None


@final
class FileSink(Sink):
    """A file that JSON lines are appended to; they are on the disk before the source is told."""

    type: Literal["file"]
    """What kind of sink it is."""
    path: File
    """The file; relative to the configuration file."""

    def claims(self) -> Iterator[Claim]:
        """See `Sink`."""
        yield Claim(("path",), OWNS, OneFile(self.path), "{} writes this file")


@final
class StdoutSink(Sink):
    """Standard output, JSON lines."""

    type: Literal["stdout"]
    """What kind of sink it is."""

    def claims(self) -> Iterator[Claim]:
        """See `Sink`."""
        yield Claim(("type",), OWNS, Named("standard output"), "only one of the sinks can be stdout")
        if (path := Path("/dev/stdout")).is_file():
            yield Claim((), OWNS, OneFile(path), "{} writes this file")


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
    """An endpoint that messages are posted to over HTTP. They wait for it in the spool, so it may be down."""

    type: Literal["webhook"]
    """What kind of sink it is."""
    url: Url
    """Where to post: `https://HOST/PATH`."""
    secret: Secrets = ()
    """What requests are signed with, as Standard Webhooks have it: `whsec_` and base64. Two while one takes another's place."""
    batch: Annotated[int, Field(ge=1, le=1000), BeforeValidator(number)] = 1
    """Messages of a request at most. With more than 1 the body is a JSON array, even of one message."""
    batch_bytes: Size = 1024**2
    """Bytes of the messages of a request, unless it has one."""
    concurrency: Annotated[int, Field(ge=1, le=64), BeforeValidator(number)] = 8
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
            raise wrong_inside([(("url",), reason)])
        return self

    def claims(self) -> Iterator[Claim]:
        """See `Sink`. Who may post to one endpoint is for the endpoint to say."""
        return self.reads("ca")

    @property
    def spooled(self) -> Spooled:
        """See `Sink`."""
        return Spooled(self.url, self.concurrency, self.batch, self.batch_bytes)

    @property
    def caution(self) -> str | None:
        """See `Sink`."""
        return None if self.secret else "no secret, so who receives its messages cannot tell who has sent them"


def refused(url: str, ports: Sequence[int] | None, *, allow_http: bool) -> str | None:
    """Return why a URL may not be posted to; None where it may.

    Args:
        ports: that it may name; None for any.
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
    """A topic of Kafka. Messages are held once all replicas in sync have them."""

    type: Literal["kafka"]
    """What kind of sink it is."""
    topic: Annotated[str, AfterValidator(checked_topic)]
    """The topic; you make it."""
    timeout: Duration = timedelta(minutes=5)
    """How long brokers may take to hold what was sent, retries included. Then the service ends, and nothing is lost."""

    ALLOWED = OF_PRODUCERS

    def claims(self) -> Iterator[Claim]:
        """See `Sink`."""
        yield from self.reads("ca", "certificate", "key")
        yield Claim(("topic",), ADDS, KafkaTopics(frozenset(self.brokers), (self.topic,)), "{} writes this topic")


AnySink: TypeAlias = Annotated[FileSink | StdoutSink | WebhookSink | KafkaSink, Field(discriminator="type")]
