"""The application: authenticate a request, authorize it, apply limits; then run its handler, in a thread of a pool.

```
Host, Origin ─► route, method ─► token, scope, tenant ─► quotas ─► media types, query ─► body ─► handler
```

All code that may wait runs outside the event loop. The log contains only the method and the route of a request.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from streamer import logs
from streamer.config.schema.api import Api
from streamer.quiet import Quiet
from streamer.service.api import audit, problems
from streamer.service.api.calls import Answer, Call
from streamer.service.api.calls import answer as answer_of
from streamer.service.api.connections import Door
from streamer.service.api.limits import Limits
from streamer.service.api.live import Watched, Watcher
from streamer.service.api.oidc import Provider
from streamer.service.api.problems import MEDIA_TYPE, Problem, refuse_unknown
from streamer.service.api.route import Route
from streamer.service.api.routes import Endpoint, find
from streamer.service.api.streams import Stream, Streams, Wanted
from streamer.service.api.tokens import DEV, Token, Tokens
from streamer.service.tenants.loading import Loading

if TYPE_CHECKING:
    from streamer.service.api.handlers import Handlers

#: The path of the console.
CONSOLE: Final = "/console"
#: The bytes around the name and the value of a header.
_AROUND: Final = len(": \r\n")
#: The interval between log lines about requests that cannot be served, in seconds.
_INTERVAL: Final = 10.0
#: Threads that answer. Most of their work releases the GIL, or waits for a disk.
_THREADS: Final = 16
#: Threads that check tokens of an identity provider, whose keys they may wait for.
_CHECKS: Final = 4
#: Threads for routes without a token, so that health checks do not wait for imports.
_PROBES: Final = 2
_LOGGER: Final = logging.getLogger("streamer.service.api")
#: No space, quote or control character, so that it stays one word of a log line.
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=@~-]{1,128}")
_HEEDED: Final = ("if-match", "if-none-match", "last-event-id")
#: Parts of a request that only the audit log has.
_AUDITED: Final = ("who", "tenant", "path")
#: Responses must not be cached, or interpreted as another media type.
_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class Opened(NamedTuple):
    """What an application serves once the service runs."""

    handlers: Handlers
    streams: Streams


@final
class App:
    """The API as ASGI. One event loop uses it.

    Until `open` is called, it reports that the service is loading.

    Args:
        tokens: the tokens and their rights; None if every caller may do all.
        loading: the progress of the start.

    Attributes:
        door: the connections of requests.
        counts: requests answered, by route and status.
        console: answers below `/console`, if the configuration enables it.
    """

    def __init__(self, section: Api, tokens: Tokens | None, loading: Loading) -> None:
        self._loading = loading
        self._opened: Opened | None = None
        self._pool = ThreadPoolExecutor(_THREADS, "streamer-api")
        self._probes = ThreadPoolExecutor(_PROBES, "streamer-probe")
        self._checks = ThreadPoolExecutor(_CHECKS, "streamer-token")
        self.door = Door(section.limits)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.console: ASGIApp | None = None
        #: Limits log lines about requests that cannot be served, and counts the suppressed ones.
        self._quiet = Quiet(_INTERVAL)
        self._is_served = False
        self.take(section, tokens)

    def take(self, section: Api, tokens: Tokens | None, provider: Provider | None = None) -> None:
        """Apply a section from the next request on; only while no event loop uses it."""
        self._section, self._tokens, self._provider = section, tokens, provider
        self._take_opened()
        self._limits = Limits(section)
        self._names = {"localhost", section.address.lower(), *(name.lower() for name in section.hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in section.origins}
        self.door.limits = section.limits

    def _take_opened(self) -> None:
        if self._opened is not None:
            self._opened.streams.take(self._section, self._tokens)
            self._opened.handlers.watchers.tokens = self._tokens

    def open(self, opened: Opened) -> None:
        """Serve all routes from the next request on. Called on the event loop, or while there is none."""
        self._opened = opened
        self._take_opened()
        if self._is_served:
            opened.streams.begin()

    @property
    def _handlers(self) -> Handlers:
        assert self._opened is not None
        return self._opened.handlers

    @property
    def streams(self) -> Streams:
        """The streams of matches, once it is open."""
        assert self._opened is not None
        return self._opened.streams

    def begin(self) -> None:
        """Begin on the running loop."""
        self._is_served = True
        if self._opened is not None:
            self._opened.streams.begin()

    def end(self) -> None:
        """End all streams and watchers."""
        self._is_served = False
        if self._opened is not None:
            self._opened.streams.end()
            self._opened.handlers.watchers.end()

    def close(self) -> None:
        """Begin no more work."""
        for pool in (self._pool, self._probes, self._checks):
            pool.shutdown(wait=False, cancel_futures=True)
        if self._opened is not None:
            self._opened.streams.close()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        if logs.field("request_id") is not None:
            # A page of the console asks on behalf of the request of a browser.
            await self._called(scope, receive, send)
            return
        request_id = _request_id(scope)

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"x-request-id", request_id.encode())]}
            await send(message)

        with logs.about(request_id=request_id):
            try:
                await self._called(scope, receive, named)
            except asyncio.CancelledError:
                # The service ended during the request. uvicorn would log this as a fault.
                _LOGGER.warning("a request was cut off by the end of the service")

    async def _called(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        request, began = Request(scope, receive), time.perf_counter()
        noted: MutableMapping[str, str] = {"route": "-", "token": "-"}
        if self._opened is not None and self.console is not None and scope["path"].startswith(CONSOLE):
            await self._show(request, send)
            return
        try:
            answer = await self._answer(request, noted)
        except ClientDisconnect:
            return
        except Exception as error:
            answer = self._refusal(error)
        headers = {**_HEADERS, **answer.headers}
        response: Response
        if isinstance(answer.body, Stream | Watcher):
            self.counts[noted["route"], str(answer.status)] += 1
            kind = {"content-type": answer.media_type, "x-accel-buffering": "no"}
            await answer.body.serve(receive, send, answer.status, {**headers, **kind})
            return
        assert not isinstance(answer.body, Wanted | Watched)
        if isinstance(answer.body, bytes):
            response = Response(answer.body, answer.status, headers, _with_charset(answer.media_type))
            if answer.status in (204, 304):
                del response.headers["content-type"]
        else:
            response = StreamingResponse(self._pieces(answer.body), answer.status, headers, _with_charset(answer.media_type))
        if not noted.get("body"):
            # The connection closes without waiting for the unread rest.
            response.headers["connection"] = "close"
        self.counts[noted["route"], str(answer.status)] += 1
        try:
            await response(scope, receive, send)
        finally:
            # A client that disconnects has changed something, too.
            if "who" in noted:
                peer = None if request.client is None else request.client.host
                about = {name: noted.get(name) for name in _AUDITED}
                audit.record("change", **about, method=request.method, status=answer.status, peer=peer)
        took = (time.perf_counter() - began) * 1000
        method = request.method if request.method.isalpha() and len(request.method) < 10 else "-"
        fields = {"method": method, "status": answer.status, "ms": round(took, 1)}
        fields |= {name: value for name, value in noted.items() if value != "-" and name not in _AUDITED}
        _LOGGER.debug("%s %s %d %.1f ms, token %s", method, noted["route"], answer.status, took, noted["token"], extra=fields)

    async def _show(self, request: Request, send: Send) -> None:
        """Answer with a page of the console, which calls this application on behalf of the signed-in user."""
        page: ASGIApp = self.console  # type: ignore[assignment]
        try:
            self._check_head(request)
        except Problem as problem:
            refusal = {**_HEADERS, "connection": "close"}
            page = Response(problem.body(logs.field("request_id")), problem.status, refusal, MEDIA_TYPE)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.counts[f"{CONSOLE}/", str(message["status"])] += 1
            await send(message)

        await page(request.scope, request.receive, counted)

    def _refusal(self, error: Exception) -> Answer:
        problem = problems.of(error)
        if problem is None:
            # The text of an error may quote the request.
            where = "".join(traceback.format_tb(error.__traceback__))
            _LOGGER.error("a request ended in %s", type(error).__name__, extra={"traceback": where})
            problem = Problem("internal", "see the log for details")
        elif problem.kind == "unavailable" and (count := self._quiet.due()) is not None:
            # On a full disk, each request of every client ends this way.
            _LOGGER.error("%s%s", error, f" ({count:,} requests so far)" if count > 1 else "")
        return Answer(problem.body(logs.field("request_id")), problem.status, MEDIA_TYPE, problem.headers)

    async def _pieces(self, body: Iterator[bytes]) -> Any:
        loop = asyncio.get_running_loop()
        take = partial(copy_context().run, next, body, None)
        while (piece := await loop.run_in_executor(self._pool, take)) is not None:
            yield piece

    # Checks, from the outside in

    async def _answer(self, request: Request, noted: MutableMapping[str, str]) -> Answer:
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        if not has_body or request.headers.get("content-length") == "0":
            noted["body"] = "none"
        if "content-length" in request.headers and "transfer-encoding" in request.headers:
            # A proxy may use the other header for the end of the body (RFC 9112, 6.1).
            raise Problem("bad-request", "Content-Length and Transfer-Encoding: expected one of them")
        self._check_head(request)
        if self._opened is None:
            return self._while_loading(request, noted)
        endpoint = find(_raw_path(request))
        if endpoint is None:
            raise Problem("unknown", "there is no such path; /v1/openapi.json lists those that there are")
        noted["route"] = endpoint.path
        allowed = {"Allow": ", ".join(endpoint.methods)}
        if request.method == "OPTIONS":
            return Answer(status=204, headers=allowed)
        route = endpoint.routes.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            raise Problem("method", f"there are {allowed['Allow']}", headers=allowed)
        if route.scope is None:
            return await self._handled(request, endpoint, route, DEV, None, noted)
        token = await self._token(request)
        noted["token"] = token.id
        if route.is_change:
            noted["who"], noted["path"] = token.who, _raw_path(request).decode("latin-1")
        if route.scope != "any" and not token.may(route.scope):
            raise Problem("not-allowed", f"it needs the scope {route.scope}")
        self._limits.take(token.tenant)
        with self._limits.of_token(token.id):
            return await self._handled(request, endpoint, route, token, token.tenant, noted)

    def _while_loading(self, request: Request, noted: MutableMapping[str, str]) -> Answer:
        """Answer a request while the service loads its subscriptions: with its health and its progress, or not at all."""
        path = _raw_path(request)
        if request.method in ("GET", "HEAD") and path in (b"/healthz", b"/readyz"):
            noted["route"] = path.decode()
            if path == b"/healthz":
                return answer_of({"status": "alive"})
            return answer_of({"status": "loading", "reason": "loading", **self._loading.members()}, 503)
        raise Problem("loading", "it loads its subscriptions; /readyz reports how far it is", headers={"Retry-After": "5"})

    async def _handled(
        self,
        request: Request,
        endpoint: Endpoint,
        route: Route,
        token: Token,
        tenant: str | None,
        noted: MutableMapping[str, str],
    ) -> Answer:
        query = _query(request, route)
        if (named := query.pop("tenant", None)) is not None:
            if tenant not in (None, named):
                raise Problem("not-allowed", "tenant: the token is another tenant's")
            tenant = named
        elif route.is_of_a_tenant and tenant is None:
            tenant = self._handlers.default_tenant
        if tenant is not None:
            noted["tenant"] = tenant
        call = Call(
            route=route.path,
            path={name: _decoded(value) for name, value in endpoint.values.items()},
            query=query,
            headers={name: value for name in _HEEDED if (value := _joined(request, name)) is not None},
            answer_type=_answer_type(request, route),
            media_type=_media_type(request, route),
            body=await self._body(request, route, noted),
            token=token,
            tenant=tenant,
        )
        if route.scope is None:
            return await self._run(route, call)
        with self._limits.of_all():
            answer = await self._run(route, call)
        if request.method == "HEAD" and isinstance(answer.body, Wanted | Watched):
            return replace(answer, body=b"")
        if isinstance(answer.body, Wanted):
            return replace(answer, body=self.streams.open(answer.body, token, call.tenant))
        if isinstance(answer.body, Watched):
            return replace(answer, body=self._handlers.watchers.open(answer.body, token))
        return answer

    async def _run(self, route: Route, call: Call) -> Answer:
        handle = self._handlers.find(route.handler)
        pool = self._probes if route.scope is None else self._pool
        # A thread of the pool logs with the id of the request.
        answer: Answer = await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, handle, call)
        return answer

    async def _body(self, request: Request, route: Route, noted: MutableMapping[str, str]) -> bytes:
        limits = self._section.limits
        most = 0 if route.body is None else limits.import_body if route.is_import else limits.body
        body = await whole_body(request, most, limits.body_time)
        noted["body"] = "read"
        return body

    def _check_head(self, request: Request) -> None:
        """Refuse a head that is too long, and requests of other sites' pages: those with an unknown host, or a foreign origin."""
        scope = request.scope
        head = sum(len(name) + len(value) + _AROUND for name, value in scope["headers"])
        # The parser bounds a head that arrives in several pieces; one that arrives whole can have any length.
        if head + len(scope["raw_path"]) + len(scope["query_string"]) > self._section.limits.head:
            raise Problem("bad-request", f"the head of a request may have {self._section.limits.head:,} bytes")
        hosts = request.headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        name = _without_port(host)
        # A request without Host is HTTP/1.0, from a load balancer's probe, and not from a browser.
        if hosts and name not in self._names and not _is_address(name):
            raise Problem("host", "Host: expected an address, or a name of api.hosts")
        origins = [origin.lower() for origin in request.headers.getlist("origin")]
        own = f"{request.url.scheme}://{host}"
        if any(origin not in self._origins and origin != own for origin in origins):
            raise Problem("origin", "Origin: expected the server's own, or one of api.origins")

    async def _token(self, request: Request) -> Token:
        if self._tokens is None:
            return DEV
        headers = request.headers.getlist("authorization")
        kind, _, text = (headers[0] if len(headers) == 1 else "").partition(" ")
        text = text.strip()
        token = None
        if kind.lower() == "bearer" and text.isascii():
            if self._provider is not None and self._provider.looks_so(text):
                token = await asyncio.get_running_loop().run_in_executor(self._checks, self._provider.find, text)
            else:
                token = self._tokens.find(text)
        if token is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="streamer"'}
            raise Problem("no-token", "expected Authorization: Bearer and a token that is in force", headers=challenge)
        return token


async def whole_body(request: Request, most: int, time: timedelta) -> bytes:
    """Return the body of a request. Raises Problem: it is longer than *most*, or takes longer than *time*."""
    what = f"a body has at most {most:,} bytes here"
    length = request.headers.get("content-length")
    if length is not None and int(length) > most:
        raise Problem("too-long", what)
    body = bytearray()
    try:
        async with asyncio.timeout(time.total_seconds()):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise Problem("too-long", what)
    except TimeoutError:
        raise Problem("too-slow", "the body did not come in time") from None
    return bytes(body)


def _request_id(scope: AsgiScope) -> str:
    """Return the id that a request carries, if it is a short word; else a new one."""
    ids = [value for name, value in scope["headers"] if name == b"x-request-id"]
    if len(ids) == 1 and _REQUEST_ID.fullmatch(ids[0]):
        return bytes(ids[0]).decode()
    return secrets.token_hex(8)


def _raw_path(request: Request) -> bytes:
    raw: bytes = request.scope.get("raw_path") or b""
    path = raw.partition(b"?")[0]
    if not path.startswith(b"/") and b"://" in path:
        # A target may be in the absolute form for proxies (RFC 9112, 3.2.2); the header Host defines the host.
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path


def _decoded(value: bytes) -> str:
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise Problem("bad-request", "the path is not UTF-8") from None


def _query(request: Request, route: Route) -> dict[str, Any]:
    text: bytes = request.scope["query_string"]
    try:
        pairs = parse_qsl(
            text.decode("ascii"), keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=20
        )
    except ValueError:
        raise Problem("bad-request", "the query is none: expected names and values, in UTF-8") from None
    values: dict[str, Any] = {}
    known = {param.name: param for param in route.params}
    for name, value in pairs:
        refuse_unknown([name], tuple(known), "parameter")
        if name in values:
            raise Problem("bad-request", f"{name}: it stands here twice")
        values[name] = known[name].read(value)
    return values


def _joined(request: Request, name: str) -> str | None:
    values = request.headers.getlist(name)
    return ", ".join(values) if values else None


def _answer_type(request: Request, route: Route) -> str:
    """Return the media type of the answer. Raises Problem if none of the accepted types is available."""
    accepted = _joined(request, "accept")
    if accepted is None or not accepted.strip():
        return route.produces
    for part in accepted.split(","):
        wanted, *params = (each.strip().lower() for each in part.split(";"))
        if any(param.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for param in params):
            continue
        kind = route.produces.partition("/")[0]
        if wanted in (route.produces, f"{kind}/*", "*/*"):
            return route.produces
    raise Problem("not-acceptable", f"there is {route.produces}")


def _media_type(request: Request, route: Route) -> str:
    """Return the media type of the body. Raises Problem if the route does not read it."""
    encodings = request.headers.getlist("content-encoding")
    if any(encoding.strip().lower() not in ("", "identity") for encoding in encodings):
        raise Problem("media-type", "Content-Encoding: bodies are not compressed")
    headers = request.headers.getlist("content-type")
    if route.body is None or not headers:
        return route.consumes[0] if route.consumes else ""
    kind, *params = (each.strip().lower() for each in headers[0].split(";"))
    charsets = [param for param in params if param.startswith("charset=")]
    if len(headers) > 1 or kind not in route.consumes or any(each.strip('"') not in _UTF_8 for each in charsets):
        raise Problem("media-type", f"Content-Type: expected {' or '.join(route.consumes)}, in UTF-8")
    return kind


_UTF_8: Final = ("charset=utf-8", "charset=utf8", 'charset="utf-8')


def _with_charset(media_type: str) -> str:
    return f"{media_type}; version=0.0.4; charset=utf-8" if media_type == "text/plain" else media_type


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
