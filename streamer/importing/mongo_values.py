"""Values of MongoDB as an event of the format `mongodb` has them: plain JSON (semantics.md 1.75)."""

from __future__ import annotations

import re
from typing import Any, Final

from streamer.events.extended_json import plain
from streamer.importing.bounds import children, number
from streamer.importing.rules import refuse

_NUMBER: Final = re.compile(r"\$number(Int|Long|Double|Decimal)")
_OTHERS: Final = ("$oid", "$uuid", "$date", "$binary", "$regularExpression")


def is_operators(operand: Any) -> bool:
    """Return whether an object has operators, such as `$gt`, and is no value of Extended JSON."""
    first: str = next(iter(operand), "") if isinstance(operand, dict) else ""
    return first.startswith("$") and first not in _OTHERS and not _NUMBER.fullmatch(first)


def check_envelope(field: str, operand: Any, place: str) -> None:
    """Check the operands of a field of a change other than its documents, whose values stay Extended JSON.

    Raises:
        SubscriptionError: an operand has several spellings there.
    """
    first = field.partition(".")[0]
    if first in ("fullDocument", "fullDocumentBeforeChange"):
        return
    refused = set(_OTHERS) - ({"$oid", "$regularExpression"} if first == "documentKey" else {"$regularExpression"})
    level = [operand]
    while level:
        if name := next((name for each in level if isinstance(each, dict) for name in each if name in refused), None):
            refuse(f"the envelope has values such as {name} as the record spells them; write this condition in CEL", place)
        level = [child for each in level for child in children(each)]


def value(source: Any, place: str) -> Any:
    """Return the value that an event has.

    Raises:
        SubscriptionError: it has no equal in JSON, or its equality depends on the order of members.
    """
    if isinstance(source, int | float) and not isinstance(source, bool):
        return number(source, place)
    if isinstance(source, list):
        return [value(each, f"{place}[{index}]") for index, each in enumerate(source)]
    if not isinstance(source, dict) or not source:
        return source
    if len(source) > 1:
        refuse('MongoDB compares objects with the order of their members; compare each member, as {"a.b": 1}', place)
    ((name, member),) = source.items()
    return _own(source, name, member, place) if name.startswith("$") else {name: value(member, f"{place}.{name}")}


def _own(wrapper: dict[str, Any], name: str, member: Any, place: str) -> Any:
    result = plain([wrapper])[0]
    if isinstance(result, dict) or not (name in _OTHERS or _NUMBER.fullmatch(name)):
        refuse(f"{name} has no equal in JSON", place)
    if not _NUMBER.fullmatch(name):
        return result
    if isinstance(result, str):
        refuse("expected a finite number, since JSON has no other", place)
    if name == "$numberDecimal" and not member.lstrip("-").isdigit():
        refuse("expected a whole number: a decimal of MongoDB does not equal the number that an event has", place)
    return number(result, place)
