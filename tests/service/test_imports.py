"""Imports are stored in slices, between which other calls take their turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from streamer import Engine
from streamer.errors import ServiceError
from streamer.service.store.ids import claimed
from streamer.service.store.store import Store
from streamer.service.tenants.imports import SLICE, Import, Imports, InvalidImport
from streamer.service.tenants.quotas import Quotas
from streamer.service.tenants.subscriptions import Result, Subscriptions
from tests.service.api import LINES, Api, running, until

COUNT = 2 * SLICE + 50


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


@pytest.fixture
def subscriptions(tmp_path: Path, backend: str) -> Iterator[Subscriptions]:
    store = Store(tmp_path / "data")
    subscriptions = Subscriptions(Engine(), store, Quotas(subscriptions=COUNT))
    yield subscriptions
    subscriptions.close()
    store.close()


def line(number: int, **members: object) -> bytes:
    return json.dumps({"id": str(number), "topic": f"a.{number}", **members}).encode()


def begin(imports: Imports, lines: list[bytes], *, partly: bool = False) -> tuple[Import, Iterator[list[Result]]]:
    several = [claimed(each, "acme") for each in lines]
    begun = imports.begin("acme", len(several))
    return begun, imports.run(begun, several, lease=None, partly=partly, who="me")


def state(imports: Imports, begun: Import) -> tuple[str, int, int]:
    found = imports.find("acme", begun.id)
    assert found is not None
    return found.state, found.done, found.refused


def test_others_write_between_the_slices_of_an_import(subscriptions: Subscriptions) -> None:
    imports = Imports(subscriptions)
    begun, slices = begin(imports, [line(number) for number in range(COUNT)])
    assert state(imports, begun) == ("checking", 0, 0)
    sizes = []
    for number, results in enumerate(slices):
        sizes.append(len(results))
        assert all(result.error is None for result in results)
        # The slice is stored, and the next one is not.
        assert subscriptions.totals()["held"] == sum(sizes) + number
        subscriptions.put(claimed(line(number), "globex"), lambda _: None)
    assert sizes == [SLICE, SLICE, 50]
    assert state(imports, begun) == ("done", COUNT, 0)
    assert imports.find("globex", begun.id) is None
    assert imports.of_tenant("globex") == []


def test_no_line_is_stored_if_one_is_invalid_or_too_many(subscriptions: Subscriptions) -> None:
    imports = Imports(subscriptions)
    for last in (line(0), line(COUNT, cel="(")):
        begun, slices = begin(imports, [*(line(number) for number in range(COUNT)), last])
        with pytest.raises(InvalidImport) as invalid:
            next(slices)
        assert [at for at, result in enumerate(invalid.value.results) if result.error is not None] == [COUNT]
        assert state(imports, begun) == ("refused", COUNT + 1, 1)
    _, slices = begin(imports, [line(number) for number in range(COUNT + 1)])
    with pytest.raises(InvalidImport):
        next(slices)
    assert subscriptions.totals()["held"] == 0


def test_a_quota_that_others_use_up_during_an_import_refuses_the_lines_beyond_it(subscriptions: Subscriptions) -> None:
    imports = Imports(subscriptions)
    begun, slices = begin(imports, [line(number) for number in range(COUNT)])
    next(slices)
    subscriptions.put(claimed(line(-1), "acme"), lambda _: None)
    results = [result for several in slices for result in several]
    assert [at for at, result in enumerate(results, SLICE) if result.error is not None] == [COUNT - 1]
    assert state(imports, begun) == ("done", COUNT, 1)


def test_an_import_that_stops_keeps_whole_slices_and_continues_with_the_same_lines(subscriptions: Subscriptions) -> None:
    imports, lines = Imports(subscriptions), [line(number) for number in range(COUNT)]
    begun, slices = begin(imports, lines)
    next(slices)
    del slices
    assert state(imports, begun) == ("stopped", SLICE, 0)
    assert subscriptions.totals()["held"] == SLICE
    _, slices = begin(imports, lines)
    results = [result for several in slices for result in several]
    assert [result.before is result.stored for result in results] == [True] * SLICE + [False] * (COUNT - SLICE)


def test_the_lines_after_a_failure_of_the_store_report_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    put_many, calls = Subscriptions.put_many, iter(range(9))

    def fails(self: Subscriptions, *args: object, **named: object) -> list[Result]:
        if next(calls) == 1:
            raise ServiceError("the disk is full")
        return put_many(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Subscriptions, "put_many", fails)
    body = b"\n".join(line(number) for number in range(COUNT))
    reply = api.ask("POST", "/v1/subscriptions:import", body, headers=LINES)
    assert [each["result"] for each in reply.lines] == ["created"] * SLICE + ["failed"] * (COUNT - SLICE)
    assert reply.lines[-1]["error"] == {"reason": "the store failed; send this line again"}
    assert api.ask("GET", reply.headers["location"]).json["state"] == "failed"
    again = api.ask("POST", "/v1/subscriptions:import", body, headers=LINES)
    assert [each["result"] for each in again.lines] == ["unchanged"] * SLICE + ["created"] * (COUNT - SLICE)


def test_a_store_that_fails_at_once_is_a_problem(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> list[Result]:
        raise ServiceError("the disk is full")

    monkeypatch.setattr(Subscriptions, "put_many", fails)
    assert api.ask("POST", "/v1/subscriptions:import", line(1), headers=LINES).kind == "unavailable"


def test_the_api_lists_the_progress_of_the_tenants_imports(api: Api) -> None:
    reply = api.ask("POST", "/v1/subscriptions:import", b"\n".join(line(number) for number in range(COUNT)), headers=LINES)
    shown = api.ask("GET", reply.headers["location"]).json
    assert (shown["state"], shown["lines"], shown["done"], shown["refused"]) == ("done", COUNT, COUNT, 0)
    assert shown["started"] <= shown["ended"]
    assert api.ask("GET", "/v1/imports").json == {"items": [shown]}
    other = api.make_token("globex", "read")
    assert api.ask("GET", "/v1/imports", token=other).json == {"items": []}
    assert api.ask("GET", reply.headers["location"], token=other).kind == "unknown"
    assert api.ask("POST", "/v1/subscriptions:import", b"", headers=LINES).lines == []


def test_a_client_that_disconnects_stops_its_import_and_is_in_the_audit_log(tmp_path: Path, backend: str) -> None:
    log = tmp_path / "audit.jsonl"
    with running(tmp_path, api={"audit": {"file": str(log)}}) as api:
        connection = HTTPConnection("127.0.0.1", api.port, timeout=30)
        body = b"\n".join(line(number, labels={"a": "x" * 2000}) for number in range(30 * SLICE))
        headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/x-ndjson"}
        connection.request("POST", "/v1/subscriptions:import", body, headers)
        reply = connection.getresponse()
        location = reply.headers["location"]
        connection.sock.close()
        reply.close()
        until(lambda: api.ask("GET", location).json["ended"] is not None)
        shown = api.ask("GET", location).json
        assert shown["state"] == "stopped"
        assert shown["done"] % SLICE == 0
        assert api.ask("GET", "/v1/subscriptions:export").body.count(b"\n") == shown["done"] < 30 * SLICE
        (entry,) = until(lambda: [json.loads(line) for line in log.read_text().splitlines()])
        assert (entry["event"], entry["path"], entry["status"]) == ("change", "/v1/subscriptions:import", 200)
