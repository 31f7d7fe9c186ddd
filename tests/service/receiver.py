"""An endpoint of webhooks in the test's own process: what it was sent, and what it answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request."""

    path: str
    headers: Message
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def messages(self) -> list[Any]:
        """The messages of its body, one or an array."""
        told = json.loads(self.body)
        return told if isinstance(told, list) else [told]


#: A status, or one with headers.
Answer = int | tuple[int, Mapping[str, str]]


class Receiver:
    """Listens on loopback. `answer` decides what each request is told; by default all is well."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Answer] = lambda _: 204
        self.said = b""  # the body of what is no 204
        self.connections = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = Request(self.path, self.headers, body)
                told = outer.answer(request)
                outer.requests.append(request)
                status, headers = told if isinstance(told, tuple) else (told, {})
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(outer.said)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(outer.said)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """A client that was killed is no error."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=hidden"

    def sink(self, **more: Any) -> dict[str, Any]:
        """Return a section that posts to it."""
        own = {"type": "webhook", "url": self.url, "allow_http": True, "ports": [self.port], "networks": ["127.0.0.0/8"]}
        return own | more

    @property
    def messages(self) -> list[Any]:
        """All messages that it was sent and took or not."""
        return [message for request in list(self.requests) for message in request.messages]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
