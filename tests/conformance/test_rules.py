"""The rules of the contract have numbers, and what cites a rule cites one that stands there."""

from __future__ import annotations

import re

from tests.conformance.table import TESTDATA

ROOT = TESTDATA.parent
CONTRACT = (ROOT / "docs" / "semantics.md").read_text("utf-8")
ANCHORS = re.findall(r'<a id="([^"]+)"></a>\*\*([^*]+)\*\*', CONTRACT)
RULES = {anchor for anchor, _ in ANCHORS}
SECTIONS = set(re.findall(r"^## (\d+)\.", CONTRACT, re.M))


def test_each_rule_has_one_number_in_its_section() -> None:
    assert len(RULES) == len(ANCHORS) > 200
    assert all(anchor == shown for anchor, shown in ANCHORS)
    for section in re.split(r"^## ", CONTRACT, flags=re.M)[1:]:
        number = section.partition(".")[0]
        rules = re.findall(r'<a id="(\d+)\.(\d+)"></a>', section)
        assert {chapter for chapter, _ in rules} <= {number}
        assert {int(rule) for _, rule in rules} == set(range(1, len(rules) + 1)), f"section {number} leaves out a number"


def test_what_a_case_cites_stands_in_the_contract() -> None:
    cited = {
        (number, path.name)
        for path in TESTDATA.rglob("*.toml")
        for number in re.findall(r'^semantics = "(.*)"$', path.read_text("utf-8"), re.M)
    }
    assert {(number, name) for number, name in cited if number not in RULES | SECTIONS} == set()
    assert len({number for number, _ in cited} & RULES) > 40


def test_rules_that_are_cited_in_code_stand_in_the_contract() -> None:
    folders = ("streamer", "crates/streamer-core/src", "crates/streamer-py/src", "tests", "docs")
    for path in (
        path for folder in folders for kind in ("py", "rs", "md") for path in sorted((ROOT / folder).rglob(f"*.{kind}"))
    ):
        for number in re.findall(r"semantics(?:\.md)?[ #](\d+\.\d+)", path.read_text("utf-8")):
            assert number in RULES, f"{path.relative_to(ROOT)} cites {number}"


def test_the_contract_is_narrow() -> None:
    assert [line for line in CONTRACT.splitlines() if len(line) > 120] == []
