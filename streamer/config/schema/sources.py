"""What all sections of sources have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from streamer.config.schema.claims import Claim
from streamer.config.schema.encoded import SourceFormat
from streamer.config.schema.values import Bool, Section


class Source(Section):
    """A source of events."""

    type: str
    """The kind of source; it decides which other fields exist."""

    @abstractmethod
    def claims(self) -> Iterable[Claim]:
        """Yield claims for the things that the source uses. `streamer.config.schema.claims` compares those of all sections."""

    @property
    def record_format(self) -> SourceFormat:
        """The format of the source's records: `json` for events, else the format of a decoder of `streamer.cdc`."""
        return "json"

    @property
    def has_envelope(self) -> bool:
        """Whether the events of a decoder have the rest of their record as `envelope`."""
        return False

    @property
    def shown_format(self) -> str:
        """The format that is shown to users."""
        return self.record_format

    @property
    def decoded_by(self) -> str | None:
        """The setting that selects a decoder of `streamer.cdc`, whose events have a fixed layout; None without a decoder."""
        return None if self.record_format == "json" else "format"


class LinesSource(Source):
    """A source of lines."""

    format: SourceFormat = "json"
    """The format of a line: `json` is an event of `matching.format`; the others are messages for a decoder (docs/sources.md)."""

    envelope: Bool = False
    """Whether events of a decoder have the rest of their record as `envelope`, for conditions and receivers (docs/sources.md)."""

    @property
    def record_format(self) -> SourceFormat:
        """See `Source`."""
        return self.format

    @property
    def has_envelope(self) -> bool:
        """See `Source`."""
        return self.envelope
