"""What `lint` calls probably meant can be typed: it is accepted in the place that the finding names."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any, get_args

import pytest

from streamer.cel_eval import ProgramCache
from streamer.errors import SubscriptionError
from streamer.events.layout import EventLayout
from streamer.model import TopicDialect
from streamer.subscriptions.compile import compile_subscription
from streamer.subscriptions.mistakes import probable_mistakes
from tests.conformance.table import load_all
from tests.parts import in_parts

PROGRAMS = ProgramCache(1_000)
PIECES = [
    "data",
    "before",
    "envelope",
    "after",
    "items",
    "a",
    ".",
    ".",
    "[",
    "]",
    "[0]",
    "[*]",
    "[]",
    "0",
    "1",
    "*",
    "**",
    "#",
    "+",
    ">",
    "/",
    "$.",
]
ODD = ["'", '"', "\\", "~", "`", " ", "é", "\n"]
CONDITIONS: list[dict[str, Any]] = [
    {"op": "==", "value": 1},
    {"op": "!=", "value": "data.f"},
    {"op": "in", "value": ["x"]},
    {"op": "not in", "value": [1]},
    {"op": "contains", "value": "x" * 300},
    {"op": "matches", "value": "a+'\\."},
    {"op": "exists", "value": True},
    {"op": "exists", "value": False},
    {"op": "changed"},
    {"op": "changed_to", "value": 2},
    {"op": "==", "value": "x", "root": "envelope"},
    {"op": "exists", "value": True, "root": "envelope"},
]


def accepted(**parts: Any) -> None:
    compile_subscription({"id": "meant", **parts}, programs=PROGRAMS)


def type_it(reason: str, condition: dict[str, Any], members: dict[str, Any]) -> str:
    """Accept what a finding says, and return what kind of part it is."""
    place = reason.split(":")[0]
    typed = reason.split("probably meant: ", 1)[1]
    if '"cel": ' in typed:
        expression = json.JSONDecoder().raw_decode(typed.split('"cel": ', 1)[1])[0]
        if " ..." in expression:
            return "short"
        accepted(cel=expression)
        return "cel"
    if (another := re.search(r'"topic_dialect": "(\w+)"$', typed)) is not None:
        accepted(topic=members["topic"], topic_dialect=another[1])
        if typed == another[0]:
            return "dialect"
    meant = json.JSONDecoder().raw_decode(typed)[0]
    if place.startswith("filters"):
        root = re.search(r' with ("root": "\w+")', typed)
        accepted(filters=[{"field": meant, **condition, **json.loads(f"{{{root[1] if root else ''}}}")}])
    else:
        accepted(**{place: meant}, topic_dialect=members["topic_dialect"])
    return place


@in_parts(4, slow=0)
def test_what_is_probably_meant_is_accepted(part: int) -> None:
    rng = random.Random(part)
    layouts = [EventLayout.preset(name) for name in ("change", "debezium", "maxwell")]
    found: Counter[str] = Counter()
    for _ in range(3_000):
        text = "".join(rng.choice(PIECES if rng.random() < 0.9 else ODD) for _ in range(rng.randint(1, 8)))
        condition = rng.choice(CONDITIONS)
        members = {"id": "s", "filters": [{"field": text, **condition}], "topic": text, "collection": text}
        members["topic_dialect"] = rng.choice(get_args(TopicDialect))
        try:
            compile_subscription(members, programs=PROGRAMS)
        except SubscriptionError:
            continue
        for reason in probable_mistakes(members, rng.choice(layouts)):
            found[type_it(reason, condition, members)] += 1
    assert min(found[kind] for kind in ("cel", "short", "filters[0].field", "topic")) > 20, found


@pytest.mark.slow
def test_what_is_meant_by_the_patterns_of_the_table_is_accepted() -> None:
    found = 0
    for text in {text for case in load_all() for text in case.subscriptions}:
        try:
            compile_subscription(text, programs=PROGRAMS)
            members = json.loads(text)
        except (ValueError, SubscriptionError):
            continue
        dialect = members.get("dialect", "eventbridge")
        for reason in probable_mistakes({"pattern": members.get("pattern"), "dialect": dialect}, EventLayout()):
            if "{...}" not in reason:
                meant = reason.split("probably meant: ")[1]
                compile_subscription(f'{{"id": "meant", "dialect": "{dialect}", "pattern": {meant}}}', programs=PROGRAMS)
                found += 1
    assert found > 100
