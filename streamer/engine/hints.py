"""Give hints for understanding a condition: the operand that decided, the probable field, a list in the path.

Bounded work: a limit applies to the compared fields of an event and to the evaluated operands of an expression.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from streamer.cel_eval import Program
from streamer.cel_eval.operands import operands
from streamer.effort import EFFORT, TooCostlyError
from streamer.model import Event, Verdict
from streamer.reference.conditions import Condition, Part, Values, condition_of_cel, marked
from streamer.reference.filters import MISSING
from streamer.subscriptions.cel_text import cel_path
from streamer.subscriptions.filters import CompiledFilter
from streamer.subscriptions.patterns import Field

#: The most fields of an event that are compared with a missing field, and the longest path among them, in characters.
MAX_FIELDS: Final = 1_000
MAX_FIELD: Final = 200
#: What it costs to compare a field.
UNITS_A_FIELD: Final = 10
#: The most operands that are evaluated at each level, and the most levels.
MAX_OPERANDS: Final = 20
MAX_LEVELS: Final = 3

Path = tuple[str, ...]


def parts_of(program: Program, whole: Verdict, event: Event, budget: int, level: int = 0) -> tuple[Condition, ...]:
    """Return the operands of `&&` or `||` with their results, and mark those that decided, unless all did."""
    joined = operands(program) if level < MAX_LEVELS and not EFFORT.is_spent else None
    if joined is None:
        return ()
    conditions = []
    for operand in joined[1][:MAX_OPERANDS]:
        part = condition_of_cel(operand, event, budget)
        conditions.append(
            replace(part, parts=parts_of(operand, part.verdict, event, budget, level + 1), hint=_hint_of_cel(operand, event))
        )
    return marked(conditions, whole)


def hint(condition: Condition, part: Part, event: Event) -> str | None:
    """Return the probable meaning of a condition that found no value, or a list; None without a hint."""
    match part:
        case CompiledFilter() if condition.verdict is not Verdict.TRUE:
            actual, root, names = condition.seen, part.path.root.value, part.path.names
            if isinstance(actual, list) and part.op.name in ("==", "in") and not isinstance(part.value, Mapping):
                return f"{cel_path(root, names)} is a list; use `contains` or a pattern for its elements"
            missing = actual is MISSING or (isinstance(actual, Values) and all(value is MISSING for value in actual.values()))
            return _of_missing(root, names, event) if missing else None
        case Field() if condition.seen is MISSING and condition.verdict is not Verdict.TRUE:
            near = nearest(part.path, event.raw)
            return None if near is None else f"there is no {_dotted(part.path)}; the event has {_dotted(near)}"
        case Program() if not condition.parts:
            return _hint_of_cel(part, event)
        case _:
            return None


#: The variables of CEL that are documents.
_DOCUMENTS = ("data", "before", "envelope")


def _hint_of_cel(program: Program, event: Event) -> str | None:
    for root, *names in sorted(program.fields):
        if names and root in _DOCUMENTS and (said := _of_missing(root, tuple(names), event)) is not None:
            return said
    return None


def _of_missing(root: str, names: Path, event: Event) -> str | None:
    """Return the reason why a document has no value at a path; None if it has one, or if the reason is unknown."""
    document, at, unknown = event.document(root)
    if at is not None and any(pointer[: len(at)] == at for pointer in unknown):
        return None
    if document is None:
        return f"the event has no {root}"
    value: Any = document
    for depth, name in enumerate(names):
        if isinstance(value, list):
            return f"{cel_path(root, names[:depth])} is a list; a pattern or CEL's exists() looks into it"
        if not isinstance(value, Mapping):
            return f"{cel_path(root, names[:depth])} is not an object"
        if name not in value:
            near = nearest(names, document)
            there = f"there is no {cel_path(root, names)}"
            return there if near is None else f"{there}; the event has {cel_path(root, near)}"
        value = value[name]
    return None


def nearest(names: Path, document: Any) -> Path | None:
    """Return the path in a document that is most similar to a missing one: the same name elsewhere, or a similar spelling.

    It is None if there is none, or if finding it would be too costly.
    """
    wanted = ".".join(names)
    if len(wanted) > MAX_FIELD or EFFORT.is_spent:
        return None
    candidates = [path for path in islice(_fields(document), MAX_FIELDS) if path != names[: len(path)]]
    try:
        EFFORT.spend(UNITS_A_FIELD * len(candidates))
        fields = {".".join(path): path for path in candidates if sum(map(len, path)) <= MAX_FIELD}
        # Texts that resemble one another are compared character by character.
        EFFORT.spend(len(wanted) * sum(map(len, fields)) // 20)
    except TooCostlyError:
        return None
    same = [path for path in fields.values() if path[-1].casefold() == names[-1].casefold()]
    if same:
        return min(same, key=len)
    near = get_close_matches(wanted, fields, 1) or get_close_matches(names[-1], [text for text in fields if "." not in text], 1)
    return fields[near[0]] if near else None


def _fields(document: Any) -> Iterator[Path]:
    """Yield the path of each member of an object, outer ones first, without those in lists."""
    pending: deque[tuple[Path, Any]] = deque([((), document)])
    while pending:
        path, value = pending.popleft()
        if isinstance(value, Mapping):
            for name, inner in value.items():
                yield (*path, name)
                pending.append(((*path, name), inner))


def _dotted(path: Path) -> str:
    return cel_path(path[0], path[1:])
