"""The thread in which all attempts are made, each of which waits for its endpoint and none for another."""

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
from streamer.service.observed.attempts import Attempts
from streamer.service.protocols import Endpoint, Outcome
from streamer.service.spool.delivery import Delivery, Line
from streamer.service.store.rows import Waiting

_LOGGER: Final = logging.getLogger("streamer.service")

#: Messages of one request, the keys that wait for it, and where it goes.
Job: TypeAlias = tuple[Delivery, Endpoint, list[Waiting], list[Line]]
#: A request, and what came of it: an error is one that an endpoint did not expect.
Answer: TypeAlias = tuple[Delivery, Endpoint, list[Waiting], list[Line], Outcome | BaseException]


@final
class Attempting:
    """An event loop in a thread of its own, which ends with the process at the latest.

    One thread instead of one an attempt: threads that wait for Python's lock cost more than the requests.

    Args:
        answered: is called in that thread, with all answers that came together.
        attempts: is told of each.
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
        """Make an attempt past all others, and wait for what comes of it. Raises ServiceError at the end."""
        with self._lock:
            done = None if self._is_over else asyncio.run_coroutine_threadsafe(endpoint.send(ids, messages), self._running())
        try:
            if done is not None:
                return done.result()
        except CancelledError:
            pass
        raise ServiceError("the service is ending")

    def end(self, endpoints: Iterable[Endpoint]) -> None:
        """Close endpoints, and break off what is under way."""
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
            # A loop alone does not keep a task.
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
    # What was asked for last begins, so that whoever waits for it is told.
    await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # What was closed is told so in the next turn.
    await asyncio.sleep(0)


def _unexpected(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # An attempt says what came of it; what a transport says besides may quote what an endpoint has sent.
    _LOGGER.debug("a connection to an endpoint: %s", type(context.get("exception")).__name__)
