"""Conditions that the index answers on elements, members and sizes match what Google's C++ runtime says of each alone."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from streamer import Engine
from tests.differential import google
from tests.differential.records import record
from tests.parts import in_parts

TEXTS = ("", "a", "ab", "b", "ba", "é", "7")
NUMBERS = (-1, 0, 1, 2, 7, 0.5, 1.0, 2.5)
FIELDS = ("l", "m", "s", "o", "missing")


class Conditions:
    """Makes conditions and documents from a seed: mostly a list `l`, a map `m`, a text `s`, and a list of objects `o`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        return f"'{self.random.choice(TEXTS)}'"

    def literal(self) -> str:
        choose = self.random
        return choose.choice((self.text(), self.text(), str(choose.choice(NUMBERS)), "true", "null", "[1]", "{'a': 1}"))

    def field(self, kind: str) -> str:
        return f"data.{kind if self.random.random() < 0.85 else self.random.choice(FIELDS)}"

    def on_element(self, element: str, depth: int = 1) -> str:
        """Return a condition on one element, or on a member of it."""
        choose = self.random
        if depth and choose.random() < 0.35:
            op = choose.choice(("&&", "||"))
            return f"({self.on_element(element, 0)} {op} {self.on_element(element, 0)})"
        match choose.randrange(9):
            case 0 | 1:
                return f"{element} {choose.choice(('==', '==', '!='))} {self.literal()}"
            case 2:
                return f"{element} in [{self.literal()}, {self.literal()}]"
            case 3:
                return f"{element} {choose.choice(('<', '<=', '>', '>='))} {choose.choice(NUMBERS)}"
            case 4:
                return f"{element} {choose.choice(('<', '>='))} {self.text()}"
            case 5:
                return f"{element}.matches('{choose.choice(('^a', 'b$', '[ab]+', '^$'))}')"
            case 6:
                return f"!({self.on_element(element, 0)})"
            case _:
                return f"{element}.{choose.choice(('startsWith', 'endsWith', 'contains'))}({self.text()})"

    def condition(self, depth: int = 2) -> str:
        choose = self.random
        if depth and choose.random() < 0.4:
            return f"({self.condition(depth - 1)} {choose.choice(('&&', '||'))} {self.condition(depth - 1)})"
        match choose.randrange(11):
            case 0 | 1:
                return f"{self.literal()} in {self.field('l')}"
            case 2 | 3:
                return f"{self.field('l')}.{choose.choice(('exists', 'exists', 'all', 'exists_one'))}(x, {self.on_element('x')})"
            case 4 | 5:
                member = choose.choice(("x.a", "x.b"))
                other = self.on_element(choose.choice(("x.a", "x.b")))
                return f"{self.field('o')}.exists(x, {self.on_element(member)} {choose.choice(('&&', '||'))} {other})"
            case 6:
                return f"{self.text()} in {self.field('m')}"
            case 7:
                return f"has({self.field('m')}.{choose.choice(('a', 'b', 'ab'))})"
            case 8:
                size = f"size({self.field(choose.choice('lmso'))})"
                return f"{size} {choose.choice(('==', '!=', '<', '>='))} {choose.randrange(4)}"
            case 9:
                return f"!({self.condition(0)})"
            case _:
                return self.on_element(self.field("s"))

    def scalar(self) -> Any:
        choose = self.random
        return choose.choice((choose.choice(TEXTS), choose.choice(TEXTS), choose.choice(NUMBERS), True, None))

    def value(self, kind: str) -> Any:
        choose = self.random
        match kind:
            case "l":
                nested = ([1], {"a": 1}, ["a"], [])
                return [self.scalar() if choose.random() < 0.85 else choose.choice(nested) for _ in range(choose.randrange(5))]
            case "m":
                return {name: self.scalar() for name in choose.sample(TEXTS, choose.randrange(4))}
            case "o":
                return [
                    {name: self.scalar() for name in choose.sample("ab", choose.randrange(3))} if choose.random() < 0.9 else 7
                    for _ in range(choose.randrange(4))
                ]
            case _:
                return self.scalar()

    def document(self) -> dict[str, Any]:
        """Return a document that mostly has the fields, mostly of their kinds."""
        made = {}
        for name in FIELDS[:-1]:
            if self.random.random() < 0.9:
                made[name] = self.value(name if self.random.random() < 0.85 else self.random.choice(FIELDS[:-1]))
        return made


def _compare(seeds: range, conditions: int, documents: int) -> Counter[str]:
    counted: Counter[str] = Counter()
    for seed in seeds:
        made = Conditions(seed)
        sources = sorted({made.condition() for _ in range(conditions)})
        engine = Engine()
        changes = engine.add_many(({"id": str(n), "cel": s} for n, s in enumerate(sources)), on_error="skip")
        refused = {int(failure.id) for failure in changes.errors}
        expressions = {n: google.compiled(s) for n, s in enumerate(sources) if n not in refused}
        counted["refused"] += len(refused)
        for _ in range(documents):
            document = made.document()
            ours = {int(found) for found in engine.match_ids({"data": document})}
            for n, expression in expressions.items():
                theirs = google.verdict_of(expression, document)
                counted[theirs] += 1
                if (n in ours) != (theirs == "true"):
                    is_listed = google.is_listed("verdict", "true" if n in ours else "false", theirs, sources[n], document)
                    assert is_listed, f"seed {seed}: {sources[n]!r} on {document!r}: {n in ours}, {theirs}"
                    counted["listed verdict"] += 1
    return counted


@in_parts(4, slow=0)
def test_matches_are_what_the_runtime_says(backend: str, part: int) -> None:
    counted = _compare(range(part * 5, part * 5 + 5), conditions=60 if backend == "reference" else 300, documents=20)
    assert counted["true"] > counted["false"] / 20, counted
    assert counted["listed verdict"] < counted["true"] / 20, counted


@pytest.mark.integration
def test_millions_of_matches_are_what_the_runtime_says(backend: str) -> None:
    seeds = range(1000, 1010 if backend == "reference" else 1200)
    record("elements", f"{backend}, Google's C++ runtime", _compare(seeds, conditions=500, documents=50))
