"""The parts of an expression of CloudEvents SQL: what each means, as CEL and as conditions.

Two things need care. An operand that fails before `OR` is an error, whatever follows, but CEL's `||` absorbs it; so the operands
behind it also require its attributes, or `?:` replaces `||`. And each operand is cast to the type that its operator needs, so
`sequence = 5` is also true for the text `+05`.

Parts are combined from the innermost on, and never walked again, so no expression makes Python recurse here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, final

from streamer.errors import SubscriptionError
from streamer.importing.conditions import ALWAYS, NEVER, Cel, Condition, Not, Path, Test, all_of, any_of
from streamer.subscriptions.cel_text import cel_literal, has, regexp_of

#: `any` is an attribute, whose type only an event shows.
Kind: TypeAlias = Literal["string", "integer", "boolean", "any"]

LEAST, MOST = -(2**31), 2**31 - 1
#: These are in every event, and are strings.
_REQUIRED: Final = frozenset(("id", "source", "specversion", "type"))
#: Of a part, whose conditions are often shorter. An engine accepts less.
_MAX_BYTES: Final = 64 * 1024
#: Above this many conditions that only exclude errors before `OR` and `AND`, `?:` does that.
_MAX_GUARDS: Final = 32

_INTEGER: Final = re.compile("[+-]?[0-9]+")
_TRUE, _FALSE = "[Tt][Rr][Uu][Ee]", "[Ff][Aa][Ll][Ss][Ee]"
#: CEL that is always an error.
_ERROR: Final = "[true].filter(v, false)[0]"


@final
@dataclass(frozen=True, slots=True)
class Value:
    """A part of an expression.

    Attributes:
        kind: its type.
        cel: CEL with its value, and with an error if the part has one. It can be an operand of any operator.
        const: its value, if it is the same for every event.
        attribute: its name, if it is an attribute.
        fails: the attributes without which the part is an error; None if it has other errors, too.
        yes, no: for a boolean, conditions that are true if the part is true, and false, without an error.
        fault: why the part is an error for every event.
        size: how many conditions `yes` and `no` consist of, at most.
    """

    kind: Kind
    cel: str
    const: str | int | bool | None = None
    attribute: str | None = None
    fails: frozenset[str] | None = frozenset()
    yes: Condition = NEVER
    no: Condition = NEVER
    fault: str = ""
    size: int = 1

    def __post_init__(self) -> None:
        if len(self.cel) > _MAX_BYTES:
            raise SubscriptionError(f"its CEL has more than {_MAX_BYTES} bytes; split the rule")


# Parts


def constant(value: str | int | bool) -> Value:
    """Return a literal, or the value of an expression of literals."""
    if isinstance(value, bool):
        return Value("boolean", cel_literal(value), value, yes=ALWAYS if value else NEVER, no=NEVER if value else ALWAYS)
    return Value("string" if isinstance(value, str) else "integer", cel_literal(value), value)


def attribute(name: str) -> Value:
    """Return the value of an attribute of the event."""
    required = name in _REQUIRED
    fails = frozenset[str]() if required else frozenset((name,))
    return Value("string" if required else "any", _path(name).cel(), attribute=name, fails=fails)


def exists(name: str) -> Value:
    """Return whether the event has an attribute."""
    if name in _REQUIRED:
        return constant(True)
    # In JSON, null stands for an attribute that is missing.
    there = _exists(name)
    return Value("boolean", f"({has('envelope', (name,))} && {_path(name).cel()} != null)", yes=there, no=Not(there))


def _path(name: str) -> Path:
    return Path((name,), "envelope")


def _exists(name: str) -> Condition:
    return Test(_path(name), "!=", None)


def _faulty(kind: Kind, fault: str) -> Value:
    return Value(kind, _ERROR, fails=None, fault=fault)


def _boolean(cel: str, fails: frozenset[str] | None) -> Value:
    return Value("boolean", f"({cel})", fails=fails, yes=Cel(cel), no=Cel(f"!({cel})"))


def _all_fail(values: Iterable[Value]) -> frozenset[str] | None:
    names: set[str] = set()
    for each in values:
        if each.fails is None:
            return None
        names |= each.fails
    return frozenset(names)


def _fault(values: Iterable[Value]) -> str:
    return next((each.fault for each in values if each.fault), "")


# Casts (3.7)


def cast_to(value: Value, kind: Kind) -> Value:
    """Return a part as another type, with a fault if it is a constant that cannot be cast."""
    if value.kind == kind or value.fault:
        return replace(value, kind=kind)
    if value.const is not None:
        made = cast_constant(value.const, kind)
        return _faulty(kind, f"{value.const!r} is not of type {kind}") if made is None else constant(made)
    at = value.cel
    if kind == "string":
        return Value(kind, f"string({at})", fails=value.fails)
    if kind == "integer":
        if value.kind == "boolean":
            return Value(kind, f"({at} ? 1 : 0)", fails=value.fails)
        number = f"int({at})" if value.kind == "string" else f"type({at}) == bool ? ({at} ? 1 : 0) : int({at})"
        return Value(kind, _in_range(number), fails=None)
    if value.kind == "integer":
        return _boolean(f"{at} != 0", value.fails)
    word = f"[{at}].filter(v, v.matches('^({_TRUE}|{_FALSE})$'))[0].matches('^[Tt]')"
    text = word if value.kind == "string" else f"type({at}) == bool ? {at} : type({at}) == string ? {word} : int({at}) != 0"
    word_of = _boolean(text, None)
    return word_of if value.attribute is None else replace(word_of, yes=_is(value, True), no=_is(value, False))


def cast_constant(value: str | int | bool, kind: Kind) -> str | int | bool | None:
    """Return a constant as another type; None if it cannot be cast."""
    if kind == "string":
        return str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str):
        return bool(value) if kind == "boolean" else int(value)
    if kind == "boolean":
        return {"true": True, "false": False}.get(value.lower())
    # Python refuses very long numbers.
    digits = value.lstrip("+-").lstrip("0")
    number = int(value) if _INTEGER.fullmatch(value) and len(digits) <= 10 and len(value) < 4000 else None
    return number if number is not None and LEAST <= number <= MOST else None


def _in_range(number: str) -> str:
    return f"[{number}].filter(v, v >= {LEAST} && v <= {MOST})[0]"


def _is(value: Value, wanted: bool) -> Condition:
    """Return a condition for an attribute that is true or false as a boolean."""
    path = _path(value.attribute or "")
    word = Test(path, "matches", f"^{_TRUE if wanted else _FALSE}$")
    if value.kind == "string":
        return word
    number = all_of(Test(path, "type", ("number",)), Test(path, "!=", 0)) if wanted else Test(path, "==", 0)
    return any_of(Test(path, "==", wanted), word, number)


# Operators


def negated(value: Value) -> Value:
    """Return `NOT` of a part."""
    value = cast_to(value, "boolean")
    if value.const is not None:
        return constant(not value.const)
    return replace(value, cel=f"!{value.cel}", yes=value.no, no=value.yes, attribute=None)


def logic(op: str, operands: Sequence[Value]) -> Value:
    """Return operands joined by `AND`, `OR` or `XOR`."""
    if op == "XOR":
        return _xor([cast_to(each, "boolean") for each in operands])
    decisive = op == "OR"
    parts: list[Value] = []
    for each in (cast_to(each, "boolean") for each in operands):
        if each.const is not (not decisive):
            parts.append(each)
        if each.const is decisive or each.fault:
            break
    if len(parts) < 2:
        return parts[0] if parts else constant(not decisive)
    sign, word = ("", "true") if decisive else ("!", "false")
    text = "".join(f"{sign}{each.cel} ? {word} : " for each in parts[:-1]) + parts[-1].cel
    undecided = all_of(*(each.no if decisive else each.yes for each in parts))
    guards, decided = _decided(parts, decisive=decisive)
    if guards > _MAX_GUARDS:
        guards, decided = 0, Cel(text if decisive else f"!({text})")
    # Which of several attributes are read depends on the values of the first.
    fails = frozenset[str]() if _all_fail(parts) == frozenset() else None
    yes, no = (decided, undecided) if decisive else (undecided, decided)
    return Value("boolean", f"({text})", fails=fails, yes=yes, no=no, size=guards + sum(each.size for each in parts))


def _decided(parts: Sequence[Value], *, decisive: bool) -> tuple[int, Condition]:
    """Return a condition that is true if a part has the decisive value, and no part before it is an error.

    The number is that of the conditions that only exclude errors.
    """
    ways: list[Condition] = []
    guards = 0
    missing: set[str] = set()
    before: list[Value] = []
    for part in parts:
        own = part.fails or frozenset()
        # If another part before this one is decisive, that is a way of its own.
        others = [each.no if decisive else each.yes for each in before]
        ways.append(all_of(*map(_exists, sorted(missing - own)), *others, part.yes if decisive else part.no))
        guards += len(missing - own) + sum(each.size for each in before)
        if guards > _MAX_GUARDS:
            break
        missing |= own
        before += [part] if part.fails is None else []
    return guards, any_of(*ways)


def _xor(operands: Sequence[Value]) -> Value:
    if fault := _fault(operands):
        return _faulty("boolean", fault)
    odd = sum(each.const is True for each in operands) % 2 == 1
    parts = [each for each in operands if each.const is None]
    if not parts:
        return constant(odd)
    first = parts[0] if len(parts) == 1 else _boolean(" != ".join(each.cel for each in parts), _all_fail(parts))
    return negated(first) if odd else first


_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": lambda x, y: bool(x < y),
    "<=": lambda x, y: bool(x <= y),
    ">": lambda x, y: bool(x > y),
    ">=": lambda x, y: bool(x >= y),
}


def compared(op: str, x: Value, y: Value) -> Value:
    """Return a comparison. Only integers have an order; the type of *y* decides how `=` casts *x*."""
    if op not in _ORDERS:
        return _equal(x, y) if op == "=" else negated(_equal(x, y))
    x, y = cast_to(x, "integer"), cast_to(y, "integer")
    if fault := _fault((x, y)):
        return _faulty("boolean", fault)
    if x.const is not None and y.const is not None:
        return constant(_ORDERS[op](x.const, y.const))
    return _boolean(f"{x.cel} {op} {y.cel}", _all_fail((x, y)))


def _equal(x: Value, y: Value) -> Value:
    if y.kind == "any":
        # The right operand's type decides, as the left one's does for `IN`.
        return contained(y, [x]) if x.const is not None or x.fault else _equal_to_any(x, y)
    original, x = x, cast_to(x, y.kind)
    if fault := _fault((x, y)):
        return _faulty("boolean", fault)
    if y.const is None or original.attribute is None:
        return constant(x.const == y.const) if None not in (x.const, y.const) else _equal_parts(x, y)
    if y.kind == "boolean":
        return x if y.const else negated(x)
    path = _path(original.attribute)
    if y.kind == "integer":
        return replace(_equal_parts(x, y), yes=any_of(*_spelled(original, path, int(y.const))))
    values: list[Any] = [y.const]
    if original.kind == "any":
        values += [each for kind in ("integer", "boolean") if (each := _printed_as(str(y.const), kind)) is not None]
    yes = Test(path, "==", values[0]) if len(values) == 1 else Test(path, "in", values)
    no = Test(path, "not in", [*values, None]) if original.kind == "any" else Test(path, "!=", values[0])
    return replace(_equal_parts(x, y), yes=yes, no=no)


def _equal_parts(x: Value, y: Value) -> Value:
    return _boolean(f"{x.cel} == {y.cel}", _all_fail((x, y)))


def _equal_to_any(x: Value, y: Value) -> Value:
    at, text, word, number = y.cel, *(cast_to(x, kind).cel for kind in ("string", "boolean", "integer"))
    is_integer = f"{number} == {cast_to(y, 'integer').cel}"
    return _boolean(f"type({at}) == string ? {text} == {at} : type({at}) == bool ? {word} == {at} : {is_integer}", None)


def _printed_as(text: str, kind: str) -> Any:
    """Return the value of a type that is cast to a text; None if there is none."""
    value = cast_constant(text, "integer" if kind == "integer" else "boolean")
    return value if value is not None and cast_constant(value, "string") == text else None


def _spelled(value: Value, path: Path, number: int) -> Iterator[Condition]:
    """Yield a condition for each way in which an attribute is cast to an integer."""
    if value.kind == "any":
        yield Test(path, "==", number)
        if number in (0, 1):
            yield Test(path, "==", bool(number))
    sign = "[+-]?" if number == 0 else "-" if number < 0 else "[+]?"
    yield Test(path, "matches", f"^{sign}0*{abs(number)}$")


def contained(x: Value, items: Sequence[Value]) -> Value:
    """Return whether a value is in a set. The first equal element decides, so errors of those behind it do not count."""
    if x.fault:
        return _faulty("boolean", x.fault)
    kinds: tuple[Kind, ...] = ("string", "boolean", "integer") if x.kind == "any" else (x.kind,)
    candidates = [_elements(x, kind, items) for kind in kinds]
    if x.const is not None and all(each.const is not None or each.fault for each in items):
        return candidates[0].folded(x.const)
    whole = [each.is_whole for each in candidates]
    text = candidates[0].text
    if x.kind == "any":
        at = x.cel
        text = f"type({at}) == string ? ({text}) : type({at}) == bool ? ({candidates[1].text}) : {candidates[2].text}"
    made = _boolean(text, x.fails if all(whole) and _all_fail(items) == frozenset() else None)
    if x.attribute is None or any(each.const is None and not each.fault for each in items):
        return made
    path, values = _path(x.attribute), [value for each in candidates for value in each.values]
    types = tuple(name for name, all_cast in zip(("string", "boolean", "number"), whole, strict=False) if all_cast)
    differs = Test(path, "not in", values)
    no = differs if x.kind != "any" else all_of(Test(path, "type", types), differs) if types else NEVER
    return replace(made, yes=Test(path, "in", values) if values else NEVER, no=no)


@final
@dataclass(frozen=True, slots=True)
class _Elements:
    """The elements of a set as one type, up to the first that cannot be cast, and CEL for whether a value equals one."""

    text: str
    values: Sequence[Any]
    is_whole: bool

    def folded(self, x: Any) -> Value:
        if x in self.values:
            return constant(True)
        return constant(False) if self.is_whole else _faulty("boolean", "an element of the set has another type")


def _elements(x: Value, kind: Kind, items: Sequence[Value]) -> _Elements:
    # An attribute that is null is missing, and so an error: it is no integer.
    at = f"int({x.cel})" if (x.kind, kind) == ("any", "integer") else x.cel
    tests: list[str] = []
    values: list[Any] = []
    first = 0
    for item in items:
        each = cast_to(item, kind)
        if each.fault:
            break
        if each.const is not None:
            values.append(each.const)
            continue
        tests += [_one_of(at, values[first:])] if first < len(values) else []
        tests.append(f"{at} == {each.cel}")
        first = len(values)
    else:
        tests += [_one_of(at, values[first:])] if first < len(values) else []
        return _Elements(" ? true : ".join(tests), values, True)
    tests += [_one_of(at, values[first:])] if first < len(values) else []
    return _Elements(" ? true : ".join([*tests, _ERROR]), values, False)


def _one_of(at: str, values: Sequence[Any]) -> str:
    return f"{at} in {cel_literal(list(values))}"


def like(x: Value, pattern: str) -> Value:
    """Return `LIKE`. In the pattern, `\\` escapes only the two wildcards."""
    pieces = re.findall(r"\\[%_]|.", pattern, re.DOTALL)
    texts = [each[-1] for each in pieces if each not in ("%", "_")]
    if len(texts) == len(pieces):
        return _equal(x, constant("".join(texts)))
    regexp = "".join({"%": ".*", "_": "."}.get(each) or regexp_of(each[-1]) for each in pieces)
    text = cast_to(x, "string")
    if text.const is not None:
        return constant(re.fullmatch(regexp, str(text.const), re.DOTALL) is not None)
    op, method, operand = "matches", "matches", f"(?s)^{regexp}$"
    if len(texts) == len(pieces) - 1 and texts and pieces[-1] == "%":
        op, method, operand = "starts_with", "startsWith", "".join(texts)
    elif len(texts) == len(pieces) - 1 and texts and pieces[0] == "%":
        op, method, operand = "ends_with", "endsWith", "".join(texts)
    made = _boolean(f"{text.cel}.{method}({cel_literal(operand)})", text.fails)
    # Integers and booleans are cast to texts of few characters.
    others = set("-0123456789").issuperset(texts) or any(re.fullmatch(regexp, word) for word in ("true", "false"))
    if x.attribute is None or (x.kind == "any" and others):
        return made
    return replace(made, yes=Test(_path(x.attribute), op, operand))


_MATHS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    # Rounded towards zero; the remainder has the sign of the dividend.
    "/": lambda x, y: abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1),
    "%": lambda x, y: abs(x) % abs(y) * (-1 if x < 0 else 1),
}


def computed(op: str, x: Value, y: Value) -> Value:
    """Return the result of arithmetic; a result of more than 32 bits is an error."""
    x, y = cast_to(x, "integer"), cast_to(y, "integer")
    if fault := _fault((x, y)):
        return _faulty("integer", fault)
    if y.const == 0 and op in "/%":
        return _faulty("integer", "this divides by zero")
    if x.const is not None and y.const is not None:
        return limited(_MATHS[op](int(x.const), int(y.const)))
    return Value("integer", _in_range(f"{x.cel} {op} {y.cel}"), fails=None)


def limited(number: int) -> Value:
    """Return a computed constant, with a fault if it has more than 32 bits."""
    return constant(number) if LEAST <= number <= MOST else _faulty("integer", f"{number} has more than 32 bits")


# Functions (3.5)


@final
@dataclass(frozen=True, slots=True)
class _Function:
    """A function: the types of its arguments, of which the last may repeat, its result, and how it is computed.

    Attributes:
        fold: its value for constants; it raises ValueError for an error.
        cel: its CEL; None if CEL cannot express it.
    """

    arguments: tuple[Kind, ...]
    result: Kind
    fold: Callable[..., str | int]
    cel: Callable[..., str] | None = None
    repeats: bool = False


def _joined(separator: str, *texts: str) -> str:
    return separator.join(texts)


def _joined_cel(separator: str, *texts: str) -> str:
    if len(texts) > 1:
        return f"({f' + {separator} + '.join(texts)})"
    # A separator that is not used may be an error.
    return f"[{separator}, {texts[0] if texts else repr('')}][1]"


def _length_of(count: int) -> int:
    if count < 0:
        raise ValueError(f"{count} is negative")
    return count


def _substring(text: str, start: int, count: int | None = None) -> str:
    if abs(start) > len(text):
        raise ValueError(f"{start} is outside of the text")
    count = len(text) if count is None else _length_of(count)
    first = start - 1 if start > 0 else len(text) + start
    return text[first : first + count] if start else ""


def _absolute(number: int) -> int:
    if number == LEAST:
        raise ValueError(f"{-number} has more than 32 bits")
    return abs(number)


#: Unicode's white space.
_WHITE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)

_FUNCTIONS: Final[Mapping[str, Sequence[_Function]]] = {
    "LENGTH": [_Function(("string",), "integer", len, lambda text: f"size({text})")],
    "CONCAT": [
        _Function(("string",), "string", lambda *texts: "".join(texts), lambda *texts: f"({' + '.join(texts)})", repeats=True)
    ],
    "CONCAT_WS": [_Function(("string", "string"), "string", _joined, _joined_cel, repeats=True)],
    "LOWER": [_Function(("string",), "string", str.lower)],
    "UPPER": [_Function(("string",), "string", str.upper)],
    "TRIM": [_Function(("string",), "string", lambda text: str(text).strip(_WHITE))],
    "LEFT": [_Function(("string", "integer"), "string", lambda text, count: str(text)[: _length_of(count)])],
    "RIGHT": [_Function(("string", "integer"), "string", lambda text, count: str(text)[max(len(text) - _length_of(count), 0) :])],
    "SUBSTRING": [
        _Function(("string", "integer"), "string", _substring),
        _Function(("string", "integer", "integer"), "string", _substring),
    ],
    "ABS": [_Function(("integer",), "integer", _absolute, lambda number: _in_range(f"{number} < 0 ? -{number} : {number}"))],
}
_CASTS: Final[Mapping[str, Kind]] = {"INT": "integer", "BOOL": "boolean", "STRING": "string"}


def called(name: str, arguments: Sequence[Value]) -> Value:
    """Return the result of a function, whose name is in capitals.

    Raises:
        SubscriptionError: the function is unknown, or CEL cannot express it.
    """
    if name in _CASTS and len(arguments) == 1:
        return cast_to(arguments[0], _CASTS[name])
    if name not in _FUNCTIONS and name not in _CASTS:
        raise SubscriptionError(f"there is no function {name[:40]}; those of an engine's own are not translated")
    count = len(arguments)
    function = next((each for each in _FUNCTIONS.get(name, ()) if _takes(each, count)), None)
    if function is None:
        raise SubscriptionError(f"there is no function {name} of {count} arguments")
    kinds = function.arguments[:count] + function.arguments[-1:] * max(count - len(function.arguments), 0)
    values = [cast_to(each, kind) for each, kind in zip(arguments, kinds, strict=True)]
    if fault := _fault(values):
        return _faulty(function.result, fault)
    if all(each.const is not None for each in values):
        try:
            return constant(function.fold(*(each.const for each in values)))
        except ValueError as error:
            return _faulty(function.result, f"{name}: {error}")
    if function.cel is None:
        raise SubscriptionError(f"{name} of an attribute is not expressible: CEL has no such function; compare with LIKE instead")
    fails = _all_fail(values) if function.result == "string" or name == "LENGTH" else None
    return Value(function.result, function.cel(*(each.cel for each in values)), fails=fails)


def _takes(function: _Function, count: int) -> bool:
    # The repeated argument may be left out.
    return count >= len(function.arguments) - 1 if function.repeats else count == len(function.arguments)


def located(value: Value, column: int) -> Value:
    """Return a part whose fault has a place."""
    return replace(value, fault=f"{value.fault} at column {column}") if value.fault and "column" not in value.fault else value


def passing(value: Value) -> Condition:
    """Return the condition under which an event passes an expression: it is true, and no error (1.2).

    Raises:
        SubscriptionError: no event passes it.
    """
    if value.fault:
        raise SubscriptionError(f"{value.fault}, so the expression is an error for every event")
    if value.kind == "any":
        # The result of an expression is not cast: the text `true` does not pass.
        return Test(_path(value.attribute or ""), "==", True)
    if value.kind != "boolean":
        raise SubscriptionError(f"an expression of type {value.kind} passes for no event; compare its value")
    return value.yes
