"""I-Regexp to RE2: what is accepted means what Python's `re` says of the same expression, and always compiles."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.model import Dialect
from streamer.subscriptions.regexps import MAX_STATES, RegexpError, compile_re2, translate

DIALECTS: tuple[Dialect, ...] = ("strict", "eventbridge")
ALPHABET = "ab.~\\-^$é😀\n"
TEXTS = st.text(ALPHABET, max_size=6)


def matches(source: str, text: str, dialect: Dialect) -> bool:
    return compile_re2(translate(source, dialect).re2).fullmatch(text.encode()) is not None


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, str, str]:
    """An expression in the strict dialect, as RFC 9485 writes it, and as Python's `re` does."""
    kind = draw(
        st.sampled_from(("char", "char", "dot", "class", "group", "sequence", "or", "repeat") if depth else ("char", "dot"))
    )
    if kind == "char":
        char = draw(st.sampled_from(ALPHABET))
        special = char in ".^-"
        strict = "~~" if char == "~" else f"~{char}" if special else "~n" if char == "\n" else char
        rfc = "\\\\" if char == "\\" else f"\\{char}" if special else "\\n" if char == "\n" else char
        return strict, rfc, re.escape(char)
    if kind == "dot":
        return ".", ".", "."
    if kind == "class":
        negated = "^" * draw(st.booleans())
        low, high = sorted(draw(st.tuples(st.sampled_from("abé"), st.sampled_from("abé😀"))))
        dash = "-" * draw(st.booleans())
        text = f"[{negated}{low}-{high}.{dash}]"
        return text, text, text
    inner = [draw(expressions(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    if kind == "group":
        return tuple(f"({each})" for each in inner[0])  # type: ignore[return-value]
    if kind == "repeat":
        times = draw(st.sampled_from(("*", "+", "?", "{2}", "{0,2}", "{1,}")))
        return tuple(f"({each}){times}" for each in inner[0])  # type: ignore[return-value]
    return tuple(("|" if kind == "or" else "").join(each) for each in zip(*inner, strict=True))  # type: ignore[return-value]


@given(expressions(), st.lists(TEXTS, min_size=1, max_size=10))
def test_a_regexp_means_what_pythons_re_says(expression: tuple[str, str, str], texts: list[str]) -> None:
    strict, rfc, python = expression
    for text in texts:
        # In Python `.` leaves out the line feed only, and here the alphabet has no carriage return.
        assert matches(rfc, text, "eventbridge") == bool(re.fullmatch(python, text))
        assert matches(strict, text, "strict") == bool(re.fullmatch(python, text, re.DOTALL))


@given(st.text("ab()[]{}*+?|.^$-~\\pPLCn,0123é", max_size=14), st.sampled_from(DIALECTS))
def test_what_is_accepted_compiles_and_what_is_not_tells_where(source: str, dialect: Dialect) -> None:
    position, states = None, 0
    try:
        translated = translate(source, dialect)
    except RegexpError as error:
        position = error.position
    else:
        states = translated.states
        compile_re2(translated.re2)
    assert 1 <= states <= MAX_STATES if position is None else 0 <= position <= len(source)


@pytest.mark.parametrize(
    "source",
    [
        "~p{L}{99}",
        "[^~p{L}~p{N}]{49}",
        "(~P{Lu}{9}){10}",
        "~p{Cn}{99}",
        "[~P{C}]{99}",
        "(|a){99}",
        "[a-z~p{So}]{99}",
        "((a|b){30}){33}",
    ],
)
def test_the_largest_that_are_accepted_compile(source: str) -> None:
    assert compile_re2(translate(source, "strict").re2) is not None


def test_more_than_ten_thousand_states_are_refused_without_building_them() -> None:
    began = time.thread_time()
    for source in ("(~p{L}{99}){2}", "a" * 10_001, "|" * 20_000, "()" * 20_000, "(" + "ab" * 60 + "){99}"):
        with pytest.raises(RegexpError):
            translate(source, "strict")
    assert time.thread_time() - began < 2


@pytest.mark.slow
@pytest.mark.parametrize("category", ["L", "Lu", "M", "N", "Nd", "P", "S", "Z", "Cc", "Cf", "Co", "C", "Cn"])
def test_a_category_and_its_complement_part_all_characters(category: str) -> None:
    every = "".join(map(chr, (*range(0x3000), 0xE000, 0x1F600, 0x10FFFF)))
    # Compiled once: of a category with many ranges, that takes a thousand times as long as a match.
    inside, outside = (compile_re2(translate(f"~{letter}{{{category}}}", "strict").re2) for letter in "pP")
    members = [char for char in every if inside.fullmatch(char.encode()) is not None]
    others = [char for char in every if outside.fullmatch(char.encode()) is not None]
    assert sorted(members + others) == list(every)
    # RE2 may know another version of Unicode than Python; what both have assigned keeps its category.
    known = [char for char in every if unicodedata.category(char) != "Cn"]
    within = set(members)
    wrong = [char for char in known if (char in within) != unicodedata.category(char).startswith(category)]
    assert len(wrong) <= len(known) // 1000


def test_hostile_texts_take_linear_time() -> None:
    began = time.thread_time()
    assert not matches("(a*)*b", "a" * 100_000, "strict")
    assert not matches("(a|aa)+b", "a" * 100_000, "eventbridge")
    assert time.thread_time() - began < 2
