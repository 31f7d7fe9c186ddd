"""Find probable mistakes, and values that never occur in events: `Engine.lint` adds these to the findings of its core."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamer.core.lint import Finding, FindingCode
from streamer.core.protocol import Selection, StoredForm
from streamer.subscriptions.mistakes import probable_mistakes
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from streamer.engine.engine import Engine


def mistakes(engine: Engine) -> list[Finding]:
    """Return the probable mistakes in subscriptions, in order of adding."""
    options = engine._options
    return [
        Finding(FindingCode.PROBABLE_MISTAKE, members["id"], reason)
        for _, members in each_stored(engine)
        for reason in probable_mistakes(members, options.layout, options.topic_dialect)
    ]


def each_stored(engine: Engine) -> Iterator[tuple[StoredForm, Mapping[str, Any]]]:
    """Yield each subscription in its stored form, and its members as JSON, in order of adding."""
    return ((stored, _members(stored)) for stored in engine._core.stored_forms(Selection()))


def in_order(engine: Engine, *groups: Iterable[Finding]) -> list[Finding]:
    """Return findings of several kinds, those of one subscription together, in order of adding."""
    findings = [each for some in groups for each in some]
    concerned = {each.subscription_id for each in findings}
    place = {name: number for number, name in enumerate(engine) if name in concerned}
    # Subscriptions that another thread has removed come last.
    return sorted(findings, key=lambda each: place.get(each.subscription_id, math.inf))


def _members(stored: StoredForm) -> Mapping[str, Any]:
    if isinstance(stored, Subscription):
        return stored.to_dict()
    try:
        members: Mapping[str, Any] = json.loads(stored)
    except (RecursionError, ValueError):
        # It is nested deeper, or has a longer number, than Python's own parser accepts.
        return parse_subscription(stored).to_dict()
    return members
