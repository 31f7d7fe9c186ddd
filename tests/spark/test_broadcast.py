"""What travels is held where nobody else writes, and its name says what its bytes are: asked without Spark."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, cast

import pytest

from streamer import ConfigError, Engine, SnapshotError
from streamer.engine import engine as engine_module

pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'streamer-engine[spark]')")
pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'streamer-engine[spark]')")

from streamer.spark import broadcast, files
from streamer.spark.call import Call


class Session:
    """Takes files as a server of Spark Connect does: a name once, and for good."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.refused: list[str] = []

    def addArtifacts(self, path: str, *, file: bool) -> None:  # noqa: N802  # Spark's name
        assert file
        name, data = Path(path).name, Path(path).read_bytes()
        if self.files.setdefault(name, data) != data or name in self.refused:
            raise RuntimeError(f"[ARTIFACT_ALREADY_EXISTS] The artifact files/{name} already exists. SQLSTATE: 42713")


@pytest.fixture(autouse=True)
def no_copies(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each test is a process that has held nothing yet."""
    another_process(monkeypatch, tmp_path_factory.mktemp("folder"))


def another_process(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for module, name in ((broadcast, "_COPIES"), (broadcast, "_GUARDS"), (files, "_STORED"), (files, "_CARRIED")):
        monkeypatch.setattr(module, name, type(getattr(module, name))())
    monkeypatch.setattr(files, "folder", lambda: folder)


def filled(count: int = 100) -> Engine:
    engine = Engine()
    engine.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "n", "op": "==", "value": n}]} for n in range(count))
    return engine


def ship(session: Session, source: Any) -> broadcast.Broadcast:
    spark: Any = session
    return broadcast.ship(spark, source)


def test_saves_differ_by_their_seed_alone(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest names the content. The seed is random, so that nobody can choose values that collide in an image's tables."""
    engine, paths = filled(), [tmp_path / name for name in "ab"]
    for path in paths:
        engine.save(path)
    assert paths[0].read_bytes()[:96] == paths[1].read_bytes()[:96]
    assert (paths[0].read_bytes() == paths[1].read_bytes()) == (backend == "reference")
    monkeypatch.setattr(secrets, "randbits", lambda _: 7)
    for path in paths:
        engine.save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_equal_subscriptions_travel_once_however_they_come(backend: str, tmp_path: Path) -> None:
    session, engine = Session(), filled()
    engine.save(tmp_path / "a")
    engine.save(tmp_path / "b")
    names = {ship(session, source).name for source in (engine, tmp_path / "a", engine, tmp_path / "b", filled())}
    assert names == set(session.files)
    assert len(names) == 1
    assert ship(session, filled(99)).name not in names


def test_two_processes_of_one_session_never_give_one_name_to_different_bytes(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over Spark Connect, what `foreachBatch` is given runs in a process of its own."""
    session, engine = Session(), filled()
    ship(session, engine)
    another_process(monkeypatch, tmp_path / "another")
    ship(session, engine)
    for prune in (False, True):
        spark: Any = session
        broadcast.ship(spark, engine, prune=prune)


def test_what_a_session_has_already_is_there(backend: str) -> None:
    """A file of this name has these bytes, whoever added it; any other refusal is an error."""
    session, engine = Session(), filled()
    copied = broadcast.copy_of(engine)
    session.files[copied.file.name] = Path(copied.directory.path).read_bytes()
    session.refused = [copied.file.name]
    assert ship(session, engine).name == copied.file.name
    session.addArtifacts = lambda *_, **__: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        ship(session, filled(5))


def test_a_file_that_is_replaced_or_overwritten_leaves_its_copy_unchanged(backend: str, tmp_path: Path) -> None:
    """Directory, options and lines are of one file, whatever comes to its place meanwhile."""
    session, path = Session(), tmp_path / "snapshot"
    filled(100).save(path)
    copied = broadcast.copy_of(path)
    filled(7).save(path)
    assert broadcast.copy_of(path).directory.subscriptions == 7
    with path.open("r+b") as file:
        file.write(bytes(4096))
    for again in (copied, broadcast.copy_of(filled(100))):
        shipped = ship(session, again)
        assert (shipped.subscriptions, shipped.digest) == (100, copied.directory.digest)
    copy = Path(copied.directory.path)
    assert len(Engine.load(copy)) == 100
    assert session.files == {copied.file.name: copy.read_bytes()}


def test_a_damaged_file_is_named_and_not_copied(backend: str, tmp_path: Path) -> None:
    """Where it says to be what it is not, the good one of the same digest still travels."""
    path, engine = tmp_path / "snapshot", filled()
    engine.save(path)
    data = bytearray(path.read_bytes())
    data[data.index(b'"id":"s50"') + 6] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotError) as caught:
        broadcast.copy_of(path)
    assert (caught.value.path, caught.value.place) == (str(path), "section default/c")
    assert list(files.folder().iterdir()) == []
    engine.save(path)
    assert broadcast.copy_of(path).directory.subscriptions == 100


def test_options_are_checked_without_making_an_engine(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an engine, of a snapshot, and of JSON lines."""
    engine, spark = filled(), cast(Any, Session())
    engine.save(tmp_path / "snapshot")
    (tmp_path / "lines").write_text('{"id": "a"}\n')

    def make(*_: Any) -> Any:
        raise AssertionError("a core was made")

    monkeypatch.setattr(engine_module, "_make_core", make)
    for source in (engine, tmp_path / "snapshot"):
        assert Call.of(spark, source, {"default_tenant": "default"}).options["default_tenant"] == "default"
        with pytest.raises(ConfigError, match="has another one"):
            Call.of(spark, source, {"default_tenant": "other"})
    with pytest.raises(ConfigError, match="is not a tenant"):
        Call.of(spark, tmp_path / "lines", {"default_tenant": "*"})
