"""An array of events matches what its events match one by one, whatever buffers it is made of."""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import streamer
from streamer import Engine, EventError, Ignored
from streamer.core import arrow
from streamer.errors import shortened
from streamer.events.reading import IgnoredEvent
from tests.conformance.table import load_all, load_known_failures
from tests.generators import agreeing_event, agreeing_subscription, random_text
from tests.parts import in_seeds

PARTS = 4
FAILURES = {(failure.file, failure.name) for failure in load_known_failures()}
CASES = [
    case
    for case in load_all()
    if case.event is not None and case.subscription_error is None and (case.file, case.name) not in FAILURES
]

COLUMNS = {
    "matches": [("row", pa.int64()), *((name, pa.string()) for name in arrow.MATCHES[1:4]), ("certain", pa.bool_())],
    "events": [(name, pa.string()) for name in arrow.EVENTS],
    "rejected": [("row", pa.int64()), ("code", pa.string()), ("detail", pa.string()), ("position", pa.int64())],
    "ignored": [("row", pa.int64()), ("reason", pa.string())],
}
SCHEMAS = {name: pa.schema(columns) for name, columns in COLUMNS.items()}


def check(
    engine: Engine,
    array: Any,
    texts: Sequence[bytes | None],
    tenant: str | None = None,
    collection: str | None = None,
    **options: Any,
) -> streamer.ArrowMatches:
    """Raise AssertionError where an array of *texts* does not match what they match."""
    found = engine.match_arrow(array, tenant, collection, **options)
    for name, schema in SCHEMAS.items():
        batch = getattr(found, name)
        batch.validate(full=True)
        assert batch.schema == schema
    matches: list[set[tuple[Any, ...]]] = [set() for _ in texts]
    rejected, ignored = iter(found.rejected.to_pylist()), iter(found.ignored.to_pylist())
    rows = found.matches.column("row").to_pylist()
    assert rows == sorted(rows)
    for match in found.matches.to_pylist():
        one = (match["subscription_id"], match["gateway_id"], match["transition"], match["certain"])
        assert one not in matches[match["row"]]
        matches[match["row"]].add(one)
    assert found.events.num_rows == len(texts)
    for row, (text, event) in enumerate(zip(texts, found.events.to_pylist(), strict=True)):
        expected = alone(engine, text, tenant, collection)
        if isinstance(expected, EventError):
            detail = (f"{shortened(expected.place)}: " if expected.place else "") + expected.reason
            assert next(rejected) == {"row": row, "code": expected.code.value, "detail": detail, "position": expected.offset}
            assert matches[row] == set()
            assert set(event.values()) == {None}
        elif isinstance(expected, Ignored):
            assert next(ignored) == {"row": row, "reason": expected.value}
            assert matches[row] == set()
            assert set(event.values()) == {None}
        else:
            assert matches[row] == expected
            assert text is not None
            assert event == named(engine, text, tenant, collection)
    assert next(rejected, None) is None
    assert next(ignored, None) is None
    located = engine.locate_arrow(array, tenant, collection, **options)
    if engine._options.validation == "full":
        assert located == (found.events, found.rejected)
    return found


def alone(
    engine: Engine, text: bytes | None, tenant: str | None, collection: str | None
) -> set[tuple[Any, ...]] | Ignored | EventError:
    """What an event matches by itself."""
    try:
        found = engine.match(text, tenant, collection)
    except EventError as error:
        return error
    if found.ignored is not None:
        return Ignored(found.ignored)
    return {(match.subscription_id, match.gateway_id, match.transition, match.certain) for match in found}


def named(engine: Engine, text: bytes, tenant: str | None, collection: str | None) -> dict[str, str | None] | Any:
    """What an event is called, by the reference."""
    try:
        event = engine._options.read(text, tenant, collection)
    except (EventError, IgnoredEvent):
        # Lazily more is accepted, and what is found then is not said.
        assert engine._options.validation == "lazy"
        return Anything()
    event_id = None if event.id is None else str(event.id)
    return {"event_id": event_id, "tenant": event.tenant, "collection": event.collection, "type": event.type}


class Anything:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _parts() -> Iterator[Any]:
    """Yield each validation with each part: the first is quick, and each of the next two is slow with one validation alone."""
    for part in range(PARTS):
        for at, validation in enumerate(("full", "lazy")):
            mark = pytest.mark.slow if part % 2 != at and part < 3 else pytest.mark.integration
            yield pytest.param(validation, part, marks=[mark] if part else [])


@pytest.mark.later_on_the_reference
@pytest.mark.parametrize(("validation", "part"), list(_parts()))
def test_the_events_of_the_table_match_what_they_match_alone(backend: str, validation: str, part: int) -> None:
    # The reference matches an array event by event, and checks each in full under both.
    for case in CASES[part :: PARTS if backend == "native" else 4 * PARTS]:
        if validation not in case.validation:
            continue
        engine = Engine(
            layout=case.layout,
            default_tenant=case.default_tenant,
            topic_dialect=case.topic_dialect,
            validation=validation,  # type: ignore[arg-type]
            limits=case.limits,
            soft_delete=case.soft_delete,
        )
        for subscription in case.subscriptions:
            engine.add(subscription)
        try:
            check(engine, pa.array([case.event], pa.binary()), [case.event], case.tenant, case.collection)
        except AssertionError as error:
            error.add_note(case.id)
            raise


def random_events(rng: random.Random, count: int) -> Iterator[bytes | None]:
    for number in range(count):
        event = agreeing_event(rng)
        if rng.random() < 0.7:
            event["id"] = rng.choice([number, f"event-{number}", "é\n", -number, 2**64 - 1])
        text = random_text(rng, event)
        match rng.randrange(20):
            case 0:
                yield None
            case 1:
                yield b""
            case 2:
                yield text[: rng.randrange(len(text))]
            case 3:
                yield text.replace(b"a", b"\xff", 1)
            case 4:
                yield b'{"tenant": [], "data": {}}'
            case _:
                yield text


def laid_out(rng: random.Random, texts: list[bytes | None], kind: Any) -> Any:
    """An array of the texts, perhaps a slice of one, perhaps in chunks."""
    before, after = rng.choice([0, 0, 1, 7, 9]), rng.choice([0, 3])
    whole = pa.array([b"{}", None, b"x"] * 3 + texts + [b"y"] * after, kind)[9 - before :]
    array = whole[before : before + len(texts)]
    if rng.random() < 0.5:
        return array
    cuts = sorted(rng.choices(range(len(texts) + 1), k=rng.choice([0, 1, 3])))
    chunks = [array[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(texts)], strict=True)]
    return pa.chunked_array(chunks, kind)


@pytest.mark.later_on_the_reference
@in_seeds(4, 24)
def test_random_events_match_what_they_match_alone(backend: str, seed: int) -> None:
    rng = random.Random(seed)
    engine = Engine(validation=rng.choice(["full", "lazy"]), soft_delete=rng.choice([None, "a"]))
    engine.add_many(agreeing_subscription(rng, f"s{n}") for n in range(40))
    count = 700 if backend == "native" else 60
    texts = list(random_events(rng, count))
    kind = rng.choice([pa.binary(), pa.large_binary()])
    check(engine, laid_out(rng, texts, kind), texts, threads=rng.choice([1, 2, 5]))
    readable = [text for text in texts if text is None or is_utf8(text)]
    kind = rng.choice([pa.string(), pa.large_string()])
    strings = [None if text is None else text.decode() for text in readable]
    check(engine, pa.array(strings, kind)[3:], readable[3:], threads=2)


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


EVENT = b'{"id": "e1", "tenant": "acme", "collection": "orders", "type": "insert", "data": {"a": 1}}'
SUBSCRIPTION = {"id": "s", "gateway_id": "g", "tenant": "*", "filters": [{"field": "a", "op": "==", "value": 1}]}


@pytest.fixture
def filled(engine: Callable[..., Engine]) -> Engine:
    made = engine()
    made.add(SUBSCRIPTION)
    return made


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view()]
)
def test_every_kind_of_text_is_read(filled: Engine, kind: Any) -> None:
    texts = [EVENT, None, b"", EVENT[:-1]]
    strings = [None if text is None else text.decode() for text in texts]
    check(filled, pa.array(strings, kind), texts)
    check(filled, pa.array([], kind), [])
    check(filled, pa.chunked_array([], kind), [])
    check(filled, pa.array([None] * 3, kind), [None] * 3)


def test_a_dictionary_json_nulls_and_whatever_exports_itself_is_read(filled: Engine) -> None:
    text = EVENT.decode()
    check(filled, pa.array([text, text, None, "x"]).dictionary_encode(), [EVENT, EVENT, None, b"x"])
    check(filled, pa.nulls(2), [None, None])
    check(filled, pa.ExtensionArray.from_storage(pa.json_(), pa.array([text])), [EVENT])

    class Exports:
        def __init__(self, array: Any) -> None:
            self.array = array

        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return self.array.__arrow_c_array__(requested_schema)

    class Streams:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return pa.chunked_array([[text], [], [None]], pa.string()).__arrow_c_stream__(requested_schema)

    check(filled, Exports(pa.array([None, text])[1:]), [EVENT])
    check(filled, Streams(), [EVENT, None])


@pytest.mark.parametrize(
    "given",
    [
        [EVENT],
        EVENT,
        None,
        pa.array([1]),
        pa.array([[b""]]),
        pa.array([b""], pa.binary(0)),
    ],
)
def test_anything_else_is_a_type_error(filled: Engine, given: Any) -> None:
    for ask in (filled.match_arrow, filled.locate_arrow):
        with pytest.raises(TypeError, match=r"events are (a|an|one) "):
            ask(given)


def test_arguments_win_and_are_checked(filled: Engine) -> None:
    array = pa.array([EVENT])
    check(filled, array, [EVENT], tenant="other", collection="more")
    check(filled, array, [EVENT], tenant="*")
    with pytest.raises(EventError):
        filled.match_arrow(array, tenant="\ud800")
    for threads in (0, -1, 2**63):
        with pytest.raises(ValueError, match="threads"):
            filled.match_arrow(array, threads=threads)
    with pytest.raises(TypeError):
        filled.match_arrow(array, threads=True)


@pytest.mark.later_on_the_reference
@pytest.mark.parametrize("threads", [1, 4])
def test_the_first_event_with_which_there_are_enough_matches_is_the_last(filled: Engine, threads: int) -> None:
    """What is left is what has no row in `events`; together it is the same as at once, and each event is counted once."""
    texts = [b'{"collection": "c", "data": {"n": %d}}' % (n % 3) for n in range(1000)] + [b"{", None]
    whole = filled.match_arrow(pa.chunked_array([pa.array(texts[:300]), pa.array(texts[300:])]))
    each = [whole.matches.column("row").to_pylist().count(row) for row in range(len(texts))]
    counted = filled.stats().events
    for most in (1, 7, 100, 10**6):
        rows, start = pa.array(texts), 0
        while start < len(texts):
            found = filled.match_arrow(rows.slice(start), threads=threads, max_matches=most)
            taken = found.events.num_rows
            assert sum(each[start : start + taken]) == found.matches.num_rows
            is_last = start + taken == len(texts)
            assert sum(each[start : start + taken]) >= most or is_last
            assert sum(each[start : start + taken - 1]) < most
            assert found.events == whole.events.slice(start, taken)
            assert [row + start for row in found.rejected.column("row").to_pylist()] == [
                row for row in whole.rejected.column("row").to_pylist() if start <= row < start + taken
            ]
            start += taken
        counted += len(texts)
        assert filled.stats().events == counted


def test_what_names_an_event_is_what_its_layout_says(engine: Callable[..., Engine]) -> None:
    def ids(layout: Any, *events: str, **options: Any) -> list[str | None]:
        made = engine(**({"format": layout} if isinstance(layout, str) else {"layout": layout}), **options)
        return list(made.match_arrow(pa.array(events)).events.column("event_id").to_pylist())

    change = [
        '{"id": "x"}',
        '{"id": 7}',
        '{"id": -0}',
        '{"id": 18446744073709551615}',
        '{"id": null}',
        "{}",
        '{"id": "\\u00e9\\n"}',
    ]
    expected = ["x", "7", "0", "18446744073709551615", None, None, "é\n"]
    assert ids("change", *change) == expected
    assert ids("change", *change, validation="lazy") == expected
    parts = '"tenant": "t", "collection": "c", "type": "insert", "topic": "", "data": {}, "before": null, "unknown": null'
    after = f'{{{parts}, "id": "late"}}'
    assert ids("change", after, validation="lazy") == ["late"]
    assert ids("document", '{"id": "x"}') == [None]
    assert ids("cloudevents", '{"id": "x"}') == ["x"]
    assert ids({"preset": "change", "id": ["/key/id", "/id"]}, '{"id": 1, "key": {"id": 2}}', '{"id": 1}') == ["2", "1"]
    assert ids({"preset": "change", "id": {"constant": "all"}}, "{}", "[]") == ["all", None]
    assert ids({"preset": "change", "id": {"constant": 5}}, "{}", validation="lazy") == ["5"]


def test_a_column_past_the_limit_of_its_offsets_is_wide(filled: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.add({"id": "t" * 9, "tenant": "*"})
    texts = [EVENT, b"x", b"[]", EVENT]
    array = pa.array(texts)
    plain = filled.match_arrow(array)
    # Of the matches' ids there are 2 * (1 + 9) bytes, of the tenants 2 * 4, of the gateways 2.
    monkeypatch.setattr(arrow, "TEXT_LIMIT", 20)
    assert filled.match_arrow(array).matches.schema == plain.matches.schema
    monkeypatch.setattr(arrow, "TEXT_LIMIT", 19)
    wide = filled.match_arrow(array)
    kinds = {field.name: field.type for field in wide.matches.schema}
    assert kinds["subscription_id"] == pa.large_string()
    assert kinds["gateway_id"] == pa.string()
    assert wide.rejected.schema.field("detail").type == pa.large_string()
    for name in SCHEMAS:
        batch = getattr(wide, name)
        batch.validate(full=True)
        assert batch.to_pylist() == getattr(plain, name).to_pylist()


def made(
    offsets: Sequence[int], data: bytes, length: int, *, offset: int = 0, validity: bytes | None = None, wide: bool = False
) -> Any:
    """An array of buffers that need not be valid."""
    packed = struct.pack(f"={len(offsets)}{'q' if wide else 'i'}", *offsets)
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(packed), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary() if wide else pa.binary(), length, buffers, -1 if validity else 0, offset)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    "offsets",
    [
        [0, 5, 3, 9],
        [0, 3, 6, 10],
        [0, 3, 6, 2**31 - 1],
        [-1, 3, 6, 9],
        [0, -1, 6, 9],
        [0, 3, 6, -(2**31)],
        [9, 0, 0, 0],
        [10, 10, 10, 10],
    ],
)
def test_offsets_that_lead_elsewhere_are_refused(filled: Engine, offsets: list[int], wide: bool) -> None:
    for ask in (filled.match_arrow, filled.locate_arrow):
        with pytest.raises(ValueError, match=r"(?i)offset|row \d ends|data"):
            ask(made(offsets, b"123456789", 3, wide=wide))
    assert filled._core.telemetry().matched == 0
    check(filled, made([0, 3, 3, 9], b"123456789", 3, wide=wide), [b"123", b"", b"456789"])
    check(filled, made([0, 99, 3, 9, -5], b"123456789", 1, offset=2, wide=wide), [b"456789"])


def test_a_change_is_told_as_it_is_of_a_single_event(engine: Callable[..., Engine]) -> None:
    made = engine()
    made.add({"id": "plain", "filters": [{"field": "a", "op": ">", "value": 1}]})
    made.add({"id": "all", "transitions": True, "cel": "data.a > 1"})
    made.add({"id": "looks", "filters": [{"field": "a", "op": "changed"}]})
    texts = [
        json.dumps({"type": kind, "data": {"a": new}, "before": {"a": old}, "unknown": unknowns}).encode()
        for kind in ("insert", "update", "delete")
        for new in (1, 2)
        for old in (1, 2)
        for unknowns in ([], ["/before/a"], ["/data"])
    ]
    found = check(made, pa.array(texts), texts)
    assert {"enter", "stay", "leave", None} <= set(found.matches.column("transition").to_pylist())
    assert set(found.matches.column("certain").to_pylist()) == {True, False}


def test_each_row_is_counted_once_and_located_rows_are_not(filled: Engine) -> None:
    texts = [EVENT, None, b"", EVENT.replace(b"1}", b"2}"), None]
    filled.locate_arrow(pa.array(texts))
    filled.match_arrow(pa.array(texts))
    told = filled._core.telemetry()
    assert (told.matched, told.unmatched, told.matches) == (1, 1, 1)
    assert {reason: count for reason, count in told.ignored.items() if count} == {"null": 2, "empty": 1}
    assert not any(told.rejected.values())


def test_without_pyarrow_the_error_names_the_extra(filled: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"streamer-engine\[arrow\]"):
        filled.match_arrow(b"")
