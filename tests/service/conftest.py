"""A service on files in a directory of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer import Config
from streamer.config.loader import Loaded
from streamer.service import faults
from streamer.service.run.serve import Service
from tests.service.chromium import chromium, window  # noqa: F401  # fixtures
from tests.service.database import cluster, database  # noqa: F401  # fixtures
from tests.service.receiver import Receiver

SUBSCRIPTIONS = b"""\
{"id": "big", "gateway_id": "billing", "collection": "orders", "filters": [{"field": "amount", "op": ">", "value": 100}]}
{"id": "paid", "collection": "orders", "topic": "orders.*.paid", "labels": {"colour": "green"}}
"""


def event(number: int, amount: int = 250, **more: Any) -> bytes:
    """Return an event that `big` matches, unless its amount is small."""
    return json.dumps({"id": number, "collection": "orders", "type": "insert", "data": {"amount": amount}} | more).encode()


def lines(path: Path) -> list[Any]:
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def so_far(path: Path) -> list[Any]:
    """Read the JSON lines of a file that is being written, as far as they are whole; none where it is not there yet."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


#: How often a service is killed for a record. The reference starts slowly, and what it tells is the engine's share alone.
KILLS = {"native": 100, "reference": 20}

Make = Callable[..., Service]


@pytest.fixture
def make(tmp_path: Path, backend: str) -> Make:
    """Make a service that reads `in.jsonl` to its end and writes `out.jsonl`: `make(sinks={...})`."""
    (tmp_path / "subs.jsonl").write_bytes(SUBSCRIPTIONS)

    def make(**sections: Any) -> Service:
        config = {
            "subscriptions": [str(tmp_path / "subs.jsonl")],
            "sources": {"orders": {"type": "file", "path": str(tmp_path / "in.jsonl"), "follow": False}},
            "sinks": {"out": {"type": "file", "path": str(tmp_path / "out.jsonl")}},
            "service": {"data_dir": str(tmp_path / "data")},
        }
        return Service(lambda: Loaded(Config.from_dict(config | sections)))

    return make


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_fault_is_left() -> Iterator[None]:
    yield
    faults.disarm()
