"""The sections of files of lines: a source and a sink."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal, final

from streamer.config.schema.claims import OWNS, READS, Claim, Files
from streamer.config.schema.claims import File as OneFile
from streamer.config.schema.sinks import Sink
from streamer.config.schema.sources import LinesSource
from streamer.config.schema.values import Bool, File
from streamer.config.units import Duration


@final
class FileSource(LinesSource):
    """A file of JSON lines, read from the last confirmed position."""

    type: Literal["file"]
    """The kind of source."""
    path: File
    """The file; relative to the configuration file."""
    follow: Bool = True
    """Whether to wait for appended lines, through rotations; if not, the source ends at the end of the file."""
    poll: Duration = timedelta(milliseconds=250)
    """Time between two looks for new lines at the end of the file."""

    def claims(self) -> Iterator[Claim]:
        """See `Source`. The source also reads rotated files, whose names begin with its own."""
        yield Claim(("path",), READS, OneFile(self.path), "{} reads this file")
        rotated = "{} reads files whose names begin as that of its own, since rotation may give them such; choose another name"
        yield Claim(("path",), READS, Files(self.path.parent, self.path.name), rotated)


@final
class FileSink(Sink):
    """A file to which JSON lines are appended; they are on the disk before the source confirms."""

    type: Literal["file"]
    """The kind of sink."""
    path: File
    """The file; relative to the configuration file."""

    def claims(self) -> Iterator[Claim]:
        """See `Sink`."""
        yield Claim(("path",), OWNS, OneFile(self.path), "{} writes this file")
