"""What a compiled CEL expression tells of itself, and what it costs; what it means is in the table of cases."""

from __future__ import annotations

import inspect
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamer.cel_eval import CelReason, Program, compile_cel, evaluate_cel
from streamer.cel_eval.regexps import regexp_size
from streamer.errors import CelError
from streamer.model import Event, Limits, Verdict

ROOT = Path(__file__).parents[2]
LIMITS = Limits()


def compiled(source: str) -> Program:
    return compile_cel(source, LIMITS)


def event(data: dict[str, Any]) -> Event:
    return Event(raw={"data": data}, tenant="t", data=data, data_at=("data",))


def cost(source: str, data: dict[str, Any]) -> int:
    return evaluate_cel(compiled(source), event(data), LIMITS.cel_budget).cost


# --- what a program tells


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("data.user.country == 'DE'", {("data", "user", "country")}),
        ("data['user'].`a b` == 1", {("data", "user", "a b")}),
        ("data.l[0].x == 1", {("data", "l")}),
        ("data[topic] == 1", {("data",), ("topic",)}),
        ("has(before.a.b)", {("before", "a", "b")}),
        ("data == null", {("data",)}),
        ("data.l.all(x, x.y == data.z)", {("data", "l"), ("data", "z")}),
        ("[1].all(data, data == 1)", set()),
    ],
)
def test_a_program_tells_which_paths_it_reads(source: str, fields: set[tuple[str, ...]]) -> None:
    assert compiled(source).fields == fields


def test_a_program_mentions_before_only_where_it_reads_it() -> None:
    assert compiled("has(before.a) || data.a == 1").mentions_before
    assert not compiled("data.before == 'before' && [1].all(before, before == 1)").mentions_before


@pytest.mark.parametrize(
    ("source", "verdict", "reason"),
    [
        ("1 < 2", Verdict.TRUE, None),
        ("'a' in ['b']", Verdict.FALSE, None),
        ("1 < 'a'", Verdict.ERROR, CelReason.NO_SUCH_OVERLOAD),
        ("timestamp('x') == timestamp(0)", Verdict.ERROR, CelReason.BAD_VALUE),
    ],
)
def test_what_reads_nothing_of_the_event_is_the_same_for_any(source: str, verdict: Verdict, reason: CelReason | None) -> None:
    program = compiled(source)
    assert program.variables == frozenset()
    outcome = evaluate_cel(program, Event(raw={}, tenant=""), Limits().cel_budget)
    assert (outcome.verdict, outcome.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("source", "remarks"),
    [
        ("1 == 1.0 || 2 == 2", [("literal_comparison", 1, 3)]),
        ("'a' in [1]", [("literal_comparison", 1, 5)]),
        ("data.a +\n 1 > 2", [("spelled_arithmetic", 1, 8)]),
        ("2 * data.a > 2", [("spelled_arithmetic", 1, 3)]),
        ("data.a + 1.0 > 2.0 && data.b == 1 && size(data.a) + 1 > 0", []),
    ],
)
def test_remarks_name_what_is_worth_a_second_look(source: str, remarks: list[tuple[str, int, int]]) -> None:
    assert [(remark.kind, remark.line, remark.column) for remark in compiled(source).remarks] == remarks


def test_an_outcome_says_in_words_what_failed() -> None:
    outcome = evaluate_cel(compiled("data.amount > 1"), event({}), LIMITS.cel_budget)
    assert outcome.reason is CelReason.NO_SUCH_FIELD
    assert "amount" in (outcome.detail or "")


# --- what it costs


def _examples() -> list[tuple[str, dict[str, Any], int]]:
    text = (ROOT / "docs" / "cel-cost.md").read_text("utf-8").partition("## Examples")[2]
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (\d+)", text, re.MULTILINE)
    return [(source, json.loads(data), int(units)) for source, data, units in rows]


def test_the_examples_of_the_docs_cost_what_they_say() -> None:
    examples = _examples()
    assert len(examples) >= 4
    for source, data, units in examples:
        assert cost(source, data) == units, source


@pytest.mark.parametrize(
    ("source", "units"),
    [
        ("true", 1),
        ("((true))", 1),
        ("-1 == -1", 3),
        ("--1 == 1", 4),
        ("!!true", 3),
        ("false && data.a && data.b", 3),
        ("true && true && true", 5),
        ("true ? true : data.x == 1", 3),
        ("false ? true : false ? true : true", 5),
        ("has(data.m.k)", 3),
        ("data.x.y.z == 1", 6),  # all steps of a chain, also after the error
        ("size(data.s) == 32", 5 + 2),  # 32 bytes
        ("'é' == 'é'", 4),  # 3 nodes, 2 bytes
        ("data.s == 'x'", 5),  # 4 nodes, 1 byte: the shorter
        ("data.s.startsWith('0')", 5),
        ("data.l == [1, 2, 3]", 7 + 3),
        ("data.l == [1, 3, 2]", 7 + 2),  # up to the first difference
        ("data.l == [1]", 5),  # another size
        ("data.m == {'k': 1}", 6 + 1 + 1 + 1),  # 6 nodes, 1 key in the literal, 1 entry and its key
        ("data.l + [4] == [1]", 8 + 4),  # 4 elements put together
        ("2 in data.l", 4 + 2),
        ("data.l.contains(3)", 4 + 3),
        ("data.m['k'] == 1", 6 + 1),
        ("'k' in data.m", 4 + 1),
        ("data.l.exists(x, x == 2)", 3 + 2 * 4),  # ends at the first true
        ("data.l.all(x, x > 5)", 3 + 1 * 4),  # ends at the first false
        ("data.l.exists_one(x, x == 1)", 3 + 3 * 4),  # visits every element
        ("data.l.filter(x, 1 / (x - 1) > 0) == []", 5 + 3 * 8 - 1 + 1),  # also after an error
        ("data.l.map(x, x > 1, x) == [2, 3]", 7 + 3 * 4 + 2 + 2),
        ("'a'.matches('a')", 3 + 2),  # a constant regexp is compiled beforehand
        ("'a'.matches('' + 'a')", 5 + 1 + 2 + 4096 + 224 * 2),
        ("['a', 'b'].all(s, s.matches('[a' + 'b]'))", 4 + 2 * (6 + 1 + 3) + 4096 + 224 * 3),  # the second time it is there
        ("int('12') == 12", 4 + 1),
        ("string(12) == '12'", 4 + 1),
        ("timestamp(0).getHours('UTC') == 0", 6 + 1),
    ],
)
def test_every_rule_of_the_cost_table(source: str, units: int) -> None:
    data = {"s": "0123456789abcdef0123456789abcdef", "l": [1, 2, 3], "m": {"k": 1}}
    assert cost(source, data) == units


@pytest.mark.parametrize(
    ("regexp", "size"),
    [
        ("", 1),
        ("a|", 3),
        (r"^(ab|[c-e]\d){3}$", 24),
        ("(a{10}){10}", 101),
        ("a{0}b{2,5}c{2,}d{,3}", 14),
        ("[]a][^]][[:alpha:]x][[:]", 8),
        (r"\pL\p{Greek}[\PLa]", 194),
        (r"\x{1F600}{3}\x41\Qa{3}\E{2}", 12),
        ("(?i)x*?", 3),
        ("(()", 2),
        ("(a", 2),
        (")", 2),
        ("[a", 2),
        ("\\", 2),
        ("|{3}", 2),
        ("((a{1000}){1000}){1000}", 1_000_001),
        ("a{" + "9" * 9000 + "}", 1_000_001),
    ],
)
def test_the_size_of_a_regexp_is_told_from_any_text(regexp: str, size: int) -> None:
    assert regexp_size(regexp) == size


def test_to_look_for_a_regexp_costs_a_step_for_each_byte_and_state() -> None:
    text = {"s": "x" * 100}
    assert cost(r"data.s.matches(r'^(ab|[c-e]\d){3}$')", text) == 4 + 7 * 24
    assert cost(f"data.s.matches('{'a' * 400}')", text) == 4 + 7 * 401
    assert cost(f"data.s.matches('{'a' * 1025}' + '')", text) == 6 + 65 + 4096  # refused unread


def test_a_budget_is_enough_to_the_unit() -> None:
    program = compiled("data.l.all(x, x > 0)")
    data = event({"l": [1, 2, 3]})
    assert evaluate_cel(program, data, 15).verdict is Verdict.TRUE
    assert evaluate_cel(program, data, 14).reason is CelReason.BUDGET


@pytest.mark.slow
def test_nested_macros_stop_at_the_default_budget() -> None:
    program = compiled("data.l.all(a, data.l.all(b, data.l.all(c, a + b + c >= 0)))")
    outcome = evaluate_cel(program, event({"l": list(range(60))}), LIMITS.cel_budget)
    assert outcome.reason is CelReason.BUDGET
    assert outcome.cost == LIMITS.cel_budget + 1


# --- hostile input


@pytest.mark.parametrize(
    "source",
    [
        "[data.s]" + ".map(x, x + x)" * 40 + "[0].size() > 0",
        "[data.l]" + ".map(x, x + x)" * 40 + "[0].size() > 0",
        "data.l.all(a, data.l.all(b, data.s.contains(data.s)))",
        "data.l.all(a, data.l == data.l)",
        "data.l.all(a, a in data.l)",
        "data.r.exists(r, data.s.matches(r))",
        "data.s.matches('(x+x+)+y')",
        "int(data.s) == 1 || double(data.s) == 1.0 || duration(data.s) == duration('1s') || timestamp(data.s) == timestamp(0)",
    ],
)
def test_no_expression_does_more_work_than_its_budget_however_it_grows(source: str) -> None:
    data = {"s": "x" * 100_000, "l": list(range(2000)), "r": [f"\\pL{{100}}{i}" for i in range(2000)]}
    started = time.thread_time()
    outcome = evaluate_cel(compiled(source), event(data), 100_000)
    # The last operation, which is not done, may be larger than all before it.
    assert outcome.cost <= 100_000 or outcome.reason is CelReason.BUDGET
    assert time.thread_time() - started < 2


def test_values_of_any_depth_are_compared() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert evaluate_cel(compiled("data.a == data.a"), event({"a": deep}), LIMITS.cel_budget).verdict is Verdict.TRUE


def test_the_deepest_expressions_need_no_deep_stack() -> None:
    """An allowed expression is evaluated within 500 frames, half of what Python has."""
    source = "true"
    for _ in range(21):
        source = f"[1].all(x, false || true && true == ({source}))"
    program = compiled(source)
    frames = []

    def trace(frame: Any, kind: str, argument: Any) -> None:
        depth = 0
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        frames.append(depth)

    base = len(inspect.stack())
    sys.setprofile(trace)
    try:
        assert evaluate_cel(program, event({}), LIMITS.cel_budget).verdict is Verdict.TRUE
    finally:
        sys.setprofile(None)
    assert max(frames) - base < 500


def test_many_threads_compile_and_evaluate_at_once() -> None:
    def one(number: int) -> bool:
        source = f"data.l.exists(x, x == {number}) && data.s.matches('^{number}$')"
        return evaluate_cel(compiled(source), event({"l": [number], "s": str(number)}), LIMITS.cel_budget).verdict is Verdict.TRUE

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(400)))


def test_a_lone_surrogate_in_an_expression_is_refused_with_its_place() -> None:
    with pytest.raises(CelError) as caught:
        compiled("data.a ==\n '\ud800'")
    assert (caught.value.line, caught.value.column) == (2, 3)
