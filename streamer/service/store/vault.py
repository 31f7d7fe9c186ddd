"""The secrets of tenants' gateways as they are stored: encrypted, if the configuration has keys.

```
["whsec_…"]                    without keys
fernet:gAAAAABn…               with keys: the first one encrypts, and each of them decrypts
```

To replace a key, put the new one first and reload: what the others encrypted is encrypted again. Then remove the old one. Fernet
(AES-128-CBC, HMAC-SHA256) is that of the package `cryptography`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, final

from streamer.config.secret import SecretValue
from streamer.errors import ConfigError, ServiceError
from streamer.extras import needed

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_SEALED: Final = "fernet:"
_KEY_BYTES: Final = 32


@final
class Vault:
    """Encrypts and decrypts the secrets of gateways.

    Args:
        keys: returns the current keys, the one that encrypts first; empty for none.
    """

    def __init__(self, keys: Callable[[], Sequence[SecretValue]]) -> None:
        self._keys = keys

    def seal(self, secrets: Sequence[str]) -> str:
        """Return the text to store. Raises ServiceError: a key cannot be used."""
        text, keys = json.dumps(secrets), self.check()
        return _SEALED + keys[0].encrypt(text.encode()).decode() if keys and secrets else text

    def open(self, text: str) -> tuple[str, ...]:
        """Return the secrets of a stored text. Raises ServiceError: no key fits."""
        return tuple(json.loads(self._plain(text)[0]))

    def renewed(self, text: str) -> str | None:
        """Return the text to store instead, encrypted with the first key; None if it is the same. Raises ServiceError."""
        plain, number = self._plain(text)
        secrets = json.loads(plain)
        return None if number == 0 or not secrets or not self._keys() else self.seal(secrets)

    def _plain(self, text: str) -> tuple[str, int | None]:
        """Return a stored text decrypted, and the number of the key that fits; None if it was not encrypted."""
        if not text.startswith(_SEALED):
            return text, None
        from cryptography.fernet import InvalidToken

        for number, key in enumerate(self.check()):
            try:
                return key.decrypt(text.removeprefix(_SEALED)).decode(), number
            except InvalidToken:
                pass
        raise ServiceError("delivery.gateways.keys: no key decrypts the stored secrets of the gateways: add the one that does")

    def check(self) -> list[Fernet]:
        """Return the keys. Raises ServiceError: a key cannot be used."""
        if not (keys := self._keys()):
            return []
        try:
            with needed("encrypted secrets need cryptography", "rights"):
                from cryptography.fernet import Fernet
        except ModuleNotFoundError as error:
            raise ServiceError(f"delivery.gateways.keys: {error}") from None
        return [Fernet(_read(number, key)) for number, key in enumerate(keys)]


def _read(number: int, key: SecretValue) -> bytes:
    where = f"delivery.gateways.keys[{number}]"
    try:
        decoded = base64.b64decode(key.reveal().strip().replace("-", "+").replace("_", "/"), validate=True)
    except ConfigError as error:
        raise ServiceError(f"{where}: {error.reason}") from None
    except (binascii.Error, ValueError):
        decoded = b""
    if len(decoded) != _KEY_BYTES:
        raise ServiceError(
            f"{where}: expected {_KEY_BYTES} random bytes in base64, as `openssl rand -base64 {_KEY_BYTES}` prints"
        )
    return base64.urlsafe_b64encode(decoded)
