"""Load `testdata/hostile.toml`: what someone may send to bring the service down, and what each must get."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamer.errors import EventCode
from streamer.events.layout import EventLayout
from streamer.model import Limits
from tests.conformance.table import TESTDATA

HOSTILE = TESTDATA / "hostile.toml"

_MEMBERS = {
    "name": str,
    "subscription": (str, list),
    "event": (str, list),
    "event_hex": str,
    "layout": str,
    "engine": dict,
    "validation": str,
    "expect": str,
    "certain": bool,
    "cel_error": str,
    "subscription_error": dict,
    "event_error": dict,
    "later_on_the_reference": bool,
}
_ERROR_MEMBERS = {
    "subscription_error": {"type", "place", "contains", "line", "column"},
    "event_error": {"code", "place", "offset"},
}


@dataclass(frozen=True, slots=True, repr=False)
class Row:
    """A hostile input and what it must get: ids, an error of the subscription, or an error of the event.

    It prints as its name: some inputs have a text that would fill the memory.

    Attributes:
        subscription: anything that `Engine.add` may be given.
        event: anything that `Engine.match` may be given; None where the subscription is refused.
        expect: whether it matches.
        certain: of the match.
        is_full: under lazy validation it may match or not.
        cel_error: the reason that is counted for the CEL expression.
        subscription_error: the type, and attributes of the error; `contains` is a part of its message.
        event_error: attributes of the error.
        later_on_the_reference: it takes a quarter of a second or more there.
        is_one_of_many: others are nearly alike, so a slow test is soon enough for it.
    """

    name: str
    subscription: Any = b'{"id":"s"}'
    event: Any = None
    layout: EventLayout = field(default_factory=EventLayout)
    limits: Limits = field(default_factory=Limits)
    expect: bool | None = None
    certain: bool = True
    is_full: bool = False
    cel_error: str | None = None
    subscription_error: Mapping[str, Any] | None = None
    event_error: Mapping[str, Any] | None = None
    later_on_the_reference: bool = False
    is_one_of_many: bool = False

    def __repr__(self) -> str:
        return f"<Row: {self.name}>"

    def made(self) -> Row:
        """Return the row with what is made `Later`."""
        given = {name: getattr(self, name) for name in ("subscription", "event")}
        return replace(self, **{name: value.make() for name, value in given.items() if isinstance(value, Later)})


@dataclass(frozen=True, slots=True)
class Later:
    """A large input, which the test makes: each worker collects all rows, and tests some."""

    make: Callable[[], Any]


def load() -> list[Row]:
    """Return the rows of the file. Raises ValueError for one that does not obey the format."""
    rows = [_row(members) for members in tomllib.loads(HOSTILE.read_text(encoding="utf-8"))["row"]]
    names = [row.name for row in rows]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"names that stand twice: {twice}")
    return rows


def _row(members: dict[str, Any]) -> Row:
    where = members.get("name")
    for member, value in members.items():
        if member not in _MEMBERS or not isinstance(value, _MEMBERS[member]):
            raise ValueError(f"{where}: {member} = {value!r} is not known")
    if members.get("validation", "full") != "full":
        raise ValueError(f"{where}: validation is 'full' or not said")
    outcomes = {"expect", "subscription_error", "event_error"} & set(members)
    if len(outcomes) != 1:
        raise ValueError(f"{where}: expected just one of expect, subscription_error and event_error")
    for outcome in outcomes & _ERROR_MEMBERS.keys():
        if not set(members[outcome]) <= _ERROR_MEMBERS[outcome]:
            raise ValueError(f"{where}: {outcome} = {members[outcome]}")
    if members.get("expect", "match") not in ("match", "no match"):
        raise ValueError(f"{where}: expect is 'match' or 'no match'")
    if "event_error" in members:
        EventCode(members["event_error"]["code"])
    if ("event" in members) + ("event_hex" in members) != ("subscription_error" not in members):
        raise ValueError(f"{where}: expected just one of event and event_hex, and none with subscription_error")
    event = bytes.fromhex(members["event_hex"]) if "event_hex" in members else _text(members.get("event", ""))
    return Row(
        name=members["name"],
        subscription=_text(members.get("subscription", '{"id":"s"}')),
        event=None if "subscription_error" in members else event,
        layout=EventLayout.from_dict(json.loads(members["layout"])) if "layout" in members else EventLayout(),
        limits=Limits(**members.get("engine", {})),
        expect=members["expect"] == "match" if "expect" in members else None,
        certain=members.get("certain", True),
        is_full="validation" in members,
        cel_error=members.get("cel_error"),
        subscription_error=members.get("subscription_error"),
        event_error=members.get("event_error"),
        later_on_the_reference=members.get("later_on_the_reference", False),
    )


def _text(pieces: str | list[Any]) -> bytes:
    """Join the pieces of a text, each a string or `[string, times]`."""
    if isinstance(pieces, str):
        return pieces.encode()
    return "".join(piece if isinstance(piece, str) else piece[0] * piece[1] for piece in pieces).encode()
