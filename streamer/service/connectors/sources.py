"""Make the source that a section of the configuration describes."""

from collections.abc import Mapping

from streamer.config.schema.config import Config
from streamer.config.schema.connectors.file import FileSource
from streamer.config.schema.connectors.kafka import KafkaSource
from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.config.schema.connectors.stdio import StdinSource
from streamer.config.schema.sources import Source
from streamer.errors import ServiceError
from streamer.extras import needed
from streamer.service.connectors import protocols
from streamer.service.connectors.file.source import FileLines
from streamer.service.connectors.stdio.source import StdinLines


def made(section: Source, max_event_bytes: int) -> protocols.Source:
    """Return the source that a section describes, not opened yet. Raises ServiceError if its driver is not installed."""
    match section:
        case FileSource():
            poll = section.poll.total_seconds()
            is_json = section.format == "json"
            return FileLines(section.path, follow=section.follow, poll=poll, max_bytes=max_event_bytes, is_json=is_json)
        case StdinSource():
            return StdinLines(max_bytes=max_event_bytes, is_json=section.format == "json")
        case PostgresSource():
            try:
                with needed("reading PostgreSQL needs psycopg", "postgres"):
                    from streamer.service.connectors.postgres.source import PostgresChanges
            except ImportError as error:
                raise ServiceError(str(error)) from error
            return PostgresChanges(section)
        case KafkaSource():
            try:
                with needed("reading Kafka needs confluent-kafka", "kafka"):
                    from streamer.service.connectors.kafka.source import KafkaMessages
            except ImportError as error:
                raise ServiceError(str(error)) from error
            return KafkaMessages(section, max_bytes=max_event_bytes)
    raise TypeError(f"unknown type of source {section.type!r}")


def sources_of(config: Config) -> Mapping[str, Source]:
    """Return the sources of a configuration; standard input if it has none."""
    return config.sources or {"stdin": StdinSource(type="stdin")}
