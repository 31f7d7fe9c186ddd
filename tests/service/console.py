"""A browser that keeps cookies and forms, without a browser: for tests of the console that look at no picture."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from urllib.parse import urlencode

from tests.service.api import Api, Reply

_FORM = re.compile(r'name="form" value="([^"]+)"')


@dataclass
class Browser:
    """Asks the console of a running service, follows where it is sent, and keeps the cookie."""

    api: Api
    cookies: dict[str, str] = field(default_factory=dict)
    #: Headers of each request, as a browser would send them.
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, form: dict[str, str] | None = None, **headers: str) -> Reply:
        """Send one request, and follow nothing."""
        sent = {**self.headers, **headers}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        body = None
        if form is not None:
            body, sent["content-type"] = urlencode(form).encode(), "application/x-www-form-urlencoded"
        reply = self.api.ask(method, path, body, token="", headers=sent)
        for name, morsel in SimpleCookie(reply.headers.get("set-cookie", "")).items():
            if morsel.value:
                self.cookies[name] = morsel.value
            else:
                self.cookies.pop(name, None)
        return reply

    def get(self, path: str) -> str:
        """Return the page that one comes to."""
        reply = self.ask("GET", path)
        while reply.status == 303:
            reply = self.ask("GET", reply.headers["location"])
        assert reply.status == 200, (reply.status, reply.body)
        return reply.body.decode()

    def form(self, path: str = "/console/") -> str:
        """Return the anti-forgery value of the forms of a page."""
        found = _FORM.search(self.get(path))
        assert found is not None
        return found[1]

    def post(self, path: str, **fields: str) -> Reply:
        """Send a form of the session."""
        return self.ask("POST", path, {"form": self.form(), **fields})

    def sign_in(self, token: str, following: str = "/console/") -> Reply:
        """Sign in with a token."""
        return self.ask("POST", "/console/sign-in", {"token": token, "next": following})
