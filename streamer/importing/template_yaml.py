"""Templates of CloudFormation and SAM, and metadata of Hasura, in YAML: read in bounded work.

EventPattern: {source: [!Ref Source]}        {"EventPattern": {"source": [{"Ref": "Source"}]}}

A tag becomes the function that it abbreviates. Words that YAML 1.1 and JSON read differently become `Unclear`, because a pattern
must not depend on the reader. Aliases, merge keys and duplicate names are refused. Depth is refused while the text is scanned.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Final, NoReturn, final

import yaml

from streamer.errors import SubscriptionError
from streamer.importing.aws import Unclear

#: PyYAML's parser in Python reads a file of this size in seconds.
MAX_CHARACTERS: Final = 128 * 1024
MAX_DEPTH: Final = 64

#: The booleans of YAML 1.1 and of 1.2.
_BOOLEANS: Final = frozenset("true True TRUE false False FALSE".split())
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,24})")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def read_template(text: str) -> Any:
    """Return the value of a text in YAML.

    Raises:
        SubscriptionError: it is not YAML, or exceeds the bounds; `place` is the line and column.
    """
    if len(text) > MAX_CHARACTERS:
        raise SubscriptionError(f"longer than {MAX_CHARACTERS:,} characters. Import it in JSON")
    try:
        return yaml.load(text, _Loader)  # the loader is a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise SubscriptionError(f"expected YAML: {error.problem or error.context}", place=_place(mark)) from None
    except yaml.YAMLError as error:
        raise SubscriptionError(f"expected YAML: {str(error).splitlines()[0]}") from None


def _place(mark: Any) -> str:
    return "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"


def _fail(problem: str, mark: Any) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


@final
class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    def fetch_flow_collection_start(self, token: Any) -> None:
        self._check_depth(self.flow_level + len(self.indents))
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> Any:
        self._check_depth(len(self.indents))
        return super().add_indent(column)

    def _check_depth(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            _fail(f"nested deeper than {MAX_DEPTH} levels", self.get_mark())

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            _fail("aliases are not read; write the value out", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        members: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                _fail("merge keys (<<) are not read; write the members out", key_node.start_mark)
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                _fail("expected a name", key_node.start_mark)
            if key in members:
                _fail(f"{key!r} stands twice", key_node.start_mark)
            members[key] = self.construct_object(value_node, deep=deep)
        return members

    def construct_function(self, tag: str, node: Any) -> dict[str, Any]:
        name = tag if tag in ("Ref", "Condition") else f"Fn::{tag}"
        if isinstance(node, yaml.ScalarNode):
            return {name: self.construct_scalar(node)}
        is_list = isinstance(node, yaml.SequenceNode)
        return {name: self.construct_sequence(node, deep=True) if is_list else self.construct_mapping(node, deep=True)}

    def construct_word(self, node: Any) -> Any:
        """Return the value of a word for which YAML 1.1 has a type other than text."""
        text = self.construct_scalar(node)
        if text in _BOOLEANS:
            return text.lower() == "true"
        if _INTEGER.fullmatch(text):
            return int(text)
        return float(text) if _NUMBER.fullmatch(text) else Unclear(text)

    def construct_text(self, node: Any) -> str:
        text: str = self.construct_scalar(node)
        return Unclear(text) if node.style is None and _NUMBER.fullmatch(text) else text


for _type in ("bool", "int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_type}", _Loader.construct_word)
for _type in ("str", "timestamp", "value"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_type}", _Loader.construct_text)
_Loader.add_multi_constructor("!", _Loader.construct_function)
