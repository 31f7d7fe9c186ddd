"""Unit tests of subscriptions: a YAML file of events, each with its expected matches, and the results of a run.

```
bytes ── config/yaml.py ──► nodes with marks ──► CaseFile ── run ──► Result of each case: the differences and their reasons
                                     └─────────► errors, each with its line and column
```

A difference explains the subscriptions that it concerns, because its reader must correct the case or a subscription.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final, get_args

from streamer.config.loader import Place, closest, error_at, show_place, walk
from streamer.config.yaml import Bounds, Node, kind_of, read_yaml, shown
from streamer.engine.explain import Explanation
from streamer.engine.lines import read_lines
from streamer.errors import BulkConfigError, BulkSubscriptionError, ConfigError, EventError, InputError
from streamer.events.layout import BOTH, EventLayout, faults, unknown_format
from streamer.events.reading import EventSource
from streamer.model import Match, Transition

if TYPE_CHECKING:
    from streamer.engine.engine import Engine

#: Cases are longer than a configuration, and an event may be written as one text.
BOUNDS: Final = Bounds(max_bytes=1 << 20, max_values=50_000, max_text=1 << 18)
#: At most this many events of a case are reported, and at most this many subscriptions of each are explained.
SHOWN, EXPLAINED = 5, 3

_FILE: Final = ("subscriptions", "format", "layout", "cases")
_CASE: Final = ("name", "event", "events", "file", "tenant", "collection", "expect", "expect_at_least")
_EXPECTED: Final = ("id", "transition", "certain")
_TRANSITIONS: Final = (*get_args(Transition), None)


@final
@dataclass(frozen=True, slots=True)
class Expected:
    """A subscription that must match, and the `transition` and `certain` of its match, if the case names them."""

    id: str
    details: Mapping[str, Any]
    place: Place

    def agrees(self, match: Match) -> bool:
        """Return whether a match is as expected."""
        return all(getattr(match, name) == value for name, value in self.details.items())


@final
@dataclass(frozen=True, slots=True)
class Case:
    """Events, each of which the expected subscriptions must match.

    Attributes:
        events: the events in the case itself; empty if they are in *file*.
        file: JSON lines with the events.
        at_least: whether other subscriptions may match, too; otherwise, exactly the expected ones must match.
        line: the line at which the case begins.
        column: the column at which the case begins.
    """

    name: str
    events: Sequence[EventSource]
    file: Path | None
    tenant: str | None
    collection: str | None
    expect: Sequence[Expected]
    at_least: bool
    line: int
    column: int


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """The result of one event, if it differs from the expectation of its case.

    Attributes:
        number: the position of the event in the case, from 1; its line in a file.
        event: the event as it is in the case.
        error: the reason why it could not be matched; None if it was matched.
        expected: all expected subscriptions.
        matched: the compared matches, in order of adding: only the expected ones if others may match, too.
        explanations: explanations of the first subscriptions that differ.
    """

    number: int
    event: EventSource
    error: str | None
    expected: Sequence[Expected] = ()
    matched: Sequence[Match] = ()
    explanations: Sequence[Explanation] = ()

    @property
    def missing(self) -> list[str]:
        """The expected ids that do not match."""
        matched = {match.subscription_id for match in self.matched}
        return [each.id for each in self.expected if each.id not in matched]

    @property
    def unexpected(self) -> list[str]:
        """The ids that match but are not expected."""
        expected = {each.id for each in self.expected}
        return [match.subscription_id for match in self.matched if match.subscription_id not in expected]

    @property
    def differing(self) -> list[str]:
        """The expected ids that match, but with another transition or certainty."""
        expected = {each.id: each for each in self.expected}
        return [
            match.subscription_id
            for match in self.matched
            if match.subscription_id in expected and not expected[match.subscription_id].agrees(match)
        ]

    @property
    def summary(self) -> str:
        """The difference in one line."""
        if self.error is not None:
            return self.error
        kinds = {"missing": self.missing, "not expected": self.unexpected, "differing": self.differing}
        return "; ".join(f"{kind}: {', '.join(map(repr, ids))}" for kind, ids in kinds.items() if ids)

    def diff(self) -> Iterator[str]:
        """Yield the lines of a comparison: `-` expected only, `+` matched only, else both."""
        expected = {each.id: each for each in self.expected}
        matched = {match.subscription_id: match for match in self.matched}
        for each in self.expected:
            match = matched.get(each.id)
            if match is not None and each.agrees(match):
                yield f"  {_text_of(each.id, each.details)}"
                continue
            yield f"- {_text_of(each.id, each.details)}"
            if match is not None:
                yield f"+ {_text_of(each.id, {name: getattr(match, name) for name in each.details})}"
        for match in self.matched:
            if match.subscription_id not in expected:
                certain = {} if match.certain else {"certain": False}
                yield f"+ {_text_of(match.subscription_id, {'transition': match.transition, **certain})}"


@final
@dataclass(frozen=True, slots=True)
class Result:
    """The result of a case.

    Attributes:
        events: number of matched events.
        failed: number of events with another result than expected.
        differences: the first of the failed events.
    """

    case: Case
    events: int
    failed: int
    differences: Sequence[Difference]

    @property
    def passed(self) -> bool:
        return self.failed == 0


@final
@dataclass(frozen=True, slots=True)
class CaseFile:
    """A file of cases.

    Attributes:
        name: the file's name in errors.
        files: the files of subscriptions, by their names in errors.
        inline: the subscriptions in the file itself, each with its place.
        layout: the layout of events; None if the file sets neither `format` nor `layout`.
    """

    name: str
    root: Node
    files: Sequence[str]
    inline: Mapping[Place, Mapping[str, Any]]
    layout: EventLayout | None
    cases: Sequence[Case]

    def error(self, place: Place, reason: str) -> ConfigError:
        """Return an error about the value at a place, located there or at the nearest value around it."""
        nodes = walk(self.root, place)
        return error_at(self.name, nodes[-1].mark if nodes else self.root.mark, reason, show_place(place))

    def fill(self, engine: Engine) -> None:
        """Add the subscriptions in the file itself to an engine. Raises BulkConfigError."""
        places = list(self.inline)
        try:
            engine.add_many(self.inline.values())
        except BulkSubscriptionError as bulk:
            raise BulkConfigError([self._located(places[error.index or 0], error) for error in bulk.errors]) from None

    def _located(self, place: Place, error: Any) -> ConfigError:
        inside = (int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", error.place))
        located = self.error((*place, *inside), error.reason)
        located.place = ".".join(filter(None, (show_place(place), error.place)))
        return located

    def check(self, engine: Engine) -> None:
        """Raise BulkConfigError if a case expects a subscription that the engine does not have."""
        errors = []
        for case in self.cases:
            for each in case.expect:
                if each.id not in engine:
                    near = closest(each.id, engine, 0.6)
                    meant = "" if near is None else f"; did you mean {near!r}?"
                    errors.append(self.error(each.place, f"unknown subscription {shown(each.id)!r}{meant}"))
        if errors:
            raise BulkConfigError(errors)


def read_cases(text: bytes, name: str, directory: Path) -> CaseFile:
    """Return the cases in the text of a file.

    Args:
        name: the path of the text, for errors.
        directory: the base of the relative paths in it.

    Raises:
        BulkConfigError: the file has faults; the error lists all of them.
    """
    root, errors = read_yaml(text, name, BOUNDS)
    reader = _Reader(name, directory, root, errors)
    case_file = reader.read()
    if errors:
        raise BulkConfigError(sorted(errors, key=lambda error: (error.line or 0, error.column or 0)))
    return case_file


def run(engine: Engine, case: Case) -> Result:
    """Return the result of a case, after matching its events. Raises OSError if its file cannot be read."""
    events = failed = 0
    differences: list[Difference] = []
    for number, event in _events(case, engine):
        events += 1
        difference = _compare(engine, case, number, event)
        if difference is not None:
            failed += 1
            if len(differences) < SHOWN:
                differences.append(difference)
    if not events:
        # A case without events would pass with any subscriptions.
        return Result(case, 0, 1, [Difference(1, None, "the file has no events")])
    return Result(case, events, failed, differences)


def _events(case: Case, engine: Engine) -> Iterator[tuple[int, EventSource | EventError]]:
    if case.file is None:
        yield from enumerate(case.events, 1)
        return
    with open(case.file, "rb") as file:
        try:
            yield from read_lines(file, max_bytes=engine._options.limits.max_event_bytes)
        except InputError as error:
            raise OSError(None, f"line {error.line}: {error}") from None


def _compare(engine: Engine, case: Case, number: int, event: EventSource | EventError) -> Difference | None:
    if isinstance(event, EventError):
        event.index = None
        return Difference(number, None, f"the event cannot be read: {event}", case.expect)
    try:
        matched = list(engine.match(event, case.tenant, case.collection).sorted())
    except EventError as error:
        return Difference(number, event, f"the event cannot be read: {error}", case.expect)
    if case.at_least:
        expected = {each.id for each in case.expect}
        matched = [match for match in matched if match.subscription_id in expected]
    difference = Difference(number, event, None, case.expect, matched)
    wrong = [*difference.missing, *difference.differing, *difference.unexpected]
    if not wrong:
        return None
    explanations = [engine.explain(event, each, case.tenant, case.collection) for each in wrong[:EXPLAINED]]
    return Difference(number, event, None, case.expect, matched, explanations)


def _text_of(subscription_id: str, details: Mapping[str, Any]) -> str:
    words = []
    for name, value in details.items():
        if name == "transition":
            words.append(value or "no transition")
        else:
            words.append("certain" if value else "not certain")
    return f"{subscription_id} ({', '.join(words)})" if words else subscription_id


class _Reader:
    """Reads nodes into a `CaseFile`, and collects the faults."""

    def __init__(self, name: str, directory: Path, root: Node, errors: list[ConfigError]) -> None:
        self._file = CaseFile(name, root, (), {}, None, ())
        self._directory, self._root, self._errors = directory, root, errors

    def read(self) -> CaseFile:
        if not isinstance(self._root.value, dict):
            self._wrong((), f"expected names and values, not {kind_of(self._root.plain())}")
            return self._file
        members = self._members((), _FILE)
        files, inline = self._subscriptions(members.get("subscriptions"))
        cases = self._list(("cases",), "cases")
        return CaseFile(
            name=self._file.name,
            root=self._root,
            files=files,
            inline=inline,
            layout=self._layout(members.get("format"), members.get("layout")),
            cases=[case for index in range(len(cases)) if (case := self._case(("cases", index))) is not None],
        )

    def _wrong(self, place: Place, reason: str) -> None:
        # The YAML reader has already reported values that it refused.
        if not any(node.refused for node in walk(self._root, place)):
            self._errors.append(self._file.error(place, reason))

    def _members(self, place: Place, names: Sequence[str]) -> dict[str, Any]:
        """Return the values of a mapping by name, and report each name that is not in *names*."""
        node = walk(self._root, place)[-1] if place else self._root
        for name in node.value:
            if name not in names:
                near = closest(name, names, 0.6)
                meant = f"did you mean '{near}'?" if near else f"expected one of {', '.join(names)}"
                at = show_place((*place, name))
                self._errors.append(error_at(self._file.name, node.names[name], f"unknown name; {meant}", at))
        return {name: node.value[name].plain() for name in names if name in node.value}

    def _list(self, place: Place, what: str) -> Sequence[Any]:
        node = (walk(self._root, place) or [self._root])[-1]
        if len(walk(self._root, place)) < len(place):
            self._wrong(place, f"expected a list of {what}; there is none")
            return ()
        if not isinstance(node.value, list):
            self._wrong(place, f"expected a list of {what}, not {kind_of(node.plain())}")
            return ()
        if not node.value and what != "ids":
            self._wrong(place, f"expected at least one of the {what}")
        return node.value

    def _subscriptions(self, value: Any) -> tuple[list[str], dict[Place, Mapping[str, Any]]]:
        files: list[str] = []
        inline: dict[Place, Mapping[str, Any]] = {}
        several = value if isinstance(value, list) else [] if value is None else [value]
        for index, each in enumerate(several):
            place: Place = ("subscriptions", index) if isinstance(value, list) else ("subscriptions",)
            if isinstance(each, dict):
                inline[place] = each
            elif isinstance(each, str) and each and "\0" not in each:
                files.append(str(self._directory / each))
            else:
                self._wrong(place, f"expected the path of a file, or a subscription, not {kind_of(each)}")
        return files, inline

    def _layout(self, name: Any, value: Any) -> EventLayout | None:
        if name is not None:
            if value is not None:
                self._wrong(("layout",), BOTH)
            elif name in EventLayout.PRESETS:
                return EventLayout.preset(name)
            else:
                self._wrong(("format",), unknown_format(name))
            return None
        if value is None:
            return None
        if not isinstance(value, str | dict):
            self._wrong(("layout",), f"expected a layout, not {kind_of(value)}")
            return None
        # Compat: before there was `format`, the name of a preset was a layout.
        members = {"preset": value} if isinstance(value, str) else value
        problems = faults(members)
        for steps, reason in problems:
            self._wrong(("layout", *(() if isinstance(value, str) else steps)), reason)
        return None if problems else EventLayout.from_dict(members)

    def _case(self, place: Place) -> Case | None:
        node = walk(self._root, place)[-1]
        if not isinstance(node.value, dict):
            self._wrong(place, f"expected a case: {', '.join(_CASE)}; not {kind_of(node.plain())}")
            return None
        members = self._members(place, _CASE)
        sources = [name for name in ("event", "events", "file") if name in members]
        if len(sources) != 1:
            self._wrong(place, f"expected one of event, events, file{'; not several' if sources else ''}")
        events: list[EventSource] = []
        file = None
        if sources == ["event"]:
            events = self._events([members["event"]], [(*place, "event")])
        elif sources == ["events"]:
            self._list((*place, "events"), "events")
            several = members["events"] if isinstance(members["events"], list) else []
            events = self._events(several, [(*place, "events", index) for index in range(len(several))])
        elif sources == ["file"] and (named := self._text(place, members, "file")) is not None:
            if "\0" in named:
                self._wrong((*place, "file"), "expected a path without U+0000")
            file = self._directory / named
        if "expect" in members and "expect_at_least" in members:
            self._wrong((*place, "expect_at_least"), "expected one of expect, expect_at_least; not both")
        named_expect = "expect_at_least" if "expect_at_least" in members else "expect"
        return Case(
            name=self._text(place, members, "name") or show_place(place),
            events=events,
            file=file,
            tenant=self._text(place, members, "tenant"),
            collection=self._text(place, members, "collection"),
            expect=self._expected((*place, named_expect)),
            at_least=named_expect == "expect_at_least",
            line=node.mark.line,
            column=node.mark.column,
        )

    def _events(self, events: Sequence[Any], places: Sequence[Place]) -> list[EventSource]:
        for event, place in zip(events, places, strict=True):
            if not isinstance(event, dict | str | None):
                self._wrong(place, f"expected an event: names and values, or JSON text; not {kind_of(event)}")
        return list(events)

    def _text(self, place: Place, members: Mapping[str, Any], name: str) -> str | None:
        value = members.get(name)
        if value is None or (isinstance(value, str) and value and not (value == "*" and name in ("tenant", "collection"))):
            return value
        hint = f"; write '{shown(value)}' in quotes" if isinstance(value, int | float) and not isinstance(value, bool) else ""
        self._wrong((*place, name), f"expected a {name}, not {repr(value) if isinstance(value, str) else kind_of(value)}{hint}")
        return None

    def _expected(self, place: Place) -> list[Expected]:
        expectations: dict[str, Expected] = {}
        nodes = self._list(place, "ids")
        if place[-1] == "expect_at_least" and not nodes:
            self._wrong(place, "expected at least one id; `expect: []` means that no subscription matches")
        for index, node in enumerate(nodes):
            at = (*place, index)
            value = node.plain()
            members = self._members(at, _EXPECTED) if isinstance(value, dict) else {"id": value}
            named = members.get("id")
            if not isinstance(named, str) or not named:
                self._wrong(at, f"expected the id of a subscription, not {kind_of(named)}")
                continue
            if named in expectations:
                self._wrong(at, f"{shown(named)!r} stands twice")
                continue
            expectations[named] = Expected(named, {name: members[name] for name in _EXPECTED[1:] if name in members}, at)
            if members.get("transition") not in _TRANSITIONS:
                self._wrong((*at, "transition"), "expected enter, stay, leave, or null for an event without a transition")
            if not isinstance(members.get("certain", True), bool):
                self._wrong((*at, "certain"), f"expected true or false, not {kind_of(members['certain'])}")
        return list(expectations.values())
