"""The section of a source that reads a replication slot of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal, final

from pydantic import (
    Field,
)

from streamer.config.schema.claims import OWNS, Claim, Named
from streamer.config.schema.sources import Source
from streamer.config.secret import Secret
from streamer.config.units import Duration


@final
class PostgresSource(Source):
    """Changes of tables of PostgreSQL, read from a logical replication slot (docs/service.md)."""

    type: Literal["postgres"]
    """The kind of source."""
    dsn: Secret
    """How to connect, for example `postgresql://user:password@host/database` or `host=… dbname=…`, as a variable or a file that
    contains it."""
    slot: Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=63)] = "streamer"
    """The replication slot; a missing one is created. One process reads a slot."""
    publication: Annotated[str, Field(min_length=1, max_length=63)] = "streamer"
    """The publication, which lists the tables to read; you create it. `wal2json` reads all tables without one."""
    plugin: Literal["pgoutput", "wal2json"] = "pgoutput"
    """The output plugin on the server: `pgoutput` is part of PostgreSQL, `wal2json` must be installed."""
    on_lost: Literal["fail", "resnapshot", "skip"] = "fail"
    """If unread changes are lost: end; read all rows of the tables as inserts; or continue with the changes from then on."""
    status_interval: Duration = timedelta(seconds=10)
    """Time between two reports of the delivered position, up to which the server may drop changes; less if the server waits for
    less."""

    def claims(self) -> Iterator[Claim]:
        """See `Source`."""
        yield Claim(("slot",), OWNS, Named("slot", self.slot, frozenset({self.dsn})), "{} reads this slot")

    @property
    def shown_format(self) -> str:
        """See `Source`."""
        return self.plugin

    @property
    def decoded_by(self) -> str:
        """See `Source`."""
        return "type"
