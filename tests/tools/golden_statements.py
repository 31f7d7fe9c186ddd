"""Random statements on two tables with all columns of a source."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from tests.tools.golden_source import Source

#: The rows that a snapshot finds.
SNAPSHOT: Final = 3
_MOST_ROWS: Final = 30


class Statements:
    """Random statements. They keep track of the keys that the tables have."""

    def __init__(self, rng: random.Random, source: Source) -> None:
        self._rng, self._source = rng, source
        self._names = [name for name, column in source.columns.items() if not column.is_generated()]
        self._keys: set[int] = set()

    def snapshot(self) -> list[str]:
        """Return the statements before the engines begin."""
        return [self._insert() for _ in range(SNAPSHOT)]

    def transactions(self, count: int) -> Iterator[list[str]]:
        """Yield transactions with *count* statements in all. Statements have `{table}` in place of a table."""
        while count > 0:
            size = min(count, self._rng.choice((1, 1, 1, 1, 2, 3, 5)))
            count -= size
            before = set(self._keys)
            found = [self._statement() for _ in range(size)]
            if size > 1 and self._rng.random() < 0.1 and not any(each.startswith(self._source.commits) for each in found):
                self._keys = before
                found.append("ROLLBACK")
            yield found

    def _statement(self) -> str:
        draw, rng = self._rng.random(), self._rng
        if len(self._keys) < 2 or (draw < 0.25 and len(self._keys) < _MOST_ROWS):
            return self._insert()
        if draw > 0.995:
            self._keys.clear()
            return "TRUNCATE {table}"
        if draw > 0.98:
            return self._source.extra(rng.randrange(100))
        if draw > 0.83:
            return self._delete()
        if draw > 0.76:
            return self._move()
        if draw > 0.73:
            return f"UPDATE {{table}} SET t = t WHERE {self._some()}"
        names = rng.sample(self._names[1:], rng.choice((1, 1, 2, 4, 12)))
        return f"UPDATE {{table}} SET {', '.join(f'{name} = {self._value(name)}' for name in names)} WHERE {self._some()}"

    def _some(self) -> str:
        keys = sorted(self._keys)
        return f"id IN ({', '.join(map(str, self._rng.sample(keys, min(len(keys), self._rng.choice((1, 1, 1, 2))))))})"

    def _insert(self) -> str:
        rows = []
        for _ in range(self._rng.choice((1, 1, 1, 2))):
            key = self._new_key()
            # A blank row has the values that Debezium also writes for values that are not in the record.
            nulls = self._rng.choice((0.15, 0.15, 0.15, 0.95))
            rows.append([str(key), *(self._value(name, nulls) for name in self._names[1:])])
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"INSERT INTO {{table}} ({', '.join(self._names)}) VALUES {values}"

    def _delete(self) -> str:
        keys = self._rng.sample(sorted(self._keys), self._rng.choice((1, 1, 1, 2)))
        self._keys -= set(keys)
        return f"DELETE FROM {{table}} WHERE id IN ({', '.join(map(str, keys))})"

    def _move(self) -> str:
        old = self._rng.choice(sorted(self._keys))
        new = self._new_key()
        self._keys.discard(old)
        also = "" if self._rng.random() < 0.5 else f", t = {self._value('t')}"
        return f"UPDATE {{table}} SET id = {new}{also} WHERE id = {old}"

    def _new_key(self) -> int:
        key = self._rng.choice([key for key in range(_MOST_ROWS * 2) if key not in self._keys])
        self._keys.add(key)
        return key

    def _value(self, name: str, nulls: float = 0.15) -> str:
        rng, column = self._rng, self._source.columns[name]
        if rng.random() < nulls:
            # A time that must be there is one of its own, so that golden records do not depend on the clock.
            return "NULL" if column.is_nullable() else column.blank or column.values[0][0]
        only = self._source.only_in_rows.get(name)
        if only is not None and rng.random() < 0.1:
            return rng.choice(only)
        return rng.choice(column.values)[0]


def of_table(statements: Sequence[str], table: str) -> list[str]:
    """Return statements with the name of a table in them."""
    return [statement.replace("{table}", table) for statement in statements]
