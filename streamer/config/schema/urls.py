"""The rules for URLs of webhooks and registries, and for the networks and ports that they may use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from streamer.config.schema.values import as_list, number


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
            reason = "expected a port from 1 to 65,535"
    if reason is not None:
        raise PydanticCustomError("url", "{reason}", {"reason": reason})
    return url


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
