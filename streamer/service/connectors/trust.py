"""The certificates that a client trusts."""

from __future__ import annotations

import ssl
from pathlib import Path

from streamer.errors import ServiceError


def client_context(authority: Path | None) -> ssl.SSLContext:
    """Return the TLS context of connections.

    Args:
        authority: certificates to trust in place of the system's.

    Raises:
        ServiceError: they cannot be read, or are not certificates.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        reason = "expected a certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror or str(error)
        raise ServiceError(f"ca: {authority}: {reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
