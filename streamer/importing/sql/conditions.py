"""Translate a condition of SQL into two: when it is true, and when it is false (docs/coming-from/sql.md).

    a = 1            true: a is 1                 false: a has a value, but not 1        otherwise, if a is null, unknown
    NOT (a = 1)      the two swap
    a = 1 AND b      true: both are true          false: one is false

So a condition that contains NOT is as exact as one without. An event matches if the whole is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from sqlglot import exp

from streamer.errors import SubscriptionError
from streamer.importing.conditions import ALWAYS, NEVER, Cel, Condition, Not, Path, Test, all_of, any_of
from streamer.importing.sql import patterns, values
from streamer.importing.sql.reading import VALUES, Coalesce, Column, Folded, Reader, Value, bare
from streamer.importing.sql.values import NULL, Constant
from streamer.subscriptions.cel_text import present


@final
@dataclass(frozen=True, slots=True)
class Truth:
    """A condition with three truth values; it is unknown if neither is true."""

    true: Condition
    false: Condition

    def negated(self) -> Truth:
        return Truth(self.false, self.true)


TRUE: Final = Truth(ALWAYS, NEVER)
UNKNOWN: Final = Truth(NEVER, NEVER)

_COMPARISONS: Final[dict[type, str]] = {exp.EQ: "==", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_SWAPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MAX_UNKNOWN: Final = 8
#: A subscription has at most 20,000 filters. A list after IN counts as one.
_MAX_COMPARISONS: Final = 20_000


@final
class Translator:
    """Translates the condition of one statement, whose values a reader reads."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._depth = 0
        self._comparisons = 0

    def condition(self, node: exp.Expr) -> Truth:
        """Return when a condition is true, and when it is false.

        Raises:
            SubscriptionError: it has no exact translation; `place` is its line and column.
        """
        with self._reader.at(node):
            self._reader.check_members(node)
            truth = self._condition(node)
            return truth.negated() if node.args.get("negate") else truth

    def _condition(self, node: exp.Expr) -> Truth:
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And() | exp.Or():
                return self._logic(node)
            case exp.Not():
                return self.condition(node.this).negated()
            case exp.Is():
                return self._is(node)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                truth = self._same(self._reader.value(node.this), self._reader.value(node.expression))
                return truth if isinstance(node, exp.NullSafeEQ) else truth.negated()
            case exp.In() if node.expressions:
                return self._in(self._reader.value(node.this), [self._reader.value(each) for each in node.expressions])
            case exp.Between():
                value = self._reader.value(node.this)
                low = self._compare(">=", value, self._reader.value(node.args["low"]))
                return _and([low, self._compare("<=", value, self._reader.value(node.args["high"]))])
            case exp.EQ() | exp.NEQ() if isinstance(node.expression, (exp.Any, exp.All, exp.Anonymous)):
                return self._quantified(node, node.expression)
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._compare(_COMPARISONS[type(node)], self._reader.value(node.this), self._reader.value(node.expression))
            case exp.Like() | exp.ILike() | exp.Escape() | exp.StartsWith() | exp.RegexpLike():
                return self._text(node)
            case exp.ArrayContainsAll() | exp.ArrayOverlaps():
                return self._arrays(node)
            case _ if isinstance(node, VALUES):
                return self._compare("==", self._reader.value(node), Constant(True, "boolean"))
            case _:
                raise self._reader.refusal(node)

    def _logic(self, node: exp.Expr) -> Truth:
        # A chain of ANDs nests to the left, as deep as it is long.
        kind, operands = type(node), []
        while type(node) is kind:
            self._reader.check_members(node)
            operands.append(node.expression)
            node = node.this
        truths = [self.condition(each) for each in reversed([*operands, node])]
        return _and(truths) if kind is exp.And else _and([each.negated() for each in truths]).negated()

    def _is(self, node: exp.Expr) -> Truth:
        operand, word = bare(node.this), node.expression
        if isinstance(word, exp.Boolean):
            truth = self.condition(operand)
            return _two(truth.true if word.this else truth.false)
        if not isinstance(word, exp.Null):
            raise self._reader.refusal(node)
        if isinstance(operand, (*VALUES, exp.JSONExtract, exp.JSONExtractScalar)):
            return _two(_null(self._reader.value(operand)))
        # The result has both conditions of the operand, so it doubles with each IS UNKNOWN.
        self._depth += 1
        if self._depth > _MAX_UNKNOWN:
            raise self._reader.refusal(node, f"IS UNKNOWN nests more than {_MAX_UNKNOWN} deep")
        truth = self.condition(operand)
        self._depth -= 1
        return _two(Not(any_of(truth.true, truth.false)))

    def _same(self, one: Value, other: Value) -> Truth:
        return _two(any_of(self._compare("==", one, other).true, all_of(_null(one), _null(other))))

    def _in(self, value: Value, items: Sequence[Value]) -> Truth:
        constants = [each for each in items if isinstance(each, Constant) and each.kind not in (*values.INSTANTS, "null")]
        if (
            not isinstance(value, Column)
            or len(constants) < 2
            or any(not isinstance(each, Constant) or each.kind in values.INSTANTS for each in items)
        ):
            return _and([self._compare("!=", value, each) for each in items]).negated()
        for each in constants:
            self._reader.claim(value, each)
        wanted = [each.value for each in constants]
        differs = Test(value.path, "not in", [*wanted, None])
        return Truth(Test(value.path, "in", wanted), NEVER if NULL in items else differs)

    def _quantified(self, node: exp.Expr, words: exp.Expr) -> Truth:
        is_any = isinstance(words, exp.Any) or words.name.upper() == "SOME"
        if not is_any and not isinstance(words, exp.All) and words.name.upper() != "ALL":
            raise self._reader.refusal(words)
        if is_any is not isinstance(node, exp.EQ):
            raise self._reader.refusal(node, "only = ANY(..) and <> ALL(..) are supported")
        inner = words.expressions[0] if isinstance(words, exp.Anonymous) and len(words.expressions) == 1 else words.this
        if not isinstance(words, exp.Anonymous) and not isinstance(inner, exp.Paren):
            raise self._reader.refusal(node, "expected brackets after ANY and ALL")
        inner = bare(inner)
        value = self._reader.value(node.this)
        if items := self._reader.elements(inner):
            truth = self._in(value, items)
            return truth if is_any else truth.negated()
        if not is_any or not isinstance(inner, exp.Column) or not isinstance(value, Constant):
            raise self._reader.refusal(node, "only = ANY(ARRAY[..]), <> ALL(ARRAY[..]) and constant = ANY(column) are supported")
        path = self._list(inner)
        has = self._element(path, value)
        return Truth(has, all_of(Test(path, "type", ["list"]), Not(has), Not(Test(path, "has_element", None))))

    def _arrays(self, node: exp.Expr) -> Truth:
        items = self._reader.elements(node.expression)
        if not items:
            raise self._reader.refusal(
                node, "only column @> ARRAY[..] and column && ARRAY[..] are supported, with constants in the list"
            )
        path = self._list(node.this)
        if any(not isinstance(each, Constant) or each.value is None for each in items):
            raise self._reader.refusal(node, "expected constants in ARRAY[..], and no NULL")
        tests = [self._element(path, each) for each in items if isinstance(each, Constant)]
        has = all_of(*tests) if isinstance(node, exp.ArrayContainsAll) else any_of(*tests)
        return Truth(has, all_of(Test(path, "type", ["list"]), Not(has)))

    def _list(self, node: exp.Expr) -> Path:
        value = self._reader.value(node)
        if not isinstance(value, Column) or value.member:
            raise self._reader.refusal(node, "expected a column that is an array")
        self._reader.claim_kind(value, "list")
        return value.path

    def _element(self, path: Path, constant: Constant) -> Test:
        values.check_bare(constant)
        if constant.kind not in ("number", "text", "boolean"):
            raise SubscriptionError("expected elements that are numbers, texts or booleans")
        return Test(path, "has_element", constant.value)

    def _text(self, node: exp.Expr) -> Truth:
        """Return LIKE, ILIKE, starts_with or a regular expression."""
        escape = "\\"
        if isinstance(node, exp.Escape):
            escape, node = self._text_of(node.expression), node.this
            self._reader.check_members(node)
        value, text = self._reader.value(node.this), self._text_of(node.expression)
        column = value.column if isinstance(value, Folded) else value
        if not isinstance(column, Column) or column.member:
            raise self._reader.refusal(node, "expected a column to the left; of a member of JSON, write the condition in CEL")
        self._reader.claim_kind(column, "text")
        if column.is_cast and not any(map(str.isalpha, text)):
            raise SubscriptionError("this may be a pattern for a column of another type; write a column of texts without ::text")
        if isinstance(value, Folded) and not isinstance(node, (exp.Like, exp.ILike)):
            raise self._reader.refusal(node, "lower() and upper() can only be compared, or be to the left of LIKE")
        condition = self._pattern(node, value, column.path, text, escape)
        truth = Truth(condition, all_of(_exists(column), Not(condition)))
        return truth.negated() if node.args.get("negate") and isinstance(node.parent, exp.Escape) else truth

    def _pattern(self, node: exp.Expr, value: Value, path: Path, text: str, escape: str) -> Condition:
        if isinstance(node, exp.StartsWith):
            return Test(path, "starts_with", text)
        if isinstance(node, exp.RegexpLike):
            return Test(path, "matches", patterns.regexp(text))
        pattern = patterns.like_pattern(text, escape)
        if isinstance(value, Folded) and isinstance(node, exp.Like):
            patterns.check_case(pattern, is_upper=value.is_upper)
        elif isinstance(node, exp.Like):
            return patterns.like(path, pattern)
        return patterns.like_of_any_case(path, pattern)

    def _text_of(self, node: exp.Expr) -> str:
        value = self._reader.value(node)
        if not isinstance(value, Constant) or value.kind != "text":
            raise self._reader.refusal(node, "expected a text in quotes")
        return str(value.value)

    def _compare(self, op: str, one: Value, other: Value) -> Truth:
        """Return a comparison, with the constant on the right if there is one."""
        self._comparisons += 1
        if self._comparisons > _MAX_COMPARISONS:
            raise SubscriptionError(f"more than {_MAX_COMPARISONS:,} comparisons; write several rules")
        if isinstance(one, Constant) and not isinstance(other, Constant):
            one, other, op = other, one, _SWAPPED[op]
        match one, other:
            case Constant(), Constant():
                result = values.compared(op, one, other)
                return UNKNOWN if result is None else TRUE if result else TRUE.negated()
            case Coalesce((first, *rest)), Constant():
                truth = self._compare(op, first, other)
                if not rest:
                    return truth
                then, null = self._compare(op, Coalesce(tuple(rest)), other), _null(first)
                return Truth(any_of(truth.true, all_of(null, then.true)), any_of(truth.false, all_of(null, then.false)))
            case _, Constant(None):
                return UNKNOWN
            case Folded(column, is_upper), Constant() if op in ("==", "!="):
                return self._folded(op, column, is_upper, other)
            case Column(), Constant():
                return self._with_constant(op, one, other)
            case Column(path, ""), Column(other_path, "") if op in ("==", "!="):
                return Truth(_columns(path, op, other_path), _columns(path, _OPPOSITE[op], other_path))
            case _:
                raise SubscriptionError(
                    "these two cannot be compared exactly; expected a column and a constant, or = and <> between columns. "
                    "Write others in CEL, such as data.a < data.b"
                )

    def _folded(self, op: str, column: Column, is_upper: bool, constant: Constant) -> Truth:
        self._reader.claim(column, Constant(constant.value, constant.kind))
        if constant.kind != "text" or column.member:
            raise SubscriptionError("expected lower() or upper() of a column, and a text")
        pattern = list(constant.value)
        patterns.check_case(pattern, is_upper=is_upper)
        condition = patterns.like_of_any_case(column.path, pattern)
        truth = Truth(condition, all_of(_exists(column), Not(condition)))
        return truth if op == "==" else truth.negated()

    def _with_constant(self, op: str, column: Column, constant: Constant) -> Truth:
        self._reader.claim(column, constant)
        if constant.kind in values.INSTANTS:
            return Truth(values.instant(column.path, op, constant), values.instant(column.path, _OPPOSITE[op], constant))
        if op in ("==", "!="):
            equal = Test(column.path, "==", constant.value)
            truth = Truth(equal, Test(column.path, "not in", [constant.value, None]))
            return truth if op == "==" else truth.negated()
        if column.member:
            raise SubscriptionError("an order of members of JSON is not supported; write the condition in CEL")
        return Truth(Test(column.path, op, constant.value), Test(column.path, _OPPOSITE[op], constant.value))


def _and(truths: Sequence[Truth]) -> Truth:
    return Truth(all_of(*(each.true for each in truths)), any_of(*(each.false for each in truths)))


def _two(condition: Condition) -> Truth:
    """Return a condition that is never unknown."""
    return Truth(condition, Not(condition))


def _exists(column: Column) -> Condition:
    # A member of JSON that is null is a value for `->`, and no text for `->>`.
    return Test(column.path, "exists") if column.member == "->" else Test(column.path, "!=", None)


def _null(value: Value) -> Condition:
    match value:
        case Constant():
            return ALWAYS if value.value is None else NEVER
        case Coalesce():
            return all_of(*map(_null, value.values))
        case Folded():
            return Not(_exists(value.column))
        case Column():
            return Not(_exists(value))


def _columns(one: Path, op: str, other: Path) -> Condition:
    both = (f"{present(path.root, path.names)} && {path.cel()} != null" for path in (one, other))
    return Cel(" && ".join([*both, f"{one.cel()} {op} {other.cel()}"]))
