"""Records of the real Debezium engine are matched as their database answers: no certain answer is untrue.

`make golden` runs the engine: it compares the committed records with new ones, and other statements with other conditions.
tests/tools/golden_debezium.py writes the files.
"""

from __future__ import annotations

import json
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
from tests.tools.golden_conditions import Unreadable, each_once, write
from tests.tools.golden_debezium import SOURCES, Observed
from tests.tools.golden_oracle import ROUTES, Asked, Counts, compare, rows, subscriptions
from tests.tools.golden_postgres import DELETES
from tests.tools.golden_source import Configuration, Source

POSTGRES, MARIADB = SOURCES["postgres"], SOURCES["mariadb"]
golden = cache(golden_debezium.committed)
#: The size of a run that is not set.
USUAL = {"STATEMENTS": "300", "CONDITIONS": "1500"}
CONFIGURATIONS = [
    pytest.param(source, of, id=f"{source.name}-{of.name}")
    for source in SOURCES.values()
    for of in source.configurations.values()
]
PLACES = [(source.name, name, route) for source in SOURCES.values() for name in source.configurations for route in ROUTES]
#: What no condition compares of a numeric without scale that is a text.
TEXTS = {"n ==", "n !=", "n in", "n not_in"}
#: The columns with operators that no condition has, by docs/sources.md: base64, and JSON in a text.
UNREADABLE = {
    "postgres": {
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
    }
    | {f"unwrapped_{mode.replace('-', '_')}": {"n2", "j member", "jb member", "h member"} for mode in DELETES},
    "mariadb": {
        "precise_adaptive_time_microseconds_on": {"i8u"},
        "precise_adaptive_time_microseconds_off": {"i8u", "n", "n0"},
        "double_connect_on": set(),
        "double_connect_off": {"i8u"},
        "string_isostring_on": {"tm order", "tm6 order"},
        "string_isostring_off": {"i8u", "tm order", "tm6 order"},
        "precise_nanoseconds_on": set(),
        "precise_nanoseconds_off": {"i8u", "n", "n0"},
        "double_microseconds_on": {"i8u"},
        "double_microseconds_off": {"i8u"},
        "unwrapped_on": {"i8u"},
        "unwrapped_off": {"i8u", "n", "n0"},
    },
}


VALUES = {"==", "!=", "in", "not_in", "<", "<=", ">", ">="}


def in_turn(asked: Sequence[Asked], parts: int) -> list[Sequence[Asked]]:
    """Return subscriptions in parts, of which each record is matched against one."""
    return [asked[part::parts] for part in range(parts)]


#: Each record of a configuration meets one in so many conditions; the next configuration has others.
SHARE = 5


@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.integration)])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("source", "of"), CONFIGURATIONS)
def test_no_certain_answer_is_untrue(
    source: Source, of: Configuration, route: str, share: int, engine: Callable[..., Any], backend: str
) -> None:
    observed, conditions = golden(source)
    part = PLACES.index((source.name, of.name, route)) % share
    asked = subscriptions(source, conditions, observed.answers, of)[part::share]
    counts = compare(engine, rows(source, observed, of), in_turn(asked, (5 if backend == "native" else 35) // share), of, route)
    assert counts.untrue == []
    kinds = {"insert", "update"} if of.deletes in ("drop", "tombstone", "delete-to-tombstone") else {"insert", "update", "delete"}
    # A whole record of MariaDB has whole rows, and the transform drops its other records.
    assert (set(counts.kinds), counts.uncertain > 0) == (kinds, source.may_lack(of))
    assert (counts.ignored > 0) == (source is POSTGRES or of.deletes is None)


@pytest.mark.parametrize(("source", "of"), CONFIGURATIONS)
def test_which_values_no_condition_reads(source: Source, of: Configuration) -> None:
    found = set()
    for condition in each_once(random.Random(0), source):
        try:
            write(condition, of, source)
        except Unreadable:
            found.add(f"{condition[1]} {condition[2]}")
    operators = {column: {each.split()[1] for each in found if each.split()[0] == column} for column in source.columns}
    short = {column for column, known in operators.items() if known == VALUES}
    short |= {f"{column} {each}" for column, known in operators.items() if column not in short for each in known}
    # Whether a time of day in text can be compared by order depends on the random time: on its fraction.
    found = {f"{each.split()[0]} order" if each.startswith("tm") else each for each in short}
    assert found == UNREADABLE[source.name][of.name]


def test_the_oracle_finds_an_untrue_answer(engine: Callable[..., Any], backend: str) -> None:
    """An answer of the database that is changed is one that Streamer does not have."""
    of, (observed, conditions) = POSTGRES.configurations["precise_adaptive_on"], golden(POSTGRES)
    index = next(index for index, condition in enumerate(conditions) if condition[:3] == ["leaf", "i4", "=="])
    every = {(change[0], side) for change in observed.changes for side in "on"}
    asked = subscriptions(POSTGRES, [conditions[index]], [every - observed.answers[index]], of)
    counts = compare(engine, rows(POSTGRES, observed, of), [asked], of, "format")
    assert len(counts.untrue) == counts.answers - counts.uncertain > 100


@pytest.fixture(scope="module", params=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    """Return a source whose engine can run here."""
    found = SOURCES[request.param]
    try:
        found.jars()
    except NotThere as error:
        pytest.fail(str(error))
    return found


@pytest.mark.integration
def test_the_committed_records_are_what_the_engine_writes(source: Source, tmp_path: Path) -> None:
    assert golden_debezium.made(source, tmp_path).splitlines() == golden_debezium.text_of_committed(source).splitlines()


@pytest.mark.integration
def test_random_conditions_on_random_statements(source: Source, tmp_path: Path, engine: Callable[..., Any], backend: str) -> None:
    """GOLDEN_SEED, GOLDEN_STATEMENTS and GOLDEN_CONDITIONS set the run; it appends a line to tests/records/golden.jsonl."""
    seed = int(os.environ.get("GOLDEN_SEED", random.SystemRandom().randrange(10**6)))
    statements, wanted = (
        int(os.environ.get(f"GOLDEN_{name}", usual)) for name, usual in (("STATEMENTS", 300), ("CONDITIONS", 1500))
    )
    # The commit that runs, whatever is checked out when it ends.
    stamp, began, rng = records.stamp(), time.monotonic(), random.Random(seed)
    conditions = golden_debezium.conditions_of(source, rng, wanted)
    observed = golden_debezium.observe(source, rng, statements, conditions, tmp_path)
    all_of_it = _compared(source, engine, observed, conditions, 100 if backend == "native" else 15)
    untrue = [each for counts in all_of_it for each in counts.untrue]
    assert not untrue, f"GOLDEN_SEED={seed}: {len(untrue)} untrue, as {untrue[:5]}"
    told = {"seed": seed, "source": source.name, "debezium": source.version, "configurations": len(source.configurations)}
    counted = {"statements": observed.statements, "conditions": len(conditions), "changes": len(observed.changes)}
    for name in ("records", "answers", "uncertain"):
        counted[name] = sum(getattr(counts, name) for counts in all_of_it)
    took = round(time.monotonic() - began)
    records.append("golden", {**stamp, **told, "backend": backend, **counted, "untrue": len(untrue), "seconds": took})


def _compared(source: Source, engine: Callable[..., Any], observed: Observed, conditions: list[Any], most: int) -> list[Counts]:
    """Compare the records of each configuration, each record against at most so many subscriptions."""
    found = []
    for of in source.configurations.values():
        asked = subscriptions(source, conditions, observed.answers, of)
        for route in ROUTES:
            parts = in_turn(asked, max(1, len(asked) // most))
            found.append(compare(engine, rows(source, observed, of), parts, of, route))
    return found


@pytest.mark.integration
@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_the_engine_of_mariadb_stops_at_a_row_that_is_not_whole(image: str, tmp_path: Path) -> None:
    """Its records have whole rows, so a null in one is a null."""
    name, server = next(iter(MARIADB.configurations)), MARIADB.start()
    try:
        with golden_debezium.engines(MARIADB, server, tmp_path, [name]) as process:
            server.transaction([f"SET SESSION binlog_row_image = {image}", "INSERT INTO by_key (id) VALUES (1)"])
            server.transaction(["UPDATE by_key SET t = 'x'", "UPDATE by_key SET i4 = 1", "DELETE FROM by_key"])
            assert process.wait(timeout=60) == 1
    finally:
        server.close()
    assert "Error processing row in by_key, internal schema size" in (tmp_path / "errors").read_text()
    changes = map(json.loads, (tmp_path / f"{name}.jsonl").read_text().splitlines())
    assert not [each for each in changes if each["topic"].endswith(".by_key")]
