"""Every case of the table holds on every backend, save the few that are known not to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from streamer.errors import EventCode
from tests.conformance import runner
from tests.conformance.table import MATCH, TESTDATA, BadCaseError, Case, load, load_all, load_known_failures

CASES = load_all()
FAILURES = {(failure.file, failure.name): failure.reason for failure in load_known_failures()}


def test_the_cases_of_a_file_are_as_they_claim(cases: list[Case], backend: str) -> None:
    known = {case.name for case in cases if (case.file, case.name) in FAILURES}
    wrong = runner.failures(cases, runner.check)
    told = [f"{name}: {text}" for name, text in wrong.items() if name not in known]
    told += [f"{name}: it is listed in known_failures.toml, and holds: take it off the list" for name in known - wrong.keys()]
    if told:
        pytest.fail("\n\n".join([f"{len(told)} of {len(cases)} cases fail; `--case NAME` runs one", *told]), pytrace=False)


def test_the_verdicts_and_reasons_of_a_file_are_as_they_claim(cases: list[Case]) -> None:
    """Once, because the reference alone gives them, whatever backend matches."""
    assert runner.failures([case for case in cases if (case.file, case.name) not in FAILURES], runner.check_verdict) == {}


def test_known_failures_are_few_and_each_is_a_case_and_has_a_reason() -> None:
    names = Counter((case.file, case.name) for case in CASES)
    assert [failure for failure in FAILURES if failure not in names] == []
    assert all(len(reason) > 20 for reason in FAILURES.values())
    assert len(FAILURES) == len(load_known_failures()) <= 15


def test_every_file_has_cases() -> None:
    files = {path.relative_to(MATCH).as_posix() for path in MATCH.rglob("*") if path.is_file()}
    assert files == {case.file for case in CASES}


def test_every_code_of_an_event_error_has_a_case_and_is_documented() -> None:
    codes = {code.value for code in EventCode}
    assert {case.event_error["code"] for case in CASES if case.event_error is not None} == codes
    documented = (TESTDATA / "README.md").read_text().partition("## Errors of events")[2]
    assert {code for code in codes if f"`{code}`" in documented} == codes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[[other]]",
        "x = 1\n[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nexpect = 'match'",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nexpect = 'matches'",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nexpect = 'match'\nexpected = 'match'",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nexpect = 'match'\nevent_error = { code = 'too_deep' }",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nexpect = 'match'",
        "[[case]]\nname = 'n'\nevent = '{}'\nexpect = 'match'",
        "[[case]]\nsubscription = '{}'\nevent = '{}'\nexpect = 'match'",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nevent_error = { code = 'odd' }",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nevent_error = { code = 'too_deep', at = 1 }",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nexpect = 'match'\nengine = { depth = 1 }",
        "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nexpect = 'no match'\ncertain = false",
        2 * "[[case]]\nname = 'n'\nsubscription = '{}'\nevent = '{}'\nexpect = 'match'\n",
    ],
)
def test_a_file_that_breaks_the_format_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(BadCaseError):
        load(path, "bad.toml")
