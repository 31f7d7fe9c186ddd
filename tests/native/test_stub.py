"""The stub of the native core says what the core says."""

from __future__ import annotations

from docs import generate


def test_the_docstrings_of_the_stub_are_those_of_the_core() -> None:
    assert generate.STUB.read_text(encoding="utf-8") == generate.stub(), "run `make docs`"
