"""Ship a filter as bytes: a producer queries it without an engine, and does not send events that no subscription wants.

```
offset    bytes
0         8    magic, "STRMBLM\\n"
8         2    version of the format, little-endian: 1
10        4    length of the header, little-endian
14        n    header: UTF-8 JSON, see docs/bloom.md
14 + n    m    bits, as PortableBloomFilter has them: slice after slice, little-endian
          32   SHA-256 of everything before
```

Contract: the one of portable.py, for the subscriptions that existed when the export began and still exist. The filter does not
contain later additions and replacements. So it has a lease, and raises an error after its end. An event of another tenant or
collection gets MAYBE. The checksum detects damage before any content is used. It is not a signature: if you do not trust the
sender, add one.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, final

from streamer import _backend
from streamer.bloom import rows
from streamer.bloom.answer import Answer
from streamer.bloom.guard import carried_keys
from streamer.bloom.portable import PortableBloomFilter
from streamer.bloom.sizing import key_fp_rate, portable_capacity
from streamer.bloom.state import FilterState
from streamer.cdc.changes import read_events
from streamer.errors import LeaseError, ShippedFilterError, StreamerError
from streamer.events.layout import EventLayout
from streamer.events.reading import IgnoredEvent, as_before
from streamer.model import Event, Limits
from streamer.subscriptions.atoms import Mode, Path, Root
from streamer.subscriptions.keys import ELEMENT, GRAMS, KINDS, Place

if TYPE_CHECKING:
    import pyarrow as pa

    from streamer import _native

MAGIC: Final = b"STRMBLM\n"
FORMAT: Final = 1
HASH: Final = "mmh3-x64-128"
#: The most slices that are accepted. A filter with the lowest rate has 30; each costs time for every key that is looked up.
MOST_SLICES: Final = 64
#: The longest lease, so that every reader can represent its end. A longer lease would be pointless.
LONGEST_LEASE: Final = timedelta(days=36_500)
_PREFIX: Final = struct.Struct("<8sHI")
_CHECKSUM: Final = 32
#: The average number of keys to look up for an event at places of these kinds; it is 1 at all others.
_PROBES: Final = {GRAMS: 20, ELEMENT: 4}


@final
@dataclass(frozen=True, slots=True)
class Gathered:
    """The keys of some partitions of a core, at one moment.

    Attributes:
        count: the number of keys.
        places: the places of an event whose values are looked up.
        unkeyed: the number of subscriptions without a key.
        transitions: whether any subscription reports events that stop matching.
        unknown_passes: whether an event with unknown values always passes. In such an event, an error next to an unknown
            evaluates to unknown. But after CEL was rewritten to another condition, as the native evaluator does, errors cannot
            be recognised.
        fill: sets the bits of all keys.
    """

    count: int
    places: frozenset[Place]
    unkeyed: int
    transitions: bool
    unknown_passes: bool
    fill: Callable[[PortableBloomFilter], object]


class Source(Protocol):
    """The source of a filter's keys; see `streamer.core.protocol.Core`."""

    def filters(self) -> Sequence[FilterState]: ...

    def gather_keys(self, partitions: Sequence[tuple[str, str]]) -> Gathered: ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """The layout of events, the quality of the filter, and the length of its lease.

    Raises:
        TypeError: the lease is not a `timedelta`, or the rate is not a number.
        ValueError: the lease is not positive or is more than a century, or the rate is not between 0 and 1.
    """

    layout: EventLayout
    default_tenant: str | None
    soft_delete: str | None
    limits: Limits
    fp_rate: float
    lease: timedelta

    def __post_init__(self) -> None:
        if not isinstance(self.lease, timedelta):
            raise TypeError(f"lease is a datetime.timedelta, not {type(self.lease).__name__}")
        if isinstance(self.fp_rate, bool) or not isinstance(self.fp_rate, int | float):
            raise TypeError(f"fp_rate is a number, not {type(self.fp_rate).__name__}")
        if self.lease <= timedelta():
            raise ValueError(f"expected a lease above zero, not {self.lease}")
        if self.lease > LONGEST_LEASE:
            raise ValueError(f"a lease is {LONGEST_LEASE.days:,} days at most, not {self.lease}")
        if not 1e-9 <= self.fp_rate < 1:
            raise ValueError(f"a rate is a share from 1e-9 to less than 1, not {self.fp_rate}")


def ship(
    source: Source, shipment: Shipment, tenant: str, collection: str | None, *, clock: Callable[[], float] = time.time
) -> bytes:
    """Return the filter for events of one tenant and collection; with None, for events that have no collection.

    Raises:
        TypeError: a name is not a string.
        ValueError: a name is `"*"`, which events cannot have, or UTF-8 cannot encode it.
    """
    _check_name("tenant", tenant)
    if collection is not None:
        _check_name("collection", collection)
    made = clock()
    partitions = [(t, c) for t in (tenant, "*") for c in ((collection, "*") if collection is not None else ("*",))]
    versions = [[*state.name, state.version] for state in source.filters() if state.name in partitions]
    keys = source.gather_keys(partitions)
    rate = key_fp_rate(shipment.fp_rate, sum(_PROBES.get(place.kind, 1) for place in keys.places))
    always = keys.unkeyed > 0
    # A filter that always returns MAYBE needs no bits.
    bits = PortableBloomFilter(1 if always else portable_capacity(max(keys.count, 1), rate), rate)
    if not always:
        keys.fill(bits)
    header = {
        "tenant": tenant,
        "collection": collection,
        "versions": sorted(versions),
        "made_ms": int(made * 1000),
        "lease_end_ms": int((made + shipment.lease.total_seconds()) * 1000),
        "layout": shipment.layout.to_dict(),
        "default_tenant": shipment.default_tenant,
        "soft_delete": shipment.soft_delete,
        # If the soft-delete flag hides a document, subscriptions may match its state before the change.
        "transitions": keys.transitions or shipment.soft_delete is not None,
        "holes_pass": keys.unknown_passes,
        "max_depth": shipment.limits.max_depth,
        "max_event_bytes": shipment.limits.max_event_bytes,
        "always": always,
        "places": [] if always else sorted(_places_to_json(keys.places)),
        "hash": HASH,
        "error_rate": bits.error_rate,
        "slices": bits.num_slices,
        "bits_per_slice": bits.bits_per_slice,
        "capacity": bits.capacity,
        "count": 0 if always else keys.count,
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    body = _PREFIX.pack(MAGIC, FORMAT, len(text)) + text + (b"" if always else bits.bitarray.tobytes())
    return bytes(body + hashlib.sha256(body).digest())


@final
class ShippedFilter:
    """A filter from `Engine.bloom.export`. It needs neither an engine nor the native core, and is thread-safe.

    Attributes:
        tenant: tenant of the events that it covers.
        collection: collection of the events that it covers; None for events without one.
        versions: the engine's filters at the export, each as tenant, collection and version; small collections have none.
        made: time of the export, by the clock of the engine's machine.
        lease_end: the time from which on the filter raises `LeaseError`.
        always: whether the answer is MAYBE for every event, because some subscription has no key.
    """

    def __init__(self, header: Mapping[str, Any], bits: bytes, clock: Callable[[], float]) -> None:
        self.tenant: Final[str] = _of_type(header["tenant"], str)
        self.collection: Final[str | None] = _of_type(header["collection"], str, type(None))
        self.versions: Final = tuple((str(tenant), str(name), int(version)) for tenant, name, version in header["versions"])
        self.made: Final = datetime.fromtimestamp(header["made_ms"] / 1000, UTC)
        self.lease_end: Final = datetime.fromtimestamp(header["lease_end_ms"] / 1000, UTC)
        self.always: Final[bool] = _of_type(header["always"], bool)
        self._lease_end: Final[float] = header["lease_end_ms"] / 1000
        self._layout: Final = EventLayout.from_dict(header["layout"])
        self._default_tenant: Final[str | None] = _of_type(header["default_tenant"], str, type(None))
        self._transitions: Final[bool] = _of_type(header["transitions"], bool)
        self._unknown_passes: Final[bool] = _of_type(header["holes_pass"], bool)
        self._limits: Final = Limits(max_depth=header["max_depth"], max_event_bytes=header["max_event_bytes"])
        self._places: Final = frozenset(places_from_json(header["places"]))
        self._clock: Final = clock
        if header["hash"] != HASH:
            raise ValueError(f"hash {header['hash']!r} is not known here")
        slices, size = _of_type(header["slices"], int), _of_type(header["bits_per_slice"], int)
        if not 1 <= slices <= MOST_SLICES or size < 1 or (not self.always and len(bits) != -(-slices * size // 8)):
            raise ValueError(f"{len(bits)} bytes are not {slices} slices of {size} bits")
        error_rate = _of_type(header["error_rate"], float)
        if not 0 < error_rate < 1:
            raise ValueError(f"{error_rate} is not a rate")
        shape = (error_rate, slices, size, _of_type(header["capacity"], int), _of_type(header["count"], int))
        self._bits: Final = None if self.always else PortableBloomFilter._restore(shape, bits)
        self._native: _native.ShippedFilter | None = None

    @classmethod
    def load(cls, data: bytes, *, clock: Callable[[], float] = time.time) -> Self:
        """Return the filter in the bytes that `export` returned.

        Args:
            clock: returns seconds since the epoch, to check the lease.

        Raises:
            ShippedFilterError: the bytes are damaged, cut off, not a filter, or of a format that this version cannot read.
            LeaseError: the lease has expired.
            TypeError: *data* is not bytes.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a filter is bytes, as `export` made them, not {type(data).__name__}")
        data = bytes(data)
        if len(data) < _PREFIX.size + _CHECKSUM or not data.startswith(MAGIC):
            raise ShippedFilterError("this is not an exported filter, or only its beginning")
        body, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
        if hashlib.sha256(body).digest() != checksum:
            raise ShippedFilterError("damaged or cut off: the checksum differs")
        _, version, length = _PREFIX.unpack_from(body)
        if version != FORMAT:
            raise ShippedFilterError(f"version {version} of the format; this one reads version {FORMAT}")
        text, bits = body[_PREFIX.size : _PREFIX.size + length], body[_PREFIX.size + length :]
        try:
            loaded = cls(json.loads(text), bits, clock)
        except (KeyError, TypeError, ValueError, OverflowError, OSError, RecursionError, StreamerError) as error:
            raise ShippedFilterError(f"a header that cannot be: {type(error).__name__}: {error}") from None
        loaded._check_lease()
        return loaded

    @property
    def expired(self) -> bool:
        """Whether the lease has expired."""
        return self._clock() >= self._lease_end

    def ask(
        self,
        event: bytes | bytearray | memoryview | str | Mapping[str, Any],
        tenant: str | None = None,
        collection: str | None = None,
    ) -> Answer:
        """Return whether any subscription can match an event. You need not send an event with the answer NO.

        Args:
            event: a JSON object as UTF-8 bytes, as text, or as a mapping.
            tenant: overrides the event's own tenant.
            collection: overrides the event's own collection.

        Raises:
            LeaseError: the lease has expired; get a new filter, and send all events until you have one.
            EventError: the event cannot be read; the engine would reject it, too.
        """
        self._check_lease()
        if self._bits is None:
            return Answer.MAYBE
        try:
            changes = read_events(
                event,
                layout=self._layout,
                default_tenant=self._default_tenant,
                limits=self._limits,
                tenant=tenant,
                collection=collection,
            )
        except IgnoredEvent:
            # Let it pass, so that the engine counts it as ignored.
            return Answer.MAYBE
        return Answer.MAYBE if any(self._may_want(read, self._bits) for read in changes) else Answer.NO

    def _may_want(self, read: Event, bits: PortableBloomFilter) -> bool:
        if (read.tenant, read.collection) != (self.tenant, self.collection):
            return True
        if read.unknown and self._unknown_passes:
            return True
        has_old_side = self._transitions and read.tells_of_before
        carried = carried_keys([read, as_before(read, self._layout)] if has_old_side else [read], self._places)
        return carried is None or any(key.to_bytes() in bits for key in carried)

    def probe_arrow(self, events: Any, tenant: str | None = None, collection: str | None = None) -> pa.BooleanArray:
        """Return for each event of an Arrow array whether any subscription can match it; the native core is used if installed.

        Args:
            events: a pyarrow Array or ChunkedArray of binary, large_binary, string or large_string, or anything with
                `__arrow_c_array__` or `__arrow_c_stream__`; each row is JSON text.
            tenant: overrides the events' own tenant.
            collection: overrides the events' own collection.

        Returns:
            A row for each event, never null: False if `ask` returns NO. Null rows, ignored events and events that cannot be read
            are True, so that the program that matches them can count and report them.

        Raises:
            LeaseError: the lease is over.
            TypeError: *events* is not such an array.
            ModuleNotFoundError: pyarrow is not installed (`pip install 'streamer-engine[arrow]'`).
        """
        self._check_lease()
        if self._bits is None:
            return rows.probe(events, None, None, tenant, collection)
        if self._native is None and _backend.BACKEND == "native":
            self._native = self._make_native(self._bits)
        return rows.probe(events, lambda event: self.ask(event, tenant, collection), self._native, tenant, collection)

    def _make_native(self, bits: PortableBloomFilter) -> _native.ShippedFilter:
        from streamer import _native

        return _native.ShippedFilter(
            json.dumps(self._layout.to_dict()).encode(),
            [(root, mode, names, kind) for root, mode, names, kind in _places_to_json(self._places)],
            bits.bitarray.tobytes(),
            bits.num_slices,
            bits.bits_per_slice,
            default_tenant=self._default_tenant,
            tenant=self.tenant,
            collection=self.collection,
            transitions=self._transitions,
            max_depth=self._limits.max_depth,
            max_event_bytes=self._limits.max_event_bytes,
        )

    def __getstate__(self) -> dict[str, Any]:
        # The native twin is created again on use.
        return self.__dict__ | {"_native": None}

    def _check_lease(self) -> None:
        if self.expired:
            raise LeaseError(f"the lease of this filter ended at {self.lease_end.isoformat()}; export a new one")

    def __repr__(self) -> str:
        return f"<ShippedFilter of {self.tenant!r}, {self.collection!r}: until {self.lease_end.isoformat()}>"


def _check_name(part: str, name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{part} is a string, not {type(name).__name__}")
    if name == "*":
        raise ValueError(f"{part} '*' means every one, and no event has it; export a filter for each")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the {part} contains half of a surrogate pair") from None


def _places_to_json(places: Iterable[Place]) -> list[list[Any]]:
    return [[place.path.root.value, place.mode.value, list(place.path.names), place.kind] for place in places]


def places_from_json(places: Any) -> Iterable[Place]:
    """Yield the places of a header. Raises ValueError for an unknown kind."""
    for root, mode, names, kind in places:
        # Values at a place of an unknown kind cannot be looked up, so matches would be lost.
        if kind not in KINDS:
            raise ValueError(f"keys of kind {kind!r} are not known here")
        yield Place(Path(Root(root), tuple(_of_type(name, str) for name in names)), Mode(mode), kind)


def _of_type(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"a {type(value).__name__} is not allowed there")
    return value
