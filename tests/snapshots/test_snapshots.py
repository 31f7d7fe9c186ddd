"""What is saved comes back, on every backend, and nothing else ever does."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import stat
import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamer import ConfigError, Engine, Limits, SnapshotError, Subscription, _backend
from streamer.bloom.options import BloomOptions
from streamer.core import snapshot
from streamer.core.snapshot import read_directory, verify
from streamer.engine import engine as engine_module
from tests.generators import agreeing_event, agreeing_subscription, random_event, random_subscription
from tests.parts import in_seeds

MakeEngine = Callable[..., Engine]
V1 = Path(__file__).parents[2] / "testdata" / "snapshots" / "v1.snap"

ODD: list[Any] = [
    {"id": "labels", "labels": {"b": [1, 1.0, True, None], "a": {"n": -0.0}}},
    {"id": "é😀\n", "gateway_id": "", "tenant": "*", "collection": "ünï/code"},
    b'{ "labels": {"big": 1e400, "int": 2e9999}, "id": "numbers", "collection": "*", "types": ["delete", "insert"] }',
    {"id": "text", "pattern": '{"data": {"a": [{"prefix": "x"}]}}', "dialect": "strict"},
    Subscription(id="bytes", pattern=b'{"data": {"a": [1]}}'),
    {"id": "changed", "filters": [{"field": "a", "op": "changed"}], "transitions": True, "on_unknown": "skip"},
    {"id": "envelope", "filters": [{"root": "envelope", "field": "topic", "op": "exists", "value": True}]},
    {"id": "root", "filters": [{"field": "a", "op": "==", "value": 1, "root": "data"}]},
    {"id": "cel", "cel": "data.a > 1 || size(data.b) == 2", "tenant": "t", "collection": "c"},
    {"id": "deep", "labels": {"a": {"b": [[[[[{"c": 1}]]]]]}}},
]


def filled(engine: MakeEngine, seed: int, count: int = 120, **options: Any) -> Engine:
    """An engine that has lived: added to, replaced in, removed from."""
    rng = random.Random(seed)
    made = agreeing_subscription if seed % 2 else random_subscription
    e = engine(**options)
    e.add_many(ODD)
    e.add_many([made(rng, f"s{n}") for n in range(count)], on_error="skip")
    e.remove_many(ids=rng.sample(list(e), 20))
    e.add_many([made(rng, each) for each in rng.sample(list(e), 20)], replace=True, on_error="skip")
    return e


def events_of(seed: int, count: int = 40) -> list[Any]:
    rng = random.Random(seed)
    return [agreeing_event(rng) if seed % 2 else random_event(rng) for _ in range(count)]


def told(e: Engine, event: Any) -> list[Any]:
    return [(m.subscription_id, m.gateway_id, m.transition, m.certain, m.labels) for m in e.match(event).sorted()]


def assert_same(one: Engine, other: Engine, seed: int) -> None:
    assert len(one) == len(other)
    assert list(one) == list(other)
    assert [text_of(each) for each in one.subscriptions()] == [text_of(each) for each in other.subscriptions()]
    for event in events_of(seed):
        assert told(one, event) == told(other, event)
    for each in random.Random(seed).sample(list(one), 10):
        assert str(one.plan(each)) == str(other.plan(each))


def text_of(subscription: Subscription) -> str:
    """What a subscription says; a pattern given as bytes is its text."""
    members = subscription.to_dict()
    if isinstance(members.get("pattern"), bytes):
        members["pattern"] = members["pattern"].decode()
    return repr({**members, "types": list(members.get("types", ()))})


@in_seeds(3, 16)
def test_what_was_saved_comes_back_with_matches_plans_and_order(engine: MakeEngine, tmp_path: Path, seed: int) -> None:
    e = filled(engine, seed)
    e.save(tmp_path / "s")
    loaded = Engine.load(tmp_path / "s")
    assert_same(e, loaded, seed)
    # And once more, from what was loaded: also where nothing of it was looked at before.
    Engine.load(tmp_path / "s").save(tmp_path / "t")
    assert read_directory(tmp_path / "s").digest == read_directory(tmp_path / "t").digest


def test_all_backends_write_the_same_content_and_read_each_others_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = {}
    for name in _backend.available():
        monkeypatch.setattr(_backend, "BACKEND", name)
        made[name] = filled(Engine, 4)
        made[name].save(tmp_path / name)
    assert len({read_directory(tmp_path / name).digest for name in made}) == 1
    for reader in made:
        monkeypatch.setattr(_backend, "BACKEND", reader)
        for writer in made:
            assert_same(made[reader], Engine.load(tmp_path / writer), 4)


def test_options_come_back(engine: MakeEngine, tmp_path: Path) -> None:
    e = engine(
        layout={"preset": "debezium", "tenant": {"constant": "x"}},
        default_tenant=None,
        validation="lazy",
        limits=Limits(max_depth=40, evaluation_timeout_us=7, allow_unindexed=False),
        soft_delete="meta.gone",
        cache_size=3,
        bloom=BloomOptions(fp_rate=0.2, rebuild_interval=None, rebuild_cooldown=timedelta(minutes=1, microseconds=1)),
        batch_size=5,
    )
    e.save(tmp_path / "s")
    loaded = Engine.load(tmp_path / "s")
    assert loaded._options == e._options
    overridden = Engine.load(tmp_path / "s", validation="full", bloom={"enabled": False}, cache_size=9, batch_size=8, default=str)
    assert (overridden._options.validation, overridden._options.bloom.enabled, overridden._options.default) == (
        "full",
        False,
        str,
    )


def test_loading_makes_one_core(engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options are checked without an engine: only the one that is returned has a core."""
    engine().save(tmp_path / "s")
    made = []
    make = engine_module._make_core
    monkeypatch.setattr(engine_module, "_make_core", lambda *args: made.append(1) or make(*args))
    Engine.load(tmp_path / "s", cache_size=9)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("layout", {"preset": "debezium"}), ("default_tenant", "other"), ("limits", Limits(max_depth=9)), ("soft_delete", "gone")],
)
def test_what_says_what_matches_is_the_files(engine: MakeEngine, tmp_path: Path, name: str, value: Any) -> None:
    e = engine()
    e.save(tmp_path / "s")
    with pytest.raises(ConfigError) as raised:
        Engine.load(tmp_path / "s", **{name: value})
    assert raised.value.place == name
    # An equal value changes nothing.
    Engine.load(tmp_path / "s", **{name: getattr(e._options, name)})


def test_an_override_that_cannot_be_is_an_error(engine: MakeEngine, tmp_path: Path) -> None:
    engine().save(tmp_path / "s")
    with pytest.raises(ConfigError):
        Engine.load(tmp_path / "s", validation="fast")
    with pytest.raises(TypeError):
        Engine.load(tmp_path / "s", nosuch=1)


@pytest.mark.parametrize("seed", range(4))
def test_a_part_holds_what_its_events_may_match_and_no_more(engine: MakeEngine, tmp_path: Path, seed: int) -> None:
    e = filled(engine, seed)
    e.save(tmp_path / "s")
    part = Engine.load(tmp_path / "s", collections=[("t", "c"), ("nobody", "nothing")])
    seen = [s.id for s in e.subscriptions() if s.tenant in ("t", "nobody", "*") and s.collection in ("c", None, "*", "nothing")]
    assert list(part) == seen
    assert len(part) == len(seen)
    for event in events_of(seed):
        assert told(part, {**event, "tenant": "t", "collection": "c"}) == told(e, {**event, "tenant": "t", "collection": "c"})
    others = set(e) - set(seen)
    assert all(each not in part and part.get(each) is None for each in others)
    part.add({"id": min(others)})
    assert list(part) == [*seen, min(others)]
    with pytest.raises(TypeError):
        Engine.load(tmp_path / "s", collections=["tc"])


@in_seeds(2, 8)
def test_a_loaded_engine_is_written_to_like_any_other(engine: MakeEngine, tmp_path: Path, seed: int) -> None:
    e = filled(engine, seed)
    e.save(tmp_path / "s")
    for touched in (False, True):
        rng = random.Random(seed)
        held, loaded = filled(engine, seed), Engine.load(tmp_path / "s")
        if touched:
            assert_same(held, loaded, seed)
        for _ in range(30):
            some = rng.choice(list(held))
            new, other = random_subscription(rng, some), random_subscription(rng, f"n{rng.random()}")
            changes: list[Callable[[Engine], Any]] = [
                lambda x, some=some: x.remove(some),
                lambda x, new=new: x.add_many([new], replace=True, on_error="skip"),
                lambda x, other=other: x.add_many([other], on_error="skip"),
                lambda x, some=some: x.add_many([{"id": some}], on_error="skip"),
            ]
            change = rng.choice(changes)
            assert repr(change(held)) == repr(change(loaded))
        assert_same(held, loaded, seed)
        # A pattern that was given as bytes came back as text, which is another value.
        desired = [*(each for each in held.subscriptions()[:30] if each.id != "bytes"), {"id": "last"}]
        assert repr(held.apply(desired)) == repr(loaded.apply(desired))
        assert_same(held, loaded, seed)


def test_the_digest_names_content(engine: MakeEngine, tmp_path: Path) -> None:
    def digest(subscriptions: list[Any], **options: Any) -> str:
        e = engine(**options)
        e.add_many(subscriptions)
        e.save(tmp_path / "s")
        return read_directory(tmp_path / "s").digest

    one = digest([{"id": "a"}, {"id": "b", "collection": "c"}])
    assert one == digest([b'{ "id": "a", "transitions": false }', {"id": "b", "collection": "c", "filters": []}])
    assert len({one, digest([{"id": "a"}]), digest([{"id": "b", "collection": "c"}, {"id": "a"}])}) == 3
    assert one != digest([{"id": "a"}, {"id": "b", "collection": "c"}], soft_delete="x")


def test_the_file_is_there_whole_or_not_at_all(engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e = filled(engine, 2)
    e.save(tmp_path / "s")
    assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o600
    before = (tmp_path / "s").read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        engine().save(tmp_path / "s")
    assert [each.name for each in tmp_path.iterdir()] == ["s"]
    assert (tmp_path / "s").read_bytes() == before


def test_an_empty_engine_is_a_file_too(engine: MakeEngine, tmp_path: Path) -> None:
    engine().save(tmp_path / "s")
    assert (len(Engine.load(tmp_path / "s")), read_directory(tmp_path / "s").sections) == (0, ())


def test_a_file_of_the_first_version_is_still_read(backend: str) -> None:
    assert verify(V1).format == 1
    loaded = Engine.load(V1)
    assert list(loaded) == ["labels", "é😀\n", "numbers", "text", "bytes", "changed", "cel", "deep"]
    assert loaded.match_ids({"tenant": "t", "collection": "c", "data": {"a": 2, "b": ""}}) == ["cel"]
    assert loaded._options.soft_delete == "gone"


def test_a_later_version_is_refused_naming_both(engine: MakeEngine, tmp_path: Path) -> None:
    engine().save(tmp_path / "s")
    data = bytearray((tmp_path / "s").read_bytes())
    data[8:12] = struct.pack("<I", 7)
    (tmp_path / "s").write_bytes(data)
    for read in (read_directory, Engine.load):
        with pytest.raises(SnapshotError, match=r"format is 7.* up to 1"):
            read(tmp_path / "s")


def test_what_is_no_snapshot_is_refused(backend: str, tmp_path: Path) -> None:
    for content in (b"", b"x", snapshot.MAGIC, b"{}" * 100, snapshot.MAGIC + bytes(500)):
        (tmp_path / "s").write_bytes(content)
        with pytest.raises(SnapshotError):
            Engine.load(tmp_path / "s")
    with pytest.raises(OSError):
        Engine.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        Engine.load(tmp_path / "nosuch")


def outcome(path: Path) -> Any:
    """What becomes of a file: what its engine holds and matches, or the part that is damaged."""
    try:
        loaded = Engine.load(path)
        return [[told(loaded, event) for event in events_of(5, 6)], list(loaded)]
    except SnapshotError as error:
        return error


@pytest.mark.slow
def test_no_flip_and_no_cut_is_ever_another_engine(backend: str, engine: MakeEngine, tmp_path: Path) -> None:
    rng = random.Random(11)
    flips, cuts = (2000, 500) if backend == "native" else (150, 50)
    e = engine()
    e.add_many([{**agreeing_subscription(rng, f"s{n}"), "tenant": "t", "collection": rng.choice("cd")} for n in range(40)])
    e.save(path := tmp_path / "s")
    whole, good = path.read_bytes(), outcome(path)
    harmless = 0
    for _ in range(flips):
        at = rng.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        found = outcome(path)
        if not isinstance(found, SnapshotError):
            harmless += 1
            assert found == good
    # What lies between the parts, and what a backend has no use for.
    assert harmless < flips / 2
    for at in {*range(0, 300, 600 // cuts + 1), *(rng.randrange(len(whole)) for _ in range(cuts))}:
        path.write_bytes(whole[:at])
        assert isinstance(outcome(path), SnapshotError)
    path.write_bytes(whole + b"\0")
    assert isinstance(outcome(path), SnapshotError)


def test_a_loaded_engine_pickles(engine: MakeEngine, tmp_path: Path) -> None:
    filled(engine, 3).save(tmp_path / "s")
    loaded = Engine.load(tmp_path / "s")
    os.unlink(tmp_path / "s")
    assert_same(loaded, pickle.loads(pickle.dumps(Engine.load(_again(loaded, tmp_path)))), 3)


def _again(e: Engine, tmp_path: Path) -> Path:
    e.save(tmp_path / "again")
    return tmp_path / "again"


def test_errors_say_where_and_pickle(backend: str, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"no")
    with pytest.raises(SnapshotError) as raised:
        read_directory(tmp_path / "s")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.place, again.path) == (str(raised.value), "header", str(tmp_path / "s"))
    assert dataclasses.is_dataclass(read_directory(V1))


@pytest.mark.parametrize("path", [b"/tmp/s", 7, None, bytearray(b"s")])
def test_a_path_is_text(engine: MakeEngine, path: Any) -> None:
    """Bytes could be a file's content; a number would be taken for an open file."""
    for act in (engine().save, Engine.load, read_directory, verify):
        with pytest.raises(TypeError, match=r"path: expected a str or os\.PathLike"):
            act(path)


def test_a_snapshot_is_a_file(engine: MakeEngine, tmp_path: Path) -> None:
    """The error names the path that was given, and nothing is left beside it."""
    with pytest.raises(IsADirectoryError, match="expected a regular file or a new name, and this is a directory") as error:
        engine().save(tmp_path)
    assert error.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError) as missing:
        engine().save(tmp_path / "none" / "s")
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(IsADirectoryError) as opened:
        Engine.load(tmp_path)
    assert opened.value.filename == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
