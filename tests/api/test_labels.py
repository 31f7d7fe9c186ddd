"""Labels are JSON: what is not is refused when it is added, at its place, however it is added."""

from __future__ import annotations

import datetime
import enum
import types
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine, Subscription
from streamer.errors import BulkSubscriptionError, SubscriptionError
from streamer.model import BeyondFloat64

MakeEngine = Callable[..., Engine]

EVENT: dict[str, Any] = {"collection": "c", "type": "insert", "data": {}}


class Name(str, enum.Enum):  # noqa: UP042 - str() of it is "Name.one"
    one = "1"


class Number(enum.IntEnum):
    two = 2


def nested(depth: int) -> dict[str, Any]:
    """Return labels of *depth* levels."""
    labels: dict[str, Any] = {}
    for _ in range(depth - 1):
        labels = {"a": labels}
    return labels


RING: dict[str, Any] = {"a": []}
RING["a"].append(RING)

BAD: dict[str, tuple[Any, str, str]] = {
    "nan": ({"a": [1, {"b": float("nan")}]}, "labels.a[1].b", "expected a JSON number, not nan"),
    "infinity": ({"a": float("-inf")}, "labels.a", "expected a JSON number, not -inf"),
    "decimal": ({"a": Decimal(1)}, "labels.a", "decimal.Decimal"),
    "bytes": ({"a": b"x"}, "labels.a", "bytes"),
    "set": ({"a": {1}}, "labels.a", "set"),
    "date": ({"a": datetime.date(2026, 1, 1)}, "labels.a", "datetime.date"),
    "object": ({"a": object()}, "labels.a", "object"),
    "complex": ({"a": 1j}, "labels.a", "complex"),
    "ring": (RING, "labels", "nested deeper than 512 levels, or in itself"),
    "deep": (nested(512), "labels", "nested deeper than 512 levels, or in itself"),
    "name": ({"a": {1: 2}}, "labels.a", "expected member names that are strings, not int"),
    "none": ({None: 2}, "labels", "expected member names that are strings, not NoneType"),
    "half": ({"a": "\ud800"}, "labels.a", "a lone surrogate"),
    "half of a name": ({"a": {"\ud800": 1}}, "labels.a", "a lone surrogate"),
    "long": ({"a": ["x" * 1_000_000] * 17}, "labels", "more than 16777216 bytes"),
    "long integer": ({"a": 1 << 67_000_000}, "labels.a", "more than 16777216 bytes"),
    "list": ([1], "labels", "expected an object, not a list"),
}

WAYS: dict[str, Callable[[Engine, Any], Any]] = {
    "add": lambda e, labels: e.add({"id": "s", "labels": labels}),
    "object": lambda e, labels: e.add(Subscription(id="s", labels=labels)),
    "replace": lambda e, labels: e.replace({"id": "s", "labels": labels}),
    "add_many": lambda e, labels: e.add_many([{"id": "good"}, {"id": "s", "labels": labels}]),
    "apply": lambda e, labels: e.apply([types.MappingProxyType({"id": "s", "labels": labels})]),
}


@pytest.mark.parametrize(("labels", "place", "reason"), BAD.values(), ids=BAD)
def test_labels_that_are_not_json_are_refused_at_their_place(engine: MakeEngine, labels: Any, place: str, reason: str) -> None:
    e = engine()
    for name, way in WAYS.items():
        with pytest.raises(SubscriptionError) as caught:
            way(e, labels)
        error = caught.value.errors[0] if isinstance(caught.value, BulkSubscriptionError) else caught.value
        assert (error.subscription_id, error.place) == ("s", place), name
        assert reason in error.reason, name
        assert len(e) == 0, name


@pytest.mark.parametrize(
    "labels",
    ['{"a": NaN}', '{"a": Infinity}', '{"a": "\\ud800"}', "{1: 2}", '{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 2}}', "1", "null"],
)
def test_text_with_labels_that_are_not_json_is_refused(engine: MakeEngine, labels: str) -> None:
    line = f'{{"id": "s", "labels": {labels}}}'
    e = engine()
    with pytest.raises(SubscriptionError):
        e.add(line)
    with pytest.raises(BulkSubscriptionError) as caught:
        e.add_jsonl(b'{"id": "good"}\n' + line.encode())
    assert [error.index for error in caught.value.errors] == [1]
    assert len(e) == 0


@pytest.mark.parametrize("digits", [19, 20, 25, 300, 400, 4300, 4301, 6000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_of_any_size_stays_as_it_is_written(engine: MakeEngine, tmp_path: Path, digits: int, sign: str) -> None:
    literal = f"{sign}{'9' * digits}"
    value = -(10**digits - 1) if sign else 10**digits - 1
    e = engine()
    e.add(f'{{"id": "text", "labels": {{"n": [{literal}]}}}}')
    e.add({"id": "object", "labels": {"n": [value]}})
    expected = value if digits <= 4300 else BeyondFloat64(literal)
    written = f'"labels":{{"n":[{literal}]}}'.encode()
    e.save(tmp_path / "snapshot")
    for each in (e, engine.load(tmp_path / "snapshot")):
        assert [match.labels for match in each.match(EVENT)] == [{"n": [expected]}] * 2
        assert each.match_batch([EVENT]).jsonl().count(written) == 2
        assert not each.apply([f'{{"id": "text", "labels": {{"n": [{literal}]}}}}', {"id": "object", "labels": {"n": [value]}}])


def test_an_integer_elsewhere_is_a_float64_beyond_64_bits(engine: MakeEngine) -> None:
    e = engine()
    e.add(f'{{"id": "s", "filters": [{{"field": "labels", "op": "==", "value": {10**25}}}], "labels": {{}}}}')
    assert e.match_ids({"data": {"labels": 1e25}}) == ["s"]
    subscription = e.get("s")
    assert subscription is not None
    (condition,) = subscription.filters
    assert type(condition.value) is float  # type: ignore[union-attr]


def test_labels_come_back_as_json_has_them(engine: MakeEngine, tmp_path: Path) -> None:
    """Subclasses of what JSON has are that, so that a snapshot says all of it."""
    e = engine()
    given = types.MappingProxyType({Name.one: (Name.one, Number.two, types.MappingProxyType({})), "deep": nested(510)})
    e.add(Subscription(id="s", labels=given))
    labels = e.match(EVENT)[0].labels
    assert labels == {"1": ["1", 2, {}], "deep": nested(510)}
    assert [type(each) for each in labels["1"]] == [str, int, dict]
    e.save(tmp_path / "snapshot")
    assert engine.load(tmp_path / "snapshot").match(EVENT)[0].labels == labels


def test_labels_that_are_held_are_no_longer_the_callers(engine: MakeEngine) -> None:
    labels: dict[str, Any] = {"a": [1], "n": 2**70}
    e = engine()
    e.add({"id": "s", "labels": labels})
    labels["a"].append(2)
    assert e.match(EVENT)[0].labels == {"a": [1], "n": 2**70}
