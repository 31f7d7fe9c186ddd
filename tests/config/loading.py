"""What the tests of the loader share: a text as a configuration, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from streamer import BulkConfigError
from streamer.config import loader


def load(text: str, environment: Mapping[str, str] | None = None) -> loader.Loaded:
    return loader.loads(text.encode(), "s.yaml", directory=Path("/etc/streamer"), environment=environment or {})


def wrong(text: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """Load what is wrong; return each error as it prints."""
    with pytest.raises(BulkConfigError) as refused:
        load(text, environment)
    return [str(error) for error in refused.value.errors]
