"""The parts of a pipeline that come from the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from streamer.engine.batch import AT_ONCE
from streamer.errors import ServiceError
from streamer.service.connectors import formats
from streamer.service.connectors.protocols import NOTHING, Batch, Sink, Source
from streamer.service.connectors.registry import Messages
from streamer.service.delivery.messages import Speaker


@contextmanager
def named(kind: str, name: str) -> Iterator[None]:
    """Add the section and the name of a part to its errors."""
    try:
        yield
    except ServiceError as error:
        raise type(error)(f"{kind}.{name}: {error}") from error


@final
@dataclass(frozen=True, slots=True)
class Feed:
    """A source with its name and the decoder of its records.

    Attributes:
        decode: the decoder; None if each record is an event.
        again: decodes a record that the source itself could not decode; None for a source that decodes no records.
        messages: has the schemas of the records; None if they need none.
    """

    name: str
    source: Source
    decode: formats.Decoder | None
    again: formats.Decoder | None = None
    messages: Messages | None = None

    def check(self, confirmed: Mapping[str, str] = NOTHING) -> None:
        """Check whether the source could be opened, as `Source.check` does, and whether the schemas can be read."""
        self.source.check(confirmed)
        if self.messages is not None:
            self.messages.check()

    def events_of(self, batch: Batch) -> formats.BatchEvents:
        """Return the events of a batch. Raises ServiceError: Away if the schemas cannot be read now."""
        with named("sources", self.name):
            return formats.events_of(self.decode, batch)


@final
@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a pipeline that come from the configuration. A reload replaces all of them at once.

    Attributes:
        sinks: those that the pipeline writes to; the spool has the others.
        at_once: the most events that are matched together.
        dead_letter: the sink that gets a message about each dead letter; None for none.
    """

    feeds: Mapping[str, Feed]
    sinks: Mapping[str, Sink]
    speaker: Speaker
    at_once: int = AT_ONCE
    dead_letter: str | None = None
