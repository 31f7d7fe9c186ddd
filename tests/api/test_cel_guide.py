"""Each example of docs/cel.md is true of the page's event, and the page leaves out no function and no macro."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer import Engine
from streamer.cel_eval.parse import MACROS, MACROS_OF_TWO
from streamer.cel_eval.types import FUNCTIONS, METHODS
from streamer.cel_eval.values import TYPE_NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "cel.md").read_text("utf-8")
EVENT = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
#: The last column of each table, and the sentence about time zones.
EXAMPLES = [
    *(found[1] for found in re.finditer(r"\| `{1,2}([^|]*?(?:\\\|[^|]*?)*)`{1,2} \|$", PAGE, re.MULTILINE)),
    *(found[1] for found in re.finditer(r"offset: `(.*?)`", PAGE)),
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_true(engine: Callable[..., Engine], example: str) -> None:
    assert EVENT is not None
    filled = engine()
    filled.add({"id": "s", "cel": example})
    assert filled.match_ids(json.loads(EVENT[1])) == ["s"], filled.cel_errors


def test_the_page_shows_everything() -> None:
    rows = re.findall(r"^\| (?!(?:name|operators|macro|function|library|syntax) \|)", PAGE, re.MULTILINE)
    assert len(EXAMPLES) == len(rows) + 1
    used = "\n".join(EXAMPLES)
    names = {*FUNCTIONS, *METHODS, *MACROS, *MACROS_OF_TWO} - {"existsOne"}
    assert {name for name in names if f"{name}(" not in used} == set()
    assert {name for name in TYPE_NAMES if f"`{name}`" not in PAGE} == set()
