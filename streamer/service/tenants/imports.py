"""Imports: many subscriptions of one tenant, checked as a whole and then stored in slices, so that other calls take their turns.

```
check every line ─► store 200 lines ─► rest ─► store 200 lines ─► rest ─► …
```

A slice is one commit and one step of the engine. An import that ends early, because the client disconnects, the store fails or
the process dies, leaves whole slices behind. The client sends the same lines again: those that are stored already stay unchanged.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

from streamer.errors import ServiceError, SubscriptionError
from streamer.locks import Lock
from streamer.service.store.ids import Written
from streamer.service.store.rows import milliseconds, time_of
from streamer.service.tenants.subscriptions import Result, Subscriptions
from streamer.service.tenants.validation import Examination

#: The lines of a slice: other calls wait for one at most.
SLICE: Final = 200
#: The rest after a slice, as a share of the time that the slice took, and its longest, in seconds.
_SHARE: Final = 0.5
_LONGEST: Final = 0.2
#: The most imports whose progress is kept.
_MOST: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class Import:
    """The progress of an import.

    Attributes:
        state: `checking` and `storing`; then `done`, `refused` (no line was stored), `stopped` (the client disconnected) or
            `failed` (the store failed).
        lines: the number of its subscriptions.
        done: how many have their result.
        refused: how many of these are invalid or not allowed.
        started: in milliseconds since the epoch; so is *ended*.
    """

    id: str
    tenant: str
    lines: int
    started: int
    state: str = "checking"
    done: int = 0
    refused: int = 0
    ended: int | None = None

    def members(self) -> dict[str, Any]:
        """Return it as JSON members."""
        counts = {"lines": self.lines, "done": self.done, "refused": self.refused}
        times = {"started": time_of(self.started), "ended": None if self.ended is None else time_of(self.ended)}
        return {"id": self.id, "tenant": self.tenant, "state": self.state, **counts, **times}


class InvalidImport(Exception):
    """Some lines of an import are invalid or not allowed, so none was stored.

    Attributes:
        results: of each line.
    """

    def __init__(self, results: Sequence[Result]) -> None:
        super().__init__("some lines are invalid")
        self.results = results


class Rest:
    """Leaves the interpreter and the store to other calls for a while, after each slice of work."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def take(self) -> None:
        """Rest for a share of the time since the last rest."""
        time.sleep(min((time.monotonic() - self._since) * _SHARE, _LONGEST))
        self._since = time.monotonic()


@final
class Imports:
    """The imports of a process, and the progress of the latest ones. Any thread may use it."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._lock = Lock()
        self._latest: OrderedDict[str, Import] = OrderedDict()

    def find(self, tenant: str, import_id: str) -> Import | None:
        """Return the progress of an import of a tenant; None if it is unknown."""
        progress = self._latest.get(import_id)
        return progress if progress is not None and progress.tenant == tenant else None

    def of_tenant(self, tenant: str) -> list[Import]:
        """Return the progress of a tenant's imports, the latest first."""
        with self._lock:
            return [each for each in reversed(self._latest.values()) if each.tenant == tenant]

    def begin(self, tenant: str, lines: int) -> Import:
        """Return a new import, whose progress is kept."""
        new = Import(secrets.token_hex(8), tenant, lines, milliseconds())
        self._note(new)
        return new

    def _note(self, new: Import) -> None:
        with self._lock:
            self._latest[new.id] = new
            while len(self._latest) > _MOST:
                self._latest.popitem(last=False)

    def run(
        self, each: Import, several: Sequence[Written | SubscriptionError], *, lease: int | None, partly: bool, who: str
    ) -> Iterator[list[Result]]:
        """Check all lines, then yield the results of each slice once it is stored. A closed iterator stops the import.

        Args:
            several: an error stands for a line that could not be read.
            lease: the time to live, in milliseconds; None for ever.
            partly: whether to store the valid lines if some are invalid.

        Raises:
            InvalidImport: some lines are invalid or not allowed, and *partly* is false. None was stored.
            ServiceError: the store failed. The slices before are stored.
        """
        try:
            rest = Rest()
            examined = self._examine(several, rest)
            if not partly:
                results = self._would_put(each, several, examined, rest)
                if refused := sum(result.error is not None for result in results):
                    each = replace(each, state="refused", done=each.lines, refused=refused)
                    raise InvalidImport(results)
            each = replace(each, state="storing")
            for at in range(0, len(several), SLICE):
                self._note(each)
                # Since the check, other calls may have used up the quota, or written an id.
                results = self._subscriptions.put_many(
                    each.tenant, several[at : at + SLICE], examined[at : at + SLICE], lease=lease, partly=True, who=who
                )
                refused = sum(result.error is not None for result in results)
                each = replace(each, done=each.done + len(results), refused=each.refused + refused)
                yield results
                rest.take()
            each = replace(each, state="done")
        except ServiceError:
            each = replace(each, state="failed")
            raise
        finally:
            state = "stopped" if each.state in ("checking", "storing") else each.state
            self._note(replace(each, state=state, ended=milliseconds()))

    def _examine(self, several: Sequence[Written | SubscriptionError], rest: Rest) -> list[SubscriptionError | bool]:
        examination = Examination(self._subscriptions.options)
        examined: list[SubscriptionError | bool] = []
        for at in range(0, len(several), SLICE):
            examined += examination.examine(several[at : at + SLICE])
            rest.take()
        return examined

    def _would_put(
        self,
        each: Import,
        several: Sequence[Written | SubscriptionError],
        examined: Sequence[SubscriptionError | bool],
        rest: Rest,
    ) -> list[Result]:
        results: list[Result] = []
        amount = self._subscriptions.amount(each.tenant)
        for at in range(0, len(several), SLICE):
            part, amount = self._subscriptions.would_put(each.tenant, several[at : at + SLICE], examined[at : at + SLICE], amount)
            results += part
            rest.take()
        return results
