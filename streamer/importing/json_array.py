"""Regexps for the text of a JSON array whose elements are texts, numbers, `true`, `false` or `null`.

["rugby", "tennis"]      an element that is rugby:  ^(?:[^"]|"(?:[^"\\\\]|\\\\.)*")*"rugby"

CEL does not read JSON, but such arrays are a regular language. A regexp begins at the beginning of the array and takes whole
texts, because the wanted one might stand inside of another. A character also matches in its escaped forms, except letters, digits
and some signs, which no writer escapes. A number matches without an exponent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from streamer.importing.number_ranges import range_regexps
from streamer.subscriptions.cel_text import regexp_of
from streamer.subscriptions.matchers import Equal, EqualsIgnoreCase, Matcher, Numeric, Prefix, Suffix, Wildcard

#: The matchers of texts that a regexp expresses.
Affix: TypeAlias = Prefix | Suffix | EqualsIgnoreCase | Wildcard

#: An array that is not empty has a character of an element.
ANY_ELEMENT: Final = r"[^\s\[\]]"

#: What stands before an element: whole texts, and any other characters.
_BEFORE: Final = r'(?:[^"]|"(?:[^"\\]|\\.)*")*'
#: An array with an element that is neither null nor an empty text.
ANY_VALUE: Final = rf'^{_BEFORE}(?:"[^"]|[\[,\s][-0-9tf])'
#: Any characters of a text in JSON.
_ANY: Final = r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*'
_PLAIN: Final = re.compile(r"[ a-zA-Z0-9_.:;@,!?#%$*~^|(){}\[\]-]")
_SHORT: Final = {'"': r"\"", "\\": "\\\\", "/": r"\/", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def some_element(matchers: Iterable[Matcher]) -> str | None:
    """Return a regexp for arrays with an element for which a matcher is true; None if there is no such element."""
    texts = [each[1:-1] for each in _elements(matchers) if each.startswith('"')]
    words = [each for each in _elements(matchers) if not each.startswith('"')]
    wanted = [f'"{_one_of(texts)}"'] if texts else []
    wanted += [rf"[\[,\s]{_one_of(words)}[,\]\s]"] if words else []
    return f"^{_BEFORE}{_one_of(wanted)}" if wanted else None


def only_elements(matchers: Iterable[Matcher]) -> str:
    """Return a regexp for arrays that are not empty, and for each of whose elements a matcher is true."""
    element = _one_of(list(_elements(matchers)))
    return rf"^\s*\[\s*{element}\s*(?:,\s*{element}\s*)*\]\s*$"


def plain_regexp(matcher: Affix) -> str:
    """Return a regexp for the texts for which a matcher is true, as they are."""
    return f"(?s)^{_affix(matcher, regexp_of, '.*')}$"


def _one_of(regexps: Sequence[str]) -> str:
    return regexps[0] if len(regexps) == 1 else f"(?:{'|'.join(regexps)})"


def _elements(matchers: Iterable[Matcher]) -> Iterator[str]:
    """Yield a regexp for the elements for which each matcher is true."""
    for matcher in matchers:
        match matcher:
            case Equal(None):
                yield "null"
            case Equal(bool(value)):
                yield "true" if value else "false"
            case Equal(str(text)):
                yield f'"{_escaped(text)}"'
            case Equal(int() | float() as value):
                yield _number(value)
            case Numeric(low, low_inclusive, high, high_inclusive):
                yield from range_regexps(low, low_inclusive, high, high_inclusive)
            case Prefix() | Suffix() | EqualsIgnoreCase() | Wildcard():
                literal = _escaped_cases if _ignores_case(matcher) else _escaped
                yield f'"{_affix(matcher, literal, _ANY)}"'


def _ignores_case(matcher: Affix) -> bool:
    return isinstance(matcher, EqualsIgnoreCase) or (isinstance(matcher, Prefix | Suffix) and matcher.ignore_case)


def _affix(matcher: Affix, literal: Callable[[str], str], anything: str) -> str:
    """Return a regexp for the texts for which a matcher is true, as *literal* prints parts of them."""
    match matcher:
        case Prefix(text):
            regexp = f"{literal(text)}{anything}"
        case Suffix(text):
            regexp = f"{anything}{literal(text)}"
        case EqualsIgnoreCase(text):
            regexp = literal(text)
        case Wildcard(pieces):
            regexp = anything.join(map(literal, pieces))
    return f"(?i:{regexp})" if _ignores_case(matcher) else regexp


def _escaped(text: str) -> str:
    return "".join(map(_character, text))


def _escaped_cases(text: str) -> str:
    """Return a regexp in which the code of a letter has the codes of its other cases next to it."""
    return "".join(map(_character_cases, text))


def _character_cases(char: str) -> str:
    characters = [_character(each) for each in dict.fromkeys((char, char.lower(), char.upper())) if len(each) == 1]
    return _character(char) if char.isascii() else _one_of(characters)


def _character(char: str) -> str:
    """Return a regexp for a character inside a text of JSON, as it is or escaped."""
    if _PLAIN.fullmatch(char):
        return regexp_of(char)
    spelled = [_code(char)]
    if char in _SHORT:
        spelled.append(regexp_of(_SHORT[char]))
    if char not in '"\\' and char >= " ":
        spelled.append(regexp_of(char))
    return f"(?:{'|'.join(spelled)})"


def _code(char: str) -> str:
    """Return a regexp for the escape by number, which is two numbers beyond 16 bits."""
    digits = char.encode("utf-16-be").hex()
    return "".join(rf"\\u(?i:{digits[i : i + 4]})" for i in range(0, len(digits), 4))


def _number(value: float) -> str:
    whole, _, fraction = format(abs(Decimal(repr(value))), "f").partition(".")
    fraction = fraction.rstrip("0")
    sign = "-?" if not value else "-" if value < 0 else ""
    return sign + whole + (rf"\.{fraction}0*" if fraction else r"(?:\.0+)?")
