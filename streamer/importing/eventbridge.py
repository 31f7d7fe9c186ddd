"""Rules of EventBridge: answers of `aws events`, templates of CloudFormation and SAM, Terraform's JSON, or patterns alone.

{"Name": "paid", "EventPattern": "{\\"source\\": [\\"shop\\"]}", ..}    {"id": "paid", "pattern": {"source": ["shop"]}}

A pattern of EventBridge is a pattern of the dialect `eventbridge`, and the format `eventbridge` shows it the whole event. Two
things differ. In EventBridge a dot in a name also stands for a step of a path, so a name with dots becomes a `$or` of the ways to
split it. And if a path stands twice in a pattern, EventBridge uses only the last values, so such a pattern is refused. Disabled
rules and schedules are refused, too: they match no event.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from streamer.errors import PatternError, SubscriptionError
from streamer.importing.aws import EXPRESSION, Declared, Kind, declared_rules, reference, refuse_unresolved
from streamer.importing.rules import Rule, parsed
from streamer.model import Limits
from streamer.subscriptions.patterns import AllOf, AnyOf, is_choice, parse_pattern
from streamer.subscriptions.places import Place
from streamer.subscriptions.to_eventbridge import refuse_inexact, repeated_path

KIND: Final = Kind(
    resource="AWS::Events::Rule",
    events=frozenset(("EventBridgeRule", "CloudWatchEvent")),
    terraform="aws_cloudwatch_event_rule",
    listed="Rules",
    names={
        "Pattern": "EventPattern",
        "RuleName": "Name",
        "Enabled": "IsEnabled",
        "name": "Name",
        "event_pattern": "EventPattern",
        "schedule_expression": "ScheduleExpression",
        "state": "State",
        "is_enabled": "IsEnabled",
        "event_bus_name": "EventBusName",
        "arn": "Arn",
    },
)

#: The members of an object that is a rule, not a pattern.
_OF_RULE: Final = ("EventPattern", "ScheduleExpression")
_ENABLED: Final = ("ENABLED", "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS", "true")
#: Operators that only this project has.
_FOREIGN: Final = ("regexp", "shellstyle")
#: The most ways to split the names of a pattern at their dots.
_MOST_WAYS: Final = 16

_Leaf: TypeAlias = tuple[tuple[str, ...], list[Any]]


def rules(text: str) -> Iterator[Rule]:
    """Yield the rules of a file.

    Raises:
        SubscriptionError: the file is neither JSON nor a template in YAML.
    """
    return declared_rules(text, KIND, _translate)


def translated_pattern(rule: Any, place: str) -> dict[str, Any]:
    """Return a pattern of EventBridge as the pattern of a subscription that matches the same events.

    Args:
        place: the place of the pattern, for errors.

    Raises:
        SubscriptionError: EventBridge refuses it, or it has no exact translation.
    """
    refuse_unresolved(rule, place)
    if isinstance(rule, str | bytes):
        raise SubscriptionError("a pattern is an object of JSON, not a string; this JSON may be encoded twice", place=place)
    tree = parse_pattern(rule, dialect="eventbridge", limits=Limits(), place=place).root
    refuse_foreign_operators(rule, place)
    for _, at, values in _leaves(rule, place):
        for index, value in enumerate(values):
            refuse_inexact(value, Place(at, index))
    refuse_repeated_paths(tree, place)
    has_dots = any("." in name for path, _, _ in _leaves(rule, place) for name in path)
    return _split_at_dots(rule, tree, place) if has_dots else dict(rule)


def _translate(rule: Any) -> Mapping[str, Any]:
    if isinstance(rule, dict) and any(name in rule for name in _OF_RULE):
        rule = Declared("", rule)
    if isinstance(rule, Declared):
        return _rule(rule)
    if isinstance(rule, str):
        rule = parsed(rule)
    return {"pattern": translated_pattern(rule, "")}


def _rule(rule: Declared) -> dict[str, Any]:
    _refuse_disabled(rule)
    if rule.members.get("ScheduleExpression"):
        reason = "a schedule has no events to match; keep it in EventBridge, and write a pattern in a rule of its own"
        raise SubscriptionError(reason, place=rule.place("ScheduleExpression"))
    pattern = rule.value("EventPattern")
    if pattern is None:
        raise SubscriptionError("expected a pattern", place=rule.place("EventPattern"))
    members: dict[str, Any] = {"pattern": translated_pattern(pattern, rule.place("EventPattern"))}
    if name := rule.text("Name") or rule.name:
        members["id"] = name
    return members | ({"labels": labels} if (labels := _labels(rule)) else {})


def _refuse_disabled(rule: Declared) -> None:
    for member in ("State", "IsEnabled"):
        state, place = rule.members.get(member), rule.place(member)
        if state in ("DISABLED", "false") or state is False:
            raise SubscriptionError("a disabled rule matches no event; enable it or leave it out", place=place)
        if rule.is_expression(member):
            raise SubscriptionError(EXPRESSION, place=place)
        refuse_unresolved(state, place)
        if state is not None and state is not True and state not in _ENABLED:
            raise SubscriptionError("expected ENABLED or true, if events are to match", place=place)


def _labels(rule: Declared) -> dict[str, Any]:
    """Return what else a rule says: its ARN, bus and targets, and the condition of the template."""
    targets = rule.members.get("Targets")
    arns = [reference(each.get("Arn")) for each in targets if isinstance(each, dict)] if isinstance(targets, list) else []
    labels = {
        "arn": rule.text("Arn"),
        "bus": reference(rule.members.get("EventBusName")),
        "condition": rule.condition,
        "targets": [arn for arn in arns if arn],
    }
    return {name: value for name, value in labels.items() if value}


def _leaves(pattern: Mapping[str, Any], place: str) -> Iterator[tuple[tuple[str, ...], Place, list[Any]]]:
    """Yield the arrays of values of a valid pattern, each with its path in an event and its place in the pattern."""
    todo: list[tuple[tuple[str, ...], Place, Any]] = [((), Place(None, place), pattern)]
    while todo:
        path, at, each = todo.pop()
        if isinstance(each, list):
            yield path, at, each
            continue
        for name, value in reversed(each.items()):
            here = Place(at, name)
            if is_choice(name, value, "eventbridge"):
                todo += [(path, Place(here, index), inner) for index, inner in enumerate(value)]
            else:
                todo.append(((*path, name), here, value))


def refuse_foreign_operators(pattern: Mapping[str, Any], place: str) -> None:
    for _, at, values in _leaves(pattern, place):
        for index, value in enumerate(values):
            if isinstance(value, dict) and (name := next(iter(value))) in _FOREIGN:
                where = str(Place(Place(at, index), name))
                raise PatternError("EventBridge does not have this operator", place=where)


def refuse_repeated_paths(tree: AllOf, place: str) -> None:
    """Refuse a pattern in which EventBridge would use only the last values of a path."""
    if (twice := repeated_path(tree)) is not None:
        reason = f"{twice!r} stands twice, and EventBridge uses only the last values. Write all of them in one place"
        raise PatternError(reason, place=place)


def _split_at_dots(pattern: Mapping[str, Any], tree: AllOf, place: str) -> dict[str, Any]:
    """Return a pattern in which each name with dots stands for all ways to split it: EventBridge joins names with dots."""
    if any(isinstance(part, AnyOf) for part in tree.fields):
        raise PatternError("a name with a dot and $or have no exact translation together; write the name as a path", place=place)
    always: list[_Leaf] = []
    choices: list[list[_Leaf]] = []
    for path, at, values in _leaves(pattern, place):
        ways = [(way, values) for way in _ways(path, str(at))]
        is_absent = [value == {"exists": False} for value in values]
        if all(is_absent):
            always += ways
        elif any(is_absent) and len(ways) > 1:
            raise PatternError(
                "a name with a dot, whose values have exists false among others, has no exact translation", place=str(at)
            )
        else:
            choices.append(ways)
    if math.prod(map(len, choices)) > _MOST_WAYS:
        raise PatternError(f"its names with dots have more than {_MOST_WAYS} meanings; write them as paths", place=place)
    alternatives = [_nested([*always, *choice], place) for choice in itertools.product(*choices)]
    return alternatives[0] if len(alternatives) == 1 else {"$or": alternatives}


def _ways(path: Sequence[str], place: str) -> Iterator[tuple[str, ...]]:
    """Yield the ways to split the names of a path at their dots, the path as it is first."""
    words = [name.split(".") for name in path]
    dots = sum(map(len, words)) - len(words)
    if 2**dots > _MOST_WAYS:
        raise PatternError(f"its names with dots have more than {_MOST_WAYS} meanings; write them as paths", place=place)
    for joined in itertools.product((True, False), repeat=dots):
        bits = iter(joined)
        names: list[str] = []
        for first, *more in words:
            names.append(first)
            for word in more:
                if next(bits):
                    names[-1] += f".{word}"
                else:
                    names.append(word)
        yield tuple(names)


def _nested(leaves: Sequence[_Leaf], place: str) -> dict[str, Any]:
    pattern: dict[str, Any] = {}
    for path, values in leaves:
        into = pattern
        for name in path[:-1]:
            into = into.setdefault(name, {})
            if not isinstance(into, dict):
                break
        if not isinstance(into, dict) or path[-1] in into:
            raise PatternError(f"{'.'.join(path)!r} and a path before it have no translation together", place=place)
        into[path[-1]] = values
    return pattern
