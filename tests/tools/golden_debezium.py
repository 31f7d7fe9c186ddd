"""Write tests/cdc/golden_NAME.jsonl.gz: records of the real Debezium engine, and the answers of a database about their rows.

`python -m tests.tools.golden_debezium` writes the files of all sources, or of those it names. Statements and conditions are
random, by a fixed seed. tests/cdc/test_golden.py compares the files with new runs, and runs others.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.tools.golden_answers import Database
from tests.tools.golden_conditions import Condition, compares_before, each_once, generate, to_sql
from tests.tools.golden_mariadb import MariaDB
from tests.tools.golden_postgres import Postgres
from tests.tools.golden_source import Server, Source
from tests.tools.golden_statements import Statements

SOURCES: Final[Mapping[str, Source]] = {source.name: source for source in (Postgres(), MariaDB())}
_SEED, _STATEMENTS, _CONDITIONS = 20260, 24, 100
_PROGRAM: Final = Path(__file__).parent / "golden" / "Golden.java"
#: Members that differ in each run: times, and positions in the log.
_VOLATILE: Final = re.compile(
    r'("(?:ts_ms|ts_us|ts_ns|txId|lsn|__source_ts_ms|pos|thread)":)\d+'
    r'|("(?:sequence|id|gtid|file)":"|MessageId@)(\[[^]]*\]|\d+:\d+|\d+-\d+-\d+|[0-9a-f]+|log\.\d+)(")'
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


def observe(
    source: Source,
    rng: random.Random,
    statements: int,
    conditions: Sequence[Condition],
    folder: Path,
    last: Sequence[Sequence[str]] = (),
) -> Observed:
    """Run random statements and then *last* with an engine for each configuration; return the records and the database's answers.

    Raises:
        NotThere: Debezium could not be fetched.
        AssertionError: the engine failed, or the database's answers disagree with each other.
    """
    server = source.start()
    try:
        made, database = Statements(rng, source), Database(server, source)
        for statement in made.snapshot():
            database.run([statement])
        with engines(source, server, folder, source.configurations) as process:
            count, plain = 0, [condition for condition in conditions if not compares_before(condition)]
            for transaction in (*made.transactions(statements), *last):
                count += sum(statement != "ROLLBACK" for statement in transaction)
                database.run(transaction, rng.choice(plain))
            server.transaction(["INSERT INTO finish VALUES (1)"])
            assert process.wait(timeout=60 + statements) == 0, (folder / "errors").read_text()[-3000:]
        changes, answers = database.history(), [database.answer(condition) for condition in conditions]
        database.check()
    finally:
        server.close()
    records = {name: [json.loads(line) for line in _lines(folder / f"{name}.jsonl")] for name in source.configurations}
    return Observed(list(_lines(folder / "schemas.jsonl")), records, changes, answers, count)


@contextmanager
def engines(source: Source, server: Server, folder: Path, names: Collection[str]) -> Iterator[subprocess.Popen[str]]:
    """Run the program with configurations, all of which have read their snapshots and read changes."""
    for of in (source.configurations[name] for name in names):
        lines = (f"{key}={value}\n" for key, value in source.properties(of, server.port).items())
        (folder / f"{of.name}.properties").write_text("".join(lines))
    command = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, source.jars()))]
    with open(folder / "errors", "w") as errors:
        program = [*command, str(_PROGRAM), str(folder)]
        process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment())
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n", (folder / "errors").read_text()[-3000:]
        deadline = time.monotonic() + 300
        while server.readers() < len(names):
            has_ended = process.poll() is not None or time.monotonic() > deadline
            assert not has_ended, (folder / "errors").read_text()[-3000:]
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _lines(file: Path) -> Iterator[str]:
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            yield line.rstrip("\n")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")}


def small(source: Source, observed: Observed, conditions: Sequence[Condition]) -> Iterator[dict[str, Any]]:
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
        yield {"condition": condition, "sql": to_sql(condition, source), "true": " ".join(sides)}
    yield from lines


def _constant(found: re.Match[str]) -> str:
    return f"{found[1]}1" if found[1] else f"{found[2]}1:1{found[4]}"


def committed(source: Source) -> tuple[Observed, list[Condition]]:
    """Return what the committed file has, and its conditions."""
    schemas: list[str] = []
    records: dict[str, list[dict[str, Any]]] = {name: [] for name in source.configurations}
    found = Observed(schemas, records, [], [], _STATEMENTS)
    conditions: list[Condition] = []
    for text in text_of_committed(source).decode().splitlines():
        line = json.loads(text)
        if "schema" in line:
            schemas.append(line["schema"])
        elif "change" in line:
            found.changes.append(line["change"])
        elif "condition" in line:
            assert to_sql(line["condition"], source) == line["sql"], f"run `make golden`: {line['sql']}"
            conditions.append(line["condition"])
            found.answers.append({(int(each[:-1]), each[-1]) for each in line["true"].split()})
        else:
            records[line["configuration"]].append(line)
    return found, conditions


def conditions_of(source: Source, rng: random.Random, count: int) -> list[Condition]:
    """Return conditions: one for each column and operator, as many as fit, and random ones."""
    found = list(each_once(rng, source))[:count]
    return [*found, *(generate(rng, source) for _ in range(count - len(found)))]


def made(source: Source, folder: Path) -> bytes:
    """Return the text of the file, from a run of the engine."""
    rng = random.Random(_SEED)
    conditions = [*each_once(rng, source), *(generate(rng, source) for _ in range(_CONDITIONS))]
    return _text(small(source, observe(source, rng, _STATEMENTS, conditions, folder, source.last), conditions))


def _text(lines: Iterable[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()


def text_of_committed(source: Source) -> bytes:
    """Return the text of the committed file."""
    return gzip.decompress(source.file.read_bytes())


def main() -> None:
    """Write the files."""
    for name in sys.argv[1:] or SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            SOURCES[name].file.write_bytes(gzip.compress(made(SOURCES[name], Path(folder)), mtime=0))


if __name__ == "__main__":
    main()
