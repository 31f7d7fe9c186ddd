"""Translate a condition of SQL into two: when it is true, and when it is false (docs/coming-from/sql.md).

    a = 1            true: a is 1                 false: a has a value, but not 1        otherwise, if a is null, unknown
    NOT (a = 1)      the two swap
    a = 1 AND b      true: both are true          false: one is false

So a condition that contains NOT is as exact as one without. An event matches if the whole is true.

Invariant: sqlglot accepts more than PostgreSQL, so each node and each of its members is one that is known here, or an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from sqlglot import exp

from streamer.errors import SubscriptionError
from streamer.importing import sql_values as values
from streamer.importing.conditions import ALWAYS, NEVER, Cel, Condition, Not, Path, Test, all_of, any_of
from streamer.importing.sql_values import NULL, Constant
from streamer.subscriptions.cel_text import present


@final
@dataclass(frozen=True, slots=True)
class Truth:
    """A condition with three truth values; it is unknown if neither is true."""

    true: Condition
    false: Condition

    def negated(self) -> Truth:
        return Truth(self.false, self.true)


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a member of its JSON.

    Attributes:
        member: the operator that reads the member: `->>` for text, `->` for JSON; empty for the column itself.
    """

    path: Path
    member: str = ""


@final
@dataclass(frozen=True, slots=True)
class Folded:
    """`lower` or `upper` of a column."""

    column: Column
    is_upper: bool


@final
@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first of several values that is not null."""

    values: tuple[Value, ...]


Value: TypeAlias = Column | Folded | Coalesce | Constant

TRUE: Final = Truth(ALWAYS, NEVER)
UNKNOWN: Final = Truth(NEVER, NEVER)

_COMPARISONS: Final[dict[type, str]] = {exp.EQ: "==", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_OPPOSITE: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_SWAPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_VALUES: Final = (
    exp.Column,
    exp.Literal,
    exp.RawString,
    exp.Null,
    exp.Boolean,
    exp.Neg,
    exp.Cast,
    exp.Coalesce,
    exp.Lower,
    exp.Upper,
    exp.Collate,
)
#: The members of a node that have a meaning here. Any other that is given is an error.
_MEMBERS: Final = {
    "this",
    "expression",
    "expressions",
    "low",
    "high",
    "negate",
    "table",
    "to",
    "only_json_types",
    "is_string",
    "quoted",
}
#: Names that are functions or columns of the system if they are not quoted.
_RESERVED: Final = {"user", "session_user", "system_user", "current_role", "current_catalog", "current_schema", "tableoid"} | {
    "ctid", "xmin", "xmax", "cmin", "cmax", "localtime", "localtimestamp",
}  # fmt: skip
_MAX_NAME_BYTES: Final = 63
_MAX_UNKNOWN: Final = 8

_REASONS: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((exp.Parameter, exp.Placeholder), "a parameter has no value here; write the value"),
    ((exp.Query, exp.Exists), "a subquery reads other rows than the event's; write a subscription for each table"),
    ((exp.AggFunc, exp.Window), "an aggregate is computed from several rows, and an event has one"),
    ((exp.Case, exp.If), "CASE is not supported; write the alternatives with AND and OR"),
    (
        (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg),
        "arithmetic overflows and rounds otherwise than in CEL; compute constants",
    ),
    ((exp.Cast,), "a cast of this value is not supported; only a text constant can have a type, such as DATE '2026-01-31'"),
    ((exp.SimilarTo, exp.RegexpILike), "this operator is not supported; write LIKE, ILIKE or a regular expression with ~"),
    ((exp.ByteString, exp.UnicodeString), "a text with escapes is not supported; write the characters themselves"),
    ((exp.Concat, exp.DPipe), "a text of several parts is not supported; write it as one"),
    (
        (exp.Bracket, exp.Dot),
        "a part of a value is not supported; write the condition in CEL, such as data.address.city == 'Rome'",
    ),
    ((exp.Func,), "this function is not supported; supported are lower, upper, coalesce and starts_with"),
)


@final
class Translator:
    """Translates the condition of one statement.

    Args:
        source: the text that contains it, for places.
        table: the name by which the statement calls its table; None if no table is named.
    """

    def __init__(self, source: str, table: str | None = None) -> None:
        self._source = source
        self._table = table
        self._kinds: dict[tuple[str, ...], str] = {}
        self._depth = 0

    def condition(self, node: exp.Expr) -> Truth:
        """Return when a condition is true, and when it is false.

        Raises:
            SubscriptionError: it has no exact translation; `place` is its line and column.
        """
        with self._at(node):
            self._check_members(node)
            truth = self._condition(node)
            return truth.negated() if node.args.get("negate") else truth

    def refusal(self, node: exp.Expr, reason: str = "") -> SubscriptionError:
        """Return an error with the place of a node."""
        reason = reason or _reason(node) or "this part of SQL is not supported; write the condition in CEL"
        return SubscriptionError(reason, place=self._place(node))

    def _place(self, node: exp.Expr) -> str:
        start = None
        at: exp.Expr | None = node
        while at is not None and start is None:
            # Operators have no place, but their operands do.
            start = min((each.meta["start"] for each in at.walk() if "start" in each.meta), default=None)
            at = at.parent
        return place(self._source, start or 0)

    @contextmanager
    def _at(self, node: exp.Expr) -> Iterator[None]:
        try:
            yield
        except SubscriptionError as error:
            error.place = error.place or self._place(node)
            raise

    def _check_members(self, node: exp.Expr) -> None:
        for name, value in node.args.items():
            if value and name not in _MEMBERS:
                known = next((each for each in (value, node) if _reason(each)), None)
                raise self.refusal(known or node, "" if known else f"{name.strip('_').upper()} is not supported here")

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
                truth = self._same(self._value(node.this), self._value(node.expression))
                return truth if isinstance(node, exp.NullSafeEQ) else truth.negated()
            case exp.In() if node.expressions:
                return self._in(self._value(node.this), node.expressions)
            case exp.Between():
                value = self._value(node.this)
                low = self._compare(">=", value, self._value(node.args["low"]))
                return _and([low, self._compare("<=", value, self._value(node.args["high"]))])
            case exp.EQ() | exp.NEQ() if isinstance(node.expression, (exp.Any, exp.All, exp.Anonymous)):
                return self._quantified(node, node.expression)
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._compare(_COMPARISONS[type(node)], self._value(node.this), self._value(node.expression))
            case exp.Like() | exp.ILike() | exp.Escape() | exp.StartsWith() | exp.RegexpLike():
                return self._text(node)
            case exp.ArrayContainsAll() | exp.ArrayOverlaps():
                return self._arrays(node)
            case _ if isinstance(node, _VALUES):
                return self._compare("==", self._value(node), Constant(True, "boolean"))
            case _:
                raise self.refusal(node)

    def _logic(self, node: exp.Expr) -> Truth:
        # A chain of ANDs nests to the left, as deep as it is long.
        kind, operands = type(node), []
        while type(node) is kind:
            self._check_members(node)
            operands.append(node.expression)
            node = node.this
        truths = [self.condition(each) for each in reversed([*operands, node])]
        return _and(truths) if kind is exp.And else _and([each.negated() for each in truths]).negated()

    def _is(self, node: exp.Expr) -> Truth:
        operand, word = _bare(node.this), node.expression
        if isinstance(word, exp.Boolean):
            truth = self.condition(operand)
            return _two(truth.true if word.this else truth.false)
        if not isinstance(word, exp.Null):
            raise self.refusal(node)
        if isinstance(operand, (*_VALUES, exp.JSONExtract, exp.JSONExtractScalar)):
            return _two(_null(self._value(operand)))
        # The result has both conditions of the operand, so it doubles with each IS UNKNOWN.
        self._depth += 1
        if self._depth > _MAX_UNKNOWN:
            raise self.refusal(node, f"IS UNKNOWN nests more than {_MAX_UNKNOWN} deep")
        truth = self.condition(operand)
        self._depth -= 1
        return _two(Not(any_of(truth.true, truth.false)))

    def _same(self, one: Value, other: Value) -> Truth:
        return _two(any_of(self._compare("==", one, other).true, all_of(_null(one), _null(other))))

    def _in(self, value: Value, nodes: Sequence[exp.Expr]) -> Truth:
        items = [self._value(each) for each in nodes]
        constants = [each for each in items if isinstance(each, Constant) and each.kind not in (*values.INSTANTS, "null")]
        if (
            not isinstance(value, Column)
            or len(constants) < 2
            or any(not isinstance(each, Constant) or each.kind in values.INSTANTS for each in items)
        ):
            return _and([self._compare("!=", value, each) for each in items]).negated()
        for each in constants:
            self._claim(value, each)
        wanted = [each.value for each in constants]
        differs = Test(value.path, "not in", [*wanted, None])
        return Truth(Test(value.path, "in", wanted), NEVER if NULL in items else differs)

    def _quantified(self, node: exp.Expr, words: exp.Expr) -> Truth:
        is_any = isinstance(words, exp.Any)
        if not is_any and not isinstance(words, exp.All) and words.name.upper() != "ALL":
            raise self.refusal(words)
        if is_any is not isinstance(node, exp.EQ):
            raise self.refusal(node, "only = ANY(..) and <> ALL(..) are supported")
        inner = _bare(words.expressions[0] if isinstance(words, exp.Anonymous) and len(words.expressions) == 1 else words.this)
        value = self._value(node.this)
        if isinstance(inner, exp.Array) and inner.expressions:
            truth = self._in(value, inner.expressions)
            return truth if is_any else truth.negated()
        if not is_any or not isinstance(inner, exp.Column) or not isinstance(value, Constant):
            raise self.refusal(node, "only = ANY(ARRAY[..]), <> ALL(ARRAY[..]) and constant = ANY(column) are supported")
        path = self._list(inner)
        has = self._element(path, value)
        return Truth(has, all_of(Test(path, "type", ["list"]), Not(has), Not(Test(path, "has_element", None))))

    def _arrays(self, node: exp.Expr) -> Truth:
        if not isinstance(node.expression, exp.Array) or not node.expression.expressions:
            raise self.refusal(node, "only column @> ARRAY[..] and column && ARRAY[..] are supported, with constants in the list")
        path = self._list(node.this)
        items = [self._value(each) for each in node.expression.expressions]
        if any(not isinstance(each, Constant) or each.value is None for each in items):
            raise self.refusal(node, "expected constants in ARRAY[..], and no NULL")
        tests = [self._element(path, each) for each in items if isinstance(each, Constant)]
        has = all_of(*tests) if isinstance(node, exp.ArrayContainsAll) else any_of(*tests)
        return Truth(has, all_of(Test(path, "type", ["list"]), Not(has)))

    def _list(self, node: exp.Expr) -> Path:
        value = self._value(node)
        if not isinstance(value, Column) or value.member:
            raise self.refusal(node, "expected a column that is an array")
        self._claim_kind(value, "list")
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
            self._check_members(node)
        value, text = self._value(node.this), self._text_of(node.expression)
        column = value.column if isinstance(value, Folded) else value
        if not isinstance(column, Column) or column.member:
            raise self.refusal(node, "expected a column to the left; of a member of JSON, write the condition in CEL")
        self._claim_kind(column, "text")
        if isinstance(value, Folded) and not isinstance(node, (exp.Like, exp.ILike)):
            raise self.refusal(node, "lower() and upper() can only be compared, or be to the left of LIKE")
        found = self._pattern(node, value, column.path, text, escape)
        truth = Truth(found, all_of(_exists(column), Not(found)))
        return truth.negated() if node.args.get("negate") and isinstance(node.parent, exp.Escape) else truth

    def _pattern(self, node: exp.Expr, value: Value, path: Path, text: str, escape: str) -> Condition:
        if isinstance(node, exp.StartsWith):
            return Test(path, "starts_with", text)
        if isinstance(node, exp.RegexpLike):
            return Test(path, "matches", values.regexp(text))
        pattern = values.like_pattern(text, escape)
        if isinstance(value, Folded) and isinstance(node, exp.Like):
            values.check_case(pattern, is_upper=value.is_upper)
        elif isinstance(node, exp.Like):
            return values.like(path, pattern)
        return values.like_of_any_case(path, pattern)

    def _text_of(self, node: exp.Expr) -> str:
        value = self._value(node)
        if not isinstance(value, Constant) or value.kind != "text":
            raise self.refusal(node, "expected a text in quotes")
        return str(value.value)

    def _compare(self, op: str, one: Value, other: Value) -> Truth:
        """Return a comparison, with the constant on the right if there is one."""
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
        self._claim(column, Constant(constant.value, constant.kind))
        if constant.kind != "text" or column.member:
            raise SubscriptionError("expected lower() or upper() of a column, and a text")
        pattern = list(constant.value)
        values.check_case(pattern, is_upper=is_upper)
        found = values.like_of_any_case(column.path, pattern)
        truth = Truth(found, all_of(_exists(column), Not(found)))
        return truth if op == "==" else truth.negated()

    def _with_constant(self, op: str, column: Column, constant: Constant) -> Truth:
        self._claim(column, constant)
        if constant.kind in values.INSTANTS:
            return Truth(values.instant(column.path, op, constant), values.instant(column.path, _OPPOSITE[op], constant))
        if op in ("==", "!="):
            equal = Test(column.path, "==", constant.value)
            truth = Truth(equal, Test(column.path, "not in", [constant.value, None]))
            return truth if op == "==" else truth.negated()
        if column.member:
            raise SubscriptionError("an order of members of JSON is not supported; write the condition in CEL")
        return Truth(Test(column.path, op, constant.value), Test(column.path, _OPPOSITE[op], constant.value))

    def _claim(self, column: Column, constant: Constant) -> None:
        """Check that a constant is of the type that the column has elsewhere in this condition."""
        if column.member == "->":
            raise SubscriptionError("-> returns JSON; compare its text with ->>")
        if column.member:
            values.check_member(constant)
        else:
            values.check_bare(constant)
            self._claim_kind(column, constant.kind)

    def _claim_kind(self, column: Column, kind: str) -> None:
        known = self._kinds.setdefault(column.path.names, kind)
        if known != kind:
            raise SubscriptionError(
                f"the column {column.path.names[0]} is compared as {known} and as {kind}; a column has one type"
            )

    def _value(self, node: exp.Expr) -> Value:
        node = _bare(node)
        with self._at(node):
            self._check_members(node)
            return self._read_value(node)

    def _read_value(self, node: exp.Expr) -> Value:
        match node:
            case exp.Column():
                return Column(Path((self._column_name(node),)))
            case exp.Literal() if not node.is_string:
                return values.number(node.name, is_negative=False)
            case exp.Literal() | exp.RawString():
                return Constant(node.name, "text", is_bare=True)
            case exp.Neg(this=exp.Literal(is_string=False)):
                return values.number(node.name, is_negative=True)
            case exp.Null():
                return NULL
            case exp.Boolean():
                return Constant(bool(node.this), "boolean")
            case exp.Cast(this=exp.Literal(is_string=True)) if len([each for each in node.args["to"].args.values() if each]) == 1:
                return values.typed(node.name, node.args["to"].this.name)
            case exp.JSONExtract() | exp.JSONExtractScalar():
                return self._member(node)
            case exp.Lower() | exp.Upper():
                column = self._value(node.this)
                if isinstance(column, Column):
                    return Folded(column, isinstance(node, exp.Upper))
                raise self.refusal(node, "expected a column in lower() or upper()")
            case exp.Collate(expression=exp.Identifier(this="C")):
                return self._value(node.this)
            case exp.Coalesce():
                return Coalesce(tuple(map(self._value, [node.this, *node.expressions])))
            case _:
                raise self.refusal(node)

    def _column_name(self, node: exp.Expr) -> str:
        if node.args.get("table") is not None and (self._table is None or identifier(node.args["table"]) != self._table):
            raise self.refusal(node, f"expected a column of {self._table or 'the table'}, without the name of another table")
        if not isinstance(node.this, exp.Identifier):
            raise self.refusal(node, "expected the name of a column")
        name = identifier(node.this)
        if not node.this.args.get("quoted") and name in _RESERVED:
            raise self.refusal(node, f'{name} is not a column of the row; quote it if it is: "{name}"')
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise self.refusal(node, f"a name of more than {_MAX_NAME_BYTES} bytes, which PostgreSQL cuts")
        return name

    def _member(self, node: exp.Expr) -> Column:
        parent = self._value(node.this)
        steps = node.expression.expressions if isinstance(node.expression, exp.JSONPath) else []
        if (
            not isinstance(parent, Column)
            or parent.member == "->>"
            or [type(each) for each in steps] != [exp.JSONPathRoot, exp.JSONPathKey]
        ):
            raise self.refusal(node, "expected the name of a member in quotes after -> and ->>")
        if not parent.member:
            self._claim_kind(parent, "JSON")
        names = (*parent.path.names, str(steps[1].this))
        return Column(Path(names), "->>" if isinstance(node, exp.JSONExtractScalar) else "->")


def place(source: str, offset: int) -> str:
    """Return line and column of a place in a text; the column alone if the text is one line."""
    line = source.count("\n", 0, offset) + 1
    column = f"column {offset - source.rfind(chr(10), 0, offset)}"
    return f"line {line}, {column}" if "\n" in source else column


def identifier(node: exp.Expr) -> str:
    """Return a name as PostgreSQL reads it: letters of ASCII without quotes are small."""
    return node.name if node.args.get("quoted") else re.sub("[A-Z]+", lambda found: found[0].lower(), node.name)


def _reason(node: object) -> str:
    """Return why a kind of node is not supported; empty if that depends on its place."""
    return next((text for kinds, text in _REASONS if isinstance(node, kinds)), "")


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


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
