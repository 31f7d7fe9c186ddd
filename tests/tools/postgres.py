"""A server of PostgreSQL that is thrown away: made in a directory of its own, with logical decoding."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg

from tests.tools.ports import free_port

#: Debian's, newest first, and whatever the path has.
PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_connections": "50",
    "timezone": "Europe/Berlin",
    "datestyle": "German",
}


def programs() -> Path | None:
    """Return the directory of a server's programs; None where there is none, or nobody who could run it."""
    found = next((place for place in PLACES if (place / "initdb").exists()), None)
    if found is None and (path := shutil.which("initdb")) is not None:
        found = Path(path).parent
    return None if found is None or (os.geteuid() == 0 and shutil.which("runuser") is None) else found


def missing() -> str | None:
    """Return why there is no server; None where there is one."""
    return "no PostgreSQL is installed here" if programs() is None else None


def has_wal2json() -> bool:
    """Tell whether the server has the plugin wal2json."""
    found = programs()
    return found is not None and (found.parent / "lib" / "wal2json.so").exists()


#: Of newer minor versions, as 15.19: which plugins may be asked for. Those before do not know the setting, and take any.
_TRUSTED = "SELECT setting FROM pg_settings WHERE name = 'output_plugin_libraries'"


class Cluster:
    """A running server. `stop` stops it, `close` throws it away."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        found = programs()
        assert found is not None
        self._programs = found
        # Where the server's user may look, too.
        self.directory = Path(tempfile.mkdtemp(prefix="streamer-pg-"))
        self.port = free_port()
        self._as: list[str] = []
        if os.geteuid() == 0:
            # Root may not run a server.
            self._as = ["runuser", "-u", "postgres", "--"]
            shutil.chown(self.directory, "postgres")
        password = self.directory / "password"
        password.write_text("secret-word\n")
        if self._as:
            shutil.chown(password, "postgres")
        self._data = self.directory / "data"
        self._run("initdb", "-D", self._data, "-U", "streamer", "-A", "scram-sha-256", "--pwfile", password, "-E", "UTF8", "-N")
        lines = [f"{name} = '{value}'" for name, value in (SETTINGS | dict(settings or {})).items()]
        with open(self._data / "postgresql.auto.conf", "a") as file:
            file.write("\n".join([*lines, f"port = {self.port}", f"unix_socket_directories = '{self.directory}'", ""]))
        self.start()

    def dsn(self, database: str = "postgres", user: str = "streamer") -> str:
        """Return how to connect."""
        return f"postgresql://{user}:secret-word@127.0.0.1:{self.port}/{database}"

    def start(self, *, goes_on: bool = True) -> None:
        """Start it, and wait until it answers; where it does not go on it takes nobody yet, until `go_on`."""
        options = ["-o", f"-c hot_standby={'on' if goes_on else 'off'}"]
        if not goes_on:
            (self._data / "standby.signal").touch()
        self._run("pg_ctl", "-D", self._data, "-w", "-l", self.directory / "log", *options, "start")

    def go_on(self) -> None:
        """Go on with a start, and wait until it takes everybody."""
        self._run("pg_ctl", "-D", self._data, "-w", "promote")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `fast` waits for those who read its log, `immediate` is a crash."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def sql(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements, each a transaction; return the rows of the last."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            rows: list[tuple[Any, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
                rows = cursor.fetchall() if cursor.description else []
            return rows

    def trusts(self, plugin: str) -> bool:
        """Tell whether it may be asked for an output plugin."""
        rows = self.sql(_TRUSTED)
        return not rows or plugin in rows[0][0]

    def trust(self, plugin: str) -> None:
        """Let an output plugin be asked for."""
        if not self.trusts(plugin):
            self.sql(f"ALTER SYSTEM SET output_plugin_libraries = pgoutput, {plugin}", "SELECT pg_reload_conf()")
            deadline = time.monotonic() + 20
            while not self.trusts(plugin) and time.monotonic() < deadline:
                time.sleep(0.02)

    def close(self) -> None:
        """Stop it at once, and remove it."""
        try:
            self.stop("immediate")
        except subprocess.CalledProcessError:
            pass
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, program: str, *arguments: Any) -> None:
        command = [*self._as, str(self._programs / program), *map(str, arguments)]
        # A server that inherited a pipe would keep it open.
        with open(self.directory / "out", "ab") as out:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/", timeout=120)
