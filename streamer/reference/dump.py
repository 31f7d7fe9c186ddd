"""Print the content of the reference backend: it has no index, so each partition with the conditions of its subscriptions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable

from streamer.model import Limits
from streamer.subscriptions.compile import CompiledSubscription
from streamer.subscriptions.normal_form import normal_form

NO_INDEX = "the reference has no index: an event is compared with each subscription that the filter of its partition lets pass"


def dump(subscriptions: Iterable[CompiledSubscription], limits: Limits, max_subscriptions: int) -> str:
    """Return the partitions by name as text, with the conditions of at most *max_subscriptions* subscriptions."""
    partitions: defaultdict[tuple[str, str], list[CompiledSubscription]] = defaultdict(list)
    for each in subscriptions:
        partitions[each.tenant, "*" if each.collection is None else each.collection].append(each)
    if not partitions:
        return "no subscriptions\n"
    lines, remaining = [NO_INDEX], max_subscriptions
    for (tenant, collection), within in sorted(partitions.items()):
        count = f"{len(within)} subscription{'s' * (len(within) != 1)}"
        head = f"partition tenant {_quoted(tenant)}, collection {_quoted(collection)}: {count}"
        if len(within) > remaining:
            lines.append(f"{head}; not shown: more than {max_subscriptions} in all")
            continue
        remaining -= len(within)
        lines.append(head)
        for each in within:
            alternatives = sorted(map(str, normal_form(each, limits).conjunctions)) or ["nothing"]
            lines += [f"  {alternative} ─► {_quoted(each.id)}" for alternative in alternatives]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
