"""Record what json-logic-js answers to random rules: `python -m tests.importing.jsonlogic_cases FOLDER`.

FOLDER has `node_modules/json-logic-js`, from `npm install json-logic-js@2.0.5`. The answers are in jsonlogic_answers.jsonl: the
documents in the first line, then a rule in each line, with a 1 for each document for which its value is truthy.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_name("jsonlogic_answers.jsonl")
PROGRAM = """
const logic = require("json-logic-js");
const {rules, documents} = JSON.parse(require("fs").readFileSync(0, "utf8"));
for (const rule of rules) {
  const answers = documents.map((each) => (logic.truthy(logic.apply(rule, each)) ? "1" : "0")).join("");
  console.log(JSON.stringify({rule, answers}));
}
"""
VALUES: list[Any] = [0, 1, 2, 2.5, -1, True, False, None, "", "a", "ab", "true"]
#: Of these, `<` of JavaScript converts none but null and booleans to numbers.
NUMBERS: list[Any] = [0, 1, 2, 2.5, -1, True, False, None, "a", {"x": 1}]


class Random:
    """Rules and documents: `a`, `b` and `c` have values of all kinds, `n` and `m` those that `<` compares."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)

    def document(self) -> Any:
        document = {name: self._value() for name in self._choose.sample("abc", self._choose.randrange(4))}
        numbers = {name: self._choose.choice(NUMBERS) for name in self._choose.sample("nm", self._choose.randrange(3))}
        return document | numbers

    def _value(self, depth: int = 0) -> Any:
        kind = self._choose.random()
        if kind < 0.5 or depth > 1:
            return self._choose.choice(VALUES)
        if kind < 0.75:
            return [self._value(depth + 1) for _ in range(self._choose.randrange(3))]
        return {name: self._value(depth + 1) for name in self._choose.sample("abc", self._choose.randrange(3))} | (
            {"n": self._choose.choice(NUMBERS)} if self._choose.random() < 0.5 else {}
        )

    def _variable(self, names: str = "abc") -> Any:
        path = ".".join(self._choose.choice("abc") for _ in range(self._choose.randrange(2)))
        path = f"{path}.{self._choose.choice(names)}" if path else self._choose.choice(names)
        if self._choose.random() < 0.2:
            return {"var": [path, self._choose.choice(VALUES if names == "abc" else [0, 3, True, None])]}
        return {"var": path}

    def _pair(self, first: Any, second: Any) -> list[Any]:
        return [first, second] if self._choose.random() < 0.7 else [second, first]

    def rule(self, depth: int = 0) -> Any:
        ops = [
            "===",
            "!==",
            "==",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
            "in",
            "contains",
            "var",
            "!",
            "!!",
            "missing",
            "between",
            "some_missing",
        ]
        if depth < 2:
            ops += ["and", "or", "if", "!", "some", "all", "none"]
        op = self._choose.choice(ops)
        match op:
            case "===" | "!==":
                return {op: self._pair(self._variable(), self._choose.choice(VALUES))}
            case "==" | "!=":
                return {op: self._pair(self._variable(), None)}
            case "<" | "<=" | ">" | ">=":
                return {op: self._pair(self._variable("nm"), self._choose.choice([0, 1, 2, 2.5, -1]))}
            case "between":
                return {self._choose.choice(["<", "<="]): [self._choose.choice([-1, 0, 1]), self._variable("nm"), 2]}
            case "in":
                return {"in": [self._variable(), self._choose.sample(VALUES, self._choose.randrange(4))]}
            case "contains":
                return {"in": [self._choose.choice(["a", "ab", "tru", 1, 2, True, None]), {"var": self._choose.choice("abc")}]}
            case "var":
                return self._variable()
            case "missing":
                return {"missing": self._choose.sample(["a", "b", "c", "a.b", "b.n"], 2) if depth else self._choose.choice("abc")}
            case "some_missing":
                return {"missing_some": [1, self._choose.sample("abc", 2)]}
            case "!" | "!!":
                return {op: [self.rule(depth + 1)]}
            case "and" | "or":
                return {op: [self.rule(depth + 1) for _ in range(self._choose.randrange(1, 3))]}
            case "if":
                return {op: [self.rule(depth + 1) for _ in range(self._choose.randrange(1, 5))]}
        element = {"===": [{"var": ""}, self._choose.choice(VALUES)]} if self._choose.random() < 0.3 else self.rule(depth + 2)
        return {op: [{"var": self._choose.choice("abc")}, element]}


def main(folder: str) -> None:
    """Write the answers."""
    of = Random(1)
    documents = [of.document() for _ in range(50)]
    rules = [rule for rule in (of.rule() for _ in range(180)) if len(json.dumps(rule)) < 90]
    given = json.dumps({"rules": rules, "documents": documents})
    answers = subprocess.run(["node", "-e", PROGRAM], cwd=folder, input=given, capture_output=True, text=True, check=True).stdout
    ANSWERS.write_text(json.dumps(documents) + "\n" + answers)


if __name__ == "__main__":
    main(sys.argv[1])
