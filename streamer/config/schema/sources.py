"""Where events come from: a section for each kind of source."""

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
from streamer.config.schema.kafka import OF_CONSUMERS, Kafka, Topics
from streamer.config.schema.values import Bool, File, Section
from streamer.config.secret import Secret
from streamer.config.units import Duration

#: `json` is read by `matching.layout`; a decoder of `streamer.cdc` makes events of all others.
SourceFormat: TypeAlias = Literal[
    "json", "canal", "cloudevents", "debezium", "debezium_unwrapped", "dynamodb", "mongodb", "wal2json"
]


class Source(Section):
    """Where events come from."""

    type: str
    """What kind of source it is; it decides which fields there are."""

    @abstractmethod
    def claims(self) -> Iterable[Claim]:
        """Yield what it reads, and what no other may. `streamer.config.schema.claims` compares it with all others."""

    @property
    def record_format(self) -> SourceFormat:
        """What a record is that the source gives out: an event, or a message for a decoder of `streamer.cdc`."""
        return "json"

    @property
    def shown_format(self) -> str:
        """What people are told that it reads."""
        return self.record_format

    @property
    def decoded_by(self) -> str | None:
        """The field that says that a decoder of `streamer.cdc` makes its events, which have one layout; None if none does."""
        return None if self.record_format == "json" else "format"


class LinesSource(Source):
    """Where lines come from, or messages whose values are read as lines are."""

    format: SourceFormat = "json"
    """What a line is: `json` is an event as `matching.layout` says; the others are messages for a decoder (docs/sources.md)."""

    @property
    def record_format(self) -> SourceFormat:
        """See `Source`."""
        return self.format


@final
class FileSource(LinesSource):
    """A file of JSON lines, read from where the last run was confirmed."""

    type: Literal["file"]
    """What kind of source it is."""
    path: File
    """The file; relative to the configuration file."""
    follow: Bool = True
    """Whether to wait for lines that are appended, through rotations; if not, the end of the file is the end of the source."""
    poll: Duration = timedelta(milliseconds=250)
    """How often to look for new lines where there were none."""

    def claims(self) -> Iterator[Claim]:
        """See `Source`. Under the names that begin as its own it looks for a file that was rotated."""
        yield Claim(("path",), READS, OneFile(self.path), "{} reads this file")
        rotated = "{} reads files whose names begin as that of its own, since rotation may give them such; choose another name"
        yield Claim(("path",), READS, Files(self.path.parent, self.path.name), rotated)


@final
class StdinSource(LinesSource):
    """Standard input, JSON lines. It cannot be read again: what was read and not delivered when the process dies is lost."""

    type: Literal["stdin"]
    """What kind of source it is."""

    def claims(self) -> Iterator[Claim]:
        """See `Source`."""
        yield Claim(("type",), OWNS, Named("standard input"), "only one of the sources can be stdin")
        if (path := Path("/dev/stdin")).is_file():
            yield Claim((), READS, OneFile(path), "{} reads this file")


@final
class PostgresSource(Source):
    """Changes of tables of PostgreSQL, read from a logical replication slot (docs/service.md)."""

    type: Literal["postgres"]
    """What kind of source it is."""
    dsn: Secret
    """How to connect, as `postgresql://user:password@host/database` or `host=… dbname=…`: where it stands, never itself."""
    slot: Annotated[str, Field(pattern=r"^[a-z0-9_]+$", max_length=63)] = "streamer"
    """The replication slot; it is made if it is not there. One process reads a slot."""
    publication: Annotated[str, Field(min_length=1, max_length=63)] = "streamer"
    """The publication, which says what tables are read; you make it. `wal2json` reads all tables, and asks for none."""
    plugin: Literal["pgoutput", "wal2json"] = "pgoutput"
    """What writes the changes on the server: `pgoutput` is a part of PostgreSQL, `wal2json` is installed there."""
    on_lost: Literal["fail", "resnapshot", "skip"] = "fail"
    """Where unread changes are gone: end; read all rows of the tables as inserts; or go on with what comes from then on."""
    status_interval: Duration = timedelta(seconds=10)
    """How often the server is told how far changes are delivered, and so may forget them; more often if it waits for less."""

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
class KafkaSource(Kafka, LinesSource):
    """Messages of topics of Kafka, shared with other processes of one consumer group (docs/service.md)."""

    type: Literal["kafka"]
    """What kind of source it is."""
    topics: Topics
    """Names of topics, or patterns that begin with `^`, such as `^shop\\..*`; one, or a list."""
    group: Annotated[str, Field(min_length=1, max_length=249)] = "streamer"
    """The consumer group: processes that name one share the partitions."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a topic is begun that neither the store nor the group has a position of: at its beginning, or with what comes now."""
    on_lost: Literal["fail", "skip"] = "fail"
    """Where unread messages are gone, as after retention or where a topic is made anew: end; or go on with what is there."""

    ALLOWED = OF_CONSUMERS

    def claims(self) -> Iterator[Claim]:
        """See `Source`."""
        brokers, of_one = frozenset(self.brokers), "{} is of this group; name the topics of both in one"
        yield from self.reads("ca", "certificate", "key")
        yield Claim(("group",), OWNS, Named("group", self.group, brokers), of_one)
        yield Claim(("topics",), READS, KafkaTopics(brokers, self.topics), "{} reads this topic")


AnySource: TypeAlias = Annotated[FileSource | StdinSource | PostgresSource | KafkaSource, Field(discriminator="type")]
