"""Parse a text into a syntax tree; errors have line, column and the expected token.

Lark parses with the grammar of `cel.lark`; its LALR parser uses its own stack, so no text makes Python recurse. The tree is built
during parsing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any, Final, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from streamer.cel_eval.extensions import EXTENSIONS
from streamer.cel_eval.hints import hint
from streamer.cel_eval.tree import (
    At,
    Bind,
    Call,
    Chain,
    Has,
    Ident,
    Index,
    ListLiteral,
    Literal,
    Logic,
    Macro,
    MapLiteral,
    Method,
    Node,
    Operation,
    OptionalIndex,
    OptionalItem,
    OptionalSelect,
    Paren,
    Select,
    Step,
    Ternary,
    Unary,
    children,
)
from streamer.cel_eval.values import UInt
from streamer.errors import CelError
from streamer.model import INT64_MAX, INT64_MIN, UINT64_MAX, Limits

RESERVED: Final = frozenset(
    "as break const continue else for function if import let loop package namespace return var void while".split()
)

#: The value of every literal that is out of range because of its length.
BEYOND_64_BITS: Final = 2**64

#: Each macro with the numbers of arguments after its variables.
MACROS: Final[dict[str, tuple[int, ...]]] = {
    "all": (1,),
    "exists": (1,),
    "exists_one": (1,),
    "existsOne": (1,),
    "filter": (1,),
    "map": (1, 2),
    "optFlatMap": (1,),
    "optMap": (1,),
    "sortBy": (1,),
}
#: Macros over two variables: index and element of a list, key and value of a map.
MACROS_OF_TWO: Final[dict[str, tuple[int, ...]]] = {
    "all": (1,),
    "exists": (1,),
    "exists_one": (1,),
    "existsOne": (1,),
    "transformList": (1, 2),
    "transformMap": (1, 2),
}


def parse(source: str, limits: Limits) -> Node:
    """Return the syntax tree of *source*.

    Raises:
        CelError: *source* is not CEL, is longer than `limits.max_cel_bytes`, or is deeper than `limits.max_cel_depth` levels of
            brackets, calls, unary operators and ternaries.
    """
    try:
        length = len(source.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise _error("a lone surrogate is not a character", _place(source, error.start)) from None
    if length > limits.max_cel_bytes:
        raise _error(f"an expression of {length} bytes; at most {limits.max_cel_bytes} are allowed", (1, 1))
    try:
        # The transformer converts every tree to a node.
        root = cast(Node, _parser().parse(source))
    except UnexpectedInput as error:
        raise _syntax_error(source, error) from None
    _check_tree(root, limits.max_cel_depth)
    return root


@cache
def _parser() -> Lark:
    grammar = resources.files(__package__).joinpath("cel.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", transformer=_TreeBuilder(), maybe_placeholders=False)


def _error(reason: str, at: At) -> CelError:
    return CelError(reason, line=at[0], column=at[1], place="cel")


def _place(source: str, offset: int) -> At:
    line_start = source.rfind("\n", 0, offset) + 1
    return source.count("\n", 0, offset) + 1, offset - line_start + 1


def offset_of(source: str, at: At) -> int:
    """Return the offset in *source* of a line and a column."""
    start = 0
    for _ in range(at[0] - 1):
        start = source.index("\n", start) + 1
    return start + at[1] - 1


def _check_tree(root: Node, limit: int) -> None:
    """Refuse ints out of range, and a tree that is too deep to walk by recursion. The check itself is a loop."""
    stack: list[tuple[Node | Step, int]] = [(root, 0)]
    while stack:
        node, level = stack.pop()
        if isinstance(node, Literal) and type(node.value) is int and not INT64_MIN <= node.value <= INT64_MAX:
            raise _error(
                "beyond int, which is from -9223372036854775808 to 9223372036854775807; a uint is written with u", node.at
            )
        if not isinstance(node, Literal | Ident | Select | OptionalSelect | Operation | Logic | Chain):
            level += 1
            if level > limit:
                what = "brackets, calls, unary operators and ternaries"
                raise _error(f"nested too deeply; at most {limit} levels of {what} are allowed", node.at)
        stack.extend((child, level) for child in reversed(children(node)))


# --- errors of syntax -------------------------------------------------------------------------------------------------

_OPERATORS: Final = frozenset({"OR", "AND", "RELATION", "IN", "PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "QUESTION"})
_SPELLED: Final = {
    "RPAR": "`)`",
    "RSQB": "`]`",
    "RBRACE": "`}`",
    "_COLON": "`:`",
    "_COMMA": "`,`",
    "$END": "the end",
}


def _syntax_error(source: str, error: UnexpectedInput) -> CelError:
    if isinstance(error, UnexpectedToken):
        token = error.token
        expected = _in_words(set(error.accepts or error.expected))
        if token.type == "$END":
            return _error(f"the expression ends too early; expected {expected}", _place(source, len(source)))
        at = (token.line or 1, token.column or 1)
        if token.type == "IDENT" and "IDENT" not in error.expected and "field" in expected:
            return _error(f"`{shown(token)}` cannot stand here; expected {expected}", at)
        return _error(f"unexpected `{shown(token)}`; {_meant(source, at) or f'expected {expected}'}", at)
    if not isinstance(error, UnexpectedCharacters):
        return _error("this is not a CEL expression", (1, 1))
    at = (error.line, error.column)
    rest = source[error.pos_in_stream :]
    opened = re.match(r"[bBrR]{0,2}(\"\"\"|'''|\"|'|`)", rest)
    if opened:
        return _error(f"a {'name' if opened[1] == '`' else 'string'} that is not closed; expected {opened[1]}", at)
    keyword = re.match(r"(true|false|null|in)(?![_a-zA-Z0-9])", rest)
    if keyword:
        return _error(f"unexpected `{keyword[1]}`, a keyword; as the name of a field it is quoted with backticks", at)
    # The lexer accepts a token that can follow any value, so get the tokens that the parser accepts here.
    accepts = error.interactive_parser.accepts() if error.interactive_parser else error.allowed  # type: ignore[no-untyped-call]
    return _error(f"unexpected `{shown(rest[:1])}`; {_meant(source, at) or f'expected {_in_words(set(accepts or ()))}'}", at)


def _meant(source: str, at: At) -> str | None:
    offset = offset_of(source, at)
    return hint(source[:offset], source[offset:])


def shown(text: str) -> str:
    """Return a text of the source for an error: shortened, and with control characters escaped."""
    printable = "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in text[:40])
    return printable if len(text) <= 40 else f"{printable}..."


def _in_words(terminals: set[str]) -> str:
    words = []
    if terminals & {"INT", "LPAR"} >= {"INT", "LPAR"}:
        words.append("a value")
        terminals = terminals - _OPERATORS
    elif "IDENT" in terminals:
        words.append("the name of a field" if "QUOTED" in terminals else "a name")
    if "PLUS" in terminals:
        words.append("an operator")
    words += sorted({text for name, text in _SPELLED.items() if name in terminals})
    return " or ".join(words) if words else "something else"


# --- building the tree ------------------------------------------------------------------------------------------------


def _at(token: Token) -> At:
    return token.line or 1, token.column or 1


class _TreeBuilder(Transformer[Token, Any]):
    """Makes a node for each rule when Lark completes it; stateless, so all threads share one instance."""

    def ternary(self, parts: list[Any]) -> Node:
        condition, question, then, otherwise = parts
        branch = (_at(question), condition, then)
        if isinstance(otherwise, Ternary):
            otherwise.branches.insert(0, branch)
            return otherwise
        return Ternary([branch], otherwise)

    def disjunction(self, parts: list[Any]) -> Node:
        return Logic(_at(parts[1]), "||", parts[::2])

    def conjunction(self, parts: list[Any]) -> Node:
        return Logic(_at(parts[1]), "&&", parts[::2])

    def relation(self, parts: list[Any]) -> Node:
        rest = zip(parts[1::2], parts[2::2], strict=True)
        return Operation(parts[0], [(str(op), _at(op), operand) for op, operand in rest])

    addition = multiplication = relation

    def unary(self, parts: list[Any]) -> Node:
        *signs, operand = parts
        at, op = _at(signs[0]), str(signs[0])
        if op == "-":
            number = operand.base if isinstance(operand, Chain) else operand
            if isinstance(number, Literal) and type(number.value) in (int, float):
                # A sign next to a number belongs to it; otherwise, the smallest int could not be written.
                number.at, number.value = _at(signs.pop()), -number.value
                if not signs:
                    return cast(Node, operand)
        return Unary(at, op, len(signs), operand)

    def select(self, parts: list[Any]) -> Node:
        target, _, (at, name) = parts
        return _chain(target, Select(at, name))

    def index(self, parts: list[Any]) -> Node:
        target, bracket, key, _ = parts
        return _chain(target, Index(_at(bracket), key))

    def optional_select(self, parts: list[Any]) -> Node:
        target, _, _, (at, name) = parts
        return _chain(target, OptionalSelect(at, name))

    def optional_index(self, parts: list[Any]) -> Node:
        target, bracket, _, key, _ = parts
        return _chain(target, OptionalIndex(_at(bracket), key))

    def optional_item(self, parts: list[Any]) -> Node:
        return OptionalItem(_at(parts[0]), parts[1])

    def method(self, parts: list[Any]) -> Node:
        target, _, name, _, *rest = parts
        args = rest[0] if len(rest) == 2 else []
        if isinstance(target, Ident) and (qualified := f"{target.name}.{name}") in EXTENSIONS:
            return Call(target.at, qualified, args)
        if isinstance(target, Ident) and (target.name, name) == ("cel", "bind"):
            return _bind(target.at, args)
        return _chain(target, _macro(name, args) or Method(_at(name), str(name), args))

    def call(self, parts: list[Any]) -> Node:
        if parts[0].type == "DOT":
            parts = parts[1:]
        name, _, *rest = parts
        args = rest[0] if len(rest) == 2 else []
        if name == "has" and len(args) == 1:
            target = args[0]
            field = target.steps.pop() if isinstance(target, Chain) else None
            if not isinstance(target, Chain) or not isinstance(field, Select):
                raise _error("has() tests a field of something, as in has(data.a)", target.at)
            return Has(_at(name), target if target.steps else target.base, field.name)
        return Call(_at(name), str(name), args)

    def ident(self, parts: list[Any]) -> Node:
        name = parts[-1]
        if name in RESERVED:
            raise _error(f"`{name}` is a reserved word", _at(name))
        return Ident(_at(name), str(name), rooted=len(parts) == 2)

    def field(self, parts: list[Any]) -> tuple[At, str]:
        token = parts[0]
        return _at(token), token[1:-1] if token.type == "QUOTED" else str(token)

    def paren(self, parts: list[Any]) -> Node:
        return Paren(_at(parts[0]), parts[1])

    def list_literal(self, parts: list[Any]) -> Node:
        return ListLiteral(_at(parts[0]), parts[1] if len(parts) == 3 else [])

    def map_literal(self, parts: list[Any]) -> Node:
        return MapLiteral(_at(parts[0]), parts[1] if len(parts) == 3 else [])

    def arguments(self, parts: list[Any]) -> list[Node]:
        return parts

    items = entries = arguments

    def entry(self, parts: list[Any]) -> tuple[Node, Node]:
        *question, key, value = parts
        return key, OptionalItem(_at(question[0]), value) if question else value

    def literal(self, parts: list[Any]) -> Node:
        token = parts[0]
        return Literal(_at(token), _LITERALS[token.type](token))


def _chain(target: Node, step: Step) -> Node:
    # A target is used only once, so its list may be extended in place.
    if isinstance(target, Chain):
        target.steps.append(step)
        return target
    return Chain(target, [step])


def _bind(at: At, args: list[Node]) -> Bind:
    if len(args) != 3:
        raise _error("cel.bind() takes a name, its value and an expression, as in cel.bind(x, data.a, x > 1)", at)
    name, value, result = args
    if not isinstance(name, Ident) or name.rooted:
        raise _error("cel.bind() takes the name of a variable here, as in cel.bind(x, data.a, x > 1)", name.at)
    return Bind(at, name.name, value, result)


def _macro(name: Token, args: list[Node]) -> Macro | None:
    for count, table in ((1, MACROS), (2, MACROS_OF_TWO)):
        if len(args) - count not in table.get(name, ()):
            continue
        names = []
        for variable in args[:count]:
            if not isinstance(variable, Ident) or variable.rooted:
                raise _error(f"{name}() takes the name of a variable here, as in list.{name}(x, ...)", variable.at)
            names.append((variable.at, variable.name))
        if count == 2 and names[0][1] == names[1][1]:
            raise _error(f"the two variables of {name}() need different names", names[1][0])
        *condition, last = args[count:]
        if name in ("map", "optFlatMap", "optMap", "sortBy", "transformList", "transformMap"):
            return Macro(_at(name), str(name), names, condition[0] if condition else None, last)
        return Macro(_at(name), str(name), names, last, None)
    return None


# --- literals ---------------------------------------------------------------------------------------------------------


def _int(text: str) -> int:
    if text.startswith("0x"):
        return int(text, 16)
    # The range is checked later, with the sign. Python refuses to read thousands of digits.
    digits = text.lstrip("0")
    return int(digits or "0") if len(digits) <= 20 else BEYOND_64_BITS


def _uint(token: Token) -> UInt:
    value = _int(token[:-1])
    if value > UINT64_MAX:
        raise _error("a uint is at most 18446744073709551615", _at(token))
    return UInt(value)


def _double(token: Token) -> float:
    value = float(token)
    if value in (math.inf, -math.inf):
        raise _error("the number is beyond double", _at(token))
    return value


_QUOTED: Final = re.compile(r"([bBrR]*)(\"{3}|'{3}|\"|')([\s\S]*)\2")
_ESCAPE: Final = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([\s\S]))")
_ESCAPED: Final = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)) | {c: c for c in "\\?\"'`"}


def _string(token: Token) -> str | bytes:
    match = _QUOTED.fullmatch(token)
    assert match is not None, "the terminal STRING ensures it"
    prefix, quote, text = match.groups()
    binary = "b" in prefix.lower()
    if "r" in prefix.lower() or "\\" not in text:
        return text.encode("utf-8") if binary else text
    pieces: list[bytes] = []
    position = 0
    for escape in _ESCAPE.finditer(text):
        pieces.append(text[position : escape.start()].encode("utf-8"))
        position = escape.end()
        octet, short, long, octal, single = escape.groups()
        try:
            if single is not None:
                pieces.append(_ESCAPED[single].encode("utf-8"))
                continue
            if binary and (short or long):
                raise ValueError
            code = int(octal, 8) if octal else int(octet or short or long, 16)
            pieces.append(bytes([code]) if binary else chr(code).encode("utf-8"))
        except (KeyError, ValueError, OverflowError):
            line, column = _place(token, len(prefix) + len(quote) + escape.start())
            first_line, first_column = _at(token)
            at = (first_line + line - 1, column if line > 1 else first_column + column - 1)
            written = escape[0] if escape[0].isprintable() else escape[0].encode("unicode_escape").decode()
            raise _error(
                f"`{written}` is not an escape sequence of a CEL {'bytes' if binary else 'string'} literal", at
            ) from None
    pieces.append(text[position:].encode("utf-8"))
    joined = b"".join(pieces)
    return joined if binary else joined.decode("utf-8")


_LITERALS: Final[dict[str, Callable[[Token], Any]]] = {
    "INT": _int,
    "UINT": _uint,
    "DOUBLE": _double,
    "STRING": _string,
    "TRUE": lambda _: True,
    "FALSE": lambda _: False,
    "NULL": lambda _: None,
}
