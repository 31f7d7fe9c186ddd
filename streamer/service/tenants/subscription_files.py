"""Subscriptions of files: those that a configuration names, and those of a watched directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import final

from streamer.config.loader import Loaded
from streamer.config.schema.config import Config
from streamer.engine.engine import Engine
from streamer.engine.lines import read_lines
from streamer.errors import (
    BulkConfigError,
    BulkSubscriptionError,
    ConfigError,
    DuplicateSubscriptionError,
    EventError,
    InputError,
    SubscriptionError,
)
from streamer.service.store.ids import Written, outside, written
from streamer.service.tenants.loading import Loading
from streamer.subscriptions.subscription import Subscription


def are_from_files(config: Config) -> bool:
    """Return whether a configuration names files, which then define all subscriptions from files."""
    return bool(config.subscriptions) or config.service.watch is not None


def watched(config: Config) -> list[Path]:
    """Return the files of the watched directory, in the order of their names. Raises OSError."""
    directory = config.service.watch
    if directory is None:
        return []
    wanted = config.service.watched()
    return sorted(path for path in directory.iterdir() if any(each.has(path.name) for each in wanted) and path.is_file())


@final
class Watch:
    """Notices changes of a directory's files, once they are complete."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._last_marks = self._current_marks = self._marks()

    def is_due(self) -> bool:
        """Return whether the files have changed since the last True, and are the same as at the previous call."""
        before, self._last_marks = self._last_marks, self._marks()
        if self._last_marks != before or self._last_marks == self._current_marks:
            return False
        self._current_marks = self._last_marks
        return True

    def _marks(self) -> list[tuple[str, int, int, int]]:
        marks = []
        try:
            for path in watched(self._config):
                status = path.stat()
                marks.append((path.name, status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            pass  # a deleted file is noticed at the next call
        return marks


def read(loaded: Loaded, loading: Loading | None = None) -> tuple[list[Written], list[tuple[Path, int]]]:
    """Read the subscriptions of a configuration's files, and the place of each.

    Args:
        loading: counts them.

    Raises:
        BulkConfigError: files that cannot be read, or lines that are not subscriptions, each with its place.
    """
    config = loaded.config
    subscriptions: list[Written] = []
    places: list[tuple[Path, int]] = []
    errors: list[ConfigError] = []
    files: list[tuple[Path, tuple[str | int, ...]]]
    files = [(file, ("subscriptions", index)) for index, file in enumerate(config.subscriptions)]
    try:
        files += [(file, ("service", "watch")) for file in watched(config)]
    except OSError as error:
        errors.append(loaded.error(("service", "watch"), f"{config.service.watch}: {error.strerror or error}"))
    for file, place in files:
        name = loaded.file(file)
        try:
            for number, line in read_lines(file, max_bytes=config.matching.limits.max_event_bytes):
                try:
                    if isinstance(line, EventError):
                        raise SubscriptionError(line.reason)
                    subscriptions.append(written(line, config.matching.default_tenant))
                    places.append((file, number))
                    if loading is not None:
                        loading.total = len(subscriptions)
                except SubscriptionError as error:
                    errors.append(ConfigError(str(error), source=name, line=number))
        except InputError as error:
            errors.append(ConfigError(str(error), source=name, line=error.line))
        except OSError as error:
            errors.append(loaded.error(place, f"{name}: {error.strerror or error}"))
    if errors:
        raise BulkConfigError(errors)
    return subscriptions, places


def put(
    engine: Engine,
    loaded: Loaded,
    several: Iterable[bytes | Subscription],
    places: Sequence[tuple[Path, int]] = (),
    *,
    adds: bool = False,
) -> None:
    """Replace an engine's subscriptions by exactly these, in one step.

    Args:
        several: their texts for the engine; the first ones are from files.
        places: the places of those from files.
        adds: whether to keep those that the engine has.

    Raises:
        BulkConfigError: some are invalid, each with file and line; the change was refused whole.
    """
    try:
        (engine.add_many if adds else engine.apply)(several)
    except BulkSubscriptionError as bulk:
        raise BulkConfigError([_located(error, loaded, places) for error in bulk.errors]) from None


def _located(error: SubscriptionError, loaded: Loaded, places: Sequence[tuple[Path, int]]) -> ConfigError:
    position, error.index = error.index, None
    if error.subscription_id is not None:
        error.subscription_id = outside(error.subscription_id)[1]
    if position is None or position >= len(places):
        return ConfigError(str(error))
    if isinstance(error, DuplicateSubscriptionError):
        error = DuplicateSubscriptionError(
            "this id stands twice for one tenant in the files", place=error.place, subscription_id=error.subscription_id
        )
    file, line = places[position]
    return ConfigError(str(error), source=loaded.file(file), line=line)
