"""The rules of a file: their places, ids and texts, whatever language they are in.

{"status": "paid"}                                          a file that is one rule in JSON
[{"status": "paid"}, {"status": "open"}]                    a list of rules, or a rule a line
{"id": "paid", "gateway_id": "billing", "rule": {..}}       a rule with members for its subscription
status = 'paid'                                             a rule a line, in a language that is text
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias, final

from streamer.errors import SubscriptionError

#: A function that translates a rule into members of a subscription, and raises `SubscriptionError` if it cannot.
Translate: TypeAlias = Callable[[Any], Mapping[str, Any]]

#: The member of an object that contains a rule; the other members are those of the subscription.
RULE: Final = "rule"
_SPACES: Final = re.compile(r"[ \t\r\n]*")
#: A name in quotes at the beginning of a file, which only YAML has there.
_QUOTED_NAME: Final = re.compile(r'\s*"(?:[^"\\]|\\.)*"\s*:')


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that is still to be translated.

    Attributes:
        place: its place in the file, such as `line 3` or `Rules[2]`.
        translate: returns the members of a subscription that express it, and raises `SubscriptionError` if none do.
        members: members of the subscription that the file gives: `id`, `gateway_id`, `labels`, ..
    """

    place: str
    translate: Callable[[], Mapping[str, Any]]
    members: Mapping[str, Any] = field(default_factory=dict)


def json_rules(
    text: str, translate: Translate, document_rules: Callable[[Any], Iterator[Rule] | None] = lambda _: None
) -> Iterator[Rule]:
    """Yield the rules of a file in a language whose rules are JSON: one rule, a list of rules, or a rule a line.

    Args:
        document_rules: returns the rules of a document of another form; None for any other document.

    Raises:
        SubscriptionError: the text is not JSON; `place` is the line and column.
    """
    try:
        document = parsed(text)
    except SubscriptionError:
        if len(lines := list(_lines(text))) == 1:
            raise
        for number, line in lines:
            yield _line_rule(number, line, translate, parse=True)
        return
    if (rules := document_rules(document)) is not None:
        yield from rules
    elif isinstance(document, list):
        yield from (wrapped_rule(f"[{index}]", each, translate) for index, each in enumerate(document))
    else:
        yield wrapped_rule("", document, translate)


def text_rules(text: str, translate: Translate, *, comment: str) -> Iterator[Rule]:
    """Yield the rules of a file in a language whose rules are text: one a line, or objects with a `rule`.

    Args:
        comment: how a line begins that is a comment.
    """
    for number, line in _lines(text):
        if not line.startswith(comment):
            yield _line_rule(number, line, translate, parse=line.startswith("{"))


def is_yaml(text: str) -> bool:
    """Return whether a file whose rules are JSON is in YAML, by its first characters."""
    start = text.lstrip()[:1]
    return start not in ("", "{", "[", '"') or _QUOTED_NAME.match(text) is not None


def parsed(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        SubscriptionError: it is not JSON, or an object has two members of one name, which languages read differently.
    """
    with _errors_of_json():
        return json.loads(text, object_pairs_hook=_members)


def parsed_sequence(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the values of a text with any number of JSON values after one another, each with the line where it begins.

    Raises:
        SubscriptionError: as for `parsed`, with the place in the text.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_members)
    at, line, counted = _SPACES.match(text, 0).end(), 1, 0  # type: ignore[union-attr]  # it matches everywhere
    while at < len(text):
        line, counted = line + text.count("\n", counted, at), at
        with _errors_of_json():
            value, at = decoder.raw_decode(text, at)
        yield line, value
        at = _SPACES.match(text, at).end()  # type: ignore[union-attr]


@contextmanager
def _errors_of_json() -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        raise SubscriptionError(f"expected JSON: {error.msg}", place=f"line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise SubscriptionError("this JSON nests too deep") from None
    except ValueError:  # Python reads no integer of more than 4,300 digits.
        raise SubscriptionError("this JSON has an integer of thousands of digits") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise SubscriptionError(f"the name {json.dumps(name)} stands twice in an object")
            seen.add(name)
    return members


def _lines(text: str) -> Iterator[tuple[int, str]]:
    # `splitlines` also splits at characters that a text in JSON may contain.
    return ((number, line.strip()) for number, line in enumerate(text.split("\n"), start=1) if line.strip())


def _line_rule(number: int, line: str, translate: Translate, *, parse: bool) -> Rule:
    place = f"line {number}"
    if not parse:
        return Rule(place, lambda: translate(line))
    try:
        return wrapped_rule(place, parsed(line), translate)
    except SubscriptionError as error:
        reason, column = error.reason, error.place.rpartition(", ")[2]
        return Rule(place, lambda: refuse(reason, column))


def refuse(reason: str, place: str = "") -> NoReturn:
    """Raise a `SubscriptionError` about a part of a rule."""
    raise SubscriptionError(reason, place=place)


def wrapped_rule(place: str, rule: Any, translate: Translate) -> Rule:
    """Return a rule, which may stand in an object with members of its subscription."""
    if isinstance(rule, dict) and isinstance(rule.get("id"), str) and RULE in rule:
        members = {name: value for name, value in rule.items() if name != RULE}
        return Rule(place, lambda: translate(rule[RULE]), members)
    return Rule(place, lambda: translate(rule))
