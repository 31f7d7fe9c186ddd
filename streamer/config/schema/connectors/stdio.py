"""The sections of standard input and standard output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, final

from streamer.config.schema.claims import OWNS, READS, Claim, Named
from streamer.config.schema.claims import File as OneFile
from streamer.config.schema.sinks import Sink
from streamer.config.schema.sources import LinesSource


@final
class StdinSource(LinesSource):
    """Standard input, JSON lines. It cannot be read again: if the process dies, lines that it has read and not delivered are
    lost."""

    type: Literal["stdin"]
    """The kind of source."""

    def claims(self) -> Iterator[Claim]:
        """See `Source`."""
        yield Claim(("type",), OWNS, Named("standard input"), "only one of the sources can be stdin")
        if (path := Path("/dev/stdin")).is_file():
            yield Claim((), READS, OneFile(path), "{} reads this file")


@final
class StdoutSink(Sink):
    """Standard output, JSON lines."""

    type: Literal["stdout"]
    """The kind of sink."""

    def claims(self) -> Iterator[Claim]:
        """See `Sink`."""
        yield Claim(("type",), OWNS, Named("standard output"), "only one of the sinks can be stdout")
        if (path := Path("/dev/stdout")).is_file():
            yield Claim((), OWNS, OneFile(path), "{} writes this file")
