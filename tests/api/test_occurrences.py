"""`lint` of real events finds what subscriptions ask for and none of the events has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamer import Engine
from streamer.core.lint import FindingCode
from streamer.engine import hints, occurrences, value_kinds
from streamer.engine.occurrences import Occurrences
from streamer.errors import EventCode, EventError

MakeEngine = Callable[..., Engine]

ORDER = {
    "collection": "orders",
    "type": "insert",
    "topic": "orders.new",
    "data": {"amount": 3, "user": {"country": "DE", "user-name": "ada"}, "items": [{"sku": "a", "tags": ["x"]}, [{"price": 2}]]},
}
USER = {"collection": "users", "type": "update", "data": {"name": "ada"}, "before": {"name": "eda", "old": 1}}
EVENTS: list[Any] = [ORDER, USER]


def missing(engine: MakeEngine, events: list[Any] = EVENTS, **parts: Any) -> list[str]:
    e = engine()
    e.add({"id": "s", **parts})
    return [finding.reason for finding in e.lint(events) if finding.code is FindingCode.NOT_IN_EVENTS]


def field(name: str, value: int | str = 1) -> list[dict[str, Any]]:
    return [{"field": name, "op": "==", "value": value}]


def in_envelope(name: str, value: int | str) -> list[dict[str, Any]]:
    return [{"field": name, "root": "envelope", "op": "==", "value": value}]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"filters": field("amount")}, []),
        ({"filters": field("amuont")}, ["filters[0].field: data.amuont is in none of 2 events; data.amount is"]),
        ({"filters": field("country")}, ["filters[0].field: data.country is in none of 2 events; data.user.country is"]),
        ({"filters": field("/user/user-name", "x")}, []),
        ({"filters": field("zzzz")}, ["filters[0].field: data.zzzz is in none of 2 events"]),
        # The envelope has fields of its own.
        ({"filters": in_envelope("topic", "x"), "cel": "envelope.type == 'x'"}, []),
        ({"filters": in_envelope("amount", 3)}, ["filters[0].field: envelope.amount is in none of 2 events"]),
        (
            {"filters": [*field("topik"), *in_envelope("topik", "x")]},
            [
                "filters[0].field: data.topik is in none of 2 events",
                "filters[1].field: envelope.topik is in none of 2 events; envelope.topic is",
            ],
        ),
        (
            {"filters": in_envelope("topic", 5), "cel": "envelope.tipe == 'x' && envelope.topic > 5"},
            [
                "cel: envelope.tipe is in none of 2 events; envelope.type is",
                'filters[0]: this condition needs a number, and envelope.topic is text in the events, such as "orders.new"',
                'cel: this condition needs a number, and envelope.topic is text in the events, such as "orders.new"',
            ],
        ),
        # A path of a filter or of CEL names members only.
        (
            {"filters": field("items.sku")},
            [
                "filters[0].field: data.items.sku is in none of 2 events: "
                "data.items is a list; a pattern or CEL's exists() looks into it"
            ],
        ),
        ({"cel": "data.items.exists(item, item.zzzz == 1) && data.items[0].zzzz == 1"}, []),
        # `before` and `data` have the same fields.
        ({"cel": "before.amount > 1 && data.old == 1"}, []),
        (
            {"cel": "before.nane == 'x' || has(data.user.contry)"},
            [
                "cel: before.nane is in none of 2 events; before.name is",
                "cel: data.user.contry is in none of 2 events; data.user.country is",
            ],
        ),
        ({"cel": "'data.zzzz' == data['name'] // data.zzzz"}, []),
        ({"cel": "data.items.exists(data, data.zzzz == 1)"}, []),
        # A pattern looks through arrays, and begins at the event.
        ({"pattern": {"data": {"items": {"sku": ["a"], "price": [2], "tags": ["x"]}}, "topic": ["t"]}}, []),
        (
            {"pattern": {"data": {"items": {"skuu": ["a"]}}}},
            ["pattern: data.items.skuu is in none of 2 events; data.items.sku is"],
        ),
        ({"pattern": '{"data": {"zzzz": [1]}}'}, ["pattern: data.zzzz is in none of 2 events"]),
        (
            {"pattern": {"$or": [{"data": {"amount": [1]}}, {"data": {"zzzz": [1]}}]}},
            ["pattern: data.zzzz is in none of 2 events"],
        ),
        ({"pattern": {"before": {"amount": [1]}, "data": {"old": [1]}}}, []),
        # Of its own collection.
        ({"collection": "orders", "filters": field("name")}, ["filters[0].field: data.name is in none of 1 event of 'orders'"]),
        ({"collection": "order"}, ["collection: 'order' is in none of 2 events; 'orders' is"]),
        ({"collection": "order", "filters": field("zzzz")}, ["collection: 'order' is in none of 2 events; 'orders' is"]),
        ({"collection": "zzzz"}, ["collection: 'zzzz' is in none of 2 events"]),
        ({"collection": "*", "filters": field("name", "x")}, []),
        ({"types": ["insert", "delete"]}, ["types[1]: 'delete' is the type of none of 2 events"]),
        ({"types": ["update"], "collection": "orders"}, ["types[0]: 'update' is the type of none of 1 event of 'orders'"]),
    ],
)
def test_what_no_event_has_is_found_with_what_is_there(engine: MakeEngine, parts: dict[str, Any], expected: list[str]) -> None:
    assert missing(engine, **parts) == expected


def test_the_count_of_events_is_told(engine: MakeEngine) -> None:
    (said,) = missing(engine, [ORDER] * 1_000, filters=field("amuont"))
    assert said == "filters[0].field: data.amuont is in none of 1,000 events; data.amount is"


def test_without_events_nothing_is_missing(engine: MakeEngine) -> None:
    assert missing(engine, [], filters=field("zzzz"), collection="zzzz", types=["delete"]) == []
    assert missing(engine, [None, b"", b"{"], filters=field("zzzz"), collection="zzzz", types=["delete"]) == []


def test_a_value_that_the_source_did_not_carry_is_a_field(engine: MakeEngine) -> None:
    event = {"data": {"a": 1}, "topic": "x", "unknown": ["/data/text", "/data/user/name", "/more", "/topic"]}
    asked = [*field("text"), *field("text.below"), *field("user"), *field("user.name"), *field("user.zzzz")]
    asked += [*in_envelope("more", 1), *in_envelope("topic", 1)]
    assert missing(engine, [event], filters=asked) == ["filters[4].field: data.user.zzzz is in none of 1 event"]
    # Of a document that was not carried at all no field is known.
    event = {"type": "update", "unknown": ["/data"]}
    assert missing(engine, [event], filters=field("zzzz")) == ["filters[0].field: data.zzzz is in none of 1 event"]


def test_a_delete_has_the_fields_of_its_last_document(engine: MakeEngine) -> None:
    event = {"type": "delete", "before": {"a": 1}}
    assert missing(engine, [event], filters=field("a"), pattern={"data": {"a": [1]}}) == []


def test_the_layout_says_where_documents_stand(engine: MakeEngine) -> None:
    e = engine(format="debezium")
    e.add({"id": "s", "collection": "orders", "filters": [*field("amount"), *field("amuont")]})
    e.add({"id": "t", "pattern": {"payload": {"after": {"amuont": [1]}}}})
    record = {"payload": {"op": "c", "after": {"amount": 7}, "source": {"table": "orders"}}}
    assert [str(finding) for finding in e.lint([record])] == [
        "s: not_in_events: filters[1].field: data.amuont is in none of 1 event of 'orders'; data.amount is",
        "t: not_in_events: pattern: payload.after.amuont is in none of 1 event; payload.after.amount is",
    ]


def test_bad_events_are_left_out_and_so_many_are_looked_at(engine: MakeEngine) -> None:
    def source() -> Iterator[Any]:
        yield from (b"{", '{"data": []}', ORDER)
        raise AssertionError("one too many")

    e = engine()
    e.add({"id": "s", "filters": field("amuont")})
    (finding,) = e.lint(source(), max_events=3)
    assert finding.reason.endswith("data.amuont is in none of 1 event; data.amount is")
    with pytest.raises(ValueError, match="max_events"):
        e.lint([], max_events=0)
    with pytest.raises(TypeError, match="several"):
        e.lint(ORDER)


def test_tenant_and_collection_win_over_the_events(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "collection": "a"})
    assert e.lint([ORDER], collection="a") == []
    (finding,) = e.lint([ORDER], collection="b")
    assert finding.reason == "collection: 'a' is in none of 1 event"


def test_findings_of_all_kinds_come_in_order_of_adding(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "b", "filters": field("data.amount")})
    e.add({"id": "a", "filters": [{"field": "zzzz", "op": "in", "value": []}]})
    e.add({"id": "c", "collection": "order"})
    assert [(finding.subscription_id, finding.code.value) for finding in e.lint(EVENTS)] == [
        ("b", "probable_mistake"),
        ("b", "not_in_events"),
        ("a", "never_matches"),
        ("a", "not_in_events"),
        ("c", "not_in_events"),
    ]


def test_what_comes_and_goes_meanwhile_is_told_of_as_it_is_then(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "gone", "filters": field("zzzz")})
    seen = Occurrences(e)
    seen.see(ORDER)
    e.remove("gone")
    e.add({"id": "new", "collection": "new", "filters": field("zzzz")})
    assert list(seen.findings()) == []


# Hostile events


def test_an_event_too_deep_or_too_long_is_refused_and_the_others_count(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": field("a.a"), "pattern": {"data": {"zzzz": [1]}}})
    seen = Occurrences(e)
    for text, code in (
        (b'{"data":' + b'{"a":' * 1000 + b"1" + b"}" * 1001, EventCode.TOO_DEEP),
        (b'{"data":{"a":"' + b"x" * 17_000_000 + b'"}}', EventCode.TOO_LONG),
        (b'{"data":{"a":"\xff"}}', EventCode.BAD_UTF8),
    ):
        with pytest.raises(EventError) as raised:
            seen.see(text)
        assert raised.value.code is code
    assert (seen.events, list(seen.findings())) == (0, [])
    seen.see(b'{"data":' + b'{"a":' * 500 + b"1" + b"}" * 501)
    assert [finding.reason for finding in seen.findings()] == ["pattern: data.zzzz is in none of 1 event"]


@pytest.mark.later_on_the_reference
def test_a_hundred_thousand_names_are_seen_and_few_are_kept(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": [*field("name99999"), *field("zzzz")], "pattern": {"data": {"name99998": [1]}}})
    text = json.dumps({"data": {f"name{n}": {"x" * 50: n} for n in range(100_000)}}).encode()
    seen = Occurrences(e)
    seen.see(text)
    assert occurrences.MAX_NAMES - seen._name_budget <= 2 * hints.MAX_FIELDS
    assert [finding.reason.split(":")[0] for finding in seen.findings()] == ["filters[1].field"]


def test_names_are_kept_up_to_a_number_over_all_collections(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "MAX_NAMES", 500)
    e = engine()
    e.add_many({"id": f"s{n}", "collection": f"c{n}", "filters": field("zzzz")} for n in range(20))
    seen = Occurrences(e)
    for n in range(200):
        seen.see({"collection": f"c{n}", "data": {f"{n} {m}": [{"a": 1}] * 3 for m in range(40)}})
    assert seen._name_budget == 0
    kept = sum(len(asked.documents.names) for asked in seen._uses.values()) + len(seen._collections)
    assert kept <= 500
    # What occurs is told exactly all the same.
    assert len(list(seen.findings())) == 20


def test_suggestions_are_looked_for_so_many_times(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "MAX_SUGGESTIONS", 5)
    found = missing(engine, filters=[each for n in range(10) for each in field(f"amount{n}")])
    assert [reason.endswith("; data.amount is") for reason in found] == [True] * 5 + [False] * 5


def test_long_names_are_cut(engine: MakeEngine) -> None:
    (said,) = missing(engine, collection="c" * 5_000)
    assert len(said) < 200
    (said,) = missing(engine, filters=field("f" * 4_000))
    assert len(said) < 300


#: A record of Debezium on PostgreSQL with the settings that it has by default.
RECORD: dict[str, Any] = {
    "op": "u",
    "before": None,
    "after": {
        "id": 1,
        "tax": "BAg=",
        "price": "250.10",
        "day": 20484,
        "at": "2026-01-31T10:00:00Z",
        "ms": 1795342530123,
        "j": '{"k": "v"}',
        "word": "paid",
        "zips": ["10115", "10117"],
        "user": {"age": "41"},
        "large": "__debezium_unavailable_value",
    },
    "source": {"connector": "postgresql", "table": "t"},
}
DECIMAL = 'data.tax is text in the events, such as "BAg=": it may be a decimal in base64'
PRICE = 'is text in the events, such as "250.10": double(data.price) in CEL reads it'
DEBEZIUM = "; Debezium writes numbers with decimal.handling.mode=double"
DAYS = "is a number in the events, such as 20484: it may be days since 1970, of which 2026-01-31 is 20484"
NUMBER_NEEDED = "this condition needs a number, and "
TEXT_NEEDED = "this condition needs text, and "


def comparison(name: str, op: str, value: Any) -> dict[str, Any]:
    return {"filters": [{"field": name, "op": op, "value": value}]}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (comparison("tax", ">", 0.1), [f"filters[0]: {NUMBER_NEEDED}{DECIMAL}{DEBEZIUM}"]),
        (comparison("tax", "in", [1, 2]), [f"filters[0]: {NUMBER_NEEDED}{DECIMAL}{DEBEZIUM}"]),
        ({"cel": "data.tax > 0.1 && data.id == 1"}, [f"cel: {NUMBER_NEEDED}{DECIMAL}{DEBEZIUM}"]),
        (
            comparison("price", ">=", 100),
            [f"filters[0]: {NUMBER_NEEDED}data.price {PRICE}"],
        ),
        (
            comparison("user.age", "==", 41),
            [
                f'filters[0]: {NUMBER_NEEDED}data.user.age is text in the events, such as "41": '
                "double(data.user.age) in CEL reads it"
            ],
        ),
        (
            comparison("day", "==", "2026-01-31"),
            [f"filters[0]: {TEXT_NEEDED}data.day {DAYS}"],
        ),
        (
            {"cel": "data.ms > '2026-01-31'"},
            [
                f"cel: {TEXT_NEEDED}data.ms is a number in the events, such as 1795342530123: "
                "it may be milliseconds since 1970, of which 2026-01-31 is 1769817600000"
            ],
        ),
        (
            comparison("at", ">", 5),
            [
                f'filters[0]: {NUMBER_NEEDED}data.at is text in the events, such as "2026-01-31T10:00:00Z": '
                "timestamp(data.at) in CEL reads it"
            ],
        ),
        (
            comparison("id", "==", "1"),
            [f"filters[0]: {TEXT_NEEDED}data.id is a number in the events, such as 1: compare it with 1, without quotes"],
        ),
        (comparison("id", "starts_with", "a"), [f"filters[0]: {TEXT_NEEDED}data.id is a number in the events, such as 1"]),
        (comparison("word", "==", 5), [f'filters[0]: {NUMBER_NEEDED}data.word is text in the events, such as "paid"']),
        (
            comparison("j.k", "==", "v"),
            [
                "filters[0].field: data.j.k is in none of 1 event: data.j is text, with JSON in it; "
                "it is read as JSON if the record has its schema"
            ],
        ),
        (
            {"pattern": {"after": {"price": [{"numeric": [">", 5]}], "zips": [10115], "day": [{"prefix": "2026"}]}}},
            [
                f"pattern: {NUMBER_NEEDED}after.price {PRICE}",
                f'pattern: {NUMBER_NEEDED}after.zips is text in the events, such as "10117"',
                f"pattern: {TEXT_NEEDED}after.day is a number in the events, such as 20484",
            ],
        ),
        # Conditions that work, or need no certain kind.
        (comparison("price", "==", "250.10"), []),
        (comparison("price", "!=", 5), []),
        (comparison("price", "in", [5, "250.10"]), []),
        (comparison("day", ">", 20_000), []),
        (comparison("tags", "contains", 5), ["filters[0].field: data.tags is in none of 1 event"]),
        ({"cel": "double(data.price) > 100.0 && timestamp(data.at) > timestamp('2026-01-01T00:00:00Z')"}, []),
        ({"cel": "data.price == 5 || data.price == '5'"}, []),
        ({"pattern": {"after": {"price": [5, "5"], "day": [{"anything-but": "x"}], "zips": [{"exists": True}]}}}, []),
        # The placeholder is no text of the column.
        (comparison("large", ">", 5), []),
    ],
)
def test_a_condition_on_a_value_of_another_kind_is_found(engine: MakeEngine, parts: dict[str, Any], expected: list[str]) -> None:
    e = engine(format="debezium")
    e.add({"id": "s", **parts})
    assert [finding.reason for finding in e.lint([RECORD]) if finding.code is FindingCode.NOT_IN_EVENTS] == expected


def test_settings_of_debezium_are_named_for_its_records_only(engine: MakeEngine) -> None:
    e = engine(format="document")
    e.add({"id": "s", **comparison("tax", ">", 1)})
    (finding,) = [finding for finding in e.lint([RECORD["after"]]) if finding.code is FindingCode.NOT_IN_EVENTS]
    assert finding.reason == f"filters[0]: {NUMBER_NEEDED}{DECIMAL}"


def test_a_field_that_is_of_both_kinds_is_of_the_kind_that_a_condition_needs(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", **comparison("n", ">", 1)})
    texts = [{"data": {"n": "1"}}] * 2_000
    assert [finding.code for finding in e.lint(texts)] == [FindingCode.NOT_IN_EVENTS]
    assert e.lint([*texts, {"data": {"n": 1}}]) == []
    assert e.lint([{"data": {"n": None}}, {"data": {"n": True}}, {"data": {"n": [1]}}]) == []


def test_only_so_much_of_expressions_is_compiled(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occurrences, "MAX_SOURCE", len("data.n > 0") * 2)
    e = engine()
    e.add_many({"id": f"s{number}", "cel": f"data.n > {number}"} for number in range(4))
    assert [finding.subscription_id for finding in e.lint([{"data": {"n": "1"}}])] == ["s0", "s1"]


def test_a_long_text_is_examined_once(engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    examined: list[str] = []

    def is_object(text: str) -> bool:
        examined.append(text)
        return True

    monkeypatch.setattr(value_kinds, "_is_object", is_object)
    e = engine()
    e.add_many({"id": f"s{number}", **comparison(f"j.k{number}", "==", 1)} for number in range(20))
    assert len(e.lint([{"data": {"j": "{" + " " * 100_000 + "}"}}])) == 20
    assert len(examined) == 1


@pytest.mark.parametrize(
    ("parts", "event"),
    [
        ({"cel": "type(data.x) == string ? double(data.x) > 100.0 : data.x > 100"}, {"data": {"x": "500"}}),
        ({"cel": "data.x != 5 ? true : data.z == 1"}, {"data": {"x": "500", "z": 2}}),
        ({"cel": "data.kind == 'num' ? data.v > 100 : data.v == 'high'"}, {"data": {"kind": "text", "v": "high"}}),
        ({"cel": "has(before.x) && before.x > 5 || data.x == 'q'"}, {"type": "delete", "before": {"x": "q"}}),
        ({"cel": "data.x.matches('q') ? data.x == 'q' : data.x == 5"}, {"data": {"x": "q"}}),
        ({"cel": "(data.x != 1) || (double(data.y) > 3.0 && data.x == 'YbI=')"}, {"data": {"x": 5, "y": {"k": 1}}}),
        ({"cel": "!(data.y.startsWith('a')) || double(data.x) > 3.0"}, {"data": {"x": "5", "y": 5.5}}),
        ({"pattern": {"$or": [{"data": {"x": [5]}}, {"data": {"x": ["a"]}}]}}, {"data": {"x": "a"}}),
        ({"pattern": {"data": {"$or": [{"x": [5]}, {"y": ["b"]}]}}}, {"data": {"x": "a", "y": "b"}}),
        ({"pattern": {"data": {"x": [5]}}}, {"data": {"x": ["a"] * 200 + [5]}}),
        ({"pattern": {"data": {"x": {"p": [5]}}}}, {"data": {"x": [{"p": "a"}] * 200 + [{"p": 5}]}}),
        (comparison("x", "==", 5), {"type": "update", "data": {"x": "?"}, "unknown": ["/data"]}),
    ],
)
def test_what_matches_is_not_called_a_condition_on_another_kind(
    engine: MakeEngine, parts: dict[str, Any], event: dict[str, Any]
) -> None:
    e = engine()
    e.add({"id": "s", **parts})
    assert e.matches_any(event)
    assert [finding for finding in e.lint([event]) if finding.code is FindingCode.NOT_IN_EVENTS] == []
