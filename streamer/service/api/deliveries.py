"""The results of deliveries: attempts, tests, dead letters by their reason, and replays of many of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, final

from streamer.service.api.calls import Answer, Call, answer, members_of
from streamer.service.api.problems import Problem, refuse_unknown
from streamer.service.api.routes_delivered import CRITERIA
from streamer.service.api.status import Status
from streamer.service.delivery.replays import Replay
from streamer.service.observed.attempts import Attempt
from streamer.service.tenants.gateways import Gateways, sink_of

#: The most numbers in one replay.
MOST_NUMBERS: Final = 1000
#: The most concurrent tests, and those of one tenant: each waits for an endpoint in a thread of the API.
_TESTS: Final = 4
_TESTS_OF_A_TENANT: Final = 1
#: The least duration, for a tenant, of a test whose name has no allowed address, in seconds.
_UNREACHABLE: Final = 1.0


@final
class Delivering:
    """Handlers of the results of deliveries."""

    def __init__(self, status: Status, own: Gateways) -> None:
        self._status, self._gateways = status, own
        self._testing: Counter[str | None] = Counter()
        self._lock = threading.Lock()

    def sink_attempts(self, call: Call) -> Answer:
        """See the route."""
        attempts = self._status.attempts(call.path["name"], call.query.get("limit", 50))
        if attempts is None:
            raise Problem("unknown", "this name belongs to no webhook sink")
        return _attempts(attempts, is_all=True)

    def gateway_attempts(self, call: Call) -> Answer:
        """See the route."""
        row = self._gateways.find(call.whose, call.path["id"])
        attempts = self._status.attempts(sink_of(row.tenant, row.id), call.query.get("limit", 50)) or []
        return _attempts(attempts, is_all=call.token.tenant is None)

    def check_sink(self, call: Call) -> Answer:
        """See the route."""
        with self._turn(None):
            attempt = self._status.test(call.path["name"])
        if attempt is None:
            raise Problem("unknown", "no such sink")
        return answer(attempt.members(is_all=True))

    def check_gateway(self, call: Call) -> Answer:
        """See the route."""
        row = self._gateways.find(call.whose, call.path["id"])
        is_all, began = call.token.tenant is None, time.monotonic()
        with self._turn(row.tenant):
            attempt = self._status.test(sink_of(row.tenant, row.id))
            if attempt is not None and not is_all and attempt.is_unreachable:
                # An existing name of the inner network resolves faster than a missing one, which the duration must not reveal.
                time.sleep(max(0.0, _UNREACHABLE - (time.monotonic() - began)))
        if attempt is None:
            raise Problem("no-test", "it has no url: its matches are streamed")
        return answer(attempt.members(is_all=is_all))

    @contextmanager
    def _turn(self, tenant: str | None) -> Iterator[None]:
        """Occupy one of the slots for tests. Raises Problem if all are in use."""
        with self._lock:
            if self._testing.total() >= _TESTS or (tenant is not None and self._testing[tenant] >= _TESTS_OF_A_TENANT):
                raise Problem("busy", "another test waits for its endpoint", headers={"Retry-After": "5"})
            self._testing[tenant] += 1
        try:
            yield
        finally:
            with self._lock:
                self._testing[tenant] -= 1
                self._testing += Counter()

    # Dead letters

    def count_dead_letters(self, _: Call) -> Answer:
        """See the route."""
        return answer(self._status.letters_by_reason())

    def begin_replay(self, call: Call) -> Answer:
        """See the route."""
        members = members_of(call.body)
        refuse_unknown(members, ("numbers", *CRITERIA))
        numbers, criteria = members.pop("numbers", None), members
        if bool(criteria) == (numbers is not None):
            raise Problem("bad-request", f"expected numbers, or some of {', '.join(CRITERIA)}")
        if not all(isinstance(value, str) for value in criteria.values()):
            raise Problem("bad-request", f"{', '.join(CRITERIA)}: expected texts")
        if numbers is not None:
            good = isinstance(numbers, list) and 0 < len(numbers) <= MOST_NUMBERS
            if not good or not all(type(each) is int and 0 < each < 2**63 for each in numbers):
                raise Problem("bad-request", f"numbers: expected 1 to {MOST_NUMBERS:,} numbers of dead letters")
        job = self._status.replays.begin(criteria, None if numbers is None else tuple(numbers))
        if job is None:
            raise Problem("busy", "too many replays wait", headers={"Retry-After": "5"})
        return answer(job.members(), 202)

    def list_replays(self, _: Call) -> Answer:
        """See the route."""
        return answer({"items": [job.members() for job in self._status.replays.all()]})

    def get_replay(self, call: Call) -> Answer:
        """See the route."""
        return answer(self._job(call).members())

    def end_replay(self, call: Call) -> Answer:
        """See the route."""
        job = self._job(call)
        self._status.replays.end(job)
        return answer(job.members())

    def _job(self, call: Call) -> Replay:
        job = self._status.replays.find(call.path["id"])
        if job is None:
            raise Problem("unknown", "unknown replay")
        return job


def _attempts(attempts: list[Attempt], *, is_all: bool) -> Answer:
    items: list[dict[str, Any]] = [each.members(is_all=is_all) for each in attempts]
    return answer({"items": items})
