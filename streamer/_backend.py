"""The one import seam between the native core and the reference.

`STREAMER_BACKEND` chooses, once, at import:

- `auto` (default): the native engine; without a native core, the reference, with one `ReferenceBackendWarning`;
- `native`: the native engine or `BackendError`, never a fallback;
- `reference`: the reference, without a warning.
"""

from __future__ import annotations

import importlib
import os
import warnings
from types import ModuleType
from typing import Final, Literal, TypeAlias

from streamer.errors import BackendError
from streamer.extras import needed

Backend: TypeAlias = Literal["native", "reference"]

VARIABLE: Final = "STREAMER_BACKEND"
CHOICES: Final = ("auto", "native", "reference")


class ReferenceBackendWarning(RuntimeWarning):
    """The slow but exact reference backend is used, because no native core is installed."""


def check_interpreter() -> None:
    """Raise ImportError in a sub-interpreter, because calls from the native core into Python would deadlock there."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "streamer runs in the main interpreter of a process, and this is a sub-interpreter: use a process of its own; "
                "with mod_wsgi, WSGIApplicationGroup %{GLOBAL} chooses the main interpreter",
                name="streamer",
            )
        return


def native_core() -> ModuleType | None:
    """Return the native core, or None if it was not built.

    Any other failure to import it (a missing shared library, a wrong architecture) is raised: falling back would hide it.
    """
    try:
        return importlib.import_module("streamer._native")
    except ModuleNotFoundError as error:
        if error.name != "streamer._native":
            raise
        return None


def choose(choice: str) -> Backend:
    """Return the backend for *choice*, a value of `STREAMER_BACKEND`.

    Args:
        choice: one of `CHOICES`.

    Raises:
        BackendError: the choice is unknown, `native` lacks its core, or the reference lacks its packages.
    """
    if choice not in CHOICES:
        raise BackendError(f"{VARIABLE}={choice!r}: expected one of {', '.join(CHOICES)}")
    if choice == "reference":
        _check_reference()
        return "reference"
    if native_core() is not None:
        return "native"
    if choice == "native":
        raise BackendError(f"{VARIABLE}=native, but this installation has no native core: reinstall with STREAMER_BUILD_RUST=1")
    _check_reference()
    warnings.warn(
        "the native core is not installed: Streamer runs on the reference in pure Python, which is exact but slow. "
        f"Reinstall with STREAMER_BUILD_RUST=1, or set {VARIABLE}=reference to suppress this warning",
        ReferenceBackendWarning,
        stacklevel=3,
    )
    return "reference"


def _check_reference() -> None:
    """Raise BackendError if the packages of the reference are missing; wheels with a native core do not install them."""
    try:
        with needed("the reference backend needs rpds-py and pybloom-live", "portable"):
            for name in ("rpds", "bitarray", "pybloom_live"):
                importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise BackendError(str(error)) from error


def available() -> tuple[Backend, ...]:
    """Return the backends that this installation can run, for tests and benchmarks."""
    return ("native", "reference") if native_core() is not None else ("reference",)


check_interpreter()
BACKEND: Final[Backend] = choose(os.environ.get(VARIABLE, "auto"))
