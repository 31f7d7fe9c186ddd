"""PostgreSQL as the oracle: which rows a condition is true for, before and after each change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

from tests.tools.golden_conditions import Condition, compares_before, to_sql
from tests.tools.golden_statements import TABLES, of_table


class _Looked(NamedTuple):
    """The keys of the rows for which a condition was true, before and after the changes of a transaction."""

    table: str
    condition: Condition
    before: set[int]
    after: set[int]
    first: int
    last: int


class Database:
    """A database with the tables and their history, which triggers write."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._looked: list[_Looked] = []

    def run(self, statements: Sequence[str], condition: Condition | None = None) -> None:
        """Run statements in a transaction, once for each table; a last `ROLLBACK` undoes them.

        Args:
            condition: one to look up before and after.
        """
        for table in TABLES:
            looked = self._look(table, condition) if condition is not None else None
            with self._connection.transaction() as transaction:
                for statement in of_table(statements, table):
                    if statement == "ROLLBACK":
                        raise psycopg.Rollback(transaction)
                    self._connection.execute(statement)  # type: ignore[call-overload]
            # A truncate runs no trigger for a row.
            if looked is not None and condition is not None and not any("TRUNCATE" in each for each in statements):
                (before, first), (after, last) = looked, self._look(table, condition)
                self._looked.append(_Looked(table, condition, before, after, first, last))

    def _look(self, table: str, condition: Condition) -> tuple[set[int], int]:
        """Return the keys of the rows for which a condition is true, and the number of the last change."""
        rows = self._all(f"SELECT id FROM {table} WHERE {to_sql(condition)}")
        ((last,),) = self._all("SELECT coalesce(max(change), 0) FROM history")
        return {row[0] for row in rows}, last

    def check(self) -> None:
        """Compare the answers about the history with those before and after each transaction."""
        changes = self.history()
        for table, condition, before, after, first, last in self._looked:
            true, keys = self.answer(condition), set(before)
            for number, of, op, old, new in changes:
                if of == table and first < number <= last:
                    keys.discard(old)
                    if op != "DELETE" and (number, "n") in true:
                        keys.add(new)
            assert keys == after, (table, to_sql(condition), before, after, keys)

    def history(self) -> list[list[Any]]:
        """Return number, table, operation, old and new key of each change, in order."""
        return [
            list(row)
            for row in self._all(
                "SELECT change, of, op, max(id) FILTER (WHERE side = 'o'), max(id) FILTER (WHERE side = 'n') "
                "FROM history GROUP BY change, of, op ORDER BY change"
            )
        ]

    def answer(self, condition: Condition) -> set[tuple[int, str]]:
        """Return the changes and sides, `o` (old) or `n` (new), of the rows for which a condition is true."""
        sql = to_sql(condition)
        if not compares_before(condition):
            return set(self._all(f"SELECT change, side FROM history WHERE {sql}"))
        both = "history o JOIN history n ON o.change = n.change AND o.side = 'o' AND n.side = 'n'"
        return set(self._all(f"SELECT n.change, n.side FROM {both} WHERE {sql}"))

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]
        except psycopg.Error as error:
            raise AssertionError(f"{query}: {error}") from error
