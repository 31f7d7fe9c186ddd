"""What takes long in parts: `make test` runs the first, `make test-all` all."""

from __future__ import annotations

import pytest


def in_parts(count: int) -> pytest.MarkDecorator:
    """Run a test as often as *count*, each time with another `part`; only the first is quick."""
    rest = [pytest.param(part, marks=pytest.mark.slow) for part in range(1, count)]
    return pytest.mark.parametrize("part", [0, *rest])
