"""The HTTP API: its tokens, limits and connections."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Self, final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from streamer.config.schema.claims import OWNS, Claim, Port
from streamer.config.schema.urls import checked_url
from streamer.config.schema.values import File, Section, Whole, as_list, number, wrong_inside
from streamer.config.schema.watching import checked_address
from streamer.config.units import Duration, Size


def _issuer(url: str) -> str:
    host = urlsplit(checked_url(url, "an issuer has none")).hostname or ""
    if not url.startswith("https://") and host not in ("localhost", "127.0.0.1", "::1"):
        raise PydanticCustomError("url", "{reason}", {"reason": "expected https://, except for an address of this machine"})
    return url


@final
class ApiTokens(Section):
    """The tokens of the API."""

    file: File | None = None
    """The file that `streamer tokens` writes; relative to the configuration file. It is read again when it changes. The API is
    served if you set it, or with `streamer serve --dev`."""


@final
class ApiOidc(Section):
    """Tokens of an identity provider, by OpenID Connect, in addition to those of the file (docs/api.md)."""

    issuer: Annotated[str, AfterValidator(_issuer)]
    """The claim `iss` of its tokens, and its address, for example `https://login.example.com/realms/shop`."""
    audience: Annotated[str, Field(min_length=1)]
    """The claim `aud` of tokens for this service."""
    keys: Annotated[str, AfterValidator(_issuer)] | None = None
    """The address of its set of keys (JWKS); null reads it from `.well-known/openid-configuration` below `issuer`."""
    ca: File | None = None
    """Trusted certificates of the provider that replace the system's, in PEM; relative to the configuration file."""
    tenant: Annotated[str, Field(min_length=1)] = "tenant"
    """The claim with the name of the tenant. A token with the scope `admin` needs none."""
    scopes: Annotated[str, Field(min_length=1)] = "scope"
    """The claim with the scopes, in a text with spaces or in a list. Words that are no scope are ignored."""
    prefix: str = ""
    """The beginning of a scope in this claim, for example `streamer:` if the provider has `streamer:read`."""

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        return self.reads("ca")


@final
class ApiAudit(Section):
    """The audit log of changes through the API, of the configuration and of the tokens."""

    file: File | None = None
    """Each change is appended to this file as a line of JSON: who, what, from which address. It is relative to the configuration
    file; null for no audit log. You can rotate it with `logrotate`."""


@final
class ApiTls(Section):
    """TLS 1.2 or later. Both files are read again when they change."""

    certificate: File | None = None
    """Certificates in PEM, the server's own first; null for HTTP without TLS. It is relative to the configuration file."""
    key: File | None = None
    """The private key in PEM; relative to the configuration file. The file of the certificate may contain it."""

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        return self.reads("certificate", "key")


@final
class ApiLimits(Section):
    """Limits of a connection or a request. Beyond them the request is refused, or the connection closed."""

    body: Size = 1024**2
    """Length of the body of a request."""
    import_body: Size = 16 * 1024**2
    """Length of the body of an import of subscriptions."""
    head: Size = 16 * 1024
    """Length of a request's line and headers."""
    head_time: Duration = timedelta(seconds=10)
    """Longest time to receive the line and the headers of a request, from its first byte or from the connection on."""
    body_time: Duration = timedelta(seconds=30)
    """Longest time to receive the body of a request."""
    idle_time: Duration = timedelta(seconds=60)
    """How long a connection may wait for its next request, and for its peer to read some of an answer."""
    connections: Whole = 512
    """Simultaneous connections. A new one replaces the one that has waited longest without a whole request."""
    connections_of_a_peer: Whole = 256
    """Simultaneous connections from one address, with the same rule."""
    requests: Whole = 64
    """Requests that are answered simultaneously."""
    requests_of_a_token: Whole = 8
    """Requests with one token that are answered simultaneously."""
    streams: Whole = 256
    """Simultaneous streams of matches; each is a connection."""
    heartbeat: Duration = timedelta(seconds=15)
    """Time without data after which a stream sends a comment, so that the client sees that it is alive."""


@final
class ApiQuotas(Section):
    """Quotas of a tenant. Requests beyond them are refused, without effect on other tenants."""

    subscriptions: Whole = 1_000_000
    """Subscriptions of a tenant."""
    unindexed: Whole = 1000
    """Subscriptions of a tenant without any indexable condition: they may be about any event of their collection."""
    texts: Size = 1024**3
    """Bytes of all subscriptions of a tenant, as they were written."""
    history: Size = 256 * 1024**2
    """Bytes of the history of a tenant's subscriptions, `service.history`; the oldest entries leave it."""
    requests_a_second: Whole = 100
    """Requests of a tenant a second; twice as many may come at once."""
    gateways: Annotated[int, Field(ge=0, le=10_000), BeforeValidator(number)] = 100
    """Gateways of a tenant's own."""
    streams: Whole = 64
    """Streams of matches of a tenant at once."""
    spool: Size = 256 * 1024**2
    """Bytes of messages of all gateways of a tenant: those that wait, and those kept for streams. When it is full the oldest ones
    kept for streams leave it first, then the oldest waiting ones become dead letters. Other tenants are not delayed."""


@final
class Api(Section):
    """The HTTP API of `streamer serve` (docs/api.md)."""

    address: Annotated[str, AfterValidator(checked_address)] = "127.0.0.1"
    """IP address or name of a host to listen at; `0.0.0.0` for every address of this machine."""
    port: Annotated[int, Field(ge=0, le=65_535), BeforeValidator(number)] = 8474
    """Port to listen at; 0 for any free port."""
    hosts: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ()
    """Names of the server for clients, as a list. Addresses, `localhost` and `address` are always accepted."""
    origins: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ()
    """Origins of pages that may use the API from a browser in addition to the server's own, for example
    `https://console.example.com`."""
    console: bool = True
    """Whether the server has the console, pages for a browser under `/console/` (docs/console.md)."""
    tokens: ApiTokens = Field(default_factory=ApiTokens)
    oidc: ApiOidc | None = None
    """Tokens of an identity provider; null for none. The API is served if you set it, too."""
    audit: ApiAudit = Field(default_factory=ApiAudit)
    tls: ApiTls = Field(default_factory=ApiTls)
    limits: ApiLimits = Field(default_factory=ApiLimits)
    quotas: ApiQuotas = Field(default_factory=ApiQuotas)

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Self:
        if self.tls.key is not None and self.tls.certificate is None:
            raise wrong_inside([(("tls", "certificate"), "expected the certificate of the key")])
        return self

    @property
    def is_served(self) -> bool:
        """Whether tokens are configured, so that `streamer serve` serves it."""
        return self.tokens.file is not None or self.oidc is not None

    def claims(self, *, dev: bool = False) -> Iterator[Claim]:
        """See `Section`.

        Args:
            dev: whether it is served without tokens, too.
        """
        if dev or self.is_served:
            yield Claim(("port",), OWNS, Port(self.address, self.port), "{} listens at this port")
