"""The native CEL parser and checker accept what the reference accepts, and place every error where it does."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from streamer import _native
from streamer.cel_eval.program import compile_cel
from streamer.errors import CelError
from streamer.model import Limits
from tests.differential.cel_expressions import Expressions
from tests.differential.test_cel_python import expressions

LIMITS = Limits()
Error = tuple[int | None, int | None, str]

#: Pieces that a damaged expression is put together from.
PIECES = (
    *("(", ")", "[", "]", "{", "}", ",", ":", "?", ".", "..", "!", "!=", "-", "--", "&&", "||", "|", "&", "=", "==", "==="),
    *("<", "in", "+", "*", "/", "//", "%", "'", '"', "'''", '"""', "`", "`a-b`", "b'", "r'", "br'\\'", "rb''", "\\", "\\q"),
    *("$", "é", "\n", "\r", "1", "1.", ".5", "1e", "1e5", "0x", "0x1fU", "1u", "99999999999999999999", "1e400", "true"),
    *("null", "for", "data", "type", "data.a", "has(", "has(data.a)", "size(", "x", ".all(x, ", ".map(", "int", "'\\u12'"),
    *("google.protobuf.Timestamp", "'\\xff'"),
)


def reference(source: str) -> Error | None:
    try:
        compile_cel(source, LIMITS)
    except CelError as error:
        return error.line, error.column, error.reason
    return None


def native(source: str) -> Error | None:
    return _native.cel_check(source, LIMITS.max_cel_bytes, LIMITS.max_cel_depth)


def damaged(seed: int) -> str:
    """Return a random expression with pieces put in, taken out, or nothing but pieces."""
    choose = random.Random(seed)
    if choose.random() < 0.2:
        return choose.choice(("", " ")).join(choose.choice(PIECES) for _ in range(choose.randrange(8)))
    tokens = re.findall(r"\w+|\s+|.", Expressions(seed).program(), re.DOTALL)
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        at = choose.randrange(len(tokens) + 1)
        if choose.random() < 0.4:
            del tokens[at : at + 1]
        else:
            tokens[at:at] = [choose.choice(PIECES)]
    return "".join(tokens)


def same_words(ours: str, theirs: str) -> bool:
    # What RE2 and ours say of a regexp differs in words.
    return ours == theirs or ("regular expression" in ours and "regular expression" in theirs)


def assert_agree(sources: list[str]) -> Counter[str]:
    counted = Counter[str]()
    for source in sources:
        wanted, found = reference(source), native(source)
        if wanted is None or found is None:
            assert found == wanted, f"{source!r}: native {found}, reference {wanted}"
            counted["accepted"] += 1
            continue
        assert found[:2] == wanted[:2], f"{source!r}: native {found}, reference {wanted}"
        assert same_words(found[2], wanted[2]), f"{source!r}: native {found}, reference {wanted}"
        counted[re.sub(r"`[^`]*`", "`", wanted[2])[:20]] += 1
    return counted


def test_all_expressions_of_the_table_and_random_ones() -> None:
    counted = assert_agree(sorted(expressions()))
    assert counted["accepted"] > 1000, counted


def test_damaged_expressions() -> None:
    counted = assert_agree([damaged(seed) for seed in range(3000)])
    assert counted["accepted"] > 100, counted
    assert len(counted) > 30, counted


@pytest.mark.parametrize(
    "source",
    [
        "(" * 10_000,
        "(" * 8_000 + "1" + ")" * 8_000,
        "!" * 16_000 + "true",
        "-" * 16_000 + "1",
        "[" * 16_000,
        "{1:" * 5_000,
        "data" + ".a" * 8_000 + " == 1",
        "data" + "[0]" * 5_000 + " == 1",
        "data.a ? " * 1_000 + "true" + " : false" * 1_000,
        "data.a" + " && data.a" * 1_500,
        "1" + " + 1" * 4_000 + " == 1",
        "[1]" + ".map(x, [x])" * 1_000 + " == []",
        "a.b(" * 4_000,
        "'" + "a" * 16_000 + "' == ''",
        "'" + "a" * 17_000 + "' == ''",
        "(" * 64 + "true" + ")" * 64,
        "(" * 65 + "true" + ")" * 65,
        "(" * 65 + "99999999999999999999" + ")" * 65,
        "99999999999999999999 == (" * 65 + "1" + ")" * 65,
    ],
    ids=lambda source: f"{source[:12]}... {len(source)}",
)
def test_hostile_expressions(source: str) -> None:
    assert_agree([source])
