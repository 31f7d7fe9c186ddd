"""A damaged file of AWS is an error of a subscription, with nothing else raised."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
import yaml

from streamer import SubscriptionError
from streamer.importing import import_rules

POLICY = {"a": ["x", {"anything-but": [1]}], "$or": [{"b": [{"numeric": [">", 1, "<", 2]}]}, {"c.d": [{"exists": False}]}]}
FUNCTION = {"Type": "AWS::Serverless::Function", "Properties": {"Events": {}}}
FILES: dict[str, list[dict[str, Any]]] = {
    "eventbridge": [
        {"Rules": [{"Name": "a", "EventPattern": json.dumps(POLICY), "State": "ENABLED", "EventBusName": "b"}]},
        {
            "Resources": {
                "R": {
                    "Type": "AWS::Events::Rule",
                    "Condition": "C",
                    "Properties": {
                        "EventPattern": POLICY,
                        "EventBusName": {"Ref": "B"},
                        "Targets": [{"Id": "1", "Arn": {"Fn::GetAtt": ["F", "Arn"]}}],
                    },
                },
                "F": {
                    **FUNCTION,
                    "Properties": {"Events": {"E": {"Type": "EventBridgeRule", "Properties": {"Pattern": POLICY}}}},
                },
            }
        },
        {"resource": [{"aws_cloudwatch_event_rule": {"a": {"event_pattern": json.dumps(POLICY), "is_enabled": True}}}]},
        {
            "planned_values": {
                "root_module": {"child_modules": [{"resources": [{"type": "aws_cloudwatch_event_rule", "values": {}}]}]}
            }
        },
        {"id": "r", "rule": POLICY},
        {"Rules": [{"Name": "a", "EventPattern": json.dumps(json.dumps(POLICY))}, {"Name": "b"}]},
        {"Resources": {"F": {**FUNCTION, "Properties": {"Events": {"E": {"Type": {"Ref": "X"}}}}}}},
        {
            "planned_values": {"root_module": {"resources": [{"address": "a", "type": "aws_cloudwatch_event_rule"}]}},
            "resource_changes": [{"address": "a", "change": {"after_unknown": {"event_pattern": True}}}],
        },
    ],
    "sns": [
        {"Attributes": {"SubscriptionArn": "s", "TopicArn": "t", "FilterPolicy": json.dumps(POLICY), "Protocol": "sqs"}},
        {"FilterPolicy": {"a": POLICY}, "FilterPolicyScope": "MessageBody"},
        {
            "Resources": {
                "S": {"Type": "AWS::SNS::Subscription", "Properties": {"TopicArn": {"Ref": "T"}, "FilterPolicy": POLICY}},
                "F": {**FUNCTION, "Properties": {"Events": {"E": {"Type": "SNS", "Properties": {"FilterPolicy": POLICY}}}}},
            }
        },
        {"resource": {"aws_sns_topic_subscription": {"a": {"filter_policy": json.dumps(POLICY)}}}},
        POLICY,
        {"FilterPolicy": json.dumps(json.dumps(POLICY)), "SubscriptionArn": "s"},
        {"Subscriptions": [{"SubscriptionArn": "s"}]},
    ],
}
JUNK: list[Any] = [
    None,
    True,
    0,
    -1.5,
    1e300,
    10**30,
    "",
    "x",
    "${x}",
    "{",
    "[1]",
    [],
    [[]],
    [1],
    {},
    {"a": {}},
    {"Ref": "x"},
    {"Ref": 1},
]


def damaged(chosen: random.Random, value: Any) -> Any:
    """Return a value of which a part is replaced, left out, or stands under another name."""
    if isinstance(value, dict | list) and value and chosen.random() < 0.85:
        key = chosen.choice(list(value) if isinstance(value, dict) else range(len(value)))
        kind = chosen.random()
        if kind < 0.8:
            value[key] = damaged(chosen, value[key])
        elif kind < 0.9 or isinstance(value, list):
            del value[key]
        else:
            value[chosen.choice(["", "a.b", "$or", "Fn::If", "\ud800"])] = value.pop(key)
        return value
    return copy.deepcopy(chosen.choice(JUNK))


@pytest.mark.parametrize("kind", FILES)
def test_a_damaged_file_is_an_error_of_a_subscription(kind: str) -> None:
    """300 damaged files, as JSON and as YAML."""
    chosen = random.Random(9)
    refused = 0
    for _ in range(300):
        given = copy.deepcopy(chosen.choice(FILES[kind]))
        for _ in range(chosen.randrange(1, 3)):
            given = damaged(chosen, given)
        text = json.dumps(given) if chosen.random() < 0.7 else yaml.safe_dump(given)
        try:
            refused += len(import_rules(kind, text, on_error="skip").refused)
        except SubscriptionError:
            refused += 1
    assert refused > 100
