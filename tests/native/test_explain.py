"""`explain` is told by the reference, and says of every match what the native core says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from streamer import Engine
from streamer.errors import EventCode, EventError
from tests.generators import agreeing_event, agreeing_subscription
from tests.parts import in_seeds

pytestmark = pytest.mark.usefixtures("backend")


def told_or_code(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except EventError as error:
        return error.code


@in_seeds(6, 40)
def test_an_explanation_says_what_the_core_did(seed: int) -> None:
    rng = random.Random(seed)
    engine, counted = Engine(), Counter[str]()
    engine.add_many([agreeing_subscription(rng, f"s{n}") for n in range(25)], on_error="skip")
    for _ in range(12):
        event = agreeing_event(rng)
        matches = told_or_code(lambda event=event: engine.match(event))
        if isinstance(matches, EventCode):
            assert told_or_code(lambda event=event: engine.explain(event, next(iter(engine)))) == matches
            continue
        found = {match.subscription_id: (match.transition, match.certain) for match in matches}
        for each in engine:
            told = engine.explain(event, each)
            assert told.matched == (each in found), (each, event)
            if told.matched:
                assert (told.transition, told.certain) == found[each], (each, event)
            counted[str(told.matched)] += 1
    assert counted["True"] > 5
    assert counted["False"] > 20
