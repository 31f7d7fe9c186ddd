"""Reload a configuration: apply the settings that may change while an engine runs, and record the result of the last attempt.

A change is applied completely or not at all: if one setting needs a new engine, or a line of a file is bad, all stay as they are.
So an engine always runs with exactly one configuration that a person wrote, and its files.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from streamer.config.live import is_live
from streamer.config.loader import Loaded, Place, fields_of, load, show_place
from streamer.config.schema.config import Config
from streamer.config.schema.values import Section
from streamer.engine.subscription_files import fill
from streamer.errors import BulkConfigError, ConfigError
from streamer.locks import Lock

if TYPE_CHECKING:
    from streamer.engine.engine import Engine
    from streamer.metrics import Server

_LAYOUT: Final = (("matching", "format"), ("matching", "format_options"), ("matching", "layout"))
_FIXED: Final = "cannot change while the engine runs; make a new engine"


@final
@dataclass(frozen=True, slots=True)
class Reload:
    """The result of the last attempt to apply a configuration; making the engine is the first.

    Attributes:
        good: whether the configuration was applied.
        at: the time of the attempt, in seconds since the epoch.
        good_at: the time of the last successful attempt, in seconds since the epoch.
        changed: the settings that the last successful attempt changed, such as `matching.cel.evaluation_timeout`.
        subscriptions: how many subscriptions of files the last successful attempt added, replaced or removed.
        error: the reason for refusing it; None if it was applied.
    """

    good: bool
    at: float
    good_at: float
    changed: tuple[str, ...] = ()
    subscriptions: int = 0
    error: str | None = None


def changes(old: Config, new: Config) -> Iterator[Place]:
    """Yield each place at which two configurations differ; for a section that only one of them has, only its place."""
    reported: set[Place] = set()
    for place in dict.fromkeys((*fields_of(old), *fields_of(new))):
        before, after = _at(old, place), _at(new, place)
        both_have_names = _has_names(before) and _has_names(after)
        if before != after and not both_have_names and not any(place[:length] in reported for length in range(len(place))):
            reported.add(place)
            yield place


def _has_names(value: Any) -> bool:
    """Return whether the fields of a value, or the sections in it, have places of their own."""
    return isinstance(value, Section) or (isinstance(value, dict) and all(isinstance(each, Section) for each in value.values()))


def check(old: Config, new: Loaded, may: Callable[[Place], bool] = is_live, otherwise: str = _FIXED) -> tuple[Place, ...]:
    """Return the changed settings, after checking that each may change while the engine or the program around it runs.

    Args:
        may: returns whether a place may change.
        otherwise: the error for a place that may not.

    Raises:
        BulkConfigError: settings differ that may not change; the error lists each with the position of its new value.
    """
    changed = tuple(changes(old, new.config))
    # `layout: {preset: X}` and `format: X` are the same layout.
    same = _LAYOUT if old.matching.event_layout == new.config.matching.event_layout else ()
    if fixed := [new.error(place, otherwise) for place in changed if not may(place) and place[:2] not in same]:
        raise BulkConfigError(sorted(fixed, key=lambda error: (error.line is None, error.line or 0, error.column or 0)))
    return changed


@final
class Configured:
    """The configuration that an engine was made from. Thread-safe: reloads run one at a time; readers get the last good one.

    If a signal handler reloads during a reload, its configuration is the later one and stays current.

    Attributes:
        loaded: the current configuration.
        last: the result of the last attempt.
        server: the server of the metrics; None if metrics are not served.
    """

    def __init__(self, source: str | os.PathLike[str] | Config) -> None:
        """Read a configuration. Raises BulkConfigError and OSError, as `Config.load` does."""
        self._read = _reader(source)
        self.loaded = self._read()
        self.server: Server | None = None
        now = time.time()
        self.last = Reload(good=True, at=now, good_at=now)
        self._lock = Lock()
        #: The ids that files gave the engine, as JSON: a set of a million would take a hundred megabytes.
        self._ids = "[]"

    def refuse(self, error: Exception) -> None:
        """Record that a configuration was refused, and why; the current one stays."""
        self.last = replace(self.last, good=False, at=time.time(), error=str(error))

    def fill(self, engine: Engine) -> None:
        """Add the subscriptions of the files to an empty engine. Raises BulkConfigError."""
        self.last = replace(self.last, subscriptions=self._fill(engine, self.loaded))

    def _fill(self, engine: Engine, loaded: Loaded) -> int:
        """Apply the files of a configuration; return how many subscriptions changed. Raises BulkConfigError."""
        changes = fill(engine, loaded, frozenset(json.loads(self._ids)))
        self._ids = json.dumps([*changes.added, *changes.replaced, *changes.unchanged])
        return len(changes.added) + len(changes.replaced) + len(changes.removed)

    def reload(self, source: str | os.PathLike[str] | Config | None, engine: Engine) -> Reload:
        """Read and apply a configuration; see `Engine.reload`.

        Args:
            source: the new source; None for the source of the last good configuration.
            engine: the engine that this configuration made.
        """
        with self._lock:
            while True:
                before = self.loaded
                read = self._read if source is None else _reader(source)
                try:
                    new = read()
                    changed = check(before.config, new)
                    count = self._fill(engine, new)
                except (ConfigError, OSError) as error:
                    if self.loaded is not before:
                        continue
                    self.refuse(error)
                    raise
                now = time.time()
                last = Reload(good=True, at=now, good_at=now, changed=tuple(map(show_place, changed)), subscriptions=count)
                if self.loaded is before:
                    self.loaded, self._read, self.last = new, read, last
                    break
            current = None
            while current is not self.loaded:
                current = self.loaded
                engine._reconfigure(current.config)
            return last


def serve(engine: Engine, config: Config) -> Server | None:
    """Serve the metrics of an engine if its configuration sets it. Raises OSError."""
    metrics = config.metrics
    if not metrics.enabled:
        return None
    return engine.serve_metrics(
        metrics.port, metrics.address, name=metrics.name, collections=metrics.collections, tenants=metrics.tenants
    )


def _reader(source: str | os.PathLike[str] | Config) -> Callable[[], Loaded]:
    """Return a function that reads a configuration, from the same file even if the process changes its directory later."""
    if isinstance(source, Config):
        return partial(Loaded, source)
    return partial(load, Path(source).absolute(), name=os.fspath(source))


def _at(config: Config, place: Place) -> Any:
    value: Any = config
    for name in place:
        value = value.get(name) if isinstance(value, dict) else getattr(value, str(name), None)
    return value
