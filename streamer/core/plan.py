"""Show how an engine finds and decides a subscription, so that its author can make it cheaper."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

from streamer.core.estimate import Effort
from streamer.model import TOO_COSTLY, CelEvaluator

CostClass = Literal["keyed", "indexed", "unkeyed"]

#: The most items of a list that are printed, and the most lines of a condition.
SHOWN, LINES = 8, 3
#: The most keys that are shown as text.
MOST_KEYS: Final = 1_000
WIDTH = 80
_MARGIN = " " * 15

_COSTS = {
    "keyed": "by the access keys that an event carries",
    "indexed": "by values in its ranges, prefixes and the like",
    "unkeyed": "by no value; an equality in every alternative would give it a key",
}


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """The path of one subscription through the engine; `str()` prints it as a small table.

    Attributes:
        subscription_id: the subscription.
        tenant: a name, or `"*"` for every tenant.
        collection: a name, or `"*"` for every collection.
        normal_form: its conjunctions, each as its conditions in words of the backend. It matches if all conditions of one
            conjunction are true. If there are more than 10,000 conditions, the first ones and the number of the others.
        access_keys: values as text, of which every matching event has one; None if there are none. If there are more than
            1,000, the first ones and the number of the others.
        bloom_keys: all of these keys, as the bytes in the collection's filter; empty if the subscription is unkeyed.
        cel: the CEL program that runs on candidates, as written; None without one, or if clauses express all of it (native
            only).
        evaluator: its evaluator; None if *cel* is None.
        residual: the part that is evaluated as written, because no clause expresses it.
        cost: how it is found: `keyed`, `indexed` (native only), `unkeyed`.
        effort: its cost class as the only subscription; `lint` estimates it among the others.
        decided_by: the parts of the engine that decide it.
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
    effort: Effort
    evaluator: CelEvaluator | None = None

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the plan as pairs of a heading, empty if it continues, and a text."""

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
        yield from block("normal form", tuple(lines), "empty: it never matches")
        keys = tuple(_in_words(self.bloom_keys[:MOST_KEYS])) if self.bloom_keys else self.access_keys or ()
        if len(self.bloom_keys) > MOST_KEYS:
            keys = (*keys[: SHOWN - 1], *self.access_keys[MOST_KEYS:]) if self.access_keys else keys
        yield from block("access keys", keys, "none" if self.access_keys is None else "none can match")
        yield "Bloom keys", f"{len(self.bloom_keys):,}" if self.bloom_keys else "none"
        yield "CEL", self.cel if self.cel is not None else "none"
        if self.evaluator == "portable":
            yield "", "evaluated by cel-python on candidates"
        yield from block("residual", self.residual, "none")
        yield "found", f"{self.cost}: {_COSTS[self.cost]}"
        yield "cost", f"{self.effort.value}: {self.effort.words}"
        yield "decided by", self.decided_by

    def __str__(self) -> str:
        lines = [f"plan of {self.subscription_id!r}"]
        for heading, text in self.rows():
            # Cut text far beyond the last line before it is split into words.
            first, *others = textwrap.wrap(
                text[: 20 * WIDTH * LINES], WIDTH - len(_MARGIN) - 2, max_lines=LINES, placeholder=" ...", break_on_hyphens=False
            ) or [""]
            lines += [f"  {heading:12} {first}", *(f"{_MARGIN}  {line}" for line in others)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {
            "subscription_id": self.subscription_id,
            "tenant": self.tenant,
            "collection": self.collection,
            "normal_form": [list(conditions) for conditions in self.normal_form],
            "access_keys": None if self.access_keys is None else list(self.access_keys),
            "bloom_keys": [key.decode() for key in self.bloom_keys],
            "cel": self.cel,
            "evaluator": self.evaluator,
            "residual": list(self.residual),
            "cost": self.cost,
            "effort": self.effort.value,
            "decided_by": self.decided_by,
        }


def keys_in_words(encoded: Iterable[bytes]) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """Return keys in the order of a plan, and their texts; if there are many keys, only the first texts."""
    from streamer.subscriptions.keys import Key

    # Sort by bytes first, because making texts is slow.
    keys = sorted(encoded)
    made = sorted((str(Key.from_bytes(key)), key) for key in keys[:MOST_KEYS])
    texts = [text for text, _ in made]
    if len(keys) > MOST_KEYS:
        texts.append(f"{TOO_COSTLY}: {len(keys) - MOST_KEYS:,} more keys")
    return (*(key for _, key in made), *keys[MOST_KEYS:]), tuple(texts)


def _in_words(encoded: Sequence[bytes]) -> Iterator[str]:
    """Yield keys as text for users: all values at one path together, and the buckets of a range as the range."""
    # Imported on use, because a plan of the native core does not need the reference's dependencies.
    from streamer.subscriptions.keys import EQUAL, Key

    values: defaultdict[str, list[str]] = defaultdict(list)
    spans: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    others: list[str] = []
    for key in sorted(map(Key.from_bytes, encoded), key=str):
        kind, path = key.place.kind, str(key.place.path)
        if kind == EQUAL:
            values[path].append(str(key).removeprefix(f"{path} = "))
        elif kind.startswith("range"):
            shift = int(kind.removeprefix("range"))
            number = int(str(key.value))
            spans[path].append((number << shift, ((number + 1) << shift) - 1))
        else:
            others.append(str(key))
    for path, items in values.items():
        shown = sorted(items, key=_order)
        more = f" or {len(shown) - SHOWN:,} more" if len(shown) > SHOWN else ""
        yield f"{path} = {' or '.join(shown[:SHOWN])}{more}"
    for path, several in spans.items():
        ranges = list(_joined(several))
        buckets = f" ({len(several)} bucket{'' if len(several) == 1 else 's'})"
        yield f"{path} {' or '.join(ranges)}{buckets}"
    yield from others


def _order(text: str) -> tuple[bool, float, str]:
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def _joined(spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield the ranges of numbers that adjacent buckets form."""
    from streamer.subscriptions.buckets import bounds

    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    for first, last in joined:
        low, high = bounds(first, 0)[0], bounds(last, 0)[1]
        ends = [f"from {low:.7g}"] if math.isfinite(low) else []
        yield " ".join([*ends, *([f"to {high:.7g}"] if math.isfinite(high) and high < 1e308 else [])]) or "any number"
