"""Handle the peculiarities of change records: JSON in a string, placeholders for missing values, a partial `before`.

A layout names the peculiarities of its source (semantics.md sections 1 and 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from streamer.errors import EventCode, EventError
from streamer.events import connect, extended_json, json
from streamer.events.layout import EventLayout, encode_pointer
from streamer.events.places import is_prefix, resolve, substitute
from streamer.model import Pointer


def decoded(document: json.Document, layout: EventLayout, max_depth: int) -> json.Document:
    """Return the event with `data` and `before` parsed if they are JSON in a string. Raises EventError."""
    value, offsets = document.value, dict(document.offsets)
    duplicates: list[tuple[int | None, Pointer]] = []
    for part in ("data", "before"):
        for pointer in layout.pointers(part):
            _, text = resolve(value, pointer)
            if isinstance(text, str):
                offset = document.offsets.get(pointer)
                try:
                    inner = _decode(part, text, pointer, offset, layout, max_depth - len(pointer))
                except EventError:
                    if layout.format == "cloudevents":
                        break  # its data may be any text, which is no document
                    raise
                if layout.format == "debezium":
                    inner.value = extended(inner.value)
                value = substitute(value, pointer, inner.value)
                # Parts inside have the offset of the string that contains them.
                offsets |= {pointer + below: offset for below in inner.offsets if offset is not None}
                if inner.duplicate is not None:
                    duplicates.append((offset, pointer + inner.duplicate[0]))
                text = inner.value
            elif layout.format == "debezium" and isinstance(text, Mapping):
                schema = document.value.get("schema") if len(pointer) == 2 else None
                value = substitute(value, pointer, typed(text, schema, pointer[-1], layout))
            if text is not None:
                break
    for offset, pointer in sorted(duplicates, key=lambda pair: pair[0] or 0):
        raise duplicate_member(pointer, offset)
    return json.Document(value, offsets)


def typed(row: Mapping[str, Any], schema: Any, name: str, layout: EventLayout) -> Any:
    """Return a row of Debezium with its values as what they mean by the schema next to the payload."""
    columns = connect.columns_of(schema)
    kind = columns.get(name) or (columns.get("after") if name == "before" else None)
    says = _placeholders(layout).says
    made = connect.row(row, connect.struct_of(kind), says)
    return connect.plain({name: scaled(value, row[name], says) for name, value in made.items()})


def scaled(value: Any, written: Any, keep: Callable[[Any], bool], depth: int = 0) -> Any:
    """Return a value that was read by a schema, or without one, with its decimals that have no fixed scale as numbers.

    Such a decimal has its scale in the value. Recursive, as deep as a schema may be.
    """
    if depth > connect.DEEPEST:
        return value
    if isinstance(value, Mapping) and isinstance(written, Mapping):
        if written.keys() == {"scale", "value"}:
            return connect.typed(value, _SCALED, keep=keep) if value == written else value
        return {name: scaled(member, written[name], keep, depth + 1) for name, member in value.items()}
    if isinstance(value, list) and isinstance(written, list):
        return [scaled(each, was, keep, depth + 1) for each, was in zip(value, written, strict=True)]
    return value


_SCALED: Final = {"name": connect.SCALED}


@lru_cache(maxsize=64)
def _placeholders(layout: EventLayout) -> Placeholders:
    return Placeholders(layout)


def extended(document: Any) -> Any:
    """Return a document of MongoDB with its Extended JSON as plain JSON."""
    return connect.plain(extended_json.plain(document))


def duplicate_member(pointer: Pointer, offset: int | None) -> EventError:
    """Return the error for a duplicate member of the envelope."""
    reason = "a member of the envelope stands twice"
    return EventError(EventCode.DUPLICATE_MEMBER, reason, offset=offset, place=encode_pointer(pointer))


def _decode(part: str, text: str, at: Pointer, offset: int | None, layout: EventLayout, max_depth: int) -> json.Document:
    # The string is shorter than the event, so only its depth needs a check.
    try:
        return json.read(text.encode(), max_depth=max_depth, max_bytes=len(text) * 4, watch=_watch_below(layout, at))
    except EventError as error:
        reason = f"the JSON in {part}, at byte {error.offset} of it: {error.reason}"
        raise EventError(error.code, reason, offset=offset, place=encode_pointer(at)) from None


@lru_cache(maxsize=64)
def _watch_below(layout: EventLayout, at: Pointer) -> json.Watch:
    trie: dict[str, Any] = {}
    for pointer in layout.all_pointers():
        if is_prefix(at, pointer):
            below = trie
            for token in pointer[len(at) :]:
                below = below.setdefault(token, {})
    return trie


def completed(document: json.Document, layout: EventLayout) -> json.Document:
    """Return the event with `before` completed by the members of `data` that it lacks."""
    _, data = _place_and_value(document.value, layout, "data")
    before_at, before = _place_and_value(document.value, layout, "before")
    if not isinstance(data, dict) or not isinstance(before, dict):
        return document
    missing = {name: member for name, member in data.items() if name not in before}
    offset = document.offsets.get(before_at)
    added = (
        at
        for at in layout.all_pointers()
        if is_prefix(before_at, at) and at[len(before_at) :][:1] and at[len(before_at)] in missing
    )
    # An added part has the offset of `before`.
    offsets = {at: offset for at in added if offset is not None}
    return json.Document(substitute(document.value, before_at, {**before, **missing}), {**document.offsets, **offsets})


def _place_and_value(value: Any, layout: EventLayout, part: str) -> tuple[Pointer, Any]:
    there = ((pointer, resolve(value, pointer)[1]) for pointer in layout.pointers(part))
    return next((pair for pair in there if pair[1] is not None), ((), None))


def members_of_before(document: json.Document, layout: EventLayout) -> frozenset[str]:
    """Return the names of the members of `before`."""
    before = _place_and_value(document.value, layout, "before")[1]
    return frozenset(before) if isinstance(before, dict) else frozenset()


def unknowns(
    layout: EventLayout,
    data_at: Pointer | None,
    data: dict[str, Any] | None,
    before_at: Pointer | None,
    before: dict[str, Any] | None,
    is_whole: bool,
) -> Iterator[Pointer]:
    """Yield pointers to the unknown values of both documents, by the layout: placeholders, and members that `before` lacks."""
    if layout.unknown_texts:
        for at, document in ((data_at, data), (before_at, before)):
            if at is not None and document is not None:
                yield from (at + below for below in _written_unknown(document, Placeholders(layout)))
    # Images of AWS DMS and Sequin have the changed columns alone; only their deletes can be declared whole.
    is_partial = layout.before_holds == "partial" and (not is_whole or layout.format == "dms")
    if is_partial and before_at is not None and data is not None and before is not None:
        yield from ((*before_at, name) for name in data if name not in before)


def _written_unknown(document: Any, placeholders: Placeholders) -> Iterator[Pointer]:
    """Yield a pointer to each placeholder in a document, without those inside another one. A loop, so depth is not a problem."""
    way: list[str | int] = []
    open_: list[Iterator[tuple[str | int, Any]]] = [iter([("", document)])]
    while open_:
        child = next(open_[-1], None)
        if child is None:
            open_.pop()
            continue
        way[len(open_) - 1 :] = [child[0]]
        value = child[1]
        if placeholders.says(value):
            yield tuple(map(str, way[1:]))
        elif isinstance(value, Mapping):
            open_.append(iter(value.items()))
        elif isinstance(value, list):
            open_.append(enumerate(value))


#: Debezium's placeholders for a geometry, a geography and a point: their bytes in base64.
PLACES: Final = frozenset(
    ("AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ==", "AQEAACDmEAAADCHn/f9/ZkAYQs77/39WQA==", "AQEAAAAAAAD8g9eXwQAAAPyD15fB")
)


class Placeholders:
    """The placeholders that a source writes for values that it does not have."""

    def __init__(self, layout: EventLayout) -> None:
        self.texts = frozenset(layout.unknown_texts)
        self.shortest = min(map(len, self.texts), default=0)
        self.is_debezium = layout.format == "debezium"

    def says(self, value: Any) -> bool:
        """Return whether a value is a placeholder."""
        if isinstance(value, str):
            if len(value) < self.shortest:
                return False
            # A text may be a document with a placeholder in it, for example hstore with `hstore.handling.mode=json`.
            return value in self.texts or (self.is_debezium and any(f'"{text}"' in value for text in self.texts))
        if isinstance(value, Mapping):
            return any(name in self.texts for name in value) or (self.is_debezium and _is_place(value))
        if isinstance(value, list):
            return any(isinstance(element, str) and self.says(element) for element in value) or (
                self.is_debezium and self._spells(value)
            )
        return False

    def _spells(self, numbers: list[Any]) -> bool:
        """Return whether an array of numbers spells the bytes of a placeholder, which Debezium writes for arrays of integers."""
        if not all(type(number) in (int, float) and 0 <= number < 256 and number == int(number) for number in numbers):
            return False
        return bytes(map(int, numbers)).decode(errors="replace") in self.texts


def _is_place(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("wkb"), str) and value["wkb"] in PLACES


def unchanged_unknowns(
    unknown: tuple[Pointer, ...], data_at: Pointer, before_at: Pointer, before: frozenset[str]
) -> Iterator[Pointer]:
    """Yield the unknowns of `before` that it shares with `data`, because members that it lacks did not change."""
    for each in unknown:
        if is_prefix(each, data_at):
            yield before_at
        elif is_prefix(data_at, each) and each[len(data_at)] not in before:
            yield before_at + each[len(data_at) :]
