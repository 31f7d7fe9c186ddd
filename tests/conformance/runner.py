"""Check one case of the table against an engine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal
from zlib import crc32

import pytest

from streamer import Engine, Matches, StreamerError, _backend
from streamer.cdc.changes import read_events
from streamer.cel_eval import ProgramCache, evaluate_cel
from streamer.errors import EventCode, EventError, Ignored, SubscriptionError
from streamer.model import INT64_MIN, UINT64_MAX, CelEvaluator
from streamer.reference.conditions import evaluate
from streamer.subscriptions.compile import compile_subscription
from streamer.subscriptions.parse import parse_subscription
from tests.conformance.table import Case

Validation = Literal["full", "lazy"]


def failures(cases: Iterable[Case], *checks: Callable[[Case], None]) -> dict[str, str]:
    """Run *checks* on *cases*; return what is wrong with those that are not as they claim, by name."""
    wrong = {}
    for case in cases:
        try:
            for each in checks:
                each(case)
        except (AssertionError, pytest.fail.Exception, StreamerError) as error:
            wrong[case.name] = f"{type(error).__name__}: {error}"
    return wrong


def check(case: Case, evaluator: CelEvaluator = "native") -> None:
    """Raise AssertionError where the case is not as it claims."""
    for validation in _validations(case):
        if case.subscription_error is not None:
            _check_subscription_error(case, validation, evaluator)
        elif case.event_error is not None:
            _check_event_error(case, validation, evaluator)
        else:
            _check_matches(case, validation, evaluator)


def check_verdict(case: Case, evaluator: CelEvaluator = "native") -> None:
    """Raise AssertionError unless the reference gives the verdict and the reason of the case, which no engine reports."""
    if case.verdict is None and case.reason is None:
        return
    event, *_ = read_events(
        case.event or b"",
        layout=case.layout,
        default_tenant=case.default_tenant,
        limits=case.limits,
        tenant=case.tenant,
        collection=case.collection,
    )
    compiled = compile_subscription(
        parse_subscription(case.subscriptions[0]),
        default_tenant=case.default_tenant,
        topic_dialect=case.topic_dialect,
        limits=case.limits,
        programs=ProgramCache(evaluator=evaluator),
    )
    if case.verdict is not None:
        assert evaluate(compiled, event, budget=case.limits.cel_budget).value == case.verdict
    if case.reason is not None:
        assert compiled.cel is not None, "a reason is of the cel part"
        assert evaluate_cel(compiled.cel, event, case.limits.cel_budget).reason == case.reason


def _validations(case: Case) -> tuple[Validation, ...]:
    """Return each validation that a case is for. One is enough on the reference, which checks every event in full under both."""
    return case.validation[:1] if _backend.BACKEND == "reference" else case.validation


def _engine(case: Case, validation: Validation, evaluator: CelEvaluator) -> Engine:
    return Engine(
        layout=case.layout,
        default_tenant=case.default_tenant,
        topic_dialect=case.topic_dialect,
        validation=validation,
        limits=case.limits,
        soft_delete=case.soft_delete,
        cel_evaluator=evaluator,
    )


def filled(case: Case, validation: Validation, evaluator: CelEvaluator = "native") -> Engine:
    """Return an engine with the subscriptions of a case."""
    engine = _engine(case, validation, evaluator)
    for subscription in case.subscriptions:
        engine.add(subscription)
    return engine


def _check_subscription_error(case: Case, validation: Validation, evaluator: CelEvaluator) -> None:
    engine = _engine(case, validation, evaluator)
    *good, bad = case.subscriptions
    for subscription in good:
        engine.add(subscription)
    error = _raised(SubscriptionError, lambda: engine.add(bad))
    expected = dict(case.subscription_error or {})
    assert len(engine) == len(good), "a bad subscription was added"
    if (type_ := expected.pop("type", None)) is not None:
        assert type(error).__name__ == type_, repr(error)
    if (text := expected.pop("contains", None)) is not None:
        assert text in str(error), str(error)
    seen = {member: getattr(error, member) for member in expected}
    assert seen == expected, str(error)


def _check_event_error(case: Case, validation: Validation, evaluator: CelEvaluator) -> None:
    engine = filled(case, validation, evaluator)
    expected = dict(case.event_error or {})
    for event in _spellings(case, validation):
        error = _raised(EventError, lambda event=event: list(engine.match(event, case.tenant, case.collection)))
        # A `dict` has no bytes to count.
        seen = {member: getattr(error, member) for member in expected if member != "offset" or not isinstance(event, dict)}
        assert {**expected, **seen} == expected, str(error)
        (in_its_place,) = engine.match_batch([event], case.tenant, case.collection)
        assert isinstance(in_its_place, EventError)
        assert (in_its_place.code, in_its_place.offset, in_its_place.index) == (error.code, error.offset, 0)


def _check_matches(case: Case, validation: Validation, evaluator: CelEvaluator) -> None:
    engine = filled(case, validation, evaluator)
    expected = case.expect_ids or frozenset()
    for event in _spellings(case, validation):
        matches = engine.match(event, case.tenant, case.collection)
        assert matches.ignored == case.ignored
        ids = [match.subscription_id for match in matches]
        assert sorted(ids) == sorted(expected), f"event as {type(event).__name__}, validation {validation}"
        for match in matches:
            assert match.certain == case.certain, "certain"
            if case.transition is not None:
                assert (match.transition or "none") == case.transition
        for method in _methods(case, event):
            method(engine, case, event)


def _methods(case: Case, event: Any) -> Sequence[Callable[[Engine, Case, Any], None]]:
    """Return the checks that follow the one of `match`. Each calls a method with less of its result.

    Bytes on the native engine get all of them, and other spellings one, another one for other cases. On the reference the methods
    are `match` and a line more: bytes get one.
    """
    if isinstance(event, bytes) and _backend.BACKEND != "reference":
        return METHODS
    return () if _backend.BACKEND == "reference" and not isinstance(event, bytes) else (METHODS[crc32(case.id.encode()) % 4],)


def _check_ids(engine: Engine, case: Case, event: Any) -> None:
    assert sorted(engine.match_ids(event, case.tenant, case.collection)) == sorted(case.expect_ids or ())


def _check_count(engine: Engine, case: Case, event: Any) -> None:
    assert engine.match_count(event, case.tenant, case.collection) == len(case.expect_ids or ())


def _check_any(engine: Engine, case: Case, event: Any) -> None:
    assert engine.matches_any(event, case.tenant, case.collection) == bool(case.expect_ids)


def _check_batch(engine: Engine, case: Case, event: Any) -> None:
    (in_its_place,) = engine.match_batch([event], case.tenant, case.collection)
    assert isinstance(in_its_place, Matches)
    assert in_its_place.ignored == case.ignored


METHODS = (_check_ids, _check_count, _check_any, _check_batch)


def _spellings(case: Case, validation: Validation) -> Iterator[bytes | str | dict[str, Any] | None]:
    """The event as bytes, and under full validation as str, dict and None, too, where these can say the same."""
    event = case.event or b""
    yield event
    if validation == "lazy":
        return
    try:
        text = event.decode()
    except UnicodeDecodeError:
        return
    yield text
    if case.ignored == Ignored.NULL:
        yield None
    if case.event_error is not None and case.event_error["code"] == EventCode.TOO_LONG:
        # The length of a dict is that of its compact text.
        return
    try:
        yield _as_dict(text)
    except (ValueError, RecursionError):
        return


def _as_dict(text: str) -> dict[str, Any]:
    """Read a text by Python's json. Raises ValueError where a dict does not mean just what the text does."""
    event = json.loads(text, object_pairs_hook=_without_duplicates, parse_int=_int64, parse_float=_finite, parse_constant=_finite)
    # A lone surrogate has no UTF-8.
    json.dumps(event, ensure_ascii=False).encode()
    if not isinstance(event, dict):
        raise ValueError("not an object")
    return event


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a dict cannot hold a name twice")
    return members


def _int64(literal: str) -> int:
    value = int(literal)
    if not INT64_MIN <= value <= UINT64_MAX:
        raise ValueError("an integer that is a float in a text and an error in a dict")
    return value


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError("beyond float64")
    return value


def _raised(kind: type[StreamerError], action: Any) -> Any:
    with pytest.raises(kind) as raised:
        action()
    return raised.value
