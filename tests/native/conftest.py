"""Every test here is about the native backend, whichever STREAMER_BACKEND names."""

from __future__ import annotations

import pytest

from streamer import _backend


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> str:
    """The native backend."""
    monkeypatch.setattr(_backend, "BACKEND", "native")
    return "native"
