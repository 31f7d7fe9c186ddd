"""What a client may cost: slow and many connections, hostile bytes, sizes, depths; TLS; the end of the service."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from streamer.config.schema.api import Api as Section
from streamer.errors import ServiceError
from streamer.service.api.connections import Connection
from streamer.service.api.limits import Limits
from streamer.service.api.problems import Problem
from tests.service.api import BIG, LINES, Api, order, running, until

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

QUICK = {"head_time": "300ms", "body_time": "300ms", "idle_time": "1s"}


@pytest.fixture
def api(tmp_path: Path, backend: str) -> Iterator[Api]:
    with running(tmp_path) as api:
        yield api


def status(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1]) if reply else 0


def test_no_answer_waits_for_an_acknowledgement(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second answer on a connection waited 40 ms: its head was sent, and its body kept until the head was acknowledged."""
    seen: list[int] = []
    made = Connection.connection_made

    def look(self: Connection, transport: asyncio.Transport) -> None:
        seen.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(self, transport)

    monkeypatch.setattr(Connection, "connection_made", look)
    assert api.ask("GET", "/healthz").status == 200
    assert seen
    assert all(seen)


def test_more_connections_than_may_be_open_are_one_line_of_the_log_and_wait(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 0.05)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        # These connections need files of this process, too.
        most = max(int(name) for name in os.listdir("/proc/self/fd")) + 60
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
        with suppress(OSError):
            for _ in range(200):
                opened.enter_context(socket.create_connection(("127.0.0.1", api.port)))
        until(lambda: "cannot accept connections" in caplog.text)
        time.sleep(0.5)
        assert caplog.text.count("cannot accept connections, so clients wait: Too many open files") == 1
        assert "Traceback" not in caplog.text
    assert api.ask("GET", "/healthz").status == 200


def test_a_head_has_a_bound_however_it_comes(api: Api) -> None:
    def ask(path: str, pieces: int) -> int:
        text = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", api.port), timeout=30) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(pieces):
                connection.sendall(text[at * len(text) // pieces : (at + 1) * len(text) // pieces])
                time.sleep(0.02)
            return status(connection.recv(4096))

    for pieces in (1, 2):
        assert ask("/healthz?" + "x" * 17_000, pieces) == 400
        assert ask("/console/?" + "x" * 60_000, pieces) == 400
    assert ask("/v1/subscriptions/" + "x" * 15_000, 1) == 401


def test_a_request_that_the_end_cuts_off_is_no_fault(tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    held = threading.Event()
    with running(tmp_path) as api:
        assert api.service.subscriptions is not None
        own, begun = api.service.subscriptions, threading.Event()

        def get(*_: object) -> None:
            begun.set()
            held.wait(30)

        own.get = get  # type: ignore[method-assign,assignment]

        def ask() -> None:
            with suppress(OSError, HTTPException):
                api.ask("GET", "/v1/subscriptions/x")

        asking = threading.Thread(target=ask)
        asking.start()
        assert begun.wait(30)
    held.set()
    asking.join()
    assert "cut off by the end of the service" in caplog.text
    assert "Exception in ASGI" not in caplog.text


def test_methods_and_media_types_that_are_not_there_are_told(api: Api) -> None:
    reply = api.ask("OPTIONS", "/v1/subscriptions/x", token="")
    assert (reply.status, reply.headers["allow"], reply.body) == (204, "DELETE, GET, HEAD, OPTIONS, PUT", b"")
    for method in ("PATCH", "POST", "TRACE", "CONNECT", "PROPFIND"):
        refused = api.ask(method, "/v1/subscriptions/x") if method != "CONNECT" else None
        if refused is not None:
            assert (refused.kind, refused.headers["allow"]) == ("method", "DELETE, GET, HEAD, OPTIONS, PUT")
    assert api.ask("HEAD", "/v1/subscriptions/x:pause").status == 405
    for path in (
        "/",
        "/v1",
        "/v1/",
        "/v2/subscriptions",
        "/v1/subscriptions/",
        "/v1/subscriptions/a/b",
        "/v1//match",
        "/V1/match",
        "*",
    ):
        assert api.ask("GET", path).kind == "unknown", path
    assert api.ask("GET", "/v1/subscriptions", headers={"Accept": "text/html, application/xml;q=0.9"}).kind == "not-acceptable"
    assert api.ask("GET", "/v1/subscriptions", headers={"Accept": "application/json;q=0"}).kind == "not-acceptable"
    for accept in ("*/*", "text/html, */*;q=0.1", "application/*", "application/json; charset=utf-8", ""):
        assert api.ask("GET", "/v1/subscriptions", headers={"Accept": accept}).status == 200, accept
    body = json.dumps(BIG).encode()
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "json",
        "application/x-ndjson",
    ):
        assert api.ask("PUT", "/v1/subscriptions/x", body, headers={"Content-Type": kind}).kind == "media-type", kind
    assert api.ask("PUT", "/v1/subscriptions/x", body, headers={"Content-Encoding": "gzip"}).kind == "media-type"
    assert api.ask("PUT", "/v1/subscriptions/x", body, headers={"Content-Encoding": "identity"}).status == 201
    for header, value in (("cache-control", "no-store"), ("x-content-type-options", "nosniff")):
        assert api.ask("GET", "/v1/subscriptions/x").headers[header] == value


def test_a_body_has_a_bound(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"limits": {"body": 1000, "import_body": 2000}}) as api:
        assert api.ask("PUT", "/v1/subscriptions/x", b" " * 1001).kind == "too-long"
        assert api.ask("PUT", "/v1/subscriptions/x", json.dumps(BIG).encode().ljust(1000)).status == 201
        assert api.ask("POST", "/v1/subscriptions:import", b"\n" * 2000, headers=LINES).status == 200
        assert api.ask("POST", "/v1/subscriptions:import", b"\n" * 2001, headers=LINES).kind == "too-long"
        assert api.ask("GET", "/v1/subscriptions", b"x").kind == "too-long"
        # In pieces, of which no header says how long they are together.
        head = f"PUT /v1/subscriptions/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token}\r\n".encode()
        pieces = b"Transfer-Encoding: chunked\r\n\r\n" + b"64\r\n" + b"x" * 100 + b"\r\n"
        assert status(api.raw(head + pieces + (b"64\r\n" + b"x" * 100 + b"\r\n") * 10)) == 413


HOSTILE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\0" * 100,
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"GET /v1/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://evil.example/v1/match HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: \xff\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /v1/match HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]


@pytest.mark.parametrize("sent", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bytes_are_refused_and_the_server_goes_on(tmp_path: Path, backend: str, sent: bytes) -> None:
    with running(tmp_path, api={"limits": QUICK}) as api:
        try:
            reply = api.raw(sent)
        except ConnectionError:
            reply = b""  # it was closed before all of it was sent
        assert status(reply) in (0, 400, 401, 404, 405, 408, 421), reply[:200]
        if status(reply) == 400:
            assert b"application/problem+json" in reply
        assert api.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"G",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"PUT /v1/subscriptions/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nAuthorization: Bearer TOKEN\r\n\r\n{",
        b"PUT /v1/subscriptions/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea",
    ],
    ids=["nothing", "a byte", "half a head", "half a body", "a body that nobody reads", "idle", "half of another"],
)
@pytest.mark.parametrize("drips", [False, True])
def test_who_sends_nothing_or_a_byte_now_and_then_does_not_stay(tmp_path: Path, backend: str, sent: bytes, drips: bool) -> None:
    with running(tmp_path, api={"limits": QUICK | {"idle_time": "1s"}}) as api:
        with socket.create_connection(("127.0.0.1", api.port), timeout=10) as connection:
            connection.sendall(sent.replace(b"TOKEN", api.token.encode()))
            connection.settimeout(0.05)
            deadline = time.monotonic() + 6
            while True:
                assert time.monotonic() < deadline
                try:
                    if not connection.recv(65_536):
                        break
                except TimeoutError:
                    pass
                except ConnectionError:
                    break
                if drips and not sent.endswith(b"\r\n\r\n"):
                    try:
                        connection.sendall(b" " if b"\r\n\r\n" in sent else b"a")
                    except ConnectionError:
                        break
        until(lambda: len(api.door) == 0)


def test_who_reads_nothing_does_not_stay(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"limits": QUICK | {"idle_time": "500ms"}}) as api:
        lines = b"".join(
            json.dumps({"id": str(number), "topic": "a", "labels": {"a": "x" * 10_000}}).encode() + b"\n"
            for number in range(1500)
        )
        assert api.ask("POST", "/v1/subscriptions:import", lines, headers=LINES).status == 200
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", api.port))
            ask = f"GET /v1/subscriptions:export HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token}\r\n\r\n"
            connection.sendall(ask.encode())
            until(lambda: api.door.refused["unread"] == 1)
        # Who reads gets all of it.
        assert api.ask("GET", "/v1/subscriptions:export").body.count(b"\n") == 1500


async def crowd(api: Api, count: int, good: int) -> list[float]:
    """Open many connections that send half a head, byte by byte; return how long good requests took meanwhile."""
    opened: list[asyncio.StreamWriter] = []

    async def slow() -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", api.port)
                opened.append(writer)
                for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" * 100:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.5)
            except OSError:
                await asyncio.sleep(0.5)

    tasks = [asyncio.create_task(slow()) for _ in range(count)]
    await asyncio.sleep(1.5)
    took = []
    for _ in range(good):
        began = time.monotonic()
        reply = await asyncio.to_thread(api.ask, "GET", "/v1/subscriptions")
        assert reply.status == 200
        took.append(time.monotonic() - began)
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for writer in opened:
        writer.transport.abort()
    return took


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_slow_connections_do_not_keep_a_good_one_out(tmp_path: Path, backend: str, count: int) -> None:
    """More than there may be, of one peer: those that wait longest give way."""
    limits = {"connections": count // 2, "connections_of_a_peer": count // 2}
    with running(tmp_path, api={"limits": limits}) as api:
        took = sorted(asyncio.run(crowd(api, count, 20)))
        assert took[len(took) // 2] < 1, took
        assert took[-1] < 5, took


def test_requests_of_a_tenant_are_bounded_in_time(tmp_path: Path, backend: str) -> None:
    with running(tmp_path, api={"quotas": {"requests_a_second": 5}}) as api:
        other = api.make_token("globex", "read")
        replies = [api.ask("GET", "/v1/subscriptions") for _ in range(15)]
        refused = [reply for reply in replies if reply.status != 200]
        assert 2 <= len(refused) <= 5
        assert {(reply.kind, int(reply.headers["retry-after"]) >= 1) for reply in refused} == {("too-many", True)}
        assert api.ask("GET", "/v1/subscriptions", token=other).status == 200
        assert api.ask("GET", "/healthz").status == 200
        until(lambda: api.ask("GET", "/v1/subscriptions").status == 200)


def test_buckets_fill_again_and_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    section = Section.model_validate({"quotas": {"requests_a_second": 2}, "limits": {"requests": 1, "requests_of_a_token": 1}})
    limits = Limits(section, lambda: now[0])
    for _ in range(4):
        limits.take("a")
    with pytest.raises(Problem, match="2 times a second"):
        limits.take("a")
    now[0] = 0.5
    limits.take("a")
    with pytest.raises(Problem):
        limits.take("a")
    monkeypatch.setattr("streamer.service.api.limits._MOST", 10)
    for number in range(100):
        limits.take(str(number))
    assert len(limits._buckets) == 10
    with limits.of_token("t"), limits.of_all():
        with pytest.raises(Problem, match="1 requests at once"), limits.of_token("t"):
            pass
        with pytest.raises(Problem, match="too many requests"), limits.of_all():
            pass
        with limits.of_token("u"):
            pass
    with limits.of_token("t"), limits.of_all():
        pass


def test_a_port_that_is_taken_is_one_clear_error(tmp_path: Path, backend: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(ServiceError, match=r"api: cannot listen at 127\.0\.0\.1, port "),
            running(tmp_path, api={"port": taken.getsockname()[1]}),
        ):
            pass


def certificate(directory: Path, name: str) -> None:
    """Write a certificate of *name* and its key to `tls.pem` and `tls.key`."""
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    where = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-keyout", "new.key", "-out", "new.pem"]
    subprocess.run([*made, *where], cwd=directory, check=True, capture_output=True)
    (directory / "new.key").rename(directory / "tls.key")
    (directory / "new.pem").rename(directory / "tls.pem")


def shown(api: Api) -> bytes:
    """Return the certificate that the server shows."""
    return ssl.get_server_certificate(("127.0.0.1", api.port)).encode().strip()


def test_tls_shows_the_certificate_that_the_files_have_now(tmp_path: Path, backend: str) -> None:
    certificate(tmp_path, "one")
    tls = {"certificate": str(tmp_path / "tls.pem"), "key": str(tmp_path / "tls.key")}
    with running(tmp_path, api={"tls": tls}) as api:
        first = (tmp_path / "tls.pem").read_bytes().strip()
        assert shown(api) == first
        context = ssl.create_default_context(cafile=str(tmp_path / "tls.pem"))
        with (
            socket.create_connection(("127.0.0.1", api.port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tcp,
        ):
            tcp.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert tcp.recv(1000).startswith(b"HTTP/1.1 200")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection(("127.0.0.1", api.port)) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
            old.wrap_socket(plain)
        (tmp_path / "tls.pem").write_text("no certificate")
        time.sleep(1.5)
        assert shown(api) == first
        certificate(tmp_path, "two")
        second = (tmp_path / "tls.pem").read_bytes().strip()
        until(lambda: shown(api) == second)
        # What is no TLS is no request.
        assert status(api.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 0
    (tmp_path / "tls.key").write_text("none")
    with pytest.raises(ServiceError, match=r"api\.tls: "), running(tmp_path, api={"tls": tls}):
        pass


def test_a_client_that_goes_away_leaves_nothing(api: Api) -> None:
    for sent in (b"GET /v1/sub", b"PUT /v1/subscriptions/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"):
        with socket.create_connection(("127.0.0.1", api.port)) as connection:
            connection.sendall(sent)
            time.sleep(0.05)
    connection = HTTPConnection("127.0.0.1", api.port)
    for _ in range(3):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"status": "alive"}'
    connection.close()
    until(lambda: len(api.door) == 0)
    assert api.ask("GET", "/v1/subscriptions").status == 200


def test_requests_that_come_at_once_are_answered_in_turn(api: Api) -> None:
    head = f"Host: localhost\r\nAuthorization: Bearer {api.token}\r\n"
    body = json.dumps(BIG)
    put = f"PUT /v1/subscriptions/x HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}"
    gets = f"GET /v1/subscriptions/x HTTP/1.1\r\n{head}\r\n" * 20
    last = f"DELETE /v1/subscriptions/x HTTP/1.1\r\n{head}Connection: close\r\n\r\n"
    told = api.raw((put + gets + last).encode())
    assert (told.count(b"HTTP/1.1 201"), told.count(b"HTTP/1.1 200"), told.count(b"HTTP/1.1 204")) == (1, 20, 1)


def test_a_target_may_have_the_form_that_proxies_are_sent(api: Api) -> None:
    head = f"Host: localhost\r\nAuthorization: Bearer {api.token}\r\nConnection: close\r\n\r\n"
    for target, expected in (
        ("http://localhost/v1/subscriptions?x=1", 400),
        ("http://elsewhere/v1/subscriptions", 200),
        ("http://localhost", 404),
    ):
        assert status(api.raw(f"GET {target} HTTP/1.1\r\n{head}".encode())) == expected


def test_a_body_with_two_ends_is_refused_and_what_follows_is_no_request(api: Api) -> None:
    head = f"POST /v1/match HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token}\r\n"
    for framing in ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"):
        answer = api.raw(f"{head}{framing}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert status(answer) == 400
        assert answer.count(b"HTTP/1.1 ") == 1


def test_a_client_may_ask_whether_to_send_its_body(api: Api) -> None:
    head = "PUT /v1/subscriptions/x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", api.port), timeout=10) as connection:
        body = json.dumps(BIG).encode()
        connection.sendall(f"{head}Authorization: Bearer {api.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 201")
    # Without a token nobody wants it.
    assert status(api.raw(f"{head}Content-Length: 10\r\n\r\n".encode())) == 401


def test_who_looks_whether_it_is_well_waits_for_nobody(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, inside = threading.Event(), []

    def match(*_: object) -> None:
        inside.append(True)
        gate.wait(30)

    monkeypatch.setattr(type(api.service.engine), "match", match)
    other = api.make_token("acme", "read")
    asking = [
        threading.Thread(target=api.ask, args=("POST", "/v1/match", order()), kwargs={"token": token})
        for token in (api.token, other)
        for _ in range(8)
    ]
    for each in asking:
        each.start()
    until(lambda: len(inside) == len(asking))
    assert api.ask("POST", "/v1/match", order()).kind == "too-many"
    assert api.ask("GET", "/readyz", token="").status == 200
    gate.set()
    for each in asking:
        each.join()


KILLED = """\
sources: {orders: {type: file, path: in.jsonl}}
sinks: {out: {type: file, path: out.jsonl}}
service: {data_dir: data}
api: {port: 0, tokens: {file: tokens.json}, quotas: {requests_a_second: 100000}}
"""


@pytest.mark.slow
def test_what_was_answered_is_there_after_kill_9(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamer.service.api import tokens

    monkeypatch.setenv("STREAMER_BACKEND", backend)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    (tmp_path / "streamer.yaml").write_text(KILLED)
    (tmp_path / "in.jsonl").touch()
    _, token = tokens.create(tmp_path / "tokens.json", "acme", ("read", "write"))
    command = [sys.executable, "-m", "streamer", "serve", "-c", "streamer.yaml"]
    answered: dict[str, int | None] = {}

    def begin() -> tuple[subprocess.Popen[bytes], int]:
        (tmp_path / "log").write_bytes(b"")
        with open(tmp_path / "log", "ab") as log:
            process = subprocess.Popen(command, cwd=tmp_path, stderr=log)
        until(lambda: " started: " in (tmp_path / "log").read_text())
        told = [line for line in (tmp_path / "log").read_text().splitlines() if " api: http" in line]
        return process, int(told[0].rpartition(":")[2])

    for number in range(4):
        process, port = begin()
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        for name, value in answered.items():
            connection.request("GET", f"/v1/subscriptions/{name}", headers=headers)
            reply = connection.getresponse()
            body = reply.read()
            found = json.loads(body)["subscription"]["labels"]["n"] if reply.status == 200 else None
            assert found == value or (found == -1), (name, found, value)
        deadline = time.monotonic() + 0.3 + number * 0.2
        killed = False
        turn = 0
        while not killed:
            turn += 1
            name = str(turn % 20)
            value = None if turn % 7 == 3 and answered.get(name) is not None else 1000 * number + turn
            if time.monotonic() > deadline:
                # In the midst of a write.
                connection.request("PUT", "/v1/subscriptions/last", json.dumps({"labels": {"n": -1}}), headers)
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed = True
                continue
            if value is None:
                connection.request("DELETE", f"/v1/subscriptions/{name}", headers=headers)
            else:
                connection.request("PUT", f"/v1/subscriptions/{name}", json.dumps({"labels": {"n": value}}), headers)
            reply = connection.getresponse()
            reply.read()
            assert reply.status in (200, 201, 204)
            answered[name] = value
        connection.close()
    process, port = begin()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_events_are_matched_while_the_api_is_asked(api: Api) -> None:
    api.ask("PUT", "/v1/subscriptions/big", BIG)
    api.read(*(order(number) for number in range(2000)))
    assert len(api.delivered()) == 2000
