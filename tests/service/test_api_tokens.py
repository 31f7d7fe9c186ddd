"""Who may do what: tokens, scopes, tenants that attack one another, names and origins of pages."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamer import BulkConfigError, files
from streamer.errors import ServiceError
from streamer.service.api import tokens
from streamer.service.api.calls import EVENTS
from streamer.service.api.routes import ROUTES
from streamer.service.api.tokens import Tokens
from tests.cli.conftest import Run, place, run, warm  # noqa: F401  # fixtures
from tests.service.api import BIG, LINES, Api, order, running, until

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


def test_a_token_has_256_random_bits_and_the_file_a_hash_of_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token, text = tokens.create(path, "acme", ("read",), "ci")
    assert len(text.rpartition("_")[2]) >= 42 or len(text) == 5 + 9 + 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text[14:] not in path.read_text()
    assert Tokens(path).find(text) == token
    other, _ = tokens.create(path, None, ("admin",))
    assert [each.id for each in tokens.read(path)] == [token.id, other.id]
    assert os.listdir(tmp_path) == ["tokens.json"]


def test_only_the_whole_token_is_one(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    _, text = tokens.create(path, "acme", ("read",))
    known = Tokens(path)
    assert known.find(text) is not None
    for wrong in (
        "",
        "_",
        "strm_",
        text[:-1],
        text + "A",
        text.upper(),
        text[:14],
        text[1:],
        text.replace("strm", "x"),
        "strm__",
    ):
        assert known.find(wrong) is None, wrong


def test_the_file_is_read_again_when_it_changes_and_a_bad_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.json"
    first, text = tokens.create(path, "acme", ("read",))
    known = Tokens(path)
    _, later = tokens.create(path, "acme", ("read",))
    assert known.find(later) is not None
    good = path.read_bytes()
    odd = [re.sub(rb'"[0-9a-f]{64}"', f'"{hash_}"'.encode(), good) for hash_ in ("A" * 64, "\xe9" * 64, "a" * 64 + "\\n")]
    for bad in (b"", b"{", b'{"tokens": [{"id": "x", "secret": "s3cr3t"}]}', b"[" * 100_000, b'{"tokens": 7}', b"\xff", *odd):
        path.write_bytes(bad)
        assert known.find(text) is not None
        assert known.find(later) is not None
    assert "the previous tokens stay valid" in caplog.text
    assert "s3cr3t" not in caplog.text
    path.write_bytes(good)
    assert tokens.revoke(path, first.id)
    assert not tokens.revoke(path, first.id)
    assert known.find(text) is None
    assert known.find(later) is not None
    path.unlink()
    assert known.find(later) is None
    assert "the file is gone, so no token is valid" in caplog.text
    path.write_text("{}")
    with pytest.raises(ServiceError, match="no file of tokens"):
        Tokens(path)


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path)])
def test_what_is_no_file_in_the_place_of_tokens_changes_nothing_and_is_not_waited_for(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    path = tmp_path / "tokens.json"
    _, text = tokens.create(path, "acme", ("read",))
    known = Tokens(path)
    path.rename(tmp_path / "aside.json")
    put(path)
    assert known.find(text) is not None


@pytest.mark.parametrize(
    ("tenant", "scopes"),
    [("a", ()), ("a", ("admin",)), (None, ("read",)), ("*", ("read",)), ("", ("read",)), ("a\0b", ("read",))],
)
def test_a_token_has_one_tenant_or_is_an_administrators(
    tmp_path: Path, tenant: str | None, scopes: tuple[tokens.Scope, ...]
) -> None:
    with pytest.raises(ValueError, match=r"expected|one tenant"):
        tokens.create(tmp_path / "tokens.json", tenant, scopes)


def test_the_commands_create_list_and_revoke(run: Run, place: Path) -> None:  # noqa: F811
    (place / "streamer.yaml").write_text("api: {tokens: {file: tokens.json}}\n")
    made = run(
        "tokens", "create", "-c", "streamer.yaml", "--tenant", "acme", "--scope", "read", "--scope", "write", "--name", "ci"
    )
    assert made.returncode == 0
    text = made.stdout.decode().strip()
    (listed,) = (
        json.loads(line) for line in run("tokens", "list", "--file", "tokens.json", "--output", "json").stdout.splitlines()
    )
    assert (listed["tenant"], listed["scopes"], listed["name"]) == ("acme", ["read", "write"], "ci")
    assert "sha256" not in listed
    shown = run("tokens", "list", "-c", "streamer.yaml").stdout.decode()
    assert listed["id"] in shown
    assert text not in shown
    assert run("tokens", "revoke", listed["id"], "-c", "streamer.yaml").returncode == 0
    assert run("tokens", "revoke", listed["id"], "-c", "streamer.yaml").returncode == 1
    for wrong in (["--scope", "admin", "--tenant", "a"], ["--scope", "read"]):
        assert run("tokens", "create", "--file", "t.json", *wrong).returncode == 2
    assert run("tokens", "create", "--scope", "admin").returncode == 2
    assert run("tokens", "list", "--file", "nosuch/t.json").stdout.startswith(b"ID")
    assert run("tokens", "create", "--scope", "admin", "--file", "nosuch/t.json").returncode == 2


def test_a_changed_file_stays_whose_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service may run as another user than who makes tokens, and must still read them: else none is ever revoked."""
    path = tmp_path / "tokens.json"
    token, _ = tokens.create(path, "acme", ("read",))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    tokens.create(link, "acme", ("write",))
    assert link.is_symlink()
    assert [each.tenant for each in tokens.read(path)] == ["acme", "acme"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

    class Others:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def stat(self, path: str | os.PathLike[str]) -> os.stat_result:
            return os.stat_result((*os.stat(path)[:4], 65534, 65534, *os.stat(path)[6:]))

        def chown(self, path: Path, user: int, group: int) -> None:
            given.append((user, group))
            if not may:
                raise PermissionError

    given: list[tuple[int, int]] = []
    may = True
    monkeypatch.setattr(files, "os", Others())
    assert tokens.revoke(path, token.id)
    may = False
    with pytest.raises(ServiceError, match="another user's"):
        tokens.create(path, "acme", ("read",))
    assert given == [(65534, 65534)] * 2
    assert len(tokens.read(path)) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.json", "tokens.json"]


def path_of(path: str) -> str:
    return path.replace("{id}", "x").replace("{number}", "1").replace("{name}", "out")


def test_every_route_wants_its_scope_and_no_less(api: Api) -> None:
    made = {scope: api.make_token("acme", scope) for scope in ("read", "write", "consume")} | {
        "admin": api.make_token(None, "admin")
    }
    for route in ROUTES:
        if route.scope is None:
            assert api.ask(route.method, path_of(route.path), token="").status == 200
            continue
        for scope, token in made.items():
            may = route.scope in (scope, "any") or scope == "admin"
            # A stream has no end.
            method = "HEAD" if may and route.produces == EVENTS else route.method
            reply = api.ask(method, path_of(route.path), b"" if route.body else None, token=token)
            if may:
                assert reply.status not in (401, 403), (route, scope)
            else:
                assert (reply.status, reply.kind) == (403, "not-allowed"), (route, scope)
        for token in ("", "x", "strm_00000000_" + "A" * 43):
            reply = api.ask(route.method, path_of(route.path), b"{}" if route.body else None, token=token)
            assert (reply.status, reply.kind) == (401, "no-token")
            assert reply.headers["www-authenticate"].startswith("Bearer")


def test_other_ways_to_say_a_token_are_none(api: Api) -> None:
    for header in (
        api.token,
        f"Basic {api.token}",
        "Bearer",
        "Bearer ",
        f"Bearer {api.token} x",
        "Bearer ä",
        f"Token {api.token}",
    ):
        sent = f"GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {header}\r\n\r\n"
        assert b" 401 " in api.raw(sent.encode("latin-1")).splitlines()[0], header
    both = f"Authorization: Bearer {api.token}\r\n" * 2
    sent = f"GET /v1/subscriptions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{both}\r\n"
    assert b" 401 " in api.raw(sent.encode()).splitlines()[0]
    assert api.ask("GET", f"/v1/subscriptions?token={api.token}", token="").status == 401


def test_a_tenant_learns_nothing_of_another_and_changes_nothing_of_it(api: Api) -> None:
    """What another tenant has answers as what nobody has, in each way to ask."""
    mine, theirs = api.token, api.make_token("globex", "read", "write")
    api.ask("PUT", "/v1/subscriptions/big", BIG, token=theirs)
    tag = api.ask("GET", "/v1/subscriptions/big", token=theirs).headers["etag"]
    asks = [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", ":pause", None),
        ("POST", ":resume", None),
        ("POST", ":renew?lease=1", None),
    ]
    for method, verb, body in asks:
        for headers in ({}, {"If-Match": tag}, {"If-Match": "*"}, {"If-None-Match": tag}):
            known = api.ask(method, f"/v1/subscriptions/big{verb}", body, token=mine, headers=headers)
            unknown = api.ask(method, f"/v1/subscriptions/nosuch{verb}", body, token=mine, headers=headers)
            told = [{name: value for name, value in each.json.items() if name != "request_id"} for each in (known, unknown)]
            assert (known.status, told[0]) == (unknown.status, told[1]) == (404, told[1])
    for path in ("globex%00big", "%00globex%00big", "../globex/big", "big?tenant=globex", "*%00big"):
        assert api.ask("GET", f"/v1/subscriptions/{path}", token=mine).status in (403, 404)
    for tenant in ("globex", "*", "acme%00x"):
        for path in ("/v1/subscriptions", "/v1/subscriptions:export", "/v1/subscriptions/big"):
            assert api.ask("GET", f"{path}?tenant={tenant}", token=mine).kind == "not-allowed"
    assert api.ask("GET", "/v1/subscriptions?tenant=acme", token=mine).json["items"] == []
    assert api.ask("POST", "/v1/match", order(tenant="globex"), token=mine).json["matches"] == []
    assert api.ask("POST", "/v1/explain", {"id": "big", "event": json.loads(order())}, token=mine).kind == "unknown"
    named = b'{"id": "big", "tenant": "globex"}\n{"id": "all", "tenant": "*"}\n'
    partly = api.ask("POST", "/v1/subscriptions:import?partly=true", named, token=mine, headers=LINES)
    assert [each["result"] for each in partly.lines] == ["refused", "refused"]
    # One id of two tenants is two subscriptions.
    assert api.ask("PUT", "/v1/subscriptions/big", BIG, token=mine, headers={"If-None-Match": "*"}).status == 201
    assert api.ask("DELETE", "/v1/subscriptions/big", token=mine).status == 204
    assert api.ask("GET", "/v1/subscriptions/big", token=theirs).headers["etag"] == tag


def test_no_event_of_one_tenant_reaches_another(api: Api) -> None:
    """Subscriptions to everything, of three tenants with ids that look like one another's."""
    names = ("acme", "globex", "acme2")
    made = {name: api.make_token(name, "write") for name in names}
    for name, token in made.items():
        lines = b"".join(
            json.dumps({"id": f"{other}-{n}", "labels": {"of": name}}).encode() + b"\n" for other in names for n in range(3)
        )
        assert api.ask("POST", "/v1/subscriptions:import", lines, token=token, headers=LINES).status == 200
    rng = random.Random(7)
    sent = [rng.choice([*names, "nobody", "acme ", "ACME"]) for _ in range(2000)]
    api.read(*(order(number, tenant=tenant) for number, tenant in enumerate(sent)))
    messages = [json.loads(line) for line in (api.directory / "out.jsonl").read_bytes().splitlines()]
    assert len(messages) == 9 * sum(tenant in names for tenant in sent)
    assert {(each["tenant"], each["data"]["labels"]["of"]) for each in messages} == {(name, name) for name in names}


def test_an_administrator_names_the_tenant(api: Api) -> None:
    admin = api.make_token(None, "admin")
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    assert api.ask("GET", "/v1/subscriptions/big?tenant=acme", token=admin).status == 200
    assert api.ask("GET", "/v1/subscriptions/big", token=admin).status == 404
    assert api.ask("PUT", "/v1/subscriptions/all?tenant=*", BIG, token=admin).json["tenant"] == "*"
    api.read(order(1), order(2, tenant="globex"))
    assert sorted(api.delivered()) == ["all", "all", "big"]
    found = api.ask("POST", "/v1/match", order(tenant="acme"), token=admin).json["matches"]
    assert sorted((each["tenant"], each["id"]) for each in found) == [("*", "all"), ("acme", "big")]
    assert [each["id"] for each in api.ask("POST", "/v1/match", order()).json["matches"]] == ["big"]


def test_without_a_default_tenant_an_administrator_must_name_one(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, matching={"default_tenant": None}) as api:
        admin = api.make_token(None, "admin")
        assert api.ask("GET", "/v1/subscriptions", token=admin).kind == "bad-request"
        assert api.ask("GET", "/v1/subscriptions?tenant=a", token=admin).status == 200
        assert api.ask("PUT", "/v1/subscriptions/x", BIG).status == 201


def test_pages_of_other_sites_are_refused(tmp_path: Path, backend: str) -> None:
    section = {"hosts": ["Api.Example.com"], "origins": ["https://console.example.com"]}
    with running(tmp_path, dev=True, api=section) as api:
        # Without a token, what a browser on this machine sends is all that stands between a page and the API.
        for host in (
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "api.example.com.evil",
            "127.0.0.1@evil",
        ):
            assert api.ask("GET", "/v1/subscriptions", headers={"Host": host}, token="").kind in ("host", "bad-request"), host
        with socket.create_connection(("127.0.0.1", api.port), timeout=30) as probe:
            probe.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert b" 200 " in probe.recv(4096)
        for host in ("localhost:8474", "127.0.0.1", "[::1]:8474", "10.0.0.1", "API.example.com.:80", f"localhost:{api.port}"):
            assert api.ask("GET", "/v1/subscriptions", headers={"Host": host}, token="").status == 200, host
        for origin in (
            "https://evil.example",
            "null",
            "http://localhost:1",
            "https://console.example.com.evil",
            "http://console.example.com",
        ):
            assert api.ask("POST", "/v1/match", order(), headers={"Origin": origin}, token="").kind == "origin", origin
        for origin in ("https://console.example.com", f"http://127.0.0.1:{api.port}"):
            assert api.ask("POST", "/v1/match", order(), headers={"Origin": origin}, token="").status == 200, origin


def test_without_tokens_it_is_served_to_this_machine_alone(tmp_path: Path, backend: str) -> None:
    with (
        pytest.raises(BulkConfigError, match=r"api\.address: expected 127\.0\.0\.1"),
        running(tmp_path, dev=True, api={"address": "0.0.0.0"}),
    ):
        pass
    with running(tmp_path, dev=True) as api:
        assert api.ask("PUT", "/v1/subscriptions/big", BIG, token="").json["tenant"] == "default"
        assert api.ask("GET", "/v1/sources", token="").status == 200


def test_nothing_that_is_secret_is_in_the_log(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t-row"
    api.ask("PUT", f"/v1/subscriptions/{secret}", {"labels": {"a": secret}, "cel": f"data.a == '{secret}'"})
    api.ask("PUT", "/v1/subscriptions/x", {"cel": f"({secret}"})
    api.ask("GET", f"/v1/subscriptions?gateway={secret}")
    api.ask("GET", f"/v1/{secret}?tenant={secret}")
    api.ask("POST", "/v1/match", f'{{"data": {{"a": "{secret}"}}}}'.encode())
    api.ask("GET", "/v1/subscriptions", token=f"{api.token[:-1]}x")

    def broken(*_: object, **__: object) -> None:
        raise ValueError(secret)

    monkeypatch.setattr(type(api.service.engine), "match", broken)
    reply = api.ask("POST", "/v1/match", order())
    assert (reply.kind, secret in reply.body.decode()) == ("internal", False)
    until(lambda: caplog.text.count("GET /v1/subscriptions ") >= 2)
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "PUT /v1/subscriptions/{id} 201" in told
    assert "a request ended in ValueError" in told
    for text in (secret, api.token, api.token[14:]):
        assert text not in caplog.text


def test_a_token_is_told_whose_it_is(api: Api) -> None:
    told = api.ask("GET", "/v1/token", token=api.make_token("acme", "consume")).json
    assert (told["tenant"], told["scopes"]) == ("acme", ["consume"])
    assert set(told) == {"id", "name", "tenant", "scopes", "created", "expires"}


def test_a_token_is_written_to_a_new_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    def called(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "streamer", "tokens", *args, "--file", "t.json"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, umask=0o022)

    made = called("create", "--scope", "admin", "--output", "token")
    assert (made.returncode, made.stdout) == (0, "")
    text = (tmp_path / "token").read_text()
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert text.count("\n") == 1
    assert tokens.Tokens(tmp_path / "t.json").find(text.strip()) is not None
    again = called("create", "--scope", "admin", "--output", "token")
    assert again.returncode == 2
    assert "--output token: the file exists already" in again.stderr
    assert (tmp_path / "token").read_text() == text
    assert called("create", "--scope", "admin", "--output", "nosuch/token").returncode == 2
    assert called("create", "--scope", "admin", "--scope", "read", "--tenant", "acme", "--output", "other").returncode == 2
    assert not (tmp_path / "other").exists()
    assert len(tokens.read(tmp_path / "t.json")) == 1


def test_a_token_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokens.json"
    short, short_text = tokens.create(path, "acme", ("read",), lasts=timedelta(hours=1))
    _, long_text = tokens.create(path, "acme", ("read",))
    valid = tokens.Tokens(path)
    assert valid.find(short_text) == short
    assert valid.holds(short)
    now = tokens._now
    monkeypatch.setattr(tokens, "_now", lambda later=timedelta(): now(later + timedelta(minutes=61)))
    assert valid.find(short_text) is None
    assert not valid.holds(short)
    assert valid.find(long_text) is not None
    # A version without times of expiry reads the entry of a token that never expires.
    assert ["expires" in entry for entry in json.loads(path.read_text())["tokens"]] == [True, False]
    for lasts in (timedelta(0), timedelta(days=40_000)):
        with pytest.raises(ValueError, match="1 second to 100 years"):
            tokens.create(path, "acme", ("read",), lasts=lasts)


def test_an_administrator_sees_when_tokens_were_used(api: Api) -> None:
    admin = api.make_token(None, "admin")
    unused = tokens.create(api.directory / "tokens.json", "globex", ("read",), "robot", timedelta(days=1))[0]
    assert api.ask("GET", "/v1/subscriptions").status == 200
    by_id = {each["id"]: each for each in api.ask("GET", "/v1/tokens", token=admin).json["items"]}
    assert by_id[unused.id] == {
        "id": unused.id,
        "name": "robot",
        "tenant": "globex",
        "scopes": ["read"],
        "created": unused.created,
        "expires": unused.expires,
        "used": None,
    }
    assert all(each["used"] for name, each in by_id.items() if name != unused.id)


def test_the_audit_log_has_each_change_with_its_author_and_address(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"audit": {"file": str(tmp_path / "audit.jsonl")}}) as api:
        reader = api.make_token("acme", "read")
        assert api.ask("PUT", "/v1/subscriptions/a%2Fb", {"topic": "a"}, headers={"X-Request-Id": "r1"}).status == 201
        assert api.ask("DELETE", "/v1/subscriptions/c").status == 404
        assert api.ask("PUT", "/v1/subscriptions/c", {"topic": "a"}, token=reader).status == 403
        assert api.ask("POST", "/v1/match", order()).status == 200
        assert api.ask("GET", "/v1/subscriptions").status == 200
        assert api.ask("PUT", "/v1/subscriptions/c", {"topic": "a"}, token="none").status == 401
        api.service.reload()
        tokens.revoke(tmp_path / "tokens.json", reader.split("_")[1])
        assert api.ask("GET", "/v1/subscriptions").status == 200
        (tmp_path / "audit.jsonl").rename(tmp_path / "audit.1")
        assert api.ask("DELETE", "/v1/subscriptions/a%2Fb").status == 204
    (rotated,) = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (rotated["method"], rotated["status"]) == ("DELETE", 204)
    lines = [json.loads(line) for line in (tmp_path / "audit.1").read_text().splitlines()]
    put = lines[1]
    assert put.items() >= {"event": "change", "logger": "streamer.audit", "tenant": "acme", "method": "PUT"}.items()
    assert put.items() >= {"path": "/v1/subscriptions/a%2Fb", "status": 201, "peer": "127.0.0.1", "request_id": "r1"}.items()
    assert put["who"] == api.token.split("_")[1]
    assert [(line["event"], line.get("status")) for line in lines] == [
        ("token created", None),
        ("change", 201),
        ("change", 404),
        ("change", 403),
        ("reload", None),
        ("token revoked", None),
    ]
    assert api.token not in (tmp_path / "audit.1").read_text()


def test_an_audit_log_that_cannot_be_written_is_reported_at_the_start(tmp_path: Path, backend: str) -> None:
    with (
        pytest.raises(ServiceError, match=r"audit\.jsonl"),
        running(tmp_path, api={"audit": {"file": str(tmp_path / "gone" / "audit.jsonl")}}),
    ):
        pass
