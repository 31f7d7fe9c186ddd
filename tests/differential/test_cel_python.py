"""Our grammar accepts what cel-python's accepts, save for what is listed: it began as an extension of that grammar."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from celpy.celparser import CELParseError, CELParser

from streamer.cel_eval.parse import RESERVED, parse
from streamer.errors import CelError
from streamer.model import Limits
from tests.differential.cel_expressions import Expressions

TABLE = Path(__file__).parents[2] / "testdata" / "match"

#: Accepted here only: what cel-spec's grammar gained since, or has and cel-python lacks.
OURS_ONLY = {
    "quoted field names": r"\.\??`[^`]+`",
    "trailing commas": r",\s*[\])}]",
    "a leading dot before a call or name": r"(^|[^\w\])])\.[a-zA-Z_]",
}
#: Accepted by cel-python only, and refused here as cel-spec or our limits say.
THEIRS_ONLY = {
    "reserved words": rf"\b({'|'.join(RESERVED)}|in)\b",
    "both unary operators on one operand": r"![\s]*-|-\s*!",
    "escapes that are none, or no character": r"\\u[dD][89a-fA-F]|\\U|\\[0-7x]|\\[^abfnrtvuUxX0-7?\\'\"`]",
    "more levels than the limit": r"(?:[(\[{!-][^(\[{!-]*){33}",
    "integers beyond 64 bits": r"\d{19}",
    "macros of a wrong shape": r"\b(has|all|exists|exists_one|existsOne|map|filter|transformList|transformMap)\(",
    "messages, which take protobuf": r"\w\s*\{",
}


def expressions() -> set[str]:
    """All expressions of the table of cases, and 1,000 random ones."""
    found = {Expressions(seed).program() for seed in range(1000)}
    for path in sorted(TABLE.rglob("*.toml")):
        cases: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["case"]
        for case in cases:
            for text in [case.get("subscription", "{}"), *case.get("subscriptions", [])]:
                try:
                    expression = json.loads(text).get("cel")
                except (ValueError, AttributeError, RecursionError):
                    continue
                if isinstance(expression, str) and len(expression) < 3000:
                    found.add(expression)
    return found


@pytest.mark.integration
def test_both_grammars_accept_the_same_but_for_what_is_listed() -> None:
    theirs, counted = CELParser(), Counter[str]()
    for source in expressions():
        try:
            parse(source, Limits())
            ours_accepts = True
        except CelError:
            ours_accepts = False
        try:
            theirs.parse(source)
            theirs_accepts = True
        except CELParseError:
            theirs_accepts = False
        if ours_accepts == theirs_accepts:
            counted["accepted" if ours_accepts else "refused"] += 1
            continue
        listed = OURS_ONLY if ours_accepts else THEIRS_ONLY
        reason = next((name for name, shape in listed.items() if re.search(shape, source, re.DOTALL)), None)
        assert reason is not None, f"accepted by {'us' if ours_accepts else 'cel-python'} only: {source!r}"
        counted[reason] += 1
    assert counted["accepted"] > 1500, counted
    assert counted["quoted field names"] > 20, counted
