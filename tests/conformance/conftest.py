"""The table of cases is a test a file, which tells all of its cases that fail; `--case NAME` runs what has that in its name."""

from __future__ import annotations

import logging

import pytest

from tests.conformance.table import by_file


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cases" in metafunc.fixturenames:
        part = metafunc.config.getoption("case")
        if not (files := by_file(part)):
            raise pytest.UsageError(f"no case of the table has {part!r} in its file::name")
        metafunc.parametrize("cases", files.values(), ids=files)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What expressions come to is logged, and would bury the cases that fail."""
    caplog.set_level(logging.CRITICAL, logger="streamer")
