"""A store on a server: several processes share it, and it may go away at any moment."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from streamer.config.schema.service import StoreSection
from streamer.config.secret import SecretValue
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.store import postgres
from streamer.service.store.postgres import Postgres
from streamer.service.store.rows import Confirmed, Spooled
from streamer.service.store.store import Store, look
from tests.tools.postgres import Cluster

Schema = Callable[[], StoreSection]
MESSAGE = Spooled("out", 1, "id", 1, "s", "p", 1, 0, b"xyz")


@pytest.fixture
def place(schema: Schema) -> StoreSection:
    return schema()


@pytest.fixture
def store(place: StoreSection) -> Iterator[Store]:
    made = Store(place)
    yield made
    made.close()


def once(action: Callable[[], None]) -> Callable[[], None]:
    """Do something the first time alone."""
    left = [action]
    return lambda: left.pop()() if left else None


def end_sessions(cluster: Cluster) -> None:
    cluster.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'streamer'")


def test_processes_that_begin_together_make_one_store(place: StoreSection) -> None:
    made: list[Store] = []
    threads = [threading.Thread(target=lambda: made.append(Store(place))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 6
    lanes = [[store.lane(name).number for name in ("a", "b", "c")] for store in made]
    assert lanes == [lanes[0]] * 6
    for store in made:
        store.close()


def test_a_later_version_and_what_is_no_store_are_refused(
    place: StoreSection, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServiceError, match=f"schema {place.schema_name}: no store"):
        look(place)
    monkeypatch.setattr(postgres, "UPGRADES", [*postgres.UPGRADES, "nonsense"])
    with pytest.raises(ServiceError, match="the store cannot be used: syntax error"):
        Store(place)
    monkeypatch.setattr(postgres, "UPGRADES", [*postgres.UPGRADES[:-1], "CREATE TABLE more (x INTEGER)"])
    Store(place).close()
    known = len(postgres.UPGRADES)
    monkeypatch.undo()
    monkeypatch.setenv("STORE", cluster.dsn())
    with pytest.raises(ServiceError, match=f"written by a later version of Streamer: schema {known}, and this one knows"):
        Store(place)


def test_the_password_is_in_no_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    section = StoreSection(dsn=SecretValue("env", "STORE"))
    for dsn in (cluster.dsn().replace("secret-word", "wrong-word"), cluster.dsn(user="nobody"), cluster.dsn("nosuch"), "no dsn"):
        monkeypatch.setenv("STORE", dsn)
        with pytest.raises(ServiceError) as told:
            Store(section)
        assert "store.dsn" in str(told.value)
        assert "-word" not in str(told.value)
    monkeypatch.delenv("STORE")
    with pytest.raises(ServiceError, match="the variable STORE is not set, or empty"):
        Store(section)


@pytest.mark.parametrize("point", ["store.spooled", "store.committing", "store.answered"])
def test_a_change_that_is_interrupted_takes_place_once(store: Store, cluster: Cluster, point: str) -> None:
    """A session that ends within it, before its commit, or once that was done and nobody knows it."""
    store.lane("out")

    def lose() -> None:
        end_sessions(cluster)
        # What a client finds that does not get an answer.
        store.rows("SELECT 1")
        if point == "store.answered":
            raise_lost()

    faults.arm(point, once(lose))
    taken = store.commit([Confirmed("s", "p", "1")], [], [], [MESSAGE])
    assert [number for number, _ in taken] == [row.number for row in store.waiting(store.lane("out"), 0, 10, 100)]
    assert store.held(store.lane("out"))[0] == 1
    assert store.positions("s") == {"p": "1"}


def raise_lost() -> None:
    import psycopg

    raise psycopg.OperationalError("server closed the connection unexpectedly")


def test_a_server_that_is_down_is_waited_for(
    store: Store, place: StoreSection, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hasty = Postgres(place)
    hasty.patience = 0.2
    store.begin("s", "p", "0")
    cluster.stop("immediate")
    done = threading.Thread(target=lambda: store.commit([Confirmed("s", "p", "1")]))
    done.start()
    deadline = time.monotonic() + 10
    while store.is_writable():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(ServiceError, match=r"the store cannot be used: .*(refused|terminat|closed)") as told:
        hasty.rows("SELECT 1")
    assert "secret-word" not in str(told.value)
    hasty.close()
    cluster.start()
    done.join(30)
    assert store.positions("s") == {"p": "1"}
    assert store.is_writable()
    assert "answers again" in caplog.text
    assert "secret-word" not in caplog.text


def test_who_hears_is_told_what_others_commit_and_that_some_may_be_missed(place: StoreSection, cluster: Cluster) -> None:
    one, other = Store(place), Store(place)
    heard: list[str] = []
    one.hear(heard.append)
    wait(lambda: heard == [""])
    other.write(lambda execute: execute.tell("something"))
    wait(lambda: heard == ["", "something"])
    end_sessions(cluster)
    wait(lambda: heard == ["", "something", ""])
    one.close()
    other.close()


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_that_is_stopped_amid_a_change_keeps_nothing_from_others(
    place: StoreSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_IDLE", 1)
    one, other = Store(place), Store(place)
    one.lane("out")
    stopped, goes_on = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        goes_on.wait(30)

    faults.arm("store.committing", once(stop))
    slow = threading.Thread(target=lambda: one.commit([], [], [], [MESSAGE]))
    slow.start()
    assert stopped.wait(10)
    assert [number - other.lane("out").first for number, _ in other.commit([], [], [], [MESSAGE])] == [1]
    goes_on.set()
    slow.join(30)
    assert [row.number - other.lane("out").first for row in other.waiting(other.lane("out"), 0, 10, 100)] == [1, 2]
    one.close()
    other.close()


def test_what_a_server_answers_before_it_is_on_its_disk_is_not_taken(cluster: Cluster, schema: Schema) -> None:
    cluster.sql("ALTER ROLE streamer SET synchronous_commit = off")
    try:
        made = Postgres(schema())
        assert made.rows("SELECT current_setting('synchronous_commit')") == [("on",)]
        made.close()
    finally:
        cluster.sql("ALTER ROLE streamer RESET synchronous_commit")
