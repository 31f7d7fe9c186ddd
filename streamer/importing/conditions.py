"""Conditions that are true or false for every event, and the form of a subscription that expresses each best.

    AllOf(Test(PATH, "==", "paid"), Test(PATH, ">", 100))       two filters
    AnyOf(Test(PATH, "==", "paid"), Test(PATH, ">", 100))       "cel": "data.status == 'paid' || data.amount > 100"
    Not(Test(PATH, "==", "paid"))                               "cel": "!(type(data) == map && has(data.status) && ..)"

An importer translates each rule into these. The languages differ in what a missing value means: SQL has a third truth value,
MongoDB's `$ne` matches a missing field, CEL raises an error. So a `Test` is false if its value is missing or has another type,
and `Not` is its exact opposite. An importer combines them into what its language means.

Invariant: `subscription_parts(condition)` matches exactly the events for which the condition is true. An error of CEL counts as
false, so a condition without `Not` needs no guards; below a `Not` each test is guarded, and raises no error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from streamer.events.layout import encode_pointer
from streamer.subscriptions.cel_text import cel_literal, cel_path, has, present, regexp_of
from streamer.subscriptions.folding import ignoring_case


@final
@dataclass(frozen=True, slots=True)
class Path:
    """The place of a value: member names below `data`, `before`, `envelope`, or a variable of `AnyElement`."""

    names: tuple[str, ...]
    root: str = "data"

    def cel(self) -> str:
        return cel_path(self.root, self.names)


@final
@dataclass(frozen=True, slots=True)
class Test:
    """A condition on one value: false if the value is missing, or is of a type that the test does not name.

    Attributes:
        op: a name in `TESTS`.
        value: what to compare with; None for tests without an operand, and for null.
    """

    path: Path
    op: str
    value: Any = None


@final
@dataclass(frozen=True, slots=True)
class AnyElement:
    """The value is a list, and *condition* is true for one of its elements, which it names by a path whose root is *name*."""

    path: Path
    name: str
    condition: Condition


@final
@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@final
@dataclass(frozen=True, slots=True)
class AllOf:
    """True if every condition is; without conditions, true."""

    conditions: tuple[Condition, ...]


@final
@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if a condition is; without conditions, false."""

    conditions: tuple[Condition, ...]


@final
@dataclass(frozen=True, slots=True)
class Cel:
    """A condition as CEL. It must be true or false for every event, since `Not` takes its opposite.

    For example, `type == 'insert'`, or `type(data) == map && size(data) > 3`.
    """

    text: str


Condition: TypeAlias = Test | AnyElement | Not | AllOf | AnyOf | Cel

ALWAYS: Final = AllOf(())
NEVER: Final = AnyOf(())


@final
@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a test means.

    Attributes:
        cel: the condition as CEL, for the CEL of the value and the operand.
        guard: CEL that is true for values of a type that *cel* can read, and raises no error; None if *cel* reads every type.
        filter: the operator of the filter that is true for the same events, if there is one.
        ignore_case: whether that filter ignores case.
    """

    cel: Callable[[str, Any], str]
    guard: Callable[[str, Any], str] | None = None
    filter: str | None = None
    ignore_case: bool = False


#: The types of JSON, each with the test for it in CEL.
TYPES: Final[Mapping[str, str]] = {
    "null": "{0} == null",
    "boolean": "type({0}) == bool",
    "number": "type({0}) in [int, uint, double]",
    "string": "type({0}) == string",
    "list": "type({0}) == list",
    "object": "type({0}) == map",
}


def _infix(op: str) -> Callable[[str, Any], str]:
    return lambda at, value: f"{at} {op} {cel_literal(value)}"


def _method(name: str) -> Callable[[str, Any], str]:
    return lambda at, value: f"{at}.{name}({cel_literal(value)})"


def _folded(start: str, end: str) -> Callable[[str, Any], str]:
    return lambda at, text: f"{at}.matches({cel_literal(f'(?i){start}{ignoring_case(text)}{end}')})"


def _of(kind: str) -> Callable[[str, Any], str]:
    return lambda at, _: TYPES[kind].format(at)


def _of_operand(at: str, value: Any) -> str:
    return TYPES["boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"].format(at)


def _types(at: str, kinds: Sequence[str]) -> str:
    texts = [TYPES[kind].format(at) for kind in kinds]
    return texts[0] if len(texts) == 1 else f"({' || '.join(texts)})"


TESTS: Final[Mapping[str, _Meaning]] = {
    # Equality between types is false, and numbers compare by their value.
    "==": _Meaning(_infix("=="), filter="=="),
    "in": _Meaning(_infix("in"), filter="in"),
    # The value is there, and differs.
    "!=": _Meaning(_infix("!="), filter="!="),
    "not in": _Meaning(lambda at, values: f"!({at} in {cel_literal(values)})", filter="not in"),
    # The value has the operand's type: a number, a string or a boolean.
    "<": _Meaning(_infix("<"), _of_operand, "<"),
    "<=": _Meaning(_infix("<="), _of_operand, "<="),
    ">": _Meaning(_infix(">"), _of_operand, ">"),
    ">=": _Meaning(_infix(">="), _of_operand, ">="),
    # The value is a string.
    "starts_with": _Meaning(_method("startsWith"), _of("string"), "starts_with"),
    "ends_with": _Meaning(_method("endsWith"), _of("string"), "ends_with"),
    "matches": _Meaning(_method("matches"), _of("string"), "matches"),
    # The value is a string, and compared by its simple case folding.
    "== but for case": _Meaning(_folded("^", "$"), _of("string"), "==", ignore_case=True),
    "starts_with but for case": _Meaning(_folded("^", ""), _of("string"), "starts_with", ignore_case=True),
    "ends_with but for case": _Meaning(_folded("", "$"), _of("string"), "ends_with", ignore_case=True),
    # The value is a string with the operand, a string, in it, or a list with an element that equals it.
    "contains": _Meaning(_method("contains"), lambda at, _: f"type({at}) in [string, list]", "contains"),
    # The value is a list with an element that equals the operand.
    "has_element": _Meaning(lambda at, value: f"type({at}) == list && {cel_literal(value)} in {at}"),
    "size": _Meaning(lambda at, size: f"type({at}) == list && size({at}) == {size}"),
    # The value is there, null too.
    "exists": _Meaning(lambda at, _: "", filter="exists"),
    # The value's type is one of the named ones (`TYPES`).
    "type": _Meaning(_types),
}


def all_of(*conditions: Condition) -> Condition:
    """Return a condition that is true if every one is."""
    return conditions[0] if len(conditions) == 1 else AllOf(conditions)


def contains_text(path: Path, text: str, *, ignore_case: bool = False) -> Test:
    """Return a condition that is true for a string with a text in it. A filter's `contains` is also true for a list."""
    return Test(path, "matches", f"(?i){regexp_of(text)}" if ignore_case else regexp_of(text))


def any_of(*conditions: Condition) -> Condition:
    """Return a condition that is true if one of several is."""
    return conditions[0] if len(conditions) == 1 else AnyOf(conditions)


def subscription_parts(condition: Condition) -> dict[str, Any]:
    """Return the members `filters` and `cel` of a subscription that matches exactly if a condition is true.

    Filters express what they can, because an editor shows them as rows; CEL expresses the rest.
    """
    filters: dict[str, dict[str, Any]] = {}
    rest: list[Condition] = []
    for each in _conjuncts(_simple(condition)):
        row = _filter(each)
        if row is None:
            rest.append(each)
        else:
            filters.setdefault(repr(row), row)
    parts: dict[str, Any] = {"filters": list(filters.values())} if filters else {}
    if rest:
        parts["cel"] = _cel(all_of(*rest))
    return parts


def _conjuncts(condition: Condition) -> tuple[Condition, ...]:
    return condition.conditions if isinstance(condition, AllOf) else (condition,)


def _simple(condition: Condition) -> Condition:
    """Return an equal condition in which `Not` stands only before tests, and neither kind of list contains its own kind."""
    match condition:
        case Not(Not(inner)):
            return _simple(inner)
        case Not(AllOf(parts)):
            return _simple(AnyOf(tuple(map(Not, parts))))
        case Not(AnyOf(parts)):
            return _simple(AllOf(tuple(map(Not, parts))))
        case AllOf(parts):
            return _joined(AllOf, parts, NEVER)
        case AnyOf(parts):
            return _joined(AnyOf, parts, ALWAYS)
        case _:
            return condition


def _joined(kind: type[AllOf] | type[AnyOf], parts: Sequence[Condition], decisive: Condition) -> Condition:
    flat: list[Condition] = []
    for each in map(_simple, parts):
        flat += each.conditions if isinstance(each, kind) else (each,)
    return decisive if decisive in flat else flat[0] if len(flat) == 1 else kind(tuple(flat))


def _filter(condition: Condition) -> dict[str, Any] | None:
    match condition:
        case Test(Path(names, "data"), op, value) if names and TESTS[op].filter is not None:
            row = {"field": _field(names), "op": TESTS[op].filter, "value": True if op == "exists" else value}
            return {**row, "ignore_case": True} if TESTS[op].ignore_case else row
        case Not(Test(Path(names, "data"), "exists")) if names:
            return {"field": _field(names), "op": "exists", "value": False}
        case _:
            return None


def _field(names: tuple[str, ...]) -> str:
    dotted = ".".join(names)
    return dotted if all(names) and dotted.count(".") == len(names) - 1 and not dotted.startswith("/") else encode_pointer(names)


def _cel(condition: Condition, *, guarded: bool = False) -> str:
    """Return a condition as CEL; *guarded* if it must be false, not an error, for a missing value."""
    match condition:
        case Not(inner):
            return f"!({_cel(inner, guarded=True)})"
        case AllOf(()):
            return "true"
        case AnyOf(()):
            return "false"
        case AllOf(parts):
            return " && ".join(_within(each, AnyOf, guarded) for each in parts)
        case AnyOf(parts):
            return " || ".join(_within(each, AllOf, guarded) for each in parts)
        case AnyElement(path, name, inner):
            at = path.cel()
            element = f"{at}.exists({name}, {_cel(inner, guarded=guarded)})"
            return " && ".join(filter(None, (_present(path) if guarded else "", f"type({at}) == list", element)))
        case Cel(text):
            return f"({text})"
        case Test(path, op, value):
            return _test(path, TESTS[op], value, guarded=guarded)


def _within(condition: Condition, other: type, guarded: bool) -> str:
    text = _cel(condition, guarded=guarded)
    return f"({text})" if isinstance(condition, other) else text


def _test(path: Path, meaning: _Meaning, value: Any, *, guarded: bool) -> str:
    at = path.cel()
    text = meaning.cel(at, value)
    if not guarded:
        return text or (has(path.root, path.names) if path.names else "true")
    guard = meaning.guard(at, value) if meaning.guard is not None else ""
    return " && ".join(filter(None, (_present(path), guard, text))) or "true"


def _present(path: Path) -> str:
    return present(path.root, path.names) if path.names else ""
