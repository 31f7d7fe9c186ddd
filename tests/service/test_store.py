"""The store is whole or says that it is not; one process uses it; what it has committed it has."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.errors import ServiceError
from streamer.service.store import rows, schema, sqlite
from streamer.service.store.database import Fenced
from streamer.service.store.ids import written
from streamer.service.store.opened import look
from streamer.service.store.rows import Changes, Confirmed, Spooled, dead_letter
from streamer.service.store.store import Store
from streamer.service.store.subscriptions import Table


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.begin("s", "p", "1")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").iterdir()}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}
    assert {"lock", "store.db", "store.db-wal"} <= modes.keys()
    store.close()


def test_one_process_uses_it_and_the_error_names_that(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ServiceError, match=f"process {os.getpid()} uses this store"):
        Store(tmp_path)
    code = f"from pathlib import Path; from streamer.service.store.store import Store; Store(Path({str(tmp_path)!r}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"Busy: {tmp_path}: process {os.getpid()} uses this store; one process uses it at a time" in ran.stderr
    store.close()
    Store(tmp_path).close()


def test_positions_come_back_in_the_order_in_which_they_were_begun(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for partition in ("c", "a", "b"):
        store.begin("s", partition, "0")
    store.begin("other", "a", "0")
    a, b = (store.generation("s", partition) for partition in "ab")
    store.commit([Confirmed("s", "a", "5", a), Confirmed("s", "b", None, b, is_over=True), Confirmed("s", "d", "7")])
    store.close()
    store = Store(tmp_path)
    assert list(store.positions("s").items()) == [("c", "0"), ("a", "5"), ("d", "7")]
    assert store.positions("other") == {"a": "0"}
    store.close()


def test_a_dead_letter_that_comes_again_counts_its_attempts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    letter = dead_letter("s", "p", 7, -1, "bad_value", "no", b"record")
    store.commit([], [letter])
    store.commit([Confirmed("s", "p", "9")], [letter, dead_letter("s", "p", 8, -1, "bad_value", "no", b"x" * (2 * 1024 * 1024))])
    one, other = store.letters()
    assert (one.attempts, one.record, one.is_whole) == (2, b"record", True)
    assert (other.size, len(other.record), other.is_whole) == (2 * 1024 * 1024, rows.MOST_KEPT, False)
    assert look(tmp_path) == [one, other]
    assert look(tmp_path, number=other.id) == [other]
    store.commit([], [], [one.id])
    assert store.drop(None) == 1
    assert store.dead_letters() == 0
    store.close()


@pytest.mark.parametrize(
    "gone",
    [[], [1], [12], [3, 2, 1], [12, 1], [5, 4, 9, 6, 8], list(range(1, 13)), [1, 3, 5, 7, 9, 11]],
    ids=lambda gone: "-".join(map(str, gone)) or "none",
)
def test_of_the_spool_what_was_delivered_leaves_and_nothing_else(tmp_path: Path, gone: list[int]) -> None:
    """In whatever order it was delivered, and whatever stands between; the lane beside it keeps all."""
    store = Store(tmp_path)
    lane, beside = store.lane("out"), store.lane("beside")
    spooled = [Spooled(sink, None, f"{n}", 1, "s", "p", n, 0, b"x") for n in range(1, 13) for sink in ("out", "beside")]
    store.commit([], spooled=spooled)
    store.settle(Changes(delivered=[lane.first + number for number in gone]))
    left = [each.number - lane.first for each in store.waiting(lane, 0, 99, 10**6)]
    assert left == [number for number in range(1, 13) if number not in gone]
    assert store.backlog(beside)[0] == 12
    store.close()


def test_what_came_from_files_is_replaced_by_what_they_say_now(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one, two, other = (
        written(text, "t") for text in (b'{"id": "a"}', b'{"id": "a", "tenant": "u"}', b'{"id": "a", "cel": "true"}')
    )
    table = Table(store)
    assert table.hold("files", [one, two]) == 2
    assert table.hold("files", [one, two]) == 0
    assert table.hold("files", [other]) == 2
    assert table.active() == [("t", other.id, other.text)]
    table.close()
    store.close()


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"\0" * 4096])
def test_what_is_no_store_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(ServiceError, match="the store cannot be used: file is not a database"):
        Store(tmp_path)
    assert path.read_bytes() == content
    path.unlink()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (x)")
    database.commit()
    database.close()
    with pytest.raises(ServiceError, match="no store of Streamer"):
        Store(tmp_path)


def test_a_store_of_a_later_version_is_refused_and_one_of_an_earlier_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.begin("s", "p", "5")
    store.close()
    monkeypatch.setattr(sqlite, "UPGRADES", [*schema.UPGRADES, "ALTER TABLE positions ADD COLUMN fence INTEGER DEFAULT 0;"])
    store = Store(tmp_path)
    assert store.database.rows("SELECT position, fence FROM positions") == [("5", 0)]
    store.close()
    monkeypatch.setattr(sqlite, "UPGRADES", [*sqlite.UPGRADES, "CREATE TABLE half (x); nonsense;"])
    with pytest.raises(ServiceError, match="syntax error"):
        Store(tmp_path)
    monkeypatch.undo()
    known = len(schema.UPGRADES)
    with pytest.raises(
        ServiceError, match=f"written by a later version of Streamer: schema {known + 1}, but this one supports {known}"
    ):
        Store(tmp_path)


def test_the_subscriptions_of_a_store_of_the_first_version_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "UPGRADES", schema.UPGRADES[:1])
    old = sqlite.Sqlite(tmp_path)
    statement = "INSERT INTO subscriptions VALUES ('t', 'a', 'files', CAST('{\"id\": \"a\"}' AS BLOB))"
    old.change(lambda execute: execute(statement))
    old.close()
    monkeypatch.undo()
    store = Store(tmp_path)
    table = Table(store)
    kept = table.get("t", "a")
    assert kept is not None
    assert (kept.origin, kept.text, kept.version, kept.paused, kept.expires_at) == ("files", b'{"id": "a"}', 0, False, None)
    assert table.hold("files", [written(b'{"id": "a"}', "t")]) == 0
    (row,), _ = table.write([kept], [kept], who="api")
    assert row.version == 1
    table.close()
    store.close()


def test_a_store_that_lost_a_part_is_one_clear_error(tmp_path: Path) -> None:
    store = Store(tmp_path)
    table = Table(store)
    table.hold("files", [written(b'{"id": "%d"}' % number, "t") for number in range(2000)])
    table.close()
    store.close()
    path = tmp_path / "store.db"
    whole = path.read_bytes()
    for size in (len(whole) // 2, 4096, 1000):
        path.write_bytes(whole[:size])
        with pytest.raises(ServiceError, match="the store cannot be used: "):
            Store(tmp_path)
        with pytest.raises(ServiceError, match="the store cannot be used: "):
            Store(tmp_path)
    path.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])
    with pytest.raises(ServiceError, match="the store cannot be used: "):
        Store(tmp_path)


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.integration)])
def test_a_log_that_was_cut_in_its_last_commit_is_as_it_was_before(tmp_path: Path, step: int) -> None:
    """At every byte, or every so many: of a crash in the middle of a commit, nothing or all of it is there."""
    store = Store(tmp_path / "data")
    store.begin("s", "p", "old")
    store.lane("out")
    log = tmp_path / "data" / "store.db-wal"
    before = log.stat().st_size
    message = Spooled("out", 7, "id", 1, "s", "p", 1, 0, b"message")
    new = Confirmed("s", "p", "new", store.generation("s", "p"))
    store.commit([new], [dead_letter("s", "p", 1, -1, "bad_value", "no", b"record")], [], [message])
    database, text = (tmp_path / "data" / "store.db").read_bytes(), log.read_bytes()
    assert before < len(text)
    copy = tmp_path / "copy"
    copy.mkdir()
    for size in (*range(before, len(text), step), len(text) - 1, len(text)):
        for path in copy.glob("store.db*"):
            path.unlink()
        (copy / "store.db").write_bytes(database)
        (copy / "store.db-wal").write_bytes(text[:size])
        if (size - before) % 97 == 0 or size >= len(text) - 1:
            torn = Store(copy)
            found = (torn.positions("s")["p"], torn.dead_letters(), torn.backlog(torn.lane("out"))[0])
            torn.take("s")
            torn.commit([Confirmed("s", "p", "later", torn.generation("s", "p"))])
            torn.close()
        else:
            # Checking all of it takes much longer than reading it.
            read = sqlite3.connect(copy / "store.db")
            read.execute("PRAGMA synchronous = OFF")
            counts = "(SELECT count(*) FROM dead_letters), (SELECT count(*) FROM spool)"
            found = read.execute(f"SELECT position, {counts} FROM positions").fetchone()
            read.close()
        assert found == (("new", 1, 1) if size == len(text) else ("old", 0, 0))
    store.close()


def test_a_directory_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ServiceError, match=r"the store cannot be used: (File exists|Not a directory)"):
        Store(tmp_path / "file")
    with pytest.raises(ServiceError, match="the store cannot be used: Not a directory"):
        Store(tmp_path / "file" / "below")
    with pytest.raises(ServiceError, match="no store"):
        look(tmp_path / "nosuch")


def test_a_store_without_room_is_not_writable_until_there_is_room_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    table = Table(store)
    (pages,) = store.database._connection.execute("PRAGMA page_count").fetchone()
    store.database._connection.execute(f"PRAGMA max_page_count = {pages + 8}")
    assert store.is_writable()
    with pytest.raises(ServiceError, match="full"):
        table.hold("files", [written(b'{"id": "long", "cel": "%b"}' % (b"x" * 100_000), "acme")])
    # What changes no size passes, and is no proof.
    for _ in range(2):
        assert not store.is_writable()
    store.database._connection.execute("PRAGMA max_page_count = 100000")
    assert store.is_writable()
    assert store.database.rows("SELECT name FROM sqlite_master WHERE name = 'tried'") == []
    table.close()
    store.close()


def test_a_store_of_before_the_spool_keeps_its_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = schema.UPGRADES
    monkeypatch.setattr(sqlite, "UPGRADES", later[:1])
    old = sqlite.Sqlite(tmp_path)
    names = "source, partition, position, part, stage, code, reason, attempts, at, size, record"
    old.rows(f"INSERT INTO dead_letters ({names}) VALUES ('s', 'p', 7, -1, 'decode', 'bad_value', 'no', 2, 5, 1, x'61')")
    old.close()
    monkeypatch.undo()
    with pytest.raises(ServiceError, match="written by an earlier version of Streamer: schema 1; it is upgraded when"):
        look(tmp_path)
    store = Store(tmp_path)
    (letter,) = store.letters()
    assert (letter.id, letter.position, letter.attempts, letter.record, letter.sink) == (1, 7, 2, b"a", "")
    store.commit([], [dead_letter("s", "p", 7, -1, "bad_value", "no", b"a")])
    assert [each.attempts for each in store.letters()] == [3]
    store.close()


def test_lanes_of_the_spool_are_apart_and_numbered_in_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    lanes = [store.lane(name) for name in ("a", "b")]
    rows = [Spooled("ab"[number % 2], number % 3, f"id{number}", 2, "s", "p", number, 0, b"xyz") for number in range(20)]
    store.commit([], [], [], rows)
    for at, lane in enumerate(lanes):
        found = store.waiting(lane, 0, 100, 10**6)
        assert [row.position for row in found] == list(range(at, 20, 2))
        assert [row.position for row in store.waiting_of(lane, 1, found[1].number, found[-2].number, 100)] == [
            row.position for row in found[2:-1] if row.key == 1
        ]
        assert len(store.waiting(lane, 0, 100, 7)) == 3
    store.close()
    store = Store(tmp_path)
    assert store.lanes() == [("a", 10, 30), ("b", 10, 30)]
    assert store.backlog(store.lane("b")) == (10, 30, 20)
    last = store.waiting(store.lane("a"), 0, 100, 10**6)[-1].number
    store.commit([], [], [], rows[:1])
    assert store.waiting(store.lane("a"), last, 100, 10**6)[0].number == last + 1
    store.close()


def delete(data: Path, name: str) -> None:
    (data / name).unlink()


def replace(data: Path, name: str) -> None:
    """As a backup that is restored under a running process does."""
    shutil.copy(data / name, data / "copy")
    (data / "copy").rename(data / name)


def move(data: Path, _: str) -> None:
    data.rename(data.with_name("elsewhere"))


@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "store.db-shm", "lock"])
@pytest.mark.parametrize("act", [delete, replace, move], ids=lambda act: act.__name__)
def test_a_store_whose_file_is_gone_takes_no_more_changes(tmp_path: Path, act: Callable[[Path, str], None], name: str) -> None:
    store, data = Store(tmp_path / "data"), tmp_path / "data"
    store.begin("s", "p", "1")
    assert store.gone() is None
    act(data, name)
    reason = (
        rf"data/{name if act is not move else 'store.db'}: the file of the store was (deleted|replaced by another file) while "
    )
    with pytest.raises(ServiceError, match=reason):
        store.commit([Confirmed("s", "p", "2", store.generation("s", "p"))])
    assert store.gone() is not None
    assert store.positions("s") == {"p": "1"}
    store.close()


def test_a_store_that_is_put_back_goes_on(tmp_path: Path) -> None:
    store, data = Store(tmp_path / "data"), tmp_path / "data"
    data.rename(tmp_path / "elsewhere")
    assert store.gone() is not None
    (tmp_path / "elsewhere").rename(data)
    assert store.gone() is None
    store.begin("s", "p", "1")
    store.close()
    assert Store(data).positions("s") == {"p": "1"}


def test_a_source_takes_the_positions_of_another_one_over(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for source, partition, position in (
        ("old", "a", "5"),
        ("old", "b", "6"),
        ("new", "b", "1"),
        ("new", "c", "2"),
        ("x", "a", "9"),
    ):
        store.begin(source, partition, position)
    generation = store.generation("old", "a")
    letters = [dead_letter(source, "b", 7, -1, "bad_value", "no", b"record") for source in ("old", "new")]
    store.commit([], [*letters, dead_letter("old", "b", 8, -1, "bad_value", "no", b"record")])
    assert store.others({"new", "x"}) == {"old": {"a": "5", "b": "6"}}
    store.move("old", "new")
    assert store.positions("new") == {"a": "5", "b": "6", "c": "2"}
    assert store.positions("old") == {}
    assert store.positions("x") == {"a": "9"}
    # The same record may have failed as both.
    assert [(each.source, each.position) for each in store.letters()] == [("old", 7), ("new", 7), ("new", 8)]
    with pytest.raises(Fenced):
        store.commit([Confirmed("old", "a", "7", generation)])
    store.close()
