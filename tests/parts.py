"""What takes long in parts: `make test` runs the first, `make test-all` more, `make test-integration` the rest."""

from __future__ import annotations

import pytest


def in_parts(count: int, *, slow: int | None = None) -> pytest.MarkDecorator:
    """Run a test *count* times, each with another `part`: the first is quick, the next *slow* (all) are slow.

    Parts of something fixed, as the table of cases, are all slow. Of parts that differ by the seed of their random values few are
    enough: `make fuzz` tries seeds for as long as you like.
    """
    limit = count if slow is None else slow + 1
    rest = [pytest.param(part, marks=pytest.mark.slow if part < limit else pytest.mark.integration) for part in range(1, count)]
    return pytest.mark.parametrize("part", [0, *rest])


def in_rounds(few: int, many: int) -> pytest.MarkDecorator:
    """Run a random test with *few* `rounds` in `make test`, and with *many* in `make test-integration`."""
    return pytest.mark.parametrize("rounds", [few, pytest.param(many, marks=pytest.mark.integration)])


def in_seeds(few: int, many: int) -> pytest.MarkDecorator:
    """Run a random test with each `seed`: the first *few* in `make test`, all *many* in `make test-integration`."""
    return pytest.mark.parametrize(
        "seed", [*range(few), *(pytest.param(seed, marks=pytest.mark.integration) for seed in range(few, many))]
    )
