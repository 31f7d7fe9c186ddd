"""What each route of the API does, asked over HTTP, of a service that matches meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine
from streamer.errors import ServiceError
from streamer.service import faults
from streamer.service.store.ids import claimed
from streamer.service.store.sqlite import Sqlite
from streamer.service.store.store import Store
from streamer.service.tenants.declined import Declined
from streamer.service.tenants.quotas import Quotas
from streamer.service.tenants.subscriptions import Subscriptions
from tests.service.api import BIG, LINES, Api, order, running, until
from tests.service.receiver import Receiver


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


ONE = "/v1/subscriptions/big"


def test_what_is_written_matches_from_the_answer_on_and_no_more_once_it_is_deleted(api: Api) -> None:
    api.read(order(1))
    written = api.ask("PUT", ONE, BIG)
    assert written.status == 201
    api.read(order(2), order(3, 5))
    assert api.delivered() == ["big"]
    assert api.ask("DELETE", ONE).status == 204
    api.read(order(4))
    assert api.delivered() == ["big"]
    assert api.ask("GET", ONE).kind == "unknown"
    assert api.ask("DELETE", ONE).kind == "unknown"


def test_a_subscription_is_shown_as_it_was_written_with_what_is_known_of_it(api: Api) -> None:
    text = b'{"collection": "orders",\r\n "cel": "data.amount > 1e2"}'
    written = api.ask("PUT", ONE, text, headers={"Content-Type": "application/json; charset=UTF-8"})
    told = written.json
    assert told["subscription"] == {"id": "big", "collection": "orders", "cel": "data.amount > 1e2"}
    assert (told["tenant"], told["id"], told["origin"], told["paused"], told["lease"]) == ("acme", "big", "api", False, None)
    assert told["created"] == told["updated"]
    assert written.headers["etag"] == told["etag"]
    assert api.ask("GET", ONE).json == told
    assert api.ask("HEAD", ONE).body == b""
    assert api.ask("HEAD", ONE).headers["etag"] == told["etag"]


def test_one_that_is_written_again_as_it_is_stays_as_it_was(api: Api) -> None:
    first = api.ask("PUT", ONE, BIG)
    again = api.ask("PUT", ONE, BIG)
    assert (again.status, again.json) == (200, first.json)
    other = api.ask("PUT", ONE, BIG | {"collection": "others"})
    assert other.status == 200
    assert other.json["etag"] != first.json["etag"]
    assert other.json["created"] == first.json["created"]
    api.read(order())
    assert api.delivered() == []


def test_no_update_is_lost_where_writers_say_what_they_saw(api: Api) -> None:
    tag = api.ask("PUT", ONE, BIG, headers={"If-None-Match": "*"}).headers["etag"]
    assert api.ask("PUT", ONE, BIG, headers={"If-None-Match": "*"}).kind == "precondition"
    mine = api.ask("PUT", ONE, BIG | {"labels": {"by": "me"}}, headers={"If-Match": tag})
    assert mine.status == 200
    for method, path in (("PUT", ONE), ("DELETE", ONE), ("POST", f"{ONE}:pause"), ("GET", ONE)):
        reply = api.ask(method, path, BIG if method == "PUT" else None, headers={"If-Match": tag})
        assert (method, reply.status, reply.kind) == (method, 412, "precondition")
    assert api.ask("GET", ONE, headers={"If-None-Match": f'"0", W/{mine.headers["etag"]}'}).status == 304
    assert api.ask("PUT", "/v1/subscriptions/nosuch", BIG, headers={"If-Match": "*"}).kind == "precondition"
    assert api.ask("DELETE", ONE, headers={"If-Match": f'"0", {mine.headers["etag"]}'}).status == 204
    again = api.ask("PUT", ONE, BIG, headers={"If-None-Match": tag})
    assert again.headers["etag"] not in (tag, mine.headers["etag"])
    assert api.ask("GET", ONE, headers={"If-Match": "big"}).kind == "bad-request"


def test_writers_at_once_count_each_others_updates(api: Api) -> None:
    """Each adds one to a number, and begins anew where another one was faster."""
    api.ask("PUT", ONE, BIG | {"labels": {"n": 0}})

    def add() -> None:
        done = 0
        while done < 5:
            seen = api.ask("GET", ONE)
            more = seen.json["subscription"] | {"labels": {"n": seen.json["subscription"]["labels"]["n"] + 1}}
            reply = api.ask("PUT", ONE, more, headers={"If-Match": seen.headers["etag"]})
            assert reply.status in (200, 412, 429)
            done += reply.status == 200

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert api.ask("GET", ONE).json["subscription"]["labels"] == {"n": 20}


def test_what_cannot_be_accepted_says_where_and_why(api: Api) -> None:
    reply = api.ask("PUT", ONE, {"filters": [{"field": "a", "op": "=~", "value": 1}]})
    assert (reply.status, reply.kind) == (422, "subscription")
    assert reply.json["errors"][0]["place"] == "filters[0].op"
    (error,) = api.ask("PUT", ONE, {"cel": "data.a >"}).json["errors"]
    assert (error["place"], error["cel_line"]) == ("cel", 1)
    for body, kind in (({"cel": "status = 'paid'"}, "sql"), ({"$or": [{"a": 1}]}, "mongo"), (b"EXISTS subject", "cesql")):
        assert f"`streamer import {kind} FILE`" in api.ask("PUT", ONE, body).json["errors"][0]["reason"]
    assert api.ask("PUT", ONE, {"id": "other"}).json["errors"] == [{"reason": "another id than that of the path", "place": "id"}]
    assert api.ask("PUT", ONE, {"tenant": "globex"}).json["errors"][0]["place"] == "tenant"
    assert api.ask("PUT", ONE, {"tenant": "*"}).json["errors"][0]["place"] == "tenant"
    for body in (b"", b"[]", b"{", b"\xff", b'{"id": "big", "id": "big"}', b'{"cel": "a\nb"}', b"null", b"[" * 50_000):
        assert api.ask("PUT", ONE, body).kind == "subscription", body[:20]
    assert api.ask("GET", ONE).kind == "unknown"


def test_one_that_is_written_without_its_id_is_held_as_it_was_written(api: Api) -> None:
    """No number is read for it, so that the id in its text makes no difference."""
    anything = b'"pattern": {"data": {"a": [{"anything-but": [1e309]}]}}, "labels": {"n": 9007199254740993.0, "m": 1.10}'
    for sent, kept in (
        (b" {\n" + anything + b"}\n", b'{"id":"big", ' + anything + b"}"),
        (b'{"labels": {"id": 1}}', b'{"id":"big","labels": {"id": 1}}'),
        (b'{"i\\u0064": "big", ' + anything + b"}", b'{"i\\u0064": "big", ' + anything + b"}"),
        (b" { } ", b'{"id":"big" }'),
    ):
        reply = api.ask("PUT", ONE, sent, headers={"Content-Type": "application/json"})
        assert reply.status in (200, 201), reply.body
        assert reply.body.endswith(b',"subscription":' + kept + b"}")


@pytest.mark.parametrize("number", [b"1e400", b"9" * 10_000], ids=["1e400", "long"])
def test_a_bad_number_is_told_with_its_place_also_where_the_id_is_left_out(api: Api, number: bytes) -> None:
    filters = b'"filters": [{"field": "a", "op": "==", "value": %b}]}' % number
    for body in (b"{" + filters, b'{"id": "big", ' + filters):
        (error,) = api.ask("PUT", ONE, body).json["errors"]
        assert error["place"] == "filters[0].value"
        assert error["reason"].startswith("expected a number within float64, not ")
    (error,) = api.ask("PUT", ONE, b'{"labels": {"a": NaN}}').json["errors"]
    assert error["reason"] == "expected a value (malformed_json at byte 17)"


IDS = ["a/b", "..", ".", "a b", "ä☃𝄞", "a\0b", "%2F", "x:pause", "?", "#", '"', "\0" * 1024, "ä" * 512, "/", "\n", "a;b=c,d"]


@pytest.mark.parametrize("name", IDS, ids=range(len(IDS)))
def test_an_id_may_be_any_text(api: Api, name: str) -> None:
    path = "/v1/subscriptions/" + "".join(f"%{byte:02x}" for byte in name.encode())
    assert api.ask("PUT", path, BIG).status == 201
    assert api.ask("GET", path).json["id"] == name
    assert api.ask("POST", f"{path}:pause").json["paused"] is True
    assert [each["id"] for each in api.ask("GET", "/v1/subscriptions").json["items"]] == [name]
    assert api.ask("DELETE", path).status == 204


def test_an_id_is_no_longer_than_what_a_request_can_ask_for(api: Api) -> None:
    """Lists go past the longest one, whatever it holds, also for who runs the service."""
    admin = api.make_token(None, "admin")
    reason = "expected 1,024 bytes of UTF-8 at most, not 1,026"
    assert api.ask("PUT", "/v1/subscriptions/" + "%C3%A4" * 513, BIG).json["errors"] == [{"reason": reason, "place": "id"}]
    lines = [
        json.dumps({"id": each, "cel": "data.a < data.b"}).encode()
        for each in ("\x7f" * 1024, "\0" * 1024, "ä" * 513, "é" * 100_000)
    ]
    sent = b"\n".join(lines)
    whole = api.ask("POST", "/v1/subscriptions:import", sent, headers=LINES)
    assert [(each["line"], each["place"]) for each in whole.json["errors"]] == [(3, "id"), (4, "id")]
    partly = api.ask("POST", "/v1/subscriptions:import?partly=true", sent, headers=LINES)
    assert [each["result"] for each in partly.lines] == ["created", "created", "refused", "refused"]
    assert len(partly.body) < 20_000
    assert [each["line"] for each in api.ask("POST", "/v1/lint", sent, headers=LINES).json["errors"]] == [3, 4]
    for path, token in (("/v1/subscriptions", api.token), ("/v1/filters/unguarded", admin)):
        found, at = [], ""
        while at is not None:
            page = api.ask("GET", f"{path}?limit=1{at and f'&cursor={at}'}", token=token).json
            found += [each["id"] for each in page["items"]]
            at = page["next"]
        assert found == ["\0" * 1024, "\x7f" * 1024]


def test_a_longer_id_of_a_file_is_shown_and_gone_past_where_the_head_of_a_request_may_be_longer(
    tmp_path: Path, backend: str
) -> None:
    (tmp_path / "subs.jsonl").write_text("\n".join(json.dumps({**BIG, "tenant": "acme", "id": each * 400_000}) for each in "ab"))
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")], api={"limits": {"head": "1MiB"}}) as api:
        assert api.ask("GET", "/v1/subscriptions/" + "a" * 400_000).json["id"] == "a" * 400_000
        first = api.ask("GET", "/v1/subscriptions?limit=1").json
        (second,) = api.ask("GET", f"/v1/subscriptions?limit=1&cursor={first['next']}").json["items"]
        assert second["id"] == "b" * 400_000


def test_an_id_that_is_no_utf_8_is_refused(api: Api) -> None:
    for path in ("/v1/subscriptions/%ff", "/v1/subscriptions/%ed%a0%80"):
        assert api.ask("PUT", path, BIG).kind == "bad-request"


def test_a_paused_subscription_matches_nothing_until_it_is_resumed(api: Api) -> None:
    tag = api.ask("PUT", ONE, BIG).headers["etag"]
    paused = api.ask("POST", f"{ONE}:pause", headers={"If-Match": tag})
    assert paused.json["paused"] is True
    assert api.ask("POST", f"{ONE}:pause").json == paused.json
    api.read(order(1))
    # It may be written while it is paused, and stays so.
    assert api.ask("PUT", ONE, BIG | {"labels": {"a": 1}}).json["paused"] is True
    api.read(order(2))
    assert api.delivered() == []
    assert api.ask("POST", "/v1/match", order()[:]).json["matches"] == []
    assert api.ask("POST", f"{ONE}:resume").json["paused"] is False
    api.read(order(3))
    assert api.delivered() == ["big"]
    assert api.ask("POST", "/v1/subscriptions/nosuch:pause").kind == "unknown"
    assert api.ask("POST", "/v1/subscriptions/nosuch:resume").kind == "unknown"


def test_a_lease_that_is_over_matches_nothing_and_is_counted(api: Api) -> None:
    written = api.ask("PUT", f"{ONE}?lease=1", BIG)
    assert (written.json["lease"], written.json["expires"] > written.json["created"]) == (1, True)
    api.ask("PUT", "/v1/subscriptions/other?lease=3600", BIG)
    api.read(order(1))
    assert sorted(api.delivered()) == ["big", "other"]
    until(lambda: api.ask("GET", ONE).status == 404)
    until(lambda: "\0big" not in "".join(api.service.engine))
    api.read(order(2))
    assert sorted(api.delivered()) == ["big", "other", "other"]
    assert api.service.subscriptions.expired == 1
    assert api.ask("POST", f"{ONE}:renew").kind == "unknown"
    assert api.ask("PUT", ONE, BIG).status == 201


def test_a_lease_that_is_renewed_stays(api: Api) -> None:
    first = api.ask("PUT", f"{ONE}?lease=2", BIG).json["expires"]
    time.sleep(0.01)
    assert api.ask("POST", f"{ONE}:renew").json["expires"] > first
    longer = api.ask("POST", f"{ONE}:renew?lease=3600").json
    assert longer["lease"] == 3600
    # Written without one, it is there for ever.
    assert api.ask("PUT", ONE, BIG).json["lease"] is None
    assert api.ask("POST", f"{ONE}:renew").kind == "precondition"
    for lease in ("0", "-1", "1.5", "x", "99999999999", "", "%D9%A1"):
        assert api.ask("PUT", f"{ONE}?lease={lease}", BIG).kind == "bad-request"


def test_many_leases_that_are_over_are_taken_out_some_at_a_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.service.store.subscriptions.PAGE", 7)
    lines = b"".join(b'{"id": "%d"}\n' % number for number in range(50))
    assert api.ask("POST", "/v1/subscriptions:import?lease=1", lines, headers=LINES).status == 200
    until(lambda: api.service.subscriptions.expired == 50)
    assert len(api.service.engine) == 0
    assert api.service.subscriptions.totals() == {"held": 0, "paused": 0}


def test_a_list_and_an_export_hold_some_megabytes_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows a page may have: each may have megabytes."""
    lines = b"".join(json.dumps({"id": f"{number:03}", "labels": {"a": "x" * 900}}).encode() + b"\n" for number in range(20))
    assert api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES).status == 200
    monkeypatch.setattr("streamer.service.store.subscriptions.PAGE_BYTES", 3_000)
    monkeypatch.setattr("streamer.service.api.handlers.PAGE_BYTES", 3_000)
    first = api.ask("GET", "/v1/subscriptions?limit=1000").json
    assert [each["id"] for each in first["items"]] == ["000", "001", "002"]
    second = api.ask("GET", f"/v1/subscriptions?limit=1&cursor={first['next']}").json
    assert [each["id"] for each in second["items"]] == ["003"]
    assert api.ask("GET", "/v1/subscriptions:export").body == lines


def test_a_list_comes_in_pages_and_is_filtered(api: Api) -> None:
    lines = b"".join(
        json.dumps({"id": f"{number:03}", "gateway_id": f"g{number % 2}", "collection": f"c{number % 3}"}).encode() + b"\n"
        for number in range(120)
    )
    assert api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES).status == 200
    api.ask("POST", "/v1/subscriptions/007:pause")

    def listed(query: str) -> list[str]:
        found, cursor, pages = [], "", 0
        while True:
            page = api.ask("GET", f"/v1/subscriptions?{query}{cursor}").json
            found += [each["id"] for each in page["items"]]
            pages += 1
            if page["next"] is None:
                return [*found, str(pages)]
            cursor = f"&cursor={page['next']}"

    every = [f"{number:03}" for number in range(120)]
    assert listed("limit=50") == [*every, "3"]
    assert listed("limit=40") == [*every, "3"]
    assert listed("limit=1000&gateway=g1") == [*every[1::2], "1"]
    assert listed("limit=7&collection=c2&gateway=g1&origin=api")[:-1] == every[5::6]
    assert listed("paused=true") == ["007", "1"]
    assert len(listed("limit=1000&paused=false")) == 120
    assert listed("origin=files") == ["1"]
    for query in (
        "cursor=x",
        "cursor=",
        "cursor=WzEsMl0",
        "cursor=%ff",
        "limit=0",
        "limit=1001",
        "paused=yes",
        "origin=x",
        "x=1",
    ):
        assert api.ask("GET", f"/v1/subscriptions?{query}").kind == "bad-request", query
    for query in ("limit=1&limit=1", "&", "limit", "a=%ff", "=1"):
        assert api.ask("GET", f"/v1/subscriptions?{query}").kind == "bad-request", query
    exported = api.ask("GET", "/v1/subscriptions:export")
    assert exported.headers["content-type"] == "application/x-ndjson"
    assert exported.body == b"".join(sorted(lines.splitlines(keepends=True)))
    assert api.ask("HEAD", "/v1/subscriptions:export").body == b""


def test_an_import_is_whole_or_with_partly_what_is_good(api: Api) -> None:
    lines = b'{"id": "a"}\n\n{"id": "b", "cel": "("}\r\n{"id": "a"}\n[]\n{"id": "c"}'
    refused = api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES)
    assert (refused.status, refused.kind) == (422, "subscription")
    assert [error["line"] for error in refused.json["errors"]] == [3, 4, 5]
    assert api.ask("GET", "/v1/subscriptions").json["items"] == []
    partly = api.ask("POST", "/v1/subscriptions:import?partly=true", lines, headers=LINES)
    assert partly.headers["content-type"] == "application/x-ndjson"
    assert [(each["line"], each.get("id"), each["result"]) for each in partly.lines] == [
        (1, "a", "created"),
        (3, "b", "refused"),
        (4, "a", "refused"),
        (5, None, "refused"),
        (6, "c", "created"),
    ]
    assert partly.lines[1]["error"]["place"] == "cel"
    api.read(order())
    assert sorted(api.delivered()) == ["a", "c"]
    again = api.ask("POST", "/v1/subscriptions:import", b'{"id": "a"}\n{"id": "c", "labels": {"n": 1}}', headers=LINES)
    assert [each["result"] for each in again.lines] == ["unchanged", "replaced"]
    assert [each["etag"] for each in again.lines] == [
        api.ask("GET", f"/v1/subscriptions/{name}").headers["etag"] for name in ("a", "c")
    ]


def test_what_files_hold_is_theirs(tmp_path: Path, backend: str) -> None:
    (tmp_path / "subs.jsonl").write_text('{"id": "big", "tenant": "acme"}\n')
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]) as api:
        assert api.ask("GET", ONE).json["origin"] == "files"
        for method, path in (("PUT", ONE), ("DELETE", ONE), ("POST", f"{ONE}:pause"), ("POST", f"{ONE}:renew?lease=1")):
            reply = api.ask(method, path, BIG if method == "PUT" else None)
            assert (reply.status, reply.kind) == (409, "other-origin")
        assert api.ask("PUT", "/v1/subscriptions/mine", BIG).status == 201
        # And what the API holds, files cannot take: such a reload is refused, whole.
        (tmp_path / "subs.jsonl").write_text('{"id": "new", "tenant": "acme"}\n{"id": "mine", "tenant": "acme"}\n')
        api.service.reload()
        assert api.ask("GET", "/v1/subscriptions/new").status == 404
        assert api.ask("GET", ONE).status == 200
        (tmp_path / "subs.jsonl").write_text('{"id": "new", "tenant": "acme"}\n')
        api.service.reload()
        assert [each["id"] for each in api.ask("GET", "/v1/subscriptions").json["items"]] == ["mine", "new"]
        assert sorted(api.service.engine) == ["acme\0mine", "acme\0new"]
    with running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]) as api:
        api.read(order())
        assert sorted(api.delivered()) == ["mine", "new"]
    (tmp_path / "subs.jsonl").write_text('{"id": "new", "tenant": "acme"}\n{"id": "mine", "tenant": "acme"}\n')
    with (
        pytest.raises(Exception, match=r"subs\.jsonl:2: the API has this id"),
        running(tmp_path, subscriptions=[str(tmp_path / "subs.jsonl")]),
    ):
        pass


def test_a_directory_that_is_watched_is_taken_whole(tmp_path: Path, backend: str) -> None:
    directory = tmp_path / "subs"
    directory.mkdir()
    (directory / "a.jsonl").write_text('{"id": "a", "tenant": "acme"}\n')
    with running(tmp_path, service={"data_dir": str(tmp_path / "data"), "watch": str(directory)}) as api:

        def held() -> list[str]:
            return [each["id"] for each in api.ask("GET", "/v1/subscriptions").json["items"]]

        assert held() == ["a"]
        assert api.ask("PUT", "/v1/subscriptions/mine", BIG).status == 201
        (directory / "b.jsonl").write_text('{"id": "b", "tenant": "acme"}\n')
        (directory / ".c.jsonl").write_text('{"id": "c", "tenant": "acme"}\n')
        (directory / "d.txt").write_text("no subscriptions")
        until(lambda: held() == ["a", "b", "mine"])
        # One bad line, and nothing is changed; also of what is gone by then.
        (directory / "b.jsonl").write_text('{"id": "e", "tenant": "acme"}\n{"id": "f", "cel": "("}\n')
        (directory / "a.jsonl").unlink()
        time.sleep(1.5)
        assert held() == ["a", "b", "mine"]
        (directory / "b.jsonl").write_text('{"id": "e", "tenant": "acme"}\n')
        until(lambda: held() == ["e", "mine"])
        api.read(order())
        assert sorted(api.delivered()) == ["e", "mine"]
    directory.rename(tmp_path / "gone")
    with (
        pytest.raises(Exception, match=r"service\.watch: .*No such file"),
        running(tmp_path, service={"data_dir": str(tmp_path / "data"), "watch": str(directory)}),
    ):
        pass


def test_writes_during_reloads_are_all_there(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "subs.jsonl"
    path.write_text('{"id": "f0", "tenant": "acme"}\n')
    with running(tmp_path, subscriptions=[str(path)]) as api:
        done = threading.Event()

        def reload() -> None:
            number = 0
            while not done.is_set():
                number += 1
                path.write_text(f'{{"id": "f{number}", "tenant": "acme"}}\n')
                api.service.reload()

        thread = threading.Thread(target=reload)
        thread.start()
        for number in range(40):
            assert (
                until(lambda number=number: (r := api.ask("PUT", f"/v1/subscriptions/{number}", BIG)).status != 429 and r).status
                == 201
            )
        done.set()
        thread.join()
        held = {name.partition("\0")[2] for name in api.service.engine}
        assert held >= {str(number) for number in range(40)}
        assert len(held) == 41


def test_a_write_that_the_store_cannot_hold_is_not_held_at_all(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    api.ask("PUT", ONE, BIG)

    def fail(self: Sqlite, body: object, **options: bool) -> Any:
        raise ServiceError("disk full: secret row")

    monkeypatch.setattr(Sqlite, "change", fail)
    monkeypatch.setattr(Store, "is_writable", lambda self: False)
    for method, path in (("PUT", "/v1/subscriptions/new"), ("PUT", ONE), ("DELETE", ONE), ("POST", f"{ONE}:pause")):
        reply = api.ask(method, path, BIG | {"cel": "false"} if method == "PUT" else None)
        assert (reply.status, reply.kind) == (503, "unavailable")
        assert b"secret" not in reply.body
    # On a full disk each request of everybody ends so: the log has one line, and later how many there were.
    told = [record.getMessage() for record in caplog.records if record.name == "streamer.service.api"]
    assert len(told) == 1
    app = api.service.api
    assert app is not None
    app._quiet._clock = lambda: time.monotonic() + 60
    api.ask("DELETE", ONE)
    assert "(4 requests so far)" in caplog.records[-1].getMessage()
    ready = api.ask("GET", "/readyz")
    assert (ready.status, ready.json) == (503, {"status": "not ready", "reason": "store_not_writable"})
    monkeypatch.undo()
    assert api.ask("GET", "/readyz").json == {"status": "ready"}
    assert list(api.service.engine) == ["acme\0big"]
    api.read(order())
    assert api.delivered() == ["big"]


def test_a_write_that_the_engine_cannot_take_is_taken_back(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    before = api.ask("PUT", ONE, BIG).json

    def fail() -> None:
        monkeypatch.setattr(type(api.service.engine), "add_many", broken)

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    faults.arm("subscriptions.committed", fail)
    for path in (ONE, "/v1/subscriptions/new"):
        reply = api.ask("PUT", path, BIG | {"labels": {"a": 1}})
        assert (reply.status, reply.kind) == (500, "internal")
        monkeypatch.undo()
    faults.disarm()
    assert api.ask("GET", ONE).json == before
    assert api.ask("GET", "/v1/subscriptions/new").status == 404
    assert api.service.subscriptions.totals()["held"] == 1


def test_quotas_bound_what_a_tenant_holds(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"quotas": {"subscriptions": 3, "unindexed": 1}}) as api:
        every = {"collection": "orders", "cel": "data.a < data.b"}
        assert api.ask("PUT", "/v1/subscriptions/1", every).json["unindexed"] is True
        refused = api.ask("PUT", "/v1/subscriptions/2", every)
        assert (refused.status, refused.kind) == (403, "quota")
        assert api.ask("PUT", "/v1/subscriptions/1", every | {"labels": {}}).status == 200
        assert api.ask("PUT", "/v1/subscriptions/1", BIG).json["unindexed"] is False
        assert api.ask("PUT", "/v1/subscriptions/2", every).status == 201
        lines = b'{"id": "3", "collection": "c", "topic": "a.b"}\n{"id": "4", "collection": "c", "topic": "a.b"}\n'
        assert api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES).kind == "quota"
        partly = api.ask("POST", "/v1/subscriptions:import?partly=true", lines, headers=LINES)
        assert [each["result"] for each in partly.lines] == ["created", "refused"]
        assert api.ask("DELETE", "/v1/subscriptions/3").status == 204
        assert api.ask("PUT", "/v1/subscriptions/4", BIG).status == 201
        other = api.make_token("globex", "write")
        assert api.ask("PUT", "/v1/subscriptions/4", BIG, token=other).status == 201


def test_a_tenant_has_a_bound_on_the_bytes_of_its_subscriptions(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"quotas": {"texts": "1KiB"}}) as api:

        def put(number: int, size: int) -> str:
            reply = api.ask("PUT", f"/v1/subscriptions/{number}", b'{"labels": {"a": "%b"}}' % (b"x" * size))
            return "" if reply.status in (200, 201) else reply.kind

        assert [put(1, 400), put(2, 400), put(3, 400)] == ["", "", "quota"]
        # What stays as large, or gets smaller, is not judged.
        assert [put(1, 400), put(1, 100), put(3, 200), put(2, 700)] == ["", "", "", "quota"]
        lines = b'{"id": "4"}\n{"id": "5", "labels": {"a": "%b"}}\n{"id": "6"}\n' % (b"x" * 400)
        assert api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES).kind == "quota"
        partly = api.ask("POST", "/v1/subscriptions:import?partly=true", lines, headers=LINES)
        assert [each["result"] for each in partly.lines] == ["created", "refused", "created"]
        assert "1,024 bytes of subscriptions" in json.dumps(partly.lines[1])
        assert api.ask("DELETE", "/v1/subscriptions/2").status == 204
        assert put(5, 400) == ""
        other = api.make_token("globex", "write")
        assert api.ask("PUT", "/v1/subscriptions/4", {"labels": {"a": "x" * 900}}, token=other).status == 201


def test_what_is_over_and_not_yet_taken_out_does_not_count_for_what_takes_its_place(tmp_path: Path, backend: str) -> None:
    store = Store(tmp_path / "data")
    subscriptions = Subscriptions(Engine(), store, Quotas(subscriptions=2, unindexed=1))
    every = claimed(b'{"collection": "orders", "cel": "data.a < data.b"}', "acme", "1")
    for _ in range(2):
        assert subscriptions.put(every, lambda _: None, lease=1).before is None
        time.sleep(0.005)
    lines = [every, claimed(b'{"collection": "c", "topic": "a.b"}', "acme", "2")]
    assert [result.error for result in subscriptions.put_many("acme", lines)] == [None, None]
    with pytest.raises(Declined, match="2 subscriptions"):
        subscriptions.put(claimed(b'{"collection": "c", "topic": "a.b"}', "acme", "3"), lambda _: None)
    subscriptions.close()
    store.close()


def test_match_tells_what_an_event_would_match_and_delivers_nothing(api: Api) -> None:
    api.ask("PUT", ONE, BIG)
    told = api.ask("POST", "/v1/match", order(), headers={"Content-Type": "application/json"}).json
    assert told == {
        "matches": [{"tenant": "acme", "id": "big", "gateway": "billing", "transition": "enter", "certain": True}],
        "more": False,
        "ignored": None,
    }
    # A tenant's event is its own, whatever it says.
    assert len(api.ask("POST", "/v1/match", order(tenant="globex")).json["matches"]) == 1
    api.ask("PUT", "/v1/subscriptions/other", BIG)
    limited = api.ask("POST", "/v1/match?limit=1", order()).json
    assert (len(limited["matches"]), limited["more"]) == (1, True)
    bad = api.ask("POST", "/v1/match", b'{"data": ')
    assert (bad.status, bad.kind, bad.json["errors"][0]["code"]) == (422, "event", "malformed_json")
    assert api.ask("POST", "/v1/match", b"{" * 100_000).kind == "event"
    assert not api.delivered()


def test_explain_tells_why_of_one_that_is_held_or_given(api: Api) -> None:
    api.ask("PUT", ONE, BIG)
    small = json.loads(order(1, 5))
    held = api.ask("POST", "/v1/explain", {"id": "big", "event": small}).json
    assert (held["subscription_id"], held["matched"]) == ("big", False)
    assert "100" in json.dumps(held["conditions"])
    given = api.ask("POST", "/v1/explain", {"subscription": BIG | {"id": "x"}, "event": json.loads(order())}).json
    assert (given["subscription_id"], given["matched"], given["transition"]) == ("x", True, "enter")
    assert api.ask("POST", "/v1/explain", {"id": "nosuch", "event": small}).kind == "unknown"
    assert api.ask("POST", "/v1/explain", {"subscription": {"cel": "("}, "event": small}).kind == "subscription"
    for given, kind in (([], "a list"), (None, "null"), (0, "a number")):
        refused = api.ask("POST", "/v1/explain", {"subscription": given, "event": small})
        assert refused.kind == "subscription"
        assert kind in refused.json["detail"]
    assert api.ask("POST", "/v1/explain", {"id": "big", "event": {"collection": 7}}).kind == "event"
    for body in ({}, {"event": 7}, {"id": "big"}, {"id": 7, "event": {}}, {"id": "big", "event": 7}, [], {"x": 1, "event": {}}):
        assert api.ask("POST", "/v1/explain", body).kind == "bad-request", body
    for text in (
        b"[" * 100_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"\xff",
        b'{"event": {"\\ud800": 1}, "id": "big"}',
        b'{"event": {}, "id": "\\ud800"}',
    ):
        assert api.ask("POST", "/v1/explain", text).kind in ("bad-request", "event"), text[:20]


def test_lint_finds_what_is_wrong_and_writes_nothing(api: Api) -> None:
    lines = b'{"id": "a", "cel": "1 > 2"}\n{"id": "b", "cel": "("}\n{"id": "a"}\n{"id": "c", "collection": "o", "topic": "a.b"}\n'
    told = api.ask("POST", "/v1/lint", lines, headers=LINES).json
    assert [error["line"] for error in told["errors"]] == [2, 3]
    assert (told["findings"][0]["line"], told["findings"][0]["id"]) == (1, "a")
    assert api.ask("POST", "/v1/lint", {"id": "a", "cel": "1 > 2"}).json["findings"] == told["findings"][:1]
    assert api.ask("GET", "/v1/subscriptions").json["items"] == []
    assert api.ask("POST", "/v1/lint", b"{}\n" * 1001, headers=LINES).kind == "too-long"


def test_dead_letters_are_listed_shown_replayed_and_dropped(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, matching={"limits": {"max_event_bytes": 1000}}) as api:
        api.read(b"{", b"\xff", order(1, pad="x" * 2000))
    with running(tmp_path) as api:
        admin = api.make_token(None, "admin")
        assert api.ask("GET", "/v1/dead-letters").kind == "not-allowed"
        first = api.ask("GET", "/v1/dead-letters?limit=2", token=admin).json
        rest = api.ask("GET", f"/v1/dead-letters?limit=2&cursor={first['next']}", token=admin).json
        found = {each["code"]: each for each in first["items"] + rest["items"]}
        assert rest["next"] is None
        numbers = [found[code]["id"] for code in ("malformed_json", "bad_utf8", "too_long")]
        one = api.ask("GET", f"/v1/dead-letters/{numbers[0]}", token=admin).json
        assert (one["record"], one["reason"]) == ("{", found["malformed_json"]["reason"])
        assert "record" not in first["items"][0]
        assert api.ask("GET", f"/v1/dead-letters/{numbers[1]}", token=admin).json["record_base64"] == "/w=="
        assert api.ask("POST", f"/v1/dead-letters/{numbers[0]}:replay", token=admin).kind == "not-replayable"
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        assert api.ask("POST", f"/v1/dead-letters/{numbers[2]}:replay", token=admin).status == 202
        until(lambda: api.delivered() == ["big"])
        until(lambda: api.ask("GET", f"/v1/dead-letters/{numbers[2]}", token=admin).status == 404)
        assert api.ask("DELETE", f"/v1/dead-letters/{numbers[0]}", token=admin).status == 204
        for number in (numbers[0], 0, "x", "9" * 30, "-1"):
            for method, verb in (("GET", ""), ("DELETE", ""), ("POST", ":replay")):
                assert api.ask(method, f"/v1/dead-letters/{number}{verb}", token=admin).kind == "unknown"


def test_messages_that_were_given_up_are_replayed_and_dropped_while_all_runs(
    tmp_path: Path, backend: str, receiver: Receiver
) -> None:
    receiver.answer = lambda _: 503
    blocking = {"retry": {"first": "5ms", "most": "5ms", "attempts": 2}, "on_exhausted": "block"}
    with running(tmp_path, sinks={"hooks": receiver.sink()}, delivery=blocking) as api:
        admin = api.make_token(None, "admin")
        api.ask("PUT", "/v1/subscriptions/big", BIG)
        # Two of one key, of which the second waits for the first; and one of another.
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(b"".join(each + b"\n" for each in (order(1), order(1), order(2))))

        def letters() -> list[Any]:
            return list(api.ask("GET", "/v1/dead-letters", token=admin).json["items"])

        until(lambda: len(letters()) == 2)
        one, two = letters()
        assert {(each["stage"], each["code"], each["sink"], each["matches"]) for each in (one, two)} == {
            ("deliver", "503", "hooks", 1)
        }
        (sink,) = api.ask("GET", "/v1/sinks", token=admin).json["items"]
        assert (sink["spool"]["messages"], sink["delivered"], sink["dead"]) == (3, 0, 0)
        receiver.answer = lambda _: 204
        taken = len(receiver.requests)
        first = next(each for each in (one, two) if json.loads(api_record(api, each, admin))["partitionkey"] == "1")
        (other,) = [each for each in (one, two) if each is not first]
        assert api.ask("POST", f"/v1/dead-letters/{first['id']}:replay", token=admin).status == 202
        until(lambda: len(receiver.requests) == taken + 2)
        assert [each["partitionkey"] for each in receiver.messages[taken:]] == ["1", "1"]
        assert receiver.messages[taken]["id"] == first["message"]
        assert api.ask("DELETE", f"/v1/dead-letters/{other['id']}", token=admin).status == 204
        until(lambda: api.ask("GET", "/v1/sinks", token=admin).json["items"][0]["spool"]["messages"] == 0)
        assert api.counts()["matches_pending"] == 0
        assert letters() == []


def test_an_endpoint_that_wanted_no_more_is_asked_again(tmp_path: Path, backend: str, receiver: Receiver) -> None:
    with running(tmp_path, sinks={"hooks": receiver.sink()}) as api:
        admin = api.make_token(None, "admin")
        api.ask("PUT", ONE, BIG)

        def state() -> Any:
            return api.ask("GET", "/v1/sinks", token=admin).json["items"][0]["state"]

        assert state() == "working"
        receiver.answer = lambda _: 410
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(3) + b"\n")
        until(lambda: state() == "disabled")
        receiver.answer = lambda _: 204
        taken = len(receiver.requests)
        assert api.ask("POST", "/v1/sinks/hooks:enable", token=admin).status == 204
        until(lambda: state() == "working")
        with open(tmp_path / "in.jsonl", "ab") as file:
            file.write(order(4) + b"\n")
        until(lambda: "4" in [each["partitionkey"] for each in receiver.messages[taken:]])
        assert api.ask("POST", "/v1/sinks/nosuch:enable", token=admin).kind == "unknown"


def api_record(api: Api, letter: Any, token: str) -> str:
    return str(api.ask("GET", f"/v1/dead-letters/{letter['id']}", token=token).json["record"])


def test_sources_and_sinks_tell_what_they_do(api: Api) -> None:
    admin = api.make_token(None, "admin")
    api.ask("PUT", ONE, BIG)
    assert api.ask("GET", "/v1/sources", token=admin).json["items"][0]["state"] == "idle"
    api.read(order(), b"{")
    (source,) = api.ask("GET", "/v1/sources", token=admin).json["items"]
    assert {name: source[name] for name in ("name", "type", "format", "state", "read", "matched", "rejected")} == {
        "name": "orders",
        "type": "file",
        "format": "json",
        "state": "reading",
        "read": 2,
        "matched": 1,
        "rejected": 1,
    }
    assert len(source["positions"]) == 1
    (sink,) = api.ask("GET", "/v1/sinks", token=admin).json["items"]
    assert {name: sink[name] for name in ("name", "type", "state", "delivered", "dead")} == {
        "name": "out",
        "type": "file",
        "state": "working",
        "delivered": 1,
        "dead": 0,
    }


def test_idle_is_ready_and_stalled_is_not(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.ask("GET", "/healthz", token="").json == {"status": "alive"}
    assert api.ask("GET", "/readyz", token="").json == {"status": "ready"}
    monkeypatch.setattr("streamer.service.api.status.STALLED", 0.05)
    gate = threading.Event()
    faults.arm("sink.written", lambda: (gate.wait(30), None)[1])
    api.ask("PUT", ONE, BIG)
    with open(api.directory / "in.jsonl", "ab") as file:
        file.write(order() + b"\n")
    until(lambda: api.ask("GET", "/readyz").json == {"status": "not ready", "reason": "stalled"})
    admin = api.make_token(None, "admin")
    assert api.ask("GET", "/v1/sources", token=admin).json["items"][0]["state"] == "stalled"
    assert api.ask("GET", "/v1/sinks", token=admin).json["items"][0]["state"] == "stalled"
    gate.set()
    until(lambda: api.ask("GET", "/readyz").status == 200)


def test_metrics_have_the_engine_the_service_and_the_api(api: Api) -> None:
    assert api.ask("GET", "/metrics").kind == "not-allowed"
    admin = api.make_token(None, "admin")
    api.ask("PUT", ONE, BIG)
    api.ask("POST", f"{ONE}:pause")
    reply = api.ask("GET", "/metrics", token=admin)
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = reply.body.decode()
    for line in (
        'streamer_service_api_requests_total{route="/v1/subscriptions/{id}",status="201"} 1.0',
        "streamer_service_subscriptions 1.0",
        "streamer_service_subscriptions_paused 1.0",
        "streamer_service_subscriptions_expired_total 0.0",
        "streamer_service_matches_total 0.0",
        'streamer_subscriptions{engine="1"} 0.0',
    ):
        assert line in text.splitlines(), line


def test_what_was_written_is_there_after_a_restart(tmp_path: Path, backend: str) -> None:
    with running(tmp_path) as api:
        tag = api.ask("PUT", ONE, BIG).headers["etag"]
        api.ask("PUT", "/v1/subscriptions/paused", BIG)
        api.ask("POST", "/v1/subscriptions/paused:pause")
        api.ask("PUT", "/v1/subscriptions/over?lease=1", BIG)
    time.sleep(1)
    with running(tmp_path) as api:
        assert api.ask("GET", ONE).headers["etag"] == tag
        assert api.ask("GET", "/v1/subscriptions/paused").json["paused"] is True
        assert api.ask("GET", "/v1/subscriptions/over").status == 404
        api.read(order())
        assert api.delivered() == ["big"]
