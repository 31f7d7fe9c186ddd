"""Rules in SQL: a condition of WHERE a line, or SELECT statements (docs/coming-from/sql.md).

    status = 'paid' AND amount > 100

    -- name: paid
    SELECT * FROM shop.orders WHERE status = 'paid';        id "paid", collection "shop.orders"

sqlglot parses them as PostgreSQL does; conditions.py translates the condition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from streamer.errors import SubscriptionError
from streamer.extras import needed
from streamer.importing.conditions import ALWAYS, subscription_parts
from streamer.importing.rules import Rule, text_rules

with needed("rules in SQL need sqlglot", "import"):
    from sqlglot import exp
    from sqlglot.dialects import Dialect
    from sqlglot.errors import ParseError, SqlglotError
    from sqlglot.tokenizer_core import Token, TokenType

from streamer.importing.sql.conditions import Translator
from streamer.importing.sql.reading import Reader, identifier, place

#: A file of statements begins with one, after comments. Possessive, since several comments also read as one.
_STATEMENTS: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*+(?:SELECT|WITH)\b", re.I | re.S)
_NAME: Final = re.compile(r"\s*(?:id|name):[^\S\n]*(\S[^\n]*)")
_COMMENT: Final = re.compile(rf"\s*--{_NAME.pattern}")
_UNFINISHED: Final = re.compile(r"(?:(?:^|[\s)])(?:AND|OR|NOT|WHERE)|[(,])$", re.I)
_CONTINUED: Final = re.compile(r"(?:AND|OR)\b|[),]", re.I)
_POSTGRES: Final = Dialect.get_or_raise("postgres")
#: The parser recurses for each of these. Deeper rules would end in an error of Python.
_MAX_DEPTH: Final = 24
_MAX_BYTES: Final = 1 << 18
_MAX_TOKENS: Final = 30_000
#: The parser copies all before each of these.
_MAX_BRACKETS: Final = 1000
#: For a chain of them, such as `a[1][2]`, the time doubles and doubles again.
_MAX_CHAINED: Final = 16
_CHAINED: Final = (TokenType.R_BRACKET, TokenType.L_BRACKET)
#: What the parser accepts after a comma, and signs of other databases.
_NO_ELEMENT: Final = {TokenType.COMMA, TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.FROM, TokenType.WHERE, None}
_NOT_IS: Final = (TokenType.NOT, TokenType.IS)
_FOREIGN: Final = {TokenType.EQ: ("==",), TokenType.NULLSAFE_EQ: ("<=>",), TokenType.RLIKE: ("RLIKE", "REGEXP")}
_PREFIXES: Final = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
_OPENING: Final = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING: Final = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


def rules(text: str) -> Iterator[Rule]:
    """Yield the rules of a file.

    Raises:
        SubscriptionError: a text or a comment in a file of statements does not end.
    """
    yield from _statements(text) if _STATEMENTS.match(text) else _lines(text)


def _lines(text: str) -> Iterator[Rule]:
    lines = text.split("\n")
    parts = _parts_of_lines(lines)
    for rule in text_rules(text, _line, comment="--"):
        number = int(rule.place.removeprefix("line "))
        if number in parts:
            rule = replace(rule, translate=_refuse_part)
        above = _COMMENT.fullmatch(lines[number - 2]) if number > 1 else None
        yield rule if above is None else replace(rule, members={"id": _id(above[1]), **rule.members})


def _parts_of_lines(lines: Sequence[str]) -> set[int]:
    """Return the numbers of lines that look like parts of one condition. Each alone would be another condition."""
    rules = [(number, line.strip()) for number, line in enumerate(lines, start=1)]
    rules = [(number, line) for number, line in rules if line and not line.startswith("--")]
    numbers: set[int] = set()
    for (number, line), (next_number, next_line) in pairwise(rules):
        if _UNFINISHED.search(line) or _CONTINUED.match(next_line):
            numbers |= {number, next_number}
    return numbers


def _refuse_part() -> Mapping[str, Any]:
    raise SubscriptionError("this condition seems to have several lines; write it on one, or SELECT statements with ';'")


def _id(text: str) -> str:
    """Return the id in a comment, which is in quotes as in JSON if a comment cannot contain it."""
    text = text.strip()
    words, _, last = text.rpartition(" ")
    # sqlc reads the kind of a result there: `-- name: large orders :many`.
    text = words.strip() if words and re.fullmatch(":[a-z]+", last) else text
    try:
        name = json.loads(text) if text.startswith('"') else text
    except ValueError:
        return text
    return str(name)


def _line(source: Any) -> Mapping[str, Any]:
    if not isinstance(source, str):
        raise SubscriptionError("expected a condition of SQL in a text")
    if re.search("[\0\ud800-\udfff]", source):
        raise SubscriptionError("expected text; this has NUL or half of a surrogate pair")
    if len(source) > _MAX_BYTES:
        raise SubscriptionError(f"a condition of more than {_MAX_BYTES} characters; write several")
    tokens = _tokens(source)
    if tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if tokens and tokens[0].token_type is TokenType.WHERE:
        tokens = tokens[1:]
    node = _parsed(tokens, source, exp.Condition)
    # Without FROM, the table is the one that columns name.
    tables = {identifier(each.args["table"]) for each in node.find_all(exp.Column) if each.args.get("table")}
    return _parts(Reader(source, tables.pop() if len(tables) == 1 else None), node)


def _statements(text: str) -> Iterator[Rule]:
    statement: list[Token] = []
    number = 0
    for token in [*_tokens(text), None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            number += 1
            yield _statement(number, statement, text)
            statement = []


def _statement(number: int, tokens: list[Token], text: str) -> Rule:
    names = [_id(match[1]) for comment in tokens[0].comments if (match := _NAME.match(comment))]
    return Rule(f"statement {number}", lambda: _select(tokens, text), {"id": names[-1]} if names else {})


def _select(tokens: list[Token], text: str) -> Mapping[str, Any]:
    if tokens[0].token_type is not TokenType.SELECT:
        raise SubscriptionError("expected SELECT .. FROM .. WHERE ..", place=place(text, tokens[0].start))
    node = _parsed(tokens, text)
    reader = Reader(text)
    if not isinstance(node, exp.Select):
        raise reader.refusal(node, "expected one SELECT; write a statement for each part of UNION, INTERSECT or EXCEPT")
    for name, part in node.args.items():
        if part and name not in ("expressions", "from_", "where"):
            raise reader.refusal(
                part[0] if isinstance(part, list) else part if isinstance(part, exp.Expr) else node,
                f"{name.strip('_').upper()} is not supported: an event is one row; expected only FROM a table, and WHERE",
            )
    for each in node.expressions:
        _check_result(each, reader)
    source = node.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise reader.refusal(table or node, "expected FROM with one table")
    return _of_table(table, node.args.get("where"), text)


def _check_result(node: exp.Expr, reader: Reader) -> None:
    """Refuse a result that changes which rows are selected, as an aggregate does."""
    value = node.this if isinstance(node, exp.Alias) else node
    reader.check_members(value)
    if not isinstance(value, (exp.Star, exp.Column, exp.Literal)):
        raise reader.refusal(node, "expected * or columns after SELECT; leave out functions and expressions")


def _of_table(table: exp.Table, where: exp.Expr | None, text: str) -> Mapping[str, Any]:
    alias = table.args.get("alias")
    others = [name for name, part in table.args.items() if part and name not in ("this", "db", "catalog", "alias")]
    if others or table.name == "*" or (alias is not None and alias.args.get("columns")):
        raise Reader(text).refusal(table, "expected a table such as orders, shop.orders or orders AS o")
    name = identifier(table.this)
    schema = identifier(table.args["db"]) if table.args.get("db") else None
    reader = Reader(text, name, schema) if alias is None else Reader(text, identifier(alias.this))
    parts = _parts(reader, where.this) if where is not None else subscription_parts(ALWAYS)
    names = [identifier(table.args[each]) for each in ("catalog", "db", "this") if table.args.get(each)]
    return {"collection": ".".join(names), **parts}


def _parts(reader: Reader, node: exp.Expr) -> Mapping[str, Any]:
    try:
        return subscription_parts(Translator(reader).condition(node).true)
    except RecursionError:
        raise SubscriptionError("this condition nests too deep") from None


def _tokens(source: str) -> list[Token]:
    try:
        return list(_POSTGRES.tokenize(source))
    except SqlglotError as error:
        match = re.search(r"from (\d+):(\d+)", str(error.__cause__))
        at = _line_and_column(source, int(match[1]), int(match[2]) + 1) if match else ""
        raise SubscriptionError("a text, a quoted name or a comment that does not end", place=at) from None


def _parsed(tokens: list[Token], source: str, kind: type[exp.Expr] | None = None) -> exp.Expr:
    """Return the tree of a statement or a condition."""
    _check_size(tokens, source)
    _check_signs(tokens, source)
    parser = _POSTGRES.parser()
    try:
        trees = parser.parse(tokens, source) if kind is None else parser.parse_into(kind, tokens, source)
    except ParseError as error:
        raise _not_sql(error, source) from None
    except RecursionError:
        raise SubscriptionError("this condition nests too deep") from None
    except (SqlglotError, ValueError, LookupError, TypeError, AttributeError):
        # Texts that are not SQL bring the parser to errors of Python.
        raise SubscriptionError("this is not a condition that sqlglot can parse") from None
    if len(trees) != 1 or trees[0] is None:
        raise SubscriptionError("expected a condition of SQL, such as status = 'paid'")
    tree: exp.Expr = trees[0]
    between = [token for token in tokens if token.token_type is TokenType.BETWEEN]
    ands = sum(token.token_type is TokenType.AND for token in tokens)
    if between and ands < len(between) + sum(1 for _ in tree.find_all(exp.And)):
        raise SubscriptionError("expected AND after BETWEEN", place=place(source, between[-1].start))
    return tree


def _check_size(tokens: list[Token], source: str) -> None:
    if len(tokens) > _MAX_TOKENS:
        raise SubscriptionError(f"a rule of more than {_MAX_TOKENS:,} words and signs; write several")
    if sum(token.token_type is TokenType.L_BRACKET for token in tokens) > _MAX_BRACKETS:
        raise SubscriptionError(f"a rule of more than {_MAX_BRACKETS:,} square brackets; write several")
    chained = [one for one, other in pairwise(tokens) if (one.token_type, other.token_type) == _CHAINED]
    if len(chained) > _MAX_CHAINED:
        raise SubscriptionError(
            "parts of values are not supported; write the condition in CEL, such as data.tags[0] == 'a'",
            place=place(source, chained[0].start),
        )
    depth = run = 0
    for token in tokens:
        kind = token.token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        run = run + 1 if kind in _PREFIXES else 0
        if depth > _MAX_DEPTH or run > _MAX_DEPTH:
            raise SubscriptionError(f"this nests more than {_MAX_DEPTH} deep", place=place(source, token.start))


def _check_signs(tokens: list[Token], source: str) -> None:
    """Refuse what the parser accepts, and PostgreSQL does not."""
    for before, token in pairwise([None, *tokens, None]):
        kinds = tuple(each and each.token_type for each in (before, token))
        is_stray = (kinds[0] is TokenType.COMMA and kinds[1] in _NO_ELEMENT) or (
            kinds[1] is TokenType.COMMA and kinds[0] in (None, *_OPENING)
        )
        for each in (before, token):
            if each and (is_stray or kinds == _NOT_IS or each.text.upper() in _FOREIGN.get(each.token_type, ())):
                reason = f"this is not SQL of PostgreSQL: something is wrong at {each.text!r}"
                raise SubscriptionError(reason, place=place(source, each.start))


def _not_sql(error: ParseError, source: str) -> SubscriptionError:
    details = error.errors[0] if error.errors else {}
    line, column, word = (details.get(name) for name in ("line", "col", "highlight"))
    if not line or not column:
        return SubscriptionError("this is not a condition of SQL")
    column -= len(word or " ") - 1
    is_quoted = source.split("\n")[line - 1][column - 2 : column - 1] == "`"
    hint = "; names are in double quotes, not in back-ticks" if is_quoted else ""
    reason = f"this is not SQL: something is wrong at {word!r}{hint}"
    return SubscriptionError(reason, place=_line_and_column(source, line, column))


def _line_and_column(source: str, line: int, column: int) -> str:
    return f"line {line}, column {column}" if "\n" in source else f"column {column}"
