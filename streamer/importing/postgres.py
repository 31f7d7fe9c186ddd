"""Conditions of PostgreSQL on one column, with SQL's three truth values, for languages that PostgreSQL evaluates.

    a = '5'         true: data.a in ['5', 5]     false: data.a is another value than these and null
    a LIKE 'x%'     true: a starts with x        false: another text

Null is neither. So NOT is true if its condition is false, and a comparison with null or a missing column never is.

A rule does not name the type of its column. PostgreSQL reads the text 5 as the column's type, so it equals the number 5 and the
text "5": a column has values of one type, so a condition on both is exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, final

from streamer.errors import SubscriptionError
from streamer.importing.bounds import number
from streamer.importing.conditions import ALWAYS, NEVER, Condition, Not, Path, Test, all_of, any_of, contains_text
from streamer.importing.regexps import from_postgres
from streamer.importing.rules import refuse
from streamer.subscriptions.cel_text import regexp_of

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d|\d\d?:\d\d", re.ASCII)
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_SPACES: Final = " \t\n\v\f\r"
#: Texts that are booleans: PostgreSQL reads beginnings of these words, if they are not ambiguous.
_BOOLEANS: Final = {"1": True, "0": False, "on": True, "of": False, "off": False} | {
    word[:length]: truth for word, truth in (("true", True), ("yes", True), ("false", False), ("no", False))
    for length in range(1, len(word) + 1)
}  # fmt: skip
#: Further characters with this lower case: the signs of Kelvin, Angstrom and Ohm, and others.
_MORE_UPPER: Final = {"k": "\u212a", "å": "\u212b", "ω": "\u2126", "θ": "\u03f4", "ß": "\u1e9e"}
#: Each order, and its opposite.
_ORDERS: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@final
@dataclass(frozen=True, slots=True)
class Truth:
    """When a condition is true, and when it is false; else it is null."""

    true: Condition
    false: Condition


def both(*parts: Truth) -> Truth:
    """Return AND."""
    return Truth(all_of(*(each.true for each in parts)), any_of(*(each.false for each in parts)))


def either(*parts: Truth) -> Truth:
    """Return OR."""
    return Truth(any_of(*(each.true for each in parts)), all_of(*(each.false for each in parts)))


def negated(truth: Truth) -> Truth:
    """Return NOT."""
    return Truth(truth.false, truth.true)


def one_of(path: Path, values: list[Any], place: str) -> Truth:
    """Return whether a column equals a value: texts of literals, numbers or booleans.

    Raises:
        SubscriptionError: a text has another spelling in an event, as dates and arrays have.
    """
    if not values:
        return Truth(NEVER, ALWAYS)
    literals = [each for value in values for each in _read(value, place)]
    equal = Test(path, "==", literals[0]) if len(literals) == 1 else Test(path, "in", literals)
    return Truth(equal, Test(path, "not in", [*literals, None]))


def distinct(path: Path, value: Any, place: str) -> Truth:
    """Return IS DISTINCT FROM, which is also true for null."""
    same = one_of(path, [value], place).true
    return Truth(Not(same), same)


def ordered(path: Path, op: str, value: Any, place: str) -> Truth:
    """Return whether a column is less or greater than a number.

    Raises:
        SubscriptionError: the value is no number, and so the order depends on the database.
    """
    numbers = [each for each in _read(value, place, order=True) if isinstance(each, int | float) and not isinstance(each, bool)]
    if not numbers:
        refuse("expected a number: the order of texts depends on the database; write this condition in CEL", place)
    return Truth(Test(path, op, numbers[0]), Test(path, _ORDERS[op], numbers[0]))


def is_null(path: Path) -> Truth:
    """Return IS NULL."""
    return Truth(any_of(Test(path, "==", None), Not(Test(path, "exists"))), Test(path, "!=", None))


def is_boolean(path: Path, value: bool) -> Truth:
    """Return IS TRUE or IS FALSE."""
    return Truth(Test(path, "==", value), Not(Test(path, "==", value)))


def like(path: Path, pattern: str, place: str, *, ignore_case: bool = False) -> Truth:
    """Return LIKE or ILIKE.

    Raises:
        SubscriptionError: the pattern ends in an escape.
    """
    parts = [(escaped, char) for escaped, char in re.findall(r"(\\?)(.)", pattern, re.S)]
    if any(not escaped and char == "\\" for escaped, char in parts):
        refuse("expected a character after the last `\\` of this pattern", place)
    # Simple case folding has the cases of ILIKE for these characters; but for it `s` also equals a long s.
    by_flag = ignore_case and pattern.isascii() and "s" not in pattern.lower()
    if (by_flag or not ignore_case) and (simple := _without_regexp(path, parts, ignore_case)) is not None:
        return _of_text(path, simple)
    read, words = _same_lower if ignore_case and not by_flag else regexp_of, {"%": ".*", "_": "."}
    regexp = "".join(words[char] if not escaped and char in words else read(char) for escaped, char in parts)
    return _of_text(path, Test(path, "matches", f"(?{'i' if by_flag else ''}s)^{regexp}$"))


def _same_lower(char: str) -> str:
    """Return a regexp for the characters whose lower case is that of a character: ILIKE compares the lower case of both texts."""
    lower = char.lower()
    same = sorted(
        {each for each in (lower, lower.upper(), lower.title(), _MORE_UPPER.get(lower, lower)) if each.lower() == lower}
    )
    return f"[{''.join(same)}]" if len(same) > 1 else regexp_of(char)


def matches(path: Path, regexp: str, place: str, *, ignore_case: bool = False) -> Truth:
    """Return `~` or `~*`.

    Raises:
        SubscriptionError: a part of the regexp has no equal in RE2.
    """
    try:
        return _of_text(path, Test(path, "matches", from_postgres(regexp, ignore_case=ignore_case)))
    except SubscriptionError as error:
        refuse(error.reason, f"{place}, {error.place}")


def _of_text(path: Path, true: Condition) -> Truth:
    return Truth(true, all_of(Test(path, "type", ["string"]), Not(true)))


def _without_regexp(path: Path, parts: list[tuple[str, str]], ignore_case: bool) -> Condition | None:
    """Return a pattern as equality, a beginning, an end or a text within; None if it is another."""
    wild = [index for index, (escaped, char) in enumerate(parts) if not escaped and char in "%_"]
    if any(parts[index][1] == "_" for index in wild) or not set(wild) <= {0, len(parts) - 1}:
        return None
    text = "".join(char for index, (_, char) in enumerate(parts) if index not in wild)
    case = " but for case" if ignore_case else ""
    if not wild:
        return Test(path, f"=={case}", text)
    if not text:
        return Test(path, "type", ["string"])
    if len(wild) == 2:
        return Test(path, "matches", f"(?i){regexp_of(text)}") if ignore_case else contains_text(path, text)
    return Test(path, f"{'ends_with' if wild == [0] else 'starts_with'}{case}", text)


def _read(value: Any, place: str, *, order: bool = False) -> list[Any]:
    """Return the values of an event that a literal equals, in columns of numbers, booleans, UUIDs and texts."""
    if not isinstance(value, str):
        return [number(value, place) if isinstance(value, int | float) and not isinstance(value, bool) else value]
    text = value.strip(_SPACES)
    if _TIME.match(text):
        instead = "timestamp(data.at) > timestamp('2026-01-31T00:00:00Z')" if order else "data.day == '2026-01-31'"
        refuse(f"dates and times have several spellings; write this condition in CEL, as {instead}", place)
    if text.startswith(("{", "[")):
        refuse("lists, ranges and JSON cannot be translated; write this condition in CEL", place)
    values: list[Any] = [value]
    if _UUID.fullmatch(text) and text.lower() != value:
        values.append(text.lower())
    if _NUMBER.fullmatch(text):
        values.append(number(float(text) if re.search(r"[.eE]", text) else int(text[:30]), place))
    if text.lower() in _BOOLEANS:
        values.append(_BOOLEANS[text.lower()])
    return values
