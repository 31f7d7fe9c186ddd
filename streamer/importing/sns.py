"""Filter policies of SNS: answers of `aws sns`, templates of CloudFormation and SAM, Terraform's JSON, or policies alone.

{"event": ["order-paid"]}       of the attributes: CEL over `envelope.MessageAttributes.event`
{"status": ["paid"]}            of the body: a pattern on `Message`, whose JSON the format `sns` shows

An attribute has a type and a text. SNS compares a String as text, a Number by value, and each element of a String.Array or
Number.Array, which is JSON in a text: a regexp over it decides, because CEL does not read JSON. A Binary attribute counts as
missing. In both scopes, `exists: true` needs a value that is neither null nor empty.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from streamer.errors import PatternError, SubscriptionError
from streamer.importing.aws import Declared, Kind, declared_rules, reference, refuse_unresolved
from streamer.importing.conditions import (
    ALWAYS,
    Cel,
    Condition,
    Path,
    Test,
    all_of,
    any_of,
    subscription_parts,
)
from streamer.importing.eventbridge import refuse_foreign_operators, refuse_repeated_paths, translated_pattern
from streamer.importing.json_array import ANY_ELEMENT, ANY_VALUE, Affix, only_elements, plain_regexp, some_element
from streamer.importing.rules import Rule, parsed
from streamer.model import Limits
from streamer.subscriptions import patterns
from streamer.subscriptions.cel_text import cel_literal, cel_path, has
from streamer.subscriptions.matchers import (
    Absent,
    AnythingBut,
    Cidr,
    Equal,
    EqualsIgnoreCase,
    Exists,
    Matcher,
    Numeric,
    Prefix,
    Suffix,
    Wildcard,
)

KIND: Final = Kind(
    resource="AWS::SNS::Subscription",
    events=frozenset(("SNS",)),
    terraform="aws_sns_topic_subscription",
    listed="",
    names={
        "Topic": "TopicArn",
        "topic_arn": "TopicArn",
        "filter_policy": "FilterPolicy",
        "filter_policy_scope": "FilterPolicyScope",
        "arn": "SubscriptionArn",
        "protocol": "Protocol",
        "endpoint": "Endpoint",
    },
)

_OF_SUBSCRIPTION: Final = ("FilterPolicy", "FilterPolicyScope", "SubscriptionArn")
_ATTRIBUTES: Final = "MessageAttributes"
_ARRAYS: Final = ("String.Array", "Number.Array")
_PRESENT: Final = {"exists": True}
#: The matchers of which one is true for each value that is neither null nor an empty text.
_VALUES: Final = (True, False, {"numeric": [">=", -sys.float_info.max]}, {"regexp": "(.|\n)+"})


def rules(text: str) -> Iterator[Rule]:
    """Yield the filter policies of a file.

    Raises:
        SubscriptionError: the file is neither JSON nor a template in YAML.
    """
    return declared_rules(text, KIND, _translate)


def _translate(rule: Any) -> Mapping[str, Any]:
    if isinstance(rule, dict) and isinstance(rule.get("Attributes"), dict):
        rule = Declared("", rule["Attributes"])
    elif isinstance(rule, dict) and any(name in rule for name in _OF_SUBSCRIPTION):
        rule = Declared("", rule)
    elif isinstance(rule, dict) and _is_list_of_subscriptions(rule.get("Subscriptions")):
        raise SubscriptionError(
            "a list of subscriptions has no filter policies. Import `aws sns get-subscription-attributes` of each"
        )
    if isinstance(rule, Declared):
        return _subscription(rule)
    return _parts(parsed(rule) if isinstance(rule, str) else rule, _ATTRIBUTES, "")


def _is_list_of_subscriptions(value: Any) -> bool:
    # A policy may have an attribute of that name.
    return isinstance(value, list) and all(isinstance(each, dict) and "SubscriptionArn" in each for each in value)


def _subscription(declared: Declared) -> dict[str, Any]:
    if declared.members.get("PendingConfirmation") == "true":
        raise SubscriptionError("it gets no messages before it is confirmed; leave it out", place="PendingConfirmation")
    has_policy = declared.members.get("FilterPolicy") not in (None, "")
    policy = declared.value("FilterPolicy") if has_policy else {}
    scope, place = declared.members.get("FilterPolicyScope") or _ATTRIBUTES, declared.place("FilterPolicyScope")
    refuse_unresolved(scope, place)
    if scope not in (_ATTRIBUTES, "MessageBody"):
        raise SubscriptionError("expected MessageAttributes or MessageBody", place=place)
    topic = declared.members.get("TopicArn")
    labels = {
        "condition": declared.condition,
        "endpoint": reference(declared.members.get("Endpoint")),
        "protocol": declared.text("Protocol"),
        "topic": None if declared.text("TopicArn") else reference(topic),
    }
    members = {
        "id": declared.text("SubscriptionArn") or declared.name,
        "collection": declared.text("TopicArn"),
        "labels": {name: value for name, value in labels.items() if value},
    }
    parts = _parts(policy, scope, declared.place("FilterPolicy"))
    return {name: value for name, value in members.items() if value} | parts


def _parts(policy: Any, scope: str, place: str) -> dict[str, Any]:
    """Return the members of a subscription that mean the same as a policy."""
    if policy == {}:
        return {}
    if scope == "MessageBody":
        # A body that is not an object of JSON passes no policy, not even one of `exists: false`.
        return {"pattern": {"Message": _with_values(translated_pattern(policy, place))}, "cel": "type(data) == map"}
    if isinstance(policy, str | bytes):
        raise SubscriptionError("a policy is an object of JSON, not a string; this JSON may be encoded twice", place=place)
    tree = patterns.parse_pattern(policy, dialect="eventbridge", limits=Limits(), place=place).root
    if len(json.dumps(policy)) > (most := Limits().max_cel_bytes):
        raise SubscriptionError(f"longer than {most:,} characters, the most for an expression of CEL; split it", place=place)
    refuse_foreign_operators(policy, place)
    refuse_repeated_paths(tree, place)
    nets = [part for part in tree.fields if isinstance(part, patterns.Field) and _is_net(part)]
    rest = [_condition(part, place) for part in tree.fields if part not in nets]
    parts = subscription_parts(all_of(*rest)) if rest else {}
    if nets:
        # Only a pattern has `cidr`.
        parts["pattern"] = {_ATTRIBUTES: {part.path[0]: _net(part) for part in nets}}
    return parts


def _with_values(pattern: dict[str, Any]) -> dict[str, Any]:
    """Replace `exists: true` in a pattern by what it means in SNS, in place, and return the pattern."""
    todo: list[Any] = [pattern]
    while todo:
        each = todo.pop()
        if isinstance(each, list) and _PRESENT in each:
            each[:] = [*_VALUES, *(other for other in each if other != _PRESENT and other not in _VALUES)]
        todo += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return pattern


def _is_net(part: patterns.Field) -> bool:
    return len(part.path) == 1 and all(isinstance(matcher, Cidr) for matcher in part.matchers)


def _net(part: patterns.Field) -> dict[str, Any]:
    return {"Type": ["String"], "Value": [{"cidr": str(each.network)} for each in part.matchers if isinstance(each, Cidr)]}


def _condition(part: patterns.Field | patterns.AnyOf, place: str) -> Condition:
    if isinstance(part, patterns.AnyOf):
        return any_of(*(all_of(*(_condition(each, place) for each in inner.fields)) for inner in part.alternatives))
    at = ".".join(filter(None, (place, *part.path)))
    if len(part.path) > 1:
        raise PatternError("attributes do not nest; the scope MessageBody does", place=at)
    if any(isinstance(matcher, Cidr) for matcher in part.matchers):
        raise PatternError("cidr must be the only value of its array, and outside of $or", place=at)
    return _Attribute(part.path[0]).condition(part.matchers)


class _Attribute:
    """The conditions on one attribute, by its type."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._type = Path((_ATTRIBUTES, name, "Type"), "envelope")
        self._value = Path((_ATTRIBUTES, name, "Value"), "envelope")

    def condition(self, matchers: Sequence[Matcher]) -> Condition:
        by_type = {
            ("String",): [*self._equal(matchers), *(each for matcher in matchers for each in self._text(matcher))],
            ("Number",): [each for matcher in matchers for each in self._number(matcher)],
            _ARRAYS: list(self._array(matchers)),
        }
        alternatives = [self._of_type(names, any_of(*conditions)) for names, conditions in by_type.items() if conditions]
        if any(isinstance(matcher, Absent) for matcher in matchers):
            alternatives.append(self._absent())
        return any_of(*alternatives)

    def _of_type(self, names: tuple[str, ...], condition: Condition) -> Condition:
        is_type = Test(self._type, "==", names[0]) if len(names) == 1 else Test(self._type, "in", list(names))
        return all_of(is_type, *(() if condition == ALWAYS else (condition,)))

    def _absent(self) -> Condition:
        attributes = cel_path("envelope", (_ATTRIBUTES,))
        # SNS matches `exists: false` only if the message has an attribute.
        return all_of(
            Cel(f"size({attributes}) > 0"),
            any_of(
                Cel(f"!({has('envelope', (_ATTRIBUTES, self._name))})"),
                Test(self._type, "==", "Binary"),
                self._of_type(_ARRAYS, self._not(f"matches({cel_literal(ANY_ELEMENT)})")),
            ),
        )

    def _not(self, call: str) -> Condition:
        return Cel(f"!{self._value.cel()}.{call}")

    def _equal(self, matchers: Sequence[Matcher]) -> Iterator[Condition]:
        texts = [each.value for each in matchers if isinstance(each, Equal) and isinstance(each.value, str)]
        if texts:
            yield Test(self._value, "==", texts[0]) if len(texts) == 1 else Test(self._value, "in", texts)

    def _text(self, matcher: Matcher) -> Iterator[Condition]:
        """Yield the condition on a String, if a matcher other than a plain value can be true for one."""
        match matcher:
            case Exists():
                yield ALWAYS
            case AnythingBut(excluded):
                texts = [each.value for each in excluded if isinstance(each, Equal) and isinstance(each.value, str)]
                others = [self._not(_call(each)) for each in excluded if not isinstance(each, Equal)]
                yield all_of(*([Test(self._value, "not in", texts)] if texts else []), *others)
            case Prefix() | Suffix() | EqualsIgnoreCase() | Wildcard():
                yield Cel(f"{self._value.cel()}.{_call(matcher)}")

    def _number(self, matcher: Matcher) -> Iterator[Condition]:
        """Yield the condition on a Number, if the matcher can be true for one. Its value is a text."""
        number = f"double({self._value.cel()})"
        match matcher:
            case Exists():
                yield ALWAYS
            case AnythingBut(excluded):
                values = [each.value for each in excluded if isinstance(each, Equal) and _is_number(each.value)]
                yield Cel(f"!({number} in {cel_literal(values)})") if values else ALWAYS
            case Equal(value) if _is_number(value):
                yield Cel(f"{number} == {cel_literal(value)}")
            case Numeric(low, low_inclusive, high, high_inclusive):
                from_low = f"{number} {'>=' if low_inclusive else '>'} {cel_literal(low)}" if low is not None else ""
                to_high = f"{number} {'<=' if high_inclusive else '<'} {cel_literal(high)}" if high is not None else ""
                yield Cel(f"{number} == {cel_literal(low)}" if low == high else " && ".join(filter(None, (from_low, to_high))))

    def _array(self, matchers: Sequence[Matcher]) -> Iterator[Condition]:
        """Yield the conditions on the text of an array: an element for which a matcher is true."""
        if any(isinstance(matcher, Exists) for matcher in matchers):
            yield any_of(
                Test(self._value, "matches", ANY_VALUE), *self._array([each for each in matchers if not isinstance(each, Exists)])
            )
            return
        if (wanted := some_element(matchers)) is not None:
            yield Test(self._value, "matches", wanted)
        for matcher in matchers:
            if isinstance(matcher, AnythingBut):
                only_excluded = self._not(f"matches({cel_literal(only_elements(matcher.matchers))})")
                yield all_of(Test(self._value, "matches", ANY_ELEMENT), only_excluded)


def _call(matcher: Affix) -> str:
    """Return the call of CEL that is true for the texts for which a matcher is true."""
    match matcher:
        case Prefix(text, False):
            return f"startsWith({cel_literal(text)})"
        case Suffix(text, False):
            return f"endsWith({cel_literal(text)})"
    return f"matches({cel_literal(plain_regexp(matcher))})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
