"""Any mapping is an object, wherever one is taken; other types say what they are, and `default=` converts them."""

from __future__ import annotations

import collections
import logging
import types
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest

from streamer import Engine, Filter, Subscription, cdc
from streamer.errors import EventError, SubscriptionError
from streamer.events.layout import EventLayout

MakeEngine = Callable[..., Engine]


class Own(Mapping[str, Any]):
    """A mapping that is nothing but that."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


KINDS: dict[str, Callable[[dict[str, Any]], Mapping[str, Any]]] = {
    "proxy": types.MappingProxyType,
    "UserDict": collections.UserDict,
    "ChainMap": collections.ChainMap,
    "OrderedDict": collections.OrderedDict,
    "own": Own,
}
EVENT: dict[str, Any] = {
    "id": 7,
    "collection": "c",
    "type": "update",
    "data": {"a": {"b": 1}, "items": [{"sku": "x"}]},
    "before": {"a": {"b": 2}, "items": []},
}
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"id": "filter", "filters": [{"field": "a.b", "op": "==", "value": 1}], "labels": {"deep": [{"n": 1}]}},
    {"id": "object", "filters": [{"field": "a", "op": "==", "value": {"b": 1}}]},
    {"id": "pattern", "pattern": {"data": {"items": {"sku": ["x", {"prefix": "y"}]}}}},
    {"id": "cel", "cel": "data.a.b > before.a.b - 2"},
]


def wrapped(value: Any, kind: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Any:
    """Return a value with a mapping of a kind in place of each dict, however deep."""
    if isinstance(value, dict):
        return kind({name: wrapped(item, kind) for name, item in value.items()})
    return [wrapped(item, kind) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_any_mapping_is_an_event_and_a_subscription(engine: MakeEngine, kind: Callable[..., Any]) -> None:
    plain, odd = engine(), engine()
    plain.add_many(SUBSCRIPTIONS)
    odd.add_many([wrapped(each, kind) for each in SUBSCRIPTIONS])
    assert [each.to_dict() for each in odd.subscriptions()] == [each.to_dict() for each in plain.subscriptions()]
    event = wrapped(EVENT, kind)
    expected = {match.subscription_id: (match.transition, match.labels) for match in plain.match(EVENT)}
    assert set(expected) == {"filter", "object", "pattern", "cel"}
    for e in (plain, odd):
        assert {match.subscription_id: (match.transition, match.labels) for match in e.match(event)} == expected
        assert sorted(e.match_ids(event)) == sorted(expected)
        assert [len(each) for each in e.match_batch([event, EVENT])] == [4, 4]  # type: ignore[arg-type]
        assert [len(each) for each in e.match_stream([event])] == [4]  # type: ignore[arg-type]
        assert str(e.explain(event, "filter")) == str(e.explain(EVENT, "filter"))
    assert not plain.apply([wrapped(each, kind) for each in SUBSCRIPTIONS])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_any_mapping_is_a_layout_options_of_bloom_and_a_filter(engine: MakeEngine, kind: Callable[..., Any]) -> None:
    members = {"preset": "change", "collection": {"constant": "c"}, "type_map": {"U": "update"}}
    assert EventLayout.from_dict(wrapped(members, kind)) == EventLayout.from_dict(members)
    e = engine(layout=wrapped(members, kind), bloom=wrapped({"fp_rate": 0.02}, kind), cel_functions=kind({"one": lambda: 1}))
    e.add(
        Subscription(id="s", filters=[wrapped({"field": "a", "op": "==", "value": {"b": 1}}, kind), Filter("a", "exists", True)])
    )
    assert e.match_ids(wrapped({"type": "U", "data": {"a": {"b": 1}}}, kind)) == ["s"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("decode", "message"),
    [
        (
            cdc.debezium.decode,
            {
                "schema": {"type": "struct", "fields": []},
                "payload": {"op": "u", "before": {"a": {"b": 1}}, "after": {"a": {"b": 2}}, "source": {"table": "t", "ts_ms": 1}},
            },
        ),
        (
            cdc.wal2json.Decoder().decode,
            {"action": "I", "schema": "public", "table": "t", "columns": [{"name": "id", "type": "integer", "value": 7}]},
        ),
        (
            cdc.mongodb.decode,
            {
                "_id": {"_data": "x"},
                "operationType": "insert",
                "ns": {"db": "d", "coll": "c"},
                "documentKey": {"_id": 1},
                "fullDocument": {"_id": 1, "a": {"b": [{"c": 1}]}},
            },
        ),
        (
            cdc.dynamodb.decode,
            {
                "eventName": "INSERT",
                "eventSourceARN": "arn:aws:dynamodb:eu-west-1:1:table/orders/stream/x",
                "dynamodb": {"Keys": {"id": {"N": "1"}}, "NewImage": {"id": {"N": "1"}, "m": {"M": {"a": {"S": "x"}}}}},
            },
        ),
        (
            cdc.canal.decode,
            {
                "type": "INSERT",
                "database": "d",
                "table": "t",
                "data": [{"id": "1"}],
                "sqlType": {"id": 4},
                "pkNames": ["id"],
                "ts": 1,
            },
        ),
    ],
    ids=["debezium", "wal2json", "mongodb", "dynamodb", "canal"],
)
def test_any_mapping_is_a_message_of_a_decoder(
    engine: MakeEngine, kind: Callable[..., Any], decode: Callable[[Any], list[Any]], message: dict[str, Any]
) -> None:
    e = engine(layout=cdc.LAYOUT)
    e.add({"id": "all"})
    (expected,) = decode(message)
    (event,) = decode(wrapped(message, kind))
    assert [match.transition for match in e.match(event)] == [match.transition for match in e.match(expected)] != []
    assert sorted(event) == sorted(expected)


class Odd:
    """Of no type that JSON has."""


def test_an_error_names_the_type_with_its_module(engine: MakeEngine) -> None:
    numpy = pytest.importorskip("numpy")
    e = engine()
    e.add({"id": "s"})
    for value, name in (
        (numpy.bool_(True), f"numpy.{numpy.bool_.__name__}"),
        (numpy.int64(1), "numpy.int64"),
        (numpy.array([1]), "numpy.ndarray"),
        (Decimal(1), "decimal.Decimal"),
        (Odd(), f"{__name__}.Odd"),
        (b"x", "bytes"),
        ({1}, "set"),
    ):
        with pytest.raises(EventError) as caught:
            e.match({"data": {"a": [value]}})
        assert caught.value.place == "/data/a/0"
        assert caught.value.reason.startswith(f"{name} is not a JSON type; expected a mapping, list, ")
        assert "default= of the engine" in caught.value.reason
        for where in ({"labels": {"a": [value]}}, {"filters": [{"field": "a", "op": "in", "value": [value]}]}):
            with pytest.raises(SubscriptionError, match=rf"not {name}; default= of the engine converts"):
                e.add({"id": "t", **where})
    assert e.match_ids({"data": {"a": numpy.float64(1)}}) == ["s"]


def converted(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value.item()


def test_default_converts_values_of_subscriptions_as_of_events(engine: MakeEngine) -> None:
    numpy = pytest.importorskip("numpy")
    e = engine(default=converted)
    e.add_many(
        [
            {"id": "filter", "filters": [{"field": "a", "op": "==", "value": Decimal("1.5")}]},
            Subscription(id="in", filters=[Filter("a", "in", [numpy.int64(3), Decimal("1.5")])]),
            types.MappingProxyType({"id": "pattern", "pattern": {"data": {"a": [Decimal("1.5")]}}}),
            {"id": "numeric", "pattern": {"data": {"a": [{"numeric": [">", Decimal(1)]}]}}},
            {"id": "labels", "labels": {"a": (Decimal(2), numpy.bool_(True))}},
        ]
    )
    matches = e.match({"collection": "c", "data": {"a": Decimal("1.5")}})
    assert sorted(matches.ids()) == ["filter", "in", "labels", "numeric", "pattern"]
    assert {match.subscription_id: match.labels for match in matches}["labels"] == {"a": [2.0, True]}
    e.apply([{"id": "labels", "labels": {"a": Decimal(3)}}])
    assert e.match(EVENT)[0].labels == {"a": 3.0}


@pytest.mark.parametrize("member", ["labels", "filters"])
def test_what_default_cannot_convert_is_refused_at_its_place(engine: MakeEngine, member: str) -> None:
    def add(default: Callable[[Any], Any]) -> SubscriptionError:
        given: dict[str, Any] = {
            "labels": {"labels": {"a": [Odd()]}},
            "filters": {"filters": [{"field": "f", "op": "==", "value": [Odd()]}]},
        }[member]
        with pytest.raises(SubscriptionError) as caught:
            engine(default=default).add({"id": "s", **given})
        assert caught.value.subscription_id == "s"
        return caught.value

    def refuse(value: Any) -> Any:
        raise ValueError("never seen")

    at = {"labels": "labels.a[0]", "filters": "filters[0].value[0]"}[member]
    assert str(add(refuse)) == f"subscription 's': {at}: default() refused {__name__}.Odd: never seen"
    assert "does not come to an end" in add(lambda value: Odd()).reason
    assert "does not come to an end" in add(lambda value: [Odd()]).reason
    assert add(lambda value: float("nan")).place == at


def test_default_is_not_asked_of_mappings_and_of_each_value_once(engine: MakeEngine) -> None:
    asked: list[Any] = []

    def default(value: Any) -> Any:
        asked.append(value)
        return types.MappingProxyType({"n": 1}) if value == "first" else value.value

    class Value:
        def __init__(self, value: Any) -> None:
            self.value = value

    values = [Value(1), Value(types.MappingProxyType({"x": (one := Value(2))})), Value(3)]
    e = engine(default=default)
    e.add({"id": "s", "filters": [{"field": "b.x", "op": "==", "value": 2}]})
    data = {"a": values[0], "b": values[1], "c": types.MappingProxyType({"d": values[2]})}
    assert e.match_ids({"data": data}) == ["s"]
    assert asked == [values[0], values[1], one, values[2]]


def test_a_table_is_refused_and_told_what_to_pass(engine: MakeEngine) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    e = engine()
    e.add({"id": "s"})
    frame, table = pandas.DataFrame({"a": [1], "b": ["x"]}), pyarrow.table({"a": [1], "b": ["x"]})
    calls: list[Callable[[Any], Any]] = [e.match_batch, e.match_stream, e.add_many, e.apply, e.lint]
    for call in calls:
        with pytest.raises(
            TypeError, match=r'not a pandas\..*DataFrame, whose items are its columns; pass its .to_dict\("records"\)'
        ):
            call(frame)
        for each in (table, table.to_batches()[0]):
            with pytest.raises(TypeError, match=r"not a pyarrow\..*, whose items are its columns; pass its .to_pylist\(\)"):
                call(each)
    assert len(e.match_batch(frame.to_dict("records"))) == len(e.match_batch(table.to_pylist())) == 1
    assert len(e.match_batch(pandas.Series([EVENT]))) == 1

    class Polars:
        """What of a polars frame is looked at."""

        columns = ("a",)

        def __iter__(self) -> Iterator[str]:
            return iter(self.columns)

        def to_dicts(self) -> list[dict[str, int]]:
            return [{"a": 1}]

    with pytest.raises(TypeError, match=r"pass its .to_dicts\(\)"):
        e.match_batch(Polars())  # type: ignore[arg-type]


DEBEZIUM: dict[str, Any] = {"payload": {"op": "c", "before": None, "after": {"x": 1}, "source": {"table": "t"}}}


@pytest.mark.parametrize(
    ("event", "hint"),
    [
        (DEBEZIUM, 'format="debezium" would fit'),
        ({"status": "paid"}, 'format="document" reads each event as the document itself'),
    ],
)
@pytest.mark.parametrize("way", ["match", "ids", "batch", "lines", "stream", "arrow"])
def test_the_first_event_of_another_shape_logs_one_warning(
    engine: MakeEngine, caplog: pytest.LogCaptureFixture, event: dict[str, Any], hint: str, way: str
) -> None:
    import json

    text = json.dumps(event).encode()
    e = engine()
    e.add({"id": "s", "filters": [{"field": "x", "op": "==", "value": 1}]})
    ways: dict[str, Callable[[], Any]] = {
        "match": lambda: e.match(event),
        "ids": lambda: e.match_ids(text),
        "batch": lambda: e.match_batch([event] * 3),
        "lines": lambda: list(e.match_jsonl(text + b"\n" + text)),
        "stream": lambda: list(e.match_stream([text])),
        "arrow": lambda: e.match_arrow(pytest.importorskip("pyarrow").array([text])),
    }
    with caplog.at_level(logging.WARNING, "streamer"):
        assert e.stats().misfit is None
        ways[way]()
        ways[way]()
    (record,) = caplog.records
    assert record.name == "streamer.engine.fitting"
    assert record.getMessage().endswith(hint)
    assert e.stats().misfit == f"the events have no collection, type or document at the layout's places; {record.args[0]}"  # type: ignore[index]
    assert str(e.stats()).count(hint) == 1
    assert e.stats().to_dict()["misfit"] is not None
    e.match(EVENT)
    assert e.stats().misfit is None, "an event fits"


def test_events_that_fit_and_those_that_say_nothing_log_none(engine: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "streamer"):
        for event in ({}, EVENT, {"topic": "a.b"}, {"collection": "c"}, None, b"{", {"data": {}}):
            e = engine()
            e.match_batch([event, event])
            assert e.stats().misfit is None
        engine(format="document").match(DEBEZIUM)
        engine(format="debezium").match(DEBEZIUM)
    assert caplog.records == []
