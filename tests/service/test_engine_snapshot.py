"""The snapshot of the engine next to the store: a start with it has the subscriptions that it would have without."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamer import Config, Engine
from streamer.config.loader import Loaded
from streamer.config.schema.service import SharedStore
from streamer.service import faults
from streamer.service.store.ids import claimed, inside
from streamer.service.store.snapshots import Marks
from streamer.service.store.store import Store
from streamer.service.tenants import snapshot as module
from streamer.service.tenants.loading import Loading
from streamer.service.tenants.shards import Shard
from streamer.service.tenants.snapshot import ENGINE, VERSIONS, EngineSnapshot
from streamer.service.tenants.subscriptions import Subscriptions
from tests.service.api import until
from tests.service.conftest import Make, event, lines
from tests.tools.postgres import Cluster, missing

pytestmark = pytest.mark.usefixtures("_with_images")
#: More than the fewest subscriptions with an index, and all kinds of conditions.
KINDS: tuple[dict[str, Any], ...] = (
    {"filters": [{"field": "n", "op": "==", "value": 7}]},
    {"cel": "data.n == 7"},
    {"pattern": {"data": {"n": [7]}}},
    {"topic": "orders.*.paid"},
)
ALL = {"collection": "orders", "topic": "orders.7.paid", "data": {"n": 7}}


@pytest.fixture(name="_with_images")
def with_images(backend: str) -> None:
    if backend != "native":
        pytest.skip("the reference compiles no images, so it has no snapshot")


class Run:
    """An engine with the subscriptions of a store, as a start makes it."""

    def __init__(
        self, place: Path | SharedStore, directory: Path, shard: Shard | None = None, but: str = "", **options: Any
    ) -> None:
        shard = shard or Shard()
        self.engine, self.store = Engine(**options), Store(place)
        self.snapshot = EngineSnapshot(directory, self.engine, self.store, shard, lambda: but)
        self.subscriptions = Subscriptions(self.engine, self.store, shard=shard, snapshot=self.snapshot)
        self.loading = Loading()
        self.subscriptions.begin(Loaded(Config()), [], [], loading=self.loading)

    def put(self, *numbers: int, tenant: str = "acme", lease: int | None = None, **more: Any) -> None:
        texts = [
            {"id": f"s{each}", "collection": "orders" if each % 3 else "users", **KINDS[each % 4], **more} for each in numbers
        ]
        written = [claimed(json.dumps(text).encode(), tenant) for text in texts]
        assert not [each.error for each in self.subscriptions.put_many(tenant, written, lease=lease) if each.error]

    def held(self) -> dict[str, Any]:
        """Return all subscriptions, and check that an event finds those that an engine without snapshot finds."""
        plain = Engine()
        plain.add_many(self.engine.subscriptions())
        for tenant in ("acme", "other"):
            assert set(self.engine.match_ids(ALL, tenant=tenant)) == set(plain.match_ids(ALL, tenant=tenant))
        return dict(self.engine.items())

    def close(self) -> None:
        self.subscriptions.close()
        self.store.close()


class Start:
    """Starts with the store in `data`, after the run before has ended."""

    def __init__(self, data: Path, caplog: pytest.LogCaptureFixture) -> None:
        self._data, self._caplog = data, caplog
        self._run: Run | None = None

    def __call__(self, **options: Any) -> Run:
        self.stop()
        self._caplog.clear()
        self._run = Run(self._data, self._data, **options)
        return self._run

    def stop(self) -> None:
        if self._run is not None:
            self._run.close()
        self._run = None


@pytest.fixture
def start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Start]:
    caplog.set_level(logging.INFO, "streamer.service")
    started = Start(tmp_path / "data", caplog)
    yield started
    started.stop()


@pytest.fixture
def written(start: Start) -> dict[str, Any]:
    """Write a snapshot of 202 subscriptions of two tenants, and stop."""
    run = start()
    run.put(*range(1, 200, 2))
    run.put(*range(0, 200, 2), tenant="other")
    run.put(200, lease=3_600_000)
    run.put(201, tenant="*")
    run.snapshot.write()
    start.stop()
    return run.held()


def stored(run: Run) -> dict[str, Any]:
    """Return the subscriptions that a start without snapshot would load."""
    plain = Engine()
    plain.add_many(run.subscriptions._active())
    return dict(plain.items())


def refused(caplog: pytest.LogCaptureFixture) -> str:
    """Return the reason for which a snapshot was not used; nothing if it was."""
    told = [record.getMessage() for record in caplog.records if "snapshot: " in record.getMessage()]
    assert len(told) == 1
    _, _, reason = told[0].partition("all subscriptions are read: ")
    return reason


def test_what_changed_since_is_added_and_removed(start: Start, written: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    run = start()
    assert (run.held(), refused(caplog)) == (written, "")
    assert run.loading.members()["subscriptions"] == {"loaded": 202, "total": 202}
    run.put(1, gateway_id="other")
    run.put(300)
    run.put(301)
    run.subscriptions.remove("acme", "s3", lambda _: None)
    run.subscriptions.remove("acme", "s301", lambda _: None)
    run.subscriptions.pause("acme", "s5", lambda _: None, paused=True)
    run.subscriptions.pause("acme", "s9", lambda _: None, paused=True)
    run.subscriptions.pause("acme", "s9", lambda _: None, paused=False)
    run.store.database.change(lambda execute: execute("UPDATE subscriptions SET expires_at = 1 WHERE id = 's200'"))
    run = start()
    assert refused(caplog) == ""
    held = run.held()
    assert held == stored(run)
    changed = {*held, *written} - {key for key in held if held[key] == written.get(key)}
    assert changed == {inside("acme", f"s{number}") for number in (1, 300, 3, 5, 200)}


def damage(file: str, place: float) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        content = bytearray((directory / file).read_bytes())
        content[int(len(content) * place)] ^= 0x55
        (directory / file).write_bytes(content)

    return damage


def cut(file: str, place: float) -> Callable[[Path], None]:
    return lambda directory: os.truncate(directory / file, int((directory / file).stat().st_size * place))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        *((damage(ENGINE, place / 16), "damaged") for place in range(2, 16)),
        *((damage(VERSIONS, place), "") for place in (0.001, 0.05, 0.5, 0.99)),
        *((cut(file, place), "") for file in (ENGINE, VERSIONS) for place in (0, 0.5, 0.99)),
        (lambda directory: (directory / ENGINE).unlink(), "No such file"),
        (lambda directory: (directory / VERSIONS).write_bytes(b"[]\n"), "damaged"),
        (lambda directory: shutil.copy(directory / VERSIONS, directory / ENGINE), "not a snapshot"),
    ],
)
def test_a_damaged_snapshot_is_not_used(
    start: Start,
    written: dict[str, Any],
    tmp_path: Path,
    spoil: Callable[[Path], None],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spoil(tmp_path / "data")
    run = start()
    assert run.held() == written
    assert run.loading.members()["subscriptions"] == {"loaded": 202, "total": 202}
    told = refused(caplog)
    # A changed byte may lie in the padding between two parts.
    assert reason in told
    assert told or reason == "damaged"


@pytest.mark.parametrize(
    "options",
    [
        {"limits": {"max_conditions": 50}},
        {"default_tenant": "x"},
        {"soft_delete": "gone"},
        {"shard": Shard(1, 2)},
        {"but": "files"},
    ],
)
def test_another_configuration_does_not_use_it(
    start: Start, written: dict[str, Any], options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert written
    run = start(**options)
    assert "another configuration" in refused(caplog)
    assert dict(run.engine.items()) == stored(run)


def test_a_shard_has_its_part(start: Start, written: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    shards = [Shard(number, 2) for number in (1, 2)]
    found: dict[str, Any] = {}
    for shard in shards:
        start(shard=shard).snapshot.write()
        run = start(shard=shard)
        assert refused(caplog) == ""
        run.put(1, gateway_id="other")
        run = start(shard=shard)
        assert refused(caplog) == ""
        assert dict(run.engine.items()) == stored(run)
        found |= dict(run.engine.items())
    assert found.keys() == written.keys()


def test_a_store_that_was_put_back_is_what_counts(
    start: Start, tmp_path: Path, written: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An older copy uses its versions again, for other subscriptions."""
    data, old = tmp_path / "data", tmp_path / "old.db"
    shutil.copy(data / "store.db", old)
    run = start()
    run.put(1, gateway_id="lost")
    run.put(302)
    run.snapshot.write()
    start.stop()
    newer = {file: (data / file).read_bytes() for file in (ENGINE, VERSIONS)}

    def put_back() -> Run:
        start.stop()
        for file in data.glob("store.db*"):
            file.unlink()
        shutil.copy(old, data / "store.db")
        return start()

    run = put_back()
    assert (run.held(), "another store" in refused(caplog)) == (written, True)
    run.put(1, gateway_id="kept")
    run.put(303)
    run.put(304)
    run = start()
    assert (run.held() == stored(run), "another store" in refused(caplog)) == (True, True)
    run.snapshot.write()
    run = start()
    assert (run.held() == stored(run), refused(caplog)) == (True, "")
    # A copy that has the mark may be older than the files' other subscriptions, and later than the marked ones.
    start.stop()
    for file, content in newer.items():
        (data / file).write_bytes(content)
    run = start()
    assert (run.held() == stored(run), "another store" in refused(caplog)) == (True, True)


def test_a_row_that_changed_without_a_version_is_not_trusted(
    start: Start, tmp_path: Path, written: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(tmp_path / "data" / "store.db")) as store, store:
        store.execute("UPDATE subscriptions SET version = 0 WHERE id = 's1'")
    assert start().held() == written
    assert "the subscriptions of the store are others" in refused(caplog)


def test_a_crash_between_the_files_leaves_none_that_is_used(
    start: Start, tmp_path: Path, written: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    run = start()
    run.put(302)

    def fail() -> None:
        raise InterruptedError

    faults.arm("snapshot.half", fail)
    with pytest.raises(InterruptedError):
        run.snapshot.write()
    (tmp_path / "data" / ".streamer-0123").touch()
    run = start()
    assert VERSIONS in refused(caplog)
    assert run.held().keys() == {*written, inside("acme", "s302")}
    assert not (tmp_path / "data" / ".streamer-0123").exists()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda run, _: run.put(300, cel_evaluator="portable", cel="data.n == 7", filters=[]), "cel-python"),
        (lambda run, _: run.store.database.change(lambda execute: execute("UPDATE subscriptions SET version = 0")), "no version"),
        (lambda _, patch: patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0)), "room"),
        (lambda _, patch: patch.setattr("streamer.core.snapshot.replacing", full), "No space left"),
    ],
)
def test_a_snapshot_that_cannot_be_written_is_a_warning(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    spoil: Callable[[Run, pytest.MonkeyPatch], object],
    reason: str,
) -> None:
    monkeypatch.setattr(module, "FEWEST", 5)
    monkeypatch.setattr(module, "LOOK", 0.01)
    run = start()
    run.put(*range(10))
    spoil(run, monkeypatch)
    run.subscriptions.start()
    until(lambda: "cannot be written" in caplog.text)
    assert reason in caplog.text
    time.sleep(0.1)
    assert caplog.text.count("cannot be written") == 1
    assert not list((tmp_path / "data").glob("*engine*"))
    assert not list((tmp_path / "data").glob(".streamer-*"))
    run.put(11)


def full(*_: object, **__: object) -> Any:
    raise OSError(28, "No space left on device")


def test_a_service_writes_it_once_enough_has_changed_and_starts_with_it(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamer.service")
    run = Run(tmp_path / "data", tmp_path / "data")
    run.put(*range(80), tenant="default")
    run.close()
    (tmp_path / "in.jsonl").write_bytes(event(1) + b"\n")
    monkeypatch.setattr(module, "FEWEST", 50)
    monkeypatch.setattr(module, "LOOK", 0.01)
    versions = tmp_path / "data" / VERSIONS
    faults.arm("source.ended", lambda: until(versions.exists) and None)
    make().run()
    faults.disarm()
    assert "snapshot: 80 subscriptions written" in caplog.text
    service = make()
    # The files' subscriptions are not in it.
    service.run()
    assert "snapshot: 80 subscriptions in" in caplog.text
    assert len(service.engine) == 82
    assert len(lines(tmp_path / "out.jsonl")) == 1


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_processes_of_a_shared_store_each_have_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamer.service")
    cluster = Cluster()
    try:
        monkeypatch.setenv("STORE", cluster.dsn())
        config = Config.from_dict({"store": {"dsn": {"env": "STORE"}}})
        places = [tmp_path / "a", tmp_path / "b"]
        for place in places:
            place.mkdir()
        runs = [Run(config.store, place) for place in places]
        runs[0].put(*range(50))
        runs[1].put(*range(50), tenant="Über")
        for run in runs:
            run.subscriptions.follow()
            run.snapshot.write()
        runs[0].put(90)
        runs[0].subscriptions.remove("acme", "s1", lambda _: None)
        wanted = runs[0].held()
        runs[1].close()
        caplog.clear()
        runs[1] = Run(config.store, places[1])
        assert refused(caplog) == ""
        assert runs[1].held() == wanted
        # A change between the two queries of a start is followed.
        changed = Marks.changed

        def later(self: Marks, *arguments: Any) -> Any:
            runs[0].put(90, gateway_id="late")
            return changed(self, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Marks, "changed", later)
            runs[1].close()
            caplog.clear()
            runs[1] = Run(config.store, places[1])
        assert refused(caplog) == ""
        runs[1].subscriptions.follow()
        assert runs[1].held() == runs[0].held()
        for run in runs:
            run.close()
    finally:
        cluster.close()
