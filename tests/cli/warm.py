"""A process that has imported the command line, and runs each command in a fork of itself.

A command is a process of its own, with its arguments, environment, directory, files and exit code, but it starts and ends in
milliseconds: the imports take half a second, and to free all that they made at the end a tenth. What Python's own start and end
do is for tests that start Python.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO

SECONDS = 60
#: Each answer has as many, so that two are never read as one.
DIGITS = 16
#: What commands import when they need it; some of it comes with an extra.
LATER = (
    "matplotlib.figure",
    "streamer.config.loader",
    "streamer.engine.lint",
    "streamer.engine.reload",
    "streamer.service.run.checking",
    "streamer.service.run.serve",
    "streamer.service.store.backup",
)


class Warm:
    """The process, as long as it lives; it is asked over a socket, with the files of a command attached."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Start it with an environment; by default that which is set now."""
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(SECONDS)
        with theirs:
            command = (sys.executable, __file__, str(theirs.fileno()))
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)

    def run(
        self, arguments: Sequence[str], place: Path, stdin: bytes = b"", *, environment: Mapping[str, str] = os.environ
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in *place* with *environment*, *stdin* coming through a pipe."""
        reading, writing = os.pipe()
        threading.Thread(target=feed, args=(writing, stdin), daemon=True).start()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            request = json.dumps([arguments, str(place), dict(environment)]) + "\n"
            socket.send_fds(self._socket, [request.encode()], [reading, out.fileno(), err.fileno()])
            os.close(reading)
            pid = self._answer()
            try:
                code = self._answer()
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._answer()
                raise subprocess.TimeoutExpired(("streamer", *arguments), SECONDS, *written(out, err)) from None
            return subprocess.CompletedProcess(("streamer", *arguments), code, *written(out, err))

    def _answer(self) -> int:
        return int(self._socket.recv(DIGITS))

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.wait(SECONDS)


def written(*files: IO[bytes]) -> Iterator[bytes]:
    """Yield what was written to each of *files*."""
    for file in files:
        file.seek(0)
        yield file.read()


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
        asked.send(f"{child:{DIGITS}}".encode())
        _, status = os.waitpid(child, 0)
        asked.send(f"{os.waitstatus_to_exitcode(status):{DIGITS}}".encode())


def main() -> None:
    """Import what commands import, and serve."""
    from streamer.cel_eval.parse import parse
    from streamer.cli.main import main as command
    from streamer.model import Limits

    for name in LATER:
        with suppress(ImportError):
            import_module(name)
    # The parser is made from its grammar once.
    parse("true", Limits())
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
    run(command)


def run(command: Callable[[], object]) -> None:
    """Run a command, and end the process as Python would, but leave its memory to the system."""
    code = None
    try:
        command()
    except SystemExit as ended:
        code = ended.code
    if isinstance(code, str):
        sys.exit(code)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    main()
