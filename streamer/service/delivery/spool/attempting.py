"""The thread that makes all attempts; an attempt waits only for its own endpoint."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final, TypeAlias, final

from streamer.errors import ServiceError
from streamer.locks import Lock
from streamer.service import faults
from streamer.service.connectors.protocols import Endpoint, Outcome
from streamer.service.delivery.spool.delivery import Delivery
from streamer.service.delivery.spool.lines import Line
from streamer.service.observed.attempts import Attempts
from streamer.service.store.rows import Waiting

_LOGGER: Final = logging.getLogger("streamer.service")

#: The messages of one request, the keys that wait for it, and its endpoint.
Job: TypeAlias = tuple[Delivery, Endpoint, list[Waiting], list[Line]]
#: A request and its result. An exception is one that the endpoint did not expect.
Answer: TypeAlias = tuple[Delivery, Endpoint, list[Waiting], list[Line], Outcome | BaseException]


@final
class Attempting:
    """An event loop in its own thread, which ends with the process at the latest.

    It is one thread rather than one for each attempt: threads that wait for Python's lock cost more than the requests.

    Args:
        answered: is called in that thread, with all results that arrived together.
        attempts: records each attempt.
    """

    def __init__(self, answered: Callable[[Sequence[Answer]], None], attempts: Attempts) -> None:
        self._answered, self._attempts = answered, attempts
        self._answers: list[Answer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False

    def begin(self, jobs: Sequence[Job]) -> None:
        """Begin attempts."""
        with self._lock:
            self._running().call_soon_threadsafe(self._start, jobs)

    def once(self, endpoint: Endpoint, ids: Sequence[str], messages: Sequence[bytes]) -> Outcome:
        """Make an attempt ahead of all others, and return its result. Raises ServiceError if the service is ending."""
        with self._lock:
            done = None if self._is_over else asyncio.run_coroutine_threadsafe(endpoint.send(ids, messages), self._running())
        try:
            if done is not None:
                return done.result()
        except CancelledError:
            pass
        raise ServiceError("the service is ending")

    def end(self, endpoints: Iterable[Endpoint]) -> None:
        """Close endpoints, and cancel the attempts in flight."""
        for endpoint in endpoints:
            endpoint.close()
        with self._lock:
            self._is_over, loop = True, self._loop
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(_unexpected)
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="streamer-attempts", daemon=True)
            self._thread.start()
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(_break_off())
        finally:
            loop.close()

    def _start(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            task = asyncio.get_running_loop().create_task(self._attempt(*job))
            # A loop keeps only a weak reference to a task.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _attempt(self, each: Delivery, endpoint: Endpoint, rows: list[Waiting], lines: list[Line]) -> None:
        ids, began = [row.message for row in rows], time.monotonic()
        outcome: Outcome | BaseException
        try:
            faults.point("spool.taken")
            outcome = await endpoint.send(ids, [row.body for row in rows])
            faults.point("spool.answered")
            self._attempts.add(each.name, ids, outcome, time.monotonic() - began)
        except BaseException as error:
            outcome = error
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._tell)
        self._answers.append((each, endpoint, rows, lines, outcome))

    def _tell(self) -> None:
        answers, self._answers = self._answers, []
        self._answered(answers)


async def _break_off() -> None:
    # Let attempts begin that were just scheduled, so that their callers get a result.
    await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Closed transports get `connection_lost` in the next turn of the loop.
    await asyncio.sleep(0)


def _unexpected(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # The attempt reports its result. A transport's own messages may quote what the endpoint has sent.
    _LOGGER.debug("a connection to an endpoint: %s", type(context.get("exception")).__name__)
