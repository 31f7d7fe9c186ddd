"""What an event needs to match is never called missing from it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from streamer import Engine
from streamer.core.lint import FindingCode
from streamer.errors import SubscriptionError
from tests.generators import agreeing_event, agreeing_subscription, random_event, random_filter, random_subscription
from tests.parts import in_parts
from tests.unit.test_impossible import condition, event

#: These hold of fields that are not there, or in one document only.
LOOSE = {"exists", "changed", "changed_to", "changed_from"}


def asks_for_all_it_names(subscription: dict[str, Any]) -> bool:
    """Whether a match has every field that the subscription names."""
    text = str(subscription.get("pattern", ""))
    is_strict = "$or" not in text and "'exists': False" not in text
    # A group has no operator of a filter.
    ops = {each.get("op", "exists") for each in subscription.get("filters", ())}
    return is_strict and "cel" not in subscription and not ops & LOOSE


@in_parts(8, slow=0)
def test_a_subscription_that_matches_lacks_nothing(part: int, engine: Callable[..., Engine]) -> None:
    rng = random.Random(part)
    looked = 0
    for _ in range(20):
        e = engine()
        made = [rng.choice([random_subscription, agreeing_subscription])(rng, f"s{number}") for number in range(20)]
        made += [{"id": f"f{number}", "filters": [random_filter(rng)]} for number in range(20)]
        held = {each["id"]: each for each in made if asks_for_all_it_names(each)}
        e.add_many(held.values())
        for _ in range(5):
            given = rng.choice([random_event, agreeing_event])(rng)
            matched = {match.subscription_id for match in e.match(given) if match.certain}
            looked += len(matched)
            found = (each for each in e.lint([given]) if each.code is FindingCode.NOT_IN_EVENTS)
            # Of several types an event has one.
            missing = {each.subscription_id: each for each in found if not each.reason.startswith("types")}
            for name in matched & missing.keys():
                raise AssertionError((given, held[name], missing[name]))
    assert looked > 15


@in_parts(8, slow=0)
def test_an_expression_that_matches_needs_no_other_kind_of_value(part: int, engine: Callable[..., Engine]) -> None:
    rng = random.Random(part)
    looked = 0
    for _ in range(5):
        e = engine()
        for number in range(20):
            with suppress(SubscriptionError):
                e.add({"id": f"s{number}", "cel": " && ".join(condition(rng) for _ in range(rng.randint(1, 2)))})
        for _ in range(8):
            events = [event(rng) for _ in range(rng.choice([1, 1, 3]))]
            matched = {match.subscription_id for each in events for match in e.match(each) if match.certain}
            looked += len(matched)
            found = [each for each in e.lint(events) if "this condition needs" in each.reason]
            assert not matched & {each.subscription_id for each in found}, (events, found)
    assert looked > 5
