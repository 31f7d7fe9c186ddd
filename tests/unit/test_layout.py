"""Layouts, `dict` events and the old side: what the table of cases cannot say."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc
from collections import OrderedDict
from enum import Enum, IntEnum
from typing import Any

import pytest

from streamer.errors import ConfigError, EventCode, EventError
from streamer.events.layout import Constant, EventLayout
from streamer.events.reading import as_before, read_event
from streamer.events.timestamps import parse_rfc3339
from streamer.model import Event, Limits

CHANGE = EventLayout()


class Text(str, Enum):  # noqa: UP042 - StrEnum prints as its value, and this is about one that does not
    PAID = "paid"


class Whole(IntEnum):
    SEVEN = 7


def read(event: Any, layout: EventLayout = CHANGE, **options: Any) -> Event:
    options = {"default_tenant": "default", "limits": Limits()} | options
    return read_event(event, layout=layout, **options)


def refused(event: Any, layout: EventLayout = CHANGE, **options: Any) -> EventError:
    with pytest.raises(EventError) as raised:
        read(event, layout, **options)
    return raised.value


@pytest.mark.parametrize("name", EventLayout.PRESETS)
def test_a_preset_is_one_value_that_travels(name: str) -> None:
    layout = EventLayout.preset(name)
    assert EventLayout.from_dict(layout.to_dict()) == layout == EventLayout.from_dict({"preset": name})
    copy = pickle.loads(pickle.dumps(layout))
    assert copy == layout
    assert hash(copy) == hash(layout)
    assert copy.pointers("data") == layout.pointers("data")


def test_presets_differ() -> None:
    assert len({EventLayout.preset(name) for name in EventLayout.PRESETS}) == len(EventLayout.PRESETS)


def test_a_part_left_out_stands_where_the_preset_has_it() -> None:
    assert EventLayout.from_dict({"preset": "debezium", "tenant": "/db"}) == dataclasses.replace(
        EventLayout.preset("debezium"), tenant="/db"
    )
    assert EventLayout.from_dict({}) == EventLayout() == EventLayout.preset("change")


def test_a_layout_is_the_same_in_whatever_way_it_is_given() -> None:
    assert EventLayout(data=["/a", "/b"]) == EventLayout(data=("/a", "/b"))
    assert EventLayout(type_map={"b": "insert", "a": "update"}) == EventLayout(type_map={"a": "update", "b": "insert"})
    assert EventLayout(tenant=Constant("t")) == EventLayout.from_dict({"tenant": {"constant": "t"}})


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"preset": "kafka"}, "preset"),
        ({"preset": ["change"]}, "preset"),
        ({"pattern": "/x"}, "pattern"),
        ({5: "/x"}, "5"),
        ({"id": "id"}, "id"),
        ({"id": "/a~2"}, "id"),
        ({"id": 5}, "id"),
        ({"id": []}, "id"),
        ({"id": ["/a", 5]}, "id"),
        ({"id": {"const": 5}}, "id"),
        ({"id": {"constant": 1.5}}, "id"),
        ({"id": {"constant": 2**64}}, "id"),
        ({"tenant": {"constant": "*"}}, "tenant"),
        ({"tenant": {"constant": 5}}, "tenant"),
        ({"tenant": {"constant": None}}, "tenant"),
        ({"collection": {"constant": "*"}}, "collection"),
        ({"ts": {"constant": True}}, "ts"),
        ({"data": {"constant": "x"}}, "data"),
        ({"before": ""}, "before"),
        ({"data": "/a/b", "before": "/a"}, "before"),
        ({"data": "/a", "before": "/a"}, "before"),
        ({"type_map": {"c": "create"}}, "type_map"),
        ({"no_change": "ignored"}, "no_change"),
        ({"no_change": None}, "no_change"),
        ({"type_map": "c"}, "type_map"),
        ({"type_map": [["c", "insert"]]}, "type_map"),
        ({"ts_format": "min"}, "ts_format"),
        ({"ts_format": None}, "ts_format"),
    ],
)
def test_a_bad_layout_says_where(members: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        EventLayout.from_dict(members)
    assert raised.value.place == place
    assert str(raised.value).startswith(place)


def test_a_layout_that_is_no_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="a layout is an object, not list"):
        EventLayout.from_dict([])  # type: ignore[arg-type]


def test_a_dict_is_read_as_its_json_text_is() -> None:
    event = {"id": Whole.SEVEN, "data": OrderedDict(a=(1, [Text.PAID, True, None]), b=1.0, c=2**64 - 1, d=-(2**63))}
    assert read(event) == read(
        b'{"id":7,"data":{"a":[1,["paid",true,null]],"b":1.0,"c":18446744073709551615,"d":-9223372036854775808}}'
    )
    assert type(read(event).id) is int
    assert type(read(event).data["a"][1][0]) is str  # type: ignore[index]


@pytest.mark.parametrize(
    ("event", "place"),
    [
        ({"data": {"a": float("nan")}}, "/data/a"),
        ({"data": {"a": [0, float("inf")]}}, "/data/a/1"),
        ({"a": -float("inf")}, "/a"),
        ({"a": 2**64}, "/a"),
        ({"a": -(2**63) - 1}, "/a"),
        ({"a": 10**5000}, "/a"),
        ({"a": "\ud800"}, "/a"),
        ({"a~/b": {"\udfff": 1}}, "/a~0~1b"),
        ({"a": {1: 2}}, "/a"),
        ({None: 2}, ""),
        ({"a": [{True: 2}]}, "/a/0"),
        ({"a": {1, 2}}, "/a"),
        ({"a": b"x"}, "/a"),
        ({"a": object()}, "/a"),
    ],
)
def test_what_json_cannot_hold_is_refused_at_its_place(event: dict[Any, Any], place: str) -> None:
    error = refused(event)
    assert (error.code, error.place, error.offset) == (EventCode.BAD_VALUE, place, None)


def test_default_converts_as_in_json_dumps() -> None:
    assert read({"data": {"a": {1}, "b": [b"x"]}}, default=lambda v: sorted(v) if isinstance(v, set) else v.decode()).data == {
        "a": [1],
        "b": ["x"],
    }


def test_default_may_refuse_or_give_what_is_no_better() -> None:
    def refuse(value: object) -> object:
        raise TypeError(f"no {value}")

    error = refused({"a": [b"x"]}, default=refuse)
    assert (error.code, error.place) == (EventCode.BAD_VALUE, "/a/0")
    assert "no b'x'" in error.reason
    assert refused({"a": b"x"}, default=lambda v: float("nan")).code is EventCode.BAD_VALUE
    assert refused({"a": b"x"}, default=lambda v: v).code is EventCode.TOO_DEEP
    assert refused({"a": b"x"}, default=lambda v: [v]).code is EventCode.TOO_DEEP


def test_a_dict_that_holds_itself_is_too_deep() -> None:
    event: dict[str, Any] = {}
    event["a"] = [event]
    assert refused(event).code is EventCode.TOO_DEEP


def test_a_dict_is_as_deep_as_its_text() -> None:
    limits = Limits(max_depth=3)
    assert read({"a": [{"b": 1}]}, limits=limits).raw == {"a": [{"b": 1}]}
    error = refused({"a": [{"b": []}]}, limits=limits)
    assert (error.code, error.place) == (EventCode.TOO_DEEP, "/a/0/b")


def test_a_dict_that_shares_its_parts_costs_no_more_than_its_text_may_be_long() -> None:
    shared: list[Any] = ["x" * 100]
    for _ in range(400):
        shared = [shared, shared]
    assert refused({"a": shared}, limits=Limits(max_event_bytes=10_000)).code is EventCode.TOO_LONG


def test_a_dict_is_as_long_as_its_compact_text() -> None:
    event = {"é": ["\n", 1.5, None, True, False, {}], "b": -12}
    text = '{"é":["\\n",1.5,null,true,false,{}],"b":-12}'.encode()
    assert read(event, limits=Limits(max_event_bytes=len(text))) == read(text)
    assert refused(event, limits=Limits(max_event_bytes=len(text) - 1)).code is EventCode.TOO_LONG


@pytest.mark.parametrize("event", [5, 1.5, "5", [{}], (), True])
def test_what_is_no_object_is_no_event(event: Any) -> None:
    assert refused(event).code is EventCode.NOT_AN_OBJECT


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_will_do(kind: type[Any]) -> None:
    assert read(kind(b'{"id":1}')).id == 1


def test_a_str_with_half_of_a_surrogate_pair_has_no_utf8() -> None:
    error = refused('{"é":"\ud83d"}')
    assert (error.code, error.offset) == (EventCode.LONE_SURROGATE, 7)
    assert refused("\ud83d\ude00").offset == 0


def test_an_event_is_a_copy_of_a_dict() -> None:
    event: dict[str, Any] = {"data": {"a": [1]}}
    seen = read(event)
    event["data"]["a"].append(2)
    assert seen.data == {"a": [1]}


def test_the_way_is_made_only_to_what_is_unknown() -> None:
    deep: Any = [1] * 5_000
    for _ in range(500):
        deep = [deep]
    event = {"data": {"x": "?", "d": deep}}
    layout = EventLayout(unknown_value="?")
    tracemalloc.start()
    try:
        assert read_event(event, layout=layout, default_tenant="t", limits=Limits()).unknown == (("data", "x"),)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A way to each element would take 20 MB.
    assert peak < 2_000_000


def test_an_error_does_not_grow_with_the_event() -> None:
    assert len(str(refused({"type": "x" * 10_000}))) < 300
    assert len(str(refused({"unknown": ["x" * 10_000]}))) < 300


def test_an_argument_of_another_type_is_the_callers_mistake() -> None:
    with pytest.raises(TypeError, match="tenant is a string, not int"):
        read({}, tenant=5)


def test_the_old_side_is_the_event_as_it_was() -> None:
    event = read(
        {"type": "update", "id": 1, "data": {"a": 2}, "before": {"a": 1}, "unknown": ["/before/b", "/data/c", "/z", "/before"]}
    )
    old = as_before(event, CHANGE)
    assert old.raw == {"type": "update", "id": 1, "data": {"a": 1}, "before": None, "unknown": event.raw["unknown"]}
    assert (old.data, old.before) == ({"a": 1}, None)
    assert old.unknown == (("data", "b"), ("z",), ("data",))
    assert event.raw["data"] == {"a": 2}


def test_the_old_side_makes_room_for_a_document_that_was_not_there() -> None:
    layout = EventLayout(data="/payload/after", before="/before")
    old = as_before(read({"type": "update", "before": {"a": 1}}, layout), layout)
    assert old.raw == {"type": "update", "before": None, "payload": {"after": {"a": 1}}}
    assert read(old.raw, layout).data == old.data == {"a": 1}


def test_the_old_side_leaves_no_other_before() -> None:
    layout = EventLayout(before=("/old", "/was"))
    old = as_before(read({"type": "update", "data": {}, "old": {"a": 1}, "was": {"a": 0}}, layout), layout)
    assert old.raw == {"type": "update", "data": {"a": 1}, "old": None, "was": None}


def test_the_old_side_goes_through_lists() -> None:
    layout = EventLayout(data="/docs/1", before="/docs/0")
    old = as_before(read({"type": "update", "docs": [{"a": 1}, {"a": 2}]}, layout), layout)
    assert old.raw == {"type": "update", "docs": [None, {"a": 1}]}


def test_a_hole_that_covers_before_covers_the_old_document() -> None:
    layout = EventLayout(data="/new/doc", before="/old/doc")
    event = read({"type": "update", "new": {"doc": {"a": 1}}, "unknown": ["/old"]}, layout)
    assert as_before(event, layout).unknown == (("old",), ("new", "doc"))


@pytest.mark.parametrize(
    ("pointers", "unknown", "at"),
    [
        (("/a/b", "/b"), [], ("b",)),
        (("/a/b", "/b"), ["/a"], ("a", "b")),
        (("/a/b", "/c/d"), [], ("a", "b")),
        (("/a/b", "/b"), ["/b/c"], ("b",)),
    ],
)
def test_a_missing_document_would_stand_where_its_hole_or_its_room_is(
    pointers: tuple[str, ...], unknown: list[str], at: tuple[str, ...]
) -> None:
    assert read({"unknown": unknown}, EventLayout(data=pointers)).data_at == at


def test_rfc3339_is_exact_to_the_nanosecond() -> None:
    assert parse_rfc3339("1970-01-01T00:00:00.000000001Z") == 1
    assert parse_rfc3339("1969-12-31T23:59:59.999999999Z") == -1
    assert parse_rfc3339("2026-11-21T09:30:00.123456789+05:30") == 1795233600123456789


def test_what_a_layout_says_of_change_records_travels() -> None:
    layout = EventLayout.from_dict({"before_holds": "changed", "unknown_value": ["?", "n/a"], "encoded": "json"})
    assert layout == EventLayout(before_holds="changed", unknown_value=("?", "n/a"), encoded="json")
    assert EventLayout.from_dict(layout.to_dict()) == layout == pickle.loads(pickle.dumps(layout))
    assert hash(layout) == hash(EventLayout(before_holds="changed", unknown_value=["?", "n/a"], encoded="json"))
    assert layout.unknown_texts == ("?", "n/a")
    assert EventLayout(unknown_value="?").unknown_texts == ("?",)
    assert EventLayout.from_dict({"preset": "debezium", "unknown_value": None, "encoded": None}).unknown_texts == ()


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"before_holds": "some"}, "before_holds"),
        ({"before_holds": None}, "before_holds"),
        ({"before_holds": ["all"]}, "before_holds"),
        ({"encoded": "bson"}, "encoded"),
        ({"encoded": {}}, "encoded"),
        ({"unknown_value": ""}, "unknown_value"),
        ({"unknown_value": []}, "unknown_value"),
        ({"unknown_value": ["a", 1]}, "unknown_value"),
        ({"unknown_value": 7}, "unknown_value"),
        ({"unknown_value": "\ud800"}, "unknown_value"),
        ({"collection": "{/\ud800}"}, "collection"),
        ({"collection": "\ud800{/a}"}, "collection"),
        ({"topic": ["/a", "/\udfff"]}, "topic"),
        ({"tenant": {"constant": "\ud800"}}, "tenant"),
        ({"type_map": {"\ud800": "insert"}}, "type_map"),
        ({"unknown_value": "x" * 1025}, "unknown_value"),
        ({"unknown_value": ["x"] * 17}, "unknown_value"),
        ({"encoded": "json", "data": "/a", "before": "/a/b"}, "before"),
        ({"format": "dms", "data": "/a", "before": "/a/b"}, "before"),
    ],
)
def test_what_a_layout_cannot_say_of_change_records(members: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        EventLayout.from_dict(members)
    assert raised.value.place == place
    with pytest.raises(ConfigError) as raised:
        EventLayout(**members)
    assert raised.value.place == place


def test_a_hole_that_a_layout_tells_of_is_one_in_the_event() -> None:
    debezium = EventLayout.preset("debezium")
    event = read({"op": "u", "before": {"id": 1}, "after": {"id": 1, "t": "__debezium_unavailable_value", "e": 1}}, debezium)
    assert sorted(event.unknown) == [("after", "t"), ("before", "e"), ("before", "t")]
    assert read({"op": "u", "before": None, "after": {"id": 1}}, debezium).untold


def test_bad_json_in_a_string_says_where() -> None:
    error = refused(b'{"op": "u", "payload": {"after": "{\\"a\\": tru}"}}', EventLayout.preset("debezium"))
    assert (error.code, error.place, error.offset) == (EventCode.MALFORMED_JSON, "/payload/after", 33)
    assert "the JSON in data, at byte 9 of it" in error.reason


@pytest.mark.parametrize(
    ("template", "ways"),
    [
        ("{/a}", (("a",),)),
        ("{/a}.{/b/c}", (("a",), ".", ("b", "c"))),
        ("x{{{/a}}}", ("x", "{", ("a",), "}")),
        ("/a{b}", (("a{b}",),)),
    ],
)
def test_a_template_is_texts_and_pointers(template: str, ways: tuple[Any, ...]) -> None:
    layout = EventLayout(collection=template)
    assert layout.ways("collection") == (ways,)
    assert layout.pointers("collection") == tuple(step for step in ways if isinstance(step, tuple))
    assert EventLayout.from_dict(layout.to_dict()) == layout


@pytest.mark.parametrize("template", ["orders", "{a}", "{/a", "{/a}}", "{/a{}", "}", "a{{", "{/a~2}", ["/a", "{"]])
def test_what_is_no_template(template: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        EventLayout(collection=template)
    assert raised.value.place == "collection"


def test_only_a_collection_is_a_template() -> None:
    with pytest.raises(ConfigError):
        EventLayout(tenant="{/a}.{/b}")
