"""Import the names of a package on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package.

    Code inside Streamer imports a name from its own module instead, because imports through a package may deadlock.

    Args:
        package: the `__name__` of the package.
        homes: for each name, its module, relative to the package.
    """

    def getattribute(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home}"), name)

    return getattribute
