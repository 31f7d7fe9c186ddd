"""Patterns of LIKE and regular expressions of PostgreSQL, as conditions (docs/coming-from/sql.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from streamer.errors import SubscriptionError
from streamer.importing.conditions import Condition, Path, Test, contains_text
from streamer.subscriptions.cel_text import regexp_of
from streamer.subscriptions.to_sql import SAME_REGEXP


@final
@dataclass(frozen=True, slots=True)
class Wild:
    """A wildcard of LIKE: `_`, or `%` if it is any number of characters."""

    is_many: bool


MANY: Final = Wild(True)
ONE: Final = Wild(False)
#: Characters and wildcards.
Pattern: TypeAlias = Sequence[str | Wild]


def like_pattern(text: str, escape: str) -> Pattern:
    r"""Return the characters and wildcards of a pattern of LIKE.

    Args:
        escape: the character that makes a wildcard literal, `\` by default; empty if there is none.

    Raises:
        SubscriptionError: the escape stands at the end, or is not one character.
    """
    if len(escape) > 1:
        raise SubscriptionError("expected one character after ESCAPE")
    parts: list[str | Wild] = []
    characters = iter(text)
    for each in characters:
        if each == escape:
            literal = next(characters, None)
            if literal is None:
                raise SubscriptionError("a pattern of LIKE that ends with its escape character")
            parts.append(literal)
        else:
            parts.append({"%": MANY, "_": ONE}.get(each, each))
    return parts


def like(path: Path, pattern: Pattern, *, ignore_case: bool = False) -> Condition:
    """Return a condition that is true for texts of a pattern.

    Args:
        ignore_case: compare the simple case foldings of both.
    """
    but = " but for case" if ignore_case else ""
    start = 1 if pattern[:1] == [MANY] else 0
    end = len(pattern) - 1 if len(pattern) > start and pattern[-1] == MANY else len(pattern)
    middle = pattern[start:end]
    if any(isinstance(each, Wild) for each in middle):
        return Test(path, "matches", f"(?{'i' if ignore_case else ''}s)^{_regexp(pattern)}$")
    text = "".join(map(str, middle))
    if start and end < len(pattern):
        return contains_text(path, text, ignore_case=ignore_case)
    if not start and end == len(pattern):
        return Test(path, f"=={but}", text)
    return Test(path, ("ends_with" if start else "starts_with") + but, text)


def like_of_any_case(path: Path, pattern: Pattern) -> Condition:
    """Return a condition that is true for texts of a pattern, whatever the case of letters of ASCII.

    Raises:
        SubscriptionError: the pattern has letters beyond ASCII, whose case depends on the locale of the database.
    """
    text = "".join(_texts(pattern)).lower()
    if not text.isascii():
        raise SubscriptionError(
            "the case of letters beyond ASCII depends on the locale of a database; compare without lower(), ILIKE"
        )
    # Case folding also makes the sign of Kelvin a `k`, and the long s an `s`.
    if not {"k", "s"} & set(text):
        return like(path, pattern, ignore_case=True)
    return Test(path, "matches", f"(?s)^{_regexp(pattern, any_case=True)}$")


def check_case(pattern: Pattern, *, is_upper: bool) -> None:
    """Raise an error for a pattern that the result of `lower()` or `upper()` never has.

    Raises:
        SubscriptionError: it has a letter of the other case.
    """
    text = "".join(_texts(pattern))
    if text != (text.upper() if is_upper else text.lower()):
        name, case = ("upper", "lower") if is_upper else ("lower", "upper")
        raise SubscriptionError(f"{name}() never returns this {case} case text; the condition is never true")


def _texts(pattern: Pattern) -> Iterable[str]:
    return (each for each in pattern if isinstance(each, str))


def _regexp(pattern: Pattern, *, any_case: bool = False) -> str:
    return "".join(
        (".*" if each.is_many else ".")
        if isinstance(each, Wild)
        else f"[{each.lower()}{each.upper()}]"
        if any_case and each.isalpha()
        else regexp_of(each)
        for each in pattern
    )


def regexp(text: str) -> str:
    """Return a regular expression of PostgreSQL in RE2.

    Raises:
        SubscriptionError: it has syntax that may mean something else in RE2.
    """
    if not SAME_REGEXP.fullmatch(text):
        raise SubscriptionError(
            "this regular expression may mean something else in RE2; supported are characters, '.', classes such as [a-z], "
            "*, +, ?, ^ at the begin and $ at the end. Write others in CEL: data.name.matches('^(a|b)')"
        )
    return f"(?s){text}"
