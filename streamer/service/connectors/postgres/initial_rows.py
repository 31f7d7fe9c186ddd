"""The initial rows of the tables of a slot, as they are when its changes begin."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import psycopg
from psycopg import pq, sql

from streamer.cdc.pgoutput import Column, Table, converter, named_converter
from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.errors import EventError
from streamer.service.connectors.lines import MOST_REFUSED
from streamer.service.connectors.protocols import Batch, Record, Refused

#: The rows of a table that are read at once.
_ROWS: Final = 1000
_LOGGER: Final = logging.getLogger("streamer.service")


def rows_of(
    reading: psycopg.Connection[Any], section: PostgresSource, partition: str, keys: Mapping[str, Sequence[str]]
) -> Generator[Batch, None, None]:
    """Yield all rows of the tables as inserts, and close the connection.

    Args:
        reading: in a transaction that sees the state at the slot's beginning.
        keys: the primary key of each table.
    """
    count = 0
    with closing(reading):
        ((now,),) = reading.execute("SELECT (extract(epoch FROM now()) * 1000)::bigint").fetchall()
        for schema, name, columns, where, is_root in _tables(reading, section):
            table_name = f"{schema}.{name}"
            of_columns = sql.SQL(", ").join(map(sql.Identifier, columns))
            statement = sql.SQL("DECLARE streamer NO SCROLL CURSOR FOR SELECT {} FROM {}{}{}").format(
                of_columns,
                sql.SQL("" if is_root else "ONLY "),
                sql.Identifier(schema, name),
                sql.SQL(f" WHERE {where}" if where else ""),
            )
            reading.execute(statement)
            table = None
            while True:
                fetched = reading.pgconn.exec_(b"FETCH %d FROM streamer" % _ROWS)
                if fetched.status != pq.ExecStatus.TUPLES_OK:
                    raise psycopg.errors.error_from_result(fetched)
                if table is None:
                    types = [fetched.ftype(at) for at in range(fetched.nfields)]
                    table = _table(reading, table_name, columns, types, keys.get(table_name, ()))
                records: list[Record] = []
                row_keys: list[str | None] = []
                for at in range(fetched.ntuples):
                    values = [fetched.get_value(at, column) for column in range(fetched.nfields)]
                    texts = [None if value is None else value.decode() for value in values]
                    try:
                        text, key = table.insert(texts, f'"ts":{now},')
                        records.append(text)
                    except EventError as error:
                        whole = b"\t".join(value or b"" for value in values)
                        records.append(Refused(error, whole[:MOST_REFUSED], len(whole)))
                        key = None
                    row_keys.append(key)
                if not records:
                    break
                yield Batch(partition, records, _counted_from(count), None, keys=row_keys)
                count += len(records)
            reading.execute("CLOSE streamer")
    _LOGGER.info("%d rows were read; changes follow", count)


def _tables(reading: psycopg.Connection[Any], section: PostgresSource) -> list[tuple[str, str, list[str], str | None, bool]]:
    """Return schema, name, columns and condition of each table to read, and whether its rows are in partitions."""
    if section.plugin == "pgoutput":
        tables = reading.execute(
            "SELECT schemaname, tablename, to_jsonb(p) -> 'attnames', to_jsonb(p) ->> 'rowfilter'"
            " FROM pg_publication_tables p WHERE pubname = %s ORDER BY 1, 2",
            (section.publication,),
        ).fetchall()
    else:
        tables = reading.execute(
            "SELECT n.nspname, c.relname, NULL::jsonb, NULL::text FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
            " ORDER BY 1, 2"
        ).fetchall()
    readable = []
    for schema, name, published, where in tables:
        columns = reading.execute(
            "SELECT a.attname, c.relkind = 'p' FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"
            " AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
            (schema, name),
        ).fetchall()
        names = [column for column, _ in columns if published is None or column in published]
        readable.append((schema, name, names, where, any(is_root for _, is_root in columns)))
    return readable


def _table(
    reading: psycopg.Connection[Any], name: str, columns: Sequence[str], types: Sequence[int], key: Sequence[str]
) -> Table:
    """Return a reader for the rows of a table."""
    own = reading.execute(
        "SELECT t.oid::bigint, n.nspname, t.typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace"
        " WHERE t.oid = ANY (%s)",
        ([each for each in types if each >= 16384],),
    ).fetchall()
    of_users = {oid: named_converter(schema, type_name) for oid, schema, type_name in own}
    read = [Column(column, of_users.get(oid) or converter(oid)) for column, oid in zip(columns, types, strict=True)]
    return Table(name, read, key)


def _counted_from(first: int) -> Callable[[int], int]:
    return lambda at: first + at
