"""The output plugins of PostgreSQL, which encode the changes of a slot: pgoutput and wal2json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, final

from streamer import cdc
from streamer.cdc.pgoutput import Begin, Change, Commit
from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.errors import EventCode, EventError
from streamer.service.connectors import formats
from streamer.service.connectors.postgres.replication import Replication, lsn


class Plugin(Protocol):
    """A reader of the messages of an output plugin."""

    def read(self, message: bytes) -> Begin | Commit | list[Change]:
        """Return the content of a message. Raises EventError."""


@final
class Wal2json:
    """wal2json, format version 2. Its begins and commits contain their places in the log."""

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        self.columns = columns
        decode = formats.decoder("wal2json", columns=columns)
        assert decode is not None
        self._decode = decode

    def read(self, message: bytes) -> Begin | Commit | list[Change]:
        """See `Plugin`."""
        if not message.startswith((b'{"action":"B"', b'{"action":"C"')):
            return self._decode(message)
        try:
            members = json.loads(message)
            if members["action"] == "B":
                return Begin(lsn(members["lsn"]), 0)
            return Commit(lsn(members["lsn"]), lsn(members["nextlsn"]))
        except (KeyError, TypeError, ValueError):
            raise EventError(EventCode.BAD_VALUE, "wal2json: a transaction without its position") from None


def plugged(
    stream: Replication, section: PostgresSource, key: Callable[[str], Sequence[str] | None]
) -> tuple[Plugin, dict[str, str]]:
    """Return a reader for the messages of a slot's plugin, and the options to stream it with.

    Args:
        key: returns the primary key of a table.
    """
    if section.plugin == "pgoutput":
        name = section.publication.replace('"', '""')
        return cdc.pgoutput.Decoder(key), {"proto_version": "1", "publication_names": f'"{name}"'}
    columns: dict[str, list[str]] = {}
    for table, column in stream.rows(
        "SELECT format('%s.%s', n.nspname, c.relname), a.attname FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped"
        " AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
    ):
        columns.setdefault(table or "", []).append(column or "")
    options = ("include-timestamp", "include-pk", "include-lsn", "include-transaction")
    return Wal2json(columns), {"format-version": "2", **dict.fromkeys(options, "true")}
