"""Regexps of PCRE and PostgreSQL as regexps of RE2, which CEL has.

    PCRE        ^a.b\\s$      ^a.b[\\s\\v]\\n?$      `$` also matches before a last line feed, and `\\s` has the vertical tab
    PostgreSQL  ^a.b$        (?s)^a.b$           `.` matches a line feed, too

A regexp is translated part by part. A part is refused if RE2 lacks it, such as a lookahead, or if its meaning depends on the
database, such as `\\d` in PostgreSQL.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn, final

from streamer.errors import SubscriptionError
from streamer.subscriptions.cel_text import regexp_of

_COUNT: Final = re.compile(r"\{\d+(?:,\d*)?\}")
_FLAGS: Final = re.compile(r"\(\?([is]+)\)")
_CONTROLS: Final = "nrtf"
_MOST_CHARACTERS: Final = 16_384


def from_pcre(pattern: str, *, flags: str = "") -> str:
    """Return a regexp of PCRE2 without options but UTF, and *flags* of `i` and `s`, as one of RE2.

    Raises:
        SubscriptionError: a part has no equal; `place` is its character.
    """
    if inline := _FLAGS.match(pattern):
        return _Reader(pattern, inline.end(), flags + inline[1], pcre=True).read()
    return _Reader(pattern, 0, flags, pcre=True).read()


def from_postgres(pattern: str, *, ignore_case: bool = False) -> str:
    """Return an advanced regular expression of PostgreSQL as one of RE2.

    Raises:
        SubscriptionError: a part has no equal; `place` is its character.
    """
    return _Reader(pattern, 0, "si" if ignore_case else "s", pcre=False).read()


def _either_case(char: str) -> str:
    """Return a regexp for a character in lower and upper case, as PostgreSQL's `~*` compares.

    RE2's `(?i)` has more cases: there `k` equals the sign of Kelvin, and `s` the long s.
    """
    lower, upper = char.lower(), char.upper()
    return f"[{lower}{upper}]" if lower != upper and len(lower) == len(upper) == 1 else regexp_of(char)


@final
class _Reader:
    """Reads a regexp once, from left to right."""

    def __init__(self, text: str, start: int, flags: str, *, pcre: bool) -> None:
        self._text = text
        self._at = start
        self._pcre = pcre
        self._ignore_case = "i" in flags
        # RE2's own `(?i)` has the cases of PCRE; PostgreSQL's are written out.
        shown = "".join(sorted(set(flags) if pcre else {"s"} if "." in text else set()))
        self._out = [f"(?{shown})"] if shown else []
        self._depth = 0
        self._repeatable = False

    def read(self) -> str:
        if len(self._text) > _MOST_CHARACTERS:
            self._refuse(f"expected a regexp of at most {_MOST_CHARACTERS:,} characters")
        while self._at < len(self._text):
            self._part()
        if self._depth:
            self._refuse("this regexp has an open group")
        return "".join(self._out)

    def _part(self) -> None:
        match self._text[self._at]:
            case "\\":
                self._emit(self._escape(), 2)
            case "[":
                self._class()
            case "(":
                self._open()
            case ")":
                if not self._depth:
                    self._refuse("this regexp has a `)` without a `(`")
                self._depth -= 1
                self._emit(")", 1)
            case "*" | "+" | "?" | "{":
                self._repeat()
            case "|" | "^" as char:
                self._emit(char, 1, repeatable=False)
            case "$":
                self._emit(self._end(), 1, repeatable=False)
            case ".":
                self._emit(".", 1)
            case "\0":
                self._refuse("a regexp cannot contain a NUL")
            case char:
                self._emit(_either_case(char) if self._ignore_case and not self._pcre else regexp_of(char), 1)

    def _emit(self, text: str, width: int, *, repeatable: bool = True) -> None:
        self._out.append(text)
        self._at += width
        self._repeatable = repeatable

    def _escape(self, *, in_class: bool = False) -> str:
        char = self._text[self._at + 1 : self._at + 2]
        if char in _CONTROLS and char:
            return f"\\{char}"
        if char.isascii() and char.isprintable() and not char.isalnum() and char:
            return f"\\{char}" if in_class and char in "\\]^-[" else regexp_of(char)
        if not self._pcre or not char:
            self._refuse(f"`\\{char}` of a regexp depends on the database; write a class such as [0-9]")
        if char in "wW" and self._ignore_case:
            self._refuse(f"`\\{char}` means more in RE2 if case is ignored; write [A-Za-z0-9_]")
        if char == "s":
            return r"\s\v" if in_class else r"[\s\v]"
        if char in "dw" or (char in "DWbB" and not in_class):
            return f"\\{char}"
        if char == "S" and not in_class:
            return r"[^\s\v]"
        raise self._error(f"`\\{char}` of a regexp has no equal in RE2")

    def _open(self) -> None:
        rest = self._text[self._at : self._at + 3]
        if rest[1:2] == "*" or (rest[1:2] == "?" and rest != "(?:"):
            self._refuse(f"`{rest}` of a regexp (lookarounds, options, names) has no equal in RE2")
        self._depth += 1
        self._emit(*(("(?:", 3) if rest == "(?:" else ("(", 1)), repeatable=False)

    def _repeat(self) -> None:
        count = _COUNT.match(self._text, self._at)
        if self._text[self._at] == "{" and count is None:
            self._refuse("expected `{2}`, `{2,}` or `{2,3}`; write `\\{` for the character")
        if not self._repeatable:
            self._refuse("expected a character or a group before this repetition")
        text = count[0] if count else self._text[self._at]
        if self._text.startswith("?", self._at + len(text)):
            text += "?"
        elif self._text.startswith("+", self._at + len(text)):
            self._refuse("possessive repetitions such as `*+` have no equal in RE2")
        self._emit(text, len(text), repeatable=False)

    def _end(self) -> str:
        if not self._pcre:
            return "$"
        rest = self._text[self._at + 1 :]
        if rest.strip(")") and (self._depth or not rest.startswith("|")):
            self._refuse("`$` has an equal in RE2 only at the end of a regexp")
        return r"\n?$"

    def _class(self) -> None:
        """Read a class such as `[^a-z_]`."""
        out = ["["]
        self._at += 1
        if self._text.startswith("^", self._at):
            out.append("^")
            self._at += 1
        items = 0
        while not self._text.startswith("]", self._at) or not items:
            out.append(self._item(first=not items))
            items += 1
        self._emit("".join([*out, "]"]), 1)

    def _item(self, *, first: bool) -> str:
        start, shown = self._member()
        if start == "-" and not first and not self._text.startswith("]", self._at):
            self._refuse("write `-` first or last in a class, or `\\-`")
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return shown + (self._other_case(start) if start and self._folds(start) else "")
        self._at += 1
        end, shown_end = self._member()
        if not start or not end or start > end:
            self._refuse("expected a range such as a-z in this class")
        cased = self._other_range(start, end) if self._folds(start) or self._folds(end) or self._wide(start, end) else ""
        return f"{shown}-{shown_end}{cased}"

    def _member(self) -> tuple[str, str]:
        """Return a character of a class, "" for several, and how it is written in RE2."""
        char = self._text[self._at : self._at + 1]
        if not char or char in "[]\0":
            self._refuse("expected a class such as [a-z]; write `\\[` and `\\]` for the characters")
        if char == "\\":
            shown, char = self._escape(in_class=True), self._text[self._at + 1]
            self._at += 2
            return ("" if char.isalnum() else char), shown
        self._at += 1
        return char, f"\\{char}" if char in "^&~" else char

    def _folds(self, char: str) -> bool:
        return self._ignore_case and not self._pcre and char.isalpha()

    def _wide(self, start: str, end: str) -> bool:
        return self._ignore_case and not self._pcre and not (start.isdigit() and end.isdigit())

    def _other_case(self, char: str) -> str:
        return "".join({char.lower(), char.upper()} - {char}) if len(char.lower()) == len(char.upper()) == 1 else ""

    def _other_range(self, start: str, end: str) -> str:
        both = start + end
        if not (both.isascii() and both.isalpha() and (both.islower() or both.isupper())):
            self._refuse("without regard to case, expected a range of letters of one case, such as a-z")
        return f"{start.swapcase()}-{end.swapcase()}"

    def _refuse(self, reason: str) -> NoReturn:
        raise self._error(reason)

    def _error(self, reason: str) -> SubscriptionError:
        return SubscriptionError(reason, place=f"character {self._at + 1}")
