"""The configuration in force, field by field, and what another text would change in it. Secrets are told by their names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from streamer.config.live import is_served
from streamer.config.loader import Loaded, Place, loads, show_place
from streamer.config.show import SECTION, show, values
from streamer.engine.reload import changes
from streamer.errors import BulkConfigError, ConfigError

#: Reads a text as the file of the configuration is read.
Parse: TypeAlias = Callable[[bytes], Loaded]
#: What errors call a configuration that no file has.
_NAMELESS: Final = "configuration"


def parser(loaded: Loaded) -> Parse:
    """Return what reads a text in the place of the file that a configuration came from."""
    name = loaded.name or _NAMELESS
    return lambda text: loads(text, name, directory=Path(name).parent, environment=os.environ)


def told(loaded: Loaded) -> dict[str, Any]:
    """Return what is in force: as text that can be loaded again, and each field with where it comes from."""
    return {
        "name": loaded.name,
        "text": show(loaded),
        "fields": [
            {"place": show_place(place), "value": value, "from": origins, "needs_restart": not is_served(place)}
            for place, value, origins in values(loaded)
            if value is not SECTION
        ],
    }


def checked(before: Loaded, text: bytes, parse: Parse, fitting: Callable[[Loaded], None]) -> dict[str, Any]:
    """Return what is wrong in a text, or what it would change. Files that it names are not read, and nothing is opened."""
    try:
        new = parse(text)
        fitting(new)
    except BulkConfigError as bulk:
        return {"good": False, "needs_restart": False, "errors": list(map(_error, bulk.errors)), "changes": []}
    found = list(_changes(before, new))
    return {"good": True, "needs_restart": any(each["needs_restart"] for each in found), "errors": [], "changes": found}


def _changes(before: Loaded, new: Loaded) -> Iterator[dict[str, Any]]:
    old, made = (each.config.model_dump(mode="json") for each in (before, new))
    for place in changes(before.config, new.config):
        origin = new.origin(place)
        yield {
            "place": show_place(place),
            "before": _at(old, place),
            "after": _at(made, place),
            "line": None if origin.mark is None else origin.mark.line,
            "needs_restart": not is_served(place),
        }


def _at(members: Any, place: Place) -> Any:
    for name in place:
        members = members.get(name) if isinstance(members, dict) else None
    return members


def _error(error: ConfigError) -> dict[str, Any]:
    named = {name: getattr(error, name) for name in ("source", "line", "column", "place")}
    return {"reason": error.reason, **{name: value for name, value in named.items() if value is not None}}
