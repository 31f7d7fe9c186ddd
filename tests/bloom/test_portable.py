"""The portable filter: pybloom_live's layout, MurmurHash3's bits, and nothing that forgets a key."""

from __future__ import annotations

import copy
import doctest
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import mmh3
import pytest
from pybloom_live import BloomFilter

from streamer.bloom import portable
from streamer.bloom.portable import Answer, CollectionFilter, PortableBloomFilter
from streamer.layout import EventLayout
from streamer.model import Event, Limits
from streamer.reference.events import read_event
from streamer.subscriptions.keys import Key, Place
from streamer.subscriptions.matchers import Equal
from streamer.subscriptions.normal_form import Mode, Path, Root

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


def test_an_answer_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError):
        bool(Answer.MAYBE)
    assert {answer.name for answer in Answer} == {"NO", "MAYBE"}


def _event(**members: object) -> Event:
    return read_event(members, layout=EventLayout(), default_tenant="default", limits=Limits())


def _ask(guard: CollectionFilter, sides: list[Event]) -> Answer:
    return guard.ask(guard.keys_of(sides))


def _key(value: Any, *names: str) -> Key:
    return Key(Place(Path(Root.DATA, names), Mode.VALUE), Equal(value))


@pytest.mark.parametrize("spelled", [1, 1.0])
def test_a_key_is_a_value_not_a_spelling(spelled: object) -> None:
    guard = CollectionFilter.build([_key(spelled, "a")])
    assert _ask(guard, [_event(data={"a": 1})]) is Answer.MAYBE
    assert _ask(guard, [_event(data={"a": 1.0})]) is Answer.MAYBE
    for other in (True, "1", None, 2, [1], {"a": 1}):
        assert _ask(guard, [_event(data={"a": other})]) is Answer.NO
    assert _ask(guard, [_event(data={"b": 1})]) is Answer.NO


@pytest.mark.parametrize(
    ("pointer", "answer"),
    [
        ("/data/a/b", Answer.MAYBE),
        ("/data/a", Answer.MAYBE),
        ("/data", Answer.MAYBE),
        ("", Answer.MAYBE),
        ("/data/a/b/c", Answer.MAYBE),
        ("/data/a/bc", Answer.NO),
        ("/data/x", Answer.NO),
        ("/before/a/b", Answer.NO),
    ],
)
def test_a_hole_that_touches_a_keyed_path_makes_it_maybe(pointer: str, answer: Answer) -> None:
    guard = CollectionFilter.build([_key("x", "a", "b")])
    assert _ask(guard, [_event(data={"a": {"b": "y"}}, unknown=[pointer])]) is answer


def test_either_side_of_an_event_may_carry_the_key() -> None:
    guard = CollectionFilter.build([_key("x", "a")])
    assert _ask(guard, [_event(data={"a": "y"}), _event(data={"a": "x"})]) is Answer.MAYBE
    assert _ask(guard, [_event(data={"a": "y"}), _event(data={"a": "z"})]) is Answer.NO


def test_a_filter_grows_until_it_is_full() -> None:
    guard = CollectionFilter.build([_key("x", "a")])
    at = 0
    while (grown := guard.including({_key(at, "b", str(at))})) is not None:
        guard = grown
        at += 1
    assert at >= CollectionFilter.SMALLEST // 2
    for n in range(at):
        assert _ask(guard, [_event(data={"b": {str(n): n}})]) is Answer.MAYBE
    assert _ask(guard, [_event(data={"a": "x"})]) is Answer.MAYBE


def test_a_subscription_that_can_match_nothing_has_keys_of_nothing() -> None:
    guard = CollectionFilter.build([])
    assert _ask(guard, [_event(data={"a": 1})]) is Answer.NO


def test_the_example_of_a_wrong_key_loses_its_match() -> None:
    result = doctest.testmod(portable)
    assert result.attempted >= 3
    assert result.failed == 0
