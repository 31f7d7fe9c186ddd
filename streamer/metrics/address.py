"""Check an address to listen on: an IPv4 or IPv6 address, or a host name. Listening shows whether this machine has it."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

#: RFC 1123, and underscores, which names of services in Compose files have.
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_LONGEST: Final = 253


def parse_address(text: str) -> str:
    """Return an address to listen on, after checking its form.

    Raises:
        TypeError: *text* is not a string.
        ValueError: *text* is not an address; the message names the fault.
    """
    if not isinstance(text, str):
        raise TypeError(f"an address is text, not {type(text).__name__}")
    if not text:
        raise ValueError("an empty address; 0.0.0.0 stands for all addresses of this machine")
    if "//" in text:
        raise ValueError("a URL; expected the address of a network interface, such as 127.0.0.1, or the name of a host")
    if text.startswith("["):
        raise ValueError("an IPv6 address stands without brackets here, and without a port")
    if text.count(":") == 1:
        raise ValueError("an address stands without a port here")
    if ":" in text:
        return _checked(text)
    labels = text.removesuffix(".").split(".")
    if labels[-1].isdecimal():
        # A host name cannot end in a number, as in browsers and RFC 3493: some programs read `127.1` as 127.0.0.1.
        return _checked(text)
    if len(text) > _LONGEST or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("neither an IP address nor the name of a host: letters, digits and hyphens, with single dots between")
    return text


def _checked(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        kind = "IPv6 address" if ":" in text else "IPv4 address, which is four numbers from 0 to 255"
        raise ValueError(f"no {kind}") from None
    return text
