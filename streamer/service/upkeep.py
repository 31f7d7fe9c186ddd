"""Looks after what the store has of subscriptions: leases that are over, and changes that are old or too many."""

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

#: So long one waits, in seconds, after a store could not take them out.
_AGAIN: Final = 1.0
#: How often what is old is taken out of the log of changes, in seconds.
_TRIM: Final = 3600.0
#: How often tenants that have too much in it are looked for, in seconds; what is younger other processes may not have seen.
LIMIT: Final = 60.0
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Upkeep:
    """A thread that does so. Any thread may use it.

    Args:
        expire: takes out some subscriptions whose lease is over.
        kept: returns how long the log of changes has an entry, and how many bytes of a tenant.
    """

    def __init__(self, table: Table, expire: Callable[[], object], kept: Callable[[], tuple[timedelta, int | None]]) -> None:
        self._table, self._expire, self._kept = table, expire, kept
        self._lock = Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._trimmed = self._limited = time.monotonic()
        # Tenants that the log of changes may have too much of.
        self._logged: set[str] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="streamer-leases", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look at once: there is another lease."""
        self._wake.set()

    def wrote(self, tenants: Iterable[str]) -> None:
        """Take note of tenants that something was written for."""
        with self._lock:
            self._logged.update(tenants)

    def close(self) -> None:
        """End."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        is_told = False
        while not self._is_closed:
            self._wake.clear()
            try:
                wait = None if (first := self._table.next_expiry()) is None else (first - milliseconds()) / 1000
                if wait is not None and wait <= 0:
                    self._expire()
                    wait = 0.0
                if time.monotonic() - self._trimmed >= _TRIM:
                    self._trimmed = time.monotonic()
                    self._table.trim(milliseconds() - int(self._kept()[0].total_seconds() * 1000))
                if time.monotonic() - self._limited >= LIMIT:
                    self._limited = time.monotonic()
                    self.limit_history()
                is_told = False
            except ServiceError as error:
                if not is_told:
                    _LOGGER.error("leases that are over stay in the store for now: %s", error)
                is_told, wait = True, _AGAIN
            if wait != 0.0:
                # A clock that is set to another time is noticed.
                self._wake.wait(60.0 if wait is None else min(wait, 60.0))

    def limit_history(self) -> None:
        """Forget the oldest changes of tenants that the log has too much of; what is too young waits for the next time.

        Raises:
            ServiceError: the store failed.
        """
        if (most := self._kept()[1]) is None:
            return
        with self._lock:
            tenants, self._logged = self._logged, set()
        before = milliseconds() - int(LIMIT * 1000)
        left = set(tenants)
        try:
            for tenant in tenants:
                if self._table.limit(tenant, most, before):
                    left.discard(tenant)
        finally:
            self.wrote(left)
