"""What all sections of sinks have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, final

from streamer.config.schema.claims import Claim
from streamer.config.schema.values import Section


@final
@dataclass(frozen=True, slots=True)
class Spooled:
    """How the spool delivers to a sink.

    Attributes:
        target: the identity of the endpoint.
        concurrency: the most concurrent requests.
        batch, batch_bytes: the most messages of a request, and the most bytes of them.
    """

    target: str
    concurrency: int = 8
    batch: int = 1
    batch_bytes: int = 1024**2


class Sink(Section):
    """A sink of matches."""

    type: str
    """The kind of sink; it decides which other fields exist."""
    event: Literal["full", "reference", "none"] = "full"
    """The part of the event in a message: all of it, a reference to its position, or none."""
    per: Literal["match", "gateway"] = "match"
    """Whether a message reports one match, or all matches of an event for one gateway."""

    @abstractmethod
    def claims(self) -> Iterable[Claim]:
        """Yield claims for the things that the sink writes. `streamer.config.schema.claims` compares those of all sections."""

    @property
    def spooled(self) -> Spooled | None:
        """Return how the spool delivers to the sink, or None if messages are written to it directly."""
        return None

    @property
    def caution(self) -> str | None:
        """Return a warning for the log about risky settings that may be intended, or None."""
        return None
