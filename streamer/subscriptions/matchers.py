"""The conditions of a pattern on one leaf: one frozen type for each kind of value in a pattern (semantics.md section 5).

Each prints as the pattern spells it. `streamer.reference.patterns.matches_value` defines their matches.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass
from typing import TypeAlias, final

from streamer.model import BeyondFloat64, Dialect

Scalar: TypeAlias = str | int | float | bool | BeyondFloat64 | None
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@final
@dataclass(frozen=True, slots=True, eq=False)
class Equal:
    """The equal leaf; numbers by value."""

    value: Scalar

    @property
    def key(self) -> tuple[str, Scalar]:
        """Two scalars are equal if and only if their keys are; in Python `1 == True`."""
        return scalar_key(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.value.text if isinstance(self.value, BeyondFloat64) else _json(self.value)


@final
@dataclass(frozen=True, slots=True)
class Prefix:
    """String leaves that begin with *text*; it is not empty."""

    text: str
    ignore_case: bool = False

    def __str__(self) -> str:
        return _operator("prefix", self.text, self.ignore_case)


@final
@dataclass(frozen=True, slots=True)
class Suffix:
    """String leaves that end with *text*; it is not empty."""

    text: str
    ignore_case: bool = False

    def __str__(self) -> str:
        return _operator("suffix", self.text, self.ignore_case)


@final
@dataclass(frozen=True, slots=True)
class EqualsIgnoreCase:
    """String leaves that equal *text* after simple case folding."""

    text: str

    def __str__(self) -> str:
        return _operator("equals-ignore-case", self.text)


@final
@dataclass(frozen=True, slots=True)
class Wildcard:
    """String leaves that consist of these *pieces* with any characters between them; a single piece is the whole string.

    `wildcard` and `shellstyle` both make this matcher; they differ only in their syntax.
    """

    pieces: tuple[str, ...]

    def __str__(self) -> str:
        return _operator("wildcard", "*".join(re.sub(r"[\\*]", r"\\\g<0>", piece) for piece in self.pieces))


@final
@dataclass(frozen=True, slots=True)
class Regexp:
    """String leaves that an I-Regexp matches as a whole.

    Attributes:
        re2: the regexp in RE2's syntax.
        size: its number of states.
    """

    source: str
    dialect: Dialect
    re2: str
    size: int

    def __str__(self) -> str:
        return _operator("regexp", self.source)


@final
@dataclass(frozen=True, slots=True)
class Numeric:
    """Number leaves between two bounds, either of which may be open (None). `=` is two equal bounds, both inclusive."""

    low: int | float | None = None
    low_inclusive: bool = False
    high: int | float | None = None
    high_inclusive: bool = False

    def __str__(self) -> str:
        if self.low is not None and self.low == self.high:
            return f'{{"numeric": ["=", {self.low}]}}'
        low = [] if self.low is None else [f'">{"=" * self.low_inclusive}"', str(self.low)]
        high = [] if self.high is None else [f'"<{"=" * self.high_inclusive}"', str(self.high)]
        return f'{{"numeric": [{", ".join(low + high)}]}}'


@final
@dataclass(frozen=True, slots=True)
class Cidr:
    """String leaves that are an address in *network*, of the same IP version."""

    network: Network

    def __str__(self) -> str:
        return _operator("cidr", str(self.network))


@final
@dataclass(frozen=True, slots=True)
class Exists:
    """Any leaf."""

    def __str__(self) -> str:
        return '{"exists": true}'


@final
@dataclass(frozen=True, slots=True)
class Absent:
    """The event has no such leaf."""

    def __str__(self) -> str:
        return '{"exists": false}'


@final
@dataclass(frozen=True, slots=True)
class AnythingBut:
    """A leaf of any type that matches none of *matchers*, which all have the same kind."""

    matchers: tuple[Equal | Prefix | Suffix | EqualsIgnoreCase | Wildcard, ...]

    def __str__(self) -> str:
        shown = [str(matcher) for matcher in self.matchers]
        if isinstance(self.matchers[0], Equal):
            return f'{{"anything-but": [{", ".join(shown)}]}}'
        name = next(iter(json.loads(shown[0])))
        return f'{{"anything-but": {{"{name}": [{", ".join(_json(json.loads(each)[name]) for each in shown)}]}}}}'


Matcher: TypeAlias = (
    Equal | Prefix | Suffix | EqualsIgnoreCase | Wildcard | Regexp | Numeric | Cidr | Exists | Absent | AnythingBut
)


def scalar_key(value: Scalar) -> tuple[str, Scalar]:
    """Return a hashable key for a scalar; numbers of the same value have equal keys."""
    if value is None:
        return "null", None
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, str):
        return "string", value
    return ("beyond" if isinstance(value, BeyondFloat64) else "number"), value


def parse_address(text: str) -> Address | None:
    """Return the IP address in *text*, or None if it is invalid, has a zone id, or has leading zeros in IPv4."""
    if len(text) > 45 or "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def parse_network(text: str) -> Network | None:
    """Return the network in *text* in CIDR notation, or None if it is invalid. Bits of the host may be set."""
    base, slash, length = text.partition("/")
    address = parse_address(base)
    if address is None or not slash or re.fullmatch("0|[1-9][0-9]{0,2}", length, re.ASCII) is None:
        return None
    if int(length) > address.max_prefixlen:
        return None
    # `ip_network` would print the address and parse it again, which takes three times as long.
    made = ipaddress.IPv4Network if address.version == 4 else ipaddress.IPv6Network
    return made((int(address), int(length)), strict=False)


def _operator(name: str, text: str, ignore_case: bool = False) -> str:
    operand = _json({"equals-ignore-case": text} if ignore_case else text)
    return f'{{"{name}": {operand}}}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
