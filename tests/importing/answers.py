"""The answers of an engine to rules that were imported."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from streamer import BulkSubscriptionError, Engine
from streamer.importing import Imported, import_rules


@cache
def imported(kind: str, text: str) -> Imported:
    """Translate rules, once for both backends: it takes longer than to match them."""
    return import_rules(kind, text)


def answers(engine: Callable[..., Engine], kind: str, rules: Sequence[Any], documents: Sequence[Any]) -> list[list[bool]]:
    """Return for each rule whether it matches each document.

    Raises:
        BulkSubscriptionError: a rule has no exact translation.
    """
    subscriptions = imported(kind, "\n".join(rule if isinstance(rule, str) else json.dumps(rule) for rule in rules)).subscriptions
    assert len(subscriptions) == len(rules)
    e = engine()
    e.add_many(each.to_dict() for each in subscriptions)
    found = [set(e.match_ids(json.dumps({"data": document}))) for document in documents]
    return [[each.id in ids for ids in found] for each in subscriptions]


def matched(engine: Callable[..., Engine], kind: str, rule: Any, document: Any) -> bool:
    """Return whether one rule matches one document."""
    return answers(engine, kind, [rule], [document])[0][0]


def refusal(kind: str, rule: Any) -> str:
    """Return the message with which a rule is refused."""
    with pytest.raises(BulkSubscriptionError) as caught:
        import_rules(kind, rule if isinstance(rule, str) else json.dumps(rule))
    (error,) = caught.value.errors
    return str(error)


def translation(kind: str, rule: Any) -> dict[str, Any]:
    """Return the condition of the subscription that a rule becomes."""
    (subscription,) = import_rules(kind, rule if isinstance(rule, str) else json.dumps(rule)).subscriptions
    return {name: member for name, member in subscription.to_dict().items() if name in ("filters", "cel", "pattern")}
