"""The pages as ASGI: check the session, check that a form belongs to it, then run the page, with restrictive headers.

```
/console/static/…   no session
/console/sign-in    a token, or the code of a link ──► cookie
/console/PAGE       cookie ──► session ──► GET: page   POST: anti-forgery value ──► the action ──► 303
                       └ no session, or an invalid token: sign-in, and back to the page
```

The API, which runs first, has checked Host and Origin. The pages use the service only through the API.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import MutableMapping
from functools import partial
from typing import Any, Final, final
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamer.config.schema.api import Api
from streamer.service.api.app import CONSOLE, whole_body
from streamer.service.api.problems import Problem
from streamer.service.api.tokens import DEV, Token
from streamer.service.console.client import Client, Refused
from streamer.service.console.pages import BY_PATH, VIEWS
from streamer.service.console.sessions import LASTS, Session, Sessions, Who
from streamer.service.console.templates import STATIC, VERSION_OF_STATIC, render
from streamer.service.console.visit import Piped, Sent, Shown, View, Visit

_HOME: Final = f"{CONSOLE}/"
_SIGN_IN: Final = f"{CONSOLE}/sign-in"
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind} 'self'" for kind in ("style-src", "script-src", "img-src", "connect-src", "form-action")),
        *(f"{kind} 'none'" for kind in ("base-uri", "frame-ancestors")),
    )
)
HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # A form proves its site by its origin, which `no-referrer` would remove.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
#: The most fields of a form.
_MOST_FIELDS: Final = 1000
_MOST_TENANT: Final = 500
_FORM: Final = "application/x-www-form-urlencoded"
_LOGGER: Final = logging.getLogger("streamer.service.console")


class Apart(Exception):
    """The user must sign in first."""


@final
class Console:
    """The console as ASGI. The API's event loop uses it.

    Args:
        api: the application that pages call.
        lent: the valid tokens that are not in a file, by id.
        dev: whether the API is served without tokens.
    """

    def __init__(self, api: ASGIApp, section: Api, lent: MutableMapping[str, Token], *, dev: bool) -> None:
        self._api, self._section, self._dev = api, section, dev
        self.sessions = Sessions(lent)

    def take(self, section: Api) -> None:
        """Apply a section from the next request on."""
        self._section = section

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except ClientDisconnect:
            return
        except Problem as problem:
            answer = await self._failed(problem.status, problem.title, problem.detail)
        except Exception as error:
            # The text of an error may quote a page.
            where = "".join(traceback.format_tb(error.__traceback__))
            _LOGGER.error("a page ended in %s", type(error).__name__, extra={"traceback": where})
            answer = await self._failed(500, "An error of the console", "see the log for details")
        if isinstance(answer, tuple):
            client, piped = answer
            await self._pipe(client, piped, request, send)
            return
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        if request.method != "POST" and ("content-length" in request.headers or "transfer-encoding" in request.headers):
            # The connection closes without waiting for the unread rest.
            answer.headers["connection"] = "close"
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response | tuple[Client, Piped]:
        path = str(request.scope["path"]).removeprefix(CONSOLE)
        if path == "":
            return _to(_HOME)
        if path.startswith("/static/"):
            return _static(request, path.removeprefix("/static/"))
        if request.method not in ("GET", "HEAD", "POST"):
            return await self._failed(405, "There is no such method here", "a page is read by GET, and a form sent by POST")
        form = await self._form(request) if request.method == "POST" else None
        match path:
            case "/sign-in":
                return await self._sign_in(request, form)
            case "/sign-out" | "/tenant" if form is None:
                return _to(_HOME)
        try:
            return await self._signed_in(request, path.removeprefix("/"), form)
        except Apart:
            back = _back(request) if form is not None else f"{request.url.path}?{request.url.query}".rstrip("?")
            response = _to(f"{_SIGN_IN}?next={quote(back)}")
            response.delete_cookie(_cookie(request), path=CONSOLE, httponly=True, samesite="strict")
            return response

    # Signing in

    async def _sign_in(self, request: Request, form: dict[str, str] | None) -> Response:
        back = _safe(request.query_params.get("next", "") if form is None else form.get("next", ""))
        if self._dev:
            return _to(back)
        values: dict[str, Any] = {"next": back, "code": request.query_params.get("code", ""), "wrong": ""}
        if form is None:
            return await self._page("sign_in.html", values)
        if "code" in form:
            token = self.sessions.lend(form["code"])
            wrong = "The link was used already, or is older than 10 minutes. Sign in with a token."
        else:
            token, wrong = form.get("token", "").strip(), "This token is invalid."
        who = None if not token else await self._whose(request, token)
        if who is None:
            return await self._page("sign_in.html", {**values, "code": "", "wrong": wrong}, 403)
        return self._begun(request, who, token, _to(back))

    async def _whose(self, request: Request, token: str | None) -> Who | None:
        try:
            rights = await Client(self._api, request.scope, token).get("/v1/token")
        except Refused as refused:
            if refused.kind == "no-token":
                return None
            raise Problem(refused.kind or "internal", refused.detail) from None
        return Who(rights["id"], rights["name"], rights["tenant"], tuple(rights["scopes"]))

    def _begun(self, request: Request, who: Who, token: str | None, response: Response) -> Response:
        """Begin a session, and set its cookie on a response."""
        if before := request.cookies.get(_cookie(request)):
            self.sessions.end(before)
        cookie, _ = self.sessions.begin(who, token)
        self._set(request, response, cookie)
        return response

    @staticmethod
    def _set(request: Request, response: Response, cookie: str) -> None:
        # A proxy may use TLS with the browser; the origin of the form shows that.
        is_tls = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
        response.set_cookie(
            _cookie(request), cookie, max_age=LASTS, path=CONSOLE, secure=is_tls, httponly=True, samesite="strict"
        )

    # Signed in

    async def _signed_in(self, request: Request, path: str, form: dict[str, str] | None) -> Response | tuple[Client, Piped]:
        cookie = request.cookies.get(_cookie(request), "")
        session, made = self.sessions.find(cookie), None
        if session is None and self._dev and form is None:
            # Without sign-in, the session still protects forms against those of other sites.
            made, session = self.sessions.begin(Who(DEV.id, DEV.name, DEV.tenant, DEV.scopes), None)
        if session is None:
            raise Apart
        if form is not None and not session.made(form.pop("form", "")):
            title = "This form is not of your session"
            return await self._failed(403, title, "You have signed in again since the page was shown: open it again.", session)
        match path:
            case "sign-out":
                self.sessions.end(cookie)
                response = _to(_SIGN_IN)
                response.delete_cookie(_cookie(request), path=CONSOLE, httponly=True, samesite="strict")
                return response
            case "tenant":
                assert form is not None
                if session.who.tenant is None:
                    session.tenant = form.get("tenant", "").strip()[:_MOST_TENANT] or None
                return _to(_safe(form.get("next", "")))
        try:
            answer = await self._visited(request, session, path, form)
        except Refused as refused:
            if refused.kind == "no-token":
                self.sessions.end(cookie)
                raise Apart from None
            answer = await self._failed(refused.status, refused.title, refused.detail, session, refused.errors)
        if made is not None and isinstance(answer, Response):
            self._set(request, answer, made)
        return answer

    async def _visited(
        self, request: Request, session: Session, path: str, form: dict[str, str] | None
    ) -> Response | tuple[Client, Piped]:
        view = BY_PATH.get(path)
        if form is None and view is not None and not view.path and not session.who.may(view.scope):
            first = next((each for each in VIEWS if each.is_listed and session.who.may(each.scope)), None)
            return _to(f"{_HOME}{first.path}") if first is not None else await self._page("nothing.html", {}, 200, session)
        if view is None or not session.who.may(view.scope):
            return await self._failed(404, "There is no such page", "The navigation lists those that there are.", session)
        do = view.show if form is None else view.act
        if do is None:
            return await self._failed(405, "There is no such method here", "This page has no form.", session)
        tenant = session.tenant
        if form is not None and session.who.tenant is None:
            # A form is about the tenant that its page showed, even if the user has chosen another one in another window.
            tenant = form.pop("tenant", "") or None
        visit = Visit(
            api=Client(self._api, request.scope, session.token, tenant if session.who.tenant is None else None),
            who=session.who,
            tenant=tenant,
            query=_firsts(request.url.query),
            form=form or {},
            headers=request.headers,
        )
        match await do(visit):
            case Shown() as shown:
                return await self._page(shown.template, {**shown.values, "visit": visit}, shown.status, session, view)
            case Sent() as sent:
                session.notice = sent.notice[:_MOST_TENANT]
                return _to(_safe(sent.to))
            case Piped() as piped:
                return visit.api, piped

    @staticmethod
    async def _pipe(client: Client, piped: Piped, request: Request, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                headers |= {name.encode(): value.encode() for name, value in HEADERS.items()}
                if piped.name is not None:
                    headers[b"content-disposition"] = f'attachment; filename="{piped.name}"'.encode()
                message = {**message, "headers": list(headers.items())}
            await send(message)

        last = request.headers.get("last-event-id")
        headers = {} if last is None else {"last-event-id": last}
        await client.pipe(piped.path, piped.query, headers, request.receive, with_headers)

    # Pages

    async def _page(
        self,
        template: str,
        values: dict[str, Any],
        status: int = 200,
        session: Session | None = None,
        view: View | None = None,
    ) -> Response:
        """Return a page. A thread renders it, because a long page takes a while."""
        common: dict[str, Any] = {"session": session, "view": view, "views": (), "notice": "", "is_dev": self._dev}
        if session is not None:
            common["views"] = [each for each in VIEWS if each.is_listed and session.who.may(each.scope)]
            if view is not None:
                common["notice"], session.notice = session.notice, ""
        made = partial(render, template, {**common, **values})
        return Response(await asyncio.get_running_loop().run_in_executor(None, made), status, media_type="text/html")

    async def _failed(self, status: int, title: str, detail: str, session: Session | None = None, errors: Any = ()) -> Response:
        values = {"title": title, "status": status, "detail": detail, "errors": errors}
        return await self._page("failed.html", values, status, session)

    async def _form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form, the first of each name. Raises Problem."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
            raise Problem("media-type", f"expected a form, {_FORM}")
        limits = self._section.limits
        # Form encoding takes up to three bytes for each byte of an import.
        body = await whole_body(request, 3 * limits.import_body, limits.body_time)
        return _firsts(body.decode("ascii", "replace"))


def _firsts(text: str) -> dict[str, str]:
    """Return names and values. Raises Problem if there are too many."""
    values: dict[str, str] = {}
    try:
        for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS):
            values.setdefault(name, value)
    except ValueError:
        raise Problem("bad-request", f"expected {_MOST_FIELDS:,} names at most") from None
    return values


def _static(request: Request, name: str) -> Response:
    file = STATIC.get(name)
    if file is None:
        return Response("there is no such file", 404, media_type="text/plain")
    body, media_type = file
    is_this = request.query_params.get("v") == VERSION_OF_STATIC
    caching = "public, max-age=31536000, immutable" if is_this else "no-cache"
    return Response(body, 200, {"cache-control": caching}, media_type)


def _to(address: str) -> Response:
    return RedirectResponse(address, 303)


def _safe(address: str) -> str:
    """Return an address of the console for any text."""
    path = address.partition("?")[0]
    is_ours = path.startswith(_HOME) and address.isprintable() and "\\" not in address and "//" not in path
    return address if is_ours and not address.startswith(_SIGN_IN) else _HOME


def _back(request: Request) -> str:
    """Return the page of a form."""
    referrer = urlsplit(request.headers.get("referer", ""))
    return _safe(f"{referrer.path}?{referrer.query}".rstrip("?"))


def _cookie(request: Request) -> str:
    """Return the name of the cookie. It contains the port, because browsers share cookies between all ports of a host."""
    port = request.url.port
    return "streamer_console" if port is None else f"streamer_console_{port}"
