"""Checks subscriptions before they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

from streamer.bloom.options import BloomOptions
from streamer.core.options import Options
from streamer.engine.engine import Engine
from streamer.errors import DuplicateSubscriptionError, SubscriptionError
from streamer.service.store.ids import Written, outside


@final
class Examination:
    """Checks the subscriptions of one request, in pieces. It uses separate engines, so that other calls do not wait."""

    def __init__(self, options: Options) -> None:
        self._options = replace(options, bloom=BloomOptions(enabled=False))
        self._ids: set[str] = set()

    def examine(self, several: Sequence[Written | SubscriptionError]) -> list[SubscriptionError | bool]:
        """Return for each the error, or whether it is unindexed. An id of an earlier piece is an error, too."""
        results: list[SubscriptionError | bool] = [False] * len(several)
        readable: list[int] = []
        for number, each in enumerate(several):
            if isinstance(each, SubscriptionError):
                results[number] = each
            elif each.id in self._ids:
                results[number] = DuplicateSubscriptionError("this id stands here twice", place="id", subscription_id=each.id)
            else:
                self._ids.add(each.id)
                readable.append(number)
        limits = self._options.limits
        for number, error in _refused(replace(self._options, limits=replace(limits, allow_unindexed=False)), several, readable):
            results[number] = error
        if limits.allow_unindexed:
            again = [number for number in readable if results[number] is not False]
            for number in again:
                results[number] = True
            for number, error in _refused(self._options, several, again):
                results[number] = error
        return results


def _refused(
    options: Options, several: Sequence[Written | SubscriptionError], numbers: Sequence[int]
) -> Iterator[tuple[int, SubscriptionError]]:
    if not numbers:
        return
    texts = [each.source for number in numbers if isinstance(each := several[number], Written)]
    for error in Engine._of(options).add_many(texts, on_error="skip").errors:
        assert error.index is not None
        number, error.index = numbers[error.index], None
        if error.subscription_id is not None:
            error.subscription_id = outside(error.subscription_id)[1]
        yield number, error
