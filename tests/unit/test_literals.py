"""The words that users write are types: a type checker tells of a misspelt one, and the parsers take just these."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import streamer
from streamer.events.layout import EVENT_TYPES, MEANINGS, EventLayout
from streamer.subscriptions.filters import ROOTS
from streamer.subscriptions.groups import GROUPS
from streamer.subscriptions.operators import OPERATORS
from streamer.subscriptions.parse import READ
from streamer.subscriptions.subscription import FilterDict, SubscriptionDict

ROOT = Path(__file__).resolve().parents[2]


def test_the_types_have_the_words_that_the_parsers_take() -> None:
    assert get_args(streamer.FilterOperator) == tuple(OPERATORS)
    assert get_args(streamer.FilterRoot) == ROOTS
    assert get_args(streamer.FilterGroupOperator) == GROUPS == tuple(get_type_hints(streamer.FilterGroupDict))
    assert get_args(streamer.EventType) == tuple(READ["types"].schema["items"]["enum"]) == EVENT_TYPES == MEANINGS[:3]
    assert get_args(streamer.Dialect) == tuple(READ["dialect"].schema["enum"])
    assert get_args(streamer.TopicDialect) == tuple(READ["topic_dialect"].schema["enum"])
    assert get_args(streamer.OnUnknown) == tuple(READ["on_unknown"].schema["enum"])
    assert get_args(streamer.CelEvaluator) == tuple(READ["cel_evaluator"].schema["enum"])
    assert get_args(streamer.FormatName) == EventLayout.PRESETS


def test_the_types_of_mappings_have_the_members_that_the_parser_takes() -> None:
    assert set(get_type_hints(SubscriptionDict)) == set(READ)
    assert list(get_type_hints(FilterDict)) == ["field", "op", "value", "root", "ignore_case"]


#: What a user may write; a line that is wrong says which word mypy is to name.
PROGRAM = """
import streamer
from streamer.automaton import Quamina

streamer.Filter("a", "==", 1)
streamer.Filter("a", "=", 1)  # wrong: '='
streamer.Filter("a", "startswith", "x")  # wrong: 'startswith'
streamer.FilterGroup("any", [streamer.Filter("a", "==", 1), {"not": {"field": "b", "op": "changed"}}])
streamer.FilterGroup("or", [])  # wrong: 'or'
streamer.Subscription(id="s", types=["insert"], on_unknown="skip", dialect="strict", cel_evaluator="portable")
streamer.Subscription(id="s", types=["upsert"])  # wrong: 'upsert'
streamer.Subscription(id="s", on_unknown="drop")  # wrong: "on_unknown"
streamer.Subscription(id="s", dialect="quamina")  # wrong: "dialect"
streamer.Subscription(id="s", cel_evaluator="python")  # wrong: "cel_evaluator"
streamer.Engine(format="debezium", cel_evaluator="portable")
streamer.Subscription(id="s", topic="a/+", topic_dialect="mqt")  # wrong: "topic_dialect"
streamer.Engine(topic_dialect="nats")
streamer.Engine(format="debezum")  # wrong: "format"
streamer.Engine(cel_evaluator="cel-python")  # wrong: "cel_evaluator"
streamer.EventLayout.preset("maxwel")  # wrong: "preset"
streamer.EventLayout(ts_format="millis")  # wrong: "ts_format"
Quamina(dialect="stict")  # wrong: "dialect"
good: streamer.SubscriptionDict = {"id": "s", "filters": [{"field": "a", "op": "in", "value": [1]}], "types": ["delete"]}
engine = streamer.Engine()
engine.add(good)
engine.add_many([good])
of_a_member: streamer.SubscriptionDict = {"id": "s", "filter": []}  # wrong: "filter"
of_a_group: streamer.SubscriptionDict = {"id": "s", "filters": [{"any": [{"not": {"field": "a", "op": "changed"}}]}]}
of_another_group: streamer.FilterGroupDict = {"or": []}  # wrong: "or"
of_an_operator: streamer.FilterDict = {"field": "a", "op": "eq", "value": 1}  # wrong: "op"
without_an_id: streamer.SubscriptionDict = {"cel": "true"}  # wrong: "id"
for match in engine.match(b"{}"):
    print(match.transition == "entered")  # wrong: 'entered'
"""


@pytest.mark.slow
def test_mypy_tells_of_each_misspelt_word(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "program.py")],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    found = {int(line): message for line, message in re.findall(r"program\.py:(\d+): error: (.*)", checked.stdout)}
    wrong = {
        number: line.rpartition("# wrong: ")[2] for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong: " in line
    }
    assert set(found) == set(wrong), checked.stdout + checked.stderr
    assert [found[number] for number, word in wrong.items() if word not in found[number]] == []
