"""Our CEL and Google's C++ runtime come to the same verdict, save for the listed differences."""

from __future__ import annotations

from collections import Counter

import pytest

from streamer.cel_eval import Program, compile_cel, evaluate_cel
from streamer.cel_eval.extensions import EXTENSIONS
from streamer.cel_eval.parse import MACROS
from streamer.cel_eval.types import FUNCTIONS, METHODS
from streamer.errors import CelError
from streamer.model import Event, Limits
from tests.differential import google
from tests.differential.cel_expressions import Expressions
from tests.differential.records import record

LIMITS = Limits()


def _compiled(source: str) -> Program | None:
    try:
        return compile_cel(source, LIMITS)
    except CelError:
        return None


#: Macros of extension libraries, whose cases tests/differential/test_extensions.py compares.
OF_EXTENSIONS = ("optMap", "optFlatMap", "sortBy")
COVERED = sorted(
    {f"{name}(" for name in FUNCTIONS if name not in EXTENSIONS}
    | {f".{name}(" for name in [*METHODS, *MACROS] if name not in {"existsOne", *OF_EXTENSIONS, *EXTENSIONS}}
    | {f" {op} " for op in ["==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%", "&&", "||", "?", ":"]}
    | {"!", "has(", ".`", "['", ",]", "r'", "b'", "'''"}
)


def _compare(seeds: range, covered: Counter[str] | None = None) -> Counter[str]:
    """Compare; return how often what came out. Count in *covered* how many programs use which function and production."""
    counted: Counter[str] = Counter()
    for seed in seeds:
        made = Expressions(seed)
        source = made.program()
        program = _compiled(source)
        if program is None:
            accepted = google.is_accepted(source)
            assert not accepted or google.is_listed("refusal", "refused", "accepted", source), f"seed {seed}: {source!r}"
            counted["refused by both" if not accepted else "listed refusal"] += 1
            continue
        if covered is not None:
            covered.update(used for used in COVERED if used in source)
        expression = google.compiled(source)
        for _ in range(3):
            document = made.document()
            event = Event(raw={"data": document}, tenant="t", data=document)
            ours = evaluate_cel(program, event, LIMITS.cel_budget).verdict.value
            theirs = google.verdict_of(expression, document)
            if ours != theirs:
                listed = google.is_listed("verdict", ours, theirs, source, document)
                assert listed, f"seed {seed}: {source!r} on {document!r}: {ours}, {theirs}"
            counted[ours if ours == theirs else "listed verdict"] += 1
    return counted


@pytest.mark.slow
def test_two_thousand_expressions_come_to_the_same_verdict() -> None:
    counted = _compare(range(2000))
    assert min(counted["true"], counted["false"], counted["error"]) > 500, counted
    assert counted["listed verdict"] < 50, counted


@pytest.mark.integration
def test_a_hundred_thousand_expressions_come_to_the_same_verdict() -> None:
    covered = Counter[str]()
    counted = _compare(range(2000, 102_000), covered)
    assert counted["listed verdict"] < 1000, counted
    assert set(COVERED) == set(covered)
    record("expressions", "reference, Google's C++ runtime", counted, programs_that_use=dict(sorted(covered.items())))


def test_the_expressions_use_every_function_and_every_operator() -> None:
    text = "\n".join(Expressions(seed).program() for seed in range(4000))
    assert {used for used in COVERED if used not in text} == set()


@pytest.mark.parametrize(
    ("source", "ours"),
    [
        ("9007199254740993 == dyn(9007199254740992.0)", "false"),
        ("[1].contains(1)", "true"),
        ("{0: 1, 0u: 2}[0] == 1", "error"),
        ("int(dyn(true)) == 1", "error"),
        ("!!dyn(1) == dyn(1)", "error"),
        ("int(' 1') == 1", "error"),
        ("uint('+1') == 1u", "error"),
        ("double('0x1p3') == 8.0", "error"),
        ("double('1e400') > 0.0", "error"),
        ("duration('200000000000s') > duration('0s')", "error"),
        ("timestamp('2016-12-31T23:59:60Z') == timestamp('2017-01-01T00:00:00Z')", "error"),
    ],
)
def test_each_listed_difference_of_verdicts_is_real(source: str, ours: str) -> None:
    program = compile_cel(source, LIMITS)
    assert evaluate_cel(program, Event(raw={}, tenant="t"), LIMITS.cel_budget).verdict.value == ours
    theirs = google.verdict_of(google.compiled(source), {})
    assert theirs != ours
    assert google.is_listed("verdict", ours, theirs, source)
