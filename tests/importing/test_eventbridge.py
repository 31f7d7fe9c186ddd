"""Rules of EventBridge match as AWS recorded it, from every file that contains them; what has no exact translation is refused.

153 of the 155 templates that AWS answered agree. `DIFFERENT` has the other two.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamer import BulkSubscriptionError, Engine, Subscription, SubscriptionError
from streamer.importing import import_rules
from tests.conformance.table import TESTDATA

FOLDER = TESTDATA.parent.parent / "shared" / "authorities" / "aws-event-patterns"
TEMPLATES = sorted(FOLDER.glob("*.json5"))

#: Documented in docs/coming-from/eventbridge.md.
DIFFERENT = {
    "dot_joining_event": "a name of the event contains a dot; a pattern of plain names does not join it",
    "content_wildcard_complex_EXC": "AWS refuses the rule as too complex, so no account has it",
}

PATTERN = {"source": ["shop"], "detail": {"status": ["paid"]}}


def imported(text: str) -> list[Subscription]:
    return import_rules("eventbridge", text).subscriptions


def refused(text: str) -> str:
    with pytest.raises(SubscriptionError) as caught:
        import_rules("eventbridge", text)
    error = caught.value
    return str(error.errors[0]) if isinstance(error, BulkSubscriptionError) else str(error)


@pytest.mark.skipif(not TEMPLATES, reason=f"no templates in {FOLDER.parent.name}/{FOLDER.name} beside the checkout")
def test_imported_patterns_give_the_answers_of_aws(engine: Callable[..., Engine]) -> None:
    wrong = []
    for path in TEMPLATES:
        text = re.sub(r"^\s*//.*$", "", path.read_text("utf-8"), flags=re.M)
        template, e = json.loads(re.sub(r",(\s*[}\]])", r"\1", text)), engine(format="document")
        try:
            e.add_many(imported(json.dumps(template["EventPattern"])))
            answer = "match" if e.matches_any(json.dumps(template["Event"])) else "NEG"
        except SubscriptionError:
            answer = "EXC"
        expected = path.stem.rpartition("_")[2]
        if answer != (expected if expected in ("NEG", "EXC") else "match"):
            wrong.append(path.stem)
    assert wrong == sorted(DIFFERENT)
    assert len(TEMPLATES) == 155


# Files


def test_an_answer_of_list_rules_has_a_rule_each() -> None:
    rules = [
        {"Name": "paid", "Arn": "arn:aws:events:r:1:rule/paid", "EventPattern": json.dumps(PATTERN), "State": "ENABLED"},
        {"Name": "all", "EventPattern": '{"source": [{"prefix": ""}]}', "EventBusName": "orders"},
    ]
    first, second = imported(json.dumps({"Rules": rules}))
    assert (first.id, first.pattern, first.labels) == ("paid", PATTERN, {"arn": "arn:aws:events:r:1:rule/paid"})
    assert (second.id, second.labels) == ("all", {"bus": "orders"})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"EventPattern": "{}", "State": "DISABLED"}, "Rules[0]: State: a disabled rule matches no event"),
        ({"ScheduleExpression": "rate(1 hour)"}, "Rules[0]: ScheduleExpression: a schedule has no events"),
        ({"EventPattern": '{"a": [1]}', "ScheduleExpression": "rate(1 hour)"}, "Rules[0]: ScheduleExpression: a schedule"),
        ({"EventPattern": '{"a": [1}'}, "Rules[0]: EventPattern: line 1, column 9: expected JSON"),
        ({"EventPattern": '{"a": [1], "a": [2]}'}, 'Rules[0]: EventPattern: the name "a" stands twice'),
        ({"EventPattern": '{"a": {"b": [{"prefix": 1}]}}'}, "Rules[0]: EventPattern.a.b[0].prefix: expected a string"),
        ({"EventPattern": '{"a": {"b": ["x", {"regexp": "x"}]}}'}, "Rules[0]: EventPattern.a.b[1].regexp: EventBridge does not"),
        (
            {"EventPattern": '{"$or": [{"a": [{"shellstyle": "x"}]}, {"b": [1]}]}'},
            'EventPattern["$or"][0].a[0].shellstyle: EventB',
        ),
        ({}, "Rules[0]: EventPattern: expected a pattern"),
        ({"EventPattern": json.dumps('{"a": [1]}')}, "Rules[0]: EventPattern: a pattern is an object of JSON, not a string"),
    ],
)
def test_a_rule_that_matches_nothing_here_is_refused_with_its_place(rule: dict[str, Any], message: str) -> None:
    assert message in refused(json.dumps({"Rules": [{"Name": "r", **rule}]}))


def test_with_skip_the_other_rules_stay() -> None:
    rules = [{"Name": "off", "State": "DISABLED"}, {"Name": "on", "EventPattern": json.dumps(PATTERN)}]
    found = import_rules("eventbridge", json.dumps({"Rules": rules}), on_error="skip")
    assert [each.id for each in found.subscriptions] == ["on"]
    assert [each.place for each in found.refused] == ["Rules[0]: State"]


TEMPLATE = """
AWSTemplateFormatVersion: 2010-09-09
Transform: AWS::Serverless-2016-10-31
Resources:
  Topic: {Type: AWS::SNS::Topic}
  OrderPaid:
    Type: AWS::Events::Rule
    Condition: IsProduction
    Properties:
      EventBusName: !Ref Orders
      EventPattern:
        source: [shop]
        detail: {status: [paid]}
      Targets:
        - {Id: a, Arn: !GetAtt Invoice.Arn}
        - {Id: b, Arn: 'arn:aws:sqs:eu-central-1:1:paid'}
  Invoice:
    Type: AWS::Serverless::Function
    Properties:
      Events:
        Paid: {Type: EventBridgeRule, Properties: {Pattern: {source: [shop], detail: {status: [paid]}}}}
        Old: {Type: CloudWatchEvent, Properties: {RuleName: old, Pattern: {source: [shop], detail: {status: [paid]}}}}
        Api: {Type: Api, Properties: {Path: /}}
"""


def test_a_template_in_yaml_has_rules_and_events_of_functions() -> None:
    rules = imported(TEMPLATE)
    assert [each.id for each in rules] == ["OrderPaid", "InvoicePaid", "old"]
    assert all(each.pattern == PATTERN for each in rules)
    targets = ["Invoice", "arn:aws:sqs:eu-central-1:1:paid"]
    assert rules[0].labels == {"bus": "Orders", "condition": "IsProduction", "targets": targets}


def test_a_template_in_json_is_the_same() -> None:
    rule = {"Type": "AWS::Events::Rule", "Properties": {"EventPattern": PATTERN, "Name": "paid"}}
    (subscription,) = imported(json.dumps({"Resources": {"OrderPaid": rule, "Other": {"Type": "AWS::SNS::Topic"}}}))
    assert (subscription.id, subscription.pattern) == ("paid", PATTERN)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{a: [!Ref Name]}", "EventPattern.a[0]: Ref has a value only after deployment"),
        ("{a: {b: [x, !Sub 'x-${Y}']}}", "EventPattern.a.b[1]: Fn::Sub"),
        ("!If [Prod, {a: [1]}, {a: [2]}]", "EventPattern: Fn::If"),
        ("{a: [{prefix: !Join ['', [a, b]]}]}", "EventPattern.a[0].prefix: Fn::Join"),
        ("{a: !Unheard {b: [1]}}", "EventPattern.a: Fn::Unheard"),
        ("{a: [yes]}", "EventPattern.a[0]: readers of YAML differ about 'yes'"),
        ("{a: [012]}", "EventPattern.a[0]: readers of YAML differ about '012'"),
        ("{a: [1e3]}", "EventPattern.a[0]: readers of YAML differ about '1e3'"),
        ("{on: [x]}", "EventPattern: readers of YAML differ about 'on'"),
        ("{7: [x]}", "EventPattern: a name must be a string"),
        ("{a: [.inf]}", "EventPattern.a[0]: readers of YAML differ about '.inf'"),
        ("{a: [&x 1, *x]}", "aliases are not read"),
        ("{a: [1], a: [2]}", "'a' stands twice"),
        ("{a: {<<: {b: [1]}}}", "merge keys (<<) are not read"),
        ("{a: [1}", "expected YAML: "),
        (f"{'[' * 10_000}", "nested deeper than 64 levels"),
        ("{a: !!binary aGk=}", "EventPattern.a: expected an array"),
        ("!!binary aGk=", "EventPattern: a pattern is an object of JSON, not a string"),
    ],
)
def test_what_only_a_deployment_or_a_reader_decides_is_refused(pattern: str, message: str) -> None:
    template = f"Resources:\n  R:\n    Type: AWS::Events::Rule\n    Properties:\n      EventPattern: {pattern}\n"
    assert message in refused(template)


def test_plain_words_of_yaml_are_the_values_of_json() -> None:
    pattern = "{a: [1, -1.5, true, null, x, 'yes', 2010-09-09, False, TRUE, {numeric: [=, 5]}]}"
    template = f"Resources: {{R: {{Type: 'AWS::Events::Rule', Properties: {{EventPattern: {pattern}}}}}}}"
    assert imported(template)[0].pattern == {
        "a": [1, -1.5, True, None, "x", "yes", "2010-09-09", False, True, {"numeric": ["=", 5]}]
    }


def test_a_rule_of_a_template_without_a_pattern_is_refused() -> None:
    assert "Resources.R: EventPattern: expected a pattern" in refused(
        json.dumps({"Resources": {"R": {"Type": "AWS::Events::Rule"}}})
    )
    assert "longer than 131,072 characters" in refused("Resources:\n" + "  # a comment\n" * 10_000)


def test_a_loop_of_a_template_is_refused() -> None:
    template = {"Resources": {"Fn::ForEach::Rules": ["Name", ["a"], {"R${Name}": {"Type": "AWS::Events::Rule"}}]}}
    assert 'Resources["Fn::ForEach::Rules"]: a loop' in refused(json.dumps(template))


def configuration(**members: Any) -> str:
    return json.dumps({"resource": {"aws_cloudwatch_event_rule": {"paid": members}}})


def test_a_configuration_of_terraform_has_patterns_as_text_or_encoded() -> None:
    text = json.dumps(PATTERN)
    assert [each.to_dict() for each in imported(configuration(event_pattern=text))] == [{"id": "paid", "pattern": PATTERN}]
    (encoded,) = imported(configuration(event_pattern=f"${{jsonencode({text})}}", name="p", event_bus_name="orders"))
    assert encoded.to_dict() == {"id": "p", "pattern": PATTERN, "labels": {"bus": "orders"}}
    blocks = [{"aws_cloudwatch_event_rule": [{"a": [{"event_pattern": text}]}, {"b": {"event_pattern": text}}]}]
    assert [each.id for each in imported(json.dumps({"resource": blocks}))] == ["a", "b"]


@pytest.mark.parametrize(
    "pattern", ['${jsonencode({source = ["shop"]})}', "${var.pattern}", '{"source": ["${var.source}"]}', "%{ if x }1"]
)
def test_an_expression_of_terraform_is_refused(pattern: str) -> None:
    place = "resource.aws_cloudwatch_event_rule.paid: event_pattern: "
    assert f"{place}an expression of Terraform. Import what `terraform show -json` prints" in refused(
        configuration(event_pattern=pattern)
    )


def test_a_disabled_rule_of_terraform_is_refused() -> None:
    assert ": is_enabled: a disabled" in refused(configuration(event_pattern=json.dumps(PATTERN), is_enabled=False))
    assert ": state: a disabled" in refused(configuration(event_pattern=json.dumps(PATTERN), state="DISABLED"))
    assert ": is_enabled: a disabled" in refused(configuration(event_pattern=json.dumps(PATTERN), is_enabled="false"))
    assert ": is_enabled: expected ENABLED or true" in refused(configuration(event_pattern=json.dumps(PATTERN), is_enabled="no"))
    assert len(imported(configuration(event_pattern=json.dumps(PATTERN), is_enabled="true"))) == 1
    assert ": state: an expression" in refused(configuration(event_pattern=json.dumps(PATTERN), state="${var.state}"))


@pytest.mark.parametrize("repeated", [{"count": 0}, {"count": 2}, {"for_each": "${toset(var.names)}"}])
def test_rules_that_terraform_counts_are_refused(repeated: dict[str, Any]) -> None:
    (name,) = repeated
    assert f": {name}: only Terraform counts its rules" in refused(configuration(event_pattern=json.dumps(PATTERN), **repeated))


@pytest.mark.parametrize("kind", ["planned_values", "values"])
def test_a_plan_and_a_state_have_final_values(kind: str) -> None:
    rule = {"address": "aws_cloudwatch_event_rule.a", "mode": "managed", "type": "aws_cloudwatch_event_rule", "name": "a"}
    # What looks like an expression is text there.
    first = {**rule, "values": {"name": "A", "event_pattern": '{"source": ["${x}"]}'}}
    inner = {
        **rule,
        "address": "module.m.aws_cloudwatch_event_rule.a",
        "values": {"name": "B", "event_pattern": json.dumps(PATTERN)},
    }
    root = {"resources": [first, {**rule, "mode": "data"}], "child_modules": [{"resources": [inner]}]}
    one, two = imported(json.dumps({kind: {"root_module": root}}))
    assert (one.id, one.pattern, two.id, two.pattern) == ("A", {"source": ["${x}"]}, "B", PATTERN)


@pytest.mark.parametrize("member", ["event_pattern", "state", "is_enabled"])
def test_what_a_plan_does_not_know_yet_is_refused(member: str) -> None:
    rule = {"address": "r", "type": "aws_cloudwatch_event_rule", "name": "r", "values": {"event_pattern": '{"a": [1]}'}}
    change = {"address": "r", "change": {"after_unknown": {member: True, "arn": True, "id": True}}}
    plan = {"planned_values": {"root_module": {"resources": [rule]}}, "resource_changes": [change]}
    assert f"r: {member}: known only after apply" in refused(json.dumps(plan))


def test_an_event_whose_type_is_a_function_is_no_rule() -> None:
    events = {"E": {"Type": {"Ref": "X"}}, "F": {"Type": "EventBridgeRule", "Properties": {"Pattern": PATTERN}}}
    template = {"Resources": {"F": {"Type": "AWS::Serverless::Function", "Properties": {"Events": events}}}}
    assert [each.id for each in imported(json.dumps(template))] == ["FF"]


def test_thirty_thousand_names_are_compared_in_a_second() -> None:
    names = ", ".join(f'"n{number}": [1]' for number in range(30_000))
    started = time.perf_counter()
    assert 'the name "n29999" stands twice' in refused(f'{{{names}, "n29999": [2]}}')
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(PATTERN),
        json.dumps(json.dumps(PATTERN)),
        json.dumps([PATTERN]),
        json.dumps({"EventPattern": PATTERN}),
        json.dumps({"EventPattern": json.dumps(PATTERN)}),
        json.dumps({"id": "eventbridge-1", "rule": PATTERN}),
    ],
)
def test_a_pattern_may_stand_alone(text: str) -> None:
    assert [each.to_dict() for each in imported(text)] == [{"id": "eventbridge-1", "pattern": PATTERN}]


def answer(*names: str) -> dict[str, Any]:
    return {"Rules": [{"Name": name, "EventPattern": json.dumps(PATTERN)} for name in names]}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(answer("a", "b")) + "\n" + json.dumps(answer("c")),
        json.dumps(answer("a", "b"), indent=2) + "\n" + json.dumps(answer("c"), indent=2) + "\n",
        json.dumps([answer("a", "b"), answer("c")]),
    ],
)
def test_several_answers_may_stand_in_a_file(text: str) -> None:
    assert [each.id for each in imported(text)] == ["a", "b", "c"]


def test_a_rule_of_one_of_several_answers_is_refused_with_its_place() -> None:
    text = json.dumps(answer("a"), indent=2) + "\n" + json.dumps({"Rules": [{"State": "DISABLED"}]})
    assert f"line {text.count(chr(10)) + 1}: Rules[0]: State: a disabled rule" in refused(text)
    assert "[1]: Rules[0]: State: a disabled rule" in refused(json.dumps([answer("a"), {"Rules": [{"State": "DISABLED"}]}]))


def test_a_template_in_yaml_may_have_its_names_in_quotes() -> None:
    text = f'"Resources":\n  "R": {{"Type": "AWS::Events::Rule", "Properties": {{"EventPattern": {json.dumps(PATTERN)}}}}}\n'
    assert [each.to_dict() for each in imported(text)] == [{"id": "R", "pattern": PATTERN}]


def test_the_right_file_is_named() -> None:
    state = {"version": 4, "terraform_version": "1.9.0", "resources": [{"type": "aws_cloudwatch_event_rule"}]}
    assert "Import what `terraform show -json` prints" in refused(json.dumps(state))
    serverless = "service: shop\nprovider:\n  name: aws\nfunctions:\n  paid: {handler: a.b}\n"
    assert "Import the template that `serverless package` writes" in refused(serverless)


def test_patterns_may_stand_one_a_line() -> None:
    text = f"{json.dumps(PATTERN)}\n\n{json.dumps(json.dumps(PATTERN))}\n"
    assert [each.pattern for each in imported(text)] == [PATTERN, PATTERN]
    assert "line 2: column 6: expected JSON" in refused(f"{json.dumps(PATTERN)}\n" + '{"a":}')


@pytest.mark.parametrize(
    "text", ["hello", "- 1", "3", "null", '{"a":' * 10_000, "[" * 100_000, '{"a": 1}', '{"a": [NaN]}', "\x00"]
)
def test_bad_input_is_an_error_of_a_subscription(text: str) -> None:
    with pytest.raises(SubscriptionError):
        imported(text)


def test_a_deep_pattern_is_refused() -> None:
    assert "nested deeper than 512 levels" in refused('{"a":' * 600 + "[1]" + "}" * 600)


# Meaning


def test_an_imported_rule_matches_events_of_the_format(engine: Callable[..., Engine]) -> None:
    e = engine(format="eventbridge")
    e.add_many(imported(json.dumps(PATTERN)))
    event = {"id": "1", "source": "shop", "detail-type": "Order", "detail": {"status": "paid"}}
    assert e.matches_any(json.dumps(event))
    assert not e.matches_any(json.dumps({**event, "source": "other"}))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ({"a": ["x"], "$or": [{"a": ["y"]}, {"b": [1]}]}, "'a' stands twice"),
        ({"a": {"b": [1]}, "a.b": [2]}, "'a.b' stands twice"),
        ({"$or": [{"a": ["y"]}, {"b": [1]}], "c": {"$or": [{"d": [1]}, {"e": [1]}]}, "c.d": [1]}, "'c.d' stands twice"),
        ({"a.b": [1], "$or": [{"c": [1]}, {"d": [1]}]}, "a name with a dot and $or have no exact translation"),
        ({"a": ["x", {"equals-ignore-case": "STRASSE \u00e9"}]}, 'a[1]["equals-ignore-case"]: EventBridge folds the case'),
        ({"a": [{"anything-but": {"equals-ignore-case": ["\u00e9"]}}]}, 'a[0]["anything-but"]: EventBridge folds the case'),
        ({"a": [{"cidr": "0.0.0.0/0"}]}, "a[0].cidr: EventBridge has networks of fewer addresses than all"),
        ({"a": [{"cidr": "::ffff:1.2.3.4/100"}]}, "a[0].cidr: EventBridge reads such an address as one of IPv4"),
        ({"a": [1, 1234567890123456]}, "a[1]: EventBridge compares numbers of at most 15 digits"),
        ({"a": [{"anything-but": [1234567890123456]}]}, "EventBridge compares numbers of at most 15 digits"),
        ({"a": [{"numeric": [">", 0.1234567890123456]}]}, "EventBridge compares numbers of at most 15 digits"),
        ({"a.b": [1, {"exists": False}]}, "whose values have exists false among others"),
        ({"a.b": [1], "a": [2]}, "have no translation together"),
        ({"a.b.c.d.e.f": [1]}, "more than 16 meanings"),
        ({"a.b.c": [1], "d.e.f": [1], "g.h": [1]}, "more than 16 meanings"),
    ],
)
def test_a_pattern_without_an_exact_translation_is_refused(pattern: dict[str, Any], message: str) -> None:
    assert message in refused(json.dumps(pattern))


def test_a_path_may_stand_in_several_alternatives() -> None:
    pattern = {"$or": [{"a": [1], "b": [2]}, {"a": [3]}]}
    assert imported(json.dumps(pattern))[0].pattern == pattern


def joined(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of an event as EventBridge sees them: names joined by dots."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from joined(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for inner in value:
            yield from joined(inner, path)
    else:
        yield path, value


def matches(pattern: dict[str, list[Any]], event: Any) -> bool:
    """Return whether EventBridge matches a pattern of dotted names: for each name, a leaf that one of its values takes."""
    leaves = list(joined(event))

    def takes(name: str, matcher: Any) -> bool:
        values = [value for path, value in leaves if path == name]
        match matcher:
            case {"exists": bool(expected)}:
                return bool(values) == expected
            case {"prefix": str(prefix)}:
                return any(isinstance(value, str) and value.startswith(prefix) for value in values)
            case {"anything-but": other}:
                return any(value != other for value in values)
            case _:
                return matcher in values

    return all(any(takes(name, matcher) for matcher in matchers) for name, matchers in pattern.items())


WORDS = ["a", "b", "a.b", "b.a", "a.b.a"]


def random_pattern(chosen: random.Random) -> dict[str, list[Any]]:
    values: list[Any] = ["x", {"prefix": "x"}, {"anything-but": "x"}, {"exists": True}, {"exists": False}]
    return {name: chosen.sample(values, chosen.choice([1, 1, 2])) for name in chosen.sample(WORDS, chosen.randrange(1, 3))}


def random_value(chosen: random.Random, depth: int) -> Any:
    kind = chosen.randrange(4 if depth else 1)
    if kind == 0:
        return chosen.choice(["x", "xy", "z"])
    if kind == 1:
        return [chosen.choice(["x", "z"]) for _ in range(chosen.randrange(3))]
    return {chosen.choice(WORDS): random_value(chosen, depth - 1) for _ in range(chosen.randrange(1, 3))}


def test_names_with_dots_match_as_joined_names(engine: Callable[..., Engine]) -> None:
    """Random patterns, each with 100 random events whose names have dots and nest."""
    chosen = random.Random(7)
    patterns = [random_pattern(chosen) for _ in range(150)]
    found = import_rules("eventbridge", json.dumps(patterns), on_error="skip")
    assert len(found.subscriptions) > 80
    e = engine(format="document")
    e.add_many(found.subscriptions)
    matched = 0
    for _ in range(100):
        event = {chosen.choice(WORDS): random_value(chosen, 2) for _ in range(chosen.randrange(1, 4))}
        ids = {match.subscription_id for match in e.match(json.dumps(event))}
        for each in found.subscriptions:
            pattern = patterns[int(each.id.removeprefix("eventbridge-")) - 1]
            assert (each.id in ids) == matches(pattern, event), (pattern, event)
        matched += len(ids)
    assert 1_000 < matched < 8_000
