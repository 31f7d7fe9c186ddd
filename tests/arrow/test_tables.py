"""The rows of a table match as the same rows as mappings do, for every type of Arrow."""

from __future__ import annotations

import base64
import json
import random
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import streamer
from streamer.core.arrow import read_arrays

#: Each type of a column without parts, and some of its values.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 7],
    pa.uint16(): [0, 65535],
    pa.int64(): [-(2**63), 2**63 - 1, 2**53 + 1],
    pa.uint64(): [2**64 - 1],
    pa.float32(): [0.1, -2.5, 3.0],
    pa.float64(): [0.1, -0.0, 1.0, 1e21, 5e-324, 123456789012345680.0, -250.0],
    pa.decimal128(38, 10): [Decimal("1E-8"), Decimal("-123.4"), Decimal("12345678901234567890.5")],
    pa.decimal256(60, 2): [Decimal("0.00"), Decimal("-7.25")],
    pa.string(): ["", "ü", 'a"b\\c\n\x00\x1f\x7f', "nan", "7"],
    pa.large_string(): ["x", "\u2028😀"],
    pa.string_view(): ["short", "a text of more than twelve bytes"],
    pa.binary(): [b"", b"\x00\xff"],
    pa.large_binary(): [b"xyz"],
    pa.binary_view(): [b"more than twelve bytes of a text"],
    pa.binary(3): [b"abc", b"\xfe\xfe\xfe"],
    pa.date32(): [date(1970, 1, 1), date(2026, 11, 22), date(1, 1, 1)],
    pa.date64(): [date(2026, 11, 22)],
    pa.time32("s"): [time(23, 59, 59)],
    pa.time64("us"): [time(10, 15, 30, 123456)],
    pa.timestamp("s"): [datetime.fromisoformat("2026-11-22T10:15:30"), datetime.fromisoformat("0001-01-01")],
    pa.timestamp("us"): [datetime.fromisoformat("1969-12-31T23:59:59.999999")],
    pa.timestamp("ms", "Europe/Berlin"): [datetime(2026, 11, 22, 9, 15, 30, 120000, UTC), datetime(1970, 1, 1, tzinfo=UTC)],
    pa.null(): [],
}


def kind_of(dice: random.Random, depth: int = 2) -> pa.DataType:
    """Return a random type."""
    simple = dice.choice(list(VALUES))
    if not depth or dice.random() < 0.5:
        return simple
    inner = kind_of(dice, depth - 1)
    return dice.choice(
        [
            pa.list_(inner),
            pa.large_list(inner),
            pa.list_(inner, 2),
            pa.list_view(inner),
            pa.map_(dice.choice([pa.string(), pa.int32(), pa.bool_(), pa.decimal128(5, 1)]), inner),
            pa.struct([("a", inner), ('q"', simple)]),
            pa.struct([]),
        ]
    )


def value_of(dice: random.Random, kind: pa.DataType) -> Any:
    """Return a random value of a type, as `pyarrow.array` reads it."""
    if dice.random() < 0.2 or pa.types.is_null(kind):
        return None
    if kind in VALUES:
        return dice.choice(VALUES[kind])
    if pa.types.is_struct(kind):
        return {field.name: value_of(dice, field.type) for field in kind}
    if pa.types.is_map(kind):
        keys: list[Any] = {pa.string(): ["k", 'x"'], pa.int32(): [1, -2], pa.bool_(): [True]}.get(kind.key_type, [Decimal("2.5")])
        return [(key, value_of(dice, kind.item_type)) for key in dice.sample(keys, dice.randint(0, len(keys)))]
    count = 2 if pa.types.is_fixed_size_list(kind) else dice.randint(0, 3)
    return [value_of(dice, kind.value_type) for _ in range(count)]


def plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value of `to_pylist` as the value of an event."""
    if pa.types.is_struct(kind) and value is not None:
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind) and value is not None:
        named = (json.dumps(key) if isinstance(key, bool) else str(key) for key, _ in value)
        return dict(zip(named, (plain(each, kind.item_type) for _, each in value), strict=True))
    match value:
        case list():
            return [plain(each, kind.value_type) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return (
                value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                if value.tzinfo
                else value.isoformat(timespec="microseconds")
            )
        case time():
            return value.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case _:
            return value


def same(read: Any, expected: Any) -> bool:
    """Return whether a value that was read with all digits of its numbers is the expected one; doubles are spelled as doubles."""
    match expected:
        case dict():
            return list(read) == list(expected) and all(same(read[name], each) for name, each in expected.items())
        case list():
            return len(read) == len(expected) and all(map(same, read, expected))
        case float():
            return isinstance(read, Decimal) and struct.pack("d", float(read)) == struct.pack("d", expected)
        case Decimal():
            return bool(Decimal(read) == expected)
        case _:
            return type(read) is type(expected) and bool(read == expected)


@pytest.mark.parametrize("seed", range(12))
def test_a_column_of_any_type_is_written_as_its_values(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(10):
        kinds = {f"c{position}": kind_of(dice) for position in range(dice.randint(0, 4))}
        rows = [{name: value_of(dice, kind) for name, kind in kinds.items()} for _ in range(dice.randint(0, 7))]
        table = pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
        table = pa.concat_tables([table, table]).slice(dice.randint(0, 2), dice.randint(0, 9))
        array = table.to_struct_array()
        texts = [text for each in read_arrays(dice.choice([table, array])) for text in each.to_pylist()]
        expected = [{name: plain(row[name], kind) for name, kind in kinds.items()} for row in table.to_pylist()]
        assert same([json.loads(text, parse_float=Decimal) for text in texts], expected)


ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "collection": "orders",
        "type": "insert",
        "data": {"amount": 120.0, "tags": ["vip", None], "at": datetime.fromisoformat("2026-01-01")},
    },
    {"id": 2, "collection": "orders", "type": "update", "data": {"amount": float("nan"), "tags": [], "at": None}},
    {"id": 3, "collection": "users", "type": "delete", "data": None},
    {"id": 4, "collection": "orders", "type": "upsert", "data": {"amount": 1.0, "tags": None, "at": None}},
]
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"id": "big", "collection": "orders", "filters": [{"field": "amount", "op": ">", "value": 100}]},
    {"id": "whole", "cel": "data.amount * 2.0 == 240.0"},
    {"id": "vip", "pattern": {"data": {"tags": ["vip"]}}},
    {"id": "nan", "filters": [{"field": "amount", "op": "==", "value": "NaN"}]},
    {"id": "day", "filters": [{"field": "at", "op": "starts_with", "value": "2026-01-01T00:00:00.0"}]},
    {"id": "null", "filters": [{"field": "tags", "op": "==", "value": None}]},
    {"id": "gone", "types": ["delete"]},
]


@pytest.fixture
def engine(backend: str) -> streamer.Engine:
    """An engine with subscriptions to the rows."""
    engine = streamer.Engine()
    engine.add_many(SUBSCRIPTIONS)
    return engine


def test_the_rows_of_a_table_match_as_mappings_do(engine: streamer.Engine) -> None:
    table = pa.Table.from_pylist(ROWS)
    found = engine.match_arrow(table)
    kind = table.schema
    events = [{field.name: plain(row[field.name], field.type) for field in kind} for row in table.to_pylist()]
    events[1]["data"]["amount"] = "NaN"
    alone = [() if isinstance(each, streamer.EventError) else each.ids() for each in engine.match_batch(events)]
    matched = [(match["row"], match["subscription_id"]) for match in found.matches.to_pylist()]
    assert sorted(matched) == [(row, each) for row, ids in enumerate(alone) for each in sorted(ids)]
    assert [sorted(ids) for ids in alone] == [["big", "day", "vip", "whole"], ["nan"], ["gone"], []]
    assert found.events["event_id"].to_pylist() == ["1", "2", "3", None]
    assert found.rejected["row"].to_pylist() == [3]
    for same_rows in (table.to_batches()[0], table.to_struct_array(), table.to_pandas(types_mapper=pd.ArrowDtype)):
        assert engine.match_arrow(same_rows).matches.num_rows == len(matched)


def test_matches_are_joined_to_the_rows_of_their_events(engine: streamer.Engine) -> None:
    table = pa.Table.from_pylist(ROWS)
    for events in (table, table.to_batches()[0], table.to_struct_array()):
        joined = engine.match_arrow(events).join(events)
        assert joined.column_names == [
            "id",
            "collection",
            "type",
            "data",
            "subscription_id",
            "gateway_id",
            "transition",
            "certain",
        ]
        rows = sorted((row["id"], row["subscription_id"], row["transition"]) for row in joined.to_pylist())
        assert rows == [
            *((1, each, "enter") for each in ("big", "day", "vip", "whole")),
            (2, "nan", None),
            (3, "gone", "leave"),
        ]
    view = pa.string_view()
    views = pa.table(
        {"type": pa.array(["delete"], view), "data": pa.array([{"tags": ["x"]}], pa.struct([("tags", pa.list_(view))]))}
    )
    assert engine.match_arrow(views).join(views)["data"].to_pylist() == [{"tags": ["x"]}]
    texts = pa.array([b'{"type": "delete"}', b"{}"])
    assert engine.match_arrow(texts).join(texts).select(["event", "subscription_id"]).to_pylist() == [
        {"event": b'{"type": "delete"}', "subscription_id": "gone"}
    ]
    with pytest.raises(ValueError, match="the events and the matches have a column 'certain'; rename that of the events"):
        engine.match_arrow(texts).join(pa.table({"certain": [1, 2]}))
    with pytest.raises(IndexError, match="2 events were matched, and these are 1"):
        engine.match_arrow(texts).join(texts[:1])


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        (pa.array([1], pa.duration("s")), TypeError, r"column 'x' is duration\[s\], which has no form in JSON"),
        (pa.array([{"y": [None]}], pa.struct([("y", pa.list_(pa.duration("s")))])), TypeError, r"column 'x\.y\[\]' is duration"),
        (pa.array([[(1.5, 1)]], pa.map_(pa.float64(), pa.int8())), TypeError, r"column 'x' is map<double, int8>; the names"),
        (pa.array([2**62], pa.timestamp("us")), ValueError, "column 'x': a time is out of range"),
        (pa.array([2**62], pa.timestamp("s")), ValueError, "column 'x': Casting from timestamp"),
        (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["y", "y"]), ValueError, r"two columns have the name 'x\.y'"),
    ],
)
def test_a_column_that_json_cannot_express_is_named(column: pa.Array, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_arrays(pa.table({"x": column}))


def test_a_row_that_is_null_is_ignored_and_one_with_bad_text_is_rejected(backend: str) -> None:
    engine = streamer.Engine()
    engine.add({"id": "s"})
    found = engine.match_arrow(pa.array([{"type": "insert"}, None]))
    assert (found.matches["row"].to_pylist(), found.ignored["row"].to_pylist()) == ([0], [1])
    found = engine.match_arrow(pa.array([[("type", "insert")], None], pa.map_(pa.string(), pa.string())))
    assert found.matches["row"].to_pylist() == [0]
    assert engine.match_arrow(pa.table({})).events.num_rows == 0
