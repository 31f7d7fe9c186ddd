"""Filters: what they print as CEL, that they mean it, and values that only Python can give."""

from __future__ import annotations

import json
import math
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer import Filter, FilterGroup, Subscription, SubscriptionError
from streamer.cel_eval import compile_cel, evaluate_cel
from streamer.model import INT64_MAX, INT64_MIN, UINT64_MAX, BeyondFloat64, Event, Limits
from streamer.reference.filters import MISSING, Absence, evaluate_filter
from streamer.subscriptions.filters import ROOTS, CompiledFilter, parse_filter
from streamer.subscriptions.operands import MAX_VALUE_DEPTH
from streamer.subscriptions.operators import IGNORING_CASE, OPERATORS

LIMITS = Limits()

PRINTED: list[tuple[str, str, Any, str]] = [
    ("status", "==", "paid", "data.status == 'paid'"),
    ("user.country", "in", ("DE", "FR"), "data.user.country in ['DE', 'FR']"),
    ("a", "not in", (1, 2.0, None, True), "!(data.a in [1, 2.0, null, true])"),
    ("a", "!=", ((), {}), "data.a != [[], {}]"),
    ("content-type", ">=", -1.5, "data.`content-type` >= -1.5"),
    ("/a.b/c~1d", "contains", "x", "data.`a.b`.`c/d`.contains('x')"),
    ("in.while", "starts_with", "", "data.`in`.`while`.startsWith('')"),
    ("größe", "ends_with", "ß", "data['größe'].endsWith('ß')"),
    ("/", "matches", "\\d", "data[''].matches('\\\\d')"),
    ("a", "==", UINT64_MAX, "data.a == 18446744073709551615u"),
    ("a", "==", INT64_MIN, "data.a == -9223372036854775808"),
    ("a", "==", 1e16, "data.a == 1e+16"),
    ("a", "==", 0.1, "data.a == 0.1"),
    ("a", "==", "it's\n\\\u2028\x00\U000e0001", "data.a == 'it\\'s\\n\\\\\\u2028\\u0000\\U000e0001'"),
    ("a", "==", {"k": [{"x": None}]}, "data.a == {'k': [{'x': null}]}"),
    ("a.b", "exists", True, "has(data.a) && has(data.a.b)"),
    ("a.b", "exists", False, "!(type(data) == map && has(data.a) && type(data.a) == map && has(data.a.b))"),
    ("é", "exists", True, "'é' in (type(data) == map ? data : null)"),
    ("é", "exists", False, "!(type(data) == map && 'é' in data)"),
    (
        "a",
        "changed",
        None,
        "type(data) == map && has(data.a) && type(before) == map && has(before.a) ? before.a != data.a : "
        "(type(data) == map && has(data.a)) || (type(before) == map && has(before.a))",
    ),
    (
        "a",
        "changed_to",
        1,
        "type(data) == map && has(data.a) && data.a == 1 && !(type(before) == map && has(before.a) && before.a == 1)",
    ),
    (
        "a",
        "changed_from",
        1,
        "type(before) == map && has(before.a) && before.a == 1 && !(type(data) == map && has(data.a) && data.a == 1)",
    ),
]


@pytest.mark.parametrize(("field", "op", "value", "printed"), PRINTED)
def test_a_filter_prints_the_expression_that_it_means(field: str, op: str, value: Any, printed: str) -> None:
    """Names that are no identifiers are quoted, or looked up where quotes cannot hold them."""
    assert Filter(field, op, value).to_cel() == printed


@pytest.mark.parametrize(
    ("field", "op", "value", "printed"),
    [
        ("source.snapshot", "==", "first", "envelope.source.snapshot == 'first'"),
        ("/a.b/é", "not in", (1, "x"), "!(envelope.`a.b`['é'] in [1, 'x'])"),
        ("subject", "starts_with", "a/", "envelope.subject.startsWith('a/')"),
        ("a.b", "exists", True, "has(envelope.a) && has(envelope.a.b)"),
        ("a", "exists", False, "!(type(envelope) == map && has(envelope.a))"),
    ],
)
def test_a_filter_on_the_envelope_prints_envelope(field: str, op: str, value: Any, printed: str) -> None:
    assert Filter(field, op, value, "envelope").to_cel() == printed
    assert not compile_cel(printed, LIMITS).mentions_before


def test_the_default_root_is_not_written() -> None:
    """So the text of a subscription stays as it was."""
    assert Filter("a", "==", 1, "data").to_dict() == {"field": "a", "op": "==", "value": 1}
    assert Filter("a", "==", 1, "envelope").to_dict() == {"field": "a", "op": "==", "value": 1, "root": "envelope"}


@pytest.mark.parametrize(
    ("op", "filters", "reason"),
    [
        ("or", [], "op: expected 'any', 'all' or 'not', not 'or'"),
        ("not", [], "filters: 'not' takes one filter, not 0"),
        ("not", Filter("a", "==", 1), "filters: expected a list, not Filter"),
        ("not", {"any": []}, "filters: expected a list, not dict"),
        ("any", iter([]), "filters: expected a list, not list_iterator"),
        ("all", "a", "filters: expected a list, not str"),
    ],
)
def test_a_group_that_no_engine_could_read_is_refused_where_it_is_written(op: Any, filters: Any, reason: str) -> None:
    with pytest.raises(SubscriptionError, match=reason):
        FilterGroup(op, filters)


def test_a_group_of_objects_and_mappings_becomes_json() -> None:
    inner = {"all": (Filter("a", "==", 1), {"not": FilterGroup("any", [Filter("b", "changed")])})}
    plain = [{"any": [{"all": [{"field": "a", "op": "==", "value": 1}, {"not": {"any": [{"field": "b", "op": "changed"}]}}]}]}]
    for entry in (FilterGroup("any", [inner]), {"any": [inner]}):
        made = Subscription(id="s", filters=[entry]).to_dict()
        assert json.loads(json.dumps(made))["filters"] == plain


@pytest.mark.parametrize(
    ("op", "value", "printed"),
    [
        ("==", "a.b", "type(data.a) == string && data.a.matches('(?i)^(?:a\\\\.b)$')"),
        ("!=", "É", "!(type(data.a) == string && data.a.matches('(?i)^(?:É)$'))"),
        ("in", ("x", 1, "y"), "data.a in [1] || type(data.a) == string && data.a.matches('(?i)^(?:x|y)$')"),
        ("in", (), "data.a in []"),
        ("not in", (None,), "!(data.a in [null])"),
        (
            "contains",
            "x",
            "type(data.a) == list ? data.a.exists(x, type(x) == string && x.matches('(?i)^(?:x)$')) : data.a.matches('(?i)x')",
        ),
        ("starts_with", "\u1fd3", "data.a.matches('(?i)^[\u1fd3\u0390]')"),
        ("ends_with", "", "data.a.matches('(?i)$')"),
        ("matches", "a|b", "data.a.matches('(?i)a|b')"),
    ],
)
def test_a_filter_that_ignores_case_prints_regexps(op: Any, value: Any, printed: str) -> None:
    given = Filter("a", op, value, ignore_case=True)
    assert given.to_cel() == printed
    assert compile_cel(printed, LIMITS)
    assert repr(given).endswith(", ignore_case=True)")
    assert given.to_dict()["ignore_case"] is True
    with pytest.raises(SubscriptionError, match="PostgreSQL folds case"):
        Subscription(id="s", filters=[FilterGroup("not", [given])]).to_sql()


@pytest.mark.parametrize(("field", "op", "value", "printed"), PRINTED)
def test_what_a_filter_prints_is_cel(field: str, op: str, value: Any, printed: str) -> None:
    """It compiles, and whether it mentions `before` is as the operator says."""
    assert compile_cel(printed, LIMITS).mentions_before == op.startswith("changed")


# A filter and the expression that it prints, on random events


NAMES = st.sampled_from(["a", "b", "in", "x-y", "é", "a.b", ""])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, -1, 2**53, 2**53 + 1, INT64_MIN, INT64_MAX, INT64_MAX + 1, UINT64_MAX]),
    st.sampled_from([0.0, -0.0, 1.0, 1.5, 2.0**53, 2.0**63, 2.0**64, 5e-324]),
    st.sampled_from(["", "a", "b", "ab", "é", "É", "1", "K", "\u212a", "\U00010d50", "\U00010d70"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
EVENT_VALUES = st.recursive(
    SCALARS | st.just(BeyondFloat64("1e400")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.none() | st.dictionaries(NAMES, EVENT_VALUES, max_size=4)
ORDERABLE = SCALARS.filter(lambda value: value is not None)
OPERANDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("==", "!=", "changed_to", "changed_from"), VALUES),
    **dict.fromkeys((">", ">=", "<", "<="), ORDERABLE),
    **dict.fromkeys(("in", "not in"), st.lists(SCALARS, max_size=3)),
    "contains": SCALARS,
    "exists": st.booleans(),
    **dict.fromkeys(("starts_with", "ends_with"), st.sampled_from(["", "a", "é", "k", "\U00010d50"])),
    "matches": st.sampled_from(["", "a", "^.$", "é|1"]),
    "changed": st.none(),
}
assert set(OPERANDS) == set(OPERATORS)


@st.composite
def filters(draw: st.DrawFn) -> CompiledFilter:
    path = draw(st.lists(NAMES, min_size=1, max_size=3))
    op = draw(st.sampled_from(list(OPERATORS)))
    pointer = "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)
    root = "data" if OPERATORS[op].mentions_before else draw(st.sampled_from(ROOTS))
    value = draw(OPERANDS[op])
    may_ignore = op in IGNORING_CASE and (isinstance(value, str) or op in ("in", "not in"))
    return parse_filter(Filter(pointer, op, value, root, may_ignore and draw(st.booleans())))


@st.composite
def events(draw: st.DrawFn, condition: CompiledFilter) -> Event:
    documents = {root: draw(DOCUMENTS) for root in ("data", "before", "envelope")}
    # Random documents seldom have the filter's path, and still more seldom its value.
    names = condition.path.names
    for document in documents.values():
        if document is not None and draw(st.booleans()):
            at = document
            for name in names[:-1]:
                if not isinstance(at.get(name), dict):
                    at[name] = {}
                at = at[name]
            at[names[-1]] = draw(st.just(condition.value) | EVENT_VALUES)
    unknowns = draw(st.lists(st.tuples(st.sampled_from(list(documents)), st.lists(NAMES | st.just("0"), max_size=3)), max_size=2))
    unknown = tuple((root, *names) for root, names in unknowns)
    return Event(
        documents,
        "t",
        **documents,
        unknown=unknown,
        data_at=("data",),
        before_at=("before",),
        envelope_at=("envelope",),
        envelope_unknown=tuple(each for each in unknown if each[0] == "envelope"),
    )


@pytest.mark.slow
@settings(max_examples=max(100, settings.default.max_examples))
@given(st.data())
def test_a_filter_means_exactly_the_expression_that_it_prints(drawn: st.DataObject) -> None:
    """True, false, error and unknown alike."""
    condition = drawn.draw(filters())
    event = drawn.draw(events(condition))
    program = compile_cel(condition.to_cel(), LIMITS)
    outcome = evaluate_cel(program, event, LIMITS.cel_budget)
    assert (outcome.verdict, condition.to_cel()) == (evaluate_filter(condition, event)[0], condition.to_cel())


# Values that JSON text cannot give


class Number(IntEnum):
    SEVEN = 7


@pytest.mark.parametrize("value", [(1, [2, (3,)]), {"a": (1,)}, Number.SEVEN])
def test_python_values_become_plain_json_values(value: Any) -> None:
    """Tuples become lists, enums their numbers."""
    plain = parse_filter(Filter("a", "==", value)).value
    assert type(plain) in (list, dict, int)
    assert "(" not in Filter("a", "==", value).to_cel()


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (math.nan, "filters[0].value"),
        ([1, math.inf], "filters[0].value[1]"),
        ({"a": {"b": -math.inf}}, "filters[0].value.a.b"),
        (UINT64_MAX + 1, "filters[0].value"),
        (INT64_MIN - 1, "filters[0].value"),
        (BeyondFloat64("1e400"), "filters[0].value"),
        ("\ud800", "filters[0].value"),
        ({"\ud800": 1}, "filters[0].value"),
        ({1: 1}, "filters[0].value"),
        ({1}, "filters[0].value"),
        (b"x", "filters[0].value"),
    ],
)
def test_what_is_no_json_value_is_refused_with_its_place(value: Any, place: str) -> None:
    """Numbers that JSON or 64 bits cannot hold, half surrogate pairs, other types."""
    with pytest.raises(SubscriptionError) as caught:
        parse_filter(Filter("a", "==", value))
    assert caught.value.place == place


def test_groups_that_are_too_deep_for_a_dict_are_refused() -> None:
    entry: dict[str, Any] = {"field": "a", "op": "==", "value": 1}
    for _ in range(16):
        entry = {"not": entry}
    assert FilterGroup("not", [entry["not"]]).to_dict() == entry
    for _ in range(10_000):
        entry = {"not": entry}
    with pytest.raises(SubscriptionError, match="filters: groups nested deeper than 16 levels"):
        FilterGroup("any", [entry]).to_dict()


def test_a_value_in_itself_is_refused() -> None:
    """It is deeper than any limit."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(SubscriptionError, match=f"deeper than {MAX_VALUE_DEPTH}"):
        parse_filter(Filter("a", "==", endless))


def test_a_field_with_half_a_surrogate_pair_is_refused() -> None:
    """No event has such a name."""
    with pytest.raises(SubscriptionError) as caught:
        parse_filter(Filter("a.\udfff", "==", 1))
    assert caught.value.place == "filters[0].field"


def test_the_value_seen_is_told() -> None:
    """Or why there is none."""
    event = Event({}, "t", data={"a": 7}, unknown=(("data", "u"),), data_at=("data",), before_at=("before",))
    assert [evaluate_filter(parse_filter(Filter(name, "==", 7)), event)[1] for name in "abu"] == [7, MISSING, Absence.UNKNOWN]


def test_values_as_deep_as_an_event_are_compared_without_recursion() -> None:
    """On both sides of a change."""

    def nested(innermost: int) -> list[Any]:
        value: list[Any] = [innermost]
        for _ in range(5000):
            value = [value]
        return value

    changed = parse_filter(Filter("a", "changed"))
    for before, verdict in ((1, "false"), (2, "true")):
        event = Event({}, "t", data={"a": nested(1)}, before={"a": nested(before)})
        assert evaluate_filter(changed, event)[0].value == verdict
