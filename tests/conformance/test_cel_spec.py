"""All of the CEL conformance suite that needs no protocol buffers is in the table."""

from __future__ import annotations

import tomllib
from collections import Counter
from typing import Any

from tests.conformance.table import TESTDATA, load_all, load_known_failures

SUMMARY: dict[str, Any] = tomllib.loads((TESTDATA / "cel_spec.toml").read_text("utf-8"))


def test_every_area_is_there_with_as_many_cases_as_the_converter_made() -> None:
    cases = Counter(case.file for case in load_all() if case.file.startswith("cel/spec_"))
    assert cases == {f"cel/spec_{area}.toml": counts["converted"] for area, counts in SUMMARY.items()}
    assert (cases.total(), sum(counts["left_out"] for counts in SUMMARY.values())) == (1137, 101)


def test_what_is_left_out_is_listed_with_one_of_two_reasons() -> None:
    for counts in SUMMARY.values():
        assert counts["left_out"] == sum(len(reason["cases"]) for reason in counts.get("reasons", []))
    reasons = {reason["reason"] for counts in SUMMARY.values() for reason in counts.get("reasons", [])}
    assert {reason.split()[0] for reason in reasons} == {"needs", "resolves"}


def test_few_cases_of_the_suite_are_known_to_fail() -> None:
    assert sum(failure.file.startswith("cel/spec_") for failure in load_known_failures()) == 6
