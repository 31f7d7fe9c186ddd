"""Paths of this machine, however they are written. This module does not import PySpark."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from streamer.core.snapshot import path_of
from streamer.errors import ConfigError

#: As Hadoop reads a path: `file:/a` and `file:///a` are one, and a path without a scheme is of the default file system.
URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):(?://(?P<authority>[^/]*)(?=/|$)|(?=/))(?P<path>.*)", re.I | re.S)


def local_path(text: str) -> str | None:
    """Return a place as a path of this machine; None for another file system."""
    url = URL.fullmatch(text)
    if url is None:
        return text
    return url["path"] if url["scheme"].lower() == "file" else None


def on_driver(path: str | os.PathLike[str], instead: str = "give the subscriptions as a DataFrame") -> Path:
    """Return the path of subscriptions that is one of this machine; `file:///a` is `/a`.

    Args:
        instead: the advice for a path that is not on this machine.

    Raises:
        ConfigError: the path is of another file system.
        TypeError: the path is not a path as text.
    """
    text = path_of(path)
    local = local_path(text)
    if local is None:
        raise ConfigError(f"{text} is not on this machine: mount it or copy it here, or {instead}", place="subscriptions")
    return Path(local)
