"""YAML in bounded work: values and their positions, or every reason for a refusal.

    matching:                      (1, 1)  matching
      bloom: {fp_rate: 0.01}       (2, 11) matching.bloom.fp_rate → 0.01 at (2, 20)

PyYAML's parser in Python reads the text, event by event; nodes are neither composed nor constructed, so a tag never makes an
object and an alias never a copy. Input that would cost more than its length is refused at its beginning. Depth is refused during
scanning, before the parser stores state for it: 200,000 nested lists would crash the process in the C parser. Aliases, tags,
merge keys and further documents are refused at their position.

Plain words are read as YAML 1.2 (its core schema) reads them, not as 1.1 does: `no`, `on` and `22:22` are text, `1e3` is a
number. A number with a leading zero, octal in 1.1 and decimal in 1.2, is refused.

Cost: linear in a text of at most `Bounds.max_bytes`, with at most `Bounds.max_values` parser events.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, final

import yaml

from streamer.errors import BulkConfigError, ConfigError
from streamer.model import is_unicode

#: Limit of a file, many times the size of all settings.
MAX_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 2_000
#: Limit of a scalar, in characters.
MAX_TEXT: Final = 4 * 1024

_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,25}|0o[0-7]{1,25}|0x[0-9a-fA-F]{1,25}")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9_]+")
# Matches characters that YAML does not call printable, and DEL, C1 controls and surrogates; a BOM is allowed inside a text.
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OTHER_ENCODINGS: Final = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))


@final
@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a text; the defaults are those of a configuration."""

    max_bytes: int = MAX_BYTES
    max_values: int = MAX_VALUES
    max_text: int = MAX_TEXT


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a text: line and column, both from 1, the column in characters."""

    line: int
    column: int


@final
@dataclass(slots=True)
class Node:
    """A value and its position.

    Attributes:
        value: None, bool, int, float or str; a list of nodes; or nodes by name.
        mark: its first character.
        names: the position of each member's name.
        refused: an error for it exists already, so further checks skip it.
    """

    value: Any
    mark: Mark
    names: dict[str, Mark] = field(default_factory=dict)
    refused: bool = False

    def plain(self) -> Any:
        """Return the value without marks. It may recurse, because nodes are at most `MAX_DEPTH` deep."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def read_yaml(text: bytes, name: str, bounds: Bounds = Bounds()) -> tuple[Node, list[ConfigError]]:
    """Read one YAML document.

    Args:
        name: the name of the text in errors.

    Returns:
        The document, null for an empty text, and all errors in it; each refused value is null.

    Raises:
        BulkConfigError: the text is not YAML, or exceeds the bounds, so the rest cannot be checked.
    """
    reader = _Reader(name, bounds)
    try:
        document = reader.read(_decoded(text, bounds.max_bytes))
    except _RefusedError as refused:
        raise BulkConfigError([*reader.errors, reader.error(refused.reason, refused.mark)]) from None
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        reason = _in_our_words(error)
        raise BulkConfigError([*reader.errors, reader.error(reason, _mark(at) if at is not None else Mark(1, 1))]) from None
    return document, reader.errors


def _decoded(text: bytes, max_bytes: int) -> str:
    if len(text) > max_bytes:
        read = text[:max_bytes].decode(errors="replace")
        raise _RefusedError(f"longer than {max_bytes:,} bytes; it is read up to here", _place_of(read, len(read)))
    for begin, encoding in _OTHER_ENCODINGS:
        if text.startswith(begin):
            raise _RefusedError(f"{encoding}; expected UTF-8", Mark(1, 1))
    try:
        # Some editors write a byte order mark at the beginning.
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The codec counts from the end of a byte order mark.
        good = text.removeprefix(b"\xef\xbb\xbf")[: error.start].decode()
        raise _RefusedError(f"no UTF-8: {error.reason}", _place_of(good, len(good))) from None
    if forbidden := _FORBIDDEN.search(decoded):
        at = forbidden.start()
        raise _RefusedError(f"the character {forbidden[0]!r} cannot stand in YAML", _place_of(decoded, at))
    return decoded


def _place_of(text: str, at: int) -> Mark:
    lines = text[:at].split("\n")
    return Mark(len(lines), len(lines[-1]) + 1)


class _RefusedError(Exception):
    """An error after which the rest cannot be read."""

    def __init__(self, reason: str, mark: Mark) -> None:
        super().__init__(reason)
        self.reason = reason
        self.mark = mark


@final
class _Parser(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """PyYAML's parser in Python, with the depth bounded as the text is scanned."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level + len(self.indents) >= MAX_DEPTH:
            self._too_deep()
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> Any:
        if len(self.indents) >= MAX_DEPTH:
            self._too_deep()
        return super().add_indent(column)

    def _too_deep(self) -> None:
        raise _RefusedError(f"nested deeper than {MAX_DEPTH} levels", _mark(self.get_mark()))


@final
class _Reader:
    """Builds nodes of one document from the parser's events, with a stack of its own."""

    def __init__(self, name: str, bounds: Bounds) -> None:
        self.name: Final = name
        self.bounds: Final = bounds
        self.errors: Final[list[ConfigError]] = []

    def error(self, reason: str, mark: Mark) -> ConfigError:
        return ConfigError(reason, source=self.name, line=mark.line, column=mark.column)

    def read(self, text: str) -> Node:
        document: Node | None = None
        stack: list[_Open] = []
        for event in self._events(text):
            node: Node
            match event:
                case yaml.ScalarEvent():
                    node = self._scalar(event)
                case yaml.AliasEvent():
                    node = self._refused(f"the alias *{shown(event.anchor)}: aliases are not read; write the value out", event)
                case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                    node = Node([] if isinstance(event, yaml.SequenceStartEvent) else {}, _mark(event.start_mark))
                    self._check_properties(event, node)
                    stack.append(_Open(node))
                    continue
                case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                    node = stack.pop().node
                    if node.refused:
                        node.value = None
                case yaml.DocumentStartEvent() if document is not None:
                    raise _RefusedError("a second document; one file is one document", _mark(event.start_mark))
                case _:
                    continue
            if stack:
                self._put(stack[-1], node)
            else:
                document = node
        return document if document is not None else Node(None, Mark(1, 1))

    def _events(self, text: str) -> Iterator[Any]:
        parser = _Parser(text)
        values = 0
        try:
            while parser.check_event():
                event = parser.get_event()
                values += isinstance(event, yaml.NodeEvent)
                if values > self.bounds.max_values:
                    raise _RefusedError(f"more than {self.bounds.max_values} values", _mark(event.start_mark))
                yield event
        finally:
            parser.dispose()

    def _put(self, into: _Open, node: Node) -> None:
        """Add a complete node to the open list or mapping; in a mapping, names and values alternate."""
        value = into.node.value
        if isinstance(value, list):
            value.append(node)
            return
        if into.key is None:
            into.key = node
            return
        key, into.key = into.key, None
        if key.refused:
            return
        name = key.value
        if not isinstance(name, str):
            hint = f"; write '{shown(name)}' in quotes" if isinstance(name, bool | int | float) else ""
            self.errors.append(self.error(f"a name is text, not {kind_of(key.plain())}{hint}", key.mark))
        elif name == "<<":
            self.errors.append(self.error("merge keys (<<) are not read; write the values out", key.mark))
        elif name in value:
            first = into.node.names[name]
            reason = f"'{shown(name)}' stands twice, first in line {first.line}, column {first.column}"
            self.errors.append(self.error(reason, key.mark))
            node.refused = value[name].refused = True
        else:
            value[name] = node
            into.node.names[name] = key.mark

    def _scalar(self, event: Any) -> Node:
        node = Node(event.value, _mark(event.start_mark))
        if not self._check_properties(event, node):
            return node
        if len(event.value) > (longest := self.bounds.max_text):
            return self._refused(f"a text of {len(event.value)} characters; at most {longest} are read", event)
        if not is_unicode(event.value):
            try:
                # Two escapes: JSON's form for characters beyond 16 bits.
                node.value = event.value.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                return self._refused("half of a surrogate pair", event)
        if event.implicit[0]:
            value = self._resolved(event)
            if value is ...:
                return Node(None, node.mark, refused=True)
            node.value = value
        return node

    def _resolved(self, event: Any) -> Any:
        """Return the value of a plain word; `...` if it was refused."""
        text: str = event.value
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _NO_NUMBER.fullmatch(text):
            self._refused(f"{text} is not a number here", event)
            return ...
        if (reason := leading_zero(text)) is not None:
            self._refused(reason, event)
            return ...
        if _INTEGER.fullmatch(text):
            return int(text, 0 if text.startswith("0") and len(text) > 1 else 10)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if math.isinf(number):
                self._refused(f"{shown(text)}: beyond float64", event)
                return ...
            return number
        return text

    def _check_properties(self, event: Any, node: Node) -> bool:
        """Refuse tags and anchors. An anchor without an alias is harmless, but pointless."""
        if event.tag is not None:
            reason = f"the tag {shown(event.tag)}: tags are not read; for text use quotes"
        elif event.anchor is not None:
            reason = f"the anchor &{shown(event.anchor)}: anchors and aliases are not read; write the value out"
        else:
            return True
        self.errors.append(self.error(reason, node.mark))
        node.refused, node.value = True, node.value if isinstance(node.value, list | dict) else None
        return False

    def _refused(self, reason: str, event: Any) -> Node:
        mark = _mark(event.start_mark)
        self.errors.append(self.error(reason, mark))
        return Node(None, mark, refused=True)


@final
@dataclass(slots=True)
class _Open:
    """A list or mapping without its end so far; in a mapping, also the name without its value so far."""

    node: Node
    key: Node | None = None


def leading_zero(text: str) -> str | None:
    """Return the reason for refusing a number with a leading zero, or None for any other text."""
    if not _LEADING_ZERO.fullmatch(text):
        return None
    digits = text.lstrip("+-0").replace("_", "") or "0"
    octal = f", or 0o{digits} for an octal one" if not set(digits) & set("89") else ""
    return f"{shown(text)}: a leading zero makes an octal number in some versions of YAML; write {shown(digits)}{octal}"


def kind_of(value: Any) -> str:
    """Return the kind of a YAML value in words, for errors."""
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}
    return kinds.get(type(value), "nothing (null)")


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def shown(text: object) -> str:
    """Return text of a file, shortened and escaped, so that it cannot flood or control a terminal."""
    short = str(text)
    if len(short) > 60:
        short = f"{short[:40]}...{short[-10:]}"
    return short if short.isprintable() else repr(short)[1:-1]


def _in_our_words(error: Any) -> str:
    problem = " ".join(filter(None, (error.context, error.problem))) or "no YAML"
    if "'\\t'" in problem:
        return "a tab cannot indent YAML; use spaces"
    return problem[:200]
