"""Sign messages, as https://www.standardwebhooks.com specifies."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, Protocol

from streamer.errors import ConfigError

_PREFIX: Final = "whsec_"


def signing_key(secret: str) -> bytes:
    """Return the key of a secret `whsec_BASE64`.

    Raises:
        ConfigError: it is not such a secret. The error does not repeat it.
    """
    try:
        if not secret.startswith(_PREFIX):
            raise ValueError
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        raise ConfigError(f"expected a secret of Standard Webhooks: {_PREFIX} and base64") from None
    if not 24 <= len(key) <= 64:
        raise ConfigError(f"expected a secret of Standard Webhooks: 24 to 64 bytes, not {len(key)}")
    return key


def signature(keys: Sequence[bytes], identity: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`: one signature a key, with a space between them."""
    signed = b"%b.%d.%b" % (identity.encode(), timestamp, body)
    return " ".join("v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)


class Revealing(Protocol):
    """An object that reveals its secret when it is used."""

    def reveal(self) -> str:
        """Return the secret. Raises ConfigError."""
