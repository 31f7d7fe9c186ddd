"""The delivery of matches to sinks, and the storage of data that the service must not lose."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
)
from pydantic_core import PydanticCustomError

from streamer.config.schema.claims import OWNS, READS, Claim, Files
from streamer.config.schema.claims import File as OneFile
from streamer.config.schema.urls import Networks, Ports
from streamer.config.schema.values import Bool, File, Section, number
from streamer.config.secret import Secret
from streamer.config.units import Duration, Size

#: Files of an embedded store in its directory: its lock, and its database with the files that belong to it.
LOCK: Final = "lock"
DATABASE: Final = "store.db"
#: The beginning of the names of the files of an engine's snapshot.
SNAPSHOT: Final = "engine."
#: The endings of the names of files that are read in the watched directory.
_WATCHED: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_DATA_DIR: Final = Path("streamer-data")
#: The most shards.
_SHARDS: Final = 1024


def _shard(text: str) -> str:
    number, between, count = text.partition("/")
    if not (between and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= _SHARDS):
        raise PydanticCustomError("shard", "expected NUMBER/COUNT, as 1/4, of {most} shards at most", {"most": _SHARDS})
    return text


@final
class Route(Section):
    """The sink for the matches of a gateway."""

    gateway: Annotated[str, Field(min_length=1)]
    """The `gateway_id` of subscriptions; `*` for any, and for subscriptions without one."""
    sink: str
    """A name under `sinks`."""


@final
class Retry(Section):
    """When a failed message is retried."""

    first: Duration = timedelta(seconds=1)
    """Time before the second attempt, and twice as long before each further one, less a random part."""
    most: Duration = timedelta(minutes=10)
    """Longest time between two attempts, even if an endpoint requests a longer one."""
    attempts: Annotated[int, Field(ge=1, le=1000), BeforeValidator(number)] = 12
    """Attempts after which a message becomes a dead letter."""


@final
class SpoolSection(Section):
    """The spool: messages that wait for endpoints, in the store."""

    bytes: Size = 1024**3
    """Room for the messages of each sink."""
    when_full: Literal["pause", "dead_letter"] = "pause"
    """When a sink is out of room: `pause` makes the sources wait, `dead_letter` turns its oldest messages into dead letters."""


@final
class Gateways(Section):
    """Tenants' own gateways, which the API writes: allowed addresses of their webhooks, and the history of their streams."""

    timeout: Duration = timedelta(seconds=10)
    """Longest time of a request, from its connection to its response."""
    connect_timeout: Duration = timedelta(seconds=5)
    """Longest time of its connection, TLS included."""
    concurrency: Annotated[int, Field(ge=1, le=64), BeforeValidator(number)] = 4
    """Requests at once to one gateway."""
    concurrency_of_a_tenant: Annotated[int, Field(ge=1, le=128), BeforeValidator(number)] = 16
    """Requests at once to all gateways of a tenant."""
    allow_http: Bool = False
    """Whether a URL may be without TLS. Others can then read and change its messages in transit."""
    ports: Ports = (443,)
    """Ports that a URL may name; without TLS 80 is one, too."""
    networks: Networks = ()
    """Networks for tenants' endpoints, in addition to the public ones. All other private addresses are refused."""
    ca: File | None = None
    """Trusted certificates that replace the system's, in PEM; relative to the configuration file."""
    keys: tuple[Secret, ...] = ()
    """Keys that encrypt the signing secrets of gateways in the store, each 32 random bytes in base64 in a variable or a file. The
    first one encrypts, all of them decrypt; empty for no encryption."""
    history: Size = 16 * 1024**2
    """Room for the matches of a gateway without a URL, which its streams can replay; the oldest ones leave it first."""
    history_time: Duration = timedelta(days=1)
    """How long they stay in it."""

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        return self.reads("ca")


@final
class Delivery(Section):
    """How matches are delivered, and what happens to failed messages."""

    retry: Retry = Field(default_factory=Retry)
    on_exhausted: Literal["dead_letter", "block"] = "dead_letter"
    """What happens to the key of a dead letter: `dead_letter` continues with its next message, `block` waits until the letter is
    replayed or dropped."""
    dead_letter: str | None = None
    """A name under `sinks`, which gets a message about each dead letter; null for none. The store always has them."""
    spool: SpoolSection = Field(default_factory=SpoolSection)
    gateways: Gateways = Field(default_factory=Gateways)
    dead_letter_bytes: Size = 1024**3
    """Room for dead letters. When it is full the oldest ones of tenants' own gateways are deleted. If there are none the service
    ends, because it must keep all others: see `streamer dead-letters`."""


@final
class SharedStore(Section):
    """The store that several processes share, in PostgreSQL (docs/service.md)."""

    dsn: Secret | None = None
    """How to connect, for example `postgresql://user:password@host/database` or `host=… dbname=…`, as a variable or a file that
    contains it. Null is a store of only this process, in `service.data_dir`."""
    namespace: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$", max_length=63)] = "streamer"
    """The schema of its tables; missing tables are created. Processes with the same schema share a store."""


@final
class Shard(Section):
    """The part of the subscriptions that this process matches, if several processes with one store divide them."""

    tenants: Annotated[str, AfterValidator(_shard)] | None = None
    """For example `1/4`: those of the tenants of the first of four shards; null for all tenants."""


@final
class Service(Section):
    """The data that `streamer serve` keeps."""

    data_dir: File | None = None
    """Directory of the store: subscriptions, positions, dead letters. It is relative to the configuration file; null is
    `streamer-data` in the working directory. One process uses it at a time."""
    watch: File | None = None
    """Directory whose files `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst` are read like those of `subscriptions`. All of them are
    read again when one changes. Names that begin with a dot are skipped. It is relative to the configuration file."""
    history: Duration = timedelta(days=30)
    """How long the history of a subscription is kept: who changed it, when, and to what. It has the last 20 changes at most. Each
    takes the room of the text that it replaced."""
    match_counts: Annotated[int, Field(ge=0, le=100_000_000), BeforeValidator(number)] = 500_000
    """Counts in memory of how often a subscription matched: one for each minute of the last three hours, and each subscription
    that matched in it. Beyond this number, the oldest minutes are dropped first. A count takes at most 70 bytes, and a
    subscription that was ever counted 130 more, once. 0 turns counting off."""

    @property
    def directory(self) -> Path:
        """The directory of the store, unless several processes share one."""
        return self.data_dir or _DATA_DIR

    def watched(self) -> list[Files]:
        """Return the files that are read in the watched directory, if there is one."""
        return [] if self.watch is None else [Files(self.watch, end=end) for end in _WATCHED]

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        for thing in (OneFile(self.directory / LOCK), Files(self.directory, DATABASE)):
            yield Claim(("data_dir",), OWNS, thing, "the store is in this file")
        yield Claim(("data_dir",), OWNS, Files(self.directory, SNAPSHOT), "a snapshot of the engine is in this file")
        for files in self.watched():
            yield Claim(("watch",), READS, files, "{}.watch reads this file")
