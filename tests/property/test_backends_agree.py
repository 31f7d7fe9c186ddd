"""The native engine says what the reference says, whatever is added, replaced, removed and merged in between.

Each set is 20 subscriptions, or 150, and 10 events, told by its number alone: `python -m tests.property.test_backends_agree
4711` runs that one. With `--seconds` it runs new sets until then and prints how many there were; `make fuzz` does so.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from streamer import _native
from streamer.cel_eval import ErrorLog, ProgramCache
from streamer.core.options import Options
from streamer.core.protocol import Selection
from streamer.events.layout import EventLayout
from streamer.events.reading import read_event
from streamer.model import Event, Limits, Match, Verdict
from streamer.native.core import NativeCore
from streamer.reference.filters import evaluate_filter
from streamer.reference.patterns import evaluate_pattern
from streamer.reference.transition import find_outcome
from streamer.subscriptions.compile import CompiledSubscription, compile_subscription
from streamer.subscriptions.patterns import AllOf, Field, Pattern
from tests.generators import OPERANDS, PLACES, RECORDS, agreeing_event, agreeing_subscription, placed, random_text, recorded
from tests.parts import in_parts

SETS = int(os.environ.get("SETS", "10000"))
PARTS = 100
SUBSCRIPTIONS, EVENTS = 20, 10
#: One set in so many has so many subscriptions that those of a partition have an index.
MANY, EVERY = 150, 16
LAYOUTS = {
    name: EventLayout.from_dict({"preset": "change", "data": data or None, "before": before})
    for name, (data, before) in PLACES.items()
}
LIMITS = Limits()
PROGRAMS = ProgramCache(10_000)


@dataclass
class Tally:
    """What was compared, so that a generator that tests nothing is noticed."""

    pairs: int = 0
    matched: int = 0
    decided: Counter[str] = field(default_factory=Counter)
    decided_of: int = 0
    #: Events matched while each partition had one segment, one of them two, ...; see `Pair.segments`.
    segments: Counter[str] = field(default_factory=Counter)
    merges: int = 0

    def add(self, other: Tally) -> None:
        self.pairs += other.pairs
        self.matched += other.matched
        self.decided += other.decided
        self.decided_of += other.decided_of
        self.segments += other.segments
        self.merges += other.merges


def _of_records(places: str, before_holds: Any, unknown_value: Any, encoded: Any, format: Any) -> EventLayout:  # noqa: A002
    # What is encoded holds no other part, and a row does not hold the row before it.
    if places == "one in the other":
        encoded, format = None, format if format == "cloudevents" else None  # noqa: A001
    return replace(LAYOUTS[places], before_holds=before_holds, unknown_value=unknown_value, encoded=encoded, format=format)


class Pair:
    """A native core, and what it should hold as the reference compiles it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.soft_delete = rng.choice(["a", "c.d", "c.d"]) if rng.random() < 0.1 else None
        # The places of most sets are the usual ones: patterns of subscriptions look there.
        self.places = rng.choice(list(PLACES)) if rng.random() < 0.2 else "change"
        self.layout = LAYOUTS[self.places]
        self.is_record = rng.random() < 0.2
        if self.is_record:
            self.layout = _of_records(self.places, *(rng.choice(choices) for choices in RECORDS.values()))
        options = Options(layout=self.layout, validation=rng.choice(["full", "lazy"]), soft_delete=self.soft_delete)
        self.core = NativeCore(options, PROGRAMS, ErrorLog())
        self.size = MANY if rng.randrange(EVERY) == 0 else SUBSCRIPTIONS
        self.held: dict[str, CompiledSubscription] = {}
        self.tally = Tally()
        #: How often a write is followed by a merge of everything. What writes merge by themselves comes on top.
        self.merging = rng.choice([0.0, 0.3, 1.0])

    def fill(self) -> None:
        """Add all subscriptions, in one write or in several, which are as many segments until they are merged."""
        sources = [agreeing_subscription(self.rng, f"s{n}") for n in range(self.size)]
        at_once = self.rng.choice([1, 2, 7, self.size])
        for begin in range(0, self.size, at_once):
            self.core.write([json.dumps(source).encode() for source in sources[begin : begin + at_once]], "add")
        self.held = {source["id"]: compile_subscription(source, programs=PROGRAMS) for source in sources}
        self.merge_perhaps()

    def merge_perhaps(self) -> None:
        if self.rng.random() < self.merging:
            _native.CoreHooks(self.core).merge()
            self.tally.merges += 1

    def change(self) -> None:
        """Add, replace or remove some."""
        rng = self.rng
        names = rng.sample([f"s{n}" for n in range(self.size)], rng.choice([1, 1, 2, 5, 10]))
        sources = [agreeing_subscription(rng, name) for name in names]
        compiled = {source["id"]: compile_subscription(source, programs=PROGRAMS) for source in sources}
        made = [source if rng.random() < 0.1 else json.dumps(source).encode() for source in sources]
        match rng.randrange(8):
            case 0:
                gone = set(self.core.remove(Selection(ids=frozenset(names))).removed)
                assert gone == self.held.keys() & set(names)
                for name in gone:
                    del self.held[name]
            case 1:
                self.core.write(made, "apply")
                self.held = compiled
            case 2:
                changes = self.core.write(made, "add", skip=True)
                assert set(changes.added) == set(names) - self.held.keys()
                self.held |= {name: compiled[name] for name in changes.added}
            case _:
                self.core.write(made, "replace")
                self.held |= compiled
        self.merge_perhaps()
        assert len(self.core) == len(self.held)

    def compare(self, text: bytes, *, decided: bool) -> None:
        """Match one event on both. Raises AssertionError."""
        event = read_event(text, layout=self.layout, default_tenant="default", limits=LIMITS)
        outcomes = {name: find_outcome(compiled, event, self.layout, self.soft_delete) for name, compiled in self.held.items()}
        expected = {(name, o.transition, o.certain) for name, o in outcomes.items() if o is not None}
        self.tally.segments[self.segments()] += 1
        self.tally.pairs += len(self.held)
        self.tally.matched += len(expected)
        if decided:
            self.tally.decided_of += len(self.held)
            for name, compiled in self.held.items():
                self.tally.decided.update(deciders(compiled, event, matched=outcomes[name] is not None))
        if self.rng.random() < 0.5:
            assert sorted(self.core.match_ids(text)) == sorted(name for name, *_ in expected), self.told(text, expected)
        else:
            (result,) = self.core.match_batch([text])
            assert not isinstance(result, Exception), result
            assert {_seen(match) for match in result} == expected, self.told(text, expected)

    def segments(self) -> str:
        """Tell whether each partition has one segment, one of them two, or more."""
        counters = self.core.counters()
        return ["one", "two", "few", "many"][min(counters["segments"] - counters["partitions"], 3)]

    def told(self, text: bytes, expected: Any) -> str:
        """Tell what differs, with the subscriptions at fault."""
        found = {_seen(match) for match in self.core.match(text)}
        names = sorted({name for name, *_ in found ^ expected})
        return "\n".join(
            [f"event {text!r}", f"native: {sorted(found, key=str)}", f"reference: {sorted(expected, key=str)}"]
            + [f"  {name}: {self.held[name].subscription.to_dict() if name in self.held else 'not held'}" for name in names]
        )


def _seen(match: Match) -> tuple[str, str | None, bool]:
    return match.subscription_id, match.transition, match.certain


def deciders(compiled: CompiledSubscription, event: Event, *, matched: bool) -> set[str]:
    """Return the operators that decide whether a subscription matches: each is true, or it alone is not."""
    if compiled.tenant not in ("*", event.tenant) or compiled.collection not in (None, event.collection):
        return set()
    found = [({f"filter {item.op.name}"}, evaluate_filter(item, event)[0] is Verdict.TRUE) for item in compiled.filters]
    if compiled.pattern is not None:
        for part in compiled.pattern.root.fields:
            if isinstance(part, Field):
                holds = evaluate_pattern(Pattern(AllOf((part,))), event.raw, ()) is Verdict.TRUE
                found.append(({f"pattern {type(matcher).__name__}" for matcher in part.matchers}, holds))
            else:
                found.append(({"pattern $or"}, matched))
    if compiled.topic is not None:
        found.append(({"topic"}, matched))
    if compiled.types is not None:
        found.append(({"types"}, matched))
    if compiled.cel is not None:
        found.append(({"cel"}, matched))
    failing = [names for names, holds in found if not holds]
    if matched:
        return set().union(*(names for names, _ in found))
    return failing[0] if len(failing) == 1 else set()


def run_set(number: int, *, decided: bool = False) -> Tally:
    """Run the set of that number. Raises AssertionError where the backends differ."""
    rng = random.Random(number)
    pair = Pair(rng)
    pair.fill()
    for at in range(EVENTS):
        if at % 2:
            pair.change()
        event = agreeing_event(rng)
        if pair.is_record:
            event = recorded(rng, event, encoded=pair.layout.encoded is not None)
        if pair.places != "change":
            event = placed(rng, event, *PLACES[pair.places])
        pair.compare(random_text(rng, event), decided=decided)
    return pair.tally


#: The kinds of conditions that a set is made of, by the names that `deciders` gives them.
KINDS = (
    {f"filter {op}" for op in OPERANDS}
    | {f"pattern {name}" for name in ("Equal", "Prefix", "Suffix", "EqualsIgnoreCase", "Wildcard", "Regexp", "Numeric", "Cidr")}
    | {"pattern Exists", "pattern Absent", "pattern AnythingBut", "pattern $or", "topic", "types", "cel"}
)


@in_parts(PARTS, slow=0)
def test_native_and_reference_agree(part: int) -> None:
    tally = Tally()
    for number in range(part, SETS, PARTS):
        tally.add(_run_told(number))
    assert tally.matched >= 0.2 * tally.pairs, f"only {tally.matched} of {tally.pairs} pairs match"
    matched_on = {name: count / tally.segments.total() for name, count in tally.segments.items()}
    assert all(matched_on.get(name, 0) > 0.05 for name in ("one", "two", "many")), matched_on
    assert tally.merges > 0


@pytest.mark.integration
def test_every_operator_decides_some_pairs() -> None:
    tally = Tally()
    for number in range(200):
        tally.add(_run_told(number, decided=True))
    assert tally.decided.keys() == KINDS
    assert {name: count for name, count in tally.decided.items() if count < 0.007 * tally.decided_of} == {}


def _run_told(number: int, *, decided: bool = False) -> Tally:
    try:
        return run_set(number, decided=decided)
    except Exception as error:
        raise AssertionError(f"set {number}: {error}") from error


def main() -> None:
    """Run one set, or new ones for some time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, nargs="?", help="of the one set to run")
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    if arguments.number is not None:
        print(run_set(arguments.number))
        return
    # Random CEL fails all the time, which is what is compared here.
    logging.disable(logging.WARNING)
    begun, tally, sets = time.monotonic(), Tally(), 0
    # Far beyond those of the gate, and elsewhere in every run.
    first = random.SystemRandom().randrange(1 << 20, 1 << 40)
    finds = []
    while time.monotonic() - begun < arguments.seconds:
        try:
            tally.add(_run_told(first + sets))
        except AssertionError as error:
            finds.append(f"set {first + sets}")
            print(error, file=sys.stderr)
        sets += 1
    counted = {"sets": sets, "pairs": tally.pairs, "matched": tally.matched, "merges": tally.merges, "segments": tally.segments}
    print(json.dumps({"first_set": first, **counted, "finds": finds}))
    sys.exit(bool(finds))


if __name__ == "__main__":
    main()
