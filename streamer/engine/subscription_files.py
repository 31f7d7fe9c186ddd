"""Read the files of subscriptions that a configuration names, into an engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING, Final, final

from streamer.config.loader import Loaded
from streamer.core.protocol import Changes, Source
from streamer.engine.batch import refused
from streamer.engine.lines import read_blocks
from streamer.errors import (
    BulkConfigError,
    BulkSubscriptionError,
    ConfigError,
    DuplicateSubscriptionError,
    InputError,
    SubscriptionError,
)

if TYPE_CHECKING:
    from streamer.engine.engine import Engine

#: Stands for a file that cannot be read to its end, so that a write checks the other files and then changes nothing.
_UNREADABLE: Final = "unreadable"


def fill(engine: Engine, loaded: Loaded, among: Set[str] = frozenset()) -> Changes:
    """Replace the subscriptions of an engine that files gave it by those that the files of a configuration have now, in one step.

    Args:
        among: the ids that files gave the engine; other subscriptions stay.

    Raises:
        BulkConfigError: bad subscriptions, each with file and line, or files that cannot be read; the engine is unchanged.
    """
    files = _Files(loaded)
    try:
        return engine._apply_files(files.rows(), among)
    except BulkSubscriptionError as bulk:
        raise BulkConfigError([files.located(error, engine, among) for error in bulk.errors]) from None


@final
class _Files:
    """The rows of files, one after the other, and the place of each."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        #: The name of the file of each block of rows, and their lines.
        self._blocks: list[tuple[str, Sequence[int]]] = []
        #: The errors of files, by the position of the row that stands for each.
        self._errors: dict[int, ConfigError] = {}
        self._count = 0

    def rows(self) -> Iterator[Source | SubscriptionError]:
        """Yield the lines of all files, with an error for each line or file that cannot be read."""
        max_bytes = self._loaded.config.matching.limits.max_event_bytes
        for index, file in enumerate(self._loaded.config.subscriptions):
            name = self._loaded.file(file)
            try:
                for numbers, lines in read_blocks(file, max_bytes=max_bytes):
                    self._add(name, numbers)
                    yield from map(refused, lines)
                continue
            except InputError as error:
                self._errors[self._count] = ConfigError(str(error), source=name, line=error.line)
            except OSError as error:
                reason = f"{name}: {error.strerror or error}"
                self._errors[self._count] = self._loaded.error(("subscriptions", index), reason)
            self._add(name, (0,))
            yield SubscriptionError(_UNREADABLE)

    def _add(self, name: str, numbers: Sequence[int]) -> None:
        self._blocks.append((name, numbers))
        self._count += len(numbers)

    def located(self, error: SubscriptionError, engine: Engine, among: Set[str]) -> ConfigError:
        """Return an error of a row with its file and line."""
        position, error.index = error.index or 0, None
        if (unreadable := self._errors.get(position)) is not None:
            return unreadable
        if isinstance(error, DuplicateSubscriptionError):
            exists = error.subscription_id in engine and error.subscription_id not in among
            reason = "this id exists already, and not from a file" if exists else "this id appears twice in the files"
            error = DuplicateSubscriptionError(reason, place=error.place, subscription_id=error.subscription_id)
        for name, numbers in self._blocks:
            if position < len(numbers):
                return ConfigError(str(error), source=name, line=numbers[position])
            position -= len(numbers)
        return ConfigError(str(error))
