"""One subscription at a time: what is held, and what a change reports."""

from __future__ import annotations

import copy
import json
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import streamer
from streamer import (
    CelError,
    ConfigError,
    DuplicateSubscriptionError,
    Engine,
    Filter,
    Limits,
    PatternError,
    Subscription,
    SubscriptionError,
    UnknownSubscriptionError,
)
from streamer.automaton import Quamina
from streamer.reference import searches

MakeEngine = Callable[..., Engine]

PAID = {"id": "paid", "filters": [{"field": "status", "op": "==", "value": "paid"}]}
PAID_EVENT = {"collection": "orders", "data": {"status": "paid"}}


def test_an_engine_holds_what_was_added(engine: MakeEngine) -> None:
    e = engine()
    changes = e.add(Subscription(id="s1", cel="data.amount > 100"))
    assert changes.added == ("s1",)
    assert changes
    assert len(e) == 1
    assert "s1" in e
    assert "s2" not in e
    assert 7 not in e
    assert list(e) == ["s1"]
    assert e.get("s1") == Subscription(id="s1", cel="data.amount > 100")
    assert e.get("s2") is None


def test_an_empty_engine_is_true(engine: MakeEngine) -> None:
    assert engine()
    assert len(engine()) == 0


@pytest.mark.parametrize(
    "source",
    [
        Subscription(id="paid", filters=[Filter("status", "==", "paid")]),
        PAID,
        '{"id": "paid", "filters": [{"field": "status", "op": "==", "value": "paid"}]}',
        b'{"id": "paid", "filters": [{"field": "status", "op": "==", "value": "paid"}]}',
    ],
    ids=["Subscription", "mapping", "str", "bytes"],
)
def test_a_subscription_is_an_object_a_mapping_or_json(engine: MakeEngine, source: Any) -> None:
    e = engine()
    e.add(source)
    assert e.match_ids(PAID_EVENT) == ["paid"]
    assert e.get("paid") == Subscription(id="paid", filters=(Filter("status", "==", "paid"),))


def test_an_id_that_exists_is_refused_and_the_old_one_stays(engine: MakeEngine) -> None:
    e = engine()
    e.add(PAID)
    with pytest.raises(DuplicateSubscriptionError) as raised:
        e.add({"id": "paid"})
    assert raised.value.subscription_id == "paid"
    assert raised.value.index is None
    assert e.match_ids({"data": {"status": "open"}}) == []


@pytest.mark.parametrize(
    ("subscription", "error", "place"),
    [
        ({"id": "s", "filters": [{"field": "a", "op": "==="}]}, SubscriptionError, "filters[0].op"),
        ({"id": "s", "colour": "red"}, SubscriptionError, "colour"),
        ({"id": "s", "pattern": {"a": 1}}, PatternError, "pattern.a"),
        ({"id": "s", "cel": "data.a >"}, CelError, "cel"),
        ({"tenant": "t"}, SubscriptionError, "id"),
        (7, SubscriptionError, ""),
    ],
)
def test_a_bad_subscription_says_where_and_adds_nothing(
    engine: MakeEngine, subscription: Any, error: type[SubscriptionError], place: str
) -> None:
    e = engine()
    with pytest.raises(error) as raised:
        e.add(subscription)
    assert raised.value.place == place
    assert len(e) == 0


def test_a_replace_takes_the_place_of_the_old_one(engine: MakeEngine) -> None:
    e = engine()
    e.add(PAID)
    e.add({"id": "last"})
    changes = e.replace({"id": "paid", "filters": [{"field": "status", "op": "==", "value": "open"}]})
    assert (changes.added, changes.replaced) == ((), ("paid",))
    assert e.match_ids(PAID_EVENT) == ["last"]
    assert e.match({"data": {"status": "open"}}).sorted().ids() == ["paid", "last"]
    assert list(e) == ["paid", "last"]


def test_a_replace_of_an_id_that_is_not_held_adds_it(engine: MakeEngine) -> None:
    e = engine()
    assert e.replace(PAID).added == ("paid",)
    assert e.match_ids(PAID_EVENT) == ["paid"]


def test_a_bad_replace_leaves_the_old_one(engine: MakeEngine) -> None:
    e = engine()
    e.add(PAID)
    with pytest.raises(CelError):
        e.replace({"id": "paid", "cel": "("})
    assert e.match_ids(PAID_EVENT) == ["paid"]


def test_a_replace_may_move_to_another_tenant_and_collection(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "tenant": "a", "collection": "x"})
    e.replace({"id": "s", "tenant": "b", "collection": "*"})
    assert e.match_ids({"tenant": "a", "collection": "x"}) == []
    assert e.match_ids({"tenant": "b", "collection": "y"}) == ["s"]
    assert len(e) == 1


def test_a_removed_subscription_never_matches_again_and_its_siblings_do(engine: MakeEngine) -> None:
    e = engine()
    e.add_many([{**PAID, "id": f"s{n}"} for n in range(100)])
    for n in range(0, 100, 2):
        assert e.remove(f"s{n}").removed == (f"s{n}",)
        assert set(e.match_ids(PAID_EVENT)) == {f"s{m}" for m in range(100) if m > n or m % 2}
    assert len(e) == 50
    e.add({"id": "s0", "filters": [{"field": "status", "op": "==", "value": "open"}]})
    assert "s0" not in e.match(PAID_EVENT)


def test_removing_what_is_not_held_changes_nothing(engine: MakeEngine) -> None:
    e = engine()
    e.add(PAID)
    assert not e.remove("other")
    assert len(e) == 1


def test_remove_many_removes_what_meets_every_criterion(engine: MakeEngine) -> None:
    e = engine()
    e.add_many(
        [
            {"id": "1", "gateway_id": "g", "tenant": "a", "collection": "x"},
            {"id": "2", "gateway_id": "g", "tenant": "a"},
            {"id": "3", "gateway_id": "h", "tenant": "*", "collection": "x"},
            {"id": "4", "gateway_id": "g"},
            {"id": "5", "gateway_id": "h", "collection": "*"},
        ]
    )
    assert e.remove_many(gateway_id="g", tenant="a", collection="x").removed == ("1",)
    assert e.remove_many(tenant="*").removed == ("3",)
    assert e.remove_many(tenant="default", collection="*").removed == ("4", "5")
    assert e.remove_many(ids=["2", "1", "nobody"]).removed == ("2",)
    assert len(e) == 0


def test_remove_many_without_a_criterion_is_refused(engine: MakeEngine) -> None:
    e = engine()
    e.add(PAID)
    with pytest.raises(TypeError, match="at least one"):
        e.remove_many()
    with pytest.raises(TypeError, match="several ids"):
        e.remove_many(ids="paid")
    assert len(e) == 1


def test_subscriptions_are_listed_in_order_of_adding(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "z", "gateway_id": "g"})
    e.add({"id": "a", "tenant": "t", "collection": "c", "gateway_id": "g"})
    e.add({"id": "m", "tenant": "*"})
    assert [s.id for s in e.subscriptions()] == ["z", "a", "m"]
    assert [s.id for s in e.subscriptions(gateway_id="g")] == ["z", "a"]
    assert [s.id for s in e.subscriptions(tenant="default")] == ["z"]
    assert [s.id for s in e.subscriptions(tenant="*")] == ["m"]
    assert [s.id for s in e.subscriptions(collection="*")] == ["z", "m"]
    assert [s.id for s in e.subscriptions(collection="c", tenant="other")] == []


def test_what_the_caller_changes_later_is_not_what_was_added(engine: MakeEngine) -> None:
    e = engine()
    subscription = {"id": "s", "pattern": {"data": {"a": ["x"]}}, "labels": {"n": [1]}}
    e.add(subscription)
    subscription["pattern"]["data"]["a"][0] = "y"  # type: ignore[index]
    subscription["labels"]["n"].append(2)  # type: ignore[index]
    assert e.match_ids({"data": {"a": "x"}}) == ["s"]
    assert e.match({"data": {"a": "x"}})[0].labels == {"n": [1]}
    assert e.apply([subscription]).replaced == ("s",)


@pytest.mark.parametrize(
    "labels", [{"a": "x" * 5_000_000}, {"a": ["x" * 1000] * 5_500}, {"x" * 5_000_000: 1}], ids=["text", "list", "name"]
)
def test_the_labels_of_an_object_do_not_count_as_its_text(engine: MakeEngine, labels: dict[str, Any]) -> None:
    e = engine()
    e.add({"id": "s", "labels": labels})
    assert e.match(b"{}")[0].labels == labels


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"validation": "some"}, "validation"),
        ({"default_tenant": "*"}, "default_tenant"),
        ({"cache_size": 0}, "cache_size"),
        ({"soft_delete": "a..b"}, "soft_delete"),
        ({"format": "debezum"}, "format"),
        ({"format": 3}, "format"),
        ({"format": "change", "layout": {}}, "layout"),
        ({"layout": 3}, ""),
        ({"layout": {"ts": 3}}, "ts"),
        ({"layout": {"colour": "/a"}}, "colour"),
    ],
)
def test_an_option_that_cannot_be_is_a_config_error(engine: MakeEngine, options: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        engine(**options)
    assert raised.value.place == place


def test_a_format_is_named_and_a_layout_is_a_mapping_or_itself(engine: MakeEngine) -> None:
    event = {"before": None, "after": {"a": 1}, "op": "c", "source": {"table": "t"}}
    options: list[dict[str, Any]] = [
        {"format": "debezium"},
        {"layout": {"preset": "debezium"}},
        {"layout": streamer.EventLayout.preset("debezium")},
    ]
    for each in options:
        e = engine(**each)
        e.add({"id": "s", "collection": "t", "types": ["insert"], "filters": [{"field": "a", "op": "==", "value": 1}]})
        assert [(m.subscription_id, m.transition) for m in e.match(event)] == [("s", "enter")]


def test_the_name_of_a_format_as_the_layout_still_works_and_names_the_option(engine: MakeEngine) -> None:
    with pytest.warns(DeprecationWarning, match="set format='debezium'") as warned:
        e = engine(layout="debezium")
    assert [each.filename for each in warned] == [__file__]
    assert e._options.layout == streamer.EventLayout.preset("debezium")
    assert e.match({"op": "t"}).ignored == "type"


DELETED = (
    '{"op": "d", "before": {"id": 7, "note": null}, "source": {"connector": "postgresql", "schema": "shop", "table": "orders"}}'
)


@pytest.mark.parametrize(
    ("options", "certain"),
    [
        (None, False),
        ({}, False),
        ({"debezium": {}}, False),
        ({"debezium": {"tables": {"shop.orders": {"identity": "default"}}}}, False),
        ({"debezium": {"tables": {"shop.orders": {"identity": "full"}}}}, True),
    ],
)
def test_format_options_declare_tables_with_whole_rows(engine: MakeEngine, options: Any, certain: bool) -> None:
    e = engine(format="debezium", format_options=options)
    e.add({"id": "null", "filters": [{"field": "note", "op": "==", "value": None}]})
    assert [match.certain for match in e.match(DELETED)] == [certain]
    assert [match.certain for match in pickle.loads(pickle.dumps(e)).match(DELETED)] == [certain]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (5, "format_options"),
        ({"debezum": {}}, "format_options.debezum"),
        ({"maxwell": {}}, "format_options.maxwell"),
        ({"debezium": 5}, "format_options.debezium"),
        ({"debezium": {"tabels": {}}}, "format_options.debezium"),
        ({"debezium": {"tables": {"shop.orders": "full"}}}, "format_options.debezium.tables.shop.orders"),
        ({"debezium": {"tables": {"shop.orders": {"identity": "whole"}}}}, "format_options.debezium.tables.shop.orders.identity"),
        ({"debezium": {"tables": {"": {"identity": "full"}}}}, "format_options.debezium.tables."),
        ({"debezium": {"tables": {"x" * 2_000: {"identity": "full"}}}}, f"format_options.debezium.tables.{'x' * 2_000}"),
        ({"debezium": {"tables": {"\ud800": {"identity": "full"}}}}, "format_options.debezium.tables.\ud800"),
        ({"mongodb": {"tables": {}}}, "format_options.mongodb"),
        ({"debezium": {"prefix": "_"}}, "format_options.debezium"),
        ({"debezium": {"table": "shop.orders"}}, "format_options.debezium"),
    ],
)
def test_bad_format_options_are_refused_at_their_place(engine: MakeEngine, options: Any, place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        engine(format="debezium", format_options=options)
    assert raised.value.place == place
    assert "expected" in raised.value.reason or "only" in raised.value.reason


def test_a_table_is_named_for_rows_that_do_not_name_theirs(engine: MakeEngine) -> None:
    e = engine(format="debezium_unwrapped", format_options={"debezium_unwrapped": {"table": "shop.{orders}"}})
    e.add_many({"id": name, "collection": name} for name in ("shop.{orders}", "items"))
    assert e.match_ids(b'{"id":7,"__op":"c"}') == ["shop.{orders}"]
    assert e.match_ids(b'{"id":7,"__op":"c","__table":"items"}') == ["items"]
    for table in ("", "*", 5, None):
        with pytest.raises(ConfigError, match=r"format_options\.debezium_unwrapped\.table: expected the name of one table"):
            engine(format="debezium_unwrapped", format_options={"debezium_unwrapped": {"table": table}})


def test_a_prefix_is_named_for_rows_with_another_one(engine: MakeEngine) -> None:
    e = engine(format="debezium_unwrapped", format_options={"debezium_unwrapped": {"prefix": "_dbz."}})
    e.add({"id": "s", "collection": "orders", "types": ["insert"], "filters": [{"field": "__op", "op": "==", "value": "x"}]})
    assert pickle.loads(pickle.dumps(e)).match_ids(b'{"__op":"x","_dbz.op":"c","_dbz.table":"orders"}') == ["s"]
    for prefix in ("", 5, None, "x" * 2_000):
        with pytest.raises(ConfigError, match=r"format_options\.debezium_unwrapped\.prefix: expected the prefix"):
            engine(format="debezium_unwrapped", format_options={"debezium_unwrapped": {"prefix": prefix}})
    with pytest.raises(ConfigError, match="added_prefix: expected next to it format: debezium_unwrapped"):
        engine(layout={"added_prefix": "_"})


def test_format_options_belong_to_a_format(engine: MakeEngine) -> None:
    with pytest.raises(ConfigError, match="expected the setting format: debezium next to it; a layout has whole_rows"):
        engine(layout={"preset": "debezium"}, format_options={"debezium": {}})


@pytest.mark.parametrize("name", ["dynamodb", "mongodb", "cloudevents", "sns"])
def test_records_that_show_what_they_lack_have_no_whole_rows(engine: MakeEngine, name: str) -> None:
    with pytest.raises(ConfigError, match="shows itself which values it lacks"):
        engine(layout={"preset": name, "whole_rows": "shop.orders"})


def test_the_order_of_whole_rows_does_not_count() -> None:
    one, other = ({"preset": "debezium", "whole_rows": tables} for tables in (["b", "a", "b"], ("a", "b")))
    assert streamer.EventLayout.from_dict(one) == streamer.EventLayout.from_dict(other)
    assert streamer.EventLayout.from_dict({"whole_rows": "a"}) == streamer.EventLayout.from_dict({"whole_rows": ["a"]})


def test_a_batch_of_collections_that_a_template_makes_matches_as_its_events_do(engine: MakeEngine) -> None:
    e = engine(layout={"preset": "debezium", "collection": "{/source/schema}.{/source/table}"})
    names = [(schema, table) for schema in "abc" for table in ("x", "y\n")]
    e.add_many({"id": f"{schema}.{table}", "collection": f"{schema}.{table}"} for schema, table in names)
    sources = [{"schema": schema, "table": table} for schema, table in names * 20] + [{"schema": "a"}]
    events = [{"op": "c", "source": source, "after": {"n": 1}} for source in sources]
    expected = [[f"{schema}.{table}"] for schema, table in names * 20] + [[]]
    batch = e.match_batch(events)
    assert [[match.subscription_id for match in hits] for hits in batch] == expected
    assert [e.match_ids(event) for event in events] == expected


def test_an_engine_without_default_tenant_wants_one_named(engine: MakeEngine) -> None:
    e = engine(default_tenant=None)
    with pytest.raises(SubscriptionError) as raised:
        e.add({"id": "s"})
    assert raised.value.place == "tenant"
    e.add({"id": "s", "tenant": "t"})
    with pytest.raises(streamer.EventError):
        e.match({})
    assert e.match_ids({}, tenant="t") == ["s"]


def test_an_argument_wins_over_the_event(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "tenant": "t", "collection": "c"})
    event = {"tenant": "other", "collection": "other"}
    assert e.match_ids(event) == []
    assert e.match_ids(event, tenant="t", collection="c") == ["s"]
    assert e.match_count(event, "t", "c") == 1
    assert e.matches_any(event, "t", "c")
    assert e.match(event, "t", "c").ids() == ["s"]
    assert bool(e.explain(event, "s", "t", "c"))


def test_default_converts_what_json_does_not_have(engine: MakeEngine) -> None:
    event = {"data": {"tags": {"vip"}}}
    with pytest.raises(streamer.EventError):
        engine().match(event)
    e = engine(default=sorted)
    e.add({"id": "s", "filters": [{"field": "tags", "op": "contains", "value": "vip"}]})
    assert e.match_ids(event) == ["s"]


def test_an_unknown_id_cannot_be_explained_or_planned(engine: MakeEngine) -> None:
    e = engine()
    for ask in (lambda: e.plan("nobody"), lambda: e.explain({}, "nobody")):
        with pytest.raises(UnknownSubscriptionError, match="'nobody': unknown id"):
            ask()
        with pytest.raises(KeyError):
            ask()


def test_the_repr_says_how_many(engine: MakeEngine) -> None:
    e = engine()
    e.add(PAID)
    assert "1 subscription" in repr(e)
    assert repr(e.remove("paid")) == "<Changes: 1 removed>"
    assert repr(e.remove("paid")) == "<Changes: none>"


def test_a_pattern_that_takes_more_than_its_budget_is_counted_as_an_error(engine: MakeEngine) -> None:
    groups = [f"g{n}" for n in range(15)]
    e = engine()
    e.add({"id": "s", "pattern": {"r": {group: {"$or": [{"x": [1]}, {"y": [1]}]} for group in groups}}})
    everything = {group: {"x": 1, "y": 1} for group in groups}
    assert e.match_ids({"r": [everything]}) == ["s"]
    assert e.cel_errors == {}
    assert e.match_ids({"r": [everything, *({group: {part: 1}} for group in groups for part in "xy")]}) == []
    assert e.cel_errors == {"pattern_budget": 1}


def test_a_regexp_that_takes_more_than_its_budget_is_not_searched_and_counted(
    engine: MakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    e = engine()
    e.add({"id": "filter", "filters": [{"field": "a", "op": "matches", "value": "a.{500}c"}]})
    e.add({"id": "pattern", "pattern": {"data": {"b": [{"regexp": "a.{500}c.*"}, "yes"]}}})
    # 503 and 505 units for each 16 bytes.
    fits = "a" * 31_000 + "c"
    assert e.match_ids({"data": {"a": fits, "b": "yes"}}) == ["filter", "pattern"]
    assert e.cel_errors == {}
    long = "a" * 32_000 + "c"
    with caplog.at_level("INFO"):
        assert e.match_ids({"data": {"a": long}}) == []
    assert e.cel_errors == {"regexp_budget": 1}
    (message,) = [record.getMessage() for record in caplog.records]
    assert "regexp_budget: a text of 32001 bytes is not searched for a regular expression of size 503: a.{500}c" in message
    # What else the pattern offers still counts, and so does what the event leaves open.
    assert e.match_ids({"data": {"a": long, "b": ["yes", long]}}) == ["pattern"]
    assert e.match_ids({"data": {"a": long, "b": ["no", long]}}) == []
    assert e.cel_errors["regexp_budget"] > 1
    assert e.match_ids({"data": {"a": long, "b": None}, "unknown": ["/data/b"]}) == ["pattern"]
    (of_filter,) = [one for one in e.explain({"data": {"a": long}}, "filter").conditions if one.kind == "filter"]
    assert of_filter.reason is not None
    assert "is not searched" in of_filter.reason


def test_topic_patterns_past_the_budget_of_an_event_are_not_looked_at_and_counted(
    engine: MakeEngine, backend: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each costs 16 units for a word on a key of 1,024 words, so that 6,103 of the longest fit.
    e, start, fitting = engine(), "#.a." * 511, 6_103
    if backend == "reference":
        fitting = 61
        monkeypatch.setattr(searches, "TOPIC_BUDGET", searches.TOPIC_BUDGET // 100)
    e.add_many({"id": str(at), "topic": start + f"b{at}.#"} for at in range(fitting + 7))
    e.add({"id": "simple", "topic": "*." * 1023 + "b2"})
    with caplog.at_level("INFO"):
        found = e.match_ids({"topic": "a." * 1023 + "b2"})
    assert "simple" in found
    assert set(found) <= {"simple", "2"}
    assert e.cel_errors == {"topic_budget": 7}
    told = [record.getMessage() for record in caplog.records if "topic_budget" in record.getMessage()]
    assert "a topic pattern of 1024 words is not looked at for a key of 1024: 16384 units are too many" in told[0]
    # The next event has a budget of its own, and so has what is explained.
    assert e.match_ids({"topic": "a." * 511 + "b2"}) == ["2"]
    assert e.explain({"topic": "a." * 1023 + "b2"}, "2").matched
    assert e.cel_errors == {"topic_budget": 7}
    (of_topic,) = [one for one in e.explain({"topic": "a." * 1024 + "b2"}, "2").conditions if one.kind == "topic"]
    assert of_topic.reason == "a key of more than 1024 words is matched by no topic pattern with '#' or '>'"


def test_a_search_that_is_refused_counts_with_the_event_whose_text_it_is(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "pattern": {"data": {"a": [{"regexp": "a.{500}c.*"}, "yes"]}}})
    long = "a" * 32_000 + "c"
    update = {"type": "update", "data": {"a": "yes"}, "before": {"a": long}}
    assert [match.transition for match in e.match(update)] == ["enter"]
    assert e.cel_errors == {"regexp_budget": 1}
    assert e.match_ids({"data": {"a": "yes"}}) == ["s"]
    assert e.cel_errors == {"regexp_budget": 1}
    # To explain an event counts nothing, nor does what a `Quamina` of the same thread refuses.
    assert not e.explain({"data": {"a": long}}, "s").matched
    quamina = Quamina(dialect="eventbridge")
    quamina.add_pattern("s", '{"a": [{"regexp": "a.{500}c.*"}]}')
    assert quamina.matches_for_event(json.dumps({"a": long}).encode()) == []
    assert e.match_ids({"data": {"a": "yes"}}) == ["s"]
    assert e.cel_errors == {"regexp_budget": 1}


def test_errors_of_cel_are_counted_and_warned_of_once_a_minute(engine: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    e = engine()
    # What the index decides is not evaluated.
    e.add({"id": "s", "cel": "data.l[0] + 1 > 1"})
    with caplog.at_level("WARNING"):
        assert e.match_ids({"data": {"l": []}}) == []
        assert e.match_ids({"data": {"l": ["x"]}}) == []
    (message,) = caplog.messages
    assert message.startswith("subscription 's': CEL error index_out_of_range: ")
    assert [(each.subscription_id, each.errors) for each in e.cel_errors.worst] == [("s", 2)]
    assert e.cel_errors == {"index_out_of_range": 1, "no_such_overload": 1}


def test_numbers_past_64_bits_are_refused_where_they_are_given(engine: Any) -> None:
    with pytest.raises(ConfigError, match="cache_size: expected at most"):
        engine(cache_size=2**63)
    with pytest.raises(ConfigError, match=r"limits\.evaluation_timeout_us: expected an integer from 1 to"):
        Limits(evaluation_timeout_us=2**62)
    with pytest.raises(ValueError, match="threads: expected at most"):
        engine().match_batch([b"{}"], threads=2**63)


@pytest.mark.parametrize("way", ["match_ids", "match_count", "matches_any"])
def test_a_method_of_an_engine_belongs_to_it_whoever_holds_it(
    engine: MakeEngine, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = engine()
    e.add(PAID)
    ask = getattr(e, way)
    copied = copy.deepcopy({"engine": e, "ask": ask})
    pickled = pickle.loads(pickle.dumps(ask))
    assert ask(PAID_EVENT) == copied["ask"](PAID_EVENT) == pickled(PAID_EVENT)
    copied["engine"].remove("paid")
    assert ask(PAID_EVENT)
    assert not copied["ask"](PAID_EVENT)
    held = weakref.ref(e)
    del e
    assert held() is not None
    # Who watches an engine that is there already puts something in the place of a method of the class.
    monkeypatch.setattr(Engine, way, lambda _, event: ("instead", event))
    assert getattr(held(), way)(PAID_EVENT) == ("instead", PAID_EVENT)


@pytest.mark.parametrize(("way", "expected"), [("match_ids", ["paid"]), ("match_count", 1), ("matches_any", True)])
def test_an_event_is_asked_about_by_position_and_by_name(engine: MakeEngine, way: str, expected: object) -> None:
    e = engine()
    e.add({**PAID, "tenant": "t", "collection": "c"})
    ask = getattr(e, way)
    assert ask(PAID_EVENT, "t", "c") == expected
    assert ask(event=PAID_EVENT, tenant="t", collection="c") == expected
    assert [match.subscription_id for match in e.match(event=PAID_EVENT, collection="c", tenant="t")] == ["paid"]
    assert not ask(PAID_EVENT, tenant="u", collection="c")
