"""The command line in a process of its own, on the backend under test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.warm import Warm

#: What starts Python for a command; `run` does not, and is a hundred times as fast.
COMMAND = (sys.executable, "-m", "streamer")

SUBSCRIPTIONS = b"""\
{"id": "big", "gateway_id": "billing", "collection": "orders", "filters": [{"field": "amount", "op": ">", "value": 100}]}
{"id": "paid", "collection": "orders", "topic": "orders.*.paid", "labels": {"colour": "green"}}
"""

EVENTS = b"""\
{"collection": "orders", "type": "insert", "data": {"amount": 250}}

{"collection": "orders", "topic": "orders.eu.paid", "data": {"amount": 7}}
{"collection": "orders", "data": {"amount": 8}}
"""


@pytest.fixture
def place(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with subscriptions and events; the processes started run on the backend under test."""
    monkeypatch.setenv("STREAMER_BACKEND", backend)
    # The package under test, also where it is not installed; colours and widths as in a pipe.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "subs.jsonl").write_bytes(SUBSCRIPTIONS)
    (tmp_path / "events.jsonl").write_bytes(EVENTS)
    return tmp_path


Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="session")
def warm() -> Iterator[dict[str, Warm]]:
    """The processes that run commands, by backend."""
    processes: dict[str, Warm] = {}
    yield processes
    for process in processes.values():
        process.close()


@pytest.fixture
def run(place: Path, backend: str, warm: dict[str, Warm]) -> Run:
    """Run the command line in *place*."""

    def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        if backend not in warm:
            warm[backend] = Warm()
        return warm[backend].run(arguments, place, stdin)

    return run
