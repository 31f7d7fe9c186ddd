"""What is posted, how it is signed, and what each answer comes to."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import formatdate
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from streamer.config.secret import SecretValue
from streamer.errors import ConfigError, ServiceError
from streamer.service.connectors.protocols import Outcome
from streamer.service.connectors.webhook import endpoint as webhook
from streamer.service.connectors.webhook import guard
from streamer.service.connectors.webhook.endpoint import Webhook, _seconds
from streamer.service.connectors.webhook.guard import Guard, SocketAddress
from streamer.service.connectors.webhook.signing import signing_key
from streamer.service.delivery.spool.attempting import Attempting
from streamer.service.observed.attempts import Attempts
from tests.service.receiver import Receiver

SECRETS = ["whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2)]
ID, MESSAGE = "0123456789abcdef" * 2, b'{"specversion":"1.0","id":"x"}\n'
LOCAL = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


class Posting:
    """A webhook whose attempts a test waits for."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self.hook = Webhook(*arguments, **more)
        self._attempting = Attempting(lambda _: None, Attempts())

    def check(self) -> None:
        self.hook.check()

    def send(self, ids: Sequence[str], messages: Sequence[bytes]) -> Outcome:
        return self._attempting.once(self.hook, ids, messages)

    def close(self) -> None:
        self._attempting.end([self.hook])


@pytest.fixture
def posting() -> Iterator[Callable[..., Posting]]:
    """Make webhooks."""
    made: list[Posting] = []

    def posting(*arguments: Any, **more: Any) -> Posting:
        made.append(Posting(*arguments, **more))
        return made[-1]

    yield posting
    for each in made:
        each.close()


@pytest.fixture
def to(monkeypatch: pytest.MonkeyPatch, posting: Callable[..., Posting]) -> Callable[..., Posting]:
    """Make webhooks to a port of this machine."""
    for number, secret in enumerate(SECRETS):
        monkeypatch.setenv(f"HOOK{number}", secret)

    def to(port: int, path: str = "/", *, scheme: str = "http", **more: Any) -> Posting:
        return posting(f"{scheme}://localhost:{port}{path}", **({"guard": Guard(LOCAL), "timeout": 1.0} | more))

    return to


def test_a_request_is_signed_with_each_secret_as_standard_webhooks_say(receiver: Receiver, to: Callable[..., Posting]) -> None:
    hook = to(receiver.port, "/a/b?c=d", secrets=[SecretValue("env", "HOOK0"), SecretValue("env", "HOOK1")])
    assert hook.send([ID], [MESSAGE]).result == "delivered"
    (request,) = receiver.requests
    assert request.path == "/a/b?c=d"
    assert request.body == MESSAGE.rstrip(b"\n")
    assert request.headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["Host"] == f"localhost:{receiver.port}"
    assert request.headers["webhook-id"] == ID
    headers = dict(request.headers.items())
    for secret in SECRETS:
        # Another implementation than ours.
        Verifier(secret).verify(request.body, {name.lower(): value for name, value in headers.items()})
    with pytest.raises(Exception, match="No matching signature"):
        Verifier("whsec_" + base64.b64encode(b"\3" * 32).decode()).verify(
            request.body, {name.lower(): value for name, value in headers.items()}
        )


def test_without_a_secret_there_is_no_signature(receiver: Receiver, to: Callable[..., Posting]) -> None:
    to(receiver.port).send([ID], [MESSAGE])
    assert "webhook-signature" not in receiver.requests[0].headers


def test_a_batch_is_an_array_with_an_id_of_its_own(receiver: Receiver, to: Callable[..., Posting]) -> None:
    hook = to(receiver.port, in_batches=True, secrets=[SecretValue("env", "HOOK0")])
    for ids in (["a", "b"], ["a", "b"], ["a"]):
        assert hook.send(ids, [MESSAGE] * len(ids)).result == "delivered"
    one, again, other = receiver.requests
    assert one.headers["Content-Type"] == "application/cloudevents-batch+json; charset=utf-8"
    assert one.messages == [json.loads(MESSAGE)] * 2
    assert other.messages == [json.loads(MESSAGE)]
    assert one.headers["webhook-id"] == again.headers["webhook-id"] != other.headers["webhook-id"]


@pytest.mark.parametrize("secret", ["", "whsec_", "hunter2", "whsec_***", "whsec_" + "A" * 8, "whsec_" + "A" * 400])
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: str, tmp_path: Path, posting: Callable[..., Posting]) -> None:
    with pytest.raises(ConfigError) as refused:
        signing_key(secret)
    assert "A" * 8 not in str(refused.value)
    assert "hunter2" not in str(refused.value)
    (tmp_path / "secret").write_text(secret)
    hook = posting("https://example.com/", [SecretValue("file", str(tmp_path / "secret"))])
    with pytest.raises(ServiceError):
        hook.check()
    assert hook.send([ID], [MESSAGE]).code == "secret"


@pytest.mark.parametrize(
    ("status", "result"),
    [
        *((status, "delivered") for status in (200, 201, 202, 204, 299)),
        *((status, "never") for status in (400, 413, 415, 422)),
        *((status, "later") for status in (301, 302, 307, 308, 401, 403, 404, 405, 408, 409, 425, 429, 500, 502, 503, 504, 599)),
        (410, "gone"),
    ],
)
def test_each_status_comes_to_one_result(receiver: Receiver, to: Callable[..., Posting], status: int, result: str) -> None:
    receiver.answer = lambda _: (status, {"Location": f"http://127.0.0.1:{receiver.port}/elsewhere"})
    hook = to(receiver.port)
    outcome = hook.send([ID], [MESSAGE])
    assert (outcome.result, outcome.code) == (result, str(status))
    # No redirect was followed, and the connection is used again.
    assert hook.send([ID], [MESSAGE]).result == result
    assert [request.path for request in receiver.requests] == ["/", "/"]
    assert receiver.connections == 1


def test_retry_after_is_seconds_or_a_date(receiver: Receiver, to: Callable[..., Posting]) -> None:
    hook = to(receiver.port)
    for status, told, expected in ((429, "7", 7.0), (503, "0", 0.0), (503, "soon", None), (500, "7", None), (429, "-5", None)):
        receiver.answer = lambda _, told=told, status=status: (status, {"Retry-After": told})  # type: ignore[misc]
        assert hook.send([ID], [MESSAGE]).after == expected
    assert _seconds(formatdate(1000.0, usegmt=True), lambda: 940.0) == 60.0
    assert _seconds(formatdate(1000.0, usegmt=True), lambda: 2000.0) == 0.0
    assert _seconds("9" * 400) == 999_999_999.0


class Raw:
    """A server of which a test writes each byte, or lets it say nothing."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.taken = 0

        def run() -> None:
            while True:
                try:
                    connected, _ = self._listening.accept()
                except OSError:
                    return
                self.taken += 1
                threading.Thread(target=one, args=(connected,), daemon=True).start()

        def one(connected: socket.socket) -> None:
            with connected:
                try:
                    connected.recv(65_536)
                    serve(connected)
                except OSError:
                    pass

        threading.Thread(target=run, daemon=True).start()

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def raw() -> Iterator[Callable[[Callable[[socket.socket], None]], Raw]]:
    made: list[Raw] = []

    def raw(serve: Callable[[socket.socket], None]) -> Raw:
        made.append(Raw(serve))
        return made[-1]

    yield raw
    for each in made:
        each.close()


def drip(connected: socket.socket, text: bytes) -> None:
    for at in range(len(text)):
        connected.sendall(text[at : at + 1])
        time.sleep(0.1)


def flood(connected: socket.socket, head: bytes) -> None:
    connected.sendall(head)
    while True:
        connected.sendall(b"x" * 65_536)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("serve", "result", "code"),
    [
        (lambda connected: time.sleep(5), "later", "timeout"),
        (lambda connected: drip(connected, OK * 10), "later", "timeout"),
        (lambda connected: flood(connected, b""), "later", "bad_response"),
        (lambda connected: flood(connected, OK + b"X: "), "later", "bad_response"),
        (lambda connected: [connected.sendall(b"HTTP/1.1 100 Continue\r\n\r\n") for _ in range(10**6)], "later", "bad_response"),
        (lambda connected: connected.sendall(b"220 smtp.example ESMTP\r\n"), "later", "bad_response"),
        (lambda connected: connected.sendall(b"HTTP/1.1 abc no\r\n\r\n"), "later", "bad_response"),
        (lambda connected: None, "later", "connection"),
        # The head has told how it ended.
        (lambda connected: flood(connected, OK + b"\r\n"), "delivered", "200"),
        (lambda connected: flood(connected, OK + b"Content-Length: 99999999999\r\n\r\n"), "delivered", "200"),
        (
            lambda connected: (connected.sendall(OK + b"Content-Length: 50\r\n\r\n"), drip(connected, b"x" * 50)),
            "delivered",
            "200",
        ),
        (lambda connected: connected.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), "delivered", "200"),
        (lambda connected: connected.sendall(OK + b"Content-Length: 5\r\n\r\nx"), "delivered", "200"),
    ],
)
def test_no_response_takes_longer_or_more_than_it_may(
    raw: Callable[..., Raw], to: Callable[..., Posting], serve: Callable[[socket.socket], None], result: str, code: str
) -> None:
    server = raw(serve)
    hook = to(server.port)
    began = time.monotonic()
    outcome = hook.send([ID], [MESSAGE])
    assert (outcome.result, outcome.code) == (result, code)
    assert time.monotonic() - began < 3
    assert "x" * 10 not in outcome.reason
    assert "smtp" not in outcome.reason


def test_who_refuses_a_body_before_it_is_there_has_refused_it(raw: Callable[..., Raw], to: Callable[..., Posting]) -> None:
    def refuse(connected: socket.socket) -> None:
        connected.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connected.shutdown(socket.SHUT_RDWR)

    server = raw(refuse)
    outcome = to(server.port).send([ID], [b"x" * 50_000_000])
    assert (outcome.result, outcome.code, server.taken) == ("never", "413", 1)


def test_a_connection_that_was_closed_meanwhile_is_made_anew(raw: Callable[..., Raw], to: Callable[..., Posting]) -> None:
    server = raw(lambda connected: connected.sendall(OK + b"Content-Length: 0\r\n\r\n"))
    hook = to(server.port)
    for _ in range(3):
        assert hook.send([ID], [MESSAGE]).result == "delivered"
    assert server.taken == 3


def test_an_interim_response_is_no_answer_to_this_request_nor_its_answer_one_to_the_next(
    raw: Callable[..., Raw], to: Callable[..., Posting]
) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"

    def serve(connected: socket.socket) -> None:
        connected.sendall(hints * 2)
        time.sleep(0.1)
        connected.sendall(OK + b"Content-Length: 0\r\n\r\n")
        while (piece := connected.recv(65_536)) and b"POST" not in piece:
            pass  # the body of the first request
        connected.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")

    server = raw(serve)
    hook = to(server.port)
    assert [hook.send([ID], [MESSAGE]).code for _ in range(2)] == ["200", "500"]
    assert server.taken == 1


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 0\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        OK + b"Content-Length: 2\r\n\r\nokHTTP/1.1 410 Gone\r\n",
        OK + b"Content-Length: 0\r\n\r\n\0\0",
        OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_what_an_endpoint_says_besides_its_response_answers_no_other_request(
    raw: Callable[..., Raw], to: Callable[..., Posting], answer: bytes
) -> None:
    server = raw(lambda connected: (connected.sendall(answer), time.sleep(0.5)))
    hook = to(server.port)
    assert [hook.send([ID], [MESSAGE]).code for _ in range(2)] == ["200", "200"]
    assert server.taken == 2


def test_what_an_endpoint_says_while_nobody_asks_answers_no_request(raw: Callable[..., Raw], to: Callable[..., Posting]) -> None:
    def serve(connected: socket.socket) -> None:
        connected.sendall(OK + b"Content-Length: 0\r\n\r\n")
        time.sleep(0.1)
        connected.sendall(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
        time.sleep(0.5)

    server = raw(serve)
    hook = to(server.port)
    assert hook.send([ID], [MESSAGE]).code == "200"
    time.sleep(0.3)
    assert hook.send([ID], [MESSAGE]).code == "200"
    assert server.taken == 2


def test_a_response_may_come_in_pieces_with_a_body_of_any_kind(raw: Callable[..., Raw], to: Callable[..., Posting]) -> None:
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nyes\r\n2\r\n!!\r\n0\r\nX-After: 1\r\n\r\n"

    def serve(connected: socket.socket) -> None:
        while True:
            for at in range(len(chunked)):
                connected.sendall(chunked[at : at + 1])
            if not connected.recv(65_536):
                return

    server = raw(serve)
    hook = to(server.port)
    for _ in range(3):
        outcome = hook.send([ID], [MESSAGE])
        assert (outcome.result, outcome.said) == ("delivered", b"yes!!")
    assert server.taken == 1


def test_a_host_that_begins_no_tls_is_waited_for_as_long_as_a_connection_may_take(
    raw: Callable[..., Raw], to: Callable[..., Posting]
) -> None:
    server = raw(lambda connected: time.sleep(5))
    began = time.monotonic()
    assert to(server.port, scheme="https", connect_timeout=0.3).send([ID], [MESSAGE]).code == "timeout"
    assert time.monotonic() - began < 3


def test_a_name_that_takes_long_to_look_up_keeps_no_other_endpoint_waiting(receiver: Receiver) -> None:
    is_free = threading.Event()

    def stuck(host: str, port: int) -> list[SocketAddress]:
        is_free.wait(30)
        return []

    slow = Webhook("http://slow.example/", guard=Guard(LOCAL), resolve=stuck)
    fast = Webhook(f"http://localhost:{receiver.port}/", guard=Guard(LOCAL))
    answered: list[str] = []
    attempting = Attempting(lambda _: None, Attempts())
    waiting = threading.Thread(target=lambda: answered.append(attempting.once(slow, [ID], [MESSAGE]).code))
    waiting.start()
    try:
        assert attempting.once(fast, [ID], [MESSAGE]).result == "delivered"
        assert answered == []
        is_free.set()
        waiting.join(30)
        assert answered == ["forbidden_address"]
    finally:
        is_free.set()
        attempting.end([slow, fast])


def test_who_waits_for_an_attempt_is_told_that_the_service_ends() -> None:
    is_asked = threading.Event()

    class Never:
        def check(self) -> None:
            """All is well."""

        def close(self) -> None:
            """Nothing is open."""

        async def send(self, ids: Sequence[str], messages: Sequence[bytes]) -> Outcome:
            is_asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    attempting, told = Attempting(lambda _: None, Attempts()), []

    def ask() -> None:
        try:
            attempting.once(Never(), [ID], [MESSAGE])
        except ServiceError as error:
            told.append(str(error))

    waiting = threading.Thread(target=ask)
    waiting.start()
    assert is_asked.wait(30)
    attempting.end([])
    waiting.join(30)
    ask()
    assert told == ["the service is ending"] * 2


def test_an_endpoint_that_would_speak_something_else_is_left(raw: Callable[..., Raw], to: Callable[..., Posting]) -> None:
    def serve(connected: socket.socket) -> None:
        connected.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        connected.recv(65_536)
        connected.sendall(OK + b"Content-Length: 0\r\n\r\n")

    server = raw(serve)
    hook = to(server.port)
    assert [hook.send([ID], [MESSAGE]).code for _ in range(2)] == ["101", "101"]
    assert server.taken == 2


def test_an_endpoint_that_is_not_there_is_asked_later(to: Callable[..., Posting], posting: Callable[..., Posting]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    outcome = to(port).send([ID], [MESSAGE])
    assert (outcome.result, outcome.code) == ("later", "connection")
    assert posting("https://nosuch.invalid/").send([ID], [MESSAGE]).code == "unresolved"
    assert posting("https://" + "a" * 70 + ".invalid/").send([ID], [MESSAGE]).result == "later"


def test_a_name_is_resolved_once_and_the_address_that_was_judged_is_connected_to(
    receiver: Receiver, posting: Callable[..., Posting]
) -> None:
    """A name that is public when it is judged, and leads inside when it is connected to: DNS rebinding."""
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[SocketAddress]:
        asked.append(host)
        return [(socket.AF_INET, ("8.8.8.8" if len(asked) % 2 else "127.0.0.1", port))]

    hook = posting(f"http://rebinding.example:{receiver.port}/", guard=Guard(), resolve=rebinding, timeout=0.3)
    # The first answer is public, so that is where it connects to: nobody is there for us.
    assert hook.send([ID], [MESSAGE]).code in ("timeout", "connection")
    assert hook.send([ID], [MESSAGE]).code == "forbidden_address"
    assert asked == ["rebinding.example"] * 2
    assert receiver.connections == 0


def test_an_address_that_is_not_allowed_is_never_connected_to(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, posting: Callable[..., Posting]
) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for host in (
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "0",
    ):
        outcome = posting(f"http://{host}:{receiver.port}/", guard=Guard()).send([ID], [MESSAGE])
        assert outcome.code in ("forbidden_address", "unresolved"), host
    assert guard.resolve("127.0.0.1", 80) == [(socket.AF_INET, ("127.0.0.1", 80))]


def test_no_proxy_and_no_netrc_is_looked_for(
    receiver: Receiver, to: Callable[..., Posting], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (tmp_path / ".netrc").write_text("machine localhost login a password b\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert to(receiver.port).send([ID], [MESSAGE]).result == "delivered"
    assert "Authorization" not in receiver.requests[0].headers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for localhost, in one file."""
    place = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
            *("-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        ],
        cwd=place,
        check=True,
        capture_output=True,
    )
    (place / "both.pem").write_bytes((place / "cert.pem").read_bytes() + (place / "key.pem").read_bytes())
    return place / "both.pem"


def served(raw: Callable[..., Raw], authority: Path, newest: ssl.TLSVersion | None = None) -> Raw:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    if newest is not None:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = newest
    listening = raw(lambda connected: None)
    listening.close()
    plain = socket.create_server(("127.0.0.1", 0))
    listening.port = plain.getsockname()[1]
    listening._listening = plain

    def run() -> None:
        while True:
            try:
                connected, _ = plain.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connected,), daemon=True).start()

    def one(connected: socket.socket) -> None:
        with connected:
            try:
                with context.wrap_socket(connected, server_side=True) as secured:
                    while secured.recv(65_536):
                        secured.sendall(OK + b"Content-Length: 0\r\n\r\n")
            except OSError:
                pass

    threading.Thread(target=run, daemon=True).start()
    return listening


def test_tls_is_checked_for_the_name_and_by_the_certificates_that_are_trusted(
    raw: Callable[..., Raw], to: Callable[..., Posting], authority: Path, posting: Callable[..., Posting]
) -> None:
    server = served(raw, authority)
    hook = to(server.port, scheme="https", authority=authority)
    assert hook.send([ID], [MESSAGE]).result == "delivered"
    assert hook.send([ID], [MESSAGE]).result == "delivered"
    outcome = to(server.port, scheme="https").send([ID], [MESSAGE])
    assert (outcome.code, outcome.reason) == ("tls", "TLS: CERTIFICATE_VERIFY_FAILED")
    other = posting(f"https://127.0.0.1:{server.port}/", guard=Guard(LOCAL), authority=authority, timeout=1)
    assert other.send([ID], [MESSAGE]).code == "tls"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_tls_is_refused(raw: Callable[..., Raw], to: Callable[..., Posting], authority: Path) -> None:
    server = served(raw, authority, ssl.TLSVersion.TLSv1_1)
    assert to(server.port, scheme="https", authority=authority).send([ID], [MESSAGE]).result == "later"


def test_a_secret_that_was_changed_is_used_after_a_while(
    receiver: Receiver, to: Callable[..., Posting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRETS[0])
    hook = to(receiver.port, secrets=[SecretValue("file", str(path))])
    monkeypatch.setattr(webhook, "FRESH", 0.0)
    for secret in SECRETS:
        path.write_text(secret + "\n")
        hook.send([ID], [MESSAGE])
        request = receiver.requests[-1]
        Verifier(secret).verify(request.body, {name.lower(): value for name, value in request.headers.items()})


def test_what_the_guide_verifies_a_signature_with_does(receiver: Receiver, to: Callable[..., Posting]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    names: dict[str, Any] = {}
    exec(text.partition("<!-- file: verify.py -->\n```python\n")[2].partition("```")[0], names)
    to(receiver.port, secrets=[SecretValue("env", "HOOK0"), SecretValue("env", "HOOK1")]).send([ID], [MESSAGE])
    (request,) = receiver.requests
    headers = dict(request.headers.items())
    for secret in SECRETS:
        assert names["is_genuine"](secret, headers, request.body)
    assert not names["is_genuine"](SECRETS[0], headers, request.body + b" ")
    assert not names["is_genuine"](SECRETS[0], headers | {"webhook-timestamp": "1000"}, request.body)
