"""The protocol of a core has what an engine asks of it, and no hook that only tests would use."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from streamer.core.protocol import Core

PACKAGE = Path(__file__).resolve().parents[2] / "streamer"
if not (PACKAGE.parent / "ARCHITECTURE.md").exists():
    pytest.skip("these tests read the checkout", allow_module_level=True)

#: The cores themselves, and what describes them.
CORES = ("native", "reference", "core/protocol.py")


def used() -> set[str]:
    """Return the names of all attributes that the package reads outside of its cores."""
    files = [path for path in PACKAGE.rglob("*.py") if not path.relative_to(PACKAGE).as_posix().startswith(CORES)]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_the_package_asks_for_each_method_of_the_protocol() -> None:
    methods = {name for name in vars(Core) if not (name.startswith("__") and name.endswith("__"))}
    internal = {name for name in methods if name.startswith("_abc") or name in ("_is_protocol", "_is_runtime_protocol")}
    assert methods - internal - used() == set()
