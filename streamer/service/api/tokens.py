"""Tokens and their rights, in a file, as hashes.

```
strm_1f3a9c04_<43 characters: 256 random bits>
     └ finds the entry      └ SHA-256 of the whole is compared with that of the entry, in constant time
```

A random token needs no slow hash, because 2²⁵⁶ values cannot be tried. The file is read again when it changes; if it becomes
invalid, the tokens before that stay valid, and the log reports it.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final, get_args

from streamer.errors import ServiceError
from streamer.files import check_target, replacing
from streamer.model import is_unicode
from streamer.service.api import audit

Scope: TypeAlias = Literal["read", "write", "consume", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: A larger file is refused.
_MOST_BYTES: Final = 16 * 1024**2
#: The beginning of the id of a token of an identity provider.
PROVIDED: Final = "oidc:"
_SHA256: Final = re.compile("[0-9a-f]{64}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_LONGEST: Final = timedelta(days=36_525)
_NOTHING: Final = hashlib.sha256(b"").hexdigest()
_LOGGER: Final = logging.getLogger("streamer.service.api")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its secret.

    Attributes:
        id: its name in lists and logs.
        name: its user's name for it.
        tenant: its tenant; None for an administrator's, which names one in each request.
        scopes: the operations that it allows; `admin` allows all.
        sha256: the hash of the token, in hex.
        created: RFC 3339, in UTC; so is *expires*.
        expires: the time from which on it is invalid; empty for never.
    """

    id: str
    name: str
    tenant: str | None
    scopes: tuple[Scope, ...]
    sha256: str
    created: str
    expires: str = ""

    def is_over(self) -> bool:
        """Return whether it has expired."""
        return bool(self.expires) and _now() >= self.expires

    def may(self, scope: Scope) -> bool:
        """Return whether it allows a scope."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def who(self) -> str:
        """Its user in the log of changes: `NAME (ID)`, or the id if it has no name."""
        return f"{self.name} ({self.id})" if self.name else self.id


#: The identity of every caller without tokens, on loopback.
DEV: Final = Token(id="dev", name="", tenant=None, scopes=("admin",), sha256="", created="")


def create(
    path: Path, tenant: str | None, scopes: Sequence[Scope], name: str = "", lasts: timedelta | None = None
) -> tuple[Token, str]:
    """Add a token to a file, which is created if it does not exist; return it and its text, which is not stored.

    Args:
        lasts: the time after which it expires; None for never.

    Raises:
        ValueError: the scopes do not fit, or it lasts too long or not at all.
        ServiceError: the file cannot be read or written.
    """
    if not scopes:
        raise ValueError(f"expected at least one scope of {', '.join(SCOPES)}")
    if ("admin" in scopes) != (tenant is None):
        raise ValueError("a token has one tenant, or the scope admin, which is over all of them")
    if tenant is not None and not is_tenant(tenant):
        raise ValueError("expected the name of a tenant")
    if lasts is not None and not timedelta(seconds=1) <= lasts <= _LONGEST:
        raise ValueError("expected a time from 1 second to 100 years until the token expires")
    with _changing(path) as tokens:
        used = {token.id for token in tokens}
        id_ = next(id_ for _ in range(100) if (id_ := secrets.token_hex(4)) not in used)
        token, text = _made(id_, tenant, tuple(scopes), name, lasts)
        tokens.append(token)
    return token, text


def is_tenant(name: object) -> bool:
    """Return whether it can be the tenant of a token."""
    return isinstance(name, str) and name not in ("", "*") and "\0" not in name and is_unicode(name)


def lent(name: str) -> tuple[Token, str]:
    """Return a new administrator's token that is only in memory, and its text."""
    return _made(f"{name}-{secrets.token_hex(4)}", None, ("admin",), name)


def _made(
    id_: str, tenant: str | None, scopes: tuple[Scope, ...], name: str, lasts: timedelta | None = None
) -> tuple[Token, str]:
    text = f"strm_{id_}_{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip('=')}"
    expires = "" if lasts is None else _now(lasts)
    return Token(id=id_, name=name, tenant=tenant, scopes=scopes, sha256=_hash(text), created=_now(), expires=expires), text


def _now(later: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + later).strftime("%Y-%m-%dT%H:%M:%SZ")


def revoke(path: Path, id_: str) -> bool:
    """Delete a token from a file; return whether it existed. Raises ServiceError."""
    with _changing(path) as tokens:
        remaining = [token for token in tokens if token.id != id_]
        existed = len(remaining) < len(tokens)
        tokens[:] = remaining
    return existed


def read(path: Path) -> list[Token]:
    """Return the tokens of a file; empty if it does not exist. Raises ServiceError."""
    try:
        with open(path, "rb", opener=_opened) as file:
            text = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror or error}") from None
    try:
        if len(text) > _MOST_BYTES:
            raise ValueError
        return [_token(entry) for entry in json.loads(text)["tokens"]]
    except (KeyError, RecursionError, TypeError, ValueError):
        # The error does not repeat the content.
        raise ServiceError(f"{path}: no file of tokens; streamer tokens writes one") from None


def _opened(path: str, flags: int) -> int:
    # Opening a pipe in its place would block all requests.
    return os.open(path, flags | os.O_NONBLOCK)


def _token(entry: Mapping[str, Any]) -> Token:
    token = Token(**{**entry, "scopes": tuple(entry["scopes"])})
    texts = (token.id, token.name, token.sha256, token.created, token.expires)
    if not all(isinstance(text, str) for text in texts) or not set(token.scopes) <= set(SCOPES):
        raise ValueError
    if not _SHA256.fullmatch(token.sha256) or (token.expires and not _TIME.fullmatch(token.expires)):
        raise ValueError
    if not isinstance(token.tenant, str | None) or (token.tenant is None) != ("admin" in token.scopes):
        raise ValueError
    return token


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _changing(path: Path) -> Iterator[list[Token]]:
    """Read a file, and replace it atomically; concurrent changes wait."""
    try:
        path = check_target(path)  # a link stays a link
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror or error}") from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        tokens = read(path)
        yield tokens
        # An entry without a time of expiry can be read by versions before it existed.
        entries = [{name: value for name, value in asdict(token).items() if name != "expires" or value} for token in tokens]
        text = json.dumps({"tokens": entries}, indent=1) + "\n"
        with replacing(path, is_private=True) as file:
            file.write(text.encode())
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror or error}") from None
    finally:
        os.close(directory)


@final
class Tokens:
    """The current tokens of a file, and those that are valid without one. Any thread may use it.

    Args:
        path: the file; None for tokens of an identity provider alone.
        lent: the current tokens that are not in a file, by id.

    Attributes:
        used: the time of the last use of each token since the start of the process, by id; RFC 3339.

    Raises:
        ServiceError: the file cannot be read.
    """

    def __init__(self, path: Path | None, lent: Mapping[str, Token] | None = None) -> None:
        self._path, self._lent = path, {} if lent is None else lent
        self._last_mark = self._mark()
        self._tokens = {} if path is None else {token.id: token for token in read(path)}
        self.used: dict[str, str] = {}

    def __iter__(self) -> Iterator[Token]:
        """Iterate over the tokens of the file."""
        self._look()
        return iter(list(self._tokens.values()))

    def find(self, text: str) -> Token | None:
        """Return the token of a text; None if it is not valid."""
        self._look()
        _, _, rest = text.partition("_")
        token = self._of(rest.partition("_")[0])
        known = _NOTHING if token is None else token.sha256
        is_it = hmac.compare_digest(_hash(text), known)
        if token is None or not is_it or token.is_over():
            return None
        self.used[token.id] = _now()
        return token

    def holds(self, token: Token) -> bool:
        """Return whether a token that was found earlier is still valid and unchanged."""
        self._look()
        # A token of an identity provider is valid until it expires.
        is_here = token.id.startswith(PROVIDED) or self._of(token.id) == token
        return is_here and not token.is_over()

    def _of(self, id_: str) -> Token | None:
        return self._tokens.get(id_) or self._lent.get(id_)

    def _look(self) -> None:
        if (mark := self._mark()) != self._last_mark and self._path is not None:
            # An invalid file is read again only after its next change.
            self._last_mark = mark
            try:
                before, self._tokens = self._tokens, {token.id: token for token in read(self._path)}
                self._note_changes(before)
            except ServiceError as error:
                _LOGGER.error("%s; the previous tokens stay valid", error)
            else:
                if mark is None:
                    _LOGGER.error("%s: the file is gone, so no token is valid", self._path)

    def _note_changes(self, before: Mapping[str, Token]) -> None:
        """Write new and revoked tokens to the audit log; another process changed the file."""
        for what, ids, tokens in (
            ("token created", self._tokens.keys() - before.keys(), self._tokens),
            ("token revoked", before.keys() - self._tokens.keys(), before),
        ):
            for each in sorted(ids):
                audit.record(what, who="the file of tokens", token=tokens[each].who, tenant=tokens[each].tenant)

    def _mark(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
