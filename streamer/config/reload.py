"""What of a configuration may change while an engine runs, and whether the last attempt was good.

A change is taken whole or not at all: where one place needs a new engine nothing changes, so that an engine always runs on one
configuration that somebody wrote.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

from streamer.config.loader import Loaded, Place, fields_of, load, show_place
from streamer.config.schema import Config, Section
from streamer.errors import BulkConfigError, BulkSubscriptionError, ConfigError, InputError
from streamer.locks import Lock

if TYPE_CHECKING:
    from streamer.engine.engine import Engine
    from streamer.metrics import Server

#: The places whose values, or all values below, may change. Everything else decides how subscriptions were compiled and indexed,
#: or what was opened when the engine was made.
LIVE: Final[tuple[Place, ...]] = (
    ("matching", "batch_size"),
    ("matching", "bloom"),
    ("matching", "threads"),
    ("matching", "cel", "cache_size"),
    ("matching", "cel", "evaluation_timeout"),
    ("logging",),
)


@final
@dataclass(frozen=True, slots=True)
class Reload:
    """How the last attempt to take a configuration went; making the engine is the first.

    Attributes:
        good: whether it was taken.
        at: when it was tried, in seconds since the epoch.
        good_at: when one was taken last, likewise.
        changed: what the last good one changed, as `matching.cel.evaluation_timeout`.
        error: why it was not taken; None where it was.
    """

    good: bool
    at: float
    good_at: float
    changed: tuple[str, ...] = ()
    error: str | None = None


def is_live(place: Place) -> bool:
    """Tell whether the value at a place may change while an engine runs."""
    return any(place[: len(live)] == live for live in LIVE)


def changes(old: Config, new: Config) -> Iterator[Place]:
    """Yield each place at which two configurations differ."""
    for place in fields_of(Config):
        before, after = _at(old, place), _at(new, place)
        if before != after and not isinstance(before, Section):
            yield place


def check(old: Config, new: Loaded) -> tuple[Place, ...]:
    """Return what a running engine is to change.

    Raises:
        BulkConfigError: something that needs a new engine differs; every such place is named, with where its new value stands.
    """
    changed = tuple(changes(old, new.config))
    if fixed := [_fixed(place, new) for place in changed if not is_live(place)]:
        raise BulkConfigError(sorted(fixed, key=lambda error: (error.line is None, error.line or 0, error.column or 0)))
    return changed


def _fixed(place: Place, new: Loaded) -> ConfigError:
    origin = new.origin(place)
    # What a file no longer says stands nowhere in it.
    source, mark = origin.source or new.name, origin.mark
    line, column = (mark.line, mark.column) if mark is not None else (None, None)
    reason = "cannot change while the engine runs; make a new engine"
    return ConfigError(reason, place=show_place(place), source=source, line=line, column=column)


@final
class Configured:
    """The configuration that an engine was made from. Safe for threads: reloads take turns, and readers see the last good one.

    Attributes:
        config: the one in force.
        last: how the last attempt to take one went.
        server: that of the metrics; None where none are served.
    """

    def __init__(self, source: str | os.PathLike[str] | Config) -> None:
        """Read a configuration. Raises BulkConfigError and OSError as `Config.load`."""
        self._source = source
        self.config = _read(source).config
        self.server: Server | None = None
        now = time.time()
        self.last = Reload(good=True, at=now, good_at=now)
        self._lock = Lock()

    def reload(self, source: str | os.PathLike[str] | Config | None, take: Callable[[Config], None]) -> Reload:
        """Read a configuration and take it; see `Engine.reload`.

        Args:
            source: None for where the last good one came from.
            take: puts one in force; it cannot fail.
        """
        with self._lock:
            source = self._source if source is None else source
            try:
                new = _read(source)
                changed = check(self.config, new)
                config = new.config
            except (ConfigError, OSError) as error:
                self.last = replace(self.last, good=False, at=time.time(), error=str(error))
                raise
            take(config)
            now = time.time()
            self.config, self._source = config, source
            self.last = Reload(good=True, at=now, good_at=now, changed=tuple(map(show_place, changed)))
            return self.last


def serve(engine: Engine, config: Config) -> Server | None:
    """Serve the metrics of an engine where its configuration says so. Raises OSError."""
    metrics = config.metrics
    if not metrics.enabled:
        return None
    return engine.serve_metrics(
        metrics.port, metrics.address, name=metrics.name, collections=metrics.collections, tenants=metrics.tenants
    )


def fill(engine: Engine, config: Config) -> None:
    """Add the subscriptions of a configuration's files to an engine.

    Raises:
        BulkConfigError: a file that cannot be read, or a bad subscription, each with file and line.
    """
    errors: list[ConfigError] = []
    for file in config.subscriptions:
        try:
            engine.add_jsonl(file)
        except BulkSubscriptionError as bulk:
            for error in bulk.errors:
                line, error.index = error.index, None
                errors.append(ConfigError(str(error), source=str(file), line=None if line is None else line + 1))
        except InputError as error:
            errors.append(ConfigError(str(error), source=str(file), line=error.line))
        except OSError as error:
            errors.append(ConfigError(error.strerror or str(error), source=str(file)))
    if errors:
        raise BulkConfigError(errors)


def _read(source: str | os.PathLike[str] | Config) -> Loaded:
    return Loaded(source) if isinstance(source, Config) else load(source)


def _at(config: Config, place: Place) -> Any:
    value: Any = config
    for name in place:
        value = getattr(value, str(name))
    return value
