"""The metrics and logs of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
)
from pydantic_core import PydanticCustomError

from streamer.config.schema.claims import OWNS, Claim, Port
from streamer.config.schema.values import Bool, Section, Whole, number
from streamer.config.yaml import shown


def checked_address(text: str) -> str:
    """Take an address that may be listened at."""
    from streamer.metrics.address import parse_address

    try:
        return parse_address(text)
    except ValueError as error:
        raise PydanticCustomError("address", "{shown}: {reason}", {"shown": repr(shown(text)), "reason": str(error)}) from None


@final
class Metrics(Section):
    """The Prometheus metrics (docs/metrics.md) of `Engine.from_config` and `streamer match`."""

    enabled: Bool = False
    """Whether metrics are served over HTTP, at `/metrics`."""
    address: Annotated[str, AfterValidator(checked_address)] = "127.0.0.1"
    """IP address or name of a host to listen at; `0.0.0.0` for every address of this machine."""
    port: Annotated[int, Field(ge=0, le=65_535), BeforeValidator(number)] = 9464
    """Port to listen at; 0 for any free port."""
    name: str | None = None
    """Value of the label `engine`; null for a number."""
    collections: Whole = 20
    """Number of collections with series of their own; all others are `other`."""
    tenants: Bool = False
    """Whether series also have the label `tenant`."""

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        if self.enabled:
            yield Claim(("port",), OWNS, Port(self.address, self.port), "{} listens at this port")


@final
class Logging(Section):
    """The log of the command line on standard error; a program that embeds an engine sets up its own logging."""

    level: Literal["debug", "info", "warning", "error"] = "warning"
    """Lowest level of the messages of `streamer` that are shown."""
    format: Literal["text", "json"] = "text"
    """`text` for people, or `json`: one object a line, for a program that collects logs."""
