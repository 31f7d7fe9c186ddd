"""Every case of the table that has CEL holds on cel-python too, save those that are listed."""

from __future__ import annotations

from collections import Counter

import pytest

from streamer.errors import StreamerError
from tests.conformance import runner
from tests.conformance.table import KNOWN_FAILURES_PORTABLE, Case, load_all, load_known_failures

CASES = [case for case in load_all() if any('"cel"' in text for text in case.subscriptions)]
PORTABLE = {(failure.file, failure.name): failure.reason for failure in load_known_failures(KNOWN_FAILURES_PORTABLE)}
EVERYWHERE = {(failure.file, failure.name) for failure in load_known_failures()}


def by_file() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in CASES:
        found.setdefault(case.file, []).append(case)
    return found


@pytest.mark.parametrize("file", sorted(by_file()))
def test_the_cases_of_a_file_are_as_they_claim(file: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A case says what an expression comes to, not how fast a machine is.
    monkeypatch.setattr("streamer.cel_eval.portable.clock", lambda: 0)
    wrong = {}
    for case in by_file()[file]:
        try:
            runner.check(case, "portable")
        except (AssertionError, pytest.fail.Exception, StreamerError) as error:
            wrong[case.name] = str(error)
    expected = {name for place, name in PORTABLE.keys() | EVERYWHERE if place == file}
    assert {name: text for name, text in wrong.items() if name not in expected} == {}
    assert expected - wrong.keys() - {case.name for case in load_all() if '"cel"' not in "".join(case.subscriptions)} == set()


def test_known_failures_are_few_and_each_is_a_case_and_has_a_reason() -> None:
    names = Counter((case.file, case.name) for case in CASES)
    assert [failure for failure in PORTABLE if failure not in names] == []
    assert all(len(reason) > 20 for reason in PORTABLE.values())
    assert len(PORTABLE) <= 15
    assert PORTABLE.keys().isdisjoint(EVERYWHERE)
