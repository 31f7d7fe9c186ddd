"""Parse the entries of `filters`: filters, and groups of them (semantics.md 3.28).

{"any": [{"field": "a", "op": "==", "value": 1}, {"not": {"field": "b", "op": "exists", "value": true}}]}
(data.a == 1) || (!(has(data.b)))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from streamer.errors import SubscriptionError
from streamer.model import FilterGroupOperator, Limits
from streamer.subscriptions.filters import CompiledFilter, compile_filter, read_filter
from streamer.subscriptions.operands import type_name
from streamer.subscriptions.sizes import UNITS, Size
from streamer.subscriptions.subscription import GROUPS, MAX_GROUP_DEPTH, Filter, FilterGroup

Entry: TypeAlias = Filter | FilterGroup | Mapping[str, Any]


@final
@dataclass(frozen=True, slots=True)
class CompiledGroup:
    """A checked group.

    Attributes:
        op: how the entries are combined.
        entries: at least one; exactly one for `not`.
        place: its place in the subscription, such as `filters[0].any[1]`.
    """

    op: FilterGroupOperator
    entries: tuple[CompiledFilter | CompiledGroup, ...]
    place: str = "filters[0]"

    def to_cel(self) -> str:
        """Return the CEL expression with exactly the meaning of this group."""
        return "".join(_pieces(self))

    def in_words(self) -> str:
        """Return a text that is as short as its paths and values."""
        return joined(self.op, [each.in_words() for each in self.entries])


def joined(op: FilterGroupOperator, texts: Sequence[str]) -> str:
    """Return expressions combined as a group combines them."""
    if op == "not":
        return f"!({texts[0]})"
    return f" {'||' if op == 'any' else '&&'} ".join(f"({text})" for text in texts)


def cel_within(entry: CompiledFilter | CompiledGroup, limit: int) -> str | None:
    """Return the CEL of an entry, or None if it has more than *limit* characters."""
    pieces: list[str] = []
    for piece in _pieces(entry):
        pieces.append(piece)
        if (limit := limit - len(piece)) < 0:
            return None
    return "".join(pieces)


def _pieces(entry: CompiledFilter | CompiledGroup) -> Iterator[str]:
    if isinstance(entry, CompiledFilter):
        yield entry.to_cel()
        return
    yield "!(" if entry.op == "not" else "("
    for index, each in enumerate(entry.entries):
        if index:
            yield ") || (" if entry.op == "any" else ") && ("
        yield from _pieces(each)
    yield ")"


def filters_in(entries: Iterable[CompiledFilter | CompiledGroup]) -> Iterator[CompiledFilter]:
    """Yield the filters among entries, also in groups."""
    for entry in entries:
        if isinstance(entry, CompiledFilter):
            yield entry
        else:
            yield from filters_in(entry.entries)


def placed_filters(entries: Sequence[Any], place: str = "filters") -> Iterator[tuple[str, Any]]:
    """Yield each filter among checked entries, also in groups, with its place."""
    for index, entry in enumerate(entries):
        yield from _placed(entry, f"{place}[{index}]")


def _placed(entry: Any, place: str) -> Iterator[tuple[str, Any]]:
    group = group_of(entry)
    if group is None:
        yield place, entry
    elif group[0] == "not":
        yield from _placed(group[1][0], f"{place}.not")
    else:
        yield from placed_filters(group[1], f"{place}.{group[0]}")


def group_of(entry: Any) -> tuple[FilterGroupOperator, Sequence[Any]] | None:
    """Return the operator and the entries of a checked group, or None for a filter."""
    if isinstance(entry, FilterGroup):
        return entry.op, entry.filters
    if isinstance(entry, Mapping):
        for op in GROUPS:
            if op in entry:
                return op, [entry[op]] if op == "not" else entry[op]
    return None


def read_entry(source: Entry, *, place: str = "filters[0]", depth: int = 0) -> Filter | FilterGroup:
    """Return an entry of `filters` after checking its members and their types.

    Args:
        depth: the number of groups around it.

    Raises:
        SubscriptionError: a member is wrong; `place` names it.
    """
    members: Any = source._members() if isinstance(source, FilterGroup) else source
    op = next((op for op in GROUPS if op in members), None) if isinstance(members, Mapping) else None
    if op is None:
        return read_filter(members, place=place)
    for name in members:
        if name != op:
            where = f"{place}.{name}" if isinstance(name, str) else place
            raise SubscriptionError(f"a group has one member, here {op!r}", place=where)
    if depth == MAX_GROUP_DEPTH:
        raise SubscriptionError(f"groups nested deeper than {MAX_GROUP_DEPTH} levels", place=place)
    value, inner = members[op], f"{place}.{op}"
    if op == "not":
        return FilterGroup(op, (read_entry(value, place=inner, depth=depth + 1),))
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise SubscriptionError(f"expected a list, not {type_name(value)}", place=inner)
    if not value:
        raise SubscriptionError("expected at least one filter", place=inner)
    return FilterGroup(op, tuple(read_entry(each, place=f"{inner}[{at}]", depth=depth + 1) for at, each in enumerate(value)))


def parse_entry(source: Entry, *, place: str = "filters[0]", limits: Limits | None = None) -> CompiledFilter | CompiledGroup:
    """Return an entry of `filters` that is ready to be evaluated or lowered, after checking it in full.

    Raises:
        SubscriptionError: it is wrong; `place` is the place of the fault, such as `filters[0].any[1].value`.
    """
    limits = limits if limits is not None else Limits()
    return compile_entry(read_entry(source, place=place), place, limits, Size(limits))


def compile_entry(entry: Any, place: str, limits: Limits, size: Size) -> CompiledFilter | CompiledGroup:
    """Return an entry that `read_entry` returned, as `parse_entry` does; *size* counts what it costs to read it."""
    if not isinstance(entry, FilterGroup):
        return compile_filter(entry, place, limits, size)
    size.spend(UNITS["conditions"])
    inner = f"{place}.{entry.op}"
    places = [inner] if entry.op == "not" else [f"{inner}[{at}]" for at in range(len(entry.filters))]
    entries = (compile_entry(each, where, limits, size) for each, where in zip(entry.filters, places, strict=True))
    return CompiledGroup(entry.op, tuple(entries), place)
