"""The sinks of matches, one kind a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.config.schema.sinks import FileSink, KafkaSink, Sink, StdoutSink, WebhookSink
from streamer.errors import ServiceError
from streamer.extras import needed
from streamer.service import protocols
from streamer.service.guard import Guard
from streamer.service.sinks.file import FileAppender
from streamer.service.sinks.stdout import Stdout

if TYPE_CHECKING:
    from streamer.service.sinks.signing import Revealing


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
                    from streamer.service.sinks.kafka import KafkaTopic
            except ImportError as error:
                raise ServiceError(str(error)) from error
            return KafkaTopic(section)
    raise TypeError(f"no sink of type {section.type!r}")


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
    raise TypeError(f"no endpoint of type {section.type!r}")


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
            from streamer.service.sinks.webhook import Webhook
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
