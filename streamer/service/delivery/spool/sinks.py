"""The sinks of a spool, and the numbers of their messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar, final

from streamer.locks import Lock
from streamer.service.delivery.metrics import Gauges
from streamer.service.delivery.spool.delivery import WEBHOOKS, Delivery, Owner
from streamer.service.delivery.spool.history import STREAMS, History
from streamer.service.store.rows import Spooled

_T = TypeVar("_T")
#: The age of the oldest message of a sink, in seconds.
Age: TypeAlias = Callable[[Delivery | History], float]


@final
class Sinks:
    """The sinks of a spool. Its thread changes the mappings; any thread may iterate over one, because each change replaces it.

    Attributes:
        deliveries: the sinks with an endpoint.
        histories: the messages of gateways without an endpoint.
        removed: removed sinks, whose messages stay in the store. One that returns continues, so its keys keep their order.
    """

    def __init__(self) -> None:
        self.deliveries: dict[str, Delivery] = {}
        self.histories: dict[str, History] = {}
        self.removed: dict[str, Delivery] = {}
        # Several threads add messages.
        self.lock = Lock()

    def get(self, name: str) -> Delivery | History | None:
        """Return a delivery or a history."""
        return self.deliveries.get(name) or self.histories.get(name)

    @property
    def all_deliveries(self) -> list[Delivery]:
        """The deliveries, including those of removed sinks."""
        return [*self.deliveries.values(), *self.removed.values()]

    def put(self, sink: Delivery | History) -> None:
        """Add a sink."""
        if isinstance(sink, Delivery):
            self.deliveries = {**self.deliveries, sink.name: sink}
        else:
            self.histories = {**self.histories, sink.name: sink}

    def remove(self, name: str) -> None:
        """Remove a sink with an endpoint."""
        if (each := self.deliveries.get(name)) is not None:
            self.removed[name] = each
            self.deliveries = _without(self.deliveries, name)

    def forget(self, name: str) -> Delivery | History | None:
        """Remove a sink for good, and return it."""
        each = self.get(name)
        self.histories, self.deliveries = _without(self.histories, name), _without(self.deliveries, name)
        return each

    def add(self, each: Delivery, messages: int, size: int, matches: int) -> None:
        """Count messages that were added to the store."""
        with self.lock:
            each.change(messages, size, matches)
            each.lines.more()

    def bytes_of_owners(self, sizes: Mapping[str, int]) -> Counter[Owner]:
        """Return the number of bytes for each tenant's own gateways, from the bytes for each sink."""
        sums: Counter[Owner] = Counter()
        for name, size in sizes.items():
            each = self.get(name)
            if each is not None and each.owner is not None:
                sums[each.owner] += size
        return sums

    def fullest(self) -> float:
        """Return the used share of the room of the fullest sink of the configuration."""
        return max((each.bytes / each.terms.bytes for each in self.deliveries.values() if each.owner is None), default=0.0)

    def gauges(self, age: Age) -> list[Gauges]:
        """Return the current numbers of each sink of the configuration, and of all gateways of tenants together."""
        gauges = []
        own: list[Delivery] = []
        for name, each in self.deliveries.items():
            if each.owner is None:
                numbers = (each.messages, each.bytes, age(each), each.lines.blocked, each.stuck)
                gauges.append(Gauges(name, *numbers, each.state, dict(each.results)))
            else:
                own.append(each)
        if own:
            results: Counter[str] = Counter()
            for each in own:
                results.update(each.results)
            blocked, stuck = sum(each.lines.blocked for each in own), sum(each.stuck for each in own)
            gauges.append(Gauges(WEBHOOKS, *_sum(own, age), blocked, stuck, None, results))
        if histories := list(self.histories.values()):
            gauges.append(Gauges(STREAMS, *_sum(histories, age), 0, 0, None, {}))
        return gauges


def tally(spooled: Iterable[Spooled]) -> dict[str, tuple[int, int, int]]:
    """Return the number of messages, bytes and matches of each sink."""
    sums: dict[str, tuple[int, int, int]] = {}
    for each in spooled:
        messages, size, matches = sums.get(each.sink, (0, 0, 0))
        sums[each.sink] = (messages + 1, size + len(each.body), matches + each.matches)
    return sums


def _sum(sinks: Sequence[Delivery | History], age: Age) -> tuple[int, int, float]:
    """Return the messages and bytes of some sinks, and the age of the oldest message."""
    return sum(each.messages for each in sinks), sum(each.bytes for each in sinks), max(map(age, sinks))


def _without(several: Mapping[str, _T], name: str) -> dict[str, _T]:
    return {other: each for other, each in several.items() if other != name}
