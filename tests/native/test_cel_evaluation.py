"""The native CEL evaluator comes to what the reference comes to: verdict, reason of an error, and cost units."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest

from benchmarks import cel as benchmark
from streamer import _native
from streamer.cel_eval import CelReason, compile_cel, evaluate_cel, times
from streamer.cel_eval.extensions import EXTENSIONS
from streamer.cel_eval.extensions.rows import NUMBER
from streamer.cel_eval.parse import MACROS
from streamer.cel_eval.types import FUNCTIONS, METHODS
from streamer.cel_eval.values import Timestamp
from streamer.errors import CelError, EventError
from streamer.events.layout import EventLayout
from streamer.events.reading import as_before, read_event
from streamer.model import Event, Limits, Verdict
from tests.conformance.table import load_all
from tests.differential.cel_expressions import Expressions
from tests.differential.records import record
from tests.hostile import table as hostile

LIMITS = Limits()
LAYOUT = EventLayout()
Told = tuple[str, str | None, int]

#: What the generator makes of `data` alone, said of other parts of the event, and the rarer macros.
PARTS = (
    (r"\bdata\b", "before"),
    (r"\bdata\.i\b", "ts.getFullYear()"),
    (r"\bdata\.[spt]\b", "type"),
    (r"\bdata\.[spt]\b", "topic"),
    (r"\bdata\.[spt]\b", "collection"),
    (r"\bdata\.[spt]\b", "tenant"),
    (r"\.map\((\w), ", r".transformList(\1, v, "),
    (r"\.filter\((\w), ", r".transformMap(\1, v, "),
    (r"\.(all|exists)\((\w), ", r".\1(k2, \2, "),
    (r"\.exists_one\(", ".existsOne("),
    (r"\.matches\([^()]*\)", ".matches(data.s)"),
    (r"\.matches\([^()]*\)", ".matches(data.s + '[a')"),
    (r"\bdata\.[ij]\b", "data.l[data.i]"),
    (r"\bdata\.[ij]\b", "data.l[2.0]"),
    (r"\bdata\.[ijs]\b", "data.m[data.s]"),
    (r"== \((-?\w+)\)", r"in {\1: 1, 'a': data.l}"),
)
HOLES = (
    *("/data", "/before", "/data/i", "/data/s", "/data/m", "/data/m/a", "/data/m/new", "/data/l/0", "/data/l/9", "/data/b/below"),
    *("/before/i", "/before/m/b", "/before/l", "/type", "/ts", "/topic", "/other", ""),
)


def native(source: str, layout: EventLayout, default_tenant: str | None, limits: Limits = LIMITS) -> Any:
    return _native.CelPrograms(
        [source],
        json.dumps(layout.to_dict()).encode(),
        default_tenant=default_tenant,
        max_depth=limits.max_depth,
        max_event_bytes=limits.max_event_bytes,
        max_cel_bytes=limits.max_cel_bytes,
        max_cel_depth=limits.max_cel_depth,
    )


def told_natively(programs: Any, event: bytes, budget: int, old_side: bool = False) -> Told:
    ((verdict, reason, words, cost),) = programs.evaluate(event, budget, old_side)
    assert (words is None) == (reason is None)
    assert words != ""
    return verdict, reason, cost


def told(program: Any, event: Event, budget: int) -> Told:
    outcome = evaluate_cel(program, event, budget)
    return outcome.verdict.value, None if outcome.reason is None else outcome.reason.value, outcome.cost


def varied(source: str, choose: random.Random) -> str:
    """Return the expression with some of it said of other parts of the event, or by other macros."""

    def sometimes(pattern: str, replacement: str) -> str:
        return re.sub(pattern, lambda found: found.expand(replacement) if choose.random() < 0.6 else found[0], source)

    for pattern, replacement in choose.sample(PARTS, choose.choice((0, 1, 2, 4))):
        source = sometimes(pattern, replacement)
    return source


OPTIONALS = ("data.?i", "data.?missing.a", "data.?m.a", "data.l[?0]", "data.m[?'b']", "optional.none()", "optional.of({})")
OF_OPTIONALS = (
    "{0}.optMap(o, {1})",
    "{0}.optFlatMap(o, {0})",
    "{0}.or({0})",
    "[?{0}, {1}]",
    "{{?'a': {0}}}",
    "cel.bind(o, {0}, o)",
)


def extended(source: str, made: Expressions, choose: random.Random) -> str:
    """Return the expression, sometimes next to one with functions of the extension libraries."""

    def of(kind: str) -> str:
        if kind == "optional_type":
            return choose.choice(OPTIONALS).format(made.any(0))
        if choose.random() < 0.25:
            return call()
        return made.any(1) if kind == "dyn" else made.of("double" if kind == NUMBER else kind, 1)

    def call() -> str:
        if choose.random() < 0.15:
            return choose.choice(OF_OPTIONALS).format(of("optional_type"), made.any(0))
        if choose.random() < 0.05:
            return f"{made.of('list', 1)}.sortBy(o, {choose.choice(('o', '-o', 'size(o)'))})"
        name = choose.choice(list(EXTENSIONS))
        params = choose.choice(EXTENSIONS[name].overloads(choose.choice((1, 1, 3))))[0]
        args = [of(param) for param in params]
        return f"{name}({', '.join(args)})" if "." in name else f"({args[0]}).{name}({', '.join(args[1:])})"

    if choose.random() < 0.6:
        return source
    return f"({source}) {choose.choice(('&&', '||'))} dyn({call()}) {choose.choice(('==', '!=', '<', 'in'))} dyn({of('dyn')})"


def event_of(made: Expressions, choose: random.Random) -> bytes:
    """Return an event: documents with fields missing, null and of wrong types, numbers past int64 and float64, names that stand
    twice, and unknowns."""
    event: dict[str, Any] = {"type": choose.choice(("insert", "update", "delete")), "data": made.document()}
    parts = {"tenant": "acme", "collection": "a", "topic": "a.b", "ts": 1_234_567_890_123}
    event.update((part, value) for part, value in parts.items() if choose.random() < 0.7)
    if choose.random() < 0.5:
        event["before"] = made.document()
    if choose.random() < 0.1:
        event["data"] = None
    if choose.random() < 0.35:
        event["unknown"] = choose.sample(HOLES, choose.choice((1, 1, 2, 4)))
    text = json.dumps(event)
    for old, new in (("42", "1e400"), ("7", "18446744073709551615"), ("1.0", "1"), ("1,", "1.0,"), ("-1.5", "-0")):
        if choose.random() < 0.15:
            text = re.sub(rf"(?<=[ \[]){re.escape(old)}(?=[,\]}}]|$)" if old[-1] != "," else rf"(?<=[ \[]){old}", new, text)
    if choose.random() < 0.1:
        text = text.replace('"i": ', '"i": "first", "a": 0, "i": ')
    return text.encode()


def compare(seeds: range) -> tuple[Counter[str], Counter[str], str]:
    """Compare; return how often which verdict and which reason came out, and the text of all programs that were evaluated."""
    verdicts, reasons, sources = Counter[str](), Counter[str](), []
    for seed in seeds:
        made, choose = Expressions(seed), random.Random(seed)
        source = extended(varied(made.program(), choose), made, choose)
        try:
            program = compile_cel(source, LIMITS)
        except CelError:
            with pytest.raises(CelError):
                native(source, LAYOUT, "default")
            verdicts["refused"] += 1
            continue
        programs = native(source, LAYOUT, "default")
        sources.append(source)
        for _ in range(3):
            text = event_of(made, choose)
            event = read_event(text, layout=LAYOUT, default_tenant="default", limits=LIMITS)
            budget = choose.choice((LIMITS.cel_budget, LIMITS.cel_budget, choose.randrange(40)))
            ours = told(program, event, budget)
            assert told_natively(programs, text, budget) == ours, f"seed {seed}: {source!r} on {text!r}"
            if not program.mentions_before:
                old = told(program, as_before(event, LAYOUT), budget)
                assert told_natively(programs, text, budget, old_side=True) == old, (
                    f"seed {seed}, old side: {source!r} on {text!r}"
                )
            verdicts[ours[0]] += 1
            reasons[ours[1] or ""] += 1
    return verdicts, reasons, "\n".join(sources)


@pytest.mark.integration
def test_ten_thousand_pairs_come_to_the_same_and_use_everything() -> None:
    verdicts, reasons, text = compare(range(4500))
    assert verdicts.total() > 10_000
    assert min(verdicts[verdict.value] for verdict in Verdict) > 500, verdicts
    # These are counted with the others, but no program without a pattern, a topic or a function of the host's comes to them.
    others = {CelReason.PATTERN_BUDGET, CelReason.REGEXP_BUDGET, CelReason.TOPIC_BUDGET, CelReason.FUNCTION}
    assert {reason for reason in CelReason if reasons[reason.value] == 0} == others, reasons
    functions = {f"{name}(" for name in FUNCTIONS} | {f".{name}(" for name in [*METHODS, *MACROS]}
    operators = {f" {op} " for op in ["==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%", "&&", "||", "?", ":"]}
    rest = {"!", "has(", ".`", "['", ",]", "r'", "b'", "'''", "before", "ts", "topic", "collection", "tenant"}
    assert {used for used in functions | operators | rest if used not in text} == set()


@pytest.mark.integration
def test_three_hundred_thousand_pairs_come_to_the_same() -> None:
    verdicts, reasons, _ = compare(range(4500, 104_500))
    assert verdicts.total() > 200_000
    told = {f"error: {reason}": count for reason, count in reasons.items() if reason}
    record("evaluations", "native not lowered, reference, with cost units", verdicts | Counter(told))


@pytest.mark.slow
def test_the_size_of_any_text_as_a_regexp_is_the_same() -> None:
    programs = native("data.s.matches(data.r)", LAYOUT, "default")
    program = compile_cel("data.s.matches(data.r)", LIMITS)
    pieces = [
        *"ab[]^()|*+?{},09:\\QEpPxL.-é",
        "{3}",
        "{2,}",
        "[:alpha:]",
        "\\Q",
        "\\E",
        "\\pL",
        "\\x{41}",
        "(?i)",
        "{1000}",
        "[^",
    ]
    choose = random.Random(0)
    for _ in range(5000):
        regexp = "".join(choose.choices(pieces, k=choose.randrange(12)))
        text = json.dumps({"data": {"s": "x" * 100, "r": regexp}}).encode()
        event = read_event(text, layout=LAYOUT, default_tenant="default", limits=LIMITS)
        assert told_natively(programs, text, LIMITS.cel_budget)[2] == told(program, event, LIMITS.cel_budget)[2], regexp


def told_by_both(subscription: Any, event: bytes, layout: EventLayout, default_tenant: str | None, limits: Limits) -> Told | None:
    """Return what both say of a case; None where it has nothing to evaluate."""
    try:
        source = str(json.loads(subscription)["cel"])
        program = compile_cel(source, limits)
        read = read_event(event, layout=layout, default_tenant=default_tenant, limits=limits)
    except (ValueError, LookupError, TypeError, RecursionError, CelError, EventError):
        return None
    ours = told(program, read, limits.cel_budget)
    assert told_natively(native(source, layout, default_tenant, limits), event, limits.cel_budget) == ours, source[:1000]
    return ours


def test_every_cel_case_of_the_table_comes_to_the_same() -> None:
    compared = Counter[str]()
    for case in load_all():
        for text in case.subscriptions if case.event is not None else ():
            ours = told_by_both(text, case.event or b"", case.layout, case.default_tenant, case.limits)
            compared[ours[0] if ours is not None else "nothing to evaluate"] += 1
    assert min(compared[verdict.value] for verdict in Verdict) > 50, compared


@pytest.mark.integration
def test_every_hostile_expression_comes_to_the_same() -> None:
    compared = Counter[str | None]()
    for row in hostile.load():
        ours = told_by_both(row.subscription, row.event or b"", row.layout, "default", row.limits)
        if ours is not None:
            assert (ours[0] == Verdict.TRUE.value) is row.expect, row.name
            assert ours[1] == row.cel_error, row.name
            compared[ours[1]] += 1
    assert compared["budget"] > 5, compared
    assert compared[None] > 10, compared


def test_every_time_zone_says_the_same_of_every_age() -> None:
    getters = ("getHours", "getMinutes", "getSeconds")
    local = ", ".join(f"timestamp(data.t).{getter}(data.zone)" for getter in getters)
    programs = native(f"[{local}] == data.local", LAYOUT, "default")
    zones = files("tzdata").joinpath("zones").read_text("utf-8").split()
    assert len(zones) > 500
    for text in ("1850-01-01T00:00:00Z", "1945-07-01T12:00:00Z", "2005-03-27T01:00:00Z", "2400-07-01T00:00:00Z"):
        moment = times.parse_timestamp(text)
        assert isinstance(moment, Timestamp)
        for zone in zones:
            parts = [times.timestamp_part(moment, part, zone) for part in getters]
            event = json.dumps({"data": {"t": text, "zone": zone, "local": parts}}).encode()
            assert told_natively(programs, event, LIMITS.cel_budget)[0] == "true", f"{zone} at {text}: {parts}"


def test_the_benchmark_finds_the_matches_that_all_runtimes_find(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.main(["--smoke"])
    assert "times native" in capsys.readouterr().out
