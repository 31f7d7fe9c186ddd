"""Where golden records come from: a database with columns and an SQL of its own, and configurations of its connector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol

from tests.tools.fetched import fetch

#: A value that a record has only in a shape that no condition reads.
UNREADABLE: Final = object()
UNWRAP: Final = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
}
_COMMON: Final = {
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "offset.flush.interval.ms": "60000",
    "skipped.operations": "none",
    "poll.interval.ms": "20",
    "database.hostname": "127.0.0.1",
    "database.user": "streamer",
    "database.password": "secret-word",
}


class Configuration(NamedTuple):
    """A configuration of Debezium: the modes of values, and *deletes* if rows are unwrapped."""

    name: str
    schemas: bool
    decimal: str = "precise"
    time: str = "adaptive"
    binary: str = "bytes"
    hstore: str = "json"
    interval: str = "numeric"
    bigint: str = "long"
    deletes: str | None = None
    #: Whether records of transactions, heartbeats and changes of the schema come, too.
    more: bool = False


class Column(NamedTuple):
    """A column: its SQL type, its operators, values as pairs of SQL and Python, and how a value is written.

    Attributes:
        kind: `numeric` (of any scale), `decimal`, `float`, `text`, `time`, `timestamp`, or `moment` (whose text may have zeros at
            the end), if conditions depend on it.
        blank: the SQL of the value that a blank row has; by default the first one.
    """

    type: str
    operators: str
    values: tuple[tuple[str, Any], ...]
    write: Callable[[Any, Configuration], Any] = lambda value, _: value
    kind: Literal["numeric", "decimal", "float", "text", "time", "timestamp", "moment", ""] = ""
    blank: str = ""

    def is_nullable(self) -> bool:
        """Return whether a row may have a null."""
        return "NOT NULL" not in self.type

    def is_generated(self) -> bool:
        """Return whether the database computes the value."""
        return " AS (" in self.type


class Server(Protocol):
    """A running database with the tables and their history."""

    port: int

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Raises AssertionError."""

    def transaction(self, statements: Sequence[str]) -> None:
        """Run statements in a transaction; a last `ROLLBACK` undoes them."""

    def readers(self) -> int:
        """Return how many engines read changes."""

    def close(self) -> None:
        """Stop it, and remove it."""


class Source(ABC):
    """A database as a source of golden records.

    Attributes:
        tables: the tables of which each has all columns. Each statement is run on both.
        keyless: those without a primary key.
        only_in_rows: values that only rows have, in no condition.
        changing: the columns of which `changed` is the same in every mode.
        commits: the first words of statements that cannot be undone.
        last: transactions that end the golden run, because few random ones may lack them.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    columns: ClassVar[Mapping[str, Column]]
    configurations: ClassVar[Mapping[str, Configuration]]
    tables: ClassVar[tuple[str, str]]
    keyless: ClassVar[tuple[str, ...]] = ()
    only_in_rows: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    changing: ClassVar[tuple[str, ...]]
    commits: ClassVar[tuple[str, ...]] = ()
    last: ClassVar[Sequence[Sequence[str]]] = ()

    @property
    def file(self) -> Path:
        """The committed file."""
        return Path(__file__).parents[1] / "cdc" / f"golden_{self.name}.jsonl.gz"

    def jars(self) -> list[Path]:
        """Return the jars of Debezium. Raises NotThere."""
        modules = ("debezium-embedded", f"debezium-connector-{self.name}")
        return [jar for module in modules for jar in fetch("io.debezium", module, self.version)]

    def properties(self, of: Configuration, port: int) -> dict[str, str]:
        """Return the properties of an engine."""
        found = _COMMON | {
            "name": of.name,
            "topic.prefix": of.name,
            "database.port": str(port),
            "converter.schemas.enable": str(of.schemas).lower(),
            "decimal.handling.mode": of.decimal,
            "time.precision.mode": of.time,
            "binary.handling.mode": of.binary,
        }
        if of.deletes is not None:
            found |= UNWRAP | {"transforms.unwrap.delete.tombstone.handling.mode": of.deletes}
        if of.more:
            found |= {"provide.transaction.metadata": "true", "heartbeat.interval.ms": "200"}
        return found | self.options(of)

    @abstractmethod
    def options(self, of: Configuration) -> dict[str, str]:
        """Return the properties of this connector."""

    @abstractmethod
    def start(self) -> Server:
        """Return a server with empty tables."""

    @abstractmethod
    def extra(self, number: int) -> str:
        """Return a statement that changes no row, for a number below 100."""

    def may_lack(self, of: Configuration) -> bool:
        """Return whether a deleted row may be less than the whole row, without a mark."""
        return True

    # --- SQL

    def same(self, one: str, other: str) -> str:
        """Return the SQL that compares two values, of which two nulls are the same."""
        return f"{one} IS NOT DISTINCT FROM {other}"

    def differs(self, one: str, other: str) -> str:
        """Return the opposite of `same`."""
        return f"{one} IS DISTINCT FROM {other}"

    @abstractmethod
    def text(self, name: str, operator: str, quoted: str) -> str:
        """Return the SQL of `starts_with`, `ends_with` and `contains`."""

    def ordered(self, name: str, operator: str, literal: str) -> str:
        """Return the SQL that compares by order."""
        return f"{name} {operator} {literal}"

    def special(self, name: str, operator: str, index: int) -> str:
        """Return the SQL of the operators `member`, `text` and `element`."""
        raise AssertionError(operator)
