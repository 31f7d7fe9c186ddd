"""Safe output for a terminal: data cannot control it.

Ids, labels, member names and values come from other people. A terminal obeys more than ASCII's control characters: C1 controls
begin sequences too, and direction marks reverse the rest of a line.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import sys
from typing import Any, Final, NoReturn, final

OK, SOME_BAD, USAGE, LOST, PASSING, INTERRUPTED = 0, 1, 2, 3, 4, 130

#: The width of output for people, in columns.
WIDTH: Final = 80

EXIT_CODES: Final = (
    "Exit codes: 0 all is well; 1 {one}; 2 wrong usage, a bad configuration, bad subscriptions, or files that cannot be read or "
    "written; 130 interrupted by Ctrl-C. "
    "If the reader of the output goes away, it ends quietly by SIGPIPE."
)

#: The exit codes of commands that use the store of a service, its sources or its sinks.
SERVICE_EXIT_CODES: Final = EXIT_CODES.replace(
    "; 130",
    "; 3 unread data is lost; 4 a temporary failure: a server that does not answer, a full disk, a store or a port that "
    "another process uses, a crash; 130",
)

#: The nesting limit, more than labels may have.
_MAX_DEPTH: Final = 1024

# JSON has such characters in strings only, so each may be written as an escape.
_IN_JSON: Final = re.compile(r"[^\x20-\x7e]")


def printable(text: str, *, keep: str = "") -> str:
    """Return a text with unprintable characters, except for those in *keep*, escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text)


def json_text(value: Any) -> str:
    """Return a value, such as labels, as JSON on one line, with unprintable characters escaped as in JSON.

    It reads back as the same value, and may be as deep as a subscription.
    """
    from streamer.subscriptions.text import write_json

    text, _ = write_json(value, max_depth=_MAX_DEPTH, max_bytes=None)
    return printable_json(text)


def printable_json(text: str) -> str:
    """Return JSON text with unprintable characters escaped as in JSON."""
    return text if text.isprintable() else _IN_JSON.sub(_escaped, text)


def quoted(text: str) -> str:
    """Return a printable text unchanged, and any other text as a JSON string."""
    return text if text.isprintable() else json_text(text)


def note(text: str) -> None:
    """Print one line about the results, on standard error."""
    _tell(printable(text))


def _tell(text: str) -> None:
    try:
        print(text, file=sys.stderr)
    except OSError:
        # For example, the disk is full. The results do not depend on these messages, so drop them from now on.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the program runs


@final
class _ClosedOutput(io.TextIOBase):
    """Standard output that was closed when the program started (`>&-`): writing to it fails."""

    @property
    def closed(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "standard output is closed")

    def flush(self) -> None:
        """Ignore the call: this stream has no buffer."""

    def isatty(self) -> bool:
        return False


def set_up_streams() -> None:
    """Prepare the standard streams of a program that prints: UTF-8, an end by SIGPIPE, and a replacement for a closed one.

    The descriptor of a closed stream is occupied: otherwise the first opened file would get it, and with it the output.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = _ClosedOutput()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as long as the program runs
    # If the reader of a pipe ends, end quietly by the signal, as filters do, instead of a traceback.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def show(text: str) -> None:
    """Print lines that are results."""
    print(printable(text, keep="\n"))


def has_colour() -> bool:
    """Return whether results go to a terminal that shows colours, and the user did not switch them off (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fail(text: str) -> NoReturn:
    """Print an error, and end the program."""
    note(f"streamer: {text}")
    sys.exit(USAGE)


def _escaped(match: re.Match[str]) -> str:
    return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1]
