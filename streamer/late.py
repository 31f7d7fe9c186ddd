"""Import the names of a package on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package.

    Inside of Streamer a name is imported from its home: an import that waits for another through a package may wait for ever.

    Args:
        package: its `__name__`.
        homes: the module of each name, as it is called in the package.
    """

    def getattribute(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home}"), name)

    return getattribute
