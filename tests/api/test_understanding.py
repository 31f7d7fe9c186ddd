"""`explain`, `plan` and `lint` say what happens, and print well."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from streamer import Engine, Filter
from streamer.bloom import ShippedFilter
from streamer.core.lint import FindingCode
from streamer.engine import hints
from streamer.errors import SubscriptionError
from streamer.model import Verdict
from streamer.subscriptions.keys import Key
from tests.generators import random_subscription

MakeEngine = Callable[..., Engine]

EVENT: dict[str, Any] = {
    "collection": "orders",
    "type": "update",
    "data": {"status": "paid", "amount": 150, "tags": ["new", "vip1"]},
    "before": {"status": "open", "amount": 150},
}


@pytest.fixture
def e(engine: MakeEngine) -> Engine:
    made: Engine = engine(soft_delete="gone")
    made.add(
        {
            "id": "paid",
            "collection": "orders",
            "filters": [{"field": "status", "op": "==", "value": "paid"}],
            "pattern": {"data": {"tags": [{"prefix": "vip"}]}},
            "cel": "data.amount > 100",
            "transitions": True,
        }
    )
    return made


def test_a_match_is_explained_condition_by_condition(e: Engine) -> None:
    told = e.explain(EVENT, "paid")
    assert told
    assert (told.matched, told.transition, told.certain, told.verdict) == (True, "enter", True, Verdict.TRUE)
    assert [(c.place, c.verdict.value) for c in told.conditions] == [
        ("tenant", "true"),
        ("collection", "true"),
        ("filters[0]", "true"),
        ("pattern.data.tags", "true"),
        ("cel", "true"),
    ]
    assert [(c.place, c.verdict.value) for c in told.before][:1] == [("filters[0]", "false")]
    text = str(told)
    assert text.startswith("'paid' matches (enter)\n")
    assert "data.status == 'paid'" in text
    assert 'saw "paid"' in text
    assert 'saw ["new", "vip1"]' in text
    assert "true, saw data.amount = 150" in text


def test_a_near_miss_says_which_condition_failed(e: Engine) -> None:
    told = e.explain({**EVENT, "data": {"status": "sent", "tags": ["vip"]}}, "paid")
    assert not told
    failed = {c.place: c.verdict for c in told.conditions if c.verdict is not Verdict.TRUE}
    assert failed == {"filters[0]": Verdict.FALSE, "cel": Verdict.ERROR}
    assert "does not match" in str(told)
    assert "no_such_field" in str(told)


def test_what_the_event_does_not_carry_is_told(e: Engine) -> None:
    told = e.explain({**EVENT, "unknown": ["/data/status"], "type": "insert"}, "paid")
    assert (told.matched, told.certain) == (True, False)
    assert "not certain" in told.headline
    assert "<unknown>" in str(told)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"data": {**EVENT["data"], "gone": True}}, "flagged as deleted by 'gone'"),
        ({"data": {**EVENT["data"], "status": "sent"}, "before": EVENT["data"]}, "matched before"),
    ],
)
def test_what_decided_beside_the_conditions_is_told(e: Engine, changes: dict[str, Any], note: str) -> None:
    told = e.explain({**EVENT, **changes}, "paid")
    assert note in str(told)


def test_another_tenant_is_a_condition_like_the_others(e: Engine) -> None:
    told = e.explain({**EVENT, "tenant": "other"}, "paid")
    assert not told
    assert told.conditions[0].seen == "other"
    assert told.conditions[0].verdict is Verdict.FALSE


def test_explain_says_what_match_says(e: Engine) -> None:
    documents: list[Any] = [None, {}, EVENT["data"], EVENT["before"], {"status": "paid", "amount": 1, "tags": "vip"}]
    for kind in ("insert", "update", "delete", None):
        for data in documents:
            for before in documents:
                event = {"collection": "orders", "data": data, "before": before} | ({"type": kind} if kind else {})
                matches = e.match(event)
                told = e.explain(event, "paid")
                assert told.matched == ("paid" in matches)
                if matches:
                    assert (told.transition, told.certain) == (matches[0].transition, matches[0].certain)


def test_a_deep_value_does_not_stop_an_explanation(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": "a", "op": "==", "value": 1}]})
    deep = b'{"data": {"a": ' + b"[" * 500 + b"]" * 500 + b"}}"
    assert "[[[" in str(e.explain(deep, "s"))


def test_an_explanation_keeps_to_its_lines_whatever_a_user_wrote(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "cel": "data.a == '\u001b[2J' &&\n    data.b == 2"})
    text = str(e.explain({"data": {"a": "\u001b[2J", "b": 1}}, "s"))
    assert [line[:4] for line in text.splitlines()[1:]] == ["  ✓ ", "  ✗ ", "  ✓ ", "  ✗ "]
    assert text.replace("\n", "").isprintable()
    assert r"data.a == '\x1b[2J' && data.b == 2" in text
    assert r'saw data.a = "\u001b[2J"' in text


WIDE: dict[str, Any] = {
    "collection": "orders",
    "type": "update",
    "data": {"amount": 150, "status": "paid", "items": [{"sku": "a"}], "user": {"country": "DE"}},
    "before": {"amount": 150, "status": "open"},
}


def told_of(engine: MakeEngine, **subscription: Any) -> str:
    e = engine()
    e.add({"id": "s", **subscription})
    told = e.explain(WIDE, "s")
    assert told.matched == ("s" in e.match(WIDE))
    return re.sub(r"\n {8,}", " ", str(told))


@pytest.mark.parametrize(
    ("cel", "decided"),
    [
        ("data.amount > 100 && data.status == 'open'", ["data.status == 'open'"]),
        ("data.amount > 100 && data.status == 'paid'", []),
        ("data.amount > 500 || data.status == 'paid'", ["data.status == 'paid'"]),
        ("data.amount > 500 || data.status == 'open'", []),
        ("(data.none == 1 && data.amount > 100)", ["data.none == 1"]),
        ("data.none == 1 && data.amount > 500", ["data.amount > 500"]),
        ("data.status in ['a&&b', \"(c\", r'\\'] && true // && false", ["data.status in ['a&&b', \"(c\", r'\\']"]),
        ("(data.amount > 500 || data.status == 'a||') && data.none", ["(data.amount > 500 || data.status == 'a||')"]),
        ("data.items.exists(i, i.sku == 'b' && i.n == 1) || data.amount > 100", ["data.amount > 100"]),
        ("data.amount > 500 ? true || false : false", []),
    ],
)
def test_the_operand_that_decided_is_marked(engine: MakeEngine, cel: str, decided: list[str]) -> None:
    e = engine()
    e.add({"id": "s", "cel": cel})
    (*_, row) = e.explain(WIDE, "s").conditions
    assert [part.text for part in row.parts if part.decided] == decided
    assert bool(row.parts) == ("?" not in cel)
    assert str(e.explain(WIDE, "s")).count("which decides") >= len(decided)


def test_a_group_does_not_repeat_a_long_text_at_each_level(engine: MakeEngine) -> None:
    e = engine()
    entry: dict[str, object] = {"any": [{"field": "a" * 500 + str(number), "op": "==", "value": 1} for number in range(100)]}
    for _ in range(14):
        entry = {"not": entry}
    e.add({"id": "s", "filters": [entry]})
    *_, row = e.explain({"data": {}}, "s").to_dict()["conditions"]
    assert row["text"] == "!(" * 14 + "(conditions: 100)" + ")" * 14
    assert len(json.dumps(row)) < 3 * len(json.dumps(entry))


def test_a_group_shows_the_values_of_its_entries_alone(engine: MakeEngine) -> None:
    e = engine()
    e.add(
        {
            "id": "s",
            "filters": [{"any": [{"field": "a", "op": "==", "value": None}, {"not": {"field": "b", "op": "==", "value": 1}}]}],
        }
    )
    *_, row = e.explain({"data": {"a": None, "b": 2}}, "s").to_dict()["conditions"]
    assert (row["seen"], row["parts"][0]["seen"], row["parts"][1]["seen"]) == ({}, "null", {})


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("amuont", "there is no data.amuont; the event has data.amount"),
        ("country", "there is no data.country; the event has data.user.country"),
        ("Status", "there is no data.Status; the event has data.status"),
        ("data.amount", "there is no data.data.amount; the event has data.amount"),
        ("items.sku", "data.items is a list; a pattern or CEL's exists() looks into it"),
        ("user.country.code", "data.user.country is not an object"),
        ("items", "data.items is a list; use `contains` or a pattern for its elements"),
        ("zzzz", "there is no data.zzzz"),
    ],
)
def test_what_was_probably_meant_is_told(engine: MakeEngine, field: str, hint: str) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": field, "op": "==", "value": "DE"}], "cel": f"data.{field} == 'DE'"})
    told = e.explain(WIDE, "s")
    assert told.conditions[1].hint == hint
    if field != "items":
        assert told.conditions[2].hint == hint
    assert told_of(engine, filters=[{"field": "amount", "op": "==", "value": 1}]).count("there is") == 0


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("source.snapshto", "there is no envelope.source.snapshto; the event has envelope.source.snapshot"),
        ("tags", "envelope.tags is a list; use `contains` or a pattern for its elements"),
        ("data.amount", "there is no envelope.data.amount"),
    ],
)
def test_a_field_of_the_envelope_that_was_probably_meant_is_told(engine: MakeEngine, field: str, hint: str) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": field, "root": "envelope", "op": "==", "value": "first"}]})
    told = e.explain({"data": {"amount": "first"}, "source": {"snapshot": "last"}, "tags": ["first"]}, "s")
    assert told.conditions[1].text == f"envelope.{field} == 'first'"
    assert told.conditions[1].hint == hint
    assert told.cel == f"envelope.{field} == 'first'"


def test_a_field_that_is_unknown_is_not_called_missing(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": "amuont", "op": "==", "value": 1}]})
    assert e.explain({**WIDE, "unknown": ["/data/amuont"]}, "s").conditions[1].hint is None


def test_a_field_of_a_pattern_that_was_probably_meant_is_told(engine: MakeEngine) -> None:
    assert "there is no data.itms; the event has data.items" in told_of(engine, pattern={"data": {"itms": [{"exists": True}]}})


def test_looking_for_what_was_meant_is_bounded(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    monkeypatch.setattr(hints, "get_close_matches", lambda word, fields, n: compared.append(len(list(fields))) or [])
    e = engine()
    e.add({"id": "s", "filters": [{"field": "none", "op": "==", "value": 1}]})
    e.explain({"data": {f"f{n}": n for n in range(100_000)}}, "s")
    assert compared
    assert max(compared) <= hints.MAX_FIELDS


def test_a_change_is_told_with_what_was_and_what_is(engine: MakeEngine) -> None:
    text = told_of(engine, filters=[{"field": "status", "op": "changed"}])
    assert '  ✓ filters[0]  data.status changed  true, was "open", is "paid"' in text
    text = told_of(engine, filters=[{"field": "status", "op": "changed_from", "value": "new"}])
    assert "data.status changed from 'new'" in text
    text = told_of(engine, filters=[{"field": "none", "op": "changed"}])
    assert "was <missing>, is <missing>; there is no data.none" in text


def test_a_leave_that_transitions_would_report_is_told(engine: MakeEngine) -> None:
    open_orders = {"filters": [{"field": "status", "op": "==", "value": "open"}]}
    says = "the document matched before the update: `transitions: true` would report a leave"
    assert says in told_of(engine, **open_orders)
    assert says not in told_of(engine, **open_orders, transitions=True)
    assert says not in told_of(engine, filters=[{"field": "status", "op": "==", "value": "gone"}])
    assert says not in told_of(engine, cel="data.status == 'open' && before.status == 'open'")


def test_an_explanation_fits_80_columns_and_has_colour_where_asked(engine: MakeEngine) -> None:
    e = engine()
    conditions = " && ".join(f"data.field{n} in ['{'x' * 30}', 'y']" for n in range(30))
    e.add({"id": "s", "cel": conditions, "filters": [{"field": "amount", "op": "in", "value": list(range(100))}]})
    told = e.explain(WIDE, "s")
    assert max(map(len, str(told).splitlines())) <= 80
    e.add({"id": "long", "pattern": {"data": {"long" * 30: ["word " * 30]}}})
    assert max(map(len, str(e.explain(WIDE, "long")).splitlines())) <= 80
    assert "\x1b" not in str(told)
    coloured = told.text(colour=True)
    assert "\x1b[31m✗\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == str(told)


def test_a_plan_shows_the_way_of_a_subscription(e: Engine, backend: str) -> None:
    plan = e.plan("paid")
    assert (plan.tenant, plan.collection, plan.cost) == ("default", "orders", "keyed")
    assert plan.decided_by == {"native": "the native index"}.get(backend, "the reference")
    assert plan.access_keys == ('data.status = "paid"',)
    assert plan.bloom_keys == (b'["data","value",["status"],"string","paid"]',)
    assert len(plan.normal_form) == 1
    if backend == "native":
        assert (plan.cel, plan.residual) == (None, ())
        assert "data.amount > 100" in plan.normal_form[0]
    else:
        assert plan.cel == "data.amount > 100"
        assert plan.residual == ("cel: data.amount > 100",)
    assert 'data.status = "paid"' in plan.normal_form[0]
    text = str(plan)
    assert text.splitlines()[0] == "plan of 'paid'"
    assert "access keys  data.status" in text


def test_equal_values_have_equal_bloom_keys(engine: MakeEngine) -> None:
    e = engine()
    for name, value in (("int", 1), ("float", 1.0), ("json", None)):
        text = '{"id": "json", "filters": [{"field": "a", "op": "==", "value": 10e-1}]}'
        e.add(text if value is None else {"id": name, "filters": [{"field": "a", "op": "==", "value": value}]})
    assert len({e.plan(name).bloom_keys for name in e}) == 1


def test_what_decides_is_planned(engine: MakeEngine, backend: str) -> None:
    e = engine()
    e.add({"id": "filter", "filters": [{"field": "a", "op": "==", "value": 1}]})
    e.add({"id": "cel", "filters": [{"field": "a", "op": "==", "value": 1}], "cel": "data.b - data.c > 0"})
    e.add({"id": "transitions", "filters": [{"field": "a", "op": "==", "value": 1}], "transitions": True})
    told = {name: (e.plan(name).cost, e.plan(name).decided_by) for name in e}
    if backend == "native":
        assert told == {
            "filter": ("keyed", "the native index"),
            "cel": ("keyed", "the native index, then its CEL natively"),
            "transitions": ("keyed", "the native index"),
        }
    else:
        assert set(told.values()) == {("keyed", "the reference")}
    assert "decided by" in str(e.plan("cel"))


def test_a_plan_shows_what_the_index_decides_of_cel(engine: MakeEngine, backend: str) -> None:
    e = engine()
    e.add({"id": "all", "cel": "data.carrier in ['UA', 'DL'] && (data.dep > 120 || data.arr > 120)"})
    e.add({"id": "part", "cel": "data.carrier == 'UA' && data.dep - data.arr > 50"})
    plan = e.plan("all")
    if backend == "reference":
        assert plan.residual == (f"cel: {plan.cel}",)
        return
    assert (plan.cost, plan.cel, plan.residual, plan.decided_by) == ("keyed", None, (), "the native index")
    assert plan.access_keys == ('data.carrier = "DL"', 'data.carrier = "UA"')
    assert plan.bloom_keys == tuple(b'["data","value",["carrier"],"string","%b"]' % name for name in (b"DL", b"UA"))
    assert "access keys  data.carrier" in str(plan)
    assert plan.normal_form == (
        ("data.arr > 120", 'data.carrier = "UA" or = "DL"'),
        ('data.carrier = "UA" or = "DL"', "data.dep > 120"),
    )
    plan = e.plan("part")
    written = "cel: data.carrier == 'UA' && data.dep - data.arr > 50"
    assert (plan.cost, plan.residual, plan.decided_by) == ("keyed", (written,), "the native index, then its CEL natively")
    assert plan.normal_form == (("data.arr is a number", 'data.carrier = "UA"', "data.dep is a number", written),)


def test_a_range_is_found_by_its_buckets(engine: MakeEngine, backend: str) -> None:
    e = engine()
    e.add({"id": "range", "filters": [{"field": "a", "op": ">", "value": 100}]})
    plan = e.plan("range")
    assert plan.cost == ("indexed" if backend == "native" else "keyed")
    assert plan.access_keys is not None
    assert "data.a from 100 to 104" in plan.access_keys
    assert f"  access keys  data.a from 100 ({len(plan.access_keys)} buckets)\n" in str(plan)
    assert f"  Bloom keys   {len(plan.bloom_keys)}\n" in str(plan)


@pytest.mark.parametrize(
    ("op", "value", "shown"),
    [
        ("<", 0.5, "data.a to 0.53125 ("),
        ("in", [3, 20, 1], "data.a = 1 or 3 or 20\n"),
        ("in", ["x", 2], 'data.a = 2 or "x"\n'),
        ("in", list(range(30)), "data.a = 0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or 22 more\n"),
        ("starts_with", "vip-", 'data.a begins "vip-"\n'),
    ],
)
def test_a_plan_shows_keys_as_a_user_would_say_them(engine: MakeEngine, op: str, value: Any, shown: str) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": "a", "op": op, "value": value}]})
    text = str(e.plan("s"))
    assert f"  access keys  {shown}" in text
    assert max(map(len, text.splitlines())) <= 80
    json.dumps(e.plan("s").to_dict())


def test_a_plan_joins_the_buckets_of_two_bounds(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": "a", "op": ">", "value": 0.5}, {"field": "a", "op": "<", "value": 77}]})
    plan = e.plan("s")
    if len(plan.normal_form[0]) == 1:
        assert "data.a from 0.5 to 80 (" in str(plan)
    else:
        assert re.search(r"data.a (from 0.5|to 80) \(", str(plan))


def test_what_has_no_key_is_unkeyed(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "cel", "cel": "data.a + 1 == 2"})
    e.add({"id": "all"})
    e.add({"id": "not", "filters": [{"field": "a", "op": "!=", "value": 1}]})
    e.add({"id": "or", "pattern": {"$or": [{"a": [1]}, {"b": [{"exists": False}]}]}})
    for name in e:
        plan = e.plan(name)
        assert (plan.cost, plan.access_keys, plan.bloom_keys) == ("unkeyed", None, ())
    assert len(e.plan("or").normal_form) == 2
    assert "everything" in str(e.plan("all"))


@pytest.mark.parametrize(
    ("condition", "native", "reference"),
    [
        ({"filters": [{"field": "a", "op": ">", "value": False}]}, ["data.a = true"], None),
        ({"filters": [{"field": "a", "op": "<=", "value": True}]}, ["data.a = false", "data.a = true"], None),
        ({"cel": "data.a > false"}, ["data.a = true"], None),
        ({"filters": [{"field": "a", "op": ">", "value": True}]}, None, None),
        ({"filters": [{"field": "a", "op": ">", "value": "x"}]}, None, None),
        ({"filters": [{"field": "b", "op": "==", "value": 3}], "cel": "data.a == 5"}, ["data.a = 5"], ["data.b = 3"]),
        ({"filters": [{"field": "a", "op": ">", "value": False}], "types": ["insert"]}, ["data.a = true"], ['type = "insert"']),
    ],
)
def test_a_plan_shows_the_keys_that_its_filter_has(
    engine: MakeEngine, backend: str, condition: dict[str, Any], native: list[str] | None, reference: list[str] | None
) -> None:
    e = engine()
    e.add({"id": "s", "collection": "c", **condition})
    plan = e.plan("s")
    told = native if backend == "native" else reference
    assert plan.access_keys == (None if told is None else tuple(told))
    assert tuple(str(Key.from_bytes(key)) for key in plan.bloom_keys) == tuple(told or ())
    assert ShippedFilter.load(e.bloom.export("default", "c")).always is (told is None)
    assert told is None or plan.cost == "keyed"


def test_a_plan_writes_bools_as_events_do(engine: MakeEngine, backend: str) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": "a", "op": ">=", "value": False}]})
    told = "data.a = false or = true" if backend == "native" else "data.a >= false"
    assert e.plan("s").normal_form == ((told,),)


def test_lint_sees_what_is_held(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "never", "filters": [{"field": "a", "op": "in", "value": []}]})
    e.add({"id": "fine", "filters": [{"field": "a", "op": "==", "value": 1}]})
    assert {finding.subscription_id for finding in e.lint()} == {"never"}
    e.remove("never")
    assert e.lint() == []


def slow_of(e: Engine) -> set[str]:
    return {finding.subscription_id for finding in e.lint() if finding.code is FindingCode.SLOW}


def test_lint_calls_slow_what_is_evaluated_for_every_event(engine: MakeEngine) -> None:
    e = engine()
    e.add_many([{"id": "two fields", "cel": "data.a == data.b"}, {"id": "one field", "cel": "data.a > 1"}])
    assert slow_of(e) == {"two fields"}


def test_lint_calls_slow_what_others_share_the_way_to(engine: MakeEngine) -> None:
    """Ten subscriptions to the same country show that most events have it. One shows nothing."""
    e = engine()
    e.add_many({"id": f"user {n}", "collection": "c", "cel": f"data.user == {n} && data.a + {n} == data.b"} for n in range(200))
    e.add({"id": "de 0", "collection": "c", "cel": "data.country == 'DE' && data.a + 0 == data.b"})
    assert slow_of(e) == set()
    e.add_many(
        {"id": f"de {n}", "collection": "c", "cel": f"data.country == 'DE' && data.a + {n} == data.b"} for n in range(1, 10)
    )
    assert slow_of(e) == {f"de {n}" for n in range(10)}
    assert len({finding.reason for finding in e.lint() if finding.code is FindingCode.SLOW}) == 1
    # Those of another collection are no evidence.
    e.add({"id": "other", "collection": "other", "cel": "data.country == 'DE' && data.a + 0 == data.b"})
    assert "other" not in slow_of(e)
    # Now two of three events are believed to be of another country.
    e.add_many({"id": f"fr {n}", "collection": "c", "filters": [Filter("country", "==", "FR")]} for n in range(20))
    assert slow_of(e) == set()


F = "filters"


@pytest.mark.parametrize(
    ("cost", "make"),
    [
        ("answered", lambda n: {F: [Filter(f"f{n}", "exists", True)]}),
        ("answered", lambda n: {F: [Filter("f", "exists", n % 2 == 0)]}),
        ("answered", lambda n: {F: [Filter("f", "!=", n)]}),
        ("answered", lambda n: {F: [Filter("f", "not in", [n, -n])]}),
        ("answered", lambda n: {F: [Filter("f", "contains", f"t{n}")]}),
        ("answered", lambda n: {F: [Filter(f"f{n}", "changed")]}),
        ("answered", lambda n: {"cel": f"has(data.k{n})"}),
        ("answered", lambda n: {"cel": f"!has(data.k{n}) && data.a != {n}"}),
        ("answered", lambda n: {"cel": f"'t{n}' in data.tags || size(data.tags) == {n}"}),
        ("answered", lambda n: {"cel": f"data.tags.exists(t, t.startsWith('t{n}-') || t == 't{n}')"}),
        ("answered", lambda n: {"pattern": {"data": {"a": [{"anything-but": ["x", f"q{n}"]}]}}}),
        ("answered", lambda n: {"topic": f"*.t{n}.#"}),
        ("answered", lambda n: {"cel": f"data.tags == ['t{n}'] || data.tags in [['u', {n}], []]"}),
        ("answered", lambda n: {F: [Filter("tags", "==", [n])]}),
        ("verified", lambda n: {F: [Filter("a", "==", {"k": n})], "cel": f"data.b + {n} == data.c"}),
        ("verified", lambda n: {F: [Filter("a", "changed_to", {"k": n})]}),
        ("verified", lambda n: {"cel": f"data.lines.exists(l, l.sku == 's{n}' && l.qty > 1)"}),
        ("verified", lambda n: {"cel": f"data.tags.exists_one(t, t == 't{n}')"}),
        ("verified", lambda n: {F: [Filter("user", "==", n), Filter("country", "==", "DE")], "cel": "data.a > data.b"}),
        ("verified", lambda n: {F: [Filter("a", ">=", n), Filter("a", "<", n + 2)], "cel": f"data.b + {n} == data.a"}),
        ("verified", lambda n: {"collection": "c", "cel": f"data.f{n} + 1 == data.g{n}"}),
        ("evaluated", lambda n: {F: [Filter("country", "==", "DE")], "cel": f"data.a + {n} == data.b"}),
        ("evaluated", lambda n: {F: [Filter("country", "in", ["DE", "FR"])], "cel": f"data.a + {n} == data.b"}),
        ("evaluated", lambda n: {F: [Filter("a", ">", 0)], "cel": f"data.a + {n} == data.b"}),
        ("evaluated", lambda n: {F: [Filter("a", "!=", n)], "cel": f"data.a + {n} == data.b"}),
        ("evaluated", lambda n: {"types": ["insert"], "cel": f"data.a + {n} == data.b"}),
        ("evaluated", lambda n: {"cel": f"data.map.exists(k, v, v == {n})"}),
        ("evaluated", lambda n: {"cel": f"data.tags.all(t, t == 't{n}')"}),
        ("evaluated", lambda n: {"cel": f"data.tags != ['t{n}']"}),
        ("evaluated", lambda n: {F: [Filter("tags", "!=", [n])]}),
    ],
)
def test_lint_estimates_what_many_of_a_kind_cost(engine: MakeEngine, cost: str, make: Callable[[int], dict[str, Any]]) -> None:
    e = engine()
    e.add_many({"id": f"s{n}", **make(n)} for n in range(100))
    assert (slow_of(e) == set(e)) is (cost == "evaluated")
    assert slow_of(e) in (set(), set(e))
    plan = e.plan("s1")
    assert (plan.effort == "answered") is (cost == "answered")
    assert f"  cost         {plan.effort.value}: " in str(plan)
    assert plan.to_dict()["effort"] == plan.effort.value


def test_a_plan_never_calls_unkeyed_what_has_keys(engine: MakeEngine) -> None:
    e = engine()
    for seed in range(300):
        made = random_subscription(random.Random(seed), "s")
        with suppress(SubscriptionError):
            e.add(made)
            plan = e.plan("s")
            assert not (plan.cost == "unkeyed" and plan.bloom_keys), made
            e.remove("s")
