"""Checks subscriptions before they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from streamer.bloom.options import BloomOptions
from streamer.core.options import Options
from streamer.engine.engine import Engine
from streamer.errors import DuplicateSubscriptionError, SubscriptionError
from streamer.service.store.ids import Written, outside


def examined(options: Options, several: Sequence[Written | SubscriptionError]) -> list[SubscriptionError | bool]:
    """Return for each the error, or whether it is unindexed. It uses separate engines, so that other calls do not wait."""
    told: list[SubscriptionError | bool] = [False] * len(several)
    seen: set[str] = set()
    asked: list[int] = []
    for number, each in enumerate(several):
        if isinstance(each, SubscriptionError):
            told[number] = each
        elif each.id in seen:
            told[number] = DuplicateSubscriptionError("this id stands here twice", place="id", subscription_id=each.id)
        else:
            seen.add(each.id)
            asked.append(number)
    options = replace(options, bloom=BloomOptions(enabled=False))
    may_be_unindexed = options.limits.allow_unindexed
    strict = replace(options, limits=replace(options.limits, allow_unindexed=False))
    for number, error in _refused(strict, several, asked):
        told[number] = error
    if may_be_unindexed:
        again = [number for number in asked if told[number] is not False]
        for number in again:
            told[number] = True
        for number, error in _refused(options, several, again):
            told[number] = error
    return told


def _refused(
    options: Options, several: Sequence[Written | SubscriptionError], asked: Sequence[int]
) -> Iterator[tuple[int, SubscriptionError]]:
    if not asked:
        return
    given = [each.held for number in asked if isinstance(each := several[number], Written)]
    for error in Engine._of(options).add_many(given, on_error="skip").errors:
        assert error.index is not None
        number, error.index = asked[error.index], None
        if error.subscription_id is not None:
            error.subscription_id = outside(error.subscription_id)[1]
        yield number, error
