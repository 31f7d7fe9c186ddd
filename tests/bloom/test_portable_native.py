"""The native core and the portable filter set and ask the same bits, whoever filled them and however they travelled."""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable, Iterator

import pytest

from streamer.bloom.portable import PortableBloomFilter

native = pytest.importorskip("streamer._native")

MILLION = 1_000_000


def _keys(count: int, seed: int) -> Iterator[bytes]:
    """Keys of every length from nothing to several blocks of the hash."""
    rng = random.Random(seed)
    for number in range(count):
        yield b"%d:%d:" % (seed, number) + rng.randbytes(number % 48)


def _fill(made: PortableBloomFilter, keys: Iterator[bytes]) -> int:
    added: int = native.bloom_fill(made.bitarray, made.num_slices, made.bits_per_slice, keys)
    made.count += added
    return added


@pytest.fixture(scope="module")
def filled() -> PortableBloomFilter:
    """A million keys, filled natively."""
    made = PortableBloomFilter(MILLION, 0.01)
    _fill(made, _keys(MILLION, 1))
    return made


@pytest.mark.slow
def test_keys_set_the_same_bits_of_a_million_here_and_there() -> None:
    plain, filled = PortableBloomFilter(MILLION, 0.01), PortableBloomFilter(MILLION, 0.01)
    _fill(filled, _keys(MILLION // 8, 1))
    for key in _keys(MILLION // 8, 1):
        plain.add(key)
    assert plain.bitarray == filled.bitarray
    assert plain.count == filled.count
    assert plain.to_bytes() == filled.to_bytes()


def _through_file(original: PortableBloomFilter) -> PortableBloomFilter:
    buffer = io.BytesIO(original.to_bytes())
    read: PortableBloomFilter = PortableBloomFilter.fromfile(buffer)
    return read


@pytest.mark.parametrize(
    "travel",
    [lambda made: pickle.loads(pickle.dumps(made)), lambda made: made.copy(), _through_file],
    ids=["pickle", "copy", "file"],
)
def test_what_was_filled_natively_is_whole_wherever_it_went(
    filled: PortableBloomFilter, travel: Callable[[PortableBloomFilter], PortableBloomFilter]
) -> None:
    arrived = travel(filled)
    assert arrived.to_bytes() == filled.to_bytes()
    bits = arrived.bitarray.tobytes()
    for key in _keys(2000, 1):
        assert key in arrived
        assert native.bloom_probe(bits, arrived.num_slices, arrived.bits_per_slice, key)


def test_native_and_portable_answer_alike_for_foreign_keys(filled: PortableBloomFilter) -> None:
    bits = filled.bitarray.tobytes()
    answers = [
        (key in filled, native.bloom_probe(bits, filled.num_slices, filled.bits_per_slice, key)) for key in _keys(MILLION // 5, 2)
    ]
    assert all(one == other for one, other in answers)
    assert 0 < sum(one for one, _ in answers) < 0.012 * len(answers)


def test_any_key_is_enough(filled: PortableBloomFilter) -> None:
    layout = (filled.bitarray.tobytes(), filled.num_slices, filled.bits_per_slice)
    absent = [key for key in _keys(100, 3) if key not in filled]
    assert not native.bloom_probe_any(*layout, absent)
    assert not native.bloom_probe_any(*layout, [])
    assert native.bloom_probe_any(*layout, [*absent, next(_keys(1, 1))])


def test_filling_counts_what_is_new() -> None:
    made = PortableBloomFilter(1000, 0.001)
    assert _fill(made, _keys(500, 1)) == 500
    assert _fill(made, _keys(500, 1)) == 0


def test_a_buffer_that_does_not_fit_is_refused() -> None:
    for bits, slices, size in ((bytes(9), 8, 10), (bytes(1), 0, 8), (bytes(1), 8, 0), (bytes(1), 2**63, 2**63)):
        with pytest.raises(ValueError, match="fewer bits"):
            native.bloom_fill(bytearray(bits), slices, size, [b"key"])
        with pytest.raises(ValueError, match="fewer bits"):
            native.bloom_probe(bits, slices, size, b"key")
    with pytest.raises(BufferError):
        native.bloom_fill(bytes(10), 8, 10, [b"key"])
    with pytest.raises(TypeError):
        native.bloom_fill(bytearray(10), 8, 10, ["a text"])
