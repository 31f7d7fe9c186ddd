"""A server of PostgreSQL behind something that cuts a connection when a change is to be committed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

How: TypeAlias = Callable[[socket.socket, socket.socket, bytes], None]
"""Gets the client's side, the server's, and the bytes that end in the COMMIT; both sides are closed after it."""


class Cutting:
    """Passes on what clients and a server say, until `cut` says at which commit a connection is to go, and how.

    Args:
        port: of the server, at 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._how: How | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, how: How) -> None:
        """Cut the connection that sends the next COMMIT."""
        self._how = how

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                threading.Thread(target=self._pass, args=(client, server), daemon=True).start()
                threading.Thread(target=self._back, args=(client, server), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while said := client.recv(65536):
                how = self._how
                if how is not None and b"COMMIT" in said:
                    self._how, self.cuts = None, self.cuts + 1
                    how(client, server, said)
                    break
                server.sendall(said)
        for side in (client, server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while said := server.recv(65536):
                client.sendall(said)

    def close(self) -> None:
        """Take no connection any more."""
        # Closing it would leave it open for the thread that waits there.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def hang_up(client: socket.socket) -> None:
    """Let a client find its connection gone, whatever its server still does."""
    client.shutdown(socket.SHUT_RDWR)
