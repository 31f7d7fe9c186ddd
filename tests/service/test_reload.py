"""Another configuration in the place of the one in force: whole or not at all, and nothing lost, torn or out of order."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamer import Config
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.api.config_view import Reloaded
from streamer.service.connectors.file.source import FileLines
from streamer.service.run import reload
from streamer.service.run.build import Parts, parts_of
from tests.service.api import BIG, Api, order, running, until
from tests.service.conftest import event, lines
from tests.service.receiver import Receiver
from tests.tools.ports import free_port
from tests.tools.records import append_run

ONE = "/v1/subscriptions/big"


def sink(path: Path, **more: Any) -> dict[str, Any]:
    return {"type": "file", "path": str(path), **more}


def numbers(path: Path) -> list[int]:
    return [int(each["partitionkey"]) for each in lines(path)] if path.exists() else []


def told(api: Api) -> Any:
    return api.ask("GET", "/v1/reload", token=api.make_token(None, "admin")).json


def under_load(directory: Path, reloads: int, configure: Callable[[Api, int], None], **sections: Any) -> tuple[int, Api]:
    """Write events as fast as they are read, reload meanwhile; return how many there were, once all is delivered."""
    with running(directory, **sections) as api:
        done = threading.Event()
        written = 0

        def is_near() -> bool:
            return api.counts()["events_read"] > written - 2000

        def write() -> None:
            nonlocal written
            with open(directory / "in.jsonl", "ab", buffering=0) as file:
                while not done.is_set():
                    file.write(b"".join(event(written + at, 250) + b"\n" for at in range(50)))
                    written += 50
                    until(is_near)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for number in range(reloads):
                configure(api, number)
                assert api.service.reload().errors == ()
                before = api.counts()["events_read"]
                until(lambda before=before: api.counts()["events_read"] > before + 50)  # type: ignore[misc]
        finally:
            done.set()
            thread.join()
        until(lambda: api.counts()["events_read"] == written and not api.counts()["matches_pending"])
        return written, api


def one_event_one_configuration(directory: Path, reloads: int) -> int:
    """Reload between two configurations; return the events. Each is matched, told and delivered by one of the two."""
    subs = {name: directory / f"{name}.subs" for name in "ab"}
    for name, path in subs.items():
        path.write_text(f'{{"id": "{name}", "labels": {{"of": "{name}"}}}}\n')
    (directory / "in-2.jsonl").touch()

    def sections(name: str) -> dict[str, Any]:
        return {
            "subscriptions": [str(subs[name])],
            "sinks": {f"out_{name}": sink(directory / f"{name}.jsonl", event="full" if name == "a" else "none")},
            # A source that comes and goes beside the one that is read on.
            "sources": {
                "orders": {"type": "file", "path": str(directory / "in.jsonl"), "poll": "5ms"},
                **({"other": {"type": "file", "path": str(directory / "in-2.jsonl"), "poll": "5ms"}} if name == "b" else {}),
            },
        }

    written, _ = under_load(directory, reloads, lambda api, at: api.config.update(sections("ba"[at % 2])), **sections("a"))
    found = {name: lines(directory / f"{name}.jsonl") for name in "ab"}
    for name, messages in found.items():
        assert {(each["subject"], each["data"]["labels"]["of"], "event" in each["data"]) for each in messages} == {
            (name, name, name == "a")
        }
    for name in "ab":
        assert numbers(directory / f"{name}.jsonl") == sorted(numbers(directory / f"{name}.jsonl"))
    assert sorted(numbers(directory / "a.jsonl") + numbers(directory / "b.jsonl")) == list(range(written))
    return written


def test_an_event_is_matched_told_and_delivered_under_one_configuration(tmp_path: Path, backend: str) -> None:
    one_event_one_configuration(tmp_path, 6)


@pytest.mark.integration
def test_a_hundred_reloads_under_load(tmp_path: Path, backend: str) -> None:
    began = time.monotonic()
    events = one_event_one_configuration(tmp_path, 100)
    what = "reloads that change sources, sinks and subscriptions while events come; each matched and delivered under one of them"
    counts = {"reloads": 100, "events": events, "lost": 0, "delivered_twice": 0, "out_of_order": 0}
    append_run(what, began, backend, **counts)


def test_a_refused_reload_leaves_all_as_it_was_and_says_why(
    tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "subs.jsonl").write_text('{"id": "big", "tenant": "acme"}\n')
    busy = socket.create_server(("127.0.0.1", 0))
    follow = {"type": "file", "poll": "5ms"}
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]) as api:
        good, count = dict(api.config), 0
        source = good["sources"]["orders"]
        tokens = good["api"]["tokens"]
        bad: list[tuple[dict[str, Any], str]] = [
            ({"service": {"data_dir": str(tmp_path / "other")}}, "service.data_dir: cannot change while the service runs"),
            ({"matching": {"layout": "debezium"}}, "matching.layout: cannot change while the service runs"),
            ({"sources": {"orders": source | {"format": "debezium"}}}, "sources: an engine has one layout"),
            ({"sinks": {"out": sink(tmp_path / "no/where")}}, "sinks.out: "),
            ({"sources": {"orders": follow | {"path": str(tmp_path)}}}, f"sources.orders: {tmp_path}: no file"),
            ({"sources": {"orders": source, "more": follow | {"path": str(tmp_path)}}}, f"sources.more: {tmp_path}: no file"),
            ({"sinks": {"out": {"type": "webhook", "url": "https://h/", "secret": {"env": "NOT_THERE"}}}}, "sinks.out: "),
            ({"api": {"port": busy.getsockname()[1], "tokens": tokens}}, "api: cannot listen at 127.0.0.1"),
            ({"api": {"port": 0, "tokens": tokens, "tls": {"certificate": str(tmp_path / "none.pem")}}}, "none.pem"),
            ({"subscriptions": [str(tmp_path / "none.jsonl")]}, "none.jsonl"),
            (
                {"delivery": {"gateways": {"ca": str(tmp_path / "none.pem")}}},
                f"delivery.gateways: ca: {tmp_path}/none.pem: No such",
            ),
            # What is left of a file that was cut off: nobody is to read standard input, nor to write standard output.
            ({"sinks": {}}, "sinks: expected one at least: standard output cannot"),
            ({"sources": {}}, "sources: expected one at least: standard input cannot"),
        ]
        for sections, reason in bad:
            # All else of it is good, and is not taken either.
            api.config.update({"sinks": {"out": sink(tmp_path / "never.jsonl")}} | sections)
            refused = api.ask("POST", "/v1/reload", token=api.make_token(None, "admin"))
            assert (refused.status, refused.kind) == (422, "configuration"), sections
            assert reason in refused.json["errors"][0]["reason"]
            assert "without any change" in caplog.messages[-1]
            assert not told(api)["good"]
            assert reason in told(api)["error"]
            count += 1
            api.read(order(count))
            assert numbers(tmp_path / "out.jsonl") == list(range(1, count + 1))
            api.config.clear()
            api.config.update(good)
        metrics = api.ask("GET", "/metrics", token=api.make_token(None, "admin")).body
        assert b"streamer_config_last_reload_successful 0.0" in metrics or b"last_reload_successful{" in metrics
        # What is told by nothing but the sinks' pace.
        monkeypatch.setattr(reload, "PATIENCE", 0.2)
        held = threading.Event()
        faults.arm("sink.written", held.wait)  # type: ignore[arg-type]
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(count + 1) + b"\n")
        api.config["sinks"] = {"out": sink(tmp_path / "after.jsonl")}
        until(lambda: api.counts()["matches_pending"])
        assert "the sinks have not confirmed the matches" in api.service.reload().errors[0]
        held.set()
        faults.disarm()
        until(lambda: not api.counts()["matches_pending"])
        monkeypatch.undo()
        assert api.service.reload() == (("sinks.out.path",), 0, ())
        assert told(api)["good"]
        api.read(order(count + 2))
        assert numbers(tmp_path / "out.jsonl") == list(range(1, count + 2))
        assert numbers(tmp_path / "after.jsonl") == [count + 2]
        assert not (tmp_path / "never.jsonl").exists() or not (tmp_path / "never.jsonl").read_bytes()
    busy.close()


def test_sinks_that_write_to_one_place_stay_apart(tmp_path: Path) -> None:
    """Each counts what it is given: one for two names told of the wrong messages, and was closed under the other."""

    def parts(sinks: dict[str, str], before: Parts | None = None) -> Parts:
        topic = {"type": "kafka", "brokers": "localhost:9", "topic": "matches"}
        config = {"sinks": {name: topic | {"event": event} for name, event in sinks.items()}}
        routes = [{"gateway": name, "sink": name} for name in sinks]
        return parts_of(Config.from_dict(config | {"routes": routes}), before)

    first = parts({"a": "full", "b": "none"})
    again = parts({"b": "full", "a": "full"}, first)
    assert (again.sinks["a"], again.sinks["b"]) == (first.sinks["a"], first.sinks["b"])
    assert again.sinks["a"] is not again.sinks["b"]
    renamed = parts({"c": "full", "b": "none", "d": "full"}, first)
    assert renamed.sinks["b"] is first.sinks["b"]
    assert renamed.sinks["c"] is first.sinks["a"]
    assert renamed.sinks["d"] not in first.sinks.values()


def test_a_letter_of_a_file_that_was_rotated_away_is_replayed(tmp_path: Path, backend: str) -> None:
    with running(tmp_path) as api:
        admin = api.make_token(None, "admin")
        api.ask("PUT", ONE, BIG)
        api.read(order(1), b"{")
        (tmp_path / "in.jsonl").rename(tmp_path / "in.jsonl.1")
        (tmp_path / "in.jsonl").write_bytes(order(2) + b"\n")
        until(lambda: len(api.delivered()) == 2)
        (letter,) = api.ask("GET", "/v1/dead-letters", token=admin).json["items"]
        assert api.ask("POST", f"/v1/dead-letters/{letter['id']}:replay", token=admin).status == 409
        api.read(order(3))
        assert len(api.delivered()) == 3


@pytest.mark.parametrize("point", ["reload.checked", "reload.paused"])
def test_a_reload_that_fails_at_any_point_changes_nothing(tmp_path: Path, backend: str, point: str) -> None:
    (tmp_path / "subs.jsonl").write_text('{"id": "big", "tenant": "acme"}\n')
    other = {"type": "file", "path": str(tmp_path / "in-2.jsonl"), "poll": "5ms"}
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]) as api:
        before = dict(api.config)
        api.read(order(1))
        (tmp_path / "subs.jsonl").write_text('{"id": "other", "tenant": "acme"}\n')
        api.config.update({"sources": {"orders": other}, "sinks": {"out": sink(tmp_path / "new.jsonl")}})
        faults.arm(point, fail)
        assert api.service.reload().errors == ("as a test wants it",)
        faults.disarm()
        api.read(order(2))
        assert [each["subject"] for each in lines(tmp_path / "out.jsonl")] == ["big", "big"]
        # And the next one does not meet what is left of it.
        (tmp_path / "in-2.jsonl").write_bytes(order(3) + b"\n")
        assert api.service.reload().errors == ()
        until(lambda: numbers(tmp_path / "new.jsonl") == [3])
        api.config.update(before)
        assert api.service.reload().errors == ()


def fail() -> None:
    raise ServiceError("as a test wants it")


def test_a_source_that_cannot_be_opened_again_ends_the_service(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ServiceError("as a test wants it")

    def swap(api: Api) -> None:
        api.config["sources"] = {"orders": {"type": "file", "path": str(tmp_path / "in-2.jsonl")}}
        monkeypatch.setattr(FileLines, "open", broken)
        assert api.service.reload().errors
        assert api.service._running is not None
        until(lambda: api.service._running.pipeline.failed)  # type: ignore[union-attr]

    with pytest.raises(ServiceError, match=r"sources\.orders: as a test"), running(tmp_path) as api:
        swap(api)


def test_sources_come_and_go_and_go_on_where_they_were(tmp_path: Path, backend: str) -> None:
    both = {name: {"type": "file", "path": str(tmp_path / f"{name}.jsonl"), "poll": "5ms"} for name in ("in", "more")}
    (tmp_path / "more.jsonl").write_bytes(order(1) + b"\n")
    with running(tmp_path, sources={"in": both["in"]}) as api:
        api.ask("PUT", ONE, BIG)
        api.read(order(1))
        for number, names in enumerate([("in", "more"), ("more",), ("in",), ("in", "more")], 2):
            api.config["sources"] = {name: both[name] for name in names}
            assert api.service.reload().errors == ()
            for name in both:
                with open(tmp_path / f"{name}.jsonl", "ab") as file:
                    file.write(order(number) + b"\n")
            sources = api.ask("GET", "/v1/sources", token=api.make_token(None, "admin")).json["items"]
            assert tuple(each["name"] for each in sources) == names
            assert {each["state"] for each in sources} <= {"reading", "idle"}

        def delivered() -> dict[str, list[int]]:
            found = defaultdict(list)
            for each in lines(tmp_path / "out.jsonl"):
                found[each["source"]].append(int(each["partitionkey"]))
            return found

        until(lambda: delivered() == {f"/streamer/{name}": [1, 2, 3, 4, 5] for name in both}, 10)


def test_a_reload_at_the_moment_the_last_source_ends_reads_the_next_one(tmp_path: Path, backend: str) -> None:
    """Where the end came in between, all that followed was read, and never delivered."""
    (tmp_path / "in.jsonl").write_bytes(order(1) + b"\n")
    once = {"type": "file", "path": str(tmp_path / "in.jsonl"), "follow": False}
    told: list[Reloaded] = []
    has_ended, begun = threading.Event(), threading.Event()

    def wait_for_a_reload() -> None:
        faults.disarm()
        has_ended.set()
        begun.wait(10)

    faults.arm("source.ended", wait_for_a_reload)
    with running(tmp_path, sources={"orders": once}) as api:
        api.config["sources"] = {"more": {"type": "file", "path": str(tmp_path / "more.jsonl"), "poll": "5ms"}}
        (tmp_path / "more.jsonl").touch()
        assert has_ended.wait(10)
        asking = threading.Thread(target=lambda: told.append(api.service.reload()))
        asking.start()
        pipeline = api.service._running.pipeline  # type: ignore[union-attr]
        until(lambda: pipeline.reading._is_paused)
        time.sleep(0.05)  # by now it waits until the source rests
        begun.set()
        asking.join(15)
        assert [each.errors for each in told] == [()]
        api.ask("PUT", ONE, BIG)
        with open(tmp_path / "more.jsonl", "ab") as file:
            file.write(order(2) + b"\n")
        until(lambda: numbers(tmp_path / "out.jsonl")[-1:] == [2], 10)


def test_a_webhook_gets_another_url_and_its_keys_keep_their_order(tmp_path: Path, backend: str, receiver: Receiver) -> None:
    other = Receiver()
    receiver.answer = lambda _: (time.sleep(0.01), 503)[1]
    first = {"first": "20ms", "most": "50ms", "attempts": 1000}
    with running(tmp_path, sinks={"hook": receiver.sink()}, delivery={"retry": first}) as api:
        api.ask("PUT", ONE, BIG)
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(b"".join(order(number % 3, 200 + number) + b"\n" for number in range(60)))
        until(lambda: len(receiver.requests) > 10)
        for at in range(6):
            api.config["sinks"] = {"hook": (receiver, other)[at % 2].sink(batch=1 + at)}
            assert api.service.reload().errors == ()
            time.sleep(0.05)
        assert {each["data"]["event"]["data"]["amount"] for each in other.messages} != set()
        until(lambda: not api.counts()["matches_pending"])
        amounts: dict[str, list[int]] = defaultdict(list)
        for each in other.messages:
            amounts[each["partitionkey"]].append(each["data"]["event"]["data"]["amount"])
        assert amounts == {str(key): [200 + number for number in range(60) if number % 3 == key] for key in range(3)}
        counts = api.counts()
        assert (counts["matches"], counts["matches_delivered"]) == (60, 60)
    other.close()


def test_messages_of_a_webhook_that_was_taken_out_wait_or_are_forgotten(
    tmp_path: Path, backend: str, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = lambda _: 503
    hook = {"sinks": {"hook": receiver.sink()}}
    with running(tmp_path, **hook, delivery={"retry": {"first": "20ms", "most": "20ms", "attempts": 1000}}) as api:
        admin = api.make_token(None, "admin")

        def sinks() -> dict[str, Any]:
            return {each["name"]: each for each in api.ask("GET", "/v1/sinks", token=admin).json["items"]}

        api.ask("PUT", ONE, BIG)
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(1) + b"\n" + order(2) + b"\n")
        until(lambda: receiver.requests)
        assert api.ask("POST", "/v1/sinks/hook:forget", token=admin).kind == "unknown"
        api.config["sinks"] = {"out": sink(tmp_path / "out.jsonl")}
        assert api.service.reload().changed == ("sinks.hook", "sinks.out")
        assert sinks()["hook"]["state"] == "removed"
        assert sinks()["hook"]["spool"]["messages"] == 2
        assert sinks()["hook"]["spool"]["bytes"] > 500
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(3) + b"\n")
        until(lambda: numbers(tmp_path / "out.jsonl") == [3])
        # Back, they are delivered, and counted once.
        receiver.answer = lambda _: 204
        api.config.update(hook)
        assert api.service.reload().errors == ()
        until(lambda: not api.counts()["matches_pending"])
        assert api.counts()["matches"] == api.counts()["matches_delivered"] == 3
        receiver.answer = lambda _: 503
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(4) + b"\n")
        until(lambda: api.counts()["matches_pending"])
        api.config["sinks"] = {"out": sink(tmp_path / "out.jsonl")}
        assert api.service.reload().errors == ()
        forgotten = until(lambda: (reply := api.ask("POST", "/v1/sinks/hook:forget", token=admin)).status == 200 and reply)
        assert forgotten.json == {"messages": 1}
        assert "hook" not in sinks()
        assert api.ask("POST", "/v1/sinks/hook:forget", token=admin).kind == "unknown"
        told = api.counts()
        assert (told["matches"], told["matches_delivered"], told["matches_dropped"], told["matches_pending"]) == (4, 3, 1, 0)


def test_the_api_changes_under_who_asks_for_it(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"quotas": {"subscriptions": 1}}) as api:
        admin = api.make_token(None, "admin")
        assert api.ask("PUT", ONE, BIG).status == 201
        assert api.ask("PUT", "/v1/subscriptions/two", BIG).kind == "quota"
        section = api.config["api"]
        api.config["api"] = section | {"quotas": {"subscriptions": 2}, "limits": {"body": "1KiB"}, "hosts": ["example.com"]}
        reply = api.ask("POST", "/v1/reload", token=admin)
        assert reply.json == {"changed": ["api.hosts", "api.limits.body", "api.quotas.subscriptions"], "subscriptions": 0}
        # It listens where it did, all the time; who comes while one server gives way to the other is answered by either.
        until(lambda: api.ask("PUT", "/v1/subscriptions/two", BIG, headers={"Host": "example.com"}).status == 201)
        assert api.ask("PUT", "/v1/subscriptions/two", b"x" * 2000).kind == "too-long"
        assert api.service.api_port == api.port
        port = free_port()
        api.config["api"] = section | {"port": port}
        assert api.ask("POST", "/v1/reload", token=admin).status == 200
        before, api.port = api.port, port
        until(lambda: api.service.api_port == port)
        assert api.ask("GET", ONE).status == 200
        with pytest.raises(ConnectionError):
            until(lambda: socket.create_connection(("127.0.0.1", before), 1).close())
        # What a tenant may have, and how much is matched at once, are the new ones', too.
        assert api.service.gateways.config is api.service.config
        api.config["matching"] = {"batch_size": 7}
        assert api.service.reload().changed == ("matching.batch_size",)
        assert api.service._running is not None
        assert api.service._running.pipeline.setup.at_once == 7
        # None, and one again; what was counted goes on.
        requests = json.loads(json.dumps([*api.service.api.counts.values()]))  # type: ignore[union-attr]
        api.config["api"] = {}
        assert api.service.reload().changed
        assert api.service.api_port is None
        api.config["api"] = section
        assert api.service.reload().errors == ()
        api.port = api.service.api_port or 0
        assert api.ask("GET", ONE).status == 200
        assert sum(api.service.api.counts.values()) > sum(requests)  # type: ignore[union-attr]


def test_whoever_asks_for_a_reload_while_the_api_changes_is_answered(tmp_path: Path, backend: str) -> None:
    with running(tmp_path) as api, ThreadPoolExecutor(4) as pool:
        admin = api.make_token(None, "admin")
        api.config["api"] = api.config["api"] | {"quotas": {"subscriptions": 2}}
        replies = list(pool.map(lambda _: api.ask("POST", "/v1/reload", token=admin), range(4)))
        assert {reply.status if reply.status == 200 else reply.kind for reply in replies} <= {200, "busy"}
        assert 200 in [reply.status for reply in replies]
        until(lambda: api.ask("POST", "/v1/reload", token=admin).status == 200)
