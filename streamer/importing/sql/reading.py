"""Read constants, columns and their places from the tree of a condition of SQL (docs/coming-from/sql.md).

Invariant: sqlglot accepts more than PostgreSQL, so each node and each of its members is one that is known here, or an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, final

from sqlglot import exp

from streamer.errors import SubscriptionError
from streamer.importing.conditions import Path
from streamer.importing.sql import values
from streamer.importing.sql.values import NULL, Constant


@final
@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a member of its JSON.

    Attributes:
        member: the operator that reads the member: `->>` for text, `->` for JSON; empty for the column itself.
        is_cast: whether it is written as `column::text`.
    """

    path: Path
    member: str = ""
    is_cast: bool = False


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

VALUES: Final = (
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
    "db",
    "to",
    "only_json_types",
    "is_string",
    "quoted",
}
#: Columns of the system.
_SYSTEM: Final = {"tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"}
#: Names that PostgreSQL does not read as columns, unless they are quoted or after the name of a table.
_RESERVED: Final = set(
    """all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation column
    concurrently constraint create cross current_catalog current_role current_schema default deferrable desc distinct do else end
    except false fetch for foreign freeze from full grant group having ilike in initially inner intersect into is isnull join
    lateral leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer overlaps
    placing primary references returning right select session_user similar some symmetric system_user table tablesample then to
    trailing true union unique user using variadic verbose when where window with""".split()
)
_MAX_NAME_BYTES: Final = 63
_MAX_COALESCED: Final = 8

#: Functions whose value changes with time.
_MOVING: Final = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtime, exp.Localtimestamp)
_REASONS: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((exp.Parameter, exp.Placeholder), "a parameter has no value here; write the value"),
    ((exp.Query, exp.Exists), "a subquery reads other rows than the event's; write a subscription for each table"),
    ((exp.AggFunc, exp.Window), "an aggregate is computed from several rows, and an event has one"),
    ((exp.Case, exp.If), "CASE is not supported; write the alternatives with AND and OR"),
    (
        (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg),
        "arithmetic overflows and rounds otherwise than in CEL; compute constants",
    ),
    (
        (exp.Cast,),
        "a cast of this value is not supported; a constant can have a type, such as DATE '2026-01-31', and a column ::text",
    ),
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
class Reader:
    """Reads the values in one statement.

    Args:
        source: the text that contains it, for places.
        table: the name by which the statement calls its table; None if no table is named.
        schema: the name before that of the table; None if there is none.
    """

    def __init__(self, source: str, table: str | None = None, schema: str | None = None) -> None:
        self._source = source
        self._table = table
        self._schema = schema
        self._kinds: dict[tuple[str, ...], str] = {}

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
    def at(self, node: exp.Expr) -> Iterator[None]:
        """Give errors that are raised in a `with` block the place of a node, unless they have one."""
        try:
            yield
        except SubscriptionError as error:
            error.place = error.place or self._place(node)
            raise

    def check_members(self, node: exp.Expr) -> None:
        """Raise an error if a node has a member that has no meaning here, such as SYMMETRIC of BETWEEN."""
        for name, value in node.args.items():
            if value and name not in _MEMBERS:
                known = next((each for each in (value, node) if _reason(each)), None)
                raise self.refusal(known or node, "" if known else f"{name.strip('_').upper()} is not supported here")

    def claim(self, column: Column, constant: Constant) -> None:
        """Check that a constant is of the type that the column has elsewhere in this condition."""
        if column.member == "->":
            raise SubscriptionError("-> returns JSON; compare its text with ->>")
        if column.member:
            values.check_member(constant)
        else:
            values.check_bare(constant, is_cast=column.is_cast)
            self.claim_kind(column, constant.kind)

    def claim_kind(self, column: Column, kind: str) -> None:
        """Check that a column is used as the type that it has elsewhere in this condition."""
        known = self._kinds.setdefault(column.path.names, kind)
        if known != kind:
            raise SubscriptionError(
                f"the column {column.path.names[0]} is compared as {known} and as {kind}; a column has one type"
            )

    def value(self, node: exp.Expr) -> Value:
        """Return a value of a comparison.

        Raises:
            SubscriptionError: it has no exact translation; `place` is its line and column.
        """
        node = bare(node)
        with self.at(node):
            self.check_members(node)
            return self._read_value(node)

    def _read_value(self, node: exp.Expr) -> Value:
        match node:
            case exp.Column():
                return Column(Path((self._column_name(node),)))
            case exp.Literal() if not node.is_string:
                return values.number(node.name, is_negative=False)
            case exp.Literal() | exp.RawString():
                return Constant(node.name, "text", is_bare=True)
            case exp.Neg():
                operand = bare(node.this)
                if isinstance(operand, exp.Literal) and not operand.is_string:
                    return values.number(operand.name, is_negative=True)
                constant = self.value(operand) if isinstance(operand, (exp.Neg, exp.Cast)) else None
                if isinstance(constant, Constant) and constant.kind == "number":
                    return values.negated(constant)
                raise self.refusal(node)
            case exp.Null():
                return NULL
            case exp.Boolean():
                return Constant(bool(node.this), "boolean")
            case exp.Cast() if kind := type_name(node):
                return self._cast(node, kind)
            case exp.JSONExtract() | exp.JSONExtractScalar():
                return self._member(node)
            case exp.Lower() | exp.Upper():
                column = self.value(node.this)
                if isinstance(column, Column):
                    return Folded(column, isinstance(node, exp.Upper))
                raise self.refusal(node, "expected a column in lower() or upper()")
            case exp.Collate(expression=exp.Identifier(this="C")):
                return self.value(node.this)
            case exp.Coalesce():
                return self._coalesce(node)
            case _:
                raise self.refusal(node)

    def _cast(self, node: exp.Expr, kind: str) -> Value:
        operand = bare(node.this)
        if not isinstance(operand, (exp.Literal, exp.RawString, exp.Neg, exp.Cast, exp.Column, exp.JSONExtractScalar)):
            raise self.refusal(node)
        value = self.value(operand)
        if isinstance(value, Constant):
            return values.typed(value, kind)
        if not isinstance(value, Column) or kind not in values.TEXTS:
            raise self.refusal(node)
        if value.member:
            return value
        self.claim_kind(value, "text")
        return replace(value, is_cast=True)

    def elements(self, node: exp.Expr) -> list[Value]:
        """Return the elements of an array of constants, such as `ARRAY['a', 'b']` or `'{a,b}'::text[]`; empty if it is none.

        Raises:
            SubscriptionError: an element has no exact translation.
        """
        node, kind = bare(node), ""
        if isinstance(node, exp.Cast):
            types = node.args["to"].expressions
            kind = _name_of(types[0]) if node.args["to"].this is exp.DType.ARRAY and len(types) == 1 else ""
            if not kind:
                raise self.refusal(node)
            node = bare(node.this)
        with self.at(node):
            if isinstance(node, exp.Array):
                self.check_members(node)
                items = [self.value(each) for each in node.expressions]
            elif isinstance(node, exp.Literal) and node.is_string:
                items = [*values.elements(node.name)]
            else:
                return []
            return [values.typed(each, kind) if kind and isinstance(each, Constant) else each for each in items]

    def _coalesce(self, node: exp.Expr) -> Coalesce:
        operands: list[Value] = []
        for each in map(self.value, [node.this, *node.expressions]):
            operands += each.values if isinstance(each, Coalesce) else (each,)
        if len(operands) > _MAX_COALESCED:
            raise self.refusal(node, f"COALESCE of more than {_MAX_COALESCED} values")
        return Coalesce(tuple(operands))

    def _column_name(self, node: exp.Expr) -> str:
        table, schema = node.args.get("table"), node.args.get("db")
        is_other = table is not None and (self._table is None or identifier(table) != self._table)
        if is_other or (schema is not None and identifier(schema) != self._schema):
            raise self.refusal(node, f"expected a column of {self._table or 'the table'}, without the name of another table")
        if not isinstance(node.this, exp.Identifier):
            raise self.refusal(node, "expected the name of a column")
        name = identifier(node.this)
        if not node.this.args.get("quoted") and table is None and name == self._table:
            raise self.refusal(node, f"{name} may be a whole row; write {name}.{name} if it is a column")
        if not node.this.args.get("quoted") and (name in _SYSTEM or (table is None and name in _RESERVED)):
            raise self.refusal(node, f'{name} is not a column of the row; quote it if it is: "{name}"')
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise self.refusal(node, f"a name of more than {_MAX_NAME_BYTES} bytes, which PostgreSQL cuts")
        return name

    def _member(self, node: exp.Expr) -> Column:
        parent = self.value(node.this)
        steps = node.expression.expressions if isinstance(node.expression, exp.JSONPath) else []
        if (
            not isinstance(parent, Column)
            or parent.member == "->>"
            or [type(each) for each in steps] != [exp.JSONPathRoot, exp.JSONPathKey]
        ):
            raise self.refusal(node, "expected the name of a member in quotes after -> and ->>")
        if not parent.member:
            self.claim_kind(parent, "JSON")
        names = (*parent.path.names, str(steps[1].this))
        return Column(Path(names), "->>" if isinstance(node, exp.JSONExtractScalar) else "->")


def place(source: str, offset: int) -> str:
    """Return line and column of a place in a text; the column alone if the text is one line."""
    line = source.count("\n", 0, offset) + 1
    column = f"column {offset - source.rfind(chr(10), 0, offset)}"
    return f"line {line}, {column}" if "\n" in source else column


def identifier(node: exp.Expr) -> str:
    """Return a name as PostgreSQL reads it: letters of ASCII without quotes are small."""
    return node.name if node.args.get("quoted") else re.sub("[A-Z]+", lambda match: match[0].lower(), node.name)


def type_name(node: exp.Expr) -> str:
    """Return the name of the type of a cast; empty if it has parameters, such as `varchar(5)`."""
    return _name_of(node.args["to"])


def _name_of(kind: exp.Expr) -> str:
    others = [each for name, each in kind.args.items() if each and name != "this"]
    return str(kind.this.name) if isinstance(kind.this, exp.DType) and not others else ""


def _reason(node: object) -> str:
    """Return why a kind of node is not supported; empty if that depends on its place."""
    if isinstance(node, exp.Expr) and node.find(*_MOVING):
        return "an event is matched once, so a time that moves has no exact translation"
    return next((text for kinds, text in _REASONS if isinstance(node, kinds)), "")


def bare(node: exp.Expr) -> exp.Expr:
    """Return a node without the brackets around it."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node
