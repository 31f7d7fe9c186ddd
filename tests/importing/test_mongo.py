"""Query filters of MongoDB mean the same as subscriptions.

Three authorities: the manual's documented cases, the server's algorithm in plain Python (mongo_oracle.py, 5,000 random pairs of a
query and a document), and mongomock, with which the algorithm agrees except in what `mongomock_differs` names.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import mongomock.filtering
import pytest

from streamer import Engine, StreamerError
from streamer.importing import import_rules
from tests.importing.answers import answers, matched, refusal, translation
from tests.importing.mongo_oracle import matches

SCALARS: list[Any] = [0, 1, 2, 1.0, 2.5, -1, "", "a", "b", "1", True, False, None]
ORDERS = ["$gt", "$gte", "$lt", "$lte"]

#: Cases that MongoDB's manual describes, by its pages.
DOCUMENTED: list[tuple[Any, Any, bool]] = [
    # Query for null or missing fields
    ({"item": None}, {"item": None}, True),
    ({"item": None}, {}, True),
    ({"item": None}, {"item": "a"}, False),
    ({"item": {"$ne": None}}, {}, False),
    ({"item": {"$type": 10}}, {}, False),
    ({"item": {"$type": 10}}, {"item": None}, True),
    ({"item": {"$exists": False}}, {"item": None}, False),
    ({"item": {"$exists": False}}, {}, True),
    # Query an array
    ({"tags": ["red", "blank"]}, {"tags": ["red", "blank"]}, True),
    ({"tags": ["red", "blank"]}, {"tags": ["blank", "red"]}, False),
    ({"tags": ["red", "blank"]}, {"tags": [["red", "blank"]]}, True),
    ({"tags": {"$all": ["red", "blank"]}}, {"tags": ["blank", "plain", "red"]}, True),
    ({"tags": "red"}, {"tags": ["blank", "red"]}, True),
    ({"tags": "red"}, {"tags": "red"}, True),
    ({"tags": "red"}, {"tags": [["red"]]}, False),
    ({"dim": {"$gt": 25}}, {"dim": [14, 26]}, True),
    ({"dim": {"$gt": 15, "$lt": 20}}, {"dim": [10, 30]}, True),
    ({"dim": {"$elemMatch": {"$gt": 15, "$lt": 20}}}, {"dim": [10, 30]}, False),
    ({"dim": {"$elemMatch": {"$gt": 15, "$lt": 20}}}, {"dim": [10, 16]}, True),
    ({"tags": {"$size": 3}}, {"tags": ["a", "b", "c"]}, True),
    ({"tags": {"$size": 1}}, {"tags": "a"}, False),
    # Query an array of embedded documents
    ({"instock.qty": {"$lte": 20}}, {"instock": [{"qty": 60}, {"qty": 15}]}, True),
    ({"instock": {"$elemMatch": {"qty": 5, "warehouse": "A"}}}, {"instock": [{"qty": 5, "warehouse": "A"}]}, True),
    ({"instock": {"$elemMatch": {"qty": 5, "warehouse": "A"}}}, {"instock": [{"qty": 5}, {"warehouse": "A"}]}, False),
    ({"instock.qty": 5, "instock.warehouse": "A"}, {"instock": [{"qty": 5}, {"warehouse": "A"}]}, True),
    # Query on embedded documents
    ({"size.uom": "in"}, {"size": {"uom": "in"}}, True),
    ({"size": {"uom": "in"}}, {"size": {"uom": "in", "h": 1}}, False),
    # $ne, $nin, $not: also documents that do not contain the field
    ({"qty": {"$ne": 20}}, {}, True),
    ({"qty": {"$nin": [5, 15]}}, {}, True),
    ({"qty": {"$nin": [5, 15]}}, {"qty": [1, 5]}, False),
    ({"price": {"$not": {"$gt": 1.99}}}, {}, True),
    ({"price": {"$not": {"$gt": 1.99}}}, {"price": "9"}, True),
    ({"$nor": [{"price": 1.99}, {"sale": True}]}, {}, True),
    ({"$nor": [{"price": 1.99}, {"sale": True}]}, {"price": 1.99}, False),
    # Comparison/sort order: only values of one type are compared, and numbers by their value
    ({"a": {"$lt": 5}}, {"a": "3"}, False),
    ({"a": {"$lt": 5}}, {"a": None}, False),
    ({"a": {"$lte": "b"}}, {"a": "B"}, True),
    ({"a": 5}, {"a": 5.0}, True),
    ({"a": 1}, {"a": True}, False),
    ({"a": 0}, {"a": -0.0}, True),
    ({"a": {"$gte": None}}, {}, True),
    ({"a": {"$gt": None}}, {"a": None}, False),
    # $all: equal to an $and; an empty list matches no document
    ({"tags": {"$all": [["ssl", "security"]]}}, {"tags": ["ssl", "security"]}, True),
    ({"tags": {"$all": [["ssl", "security"]]}}, {"tags": [["ssl", "security"], 1]}, True),
    ({"tags": {"$all": []}}, {"tags": []}, False),
    ({"q": {"$all": [{"$elemMatch": {"s": 1}}, {"$elemMatch": {"s": 2}}]}}, {"q": [{"s": 1}, {"s": 2}]}, True),
    ({"q": {"$all": [{"$elemMatch": {"s": 1}}, {"$elemMatch": {"s": 2}}]}}, {"q": [{"s": 1}]}, False),
    # $type: array is the field itself
    ({"a": {"$type": "array"}}, {"a": []}, True),
    ({"a": {"$type": "array"}}, {"a": 1}, False),
    ({"a": {"$type": "string"}}, {"a": [1, "b"]}, True),
    # $regex: `$` also matches before a last line feed, `.` does not match one without the option s
    ({"a": {"$regex": "789$"}}, {"a": "abc789"}, True),
    ({"a": {"$regex": "789$"}}, {"a": "abc789\n"}, True),
    ({"a": {"$regex": "^ABC", "$options": "i"}}, {"a": "abc789"}, True),
    ({"a": {"$regex": "m.*line"}}, {"a": "m\nline"}, False),
    ({"a": {"$regex": "m.*line", "$options": "s"}}, {"a": "m\nline"}, True),
    ({"a": {"$regex": "^b"}}, {"a": ["a", "bc"]}, True),
    ({"a": {"$regex": r"^\s\d$"}}, {"a": "\v1"}, True),
    ({"a": {"$not": {"$regex": "^p"}}}, {}, True),
    ({"a": {"$not": {"$regularExpression": {"pattern": "^p", "options": ""}}}}, {"a": "pq"}, False),
    ({"a": {"$in": ["x", {"$regularExpression": {"pattern": "^p", "options": "i"}}]}}, {"a": "Pq"}, True),
    ({"$comment": "anything", "a": 1}, {"a": 1}, True),
    ({}, {"a": 1}, True),
]


def test_documented_cases_agree(engine: Callable[..., Engine]) -> None:
    wrong = [(q, d) for q, d, expected in DOCUMENTED if matched(engine, "mongo", q, d) != expected]
    assert wrong == []


class Random:
    """Queries and documents over few names and values, so that many match."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        kind = self.choose.random()
        if kind < 0.55 or depth > 2:
            return self.choose.choice(SCALARS)
        if kind < 0.8:
            return [self.value(depth + 1) for _ in range(self.choose.randrange(4))]
        return {name: self.value(depth + 1) for name in self.choose.sample("abc", self.choose.randrange(3))}

    def document(self) -> Any:
        return {name: self.value() for name in self.choose.sample("abc", self.choose.randrange(4))}

    def operand(self) -> Any:
        kind = self.choose.random()
        if kind < 0.75:
            return self.choose.choice(SCALARS)
        if kind < 0.9:
            return [self.choose.choice(SCALARS) for _ in range(self.choose.randrange(3))]
        return {self.choose.choice("abc"): self.choose.choice(SCALARS)} if kind < 0.98 else {}

    def operators(self, depth: int) -> Any:
        given = {}
        for _ in range(self.choose.choice([1, 1, 1, 2])):
            op = self.choose.choice([*ORDERS, "$eq", "$ne", "$in", "$nin", "$exists", "$type", "$size", "$all", "$regex"])
            given[op] = self.operand_of(op)
        if depth < 2 and self.choose.random() < 0.25:
            nested = self.operators(depth + 1)
            given["$elemMatch"] = nested if self.choose.random() < 0.5 else self.query(depth + 2)
        if depth < 2 and self.choose.random() < 0.2:
            return {"$not": given}
        return given

    def operand_of(self, op: str) -> Any:
        match op:
            case "$eq" | "$ne":
                return self.operand()
            case "$in" | "$nin" | "$all":
                return [self.operand() for _ in range(self.choose.randrange(4))]
            case "$exists":
                return self.choose.random() < 0.5
            case "$type":
                return self.choose.choice(["string", "object", "array", "bool", "null", "number", ["string", "null"]])
            case "$size":
                return self.choose.randrange(3)
            case "$regex":
                return self.choose.choice(["^a", "b", "", "[ab]", "^.+"])
        return self.choose.choice(SCALARS)

    def query(self, depth: int = 0) -> Any:
        query: dict[str, Any] = {}
        for _ in range(self.choose.choice([1, 1, 2])):
            kind = self.choose.random()
            path = ".".join(self.choose.choice("abc") for _ in range(self.choose.choice([1, 1, 1, 2, 2, 3])))
            if kind < 0.15 and depth < 2:
                query[self.choose.choice(["$and", "$or", "$nor"])] = [self.query(depth + 1) for _ in range(2)]
            else:
                query[path] = self.operand() if kind < 0.4 else self.operators(depth)
        return query


def test_random_queries_agree_with_the_algorithm_of_the_server(engine: Callable[..., Engine]) -> None:
    of = Random(1)
    # Longer ones take long to parse, and the longest do not fit into CEL's 16 KiB.
    queries = [query for query in (of.query() for _ in range(140)) if len(json.dumps(query)) < 80]
    documents = [of.document() for _ in range(60)]
    found = answers(engine, "mongo", queries, documents)
    pairs = [(q, d, got) for q, row in zip(queries, found, strict=True) for d, got in zip(documents, row, strict=True)]
    assert [(q, d) for q, d, got in pairs if got != matches(q, d)] == []
    assert len(pairs) > 5_000
    assert 0.1 < sum(got for *_, got in pairs) / len(pairs) < 0.9


def mongomock_differs(query: Any, document: Any) -> bool:
    """Return whether mongomock 4.3 is known to differ from the server.

    - `{"a": {}}` and `$all: []` match a missing field, and `true` equals 1.
    - `$gte` and `$lte` with null do not match null or a missing field.
    - A path through a scalar, or through a list in a list, is no missing value.
    - `$size` of a scalar is 1, and of an object the number of its members.
    - An element of `$elemMatch` may be a scalar, which lacks all fields.
    """
    text = json.dumps(query)
    return (
        any(word in text for word in ("true", "false", "null", "{}", '"$all": []', "$size", "$elemMatch"))
        or any(word in json.dumps(document) for word in ("true", "false"))
        or any("." in name for name in text.split('"'))
    )


def test_the_algorithm_of_the_server_agrees_with_mongomock() -> None:
    of, compared, wrong = Random(2), 0, []
    for _ in range(9_000):
        query, document = of.query(), of.document()
        if not mongomock_differs(query, document):
            compared += 1
            answer = mongomock.filtering.filter_applies(query, document)  # type: ignore[no-untyped-call]
            if answer != matches(query, document):
                wrong.append((query, document))
    assert wrong == []
    assert compared > 800


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"a": {"$exists": True}}, {"filters": [{"field": "a", "op": "exists", "value": True}]}),
        ({"a": {"$nin": []}, "b": {"$exists": True}}, {"filters": [{"field": "b", "op": "exists", "value": True}]}),
        ({"a": 5}, {"cel": "data.a == 5 || type(data.a) == list && 5 in data.a"}),
        ({"a-b": {"$size": 2}}, {"cel": "type(data.`a-b`) == list && size(data.`a-b`) == 2"}),
        ({"a": {"$elemMatch": {"$gt": 1, "$lt": 9}}}, {"cel": "type(data.a) == list && data.a.exists(e, e > 1 && e < 9)"}),
    ],
)
def test_a_query_becomes_the_shortest_condition(query: Any, expected: Any) -> None:
    assert translation("mongo", query) == expected


@pytest.mark.parametrize(
    ("query", "document", "expected"),
    [
        ({"a": {"$oid": "65a1b2c3d4e5f60718293a4b"}}, {"a": "65a1b2c3d4e5f60718293a4b"}, True),
        ({"a": {"$numberLong": "9007199254740993"}}, {"a": 9007199254740993}, True),
        ({"a": {"$numberLong": "9007199254740993"}}, {"a": 9007199254740992}, False),
        ({"a": {"$gt": {"$numberInt": "5"}}}, {"a": 6}, True),
        ({"a": {"$numberDouble": "1.5"}}, {"a": 1.5}, True),
        ({"a": {"$numberDecimal": "7"}}, {"a": 7}, True),
        ({"a": {"$date": "2026-01-31T12:00:00+01:00"}}, {"a": "2026-01-31T11:00:00.000Z"}, True),
        ({"a": {"$gte": {"$date": {"$numberLong": "0"}}}}, {"a": "1970-01-01T00:00:00.001Z"}, True),
        ({"a": {"$gte": {"$date": {"$numberLong": "0"}}}}, {"a": "text"}, False),
    ],
)
def test_values_of_extended_json_are_those_of_the_format(
    engine: Callable[..., Engine], query: Any, document: Any, expected: bool
) -> None:
    assert matched(engine, "mongo", query, document) == expected
    change = {"operationType": "insert", "ns": {"db": "d", "coll": "c"}, "documentKey": {"_id": 1}, "fullDocument": document}
    e = engine(format="mongodb")
    e.add(import_rules("mongo", json.dumps(query)).subscriptions[0].to_dict())
    assert e.matches_any(json.dumps(change)) == expected


KEY: Any = {"_id": {"$oid": "65a1b2c3d4e5f60718293a4b"}}


def change(kind: str, **members: Any) -> str:
    return json.dumps({"operationType": kind, "ns": {"db": "shop", "coll": "orders"}, "documentKey": {"_id": 1}, **members})


@pytest.mark.parametrize(
    ("match", "event", "expected"),
    [
        ({"operationType": "insert"}, change("insert", fullDocument={"_id": 1}), True),
        ({"operationType": {"$in": ["delete", "update"]}}, change("insert", fullDocument={"_id": 1}), False),
        ({"ns.coll": "orders"}, change("insert", fullDocument={"_id": 1}), True),
        ({"ns.coll": "others"}, change("insert", fullDocument={"_id": 1}), False),
        ({"documentKey._id": 1}, change("delete"), True),
        ({"documentKey._id": {"$oid": "65a1b2c3d4e5f60718293a4b"}}, change("delete", documentKey=KEY), True),
        ({"documentKey._id": {"$in": [None, {"$oid": "65a1b2c3d4e5f60718293a4b"}]}}, change("delete", documentKey=KEY), True),
        ({"documentKey._id": {"$ne": {"$oid": "65a1b2c3d4e5f60718293a4b"}}}, change("delete", documentKey=KEY), False),
        ({"documentKey._id": {"$oid": "65a1b2c3d4e5f60718293a4c"}}, change("delete", documentKey=KEY), False),
        ({"documentKey.shard": None}, change("delete", documentKey=KEY), True),
        ({"fullDocumentBeforeChange.a": 1}, change("delete", fullDocumentBeforeChange={"_id": 1, "a": [1]}), True),
        ({"fullDocumentBeforeChange.a": 1, "fullDocument.a": 2},
         change("update", fullDocument={"_id": 1, "a": 2}, fullDocumentBeforeChange={"_id": 1, "a": 1}), True),
        ({"fullDocumentBeforeChange.a": 1}, change("insert", fullDocument={"_id": 1, "a": 1}), False),
        ({"fullDocumentBeforeChange.a": {"$ne": 1}}, change("insert", fullDocument={"_id": 1, "a": 1}), True),
        ({"fullDocumentBeforeChange.a": None}, change("insert", fullDocument={"_id": 1, "a": 1}), True),
        ({"fullDocumentBeforeChange.a.b": None},
         change("update", fullDocument={"_id": 1}, fullDocumentBeforeChange={"_id": 1, "a": []}), False),
        ({"fullDocument.status": "paid"}, change("update", fullDocument={"_id": 1, "status": "paid"}), True),
        ({"fullDocument.status": "paid"}, change("update", fullDocument={"_id": 1, "status": "open"}), False),
        ({"fullDocument._id": 1}, change("delete"), False),
        ({"fullDocument._id": 1}, change("delete", fullDocumentBeforeChange={"_id": 1}), False),
        ({"fullDocument._id": {"$ne": 1}}, change("delete"), True),
        ({"fullDocument._id": None}, change("delete"), True),
        ({"fullDocument._id": {"$exists": False}}, change("delete"), True),
        ({"$or": [{"operationType": "delete"}, {"fullDocument.n": {"$gt": 5}}]}, change("delete"), True),
        ({"updateDescription.updatedFields.a": 5},
         change("update", fullDocument={"_id": 1, "a": 5}, updateDescription={"updatedFields": {"a": 5}}), True),
    ],
)  # fmt: skip
def test_a_pipeline_of_a_change_stream_matches_its_events(
    engine: Callable[..., Engine], match: Any, event: str, expected: bool
) -> None:
    e = engine(format="mongodb")
    (subscription,) = import_rules("mongo", json.dumps([{"$match": match}])).subscriptions
    e.add(subscription.to_dict())
    assert e.matches_any(event) == expected


@pytest.mark.parametrize(
    ("query", "place", "reason"),
    [
        ({"$or": [{"x": 1}, {"price": {"$mod": [2, 0]}}]}, "$or[1].price.$mod", "write this condition in CEL"),
        ({"$where": "this.a == 1"}, "$where", "write this condition in CEL"),
        ({"$expr": {"$gt": ["$a", "$b"]}}, "$expr", "write this condition in CEL"),
        ({"a": {"b": 1, "c": 2}}, "a", "order of their members"),
        ({"a": {"$in": [1, {"b": 1, "c": 2}]}}, "a.$in[1]", "order of their members"),
        ({"a": {"$gt": [1]}}, "a.$gt", "no order of lists"),
        ({"a": {"$gt": {"$oid": "65a1b2c3d4e5f60718293a4b"}}}, "a.$gt", "ids and UUIDs"),
        ({"a.0": 1}, "a.0", "step of digits"),
        ({"a..b": 1}, "a..b", "without empty steps"),
        ({"a.b.c.d.e.f.g": 1}, "a.b.c.d.e.f.g", "at most 6 steps"),
        ({"a": {"$type": "int"}}, "a.$type", "integers and doubles are `number`"),
        ({"a": {"$size": -1}}, "a.$size", "operand of $size"),
        ('{"a": {"$size": 1e999}}', "a.$size", "operand of $size"),
        ({"a": {"$exists": "yes"}}, "a.$exists", "operand of $exists"),
        ({"a": {"$options": "i"}}, "a.$options", "operand of $options"),
        ({"a": {"$regex": "a(?=b)"}}, "a.$regex, character 2", "lookarounds"),
        ({"a": {"$regex": r"(a)\1"}}, "a.$regex, character 4", "no equal in RE2"),
        ({"a": {"$regex": "a$b"}}, "a.$regex, character 2", "only at the end"),
        ({"a": {"$regex": "a++"}}, "a.$regex, character 2", "possessive"),
        ({"a": {"$regex": r"\w", "$options": "i"}}, "a.$regex, character 1", "[A-Za-z0-9_]"),
        ({"a": {"$regex": "a", "$options": "m"}}, "a.$regex", "no options but"),
        ({"a": {"$regex": "[a"}}, "a.$regex, character 3", "expected a class"),
        ({"a": {"$numberDecimal": "0.1"}}, "a", "whole number"),
        ({"a": {"$numberDouble": "NaN"}}, "a", "finite number"),
        ({"a": {"$minKey": 1}}, "a.$minKey", "cannot be translated"),
        ({"a": 2**70}, "a", "64 bits"),
        ({"$and": []}, "$and", "a list of conditions"),
        ({"a": {"$in": 5}}, "a.$in", "a list of values"),
        ({"a": {"$all": [1, {"$elemMatch": {"b": 1}}]}}, "a.$all[0]", "either values"),
        ({"a": {"$elemMatch": {"b": {"$near": 1}}}}, "a.$elemMatch.b.$near", "cannot be translated"),
        ("5", "", "expected an object"),
        ('{"a": NaN}', "a", "finite number"),
        ('{"a": 1e999}', "a", "finite number"),
        ('[{"$match": {}}, {"$project": {"a": 1}}]', "[1]", "does not reshape"),
        ({"a": {"$eq": {"$regularExpression": {"pattern": "x", "options": ""}}}}, "a.$eq", "write `$regex`"),
        ({"a": {"$ne": {"$regularExpression": {"pattern": "x", "options": ""}}}}, "a.$ne", "or `$not`"),
        ('[{"$match": {"wallTime": {"$gte": {"$date": "2026-01-31T00:00:00Z"}}}}]', "[0].$match.wallTime", "such as $date"),
        ('[{"$match": {"updateDescription.updatedFields.a": {"$in": [{"$oid": "65a1b2c3d4e5f60718293a4b"}]}}}]',
         "[0].$match.updateDescription.updatedFields.a", "such as $oid"),
        ('[{"$match": {"fullDocument": {"a": 1}}}]', "[0].$match.fullDocument", "a field of fullDocument"),
    ],
)  # fmt: skip
def test_a_query_without_an_exact_translation_is_refused_with_its_place(query: Any, place: str, reason: str) -> None:
    message = refusal("mongo", query)
    assert message.startswith(f"{place}: " if place else "expected")
    assert reason in message


@pytest.mark.parametrize(
    "text",
    [
        '{"$and": [' * 10_000 + "{}" + "]}" * 10_000,
        '{"a": ' * 10_000 + "1" + "}" * 10_000,
        '{"$and": [' * 200 + "{}" + "]}" * 200,
        '{"a": {"$regex": "' + "(" * 500_000 + '"}}',
        '{"a.' + "b." * 400_000 + 'c": 1}',
        json.dumps({"$or": [{"a": index} for index in range(60_000)]}),
        '{"a": ' + "1" * 5_000 + "}",
        r'{"a": "\ud800"}',
        json.dumps({"$or": [{"a.b.c.d.e.f": index} for index in range(15_000)]}),
        '{"a.b.c.d.e.f": {"$not": {"$elemMatch": ' * 5 + '{"a": 1}' + "}}}" * 5,
    ],
    ids=["and", "objects", "levels", "groups", "steps", "many", "digits", "surrogate", "paths", "elements"],
)
def test_a_hostile_query_is_an_error(text: str) -> None:
    with pytest.raises(StreamerError):
        import_rules("mongo", text)


@pytest.mark.parametrize(
    "text",
    [
        "db.orders.find({status: 'paid'})",
        "{ status: 'paid' }",
        "{ 'status': 'paid' }\n{ 'status': 'open' }",
        "{ $or: [{ a: 1 }] }",
        "[\n  { $match: { 'fullDocument.a': 1 } }\n]",
    ],
)
def test_a_query_of_the_shell_is_one_error_that_names_the_way_out(text: str) -> None:
    with pytest.raises(StreamerError, match=r"not JavaScript\. Print the query as JSON in the shell: EJSON\.stringify"):
        import_rules("mongo", text, on_error="skip")
