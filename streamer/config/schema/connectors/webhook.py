"""The section of a webhook."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, final

from pydantic import (
    BeforeValidator,
    Field,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from streamer.config.schema.claims import Claim
from streamer.config.schema.sinks import Sink, Spooled
from streamer.config.schema.urls import Networks, Ports, Url, refused
from streamer.config.schema.values import Bool, File, number, wrong_inside
from streamer.config.secret import Secret
from streamer.config.units import Duration, Size


def _secrets(value: Any) -> Any:
    """Turn a single secret into a list, and null into an empty list. Any other value may be the secret itself."""
    if value is None or isinstance(value, list | tuple):
        return value or ()
    return [value]


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
        return None if self.secret else "without a secret, the receiver of its messages cannot verify the sender"
