"""Ports for servers that others start."""

from __future__ import annotations

import random
from socket import create_server

#: Below those that systems give to who asks for any port: what a server gave up for a restart would else be somebody's meanwhile.
_RANGE = range(10_000, 32_000)


def free_port() -> int:
    """Return a port of the loopback that nobody listens at."""
    while True:
        port = random.SystemRandom().choice(_RANGE)
        try:
            create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            continue
