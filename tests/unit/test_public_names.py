"""What users import stands where docs/engine.md says, and what a package offers is named there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import streamer

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "engine.md"
if not GUIDE.exists():
    pytest.skip("these tests read the checkout", allow_module_level=True)


def told() -> dict[str, set[str]]:
    """Return the names of the table, by where they are imported from."""
    section = GUIDE.read_text().split("## Where the names are", 1)[1].split("\n## ", 1)[0]
    names: dict[str, set[str]] = {}
    place = ""
    for first, rest in re.findall(r"^\| *(\S*) *\|(.*)\|$", section, re.M)[1:]:
        place = first.strip("`") or place
        names.setdefault(place, set()).update(re.findall(r"`(\w+)`", rest))
    return names


TOLD = told()


@pytest.mark.parametrize("place", TOLD)
def test_a_name_is_where_the_guide_says(place: str) -> None:
    if place == "streamer.spark":
        pytest.importorskip("pyspark")
    module = importlib.import_module(place)
    assert [name for name in TOLD[place] if not hasattr(module, name)] == []


@pytest.mark.parametrize("place", [place for place in TOLD if place != "streamer.core.snapshot"])
def test_what_a_package_offers_is_in_the_guide(place: str) -> None:
    """Errors of `streamer` have a table of their own."""
    offered = importlib.import_module(place).__all__
    errors = {name for name in offered if name.endswith("Error")} if place == "streamer" else set()
    assert set(offered) - errors - {"__version__"} == TOLD[place] - errors


def test_every_error_is_a_name_of_the_package() -> None:
    pending, found = [streamer.StreamerError], set()
    while pending:
        each = pending.pop()
        found.add(each.__name__)
        pending += each.__subclasses__()
    assert {name for name in found if hasattr(streamer.errors, name)} <= set(streamer.__all__)
