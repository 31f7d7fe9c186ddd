"""The table of positions: the confirmed position of each partition, and the process that may confirm it.

A process that takes a partition over gives it a *generation* that is unique. Records that were read under another generation are
refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamer.service.store.database import Execute, Fenced
from streamer.service.store.rows import Confirmed


def take(execute: Execute, source: str) -> tuple[int, list[str]]:
    """Take over all partitions of a source; return their generation, and their names."""
    generation = _generation(execute)
    statement = "UPDATE positions SET generation = ? WHERE source = ? RETURNING partition"
    return generation, [partition for (partition,) in execute(statement, (generation, source)).fetchall()]


def begin(execute: Execute, source: str, partition: str, position: str) -> int:
    """Take over a partition, and store this position if it is new. Return its generation."""
    generation = _generation(execute)
    execute(_BEGIN, (source, partition, position, generation))
    return generation


def move(execute: Execute, source: str, target: str) -> None:
    """Give a source the positions of another one, which loses them; all processes lose the partitions of both."""
    execute(_REPLACED, (target, source))
    execute("UPDATE positions SET source = ? WHERE source = ?", (target, source))
    take(execute, target)


def confirm(execute: Execute, confirmed: Iterable[Confirmed]) -> None:
    """Store positions, before any other statement: so no other process takes a partition over before the commit.

    Raises:
        Fenced: other processes have some of the partitions.
    """
    fenced = set()
    for each in sorted(confirmed, key=lambda each: (each.source, each.partition)):
        name = (each.source, each.partition)
        if each.is_over:
            is_ours = execute(_END, (*name, each.generation)).rowcount
        else:
            is_ours = execute(_CONFIRM, (each.position, *name, each.generation)).rowcount
        # A partition without a row has no owner.
        if not is_ours and not (not each.generation and _is_new(execute, each)):
            fenced.add((*name, each.generation))
    if fenced:
        named = ", ".join(f"{source}: {partition}" for source, partition, _ in sorted(fenced))
        raise Fenced(f"another process reads these now, from their confirmed positions: {named}", frozenset(fenced))


def _generation(execute: Execute) -> int:
    """Return a unique generation."""
    ((generation,),) = execute("UPDATE generations SET last = last + 1 RETURNING last").fetchall()
    return int(generation)


def _is_new(execute: Execute, each: Confirmed) -> bool:
    """Store a new partition; return whether it was new."""
    if each.is_over:
        return not execute("SELECT 1 FROM positions WHERE source = ? AND partition = ?", (each.source, each.partition)).fetchall()
    return each.position is None or bool(execute(_CONFIRM_NEW, (each.source, each.partition, each.position)).rowcount)


#: The confirmed positions of all partitions, by source.
POSITIONS: Final = "SELECT source, partition, position FROM positions ORDER BY number"
_CONFIRM: Final = "UPDATE positions SET position = coalesce(?, position) WHERE source = ? AND partition = ? AND generation = ?"
_END: Final = "DELETE FROM positions WHERE source = ? AND partition = ? AND generation = ?"
_BEGIN: Final = (
    "INSERT INTO positions (source, partition, position, generation) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (source, partition) DO UPDATE SET generation = excluded.generation"
)
_REPLACED: Final = "DELETE FROM positions WHERE source = ? AND partition IN (SELECT partition FROM positions WHERE source = ?)"
_CONFIRM_NEW: Final = (
    "INSERT INTO positions (source, partition, position) VALUES (?, ?, ?) ON CONFLICT (source, partition) DO NOTHING"
)
