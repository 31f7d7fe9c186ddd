"""The JSON Schemas of subscriptions and events: what they refuse is refused, and of what is refused they say what they can."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import streamer
from streamer.cel_eval import ProgramCache
from streamer.errors import SubscriptionError
from streamer.events.layout import EventLayout
from streamer.events.schema import event_schema
from streamer.model import Limits, TopicDialect
from streamer.subscriptions.compile import compile_subscription
from streamer.subscriptions.operators import OPERATORS
from streamer.subscriptions.parse import READ, parse_subscription
from streamer.subscriptions.schema import arguments, subscription_schema
from streamer.subscriptions.subscription import Subscription
from tests.conformance.table import Case, load_all

SOURCES = Path(__file__).resolve().parents[2] / "docs" / "sources.md"

#: Why a subscription may be refused that obeys the schema, by the reason that its error gives.
UNSAID = {
    "text is no JSON, or a pattern that is given as text": r"malformed_json|lone_surrogate",
    "a name stands twice in an object": r"stands here twice",
    "CEL does not compile": r"^CelError",
    "a regexp does not compile": r"of the regexp$|expected a regular expression of RE2",
    "an address is no network": r"expected an IPv4 or IPv6 network",
    "a range is empty": r"the lower bound must be less",
    "a number is beyond float64, or an integer beyond 64 bits": r"float64|64 bits",
    "something is nested too deep": r"nested deeper than",
    "filters in groups are counted together": r"(conditions|alternatives), with these",
    "sums over the whole pattern": r"the pattern has more than .* states",
    "a topic pattern of too many words": r"a topic pattern of [0-9]+",
    "the engine has no default tenant": r"the engine has no default tenant",
}
#: Why an event may be refused that obeys the schema, by the code of its error and the place.
UNSAID_OF_EVENTS = {
    "the text": r"malformed_json|bad_utf8|lone_surrogate|too_deep|too_long",
    "a name of the envelope stands twice": r"duplicate_member",
    "an integer is spelled as a float": r"cannot be (1\.0|1e3)$",
    "what the caller gives, or the engine lacks": r"an argument '\*'|no_tenant",
    "several places make one name": r"a template that makes a star",
    "a day, an hour or an offset that does not exist": r"bad_timestamp",
    "a document that is JSON in a string, and a part within it": r"MongoDB: |inside of an encoded document",
    "the changes in a record": r"\bbad$",
    "a part within a document that the engine completes": r"a part of a wrong type that is put in",
}


@cache
def of_subscriptions(limits: Limits, topic_dialect: TopicDialect = "amqp") -> Draft202012Validator:
    return _validator(subscription_schema(limits, topic_dialect))


@cache
def of_events(layout: EventLayout) -> Draft202012Validator:
    return _validator(event_schema(layout))


def _validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def read(text: str | bytes) -> Any:
    """Return what a JSON text says; of what is no JSON, what obeys every schema."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def why(case: Case) -> str:
    """Return why the last subscription of a case is refused."""
    with pytest.raises(SubscriptionError) as refused:
        compile_subscription(
            case.subscriptions[-1],
            default_tenant=case.default_tenant,
            topic_dialect=case.topic_dialect,
            limits=case.limits,
            programs=ProgramCache(1),
        )
    return f"{type(refused.value).__name__}: {refused.value.reason}"


def test_every_subscription_that_is_accepted_obeys_the_schema() -> None:
    texts = {
        (text, case.limits, case.topic_dialect)
        for case in load_all()
        for text in (case.subscriptions if case.subscription_error is None else case.subscriptions[:-1])
    }
    assert len(texts) > 2_000
    wrong = [text for text, limits, dialect in texts if not of_subscriptions(limits, dialect).is_valid(read(text))]
    assert wrong == []


def test_what_is_refused_and_obeys_the_schema_no_schema_can_say() -> None:
    refused = [case for case in load_all() if case.subscription_error is not None]
    unsaid = {
        case.id: why(case)
        for case in refused
        if of_subscriptions(case.limits, case.topic_dialect).is_valid(read(case.subscriptions[-1]))
    }
    assert [found for found in unsaid.items() if not any(re.search(each, found[1]) for each in UNSAID.values())] == []
    assert [each for each, reason in UNSAID.items() if not any(re.search(reason, why) for why in unsaid.values())] == []
    assert len(refused) > 1.8 * len(unsaid)


SHAPES = {
    "an unknown member": {"id": "s", "filter": []},
    "no id": {"cel": "true"},
    "an empty id": {"id": ""},
    "a wrong type": {"id": "s", "transitions": "yes"},
    "null for what is left out": {"id": "s", "tenant": None},
    "an unknown operator": {"id": "s", "filters": [{"field": "a", "op": "=", "value": 1}]},
    "an operand that the operator does not take": {"id": "s", "filters": [{"field": "a", "op": "starts_with", "value": 1}]},
    "no operand": {"id": "s", "filters": [{"field": "a", "op": "in"}]},
    "an operand of an operator without": {"id": "s", "filters": [{"field": "a", "op": "changed", "value": 1}]},
    "a root that no filter has": {"id": "s", "filters": [{"field": "a", "root": "before", "op": "==", "value": 1}]},
    "a root of an operator without": {"id": "s", "filters": [{"field": "a", "root": "envelope", "op": "changed"}]},
    "a group without filters": {"id": "s", "filters": [{"any": []}]},
    "a group with two members": {"id": "s", "filters": [{"any": [{"field": "a", "op": "changed"}], "not": {}}]},
    "a wrong filter in a group": {"id": "s", "filters": [{"all": [{"not": {"field": "a"}}]}]},
    "an empty step in a path": {"id": "s", "filters": [{"field": "a..b", "op": "exists", "value": True}]},
    "an unknown dialect": {"id": "s", "dialect": "quamina"},
    "an unknown type": {"id": "s", "types": ["upsert"]},
    "an unknown operator of a pattern": {"id": "s", "pattern": {"a": [{"startswith": "x"}]}},
    "two operators in one": {"id": "s", "pattern": {"a": [{"prefix": "x", "suffix": "y"}]}},
    "a value that is not in an array": {"id": "s", "pattern": {"a": "x"}},
    "what stands alone in the strict dialect": {"id": "s", "dialect": "strict", "pattern": {"a": ["x", {"exists": True}]}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_wrong_shape_is_refused_by_the_schema_and_by_the_engine(shape: str, backend: str) -> None:
    assert not of_subscriptions(Limits()).is_valid(SHAPES[shape])
    with pytest.raises(SubscriptionError):
        streamer.Engine().add(SHAPES[shape])


def test_the_schema_has_the_limits_that_it_is_given() -> None:
    of_few = of_subscriptions(Limits(max_conditions=1, max_alternatives=2, max_cel_bytes=4))
    one = {"field": "a", "op": "in", "value": [1, 2]}
    assert of_few.is_valid({"id": "s", "filters": [one], "cel": "true", "pattern": {"a": [1, 2]}})
    assert not of_few.is_valid({"id": "s", "filters": [one, one]})
    assert not of_few.is_valid({"id": "s", "filters": [{**one, "value": [1, 2, 3]}]})
    assert not of_few.is_valid({"id": "s", "pattern": {"a": [1, 2, 3]}})
    assert not of_few.is_valid({"id": "s", "cel": "false"})


@given(st.text("/~01.ab", max_size=8))
def test_the_schema_takes_the_paths_that_the_parser_takes(field: str) -> None:
    given = {"id": "s", "filters": [{"field": field, "op": "exists", "value": True}]}
    try:
        compile_subscription(given, programs=ProgramCache(1))
    except SubscriptionError:
        assert not of_subscriptions(Limits()).is_valid(given)
    else:
        assert of_subscriptions(Limits()).is_valid(given)


@given(
    st.dictionaries(
        st.sampled_from([*READ, "x"]), st.none() | st.booleans() | st.text(max_size=2) | st.lists(st.text(max_size=1))
    )
)
def test_the_schema_takes_the_members_that_the_parser_takes(members: dict[str, Any]) -> None:
    members.pop("pattern", None)
    try:
        parse_subscription(members)
    except SubscriptionError:
        assert not of_subscriptions(Limits()).is_valid(members)
    else:
        assert of_subscriptions(Limits()).is_valid(members)


def test_every_member_and_every_operator_is_described() -> None:
    schema = subscription_schema()
    assert list(schema["properties"]) == list(READ)
    assert set(arguments(Subscription)) == set(READ)
    assert all(member["description"] for member in schema["properties"].values())
    condition = schema["$defs"]["filter"]["properties"]
    assert [each["const"] for each in condition["op"]["oneOf"]] == list(OPERATORS)
    assert all(member["description"] for member in condition.values())


def test_every_event_that_is_accepted_or_ignored_obeys_the_schema_of_its_layout() -> None:
    good = (case for case in load_all() if case.event is not None and case.event_error is None and case.event.strip())
    events = {(case.layout, case.event or b""): case.id for case in good}
    assert len(events) > 1_000
    assert [name for (layout, event), name in events.items() if not of_events(layout).is_valid(read(event))] == []


def test_what_event_is_refused_and_obeys_the_schema_no_schema_can_say() -> None:
    refused = {case.id: case for case in load_all() if case.event is not None and case.event_error is not None}
    unsaid = {
        name: f"{(case.event_error or {})['code']} of {name}"
        for name, case in refused.items()
        if of_events(case.layout).is_valid(read(case.event or b""))
    }
    assert [found for found in unsaid.values() if not any(re.search(each, found) for each in UNSAID_OF_EVENTS.values())] == []
    assert [each for each, reason in UNSAID_OF_EVENTS.items() if not any(re.search(reason, why) for why in unsaid.values())] == []


def records() -> list[tuple[str, Any]]:
    """Return the records of the page of sources that a preset reads, each with its preset."""
    found = []
    for section in re.split(r"^## ", SOURCES.read_text(), flags=re.M):
        preset = re.search(r'engine_of\("(\w+)"\)', section)
        if preset is not None:
            texts = re.findall(r"engine\.match\(r?'+(\{.*?\})'+[,)]", section, re.S)
            found += [(preset[1], json.loads(text)) for text in texts]
    return found


@pytest.mark.skipif(not SOURCES.exists(), reason="it reads the checkout")
def test_the_records_of_the_sources_obey_the_schemas_of_the_presets() -> None:
    found = records()
    # A message of pgoutput is a text, or bytes.
    assert {preset for preset, _ in found} >= set(EventLayout.PRESETS) - {"change", "pgoutput"}
    assert [
        (preset, record) for preset, record in found if not of_events(EventLayout.from_dict({"preset": preset})).is_valid(record)
    ] == []


BAD_EVENTS = [
    ("pgoutput", {}),
    ("pgoutput", "\\x4"),
    ("change", []),
    ("change", {"type": "upsert"}),
    ("change", {"tenant": "*"}),
    ("change", {"data": [1]}),
    ("change", {"ts": "2026-11-22T10:15:30Z"}),
    ("change", {"unknown": ["data"]}),
    ("debezium", {"op": "x"}),
    ("debezium", {"payload": {"op": "c", "after": 7}}),
    ("debezium", {"op": "c", "source": {"table": 7}}),
    ("supabase", {"type": "INSERT", "schema": 7, "table": "t"}),
    ("cloudevents", {"time": "yesterday"}),
]


@pytest.mark.parametrize(("preset", "event"), BAD_EVENTS)
def test_a_bad_event_is_refused_by_the_schema_and_by_the_engine(preset: Any, event: Any, backend: str) -> None:
    assert not of_events(EventLayout.preset(preset)).is_valid(event)
    with pytest.raises(streamer.EventError):
        streamer.Engine(format=preset).match(json.dumps(event))


def test_the_other_parts_of_an_ignored_event_may_be_anything(backend: str) -> None:
    event = {"op": "t", "after": 7, "source": {"table": []}}
    assert of_events(EventLayout.preset("debezium")).is_valid(event)
    assert streamer.Engine(format="debezium").match(json.dumps(event)).ignored == "type"
