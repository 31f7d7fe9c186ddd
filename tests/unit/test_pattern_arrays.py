"""Array consistency, `$or` and unknowns of patterns, against an oracle that tries every choice of leaves."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.model import Limits, Verdict
from streamer.reference.patterns import Leaf, evaluate_leaves, evaluate_pattern, leaves, matches_value
from streamer.subscriptions.matchers import Absent
from streamer.subscriptions.patterns import AllOf, Field, Pattern, parse_pattern

NAMES = ("a", "b")

VALUES = st.sampled_from([0, 1])
JSON = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)),
    max_leaves=8,
)
EVENTS = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=2)
MATCHERS = st.lists(st.sampled_from([0, 1, {"exists": True}, {"exists": False}, {"anything-but": [0]}]), min_size=1, max_size=2)


@st.composite
def sources(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    members = draw(st.lists(st.sampled_from((*NAMES, "$or")), min_size=1, max_size=3, unique=True))
    return {name: draw(_member(name, depth)) for name in members}


def _member(name: str, depth: int) -> st.SearchStrategy[Any]:
    inner = sources(depth=depth - 1) if depth > 1 else st.dictionaries(st.sampled_from(NAMES), MATCHERS, min_size=1, max_size=2)
    return st.lists(inner, min_size=2, max_size=2) if name == "$or" else st.one_of(MATCHERS, inner)


def parsed(source: Any) -> Pattern:
    return parse_pattern(source, dialect="eventbridge", limits=Limits())


def conjunctions(part: AllOf) -> Iterator[list[Field]]:
    options = [
        [[each]] if isinstance(each, Field) else [fields for one in each.alternatives for fields in conjunctions(one)]
        for each in part.fields
    ]
    for choice in itertools.product(*options):
        yield [each for fields in choice for each in fields]


def oracle(pattern: Pattern, event: Any) -> bool:
    """Semantics.md 5.6 to the letter."""
    found = list(leaves(event))
    for fields in conjunctions(pattern.root):
        choices: list[list[Leaf | None]] = []
        for each in fields:
            at_path = [leaf for leaf in found if leaf.path == each.path]
            chosen: list[Leaf | None] = [leaf for leaf in at_path if any(matches_value(m, leaf.value) for m in each.matchers)]
            if not at_path and any(isinstance(m, Absent) for m in each.matchers):
                chosen.append(None)
            choices.append(chosen)
        if any(_consistent([leaf for leaf in choice if leaf]) for choice in itertools.product(*choices)):
            return True
    return False


def _consistent(chosen: list[Leaf]) -> bool:
    elements: dict[Any, Any] = {}
    return all(elements.setdefault(array, index) == index for leaf in chosen for array, index in leaf.arrays)


@given(sources(), EVENTS)
def test_a_pattern_matches_if_some_choice_of_leaves_is_consistent(source: Any, event: Any) -> None:
    pattern = parsed(source)
    assert evaluate_pattern(pattern, event) is Verdict.of(oracle(pattern, event))


@pytest.mark.slow
@given(sources(), EVENTS)
def test_leaves_of_a_flattener_match_as_the_event_does(source: Any, event: Any) -> None:
    pattern = parsed(source)
    by_path: dict[tuple[str, ...], list[Leaf]] = {}
    for leaf in leaves(event):
        by_path.setdefault(leaf.path, []).append(leaf)
    assert Verdict.of(evaluate_leaves(pattern, by_path)) is evaluate_pattern(pattern, event)


def _places(value: Any, pointer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name in NAMES:
            yield (*pointer, name)
            yield from _places(value[name], (*pointer, name)) if name in value else ()
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield (*pointer, str(i))
            yield from _places(item, (*pointer, str(i)))


def _filled(event: Any, pointer: tuple[str, ...], value: Any) -> Any:
    event = copy.deepcopy(event)
    holder = event
    for token in pointer[:-1]:
        holder = holder[int(token)] if isinstance(holder, list) else holder[token]
    if isinstance(holder, list):
        holder[int(pointer[-1])] = value
    else:
        holder[pointer[-1]] = value
    return event


@pytest.mark.integration
@given(sources(), EVENTS, st.data())
def test_a_verdict_despite_a_hole_holds_whatever_the_hole_contains(source: Any, event: Any, data: st.DataObject) -> None:
    pattern = parsed(source)
    pointer = data.draw(st.sampled_from(list(_places(event))))
    verdict = evaluate_pattern(pattern, event, [pointer])
    for value in data.draw(st.lists(JSON, min_size=1, max_size=5)):
        filled = _filled(event, pointer, value)
        assert verdict in (Verdict.UNKNOWN, evaluate_pattern(pattern, filled))
        assert evaluate_pattern(pattern, filled, [pointer]) is verdict, "what stands in an unknown is ignored"


def test_ten_thousand_elements_and_ten_fields_take_no_exponential_time() -> None:
    event = {"a": [{f"k{j}": (i * 7 + j) % 13 for j in range(10)} for i in range(10_000)]}
    never = parsed({"a": {f"k{j}": [5] for j in range(10)}})
    began = time.thread_time()
    assert evaluate_pattern(never, event) is Verdict.FALSE
    assert time.thread_time() - began < 5


def test_nested_or_over_arrays_takes_no_exponential_time_in_the_event() -> None:
    # Ten arrays of three elements each: 3^10 choices of elements.
    event = {f"k{j}": [{"x": i} for i in range(3)] for j in range(10)}
    source: dict[str, Any] = {"z": [1]}
    for j in range(10):
        source = {"$or": [{f"k{j}": {"x": [0], "y": [1]}}, {f"k{j}": {"x": [1]}, **source}]}
    began = time.thread_time()
    assert evaluate_pattern(parsed(source), event) is Verdict.FALSE
    assert time.thread_time() - began < 5


def test_five_hundred_nested_arrays_are_no_recursion() -> None:
    event: Any = 7
    for _ in range(500):
        event = [event]
    assert evaluate_pattern(parsed({"a": [7]}), {"a": event}) is Verdict.TRUE
    assert next(iter(leaves({"a": event}))).path == ("a",)
    source: Any = [1]
    deep: Any = 1
    for _ in range(500):
        source, deep = {"a": source}, {"a": deep}
    assert evaluate_pattern(parsed(source), deep) is Verdict.TRUE
