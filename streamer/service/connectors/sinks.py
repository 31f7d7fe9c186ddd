"""Make the sink or the endpoint that a section of the configuration describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.config.schema.config import Config
from streamer.config.schema.connectors.file import FileSink
from streamer.config.schema.connectors.kafka import KafkaSink
from streamer.config.schema.connectors.stdio import StdoutSink
from streamer.config.schema.connectors.webhook import WebhookSink
from streamer.config.schema.sinks import Sink
from streamer.errors import ServiceError
from streamer.extras import needed
from streamer.service.connectors import protocols
from streamer.service.connectors.file.sink import FileAppender
from streamer.service.connectors.stdio.sink import Stdout
from streamer.service.connectors.webhook.guard import Guard

if TYPE_CHECKING:
    from streamer.service.connectors.webhook.signing import Revealing


def made(section: Sink) -> protocols.Sink:
    """Return the sink that a section describes, not opened yet. Raises ServiceError if its driver is not installed."""
    match section:
        case FileSink():
            return FileAppender(section.path)
        case StdoutSink():
            return Stdout()
        case KafkaSink():
            try:
                with needed("writing Kafka needs confluent-kafka", "kafka"):
                    from streamer.service.connectors.kafka.sink import KafkaTopic
            except ImportError as error:
                raise ServiceError(str(error)) from error
            return KafkaTopic(section)
    raise TypeError(f"unknown type of sink {section.type!r}")


def endpoint(section: Sink) -> protocols.Endpoint:
    """Return the endpoint that a section describes. Raises ServiceError if a package that it needs is not installed."""
    match section:
        case WebhookSink():
            return posting(
                section.url,
                section.secret,
                Guard.of(section),
                timeout=section.timeout,
                connect_timeout=section.connect_timeout,
                in_batches=section.batch > 1,
                authority=section.ca,
            )
    raise TypeError(f"unknown type of endpoint {section.type!r}")


def posting(
    url: str,
    secrets: Sequence[Revealing],
    guard: Guard,
    *,
    timeout: timedelta,
    connect_timeout: timedelta,
    in_batches: bool,
    authority: Path | None,
) -> protocols.Endpoint:
    """Return an endpoint for a URL. Raises as `endpoint`."""
    try:
        with needed("posting to webhooks needs httptools", "service"):
            from streamer.service.connectors.webhook.endpoint import Webhook
    except ImportError as error:
        raise ServiceError(str(error)) from error
    return Webhook(
        url,
        secrets,
        guard,
        timeout=timeout.total_seconds(),
        connect_timeout=connect_timeout.total_seconds(),
        in_batches=in_batches,
        authority=authority,
    )


def sinks_of(config: Config) -> Mapping[str, Sink]:
    """Return the sinks of a configuration; standard output if it has none."""
    return config.sinks or {"stdout": StdoutSink(type="stdout")}
