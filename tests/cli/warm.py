"""A process that has imported the command line, and runs each command in a fork of itself.

A command is a process of its own, with its arguments, environment, directory, files and exit code, but it starts in
milliseconds instead of the half second that the imports take. What a start itself does is for tests that start Python.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

SECONDS = 60


class Warm:
    """The process, as long as it lives; it is asked over a socket, with the files of a command attached."""

    def __init__(self) -> None:
        """Start it with the environment that is set now."""
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(SECONDS)
        with theirs:
            self._process = subprocess.Popen((sys.executable, __file__, str(theirs.fileno())), pass_fds=[theirs.fileno()])

    def run(self, arguments: Sequence[str], place: Path, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        """Run a command in *place* with the environment that is set now, *stdin* coming through a pipe."""
        reading, writing = os.pipe()
        threading.Thread(target=feed, args=(writing, stdin), daemon=True).start()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            request = json.dumps([arguments, str(place), dict(os.environ)]) + "\n"
            socket.send_fds(self._socket, [request.encode()], [reading, out.fileno(), err.fileno()])
            os.close(reading)
            code = int(self._socket.recv(16))
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(("streamer", *arguments), code, out.read(), err.read())

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait(SECONDS)


def feed(pipe: int, content: bytes) -> None:
    """Write all of *content*, unless nobody reads it."""
    with suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(content)


def serve(asked: socket.socket) -> tuple[list[str], str, dict[str, str], list[int]] | None:
    """Fork for each command, and return in the fork what it is to do; return None when nobody asks any more."""
    while True:
        request, files, _, _ = socket.recv_fds(asked, 1 << 16, 3)
        if not request:
            return None
        while not request.endswith(b"\n"):
            request += asked.recv(1 << 16)
        child = os.fork()
        if not child:
            asked.close()
            return (*json.loads(request), files)
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        asked.send(str(os.waitstatus_to_exitcode(status)).encode())


def main() -> None:
    """Import what commands import, and serve."""
    from streamer.cli.main import main as command

    for name in ("streamer.config.loader", "streamer.engine.reload", "matplotlib.figure"):
        with suppress(ImportError):  # some of it comes with an extra
            import_module(name)
    # Or each command would collect, at its end, what was imported: that takes longer than most commands.
    gc.freeze()
    # Ctrl-C ends the tests, which then close the socket.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    todo = serve(socket.socket(fileno=int(sys.argv[1])))
    if todo is None:
        return
    arguments, place, environment, files = todo
    signal.signal(signal.SIGINT, before)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(place)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["streamer", *arguments]
    command()


if __name__ == "__main__":
    main()
