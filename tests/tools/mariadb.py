"""A server of MariaDB that is thrown away: made in a directory of its own, with a binary log of rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.tools.ports import free_port

SETTINGS: Final = {
    "bind-address": "127.0.0.1",
    "server-id": "7",
    "log-bin": "log",
    "binlog-format": "ROW",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "16M",
    "innodb-flush-log-at-trx-commit": "0",
    "sync-binlog": "0",
}


def _program(name: str) -> str:
    """Return the path of a program. Raises AssertionError."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert found is not None, f"there is no {name} here: install MariaDB"
    return found


class Server:
    """A running server. `close` stops it and throws it away."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        program, install = _program("mariadbd"), _program("mariadb-install-db")
        self.directory = Path(tempfile.mkdtemp(prefix="streamer-mariadb-"))
        self.port = free_port()
        self._socket = self.directory / "socket"
        at = [f"--datadir={self.directory / 'data'}"]
        if os.geteuid() == 0:
            # Root may not run a server.
            shutil.chown(self.directory, "nobody")
            at.append("--user=nobody")
        with open(self.directory / "out", "ab") as out:
            made = [install, "--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal", *at]
            subprocess.run(made, check=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=120)
            options = [f"--{name}={value}" for name, value in (SETTINGS | dict(settings or {})).items()]
            run = [program, "--no-defaults", *at, f"--port={self.port}", f"--socket={self._socket}", *options]
            self._process = subprocess.Popen(run, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        deadline = time.monotonic() + 60
        while not self._socket.exists():
            has_ended = self._process.poll() is not None or time.monotonic() > deadline
            assert not has_ended, self._said()
            time.sleep(0.05)
        client = [
            _program("mariadb"),
            "--no-defaults",
            "--batch",
            "--unbuffered",
            "--skip-column-names",
            "--default-character-set=utf8mb4",
        ]
        with open(self.directory / "out", "ab") as out:
            self._client = subprocess.Popen(
                [*client, "--user=root", f"--socket={self._socket}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                encoding="utf-8",
            )
        # The body of a trigger has semicolons.
        self._write("DELIMITER //\n")
        self.run(
            "CREATE DATABASE shop", "USE shop", "CREATE USER streamer IDENTIFIED BY 'secret-word'", "GRANT ALL ON *.* TO streamer"
        )

    def _said(self) -> str:
        return (self.directory / "out").read_text()[-3000:]

    def _write(self, script: str) -> None:
        assert self._client.stdin is not None
        self._client.stdin.write(script)
        self._client.stdin.flush()

    def run(self, *statements: str) -> list[list[str | None]]:
        """Run statements, all in one session; return the rows of all of them, each value as text.

        Raises:
            AssertionError: a statement failed.
        """
        self._write("".join(f"{statement}\n//\n" for statement in (*statements, "SELECT 'end of the rows'")))
        assert self._client.stdout is not None
        rows: list[list[str | None]] = []
        while (line := self._client.stdout.readline()) != "end of the rows\n":
            assert line, f"{self._said()}: {statements}"
            rows.append([None if value == "NULL" else value for value in line.rstrip("\n").split("\t")])
        return rows

    def close(self) -> None:
        """Stop it at once, and remove it."""
        self._client.communicate()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
