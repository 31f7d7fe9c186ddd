"""What an event needs to match is never called missing from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from streamer import Engine
from streamer.core.lint import FindingCode
from tests.generators import agreeing_event, agreeing_subscription, random_event, random_filter, random_subscription
from tests.parts import in_parts

#: These hold of fields that are not there, or in one document only.
LOOSE = {"exists", "changed", "changed_to", "changed_from"}


def asks_for_all_it_names(subscription: dict[str, Any]) -> bool:
    """Whether a match has every field that the subscription names."""
    text = str(subscription.get("pattern", ""))
    is_strict = "$or" not in text and "'exists': False" not in text
    return is_strict and "cel" not in subscription and not any(each["op"] in LOOSE for each in subscription.get("filters", ()))


@in_parts(4, slow=1)
def test_a_subscription_that_matches_lacks_nothing(part: int, engine: Callable[..., Engine]) -> None:
    rng = random.Random(part)
    looked = 0
    for _ in range(40):
        e = engine()
        made = [rng.choice([random_subscription, agreeing_subscription])(rng, f"s{number}") for number in range(20)]
        made += [{"id": f"f{number}", "filters": [random_filter(rng)]} for number in range(20)]
        held = {each["id"]: each for each in made if asks_for_all_it_names(each)}
        e.add_many(held.values())
        for _ in range(5):
            event = rng.choice([random_event, agreeing_event])(rng)
            matched = {match.subscription_id for match in e.match(event) if match.certain}
            looked += len(matched)
            found = (each for each in e.lint([event]) if each.code is FindingCode.NOT_IN_EVENTS)
            # Of several types an event has one.
            missing = {each.subscription_id: each for each in found if not each.reason.startswith("types")}
            for name in matched & missing.keys():
                raise AssertionError((event, held[name], missing[name]))
    assert looked > 50
