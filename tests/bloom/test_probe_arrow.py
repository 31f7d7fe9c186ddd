"""A shipped filter over Arrow arrays says of each row what it says of that event alone, natively and in plain Python."""

from __future__ import annotations

import copy
import json
import pickle
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streamer import Engine, EventError, LeaseError
from streamer.bloom import Answer, ShippedFilter
from streamer.subscriptions.keys import KINDS
from tests.bloom.test_no_false_negatives import LAYOUTS, random_event, random_subscription
from tests.parts import in_seeds

pa = pytest.importorskip("pyarrow")

ON_C = {"collection": "c"}


def load(e: Engine, collection: str | None = "c", **options: Any) -> ShippedFilter:
    return ShippedFilter.load(e.bloom.export("default", collection, **options))


def alone(guard: ShippedFilter, event: bytes | None) -> bool:
    if event is None:
        return True
    try:
        return guard.ask(event) is Answer.MAYBE
    except EventError:
        return True


@pytest.fixture
def e(engine: Any) -> Engine:
    made: Engine = engine()
    made.add_many({"id": f"s{n}", **ON_C, "filters": [{"field": f"f{n % 3}", "op": "==", "value": n}]} for n in range(300))
    return made


@pytest.mark.later_on_the_reference
@in_seeds(3, 16)
def test_rows_are_answered_as_events_are(engine: Any, seed: int) -> None:
    rng = random.Random(seed)
    layout = rng.choice(LAYOUTS)
    e: Engine = engine(layout=layout)
    # What nothing can be ruled out for would answer MAYBE to all.
    made = [random_subscription(rng, f"s{n}") for n in range(300)]
    e.add_many(made)
    e.apply(rng.sample([each for each in made if e.plan(each.id).access_keys], 12))
    guard = load(e)
    assert not guard.always
    rows: list[bytes | None] = [json.dumps(random_event(rng)).encode() for _ in range(1000)]
    rows += [None, b"", b"{", b"[]", b"\xff", b'{"collection": "c", "data": {"a": 1e400}}', rows[0][:-1] if rows[0] else b""]
    rng.shuffle(rows)
    answers = guard.probe_arrow(pa.array(rows, pa.binary()))
    assert answers.null_count == 0
    assert answers.to_pylist() == [alone(guard, row) for row in rows]
    assert answers.false_count > 10


#: For each kind of key a condition, an event that carries it, and others that do not.
BY_KIND: list[tuple[dict[str, Any], str, Any, list[Any]]] = [
    ({"op": "==", "value": 'sa"id\\\n\u0001é\x7f'}, "equal", 'sa"id\\\n\u0001é\x7f', ["said", None, ["said"], {}]),
    ({"op": "in", "value": [1.5e-7, 2**63, -0.0, True]}, "equal", 1.5e-7, [2.5, "1.5e-7", 2**63 + 2**12, False]),
    ({"op": "in", "value": [1e22, 1e16, 1.5e20]}, "equal", 1e22, [1e21, 1e15, 1.5e19]),
    ({"op": ">", "value": 100}, "range48", 101, [99, -1, 0, "101", [101], 99.5]),
    ({"op": "<=", "value": -1e-300}, "range56", -1, [0, 1, 1e300]),
    ({"op": "starts_with", "value": "straße-9"}, "prefix8", "straße-99", ["straße-", "strasse-9", 7]),
    ({"op": "ends_with", "value": "ß😀"}, "suffix2", "aß😀", ["😀", "s😀", ""]),
    ({"op": "contains", "value": "späß"}, "gram", "ein späßchen", ["ein spass", "sp", 7]),
    ({"op": "contains", "value": 1.0}, "element", [0, "1", 1], [[0, "1", True, [1]], 1, []]),
]
#: What the matchers of patterns ask for.
BY_MATCHER: list[tuple[Any, str, Any, list[Any]]] = [
    ({"equals-ignore-case": "STRAẞE"}, "fold", "straße", ["strasse", 7, "STRASSE"]),
    ({"prefix": {"equals-ignore-case": "KÉ"}}, "iprefix2", "\u212aéx", ["k", "ke", "xké"]),
    ({"suffix": {"equals-ignore-case": "ΣΑΣ"}}, "isuffix2", "xσας", ["σ", "αx"]),
    ({"wildcard": "*abc*"}, "gram", ["x", "zabcz"], ["ab", "acb"]),
    ({"numeric": [">=", 1000, "<", 1001]}, "range40", 1000.5, [999, 1003, 1e6]),
    ({"cidr": "10.1.2.0/23"}, "net4-16", "10.1.3.9", ["10.2.3.9", "010.1.3.9", "::ffff:10.1.3.9", "x"]),
    ({"cidr": "2001:db8::/33"}, "net6-32", "2001:DB8::7", ["2001:db9::7", "10.1.1.1", "2001:db8::7%eth0"]),
]
BY_TOPIC = [
    ("orders.*.paid", "words1", "orders.7.paid", ["order.7.paid", "", "x.orders"]),
    ("a.b.c.d.e.#", "words4", "a.b.c.d.e", ["a.b.c", "a.b.d.d.e"]),
    ("#.x..", "lastwords3", "7.x..", ["x.", ".x", "a"]),
    ("whole.topic", "equal", "whole.topic", ["whole", "whole.topic.", "#"]),
    ("", "equal", "", ["a", "."]),
]


def _rows(values: list[Any], of: Callable[[Any], dict[str, Any]]) -> list[bytes]:
    return [json.dumps({**ON_C, **of(value)}, ensure_ascii=bool(at % 2)).encode() for at, value in enumerate(values * 2)]


def check(e: Engine, subscription: dict[str, Any], kind: str, rows: list[bytes]) -> None:
    e.add({"id": "s", **ON_C, **subscription})
    guard = load(e, fp_rate=1e-9)
    assert kind in {place.kind for place in guard._places} <= KINDS
    answers = guard.probe_arrow(pa.array(rows, pa.binary())).to_pylist()
    assert answers == [alone(guard, row) for row in rows]
    assert answers[0]
    assert e.match_ids(rows[0]) == ["s"]
    assert not any(answers[1 : len(rows) // 2])


@pytest.mark.parametrize(("condition", "kind", "value", "others"), BY_KIND)
def test_each_kind_of_filter_is_asked_as_alone(engine: Any, condition: Any, kind: str, value: Any, others: list[Any]) -> None:
    rows = _rows([value, *others], lambda value: {"data": {"a": value}})
    check(engine(), {"filters": [{"field": "a", **condition}]}, kind, rows)


@pytest.mark.parametrize(("matcher", "kind", "value", "others"), BY_MATCHER)
def test_each_kind_of_matcher_is_asked_as_alone(engine: Any, matcher: Any, kind: str, value: Any, others: list[Any]) -> None:
    rows = _rows([value, *others], lambda value: {"data": {"a": value}})
    check(engine(), {"pattern": {"data": {"a": [matcher]}}}, kind, rows)


@pytest.mark.parametrize(("topic", "kind", "value", "others"), BY_TOPIC)
def test_each_kind_of_topic_is_asked_as_alone(engine: Any, topic: str, kind: str, value: str, others: list[str]) -> None:
    check(engine(), {"topic": topic}, kind, _rows([value, *others], lambda value: {"topic": value}))


def test_both_sides_and_unknown_values_are_asked(e: Engine) -> None:
    e.add({"id": "told", **ON_C, "transitions": True, "filters": [{"field": "f1", "op": "==", "value": 10**6}]})
    guard = load(e)
    events: list[dict[str, Any]] = [
        {**ON_C, "type": "update", "data": {"f1": "gone"}, "before": {"f1": 1}},
        {**ON_C, "type": "update", "data": {"f1": "gone"}, "before": {"f1": -1}},
        {**ON_C, "data": {"f1": "x", "f0": "x", "f2": "x"}, "unknown": ["/data/f1"]},
        {**ON_C, "data": {"f1": "x", "f0": "x", "f2": "x"}, "unknown": ["/data/other"]},
    ]
    assert guard.probe_arrow(pa.array(map(json.dumps, events))).to_pylist() == [True, False, True, False]


ROWS = [b'{"collection": "c", "data": {"f1": %d}}' % n for n in (1, -1, 4, -1, -1, 7, -2, 10, 13)]
EXPECTED = [True, False, True, False, False, True, False, True, True]


@pytest.mark.parametrize("kind", ["binary", "large_binary", "string", "large_string"])
def test_all_types_of_rows_whole_sliced_chunked_or_with_nulls(e: Engine, kind: str) -> None:
    guard = load(e)
    array = pa.array(ROWS, getattr(pa, kind)())
    assert guard.probe_arrow(array).to_pylist() == EXPECTED
    assert guard.probe_arrow(array[3:8]).to_pylist() == EXPECTED[3:8]
    assert guard.probe_arrow(array[9:]).to_pylist() == []
    chunked = pa.chunked_array([array[:4], array[4:4], array[4:]])
    assert guard.probe_arrow(chunked).to_pylist() == EXPECTED
    assert guard.probe_arrow(pa.chunked_array([], array.type)).to_pylist() == []
    holed = pa.array([row if at % 3 else None for at, row in enumerate(ROWS)], array.type)
    assert guard.probe_arrow(holed[1:]).to_pylist() == [at % 3 == 0 or EXPECTED[at] for at in range(1, 9)]
    # What lies behind a null may be anything.
    _, offsets, data = array.buffers()
    hidden = pa.Array.from_buffers(array.type, 9, [pa.py_buffer(b"\x00\x00"), offsets, data])
    assert guard.probe_arrow(hidden).to_pylist() == [True] * 9


def test_what_speaks_the_c_interface_is_taken(e: Engine) -> None:
    class Exports:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return pa.array(ROWS, pa.binary()).__arrow_c_array__(requested_schema)

    assert load(e).probe_arrow(Exports()).to_pylist() == EXPECTED


@pytest.mark.parametrize("events", [[b"{}"], pa.array([1]), pa.array([{"a": 1}]), pa.array(["a"]).dictionary_encode()])
def test_other_arrays_are_refused(e: Engine, events: Any) -> None:
    with pytest.raises(TypeError, match=r"^events is an array of"):
        load(e).probe_arrow(events)


def test_arguments_win_over_events(e: Engine) -> None:
    array = pa.array([b'{"data": {"f1": -1}}', b'{"collection": "c", "data": {"f1": -1}}'])
    guard = load(e)
    assert guard.probe_arrow(array).to_pylist() == [True, False]
    assert guard.probe_arrow(array, collection="c").to_pylist() == [False, False]
    assert guard.probe_arrow(array, tenant="other").to_pylist() == [True, True]


def test_a_filter_that_always_passes_passes_all(e: Engine) -> None:
    e.add({"id": "all"})
    assert load(e).probe_arrow(pa.array([*ROWS, None])).to_pylist() == [True] * 10


def test_past_its_lease_it_is_refused(e: Engine) -> None:
    data = e.bloom.export("default", "c", lease=timedelta(minutes=5))
    clock = ShippedFilter.load(data).lease_end.timestamp() - 1
    guard = ShippedFilter.load(data, clock=lambda: clock)
    assert guard.probe_arrow(pa.array(ROWS)).to_pylist() == EXPECTED
    clock += 1
    with pytest.raises(LeaseError):
        guard.probe_arrow(pa.array(ROWS))


def test_it_travels_after_it_was_asked(e: Engine) -> None:
    guard = load(e)
    guard.probe_arrow(pa.array(ROWS))
    for twin in (pickle.loads(pickle.dumps(guard)), copy.deepcopy(guard), copy.copy(guard)):
        assert twin.probe_arrow(pa.array(ROWS)).to_pylist() == EXPECTED


@pytest.mark.later_on_the_reference
def test_large_arrays_are_asked_block_by_block(e: Engine, backend: str) -> None:
    rng = random.Random(3)
    values = [rng.randrange(-300, 300) for _ in range(20_000 if backend == "native" else 4_000)]
    rows = [b'{"collection": "c", "data": {"f1": %d, "pad": "%s"}}' % (n, b"x" * rng.choice([0, 9, 30_000])) for n in values[:60]]
    rows += [b'{"collection": "c", "data": {"f1": %d}}' % n for n in values[60:]]
    guard = load(e, fp_rate=1e-6)
    assert guard.probe_arrow(pa.array(rows)).to_pylist() == [n >= 0 and n % 3 == 1 for n in values]


def test_an_array_that_does_not_fit_its_data_is_refused(e: Engine) -> None:
    native = pytest.importorskip("streamer._native")
    guard = load(e)
    assert guard._bits is not None
    twin = guard._make_native(guard._bits)
    assert isinstance(twin, native.ShippedFilter)

    def words(*numbers: int) -> bytes:
        return b"".join(number.to_bytes(8, "little") for number in numbers)

    for offsets, wide, data in (
        (words(8, 17), True, b"12345678"),
        (words(3, 1), True, b"12345678"),
        (words(0, 2**64 - 1), True, b""),
        (b"abc", False, b""),
    ):
        with pytest.raises(ValueError, match=r"fit|size"):
            twin.ask_rows(offsets, wide, data, None, 0, None, None)
    with pytest.raises(ValueError, match="fit"):
        twin.ask_rows(bytes(16), True, b"", b"\xff", 8, None, None)
