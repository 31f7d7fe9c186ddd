"""Where matches go, one kind of sink a file."""

from streamer.config.schema import FileSink, Sink, StdoutSink
from streamer.service import protocols
from streamer.service.sinks.file import FileAppender
from streamer.service.sinks.stdout import Stdout


def made(section: Sink) -> protocols.Sink:
    """Return the sink that a section describes, not opened yet."""
    match section:
        case FileSink():
            return FileAppender(section.path)
        case StdoutSink():
            return Stdout()
    raise TypeError(f"no sink of type {section.type!r}")
