"""Phase 1: the same events with it, without it, and through the usual sketch of two phases.

    python -m benchmarks.bloom [--smoke] [--record]

*off* goes straight to the exact index, *on* queries the partition's Bloom filter first. *sketch* is a Bloom filter that passes
events on to cel-python, which evaluates every subscription of the collection. It runs only on few subscriptions and events, in
the same run as the others. Of every hundred events 1, 10 or 100 are interesting: each of these matches exactly one subscription.
*segments* is the number of parts of the index: one after `add_many`, several if subscriptions are added one at a time.

The result is a rule: a partition of 64 subscriptions or more has a filter, whatever its number of segments. With one segment, a
NO costs about as much as the index needs to find no match by one field, and less if subscriptions use several fields. With each
further segment a NO saves a lookup in the index. If nearly all events are interesting, the filter saves no time and costs a few
percent. So it is on by default, and `bloom.enabled: false` is for streams in which nearly every event matches.

The second table compares the kinds of keys of the native filter: each set has only prefixes, suffixes, nets, ranges ... as
keys. *wide* is a set for which the filter has no key on purpose: one-sided ranges that most events satisfy, each with another
condition that no event satisfies, mixed with three times as many equalities. The NO for the equalities must not be lost.

The result is a rule: with one segment a kind neither saves nor costs time; with several, its NO saves as much as that of an
equality. So a value that an event seldom carries by chance is a key (see bloom/keys.rs), and a value that most events carry is
not.

The last table shows the time of exporting a shipped filter.

Each figure is the best of several rounds, in which the ways take turns, because other programs can only make a round slower.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import celpy
import celpy.adapter

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine
from streamer import _backend
from streamer.bloom import Answer, ShippedFilter
from streamer.bloom.options import BloomOptions
from streamer.bloom.portable import PortableBloomFilter
from streamer.sizes import format_size

ROUNDS = 9
SHARES = (1, 10, 100)


@dataclass(frozen=True, slots=True)
class Case:
    """How many subscriptions there are, how many of them come one at a time, and how many events are matched."""

    subscriptions: int
    single: int
    events: int
    is_sketched: bool = False


CASES = (Case(200, 0, 2_000, is_sketched=True), Case(20_000, 0, 2_000), Case(20_000, 3_000, 2_000), Case(200_000, 3_000, 2_000))
KIND_CASES = (Case(20_000, 0, 2_000), Case(20_000, 1_000, 2_000))
KIND_SMOKE = (Case(80, 10, 60),)
SMOKE = (Case(100, 0, 400, is_sketched=True), Case(300, 100, 400))

Way = Callable[[bytes], int]


def condition(number: int) -> dict[str, Any]:
    """Return one of three kinds of conditions; each holds for the events of its own number alone."""
    if number % 3 == 0:
        equal = {"field": "user.id", "op": "==", "value": f"u{number}"}
        return {"filters": [equal, {"field": "amount", "op": ">", "value": number % 100}]}
    if number % 3 == 1:
        return {"filters": [{"field": "sku", "op": "==", "value": f"SKU-{number}"}]}
    accounts = {"field": "account", "op": "in", "value": [f"a{number}", f"b{number}"]}
    return {"filters": [accounts, {"field": "user.country", "op": "!=", "value": "XX"}]}


def expression(number: int) -> str:
    """Return the same condition as CEL."""
    if number % 3 == 0:
        return f'data.user.id == "u{number}" && data.amount > {number % 100}.0'
    if number % 3 == 1:
        return f'data.sku == "SKU-{number}"'
    return f'data.account in ["a{number}", "b{number}"] && data.user.country != "XX"'


def events(case: Case, share: int) -> tuple[list[bytes], int]:
    """Return events of about 300 bytes, and how many of them are interesting: each of these matches one subscription."""
    random = Random(share)
    made, interesting = [], 0
    for index in range(case.events):
        wanted = random.randrange(100) < share
        interesting += wanted
        number = random.randrange(case.subscriptions) if wanted else case.subscriptions + random.randrange(10**9)
        user = {"id": f"u{number}", "country": f"C{index % 30}", "name": f"customer {index}", "tier": "gold"}
        tags = [f"tag-{index % 20}", "new"]
        data = {"user": user, "amount": 500.5, "sku": f"SKU-{number}", "account": f"a{number}", "status": "paid", "tags": tags}
        made.append(json.dumps({"id": index, "collection": "orders", "type": "insert", "data": data}).encode())
    return made, interesting


def word(number: int) -> str:
    """Return a text of twelve characters, which are a number's own from the first ones on."""
    return f"{number * 0x9E3779B97F4A7C15 % 2**48:012x}"


def equality(number: int) -> dict[str, Any]:
    """Return the condition of the sets that are compared with: one text."""
    return {"filters": [{"field": "a", "op": "==", "value": word(number)}]}


def wide(number: int) -> dict[str, Any]:
    """Return an equality, or, one time in four, what most events meet beside what none does."""
    if number % 4:
        return equality(number)
    flag = {"field": "status", "op": "not in", "value": ["paid", number]}
    return {"filters": [{"field": "n", "op": ">", "value": number % 50}, flag]}


def leaf(matcher: Any) -> dict[str, Any]:
    """Return a pattern that asks this of one field."""
    return {"pattern": {"data": {"a": [matcher]}}}


#: Of each kind the condition of a number, and what an event of that number carries.
KINDS: dict[str, tuple[Callable[[int], dict[str, Any]], Callable[[int], Any]]] = {
    "equality": (equality, word),
    "prefix": (lambda n: {"filters": [{"field": "a", "op": "starts_with", "value": word(n)[:9]}]}, word),
    "suffix": (lambda n: {"filters": [{"field": "a", "op": "ends_with", "value": word(n)[2:]}]}, word),
    "case": (lambda n: leaf({"equals-ignore-case": word(n).upper()}), word),
    "net": (
        lambda n: leaf({"cidr": f"{10 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24"}),
        lambda n: f"{10 + n // 65536}.{n // 256 % 256}.{n % 256}.9",
    ),
    "range": (lambda n: leaf({"numeric": [">=", 1000 * n, "<", 1000 * n + 10]}), lambda n: 1000 * n + 4.5),
    "topic": (lambda n: {"topic": f"orders.{word(n)}.#"}, lambda n: f"orders.{word(n)}.paid"),
    "wide": (wide, lambda n: word(n + (n % 4 == 0))),
}


def kind_events(kind: str, case: Case, share: int) -> tuple[list[bytes], int]:
    """Return events for the subscriptions of one kind, and how many of them are interesting."""
    random = Random(share)
    value = KINDS[kind][1]
    made, interesting = [], 0
    for index in range(case.events):
        wanted = random.randrange(100) < share
        interesting += wanted
        # The last one has no neighbour, and of nets there are so many.
        number = random.randrange(case.subscriptions - 1) if wanted else case.subscriptions + random.randrange(10**6)
        user = {"id": f"u{index}", "country": f"C{index % 30}", "name": f"customer {index}"}
        part = {} if kind == "topic" else {"a": value(number)}
        data = {**part, "n": 77, "user": user, "status": "paid", "tags": ["x", "new"]}
        topic = {"topic": value(number)} if kind == "topic" else {}
        made.append(json.dumps({"id": index, "collection": "orders", "type": "insert", **topic, "data": data}).encode())
    return made, interesting


def engine(case: Case, enabled: bool, of: Callable[[int], dict[str, Any]] = condition) -> streamer.Engine:
    """Return an engine with the subscriptions of a case."""
    made = streamer.Engine(bloom=BloomOptions(enabled=enabled))
    rows = [{"id": f"s{number}", "collection": "orders", **of(number)} for number in range(case.subscriptions)]
    made.add_many(rows[: case.subscriptions - case.single])
    for row in rows[case.subscriptions - case.single :]:
        made.add(row)
    return made


def sketch(case: Case) -> Way:
    """Return the scheme as it is usually sketched, over the subscriptions of a case."""
    environment = celpy.Environment()
    programs = [environment.program(environment.compile(expression(number))) for number in range(case.subscriptions)]
    bits = PortableBloomFilter(4 * case.subscriptions, 0.001)
    for number in range(case.subscriptions):
        for key in (f"user.id=u{number}", f"sku=SKU-{number}", f"account=a{number}", f"account=b{number}"):
            bits.add(key.encode())

    def match(event: bytes) -> int:
        data = json.loads(event)["data"]
        keys = (f"user.id={data['user']['id']}", f"sku={data['sku']}", f"account={data['account']}")
        if not any(key.encode() in bits for key in keys):
            return 0
        activation = {"data": celpy.adapter.json_to_cel(data)}
        return sum(bool(program.evaluate(activation)) for program in programs)

    return match


def nanoseconds(ways: Sequence[tuple[Way, int]], made: list[bytes], interesting: Sequence[int], rounds: int) -> list[float]:
    """Return the best processor time an event of each way, each for its first so many events; they take turns.

    Raises:
        WrongMatches: a way finds another number of matches than there are interesting events.
    """
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        for at, ((way, count), expected) in enumerate(zip(ways, interesting, strict=True)):
            begun = time.thread_time_ns()
            found = sum(map(way, made[:count]))
            best[at] = min(best[at], (time.thread_time_ns() - begun) / count)
            if found != expected:
                raise WrongMatches(f"{found} matches instead of {expected}")
    return best


def segments(made: streamer.Engine) -> str:
    """Tell how many parts the index of an engine has."""
    core = made._core
    return str(core.counters()["segments"]) if hasattr(core, "counters") else "none"


def rows(case: Case, rounds: int) -> list[str]:
    """Measure a case; a row of the table for each share of interesting events."""
    off, on = engine(case, False), engine(case, True)
    lines = []
    sketched = sketch(case) if case.is_sketched else None
    for share in SHARES:
        made, interesting = events(case, share)
        before = on._core.filters()
        ways: list[tuple[Way, int]] = [(off.match_count, len(made)), (on.match_count, len(made))]
        straight, guarded = nanoseconds(ways, made, [interesting, interesting], rounds)
        after = on._core.filters()
        asked = sum(state.asked for state in after) - sum(state.asked for state in before)
        stopped = sum(state.no for state in after) - sum(state.no for state in before)
        least = 0.9 * rounds * (len(made) - interesting)
        if asked and stopped < least:
            raise WrongMatches(f"the filter stopped {stopped} events instead of {least:.0f}")
        slowest = ""
        if sketched is not None:
            # So few events, picked so that they have the share that this is about.
            count = max(3, 100 // share)
            wanted = [event for event in made if off.match_count(event)][: count * share // 100]
            others = [event for event in made if not off.match_count(event)][: count - len(wanted)]
            (took,) = nanoseconds([(sketched, len(wanted) + len(others))], [*wanted, *others], [len(wanted)], 1)
            slowest = f"{took / 1e3:,.0f} µs | {took / guarded:,.0f} ×"
        parts = f"{case.subscriptions:,} | {segments(off)} | {share} %"
        stops = f"{stopped / asked:.0%}" if asked else "no filter"
        lines.append(f"| {parts} | {straight:,.0f} | {guarded:,.0f} | {guarded / straight:.2f} | {stops} | {slowest or '| '} |")
    return lines


def kind_rows(kind: str, case: Case, rounds: int) -> list[str]:
    """Measure the filter on one kind of key; a row for each share of interesting events."""
    off, on = engine(case, False, KINDS[kind][0]), engine(case, True, KINDS[kind][0])
    lines = []
    # The reference has a key of every range: events that carry one pass.
    is_stopped = kind != "wide" or _backend.BACKEND == "native"
    for share in SHARES:
        made, interesting = kind_events(kind, case, share)
        before = on._core.filters()
        straight, guarded = nanoseconds(
            [(off.match_count, len(made)), (on.match_count, len(made))], made, [interesting] * 2, rounds
        )
        after = on._core.filters()
        asked = sum(state.asked for state in after) - sum(state.asked for state in before)
        stopped = sum(state.no for state in after) - sum(state.no for state in before)
        least = 0.9 * rounds * (len(made) - interesting)
        if asked and is_stopped and stopped < least:
            raise WrongMatches(f"the filter stopped {stopped} events instead of {least:.0f}")
        stops = f"{stopped / asked:.0%}" if asked else "no filter"
        ratio = f"{straight:,.0f} | {guarded:,.0f} | {guarded / straight:.2f}"
        lines.append(f"| {kind} | {case.subscriptions:,} | {segments(off)} | {share} % | {ratio} | {stops} |")
    return lines


def shipping_row(count: int, rounds: int) -> str:
    """Measure the export of a filter of *count* equalities, and what it answers to foreign events."""
    made = engine(Case(count, 0, 0), True, equality)
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        exported = made.bloom.export("default", "orders")
        best = min(best, time.perf_counter() - begun)
    guard = ShippedFilter.load(exported)
    foreign = [{"collection": "orders", "data": {"a": word(count + n)}} for n in range(1000)]
    stopped = sum(guard.ask(event) is Answer.NO for event in foreign)
    if stopped < 0.95 * len(foreign):
        raise WrongMatches(f"the shipped filter stopped {stopped} of {len(foreign)} events")
    return f"| {count:,} | {best:.3f} s | {format_size(len(exported))} | {stopped / len(foreign):.1%} |"


SHIPPING_HEADER = (
    "| equalities in a shipped filter | to export | size | stopped, of unwanted events |",
    "|---:|---:|---:|---:|",
)
KIND_HEADER = (
    "| keys | subscriptions | segments | interesting | off, ns an event | on | on ÷ off | stopped |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)
HEADER = (
    "| subscriptions | segments | interesting | off, ns an event | on | on ÷ off | stopped | sketch | sketch ÷ on |",
    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)
ABOUT = (
    "Best of 9 rounds in which the ways take turns, `match_count` on events of about 300 bytes, full validation, one thread. "
    "*segments* is their number in the index when measuring begins; a background merge may reduce it."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every case and print the table, or keep it as a record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bloom", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--smoke", action="store_true", help="a few hundred subscriptions, one round: ignore the figures")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records/<date>-bloom.md")
    options = parser.parse_args(arguments)
    began = machine()
    print(f"streamer {streamer.__version__}, {streamer.BACKEND} backend, one thread\n")
    lines = list(HEADER)
    print(*HEADER, sep="\n")
    for case in SMOKE if options.smoke else CASES:
        for line in rows(case, 1 if options.smoke else ROUNDS):
            print(line, flush=True)
            lines.append(line)
    lines += ["", *KIND_HEADER]
    print("", *KIND_HEADER, sep="\n")
    for kind in KINDS:
        for case in KIND_SMOKE if options.smoke else KIND_CASES:
            for line in kind_rows(kind, case, 1 if options.smoke else ROUNDS):
                print(line, flush=True)
                lines.append(line)
    lines += ["", *SHIPPING_HEADER, shipping_row(1000 if options.smoke else 100_000, 1 if options.smoke else ROUNDS)]
    print("", *lines[-3:], sep="\n")
    if options.record:
        print(Record("bloom", began, ABOUT).write(lines))


if __name__ == "__main__":
    main()
