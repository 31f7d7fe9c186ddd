"""Who may do what: tokens in a file, as hashes.

```
strm_1f3a9c04_<43 characters: 256 random bits>
     └ finds the entry      └ SHA-256 of the whole is compared with that of the entry, in constant time
```

A random token needs no slow hash: nobody can try 2²⁵⁶ of them. The file is read again when it changes; one that became bad leaves
those in force that were, and the log says so.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final, get_args

from streamer.errors import ServiceError
from streamer.files import check_target, replacing
from streamer.model import is_unicode

Scope: TypeAlias = Literal["read", "write", "consume", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
#: More is no file of tokens.
_MOST_BYTES: Final = 16 * 1024**2
_SHA256: Final = re.compile("[0-9a-f]{64}")
_NOTHING: Final = hashlib.sha256(b"").hexdigest()
_LOGGER: Final = logging.getLogger("streamer.service.api")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token.

    Attributes:
        id: what it is called in lists and logs.
        name: what its user calls it.
        tenant: whose it is; None for an administrator's, which names one in each request.
        scopes: what it may do; `admin` is all.
        sha256: of the token, in hex.
        created: RFC 3339.
    """

    id: str
    name: str
    tenant: str | None
    scopes: tuple[Scope, ...]
    sha256: str
    created: str

    def may(self, scope: Scope) -> bool:
        """Tell whether it may do something."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def who(self) -> str:
        """What the log of changes calls its user: `NAME (ID)`, or the id where it has no name."""
        return f"{self.name} ({self.id})" if self.name else self.id


#: Who everybody is without tokens, on loopback.
DEV: Final = Token(id="dev", name="", tenant=None, scopes=("admin",), sha256="", created="")


def create(path: Path, tenant: str | None, scopes: Sequence[Scope], name: str = "") -> tuple[Token, str]:
    """Add a token to a file, which is made if it is not there; return it and its text, which nothing has from then on.

    Raises:
        ValueError: scopes that do not fit.
        ServiceError: the file cannot be read or written.
    """
    if not scopes:
        raise ValueError(f"expected at least one scope of {', '.join(SCOPES)}")
    if ("admin" in scopes) != (tenant is None):
        raise ValueError("a token has one tenant, or the scope admin, which is over all of them")
    if tenant is not None and (tenant in ("", "*") or "\0" in tenant or not is_unicode(tenant)):
        raise ValueError("expected the name of a tenant")
    with _changing(path) as tokens:
        taken = {token.id for token in tokens}
        id_ = next(id_ for _ in range(100) if (id_ := secrets.token_hex(4)) not in taken)
        token, text = _made(id_, tenant, tuple(scopes), name)
        tokens.append(token)
    return token, text


def lent(name: str) -> tuple[Token, str]:
    """Make an administrator's token that no file has, and its text: for who keeps both in memory."""
    return _made(f"{name}-{secrets.token_hex(4)}", None, ("admin",), name)


def _made(id_: str, tenant: str | None, scopes: tuple[Scope, ...], name: str) -> tuple[Token, str]:
    text = f"strm_{id_}_{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip('=')}"
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Token(id=id_, name=name, tenant=tenant, scopes=scopes, sha256=_hash(text), created=created), text


def revoke(path: Path, id_: str) -> bool:
    """Take a token out of a file; return whether it was there. Raises ServiceError."""
    with _changing(path) as tokens:
        left = [token for token in tokens if token.id != id_]
        found = len(left) < len(tokens)
        tokens[:] = left
    return found


def read(path: Path) -> list[Token]:
    """Read a file of tokens; none where there is no file. Raises ServiceError."""
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
        # What stands there is not repeated.
        raise ServiceError(f"{path}: no file of tokens; streamer tokens writes one") from None


def _opened(path: str, flags: int) -> int:
    # A pipe in its place would be waited for, and no request be answered meanwhile.
    return os.open(path, flags | os.O_NONBLOCK)


def _token(entry: Mapping[str, Any]) -> Token:
    token = Token(**{**entry, "scopes": tuple(entry["scopes"])})
    texts = (token.id, token.name, token.sha256, token.created)
    if not all(isinstance(text, str) for text in texts) or not set(token.scopes) <= set(SCOPES):
        raise ValueError
    if not _SHA256.fullmatch(token.sha256):
        raise ValueError
    if not isinstance(token.tenant, str | None) or (token.tenant is None) != ("admin" in token.scopes):
        raise ValueError
    return token


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _changing(path: Path) -> Iterator[list[Token]]:
    """Read a file, and put what becomes of it in its place in one step; who else changes it waits."""
    try:
        path = check_target(path)  # a link stays one
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror or error}") from None
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        tokens = read(path)
        yield tokens
        text = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=1) + "\n"
        with replacing(path, is_private=True) as file:
            file.write(text.encode())
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror or error}") from None
    finally:
        os.close(directory)


@final
class Tokens:
    """The tokens of a file, as it is now, and those that are in force without one. Any thread may use it.

    Args:
        lent: tokens that no file has, by id; as it is now.

    Raises:
        ServiceError: the file cannot be read.
    """

    def __init__(self, path: Path, lent: Mapping[str, Token] | None = None) -> None:
        self._path, self._lent = path, {} if lent is None else lent
        self._seen = self._mark()
        self._tokens = {token.id: token for token in read(path)}

    def find(self, text: str) -> Token | None:
        """Return what is known of a token; None for one that is none."""
        self._look()
        _, _, rest = text.partition("_")
        token = self._of(rest.partition("_")[0])
        known = _NOTHING if token is None else token.sha256
        is_it = hmac.compare_digest(_hash(text), known)
        return token if is_it else None

    def holds(self, token: Token) -> bool:
        """Tell whether a token that was found is still in force, as it was."""
        self._look()
        return self._of(token.id) == token

    def _of(self, id_: str) -> Token | None:
        return self._tokens.get(id_) or self._lent.get(id_)

    def _look(self) -> None:
        if (mark := self._mark()) != self._seen:
            # A file that is bad is not read again until it changes once more.
            self._seen = mark
            try:
                self._tokens = {token.id: token for token in read(self._path)}
            except ServiceError as error:
                _LOGGER.error("%s; the tokens that were in force stay", error)
            else:
                if mark is None:
                    _LOGGER.error("%s: the file is gone, so no token is in force", self._path)

    def _mark(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
