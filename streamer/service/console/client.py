"""A client of the API in its own process: each call is an ordinary request, with the token of the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, final
from urllib.parse import quote, urlencode

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamer.service.api.calls import JSON
from streamer.service.api.routes import find

_PROBLEM: Final = "urn:streamer:problem:"

Query = Mapping[str, str | int | bool | None]


class Refused(Exception):
    """The API refused a request.

    Attributes:
        kind: the word of the problem, such as `precondition`.
        errors: the single errors, each with its place.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.kind = str(problem.get("type", "")).removeprefix(_PROBLEM)
        self.title, self.detail = str(problem.get("title", "")), str(problem.get("detail", ""))
        self.errors: list[Mapping[str, Any]] = list(problem.get("errors", ()))
        super().__init__(self.detail or self.title)


@final
@dataclass(frozen=True, slots=True)
class Reply:
    """A response of the API."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


def part(text: str) -> str:
    """Return a name escaped for a path of the API: `f"/v1/subscriptions/{part(id)}"`."""
    return quote(text, safe="")


@final
class Client:
    """Calls the API for one request of a browser.

    Args:
        scope: the browser's request, whose host name is used for the calls.
        token: the session's; None if the API needs none.
        tenant: the tenant for routes that need one; None for the token's own.
    """

    def __init__(self, api: ASGIApp, scope: Scope, token: str | None, tenant: str | None = None) -> None:
        self._api, self._scope, self._token, self._tenant = api, scope, token, tenant

    async def get(self, path: str, /, **query: str | int | bool | None) -> Any:
        """Return the parsed JSON of a response; a value None omits a parameter. Raises Refused."""
        return (await self.send("GET", path, query=query)).json

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request; a body that is not bytes is sent as JSON. Raises Refused if the API refuses it."""
        sent = {name.lower(): value for name, value in (headers or {}).items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("content-type", JSON)
        head: dict[str, Any] = {}
        pieces: list[bytes] = []

        async def take(message: Message) -> None:
            if message["type"] == "http.response.start":
                head["status"] = message["status"]
                head["headers"] = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            else:
                pieces.append(message.get("body", b""))

        await self._api(self._new_scope(method, path, query or {}, sent, body), _once(body or b""), take)
        reply = Reply(head["status"], head["headers"], b"".join(pieces))
        if reply.status >= 400:
            try:
                problem = reply.json
            except ValueError:
                problem = {}
            raise Refused(reply.status, problem)
        return reply

    async def pipe(self, path: str, query: Query, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        """Let the API answer the browser directly, piece by piece: a stream of events, a long download."""
        await self._api(self._new_scope("GET", path, query, headers, None), receive, send)

    def _new_scope(self, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes | None) -> Scope:
        params = {name: _written(value) for name, value in query.items() if value is not None}
        endpoint = find(path.encode())
        route = None if endpoint is None else endpoint.routes.get(method)
        if self._tenant is not None and route is not None and any(param.name == "tenant" for param in route.params):
            params.setdefault("tenant", self._tenant)
        hosts = [(name, value) for name, value in self._scope["headers"] if name == b"host"]
        sent = [*hosts, *((name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items())]
        if self._token is not None:
            sent.append((b"authorization", f"Bearer {self._token}".encode("latin-1", "replace")))
        if body is not None:
            sent.append((b"content-length", str(len(body)).encode()))
        return {
            **self._scope,
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(params).encode(),
            "headers": sent,
        }


def _written(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _once(body: bytes) -> Receive:
    is_sent = False

    async def receive() -> Message:
        nonlocal is_sent
        if is_sent:
            # A second call waits for a disconnect, which does not happen before the answer.
            await asyncio.Event().wait()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
