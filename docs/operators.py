"""The cost of each kind of condition: tables of performance.md, made of the newest record by `make docs`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.operators import KNOWN
from docs.charts import newest


def operators() -> str:
    """Return the table of ways, as it was recorded."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    path = newest("operators")
    if path is None:
        yield "There is no record yet."
        return
    yield f"µs an event, of [{path.stem}](../benchmarks/records/{path.name}):"
    yield ""
    yield from (line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|"))


def growing() -> str:
    """Return the ways that are known to grow, each with why."""
    return "\n".join(["| way | why |", "|---|---|", *(f"| {name} | {why} |" for name, why in KNOWN.items())])
