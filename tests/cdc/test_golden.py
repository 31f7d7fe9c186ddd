"""Records of the real Debezium engine are matched as PostgreSQL answers: no certain answer is untrue.

`make golden` runs the engine: it compares the committed records with new ones, and other statements with other conditions.
tests/tools/golden_debezium.py writes the file.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.tools import golden_debezium, records
from tests.tools.fetched import NotThere
from tests.tools.golden_columns import COLUMNS, CONFIGURATIONS, DELETES
from tests.tools.golden_conditions import Unreadable, each_once, write
from tests.tools.golden_debezium import Observed
from tests.tools.golden_oracle import ROUTES, Asked, Counts, compare, rows, subscriptions

golden = cache(golden_debezium.committed)
#: The size of a run that is not set.
USUAL = {"STATEMENTS": "300", "CONDITIONS": "1500"}
READ = [(name, route) for name in CONFIGURATIONS for route in ROUTES]
#: What no condition compares of a numeric without scale that is a text.
TEXTS = {"n ==", "n !=", "n in", "n not_in"}
#: The columns with operators that no condition has, by docs/sources.md: base64, and JSON in a text.
UNREADABLE = {
    "precise_adaptive_on": {"j text", "jb text"},
    "precise_adaptive_off": {"n2", "j member", "jb member", "h member"},
    "double_connect_on": {"j text", "jb text"},
    "double_connect_off": {"j member", "jb member"},
    "string_isostring_on": {*TEXTS, "j text", "jb text", "tm order"},
    "string_isostring_off": {*TEXTS, "j member", "jb member", "h member", "tm order"},
    "precise_nanoseconds_on": {"j text", "jb text"},
    "precise_nanoseconds_off": {"n2", "j member", "jb member"},
    "string_microseconds_on": {*TEXTS, "j text", "jb text"},
    "string_microseconds_off": {*TEXTS, "j member", "jb member", "h member"},
    "double_adaptive_time_microseconds_on": {"j text", "jb text"},
    "double_adaptive_time_microseconds_off": {"j member", "jb member"},
    "unwrapped_on": {"j text", "jb text"},
} | {f"unwrapped_{mode.replace('-', '_')}": {"n2", "j member", "jb member", "h member"} for mode in DELETES}


VALUES = {"==", "!=", "in", "not_in", "<", "<=", ">", ">="}


def in_turn(asked: Sequence[Asked], parts: int) -> list[Sequence[Asked]]:
    """Return subscriptions in parts, of which each record is matched against one."""
    return [asked[part::parts] for part in range(parts)]


#: Each record of a configuration meets one in so many conditions; the next configuration has others.
SHARE = 5


@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.integration)])
@pytest.mark.parametrize(("name", "route"), READ)
def test_no_certain_answer_is_untrue(name: str, route: str, share: int, engine: Callable[..., Any], backend: str) -> None:
    of, (observed, conditions) = CONFIGURATIONS[name], golden()
    asked = subscriptions(conditions, observed.answers, of)[READ.index((name, route)) % share :: share]
    counts = compare(engine, rows(observed, of), in_turn(asked, (5 if backend == "native" else 35) // share), of, route)
    assert counts.untrue == []
    kinds = {"insert", "update"} if of.deletes in ("drop", "tombstone", "delete-to-tombstone") else {"insert", "update", "delete"}
    assert (set(counts.kinds), counts.ignored > 0, counts.uncertain > 0) == (kinds, True, True)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_which_values_no_condition_reads(name: str) -> None:
    of, found = CONFIGURATIONS[name], set()
    for condition in each_once(random.Random(0)):
        try:
            write(condition, of)
        except Unreadable:
            found.add(f"{condition[1]} {condition[2]}")
    operators = {column: {each.split()[1] for each in found if each.split()[0] == column} for column in COLUMNS}
    short = {column for column, known in operators.items() if known == VALUES}
    short |= {f"{column} {each}" for column, known in operators.items() if column not in short for each in known}
    # Whether a time of day in text can be compared by order depends on the random time: on its fraction.
    assert {"tm order" if each.startswith("tm ") else each for each in short} == UNREADABLE[name]


def test_the_oracle_finds_an_untrue_answer(engine: Callable[..., Any], backend: str) -> None:
    """An answer of the database that is changed is one that Streamer does not have."""
    of, (observed, conditions) = CONFIGURATIONS["precise_adaptive_on"], golden()
    index = next(index for index, condition in enumerate(conditions) if condition[:3] == ["leaf", "i4", "=="])
    every = {(change[0], side) for change in observed.changes for side in "on"}
    asked = subscriptions([conditions[index]], [every - observed.answers[index]], of)
    counts = compare(engine, rows(observed, of), [asked], of, "format")
    assert len(counts.untrue) == counts.answers - counts.uncertain > 100


@pytest.fixture(scope="module")
def fetched() -> None:
    try:
        golden_debezium.jars()
    except NotThere as error:
        pytest.fail(str(error))


@pytest.mark.integration
@pytest.mark.usefixtures("fetched")
def test_the_committed_records_are_what_the_engine_writes(tmp_path: Path) -> None:
    assert golden_debezium.made(tmp_path).splitlines() == golden_debezium.text_of_committed().splitlines()


@pytest.mark.integration
@pytest.mark.usefixtures("fetched")
def test_random_conditions_on_random_statements(tmp_path: Path, engine: Callable[..., Any], backend: str) -> None:
    """GOLDEN_SEED, GOLDEN_STATEMENTS and GOLDEN_CONDITIONS set the run; it appends a line to tests/records/golden.jsonl."""
    seed = int(os.environ.get("GOLDEN_SEED", random.SystemRandom().randrange(10**6)))
    statements, wanted = (
        int(os.environ.get(f"GOLDEN_{name}", usual)) for name, usual in (("STATEMENTS", 300), ("CONDITIONS", 1500))
    )
    # The commit that runs, whatever is checked out when it ends.
    stamp, began, rng = records.stamp(), time.monotonic(), random.Random(seed)
    conditions = golden_debezium.conditions_of(rng, wanted)
    observed = golden_debezium.observe(rng, statements, conditions, tmp_path)
    all_of_it = _compared(engine, observed, conditions, 100 if backend == "native" else 15)
    untrue = [each for counts in all_of_it for each in counts.untrue]
    assert not untrue, f"GOLDEN_SEED={seed}: {len(untrue)} untrue, as {untrue[:5]}"
    told = {"seed": seed, "debezium": golden_debezium.VERSION, "configurations": len(CONFIGURATIONS), "backend": backend}
    counted = {"statements": observed.statements, "conditions": len(conditions), "changes": len(observed.changes)}
    for name in ("records", "answers", "uncertain"):
        counted[name] = sum(getattr(counts, name) for counts in all_of_it)
    took = round(time.monotonic() - began)
    records.append("golden", {**stamp, **told, **counted, "untrue": len(untrue), "seconds": took})


def _compared(engine: Callable[..., Any], observed: Observed, conditions: list[Any], most: int) -> list[Counts]:
    """Compare the records of each configuration, each record against at most so many subscriptions."""
    found = []
    for name, route in READ:
        of = CONFIGURATIONS[name]
        asked = subscriptions(conditions, observed.answers, of)
        found.append(compare(engine, rows(observed, of), in_turn(asked, max(1, len(asked) // most)), of, route))
    return found
