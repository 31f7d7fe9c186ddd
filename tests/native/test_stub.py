"""The stub of the native module is where it is documented, and what `help` shows is the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from streamer import _native

STUB = Path(_native.__file__).with_name("_native.pyi")
Documented: TypeAlias = ast.ClassDef | ast.FunctionDef


def public(body: list[ast.stmt]) -> Iterator[Documented]:
    """Yield what is defined and does not begin with an underscore."""
    yield from (each for each in body if isinstance(each, Documented) and not each.name.startswith("_"))


MODULE = {each.name: each for each in public(ast.parse(STUB.read_text(encoding="utf-8")).body)}
METHODS = {
    f"{name}.{each.name}": each
    for name, owner in MODULE.items()
    if isinstance(owner, ast.ClassDef)
    for each in public(owner.body)
}


@pytest.mark.parametrize("name", [*MODULE, *METHODS])
def test_every_public_name_is_documented_in_the_stub(name: str) -> None:
    assert ast.get_docstring({**MODULE, **METHODS}[name])


@pytest.mark.parametrize("name", MODULE)
def test_help_shows_the_first_paragraph_of_the_stub(name: str) -> None:
    """A text in Rust that says something else is a second place to look after."""
    in_stub = (ast.get_docstring(MODULE[name]) or "").partition("\n\n")[0].split()
    assert (getattr(_native, name).__doc__ or "").split() == in_stub


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_documented_in_the_stub_alone(name: str) -> None:
    owner, method = name.split(".")
    assert not getattr(getattr(_native, owner), method).__doc__
