"""What is refused and is written as in another language gets an error that names the language, and how to go on."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamer import BulkSubscriptionError, Engine, Subscription, SubscriptionError
from streamer.importing import KINDS
from streamer.subscriptions.languages import LANGUAGES
from streamer.subscriptions.operators import OPERATORS

MONGO, SQL, HASURA = {"status": "paid", "amount": {"$gt": 100}}, "status = 'paid' AND amount > 100", {"status": {"_eq": "paid"}}
JSONLOGIC = {"and": [{"==": [{"var": "status"}, "paid"]}, {">": [{"var": "amount"}, 100]}]}
SUPABASE, CESQL = "status=eq.paid", "source = '/eu' AND EXISTS subject"
ELASTIC = {"bool": {"must": [{"term": {"status": "paid"}}]}}

#: Members of a refused subscription, or a whole text or object, and the kind that the error names; "" for Elasticsearch.
NAMED: list[tuple[Any, str]] = [
    *(({"filters": each}, "mongo") for each in (MONGO, [MONGO], {"$and": [MONGO]}, json.dumps(MONGO))),
    ({"cel": json.dumps(MONGO)}, "mongo"),
    ({"cel": MONGO}, "mongo"),
    ({"$or": [MONGO, MONGO]}, "mongo"),
    (MONGO, "mongo"),
    (json.dumps(MONGO), "mongo"),
    ({"pattern": {"data": {"amount": {"$gt": 100}}}}, "mongo"),
    ({"filters": [{"field": "a", "op": "==", "value": 1}, {"amount": {"$in": [1, 2]}}]}, "mongo"),
    *(({member: JSONLOGIC}, "jsonlogic") for member in ("cel", "filters", "pattern", "rule")),
    ({"cel": json.dumps(JSONLOGIC)}, "jsonlogic"),
    (JSONLOGIC, "jsonlogic"),
    ({"cel": {"!": {"var": "a"}}}, "jsonlogic"),
    *(({"cel": each}, "sql") for each in (SQL, f"SELECT * FROM orders WHERE {SQL}", "status IN ('paid', 'open')")),
    *(({"cel": each}, "sql") for each in ("a IS NULL", "a is not null", "a LIKE 'x%'", "a BETWEEN 1 AND 2", "a <> 1")),
    ({"cel": "name = 'x'"}, "sql"),
    ({"cel": "a = 1 AND b = 2"}, "sql"),
    ({"cel": "name = 'data.a' OR note = 'it''s'"}, "sql"),
    ({"filters": SQL}, "sql"),
    ({"filters": [SQL]}, "sql"),
    *(({name: SQL}, "sql") for name in ("where", "Rule", "conditions")),
    (SQL, "sql"),
    ({"cel": CESQL}, "cesql"),
    ({"cel": "EXISTS subject"}, "cesql"),
    ({"sql": CESQL}, "cesql"),
    *(({member: HASURA}, "hasura") for member in ("filters", "where", "cel", "pattern")),
    ({"filters": [{"_and": [HASURA]}]}, "hasura"),
    *(({"filters": each}, "supabase") for each in (SUPABASE, [SUPABASE], "amount=not.gt.5", "or=(a.eq.1,b.gt.2)")),
    ({"cel": "tags=cs.{new}"}, "supabase"),
    (SUPABASE, "supabase"),
    ({"EventPattern": {"source": ["aws.ec2"]}, "Name": "r"}, "eventbridge"),
    ({"source": ["aws.ec2"], "detail-type": ["EC2"]}, "eventbridge"),
    ({"FilterPolicy": {"store": ["eu"]}}, "sns"),
    ({"query": ELASTIC}, ""),
    ({"query": {"match_all": {}}}, ""),
    ({"filters": ELASTIC}, ""),
    (ELASTIC, ""),
]


def refused(engine: Callable[..., Engine], given: Any) -> Iterator[SubscriptionError]:
    """The error of a subscription in each way in which it can be added."""
    with pytest.raises(SubscriptionError) as one:
        engine().add(given)
    yield one.value
    with pytest.raises(BulkSubscriptionError) as many:
        engine().add_many(iter([{"id": "good"}, given]))
    yield many.value.errors[0]
    text = given if isinstance(given, str) else json.dumps(given)
    yield engine().add_jsonl(io.BytesIO(b'{"id": "good"}\n\n' + text.encode() + b"\n"), on_error="skip").errors[0]


@pytest.mark.parametrize(("given", "kind"), NAMED, ids=str)
def test_a_rule_of_another_language_is_refused_with_the_command_for_it(
    engine: Callable[..., Engine], given: Any, kind: str
) -> None:
    with_id = {"id": "s", **given} if isinstance(given, dict) else given
    for error in refused(engine, with_id):
        (language,) = [each for each in LANGUAGES if each.kind == kind]
        assert f"; this looks like {language.name}: " in error.reason
        assert error.reason.count("looks like") == 1
        assert "expected one of '" not in error.reason
        assert (f"`streamer import {kind} FILE`" if kind else "docs/coming-from/elasticsearch-percolator.md") in str(error)


def test_the_commands_exist() -> None:
    assert {each.kind for each in LANGUAGES} == {*KINDS, ""}


OPERATOR_NAMES = {
    **dict.fromkeys(("eq", "EQ", "$eq", "_eq", "equals", "Equals", "is"), "=="),
    **dict.fromkeys(("neq", "ne", "$ne", "not_equals", "notEquals", "is not", "anything-but"), "!="),
    **dict.fromkeys(("gt", "$gt", "greaterThan", "greater_than"), ">"),
    **dict.fromkeys(("gte", "ge", "_gte", "greaterThanOrEquals"), ">="),
    **dict.fromkeys(("lt", "$lt"), "<"),
    **dict.fromkeys(("lte", "le", "less-than-or-equal"), "<="),
    **dict.fromkeys(("IN", "$in", "one_of"), "in"),
    **dict.fromkeys(("NOT IN", "nin", "$nin", "not_in", "notIn"), "not in"),
    **dict.fromkeys(("startsWith", "prefix", "begins_with"), "starts_with"),
    **dict.fromkeys(("endsWith", "suffix"), "ends_with"),
    **dict.fromkeys(("regex", "$regex", "~", "=~", "rlike"), "matches"),
    **dict.fromkeys(("includes", "has", "CONTAINS"), "contains"),
    **dict.fromkeys(("EXISTS", "present"), "exists"),
    "=": "==",
    "<>": "!=",
}
PHRASES = {
    "like": "'starts_with', 'ends_with', 'contains' or 'matches'",
    "LIKE": "'starts_with', 'ends_with', 'contains' or 'matches'",
    "ilike": "'==', 'starts_with', 'ends_with', 'contains' or 'matches' with \"ignore_case\": true",
    "~*": "'matches' with \"ignore_case\": true",
    "not like": "`cel`, with `!` before the condition",
    "between": "two filters, '>=' and '<='",
    "BETWEEN": "two filters, '>=' and '<='",
    "is null": "'==' with the value null",
    "IS NOT NULL": "'!=' with the value null",
    "missing": "'exists' with the value false",
    "and": "a group in place of the filter: 'any', 'all' or 'not'",
}


@pytest.mark.parametrize("op", [*OPERATOR_NAMES, *PHRASES])
def test_an_operator_of_another_language_is_refused_with_the_operator_that_was_meant(
    engine: Callable[..., Engine], op: str
) -> None:
    meant = f"did you mean {OPERATOR_NAMES[op]!r}?" if op in OPERATOR_NAMES else f"write {PHRASES[op]}"
    for error in refused(engine, {"id": "s", "filters": [{"field": "a", "op": op, "value": 1}]}):
        assert error.reason == f"unknown operator {op!r}; {meant}"
        assert error.place == "filters[0].op"


def test_a_member_of_a_filter_in_another_language_is_refused_with_the_member_that_was_meant(
    engine: Callable[..., Engine],
) -> None:
    for name, meant in {"column": "field", "path": "field", "operator": "op", "comparison": "op", "values": "value"}.items():
        for error in refused(engine, {"id": "s", "filters": [{name: "a"}]}):
            assert error.reason == f"unknown member {name!r}; did you mean {meant!r}?"


#: Refused subscriptions without a hint: nothing in the part at fault is of another language.
UNNAMED: list[dict[str, Any]] = [
    {"id": "s", "filters": [{"field": "a", "op": "starts_with", "value": 5}], "cel": "EXISTS a"},
    {"id": "s", "filters": [{"field": "a", "op": "matches", "value": "a = 'b' AND ("}]},
    {"id": "s", "labels": {"note": SQL, "query": MONGO}, "types": []},
    {"labels": {"note": SQL}},
    {"id": "s", "pattern": {"detail-type": ["EC2"], "$or": [{"a": [1]}, {"b": [2]}], "detail": {"n": [{"prefx": "a"}]}}},
    {"id": "s", "pattern": {"note": [SQL], "a": [{"numeric": [">"]}]}},
    {"id": "s", "cel": "data.a == 1 AND data.b == 2"},
    # `streamer import sql` reads no `data.`.
    *({"id": "s", "cel": f"{root}.{each}"} for root in ("data", "before ", "envelope") for each in ("a IS NULL", "a LIKE 'x%'")),
    {"id": "s", "cel": "data.a = 1 AND data.b = 2"},
    {"id": "s", "cel": "note + 'a IS NULL'"},
    {"id": "s", "cel": '"EXISTS subject" + '},
    {"id": "s", "note": SQL, "title": SUPABASE, "text": CESQL},
    {"id": "s", "pattern": {"FilterPolicy": {"a": [{"prefx": 1}]}, "EventPattern": [1]}},
    {"id": "s", "pattern": {"_in": ["x"], "$size": [1], "a": {"b": 5}}},
    {"id": "s", "cel": "data.a = 1"},
    {"id": "s", "cel": "data.exists("},
    {"id": "s", "cel": "data.a in ('a'"},
    {"id": "s", "filters": [{"field": "a", "op": "frobnicate", "value": 1}]},
]


@pytest.mark.parametrize("given", UNNAMED, ids=str)
def test_an_error_about_something_else_has_no_hint(engine: Callable[..., Engine], given: dict[str, Any]) -> None:
    for error in refused(engine, given):
        assert "looks like" not in error.reason
        assert "streamer import" not in error.reason


def test_every_operator_of_a_filter_keeps_its_name() -> None:
    """A name that is accepted never gets to the table of other names."""
    for op in OPERATORS:
        Subscription(id="s", filters=[{"field": "a", "op": op, **({} if op == "changed" else {"value": 1})}])


def test_hints_bound_what_they_read(engine: Callable[..., Engine]) -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": [deep]}
    endless: dict[str, Any] = {"id": "s"}
    endless["where"] = [endless]
    wide = {"id": "s", "filters": {f"a{number}": number for number in range(100_000)}}
    for given in (endless, wide, {"id": "s", "cel": " BETWEEN " * 1500}, {"id": "s", "cel": "a" + " " * 15_000 + "b"}):
        with pytest.raises(SubscriptionError):
            engine().add(given)
    with pytest.raises(SubscriptionError):
        engine().add({"id": "s", "filters": deep})


def test_only_the_first_errors_of_a_large_load_have_hints(engine: Callable[..., Engine]) -> None:
    """Others would need that all subscriptions of a load are kept."""
    bad = {"id": "bad", "cel": "EXISTS subject"}
    given = [bad, *({"id": str(number)} for number in range(1000)), bad | {"id": "worse"}]
    first, last = engine().add_many(iter(given), on_error="skip").errors
    assert "streamer import cesql" in first.reason
    assert first.reason.startswith(last.reason)
