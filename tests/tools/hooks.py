"""What tests and benchmarks do to a core that nobody else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer import Engine

if TYPE_CHECKING:
    from streamer import _native


def hooks(engine: Engine) -> _native.CoreHooks:
    """Return hooks into the native core of an engine."""
    from streamer import _native
    from streamer.native.core import NativeCore

    assert isinstance(engine._core, NativeCore)
    return _native.CoreHooks(engine._core)
