"""Points at which a test can make the service fail. Only tests arm them; a point that is not armed costs one comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

POINTS: Final = frozenset(
    {
        "source.begin",  # a new partition is in the store; its records were not read yet
        "source.read",  # a batch was read
        "source.ended",  # a source has ended, and no other part has noticed
        "pipeline.matched",  # the batch was matched
        "pipeline.queued",  # its messages wait for their sinks
        "sink.written",  # a sink has accepted them, and may have stored a part
        "sink.flushed",  # all of them are durable
        "store.dead",  # dead letters are written, and not committed
        "store.spooled",  # messages are in the spool, and not committed
        "store.committed",  # positions are in the store
        "store.copied",  # a part of a backup was copied
        "pipeline.acknowledged",  # the source was notified
        "spool.taken",  # an attempt begins
        "spool.answered",  # it has ended, and its result is not stored
        "spool.settling",  # results of attempts are written, and not committed
        "spool.settled",  # the results are in the store
        "subscriptions.committed",  # a change is in the store, and not in the engine
        "gateways.committed",  # a gateway is in the store, and its matches do not go there yet
        "source.rotated",  # the path of a file leads to another one
        "source.slot",  # a replication slot was created, and is not in the store
        "source.lost",  # a slot was created in place of a lost one
        "source.revoked",  # a partition was revoked, and its records are delivered or dropped
        "source.snapshot",  # all rows were read, and the store does not have that
        "sink.refused",  # a sink refuses some messages, and their dead letters are not in the store
        "sink.cut",  # the torn last line of a file was cut off
        "snapshot.half",  # one of the two files of a snapshot was replaced
        "reload.checked",  # a new configuration is valid, and not in force
        "reload.paused",  # its sources are open, and the replaced ones are closed
    }
)

_armed: dict[str, Callable[[], None]] = {}


def point(name: str) -> None:
    """Pass a point, or run the action of a test there."""
    if _armed and name in _armed:
        _armed[name]()


def arm(name: str, action: Callable[[], None]) -> None:
    """Run an action at a point. Raises ValueError if the point does not exist."""
    if name not in POINTS:
        raise ValueError(f"unknown point {name!r}; there are {', '.join(sorted(POINTS))}")
    _armed[name] = action


def disarm() -> None:
    """Disarm all points."""
    _armed.clear()
