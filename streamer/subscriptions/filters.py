"""Parse filters: conditions on one field of `data` or of the envelope (semantics.md section 3).

See operators.py for each operator, groups.py for groups of filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, final, get_args

from streamer.errors import SubscriptionError
from streamer.events.layout import decode_pointer
from streamer.model import FilterGroupOperator, FilterRoot, Limits
from streamer.subscriptions.atoms import Path, Root
from streamer.subscriptions.cel_text import cel_literal, cel_path
from streamer.subscriptions.folding import folded
from streamer.subscriptions.operands import NOTHING, REGEXP, check_text, compile_operand, json_value, type_name
from streamer.subscriptions.operators import IGNORING_CASE, OPERATORS, Lowered, Operator
from streamer.subscriptions.sizes import REGEXP_UNITS, UNITS, Size
from streamer.subscriptions.subscription import Filter

#: The CEL of a filter repeats each step of its path for every step below it, so its length is quadratic in the steps.
MAX_FIELD_BYTES: Final = 4096
MAX_FIELD_STEPS: Final = 512

_MEMBERS = ("field", "op", "value", "root", "ignore_case")
#: Also the members of a group, for errors.
_KNOWN = (*_MEMBERS, *get_args(FilterGroupOperator))
#: Where a field's path may begin; the first is the default.
ROOTS: Final[tuple[FilterRoot, ...]] = get_args(FilterRoot)
#: Operators of other languages, whose spelling resembles another operator's.
_SLIPS = {"=": "==", "===": "==", "<>": "!=", "!==": "!="}


@final
@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """A checked filter.

    Attributes:
        path: at least one member name, from `data` or from the envelope down.
        op: the operator.
        value: None for `changed`; a list for `in` and `not in`; a bool for `exists`.
        compared: the value that is compared with the field's: *value*, its texts folded if case is ignored.
        place: its place in the subscription, such as `filters[0]`.
        regexp: the compiled RE2 expression of `matches`; else None.
        size: size of the regexp (docs/cel-cost.md).
    """

    path: Path
    op: Operator
    value: Any
    compared: Any = field(repr=False)
    place: str = "filters[0]"
    regexp: Any = field(default=None, compare=False, repr=False)
    size: int = field(default=0, compare=False, repr=False)

    def to_cel(self) -> str:
        """Return the CEL expression with exactly the meaning of this filter."""
        return self.op.cel(self.path, self.value)

    def in_words(self) -> str:
        """Return a text that is as short as its path and value: CEL repeats each step of a path for every step below it."""
        what = "" if self.value is None else f" {cel_literal(self.value)}"
        case = ", in any case" if self.op.ignores_case else ""
        return f"{cel_path(self.path.root.value, self.path.names)} {self.op.name.replace('_', ' ')}{what}{case}"

    def lower(self) -> Lowered:
        """Return the clauses that an index can use for the filter."""
        return self.op.lower(self.path, self.value)


def read_filter(source: Filter | Mapping[str, Any], *, place: str = "filters[0]") -> Filter:
    """Return a filter after checking its members, their types, and that it has a value if the operator needs one.

    Raises:
        SubscriptionError: a member is wrong; `place` names it.
    """
    if isinstance(source, Filter):
        members: Mapping[str, Any] = {
            "field": source.field,
            "op": source.op,
            "root": source.root,
            "ignore_case": source.ignore_case,
        }
        # The object's default value of None means no value, if the operator takes none.
        if not _takes_nothing(source.op) or source.value is not None:
            members = {**members, "value": source.value}
    elif isinstance(source, Mapping):
        members = source
    else:
        raise SubscriptionError(f"expected an object, not {type_name(source)}", place=place)
    for name in members:
        if name not in _MEMBERS:
            where = f"{place}.{name}" if isinstance(name, str) else place
            raise SubscriptionError(unknown_name(name, _KNOWN, "member"), place=where)
    for name in ("field", "op"):
        if name not in members:
            raise SubscriptionError(f"expected a member {name!r}", place=f"{place}.{name}")
        if not isinstance(members[name], str):
            raise SubscriptionError(f"expected a string, not {type_name(members[name])}", place=f"{place}.{name}")
    if members["op"] not in OPERATORS:
        raise SubscriptionError(unknown_name(members["op"], tuple(OPERATORS), "operator"), place=f"{place}.op")
    root = _root(members.get("root", "data"), members["op"], f"{place}.root")
    if _takes_nothing(members["op"]):
        if "value" in members:
            raise SubscriptionError(f"{members['op']!r} takes no value", place=f"{place}.value")
    elif "value" not in members:
        raise SubscriptionError(f"{members['op']!r} needs a value", place=f"{place}.value")
    ignore_case = _ignore_case(members.get("ignore_case", False), members["op"], f"{place}.ignore_case")
    return Filter(members["field"], OPERATORS[members["op"]].name, members.get("value"), root, ignore_case)


def _ignore_case(value: Any, op: str, place: str) -> bool:
    if not isinstance(value, bool):
        raise SubscriptionError(f"expected true or false, not {type_name(value)}", place=place)
    if value and op not in IGNORING_CASE:
        raise SubscriptionError(f"{op!r} compares with case; expected one of {', '.join(map(repr, IGNORING_CASE))}", place=place)
    return value


def _root(root: Any, op: str, place: str) -> FilterRoot:
    if not isinstance(root, str):
        raise SubscriptionError(f"expected a string, not {type_name(root)}", place=place)
    if root not in ROOTS:
        raise SubscriptionError(unknown_name(root, ROOTS, "root"), place=place)
    if OPERATORS[op].mentions_before and root != "data":
        raise SubscriptionError(f"{op!r} compares 'before' with 'data'; expected the root 'data'", place=place)
    return ROOTS[ROOTS.index(root)]


def _takes_nothing(op: object) -> bool:
    return isinstance(op, str) and op in OPERATORS and OPERATORS[op].operand is NOTHING


def parse_filter(
    source: Filter | Mapping[str, Any], *, place: str = "filters[0]", limits: Limits | None = None, size: Size | None = None
) -> CompiledFilter:
    """Return a filter that is ready to be evaluated or lowered, after checking it in full.

    Args:
        size: the size of the subscription, which counts what it costs to read the filter.

    Raises:
        SubscriptionError: the filter is wrong; `place` is the place of the fault, such as `filters[0].value[3]`.
    """
    limits = limits if limits is not None else Limits()
    return compile_filter(read_filter(source, place=place), place, limits, size if size is not None else Size(limits))


def compile_filter(source: Filter, place: str, limits: Limits, size: Size) -> CompiledFilter:
    """Return a filter that `read_filter` returned, as `parse_filter` does."""
    size.spend(UNITS["conditions"] + len(source.field) // 64)
    path = Path(Root(source.root), parse_path(source.field, place=f"{place}.field"))
    op = (IGNORING_CASE if source.ignore_case else OPERATORS)[source.op]
    value = json_value(source.value, place=f"{place}.value", spend=size.spend)
    op.operand.check(value, f"{place}.value")
    regexp, states = None, 0
    if op.operand is REGEXP:
        size.spend(REGEXP_UNITS + len(value))
        regexp, states = compile_operand(f"(?i){value}" if op.ignores_case else value, f"{place}.value", limits)
        size.spend(states)
    compared = folded(value) if op.ignores_case else value
    return CompiledFilter(path, op, value, compared, place, regexp, states)


def parse_path(text: str, *, place: str = "filters[0].field") -> tuple[str, ...]:
    """Return the member names in a dotted path (`user.country`) or a JSON Pointer (`/a.b/c`).

    Only a pointer can name a member `""` (RFC 6901); an empty step in a dotted path is an error.
    """
    check_text(text, place=place)
    size = len(text.encode())
    if size > MAX_FIELD_BYTES:
        raise SubscriptionError(f"a path of {size} bytes; at most {MAX_FIELD_BYTES} are allowed", place=place)
    if text.startswith("/"):
        try:
            names = decode_pointer(text)
        except ValueError as error:
            raise SubscriptionError(str(error), place=place) from None
    else:
        names = tuple(text.split("."))
        if "" in names:
            what = "the path is empty" if text == "" else f"an empty step in {text!r}"
            raise SubscriptionError(f"{what}; expected member names with dots between them, or a JSON Pointer", place=place)
    if len(names) > MAX_FIELD_STEPS:
        raise SubscriptionError(f"a path of {len(names)} steps; at most {MAX_FIELD_STEPS} are allowed", place=place)
    return names


def unknown_name(name: Any, known: tuple[str, ...], kind: str) -> str:
    """Return the error for an unknown name, with the nearest known one, or all of them."""
    if not isinstance(name, str):
        return f"a {kind} is named by a string, not {type_name(name)}"
    shown = name if len(name) <= 60 else f"{name[:60]}..."
    nearest = [_SLIPS[name]] if name in _SLIPS else get_close_matches(shown, known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"expected one of {', '.join(map(repr, known))}"
    return f"unknown {kind} {shown!r}; {hint}"
