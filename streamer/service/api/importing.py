"""The import of many subscriptions, and its progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, final

from streamer.errors import ServiceError, SubscriptionError
from streamer.service.api.calls import LINES, Answer, Call, answer, tag_of
from streamer.service.api.explain import lines_of
from streamer.service.api.problems import Problem, members
from streamer.service.store.ids import Written
from streamer.service.tenants.declined import Declined
from streamer.service.tenants.imports import Imports, InvalidImport
from streamer.service.tenants.subscriptions import Result, Subscriptions

#: The most lines of an import.
_MOST: Final = 100_000


@final
class Importing:
    """The handlers of imports."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._imports = Imports(subscriptions)

    def import_subscriptions(self, call: Call) -> Answer:
        """See the route. The answer grows by a slice at a time; the problems of its first slice refuse the request."""
        partly, lease = call.query.get("partly", False), call.query.get("lease")
        numbers, several = lines_of(call, call.whose, _MOST)
        each = self._imports.begin(call.whose, len(several))
        slices = self._imports.run(
            each, several, lease=None if lease is None else lease * 1000, partly=partly, who=call.token.who
        )
        try:
            first = next(slices, [])
        except InvalidImport as invalid:
            raise _refusal(numbers, invalid.results) from None
        body = _lines(numbers, several, chain([first], slices))
        return Answer(body, media_type=LINES, headers={"Location": f"/v1/imports/{each.id}"})

    def list_imports(self, call: Call) -> Answer:
        """See the route."""
        return answer({"items": [each.members() for each in self._imports.of_tenant(call.whose)]})

    def get_import(self, call: Call) -> Answer:
        """See the route."""
        if (progress := self._imports.find(call.whose, call.path["id"])) is None:
            raise Problem("unknown", "no such import; this process keeps the progress of the latest ones")
        return answer(progress.members())


def _refusal(numbers: Sequence[int], results: Sequence[Result]) -> Problem:
    bad = [(number, result.error) for number, result in zip(numbers, results, strict=True) if result.error is not None]
    quota = any(isinstance(error, Declined) and error.code == "quota" for _, error in bad)
    errors = [{"line": number, **members(error)} for number, error in bad]
    reason = f"{len(bad):,} of {len(results):,} are invalid; none was changed"
    return Problem("quota" if quota else "subscription", reason, errors=errors)


def _lines(
    numbers: Sequence[int], several: Sequence[Written | SubscriptionError], slices: Iterator[list[Result]]
) -> Iterator[bytes]:
    """Yield the lines of the answer, a slice at a time. If the store fails, the remaining lines say so."""
    at = 0
    try:
        for results in slices:
            part = slice(at, at + len(results))
            yield b"".join(map(_line, numbers[part], several[part], results))
            at += len(results)
    except ServiceError:
        yield b"".join(map(_failed, numbers[at:], several[at:]))


def _line(number: int, each: Written | SubscriptionError, result: Result) -> bytes:
    if result.error is not None:
        return _as_line(number, each, {"result": "refused", "error": members(result.error)})
    assert result.stored is not None
    what = "created" if result.before is None else "unchanged" if result.before is result.stored else "replaced"
    return _as_line(number, each, {"result": what, "etag": tag_of(result.stored)})


def _failed(number: int, each: Written | SubscriptionError) -> bytes:
    return _as_line(number, each, {"result": "failed", "error": {"reason": "the store failed; send this line again"}})


def _as_line(number: int, each: Written | SubscriptionError, result: dict[str, Any]) -> bytes:
    subscription_id = each.id if isinstance(each, Written) else each.subscription_id
    named = {} if subscription_id is None else {"id": subscription_id}
    return json.dumps({"line": number, **named, **result}).encode() + b"\n"
