"""Parse patterns, in the dialects of Quamina (`strict`) and EventBridge (semantics.md section 5).

```
{"data": {"tags": [{"prefix": "vip"}, "staff"]},        AllOf
 "$or": [{"type": ["insert"]},                           ├─ Field ("data", "tags")  Prefix "vip" | Equal "staff"
         {"type": ["update"], "before": {..}}]}          └─ AnyOf ─┬─ AllOf ── Field ("type")  Equal "insert"
                                                                   └─ AllOf ── ...
```

Objects of the pattern become paths from the root of the event. The tree nests only at `$or`, at most `MAX_OR_DEPTH` levels, so
you can compare, print and pickle it without exceeding Python's stack.

The cost of a pattern, in *states*, is bounded by `limits.max_pattern_states`. It is the sum of

- for each field, the names in its path and the states of its matchers: the parts between the stars of a wildcard, the states of
  a regexp (streamer.subscriptions.regexps), the sum of the excluded matchers of `anything-but`, else 1;
- the fields of the disjunctive form, each as often as it occurs there: the most that a choice of alternatives can cost.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard, final

import re2

from streamer.cel_eval.regexps import too_large
from streamer.errors import EventError, PatternError
from streamer.events.json import Pairs, parse
from streamer.model import INT64_MIN, UINT64_MAX, BeyondFloat64, Dialect, Limits
from streamer.subscriptions.matchers import (
    Absent,
    AnythingBut,
    Cidr,
    Equal,
    EqualsIgnoreCase,
    Exists,
    Matcher,
    Numeric,
    Prefix,
    Regexp,
    Scalar,
    Suffix,
    Wildcard,
    parse_network,
)
from streamer.subscriptions.places import Place
from streamer.subscriptions.regexps import RegexpError, compile_re2, translate
from streamer.subscriptions.sizes import REGEXP_UNITS, Size, SizeName

MAX_OR_DEPTH = 64

#: Event Ruler's reserved words (Constants.java) and the operators that it does not have. An object in `$or` with one of these
#: names is a matcher, not an alternative.
OPERATOR_NAMES = frozenset(
    "exactly equals-ignore-case prefix suffix anything-but exists wildcard numeric cidr = < <= > >= regex not-wildcard "
    "not-equals-ignore-case date-after date-on-or-after date-before date-on-or-before in-date-range ip-address-in-range "
    "ip-address-not-in-range shellstyle regexp".split()
)

#: Operators whose operand may be empty, except in `anything-but`, because there it would exclude every text.
AFFIXES = frozenset(("prefix", "suffix"))

#: How many states it takes one unit to read: few but those of regexps and of long paths are more than one at once.
_STATES_A_UNIT: Final = 4
#: What it takes to read an operator, and in addition a network, a range or an `anything-but`.
_OPERATOR_UNITS, _CIDR_UNITS, _NUMERIC_UNITS, _ANYTHING_BUT_UNITS = 1, 7, 2, 4
#: What it takes to read an alternative of a `$or`, in addition to its fields.
_ALTERNATIVE_UNITS: Final = 6

#: The matcher for an empty affix.
ANY_TEXT = Wildcard(("", ""))

#: In the strict dialect, each of these must be the only element of its array.
EXCLUSIVE = frozenset(("exists", "anything-but", "regexp"))


@final
@dataclass(frozen=True, slots=True)
class Field:
    """A path, as names from the root of the event, and its matchers: one must match. Without matchers, it never matches."""

    path: tuple[str, ...]
    matchers: tuple[Matcher, ...]


@final
@dataclass(frozen=True, slots=True)
class AnyOf:
    """The alternatives of a `$or`, at least two."""

    alternatives: tuple[AllOf, ...]


@final
@dataclass(frozen=True, slots=True)
class AllOf:
    """Parts that must all match, under one choice of array elements; at least one."""

    fields: tuple[Field | AnyOf, ...]


@final
@dataclass(frozen=True)
class Pattern:
    """A pattern that can be accepted.

    It has no slots, so that an evaluator can cache derived values in `vars(pattern)`, which are not pickled.
    """

    root: AllOf
    dialect: Dialect = "eventbridge"

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "dialect": self.dialect}


def parse_pattern(
    source: Mapping[str, Any] | str | bytes, *, dialect: Dialect, limits: Limits, place: str = "", size: Size | None = None
) -> Pattern:
    """Return the tree of a pattern.

    Args:
        source: JSON text, or a mapping of JSON values (and `Pairs`, as `streamer.events.json` reads objects).
        dialect: `strict` is Quamina's, `eventbridge` that of subscriptions.
        limits: `max_depth`, `max_event_bytes` (of the text), `max_conditions`, `max_alternatives` and `max_pattern_states` apply.
        place: the place of the pattern, for errors; the path in the pattern is appended.
        size: the size of the subscription's other parts, to which the size of the pattern is added.

    Raises:
        PatternError: the pattern is wrong; it has the path in the pattern, such as `data.tags[0].prefix`.
    """
    if isinstance(source, str | bytes | bytearray | memoryview):
        source = _read(source, limits, place)
    return _Parser(dialect, limits, size if size is not None else Size(limits)).parse(source, Place(None, place))


def _read(text: str | bytes | bytearray | memoryview, limits: Limits, place: str) -> Any:
    try:
        encoded = text.encode() if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError as error:
        raise PatternError(f"a lone surrogate at character {error.start}", place=place) from None
    try:
        return parse(encoded, max_depth=limits.max_depth, max_bytes=limits.max_event_bytes, pairs=True)
    except EventError as error:
        where = "" if error.offset is None else f" at byte {error.offset}"
        raise PatternError(f"{error.code.value}{where}: {error.reason}", place=place) from None


def is_choice(name: str, value: Any, dialect: Dialect) -> bool:
    """Return whether an array in a pattern is a `$or` with alternatives, not an ordinary field (semantics.md 5.27 to 5.30)."""
    if name != "$or" or dialect == "strict":
        return False
    objects = [each for each in value if _is_object(each)]
    return len(objects) > 1 and OPERATOR_NAMES.isdisjoint(name for each in objects for name in _names(each))


class _Path(NamedTuple):
    """The names of a path, linked from its end, so that a million members below a deep path share it."""

    outer: _Path | None
    name: str
    length: int

    def names(self) -> tuple[str, ...]:
        names = []
        path: _Path | None = self
        while path is not None:
            names.append(path.name)
            path = path.outer
        return tuple(reversed(names))


@dataclass(slots=True)
class _Branch:
    """An AllOf during parsing."""

    depth: int  # the number of `$or` around it
    parts: list[Field | list[_Branch]] = field(default_factory=list)

    def freeze(self) -> AllOf:
        return AllOf(
            tuple(
                part if isinstance(part, Field) else AnyOf(tuple(alternative.freeze() for alternative in part))
                for part in self.parts
            )
        )

    def disjunctive_form(self) -> tuple[int, int]:
        """Return the number of conjunctions of its disjunctive form, and the number of fields in all of them together."""
        conjunctions, fields = 1, 0
        for part in self.parts:
            if isinstance(part, Field):
                fields += conjunctions
                continue
            forms = [alternative.disjunctive_form() for alternative in part]
            inner = sum(form[0] for form in forms)
            fields = fields * inner + conjunctions * sum(form[1] for form in forms)
            conjunctions *= inner
        return conjunctions, fields


@dataclass(slots=True)
class _Task:
    """A member that the parser has not read yet."""

    value: Any
    path: _Path | None  # None is the root
    place: Place
    branch: _Branch
    depth: int  # of the JSON value


class _Parser:
    def __init__(self, dialect: Dialect, limits: Limits, size: Size) -> None:
        self.dialect = dialect
        self.limits = limits
        self.size = size
        self.states = 0
        self.remaining_bytes = limits.max_subscription_bytes

    def parse(self, source: Any, place: Place) -> Pattern:
        self.place = place
        root = _Branch(0)
        # Reversed, so that members are read in the order of the text and the first error is reported.
        tasks = self._members(_Task(source, None, place, root, 1))[::-1]
        while tasks:
            task = tasks.pop()
            if _is_array(task.value):
                alternatives = self._alternatives(task)
                if alternatives is None:
                    task.branch.parts += self._fields(task)
                else:
                    tasks.extend(alternatives[::-1])
            elif _is_object(task.value):
                tasks.extend(self._members(task)[::-1])
            else:
                _fail(f"expected an array of values or an object, not {_kind(task.value)}", task.place)
        self._spend(root.disjunctive_form()[1], place)
        return Pattern(root.freeze(), self.dialect)

    def _members(self, task: _Task) -> list[_Task]:
        """Check an object whose members are fields, and return a task for each member."""
        if not _is_object(task.value):
            _fail(f"a pattern is a JSON object, not {_kind(task.value)}", task.place)
        if task.depth > self.limits.max_depth:
            _fail(f"nested deeper than {self.limits.max_depth} levels", task.place)
        members = _members_of(task.value, task.place)
        if not members:
            _fail("an object must not be empty", task.place)
        # Each member has at least one field, so one member beyond the limit is enough to refuse the pattern.
        read = dict(itertools.islice(members.items(), self.limits.max_conditions + 1))
        self._take_bytes(sum(map(len, read)))
        length = 1 if task.path is None else task.path.length + 1
        return [
            _Task(value, _Path(task.path, name, length), Place(task.place, name), task.branch, task.depth + 1)
            for name, value in read.items()
        ]

    def _take_bytes(self, count: int) -> None:
        """Count bytes that the text of the pattern has at least, because a mapping may repeat a long text many times."""
        self.remaining_bytes -= count
        if self.remaining_bytes < 0:
            most = self.limits.max_subscription_bytes
            reason = f"more than the {most} bytes of JSON text that are allowed (limits.max_subscription_bytes)"
            raise PatternError(reason, place=str(self.place))

    def _alternatives(self, task: _Task) -> list[_Task] | None:
        """Return a task for each member of the alternatives of a `$or`; None if the array belongs to an ordinary field."""
        if task.path is None or not is_choice(task.path.name, task.value, self.dialect):
            return None
        if task.branch.depth == MAX_OR_DEPTH:
            _fail(f"$or nested deeper than {MAX_OR_DEPTH} levels", task.place)
        self.size.spend(_ALTERNATIVE_UNITS * len(task.value))
        branches: list[_Branch] = []
        members: list[_Task] = []
        for i, alternative in enumerate(task.value):
            place = Place(task.place, i)
            if not _is_object(alternative):
                _fail(f"an alternative of $or is an object, not {_kind(alternative)}", place)
            branch = _Branch(task.branch.depth + 1)
            branches.append(branch)
            members += self._members(_Task(alternative, task.path.outer, place, branch, task.depth + 1))
        task.branch.parts.append(branches)
        return members

    def _fields(self, task: _Task) -> list[Field | list[_Branch]]:
        """Return the parts of an array of values: a field, those of an `all`, or as many alternatives as there are of both."""
        if not task.value and self.dialect != "strict":
            _fail("an array of values must not be empty", task.place)
        assert task.path is not None  # only members have arrays
        self._grow("conditions", 1, task.place)
        self._grow("alternatives", len(task.value), task.place)
        self._spend(task.path.length, task.place)
        names = task.path.names()
        matchers: list[Matcher] = []
        joined: list[list[Field | list[_Branch]]] = []
        for i, value in enumerate(task.value):
            place = Place(task.place, i)
            if not _is_object(value):
                self._spend(1, place)
                matchers.append(Equal(self._scalar(value, place)))
                continue
            name, operand = self._only_member(value, place)
            at = Place(place, name)
            known = OPERATORS_OF[self.dialect]
            if name not in known:
                hint = "did you mean all?" if name == "allOf" and "all" in known else f"expected one of {', '.join(known)}"
                _fail(f"unknown operator, {hint}", at)
            if self.dialect == "strict" and name in EXCLUSIVE and len(task.value) > 1:
                _fail(f"{name} must be the only element of its array", at)
            self.size.spend(_OPERATOR_UNITS)
            if name == "all":
                joined.append([Field(names, (each,)) for each in self._all(operand, at, task.path.length)])
            else:
                matchers.append(OPERATORS[name](self, operand, at))
        if not joined:
            return [Field(names, tuple(matchers))]
        if len(joined) == 1 and not matchers:
            return joined[0]
        if matchers:
            joined.append([Field(names, tuple(matchers))])
        return [[_Branch(task.branch.depth + 1, parts) for parts in joined]]

    def _all(self, operand: Any, place: Place, length: int) -> Iterator[Matcher]:
        """Yield the conditions of an `all`, each of which counts as one of a field of its own, on a path of *length* names."""
        if not _is_array(operand):
            _fail(f"expected an array of conditions, not {_kind(operand)}", place)
        if not operand:
            _fail("an array of conditions must not be empty", place)
        self._grow("conditions", len(operand), place)
        self._grow("alternatives", len(operand), place)
        self._spend(length * len(operand), place)
        for i, value in enumerate(operand):
            at = Place(place, i)
            if not _is_object(value):
                self._spend(1, at)
                yield Equal(self._scalar(value, at))
                continue
            name, inner = self._only_member(value, at)
            at = Place(at, name)
            if name not in JOINABLE:
                _fail(f"unknown operator, expected one of {', '.join(JOINABLE)}", at)
            self.size.spend(_OPERATOR_UNITS)
            matcher = OPERATORS[name](self, inner, at)
            if isinstance(matcher, Absent):
                _fail("all conditions are on one value; expected true", at)
            yield matcher

    def _only_member(self, value: Any, place: Place) -> tuple[str, Any]:
        if type(value) is dict and len(value) == 1:
            (member,) = value.items()
            if member[0] in OPERATORS:
                # Nearly every one is valid, and its name needs no check.
                return member
        members = _members_of(value, place)
        if len(members) != 1:
            _fail(f"expected one operator, found {len(members)} members" if members else "an object must not be empty", place)
        return next(iter(members.items()))

    def _grow(self, what: SizeName, more: int, place: Place) -> None:
        if (reason := self.size.grow(what, more)) is not None:
            _fail(reason, place)

    def _spend(self, states: int, place: Place) -> None:
        self.states += states
        self.size.spend(states // _STATES_A_UNIT)
        if self.states > self.limits.max_pattern_states:
            _fail(f"the pattern has more than {self.limits.max_pattern_states} states (limits.max_pattern_states)", place)

    # Operands

    def _scalar(self, value: Any, place: Place) -> Scalar:
        if isinstance(value, str):
            return self._text(value, place)
        if value is None or isinstance(value, bool | BeyondFloat64):
            return value
        if not isinstance(value, int | float):
            _fail(f"expected a string, number, true, false, null or an operator, not {_kind(value)}", place)
        return self._number(value, place)

    def _number(self, value: Any, place: Place) -> int | float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            _fail(f"expected a number, not {_kind(value)}", place)
        if isinstance(value, int) and not INT64_MIN <= value <= UINT64_MAX:
            _fail("an integer beyond 64 bits", place)
        if isinstance(value, float) and not math.isfinite(value):
            _fail(f"{value} is not a JSON number", place)
        return value

    def _text(self, value: Any, place: Place) -> str:
        if not isinstance(value, str):
            _fail(f"expected a string, not {_kind(value)}", place)
        self._take_bytes(len(value))
        _check_text(value, place)
        return value

    def _affix(self, kind: type[Prefix] | type[Suffix], operand: Any, place: Place) -> Prefix | Suffix | Wildcard:
        self._spend(1, place)
        ignore_case = _is_object(operand)
        if ignore_case:
            name, operand = self._only_member(operand, place)
            place = Place(place, name)
            if name != "equals-ignore-case":
                _fail("unknown operator, expected equals-ignore-case", place)
        text = self._text(operand, place)
        return kind(text, ignore_case) if text else ANY_TEXT

    def _prefix(self, operand: Any, place: Place) -> Prefix | Suffix | Wildcard:
        return self._affix(Prefix, operand, place)

    def _suffix(self, operand: Any, place: Place) -> Prefix | Suffix | Wildcard:
        return self._affix(Suffix, operand, place)

    def _exactly(self, operand: Any, place: Place) -> Equal:
        self._spend(1, place)
        return Equal(self._text(operand, place))

    def _equals_ignore_case(self, operand: Any, place: Place) -> EqualsIgnoreCase:
        self._spend(1, place)
        return EqualsIgnoreCase(self._text(operand, place))

    def _wildcard(self, operand: Any, place: Place) -> Wildcard:
        pieces = [""]
        after_star = False
        text = self._text(operand, place)
        self.size.spend(len(text) // 16)
        characters = iter(text)
        for char in characters:
            if char == "*":
                if after_star:
                    _fail("two stars in a row", place)
                pieces.append("")
            elif char == "\\":
                char = next(characters, "")
                if char not in ("*", "\\"):
                    _fail("a backslash must be followed by '*' or a backslash", place)
                pieces[-1] += char
                after_star = False
                continue
            else:
                pieces[-1] += char
            after_star = char == "*"
        self._spend(len(pieces), place)
        return Wildcard(tuple(pieces))

    def _shellstyle(self, operand: Any, place: Place) -> Wildcard:
        text = self._text(operand, place)
        if "**" in text:
            _fail("two stars in a row", place)
        pieces = tuple(text.split("*"))
        self._spend(len(pieces), place)
        return Wildcard(pieces)

    def _regexp(self, operand: Any, place: Place) -> Regexp:
        text = self._text(operand, place)
        try:
            translated = translate(text, self.dialect)
        except RegexpError as error:
            _fail(str(error), place)
        self.size.spend(REGEXP_UNITS)
        most = self.limits.max_regexp_size
        if translated.states > most:
            _fail(too_large(translated.states, most), place)
        self._spend(translated.states, place)
        try:
            compile_re2(translated.re2)
        except re2.error as error:
            _fail(f"RE2 does not take it: {error}", place)
        return Regexp(text, self.dialect, translated.re2, translated.states)

    def _numeric(self, operand: Any, place: Place) -> Numeric:
        self._spend(1, place)
        self.size.spend(_NUMERIC_UNITS)
        if not _is_array(operand):
            _fail(f"expected an array of comparisons and numbers, not {_kind(operand)}", place)
        if len(operand) not in (2, 4):
            _fail('expected one or two comparisons, as in [">", 0, "<=", 5]', place)
        signs = operand[::2]
        for i, sign in enumerate(signs):
            if not isinstance(sign, str) or sign not in ("=", "<", "<=", ">", ">="):
                _fail("expected one of = < <= > >=", Place(place, 2 * i))
        numbers = [self._bound(value, Place(place, 2 * i + 1)) for i, value in enumerate(operand[1::2])]
        if len(signs) == 1:
            (sign,), (number,) = signs, numbers
            if sign == "=":
                return Numeric(number, True, number, True)
            if sign in (">", ">="):
                return Numeric(low=number, low_inclusive=sign == ">=")
            return Numeric(high=number, high_inclusive=sign == "<=")
        if signs[0] not in (">", ">=") or signs[1] not in ("<", "<="):
            _fail("the first of two comparisons must be a lower bound, the second an upper bound", place)
        if not numbers[0] < numbers[1]:
            _fail("the lower bound must be less than the upper bound", place)
        return Numeric(numbers[0], signs[0] == ">=", numbers[1], signs[1] == "<=")

    def _bound(self, value: Any, place: Place) -> int | float:
        if isinstance(value, BeyondFloat64):
            _fail(f"{value.text} is beyond float64", place)
        return self._number(value, place)

    def _cidr(self, operand: Any, place: Place) -> Cidr:
        self._spend(1, place)
        self.size.spend(_CIDR_UNITS)
        network = parse_network(self._text(operand, place))
        if network is None:
            _fail("expected an IPv4 or IPv6 network, as 10.0.0.0/24", place)
        return Cidr(network)

    def _exists(self, operand: Any, place: Place) -> Exists | Absent:
        self._spend(1, place)
        if not isinstance(operand, bool):
            _fail(f"expected true or false, not {_kind(operand)}", place)
        return Exists() if operand else Absent()

    def _anything_but(self, operand: Any, place: Place) -> AnythingBut:
        self.size.spend(_ANYTHING_BUT_UNITS)
        if _is_object(operand):
            name, inner = self._only_member(operand, place)
            place = Place(place, name)
            build = EXCLUDABLE.get(name)
            if build is None:
                _fail(f"unknown operator, expected one of {', '.join(EXCLUDABLE)}", place)
            items = list(self._one_or_more(inner, place))
            for item, at in items:
                if not self._text(item, at) and name in AFFIXES:
                    _fail("must not be empty", at)
            return AnythingBut(tuple(build(self, item, at) for item, at in items))
        matchers: list[Equal] = []
        for item, at in self._one_or_more(operand, place):
            self._spend(1, at)
            if isinstance(item, bool) or not isinstance(item, str | int | float | BeyondFloat64):
                _fail(f"expected a string or a number, not {_kind(item)}", at)
            matchers.append(Equal(self._scalar(item, at)))
            if isinstance(item, str) != isinstance(matchers[0].value, str):
                _fail("strings and numbers must not be mixed", at)
        return AnythingBut(tuple(matchers))

    def _one_or_more(self, operand: Any, place: Place) -> Iterator[tuple[Any, Place]]:
        if not _is_array(operand):
            yield operand, place
            return
        if not operand:
            _fail("a list must not be empty", place)
        # The array of the operator has counted one already.
        self._grow("alternatives", len(operand) - 1, place)
        for i, item in enumerate(operand):
            yield item, Place(place, i)


#: By operator, the function that parses its operand; `all` has conditions instead, see `_all`.
OPERATORS: dict[str, Callable[[_Parser, Any, Place], Matcher]] = {
    "prefix": _Parser._prefix,
    "suffix": _Parser._suffix,
    "equals-ignore-case": _Parser._equals_ignore_case,
    "wildcard": _Parser._wildcard,
    "shellstyle": _Parser._shellstyle,
    "regexp": _Parser._regexp,
    "numeric": _Parser._numeric,
    "cidr": _Parser._cidr,
    "exists": _Parser._exists,
    "anything-but": _Parser._anything_but,
    "exactly": _Parser._exactly,
}

#: The operators that `all` accepts.
JOINABLE: Final = tuple(OPERATORS)

#: `exactly` is Event Ruler's, and `all` is ours; Quamina lacks both.
OPERATORS_OF: Final[Mapping[Dialect, tuple[str, ...]]] = {
    "eventbridge": (*OPERATORS, "all"),
    "strict": tuple(name for name in OPERATORS if name != "exactly"),
}

_SCALARS: Final = (str, int, float, bool, type(None))

#: The operators that `anything-but` accepts.
EXCLUDABLE: dict[str, Callable[[_Parser, Any, Place], Prefix | Suffix | EqualsIgnoreCase | Wildcard]] = {
    "prefix": _Parser._prefix,
    "suffix": _Parser._suffix,
    "equals-ignore-case": _Parser._equals_ignore_case,
    "wildcard": _Parser._wildcard,
}


def _is_object(value: object) -> TypeGuard[Mapping[Any, Any] | Pairs]:
    # Look at the exact types first: a pattern may have very many values, and an abstract class takes long.
    return type(value) is dict or (type(value) not in _SCALARS and isinstance(value, Mapping | Pairs))


def _is_array(value: object) -> bool:
    return isinstance(value, list | tuple) and not isinstance(value, Pairs)


def _names(value: Mapping[Any, Any] | Pairs) -> Iterator[Any]:
    return (name for name, _ in value) if isinstance(value, Pairs) else iter(value)


def _members_of(value: Mapping[Any, Any] | Pairs, place: Place) -> dict[str, Any]:
    """Return the members of an object after checking their names."""
    members: dict[str, Any] = {}
    for name, member in value if isinstance(value, Pairs) else value.items():
        if not isinstance(name, str):
            _fail(f"a name must be a string, not {_kind(name)}", place)
        if not name.isascii():
            _check_text(name, Place(place, name))
        if name in members:
            _fail(f"the name {json.dumps(name, ensure_ascii=False)} stands here twice", Place(place, name))
        members[name] = member
    return members


def _check_text(text: str, place: Place) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        _fail("a lone surrogate", place)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int | float | BeyondFloat64):
        return "a number"
    if _is_object(value):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    return type(value).__name__


def _fail(reason: str, place: Place) -> NoReturn:
    raise PatternError(reason, place=str(place))
