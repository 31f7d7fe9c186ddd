"""A database as the oracle: which rows a condition is true for, before and after each change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.tools.golden_conditions import Condition, compares_before, to_sql
from tests.tools.golden_source import Server, Source
from tests.tools.golden_statements import of_table


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

    def __init__(self, server: Server, source: Source) -> None:
        self._server, self._source = server, source
        self._looked: list[_Looked] = []

    def run(self, statements: Sequence[str], condition: Condition | None = None) -> None:
        """Run statements in a transaction, once for each table; a last `ROLLBACK` undoes them.

        Args:
            condition: one to look up before and after.
        """
        for table in self._source.tables:
            looked = self._look(table, condition) if condition is not None else None
            self._server.transaction(of_table(statements, table))
            # A truncate runs no trigger for a row.
            if looked is not None and condition is not None and not any("TRUNCATE" in each for each in statements):
                (before, first), (after, last) = looked, self._look(table, condition)
                self._looked.append(_Looked(table, condition, before, after, first, last))

    def _look(self, table: str, condition: Condition) -> tuple[set[int], int]:
        """Return the keys of the rows for which a condition is true, and the number of the last change."""
        rows = self._server.rows(f"SELECT id FROM {table} WHERE {to_sql(condition, self._source)}")
        ((last,),) = self._server.rows("SELECT coalesce(max(number), 0) FROM history")
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
            assert keys == after, (table, to_sql(condition, self._source), before, after, keys)

    def history(self) -> list[list[Any]]:
        """Return number, table, operation, old and new key of each change, in order."""
        return [
            list(row)
            for row in self._server.rows(
                "SELECT number, of, op, max(CASE WHEN side = 'o' THEN id END), max(CASE WHEN side = 'n' THEN id END) "
                "FROM history GROUP BY number, of, op ORDER BY number"
            )
        ]

    def answer(self, condition: Condition) -> set[tuple[int, str]]:
        """Return the changes and sides, `o` (old) or `n` (new), of the rows for which a condition is true."""
        sql = to_sql(condition, self._source)
        if not compares_before(condition):
            return set(self._server.rows(f"SELECT number, side FROM history WHERE {sql}"))
        both = "history o JOIN history n ON o.number = n.number AND o.side = 'o' AND n.side = 'n'"
        return set(self._server.rows(f"SELECT n.number, n.side FROM {both} WHERE {sql}"))
