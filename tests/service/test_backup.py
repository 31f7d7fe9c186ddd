"""`streamer store backup` and `restore` as people run them: next to a service that writes, and after it is lost."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from email.message import Message
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from streamer.config.schema.service import SharedStore
from streamer.config.secret import SecretValue
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.api import tokens
from streamer.service.connectors.postgres.replication import lsn
from streamer.service.store import backup as module
from streamer.service.store import schema, sqlite
from streamer.service.store.backup import backup, dump_command, load_command, restore
from streamer.service.store.rows import DeadLetter, Spooled, milliseconds
from streamer.service.store.store import Store
from streamer.service.store.subscriptions import Table
from tests.cli.conftest import Run, place, run, warm  # noqa: F401  # fixtures
from tests.service.conftest import event, so_far
from tests.service.database import SUBSCRIPTION, Database, cluster, database  # noqa: F401  # fixtures
from tests.service.receiver import Receiver
from tests.service.test_commands import CONFIG, Start, log, start, until  # noqa: F401  # a fixture
from tests.tools.ports import free_port
from tests.tools.postgres import Cluster, missing

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

EXPECTED = "expected a file that `streamer store backup` of this version, or of an earlier one, wrote"

LETTER = DeadLetter(source="orders", partition="p", position=5, code="json", reason="", at=1, size=1, record=b"x")


def filled(directory: Path, messages: int = 3, size: int = 100) -> None:
    """Make a store with a position, a subscription and some messages of the spool."""
    with closing(Store(directory)) as store:
        store.begin("orders", "p", "old")
        lane = store.lane("hook")
        store.commit(
            [], spooled=[Spooled(lane.name, None, f"m{n}", 1, "orders", "p", n, 0, b"x" * size) for n in range(messages)]
        )
        with closing(Table(store)) as table:
            table.hold("files", [])


def contents(path: Path) -> dict[str, list[Any]]:
    """Return all rows of a database, by table, without changing it."""
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as opened:
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: opened.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def request(port: int, method: str, path: str, token: str, body: Any = None) -> tuple[int, dict[str, str]]:
    """Send a request to the API; return its status and headers."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as reply:
            return reply.status, _lower(reply.headers)
    except urllib.error.HTTPError as error:
        return error.code, _lower(error.headers)


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def writing(path: Path, numbers: Iterator[int]) -> Iterator[None]:
    """Append events to a file until the end."""
    is_over = threading.Event()

    def write() -> None:
        with open(path, "ab", buffering=0) as file:
            while not is_over.wait(0.01):
                file.write(event(next(numbers)) + b"\n")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_service_that_lost_its_store_goes_on_with_a_backup_made_while_it_wrote(
    start: Start,  # noqa: F811
    run: Run,  # noqa: F811
    place: Path,  # noqa: F811
    receiver: Receiver,
) -> None:
    """Each event arrives, duplicates have one id, and subscriptions, tokens and positions are those of the backup."""
    port = free_port()
    hook = {"type": "webhook", "url": receiver.url, "allow_http": True, "ports": [receiver.port], "networks": ["127.0.0.0/8"]}
    (place / "streamer.yaml").write_text(
        f"{CONFIG.replace('sinks: {out', f'sinks: {{hook: {json.dumps(hook)}, out')}"
        'routes: [{gateway: billing, sink: hook}, {gateway: "*", sink: out}]\n'
        "delivery: {retry: {first: 50ms, most: 100ms, attempts: 1000}}\n"
        f"api: {{port: {port}, tokens: {{file: tokens.json}}}}\n"
    )
    token = tokens.create(place / "tokens.json", "default", ("read", "write"))[1]
    one = {"collection": "orders", "filters": [{"field": "amount", "op": ">", "value": 10}]}
    receiver.answer = lambda _: 503
    numbers = itertools.count(2)

    service = start("serve", "-c", "streamer.yaml")
    until(lambda: "started" in log(place))
    assert request(port, "PUT", "/v1/subscriptions/kept", token, one)[0] == 201
    with writing(place / "in.jsonl", numbers):
        until(lambda: len(so_far(place / "out.jsonl")) > 20)
        for number in range(3):
            done = run("store", "backup", f"{number}.db", "-c", "streamer.yaml")
            assert done.returncode == 0, done.stderr
        status, headers = request(port, "PUT", "/v1/subscriptions/late", token, one)
        assert status == 201
        before = len(so_far(place / "out.jsonl"))
        until(lambda: len(so_far(place / "out.jsonl")) > before + 20)
    service.send_signal(signal.SIGKILL)
    service.wait()
    shutil.rmtree(place / "data")

    ended = run("store", "restore", "2.db", "-c", "streamer.yaml")
    assert (ended.returncode, b"the previous store" in ended.stderr) == (0, False), ended.stderr
    (position,) = [json.loads(line) for line in run("positions", "list", "-c", "streamer.yaml", "-o", "json").stdout.splitlines()]
    stored = contents(place / "2.db")
    assert [row[1:4] for row in stored["positions"]] == [(position["source"], position["partition"], position["position"])]
    assert 0 < json.loads(position["position"])["offset"] < (place / "in.jsonl").stat().st_size
    assert stored["spool"]

    receiver.answer = lambda _: 204
    (place / "log").unlink()
    start("serve", "-c", "streamer.yaml")
    until(lambda: "started" in log(place))
    assert request(port, "GET", "/v1/subscriptions/kept", token)[0] == 200
    assert request(port, "GET", "/v1/subscriptions/late", token)[0] == 404
    status, again = request(port, "PUT", "/v1/subscriptions/late", token, one)
    # The ETag of a lost subscription never means another one.
    assert status == 201
    assert int(again["etag"].strip('"')) > int(headers["etag"].strip('"')) + 1000
    events = next(numbers)
    every = {str(number) for number in range(1, events)}
    until(lambda: {each["partitionkey"] for each in receiver.messages} == every)
    until(lambda: {each["partitionkey"] for each in so_far(place / "out.jsonl") if each["subject"] == "kept"} >= every - {"1"})
    for subject in ("kept", "late"):
        found = [each for each in so_far(place / "out.jsonl") if each["subject"] == subject]
        assert len({each["id"] for each in found}) == len({each["partitionkey"] for each in found})
    assert len(so_far(place / "out.jsonl")) > len({each["id"] for each in so_far(place / "out.jsonl")})


def test_a_backup_is_the_store_of_one_moment_though_commits_go_on(tmp_path: Path) -> None:
    filled(tmp_path / "data", messages=100, size=100_000)
    before = contents(tmp_path / "data" / "store.db")
    copied = itertools.count()
    with closing(Store(tmp_path / "data")) as store:

        def commit() -> None:
            store.begin("later", f"p{next(copied)}", "new")

        faults.arm("store.copied", commit)
        backup(tmp_path / "data", tmp_path / "copy.db")
        faults.disarm()
        assert next(copied) > 2
        assert len(store.positions("later")) > 2
    assert contents(tmp_path / "copy.db") == before


def test_a_backup_is_one_file_that_only_its_owner_can_read(run: Run, place: Path) -> None:  # noqa: F811
    filled(place / "data")
    before = names(place)
    os.umask(umask := os.umask(0))
    done = run("store", "backup", "copy.db", "--data-dir", "data", "-o", "json")
    assert umask != 0
    assert json.loads(done.stdout) == {
        "file": "copy.db",
        "bytes": (place / "copy.db").stat().st_size,
        "schema": len(schema.UPGRADES),
        "subscriptions": 0,
        "gateways": 0,
        "positions": 1,
        "messages": 3,
        "dead_letters": 0,
    }
    assert (place / "copy.db").stat().st_mode & 0o777 == 0o600
    assert names(place) == sorted([*before, "copy.db"])


@pytest.mark.parametrize("name", ["subs.jsonl", "link", "dangling", "store.db-wal", "lock", "nosuch/copy.db", "shut/copy.db"])
def test_a_backup_replaces_no_file_and_needs_a_place(run: Run, place: Path, name: str) -> None:  # noqa: F811
    filled(place / "data")
    (place / "link").symlink_to("subs.jsonl")
    (place / "dangling").symlink_to("elsewhere")
    (place / "shut").write_bytes(b"no directory")
    before = names(place), (place / "subs.jsonl").read_bytes()
    done = run("store", "backup", name, "--data-dir", "data")
    assert done.returncode == 2
    reasons = {"nosuch/copy.db": "No such file", "shut/copy.db": "Not a directory"}
    reasons |= dict.fromkeys(("store.db-wal", "lock"), "choose another one")
    assert re.fullmatch(f"streamer: {name}: .*{reasons.get(name, 'choose a new name')}.*\n", done.stderr.decode())
    assert (names(place), (place / "subs.jsonl").read_bytes()) == before


def test_what_is_no_store_has_no_backup(run: Run, place: Path) -> None:  # noqa: F811
    assert b"nosuch: no store" in run("store", "backup", "copy.db", "--data-dir", "nosuch").stderr
    (place / "data").mkdir()
    for content, reason in ((b"", b"an empty file"), (b"no database" * 100, b"file is not a database")):
        (place / "data" / "store.db").write_bytes(content)
        done = run("store", "backup", "copy.db", "--data-dir", "data")
        assert (done.returncode, reason in done.stderr) == (2 if content == b"" else 3, True), done.stderr
    assert not (place / "copy.db").exists()


def test_a_damaged_store_has_no_backup(run: Run, place: Path) -> None:  # noqa: F811
    filled(place / "data", messages=50, size=5_000)
    path = place / "data" / "store.db"
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])
    before = names(place)
    done = run("store", "backup", "copy.db", "--data-dir", "data")
    assert (done.returncode, names(place)) == (3, before)
    assert b"data: the store cannot be backed up: " in done.stderr


def test_a_damaged_copy_is_no_damage_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "data", messages=50, size=5_000)

    def copied(source: sqlite3.Connection, draft: Path) -> None:
        copy(source, draft)
        _flipped(draft)

    copy = module._copy
    monkeypatch.setattr(module, "_copy", copied)
    with pytest.raises(ServiceError, match=r"copy.db: the copy is damaged, and the store is not; try another disk") as raised:
        backup(tmp_path / "data", tmp_path / "copy.db")
    assert (type(raised.value), names(tmp_path)) == (ServiceError, ["data"])


def test_a_backup_replaces_no_file_that_appears_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "data")
    (tmp_path / "copy.db").write_text("content")
    with monkeypatch.context() as patched:
        patched.setattr(os.path, "lexists", lambda _: False)
        with pytest.raises(ServiceError, match=r"copy.db: the file exists already; choose a new name"):
            backup(tmp_path / "data", tmp_path / "copy.db")
    assert ((tmp_path / "copy.db").read_text(), names(tmp_path)) == ("content", ["copy.db", "data"])


def test_a_file_system_without_links_can_have_backups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    filled(tmp_path / "data")
    monkeypatch.setattr(os, "link", link)
    assert backup(tmp_path / "data", tmp_path / "copy.db").messages == 3
    assert (names(tmp_path), len(contents(tmp_path / "copy.db")["spool"])) == (["copy.db", "data"], 3)


def _later(file: Path) -> None:
    with closing(sqlite3.connect(file)) as opened:
        opened.execute(f"PRAGMA user_version = {len(schema.UPGRADES) + 1}")


def _foreign(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("CREATE TABLE t (x)")


def _cut(size: int) -> Callable[[Path], None]:
    return lambda file: os.truncate(file, size)


def _flipped(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:8192] + b"\xff" * 4096 + whole[12288:])


def _in_use(file: Path) -> None:
    file.with_name(f"{file.name}-wal").write_bytes(b"commits")


def _half_committed(file: Path) -> None:
    file.with_name(f"{file.name}-journal").write_bytes(b"pages")


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_later, "copy.db: written by a later version of Streamer: schema 10, but this one supports 9; EXPECTED"),
        (_foreign, "copy.db: no store of Streamer; EXPECTED"),
        (_cut(0), "copy.db: no store of Streamer, but an empty file; EXPECTED"),
        (_cut(100), "copy.db: damaged, or not a backup: .*; EXPECTED"),
        (_cut(40_960), "copy.db: damaged, or not a backup: .*; EXPECTED"),
        (_flipped, "copy.db: damaged, or not a backup: .*; EXPECTED"),
        (lambda file: file.write_text("text" * 1000), "copy.db: damaged, or not a backup: file is not a database; EXPECTED"),
        (_in_use, "copy.db: a store that is in use, or was copied in use: its last commits are in copy.db-wal; EXPECTED"),
        (_half_committed, "copy.db: a store that is in use, or was copied in use: .* replaced is in copy.db-journal; EXPECTED"),
        (_directory, "copy.db: not a file; EXPECTED"),
        (Path.unlink, "copy.db: No such file or directory"),
    ],
)
def test_what_is_no_good_backup_is_refused_and_the_store_stays(
    run: Run,  # noqa: F811
    place: Path,  # noqa: F811
    spoil: Callable[[Path], None],
    reason: str,
) -> None:
    filled(place / "data", messages=50, size=5_000)
    backup(place / "data", place / "copy.db")
    spoil(place / "copy.db")
    before = names(place / "data"), contents(place / "data" / "store.db")
    done = run("store", "restore", "copy.db", "--data-dir", "data")
    assert done.returncode == 2, done.stderr
    reason = reason.replace("EXPECTED", re.escape(EXPECTED)).replace("schema 9", f"schema {len(schema.UPGRADES) + 1}")
    assert re.fullmatch(f"streamer: {reason.replace('knows 8', f'knows {len(schema.UPGRADES)}')}\n", done.stderr.decode())
    assert (names(place / "data"), contents(place / "data" / "store.db")) == before
    # It is the same where there is no store yet.
    assert run("store", "restore", "copy.db", "--data-dir", "new").returncode == 2
    assert not (place / "new" / "store.db").exists()


def test_a_store_in_use_is_not_replaced(start: Start, run: Run, place: Path) -> None:  # noqa: F811
    running = start("serve", "-c", "streamer.yaml")
    until(lambda: "started" in log(place))
    assert run("store", "backup", "copy.db", "-c", "streamer.yaml").returncode == 0
    done = run("store", "restore", "copy.db", "-c", "streamer.yaml")
    assert (done.returncode, f"process {running.pid} uses this store" in done.stderr.decode()) == (4, True), done.stderr
    assert [name for name in names(place / "data") if "before" in name or name.startswith(".")] == []
    running.send_signal(signal.SIGTERM)
    assert running.wait(60) == 0
    assert "was replaced" not in log(place)


def test_a_killed_store_of_a_later_version_is_kept_with_its_last_commits(tmp_path: Path) -> None:
    """The later version can restore it."""
    filled(tmp_path / "first")
    backup(tmp_path / "first", tmp_path / "copy.db")
    with closing(Store(tmp_path / "made")) as store:
        store.begin("orders", "mine", "7")
        store.database.change(lambda execute: execute(f"PRAGMA user_version = {len(schema.UPGRADES) + 1}"))
        shutil.copytree(tmp_path / "made", tmp_path / "data")
    before = restore(tmp_path / "copy.db", tmp_path / "data")[1]
    assert before is not None
    assert names(tmp_path / "data") == ["lock", "store.db", before.name]
    assert [row[2:4] for row in contents(before)["positions"]] == [("mine", "7")]


def test_the_store_before_stays_with_its_last_commits(run: Run, place: Path) -> None:  # noqa: F811
    """It was killed, so that they are in its write-ahead log."""
    filled(place / "first")
    backup(place / "first", place / "copy.db")
    code = "import os, sys; from pathlib import Path; from tests.service.test_backup import filled\n"
    code += "from streamer.service.store.store import Store\n"
    code += "s = Store(Path('data')); s.begin('orders', 'mine', '7'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], cwd=place, check=False, timeout=60)
    assert (place / "data" / "store.db-wal").stat().st_size
    for number in range(2):
        done = run("store", "restore", "copy.db", "--data-dir", "data", "-o", "json")
        assert done.returncode == 0, done.stderr
        before = Path(json.loads(done.stdout)["before"])
        expected = ("orders", "mine", "7") if number == 0 else ("orders", "p", "old")
        assert [row[1:4] for row in contents(place / before)["positions"]] == [expected]
    assert len([name for name in names(place / "data") if "before" in name]) == 2
    with closing(Store(place / "data")) as store:
        assert store.positions("orders") == {"p": "old"}


def test_a_damaged_store_is_replaced_and_kept_as_it_is(run: Run, place: Path) -> None:  # noqa: F811
    filled(place / "first")
    backup(place / "first", place / "copy.db")
    (place / "data").mkdir()
    for end in ("", "-wal"):
        (place / "data" / f"store.db{end}").write_bytes(b"damaged" * 1000)
    done = run("store", "restore", "copy.db", "--data-dir", "data", "-o", "json")
    assert done.returncode == 0, done.stderr
    before = place / json.loads(done.stdout)["before"]
    assert [before.with_name(before.name + end).read_bytes() for end in ("", "-wal")] == [b"damaged" * 1000] * 2
    with closing(Store(place / "data")) as store:
        assert store.positions("orders") == {"p": "old"}


def interrupted(directory: Path, data: Path) -> None:
    """Copy a store in the middle of a commit without a write-ahead log, as if its process had been killed."""
    with closing(sqlite3.connect(directory / "store.db", isolation_level=None)) as opened:
        opened.execute("PRAGMA journal_mode = DELETE")
        opened.execute("PRAGMA cache_size = 1")
        opened.execute("BEGIN IMMEDIATE")
        opened.execute("UPDATE positions SET position = 'new'")
        opened.execute("UPDATE spool SET body = zeroblob(20000)")
        shutil.copytree(directory, data)
    assert (data / "store.db-journal").stat().st_size


def test_a_half_commit_of_the_store_before_does_not_get_into_the_restored_one(tmp_path: Path) -> None:
    filled(tmp_path / "first")
    backup(tmp_path / "first", tmp_path / "copy.db")
    filled(tmp_path / "second", messages=20)
    interrupted(tmp_path / "second", tmp_path / "data")
    before = restore(tmp_path / "copy.db", tmp_path / "data")[1]
    assert before is not None
    assert not (tmp_path / "data" / "store.db-journal").exists()
    with closing(Store(tmp_path / "data")) as store:
        assert (store.positions("orders"), len(contents(tmp_path / "data" / "store.db")["spool"])) == ({"p": "old"}, 3)
    kept = contents(before)
    assert ([row[3] for row in kept["positions"]], {len(row[-1]) for row in kept["spool"]}) == (["old"], {100})
    assert restore(before, tmp_path / "data")[0].messages == 20


def test_a_reader_of_a_restored_store_does_not_block_its_first_start(tmp_path: Path) -> None:
    filled(tmp_path / "first")
    backup(tmp_path / "first", tmp_path / "copy.db")
    restore(tmp_path / "copy.db", tmp_path / "data")
    assert names(tmp_path / "data") == ["lock", "store.db"]
    with closing(sqlite3.connect(tmp_path / "data" / "store.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM positions").fetchone() == (1,)
        with closing(Store(tmp_path / "data")) as store:
            store.begin("orders", "later", "new")


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that all users can reach; those of pytest are their owner's."""
    with TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores the store of another user")
def test_root_follows_no_link_out_of_the_store_of_another_user(reachable: Path) -> None:
    filled(reachable / "first")
    backup(reachable / "first", reachable / "copy.db")
    (reachable / "precious").write_text("content")
    (reachable / "precious").chmod(0o666)
    (reachable / "data").mkdir()
    (reachable / "data" / "lock").symlink_to(reachable / "precious")
    os.chown(reachable / "data", 65534, 65534)
    with pytest.raises(ServiceError, match="the store cannot be used"):
        restore(reachable / "copy.db", reachable / "data")
    assert ((reachable / "precious").read_text(), (reachable / "precious").stat().st_uid) == ("content", 0)
    assert (os.geteuid(), os.getegid()) == (0, 0)


def test_the_error_for_a_lost_store_names_the_command_that_restores_it(tmp_path: Path) -> None:
    """A copy of the backup to `store.db` would get the old write-ahead log."""
    with closing(Store(tmp_path / "data")) as store:
        (tmp_path / "data" / "store.db").rename(tmp_path / "elsewhere")
        with pytest.raises(ServiceError, match=r"run `streamer store restore BACKUP`, .*never copy a backup over store.db"):
            store.begin("orders", "p", "1")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores the store of another user")
def test_what_root_restores_belongs_to_the_owner_of_the_store(reachable: Path) -> None:
    filled(reachable / "first")
    backup(reachable / "first", reachable / "copy.db")
    (reachable / "data").mkdir()
    os.chown(reachable / "data", 65534, 65534)
    for _ in range(2):
        restore(reachable / "copy.db", reachable / "data")
        assert {(path.stat().st_uid, path.stat().st_gid) for path in (reachable / "data").iterdir()} == {(65534, 65534)}
        assert {path.stat().st_mode & 0o777 for path in (reachable / "data").iterdir()} == {0o600}


def test_a_log_without_its_store_does_not_get_into_the_restored_one(tmp_path: Path) -> None:
    filled(tmp_path / "first")
    backup(tmp_path / "first", tmp_path / "copy.db")
    store = Store(tmp_path / "data")
    store.begin("other", "p", "1")
    log = (tmp_path / "data" / "store.db-wal").read_bytes()
    store.close()
    (tmp_path / "data" / "store.db").unlink()
    (tmp_path / "data" / "store.db-wal").write_bytes(log)
    assert restore(tmp_path / "copy.db", tmp_path / "data")[1] is None
    with closing(Store(tmp_path / "data")) as store:
        assert store.sources() == ["orders"]


def test_a_restored_store_uses_no_version_and_no_place_of_a_stream_again(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    backup(tmp_path / "data", tmp_path / "copy.db")
    with closing(Store(tmp_path / "data")) as store, closing(Table(store)) as table:
        mark, (last, _) = store.lane("hook").mark, table.last()
    restore(tmp_path / "copy.db", tmp_path / "data")
    with closing(Store(tmp_path / "data")) as store, closing(Table(store)) as table:
        assert store.lane("hook").mark not in ("", mark)
        assert table.last()[0] >= last + 10**9


def test_a_backup_that_is_restored_twice_gives_no_version_twice(tmp_path: Path) -> None:
    filled(tmp_path / "first")
    backup(tmp_path / "first", tmp_path / "copy.db")
    last = 0
    for _ in range(2):
        restore(tmp_path / "copy.db", tmp_path / "data")
        with closing(Store(tmp_path / "data")) as store, closing(Table(store)) as table:
            assert last < table.last()[0] < 2**53
            store.database.change(lambda execute: execute("UPDATE versions SET last = last + 1000"))
            last = table.last()[0]
        time.sleep(0.01)


def test_leases_that_the_lost_store_may_have_renewed_begin_again(tmp_path: Path) -> None:
    filled(tmp_path / "first")
    now = milliseconds()
    rows = (("over", 60_000, now - 5), ("long", 60_000, now + 90_000), ("forever", None, None), ("fixed", None, now + 5))
    with closing(Store(tmp_path / "first")) as store:
        insert = "INSERT INTO subscriptions (tenant, id, origin, body, lease, expires_at) VALUES ('t', ?, 'api', x'', ?, ?)"
        store.database.change(lambda execute: execute.many(insert, rows))
    backup(tmp_path / "first", tmp_path / "copy.db")
    restore(tmp_path / "copy.db", tmp_path / "data")
    with closing(sqlite3.connect(tmp_path / "data" / "store.db")) as restored:
        ends = dict(restored.execute("SELECT id, expires_at FROM subscriptions").fetchall())
    assert now + 60_000 <= ends.pop("over") <= milliseconds() + 60_000
    assert ends == {"long": now + 90_000, "forever": None, "fixed": now + 5}


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_restored_store_gives_no_number_of_a_dead_letter_twice(tmp_path: Path, is_empty: bool) -> None:
    with closing(Store(tmp_path / "first")) as store:
        if not is_empty:
            store.commit([], dead=[LETTER])
    backup(tmp_path / "first", tmp_path / "copy.db")
    last = 1
    for _ in range(2):
        now = milliseconds()
        restore(tmp_path / "copy.db", tmp_path / "data")
        with closing(Store(tmp_path / "data")) as store:
            store.commit([], dead=[replace(LETTER, position=7)])
            assert max(now, last) < (last := store.letters()[-1].id)
        time.sleep(0.01)


def test_a_backup_of_an_earlier_schema_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup is made before an upgrade, with either version."""
    monkeypatch.setattr(sqlite, "UPGRADES", schema.UPGRADES[:1])
    old = sqlite.Sqlite(tmp_path / "data")
    old.change(lambda execute: execute("INSERT INTO positions (source, partition, position) VALUES ('s', 'p', '5')"))
    old.close()
    monkeypatch.undo()
    copied = backup(tmp_path / "data", tmp_path / "copy.db")
    assert (copied.schema, copied.positions, copied.gateways) == (1, 1, 0)
    assert restore(tmp_path / "copy.db", tmp_path / "new")[0].schema == len(schema.UPGRADES)
    with closing(Store(tmp_path / "new")) as store:
        assert store.positions("s") == {"p": "5"}
    # The version that wrote it can read it, too.
    monkeypatch.setattr(sqlite, "UPGRADES", schema.UPGRADES[:1])
    sqlite.Sqlite(tmp_path / "data").close()


#: Runs a command in a process of its own, in which nothing can be larger than so many bytes.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
"""
#: Runs a command that gets Ctrl-C in the middle of a copy.
INTERRUPTED = """
import os, signal, sys
from streamer.service import faults
faults.arm("store.copied", lambda: os.kill(os.getpid(), signal.SIGINT))
"""


@pytest.mark.parametrize("command", ["backup", "restore"])
@pytest.mark.parametrize(
    ("how", "code", "reason"), [(LIMITED, 4, "(disk I/O error|disk is full|File too large)"), (INTERRUPTED, 130, "")]
)
def test_a_full_disk_and_ctrl_c_leave_no_half_file(place: Path, command: str, how: str, code: int, reason: str) -> None:  # noqa: F811
    filled(place / "data", messages=100, size=100_000)
    backup(place / "data", place / "good.db")
    before = names(place), names(place / "data"), contents(place / "data" / "store.db")
    arguments = ["store", command, "copy.db" if command == "backup" else "good.db", "--data-dir", "data"]
    script = f"{how}\nfrom streamer.cli.main import main\nsys.argv = ['streamer', *{arguments!r}]\nmain()\n"
    ended = subprocess.run([sys.executable, "-c", script], cwd=place, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == code, ended.stderr
    assert re.fullmatch(f"(streamer: .*{reason}\n)?", ended.stderr), ended.stderr
    assert bool(ended.stderr) == bool(reason)
    assert (names(place), names(place / "data"), contents(place / "data" / "store.db")) == before


#: A subscription whose lease of a minute is over.
LEASED = "INSERT INTO subscriptions VALUES ('t', 'leased', 'api', '', 1, 1, 1, 0, 0, 60000, 1)"


@pytest.mark.skipif(missing() is not None, reason=f"{missing()}")
@pytest.mark.parametrize("namespace", ["shop", "user", "a" * 63])
def test_a_store_on_postgresql_names_the_commands_that_back_it_up_and_they_do(
    run: Run,  # noqa: F811
    place: Path,  # noqa: F811
    cluster: Cluster,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    namespace: str,
) -> None:
    section = SharedStore(dsn=SecretValue("env", "STORE"), namespace=namespace)
    (place / "dsn").write_text(cluster.dsn())
    monkeypatch.setenv("STORE", cluster.dsn())
    monkeypatch.setenv("PGPASSWORD", "secret-word")
    (place / "streamer.yaml").write_text(f"store: {{dsn: {{file: dsn}}, namespace: {namespace}}}\n")
    told = {}
    for command in ("backup", "restore"):
        done = run("store", command, "a copy.dump", "-c", "streamer.yaml")
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"secret-word" not in done.stderr
        told[command] = done.stderr.decode().rstrip().split(": ", 3)[3]
    before = names(place)
    with closing(Store(section)) as store, closing(Table(store)) as table:
        store.begin("orders", "p", "old")
        mark, (last, _) = store.lane("hook").mark, table.last()
        store.database.change(lambda execute: execute(LEASED))
        store.commit([], dead=[LETTER])
    assert _shell(cluster, place, told["backup"]) == ""
    with closing(Store(section)) as store:
        store.begin("orders", "later", "new")
        # A table of a later schema is no obstacle.
        store.database.change(lambda execute: execute("CREATE TABLE more (p TEXT REFERENCES lanes (name))"))
    assert _shell(cluster, place, told["restore"]) == ""
    assert names(place) == sorted([*before, "a copy.dump"])
    with closing(Store(section)) as store, closing(Table(store)) as table:
        assert store.positions("orders") == {"p": "old"}
        assert store.lane("hook").mark not in ("", mark)
        assert last + 10**9 < table.last()[0] < 2**53
        now = milliseconds()
        store.commit([], dead=[replace(LETTER, position=7)])
        assert now - 60_000 < store.letters()[-1].id <= now + 1
        assert now < (table.next_expiry() or 0) <= now + 60_000
    (kept,) = re.findall(rf'RENAME TO "({namespace[:40]}_before_\w+)"', told["restore"])
    with closing(Store(SharedStore(dsn=SecretValue("env", "STORE"), namespace=kept))) as store:
        assert store.positions("orders") == {"p": "old", "later": "new"}
    # A command that fails leaves the store, and no draft.
    assert "already exists" in _shell(cluster, place, told["restore"], code=1)
    assert names(place) == sorted([*before, "a copy.dump"])
    with closing(Store(section)) as store:
        assert store.positions("orders") == {"p": "old"}
    # A lost store has no schema.
    cluster.sql(f'DROP SCHEMA "{namespace}" CASCADE')
    assert _shell(cluster, place, told["restore"]) == ""
    with closing(Store(section)) as store:
        assert store.positions("orders") == {"p": "old"}


@pytest.mark.parametrize("command", [dump_command, load_command])
def test_a_schema_that_may_have_tables_of_others_is_not_moved(
    monkeypatch: pytest.MonkeyPatch, command: Callable[[SharedStore, Path], str]
) -> None:
    monkeypatch.setenv("STORE", "dbname=shop")
    with pytest.raises(ServiceError, match=r"store.namespace: the schema public .* a schema of its own"):
        command(SharedStore(dsn=SecretValue("env", "STORE"), namespace="public"), Path("a.dump"))


@pytest.mark.parametrize("on_lost", ["fail", "skip", "resnapshot"])
def test_a_restore_reports_which_slots_the_next_start_would_drop(run: Run, place: Path, on_lost: str) -> None:  # noqa: F811
    filled(place / "data")
    backup(place / "data", place / "copy.db")
    (place / "streamer.yaml").write_text(
        f"sources: {{orders: {{type: postgres, dsn: {{env: PG}}, on_lost: {on_lost}}}, lines: {{type: file, path: in.jsonl}}}}\n"
        "sinks: {out: {type: file, path: out.jsonl}}\nservice: {data_dir: data}\n"
    )
    done = run("store", "restore", "copy.db", "-c", "streamer.yaml", "-o", "json")
    assert done.returncode == 0, done.stderr
    expected = (
        "sources.orders: its slot may be ahead of this store. Before the start, run `streamer positions forget orders -c "
        f"streamer.yaml`: otherwise on_lost: {on_lost} drops the slot, with the changes since the stop\n"
    )
    assert done.stderr.decode() == ("" if on_lost == "fail" else expected)
    with open(place / "streamer.yaml", "a") as file:
        file.write("store: {dsn: {file: dsn}}\n")
    (place / "dsn").write_text("dbname=shop")
    done = run("store", "restore", "copy.dump", "-c", "streamer.yaml")
    assert done.returncode == 2
    assert done.stderr.decode().partition("streamer: store.dsn: ")[0] == ("" if on_lost == "fail" else expected)


@pytest.mark.skipif(missing() is not None, reason=f"{missing()}")
def test_a_slot_that_is_ahead_of_a_restored_store_is_refused_until_its_positions_are_forgotten(
    start: Start,  # noqa: F811
    run: Run,  # noqa: F811
    place: Path,  # noqa: F811
    database: Database,  # noqa: F811
) -> None:
    """Its server keeps no changes from before, which the lost store had confirmed."""
    (place / "subs.jsonl").write_text(SUBSCRIPTION)
    (place / "streamer.yaml").write_text(
        "subscriptions: subs.jsonl\n"
        f"sources: {{orders: {{type: postgres, dsn: {{env: PG}}, slot: {database.name}, status_interval: 1s}}}}\n"
        "sinks: {out: {type: file, path: out.jsonl}}\nservice: {data_dir: data}\n"
    )

    def matched(number: int) -> Callable[[], bool]:
        return lambda: [each["partitionkey"] for each in so_far(place / "out.jsonl")] == [str(n) for n in range(1, number + 1)]

    def end(service: Any) -> None:
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0

    service = start("serve", "-c", "streamer.yaml")
    until(lambda: "started" in log(place))
    database.sql("INSERT INTO orders VALUES (1, 200)")
    until(matched(1))
    assert run("store", "backup", "copy.db", "-c", "streamer.yaml").returncode == 0
    database.sql("INSERT INTO orders VALUES (2, 200)")
    ((inserted,),) = database.sql("SELECT pg_current_wal_flush_lsn()")
    until(matched(2))
    # The commit of a row can arrive after the row, and until then the slot stays before it.
    until(lambda: database.confirmed() >= lsn(inserted))
    end(service)
    assert run("store", "restore", "copy.db", "-c", "streamer.yaml").returncode == 0
    database.sql("INSERT INTO orders VALUES (3, 200)")
    refused = run("serve", "-c", "streamer.yaml")
    assert refused.returncode == 3
    assert b"was recreated or moved by another client" in refused.stderr

    shown = run("positions", "forget", "orders", "-c", "streamer.yaml", "--dry-run")
    assert (shown.returncode, shown.stderr) == (0, b"1 partition of orders would be forgotten\n")
    assert run("positions", "forget", "orders", "-c", "streamer.yaml").stdout == shown.stdout != b""
    again = run("positions", "forget", "orders", "-c", "streamer.yaml")
    assert (again.returncode, again.stderr) == (1, b"0 partitions of orders were forgotten\n")
    service = start("serve", "-c", "streamer.yaml")
    until(matched(3))
    end(service)


def _shell(server: Cluster, directory: Path, command: str, code: int = 0) -> str:
    """Run a command for PostgreSQL with the programs of the version of a server; return its output."""
    path = f"{server._programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=directory, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr
