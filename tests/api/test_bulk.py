"""Many subscriptions at once: all or nothing, every error told."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer import (
    BulkSubscriptionError,
    CelError,
    ConfigError,
    DuplicateSubscriptionError,
    Engine,
    Limits,
    PatternError,
    Subscription,
)

MakeEngine = Callable[..., Engine]

MIXED: list[Any] = [
    {"id": "good"},
    {"id": "no operator", "filters": [{"field": "a", "op": "=~", "value": 1}]},
    {"id": "held"},
    Subscription(id="no cel", cel="data.a +"),
    b'{"id": "no json"',
    {"id": "good", "topic": "a"},
    {"id": "no pattern", "pattern": {"a": {}}},
    '{"id": "also good"}',
]
FILTER_OF_ALL = {"field": "a", "op": "!=", "value": 1}
BAD = [(1, "no operator"), (2, "held"), (3, "no cel"), (4, None), (5, "good"), (6, "no pattern")]


@pytest.fixture
def holding(engine: MakeEngine) -> Engine:
    e = engine()
    e.add({"id": "held", "filters": [{"field": "a", "op": "==", "value": 1}]})
    return e


def test_all_or_nothing_tells_every_bad_one(holding: Engine) -> None:
    with pytest.raises(BulkSubscriptionError) as raised:
        holding.add_many(MIXED)
    errors = raised.value.errors
    assert [(error.index, error.subscription_id) for error in errors] == BAD
    assert [type(errors[at]) for at in (1, 2, 4, 5)] == [
        DuplicateSubscriptionError,
        CelError,
        DuplicateSubscriptionError,
        PatternError,
    ]
    assert [error.place for error in errors] == ["filters[0].op", "id", "cel", "", "id", "pattern.a"]
    assert all(error.reason for error in errors)
    assert list(holding) == ["held"]


def test_skip_adds_the_good_and_returns_the_bad(holding: Engine) -> None:
    changes = holding.add_many(MIXED, on_error="skip")
    assert changes.added == ("good", "also good")
    assert [(error.index, error.subscription_id) for error in changes.errors] == BAD
    assert holding.match_ids({"data": {"a": 1}}) != []
    assert list(holding) == ["held", "good", "also good"]


def test_what_would_be_judged_for_every_event_can_be_refused(engine: MakeEngine) -> None:
    e = engine(limits=Limits(allow_unindexed=False))
    keyed = {"id": "keyed", "filters": [{"field": "a", "op": "==", "value": 1}], "cel": "data.b > 1"}
    bad: list[Any] = [{"id": "all"}, {"id": "cel", "cel": "data.a + 1 == 2"}, {"id": "no", "filters": [FILTER_OF_ALL]}]
    bad.append({"id": "any word", "topic": "*"})
    changes = e.add_many([keyed, *bad], on_error="skip")
    assert changes.added == ("keyed",)
    assert [(error.subscription_id, error.index) for error in changes.errors] == [
        ("all", 1),
        ("cel", 2),
        ("no", 3),
        ("any word", 4),
    ]
    assert all("allow_unindexed" in error.reason for error in changes.errors)
    with pytest.raises(ConfigError):
        Limits(allow_unindexed=1)  # type: ignore[arg-type]


def test_replace_puts_many_in_place(holding: Engine) -> None:
    changes = holding.add_many([{"id": "new"}, {"id": "held"}], replace=True)
    assert (changes.added, changes.replaced) == (("new",), ("held",))
    assert holding.match({}).sorted().ids() == ["held", "new"]


def test_an_id_twice_in_one_call_is_an_error_with_replace_too(holding: Engine) -> None:
    with pytest.raises(BulkSubscriptionError) as raised:
        holding.add_many([{"id": "x"}, {"id": "y"}, {"id": "x"}], replace=True)
    assert [(e.index, e.subscription_id) for e in raised.value.errors] == [(2, "x")]
    assert len(holding) == 1


def test_an_unknown_on_error_is_refused(holding: Engine) -> None:
    with pytest.raises(ValueError, match="on_error"):
        holding.add_many([], on_error="ignore")  # type: ignore[arg-type]


def test_an_iterator_that_fails_adds_nothing(holding: Engine) -> None:
    def failing() -> Iterator[Any]:
        yield {"id": "new"}
        raise OSError("the source broke off")

    with pytest.raises(OSError, match="broke off"):
        holding.add_many(failing())
    assert list(holding) == ["held"]


def test_apply_makes_the_engine_hold_exactly_this(holding: Engine) -> None:
    holding.add_many([{"id": "same", "cel": "data.a == 1"}, {"id": "gone"}, {"id": "also gone"}])
    changes = holding.apply([{"id": "new"}, {"id": "held"}, Subscription(id="same", cel="data.a == 1")])
    assert changes.added == ("new",)
    assert changes.replaced == ("held",)
    assert changes.unchanged == ("same",)
    assert changes.removed == ("gone", "also gone")
    assert set(holding) == {"new", "held", "same"}
    assert not holding.apply(holding.subscriptions())


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), ("1", 1), ([1, 2], [1]), ({"a": 1}, {"b": 1}), (None, False)])
def test_apply_sees_that_a_value_is_another_one(engine: MakeEngine, old: Any, new: Any) -> None:
    def holding_value(value: Any) -> Any:
        return {"id": "s", "filters": [{"field": "a", "op": "==", "value": value}], "labels": {"v": value}}

    e = engine()
    e.add(holding_value(old))
    assert e.apply([holding_value(old)]).unchanged == ("s",)
    assert e.apply([holding_value(new)]).replaced == ("s",)


def test_apply_sees_that_a_field_has_another_root(engine: MakeEngine) -> None:
    e = engine()
    e.add({"id": "s", "filters": [{"field": "a", "op": "==", "value": 1}]})
    assert e.apply([{"id": "s", "filters": [{"field": "a", "op": "==", "value": 1, "root": "data"}]}]).unchanged == ("s",)
    assert e.apply([{"id": "s", "filters": [{"field": "a", "op": "==", "value": 1, "root": "envelope"}]}]).replaced == ("s",)
    assert e.match_ids({"data": {}, "a": 1}) == ["s"]


def test_apply_is_all_or_nothing(holding: Engine) -> None:
    with pytest.raises(BulkSubscriptionError):
        holding.apply([{"id": "new"}, {"id": "bad", "cel": "("}])
    assert list(holding) == ["held"]


def test_applying_nothing_empties_the_engine(holding: Engine) -> None:
    assert holding.apply([]).removed == ("held",)
    assert len(holding) == 0
    assert holding.match_ids({"data": {"a": 1}}) == []


LINES = b'{"id": "a"}\n\n{"id": "b", "cel": "("}\r\n{"id": "c"}\nnot json\n{"id": "d"}'


@pytest.mark.parametrize("kind", ["path", "str path", "bytes", "file", "gzip"])
def test_subscriptions_come_from_json_lines(engine: MakeEngine, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "subs.jsonl"
    text = b"\n".join(json.dumps({"id": f"s{n}"}).encode() for n in range(100))
    path.write_bytes(gzip.compress(text) if kind == "gzip" else text)
    e = engine()
    source: Any = {"path": path, "str path": str(path), "bytes": text, "file": io.BytesIO(text), "gzip": path}[kind]
    assert e.add_jsonl(source).added == tuple(f"s{n}" for n in range(100))


def test_errors_of_json_lines_have_their_line(engine: MakeEngine) -> None:
    e = engine()
    with pytest.raises(BulkSubscriptionError) as raised:
        e.add_jsonl(LINES)
    assert [(error.index, error.subscription_id) for error in raised.value.errors] == [(2, "b"), (4, None)]
    assert "[4]" in str(raised.value)
    assert len(e) == 0
    changes = e.add_jsonl(LINES, on_error="skip")
    assert changes.added == ("a", "c", "d")
    assert [error.index for error in changes.errors] == [2, 4]


def test_a_line_that_is_too_long_is_a_bad_subscription(engine: MakeEngine) -> None:
    e = engine(limits=Limits(max_event_bytes=100))
    lines = b'{"id": "a"}\n{"id": "%s"}\n{"id": "b"}' % (b"x" * 200)
    changes = e.add_jsonl(lines, on_error="skip")
    assert changes.added == ("a", "b")
    assert [error.index for error in changes.errors] == [1]
    assert "longer" in changes.errors[0].reason
