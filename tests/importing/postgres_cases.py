"""Record what PostgreSQL answers to random conditions: `python -m tests.importing.postgres_cases`, where a server is installed.

postgres_answers.jsonl has the rows in the first line, as `row_to_json` writes them. Each further line has a condition, as
PostgREST and Hasura write it, and a 1 for each row that PostgreSQL selects by its SQL.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import sql

from tests.tools.postgres import Cluster

ANSWERS = Path(__file__).with_name("postgres_answers.jsonl")
TABLE = 'CREATE TABLE rows (id int, price numeric, ratio float8, paid boolean, name text COLLATE "C.utf8", key uuid)'
#: Texts that PostgreSQL reads as values of a column.
LITERALS = {
    "id": ["0", "1", "5", "-3", "007", " 5"],
    "price": ["5", "5.0", "5.50", "1e1", "0.1", ".5"],
    "ratio": ["0.5", "2", "1e-1", "5"],
    "paid": ["true", "T", "0", "1", "no", "off", "f", "yes"],
    "name": ["paid", "5", "Paid", "a_b", "a.b", "true", "", "Ünï", "5.0", "0", "kiss", "KI\u1e9e", "a\nb", "no"],
    "key": [
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ],
}
LIKE = [
    "paid",
    "p%",
    "%d",
    "%a%",
    "_aid",
    "a\\_b",
    "%",
    "PAID",
    "k%S",
    "ünÏ",
    "a.b",
    "a%b",
    "5\\.0",
    "ſ%",
    "_I%",
    "%iß",
    "\u212ai%",
]
REGEXPS = ["^p", "d$", "a.b", "^[a-z]+$", "a|5", "(ai)+d", "^.{3}$", r"\.", "[^a-z]", "KIS", "ü"]
ORDERS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class Case(NamedTuple):
    """A condition in three languages; Hasura's is None if it has none."""

    supabase: str
    hasura: Any
    sql: sql.Composable


class Random:
    """Rows and conditions."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)

    def row(self) -> dict[str, Any]:
        return {name: self._choose.choice([None, *texts]) for name, texts in LITERALS.items()}

    def condition(self, depth: int = 0) -> Case:
        """Return a condition that may stand in a tree."""
        kind = self._choose.random()
        if depth < 2 and kind < 0.25:
            parts = [self.condition(depth + 1) for _ in range(self._choose.randrange(1, 4))]
            word = self._choose.choice(["and", "or"])
            hasura = None if any(each.hasura is None for each in parts) else {f"_{word}": [each.hasura for each in parts]}
            joined = sql.SQL(f" {word} ").join(each.sql for each in parts)
            return Case(f"{word}({','.join(each.supabase for each in parts)})", hasura, sql.SQL("({})").format(joined))
        found = self._comparison()
        if self._choose.random() < 0.3:
            column, _, rest = found.supabase.partition(".")
            hasura = None if found.hasura is None else {"_not": found.hasura}
            return Case(f"{column}.not.{rest}", hasura, sql.SQL("NOT ({})").format(found.sql))
        return found

    def _comparison(self) -> Case:
        column = self._choose.choice(list(LITERALS))
        name, value = sql.Identifier(column), self._choose.choice(LITERALS[column])
        op = self._choose.choice(["eq", "neq", "in", "is", "isdistinct", "order", "order", "text", "text"])
        if op == "order" and column in ("id", "price", "ratio"):
            op = self._choose.choice(list(ORDERS))
            given = value if self._choose.random() < 0.5 or value.startswith((" ", ".", "0")) else json.loads(value)
            return self._case(column, op, value, {f"_{op}": given}, "{} " + ORDERS[op] + " {}")
        if op == "text" and column == "name":
            return self._text()
        match op:
            case "in":
                values = self._choose.sample(LITERALS[column], self._choose.randrange(4))
                text = ",".join(quoted(each) for each in values)
                query = sql.SQL("{} = ANY ({})").format(name, sql.Literal("{" + text + "}"))
                return Case(f"{column}.in.({text})", {column: {"_in": values}}, query)
            case "is" if column == "paid":
                value = self._choose.choice(["true", "false", "null"])
                hasura = {column: {"_is_null": True}} if value == "null" else None
                return Case(f"{column}.is.{value}", hasura, sql.SQL("{} IS " + value).format(name))
            case "is":
                return Case(f"{column}.is.null", {column: {"_is_null": True}}, sql.SQL("{} IS NULL").format(name))
            case "isdistinct":
                query = sql.SQL("{} IS DISTINCT FROM {}").format(name, sql.Literal(value))
                return Case(f"{column}.isdistinct.{quoted(value)}", None, query)
            case "neq":
                return self._case(column, "neq", value, {"_neq": value}, "{} <> {}")
        return self._case(column, "eq", value, {"_eq": value}, "{} = {}")

    def _text(self) -> Case:
        op, word, hasura = self._choose.choice(
            [("like", "LIKE", "_like"), ("ilike", "ILIKE", "_ilike"), ("match", "~", "_regex"), ("imatch", "~*", "_iregex")]
        )
        value = self._choose.choice(LIKE if "like" in op else REGEXPS)
        if op == "imatch":
            value = self._choose.choice(["^p", "KIS", "^[a-z]+$", "a.b", "ü"])
        return self._case("name", op, value, {hasura: value}, "{} " + word + " {}")

    def _case(self, column: str, op: str, value: str, hasura: Any, template: str) -> Case:
        query = sql.SQL(template).format(sql.Identifier(column), sql.Literal(value))
        return Case(f"{column}.{op}.{quoted(value)}", {column: hasura}, query)


def quoted(value: str) -> str:
    """Return a value as a tree of PostgREST contains it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def cases(language: str) -> tuple[list[Any], list[Any], list[str]]:
    """Return the rows, the conditions in a language, and their answers."""
    first, *lines = ANSWERS.read_text("utf-8").splitlines()
    found = [case for case in map(json.loads, lines) if case[language] is not None]
    return json.loads(first), [case[language] for case in found], [case["answers"] for case in found]


def main() -> None:
    """Write the answers."""
    of, cluster = Random(1), Cluster()
    try:
        cluster.sql(TABLE)
        for row in (of.row() for _ in range(60)):
            values = sql.SQL(", ").join(map(sql.Literal, row.values()))
            cluster.sql(sql.SQL("INSERT INTO rows VALUES ({})").format(values).as_string(None))
        lines = [json.dumps([row for (row,) in cluster.sql("SELECT row_to_json(rows) FROM rows ORDER BY ctid")])]
        for case in (of.condition() for _ in range(120)):
            query = sql.SQL("SELECT coalesce({}, false) FROM rows ORDER BY ctid").format(case.sql).as_string(None)
            answers = "".join("1" if truth else "0" for (truth,) in cluster.sql(query))
            lines.append(json.dumps({"supabase": case.supabase, "hasura": case.hasura, "answers": answers}, ensure_ascii=False))
    finally:
        cluster.close()
    ANSWERS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
