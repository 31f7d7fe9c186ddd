"""Points at which a test lets the service fail. Nobody arms them but a test, and a point that is not armed is one comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

POINTS: Final = frozenset(
    {
        "source.begin",  # a new partition is in the store; nothing of it was read
        "source.read",  # a batch was read
        "source.ended",  # a source has ended, and nobody knows it
        "pipeline.matched",  # it was matched
        "pipeline.queued",  # its messages wait for their sinks
        "sink.written",  # a sink has taken them, and may hold a part
        "sink.flushed",  # it holds them all
        "store.dead",  # dead letters are written, and not committed
        "store.spooled",  # messages are in the spool, and not committed
        "store.committed",  # positions are in the store
        "pipeline.acknowledged",  # the source was told
        "spool.taken",  # an attempt begins
        "spool.answered",  # it has ended, and nothing is put down
        "spool.settling",  # what came of attempts is written, and not committed
        "spool.settled",  # it is in the store
        "subscriptions.committed",  # what somebody wrote is in the store, and not in the engine
        "gateways.committed",  # a gateway is in the store, and its matches do not go there
        "source.rotated",  # a file was found to be another one
        "source.slot",  # a replication slot was made, and the store does not know it
        "source.lost",  # one was made in the place of a lost one
        "source.revoked",  # a partition is given up, and all that was read of it is held or dropped
        "source.snapshot",  # all rows were read, and the store does not know it
        "sink.refused",  # a sink does not take some messages, and their dead letters are not in the store
        "sink.cut",  # the torn last line of a file was cut off
        "reload.checked",  # a new configuration is good, and not in force
        "reload.paused",  # its sources are open, and those that it replaces are closed
    }
)

_armed: dict[str, Callable[[], None]] = {}


def point(name: str) -> None:
    """Pass a point, or do what a test wants to happen there."""
    if _armed and name in _armed:
        _armed[name]()


def arm(name: str, action: Callable[[], None]) -> None:
    """Have something happen at a point. Raises ValueError for one that there is not."""
    if name not in POINTS:
        raise ValueError(f"no point {name!r}; there are {', '.join(sorted(POINTS))}")
    _armed[name] = action


def disarm() -> None:
    """Let all points pass again."""
    _armed.clear()
