"""Filter policies of SNS accept the messages that AWS's developer guide says, in both scopes.

The guide's own examples, and 7,200 random pairs of a policy and a message, compared with its rules in Python.
"""

from __future__ import annotations

import ipaddress
import json
import random
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest

from streamer import BulkSubscriptionError, Engine, Subscription, SubscriptionError
from streamer.importing import import_rules

TOPIC = "arn:aws:sns:eu-central-1:123456789012:orders"


def imported(given: Any) -> list[Subscription]:
    return import_rules("sns", given if isinstance(given, str) else json.dumps(given)).subscriptions


def refused(given: Any) -> str:
    with pytest.raises(SubscriptionError) as caught:
        imported(given)
    error = caught.value
    return str(error.errors[0]) if isinstance(error, BulkSubscriptionError) else str(error)


def attribute(kind: str, value: Any) -> dict[str, str]:
    return {"Type": kind, "Value": value if isinstance(value, str) else json.dumps(value)}


def notification(attributes: Mapping[str, Any] | None = None, message: str = "a message") -> str:
    sent = {
        "Type": "Notification",
        "MessageId": "1",
        "TopicArn": TOPIC,
        "Message": message,
        "Timestamp": "2026-11-22T10:15:30.123Z",
    }
    return json.dumps(sent if attributes is None else {**sent, "MessageAttributes": attributes})


def accepts(make: Callable[..., Engine], given: Any, event: str) -> bool:
    e = make(format="sns")
    e.add_many(imported(given))
    return e.matches_any(event)


# Examples of the developer guide


@pytest.mark.parametrize(
    ("conditions", "sent", "expected"),
    [
        (["rugby", "tennis"], attribute("String", "rugby"), True),
        (["rugby", "tennis"], attribute("String.Array", ["football", "tennis"]), True),
        (["rugby", "tennis"], attribute("String", "baseball"), False),
        (["rugby", "tennis"], attribute("String.Array", ["baseball"]), False),
        ([{"anything-but": ["rugby", "tennis"]}], attribute("String", "baseball"), True),
        ([{"anything-but": ["rugby", "tennis"]}], attribute("String.Array", ["rugby", "baseball"]), True),
        ([{"anything-but": ["rugby", "tennis"]}], attribute("String", "rugby"), False),
        ([{"anything-but": ["rugby", "tennis"]}], attribute("String.Array", ["rugby"]), False),
        ([{"anything-but": {"prefix": "order-"}}], attribute("String", "data-entry"), True),
        ([{"anything-but": {"prefix": "order-"}}], attribute("String", "order-number"), False),
        ([{"equals-ignore-case": "tennis"}], attribute("String", "TENNIS"), True),
        ([{"equals-ignore-case": "tennis"}], attribute("String.Array", ["Tennis"]), True),
        ([{"cidr": "10.0.0.0/24"}], attribute("String", "10.0.0.255"), True),
        ([{"cidr": "10.0.0.0/24"}], attribute("String", "10.1.1.0"), False),
        ([{"prefix": "bas"}], attribute("String", "basketball"), True),
        ([{"prefix": "bas"}], attribute("String", "rugby"), False),
        ([{"suffix": "ball"}], attribute("String", "baseball"), True),
        ([{"suffix": "ball"}], attribute("String", "rugby"), False),
        ([{"numeric": ["=", 301.5]}], attribute("Number", "301.5"), True),
        ([{"numeric": ["=", 301.5]}], attribute("Number", "3.015e2"), True),
        ([{"anything-but": [100, 500]}], attribute("Number", "101"), True),
        ([{"anything-but": [100, 500]}], attribute("Number", "100.1"), True),
        ([{"anything-but": [100, 500]}], attribute("Number", "100"), False),
        ([{"anything-but": [100, 500]}], attribute("Number.Array", [100, 50]), True),
        ([{"anything-but": [100, 500]}], attribute("Number.Array", [100, 500]), False),
        ([{"anything-but": [100, 500]}], attribute("String.Array", [100, 50]), True),
        ([{"anything-but": [100, 500]}], attribute("String.Array", [100, 500]), False),
        ([{"numeric": ["<", 0]}], attribute("Number", "-1"), True),
        ([{"numeric": [">", 0, "<=", 150]}], attribute("Number", "150"), True),
        ([{"numeric": [">", 0, "<=", 150]}], attribute("Number", "150.5"), False),
        ([{"numeric": [">", 0, "<=", 150]}], attribute("Number.Array", [0, 150.5, 149.5]), True),
        ([{"numeric": [">", 0, "<=", 150]}], attribute("Number.Array", [0, 150.5]), False),
        ([{"numeric": [">", 0, "<=", 150]}], attribute("String.Array", ["1", "x,5,y", "[7]"]), False),
        ([{"exists": True}], attribute("String", "fans"), True),
        ([{"exists": False}], attribute("String", "fans"), False),
        ([{"exists": True}], attribute("String.Array", []), False),
        ([{"exists": True}], attribute("String.Array", [None, ""]), False),
        ([{"exists": True}], attribute("String.Array", ["", None, "x"]), True),
        ([{"exists": True}], attribute("String.Array", [" "]), True),
        ([{"exists": True}], attribute("String.Array", [None, False]), True),
        ([{"exists": True}], attribute("Number.Array", [0]), True),
        ([{"exists": True}, None], attribute("String.Array", [None]), True),
        ([{"exists": False}], attribute("Number.Array", [1]), False),
        ([{"exists": True}], attribute("Binary", "aGk="), False),
        (["aGk="], attribute("Binary", "aGk="), False),
        (["100"], attribute("Number", "100"), False),
        ([100], attribute("String", "100"), False),
        ([100], attribute("String.Array", [100.0]), True),
        ([True, None], attribute("String.Array", [False, None]), True),
        (["true"], attribute("String.Array", [True]), False),
    ],
)
def test_a_condition_accepts_an_attribute_as_documented(
    conditions: list[Any], sent: dict[str, str], expected: bool, engine: Callable[..., Engine]
) -> None:
    assert accepts(engine, {"a": conditions}, notification({"a": sent})) == expected
    # The attributes that a policy does not name are ignored; each that it names must match.
    assert accepts(engine, {"a": conditions}, notification({"a": sent, "b": attribute("String", "x")})) == expected
    assert not accepts(engine, {"a": conditions, "c": [{"exists": True}]}, notification({"a": sent}))


@pytest.mark.parametrize("value", ["null", '""', "[]", "[null]", '[""]', '["", null]', "{}"])
def test_a_field_of_a_body_without_a_value_does_not_exist(value: str, engine: Callable[..., Engine]) -> None:
    in_body = {"FilterPolicy": {"a": [{"exists": True}]}, "FilterPolicyScope": "MessageBody"}
    assert not accepts(engine, in_body, notification(None, f'{{"a": {value}}}'))


@pytest.mark.parametrize("value", ["0", "-1e308", "1" * 40, "true", "false", '"x"', '"\\n"', '[null, "x"]', '["", 1]'])
def test_a_field_of_a_body_with_a_value_exists(value: str, engine: Callable[..., Engine]) -> None:
    for conditions in ([{"exists": True}], ["y", {"exists": True}]):
        in_body = {"FilterPolicy": {"a": conditions}, "FilterPolicyScope": "MessageBody"}
        assert accepts(engine, in_body, notification(None, f'{{"a": {value}}}'))


def test_exists_false_needs_another_attribute(engine: Callable[..., Engine]) -> None:
    policy = {"a": [{"exists": False}]}
    assert accepts(engine, policy, notification({"b": attribute("String", "x")}))
    assert accepts(engine, policy, notification({"a": attribute("Binary", "x")}))
    assert not accepts(engine, policy, notification({}))
    assert not accepts(engine, policy, notification())


def test_the_example_policy_accepts_the_example_message(engine: Callable[..., Engine]) -> None:
    policy = {
        "store": ["example_corp"],
        "event": [{"anything-but": "order_cancelled"}],
        "customer_interests": ["rugby", "football", "baseball"],
        "price_usd": [{"numeric": [">=", 100]}],
    }
    sent = {
        "store": attribute("String", "example_corp"),
        "event": attribute("String", "order_placed"),
        "customer_interests": attribute("String.Array", ["soccer", "rugby", "hockey"]),
        "price_usd": attribute("Number", "210.75"),
    }
    assert accepts(engine, policy, notification(sent))
    assert not accepts(engine, {**policy, "encrypted": [False]}, notification(sent))
    body = {"store": "example_corp", "event": "order_placed", "customer_interests": ["soccer", "rugby"], "price_usd": 210.75}
    in_body = {"FilterPolicy": json.dumps(policy), "FilterPolicyScope": "MessageBody"}
    assert accepts(engine, in_body, notification(None, json.dumps(body)))
    assert not accepts(engine, in_body, notification(sent))


@pytest.mark.parametrize("message", ["text", "[]", '[{"b": 1}]', '"{}"', "3", "null"])
def test_a_body_that_is_not_an_object_passes_no_policy(message: str, engine: Callable[..., Engine]) -> None:
    for policy in ({"a": [{"exists": False}]}, {"b": [1]}):
        given = {"FilterPolicy": policy, "FilterPolicyScope": "MessageBody"}
        assert not accepts(engine, given, notification(None, message))
    assert accepts(
        engine, {"FilterPolicy": {"a": [{"exists": False}]}, "FilterPolicyScope": "MessageBody"}, notification(None, "{}")
    )


def test_a_subscription_without_a_policy_gets_every_message_of_its_topic(engine: Callable[..., Engine]) -> None:
    for given in ({}, {"Attributes": {"TopicArn": TOPIC}}, {"FilterPolicy": "", "TopicArn": TOPIC}):
        assert accepts(engine, given, notification())
    assert not accepts(engine, {"Attributes": {"TopicArn": f"{TOPIC}-2"}}, notification())


# Files


def test_an_answer_of_get_subscription_attributes_has_topic_and_endpoint() -> None:
    attributes = {
        "SubscriptionArn": f"{TOPIC}:1",
        "TopicArn": TOPIC,
        "Protocol": "sqs",
        "Endpoint": "arn:aws:sqs:eu-central-1:1:q",
        "PendingConfirmation": "false",
        "FilterPolicy": '{"status": ["paid"]}',
        "FilterPolicyScope": "MessageBody",
    }
    (subscription,) = imported({"Attributes": attributes})
    assert subscription.to_dict() == {
        "id": f"{TOPIC}:1",
        "collection": TOPIC,
        "pattern": {"Message": {"status": ["paid"]}},
        "cel": "type(data) == map",
        "labels": {"endpoint": "arn:aws:sqs:eu-central-1:1:q", "protocol": "sqs"},
    }
    lines = "\n".join(json.dumps({"Attributes": {**attributes, "SubscriptionArn": each}}) for each in "ab")
    assert [each.id for each in imported(lines)] == ["a", "b"]


def test_templates_and_terraform_have_the_same_policies() -> None:
    policy = {"status": ["paid"]}
    expected = imported(policy)[0].cel
    yaml = """
Resources:
  Paid:
    Type: AWS::SNS::Subscription
    Properties: {TopicArn: !Ref Orders, Protocol: sqs, Endpoint: !GetAtt Queue.Arn, FilterPolicy: {status: [paid]}}
  Handler:
    Type: AWS::Serverless::Function
    Properties:
      Events:
        Body: {Type: SNS, Properties: {Topic: !Ref Orders, FilterPolicyScope: MessageBody, FilterPolicy: {status: [paid]}}}
"""
    paid, body = imported(yaml)
    assert (paid.id, paid.cel, paid.collection) == ("Paid", expected, None)
    assert paid.labels == {"endpoint": "Queue", "protocol": "sqs", "topic": "Orders"}
    assert (body.id, body.pattern) == ("HandlerBody", {"Message": policy})
    block = {"topic_arn": "${aws_sns_topic.orders.arn}", "protocol": "sqs", "filter_policy": json.dumps(policy)}
    (terraform,) = imported({"resource": {"aws_sns_topic_subscription": {"paid": block}}})
    assert terraform.to_dict() == {"id": "paid", "cel": expected, "labels": {"protocol": "sqs", "topic": block["topic_arn"]}}
    values = {"topic_arn": TOPIC, "filter_policy": json.dumps(policy), "filter_policy_scope": "MessageBody"}
    planned = {"address": "a", "type": "aws_sns_topic_subscription", "name": "paid", "values": values}
    (plan,) = imported({"planned_values": {"root_module": {"resources": [planned]}}})
    assert (plan.collection, plan.pattern) == (TOPIC, {"Message": policy})


def planned(*resources: dict[str, Any], **members: Any) -> dict[str, Any]:
    given = [{"type": "aws_sns_topic_subscription", "name": "q", **each} for each in resources]
    return {"planned_values": {"root_module": {"resources": given}}, **members}


@pytest.mark.parametrize("member", ["filter_policy", "filter_policy_scope"])
def test_what_a_plan_does_not_know_yet_is_not_missing(member: str) -> None:
    plan = planned(
        {"address": "a.q[0]", "values": {"filter_policy": '{"a": ["x"]}', member: None}},
        {"address": "a.q[1]", "values": {"filter_policy": '{"a": ["x"]}'}},
        resource_changes=[{"address": "a.q[0]", "change": {"after_unknown": {member: True, "arn": True, "topic_arn": True}}}],
    )
    found = import_rules("sns", json.dumps(plan), on_error="skip")
    assert [each.id for each in found.subscriptions] == ["a.q[1]"]
    assert [each.place for each in found.refused] == [f"a.q[0]: {member}"]
    assert "known only after apply" in found.refused[0].reason


def test_instances_of_a_resource_have_ids_of_their_own() -> None:
    arns = imported(planned({"address": "a.q[0]", "values": {"arn": "arn:1"}}, {"address": "a.q[1]", "values": {}}))
    assert [each.id for each in arns] == ["arn:1", "a.q[1]"]


def test_a_member_that_a_macro_may_add_is_not_missing() -> None:
    include = {"Name": "AWS::Include", "Parameters": {"Location": "s3://b/k"}}
    resource = {"Type": "AWS::SNS::Subscription", "Properties": {"TopicArn": TOPIC}}
    for given in (
        {**resource, "Properties": {"Fn::Transform": include}},
        {**resource, "Properties": {"Fn::If": ["A", {"FilterPolicy": {"a": ["x"]}}, {}]}},
        {**resource, "Fn::Transform": include},
    ):
        assert "decides its members at deployment" in refused({"Resources": {"S": given}})


@pytest.mark.parametrize(
    "policy",
    [
        {"resource": [{"prefix": "arn:"}]},
        {"resource": {"aws_id": ["x"]}},
        {"resource": {"aws_id": {"b": ["x"]}}},
        {"Subscriptions": ["x"]},
        {"Subscriptions": [{"prefix": "x"}]},
        {"id": ["x"], "rule": ["y"]},
    ],
)
def test_a_policy_on_a_field_with_the_name_of_a_file_s_member_is_a_policy(policy: dict[str, Any]) -> None:
    alone = import_rules("sns", json.dumps(policy), on_error="skip")
    assert [each.reason for each in alone.refused] in ([], ["attributes do not nest; the scope MessageBody does"])
    assert [each.cel is not None for each in alone.subscriptions] in ([], [True])
    in_body = imported({"FilterPolicy": policy, "FilterPolicyScope": "MessageBody"})
    assert [each.pattern for each in in_body] == [{"Message": policy}]


@pytest.mark.parametrize("text", ["", "[]", '{"resource": {"aws_sqs_queue": {"a": {"name": "q"}}}}', '{"Resources": {}}'])
def test_a_file_without_a_rule_is_an_error(text: str) -> None:
    assert "no rule found; expected filter policies of SNS" in refused(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"FilterPolicy": json.dumps('{"a": ["x"]}')}, "FilterPolicy: a policy is an object of JSON, not a string"),
        ({"a": {"b": ["c"]}}, "a.b: attributes do not nest; the scope MessageBody does"),
        ({"a": [{"cidr": "10.0.0.0/8"}, "x"]}, "a: cidr must be the only value"),
        ({"$or": [{"a": [{"cidr": "10.0.0.0/8"}]}, {"b": [1]}]}, "a: cidr must be the only value"),
        ({"a": ["x", {"regexp": "y"}]}, "a[1].regexp: EventBridge does not have this operator"),
        ({"a": ["x"], "$or": [{"a": ["y"]}, {"b": [1]}]}, "'a' stands twice"),
        ({"a": []}, "a: an array of values must not be empty"),
        ({"a": "x"}, "a: expected an array of values"),
        ({"a": [{"numeric": [">", "1"]}]}, "a[0].numeric[1]: expected a number"),
        ({"FilterPolicy": {"a": ["x"]}, "FilterPolicyScope": "Message"}, "FilterPolicyScope: expected MessageAttributes or"),
        ({"FilterPolicy": '{"a": ["x"}'}, "FilterPolicy: line 1, column 11: expected JSON"),
        ({"Attributes": {"PendingConfirmation": "true", "FilterPolicy": "{}"}}, "PendingConfirmation: it gets no messages"),
        ({"Subscriptions": []}, "a list of subscriptions has no filter policies"),
        (
            {"resource": {"aws_sns_topic_subscription": {"a": {"filter_policy": "${var.p}"}}}},
            "filter_policy: an expression of Terr",
        ),
        ({"a": ["x" * 20_000]}, "longer than 16,384 characters, the most for an expression of CEL"),
        ({"a": ["\u20ac" * 2_000]}, "cel: an expression of "),
        ("3", "expected JSON, or a template in YAML"),
        ("[" * 10_000, "this JSON nests too deep"),
    ],
)
def test_a_policy_without_an_exact_translation_is_refused_with_its_place(given: Any, message: str) -> None:
    assert message in refused(given)


# Any policy, any message


def values_of(sent: Mapping[str, Any], name: str) -> list[Any]:
    """Return the values of an attribute that SNS compares, as JSON."""
    match sent.get(name):
        case {"Type": "String", "Value": text}:
            return [text]
        case {"Type": "Number", "Value": text}:
            return [float(text)]
        case {"Type": "String.Array" | "Number.Array", "Value": text}:
            return [Decimal(str(each)) if isinstance(each, float) else each for each in json.loads(text)]
        case _:
            return []


def is_text(value: Any, operator: str, operand: Any) -> bool:
    if isinstance(operand, dict):
        value, operand = (value.lower() if isinstance(value, str) else value), operand["equals-ignore-case"].lower()
    if not isinstance(value, str):
        return False
    match operator:
        case "prefix":
            return value.startswith(operand)
        case "suffix":
            return value.endswith(operand)
        case "equals-ignore-case":
            return value.lower() == str(operand).lower()
        case _:
            return re.fullmatch(".*".join(map(re.escape, operand.split("*"))), value, re.DOTALL) is not None


def equal(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and value == other


def takes(condition: Any, value: Any) -> bool:
    match condition:
        case {"anything-but": dict(inner)}:
            ((operator, operands),) = inner.items()
            return not any(is_text(value, operator, each) for each in (operands if isinstance(operands, list) else [operands]))
        case {"anything-but": operands}:
            return not any(equal(value, each) for each in (operands if isinstance(operands, list) else [operands]))
        case {"numeric": ["=", number]}:
            return isinstance(value, float | int | Decimal) and not isinstance(value, bool) and value == number
        case {"numeric": [">", low, "<=", high]}:
            return isinstance(value, float | int | Decimal) and not isinstance(value, bool) and low < value <= high
        case {"cidr": net}:
            return ipaddress.ip_address(value) in ipaddress.ip_network(net)
        case dict():
            ((operator, operand),) = condition.items()
            return is_text(value, operator, operand)
        case _:
            return equal(value, condition)


def accepted(policy: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    def takes_any(name: str, conditions: list[Any]) -> bool:
        values = values_of(sent, name)
        return any(
            (any(value not in (None, "") for value in values) if each["exists"] else not values) and bool(sent)
            if isinstance(each, dict) and "exists" in each
            else any(takes(each, value) for value in values)
            for each in conditions
        )

    return all(
        any(accepted(each, sent) for each in conditions) if name == "$or" else takes_any(name, conditions)
        for name, conditions in policy.items()
    )


TEXTS = [
    "x",
    "xy",
    "Xy",
    'q"x',
    "a\\",
    "é/x",
    "É/X",
    "\u20ac",
    "x,y",
    '"x"',
    "]",
    " x",
    "\U0001f600",
    "\n",
    "5",
    "true",
    "u0041",
    "A",
]
NUMBERS = [5, 5.0, -1.5, 0, 100, 1e3]


def random_conditions(chosen: random.Random) -> list[Any]:
    text, number = chosen.choice(TEXTS), chosen.choice(NUMBERS)
    every: list[Any] = [
        *(text, number, True, None, {"exists": True}, {"exists": False}),
        *({operator: text} for operator in ("prefix", "suffix", "equals-ignore-case")),
        *({operator: {"equals-ignore-case": text}} for operator in ("prefix", "suffix")),
        {"wildcard": text.replace("\\", "") + "*y"},
        *({"anything-but": {operator: [text, chosen.choice(TEXTS)]}} for operator in ("prefix", "suffix", "equals-ignore-case")),
        *({"anything-but": each} for each in (text, [text, chosen.choice(TEXTS)], number, [number, 5])),
        *({"numeric": each} for each in (["=", number], [">", -2, "<=", 5])),
    ]
    return chosen.sample(every, chosen.choice([1, 1, 2, 3]))


def random_attribute(chosen: random.Random) -> dict[str, str]:
    match chosen.choice(["String", "Number", "String.Array", "String.Array", "Binary"]):
        case "Number":
            return attribute("Number", chosen.choice(["5", "5.0", "-1.50", "0", "-0", "1e2", "1000", "0.1", "3"]))
        case "String.Array":
            elements = [chosen.choice([*TEXTS, 5, 5.0, -1.5, 0, True, None]) for _ in range(chosen.randrange(4))]
            separators = chosen.choice([(",", ":"), (", ", ": "), (" ,\n", ":")])
            return attribute("String.Array", json.dumps(elements, ensure_ascii=chosen.random() < 0.5, separators=separators))
        case kind:
            return attribute(kind, chosen.choice(TEXTS))


def random_policy(chosen: random.Random) -> dict[str, Any]:
    names = chosen.sample(["a", "b", "c.d-e"], chosen.choice([1, 1, 2]))
    policy: dict[str, Any] = {name: random_conditions(chosen) for name in names}
    if chosen.random() < 0.3:
        policy["$or"] = [{f"{each}2": random_conditions(chosen)} for each in "ab"]
    return policy


def test_random_policies_accept_what_the_rules_accept(engine: Callable[..., Engine]) -> None:
    """120 policies, each with 60 messages."""
    chosen = random.Random(11)
    policies = [random_policy(chosen) for _ in range(120)]
    e = engine(format="sns")
    e.add_many(imported(policies))
    matches = 0
    for _ in range(60):
        sent = {name: random_attribute(chosen) for name in ("a", "b", "c.d-e", "a2", "b2") if chosen.random() < 0.7}
        found = {match.subscription_id for match in e.match(notification(sent))}
        for number, policy in enumerate(policies, start=1):
            assert (f"sns-{number}" in found) == accepted(policy, sent), (policy, sent)
        matches += len(found)
    assert 1_000 < matches < 6_000
