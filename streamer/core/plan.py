"""How an engine finds and decides a subscription: what its author can do to make it cheap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

from streamer.model import CelEvaluator

CostClass = Literal["keyed", "indexed", "unkeyed"]

#: A range has a few dozen keys; more than this many of anything are counted, not printed.
SHOWN = 8

_COSTS = {
    "keyed": "a candidate only for events that carry one of its access keys",
    "indexed": "a candidate only for events with a value in its ranges, prefixes and the like",
    "unkeyed": "a candidate for every event of its partition; an equality in every alternative would give it a key",
}


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The way of one subscription through the engine; `str()` prints it as a small table.

    Attributes:
        subscription_id: the subscription.
        tenant: a name, or `"*"` for every tenant.
        collection: a name, or `"*"` for every collection.
        normal_form: its conjunctions, each as its conditions in words of the backend; all of any conjunction make it match.
        access_keys: values of which every matching event carries one, as text; None where nothing is so telling.
        bloom_keys: the same as the bytes that go into the collection's filter; empty where it is unkeyed.
        cel: the CEL program that runs on candidates, as written; None without one, or where clauses say all of it (native only).
        evaluator: what evaluates it; None where *cel* is None.
        residual: what is evaluated as written because no clause expresses it.
        cost: for which events it is a candidate: `keyed`, `indexed` (native only), `unkeyed`.
        decided_by: what evaluates it.
    """

    subscription_id: str
    tenant: str
    collection: str
    normal_form: tuple[tuple[str, ...], ...]
    access_keys: tuple[str, ...] | None
    bloom_keys: tuple[bytes, ...]
    cel: str | None
    residual: tuple[str, ...]
    cost: CostClass
    decided_by: str
    evaluator: CelEvaluator | None = None

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the plan as pairs of a heading, empty where it goes on, and a text."""

        def block(heading: str, lines: tuple[str, ...], none: str) -> Iterator[tuple[str, str]]:
            yield heading, lines[0] if lines else none
            yield from (("", line) for line in lines[1:SHOWN])
            if len(lines) > SHOWN:
                yield "", f"and {len(lines) - SHOWN} more"

        yield "partition", f"tenant {self.tenant!r}, collection {self.collection!r}"
        lines = []
        for at, conditions in enumerate(self.normal_form):
            first, *others = conditions or ("everything",)
            lines += [f"or {first}" if at else first, *(f"and {condition}" for condition in others)]
        yield from block("normal form", tuple(lines), "nothing: it never matches")
        yield from block("access keys", self.access_keys or (), "none" if self.access_keys is None else "none can match")
        yield from block("Bloom keys", tuple(key.decode() for key in self.bloom_keys), "none")
        yield "CEL", self.cel if self.cel is not None else "none"
        if self.evaluator == "portable":
            yield "", "evaluated by cel-python on candidates"
        yield from block("residual", self.residual, "none")
        yield "cost", f"{self.cost}: {_COSTS[self.cost]}"
        yield "decided by", self.decided_by

    def __str__(self) -> str:
        return "\n".join([f"plan of {self.subscription_id!r}", *(f"  {heading:12} {text}" for heading, text in self.rows())])
