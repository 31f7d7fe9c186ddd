"""The sections of connectors: a file for each, with its source, its sink or both. `type` selects the section."""

from typing import Annotated, TypeAlias

from pydantic import Field

from streamer.config.schema.connectors.file import FileSink, FileSource
from streamer.config.schema.connectors.kafka import KafkaSink, KafkaSource
from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.config.schema.connectors.stdio import StdinSource, StdoutSink
from streamer.config.schema.connectors.webhook import WebhookSink

AnySource: TypeAlias = Annotated[FileSource | StdinSource | PostgresSource | KafkaSource, Field(discriminator="type")]
AnySink: TypeAlias = Annotated[FileSink | StdoutSink | WebhookSink | KafkaSink, Field(discriminator="type")]
