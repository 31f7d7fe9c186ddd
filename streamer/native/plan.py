"""Convert the native core's plan for a subscription, how it finds and decides it, to a `Plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamer.core.estimate import alone
from streamer.core.plan import Plan, keys_in_words

if TYPE_CHECKING:
    from streamer._native import _Plan


def as_plan(subscription_id: str, description: _Plan, external: str | None = None, groups: Sequence[str] = ()) -> Plan:
    """Return the core's description of a subscription as a plan.

    Args:
        external: the expression that cel-python evaluates.
        groups: its groups of filters as text, if clauses do not express all of them.
    """
    cel = external if description["is_portable"] else description["cel"]
    parts = [
        *(("filters", text) for text in groups if description["open_groups"]),
        ("cel", cel),
        ("pattern", description["pattern"]),
    ]
    residual = tuple(f"{part}: {text}" for part, text in parts if text is not None)
    form = {(*sorted({*alternative}), *residual) for alternative in description["alternatives"]}
    keys, texts = keys_in_words(description["keys"])
    # The index uses a collection or tenant that CEL requires. The Bloom filter does not: its keys are for one tenant and
    # collection.
    keys_of_access = None if description["access"] is None else tuple(sorted({*description["access"]}))
    then = "" if cel is None else ", then cel-python on candidates" if description["is_portable"] else ", then its CEL natively"
    return Plan(
        subscription_id=subscription_id,
        tenant=description["tenant"],
        collection=description["collection"],
        normal_form=tuple(sorted(form)),
        access_keys=texts or keys_of_access,
        bloom_keys=keys,
        cel=cel,
        residual=residual,
        cost=description["cost"],
        effort=alone(description["found_by"]),
        decided_by=f"the native index{then}",
        evaluator=None if cel is None else "portable" if description["is_portable"] else "native",
    )
