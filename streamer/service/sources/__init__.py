"""Where events come from, one kind of source a file."""

from streamer.config.schema import FileSource, Source, StdinSource
from streamer.service import protocols
from streamer.service.sources.file import FileLines
from streamer.service.sources.stdin import StdinLines


def made(section: Source, max_event_bytes: int) -> protocols.Source:
    """Return the source that a section describes, not opened yet."""
    match section:
        case FileSource():
            return FileLines(section.path, follow=section.follow, poll=section.poll.total_seconds(), max_bytes=max_event_bytes)
        case StdinSource():
            return StdinLines(max_bytes=max_event_bytes)
    raise TypeError(f"no source of type {section.type!r}")
