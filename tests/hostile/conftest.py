"""A limit of time that turns a hang into a failure."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

#: The slowest row takes about two seconds on the reference; this is a hang, whatever the machine.
SECONDS = 60


@pytest.fixture
def time_limit() -> Iterator[None]:
    """Fail where the test takes longer than `SECONDS`, as far as Python can be interrupted."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def fail(signum: int, frame: FrameType | None) -> None:
        pytest.fail(f"takes longer than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
