"""The sections of sources: one for each kind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, final

from pydantic import (
    Field,
)

from streamer.config.schema.claims import OWNS, READS, Claim, Files, KafkaTopics, Named
from streamer.config.schema.claims import File as OneFile
from streamer.config.schema.encoded import Format, FormatOrName, SourceFormat
from streamer.config.schema.kafka import OF_CONSUMERS, Kafka, Topics
from streamer.config.schema.values import Bool, File, Section
from streamer.config.secret import Secret
from streamer.config.units import Duration


class Source(Section):
    """A source of events."""

    type: str
    """The kind of source; it decides which other fields exist."""

    @abstractmethod
    def claims(self) -> Iterable[Claim]:
        """Yield claims for the things that the source uses. `streamer.config.schema.claims` compares those of all sections."""

    @property
    def record_format(self) -> SourceFormat:
        """The format of the source's records: `json` for events, else the format of a decoder of `streamer.cdc`."""
        return "json"

    @property
    def has_envelope(self) -> bool:
        """Whether the events of a decoder have the rest of their record as `envelope`."""
        return False

    @property
    def shown_format(self) -> str:
        """The format that is shown to users."""
        return self.record_format

    @property
    def decoded_by(self) -> str | None:
        """The setting that selects a decoder of `streamer.cdc`, whose events have a fixed layout; None without a decoder."""
        return None if self.record_format == "json" else "format"


class LinesSource(Source):
    """A source of lines."""

    format: SourceFormat = "json"
    """The format of a line: `json` is an event of `matching.format`; the others are messages for a decoder (docs/sources.md)."""

    envelope: Bool = False
    """Whether events of a decoder have the rest of their record as `envelope`, for conditions and receivers (docs/sources.md)."""

    @property
    def record_format(self) -> SourceFormat:
        """See `Source`."""
        return self.format

    @property
    def has_envelope(self) -> bool:
        """See `Source`."""
        return self.envelope


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
class PostgresSource(Source):
    """Changes of tables of PostgreSQL, read from a logical replication slot (docs/service.md)."""

    type: Literal["postgres"]
    """The kind of source."""
    dsn: Secret
    """How to connect, for example `postgresql://user:password@host/database` or `host=… dbname=…`, as a variable or a file that
    contains it."""
    slot: Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=63)] = "streamer"
    """The replication slot; a missing one is created. One process reads a slot."""
    publication: Annotated[str, Field(min_length=1, max_length=63)] = "streamer"
    """The publication, which lists the tables to read; you create it. `wal2json` reads all tables without one."""
    plugin: Literal["pgoutput", "wal2json"] = "pgoutput"
    """The output plugin on the server: `pgoutput` is part of PostgreSQL, `wal2json` must be installed."""
    on_lost: Literal["fail", "resnapshot", "skip"] = "fail"
    """If unread changes are lost: end; read all rows of the tables as inserts; or continue with the changes from then on."""
    status_interval: Duration = timedelta(seconds=10)
    """Time between two reports of the delivered position, up to which the server may drop changes; less if the server waits for
    less."""

    def claims(self) -> Iterator[Claim]:
        """See `Source`."""
        yield Claim(("slot",), OWNS, Named("slot", self.slot, frozenset({self.dsn})), "{} reads this slot")

    @property
    def shown_format(self) -> str:
        """See `Source`."""
        return self.plugin

    @property
    def decoded_by(self) -> str:
        """See `Source`."""
        return "type"


@final
class KafkaSource(Kafka, Source):
    """Messages of topics of Kafka, shared with other processes of one consumer group (docs/service.md)."""

    type: Literal["kafka"]
    """The kind of source."""
    topics: Topics
    """Names of topics, or patterns that begin with `^`, such as `^shop\\..*`; one, or a list."""
    format: FormatOrName = Field(default_factory=Format)
    envelope: Bool = False
    """Whether events of a decoder have the rest of their record as `envelope`, for conditions and receivers (docs/sources.md)."""
    group: Annotated[str, Field(min_length=1, max_length=249)] = "streamer"
    """The consumer group: processes of one group share the partitions."""
    start: Literal["earliest", "latest"] = "earliest"
    """The start in a topic without a position in the store or the group: at its beginning, or with messages from now on."""
    on_lost: Literal["fail", "skip"] = "fail"
    """If unread messages are lost, for example after retention or when a topic is recreated: end; or continue with the remaining
    ones."""

    ALLOWED = OF_CONSUMERS

    @property
    def record_format(self) -> SourceFormat:
        """See `Source`."""
        return self.format.name

    @property
    def has_envelope(self) -> bool:
        """See `Source`."""
        return self.envelope

    def claims(self) -> Iterator[Claim]:
        """See `Source`."""
        brokers, of_one = frozenset(self.brokers), "{} is of this group; name the topics of both in one"
        yield from self.reads("ca", "certificate", "key")
        yield Claim(("group",), OWNS, Named("group", self.group, brokers), of_one)
        yield Claim(("topics",), READS, KafkaTopics(brokers, self.topics), "{} reads this topic")


AnySource: TypeAlias = Annotated[FileSource | StdinSource | PostgresSource | KafkaSource, Field(discriminator="type")]
