"""An engine is made from a configuration, and takes another while it runs: all of it or nothing."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamer
from streamer import BulkConfigError, Config, ConfigError, Engine
from streamer.cel_eval import ProgramCache

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a configuration file beside two files of subscriptions; engines run on the backend under test."""
    for name in ("STREAMER_MATCHING__CEL__CACHE_SIZE", "STREAMER_LOGGING__LEVEL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "a.jsonl").write_text('{"id": "a", "tenant": "t", "filters": [{"field": "n", "op": ">", "value": 1}]}\n')
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"id": "b", "cel": "data.n > 5"}\n'))

    def write(text: str) -> Path:
        path = tmp_path / "streamer.yaml"
        path.write_text(text)
        return path

    return write


def test_an_engine_is_made_as_the_file_says(write: Write) -> None:
    engine = Engine.from_config(
        write("matching: {default_tenant: t, format: document, soft_delete: gone}\nsubscriptions: [a.jsonl, b.jsonl.gz]\n")
    )
    assert sorted(engine.match_ids({"n": 7})) == ["a", "b"]
    assert engine.match_ids({"n": 7, "gone": True}) == []
    assert engine.config is not None
    assert engine.config.matching.default_tenant == "t"
    assert engine.last_reload is not None
    assert engine.last_reload.good
    assert abs(engine.last_reload.good_at - time.time()) < 60


def test_an_engine_is_made_from_a_config_and_converts_values(backend: str) -> None:
    config = Config.from_dict({"matching": {"validation": "lazy"}})
    engine = Engine.from_config(config, default=str)
    engine.add({"id": "s", "filters": [{"field": "p", "op": "==", "value": "x"}]})
    assert engine.match_ids({"data": {"p": Path("x")}}) == ["s"]
    assert engine.config is config


def test_an_engine_made_without_a_configuration_has_none(backend: str) -> None:
    engine = Engine()
    assert (engine.config, engine.last_reload) == (None, None)
    with pytest.raises(ConfigError, match="made without a configuration"):
        engine.reload(Config())


def test_bad_subscriptions_are_named_with_file_and_line(write: Write, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "x"}\n\n{"id": "y", "cel": "data.a +"}\n{"id": "a"}\n{"id": "z", "nope": 1}\n')
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b'{"id": "w"}\n')[:-4])
    with pytest.raises(BulkConfigError) as refused:
        Engine.from_config(write("subscriptions: [a.jsonl, bad.jsonl, nosuch.jsonl, cut.gz]\n"))
    errors = refused.value.errors
    assert [(Path(error.source).name if error.source else None, error.line) for error in errors] == [
        ("bad.jsonl", 3),
        ("bad.jsonl", 4),
        ("bad.jsonl", 5),
        ("streamer.yaml", 1),
        ("cut.gz", 2),
    ]
    assert "subscription 'y': cel: " in str(errors[0])
    nosuch = tmp_path / "nosuch.jsonl"
    assert str(errors[3]).endswith(f"streamer.yaml:1:37: subscriptions[2]: {nosuch}: No such file or directory")


def test_an_id_that_comes_twice_says_in_which_files(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.jsonl").write_text('{"id": "x"}\n{"id": "y"}\n{"id": "x"}\n')
    (tmp_path / "again.jsonl").write_text('{"id": "a"}\n')
    write("subscriptions: [a.jsonl, twice.jsonl, again.jsonl]\n")
    with pytest.raises(BulkConfigError) as refused:
        Engine.from_config("streamer.yaml")
    assert [str(error) for error in refused.value.errors] == [
        "twice.jsonl:3: subscription 'x': id: this id appears twice in the files",
        "again.jsonl:1: subscription 'a': id: this id appears twice in the files",
    ]


def test_one_path_that_is_not_there_is_named_where_it_stands(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write("subscriptions: nosuch.jsonl\n")
    with pytest.raises(BulkConfigError, match=r"streamer.yaml:1:16: subscriptions\[0\]: nosuch.jsonl: No such file"):
        Engine.from_config("streamer.yaml")
    monkeypatch.setenv("STREAMER_SUBSCRIPTIONS", "other.jsonl")
    with pytest.raises(BulkConfigError, match=r"STREAMER_SUBSCRIPTIONS: subscriptions\[0\]: other.jsonl: No such file"):
        Engine.from_config("streamer.yaml")
    with pytest.raises(BulkConfigError, match=r" subscriptions\[0\]: other.jsonl: No such file"):
        Engine.from_config(Config.from_dict({"subscriptions": "other.jsonl"}))


def test_a_reload_changes_what_may_change(write: Write) -> None:
    engine = Engine.from_config(write("matching: {default_tenant: t}\n"))
    engine.add({"id": "s", "cel": "data.a.all(x, data.a.exists(y, y == x))"})
    event = {"data": {"a": list(range(40))}}
    assert engine.match_ids(event) == ["s"]
    reload = engine.reload(write("matching: {default_tenant: t, cel: {evaluation_timeout: 1us, cache_size: 3}}\n"))
    assert reload.good
    assert reload.changed == ("matching.cel.cache_size", "matching.cel.evaluation_timeout")
    assert engine.match_ids(event) == []
    assert engine.cel_errors == {"budget": 1}
    assert engine.config is not None
    assert engine.config.matching.cel.cache_size == 3
    assert engine.reload(Config.from_dict({"matching": {"default_tenant": "t"}})).good
    assert engine.match_ids(event) == ["s"]


def test_a_reload_without_a_source_reads_the_file_again(write: Write) -> None:
    engine = Engine.from_config(path := write("matching: {cel: {cache_size: 5}}\n"))
    assert engine.reload().changed == ()
    path.write_text("matching: {cel: {cache_size: 6}}\n")
    assert engine.reload().changed == ("matching.cel.cache_size",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("matching: {cel: {cache_size: 0}}\n", "streamer.yaml:1:30: matching.cel.cache_size: expected at least 1, not 0"),
        ("matching: [\n", "streamer.yaml:2:1: "),
        (
            "matching: {cel: {cache_size: 7, evaluation_timeout: 1us}, validation: lazy, limits: {max_depth: 5}}\n",
            "streamer.yaml:1:71: matching.validation: cannot change while the engine runs; make a new engine\n",
        ),
        ("subscriptions: [bad.jsonl]\nmatching: {cel: {cache_size: 7}}", "bad.jsonl:2: subscription 'y': cel: "),
        ("subscriptions: [a.jsonl, c.jsonl]\n", "streamer.yaml:1:26: subscriptions[1]: "),
        ("", "matching.cel: "),
    ],
    ids=["bad value", "bad YAML", "restart", "bad line", "no such file", "no file"],
)
def test_a_reload_that_cannot_be_taken_whole_changes_nothing(write: Write, text: str, says: str) -> None:
    engine = Engine.from_config(path := write("matching: {cel: {cache_size: 5}}\n"))
    path.with_name("bad.jsonl").write_text('{"id": "x"}\n{"id": "y", "cel": "data.a +"}\n')
    before, config = engine.last_reload, engine.config
    assert before is not None
    if says == "matching.cel: ":
        path.unlink()
        with pytest.raises(FileNotFoundError):
            engine.reload()
    else:
        path.write_text(text)
        with pytest.raises(BulkConfigError) as refused:
            engine.reload()
        assert says in str(refused.value)
    assert engine.config is config
    assert list(engine) == []
    assert engine._options.cache_size == engine._programs.size == 5
    after = engine.last_reload
    assert after is not None
    assert (after.good, after.good_at) == (False, before.good_at)
    assert after.at >= before.at
    assert after.error
    path.write_text("matching: {cel: {cache_size: 8}}\n")
    assert engine.reload().good
    assert engine.last_reload is not None
    assert (engine.last_reload.good, engine.last_reload.error) == (True, None)


def test_a_reload_reads_the_files_of_subscriptions(write: Write, tmp_path: Path) -> None:
    engine = Engine.from_config(path := write("subscriptions: [a.jsonl, b.jsonl.gz]\n"))
    assert engine.last_reload is not None
    assert engine.last_reload.subscriptions == 2
    engine.add({"id": "mine"})
    (tmp_path / "a.jsonl").write_text('\n{"id": "a"}\n{"id": "c"}\n')
    reload = engine.reload()
    assert (reload.changed, reload.subscriptions) == ((), 2)
    assert sorted(engine.match_ids({"data": {"n": 0}})) == ["a", "c", "mine"]
    assert engine.reload().subscriptions == 0
    path.write_text("subscriptions: [a.jsonl]\n")
    reload = engine.reload()
    assert (reload.changed, reload.subscriptions) == (("subscriptions",), 1)
    assert list(engine) == ["a", "mine", "c"]
    engine.remove("c")
    engine.replace({"id": "a", "cel": "false"})
    assert engine.reload().subscriptions == 2
    assert sorted(engine.match_ids({})) == ["a", "c", "mine"]


def test_a_file_does_not_replace_what_a_program_added(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("subscriptions: [a.jsonl]\n")
    engine = Engine.from_config("streamer.yaml")
    engine.add({"id": "mine"})
    (tmp_path / "a.jsonl").write_text('{"id": "new"}\n{"id": "mine"}\n{"id": "new"}\n')
    with pytest.raises(BulkConfigError) as refused:
        engine.reload()
    assert [str(error) for error in refused.value.errors] == [
        "a.jsonl:2: subscription 'mine': id: this id exists already, and not from a file",
        "a.jsonl:3: subscription 'new': id: this id appears twice in the files",
    ]
    assert list(engine) == ["a", "mine"]
    engine.remove("mine")
    (tmp_path / "a.jsonl").write_text('{"id": "mine"}\n')
    assert engine.reload().subscriptions == 2
    assert list(engine) == ["mine"]


def test_the_same_file_by_another_path_is_the_same_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("matching: {default_tenant: t}\nsubscriptions: [a.jsonl]\n")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "inner")
    (tmp_path / "elsewhere" / "inner").mkdir(parents=True)
    (tmp_path / "elsewhere" / path.name).write_text(path.read_text())
    monkeypatch.chdir(tmp_path)
    engine = Engine.from_config(path.name)
    assert engine.config is not None
    assert engine.config.subscriptions == (tmp_path / "a.jsonl",)
    for other in (path, f"./{path.name}", f"../{tmp_path.name}/{path.name}"):
        assert engine.reload(other).changed == ()
    with pytest.raises(BulkConfigError, match=r"subscriptions\[0\]: .*a.jsonl: No such file"):
        engine.reload(f"link/../{path.name}")


def test_a_file_is_read_again_wherever_the_process_went_to(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("subscriptions: [b.jsonl.gz]\n")
    monkeypatch.chdir(tmp_path)
    engine = Engine.from_config(path.name)
    monkeypatch.chdir("/")
    assert engine.reload().good
    path.write_text("subscriptions: [b.jsonl.gz]\nmatching: {threads: 0}\n")
    with pytest.raises(BulkConfigError) as refused:
        engine.reload()
    assert str(refused.value.errors[0]).startswith("streamer.yaml:2:21: matching.threads: ")


def test_a_format_may_take_the_place_of_an_equal_layout(backend: str) -> None:
    engine = Engine.from_config(Config.from_dict({"matching": {"layout": {"preset": "debezium"}}}))
    engine.add({"id": "paid", "filters": [{"field": "status", "op": "==", "value": "paid"}]})
    engine.reload(Config.from_dict({"matching": {"format": "debezium", "batch_size": 7}}))
    assert [match.subscription_id for match in engine.match({"op": "c", "after": {"status": "paid"}, "source": {}})] == ["paid"]
    with pytest.raises(BulkConfigError):
        engine.reload(Config.from_dict({"matching": {"format": "maxwell"}}))


def test_other_format_options_need_a_new_engine(backend: str) -> None:
    def config(tables: dict[str, str] | None) -> Config:
        declared = {name: {"identity": identity} for name, identity in (tables or {}).items()}
        options = {} if tables is None else {"format_options": {"debezium": {"tables": declared}}}
        return Config.from_dict({"matching": {"format": "debezium", **options}})

    engine = Engine.from_config(config({"a": "full", "b": "full"}))
    for other in ({"a": "full"}, {"a": "full", "b": "default"}, {}, None):
        with pytest.raises(BulkConfigError, match=r"matching\.format_options: cannot change while the engine runs"):
            engine.reload(config(other))
    assert engine.reload(config({"b": "full", "a": "full", "c": "default"})).good


def test_every_place_that_would_need_a_new_engine_is_named(backend: str) -> None:
    engine = Engine.from_config(Config())
    with pytest.raises(BulkConfigError) as refused:
        engine.reload(
            Config.from_dict(
                {
                    "matching": {"layout": "document", "limits": {"max_depth": 5}, "default_tenant": None},
                    "logging": {"level": "info"},
                }
            )
        )
    assert [error.place for error in refused.value.errors] == [
        "matching.layout",
        "matching.default_tenant",
        "matching.limits.max_depth",
    ]


def test_what_a_file_no_longer_says_names_the_file_and_a_variable_names_itself(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine.from_config(path := write("matching: {soft_delete: gone}\n"))
    path.write_text("matching: {}\n")
    monkeypatch.setenv("STREAMER_MATCHING__VALIDATION", "lazy")
    with pytest.raises(BulkConfigError) as refused:
        engine.reload()
    assert {(error.place, error.source, error.line) for error in refused.value.errors} == {
        ("matching.soft_delete", str(path), None),
        ("matching.validation", "STREAMER_MATCHING__VALIDATION", None),
    }


def test_matching_goes_on_while_others_reload(backend: str) -> None:
    engine = Engine.from_config(Config())
    engine.add_many({"id": f"s{n}", "cel": f"data.n >= {n}"} for n in range(20))
    done = threading.Event()
    wrong: list[Any] = []

    def match() -> None:
        while not done.is_set():
            found = engine.match_ids({"data": {"n": 9}})
            if len(found) != 10:
                wrong.append(found)

    threads = [threading.Thread(target=match) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(100):
        engine.reload(Config.from_dict({"matching": {"cel": {"cache_size": 1 + n % 7, "evaluation_timeout": f"{50 + n}ms"}}}))
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_smaller_cache_forgets_what_was_used_longest_ago() -> None:
    cache, limits = ProgramCache(10), streamer.Limits()
    for n in range(10):
        cache.compile(f"data.n == {n}", limits)
    cache.resize(2)
    assert len(cache) == 2
    cache.compile("data.n == 9", limits)
    assert cache.hits == 1


def test_a_stream_is_matched_in_batches_of_the_size_in_force(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine.from_config(Config.from_dict({"matching": {"batch_size": 3}}))
    engine.add({"id": "s"})
    sizes: list[int] = []
    match_batch = type(engine._core).match_batch

    def counted(core: Any, events: Any, *rest: Any) -> Any:
        sizes.append(len(events))
        return match_batch(core, events, *rest)

    monkeypatch.setattr(type(engine._core), "match_batch", counted)
    lines = b"{}\n" * 10
    assert sum(len(line.matches) for line in engine.match_jsonl(lines)) == 10
    assert sizes == [3, 3, 3, 1]
    assert engine.reload(Config.from_dict({"matching": {"batch_size": 8}})).changed == ("matching.batch_size",)
    assert [line.line for line in engine.match_jsonl(lines)] == list(range(1, 11))
    assert sizes[4:] == [8, 2]


def test_filters_are_judged_by_the_rates_in_force(backend: str) -> None:
    engine = Engine.from_config(Config())
    engine.add_many({"id": f"s{n}", "filters": [{"field": "n", "op": "==", "value": n}]} for n in range(500))
    engine.bloom.stop()
    assert engine.bloom._manager.tick() == 0
    changed = engine.reload(Config.from_dict({"matching": {"bloom": {"fp_rate": 0.001, "rebuild_interval": "1us"}}})).changed
    assert changed == ("matching.bloom.fp_rate", "matching.bloom.rebuild_interval")
    before = {state.name: state.version for state in engine.bloom.filters()}
    time.sleep(0.001)
    assert engine.bloom._manager.tick() == len(before)
    assert all(state.version == before[state.name] + 1 for state in engine.bloom.filters())


def test_phase_1_is_left_out_and_taken_up_again_while_the_engine_runs(backend: str) -> None:
    """Nothing is lost by it, whatever is added or removed meanwhile."""
    engine = Engine.from_config(Config())
    conditions = [{"field": "n", "op": "==", "value": n} for n in range(400)]
    engine.add_many({"id": f"s{n}", "collection": "c", "filters": [conditions[n]]} for n in range(300))
    engine.add({"id": "few", "collection": "d"})

    def found() -> list[int]:
        return [n for n in range(400) if engine.match_ids({"collection": "c", "data": {"n": n}}) == [f"s{n}"]]

    for enabled in (False, True, False, True):
        was = {state.name for state in engine.bloom.filters()}
        assert engine.reload(Config.from_dict({"matching": {"bloom": {"enabled": enabled}}})).changed == (
            "matching.bloom.enabled",
        )
        now = {state.name for state in engine.bloom.filters()}
        assert (("default", "c") in was, ("default", "c") in now) == (not enabled, enabled)
        assert engine.bloom._loop.is_running == enabled
        held = list(range(300))
        assert found() == held
        engine.add({"id": "s350", "collection": "c", "filters": [conditions[350]]})
        engine.remove("s7")
        assert found() == [n for n in held if n != 7] + [350]
        engine.remove("s350")
        engine.add({"id": "s7", "collection": "c", "filters": [conditions[7]]})
    (state,) = (state for state in engine.bloom.filters() if state.name == ("default", "c"))
    assert state.no > 100


def test_metrics_are_served_where_the_file_says_so(write: Write) -> None:
    engine = Engine.from_config(write("metrics: {enabled: true, port: 0, name: here, collections: 5}\n"))
    server = engine.metrics_server
    assert server is not None
    with server, urllib.request.urlopen(server.url) as answer:
        text = answer.read().decode()
    assert 'streamer_config_last_reload_successful{engine="here"} 1.0' in text
    assert Engine.from_config(Config()).metrics_server is None
    assert Engine().metrics_server is None


def test_a_port_that_is_taken_is_an_os_error(backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = Config.from_dict({"metrics": {"enabled": True, "port": taken.getsockname()[1]}})
        with pytest.raises(OSError, match="in use"):
            Engine.from_config(config)
