"""Write the matrix of operator × what the event holds × outcome, `testdata/match/matrix_*.toml`, and check that no cell is empty.

    python testdata/generate_matrix.py           write the files
    python testdata/generate_matrix.py --check   fail if a file is out of date or a cell is empty (a test runs this)

What is expected is not asked of the implementation. It comes from two statements of docs/semantics.md that are made apart:
each row of `ROWS` says which outcomes each kind of value can have at all, and each rule says what one operand makes of one
value. The generator fails where the two differ.
"""

from __future__ import annotations

import itertools
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "match"


class _Nothing:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


MISSING, UNKNOWN = _Nothing("missing"), _Nothing("unknown")

#: What the event holds at `data.f`: the columns of the matrix, each with values to try.
HOLDS: dict[str, list[Any]] = {
    "a missing field": [MISSING],
    "null": [None],
    "a boolean": [True, False],
    "an int": [7, 5],
    "a float": [7.0, 2.5],
    "a string": ["abc", "xyz", "10.0.0.7"],
    "an object": [{"k": 1}, {"k": 2}],
    "an empty array": [[]],
    "an array of scalars": [["xyz", "abc"], [7], [True, 2.5], [None], ["10.0.0.7", 2], ["abc", "abc"]],
    "an array of objects": [[{"k": 1}], [{"k": 2}, {"k": 3}]],
    "an unknown value": [UNKNOWN],
}


@dataclass(frozen=True)
class Row:
    """An operator.

    Attributes:
        name: of the operator.
        cells: a letter for each column: `+` match and no match can both be had, `m` only match, `n` only no match.
        operands: to try, as the operator's own JSON (filters, patterns) or as CEL text with the value meant.
        subscription: the members of a subscription with this operand.
        rule: the verdict for an operand and what `data.f` and `before.f` hold.
        befores: what `before.f` holds, to try.
    """

    name: str
    cells: str
    operands: list[Any]
    subscription: Callable[[Any], dict[str, Any]]
    rule: Callable[[Any, Any, Any], str]
    befores: tuple[Any, ...] = (MISSING,)


# What the contract says, by kind of value


def kind(value: Any) -> str:
    if isinstance(value, _Nothing):
        return value.name
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return {int: "number", float: "number", str: "string", list: "list", dict: "map"}[type(value)]


def same(a: Any, b: Any) -> bool:
    if kind(a) != kind(b):
        return False
    if kind(a) == "number":
        return Fraction(a) == Fraction(b)
    if kind(a) == "list":
        return len(a) == len(b) and all(map(same, a, b))
    if kind(a) == "map":
        return set(a) == set(b) and all(same(a[name], b[name]) for name in a)
    return bool(a == b)


def truth(value: bool) -> str:
    return "true" if value else "false"


def opposite(verdict: str) -> str:
    return {"true": "false", "false": "true"}.get(verdict, verdict)


def reading(rule: Callable[[Any, Any], str]) -> Callable[[Any, Any, Any], str]:
    """Make a rule for operators that read the field: unknown is unknown, missing an error."""

    def read(operand: Any, held: Any, _before: Any) -> str:
        return "unknown" if held is UNKNOWN else "error" if held is MISSING else rule(operand, held)

    return read


def equality(operand: Any, held: Any) -> str:
    return truth(same(operand, held))


def ordering(symbol: str) -> Callable[[Any, Any], str]:
    def rule(operand: Any, held: Any) -> str:
        if kind(operand) != kind(held) or kind(held) not in ("bool", "number", "string"):
            return "error"
        return truth({"<": held < operand, "<=": held <= operand, ">": held > operand, ">=": held >= operand}[symbol])

    return rule


def within(operand: list[Any], held: Any) -> str:
    return truth(any(same(item, held) for item in operand))


def containing(operand: Any, held: Any) -> str:
    if kind(held) == "list":
        return within(held, operand)
    return truth(operand in held) if kind(held) == kind(operand) == "string" else "error"


def text(test: Callable[[str, str], bool]) -> Callable[[Any, Any], str]:
    def rule(operand: Any, held: Any) -> str:
        return truth(test(held, operand)) if kind(held) == "string" else "error"

    return rule


def negated(rule: Callable[[Any, Any], str]) -> Callable[[Any, Any], str]:
    return lambda operand, held: opposite(rule(operand, held))


def presence(wanted: Any, held: Any, _before: Any) -> str:
    return "unknown" if held is UNKNOWN else truth((held is not MISSING) == wanted)


def changed(_operand: Any, held: Any, before: Any) -> str:
    if held is UNKNOWN:
        return "unknown"
    if held is MISSING or before is MISSING:
        return truth(held is not before)
    return truth(not same(held, before))


def changed_to(operand: Any, held: Any, before: Any) -> str:
    if held is UNKNOWN:
        return "false" if same(before, operand) else "unknown"
    return truth(same(held, operand) and not same(before, operand))


def changed_from(operand: Any, held: Any, before: Any) -> str:
    if held is UNKNOWN:
        return "unknown" if same(before, operand) else "false"
    return truth(same(before, operand) and not same(held, operand))


# Filters

_ORDERED: list[Any] = [5, 7, 2.5, "abc", "xyz", True, False]
_VALUES: list[Any] = [7, 2.5, "abc", True, None, [], {"k": 1}, ["xyz", "abc"], [{"k": 1}]]


def one_filter(op: str) -> Callable[[Any], dict[str, Any]]:
    def subscription(operand: Any) -> dict[str, Any]:
        members = {"field": "f", "op": op}
        return {"filters": [members if op == "changed" else members | {"value": operand}]}

    return subscription


def filter_row(op: str, cells: str, operands: list[Any], rule: Callable[[Any, Any], str]) -> Row:
    return Row(op, cells, operands, one_filter(op), reading(rule))


def change_row(op: str, cells: str, operands: list[Any], rule: Callable[[Any, Any, Any], str]) -> Row:
    befores = (MISSING, *_VALUES, "other")
    return Row(op, cells, operands, one_filter(op), rule, befores)


# Columns:           missing null bool int float string object [] scalars objects unknown
FILTERS = [
    filter_row("==", "n++++++++++", _VALUES, equality),
    filter_row("!=", "n++++++++++", _VALUES, negated(equality)),
    filter_row(">", "nn++++nnnn+", _ORDERED, ordering(">")),
    filter_row(">=", "nn++++nnnn+", _ORDERED, ordering(">=")),
    filter_row("<", "nn++++nnnn+", _ORDERED, ordering("<")),
    filter_row("<=", "nn++++nnnn+", _ORDERED, ordering("<=")),
    filter_row("in", "n+++++nnnn+", [[7, "abc", True], [None, 5], []], within),
    filter_row("not in", "n+++++mmmm+", [[7, "abc", True], [None, 5], []], negated(within)),
    filter_row("contains", "nnnnn+nn+n+", ["b", "abc", 7, True, None], containing),
    Row("exists true", "nmmmmmmmmm+", [True], one_filter("exists"), presence),
    Row("exists false", "mnnnnnnnnn+", [False], one_filter("exists"), presence),
    filter_row("starts_with", "nnnnn+nnnn+", ["ab"], text(str.startswith)),
    filter_row("ends_with", "nnnnn+nnnn+", ["bc"], text(str.endswith)),
    filter_row("matches", "nnnnn+nnnn+", ["b"], text(lambda held, expression: expression in held)),
    change_row("changed", "+++++++++++", [None], changed),
    change_row("changed_to", "n++++++++++", _VALUES, changed_to),
    change_row("changed_from", "+++++++++++", _VALUES, changed_from),
]


# Patterns: a leaf matches or not, there are no errors


def leaves(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if isinstance(value, dict | _Nothing) else [value]


def leaf_rule(matches: Callable[[Any, Any], bool]) -> Callable[[Any, Any, Any], str]:
    def rule(operand: Any, held: Any, _before: Any) -> str:
        return "unknown" if held is UNKNOWN else truth(any(matches(operand, leaf) for leaf in leaves(held)))

    return rule


def of_strings(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda operand, leaf: isinstance(leaf, str) and test(leaf, operand)


def one_pattern(wrap: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda operand: {"pattern": {"data": {"f": [wrap(operand)]}}}


def pattern_row(
    name: str, cells: str, operand: Any, wrap: Callable[[Any], Any], matches: Callable[[Any, Any], bool], *others: Any
) -> Row:
    return Row(name, cells, [operand, *others], one_pattern(wrap), leaf_rule(matches))


def anything_but(name: str, cells: str, operand: Any, excluded: Callable[[Any, Any], bool]) -> Row:
    return pattern_row(
        f"anything-but {name}", cells, operand, lambda value: {"anything-but": value}, lambda o, leaf: not excluded(o, leaf)
    )


def number_between(leaf: Any, low: Any, high: Any) -> bool:
    return kind(leaf) == "number" and low < leaf < high


def below(operand: Any, held: Any, _before: Any) -> str:
    """State a field below `f`: objects, also in an array, have it."""
    if held is UNKNOWN:
        return "unknown"
    objects = held if isinstance(held, list) else [held]
    return truth(any(isinstance(item, dict) and same(item["k"], operand) for item in objects))


_STRING = "nnnnn+nn+n+"
_NUMBER = "nnn++nnn+n+"
_NOT_STRING = "nmmmm+nn+n+"
_NOT_NUMBER = "nmm++mnn+n+"

PATTERNS = [
    pattern_row("a string", _STRING, "abc", lambda v: v, same),
    pattern_row("a number", _NUMBER, 7, lambda v: v, same),
    pattern_row("true", "nn+nnnnn+n+", True, lambda v: v, same),
    pattern_row("false", "nn+nnnnnnn+", False, lambda v: v, same),
    pattern_row("null", "nmnnnnnn+n+", None, lambda v: v, same),
    pattern_row("prefix", _STRING, "ab", lambda v: {"prefix": v}, of_strings(str.startswith)),
    pattern_row("suffix", _STRING, "bc", lambda v: {"suffix": v}, of_strings(str.endswith)),
    pattern_row(
        "prefix ignoring case",
        _STRING,
        "AB",
        lambda v: {"prefix": {"equals-ignore-case": v}},
        of_strings(lambda leaf, v: leaf.startswith(v.lower())),
    ),
    pattern_row(
        "suffix ignoring case",
        _STRING,
        "BC",
        lambda v: {"suffix": {"equals-ignore-case": v}},
        of_strings(lambda leaf, v: leaf.endswith(v.lower())),
    ),
    pattern_row(
        "equals-ignore-case", _STRING, "ABC", lambda v: {"equals-ignore-case": v}, of_strings(lambda leaf, v: leaf == v.lower())
    ),
    pattern_row("wildcard", _STRING, "a*c", lambda v: {"wildcard": v}, of_strings(lambda leaf, v: leaf[0] + leaf[-1] == "ac")),
    pattern_row(
        "shellstyle", _STRING, "a*c", lambda v: {"shellstyle": v}, of_strings(lambda leaf, v: leaf[0] + leaf[-1] == "ac")
    ),
    pattern_row("regexp", _STRING, "a.c", lambda v: {"regexp": v}, of_strings(lambda leaf, v: leaf == "abc")),
    pattern_row("numeric =", _NUMBER, 7, lambda v: {"numeric": ["=", v]}, same),
    pattern_row("numeric <", _NUMBER, 6, lambda v: {"numeric": ["<", v]}, lambda v, leaf: number_between(leaf, -99, v)),
    pattern_row("numeric >", _NUMBER, 6, lambda v: {"numeric": [">", v]}, lambda v, leaf: number_between(leaf, v, 99)),
    pattern_row("numeric > <", _NUMBER, 6, lambda v: {"numeric": [">", v, "<", 8]}, lambda v, leaf: number_between(leaf, v, 8)),
    pattern_row("cidr", _STRING, "10.0.0.0/24", lambda v: {"cidr": v}, of_strings(lambda leaf, v: leaf.startswith("10.0.0."))),
    Row(
        "exists true",
        "nmmmmmnnmn+",
        [True],
        one_pattern(lambda v: {"exists": v}),
        lambda _o, held, _b: "unknown" if held is UNKNOWN else truth(leaves(held) != []),
    ),
    Row(
        "exists false",
        "mnnnnnmmnm+",
        [False],
        one_pattern(lambda v: {"exists": v}),
        lambda _o, held, _b: "unknown" if held is UNKNOWN else truth(leaves(held) == []),
    ),
    anything_but("a string", _NOT_STRING, "abc", same),
    anything_but("a number", _NOT_NUMBER, 7, same),
    anything_but("strings", _NOT_STRING, ["abc", "-"], lambda operand, leaf: within(operand, leaf) == "true"),
    anything_but("numbers", _NOT_NUMBER, [7, 0], lambda operand, leaf: within(operand, leaf) == "true"),
    anything_but("prefix", _NOT_STRING, {"prefix": "ab"}, lambda _o, leaf: kind(leaf) == "string" and leaf.startswith("ab")),
    anything_but("suffix", _NOT_STRING, {"suffix": "bc"}, lambda _o, leaf: kind(leaf) == "string" and leaf.endswith("bc")),
    anything_but("equals-ignore-case", _NOT_STRING, {"equals-ignore-case": "ABC"}, lambda _o, leaf: leaf == "abc"),
    anything_but("wildcard", _NOT_STRING, {"wildcard": "a*"}, lambda _o, leaf: kind(leaf) == "string" and leaf.startswith("a")),
    Row(
        "$or",
        "nnn+++nn+n+",
        [["abc", 7]],
        lambda operand: {"pattern": {"data": {"$or": [{"f": [operand[0]]}, {"f": [operand[1]]}]}}},
        leaf_rule(lambda operand, leaf: within(operand, leaf) == "true"),
    ),
    Row("a field below", "nnnnnn+nn++", [1], lambda operand: {"pattern": {"data": {"f": {"k": [operand]}}}}, below),
]


# CEL

_CEL = {json.dumps(value): value for value in (7, 2.5, "abc", True, False, 5, "xyz", [], {"k": 1}, None, ["xyz", "abc"])}


def cel_row(name: str, cells: str, form: str, operands: list[Any], rule: Callable[[Any, Any], str]) -> Row:
    """Make a row whose CEL is *form* with the operand in place of `V`; JSON literals are CEL literals."""
    return Row(name, cells, operands, lambda operand: {"cel": form.replace("V", json.dumps(operand))}, reading(rule))


def has_row(name: str, cells: str, form: str, wanted: bool) -> Row:
    return Row(name, cells, [wanted], lambda _: {"cel": form}, presence)


def elements(held: Any) -> list[Any] | None:
    return held if isinstance(held, list) else list(held) if isinstance(held, dict) else None


def contained(operand: Any, held: Any) -> str:
    # A map is asked for a key, and a map is no key.
    return "error" if kind(held) == kind(operand) == "map" else exists(operand, held)


def exists(operand: Any, held: Any) -> str:
    items = elements(held)
    return "error" if items is None else within(items, operand)


def every(operand: Any, held: Any) -> str:
    items = elements(held)
    return "error" if items is None else truth(all(same(item, operand) for item in items))


def size(operand: int, held: Any) -> str:
    return truth(len(held) == operand) if isinstance(held, str | list | dict) else "error"


def type_of(operand: str, held: Any) -> str:
    if kind(held) == "number":
        return truth(operand == ("int" if isinstance(held, int) else "double"))
    return truth(operand == {"null": "null_type"}.get(kind(held), kind(held)))


_ITEMS: list[Any] = [7, "abc", "k", {"k": 1}, True]
_CEL_VALUES: list[Any] = list(_CEL.values())

CEL = [
    cel_row("==", "n++++++++++", "data.f == V", [*_CEL_VALUES, [{"k": 1}]], equality),
    cel_row("!=", "n++++++++++", "data.f != V", [*_CEL_VALUES, [{"k": 1}]], negated(equality)),
    cel_row("<", "nn++++nnnn+", "data.f < V", _ORDERED, ordering("<")),
    cel_row("<=", "nn++++nnnn+", "data.f <= V", _ORDERED, ordering("<=")),
    cel_row(">", "nn++++nnnn+", "data.f > V", _ORDERED, ordering(">")),
    cel_row(">=", "nn++++nnnn+", "data.f >= V", _ORDERED, ordering(">=")),
    cel_row("negated ==", "n++++++++++", "!(data.f == V)", [*_CEL_VALUES, [{"k": 1}]], negated(equality)),
    cel_row("negated >", "nn++++nnnn+", "!(data.f > V)", _ORDERED, negated(ordering(">"))),
    cel_row(
        "in a list", "n++++++++++", "data.f in V", [[7, "abc", True], [None, [], {"k": 1}], [["xyz", "abc"], [{"k": 1}]]], within
    ),
    cel_row("in the field", "nnnnnn+n+++", "V in data.f", _ITEMS, contained),
    cel_row("contains", "nnnnn+nn+++", "data.f.contains(V)", ["b", *_ITEMS], containing),
    cel_row("startsWith", "nnnnn+nnnn+", "data.f.startsWith(V)", ["ab"], text(str.startswith)),
    cel_row("endsWith", "nnnnn+nnnn+", "data.f.endsWith(V)", ["bc"], text(str.endswith)),
    cel_row("matches", "nnnnn+nnnn+", "data.f.matches(V)", ["b"], text(lambda held, expression: expression in held)),
    has_row("has", "nmmmmmmmmm+", "has(data.f)", wanted=True),
    has_row("negated has", "mnnnnnnnnn+", "!has(data.f)", wanted=False),
    cel_row("size", "nnnnn++++++", "size(data.f) == V", [0, 1, 3], size),
    cel_row("exists", "nnnnnn+n+++", "data.f.exists(x, x == V)", _ITEMS, exists),
    cel_row("all", "nnnnnn+m+++", "data.f.all(x, x == V)", _ITEMS, every),
    Row(
        "type",
        "n++++++++++",
        ["null_type", "bool", "int", "double", "string", "list", "map"],
        lambda operand: {"cel": f"type(data.f) == {operand}"},
        reading(type_of),
    ),
    cel_row(
        "the field itself", "nn+nnnnnnn+", "data.f", [None], lambda _, held: truth(held) if kind(held) == "bool" else "error"
    ),
]

ROWS = {"filters": FILTERS, "patterns": PATTERNS, "cel": CEL}


# Generating

REACHABLE = {"+": {"match", "no match"}, "m": {"match"}, "n": {"no match"}}


@dataclass(frozen=True)
class Case:
    row: Row
    column: str
    subscription: dict[str, Any]
    event: dict[str, Any]
    verdict: str

    @property
    def outcome(self) -> str:
        if self.verdict == "unknown":
            return "no match" if "on_unknown" in self.subscription else "match"
        return "match" if self.verdict == "true" else "no match"

    @property
    def name(self) -> str:
        skipped = "skipped" if "on_unknown" in self.subscription else "delivered"
        claim = {"error": "an error", "unknown": f"unknown, {skipped}"}.get(self.verdict, self.verdict)
        return f"{self.row.name} on {self.column} is {claim}"

    def to_toml(self) -> str:
        lines = [
            "[[case]]",
            f"name = {json.dumps(self.name)}",
            f"subscription = '''{json.dumps(self.subscription)}'''",
            f"event = '''{json.dumps(self.event)}'''",
            f'expect = "{self.outcome}"',
        ]
        if self.verdict == "unknown" and self.outcome == "match":
            lines.append("certain = false")
        lines.append(f'verdict = "{self.verdict}"')
        return "\n".join(lines) + "\n"


def cases(row: Row) -> Iterator[Case]:
    """Yield, for each cell of a row, the first case of each verdict that the operands and values give; unknown twice."""
    for letter, (column, values) in zip(row.cells, HOLDS.items(), strict=True):
        found: dict[str, Case] = {}
        tries = list(itertools.product(values, row.operands, row.befores))
        # Values of one kind first, so that what is false is a near miss where it can be one.
        tries.sort(key=lambda tried: kind(tried[0]) not in (kind(tried[1]), "missing", "unknown"))
        for held, operand, before in tries:
            event: dict[str, Any] = {"data": {} if isinstance(held, _Nothing) else {"f": held}}
            if row.befores != (MISSING,):
                event["before"] = {} if before is MISSING else {"f": before}
            if held is UNKNOWN:
                event["unknown"] = ["/data/f"]
            verdict = row.rule(operand, held, before)
            subscription = row.subscription(operand)
            asked = [subscription, subscription | {"on_unknown": "skip"}] if verdict == "unknown" else [subscription]
            for members in asked:
                case = Case(row, column, members, event, verdict)
                found.setdefault(case.name, case)
        outcomes = {case.outcome for case in found.values()}
        if outcomes != REACHABLE[letter]:
            raise SystemExit(f"{row.name!r} on {column}: the row says {sorted(REACHABLE[letter])}, its rule {sorted(outcomes)}")
        yield from found.values()


def text_of(part: str) -> str:
    head = (
        "# Written by testdata/generate_matrix.py; do not edit.\n"
        f"# {part} × what the event holds at data.f × both outcomes where they can be had.\n"
    )
    return "\n".join([head, *(case.to_toml() for row in ROWS[part] for case in cases(row))])


def path_of(part: str) -> Path:
    return HERE / f"matrix_{part}.toml"


def empty_cells(part: str) -> list[str]:
    """Return the outcomes of cells for which a file, as it is checked in, has no case."""
    held = {
        (case["name"].rpartition(" is ")[0], case["expect"])
        for case in tomllib.loads(path_of(part).read_text(encoding="utf-8"))["case"]
    }
    wanted = (
        (f"{row.name} on {column}", outcome)
        for row in ROWS[part]
        for letter, column in zip(row.cells, HOLDS, strict=True)
        for outcome in sorted(REACHABLE[letter])
    )
    return [f"{cell}: {outcome}" for cell, outcome in wanted if (cell, outcome) not in held]


def problems() -> list[str]:
    """Return what is wrong with the files that are checked in: out of date, or with an empty cell."""
    found = []
    for part in ROWS:
        if not path_of(part).exists() or path_of(part).read_text(encoding="utf-8") != text_of(part):
            found.append(f"{path_of(part).name} is out of date: run testdata/generate_matrix.py")
        else:
            found.extend(f"{path_of(part).name}: empty cell: {cell}" for cell in empty_cells(part))
    return found


def main() -> int:
    if "--check" in sys.argv[1:]:
        found = problems()
        print("\n".join(found), file=sys.stderr)
        return 1 if found else 0
    for part in ROWS:
        path_of(part).write_text(text_of(part), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
