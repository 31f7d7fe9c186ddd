r"""Parse the regular expressions of patterns, and translate them for RE2 (semantics.md section 5).

The syntax is I-Regexp (RFC 9485), without anchors, back references, lazy quantifiers and `\d`; `^` and `$` are ordinary
characters. A regexp matches a whole string. The two dialects differ in three things:

| | eventbridge: RFC 9485 as written | strict: Quamina's REGEXP.md |
|---|---|---|
| escapes | `\.`, `\p{L}`; `~` is a character | `~.`, `~p{L}`; `\` is a character |
| `.` | any character but line feed and carriage return | any character |
| counts | `a{1000}` | at most 99 |

Invariant: RE2 compiles every accepted regexp. Two limits of RE2 guarantee this: counts that nest multiply to at most 1,000, and
one regexp has at most 10,000 states. States are counted in a way that is easy to reimplement. A character, `.` and `|` are 1. A
class is the number of its items, at least 1; a category (`\p{L}`, 1,200 instructions in RE2) is 100. Brackets are the sum of
their content, at least 1. `{n,m}` multiplies by m, `{n,}` by n, both at least by 1. The whole adds 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn, final

import re2

from streamer.model import Dialect

MAX_NESTED_COUNT = 1000
MAX_STATES = 10_000
MAX_DEPTH = 64
CATEGORY_STATES = 100
STRICT_MAX_COUNT = 99

_CATEGORIES = {
    initial + detail
    for initial, details in {"L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps", "C": "cfno"}.items()
    for detail in ("", *details)
}
# Categories with unassigned code points, which RE2 cannot name.
_WITH_UNASSIGNED = {"C", "Cn"}

_NOT_NORMAL = frozenset("()*+.?[\\]{|}")
_NOT_IN_CLASS = frozenset("-[\\]")
_ESCAPABLE = frozenset("()*+-.?[\\]^{|}")
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


class RegexpError(ValueError):
    """An invalid regexp, with the position of the error in characters from 0."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason}, at character {position} of the regexp")
        self.reason = reason
        self.position = position


@final
@dataclass(frozen=True, slots=True)
class Translated:
    """A regexp in RE2's syntax, and its number of states."""

    re2: str
    states: int


@lru_cache(maxsize=4096)
def compile_re2(translated: str) -> re2._Regexp[bytes]:
    """Return the compiled result of `translate`; use its `fullmatch` on UTF-8 bytes."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    # 10,000 states are up to 130,000 instructions, slightly too many for RE2's default of 8 MiB.
    options.max_mem = 32 << 20
    return re2.compile(translated.encode(), options)


def translate(source: str, dialect: Dialect) -> Translated:
    """Return a regexp in RE2's syntax.

    Raises:
        RegexpError: the regexp is not an I-Regexp, or it is too large.
    """
    return _Parser(source, strict=dialect == "strict").parse()


@dataclass(slots=True)
class _Group:
    """An open pair of brackets."""

    at: int
    text: list[str] = field(default_factory=list)  # RE2 syntax, an element for each piece
    states: int = 0
    count: int = 1  # the largest product of nested counts inside
    last: tuple[int, int] | None = None  # states and counts of the atom that a quantifier would apply to


class _Parser:
    def __init__(self, source: str, *, strict: bool) -> None:
        self.source = source
        self.strict = strict
        self.escape = "~" if strict else "\\"
        self.at = 0

    def parse(self) -> Translated:
        stack = [_Group(0)]
        while self.at < len(self.source):
            at, char = self.at, self.source[self.at]
            group = stack[-1]
            if char == "(":
                if len(stack) > MAX_DEPTH:
                    self._fail(f"brackets nest deeper than {MAX_DEPTH}")
                stack.append(_Group(at))
                self.at += 1
            elif char == ")":
                if len(stack) == 1:
                    self._fail("')' without '('")
                self.at += 1
                stack.pop()
                self._add(stack[-1], f"(?:{''.join(group.text)})", max(1, group.states), group.count)
            elif char == "|":
                group.text.append("|")
                group.states += 1
                group.last = None
                self.at += 1
            elif char in "*+?{":
                self._quantifier(group)
            else:
                text, states = self._atom(char)
                self._add(group, text, states, 1)
            if stack[-1].states >= MAX_STATES:
                self._fail(f"the regexp has more than {MAX_STATES} states")
        if len(stack) > 1:
            self.at = stack[-1].at
            self._fail("'(' without ')'")
        return Translated("".join(stack[0].text), stack[0].states + 1)

    def _add(self, group: _Group, text: str, states: int, count: int) -> None:
        group.text.append(text)
        group.states += states
        group.count = max(group.count, count)
        group.last = states, count

    def _quantifier(self, group: _Group) -> None:
        if group.last is None:
            self._fail(f"{self.source[self.at]!r} must follow the part that it repeats")
        at = self.at
        states, count = group.last
        if self.source[at] != "{":
            self.at += 1
            text, factor = self.source[at], 1
        else:
            text, factor = self._range()
        if count * factor > MAX_NESTED_COUNT:
            self.at = at
            self._fail(f"nested counts multiply to more than {MAX_NESTED_COUNT}")
        group.text.append(text)
        group.states += states * (factor - 1)
        group.count = max(group.count, count * factor)
        group.last = None

    def _range(self) -> tuple[str, int]:
        """Read `{n}`, `{n,}` or `{n,m}`, and return its text and its multiplier."""
        at = self.at
        self.at += 1
        low = self._count()
        high: int | None = low
        if self._peek() == ",":
            self.at += 1
            high = None if self._peek() == "}" else self._count()
        if self._peek() != "}":
            self._fail("expected '}' after a count")
        self.at += 1
        if high is not None and high < low:
            self.at = at
            self._fail("the upper count is less than the lower one")
        # Rewritten, because RE2 reads a count with leading zeros as text.
        text = f"{{{low}}}" if high == low else f"{{{low},{'' if high is None else high}}}"
        return text, max(1, low if high is None else high)

    def _count(self) -> int:
        at = self.at
        while self._peek() in set("0123456789"):
            self.at += 1
        digits = self.source[at : self.at].lstrip("0")
        if self.at == at:
            self._fail("expected a count")
        most = STRICT_MAX_COUNT if self.strict else MAX_NESTED_COUNT
        if len(digits) > 4 or int(digits or "0") > most:
            self.at = at
            self._fail(f"a count is at most {most}")
        return int(digits or "0")

    def _atom(self, char: str) -> tuple[str, int]:
        if char == ".":
            self.at += 1
            return ("(?s:.)" if self.strict else r"[^\n\r]"), 1
        if char == "[":
            return self._class()
        if char == self.escape:
            category = self._category()
            if category is not None:
                return f"[{category}]", CATEGORY_STATES
            return _literal(self._escaped()), 1
        if char in _NOT_NORMAL and not (char == "\\" and self.strict):
            self._fail(f"{char!r} must be escaped")
        self.at += 1
        return _literal(char), 1

    def _escaped(self) -> str:
        """Read an escape for one character."""
        char = self.source[self.at + 1 : self.at + 2]
        if not char:
            self._fail(f"{self.escape!r} at the end")
        if char not in _ESCAPABLE and char not in _CONTROLS and not (self.strict and char == "~"):
            self._fail(f"unknown escape {self.escape + char!r}")
        self.at += 2
        return _CONTROLS.get(char, char)

    def _category(self) -> str | None:
        """Read `p{..}` or `P{..}`, if there is one here, and return items of an RE2 class."""
        kind = self.source[self.at + 1 : self.at + 2]
        if kind not in ("p", "P"):
            return None
        end = self.source.find("}", self.at, self.at + 7)
        name = self.source[self.at + 3 : end]
        if self.source[self.at + 2 : self.at + 3] != "{" or end < 0 or name not in _CATEGORIES:
            self._fail(f"expected a Unicode category, as in '{self.escape}p{{Lu}}'")
        self.at = end + 1
        if name not in _WITH_UNASSIGNED:
            return f"\\{kind}{{{name}}}"
        return _unassigned(name == "C", kind == "P")

    def _class(self) -> tuple[str, int]:
        start = self.at
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        items: list[str] = []
        states = 0
        if self._peek() == "-":
            self.at += 1
            items.append(_literal("-"))
            states += 1
        while (char := self._peek()) != "]":
            if not char:
                self.at = start
                self._fail("'[' without ']'")
            if char == "-":
                if not items or self.source[self.at + 1 : self.at + 2] != "]":
                    self._fail("'-' in a class must stand first, last, or between two characters")
                self.at += 1
                items.append(_literal("-"))
                states += 1
                continue
            category = self._category() if char == self.escape else None
            if category is not None:
                items.append(category)
                states += CATEGORY_STATES
                continue
            items.append(self._class_range())
            states += 1
        if not items:
            self._fail("a class must not be empty")
        self.at += 1
        return f"[{'^' * negated}{''.join(items)}]", states

    def _class_range(self) -> str:
        at = self.at
        low = self._class_char()
        following = self.source[self.at + 1 : self.at + 2]
        if self._peek() != "-" or following in ("]", ""):
            return _literal(low)
        self.at += 1
        high = self._class_char()
        if high < low:
            self.at = at
            self._fail(f"the range {low!r} to {high!r} is empty")
        return f"{_literal(low)}-{_literal(high)}"

    def _class_char(self) -> str:
        char = self._peek()
        if char == self.escape:
            return self._escaped()
        if char in _NOT_IN_CLASS and not (char == "\\" and self.strict):
            self._fail(f"{char!r} in a class must be escaped")
        self.at += 1
        return char

    def _peek(self) -> str:
        return self.source[self.at : self.at + 1]

    def _fail(self, reason: str) -> NoReturn:
        raise RegexpError(reason, self.at)


def _literal(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}"


@lru_cache(maxsize=4)
def _unassigned(with_other_controls: bool, negated: bool) -> str:
    """Return category C or Cn, or its complement, as items of a class.

    RE2 can neither name unassigned code points nor subtract classes. So match every code point against the assigned categories:
    the result fits RE2's version of Unicode. That takes a fifth of a second, once.
    """
    assigned = r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}" + ("" if with_other_controls else r"\p{Cc}\p{Cf}\p{Co}\p{Cs}")
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    runs = re2.finditer(f"[{'' if negated else '^'}{assigned}]+", every)
    return "".join(f"{_literal(run[0][0])}-{_literal(run[0][-1])}" for run in runs)
