"""AWS's own recorded answers to patterns of EventBridge agree, but where the contract says that they differ.

The templates are localstack's (Apache-2.0), which stand beside the checkout where somebody has put them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer import Engine, PatternError
from tests.conformance.table import TESTDATA

FOLDER = TESTDATA.parent.parent / "shared" / "authorities" / "aws-event-patterns"
TEMPLATES = sorted(FOLDER.glob("*.json5"))

#: Differences that the contract has.
DIFFERENT = {
    "dot_joining_event": "semantics.md 10.10: a dot is a part of the name",
    "dot_joining_pattern": "semantics.md 10.10: a dot is a part of the name",
    "content_wildcard_complex_EXC": "AWS refuses a wildcard with many stars; limits.max_pattern_states bounds what one costs",
}


def read(path: Path) -> dict[str, object]:
    """Read a template: JSON with comments, and with commas after the last member."""
    text = re.sub(r"^\s*//.*$", "", path.read_text("utf-8"), flags=re.M)
    found: dict[str, object] = json.loads(re.sub(r",(\s*[}\]])", r"\1", text))
    return found


@pytest.mark.skipif(not TEMPLATES, reason=f"no templates in {FOLDER.parent.name}/{FOLDER.name} beside the checkout")
def test_the_answers_of_aws_agree(engine: Callable[..., Engine]) -> None:
    wrong = []
    for path in TEMPLATES:
        template, e = read(path), engine(format="document")
        if path.stem in DIFFERENT:
            continue
        try:
            e.add({"id": "s", "pattern": template["EventPattern"]})
            answer = "match" if e.matches_any(json.dumps(template["Event"])) else "NEG"
        except PatternError:
            answer = "EXC"
        expected = path.stem.rpartition("_")[2]
        if answer != (expected if expected in ("NEG", "EXC") else "match"):
            wrong.append((path.stem, answer))
    assert wrong == []
    assert len(TEMPLATES) > 100
