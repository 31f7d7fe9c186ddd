"""The rooms of the package stand in one order, and each imports only what stands below it; so do the native engine's folders."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "streamer"
if not (PACKAGE.parent / "ARCHITECTURE.md").exists():
    pytest.skip("these tests read the checkout", allow_module_level=True)

#: From the top to the ground; what shares a line shares a floor, and does not import one another.
ORDER = (
    {"__main__"},
    {"spark"},
    {"cli"},
    {"service"},
    {"streamer"},  # `streamer/__init__.py`: what users import
    {"engine"},
    {"automaton"},
    {"native", "reference"},
    {"config"},
    {"metrics"},
    {"core"},
    {"bloom"},
    {"logs"},
    {"importing", "terminal"},
    {"subscriptions"},
    {"cel_eval", "cdc"},
    {"events"},
    {"model", "quiet", "telemetry"},
    {"locks", "_backend"},
    {"_native", "errors", "extras", "files", "late", "living", "sizes", "version"},
)
#: The folders of the native engine, in the same way. The files next to them use all.
ENGINE = PACKAGE.parent / "crates/streamer-core/src/engine"
ENGINE_ORDER = ({"matching", "write", "file"}, {"state"}, {"index"}, {"verify"})
FLOOR = {room: len(ORDER) - number for number, rooms in enumerate(ORDER) for room in rooms}


def room(module: str) -> str:
    """Return the room that a module stands in."""
    return module.split(".")[1] if "." in module else "streamer"


def module(path: Path) -> str:
    """Return the name under which a file is imported."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """Yield what a file imports of the package, wherever it does: in functions and for types alone, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "streamer")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "streamer":
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES or name == "streamer._native" else node.module


def test_every_room_has_its_place() -> None:
    rooms = {room(name) for name in MODULES} | {"_native"}
    assert rooms == set(FLOOR), "a new room needs a place in ORDER; one that is gone leaves it"


@pytest.mark.parametrize("name", MODULES)
def test_a_file_imports_only_what_stands_below_its_room(name: str) -> None:
    here = room(name)
    above = {other for other in imported(MODULES[name]) if room(other) != here and FLOOR[room(other)] >= FLOOR[here]}
    assert above == set()


def test_every_folder_of_the_native_engine_has_its_place() -> None:
    assert {path.name for path in ENGINE.iterdir() if path.is_dir()} == set().union(*ENGINE_ORDER)


@pytest.mark.parametrize(
    ("number", "folder"), [(number, folder) for number, row in enumerate(ENGINE_ORDER) for folder in sorted(row)]
)
def test_a_folder_of_the_native_engine_imports_only_what_stands_below_it(number: int, folder: str) -> None:
    below = set().union(*ENGINE_ORDER[number + 1 :])
    code = "".join(
        re.sub("//.*", "", path.read_text().split("#[cfg(test)]\nmod tests")[0]) for path in (ENGINE / folder).rglob("*.rs")
    )
    assert set(re.findall(r"crate::engine::(\w+|\{)", code)) <= below | {folder}
