"""Write tests/cdc/golden_debezium.jsonl.gz: records of the real Debezium engine, and PostgreSQL's answers about their rows.

`python -m tests.tools.golden_debezium` writes the file. Its statements and conditions are random, by a fixed seed.
tests/cdc/test_golden.py compares the file with a new run, and runs others.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.tools.fetched import fetch
from tests.tools.golden_answers import Database
from tests.tools.golden_columns import CONFIGURATIONS, Configuration
from tests.tools.golden_conditions import Condition, compares_before, each_once, generate, to_sql
from tests.tools.golden_statements import SETUP, TABLES, Statements
from tests.tools.postgres import Cluster

FILE: Final = Path(__file__).parents[1] / "cdc" / "golden_debezium.jsonl.gz"
VERSION: Final = "3.6.1.Final"
_SEED, _STATEMENTS, _CONDITIONS = 20260, 24, 100
_PROGRAM: Final = Path(__file__).parent / "golden" / "Golden.java"
_OPTIONS: Final = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "offset.flush.interval.ms": "60000",
    "plugin.name": "pgoutput",
    "slot.drop.on.stop": "true",
    "publication.name": "golden",
    "table.include.list": ",".join(f"public.{table}" for table in (*TABLES, "finish")),
    "skipped.operations": "none",
    "poll.interval.ms": "20",
}
#: Statements that end the golden run, because few random ones may lack them.
_LAST: Final = (
    ["SELECT pg_logical_emit_message(true, 'golden', 'hello')"],
    ["UPDATE {table} SET t = 'lost' WHERE id >= 0", "ROLLBACK"],
    [*(f"UPDATE {{table}} SET {each} WHERE id >= 0" for each in ("i4 = 7", "big = t", "id = id + 100"))],
    ["TRUNCATE {table}"],
)
#: Members that differ in each run: times, and positions in the log.
_VOLATILE: Final = re.compile(
    r'("(?:ts_ms|ts_us|ts_ns|txId|lsn|__source_ts_ms)":)\d+|("sequence":"|"id":"|MessageId@)(\[[^]]*\]|\d+:\d+|[0-9a-f]+)(")'
)


@dataclass
class Observed:
    """What a run showed.

    Attributes:
        schemas: the schemas of Kafka Connect, to which records refer by number.
        records: the records by configuration: `topic`, `key`, `value` and the numbers of their schemas.
        changes: number, table, operation, old and new key of each change, in order.
        answers: for each condition the changes and sides (`o`, `n`) for which it is true in the database.
        statements: how many statements were run on each table.
    """

    schemas: list[str]
    records: dict[str, list[dict[str, Any]]]
    changes: list[list[Any]]
    answers: list[set[tuple[int, str]]]
    statements: int


def jars() -> list[Path]:
    """Return the jars of Debezium. Raises NotThere."""
    return [*fetch("io.debezium", "debezium-embedded", VERSION), *fetch("io.debezium", "debezium-connector-postgres", VERSION)]


def observe(
    rng: random.Random, statements: int, conditions: Sequence[Condition], folder: Path, last: Sequence[Sequence[str]] = ()
) -> Observed:
    """Run random statements and then *last* with an engine for each configuration; return the records and the database's answers.

    Raises:
        NotThere: Debezium could not be fetched.
        AssertionError: the engine failed, or the database's answers disagree with each other.
    """
    many = str(len(CONFIGURATIONS) + 10)
    # By the index of the key a statement changes rows in one order in each run. Such plans look too expensive not to compile.
    plans = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
    cluster = Cluster({"max_replication_slots": many, "max_wal_senders": many, "max_connections": "200"} | plans)
    try:
        cluster.sql(*SETUP)
        made = Statements(rng)
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            database = Database(connection)
            for statement in made.snapshot():
                database.run([statement])
            for configuration in CONFIGURATIONS.values():
                _write_options(folder, configuration, cluster)
            command = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars()))]
            with open(folder / "errors", "w") as errors:
                program = [*command, str(_PROGRAM), str(folder)]
                process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment())
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "ready\n", (folder / "errors").read_text()[-3000:]
                _until_active(connection)
                count, plain = 0, [condition for condition in conditions if not compares_before(condition)]
                for transaction in (*made.transactions(statements), *last):
                    count += sum(statement != "ROLLBACK" for statement in transaction)
                    database.run(transaction, rng.choice(plain))
                connection.execute("INSERT INTO finish VALUES (1)")
                assert process.wait(timeout=60 + statements) == 0, (folder / "errors").read_text()[-3000:]
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            changes, answers = database.history(), [database.answer(condition) for condition in conditions]
            database.check()
    finally:
        cluster.close()
    records = {name: [json.loads(line) for line in _lines(folder / f"{name}.jsonl")] for name in CONFIGURATIONS}
    return Observed(list(_lines(folder / "schemas.jsonl")), records, changes, answers, count)


def _lines(file: Path) -> Iterator[str]:
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            yield line.rstrip("\n")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")}


def _write_options(folder: Path, configuration: Configuration, cluster: Cluster) -> None:
    name = configuration.name
    server = {
        "name": name,
        "topic.prefix": name,
        "slot.name": name,
        "database.hostname": "127.0.0.1",
        "database.port": str(cluster.port),
        "database.user": "streamer",
        "database.password": "secret-word",
        "database.dbname": "postgres",
    }
    options = _OPTIONS | server | configuration.options()
    (folder / f"{name}.properties").write_text("".join(f"{key}={value}\n" for key, value in options.items()))


def _until_active(connection: psycopg.Connection[Any]) -> None:
    """Wait until every engine has read its snapshot and reads changes."""
    deadline = time.monotonic() + 120
    active = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
    while (row := connection.execute(active).fetchone()) is None or row[0] < len(CONFIGURATIONS):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def small(observed: Observed, conditions: Sequence[Condition]) -> Iterator[dict[str, Any]]:
    """Yield the lines of the file: without times and positions, with one heartbeat, and schemas numbered by first use."""
    numbers: dict[int, int] = {}
    lines: list[dict[str, Any]] = []
    for name, records in observed.records.items():
        beat = False
        for record in records:
            if "heartbeat" in record["topic"]:
                if beat:
                    continue
                beat = True
            line: dict[str, Any] = {"configuration": name, "topic": record["topic"].removeprefix(f"{name}.")}
            for part in ("key", "value"):
                if (number := record.get(f"{part}_schema")) is not None:
                    line[f"{part}_schema"] = numbers.setdefault(number, len(numbers))
                text = record[part]
                line[part] = None if text is None else _VOLATILE.sub(_constant, text)
            lines.append(line)
    # The first heartbeat comes at a time of its own.
    lines.sort(key=lambda line: "heartbeat" in line["topic"])
    yield from ({"schema": observed.schemas[number]} for number in numbers)
    yield from ({"change": change} for change in observed.changes)
    for condition, answer in zip(conditions, observed.answers, strict=True):
        sides = [f"{change}{side}" for change, side in sorted(answer)]
        yield {"condition": condition, "sql": to_sql(condition), "true": " ".join(sides)}
    yield from lines


def _constant(found: re.Match[str]) -> str:
    return f"{found[1]}1" if found[1] else f"{found[2]}1:1{found[4]}"


def committed() -> tuple[Observed, list[Condition]]:
    """Return what the committed file has, and its conditions."""
    schemas: list[str] = []
    records: dict[str, list[dict[str, Any]]] = {name: [] for name in CONFIGURATIONS}
    found = Observed(schemas, records, [], [], _STATEMENTS)
    conditions: list[Condition] = []
    for text in text_of_committed().decode().splitlines():
        line = json.loads(text)
        if "schema" in line:
            schemas.append(line["schema"])
        elif "change" in line:
            found.changes.append(line["change"])
        elif "condition" in line:
            assert to_sql(line["condition"]) == line["sql"], f"run `make golden`: {line['sql']}"
            conditions.append(line["condition"])
            found.answers.append({(int(each[:-1]), each[-1]) for each in line["true"].split()})
        else:
            records[line["configuration"]].append(line)
    return found, conditions


def conditions_of(rng: random.Random, count: int) -> list[Condition]:
    """Return conditions: one for each column and operator, as many as fit, and random ones."""
    found = list(each_once(rng))[:count]
    return [*found, *(generate(rng) for _ in range(count - len(found)))]


def made(folder: Path) -> bytes:
    """Return the text of the file, from a run of the engine."""
    rng = random.Random(_SEED)
    conditions = [*each_once(rng), *(generate(rng) for _ in range(_CONDITIONS))]
    return _text(small(observe(rng, _STATEMENTS, conditions, folder, _LAST), conditions))


def _text(lines: Iterable[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()


def text_of_committed() -> bytes:
    """Return the text of the committed file."""
    return gzip.decompress(FILE.read_bytes())


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        FILE.write_bytes(gzip.compress(made(Path(folder)), mtime=0))


if __name__ == "__main__":
    main()
