"""Regexps of other languages match the same texts in RE2.

Python's `re` with ASCII classes stands for PCRE2: it has the same meaning for all that is translated here, but for `\\B` in an
empty text. PostgreSQL's regexps are among the answers of postgres_cases.py.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from streamer import Engine, SubscriptionError
from streamer.importing.regexps import from_pcre, from_postgres

PARTS = (
    r"a b k 1 . \. \d \D \w \W \s \S \n \t [ab] [^a] [a-c] [\d_] [\s] [^\w] (a|b) (?:ab) \b ^ $ [-a] [a-] \- \/ é"
    r" [é-ü] | (a b) ] } [a^] [.*] \$"
).split(" ")
REPEATED = ["", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"]
TEXTS = ["a", "b", "k", "1", " ", ".", "_", "\n", "\v", "\t", "c", "é", "-", "ab", "]", "}", "^", "$", "A"]


def test_random_regexps_of_pcre_match_the_same_texts(engine: Callable[..., Engine]) -> None:
    choose = random.Random(1)
    texts = ["".join(choose.choices(TEXTS, k=choose.randrange(4))) for _ in range(60)]
    patterns: list[tuple[str, str]] = []
    e = engine()
    for _ in range(300):
        pattern = "".join(choose.choice(PARTS) + choose.choice(REPEATED) for _ in range(choose.randrange(1, 5)))
        flags = choose.choice(["", "s"])
        try:
            translated = from_pcre(pattern, flags=flags)
            re.compile(pattern)
        except (SubscriptionError, re.error):
            continue
        e.add({"id": str(len(patterns)), "filters": [{"field": "a", "op": "matches", "value": translated}]})
        patterns.append((pattern, flags))
    found = [set(e.match_ids({"data": {"a": text}})) for text in texts]
    wrong = [
        (pattern, flags, text)
        for number, (pattern, flags) in enumerate(patterns)
        for text, ids in zip(texts, found, strict=True)
        if (re.search(pattern, text, re.ASCII | (re.DOTALL if flags else 0)) is not None) != (str(number) in ids)
    ]
    assert wrong == []
    assert len(patterns) > 100


@pytest.mark.parametrize(
    ("pattern", "flags", "expected"),
    [
        ("^a.b$", "", r"^a.b\n?$"),
        ("a$|b", "", r"a\n?$|b"),
        (r"\s", "", r"[\s\v]"),
        (r"[\s\-]", "", r"[\s\v\-]"),
        ("(?i)a", "", "(?i)a"),
        ("a.b", "is", "(?is)a.b"),
        ("a]b}", "", r"a\]b\}"),
    ],
)
def test_a_regexp_of_pcre_is_translated(pattern: str, flags: str, expected: str) -> None:
    assert from_pcre(pattern, flags=flags) == expected


@pytest.mark.parametrize(
    ("pattern", "ignore_case", "expected"),
    [
        ("^a.b$", False, "(?s)^a.b$"),
        ("^ab$", False, "^ab$"),
        ("a1é", True, "[aA]1[éÉ]"),
        ("[a-z0-9_k]", True, "[a-zA-Z0-9_kK]"),
    ],
)
def test_a_regexp_of_postgresql_is_translated(pattern: str, ignore_case: bool, expected: str) -> None:
    assert from_postgres(pattern, ignore_case=ignore_case) == expected


@pytest.mark.parametrize(
    "pattern", ["*", "a**", "(", ")", "[", "[]", "[]a]", "[a-\\d]", "a{", "(?P<n>a)", "(*UCP)a", "\\", "a\0", "[[:alpha:]]"]
)
def test_a_regexp_that_other_languages_read_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(SubscriptionError):
        from_pcre(pattern)
    with pytest.raises(SubscriptionError):
        from_postgres(pattern, ignore_case=True)
