"""The current configuration, field by field, the changes that another text would make, and the result
of a reload. Secrets appear as their names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from streamer.config.live import is_served
from streamer.config.loader import Loaded, Place, loads, show_place
from streamer.config.show import SECTION, show, values
from streamer.engine.reload import changes
from streamer.errors import BulkConfigError, ConfigError

#: Reads a text in the way of the configuration's file.
Parse: TypeAlias = Callable[[bytes], Loaded]
#: The name in errors of a configuration without a file.
_NAMELESS: Final = "configuration"


class Reloaded(NamedTuple):
    """The result of a reload.

    Attributes:
        changed: fields, as `sinks.out.path`.
        subscriptions: the number of subscriptions in the store that changed.
        errors: why it was refused, with the old state kept; empty if it succeeded.
    """

    changed: tuple[str, ...] = ()
    subscriptions: int = 0
    errors: tuple[str, ...] = ()


def parser(loaded: Loaded) -> Parse:
    """Return a function that reads a text in place of a configuration's file."""
    name = loaded.name or _NAMELESS
    return lambda text: loads(text, name, directory=Path(name).parent, environment=os.environ)


def shown(loaded: Loaded) -> dict[str, Any]:
    """Return the current configuration: as text that can be loaded again, and each field with its origin."""
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
    """Return the errors of a text, or its changes, without reading the files that it names or opening connections."""
    try:
        new = parse(text)
        fitting(new)
    except BulkConfigError as bulk:
        return {"good": False, "needs_restart": False, "errors": list(map(_error, bulk.errors)), "changes": []}
    differences = list(_changes(before, new))
    return {
        "good": True,
        "needs_restart": any(each["needs_restart"] for each in differences),
        "errors": [],
        "changes": differences,
    }


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
