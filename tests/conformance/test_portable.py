"""Every case of the table that has CEL holds on cel-python too, save those that are listed."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tests.conformance import runner
from tests.conformance.table import KNOWN_FAILURES_PORTABLE, Case, load_all, load_known_failures
from tests.parts import in_parts

PORTABLE = {(failure.file, failure.name): failure.reason for failure in load_known_failures(KNOWN_FAILURES_PORTABLE)}
EVERYWHERE = {(failure.file, failure.name) for failure in load_known_failures()}


def has_cel(case: Case) -> bool:
    return any('"cel"' in text for text in case.subscriptions)


@pytest.mark.slow
@pytest.mark.later_on_the_reference
@in_parts(2, slow=0)
def test_what_has_cel_in_a_file_is_as_it_claims(
    cases: list[Case], backend: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each case under one validation, some under this and some under that: no evaluator looks at it, and cel-python is slow.
    monkeypatch.setattr(runner, "_validations", lambda case: (case.validation[len(case.name) % len(case.validation)],))
    # A case says what an expression comes to, not how fast a machine is.
    monkeypatch.setattr("streamer.cel_eval.portable.clock", lambda: 0)
    with_cel = {case.name: case for case in [case for case in cases if has_cel(case)][part::2]}
    known = {name for name, case in with_cel.items() if (case.file, name) in PORTABLE.keys() | EVERYWHERE}
    checks = (partial(check, evaluator="portable") for check in (runner.check, runner.check_verdict))
    wrong = runner.failures(with_cel.values(), *checks)
    assert {name: text for name, text in wrong.items() if name not in known} == {}
    assert known - wrong.keys() == set(), "listed as failing, and holds"


def test_known_failures_are_few_and_each_is_a_case_and_has_a_reason() -> None:
    names = Counter((case.file, case.name) for case in load_all() if has_cel(case))
    assert [failure for failure in PORTABLE if failure not in names] == []
    assert all(len(reason) > 20 for reason in PORTABLE.values())
    assert len(PORTABLE) <= 15
    assert PORTABLE.keys().isdisjoint(EVERYWHERE)
