"""A service that reads PostgreSQL and is killed at random moments, also while it reads all rows anew, loses nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.service.conftest import KILLS
from tests.service.database import Database, configuration, drop
from tests.tools.postgres import missing
from tests.tools.records import append_run

pytestmark = [
    pytest.mark.later_on_the_reference,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]

KEYS = 50


def write(database: Database, rng: random.Random, versions: Counter[int], changes: int) -> list[tuple[int, int]]:
    """Write changes of some rows, in transactions of all sizes of which two run at once; return key and version in order."""
    done: list[tuple[int, int]] = []
    with psycopg.connect(database.dsn) as one, psycopg.connect(database.dsn) as other:
        both = {one: range(KEYS), other: range(KEYS, 2 * KEYS)}
        waiting: dict[Any, list[tuple[int, int]]] = {one: [], other: []}
        left = changes
        while left:
            connection = rng.choice((one, other))
            key = rng.choice(both[connection])
            for _ in range(rng.choice((1, 1, 1, 5, 300))):
                if not left:
                    break
                versions[key] += 1
                left -= 1
                connection.execute(
                    "INSERT INTO orders VALUES (%s, %s, %s) ON CONFLICT (id)"
                    " DO UPDATE SET amount = excluded.amount, note = excluded.note",
                    (key, 1000 + versions[key], str(versions[key])),
                )
                waiting[connection].append((key, versions[key]))
            if rng.random() < 0.3:
                connection.commit()
                done += waiting[connection]
                waiting[connection] = []
        for connection in (one, other):
            connection.commit()
            done += waiting[connection]
    return done


def seen(path: Path) -> list[tuple[int, int, str]]:
    """Return key, version and id of each message that is whole."""
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        data = message["data"]["event"]["data"]
        found.append((data["id"], int(data["note"]), message["id"]))
    return found


#: What stands in the log where a process begins.
_BEGINS = b"-- a process begins\n"


def started(database: Database, directory: Path, backend: str) -> subprocess.Popen[bytes]:
    """Start a service of `streamer.yaml` in a process of its own."""
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "STREAMER_BACKEND": backend, "PG": database.dsn, "PYTHONPATH": path}
    command = [sys.executable, "-m", "streamer", "serve", "-c", str(directory / "streamer.yaml")]
    with open(directory / "log", "ab") as log:
        log.write(_BEGINS)
        return subprocess.Popen(command, stderr=log, env=environment)


def ended(running: subprocess.Popen[bytes], directory: Path, seed: int) -> None:
    """End the service that was started last as a supervisor does. Until it says `started` a signal ends it at once."""
    log, deadline = directory / "log", time.monotonic() + 60
    while b"started" not in log.read_bytes().rpartition(_BEGINS)[2] and running.poll() is None:
        assert time.monotonic() < deadline, (seed, log.read_text()[-3000:])
        time.sleep(0.01)
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0, (seed, log.read_text()[-3000:])


def kill_again_and_again(database: Database, directory: Path, kills: int, backend: str) -> tuple[int, int]:
    """Kill a service at random moments; return how often, and how many messages came twice."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    (directory / "streamer.yaml").write_text(json.dumps(configuration(database, directory)))
    out, killed, wanted = directory / "out.jsonl", 0, []
    versions: Counter[int] = Counter()
    database.sql(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")
    while True:
        is_last = killed == kills
        wanted += write(database, rng, versions, 1500) if not is_last else []
        begun = len(seen(out))
        running = started(database, directory, backend)
        deadline = time.monotonic() + 90
        if is_last:
            while len({each[:2] for each in seen(out)}) < len(wanted) and time.monotonic() < deadline and running.poll() is None:
                time.sleep(0.1)
            ended(running, directory, seed)
            break
        # From the first message on at the earliest: a start takes longer than all of its work.
        size = out.stat().st_size if out.exists() else 0
        while (out.stat().st_size if out.exists() else 0) == size and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.expovariate(1 / 0.02))
        running.send_signal(signal.SIGKILL)
        running.wait()
        killed += 1
        assert begun <= len(seen(out))
    found = seen(out)
    first = list(dict.fromkeys(each[:2] for each in found))
    assert set(first) == set(wanted), seed
    for key in range(2 * KEYS):
        versions = [version for each, version in first if each == key]
        assert versions == sorted(versions), (seed, key)
    by_change: dict[tuple[int, int], set[str]] = {}
    for key, version, name in found:
        by_change.setdefault((key, version), set()).add(name)
    assert all(len(names) == 1 for names in by_change.values()), seed
    assert len({name for _, _, name in found}) == len(wanted), seed
    return killed, len(found) - len(wanted)


#: Rows that nobody changes, so that reading them all takes a while.
ROWS = 3000


@dataclass
class Told:
    """What messages say of one key: its last version, and the id of each that came as a change."""

    last: int = 0
    changes: dict[int, str] = field(default_factory=dict)


def seen_of_snapshots(path: Path) -> tuple[dict[int, Told], dict[int, set[int]], int]:
    """Check what came of each key, and in which order; return it, the keys of each snapshot, and how many messages came twice.

    A row that all rows were read with is not older than what was told of it before. A change follows on the version before it,
    or comes again with the id that it had.
    """
    keys: dict[int, Told] = defaultdict(Told)
    snapshots: dict[int, set[int]] = defaultdict(set)
    ids: set[str] = set()
    twice = 0
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            message = json.loads(line)
        except ValueError:
            continue  # it is being written, or cut off
        event = message["data"]["event"]
        key, version = event["data"]["id"], int(event["data"]["note"])
        told = keys[key]
        is_new = message["id"] not in ids
        ids.add(message["id"])
        if event["type"] == "insert":
            assert version >= told.last, (key, version, told)
            assert is_new == (key not in snapshots[event["ts"]]), "a row of one snapshot has one id"
            snapshots[event["ts"]].add(key)
            told.last = version
        elif version in told.changes:
            assert told.changes[version] == message["id"], (key, version, told)
        else:
            assert is_new
            assert version == told.last + 1, (key, version, told)
            told.changes[version] = message["id"]
            told.last = version
        twice += not is_new
    return keys, snapshots, twice


def kill_while_all_rows_are_read(database: Database, directory: Path, kills: int, backend: str) -> dict[str, int]:
    """Kill a service again and again, mostly while it reads all rows since its slot was lost, and while rows change."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    (directory / "streamer.yaml").write_text(json.dumps(configuration(database, directory, on_lost="resnapshot")))
    database.sql(f"INSERT INTO orders SELECT n, 250, '0' FROM generate_series(0, {2 * KEYS + ROWS - 1}) n")
    database.sql(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")
    log, versions = directory / "log", Counter[int]()
    log.touch()
    killed = reading = begun = 0
    while killed < kills:
        if killed and (rng.random() < 0.5 or b"changes follow" in log.read_bytes()[begun:]):
            drop(database)
        write(database, rng, versions, 50)
        begun = log.stat().st_size
        running = started(database, directory, backend)
        deadline = time.monotonic() + 60
        while b"started" not in log.read_bytes()[begun:]:
            assert running.poll() is None, (seed, log.read_text()[-3000:])
            assert time.monotonic() < deadline, (seed, log.read_text()[-3000:])
            time.sleep(0.005)
        # Where its slot is lost it finds that out soon.
        deadline = time.monotonic() + 0.3
        while b"all rows are read" not in log.read_bytes()[begun:] and time.monotonic() < deadline:
            time.sleep(0.005)
        timer = threading.Timer(rng.expovariate(1 / 0.08), running.kill)
        timer.start()
        while running.poll() is None:
            write(database, rng, versions, 20)
        timer.join()
        killed += 1
        told = log.read_bytes()[begun:]
        reading += b"all rows are read" in told and b"changes follow" not in told
    running = started(database, directory, backend)
    deadline = time.monotonic() + 120
    while True:
        keys, snapshots, twice = seen_of_snapshots(directory / "out.jsonl")
        whole = set(range(2 * KEYS + ROWS))
        # One that was not read to its end is followed by another one.
        if all(keys[key].last == versions[key] for key in whole) and next(reversed(snapshots.values()), whole) == whole:
            break
        assert running.poll() is None, (seed, log.read_text()[-3000:])
        assert time.monotonic() < deadline, (seed, log.read_text()[-3000:])
        time.sleep(0.5)
    ended(running, directory, seed)
    return {"killed": killed, "while_all_rows_were_read": reading, "snapshots": len(snapshots), "delivered_twice": twice}


@pytest.mark.slow
def test_a_service_that_is_killed_while_it_reads_all_rows_loses_nothing(database: Database, tmp_path: Path, backend: str) -> None:
    assert kill_while_all_rows_are_read(database, tmp_path, 2, backend)["killed"] == 2


@pytest.mark.integration
def test_a_service_that_is_killed_again_and_again_while_it_reads_all_rows_loses_nothing(
    database: Database, tmp_path: Path, backend: str
) -> None:
    """What came of it is a line of tests/records/service.jsonl."""
    began = time.monotonic()
    counts = kill_while_all_rows_are_read(database, tmp_path, KILLS[backend], backend)
    what = "PostgreSQL to file with on_lost: resnapshot, killed at random moments after its slot was dropped, while rows change"
    append_run(what, began, backend, **counts, lost=0, out_of_order=0)


@pytest.mark.slow
def test_a_service_that_is_killed_at_random_moments_loses_nothing(database: Database, tmp_path: Path, backend: str) -> None:
    killed, _ = kill_again_and_again(database, tmp_path, 2, backend)
    assert killed == 2


@pytest.mark.integration
def test_a_service_that_is_killed_again_and_again_loses_nothing(database: Database, tmp_path: Path, backend: str) -> None:
    """What came of it is a line of tests/records/service.jsonl."""
    began = time.monotonic()
    killed, twice = kill_again_and_again(database, tmp_path, KILLS[backend], backend)
    append_run(
        "PostgreSQL to file, killed at random moments between transactions of all sizes, then run to its end",
        began,
        backend,
        killed=killed,
        changes=1500 * killed,
        lost=0,
        out_of_order=0,
        delivered_twice=twice,
    )
