"""Files that the commands read, and the reports of their errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from streamer.engine.lines import read_lines
from streamer.errors import EventError, InputError
from streamer.terminal import fail, note


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`; end the program if it cannot be opened."""
    if name == "-":
        if sys.stdin is None:
            fail("standard input is closed; name a file")
        if sys.stdin.isatty():
            note("reading from the terminal, one JSON object a line; Ctrl-D ends it")
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(name, "rb", buffering=0))
        except OSError as error:
            fail(f"{name}: {error.strerror}")
        yield file


def damaged(name: str, error: InputError) -> str:
    return f"{shown_name(name)}{'' if error.line is None else f':{error.line}'}: {error}"


def shown_name(name: str) -> str:
    return "<stdin>" if name == "-" else name


def see_events(name: str, see: Callable[[int, bytes], None], *, max_bytes: int, most: int | None = None) -> tuple[int, bool]:
    """Pass each event of a file, with its line, to *see*, and report bad ones; end the program if the file is damaged.

    Args:
        most: read at most this many lines.

    Returns:
        The number of bad events, and whether there are more than *most* lines.
    """
    bad = 0
    try:
        with opened(name) as source:
            for lines, (number, event) in enumerate(read_lines(source, max_bytes=max_bytes)):
                if lines == most:
                    return bad, True
                try:
                    if isinstance(event, EventError):
                        raise event
                    see(number, event)
                except EventError as error:
                    bad += 1
                    error.index = None
                    note(f"{shown_name(name)}:{number}: {error}")
    except InputError as error:
        fail(damaged(name, error))
    return bad, False
