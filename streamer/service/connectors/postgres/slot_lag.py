"""How far a slot is behind its server's log, and how much of the log the server keeps for it.

The replication connection cannot tell: its messages carry the place up to which the server has sent, not the end of its log, and
they wait in the socket while the reader waits for a sink. So a thread queries both places every few seconds, on an ordinary
connection of its own, which takes none of the server's `max_wal_senders`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import psycopg

from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.errors import ServiceError
from streamer.service.connectors.postgres.replication import Replication, lsn, said
from streamer.service.connectors.protocols import Progress

#: The seconds between two queries, and after which the result of the last one is no longer reported.
EVERY: Final = 5.0
_STALE: Final = 20.0
#: The longest query, in milliseconds.
_TIMEOUT: Final = 5000
_LOGGER: Final = logging.getLogger("streamer.service")
# A standby has no current place to write at.
_QUERY: Final = (
    "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,"
    " confirmed_flush_lsn, restart_lsn FROM pg_replication_slots WHERE slot_name = {}"
)


@final
class SlotLag:
    """The thread that queries. Any thread may read.

    Args:
        confirmed: returns the place up to which the store has all changes; the server learns it a little later.
    """

    def __init__(self, section: PostgresSource, confirmed: Callable[[], int]) -> None:
        self._section, self._confirmed = section, confirmed
        self._latest: tuple[float, Progress] | None = None
        self._over = threading.Event()
        self._is_logged = False
        self._thread = threading.Thread(target=self._run, name=f"streamer-{section.slot}-lag", daemon=True)
        self._thread.start()

    def progress(self) -> Progress | None:
        """Return the confirmed place and the end of the log a few seconds ago; None if the server is silent for long."""
        latest = self._latest
        return None if latest is None or time.monotonic() - latest[0] > _STALE else latest[1]

    def close(self) -> None:
        """End the thread, and its connection."""
        self._over.set()
        self._thread.join(1)

    def _run(self) -> None:
        connection: Replication | None = None
        while not self._over.is_set():
            try:
                if connection is None:
                    connection = Replication(self._section.dsn, streams=False)
                    connection.rows(f"SET statement_timeout = {_TIMEOUT}")
                self._latest = self._queried(connection)
                self._is_logged = False
            except (psycopg.Error, ServiceError) as error:
                # The last result is reported until it is too old: one lost connection must not reset an alert.
                self._tell(error)
                if connection is not None:
                    connection.close()
                    connection = None
            self._over.wait(EVERY)
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _queried(self, connection: Replication) -> tuple[float, Progress] | None:
        rows = connection.rows(_QUERY.format(connection.literal(self._section.slot)))
        if not rows:
            return None
        end, confirmed, restart = (lsn(place or "0/0") for place in rows[0])
        read = max(confirmed, self._confirmed())
        return time.monotonic(), Progress(read, max(end, read), "bytes", max(end - restart, 0) if restart else None)

    def _tell(self, error: psycopg.Error | ServiceError) -> None:
        # The thread that reads reports a server that is away as well.
        level = logging.DEBUG if self._is_logged else logging.INFO
        self._is_logged = True
        reason = said(error, self._section.dsn) if isinstance(error, psycopg.Error) else str(error)
        _LOGGER.log(level, "slot %s: its lag is not known now: %s", self._section.slot, reason)
