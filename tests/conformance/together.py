"""The cases of each format in one engine, as a command or a job reads them: one record a line, and subscriptions of all cases.

A subscription has the number of its case in its id, `N/ID`, so that only those of an event's own case count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from streamer.events.layout import EventLayout
from streamer.model import Limits
from tests.conformance.table import Case, load_all, load_known_failures

#: The id of a subscription, its transition (None for none), and whether it is certain.
Found = tuple[str, str | None, bool]


@dataclass
class Together:
    """The cases of one format."""

    cases: list[Case] = field(default_factory=list)

    @property
    def subscriptions(self) -> list[str]:
        """The subscriptions of all cases, each as one line of JSON."""
        return [
            json.dumps({**(members := json.loads(text)), "id": f"{number}/{members['id']}"})
            for number, case in enumerate(self.cases)
            for text in case.subscriptions
        ]

    @property
    def events(self) -> list[bytes]:
        """The event of each case, as one line."""
        return [(case.event or b"").replace(b"\n", b" ") for case in self.cases]

    def wrong(self, found: Iterable[tuple[int, Found]], bad: set[int]) -> dict[str, object]:
        """Return what does not hold of the matches that *found* has with the index of their event, and of *bad* events."""
        seen: list[set[Found]] = [set() for _ in self.cases]
        for number, (id_, transition, certain) in found:
            of, _, own = id_.partition("/")
            if of == str(number):
                seen[number].add((own, transition, certain))
        wrong: dict[str, object] = {}
        for number, case in enumerate(self.cases):
            expected = {(id_, case.certain) for id_ in case.expect_ids or ()}
            transitions = {transition or "none" for _, transition, _ in seen[number]}
            if (
                {(id_, certain) for id_, _, certain in seen[number]} != expected
                or (number in bad) != (case.event_error is not None)
                or (case.transition is not None and transitions not in (set(), {case.transition}))
            ):
                wrong[case.id] = "refused" if number in bad else seen[number]
        return wrong


def by_format() -> dict[str, Together]:
    """Return the cases of each wire format that need no other options. An empty line is no record, so it has no case."""
    names = {EventLayout.preset(name): name for name in EventLayout.PRESETS if name != "change"}
    known = {(failure.file, failure.name) for failure in load_known_failures()}
    formats: dict[str, Together] = {}
    for case in load_all():
        options = (case.soft_delete, case.default_tenant, case.topic_dialect, case.tenant, case.collection)
        if (
            (name := names.get(case.layout)) is not None
            and options == (None, "default", "amqp", None, None)
            and case.limits == Limits()
            and (case.event or b"").strip()
            and case.subscription_error is None
            and (case.file, case.name) not in known
        ):
            formats.setdefault(name, Together()).cases.append(case)
    return formats
