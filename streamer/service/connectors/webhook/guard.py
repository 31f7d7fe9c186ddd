"""Decide to which addresses the service may connect if a tenant chose the name: public ones, and allowed networks.

```
name ──► resolved once ──► each address judged ──► the socket connects to an address that was judged, never to the name
```

So odd spellings of an address, names that lead to inner addresses and names whose answer changes in between (DNS rebinding) are
one case. Python's `ipaddress.is_global` is unsuitable: in 3.11 it passes 224.0.0.1, ::127.0.0.1, 64:ff9b::/96, 2002::/16,
fec0::/10 and ff02::1. So public networks are listed here, after IANA's registries of special-purpose addresses. An IPv4 address
that an IPv6 address embeds is judged, too.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final, TypeAlias, final

from streamer.config.schema.connectors.webhook import WebhookSink
from streamer.config.schema.service import Gateways
from streamer.config.schema.urls import refused

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
#: An address as `socket.getaddrinfo` returns it: the family, and the address that a socket of that family connects to.
SocketAddress: TypeAlias = tuple[int, tuple[Any, ...]]
#: Returns the addresses of a name and a port. Raises OSError.
Resolve: TypeAlias = Callable[[str, int], Sequence[SocketAddress]]

#: https://www.iana.org/assignments/iana-ipv4-special-registry, and multicast.
_SPECIAL_4: Final = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
            *("192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        ),
    )
)
#: Global unicast; all other IPv6 addresses are not public.
_PUBLIC_6: Final = IPv6Network("2000::/3")
#: https://www.iana.org/assignments/iana-ipv6-special-registry, as far as it lies in global unicast.
_SPECIAL_6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")))
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
#: Networks of IPv6 addresses that end in one of IPv4: IPv4-compatible, translated (RFC 2765, 6052, 8215).
_ENDING: Final = tuple(map(IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")))


class Forbidden(OSError):
    """All addresses of a name are forbidden."""


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    return address in _PUBLIC_6 and not any(address in network for network in _SPECIAL_6)


def embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address embeds."""
    if any(address in network for network in _ENDING):
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


@final
@dataclass(frozen=True, slots=True)
class Guard:
    """The rules for connections.

    Attributes:
        allowed: networks in addition to the public ones.
        ports: the ports that a URL may name; None for any.
        allow_http: whether a URL may be without TLS.
    """

    allowed: tuple[Network, ...] = ()
    ports: tuple[int, ...] | None = None
    allow_http: bool = True

    @classmethod
    def of(cls, section: WebhookSink | Gateways) -> Guard:
        """Return the rules of a section."""
        return cls(section.networks, section.ports, section.allow_http)

    def refused(self, url: str) -> str | None:
        """Return why messages may not be posted to a URL, whatever its name leads to; None if they may. Tenants see it."""
        reason = refused(url, self.ports, allow_http=self.allow_http)
        return None if reason is None else reason.replace(", or allow_http: true", "")

    def passes(self, address: Address) -> bool:
        """Return whether connections to an address are allowed."""
        if isinstance(address, IPv6Address):
            if address in _MAPPED:
                # The system connects to the IPv4 address.
                return self.passes(IPv4Address(int(address) & 0xFFFFFFFF))
            if not all(self._is_open(inner) for inner in embedded(address)):
                return False
        return self._is_open(address)

    def _is_open(self, address: Address) -> bool:
        return is_public(address) or any(address in network for network in self.allowed)

    def passing(self, addresses: Sequence[SocketAddress]) -> list[SocketAddress]:
        """Return the allowed addresses of a name. Raises Forbidden if there are none."""
        good = [each for each in addresses if self.passes(_address(each))]
        if not good:
            raise Forbidden("the endpoint has no address that is public or in an allowed network")
        return good


def _address(address: SocketAddress) -> Address:
    # Python's type keeps the zone of an IPv6 address such as fe80::1%eth0, and then no network contains it.
    return ip_address(str(address[1][0]).partition("%")[0])


def resolve(host: str, port: int) -> Sequence[SocketAddress]:
    """Resolve a name with the system's resolver. Raises OSError."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"invalid host name: {error}") from None
    return [(family, address) for family, _, _, _, address in answers if family in (socket.AF_INET, socket.AF_INET6)]
