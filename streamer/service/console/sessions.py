"""Sessions of signed-in users: a token is exchanged for a cookie, and so is the code of a sign-in link, once.

```
token ──► checked by GET /v1/token ──► session ──► cookie: 256 random bits, of which only the hash is kept here
code  ──► a token is lent, in memory ──┘  └─ ends: 8 h, sign-out, a revoked token, one session too many
```

All sessions are in memory: a restart ends them. A session keeps its token, because each page calls the API with it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Final, final

from streamer.service.api import tokens
from streamer.service.api.tokens import Token

#: The lifetime of a session, and of the code of a link, in seconds.
LASTS: Final = 8 * 3600
CODE_LASTS: Final = 600
#: The most sessions in all, and of one token: a further one ends the least recently used.
MOST: Final = 1000
MOST_OF_A_TOKEN: Final = 20
#: The most codes at once: each reload of the API creates one.
_MOST_CODES: Final = 10


@final
@dataclass(frozen=True, slots=True)
class Who:
    """The user of a session, from `GET /v1/token`.

    Attributes:
        tenant: None for an administrator, who chooses one.
    """

    id: str
    name: str
    tenant: str | None
    scopes: tuple[str, ...]

    def may(self, scope: str) -> bool:
        """Return whether the user has a scope."""
        return scope in self.scopes or "admin" in self.scopes


@final
@dataclass(slots=True, kw_only=True)
class Session:
    """A session of one browser.

    Attributes:
        token: its text; None if the API needs none.
        forms: the anti-forgery value in each form of the session, which is secret from other sites.
        until: its end, by the clock of the sessions.
        tenant: the tenant to show; None if an administrator has chosen none.
        notice: the result of the last action, for the next page.
    """

    who: Who
    token: str | None
    until: float
    forms: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    tenant: str | None = None
    notice: str = ""

    def made(self, value: str) -> bool:
        """Return whether a form belongs to the session."""
        return hmac.compare_digest(value.encode(), self.forms.encode())


@final
class Sessions:
    """All sessions. One event loop uses them, and any thread may request a code.

    Args:
        lent: the valid tokens that are not in a file, by id.
        clock: seconds, monotonic.
    """

    def __init__(self, lent: MutableMapping[str, Token], clock: Callable[[], float] = time.monotonic) -> None:
        self._lent, self._clock = lent, clock
        self._sessions: dict[str, Session] = {}  # by the hash of the cookie, in order of last use
        self._codes: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def code(self) -> str:
        """Return a code for an administrator's session. It can be used once, within `CODE_LASTS`."""
        code = secrets.token_urlsafe(32)
        self._codes[_hash(code)] = self._clock() + CODE_LASTS
        while len(self._codes) > _MOST_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def lend(self, code: str) -> str | None:
        """Exchange a code for the text of a token; None if the code was used, or has expired."""
        until = self._codes.pop(_hash(code), None)
        if until is None or until < self._clock():
            return None
        token, text = tokens.lent("console")
        self._lent[token.id] = token
        return text

    def begin(self, who: Who, token: str | None) -> tuple[str, Session]:
        """Begin a session; return its cookie and the session."""
        now = self._clock()
        for key, each in list(self._sessions.items()):
            if each.until < now:
                self._drop(key)
        own = [key for key, each in self._sessions.items() if each.who.id == who.id]
        if len(own) >= MOST_OF_A_TOKEN:
            self._drop(own[0])
        if len(self._sessions) >= MOST:
            self._drop(next(iter(self._sessions)))
        cookie = secrets.token_urlsafe(32)
        session = self._sessions[_hash(cookie)] = Session(who=who, token=token, until=now + LASTS, tenant=who.tenant)
        return cookie, session

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it has ended."""
        key = _hash(cookie)
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self._sessions[key] = session
        if session.until < self._clock():
            self._drop(key)
            return None
        return session

    def end(self, cookie: str) -> None:
        """End the session of a cookie, if it exists."""
        if (key := _hash(cookie)) in self._sessions:
            self._drop(key)

    def _drop(self, key: str) -> None:
        # A lent token belongs to this session only.
        self._lent.pop(self._sessions.pop(key).who.id, None)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
