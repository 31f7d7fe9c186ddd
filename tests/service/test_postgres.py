"""Changes of a real PostgreSQL are read once and in order, whatever dies, and what is lost is told."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamer import Config
from streamer.config.loader import Loaded
from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.config.secret import SecretValue
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.connectors.postgres.replication import lsn
from streamer.service.connectors.postgres.slot import Place
from streamer.service.connectors.postgres.source import PostgresChanges
from streamer.service.connectors.protocols import Batch, Lost, Others, Refused
from streamer.service.run.serve import Service
from tests.service.api import running, until
from tests.service.conftest import lines, so_far
from tests.service.database import ORDERS, PUBLICATION, SUBSCRIPTION, Database, configuration, drop
from tests.tools.postgres import Cluster, has_wal2json, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


def batches(source: PostgresChanges, count: int, seconds: float = 20) -> Iterator[Batch]:
    """Yield batches until so many records came, or so long."""
    deadline = time.monotonic() + seconds
    while count > 0:
        assert time.monotonic() < deadline, f"{count} records did not come"
        batch = source.read(0.1)
        if batch is not None:
            count -= len(batch.records)
            yield batch


Found = tuple[Any, str | None, Any]


def told(batch: Batch) -> list[Found]:
    """Return position, key and event of each record."""
    assert batch.keys is not None or not batch.records
    assert not any(isinstance(record, Refused) for record in batch.records), batch.records
    return [(batch.positions(at), batch.keys[at], json.loads(record)) for at, record in enumerate(batch.records)]  # type: ignore[arg-type]


def read(database: Database, source: PostgresChanges, count: int) -> list[Found]:
    """Read and confirm so many records."""
    found = []
    for batch in batches(source, count):
        found += told(batch)
        database.confirm(source, batch)
    return found


def events(found: list[Found]) -> list[Any]:
    return [event for _, _, event in found]


def ids(found: list[Found]) -> list[Any]:
    return [(event.get("data") or event["before"])["id"] for event in events(found)]


def test_changes_are_events_with_keys(database: Database) -> None:
    source = database.open()
    database.sql(
        "INSERT INTO orders VALUES (1, 250, 'a')",
        "UPDATE orders SET amount = 7 WHERE id = 1",
        "UPDATE orders SET id = 2 WHERE id = 1",
        "DELETE FROM orders",
        "TRUNCATE orders",
    )
    found = read(database, source, 6)
    source.close()
    at = [event.pop("ts", None) for event in events(found)]
    assert all(abs(each / 1000 - time.time()) < 60 for each in at[:5])
    assert events(found) == [
        {"type": "insert", "collection": "public.orders", "data": {"id": 1, "amount": 250, "note": "a"}},
        {"type": "update", "collection": "public.orders", "data": {"id": 1, "amount": 7, "note": "a"}, "before": {"id": 1}},
        {"type": "delete", "collection": "public.orders", "before": {"id": 1}},
        {"type": "insert", "collection": "public.orders", "data": {"id": 2, "amount": 7, "note": "a"}},
        {"type": "delete", "collection": "public.orders", "before": {"id": 2}},
        {"type": "ignore", "ignored": "a truncate"},
    ]
    assert [key for _, key, _ in found] == ["1", "1", "1", "2", "2", None]
    positions = [position for position, _, _ in found]
    assert len(set(positions)) == 6
    assert positions[2].replace(":0", ":1") == positions[3]


def test_transactions_that_run_at_once_come_whole_and_in_order_of_their_commits(database: Database) -> None:
    source = database.open()
    with psycopg.connect(database.dsn) as one, psycopg.connect(database.dsn) as other:
        one.execute("INSERT INTO orders VALUES (1, 1)")
        other.execute("INSERT INTO orders VALUES (2, 2)")
        one.execute("INSERT INTO orders VALUES (3, 3)")
        other.commit()
        assert ids(read(database, source, 1)) == [2]
        one.execute("INSERT INTO orders VALUES (4, 4)")
        source.close()
        # What is confirmed is past the first rows of the other transaction.
        source = database.open()
        one.commit()
    assert ids(read(database, source, 3)) == [1, 3, 4]
    source.close()


def test_a_large_transaction_is_delivered_in_parts_and_goes_on_after_the_last_that_was_held(database: Database) -> None:
    source = database.open()
    database.sql("INSERT INTO orders SELECT n, n, repeat('x', 100) FROM generate_series(1, 20000) n")
    whole, parts, held = [], 0, {}
    for batch in batches(source, 20_000):
        whole += told(batch)
        parts += 1
        assert batch.confirm is not None
        if parts == 3:
            held = {batch.partition: batch.confirm}
            so_far = len(whole)
    source.close()
    assert parts > 5
    assert ids(whole) == list(range(1, 20_001))
    assert len({position for position, _, _ in whole}) == 20_000
    # Nothing of it was confirmed to the server, so it begins anew; the store knows what to pass over.
    database.positions = held
    source = database.open()
    assert read(database, source, 20_000 - so_far) == whole[so_far:]
    source.close()


def test_what_is_not_in_the_record_is_unknown(database: Database) -> None:
    database.sql("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    source = database.open()
    large = "note = repeat('x', 10000)"
    database.sql(
        "INSERT INTO orders VALUES (1, 1, 'a')",
        f"UPDATE orders SET {large}",
        "UPDATE orders SET amount = 2",
        "UPDATE orders SET id = 2",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "UPDATE orders SET amount = 3",
        "UPDATE orders SET id = 3",
        "DELETE FROM orders",
    )
    found = events(read(database, source, 9))[2:]
    source.close()
    for event in found:
        del event["ts"], event["collection"]
    text = "x" * 10000
    assert found == [
        {"type": "update", "data": {"id": 1, "amount": 2}, "before": {"id": 1}, "unknown": ["/data/note"]},
        {"type": "delete", "before": {"id": 1}},
        {"type": "insert", "data": {"id": 2, "amount": 2}, "unknown": ["/data/note"]},
        {
            "type": "update",
            "data": {"id": 2, "amount": 3, "note": text},
            "before": {"id": 2, "amount": 2, "note": text},
        },
        {"type": "delete", "before": {"id": 2, "amount": 3, "note": text}},
        {"type": "insert", "data": {"id": 3, "amount": 3, "note": text}},
        {"type": "delete", "before": {"id": 3, "amount": 3, "note": text}},
    ]


def test_without_a_replica_identity_rows_that_are_added_are_read(database: Database) -> None:
    database.sql("ALTER TABLE orders REPLICA IDENTITY NOTHING")
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1, 250)")
    ((_, key, event),) = read(database, source, 1)
    source.close()
    assert (key, event["data"]) == ("1", {"id": 1, "amount": 250, "note": None})


def test_a_table_that_is_newer_than_the_connection_has_its_key(database: Database) -> None:
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    read(database, source, 1)
    database.sql(
        "CREATE TABLE late (a int, b text, PRIMARY KEY (b, a))",
        "ALTER TABLE late REPLICA IDENTITY FULL",
        "ALTER PUBLICATION streamer ADD TABLE late",
        "INSERT INTO late VALUES (1, 'x')",
    )
    ((_, key, _),) = read(database, source, 1)
    source.close()
    assert key == '[1,"x"]'


def test_values_are_read_by_their_type_whatever_the_server_is_set_to(database: Database) -> None:
    """The server of these tests writes German dates in the time of Berlin, unless it is told how."""
    database.sql(
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        "CREATE DOMAIN weight AS numeric CHECK (VALUE > 0)",
        "CREATE TABLE types (id int PRIMARY KEY, b bool, f float8, n numeric, j json, jb jsonb, i int[], t text[], h bytea,"
        " at timestamptz, local timestamp, day date, span interval,"
        " m mood, ms mood[], w weight, g int GENERATED ALWAYS AS (1) STORED)",
        "ALTER PUBLICATION streamer ADD TABLE types",
    )
    source = database.open()
    database.sql(
        """INSERT INTO types VALUES (1, true, 'NaN', 12345678901234567890.5, E'{"a":\n1}', '{"b": [1.0]}', '{{1,NULL},{3,4}}',
        '{"a \\" b",NULL,"NULL"}', '\\xdead', '2026-11-22 10:15:30.5+02', '2026-11-22 10:15:30', '2026-11-22', '1 day 2:00',
        'glad', '{glad,sad}', 1.50)"""
    )
    (batch,) = batches(source, 1)
    source.close()
    (record,) = batch.records
    assert isinstance(record, bytes)
    assert b'"n":12345678901234567890.5,' in record
    assert b'"w":1.50' in record
    assert b"\n" not in record
    data = json.loads(record)["data"]
    assert data == {
        "id": 1,
        "b": True,
        "f": "NaN",
        "n": 12345678901234567890.5,
        "j": {"a": 1},
        "jb": {"b": [1.0]},
        "i": [[1, None], [3, 4]],
        "t": ['a " b', None, "NULL"],
        "h": "3q0=",
        "at": "2026-11-22T08:15:30.5Z",
        "local": "2026-11-22 10:15:30",
        "day": "2026-11-22",
        "span": "1 day 02:00:00",
        "m": "glad",
        "ms": ["glad", "sad"],
        "w": 1.5,
    }


# What goes away


def test_a_server_that_restarts_or_crashes_is_read_on(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    assert ids(read(database, source, 1)) == [1]
    for mode, number in (("immediate", 2), ("fast", 3)):
        if mode == "fast":
            # A server that stops waits until all is confirmed that it has sent: somebody must read.
            stopping = threading.Thread(target=database.cluster.stop)
            stopping.start()
            deadline = time.monotonic() + 30
            while stopping.is_alive() and time.monotonic() < deadline:
                if (batch := source.read(0.05)) is not None:
                    database.confirm(source, batch)
            assert not stopping.is_alive()
        else:
            database.cluster.stop(mode)
            assert source.read(0.1) is None
        database.cluster.start()
        database.sql(f"INSERT INTO orders VALUES ({number})")
        assert ids(read(database, source, 1)) == [number]
    source.close()
    assert "retrying in" in caplog.text
    assert "secret-word" not in caplog.text


def test_a_connection_that_ends_in_a_transaction_goes_on_in_it(database: Database) -> None:
    source = database.open()
    database.sql("INSERT INTO orders SELECT n FROM generate_series(1, 20000) n")
    found: list[Found] = []
    is_ended = False
    for batch in batches(source, 20_000):
        found += told(batch)
        if not is_ended:
            is_ended = True
            database.sql(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{database.name}'")
    source.close()
    assert ids(found) == list(range(1, 20_001))


def test_an_idle_slot_is_moved_on(database: Database) -> None:
    database.sql("CREATE TABLE other (n int)")
    source = database.open()
    before = database.confirmed()
    database.sql("INSERT INTO other SELECT generate_series(1, 1000)")
    ((now,),) = database.sql("SELECT pg_current_wal_lsn()")
    deadline = time.monotonic() + 20
    while database.confirmed() < lsn(now) and time.monotonic() < deadline:
        if (batch := source.read(0.05)) is not None:
            assert not batch.records
            database.confirm(source, batch)
    source.close()
    assert before < lsn(now) <= database.confirmed()


def test_an_idle_slot_is_not_moved_past_what_is_in_flight(database: Database) -> None:
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    before = database.confirmed()
    for _ in batches(source, 1):
        pass
    database.sql("SELECT pg_switch_wal()")
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        source.read(0.05)
    assert database.confirmed() == before
    source.close()
    again = database.open()
    assert ids(read(database, again, 1)) == [1]
    again.close()


@pytest.mark.slow
def test_a_sink_may_be_slower_than_the_server_waits(database: Database) -> None:
    database.cluster.sql("ALTER SYSTEM SET wal_sender_timeout = '1s'", "SELECT pg_reload_conf()")
    try:
        source = database.open()
        database.sql("INSERT INTO orders SELECT n, n, repeat('x', 1000) FROM generate_series(1, 20000) n")
        found: list[Found] = []
        for batch in batches(source, 20_000):
            found += told(batch)
            if len(found) < 500:
                time.sleep(3)
        process = database.cluster.sql("SELECT active_pid FROM pg_replication_slots")
        source.close()
        assert ids(found) == list(range(1, 20_001))
        assert process
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PostgresChanges, "_keep_alive", lambda _: None)
            log = logging.getLogger("streamer.service")
            warned: list[str] = []
            patch.setattr(log, "log", lambda level, text, *values: warned.append(text % values))
            source = database.open()
            next(batches(source, 1))
            time.sleep(3)
            for _ in batches(source, 10_000):
                pass
            source.close()
        assert warned, "without the thread that speaks, the server goes away"
    finally:
        database.cluster.sql("ALTER SYSTEM RESET wal_sender_timeout", "SELECT pg_reload_conf()")


# What is lost


def lose(database: Database) -> None:
    """Read one row, and lose the next one with the slot."""
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1, 250)")
    read(database, source, 1)
    source.close()
    database.sql("INSERT INTO orders VALUES (2, 250)")
    drop(database)


def test_a_lost_slot_is_one_clear_error(database: Database) -> None:
    lose(database)
    with pytest.raises(
        ServiceError, match=rf"slot {database.name} is gone; changes after .* on_lost: resnapshot .* on_lost: skip"
    ):
        database.open()


def test_a_slot_that_somebody_else_moved_is_lost(database: Database) -> None:
    lose(database)
    database.sql(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")
    with pytest.raises(ServiceError, match="was recreated or moved by another client"):
        database.open()


def test_skip_goes_on_with_what_comes(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    lose(database)
    source = database.open(on_lost="skip")
    deadline = time.monotonic() + 20
    while "are lost" not in caplog.text:
        assert time.monotonic() < deadline
        if (batch := source.read(0.05)) is not None:
            database.confirm(source, batch)
    database.sql("INSERT INTO orders VALUES (3, 250)")
    assert ids(read(database, source, 1)) == [3]
    source.close()
    # It is in the store, so it is not lost once more.
    source = database.open()
    database.sql("INSERT INTO orders VALUES (4, 250)")
    assert ids(read(database, source, 1)) == [4]
    source.close()


def test_resnapshot_reads_all_rows_and_what_follows(database: Database) -> None:
    lose(database)
    database.sql("INSERT INTO orders SELECT n, n FROM generate_series(10, 3009) n")
    source = database.open(on_lost="resnapshot")
    found = []
    first = True
    for batch in batches(source, 3003):
        if first:
            # Not in the snapshot, and so a change that follows.
            database.sql("INSERT INTO orders VALUES (4000, 1)")
            first = False
        found += told(batch)
        database.confirm(source, batch)
    source.close()
    assert sorted(ids(found)) == [1, 2, *range(10, 3010), 4000]
    assert found[-1][2]["data"]["id"] == 4000
    assert {event["type"] for event in events(found)} == {"insert"}
    assert Counter(type(position) for position, _, _ in found) == {int: 3002, str: 1}
    assert [key for _, key, _ in found] == [str(each) for each in ids(found)]
    source = database.open()
    database.sql("INSERT INTO orders VALUES (5, 250)")
    assert ids(read(database, source, 1)) == [5]
    source.close()


def test_a_slot_that_is_dropped_while_it_is_read_is_lost_too(database: Database) -> None:
    source = database.open(on_lost="skip")
    database.sql("INSERT INTO orders VALUES (1)")
    read(database, source, 1)
    database.sql(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{database.name}'")
    drop(database)
    deadline = time.monotonic() + 20
    while not database.cluster.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}' AND active"):
        assert time.monotonic() < deadline
        if (batch := source.read(0.05)) is not None:
            database.confirm(source, batch)
    database.sql("INSERT INTO orders VALUES (2)")
    assert ids(read(database, source, 1)) == [2]
    source.close()


def test_a_publication_that_is_dropped_is_one_clear_error(database: Database) -> None:
    source = database.open()
    database.sql("DROP PUBLICATION streamer", "INSERT INTO orders VALUES (1)")
    with pytest.raises(ServiceError, match=r"publication 'streamer' does not exist in database .* CREATE PUBLICATION"):
        read(database, source, 1)
    source.close()


def test_a_publication_that_is_newer_than_the_changes_is_a_loss(database: Database) -> None:
    source = database.open()
    database.sql("DROP PUBLICATION streamer", "INSERT INTO orders VALUES (1)", PUBLICATION)
    with pytest.raises(ServiceError, match="the publication was made after the changes that come next"):
        read(database, source, 1)
    source.close()


def test_a_slot_that_was_invalidated_is_lost(database: Database) -> None:
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    read(database, source, 1)
    source.close()
    settings = ("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        database.sql(*settings)
        for number in range(2, 6):
            database.sql(f"INSERT INTO orders VALUES ({number})", "SELECT pg_switch_wal()")
        database.sql("CHECKPOINT")
        reason = "was invalidated, since it would have kept more of the log than max_slot_wal_keep_size allows"
        assert reason in refused(database)
        with pytest.raises(ServiceError, match=reason):
            database.open()
        source = database.open(on_lost="resnapshot")
        assert ids(read(database, source, 5)) == [1, 2, 3, 4, 5]
    finally:
        database.sql("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


def test_another_server_is_a_loss_until_somebody_says_what_to_do(database: Database) -> None:
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    read(database, source, 1)
    source.close()
    database.positions = {"4711.1": json.dumps({"lsn": "FFFF/0"})}
    for _ in range(2):
        # Also once the store has the new server.
        with pytest.raises(ServiceError, match=r"another server|recreated or moved"):
            database.open()
    source = database.open(on_lost="resnapshot")
    assert ids(read(database, source, 1)) == [1]
    source.close()


def partition_of(database: Database) -> str:
    (partition,) = database.positions
    return partition


def test_a_standby_that_was_promoted_is_read_on(database: Database) -> None:
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    read(database, source, 1)
    # What was in flight comes again on another timeline: the end of the transaction may have come by itself.
    deadline = time.monotonic() + 30
    while "transaction" in (place := database.positions[partition_of(database)]):
        assert time.monotonic() < deadline
        if (batch := source.read(1)) is not None:
            database.confirm(source, batch)
    source.close()
    partition = partition_of(database)
    # As if its slot had come with it: another timeline of one system.
    database.positions = {f"{partition.partition('.')[0]}.0": place}
    database.sql("INSERT INTO orders VALUES (2)")
    source = database.open()
    assert ids(read(database, source, 1)) == [2]
    source.close()
    assert list(database.positions) == [partition]


FAULTS = ("source.slot", "source.lost", "source.snapshot")


class Fault(Exception):
    """What a test lets happen."""


@pytest.mark.parametrize("point", FAULTS)
def test_a_failure_where_a_slot_is_made_loses_nothing(database: Database, point: str) -> None:
    def fail() -> None:
        raise Fault

    if point != "source.slot":
        lose(database)
    faults.arm(point, fail)

    def run() -> None:
        source = database.open(on_lost="resnapshot")
        database.sql("INSERT INTO orders VALUES (7)")
        read(database, source, 10)

    with pytest.raises(Fault):
        run()
    faults.disarm()
    source = database.open(on_lost="resnapshot")
    if point == "source.slot":
        database.sql("INSERT INTO orders VALUES (1)", "INSERT INTO orders VALUES (2)", "INSERT INTO orders VALUES (7)")
    wanted = [1, 2, 7]
    assert ids(read(database, source, len(wanted))) == wanted
    source.close()


# What a check says


@pytest.mark.parametrize("how", ["gone", "anew", "moved", "an older copy"])
def test_a_check_tells_what_is_lost_as_the_start_does(database: Database, how: str) -> None:
    """The slot is compared with the stored place; neither is changed."""
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    for batch in iter(lambda: source.read(1), None):
        database.confirm(source, batch)
        if batch.records:
            break
    source.close()
    until_free(database)
    database.source().check(database.positions)
    if how == "an older copy":
        ((partition, _),) = database.positions.items()
        database.positions[partition] = Place(lsn("FFFFFF/0")).text()
    elif how == "moved":
        database.sql("INSERT INTO orders VALUES (2)")
        database.sql(f"SELECT pg_replication_slot_advance('{database.name}', pg_current_wal_lsn())")
    else:
        drop(database)
        if how == "anew":
            database.sql("INSERT INTO orders VALUES (2)")
            database.sql(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")
    before = (dict(database.positions), database.cluster.sql("SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots"))
    with pytest.raises(Lost, match="cannot be read"):
        database.source().check(database.positions)
    with pytest.raises(Lost, match="cannot be read"):
        database.open()
    database.source(on_lost="skip").check(database.positions)
    assert before == (database.positions, database.cluster.sql("SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots"))


def until_free(database: Database) -> None:
    """Wait until nobody reads the slot."""
    deadline = time.monotonic() + 10
    query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}' AND active"
    while database.cluster.sql(query):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def refused(database: Database, **fields: Any) -> str:
    with pytest.raises(ServiceError) as caught:
        database.source(**fields).check()
    assert "secret-word" not in str(caught.value)
    return str(caught.value)


def test_a_check_says_what_is_wrong_and_changes_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.source().check()
    assert database.cluster.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.name}'") == []
    assert "publication 'nosuch' does not exist" in refused(database, publication="nosuch")
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    read(database, source, 1)
    assert "reads slot" in refused(database)
    source.close()
    assert "of plugin pgoutput in database" in refused(database, plugin="wal2json")
    database.cluster.sql("DROP ROLE IF EXISTS weak", "CREATE ROLE weak LOGIN PASSWORD 'secret-word'")
    monkeypatch.setenv("PG", database.cluster.dsn(database.name, "weak"))
    assert "replication" in refused(database)
    monkeypatch.setenv("PG", database.dsn.replace("secret-word", "secret-word2"))
    assert "password authentication failed" in refused(database)
    monkeypatch.setenv("PG", database.dsn.replace(str(database.cluster.port), "1"))
    assert "refused" in refused(database)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:secret-word@x@host/db",
        "postgresql://u:p/secret-word@host/db",
        "secret-word",
        "host=x secret-word",
        "u://a@secret-word@",
    ],
)
def test_a_connection_string_that_cannot_be_read_is_not_shown(
    database: Database, monkeypatch: pytest.MonkeyPatch, dsn: str
) -> None:
    monkeypatch.setenv("PG", dsn)
    assert "dsn: expected a connection string" in refused(database)


def test_a_server_without_logical_decoding_says_what_to_set() -> None:
    cluster = Cluster({"wal_level": "replica"})
    try:
        cluster.sql(ORDERS, PUBLICATION)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PG", cluster.dsn())
            source = PostgresChanges(PostgresSource(type="postgres", dsn=SecretValue("env", "PG")))
            with pytest.raises(ServiceError, match="wal_level of the server is replica; set wal_level = logical, and restart it"):
                source.check()
    finally:
        cluster.close()


# wal2json


@pytest.mark.usefixtures("backend")
@pytest.mark.skipif(not has_wal2json(), reason="the server has no wal2json")
def test_wal2json_reads_the_same_with_keys(database: Database) -> None:
    database.sql("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL", "INSERT INTO orders VALUES (1, 1, repeat('x', 10000))")
    if not database.cluster.trusts("wal2json"):
        with pytest.raises(ServiceError, match=r'may not be used as an output plugin\..* add it to "output_plugin_libraries"'):
            database.open(plugin="wal2json")
        database.cluster.trust("wal2json")
    source = database.open(plugin="wal2json")
    database.sql(
        "UPDATE orders SET amount = 250", "INSERT INTO orders SELECT n FROM generate_series(2, 3) n", "DELETE FROM orders"
    )
    found = read(database, source, 6)
    source.close()
    for event in events(found):
        del event["ts"]
    assert events(found)[0] == {
        "type": "update",
        "collection": "public.orders",
        "data": {"id": 1, "amount": 250},
        "before": {"id": 1},
        "unknown": ["/data/note"],
    }
    assert [key for _, key, _ in found] == ["1", "2", "3", "1", "2", "3"]
    assert [position.partition(":")[2] for position, _, _ in found] == ["0", "0", "1", "0", "1", "2"]
    again = database.open(plugin="wal2json")
    database.sql("INSERT INTO orders VALUES (9)")
    assert ids(read(database, again, 1)) == [9]
    again.close()


# All of it


def test_a_service_delivers_changes_of_tables(database: Database, tmp_path: Path, backend: str) -> None:
    service = Service(lambda: Loaded(Config.from_dict(configuration(database, tmp_path))))
    service.check()
    running = threading.Timer(0, lambda: None)
    database.sql(f"SELECT pg_create_logical_replication_slot('{database.name}', 'pgoutput')")
    database.sql(
        "INSERT INTO orders VALUES (1, 250), (2, 7)", "UPDATE orders SET amount = 300", "DELETE FROM orders WHERE id = 1"
    )
    out = tmp_path / "out.jsonl"

    def stop() -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and len(so_far(out)) < 4:
            time.sleep(0.05)
        service._received.append(signal.SIGTERM)

    running = threading.Thread(target=stop)  # type: ignore[assignment]
    running.start()
    service.run()
    running.join()
    messages = lines(out)
    assert [(each["type"], each["partitionkey"], each["certain"]) for each in messages] == [
        ("streamer.match.enter", "1", True),
        ("streamer.match.enter", "1", False),
        ("streamer.match.enter", "2", False),
        ("streamer.match.leave", "1", False),
    ]
    assert len({each["id"] for each in messages}) == 4
    ((held,),) = [tuple(json.loads(each)["lsn"] for each in stored(tmp_path).values())]
    assert database.confirmed() >= lsn(held)


def stored(directory: Path) -> dict[str, str]:
    import sqlite3

    database = sqlite3.connect(directory / "data" / "store.db")
    try:
        return dict(database.execute("SELECT partition, position FROM positions").fetchall())
    finally:
        database.close()


def test_a_reload_reads_a_slot_in_another_way_and_loses_nothing(database: Database, tmp_path: Path, backend: str) -> None:
    """The source before is closed, and the server lets its slot go a moment later."""
    (tmp_path / "subs.jsonl").write_text(SUBSCRIPTION)
    section = {"type": "postgres", "dsn": {"env": "PG"}, "slot": database.name, "publication": "streamer"}
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")], sources={"shop": section}) as api:
        written = 0
        for seconds in (1, 2, 3):
            database.sql(f"INSERT INTO orders SELECT n, 200, '' FROM generate_series({written + 1}, {written + 500}) n")
            written += 500
            api.config["sources"] = {"shop": section | {"status_interval": f"{seconds}s"}}
            assert api.service.reload().changed == ("sources.shop.status_interval",)
        # One that cannot be opened leaves the slot to the one before.
        api.config["sources"] = {"shop": section | {"publication": "nosuch"}}
        assert "publication 'nosuch' does not exist" in api.service.reload().errors[0]
        database.sql(f"INSERT INTO orders VALUES ({written + 1}, 200, '')")
        until(lambda: len(so_far(tmp_path / "out.jsonl")) > written, 30)
    ids = [each["data"]["event"]["data"]["id"] for each in lines(tmp_path / "out.jsonl")]
    assert ids == list(range(1, written + 2))


@pytest.mark.parametrize("on_lost", ["fail", "skip", "resnapshot"])
def test_a_slot_that_was_read_under_another_name_is_not_taken_for_moved(database: Database, on_lost: Any) -> None:
    """Renamed and renamed back: to make a new slot would lose what the old one has."""
    source = database.open()
    source.close()
    before = dict(database.positions)
    source = database.open()
    database.sql("INSERT INTO orders VALUES (1)")
    first = database.confirmed()
    assert ids(read(database, source, 1)) == [1]
    # The end of the transaction may come after its record, and the server learns of it a moment later.
    deadline = time.monotonic() + 60
    while database.confirmed() == first:
        assert time.monotonic() < deadline
        if (batch := source.read(0.1)) is not None:
            database.confirm(source, batch)
    source.close()
    after, database.positions = dict(database.positions), before
    database.sql("INSERT INTO orders VALUES (2)")
    again = database.source(on_lost=on_lost)
    hint = r"The store has source 'shop', .* `streamer positions move shop orders --dry-run` shows"
    with pytest.raises(ServiceError, match=hint):
        again.open(before, before.__setitem__, Others("orders", {"shop": after}))
    # Not as far as the slot: somebody else moved that.
    if on_lost == "fail":
        with pytest.raises(ServiceError, match="recreated or moved by another client"):
            again.open(before, before.__setitem__, Others("orders", {"shop": before}))
    database.positions = after
    source = database.open(on_lost=on_lost)
    assert ids(read(database, source, 1)) == [2]
    source.close()
