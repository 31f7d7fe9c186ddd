"""Databases of a real PostgreSQL, each with a table, a publication and a slot of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.config.secret import SecretValue
from streamer.service.connectors.postgres.replication import lsn
from streamer.service.connectors.postgres.source import PostgresChanges
from streamer.service.connectors.protocols import Batch
from tests.tools.postgres import Cluster

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, amount int, note text)"
PUBLICATION = "CREATE PUBLICATION streamer FOR TABLE orders"
SUBSCRIPTION = '{"id": "big", "collection": "public.orders", "filters": [{"field": "amount", "op": ">", "value": 100}]}\n'


class Database:
    """A database of its own, a slot, and what a store would have of it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.positions: dict[str, str] = {}
        self.opened: list[PostgresChanges] = []
        cluster.sql(f"CREATE DATABASE {name}")
        self.sql(ORDERS, PUBLICATION)

    @property
    def dsn(self) -> str:
        return self.cluster.dsn(self.name)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.cluster.sql(*statements, database=self.name)

    def source(self, **fields: Any) -> PostgresChanges:
        section = {"type": "postgres", "dsn": SecretValue("env", "PG"), "slot": self.name, "status_interval": "1s"}
        return PostgresChanges(PostgresSource(**(section | fields)))

    def open(self, **fields: Any) -> PostgresChanges:
        source = self.source(**fields)
        self.opened.append(source)
        source.open(self.positions, self.positions.__setitem__)
        return source

    def confirm(self, source: PostgresChanges, batch: Batch) -> None:
        """Do what a pipeline does once a batch is delivered."""
        if batch.is_last:
            self.positions.pop(batch.partition)
        elif batch.confirm is not None:
            self.positions[batch.partition] = batch.confirm
            source.acknowledge(batch.partition, batch.confirm)

    def confirmed(self) -> int:
        ((place,),) = self.cluster.sql(f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{self.name}'")
        return lsn(place)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.close()


@pytest.fixture
def database(cluster: Cluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    name = f"t{abs(hash(request.node.nodeid)) % 10**12}"
    made = Database(cluster, name)
    monkeypatch.setenv("PG", made.dsn)
    yield made
    for source in made.opened:
        source.close()
    cluster.sql(
        f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{name}' AND active_pid IS NOT NULL"
    )
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            cluster.sql(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{name}'")
            break
        except psycopg.errors.ObjectInUse:
            time.sleep(0.05)
    cluster.sql(f"DROP DATABASE {name} WITH (FORCE)")


def drop(database: Database) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            database.sql(f"SELECT pg_drop_replication_slot('{database.name}')")
            return
        except psycopg.errors.ObjectInUse:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def configuration(database: Database, directory: Path, **fields: Any) -> dict[str, Any]:
    (directory / "subs.jsonl").write_text(SUBSCRIPTION)
    source = {"type": "postgres", "dsn": {"env": "PG"}, "slot": database.name, "status_interval": "1s", **fields}
    return {
        "subscriptions": [str(directory / "subs.jsonl")],
        "sources": {"orders": source},
        "sinks": {"out": {"type": "file", "path": str(directory / "out.jsonl")}},
        "service": {"data_dir": str(directory / "data")},
    }
