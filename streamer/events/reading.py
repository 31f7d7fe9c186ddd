"""Read an event through a layout (semantics.md section 1), and return its state before the change (section 7).

An event is read in stages, and an error of an earlier stage hides those of later ones. The stages are: the text
(streamer.events.json), that it is an object, duplicates of envelope members, then the parts in the order of semantics.md
section 1. The check for ignored events runs before the parts are checked. Whether an event is good depends only on the event, the
layout and the limits, except for a tenant that the caller must supply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from streamer.errors import EventCode, EventError, Ignored
from streamer.events import json
from streamer.events.carried import PARTIAL, Record, not_carried
from streamer.events.layout import IGNORE, UNTYPED, Constant, EventLayout, decode_pointer, encode_pointer
from streamer.events.places import covers, is_prefix, resolve, substitute
from streamer.events.records import completed, decoded, duplicate_member, members_of_before, unchanged_unknowns, unknowns
from streamer.events.timestamps import NANOSECONDS, in_range, parse_rfc3339
from streamer.model import INT64_MIN, REST, UINT64_MAX, BeyondFloat64, Event, Limits, Pointer, is_text, type_of

EventSource: TypeAlias = bytes | bytearray | memoryview | str | Mapping[str, Any] | None
"""An event as a user may give it: JSON text, a mapping of what JSON has, or None for one without a value, which is ignored."""

Default = Callable[[Any], Any]


def check_names(tenant: str | None, collection: str | None) -> None:
    """Raise TypeError or EventError if events cannot have one of the names."""
    for part, name in (("tenant", tenant), ("collection", collection)):
        if name is None:
            continue
        if not isinstance(name, str):
            raise TypeError(f"{part} is a string, not {type(name).__name__}")
        if not is_text(name):
            raise EventError(EventCode.LONE_SURROGATE, f"the given {part} contains half of a surrogate pair")


class IgnoredEvent(Exception):
    """An event that cannot match any subscription (semantics.md 1.43); it is not an error."""

    def __init__(self, reason: Ignored) -> None:
        super().__init__(reason.value)
        self.reason = reason


def read_event(
    event: EventSource,
    *,
    layout: EventLayout,
    default_tenant: str | None,
    limits: Limits,
    tenant: str | None = None,
    collection: str | None = None,
    default: Default | None = None,
) -> Event:
    """Return the parts of an event.

    Args:
        event: JSON text, or a mapping of JSON values (and tuples, as lists), which is copied; None for a tombstone.
        default_tenant: the tenant of an event without one; with None, every event must have one.
        tenant: overrides the event's own tenant.
        collection: overrides the event's own collection.
        default: converts other objects in a mapping to JSON values, as in `json.dumps`.

    Raises:
        EventError: the event is invalid; it has the byte offset in a text and the JSON Pointer of the part at fault.
        IgnoredEvent: the event is ignored.
    """
    if isinstance(event, str):
        event = encode(event)
    if (blank := nothing(event, limits)) is not None:
        raise IgnoredEvent(blank)
    document = read_object(event, layout=layout, limits=limits, default=default)
    if document.duplicate is not None:
        raise duplicate_member(*document.duplicate)
    if (reason := _Parts(document, layout, limits.max_depth).ignored()) is not None:
        raise IgnoredEvent(reason)
    if layout.encoded is not None:
        document = decoded(document, layout, limits.max_depth)
    names = members_of_before(document, layout)
    if layout.before_holds == "changed":
        document = completed(document, layout)
    return _Parts(document, layout, limits.max_depth, names).read(default_tenant, tenant, collection)


def nothing(event: EventSource, limits: Limits) -> Ignored | None:
    """Return the reason why there is no event at all: the value of a tombstone, or an empty text. None if there is one."""
    if event is None:
        return Ignored.NULL
    if not isinstance(event, bytes | bytearray | memoryview) or len(event) > limits.max_event_bytes:
        return None
    return {b"": Ignored.EMPTY, b"null": Ignored.NULL}.get(bytes(event).strip(b" \t\r\n"))


def read_object(event: EventSource, *, layout: EventLayout, limits: Limits, default: Default | None = None) -> json.Document:
    """Return an event as a JSON object, with the offsets of the places that a layout names. Raises EventError."""
    if isinstance(event, str):
        event = encode(event)
    if isinstance(event, bytes | bytearray | memoryview):
        document = json.read(bytes(event), max_depth=limits.max_depth, max_bytes=limits.max_event_bytes, watch=_watch(layout))
    else:
        document = json.Document(json_value(event, default=default, limits=limits))
    if not isinstance(document.value, dict):
        raise EventError(
            EventCode.NOT_AN_OBJECT,
            f"an event is a JSON object, not {kind_of(document.value)}",
            offset=document.offsets.get(()),
        )
    return document


def is_bare(event: Event, layout: EventLayout) -> bool:
    """Return whether the layout finds no type, document and collection in the event, which suggests a wrong layout."""
    is_named = any(resolve(event.raw, pointer)[1] is not None for pointer in layout.pointers("collection"))
    return event.type is None and event.data is None and not event.unknown and not is_named


def json_value(value: Any, *, default: Default | None, limits: Limits) -> Any:
    """Return a copy of a Python value, equal to its JSON text after parsing. Raises EventError."""
    return _JsonValues(default, limits).convert(value)


def as_before(event: Event, layout: EventLayout) -> Event:
    """Return the old side of an update: the same event with `data` := `before` and `before` := null, in the raw event too."""
    data_at, before_at = event.data_at, event.before_at
    if data_at is None or before_at is None:
        return replace(event, data=event.before, before=None)
    raw: Any = event.raw
    for pointer in layout.pointers("before"):
        if pointer == before_at or resolve(raw, pointer)[0]:
            raw = substitute(raw, pointer, None)
    raw = substitute(raw, data_at, event.before)
    return replace(
        event, raw=raw, data=event.before, before=None, unknown=tuple(_unknown_before(event.unknown, data_at, before_at))
    )


def _unknown_before(unknown: tuple[Pointer, ...], data_at: Pointer, before_at: Pointer) -> Iterator[Pointer]:
    for pointer in unknown:
        if is_prefix(before_at, pointer):
            yield data_at + pointer[len(before_at) :]
        elif is_prefix(pointer, before_at):
            # The unknown covers the whole of `before`, which is now `data`.
            yield pointer
            if not is_prefix(pointer, data_at):
                yield data_at
        elif not is_prefix(data_at, pointer):
            yield pointer


class _Parts:
    """The parts of one event, each checked for its JSON type."""

    def __init__(
        self, document: json.Document, layout: EventLayout, max_depth: int, names_before: frozenset[str] = frozenset()
    ) -> None:
        self.raw: dict[str, Any] = document.value
        self.names_before = names_before  # the names in `before`, before it was completed
        self.offsets = document.offsets
        self.layout = layout
        self.max_depth = max_depth

    def ignored(self) -> Ignored | None:
        """Return the reason for ignoring the event, or None; other parts of an ignored event are not checked."""
        word = self._find("type")[1]
        if isinstance(word, str) and self.layout.event_type(word) == IGNORE:
            return Ignored.TYPE
        is_bare = all(self._find_in_event(part)[1] is None for part in ("type", "data", "before", "unknown"))
        return Ignored.NO_CHANGE if is_bare and self.layout.no_change == "ignore" else None

    def read(self, default_tenant: str | None, tenant: str | None, collection: str | None) -> Event:
        event_id = self._id()
        tenant = self._name("tenant", tenant)
        if tenant is None:
            tenant = default_tenant
        if tenant is None:
            raise EventError(EventCode.NO_TENANT, "the event has no tenant and the engine no default_tenant")
        collection = self._name("collection", collection)
        event_type = self._type()
        ts_ns = self._timestamp()
        topic = self._string("topic")
        data_at, data = self._document()
        before_at, before = self._object("before")
        document_at = data_at if before is None else before_at
        is_whole = (data is not None or before is not None) and self._has_whole_rows(collection, document_at)
        record = Record(self.raw, event_type, data_at, data, before_at, before, is_whole)
        unknown = (*self._unknown(), *not_carried(self.layout.format, record))
        if self.layout.format == "dms" and event_type == "delete" and before is not None:
            # AWS DMS writes the key in `data` of a delete, and the row in `before-image`.
            data_at, data = None, None
        unknown = (*unknown, *unknowns(self.layout, data_at, data, before_at, before, is_whole))
        data_at = data_at if data_at is not None else self._would_stand("data", unknown)
        before_at = before_at if before_at is not None else self._would_stand("before", unknown)
        has_rows = self.layout.has_rows or (self.layout.format in PARTIAL and self.raw.get("partial") is True and not is_whole)
        lacks_data = has_rows and event_type in ("insert", "update") and data is None
        if lacks_data and data_at is not None and not _overlaps(unknown, data_at):
            unknown = (*unknown, data_at)
        # A delete without `data` has `before` in its place.
        is_completed = self.layout.before_holds == "changed" and (event_type != "delete" or data is not None)
        if is_completed and data_at is not None and before_at is not None and before is not None:
            unknown = (*unknown, *unchanged_unknowns(unknown, data_at, before_at, self.names_before))
        is_partial = self.layout.before_holds == "partial" and before_at is not None
        # Maxwell sometimes writes an update without `old`.
        may_be_untold = is_partial or (self.layout.format == "maxwell" and before_at is not None)
        untold = may_be_untold and event_type == "update" and before is None and not _overlaps(unknown, before_at)
        is_last = is_partial and event_type == "delete" and data is None and not (is_whole and before is not None)
        if before_at is not None and (untold or is_last):
            unknown = (*unknown, before_at if before is None else (*before_at, REST))
        # A delete may have its last known document in `before`, even if it is unknown there.
        is_before = before is not None or not _overlaps(unknown, data_at) or _overlaps(unknown, before_at)
        if event_type == "delete" and data is None and before_at is not None and is_before:
            data_at, data = before_at, before
        envelope_at, envelope, in_envelope = self._envelope(unknown)
        return Event(
            raw=self.raw,
            tenant=tenant,
            id=event_id,
            collection=collection,
            type=event_type,
            ts_ns=ts_ns,
            topic=topic,
            data=data,
            before=before,
            unknown=unknown,
            unknown_parts=self._unknown_parts(unknown),
            data_at=data_at,
            before_at=before_at,
            envelope=envelope,
            envelope_at=envelope_at,
            envelope_unknown=in_envelope,
            untold=untold,
        )

    def _has_whole_rows(self, collection: str | None, document_at: Pointer | None) -> bool:
        """Return whether the layout declares that records of this table have whole rows."""
        layout = self.layout
        if layout.whole_rows is None or layout.format != "debezium":
            return layout.has_whole_rows(collection)
        root = self.raw.get(document_at[0]) if document_at is not None and len(document_at) == 2 else self.raw
        source = root.get("source") if isinstance(root, dict) else None
        source = source if isinstance(source, dict) else {}
        # A database is named only if there are no schemas.
        space = next((source[name] for name in ("schema", "db") if isinstance(source.get(name), str)), None)
        table = next((source[name] for name in ("table", "collection", "table_name") if isinstance(source.get(name), str)), None)
        return layout.has_whole_rows(collection, None if space is None or table is None else f"{space}.{table}")

    def _envelope(self, unknown: tuple[Pointer, ...]) -> tuple[Pointer | None, dict[str, Any] | None, tuple[Pointer, ...]]:
        """Return the place of the record, its members without documents, and the unknown values among these."""
        for at in self.layout.records():
            record = resolve(self.raw, at)[1]
            if not isinstance(record, dict):
                continue
            documents = self.layout.documents_in(at)
            members = {name: value for name, value in record.items() if name not in documents}
            inside = (each for each in unknown if is_prefix(each, at) or (is_prefix(at, each) and each[len(at)] not in documents))
            return at, members, tuple(inside)
        return None, None, ()

    def _find(self, part: str) -> tuple[Pointer | None, Any]:
        """Return the place of the part and its value, or its constant."""
        constant = getattr(self.layout, part)
        return (None, constant.value) if isinstance(constant, Constant) else self._find_in_event(part)

    def _find_in_event(self, part: str) -> tuple[Pointer | None, Any]:
        """Return the place of the part and its value; null counts as missing."""
        for way in self.layout.ways(part):
            parts = [(step, step if isinstance(step, str) else resolve(self.raw, step)[1]) for step in way]
            at = next(step for step in way if not isinstance(step, str))
            if any(value is None for _, value in parts):
                continue
            if len(way) == 1:
                return at, parts[0][1]
            for step, value in parts:
                if not isinstance(step, str) and not isinstance(value, str):
                    raise self._wrong_type(part, step, "made of strings", value)
            return at, "".join(value for _, value in parts)
        return None, None

    def _would_stand(self, part: str, unknown: tuple[Pointer, ...]) -> Pointer | None:
        """Return the place of a missing part: an unknown place, else one that is free, else the first pointer."""
        pointers = self.layout.pointers(part)
        for pointer in pointers:
            if _overlaps(unknown, pointer):
                return pointer
        for pointer in pointers:
            if resolve(self.raw, pointer[:-1])[0]:
                return pointer
        return pointers[0] if pointers else None

    def _id(self) -> str | int | None:
        at, value = self._find("id")
        if value is None or isinstance(value, str) or _is_int(value):
            return value  # type: ignore[no-any-return]
        raise self._wrong_type("id", at, "a string or an integer", value)

    def _string(self, part: str) -> str | None:
        at, value = self._find(part)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong_type(part, at, "a string", value)

    def _name(self, part: str, argument: str | None) -> str | None:
        value = self._string(part)
        if value == "*":
            raise self._error(EventCode.RESERVED_NAME, f"{part} '*' means every one and cannot name one", self._find(part)[0])
        if argument is None:
            return value
        if not isinstance(argument, str):
            raise TypeError(f"{part} is a string, not {type(argument).__name__}")
        if argument == "*":
            raise EventError(EventCode.RESERVED_NAME, f"{part} '*' means every one and cannot name one")
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise EventError(EventCode.LONE_SURROGATE, f"the given {part} contains half of a surrogate pair") from None
        return argument

    def _type(self) -> str | None:
        word = self._string("type")
        if word is None:
            return None
        event_type = self.layout.event_type(word)
        if event_type == UNTYPED:
            return None
        if event_type is None:
            expected = ", ".join(self.layout.type_words)
            raise self._error(EventCode.BAD_VALUE, f"type is one of {expected}, not {_shown(word)}", self._find("type")[0])
        return event_type

    def _timestamp(self) -> int | None:
        at, value = self._find("ts")
        if value is None:
            return None
        try:
            if self.layout.ts_format == "rfc3339":
                if isinstance(value, str):
                    return parse_rfc3339(value)
                raise self._wrong_type("ts", at, "a string", value)
            if _is_int(value):
                return in_range(value * NANOSECONDS[self.layout.ts_format])
        except ValueError as error:
            if self.layout.format == "debezium":
                return None  # Cassandra's connector may write microseconds
            raise self._error(EventCode.BAD_TIMESTAMP, str(error), at) from None
        raise self._wrong_type("ts", at, "an integer", value)

    def _object(self, part: str) -> tuple[Pointer | None, dict[str, Any] | None]:
        at, value = self._find(part)
        if value is None or isinstance(value, dict):
            return at, value
        raise self._wrong_type(part, at, "an object or null", value)

    def _document(self) -> tuple[Pointer | None, dict[str, Any] | None]:
        if self.layout.format == "cloudevents" and not isinstance(self._find("data")[1], dict):
            # The data of a CloudEvent may have any type; only an object is a document.
            return None, None
        return self._object("data")

    def _unknown(self) -> tuple[Pointer, ...]:
        at, value = self._find("unknown")
        if at is None:
            return ()
        if not isinstance(value, list):
            raise self._wrong_type("unknown", at, "a list of JSON Pointers", value)
        pointers = []
        for index, text in enumerate(value):
            place = (*at, str(index))
            if not isinstance(text, str):
                raise self._wrong_type("a member of unknown", place, "a JSON Pointer", text)
            try:
                pointer = decode_pointer(text)
            except ValueError as error:
                raise self._error(EventCode.BAD_POINTER, f"{_shown(text)}: {error}", place) from None
            if len(pointer) > self.max_depth:
                reason = f"a pointer of {len(pointer)} steps, into values deeper than the {self.max_depth} levels of an event"
                raise self._error(EventCode.BAD_POINTER, reason, place)
            pointers.append(pointer)
        return tuple(pointers)

    def _unknown_parts(self, unknown: tuple[Pointer, ...]) -> frozenset[str]:
        if not unknown:
            return frozenset()
        # An event with an unknown tenant or collection could belong to any, so these two are always read as they are.
        return frozenset(
            part
            for part in ("type", "ts", "topic")
            if any(covers(each, pointer, self.raw) for each in unknown for pointer in self.layout.pointers(part))
        )

    def _wrong_type(self, part: str, at: Pointer | None, expected: str, value: Any) -> EventError:
        return self._error(EventCode.WRONG_TYPE, f"{part} is {expected}, not {kind_of(value)}", at)

    def _error(self, code: EventCode, reason: str, at: Pointer | None) -> EventError:
        if at is None:
            return EventError(code, reason)
        # An element of `unknown` has the offset of the list: only the layout's own places are watched.
        offset = self.offsets.get(at, self.offsets.get(at[:-1]))
        return EventError(code, reason, offset=offset, place=encode_pointer(at))


class _JsonValues:
    """Converts a Python value to the value that its JSON text would give, by a loop over an explicit stack."""

    def __init__(self, default: Default | None, limits: Limits) -> None:
        self.default = default
        self.limits = limits
        self.size = 0  # bytes of the compact JSON text so far; also bounds a `dict` that contains one part many times
        self.open: list[_Open] = []

    def convert(self, value: Any) -> Any:
        whole: list[Any] = []
        self.open = [_Open(whole, iter([("", value)]))]
        while self.open:
            container = self.open[-1]
            entry = next(container.rest, None)
            if entry is None:
                self.open.pop()
                continue
            container.name = self._name(entry[0])
            item = self._plain(entry[1])
            if isinstance(item, Mapping | list | tuple):
                item = self._enter(item)
            if isinstance(container.value, dict):
                container.value[container.name] = item
            else:
                container.value.append(item)
        return whole[0]

    def _enter(self, item: Mapping[Any, Any] | list[Any] | tuple[Any, ...]) -> dict[str, Any] | list[Any]:
        if len(self.open) > self.limits.max_depth:
            raise self._error(EventCode.TOO_DEEP, f"nested deeper than {self.limits.max_depth} levels, or in itself")
        self._count(2 + max(len(item) - 1, 0))
        if isinstance(item, Mapping):
            self._count(len(item))
            self.open.append(_Open({}, iter(list(item.items()))))
        else:
            self.open.append(_Open([], ((str(index), element) for index, element in enumerate(tuple(item)))))
        return self.open[-1].value

    def _name(self, name: Any) -> str:
        # An error about an unprintable name has the place of the object that contains it.
        container = self.open[-1]
        if not isinstance(container.value, dict):
            return str(name)
        container.name = None
        if not isinstance(name, str):
            raise self._error(EventCode.BAD_VALUE, f"a member name is a string, not {type_of(name)}")
        return self._text(name)

    def _plain(self, value: Any) -> Any:
        """Return a scalar as its own JSON type, a container as it is, anything else by way of *default*."""
        for _ in range(self.limits.max_depth):
            if value is None or isinstance(value, bool):
                self._count(5 if value is False else 4)
                return value
            # The unbound methods read the value of a subclass (an Enum, for example) as json.dumps does.
            if isinstance(value, str):
                return self._text(value)
            if isinstance(value, int):
                return self._integer(int.__int__(value))
            if isinstance(value, float):
                return self._float(float.__float__(value))
            if isinstance(value, Mapping | list | tuple):
                return value
            if self.default is None:
                expected = "expected a mapping, list, str, int, float, bool or None; default= of the engine converts others"
                raise self._error(EventCode.BAD_VALUE, f"{type_of(value)} is not a JSON type; {expected}")
            try:
                value = self.default(value)
            except Exception as error:
                # The caller's function may raise any exception; the other events of a batch still match.
                raise self._error(EventCode.BAD_VALUE, f"default() refused {type_of(value)}: {error}") from error
        raise self._error(EventCode.TOO_DEEP, "default() does not come to an end")

    def _text(self, value: str) -> str:
        try:
            self._count(len(encode_basestring(value).encode()))
        except UnicodeEncodeError:
            raise self._error(EventCode.BAD_VALUE, "a string with half of a surrogate pair") from None
        return str.__str__(value)

    def _integer(self, value: int) -> int:
        if not INT64_MIN <= value <= UINT64_MAX:
            raise self._error(EventCode.BAD_VALUE, "an integer beyond 64 bits")
        self._count(len(str(value)))
        return value

    def _float(self, value: float) -> float:
        if not math.isfinite(value):
            raise self._error(EventCode.BAD_VALUE, f"{value} is not a JSON number")
        self._count(len(repr(value)))
        return value

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > self.limits.max_event_bytes:
            raise EventError(EventCode.TOO_LONG, f"more than {self.limits.max_event_bytes} bytes as JSON")

    def _error(self, code: EventCode, reason: str) -> EventError:
        place = tuple(container.name for container in self.open[1:] if container.name is not None)
        return EventError(code, reason, place=encode_pointer(place))


@dataclass(slots=True)
class _Open:
    """A container during conversion."""

    value: dict[str, Any] | list[Any]
    rest: Iterator[tuple[Any, Any]]
    name: str | None = None  # the current member's name, or the current element's index


def encode(text: str) -> bytes:
    """Return a text as UTF-8. Raises EventError."""
    try:
        return text.encode()
    except UnicodeEncodeError as bad:
        raise EventError(
            EventCode.LONE_SURROGATE, "a string with half of a surrogate pair", offset=len(text[: bad.start].encode())
        ) from None


@lru_cache(maxsize=64)
def _watch(layout: EventLayout) -> json.Watch:
    """Return the trie of all members that the pointers of the layout name or pass through."""
    trie: dict[str, Any] = {}
    for pointer in layout.all_pointers():
        below = trie
        for token in pointer:
            below = below.setdefault(token, {})
    return trie


def _overlaps(unknown: tuple[Pointer, ...], place: Pointer | None) -> bool:
    return place is not None and any(is_prefix(each, place) or is_prefix(place, each) for each in unknown)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(text: str) -> str:
    """Return a text of the event for an error, quoted and shortened."""
    return encode_basestring(text if len(text) <= 80 else f"{text[:80]}...")


def kind_of(value: Any) -> str:
    """Return the name of a value's JSON type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float | BeyondFloat64):
        return "a number"
    return "a string" if isinstance(value, str) else "an object" if isinstance(value, dict) else "a list"
