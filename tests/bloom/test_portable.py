"""The portable filter: pybloom_live's layout, MurmurHash3's bits, and nothing that forgets a key."""

from __future__ import annotations

import copy
import doctest
import io
import math
import pickle
from collections.abc import Callable

import mmh3
import pytest
from pybloom_live import BloomFilter

from streamer.bloom import portable
from streamer.bloom.answer import Answer
from streamer.bloom.portable import PortableBloomFilter

KEYS = [f"key {n}".encode() for n in range(1000)]


@pytest.fixture
def filled() -> PortableBloomFilter:
    made = PortableBloomFilter(len(KEYS), 0.01)
    for key in KEYS:
        made.add(key)
    return made


def _through_file(original: PortableBloomFilter) -> PortableBloomFilter:
    buffer = io.BytesIO()
    original.tofile(buffer)
    buffer.seek(0)
    read: PortableBloomFilter = PortableBloomFilter.fromfile(buffer)
    return read


@pytest.mark.parametrize(
    "duplicate",
    [
        lambda f: pickle.loads(pickle.dumps(f)),
        lambda f: f.copy(),
        copy.copy,
        copy.deepcopy,
        _through_file,
        lambda f: f.union(PortableBloomFilter(len(KEYS), 0.01)),
    ],
    ids=["pickle", "copy()", "copy", "deepcopy", "file", "union"],
)
def test_a_duplicate_still_has_every_key_and_the_hash(
    filled: PortableBloomFilter, duplicate: Callable[[PortableBloomFilter], PortableBloomFilter]
) -> None:
    twin = duplicate(filled)
    assert type(twin) is PortableBloomFilter
    assert all(key in twin for key in KEYS)
    twin.add(b"new")
    filled.add(b"new")
    assert twin.to_bytes()[-twin.num_bits // 8 :] == filled.to_bytes()[-filled.num_bits // 8 :]


def test_a_duplicate_shares_no_bits(filled: PortableBloomFilter) -> None:
    absent = next(key for n in range(1000) if (key := f"absent {n}".encode()) not in filled)
    filled.copy().add(absent)
    assert absent not in filled
    assert len(filled.copy()) == len(filled)


def test_the_built_in_pickling_would_lose_keys(filled: PortableBloomFilter) -> None:
    """Why there is a `__reduce__`: what pybloom_live restores hashes otherwise."""
    state = BloomFilter.__getstate__(filled)
    restored = BloomFilter.__new__(BloomFilter)
    BloomFilter.__setstate__(restored, state)
    assert not all(key in restored for key in KEYS)


def test_the_bits_are_those_that_the_format_says() -> None:
    made = PortableBloomFilter(100, 0.01)
    made.add(b"data.status")
    low, high = mmh3.hash64(b"data.status", seed=0, x64arch=True, signed=False)
    digest = mmh3.mmh3_x64_128_digest(b"data.status", 0)
    assert (low, high) == (int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))
    expected = {i * made.bits_per_slice + (low + i * high) % made.bits_per_slice for i in range(made.num_slices)}
    assert {at for at, bit in enumerate(made.bitarray) if bit} == expected


def test_the_bits_of_a_key_never_change() -> None:
    """Filters are shipped: a bit that moves is a match lost at the other end."""
    made = PortableBloomFilter(10, 0.01)
    made.add(b'["data","value",["status"],"string","paid"]')
    assert made.to_bytes().hex() == GOLDEN


#: error rate, slices, bits a slice, capacity, count; then the bits.
GOLDEN = "7b14ae47e17a843f07000000000000000e000000000000000a000000000000000100000000000000" + "01000800400800400000420000"


def test_the_error_rate_is_what_was_asked_for(filled: PortableBloomFilter) -> None:
    wrong = sum(f"other {n}".encode() in filled for n in range(20_000)) / 20_000
    assert wrong < 0.01 * 1.3
    assert filled.num_bits == pytest.approx(len(KEYS) * -math.log(0.01) / math.log(2) ** 2, rel=0.01)


def test_a_full_filter_refuses_more() -> None:
    made = PortableBloomFilter(10, 0.01)
    with pytest.raises(IndexError):
        list(map(made.add, KEYS))
    assert len(made) == 11  # pybloom_live lets one more in than it says


def test_filling_past_the_capacity_loses_nothing() -> None:
    made = PortableBloomFilter(10, 0.01)
    assert 950 <= made.fill(KEYS) <= 1000 or made.filled > 0.99
    assert all(key in made for key in KEYS)
    assert made.fill(KEYS) == 0


def test_filling_sets_the_bits_that_adding_sets() -> None:
    made = PortableBloomFilter(len(KEYS), 0.01)
    made.fill(KEYS)
    added = PortableBloomFilter(len(KEYS), 0.01)
    for key in KEYS:
        added.add(key)
    assert made.to_bytes() == added.to_bytes()


def test_an_answer_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError):
        bool(Answer.MAYBE)
    assert {answer.name for answer in Answer} == {"NO", "MAYBE"}


def test_the_example_of_a_wrong_key_loses_its_match() -> None:
    result = doctest.testmod(portable)
    assert result.attempted >= 3
    assert result.failed == 0
