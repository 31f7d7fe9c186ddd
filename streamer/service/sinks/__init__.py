"""Where matches go, one kind of sink a file."""

from streamer.config.schema.sinks import FileSink, KafkaSink, Sink, StdoutSink, WebhookSink
from streamer.errors import ServiceError
from streamer.extras import needed
from streamer.service import protocols
from streamer.service.guard import Guard
from streamer.service.sinks.file import FileAppender
from streamer.service.sinks.stdout import Stdout
from streamer.service.sinks.webhook import Webhook


def made(section: Sink) -> protocols.Sink:
    """Return the sink that a section describes, not opened yet. Raises ServiceError where its driver is not installed."""
    match section:
        case FileSink():
            return FileAppender(section.path)
        case StdoutSink():
            return Stdout()
        case KafkaSink():
            try:
                with needed("writing Kafka needs confluent-kafka", "kafka"):
                    from streamer.service.sinks.kafka import KafkaTopic
            except ImportError as error:
                raise ServiceError(str(error)) from error
            return KafkaTopic(section)
    raise TypeError(f"no sink of type {section.type!r}")


def endpoint(section: WebhookSink) -> protocols.Endpoint:
    """Return the endpoint that a section describes."""
    return Webhook(
        section.url,
        section.secret,
        Guard(section.networks),
        timeout=section.timeout.total_seconds(),
        connect_timeout=section.connect_timeout.total_seconds(),
        in_batches=section.batch > 1,
        authority=section.ca,
    )
