"""Files that the commands read, and how an error in one is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from streamer.errors import InputError
from streamer.terminal import fail, note


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`; end the program where it cannot be opened."""
    if name == "-":
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
