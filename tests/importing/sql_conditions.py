"""Random conditions of SQL, and rows for them, for a table of columns of all types that an importer knows.

The conditions are written with the fewest brackets that PostgreSQL needs, so that the precedence of operators is tested, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from streamer.subscriptions.cel_text import cel_literal

#: Texts without those whose meaning depends on the type of a column.
TEXTS: Final = (
    "",
    "a",
    "A",
    "ab",
    "Ab",
    "aB%",
    "a_b",
    "é",
    "É",
    "it's",
    "z\U0001f600",
    "a\nb",
    "\\",
    "b!",
    "null",
    "\uffff",
    "a b",
)
INTEGERS: Final = (0, 1, 2, -1, 7, 2**53 - 1)
BIG: Final = (2**53 + 1, 2**53, -(2**63), 2**63 - 1, 0)
DECIMALS: Final = ("0.1", "0.25", "-1.5", "1e3", "7.0", "1.10", "0")
DAYS: Final = ("2026-01-31", "2026-02-01", "0001-01-01", "9999-12-31")
ZONED: Final = ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00.123456Z", "2026-01-31T13:00:00+01:00")
LOCAL: Final = ("2026-01-31 12:00:00", "2026-01-31 12:00:00.5", "2026-01-31 12:00:00.05", "2025-12-31 23:59:59")
PATTERNS: Final = ("a%", "%b", "%a%", "_", "a_b", "%", "", "A%", "a!%b", "a!_b", "%_", "_%", "é%", "a%b", "%!!")
ORDERS: Final = ("=", "<>", "<", "<=", ">", ">=", "!=")
RELATIONS: Final = ("==", "!=", "<", "<=", ">", ">=")
EQUALITIES: Final = ("==", "!=")
DOCUMENTS: Final = (
    {"s": "a"}, {"s": "A", "n": {"m": "a"}}, {"s": None}, {"s": 5}, {"s": ["a"]}, {"s": True}, {"n": None}, {"n": {"m": None}},
    {"n": []}, {}, [], ["a"], "a", 5, {"s": ["a", None], "n": ["a"]}, {"s": "ab"}, {"n": {"m": {"x": 1}}}, {"s": ""},
)  # fmt: skip


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Conditions:
    """Writes random conditions.

    Args:
        everything: whether the database has all that PostgreSQL has; else conditions are what SQLite reads, too.
    """

    def __init__(self, rng: Random, *, everything: bool) -> None:
        self._rng = rng
        self._everything = everything
        self._leaves: list[Callable[[], str]] = [
            self._integers, self._integers, self._numbers, self._texts, self._texts, self._booleans, self._nulls, self._like,
            self._case, self._coalesce, self._columns, self._json, self._constants,
        ]  # fmt: skip
        if everything:
            self._leaves += [self._big, self._arrays, self._times, self._ilike, self._regexps, self._quantified]

    def any(self) -> str:
        """Return a condition of a random size. A small one shows more about each operator."""
        return self.condition(self._pick((0, 1, 1, 1, 2, 3)))

    def condition(self, depth: int) -> str:
        """Return a condition whose operators nest so deep."""
        draw = self._rng.random() if depth else 1.0
        if draw < 0.3:
            parts = [self._operand(depth - 1, "OR") for _ in range(self._rng.randint(2, 3))]
            return " AND ".join(parts)
        if draw < 0.5:
            return " OR ".join(self.condition(depth - 1) for _ in range(self._rng.randint(2, 3)))
        if draw < 0.65:
            return f"NOT {self._operand(depth - 1, 'OR', 'AND')}"
        if draw < 0.8:
            return f"({self.condition(depth - 1)}) IS {self._pick(('', 'NOT '))}{self._pick(self._truths())}"
        if draw < 0.85 and self._everything:
            # IS binds weaker than comparisons.
            return f"i {self._pick(ORDERS)} {self._pick(INTEGERS)} IS {self._pick(('', 'NOT '))}{self._pick(self._truths())}"
        return self._pick(self._leaves)()

    def _truths(self) -> Sequence[str]:
        return ("TRUE", "FALSE", "NULL" if not self._everything else "UNKNOWN")

    def _operand(self, depth: int, *weaker: str) -> str:
        text = self.condition(depth)
        # A leaf may contain these words, too; then it gets brackets that it does not need.
        return f"({text})" if any(f" {word} " in text for word in weaker) else text

    def _pick(self, choices: Sequence[Any]) -> Any:
        return self._rng.choice(choices)

    def _compared(self, column: str, values: Sequence[str]) -> str:
        one, other = self._pick(values), self._pick(values)
        no = self._pick(("", "NOT "))
        more = [self._pick([*values, "NULL"]) for _ in range(self._rng.randint(1, 3))]
        return str(
            self._pick(
                (
                    f"{column} {self._pick(ORDERS)} {one}",
                    f"{one} {self._pick(ORDERS)} {column}",
                    f"{column} {no}BETWEEN {one} AND {other}",
                    f"{column} {no}IN ({', '.join(more)})",
                    f"{column} IS {no}DISTINCT FROM {more[0]}",
                    f"{column} = NULL",
                )
            )
        )

    def _integers(self) -> str:
        return self._compared(self._pick(("i", "j")), [str(each) for each in INTEGERS] + ["1.5", "-0.0", "1e1"])

    def _big(self) -> str:
        return self._compared("big", [str(each) for each in BIG] + [str(2**63), "1.5"])

    def _numbers(self) -> str:
        return self._compared(self._pick(("r", "n")) if self._everything else "r", [*DECIMALS, "1", "-2"])

    def _texts(self) -> str:
        column = self._pick(("t", "u"))
        return self._compared(column, [quoted(each) for each in TEXTS])

    def _booleans(self) -> str:
        column = self._pick(("b", "c"))
        return str(self._pick((column, f"{column} = TRUE", f"{column} <> FALSE", f"{column} IS TRUE", f"{column} IS NOT FALSE",
                               f"{column} IN (TRUE, NULL)", f"COALESCE({column}, FALSE)", f"{column} < TRUE")))  # fmt: skip

    def _nulls(self) -> str:
        return f"{self._pick(('i', 't', 'b', 'r', 'd'))} IS {self._pick(('', 'NOT '))}NULL"

    def _like(self) -> str:
        return f"{self._pick(('t', 'u'))} {self._pick(('', 'NOT '))}LIKE {quoted(self._pick(PATTERNS))} ESCAPE '!'"

    def _ilike(self) -> str:
        pattern = self._pick([each for each in PATTERNS if each.isascii()])
        return f"{self._pick(('t', 'u'))} {self._pick(('', 'NOT '))}ILIKE {quoted(pattern)} ESCAPE '!'"

    def _case(self) -> str:
        name, text = self._pick((("lower", "ab"), ("upper", "AB"), ("lower", "it's"), ("upper", "A"), ("lower", "b!")))
        more = f"{name}({self._pick(('t', 'u'))}) {self._pick(('=', '<>', 'LIKE'))} {quoted(text)}"
        starts = f"{self._pick(('', 'NOT '))}starts_with(t, {quoted(self._pick(('a', '', 'é', 'A')))})"
        return starts if self._everything and self._rng.random() < 0.3 else more

    def _regexps(self) -> str:
        patterns = ("^a", "b$", "^a.b$", "[a-c]+", "^[^a]", "é?b", "a*", ".", "", "\\%", "^$")
        return f"{self._pick(('t', 'u'))} {self._pick(('~', '!~'))} {quoted(self._pick(patterns))}"

    def _coalesce(self) -> str:
        numbers = f"COALESCE(i, {self._pick(('j, ', ''))}{self._pick(INTEGERS)}) {self._pick(ORDERS)} {self._pick(INTEGERS)}"
        texts = f"COALESCE(t, {quoted(self._pick(TEXTS))}) {self._pick(ORDERS)} {quoted(self._pick(TEXTS))}"
        return str(self._pick((numbers, texts, "COALESCE(i, NULL) IS NULL", "COALESCE(t, u) IS NOT NULL")))

    def _columns(self) -> str:
        one, other = self._pick((("i", "j"), ("t", "u"), ("b", "c")))
        return f"{one} {self._pick(('=', '<>', 'IS DISTINCT FROM', 'IS NOT DISTINCT FROM'))} {other}"

    def _json(self) -> str:
        member = self._pick(("d->>'s'", "d->'n'->>'m'", "d->>'n'"))
        no = self._pick(("", "NOT "))
        return str(self._pick((
            f"{member} {self._pick(('=', '<>'))} {quoted(self._pick(('a', 'A', '', 'é')))}", f"{member} {no}IN ('a', 'b')",
            f"{member} IS {no}NULL", f"d->'s' IS {no}NULL", f"d->'n'->'m' IS {no}NULL", f"{member} IS {no}DISTINCT FROM 'a'",
        )))  # fmt: skip

    def _constants(self) -> str:
        return str(self._pick(("TRUE", "FALSE", "1 = 1", "1 > 2.5", "'a' < 'b'", "NULL = 1", "NULL IS NULL", "1 IN (2, NULL)")))

    def _arrays(self) -> str:
        element, texts = quoted(self._pick(("a", "b", "é", ""))), "ARRAY['a', 'b']"
        return str(self._pick((
            f"{element} = ANY(tags)", f"{self._pick((1, 2))} = ANY(numbers)", f"tags @> ARRAY[{element}]", f"tags @> {texts}",
            f"tags && {texts}", "numbers && ARRAY[1, 3]", "tags IS NULL", "numbers @> ARRAY[2, 2]",
        )))  # fmt: skip

    def _times(self) -> str:
        return str(self._pick((
            self._compared("day", [f"DATE '{each}'" for each in DAYS]),
            self._compared("zoned", [f"TIMESTAMPTZ '{each}'" for each in ZONED]),
            self._compared("local", [f"TIMESTAMP '{each}'" for each in LOCAL]),
            self._compared("local", [f"DATE '{each}'" for each in DAYS]),
            self._compared("day", [f"TIMESTAMP '{each}'" for each in (*LOCAL, *DAYS)]),
        )))  # fmt: skip

    def _quantified(self) -> str:
        numbers = f"{self._pick(('= ANY', '<> ALL'))}(ARRAY[{self._pick(INTEGERS)}, {self._pick(('NULL', '2'))}])"
        texts, cast = """'{a,Ab}' | '{ab, "a b"}'::text[]""".split(" | "), ("'Ab'", "'ab'::varchar")
        typed = ("(1)::numeric", "-(1::bigint)", "'-1'::int")
        return str(self._pick((
            f"{self._pick(('i', 'j'))} {numbers}", f"t {self._pick(('= ANY', '<> ALL', '= SOME'))}({self._pick(texts)})",
            f"(u)::text {self._pick(('=', '<>', 'LIKE'))} {self._pick(cast)}",
            f"{self._pick(('i', 'n'))} {self._pick(ORDERS)} {self._pick(typed)}",
        )))  # fmt: skip


class Expressions:
    """Writes random expressions of CEL about the same rows, with columns and members of JSON."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def any(self, depth: int = 2) -> str:
        """Return an expression whose operators nest up to so deep."""
        draw = self._rng.random() if depth else 1.0
        if draw < 0.35:
            sign = self._pick((" && ", " || "))
            return sign.join(f"({self.any(depth - 1)})" for _ in range(self._rng.randint(2, 3)))
        if draw < 0.6:
            return f"!({self.any(depth - 1)})"
        return self._pick((self._number, self._text, self._text, self._other, self._member, self._member))()

    def _pick(self, choices: Sequence[Any]) -> Any:
        return self._rng.choice(choices)

    def _number(self) -> str:
        column, values = self._pick((("i", INTEGERS), ("j", INTEGERS), ("big", BIG), ("r", DECIMALS), ("n", DECIMALS)))
        one, other = self._pick(values), self._pick(values)
        return str(self._pick((
            f"data.{column} {self._pick(RELATIONS)} {one}", f"{one} {self._pick(RELATIONS)} data.{column}",
            f"data.{column} in [{one}, {other}]", f"data.{column} in [{one}, null]",
            f"data.{column} {self._pick(EQUALITIES)} null",
        )))  # fmt: skip

    def _text(self) -> str:
        return self._of_text(self._pick(("data.t", "data.u")))

    def _of_text(self, field: str) -> str:
        one, other = (cel_literal(self._pick(TEXTS)) for _ in range(2))
        method = self._pick(("startsWith", "endsWith", "contains"))
        regexp = cel_literal(self._pick(("^a", "b$", "a.b", "(?s)a.b", "^[^a]", "[a-c]+$", "é?b", r"\\\\")))
        return str(self._pick((
            f"{field} {self._pick(RELATIONS)} {one}", f"{field} in [{one}, {other}]", f"{field}.{method}({one})",
            f"{field}.matches({regexp})", f"{field} in [{one}, null]", f"{field} != {one}",
        )))  # fmt: skip

    def _other(self) -> str:
        kinds = "type(data.{}) == {}".format(
            self._pick(("t", "i", "d", "tags", "zoned", "b")), self._pick(("string", "map", "list", "null_type"))
        )
        return str(self._pick((
            "data.b", "data.c", "!data.b", "data.b == true", "data.c != false", "data.b < true", "data.t == data.u",
            "data.i != data.j",
            "has(data.t)", "!has(data.i)", "true", "type(data.i) in [int, uint, double]", kinds,
        )))  # fmt: skip

    def _member(self) -> str:
        field = self._pick(("data.d.s", "data.d.n", "data.d.n.m"))
        return str(self._pick((
            self._of_text(field), f"{field} {self._pick(RELATIONS)} {self._pick((0, 5, 5.0, 4.5))}", f"has({field})", field,
            f"{field} {self._pick(EQUALITIES)} null", f"{field} in ['a', 5, null]", f"{field} == []", f"{field} < true",
            f"type({field}) == string", f"{field} {self._pick(EQUALITIES)} ['a']", f"{field} in []",
            f"{field}.contains('a')",
        )))  # fmt: skip


def row(rng: Random) -> dict[str, Any]:
    """Return a random row, as the document of a change; a third of its columns is null or missing."""
    zoned = [each.replace("+01:00", "Z").replace("T13", "T12") for each in ZONED]
    full = {
        "i": rng.choice(INTEGERS), "j": rng.choice(INTEGERS), "big": rng.choice(BIG),
        "r": rng.choice([float(each) for each in DECIMALS]), "n": float(rng.choice(DECIMALS)),
        "t": rng.choice(TEXTS), "u": rng.choice(TEXTS), "b": rng.random() < 0.5, "c": rng.random() < 0.5,
        "d": rng.choice(DOCUMENTS),
        "tags": [rng.choice(("a", "b", "é", "", None)) for _ in range(rng.randint(0, 3))],
        "numbers": [rng.choice((1, 2, 3)) for _ in range(rng.randint(0, 3))],
        "day": rng.choice(DAYS), "zoned": rng.choice(zoned), "local": rng.choice(LOCAL),
    }  # fmt: skip
    document = {name: value for name, value in full.items() if rng.random() > 0.15}
    return {name: None if rng.random() < 0.15 else value for name, value in document.items()}


def stored(document: dict[str, Any], name: str) -> Any:
    """Return a column of a row for a parameter of a statement."""
    value = document.get(name)
    return json.dumps(value) if name == "d" and value is not None else value
