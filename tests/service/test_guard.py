"""Only public addresses are connected to, whatever a name, a spelling or a second answer says."""

from __future__ import annotations

import socket
from ipaddress import ip_address, ip_network

import pytest

from streamer.service.connectors.webhook.guard import Forbidden, Guard, SocketAddress, is_public, resolve

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"]
#: Python 3.11 calls the first row global.
PRIVATE = [
    *("224.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "2002:7f00:1::", "2002:808:808::", "fec0::1", "ff02::1"),
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1"),
    *("192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1"),
    *("255.255.255.255", "239.1.1.1"),
    *("::", "::1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b:1::8.8.8.8", "100::1"),
    *("2001::1", "2001:db8::1", "3fff::1", "fc00::1", "fd12::1", "fe80::1", "ff0e::1", "4000::1", "5f00::1"),
]


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_pass(text: str) -> None:
    assert Guard().passes(ip_address(text))


@pytest.mark.parametrize("text", PRIVATE)
def test_no_other_address_passes(text: str) -> None:
    assert not Guard().passes(ip_address(text))


@pytest.mark.parametrize(
    ("network", "text", "passes"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("fd00::/8", "fd12::1", True),
        # Who lets translated addresses in has not let the inner ones in.
        ("64:ff9b::/96", "64:ff9b::8.8.8.8", True),
        ("64:ff9b::/96", "64:ff9b::10.0.0.1", False),
        ("2002::/16", "2002:a00:1::", False),
        ("::/0", "::1", False),
        ("0.0.0.0/0", "169.254.169.254", True),
    ],
)
def test_networks_that_are_allowed_pass_but_not_what_addresses_in_them_embed(network: str, text: str, passes: bool) -> None:
    assert Guard(allowed=(ip_network(network),)).passes(ip_address(text)) is passes


def test_of_several_addresses_those_that_pass_are_left() -> None:
    found: list[SocketAddress] = [(socket.AF_INET, ("10.0.0.1", 443)), (socket.AF_INET, ("8.8.8.8", 443))]
    assert Guard().passing(found) == found[1:]
    for only in ([], found[:1], [(socket.AF_INET6, ("fe80::1%lo", 443, 0, 1))]):
        with pytest.raises(Forbidden, match="no address that is public"):
            Guard().passing(only)


@pytest.mark.parametrize("spelled", ["127.1", "0x7f.1", "2130706433", "017700000001", "localhost", "127.0.0.1", "::1"])
def test_however_an_address_is_spelled_it_is_judged_as_what_it_is(spelled: str) -> None:
    try:
        found = resolve(spelled, 80)
    except OSError:
        return
    assert not any(is_public(ip_address(address[0])) for _, address in found)
    with pytest.raises(Forbidden):
        Guard().passing(found)
