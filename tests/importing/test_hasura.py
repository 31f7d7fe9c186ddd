"""Boolean expressions of Hasura mean the same as subscriptions: 5,000 answers of PostgreSQL agree, on both backends.

The answers are recorded by postgres_cases.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from streamer import Engine, StreamerError
from streamer.importing import import_rules
from tests.importing.answers import answers, matched, refusal, translation
from tests.importing.postgres_cases import cases


def test_the_answers_of_postgresql_agree(engine: Callable[..., Engine]) -> None:
    rows, rules, expected = cases("hasura")
    given = ["".join("1" if each else "0" for each in row) for row in answers(engine, "hasura", rules, rows)]
    assert [rule for rule, row, each in zip(rules, given, expected, strict=True) if row != each] == []
    assert len(rules) * len(rows) >= 5_000
    assert 0.2 < "".join(given).count("1") / (len(rules) * len(rows)) < 0.8


@pytest.mark.parametrize(
    ("rule", "document", "expected"),
    [
        ({}, {}, True),
        ({"a": {"_neq": "x"}}, {"a": None}, False),
        ({"a": {"_neq": "x"}}, {}, False),
        ({"_not": {"a": {"_eq": "x"}}}, {"a": None}, False),
        ({"_not": {"_and": [{"a": {"_eq": "x"}}, {"b": {"_eq": 1}}]}}, {"a": None, "b": 2}, True),
        ({"_not": {"_or": [{"a": {"_eq": "x"}}, {"b": {"_eq": 1}}]}}, {"a": None, "b": 2}, False),
        ({"a": {"_in": []}}, {"a": 1}, False),
        ({"a": {"_nin": []}}, {"a": None}, True),
        ({"_or": []}, {}, False),
        ({"_and": []}, {}, True),
        ({"a": 5}, {"a": 5}, True),
        ({"$and": [{"a": {"$eq": 5}}]}, {"a": 5}, True),
        ({"a": {"_is_null": True}}, {}, True),
        ({"a": {"_is_null": False}}, {"a": 0}, True),
        ({"a": {"_gt": 1, "_lt": 3}}, {"a": 2}, True),
        ({"a": {"_like": "50\\%%"}}, {"a": "50% off"}, True),
        ({"a": {"_nlike": "x%"}}, {"a": None}, False),
        ({"_id": {"_eq": 7}}, {"_id": 7}, True),
    ],
)
def test_documented_cases_agree(engine: Callable[..., Engine], rule: Any, document: Any, expected: bool) -> None:
    assert matched(engine, "hasura", rule, document) == expected


def test_an_expression_becomes_filters() -> None:
    found = translation("hasura", {"status": {"_eq": "paid"}, "amount": {"_gt": 100}, "name": {"_like": "A%"}})
    assert found == {
        "filters": [
            {"field": "status", "op": "==", "value": "paid"},
            {"field": "amount", "op": ">", "value": 100},
            {"field": "name", "op": "starts_with", "value": "A"},
        ]
    }


@pytest.mark.parametrize(
    ("rule", "place", "reason"),
    [
        ({"_or": [{"a": {"_eq": 1}}, {"b": {"_eq": None}}]}, "_or[1].b._eq", "write `_is_null`"),
        ({"a": {"_in": [1, None]}}, "a._in[1]", "write `_is_null`"),
        ({"user": {"name": {"_eq": "x"}}}, "user.name", "relationships"),
        ({"_exists": {"_table": "t"}}, "_exists", "another table"),
        ({"a": {"_eq": "X-Hasura-User-Id"}}, "a._eq", "session variable"),
        ({"a": {"_ceq": "b"}}, "a._ceq", "write this condition in CEL"),
        ({"a": {"_contains": {"b": 1}}}, "a._contains", "write this condition in CEL"),
        ({"a": {"_eq": {"b": 1}}}, "a._eq", "expected a text, a number or a boolean"),
        ({"a": {"_gt": "x"}}, "a._gt", "order of texts"),
        ({"a": {"_gt": "2026-01-31"}}, "a._gt", "several spellings"),
        ({"a": {"_eq": "2026-01-31"}}, "a._eq", "several spellings"),
        ({"a": {"_eq": "{1,2}"}}, "a._eq", "lists, ranges and JSON"),
        ({"a": {"_regex": r"\d"}}, "a._regex, character 1", "depends on the database"),
        ({"a": {"_regex": "a(?=b)"}}, "a._regex, character 2", "lookarounds"),
        ({"a": {"_like": "a\\"}}, "a._like", "after the last"),
        ({"$where": 1}, "$where", "expected a column"),
        ({"a": 2**64}, "a", "64 bits"),
        ("[[]]", "[0]", "expected an object"),
        ('{"a": {"_eq": NaN}}', "a._eq", "finite number"),
    ],
)
def test_an_expression_without_an_exact_translation_is_refused_with_its_place(rule: Any, place: str, reason: str) -> None:
    message = refusal("hasura", rule)
    assert message.startswith(f"{place}: ")
    assert reason in message


@pytest.mark.parametrize(
    "text",
    [
        '{"_not": ' * 10_000 + "{}" + "}" * 10_000,
        '{"_and": [' * 200 + "{}" + "]}" * 200,
        json.dumps({"_or": [{"a": {"_eq": index}} for index in range(30_000)]}),
        '{"a": {"_regex": "' + "(" * 500_000 + '"}}',
        r'{"a": {"_eq": "\ud800"}}',
    ],
    ids=["not", "and", "many", "groups", "surrogate"],
)
def test_a_hostile_expression_is_an_error(text: str) -> None:
    with pytest.raises(StreamerError):
        import_rules("hasura", text)


TABLE = """
table:
  schema: shop
  name: orders
object_relationships:
- name: customer
  using:
    foreign_key_constraint_on: customer_id
select_permissions:
- role: clerk
  permission:
    columns: [id, status]
    filter:
      _and:
      - status: {_in: [open, paid]}
      - deleted_at: {_is_null: true}
- role: auditor
  permission:
    columns: '*'
    filter: {}
    limit: 50
update_permissions:
- role: clerk
  permission: {columns: [status], filter: {status: {_eq: open}}, check: null}
"""


def _as_metadata(table: Any) -> list[str]:
    """Return a table in each form that Hasura has for it."""
    other = {"table": {"schema": "public", "name": "users"}}
    version_3 = {"version": 3, "sources": [{"name": "default", "kind": "postgres", "tables": [other, table]}]}
    values: list[Any] = [
        table,
        [table, other],
        {"version": 2, "tables": [other, table]},
        version_3,
        {"resource_version": 42, "metadata": version_3},
    ]
    return [TABLE, *(text(value) for value in values for text in (json.dumps, yaml.safe_dump))]


@pytest.mark.parametrize("text", _as_metadata(yaml.safe_load(TABLE)))
def test_select_permissions_of_metadata_become_subscriptions(engine: Callable[..., Engine], text: str) -> None:
    imported = import_rules("hasura", text).subscriptions
    assert [(each.id, each.collection, each.labels) for each in imported] == [
        ("shop.orders:clerk", "shop.orders", {"role": "clerk"}),
        ("shop.orders:auditor", "shop.orders", {"role": "auditor"}),
    ]
    e = engine()
    e.add_many(imported)
    paid = {"collection": "shop.orders", "data": {"status": "paid", "deleted_at": None}}
    assert sorted(e.match_ids(paid)) == ["shop.orders:auditor", "shop.orders:clerk"]
    assert e.match_ids({**paid, "data": {"status": "lost"}}) == ["shop.orders:auditor"]
    assert e.match_ids({**paid, "collection": "public.users"}) == []


def test_sources_of_one_metadata_have_ids_of_their_own() -> None:
    table = yaml.safe_load(TABLE)
    sources = [{"name": name, "tables": [table]} for name in ("default", "archive")]
    imported = import_rules("hasura", json.dumps({"version": 3, "sources": sources})).subscriptions
    assert [each.id for each in imported] == [
        f"{source}.shop.orders:{role}" for source in ("default", "archive") for role in ("clerk", "auditor")
    ]


def test_an_expression_may_be_in_yaml(engine: Callable[..., Engine]) -> None:
    (imported,) = import_rules("hasura", "status: {_eq: paid}\namount: {_gt: 100}\n").subscriptions
    e = engine()
    e.add(imported)
    assert e.match_count({"data": {"status": "paid", "amount": 101}}) == 1


def _permission(condition: Any) -> dict[str, Any]:
    return {"table": {"schema": "a", "name": "b"}, "select_permissions": [{"role": "r", "permission": {"filter": condition}}]}


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (
            _permission({"owner": {"_eq": "X-Hasura-User-Id"}}),
            "a.b: select_permissions[0]: permission.filter.owner._eq: a session variable has no value in an event",
        ),
        (
            _permission({"team": {"_or": [{"id": {"_eq": 1}}]}}),
            "a.b: select_permissions[0]: permission.filter.team._or: relationships",
        ),
        (_permission([]), "a.b: select_permissions[0]: permission.filter: expected an object"),
        ({**_permission({}), "select_permissions": ["r"]}, "a.b: select_permissions[0]: expected an object with a `role`"),
        (
            {"version": 3, "sources": [{"name": "s", "kind": "mssql", "tables": []}]},
            "sources[0]: kind: its database is 'mssql'",
        ),
        ({"version": 3, "sources": [5]}, "sources[0]: expected an object with `tables`"),
        (["!include public_users.yaml"], "tables[0]: expected a table; if it is in another file"),
        ({"version": 3, "sources": [{"tables": "!include t.yaml"}]}, "tables[0]: expected a table; if it is in another file"),
    ],
)
def test_a_permission_without_a_translation_has_its_place(document: Any, error: str) -> None:
    for text in (json.dumps(document), yaml.safe_dump(document)):
        with pytest.raises(StreamerError) as raised:
            import_rules("hasura", text)
        assert error in str(raised.value)


def test_words_that_readers_of_yaml_read_differently_are_refused() -> None:
    with pytest.raises(StreamerError, match=r"permission\.filter\.a\._eq: readers of YAML differ about 'yes'"):
        import_rules("hasura", "table: {name: t}\nselect_permissions: [{role: r, permission: {filter: {a: {_eq: yes}}}}]")


def test_metadata_without_select_permissions_has_no_rule() -> None:
    with pytest.raises(StreamerError, match="no rule found; expected boolean expressions of Hasura, or its metadata"):
        import_rules("hasura", "table: {name: t, schema: public}")
