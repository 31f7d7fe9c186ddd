"""The rooms of a package stand in one order, and each imports only what stands below it; so do the native engine's folders."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "streamer"
if not (PACKAGE.parent / "ARCHITECTURE.md").exists():
    pytest.skip("these tests read the checkout", allow_module_level=True)

#: The rooms of each package from the top to the ground. Rooms of one line share a floor, and do not import one another. The files
#: and folders of a package are its rooms; the package's name stands for its `__init__.py`.
ORDER: dict[str, tuple[set[str], ...]] = {
    "streamer": (
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
        {"effort", "events"},
        {"model", "quiet", "telemetry"},
        {"locks", "_backend"},
        {"_native", "errors", "extras", "files", "late", "living", "sizes", "version"},
    ),
    "streamer.service": (
        {"run"},
        {"console"},
        {"api"},
        {"tenants"},
        {"delivery"},
        {"observed"},
        {"store"},
        {"connectors"},
        {"faults"},
        {"service"},
    ),
    "streamer.service.connectors": (
        {"sinks", "sources"},
        {"file", "kafka", "postgres", "stdio", "webhook"},  # no connector knows another one
        {"formats"},
        {"lines", "registry", "unavailable"},
        {"cloudevents", "protocols", "trust"},
        {"connectors"},
    ),
}
FLOORS = {
    package: {room: len(order) - number for number, rooms in enumerate(order) for room in rooms}
    for package, order in ORDER.items()
}
#: The folders of the native engine, in the same way. The files next to them use all.
ENGINE = PACKAGE.parent / "crates/streamer-core/src/engine"
ENGINE_ORDER = ({"matching", "write", "file"}, {"state"}, {"index"}, {"verify"})


def room(module: str, package: str) -> str | None:
    """Return the room of a package that a module stands in; None if it is outside of the package."""
    if module == package:
        return package.rpartition(".")[2]
    return module.removeprefix(f"{package}.").partition(".")[0] if module.startswith(f"{package}.") else None


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


@pytest.mark.parametrize("package", ORDER)
def test_every_room_has_its_place(package: str) -> None:
    rooms = {room(name, package) for name in [*MODULES, "streamer._native"]} - {None}
    assert rooms == set(FLOORS[package]), "a new room needs a place in ORDER; one that is gone leaves it"


@pytest.mark.parametrize("package", ORDER)
def test_a_file_imports_only_what_stands_below_its_room(package: str) -> None:
    floors, wrong = FLOORS[package], {}
    for name, path in MODULES.items():
        if (here := room(name, package)) is not None:
            rooms = {other: there for other in imported(path) if (there := room(other, package)) is not None and there != here}
            if above := {other for other, there in rooms.items() if floors[there] >= floors[here]}:
                wrong[name] = above
    assert wrong == {}


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
