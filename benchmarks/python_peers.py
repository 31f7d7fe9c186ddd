"""Streamer next to the Python packages that you could install instead: the same rules on real flights, bytes in, ids out.

```console
pip install -r benchmarks/python_peers.txt    # the pinned peers; those that are missing are left out
python -m benchmarks.python_peers [--smoke] [--record] [--rounds 5] [--peers NAME...]
```

A rule is one that a user of the demo would write: a plane, a late flight, a route, a family of tail numbers. Each peer gets it
in its own words. A call takes the texts of whole change events and returns the ids of the rules that each event matches, so a
peer's time includes reading the JSON. Peers of single events match one event at a time, and peers of columns all events of the
pass at once. Every peer must find the ids that the loop of lambdas finds, which is a direct evaluation.

The peers take turns, round by round. The figure is core time of all threads, of the fastest whole pass. A peer that needs more
than half a minute to load its rules or for a pass has no figure at that size.
"""

from __future__ import annotations

import functools
import gc
import io
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import Any, Final

from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine, parser_for
from examples.flights.records import Row, flight_events, rows
from streamer import Engine

#: How many matches the events must give, by the number of rules.
MATCHES: Final = {1: 0, 10: 7, 100: 43, 1_000: 422, 10_000: 4_631, 100_000: 46_052}
EVENTS: Final = 1_000
#: The same of a smoke run.
SMOKE: Final = {1: 0, 10: 1, 100: 5}
SMOKE_EVENTS: Final = 100
#: A pass takes about so many seconds of a peer of single events, which then sees the first events only.
PASS_S: Final = 0.3
#: A peer of which loading, or the smallest pass, would take longer is left out.
MOST_S: Final = 30.0
ROUNDS: Final = 5
#: A peer whose pass takes longer takes one turn.
SLOW_S: Final = 3.0

#: What is read of a flight by peers that must know their columns.
TEXTS: Final = ("tailnum", "carrier", "origin", "dest")
INTEGERS: Final = ("flight", "hour", "dep_delay", "arr_delay")


@dataclass(frozen=True, slots=True)
class Test:
    """One condition on a field of the flight; that of `either` is a pair of conditions."""

    field: str
    op: str
    value: Any


Rule = tuple[Test, ...]
Match = Callable[[Sequence[bytes]], list[list[str]]]
"""Takes the texts of events, and returns the ids of the rules that each matches."""


@functools.cache
def flown() -> list[Row]:
    """Return every 97th flight of the year that left and arrived: no field of it is null."""
    every = itertools.islice(rows("flights"), None, None, 97)
    return [row for row in every if row["arr_delay"] is not None and row["tailnum"] is not None]


def rules(count: int) -> list[Rule]:
    """Return rules as many users would write them, drawn from what really flew, in the shares of the demo's subscriptions."""
    random = Random(2013)
    makers = [number, plane, route, late, family, anyhow]
    return [make(random, random.choice(flown())) for make in random.choices(makers, [25, 25, 15, 8, 7, 10], k=count)]


def plane(random: Random, flight: Row) -> Rule:
    """A spotter follows one plane."""
    return (Test("tailnum", "==", flight["tailnum"]),)


def number(random: Random, flight: Row) -> Rule:
    """A commuter wants to know when their flight is late."""
    own = (Test("carrier", "==", flight["carrier"]), Test("flight", "==", flight["flight"]))
    return (*own, Test("dep_delay", ">", random.choice([15, 30, 60])))


def route(random: Random, flight: Row) -> Rule:
    """A traveller flies between two airports, with an airline, in an hour of the day."""
    return tuple(Test(name, "==", flight[name]) for name in ("origin", "dest", "carrier", "hour"))


def late(random: Random, flight: Row) -> Rule:
    """A dispatcher waits for the very late ones to some airports."""
    return (Test("dest", "in", some(random, flight)), Test("dep_delay", ">=", random.randrange(180, 600)))


def family(random: Random, flight: Row) -> Rule:
    """A spotter follows a family of tail numbers."""
    return (
        Test("tailnum", "starts_with", flight["tailnum"][:3]),
        Test("hour", "==", flight["hour"]),
        Test("dest", "==", flight["dest"]),
    )


def anyhow(random: Random, flight: Row) -> Rule:
    """An analyst asks for a flight that left late or arrived late."""
    minutes = random.randrange(60, 300)
    either = (Test("dep_delay", ">", minutes), Test("arr_delay", ">", minutes + 15))
    return (Test("flight", "==", flight["flight"]), Test("dest", "in", some(random, flight)), Test("", "either", either))


def some(random: Random, flight: Row) -> list[str]:
    """Return the flight's destination and one that many fly to."""
    return sorted({flight["dest"], random.choice(["ORD", "ATL", "LAX", "BOS", "MCO"])})


def events(count: int) -> list[bytes]:
    """Return the updates that say that flights left, as the demo has them."""
    chosen = flown()[:: len(flown()) // count][:count]
    return [list(flight_events(row))[-1] for row in chosen]


def text(rule: Rule, written: Callable[[Test], str], both: str = " && ", either: str = " || ") -> str:
    """Return a rule in a language of expressions."""

    def one(test: Test) -> str:
        return f"({either.join(map(one, test.value))})" if test.op == "either" else written(test)

    return both.join(map(one, rule))


def language(field: str, starts_with: str) -> Callable[[Test], str]:
    """Return the writer of conditions in a language with infix operators.

    Args:
        field: a field in the language, with `{name}`.
        starts_with: the condition on a prefix, with `{field}` and `{value}`.
    """

    def written(test: Test) -> str:
        place = field.format(name=test.field)
        if test.op == "starts_with":
            return starts_with.format(field=place, value=repr(test.value))
        return f"{place} {test.op} {test.value!r}"

    return written


as_cel = language("data.{name}", "{field}.startsWith({value})")
as_rule_engine = language("{name}", "{field}.starts_with({value})")
as_zen = language("{name}", "startsWith({field}, {value})")
_as_python = language('d["{name}"]', "{field}.startswith({value})")


def as_python(test: Test) -> str:
    """Return a condition on the dict `d`, as people write it by hand."""
    return _as_python(replace(test, value=set(test.value)) if test.op == "in" else test)


def streamer(given: Sequence[Rule]) -> Match:
    """Streamer, event by event."""
    engine = Engine()
    engine.add_many({"id": str(at), "collection": "flights", "cel": text(rule, as_cel)} for at, rule in enumerate(given))
    return lambda texts: [engine.match_ids(event) for event in texts]


def lambdas(given: Sequence[Rule]) -> Match:
    """A loop written by hand: the event read by orjson, a lambda a rule."""
    loads = import_module("orjson").loads
    # An expression is what stands in the source of such a program, so each is compiled as that.
    wanted = [(str(at), eval(f"lambda d: {text(rule, as_python, ' and ', ' or ')}")) for at, rule in enumerate(given)]

    def match(texts: Sequence[bytes]) -> list[list[str]]:
        found = []
        for event in texts:
            data = loads(event)["data"]
            found.append([name for name, holds in wanted if holds(data)])
        return found

    return match


def cel_python(given: Sequence[Rule]) -> Match:
    """The interpreter in pure Python."""
    celpy, adapter, loads = import_module("celpy"), import_module("celpy.adapter"), import_module("orjson").loads
    environment = celpy.Environment()
    programs = [(str(at), environment.program(environment.compile(text(rule, as_cel)))) for at, rule in enumerate(given)]

    def match(texts: Sequence[bytes]) -> list[list[str]]:
        found = []
        for event in texts:
            activation = {"data": adapter.json_to_cel(loads(event)["data"])}
            found.append([name for name, program in programs if program.evaluate(activation)])
        return found

    return match


def cel_rust(given: Sequence[Rule]) -> Match:
    """Rust's interpreter, by its package for Python."""
    cel, loads = import_module("cel"), import_module("orjson").loads
    programs = [(str(at), cel.compile(text(rule, as_cel))) for at, rule in enumerate(given)]

    def match(texts: Sequence[bytes]) -> list[list[str]]:
        found = []
        for event in texts:
            context = cel.Context(variables={"data": loads(event)["data"]})
            found.append([name for name, program in programs if program.execute(context)])
        return found

    return match


def cel_google(given: Sequence[Rule]) -> Match:
    """Google's runtime in C++, by its package for Python."""
    cel, loads = import_module("cel_expr_python.cel"), import_module("orjson").loads
    environment = cel.NewEnv(variables={"data": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})
    programs = [(str(at), environment.compile(text(rule, as_cel))) for at, rule in enumerate(given)]

    def match(texts: Sequence[bytes]) -> list[list[str]]:
        found = []
        for event in texts:
            activation = environment.Activation({"data": loads(event)["data"]})
            found.append([name for name, program in programs if program.eval(activation).value()])
        return found

    return match


#: From so many rules on a table of decisions is faster than one expression after the other.
TABLE_FROM: Final = 50


def zen_engine(given: Sequence[Rule]) -> Match:
    """zen-engine: expressions one by one, or a table of decisions that collects, whichever is faster at that number."""
    zen, loads = import_module("zen"), import_module("orjson").loads
    sources = [text(rule, as_zen, " and ", " or ") for rule in given]
    if len(sources) < TABLE_FROM:
        compiled = [(str(at), zen.compile_expression(source)) for at, source in enumerate(sources)]

        def match(texts: Sequence[bytes]) -> list[list[str]]:
            found = []
            for event in texts:
                data = loads(event)["data"]
                found.append([name for name, expression in compiled if expression.evaluate(data)])
            return found

        return match

    table = {
        "hitPolicy": "collect",
        "inputs": [{"id": "i", "name": "rule"}],
        "outputs": [{"id": "o", "name": "id", "field": "id"}],
        "rules": [{"_id": str(at), "i": source, "o": f"'{at}'"} for at, source in enumerate(sources)],
    }
    nodes = [("in", "inputNode", {}), ("table", "decisionTableNode", {"content": table}), ("out", "outputNode", {})]
    place = {"x": 0, "y": 0}
    graph = {
        "nodes": [{"id": name, "name": name, "type": kind, "position": place, **more} for name, kind, more in nodes],
        "edges": [
            {"id": f"{start}-{end}", "sourceId": start, "targetId": end, "type": "edge"}
            for start, end in (("in", "table"), ("table", "out"))
        ],
    }
    decision = zen.ZenEngine().create_decision(zen.ZenDecisionContent(json.dumps(graph)))
    return lambda texts: [[row["id"] for row in decision.evaluate(loads(event)["data"])["result"]] for event in texts]


def rule_engine(given: Sequence[Rule]) -> Match:
    """rule-engine, in pure Python."""
    make, loads = import_module("rule_engine").Rule, import_module("orjson").loads
    compiled = [(str(at), make(text(rule, as_rule_engine, " and ", " or "))) for at, rule in enumerate(given)]

    def match(texts: Sequence[bytes]) -> list[list[str]]:
        found = []
        for event in texts:
            data = loads(event)["data"]
            found.append([name for name, rule in compiled if rule.matches(data)])
        return found

    return match


def by_event(count: int, columns: Iterator[tuple[str, Sequence[int]]]) -> list[list[str]]:
    """Return the ids of each of *count* events, of the numbers of events that each rule matches."""
    found: list[list[str]] = [[] for _ in range(count)]
    for name, numbers in columns:
        for at in numbers:
            found[at].append(name)
    return found


def polars(given: Sequence[Rule]) -> Match:
    """polars: all events as one frame, each rule an expression over its columns."""
    pl = import_module("polars")
    columns = {**dict.fromkeys(TEXTS, pl.String), **dict.fromkeys(INTEGERS, pl.Int64)}

    def mask(test: Test) -> Any:
        column = pl.col(test.field)
        ways: dict[str, Callable[[], Any]] = {
            "==": lambda: column == test.value,
            ">": lambda: column > test.value,
            ">=": lambda: column >= test.value,
            "in": lambda: column.is_in(test.value),
            "starts_with": lambda: column.str.starts_with(test.value),
            "either": lambda: mask(test.value[0]) | mask(test.value[1]),
        }
        return ways[test.op]()

    wanted = [pl.all_horizontal(map(mask, rule)).arg_true().implode().alias(str(at)) for at, rule in enumerate(given)]

    def match(texts: Sequence[bytes]) -> list[list[str]]:
        frame = pl.read_ndjson(b"\n".join(texts), schema={"data": pl.Struct(columns)}).unnest("data")
        pieces = (frame.select(wanted[start : start + 1_000]) for start in range(0, len(wanted), 1_000))
        return by_event(len(texts), ((each.name, each[0].to_list()) for piece in pieces for each in piece.get_columns()))

    return match


def pyarrow(given: Sequence[Rule]) -> Match:
    """pyarrow: all events as one batch, each rule some kernels over its columns."""
    pa, pc, reader = import_module("pyarrow"), import_module("pyarrow.compute"), import_module("pyarrow.json")
    columns = [(name, pa.string()) for name in TEXTS] + [(name, pa.int64()) for name in INTEGERS]
    schema = pa.schema([("data", pa.struct(columns))])
    parse = reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    kernels = {"==": pc.equal, ">": pc.greater, ">=": pc.greater_equal, "starts_with": lambda c, v: pc.starts_with(c, pattern=v)}

    def mask(test: Test) -> Callable[[dict[str, Any]], Any]:
        if test.op == "either":
            one, other = map(mask, test.value)
            return lambda batch: pc.or_(one(batch), other(batch))
        name, value = test.field, test.value
        if test.op == "in":
            options = pc.SetLookupOptions(value_set=pa.array(value))
            return lambda batch: pc.is_in(batch[name], options=options)
        kernel = kernels[test.op]
        if isinstance(value, int):
            value = pa.scalar(value, pa.int64())
        return lambda batch: kernel(batch[name], value)

    wanted = [(str(at), [mask(test) for test in rule]) for at, rule in enumerate(given)]

    def match(texts: Sequence[bytes]) -> list[list[str]]:
        table = reader.read_json(io.BytesIO(b"\n".join(texts)), parse_options=parse)["data"].combine_chunks()
        batch = {name: table.field(name) for name, _ in columns}

        def numbers(masks: list[Callable[[dict[str, Any]], Any]]) -> Sequence[int]:
            held = pc.indices_nonzero(functools.reduce(pc.and_, (mask(batch) for mask in masks)))
            return held.to_pylist() if len(held) else ()

        return by_event(len(texts), ((name, numbers(masks)) for name, masks in wanted))

    return match


@dataclass(frozen=True, slots=True)
class Peer:
    """Something that matches rules, and the package that brings it.

    Attributes:
        columns: it matches all events of a pass at once.
    """

    package: str
    make: Callable[[Sequence[Rule]], Match]
    columns: bool = False

    @property
    def version(self) -> str | None:
        """Its version; None if it is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None


PEERS: Final = {
    "lambdas": Peer("orjson", lambdas),
    "streamer": Peer("streamer-engine", streamer),
    "cel-python": Peer("cel-python", cel_python),
    "cel-rust": Peer("common-expression-language", cel_rust),
    "cel-expr-python": Peer("cel-expr-python", cel_google),
    "zen-engine": Peer("zen-engine", zen_engine),
    "rule-engine": Peer("rule-engine", rule_engine),
    "polars": Peer("polars", polars, columns=True),
    "pyarrow": Peer("pyarrow", pyarrow, columns=True),
}
#: Always there: the one is measured, and the other says what must be found.
NEEDED: Final = ("streamer", "lambdas")


@dataclass
class Turns:
    """The figures of a run, and of each peer what it takes at the last number of rules, to see whether it can go on.

    Attributes:
        best: ns an event, by the number of rules and peer.
        left_out: why a peer has no figure, by the number of rules and peer.
        load: seconds a rule that loading took.
        each: seconds an event and rule.
    """

    best: dict[tuple[int, str], float] = field(default_factory=dict)
    left_out: dict[tuple[int, str], str] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)
    each: dict[str, float] = field(default_factory=dict)

    def affords(self, name: str, count: int, texts: Sequence[bytes]) -> bool:
        """Tell whether a peer can be measured with so many rules, and say why not if it cannot."""
        load = self.load.get(name, 0.0) * count
        match = self.each.get(name, 0.0) * count * (len(texts) if PEERS[name].columns else 1)
        if max(load, match) <= MOST_S:
            return True
        what = f"loading them would take {load:,.0f} s" if load > MOST_S else f"a pass would take {match:,.0f} s"
        self.left_out[count, name] = what
        return False


def seconds(match: Match, texts: Sequence[bytes]) -> float:
    """Return the core time that matching takes."""
    begun = time.process_time_ns()
    match(texts)
    return (time.process_time_ns() - begun) / 1e9


def compare(count: int, texts: Sequence[bytes], matches: int, names: Sequence[str], rounds: int, turns: Turns) -> None:
    """Measure each peer with *count* rules, by turns.

    Raises:
        WrongMatches: a peer found other ids than the lambdas, or these another number than there must be.
    """
    given = rules(count)
    loaded: dict[str, Match] = {}
    seen: dict[str, Sequence[bytes]] = {}
    expected = [sorted(ids) for ids in lambdas(given)(texts)]
    if (total := sum(map(len, expected))) != matches:
        raise WrongMatches(f"{count:,} rules: {total:,} matches, expected {matches:,}")
    for name in names:
        if not turns.affords(name, count, texts):
            continue
        begun = time.process_time()
        loaded[name] = match = PEERS[name].make(given)
        turns.load[name] = (time.process_time() - begun) / count
        seen[name] = texts
        if not PEERS[name].columns:
            # The first call may build what later ones use.
            took = min(seconds(match, texts[:1]) for _ in range(2))
            seen[name] = texts[: max(1, int(PASS_S / max(took, 1e-9)))]
        found = [sorted(ids) for ids in match(seen[name])]
        if found != expected[: len(found)]:
            raise WrongMatches(f"{count:,} rules: {name} finds {sum(map(len, found)):,} matches, other ids than the lambdas")
    gc.collect()
    gc.freeze()
    for at in range(rounds):
        for name, match in loaded.items():
            # A pass that takes seconds varies little.
            if at and turns.best[count, name] * len(seen[name]) > SLOW_S * 1e9:
                continue
            took = seconds(match, seen[name]) * 1e9 / len(seen[name])
            turns.best[count, name] = min(took, turns.best.get((count, name), took))
    for name in loaded:
        turns.each[name] = turns.best[count, name] / 1e9 / count
    gc.unfreeze()


def table(turns: Turns, sizes: dict[int, int], names: Sequence[str], count: int) -> Iterator[str]:
    """Yield a Markdown table: a line a number of rules, a column a peer, and Streamer's share of the fastest other."""
    others = [name for name in names if name != "streamer"]
    yield f"| rules | matches an event | streamer | {' | '.join(others)} | streamer ÷ fastest | fastest other |"
    yield f"|--:|--:|--:|{'--:|' * len(others)}--:|---|"
    for size, matches in sizes.items():
        cells = [f"{turns.best[size, name]:,.0f}" if (size, name) in turns.best else "–" for name in ("streamer", *others)]
        fastest = min((name for name in others if (size, name) in turns.best), key=lambda name: turns.best[size, name])
        ratio = turns.best[size, "streamer"] / turns.best[size, fastest]
        yield f"| {size:,} | {matches / count:.3g} | {' | '.join(cells)} | **{ratio:.3g}** | {fastest} |"


def remarks(turns: Turns, sizes: dict[int, int], names: Sequence[str]) -> Iterator[str]:
    """Yield what is ahead of Streamer, and why figures are missing."""
    for size in sizes:
        own = turns.best[size, "streamer"]
        for name in names:
            if (took := turns.best.get((size, name))) is not None and took < own:
                yield f"- {size:,} rules: {name} is ahead of Streamer: {took:,.0f} against {own:,.0f} ns an event."
    for (size, name), why in turns.left_out.items():
        yield f"- {size:,} rules: no {name}, {why}."


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, print, record."""
    parser = parser_for(__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each peer ({ROUNDS})")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS), help="only these, and Streamer")
    options = parser.parse_args(arguments)
    began = machine()
    sizes, count, rounds = (SMOKE, SMOKE_EVENTS, 1) if options.smoke else (MATCHES, EVENTS, options.rounds)
    asked = [name for name in PEERS if name in NEEDED or name in options.peers]
    names = [name for name in asked if name in NEEDED or PEERS[name].version is not None]
    texts, turns = events(count), Turns()
    for size, matches in sizes.items():
        compare(size, texts, matches, names, rounds, turns)
        print(f"{size:,} rules are measured", file=sys.stderr, flush=True)
    mean = sum(map(len, texts)) // len(texts)
    lines = [
        f"Nanoseconds of core time an event, the fastest of {rounds} passes by turns. {count:,} flights that left, {mean:,} "
        f"bytes each on average; every peer finds the same ids.",
        "",
        *table(turns, sizes, names, count),
        "",
        *remarks(turns, sizes, names),
        *(f"- No {name}: it is not installed." for name in asked if name not in names),
    ]
    print("\n".join(lines))
    if options.record:
        versions = ", ".join(f"{PEERS[name].package} {PEERS[name].version}" for name in names if name != "streamer")
        print(Record("python-peers", began, f"Peers: {versions}.").write(lines))


if __name__ == "__main__":
    # One core is compared with one core: threads would add what they spend on sharing.
    for variable in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    main()
