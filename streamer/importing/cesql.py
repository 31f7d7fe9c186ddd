"""Translate expressions of CloudEvents SQL 1.0: `subject = 'paid' AND EXISTS traceid`, one a line.

https://github.com/cloudevents/spec/blob/cesql/v1.0.0/cesql/spec.md

The attributes are those of the `envelope`, which the format `cloudevents` reads. An event passes if an expression is true without
an error (1.2). So an error of CEL stands for one of CESQL, and both mean no match. cesql_values.py has the meaning of each part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn, final

from streamer.errors import SubscriptionError
from streamer.importing.cesql_values import (
    LEAST,
    MOST,
    Value,
    attribute,
    called,
    compared,
    computed,
    constant,
    contained,
    exists,
    like,
    located,
    logic,
    negated,
    passing,
)
from streamer.importing.conditions import subscription_parts
from streamer.importing.rules import Rule, text_rules

#: Longer rules have more CEL than an engine accepts.
_MAX_LENGTH: Final = 32 * 1024
_MAX_DEPTH: Final = 32

#: A filter in the Subscriptions API of CloudEvents, and in a Trigger of Knative: `{"cesql": "type = 'a'"}`.
_DIALECTS: Final = frozenset(("sql", "cesql"))

_SPACES: Final = re.compile(r"[ \t\r\n]*")
_TOKEN: Final = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<word>\w+)|(?P<sign><>|!=|<=|>=|[=<>+\-*/%(),])""", re.DOTALL | re.ASCII
)
_KEYWORDS: Final = frozenset("AND OR XOR NOT LIKE EXISTS IN TRUE FALSE".split())
#: The binary operators, those that bind least first; those of logic bind even less (3.6).
_LEVELS: Final = (("=", "!=", "<>", "<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))
_LOGIC: Final = ("AND", "OR", "XOR")


def rules(text: str) -> Iterator[Rule]:
    """Yield the expressions of a file, one a line: as text, or as a filter such as `{"cesql": "type = 'a'"}`."""
    return text_rules(text, _translate, comment="#")


def _translate(rule: Any) -> Mapping[str, Any]:
    if isinstance(rule, dict) and len(rule) == 1 and rule.keys() <= _DIALECTS:
        (rule,) = rule.values()
    if not isinstance(rule, str):
        raise SubscriptionError("expected an expression as text")
    if len(rule) > _MAX_LENGTH:
        raise SubscriptionError(f"a rule of {len(rule)} characters; at most {_MAX_LENGTH} are allowed")
    return subscription_parts(passing(_Parser(rule).parsed()))


@final
class _Token(NamedTuple):
    """A part of the text: a `word` or `sign` in upper case, a `text` with its quotes, or the `end`."""

    kind: str
    text: str
    at: int


def _tokens(rule: str) -> Iterator[_Token]:
    at = _SPACES.match(rule, 0).end()  # type: ignore[union-attr]  # it matches everywhere
    while at < len(rule):
        match = _TOKEN.match(rule, at)
        if match is None:
            what = "this text has no end" if rule[at] in "'\"" else f"{rule[at]!r} is not part of the language"
            raise SubscriptionError(what, place=f"column {at + 1}")
        kind = str(match.lastgroup)
        yield _Token(kind, match[0] if kind == "text" else match[0].upper(), at)
        at = _SPACES.match(rule, match.end()).end()  # type: ignore[union-attr]
    yield _Token("end", "", at)


@final
class _Parser:
    """A parser by precedence, which combines the parts as it reads them."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._tokens = list(_tokens(rule))
        self._next = 0
        self._depth = 0

    def parsed(self) -> Value:
        value = self._expression()
        if self._peek.kind != "end":
            self._refuse("expected an operator or the end")
        return value

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, *texts: str) -> str:
        return self._take().text if self._peek.kind in ("word", "sign") and self._peek.text in texts else ""

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._refuse(f"expected {text!r}")

    def _refuse(self, reason: str, token: _Token | None = None) -> NoReturn:
        token = token or self._peek
        said = f", not {self._rule[token.at : token.at + 20]!r}" if reason.startswith("expected") and token.kind != "end" else ""
        raise SubscriptionError(reason + said, place=f"column {token.at + 1}")

    def _made(self, token: _Token, make: Callable[..., Value], *operands: Any) -> Value:
        """Return a combination of parts; its errors have the token's place."""
        try:
            return located(make(*operands), token.at + 1)
        except SubscriptionError as error:
            error.place = f"column {token.at + 1}"
            raise

    def _expression(self) -> Value:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse(f"nested deeper than {_MAX_DEPTH} levels")
        first = self._peek
        operands, operator = [self._binary(0)], ""
        while (token := self._peek).kind == "word" and token.text in _LOGIC:
            if operator and token.text != operator:
                self._refuse(
                    f"{operator} and {token.text} without parentheses: the specification reads them from left to right, its "
                    "grammar from right to left; add parentheses"
                )
            operator = self._take().text
            operands.append(self._binary(0))
        self._depth -= 1
        return self._made(first, logic, operator, operands) if operator else operands[0]

    def _binary(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self._contained()
        left = self._binary(level + 1)
        while (token := self._peek).kind == "sign" and token.text in _LEVELS[level]:
            right = (self._take(), self._binary(level + 1))[1]
            left = self._made(token, computed if level else compared, token.text, left, right)
        return left

    def _contained(self) -> Value:
        """Read `LIKE`, which binds more, and `IN`."""
        value = self._unary()
        is_set = False
        while True:
            token, following = self._peek, self._tokens[min(self._next + 1, len(self._tokens) - 1)]
            is_negated = (token.kind, token.text) == ("word", "NOT")
            word = following if is_negated else token
            if word.kind != "word" or word.text not in ("LIKE", "IN") or (is_set and word.text == "LIKE"):
                return value
            self._next += 1 + is_negated
            is_set = word.text == "IN"
            value = self._made(token, contained, value, self._list()) if is_set else self._like(value)
            value = negated(value) if is_negated else value

    def _like(self, value: Value) -> Value:
        if (token := self._peek).kind != "text":
            self._refuse("expected a text in quotes behind LIKE")
        return self._made(token, like, value, self._text(self._take()))

    def _list(self) -> list[Value]:
        self._expect("(")
        items = [self._expression()]
        while self._accept(","):
            items.append(self._expression())
        self._expect(")")
        return items

    def _unary(self) -> Value:
        signs: list[_Token] = []
        while self._peek.text in ("NOT", "-") and self._peek.kind != "text":
            signs.append(self._take())
        value = self._primary(signs)
        if len(signs) > _MAX_DEPTH:
            self._refuse(f"nested deeper than {_MAX_DEPTH} levels", signs[0])
        for token in reversed(signs):
            value = (
                self._made(token, negated, value) if token.text == "NOT" else self._made(token, computed, "-", constant(0), value)
            )
        return value

    def _primary(self, signs: list[_Token]) -> Value:
        token = self._take()
        if token.kind == "text":
            return constant(self._text(token))
        if token.text == "(":
            value = self._expression()
            self._expect(")")
            return value
        if token.text == "+" and self._peek.text.isdecimal() and self._peek.at == token.at + 1:
            token = self._take()
        if token.text.isdecimal():
            # The least integer has no positive counterpart.
            is_negative = bool(signs) and signs[-1].text == "-" and signs.pop() is not None
            return self._integer(token, is_negative)
        if token.kind != "word" or token.text in _KEYWORDS - {"TRUE", "FALSE", "EXISTS"}:
            self._refuse("expected a value", token)
        if token.text in ("TRUE", "FALSE"):
            return constant(token.text == "TRUE")
        if token.text == "EXISTS":
            return self._made(token, exists, self._name(self._take()))
        if (self._peek.kind, self._peek.text) == ("sign", "("):
            return self._call(token)
        return self._made(token, attribute, self._name(token))

    def _integer(self, token: _Token, is_negative: bool) -> Value:
        digits = token.text.lstrip("0") or "0"
        number = int(digits[:12]) * (-1 if is_negative else 1)
        if not LEAST <= number <= MOST:
            self._refuse(f"an integer is from {LEAST} to {MOST}", token)
        return constant(number)

    def _name(self, token: _Token) -> str:
        if token.kind != "word" or token.text in _KEYWORDS or "_" in token.text or token.text.isdecimal():
            self._refuse("expected the name of an attribute, of letters and digits", token)
        return token.text.lower()

    def _text(self, token: _Token) -> str:
        quote, inner = token.text[0], token.text[1:-1]
        if inner.endswith("\\") or self._rule[token.at + len(token.text) :].startswith(quote):
            self._refuse(
                f"implementations read this text differently; write a quote in it as \\{quote}, and no \\ at its end", token
            )
        return inner.replace(f"\\{quote}", quote)

    def _call(self, token: _Token) -> Value:
        self._take()
        arguments: list[Value] = []
        if not self._accept(")"):
            arguments.append(self._expression())
            while self._accept(","):
                arguments.append(self._expression())
            self._expect(")")
        return self._made(token, called, token.text, arguments)
