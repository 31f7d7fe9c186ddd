"""The native core reads Arrow's buffers where they lie, and makes no Python object for a row or a match."""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
import time
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import streamer
from streamer import Engine
from streamer.core import arrow
from tests.generators import agreeing_event, agreeing_subscription, random_text
from tests.tools.hooks import hooks

EVENT = b'{"id": "e1", "collection": "orders", "data": {"a": 1}}'


@pytest.fixture
def filled(backend: str) -> Engine:
    engine = Engine()
    engine.add_many({"id": f"s{n}", "filters": [{"field": "a", "op": "==", "value": 1}]} for n in range(10))
    return engine


def read(engine: Engine, *arrays: pa.Array, threads: int = 1) -> tuple[int, int] | None:
    """The addresses between which the core read events while it matched."""
    core: Any = engine._core
    found: arrow.Columns = core.match_columns(arrow.lend(arrays), None, None, threads, arrow.TEXT_LIMIT)
    return found.addresses


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_string()])
def test_events_are_read_at_the_addresses_of_the_arrays_buffers(filled: Engine, kind: pa.DataType) -> None:
    array = pa.array([EVENT.decode()] * 1000, kind)
    data = array.buffers()[2].address
    assert read(filled, array) == (data, data + 1000 * len(EVENT))
    assert read(filled, array[3:700], threads=2) == (data + 3 * len(EVENT), data + 700 * len(EVENT))
    assert read(filled, array[5:6], array[900:]) == (data + 5 * len(EVENT), data + 1000 * len(EVENT))
    assert read(filled, array[:0]) is None
    located = filled._core.locate_columns(arrow.lend([array]), None, None, 1, arrow.TEXT_LIMIT)  # type: ignore[attr-defined]
    assert located.addresses == (data, data + 1000 * len(EVENT))


def test_the_facade_hands_over_the_buffers_that_it_was_given(filled: Engine) -> None:
    array = pa.chunked_array([[EVENT, None], [EVENT]], pa.binary())
    lent = arrow.lend(arrow.read_arrays(array))
    given = [chunk.buffers()[2].address for chunk in array.chunks]
    assert [chunk.data.address for chunk in lent] == given


@pytest.mark.parametrize(
    "chunk",
    [
        (None, b"\0" * 12, b"123456789", 0, 3, False),
        (None, b"\0" * 16, b"123456789", 1, 3, False),
        (None, b"\0" * 16, b"123456789", 0, 3, True),
        (None, b"\0" * 7, b"", 0, 1, False),
        (None, None, b"1", 0, 1, False),
        (None, b"\0" * 4 + b"\1\0\0\0", None, 0, 1, False),
        (b"\xff", b"\0" * 40, b"", 0, 9, False),
        (b"", b"\0" * 40, b"", 0, 9, False),
        (None, b"\0" * 40, b"", 2**63, 9, False),
        (None, b"\0" * 40, b"", 2**64 - 1, 2**64 - 1, False),
        (None, b"\0" * 40, b"", 0, 2**62, True),
        (None, memoryview(b"\0" * 80)[::2], b"", 0, 1, False),
    ],
)
def test_buffers_that_are_too_short_are_refused(filled: Engine, chunk: tuple[Any, ...]) -> None:
    core: Any = filled._core
    for ask in (core.match_columns, core.locate_columns):
        with pytest.raises(ValueError, match=r"Arrow"):
            ask([chunk], None, None, 2, arrow.TEXT_LIMIT)
    assert filled._core.telemetry().matched == 0


def test_no_python_object_is_made_for_a_row_or_a_match(filled: Engine) -> None:
    array = pa.array([EVENT, b"no JSON", None] * 2000)
    filled.match_arrow(array)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, sys.getallocatedblocks())

    gc.collect()
    before = sys.getallocatedblocks()
    # Every function of Python that runs meanwhile looks.
    sys.setprofile(lambda *_: look())
    try:
        found = filled.match_arrow(array)
    finally:
        sys.setprofile(None)
    look()
    assert found.matches.num_rows == 20_000
    assert most - before < 500


def test_threads_make_no_difference(backend: str) -> None:
    rng = random.Random(4)
    engine = Engine()
    engine.add_many(agreeing_subscription(rng, f"s{n}") for n in range(40))
    texts = [random_text(rng, agreeing_event(rng)) if n % 50 else None for n in range(5000)]
    array = pa.chunked_array([texts[:1], [], texts[1:3000], texts[3000:]], pa.binary())
    alone = engine.match_arrow(array)
    for threads in (2, 3, 64):
        assert engine.match_arrow(array, threads=threads) == alone


@pytest.fixture
def slow(backend: str) -> tuple[Engine, pa.Array]:
    """An engine and an array that takes it minutes."""
    engine = Engine()
    expression = "data.a.all(x, data.a.all(y, data.a.all(z, x + y + z < 1000)))"
    engine.add_many({"id": f"s{n}", "cel": f"{expression} && data.b != {n}"} for n in range(200))
    event = b'{"data": {"a": [%s], "b": 1000}}' % b",".join(b"%d" % n for n in range(10))
    return engine, pa.array([event] * 20_000)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_interrupt_ends_a_long_match(slow: tuple[Engine, pa.Array], threads: int) -> None:
    engine, array = slow
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.match_arrow(array, threads=threads)
    timer.join()
    assert time.monotonic() - began < 20
    assert engine.match_arrow(array[:1]).matches.num_rows == 200


def test_a_match_sees_one_state_while_others_write(filled: Engine) -> None:
    array = pa.array([EVENT] * 3000)
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            filled.add_many({"id": f"t{n}"} for n in range(7))
            filled.remove_many(ids=[f"t{n}" for n in range(7)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            rows = filled.match_arrow(array, threads=2).matches.column("row").to_pylist()
            counts = {rows.count(row) for row in (0, 1500, 2999)}
            assert counts in ({10}, {17})
            assert len(rows) in (30_000, 51_000)
            assert all(one <= other for one, other in pairwise(rows))
    finally:
        is_over.set()
        writer.join()


def test_the_host_hears_of_errors_of_cel(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine()
    engine.add({"id": "bad", "cel": "data.a.all(x, x / 0 == 1)"})
    with caplog.at_level("DEBUG"):
        engine.match_arrow(pa.array([b'{"data": {"a": [1]}}'] * 600), threads=2)
    assert sum(engine.cel_errors.values()) == 600
    assert "bad" in caplog.text


def test_a_panic_is_an_internal_error_and_the_engine_goes_on(filled: Engine) -> None:
    with pytest.raises(streamer.InternalError):
        hooks(filled).panic()
    assert filled.match_arrow(pa.array([EVENT])).matches.num_rows == 10
