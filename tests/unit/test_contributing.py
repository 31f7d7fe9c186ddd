"""The guide for contributors names files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "contributing" / "adding.md"
if not GUIDE.exists():
    pytest.skip("these tests read the checkout", allow_module_level=True)

TEXT = GUIDE.read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def named(text: str) -> set[str]:
    """Return the paths that a text names: in backquotes, with a folder."""
    return set(re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.\w+)`", text))


@pytest.mark.parametrize("path", sorted(named(TEXT)))
def test_a_file_that_the_guide_names_is_there(path: str) -> None:
    """One that moves takes its line in the guide with it."""
    assert (ROOT / path).is_file()


def test_every_kind_of_change_names_files() -> None:
    assert {title: len(named(text)) > 2 for title, text in SECTIONS.items()} == dict.fromkeys(SECTIONS, True)
    assert len(SECTIONS) == 11


def test_an_operator_touches_at_most_six_files_of_code() -> None:
    """The table before 'Those are five files of code': all of it but the contract."""
    table = SECTIONS["A filter operator"].partition("Those are")[0]
    assert 3 <= len([path for path in named(table) if not path.startswith("docs/")]) <= 6
