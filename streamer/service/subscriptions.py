"""Subscriptions of a service: from files into the store, and from there into the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from streamer.config.loader import Loaded
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
from streamer.service.store.sqlite import Store
from streamer.service.tenants import Written, outside, written

#: Where subscriptions of files come from, as the store has it: what the files no longer say is taken out.
FILES: Final = "files"


def read(loaded: Loaded) -> tuple[list[Written], list[tuple[Path, int]]]:
    """Read the subscriptions of a configuration's files, and where each stands.

    Raises:
        BulkConfigError: a file that cannot be read, or lines that are no subscriptions, each with its place.
    """
    config = loaded.config
    found: list[Written] = []
    places: list[tuple[Path, int]] = []
    errors: list[ConfigError] = []
    for index, file in enumerate(config.subscriptions):
        name = loaded.file(file)
        try:
            for number, line in read_lines(file, max_bytes=config.matching.limits.max_event_bytes):
                try:
                    if isinstance(line, EventError):
                        raise SubscriptionError(line.reason)
                    found.append(written(line, config.matching.default_tenant))
                    places.append((file, number))
                except SubscriptionError as error:
                    errors.append(ConfigError(str(error), source=name, line=number))
        except InputError as error:
            errors.append(ConfigError(str(error), source=name, line=error.line))
        except OSError as error:
            errors.append(loaded.error(("subscriptions", index), f"{name}: {error.strerror or error}"))
    if errors:
        raise BulkConfigError(errors)
    return found, places


def put(engine: Engine, loaded: Loaded, subscriptions: Sequence[Written], places: Sequence[tuple[Path, int]]) -> None:
    """Make an engine hold exactly these, in one step.

    Raises:
        BulkConfigError: some are bad, each with file and line; nothing was changed.
    """
    try:
        engine.apply(each.held for each in subscriptions)
    except BulkSubscriptionError as bulk:
        raise BulkConfigError([_located(error, loaded, places) for error in bulk.errors]) from None


def stored(store: Store) -> Iterable[Written]:
    """Yield the subscriptions of a store."""
    return (written(body, tenant) for tenant, body in store.subscriptions())


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
