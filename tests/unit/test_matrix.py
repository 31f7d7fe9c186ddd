"""The matrix of operators is complete and up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamer.subscriptions.operators import OPERATORS
from testdata import generate_matrix

SCRIPT = Path(generate_matrix.__file__)


def test_the_files_that_are_checked_in_are_up_to_date_and_have_no_empty_cell() -> None:
    """What a person runs says the same."""
    assert generate_matrix.problems() == []
    assert subprocess.run([sys.executable, str(SCRIPT), "--check"], check=False).returncode == 0


def test_every_filter_operator_has_a_row() -> None:
    """An operator that is added needs a row."""
    rows = {row.name.removesuffix(" true").removesuffix(" false") for row in generate_matrix.FILTERS}
    assert rows == set(OPERATORS)


@pytest.mark.parametrize("part", list(generate_matrix.ROWS))
def test_a_cell_that_loses_its_case_is_reported(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check fails both on the cell and on the file."""
    text = generate_matrix.text_of(part)
    lost = generate_matrix.ROWS[part][0]
    first, _, rest = text.partition("[[case]]")
    _, _, without_first = rest.partition("[[case]]")
    monkeypatch.setattr(generate_matrix, "HERE", tmp_path)
    (tmp_path / f"matrix_{part}.toml").write_text(f"{first}[[case]]{without_first}", encoding="utf-8")
    assert generate_matrix.empty_cells(part) == [f"{lost.name} on a missing field: no match"]
    assert any("out of date" in problem for problem in generate_matrix.problems())
