"""The operators of filters: the operand of each, its meaning in CEL, and its clauses in an index.

A row of `OPERATORS` is this package's complete definition of an operator; `streamer.reference.filters` implements its effect on a
value a second time, by hand. With `P(x)` for `type(x) == map && has(x.a) && type(x.a) == map && has(x.a.b)`, operators on `a.b`
mean:

| op | CEL |
|---|---|
| `==` `!=` `<` `<=` `>` `>=` | `data.a.b == v`, and so on |
| `in`, `not in` | `data.a.b in [v, w]`, `!(data.a.b in [v, w])` |
| `contains`, `starts_with`, `ends_with`, `matches` | `data.a.b.contains(v)`, `.startsWith(v)`, `.endsWith(v)`, `.matches(v)` |
| `exists` true | `has(data.a) && has(data.a.b)`: an error if a step of the path is not an object |
| `exists` false | `!(P(data))`: true if a step of the path is not an object, or there is no document |
| `changed` | `P(data) && P(before) ? before.a.b != data.a.b : P(data) || P(before)` |
| `changed_to` | `P(data) && data.a.b == v && !(P(before) && before.a.b == v)` |
| `changed_from` | `P(before) && before.a.b == v && !(P(data) && data.a.b == v)` |

So for `changed`, `changed_to` and `changed_from` a field below a scalar, a list or null is absent, on either side, and only a
number outside of float64 is an error.

With `ignore_case` the operators on texts compare foldings, which CEL finds by regexps: `data.a.matches('(?i)^v')` for
`starts_with`. They are the rows of `IGNORING_CASE`.

A filter with the root `envelope` has `envelope` in place of `data`. The last three operators always compare `before` with `data`.

Invariant: an event for which the CEL of a filter is true satisfies all its clauses. With `is_exact` the converse is true too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, final

from streamer.model import FilterOperator
from streamer.subscriptions.atoms import (
    PRESENT,
    READABLE,
    Atom,
    Clause,
    Contains,
    IsKind,
    Kind,
    Matches,
    Not,
    Path,
    Range,
    Root,
    kind_of,
)
from streamer.subscriptions.atoms import value_clause as clause
from streamer.subscriptions.cel_text import cel_literal, cel_path, has, present, steps
from streamer.subscriptions.folding import ignoring_case
from streamer.subscriptions.matchers import Equal, EqualsIgnoreCase, Prefix, Suffix
from streamer.subscriptions.operands import (
    ANYTHING,
    BOOLEAN,
    FOLDED,
    NOTHING,
    ORDERED,
    REGEXP,
    SCALAR,
    SCALARS,
    TEXT,
    Operand,
)

STRING: Final = IsKind(frozenset({Kind.STRING}))


@final
@dataclass(frozen=True, slots=True)
class Lowered:
    """The index's replacement of a filter: all of *clauses*, plus the filter itself unless they are exact."""

    clauses: tuple[Clause, ...]
    is_exact: bool = True


@final
@dataclass(frozen=True, slots=True)
class Operator:
    """A filter's condition on its field.

    Attributes:
        name: as it is written.
        words: the meaning of the filter in words, for editors.
        operand: the type of its value.
        cel: prints the CEL expression, for a path and a value.
        lower: makes the clauses, for a path and a value.
        mentions_before: whether it reads the document before the change.
        ignores_case: whether it compares the foldings of texts.
    """

    name: FilterOperator
    words: str
    operand: Operand
    cel: Callable[[Path, Any], str]
    lower: Callable[[Path, Any], Lowered]
    mentions_before: bool = False
    ignores_case: bool = False


# The CEL of a row


def infix(sign: str) -> Callable[[Path, Any], str]:
    return lambda path, value: f"{cel_path(path.root.value, path.names)} {sign} {cel_literal(value)}"


def method(name: str) -> Callable[[Path, Any], str]:
    return lambda path, value: f"{cel_path(path.root.value, path.names)}.{name}({cel_literal(value)})"


def _not_in(path: Path, value: Any) -> str:
    return f"!({infix('in')(path, value)})"


def _exists(path: Path, value: Any) -> str:
    root, names = path.root.value, path.names
    if not value:
        return f"!({present(root, names)})"
    return " && ".join(has(parent, (name,)) for parent, name in steps(root, names))


def _changed(path: Path, _: Any) -> str:
    names = path.names
    now, then = present("data", names), present("before", names)
    return f"{now} && {then} ? {cel_path('before', names)} != {cel_path('data', names)} : ({now}) || ({then})"


def _became(side: str, other: str) -> Callable[[Path, Any], str]:
    """Return a function that prints that one side has the value and the other does not."""

    def cel(path: Path, value: Any) -> str:
        names, literal = path.names, cel_literal(value)
        has_it, has_it_not = (f"{present(root, names)} && {cel_path(root, names)} == {literal}" for root in (side, other))
        return f"{has_it} && !({has_it_not})"

    return cel


# The clauses of a row


def value_is(*makers: Callable[[Any], Atom]) -> Callable[[Path, Any], Lowered]:
    """Return a function that makes a clause: the value at the path satisfies one of the atoms that *makers* make."""
    return lambda path, value: Lowered((clause(path, [make(value) for make in makers]),))


def _is_tree(value: Any) -> bool:
    return isinstance(value, dict | list)


def _equal_to(value: Any) -> Atom:
    """Return an index's clause for equality with a value; for a list or an object it covers only the kind."""
    return IsKind(frozenset({kind_of(value)})) if _is_tree(value) else Equal(value)


def _other_than(value: Any) -> Atom:
    return IsKind(READABLE) if _is_tree(value) else Not(frozenset({Equal(value)}))


def _equal(path: Path, value: Any) -> Lowered:
    return Lowered((clause(path, [_equal_to(value)]),), is_exact=not _is_tree(value))


def _not_equal(path: Path, value: Any) -> Lowered:
    return Lowered((clause(path, [_other_than(value)]),), is_exact=not _is_tree(value))


def _in(path: Path, values: Any) -> Lowered:
    return Lowered((clause(path, map(Equal, values)),))


def _became_equal(side: Root, other: Root) -> Callable[[Path, Any], Lowered]:
    def lower(path: Path, value: Any) -> Lowered:
        has_it = clause(Path(side, path.names), [_equal_to(value)])
        has_it_not = clause(Path(other, path.names), [IsKind(frozenset({Kind.MISSING})), _other_than(value)])
        return Lowered((has_it, has_it_not), is_exact=False)

    return lower


def _nothing(_path: Path, _value: Any) -> Lowered:
    return Lowered((), is_exact=False)


def _range(side: str, *, is_closed: bool) -> Callable[[Path, Any], Lowered]:
    return value_is(lambda value: Range(kind_of(value), **{side: value, f"{side}_inclusive": is_closed}))


_ROWS: Final = (
    # name, its meaning in words, its operand, its CEL, its clauses in an index
    Operator("==", "equals the value", ANYTHING, infix("=="), _equal),
    Operator("!=", "is there, and differs from the value", ANYTHING, infix("!="), _not_equal),
    Operator(">", "is greater than the value", ORDERED, infix(">"), _range("low", is_closed=False)),
    Operator(">=", "is greater than the value or equals it", ORDERED, infix(">="), _range("low", is_closed=True)),
    Operator("<", "is less than the value", ORDERED, infix("<"), _range("high", is_closed=False)),
    Operator("<=", "is less than the value or equals it", ORDERED, infix("<="), _range("high", is_closed=True)),
    Operator("in", "is one of the values of the list", SCALARS, infix("in"), _in),
    Operator(
        "not in",
        "is there, and is none of the values of the list",
        SCALARS,
        _not_in,
        value_is(lambda values: Not(frozenset(map(Equal, values)))),
    ),
    Operator(
        "contains",
        "is a text that contains the value, or a list with the value as an element",
        SCALAR,
        method("contains"),
        value_is(lambda value: Contains(Equal(value))),
    ),
    Operator(
        "exists",
        "true: present, null included; false: missing",
        BOOLEAN,
        _exists,
        value_is(lambda value: IsKind(PRESENT if value else frozenset({Kind.MISSING}))),
    ),
    Operator(
        "starts_with",
        "is a text that begins with the value",
        TEXT,
        method("startsWith"),
        value_is(lambda text: Prefix(text) if text else STRING),
    ),
    Operator(
        "ends_with",
        "is a text that ends with the value",
        TEXT,
        method("endsWith"),
        value_is(lambda text: Suffix(text) if text else STRING),
    ),
    Operator("matches", "is a text in which the RE2 expression finds something", REGEXP, method("matches"), value_is(Matches)),
    Operator(
        "changed",
        "differs between before and after the change; takes no value",
        NOTHING,
        _changed,
        _nothing,
        mentions_before=True,
    ),
    Operator(
        "changed_to",
        "equals the value after the change, and did not before",
        ANYTHING,
        _became("data", "before"),
        _became_equal(Root.DATA, Root.BEFORE),
        mentions_before=True,
    ),
    Operator(
        "changed_from",
        "equalled the value before the change, and does not after",
        ANYTHING,
        _became("before", "data"),
        _became_equal(Root.BEFORE, Root.DATA),
        mentions_before=True,
    ),
)

#: By name, in the order in which errors list them.
OPERATORS: Final[Mapping[str, Operator]] = {row.name: row for row in _ROWS}


# Ignoring case


def _finds(field: str, regexp: str) -> str:
    return f"{field}.matches({cel_literal(f'(?i){regexp}')})"


def _searched(regexp: Callable[[str], str]) -> Callable[[Path, Any], str]:
    return lambda path, value: _finds(cel_path(path.root.value, path.names), regexp(value))


def _is_text(field: str, texts: list[str]) -> str:
    alternatives = "|".join(map(ignoring_case, texts))
    return f"type({field}) == string && {_finds(field, f'^(?:{alternatives})$')}"


def _in_folded(path: Path, values: Any) -> str:
    values = values if isinstance(values, list) else [values]
    field = cel_path(path.root.value, path.names)
    texts, others = ([each for each in values if isinstance(each, str) is is_text] for is_text in (True, False))
    is_other = [f"{field} in {cel_literal(others)}"] if others or not texts else []
    return " || ".join([*is_other, *([_is_text(field, texts)] if texts else [])])


def _contains_folded(path: Path, value: Any) -> str:
    field = cel_path(path.root.value, path.names)
    in_list = f"{field}.exists(x, {_is_text('x', [value])})"
    return f"type({field}) == list ? {in_list} : {_finds(field, ignoring_case(value))}"


def _equal_folded(value: Any) -> Atom:
    return EqualsIgnoreCase(value) if isinstance(value, str) else Equal(value)


def _none_folded(path: Path, values: Any) -> Lowered:
    values = values if isinstance(values, list) else [values]
    return Lowered((clause(path, [Not(frozenset(map(_equal_folded, values)))]),))


def _not(cel: Callable[[Path, Any], str]) -> Callable[[Path, Any], str]:
    return lambda path, value: f"!({cel(path, value)})"


def _ignoring(name: str, cel: Callable[[Path, Any], str], lower: Callable[[Path, Any], Lowered]) -> Operator:
    row = OPERATORS[name]
    operand = FOLDED if row.operand in (ANYTHING, SCALAR) else row.operand
    return replace(row, operand=operand, cel=cel, lower=lower, ignores_case=True)


#: By name, the operators that may ignore case, as they are then.
IGNORING_CASE: Final[Mapping[str, Operator]] = {
    row.name: row
    for row in (
        _ignoring("==", _in_folded, value_is(_equal_folded)),
        _ignoring("!=", _not(_in_folded), _none_folded),
        _ignoring("in", _in_folded, lambda path, values: Lowered((clause(path, map(_equal_folded, values)),))),
        _ignoring("not in", _not(_in_folded), _none_folded),
        _ignoring("contains", _contains_folded, value_is(lambda text: Contains(EqualsIgnoreCase(text)))),
        _ignoring(
            "starts_with",
            _searched(lambda text: f"^{ignoring_case(text)}"),
            value_is(lambda text: Prefix(text, ignore_case=True) if text else STRING),
        ),
        _ignoring(
            "ends_with",
            _searched(lambda text: f"{ignoring_case(text)}$"),
            value_is(lambda text: Suffix(text, ignore_case=True) if text else STRING),
        ),
        _ignoring("matches", _searched(lambda regexp: regexp), value_is(lambda regexp: Matches(f"(?i){regexp}"))),
    )
}
