"""The peers' workloads as benchmarks of Streamer's Python API: subscriptions to plain documents, in one partition.

The expected numbers of matches are those of `check.py`, which evaluates each pattern directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, Final, cast

from benchmarks.measure import Benchmark, Case
from benchmarks.peers.generate import CDC, CITYLOTS, LISTS, Parts, Sizes, events_of, generate

SMOKE: Final = Sizes(citylots=300, cdc=100, lists=100, small=200, middle=1_200, large=1_200)

#: How many events are read, and how many matches they must give.
EXPECTED: Final = {
    "W1": (300, 0),
    "W2": (300, 165),
    "W2s": (300, 162),
    "W3": (300, 300),
    "W6": (300, 18),
    "W6x": (50, 36),
    "W4": (100, 35),
    "W4s": (100, 17),
    "W5": (100, 45),
    "W5q": (100, 36),
    "W5a": (100, 60),
    "W7": (100, 16511),
    "W7t": (100, 996),
    "W8": (50, 203),
    "W9": (30, 300),
    "W9f": (30, 300),
    "W9c": (30, 300),
    "W10": (30, 300),
    "W10f": (30, 300),
    "W10c": (30, 300),
    "W10n": (30, 300),
    "W10nf": (30, 300),
    "W10nc": (30, 300),
    "W12": (30, 499),
    "W12c": (30, 499),
}


@cache
def data() -> tuple[dict[str, list[str]], dict[str, list[Parts]]]:
    """Return all events and subscriptions, drawn once."""
    return generate(SMOKE)


class Workload:
    """One workload; see `generate`."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def CASES(self) -> tuple[Case, ...]:  # noqa: N802  # as modules of benchmarks have it
        """What is measured; to know how many subscriptions there are, all data is drawn."""
        events, matches = EXPECTED[self.name]
        return (Case(self.name, len(data()[1][self.name]), events, matches, smoke=True, layout="document"),)

    def subscriptions(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield the subscriptions, all of one partition."""
        for number, parts in enumerate(data()[1][self.name][:count]):
            yield {"id": str(number), **parts}

    def events(self, count: int) -> Iterator[bytes]:
        """Yield the events."""
        for text in data()[0][events_of(self.name)][:count]:
            yield text.encode()


WORKLOADS: Final = {name: cast(Benchmark, Workload(name)) for name in (*CITYLOTS, *CDC, *itertools.chain(*LISTS.values()))}
