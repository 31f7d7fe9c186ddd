"""Deletes old data about subscriptions from the store: expired leases, and changes that are old or too many."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service.store.rows import milliseconds
from streamer.service.store.subscriptions import Table

#: The wait after the store failed to delete, in seconds.
_AGAIN: Final = 1.0
#: The interval between deletions of old entries in the log of changes, in seconds.
_TRIM: Final = 3600.0
#: The interval between checks for tenants over their limit in it, in seconds; other processes may not have read younger entries.
LIMIT: Final = 60.0
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Upkeep:
    """The thread for these deletions. Any thread may call its methods.

    Args:
        expire: deletes some expired subscriptions.
        kept: returns how long the log of changes keeps an entry, and the most bytes of a tenant.
    """

    def __init__(self, table: Table, expire: Callable[[], object], retention: Callable[[], tuple[timedelta, int | None]]) -> None:
        self._table, self._expire, self._retention = table, expire, retention
        self._lock = Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._trimmed = self._limited = time.monotonic()
        # Tenants that may be over their limit in the log of changes.
        self._logged: set[str] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="streamer-leases", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Check at once, because there is a new lease."""
        self._wake.set()

    def wrote(self, tenants: Iterable[str]) -> None:
        """Note tenants with new changes."""
        with self._lock:
            self._logged.update(tenants)

    def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        is_logged = False
        while not self._is_closed:
            self._wake.clear()
            try:
                wait = None if (first := self._table.next_expiry()) is None else (first - milliseconds()) / 1000
                if wait is not None and wait <= 0:
                    self._expire()
                    wait = 0.0
                if time.monotonic() - self._trimmed >= _TRIM:
                    self._trimmed = time.monotonic()
                    self._table.trim(milliseconds() - int(self._retention()[0].total_seconds() * 1000))
                if time.monotonic() - self._limited >= LIMIT:
                    self._limited = time.monotonic()
                    self.limit_history()
                is_logged = False
            except ServiceError as error:
                if not is_logged:
                    _LOGGER.error("cannot delete expired leases yet: %s", error)
                is_logged, wait = True, _AGAIN
            if wait != 0.0:
                # The limit of 60 s lets it notice that the clock was set.
                self._wake.wait(60.0 if wait is None else min(wait, 60.0))

    def limit_history(self) -> None:
        """Delete the oldest changes of tenants over their limit; entries that are too young wait for the next time.

        Raises:
            ServiceError: the store failed.
        """
        if (most := self._retention()[1]) is None:
            return
        with self._lock:
            tenants, self._logged = self._logged, set()
        before = milliseconds() - int(LIMIT * 1000)
        remaining = set(tenants)
        try:
            for tenant in tenants:
                if self._table.limit(tenant, most, before):
                    remaining.discard(tenant)
        finally:
            self.wrote(remaining)
