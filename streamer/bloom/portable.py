"""Can an event match anything of a collection at all? A Bloom filter that answers the same in every process.

    keys of the subscriptions   data.status = "paid",  data.status = "open",  event.data.tags any leaf "vip"
    event                       {"data": {"status": "sent", "tags": ["new"]}}       carries none of them  →  NO
    event                       {"data": {"status": "paid"}}                        carries one           →  MAYBE

Contract (semantics.md section 9): *zero false negatives*. For every subscription that matches an event, certainly or not, the
filter answers MAYBE for that event; a NO means that no keyed subscription matches, and nothing else may be concluded. So a key
must come from a value that a match cannot do without, and from the value, never from its spelling. A wrong key loses a match
without a trace:

>>> from streamer.bloom.portable import PortableBloomFilter
>>> wrong = PortableBloomFilter(10)
>>> wrong.add(b"data.amount = 1.0")      # the subscription's spelling: {"field": "amount", "op": "==", "value": 1.0}
False
>>> b"data.amount = 1" in wrong          # the event says {"data": {"amount": 1}}, which is equal, and is lost
False

`streamer.subscriptions.keys` makes the right ones: there `1`, `1.0` and `10e-1` are one key.

Invariant: bits are only ever set. A filter may therefore be shared between an old state of the engine and a new one, and be asked
while it is added to: whoever asks it for an older state hears MAYBE more often, never NO wrongly. A removed key stays until the
filter is rebuilt.

Cost: 1 to 2 µs and 14 bits a key at an error rate of 0.1 %. Rejected: `pybloom_live.ScalableBloomFilter`, which asks each of its
filters in turn; a full filter is rebuilt at twice the size instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence, Set
from enum import Enum
from typing import Any, NoReturn, Self, final

import mmh3
from bitarray import bitarray
from pybloom_live import BloomFilter

from streamer.model import Event
from streamer.subscriptions.keys import Key, Place, event_keys


@final
class Answer(Enum):
    """What a filter can say of an event. There is no YES."""

    NO = "no"
    MAYBE = "maybe"

    def __bool__(self) -> NoReturn:
        raise TypeError("an Answer is neither true nor false; compare it with Answer.NO or Answer.MAYBE")


@final
class PortableBloomFilter(BloomFilter):  # type: ignore[misc]  # pybloom_live has no types
    """A `pybloom_live.BloomFilter` over bytes whose hash is MurmurHash3 x64-128, as every language has it.

    With *h1* and *h2* the two little-endian 64-bit halves of the hash of a key with seed 0, the key sets in slice *i*
    the bit `(h1 + i * h2) mod bits_per_slice`, computed without overflow. File format and sizes are those of pybloom_live.

    Args:
        capacity: number of keys it can hold; `add` raises IndexError past it.
        error_rate: share of foreign keys for which it says MAYBE when full.
    """

    def _setup(self, error_rate: float, num_slices: int, bits_per_slice: int, capacity: int, count: int) -> None:
        super()._setup(error_rate, num_slices, bits_per_slice, capacity, count)
        self.make_hashes = self._offsets
        self.hashfn = mmh3.mmh3_x64_128

    def _offsets(self, key: bytes) -> Iterator[int]:
        size = self.bits_per_slice
        low, high = mmh3.mmh3_x64_128_utupledigest(key, 0)
        offset, step = low % size, high % size
        for _ in range(self.num_slices):
            yield offset
            offset = (offset + step) % size

    # The inherited pickling and copy() go back to the built-in hash, under which every key that was added is missing.

    def __reduce__(self) -> tuple[Any, ...]:
        header = (self.error_rate, self.num_slices, self.bits_per_slice, self.capacity, self.count)
        return type(self)._restore, (header, self.bitarray.tobytes())

    @classmethod
    def _restore(cls, header: tuple[float, int, int, int, int], bits: bytes) -> Self:
        restored = cls.__new__(cls)
        restored._setup(*header)
        restored.bitarray = bitarray(endian="little")
        restored.bitarray.frombytes(bits)
        del restored.bitarray[restored.num_bits :]
        return restored

    def copy(self) -> Self:
        """Return an independent filter with the same keys."""
        restore, arguments = self.__reduce__()
        copied: Self = restore(*arguments)
        return copied

    __copy__ = copy

    def to_bytes(self) -> bytes:
        """Return what `tofile` writes."""
        header = struct.pack(self.FILE_FMT, self.error_rate, self.num_slices, self.bits_per_slice, self.capacity, self.count)
        return bytes(header + self.bitarray.tobytes())


@final
class CollectionFilter:
    """Phase 1 of the reference: guards the keyed subscriptions of one (tenant, collection).

    Grown, never shrunk: `including` shares the bits with the filter it came from. Writers take turns; asking needs no lock.
    """

    #: For each key. An event asks several, so its own rate is higher.
    ERROR_RATE = 0.001
    SMALLEST = 16

    __slots__ = ("_bits", "places")

    def __init__(self, bits: PortableBloomFilter, places: frozenset[Place]) -> None:
        self._bits = bits
        #: Where an event is asked for its values; always a superset of those that the guarded keys name.
        self.places = places

    @classmethod
    def build(cls, keys: Iterable[Key]) -> CollectionFilter:
        """Build a filter of these keys, with room for as many again."""
        distinct = frozenset(keys)
        empty = cls(PortableBloomFilter(max(cls.SMALLEST, 2 * len(distinct)), cls.ERROR_RATE), frozenset())
        filled = empty.including(distinct)
        assert filled is not None, "a filter holds what it was sized for"
        return filled

    def including(self, keys: Set[Key]) -> CollectionFilter | None:
        """Return a filter that also guards *keys*; None where there is no room for them."""
        if len(self._bits) + len(keys) > self._bits.capacity:
            return None
        for key in keys:
            self._bits.add(key.to_bytes())
        places = {key.place for key in keys}
        return self if places <= self.places else CollectionFilter(self._bits, self.places | places)

    def keys_of(self, sides: Sequence[Event]) -> frozenset[Key] | None:
        """Return the keys that an event carries where the guarded ones stand; None where a hole may hide one.

        Args:
            sides: the event and, where it has one, its old side, which decides whether a document stopped matching.
        """
        carried: set[Key] = set()
        for side in sides:
            keys = event_keys(side, self.places)
            if keys is None:
                return None
            carried |= keys
        return frozenset(carried)

    def ask(self, carried: frozenset[Key] | None) -> Answer:
        """Tell whether any guarded subscription can match an event that carries these keys, as `keys_of` returns them."""
        if carried is None or any(key.to_bytes() in self._bits for key in carried):
            return Answer.MAYBE
        return Answer.NO

    def __repr__(self) -> str:
        return f"<CollectionFilter: {len(self._bits)} keys at {len(self.places)} places>"
