"""Tokens of an identity provider: JSON Web Tokens, signed with a key of its set (OpenID Connect).

```
eyJhbGciOi… ─► the header names a key ─► its signature, issuer, audience, time ─► claims: tenant, scopes ─► Token
                 └ the set of keys: fetched when it is first needed, every five minutes, and for an unknown key
```

The provider is only queried for its keys, so requests go on while it is down. A revoked token stays valid until it expires: let
tokens be short-lived.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

from streamer.config.schema.api import ApiOidc
from streamer.extras import needed
from streamer.quiet import Quiet
from streamer.service.api.problems import Problem
from streamer.service.api.tokens import PROVIDED, SCOPES, Scope, Token, is_tenant
from streamer.service.connectors.trust import client_context

if TYPE_CHECKING:
    from jwt import PyJWK, PyJWKClient

#: Only signatures that need the provider's private key: with a shared secret, anybody who can check a token could make one.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: The timeout of a request to the provider, how long its keys are used, and the time between two fetches for unknown keys, in
#: seconds. Clocks may differ by the leeway.
_TIMEOUT: Final = 10.0
_LIFESPAN: Final = 300.0
_AGAIN: Final = 10.0
_LEEWAY: Final = 30.0
_CENTURY: Final = 100 * 365.25 * 86_400
_DISCOVERY: Final = "/.well-known/openid-configuration"
_LONGEST: Final = 1024 * 1024
_LOGGER: Final = logging.getLogger("streamer.service.api")


@final
class Provider:
    """An identity provider. Any thread may use it; `find` may wait for the provider.

    Raises:
        ModuleNotFoundError: the extra `rights` is missing.
        ServiceError: the trusted certificates cannot be used.
    """

    def __init__(self, section: ApiOidc) -> None:
        with needed("tokens of an identity provider need PyJWT and cryptography", "rights"):
            import cryptography  # noqa: F401 - PyJWT needs it for signatures
            import jwt  # noqa: F401
        self.section = section
        self._context = client_context(section.ca)
        self._lock = threading.Lock()
        self._client: PyJWKClient | None = None
        # The keys, when they were fetched, and when this was last tried.
        self._known: Mapping[str, PyJWK] | None = None
        self._fetched = self._tried = -_LIFESPAN
        self._quiet = Quiet(_AGAIN)

    @staticmethod
    def looks_so(text: str) -> bool:
        """Return whether a text may be such a token, and not one of a file."""
        return text.count(".") == 2

    def find(self, text: str) -> Token | None:
        """Return the token of a text; None if it is not valid. Raises Problem if the provider cannot be reached."""
        import jwt

        try:
            key = self._key(str(jwt.get_unverified_header(text).get("kid", "")))
            options: Any = {"require": ["exp", "iss", "aud", "sub"]}
            claims = jwt.decode(
                text,
                key,
                algorithms=list(ALGORITHMS),
                audience=self.section.audience,
                issuer=self.section.issuer,
                leeway=_LEEWAY,
                options=options,
            )
            return self._token(claims)
        except (jwt.InvalidTokenError, RecursionError, ValueError) as error:
            if (count := self._quiet.due("token")) is not None:
                # The message names the check, and never quotes the token.
                _LOGGER.warning("api.oidc: a token was refused: %s (%d so far)", error, count)
            return None

    def check(self) -> None:
        """Fetch the keys. Raises Problem if the provider cannot be reached."""
        self._keys()

    def _key(self, name: str) -> PyJWK:
        keys = self._keys()
        if name not in keys:
            keys = self._keys(is_unknown=True)
        if name not in keys:
            raise ValueError("the provider has no such key")
        return keys[name]

    def _keys(self, *, is_unknown: bool = False) -> Mapping[str, PyJWK]:
        """Return the provider's keys: those that are known, while they are new or cannot be fetched now."""
        known, now = self._known, time.monotonic()
        is_old = is_unknown or now - self._fetched >= _LIFESPAN
        if known is not None and (not is_old or now - self._tried < _AGAIN):
            return known
        # Only the first keys are worth a wait for the provider.
        if not self._lock.acquire(blocking=known is None):
            assert known is not None
            return known
        try:
            if self._known is not known:
                # Another thread fetched them meanwhile.
                return self._known or {}
            self._tried = now
            self._known, self._fetched = self._fetch(), now
        except Problem as problem:
            if known is None:
                raise
            if (count := self._quiet.due("fetch")) is not None:
                _LOGGER.warning("api.oidc: %s; the known keys stay in use (%d so far)", problem.detail, count)
        finally:
            self._lock.release()
        return self._known or {}

    def _fetch(self) -> Mapping[str, PyJWK]:
        import jwt

        try:
            if self._client is None:
                self._client = self._key_client()
            return {key.key_id or "": key for key in self._client.get_signing_keys()}
        except (jwt.PyJWTError, OSError, ValueError, KeyError, TypeError) as error:
            reason = f"the keys of {self.section.issuer} cannot be fetched: {error}"
            raise Problem("unavailable", reason, headers={"Retry-After": "5"}) from None

    def _key_client(self) -> PyJWKClient:
        """Return the client for the set of keys, whose address the provider publishes."""
        import jwt

        url = self.section.keys
        if url is None:
            request = urllib.request.Request(self.section.issuer.rstrip("/") + _DISCOVERY)
            with urllib.request.urlopen(request, timeout=_TIMEOUT, context=self._context) as answer:
                published = json.loads(answer.read(_LONGEST))
            if published["issuer"] != self.section.issuer:
                raise ValueError(f"it is the provider of the issuer {str(published['issuer'])[:200]}")
            url = str(published["jwks_uri"])
        if not url.startswith(("https://", "http://")):
            raise ValueError("the address of its keys is no URL")
        return jwt.PyJWKClient(url, cache_jwk_set=False, timeout=_TIMEOUT, ssl_context=self._context)

    def _token(self, claims: Mapping[str, Any]) -> Token:
        claim = claims.get(self.section.scopes)
        words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
        wanted = {
            word.removeprefix(self.section.prefix)
            for word in words
            if isinstance(word, str) and word.startswith(self.section.prefix)
        }
        scopes: tuple[Scope, ...] = tuple(scope for scope in SCOPES if scope in wanted)
        if not scopes:
            raise ValueError(f"its claim {self.section.scopes} has no scope of {', '.join(SCOPES)}")
        tenant = None if "admin" in scopes else claims.get(self.section.tenant)
        if "admin" not in scopes and not is_tenant(tenant):
            raise ValueError(f"its claim {self.section.tenant} is no tenant")
        last = min(float(claims["exp"]), time.time() + _CENTURY) + _LEEWAY
        expires = datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        subject = str(claims["sub"])[:200]
        return Token(id=PROVIDED + subject, name="", tenant=tenant, scopes=scopes, sha256="", created="", expires=expires)
