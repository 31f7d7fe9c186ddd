"""Load the table of cases, `testdata/match/**/*.toml`; `testdata/README.md` says what a case holds.

A file that does not obey the format is an error, never a case less.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from streamer.errors import EventCode, Ignored
from streamer.events.layout import EventLayout
from streamer.model import Limits, TopicDialect

TESTDATA = Path(__file__).parents[2] / "testdata"
MATCH = TESTDATA / "match"
KNOWN_FAILURES = TESTDATA / "known_failures.toml"
#: Besides those: cases of CEL that fail where cel-python evaluates them.
KNOWN_FAILURES_PORTABLE = TESTDATA / "known_failures_portable.toml"

_ENGINE_OPTIONS = {"soft_delete", "default_tenant", "topic_dialect"} | {limit.name for limit in fields(Limits)}
_MEMBERS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "semantics": str,
    "note": str,
    "subscription": str,
    "subscriptions": list,
    "event": str,
    "event_hex": str,
    "layout": str,
    "engine": dict,
    "tenant": str,
    "collection": str,
    "validation": str,
    "expect": str,
    "expect_ids": list,
    "certain": bool,
    "transition": str,
    "verdict": str,
    "reason": str,
    "subscription_error": dict,
    "event_error": dict,
    "ignored": str,
}
_ERROR_MEMBERS = {
    "subscription_error": {"type": str, "place": str, "contains": str, "line": int, "column": int},
    "event_error": {"code": str, "place": str, "offset": int},
}
_CHOICES = {
    "expect": ("match", "no match"),
    "transition": ("enter", "stay", "leave", "none"),
    "verdict": ("true", "false", "error", "unknown"),
    "validation": ("full", "lazy", "both"),
    "ignored": tuple(reason.value for reason in Ignored),
}


class BadCaseError(Exception):
    """A file of the table that does not obey the format."""


@dataclass(frozen=True, slots=True)
class Case:
    """One claim about subscriptions and an event."""

    file: str  # relative to testdata/match, with /
    name: str
    subscriptions: tuple[str, ...]
    event: bytes | None
    layout: EventLayout
    soft_delete: str | None
    default_tenant: str | None
    topic_dialect: TopicDialect
    limits: Limits
    tenant: str | None
    collection: str | None
    validation: tuple[Literal["full", "lazy"], ...]
    expect_ids: frozenset[str] | None
    certain: bool
    transition: str | None
    verdict: str | None
    reason: str | None
    subscription_error: Mapping[str, Any] | None
    event_error: Mapping[str, Any] | None
    ignored: str | None

    @property
    def id(self) -> str:
        return f"{self.file}::{self.name}"


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A case that fails, and is not going to be mended."""

    file: str
    name: str
    reason: str


@cache
def load_all() -> tuple[Case, ...]:
    """Return the cases of all files, in order."""
    return tuple(case for path in sorted(MATCH.rglob("*.toml")) for case in load(path, path.relative_to(MATCH).as_posix()))


def by_file(part: str | None = None) -> dict[str, list[Case]]:
    """Return the cases of each file, or only those whose id has *part*."""
    found: dict[str, list[Case]] = {}
    for case in load_all():
        if part is None or part in case.id:
            found.setdefault(case.file, []).append(case)
    return found


def load(path: Path, file: str) -> list[Case]:
    """Return the cases of one file.

    Raises:
        BadCaseError: anything that `testdata/README.md` does not allow.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BadCaseError(f"{file}: {error}") from error
    if set(table) != {"case"} or not isinstance(table["case"], list):
        raise BadCaseError(f"{file}: expected one or more [[case]] and nothing else")
    cases = []
    for number, members in enumerate(table["case"]):
        where = f"{file}: case {number} ({members.get('name')!r})"
        try:
            cases.append(_case(file, members))
        except (ValueError, TypeError, KeyError) as error:
            raise BadCaseError(f"{where}: {error}") from error
    twice = [name for name, count in Counter(case.name for case in cases).items() if count > 1]
    if twice:
        raise BadCaseError(f"{file}: names that stand twice: {twice}")
    return cases


def load_known_failures(path: Path = KNOWN_FAILURES) -> list[KnownFailure]:
    """Return the cases that are known to fail."""
    if not path.exists():
        return []
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    if set(table) - {"failure"}:
        raise BadCaseError(f"{path.name}: expected [[failure]] and nothing else")
    return [KnownFailure(**failure) for failure in table.get("failure", [])]


def _case(file: str, members: dict[str, Any]) -> Case:
    _check_members(members)
    subscriptions = _subscriptions(members)
    is_matched = not {*_ERROR_MEMBERS, "ignored"} & set(members)
    outcomes = [name for name in ("expect", "expect_ids", "ignored", *_ERROR_MEMBERS) if name in members]
    if len(outcomes) != 1:
        raise ValueError("expected just one of expect, expect_ids, ignored, subscription_error, event_error")
    if not is_matched and {"certain", "transition", "verdict", "reason"} & set(members):
        raise ValueError("what is ignored or an error has no certain, transition, verdict or reason")
    if ("event" in members) + ("event_hex" in members) != ("subscription_error" not in members):
        raise ValueError("expected just one of event and event_hex, and none with subscription_error")
    if {"certain", "transition"} & set(members) and members.get("expect") == "no match":
        raise ValueError("what does not match is not certain and has no transition")
    if {"verdict", "reason"} & set(members) and len(subscriptions) != 1:
        raise ValueError("verdict and reason are of one subscription")
    event = bytes.fromhex(members["event_hex"]) if "event_hex" in members else members.get("event")
    engine = dict(members.get("engine", {}))
    default_tenant = engine.pop("default_tenant", "default")
    topic_dialect = engine.pop("topic_dialect", "amqp")
    soft_delete = engine.pop("soft_delete", None)
    validation = members.get("validation", "both")
    return Case(
        file=file,
        name=members["name"],
        subscriptions=subscriptions,
        event=event.encode() if isinstance(event, str) else event,
        layout=_layout(members.get("layout", "change")),
        soft_delete=soft_delete,
        default_tenant=None if default_tenant is False else default_tenant,
        topic_dialect=topic_dialect,
        limits=Limits(**engine),
        tenant=members.get("tenant"),
        collection=members.get("collection"),
        validation=("full", "lazy") if validation == "both" else (validation,),
        expect_ids=_expected_ids(members, subscriptions),
        certain=members.get("certain", True),
        transition=members.get("transition"),
        verdict=members.get("verdict"),
        reason=members.get("reason"),
        subscription_error=members.get("subscription_error"),
        event_error=members.get("event_error"),
        ignored=members.get("ignored"),
    )


def _check_members(members: dict[str, Any]) -> None:
    for member, value in members.items():
        if member not in _MEMBERS:
            raise ValueError(f"unknown member {member!r}")
        if type(value) is not _MEMBERS[member]:
            raise TypeError(f"{member} is {_MEMBERS[member]}, not {value!r}")
        if member in _CHOICES and value not in _CHOICES[member]:
            raise ValueError(f"{member} is one of {_CHOICES[member]}, not {value!r}")
    for name, known in _ERROR_MEMBERS.items():
        for member, value in members.get(name, {}).items():
            if member not in known or type(value) is not known[member]:
                raise ValueError(f"{name}.{member} = {value!r} is not known")
    if "event_error" in members:
        EventCode(members["event_error"]["code"])
    unknown = set(members.get("engine", {})) - _ENGINE_OPTIONS
    if unknown:
        raise ValueError(f"unknown options of the engine: {unknown}")


def _subscriptions(members: dict[str, Any]) -> tuple[str, ...]:
    if "subscription" in members and "subscriptions" in members:
        raise ValueError("expected just one of subscription and subscriptions")
    if "subscription" in members:
        return (_with_id(members["subscription"]),)
    subscriptions = members.get("subscriptions", [])
    if not all(isinstance(text, str) for text in subscriptions):
        raise TypeError("subscriptions are JSON texts")
    if not subscriptions and "event_error" not in members and "ignored" not in members:
        raise ValueError("expected a subscription")
    return tuple(subscriptions)


def _with_id(text: str) -> str:
    """Add `"id": "s"` to a subscription without id, as text, so that its duplicate names stay."""
    try:
        members = json.loads(text)
    except ValueError:
        return text
    if not isinstance(members, dict) or "id" in members:
        return text
    opening, _, rest = text.partition("{")
    return f'{opening}{{"id":"s"{"," if members else ""}{rest}'


def _expected_ids(members: dict[str, Any], subscriptions: tuple[str, ...]) -> frozenset[str] | None:
    if "expect_ids" in members:
        return frozenset(members["expect_ids"])
    if "expect" not in members:
        return None
    if len(subscriptions) != 1:
        raise ValueError("several subscriptions need expect_ids")
    return frozenset([json.loads(subscriptions[0])["id"]] if members["expect"] == "match" else [])


def _layout(text: str) -> EventLayout:
    return EventLayout.from_dict(json.loads(text)) if text.lstrip().startswith("{") else EventLayout.preset(text)
