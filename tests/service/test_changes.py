"""The log of changes of subscriptions: who wrote what, when, and how long that is known."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine
from streamer.service.api import tokens
from streamer.service.store import changes
from streamer.service.store.ids import claimed
from streamer.service.store.store import Store
from streamer.service.store.subscriptions import Stored, Table
from streamer.service.tenants import expiry
from streamer.service.tenants.quotas import Quotas
from streamer.service.tenants.subscriptions import MOST_VERSION, Subscriptions
from tests.service.api import BIG, LINES, Api, running, until

ONE = "/v1/subscriptions/big"
HISTORY = f"{ONE}/history"


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


def told(entries: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(each["what"], each["subscription"] and each["subscription"].get("labels")) for each in entries]


def test_a_subscription_has_a_history_of_who_changed_it_and_to_what(api: Api) -> None:
    named, ada = tokens.create(api.directory / "tokens.json", "acme", ("write",), "ada")
    api.ask("PUT", ONE, BIG)
    api.ask("PUT", ONE, BIG)
    api.ask("PUT", ONE, BIG | {"labels": {"a": 1}}, token=ada)
    api.ask("POST", f"{ONE}:pause")
    api.ask("POST", f"{ONE}:renew?lease=1000")
    api.ask("POST", f"{ONE}:resume")
    lines = json.dumps(BIG | {"id": "big", "labels": {"a": 2}}).encode()
    api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES)
    found = api.ask("GET", HISTORY).json
    assert told(found["items"]) == [("put", {"a": 2}), ("resume", None), ("pause", None), ("put", {"a": 1}), ("put", None)]
    assert found["items"][-1]["subscription"] == BIG | {"id": "big"}
    assert found["items"][-2]["who"] == f"ada ({named.id})"
    assert [each["version"] for each in found["items"]] == sorted((each["version"] for each in found["items"]), reverse=True)
    assert api.ask("GET", ONE).json["etag"] == f'"{found["items"][0]["version"]}"'
    assert api.ask("DELETE", ONE).status == 204
    # It is known as long as it is kept that there was one, and what it said.
    again = api.ask("GET", HISTORY).json
    assert again["items"][0]["what"] == "delete"
    assert again["items"][1:] == found["items"]


def test_a_history_is_read_page_by_page_by_its_tenant_alone(api: Api) -> None:
    for number in range(5):
        api.ask("PUT", ONE, BIG | {"labels": {"a": number}})
    whole = api.ask("GET", HISTORY).json
    assert whole["next"] is None
    pages, at = [], ""
    while at is not None:
        page = api.ask("GET", f"{HISTORY}?limit=2{at and '&cursor=' + at}").json
        pages += page["items"]
        at = page["next"]
    assert pages == whole["items"]
    assert api.ask("GET", f"{HISTORY}?cursor=WzEsImEiXQ").kind == "bad-request"
    other = api.make_token("globex", "read", "write")
    for path in (HISTORY, "/v1/subscriptions/nosuch/history"):
        assert api.ask("GET", path, token=other).kind == "unknown"


def test_files_and_leases_that_are_over_are_in_the_history(tmp_path: Path, backend: str) -> None:
    (tmp_path / "subs.jsonl").write_text('{"id": "filed", "tenant": "acme"}\n')
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]) as api:
        api.ask("PUT", f"{ONE}?lease=1", BIG)
        until(lambda: api.ask("GET", ONE).status == 404)
        until(lambda: len(api.ask("GET", HISTORY).json["items"]) == 2)
        last = api.ask("GET", HISTORY).json["items"][0]
        assert (last["who"], last["what"], last["subscription"]) == ("expiry", "delete", None)
        (tmp_path / "subs.jsonl").write_text('{"id": "filed", "tenant": "acme", "labels": {"a": 1}}\n')
        api.service.reload()
        entries = api.ask("GET", "/v1/subscriptions/filed/history").json["items"]
        assert told(entries) == [("put", {"a": 1}), ("put", None)]
        assert {each["who"] for each in entries} == {"files"}


def test_the_log_keeps_the_last_of_each_subscription_and_nothing_that_is_old(tmp_path: Path, backend: str) -> None:
    store = Store(tmp_path)
    subscriptions = Subscriptions(Engine(), store)
    for name, count in (("a", changes.MOST_ENTRIES + 5), ("b", 1)):
        for number in range(count):
            text = json.dumps({"id": name, "collection": "c", "labels": {"n": number}}).encode()
            subscriptions.put(claimed(text, "acme"), lambda _: None)
    kept = subscriptions.changes("acme", "a", MOST_VERSION, 100)
    assert kept is not None
    assert len(kept) == changes.MOST_ENTRIES
    assert [json.loads(each.text or b"")["labels"]["n"] for each in kept] == list(range(changes.MOST_ENTRIES + 4, 4, -1))
    table = Table(store)
    assert table.last()[1] == 0
    table.trim(kept[0].at)
    assert len(subscriptions.changes("acme", "a", MOST_VERSION, 100) or ()) < changes.MOST_ENTRIES
    table.trim(MOST_VERSION)
    # What is held has a history without entries, and what is not has none.
    assert subscriptions.changes("acme", "a", MOST_VERSION, 100) == []
    assert subscriptions.changes("acme", "c", MOST_VERSION, 100) is None
    assert table.last() == (changes.MOST_ENTRIES + 6, changes.MOST_ENTRIES + 6)
    table.close()
    subscriptions.close()
    store.close()


def test_of_a_tenant_the_log_keeps_so_many_bytes_and_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    store = Store(tmp_path)
    subscriptions = Subscriptions(Engine(), store, Quotas(history=10_000))

    def put(tenant: str, name: str, number: int) -> None:
        text = json.dumps({"id": name, "collection": "c", "labels": {"n": number, "long": "x" * 1000}}).encode()
        subscriptions.put(claimed(text, tenant), lambda _: None)

    def known(tenant: str, name: str) -> list[int]:
        entries = subscriptions.changes(tenant, name, MOST_VERSION, 100)
        return [json.loads(each.text or b"")["labels"]["n"] for each in entries or ()]

    def numbers(count: int) -> list[int]:
        return list(reversed(range(count)))

    for number in range(15):
        for tenant, name in (("acme", "a"), ("acme", "b"), ("other", "a")):
            if tenant == "acme" or number < 5:
                put(tenant, name, number)
    subscriptions._upkeep.limit_history()
    assert known("acme", "a") == numbers(15)  # too young
    monkeypatch.setattr(expiry, "LIMIT", 0.0)
    time.sleep(0.01)
    subscriptions.start()
    until(lambda: len(known("acme", "a")) < 15)
    kept = known("acme", "a")
    assert kept == list(range(14, 14 - len(kept), -1))
    # About 1,150 bytes each, of two subscriptions.
    assert len(kept) + len(known("acme", "b")) in (8, 9, 10)
    assert known("other", "a") == numbers(5)
    subscriptions.remove("acme", "b", lambda _: None)
    assert (subscriptions.changes("acme", "b", MOST_VERSION, 100) or ())[0].what == "delete"
    subscriptions.close()
    store.close()


def test_a_text_that_is_long_is_in_the_log_only_as_long_as_it_is_held(tmp_path: Path, backend: str) -> None:
    store = Store(tmp_path)
    table = Table(store)
    long, short = (
        Stored(tenant="t", id="a", origin="api", text=b'"%b"' % (b"x" * size), created=1, updated=1)
        for size in (changes.MOST_TEXT, 9)
    )
    table.write([long], [None], who="api")
    assert [entry.text for entry in table.history("t", "a", MOST_VERSION, 9)] == [long.text]
    held = table.get("t", "a")
    assert held is not None
    table.write([short], [held], who="api")
    assert [entry.text for entry in table.history("t", "a", MOST_VERSION, 9)] == [short.text, None]
    table.close()
    store.close()
