"""Who is signed in: a token is exchanged for a cookie, and so is the code of a sign-in link, once.

```
token ──► checked by GET /v1/token ──► session ──► cookie: 256 random bits, of which only the hash is kept here
code  ──► a token is lent, in memory ──┘  └─ ends: 8 h, sign-out, a revoked token, one session too many
```

All is in memory: a restart signs everybody out. The token of a session stays with it, since each page asks the API with it.
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

#: How long a session lasts, and the code of a link, in seconds.
LASTS: Final = 8 * 3600
CODE_LASTS: Final = 600
#: Sessions in all, and of one token: one too many ends the one that was used least lately.
MOST: Final = 1000
MOST_OF_A_TOKEN: Final = 20
#: Codes at once: each reload of the API makes one.
_MOST_CODES: Final = 10


@final
@dataclass(frozen=True, slots=True)
class Who:
    """Whose a session is, as `GET /v1/token` tells it.

    Attributes:
        tenant: None for an administrator, who chooses one.
    """

    id: str
    name: str
    tenant: str | None
    scopes: tuple[str, ...]

    def may(self, scope: str) -> bool:
        """Tell whether the API allows what needs a scope."""
        return scope in self.scopes or "admin" in self.scopes


@final
@dataclass(slots=True, kw_only=True)
class Session:
    """One browser that is signed in.

    Attributes:
        token: its text; None where nobody needs one.
        forms: what each form of the session carries, and no other site knows.
        until: when it ends, by the clock of the sessions.
        tenant: whose things are shown; None where an administrator has chosen nobody.
        notice: what the next page says of what was just done.
    """

    who: Who
    token: str | None
    until: float
    forms: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    tenant: str | None = None
    notice: str = ""

    def made(self, value: str) -> bool:
        """Tell whether a form is the session's own."""
        return hmac.compare_digest(value.encode(), self.forms.encode())


@final
class Sessions:
    """The sessions there are. One event loop uses them, and any thread asks for a code.

    Args:
        lent: where tokens that no file has are in force, by id.
        clock: seconds, which only grow.
    """

    def __init__(self, lent: MutableMapping[str, Token], clock: Callable[[], float] = time.monotonic) -> None:
        self._lent, self._clock = lent, clock
        self._sessions: dict[str, Session] = {}  # by the hash of the cookie; who was used last stands last
        self._codes: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def code(self) -> str:
        """Return a code that an administrator's session is begun with: once, within `CODE_LASTS`."""
        code = secrets.token_urlsafe(32)
        self._codes[_hash(code)] = self._clock() + CODE_LASTS
        while len(self._codes) > _MOST_CODES:
            del self._codes[next(iter(self._codes))]
        return code

    def lend(self, code: str) -> str | None:
        """Take a code, and return the text of a token for who has it; None where it was used, or is over."""
        until = self._codes.pop(_hash(code), None)
        if until is None or until < self._clock():
            return None
        token, text = tokens.lent("console")
        self._lent[token.id] = token
        return text

    def begin(self, who: Who, token: str | None) -> tuple[str, Session]:
        """Begin a session; return the cookie and it."""
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
        """Return the session of a cookie; None where it is over."""
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
        """End a session, if it is one."""
        if (key := _hash(cookie)) in self._sessions:
            self._drop(key)

    def _drop(self, key: str) -> None:
        # A lent token is of one session alone.
        self._lent.pop(self._sessions.pop(key).who.id, None)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
