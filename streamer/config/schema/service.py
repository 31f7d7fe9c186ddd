"""How matches get to sinks, and where the service keeps what it must not lose."""

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
from streamer.config.schema.sinks import Networks, Ports
from streamer.config.schema.values import Bool, File, Section, number
from streamer.config.secret import Secret
from streamer.config.units import Duration, Size

#: Files of an embedded store in its directory: its lock, and its database with what belongs to that.
LOCK: Final = "lock"
DATABASE: Final = "store.db"
#: How the names of files end that are read in a directory that is watched.
_WATCHED: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_DATA_DIR: Final = Path("streamer-data")
#: So many shards there may be.
_SHARDS: Final = 1024


def _shard(text: str) -> str:
    number, between, count = text.partition("/")
    if not (between and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= _SHARDS):
        raise PydanticCustomError("shard", "expected NUMBER/COUNT, as 1/4, of {most} shards at most", {"most": _SHARDS})
    return text


@final
class Route(Section):
    """Which sink gets the matches of a gateway."""

    gateway: Annotated[str, Field(min_length=1)]
    """The `gateway_id` of subscriptions; `*` for any, and for those that name none."""
    sink: str
    """A name under `sinks`."""


@final
class Retry(Section):
    """When a message that an endpoint did not take is sent again."""

    first: Duration = timedelta(seconds=1)
    """How long to wait before the second attempt, and twice as long before each one that follows, less a random part."""
    most: Duration = timedelta(minutes=10)
    """How long to wait between two attempts at most, also where an endpoint asks for more."""
    attempts: Annotated[int, Field(ge=1, le=1000), BeforeValidator(number)] = 12
    """After so many a message is given up, and a dead letter."""


@final
class SpoolSection(Section):
    """Where messages wait for endpoints: in the store."""

    bytes: Size = 1024**3
    """Room for the messages of each sink."""
    when_full: Literal["pause", "dead_letter"] = "pause"
    """Where a sink has no more room: `pause` lets the sources wait, `dead_letter` gives up its oldest messages."""


@final
class Gateways(Section):
    """Tenants' own gateways, which are written by the API: where their webhooks may be, and what is kept for streams."""

    timeout: Duration = timedelta(seconds=10)
    """How long a request may take, from its connection to its response."""
    connect_timeout: Duration = timedelta(seconds=5)
    """How long its connection may take, TLS included."""
    concurrency: Annotated[int, Field(ge=1, le=64), BeforeValidator(number)] = 4
    """Requests at once to one gateway."""
    concurrency_of_a_tenant: Annotated[int, Field(ge=1, le=128), BeforeValidator(number)] = 16
    """Requests at once to all gateways of a tenant."""
    allow_http: Bool = False
    """Whether a URL may be without TLS: what it is sent can then be read and changed on its way."""
    ports: Ports = (443,)
    """Ports that a URL may name; without TLS 80 is one, too."""
    networks: Networks = ()
    """Networks besides the public ones that any tenant's endpoint may be in. No other private address is connected to."""
    ca: File | None = None
    """Certificates to trust in place of the system's, in PEM; relative to the configuration file."""
    history: Size = 16 * 1024**2
    """Room for the matches of a gateway without a URL, from which its streams begin again; the oldest ones leave it."""
    history_time: Duration = timedelta(days=1)
    """How long they stay there."""

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        return self.reads("ca")


@final
class Delivery(Section):
    """How matches are delivered, and what becomes of what cannot be."""

    retry: Retry = Field(default_factory=Retry)
    on_exhausted: Literal["dead_letter", "block"] = "dead_letter"
    """What becomes of the key of a message that was given up: it goes on, or waits until the letter is replayed or dropped."""
    dead_letter: str | None = None
    """A name under `sinks`, which gets a message about each dead letter; null for none. They are in the store either way."""
    spool: SpoolSection = Field(default_factory=SpoolSection)
    gateways: Gateways = Field(default_factory=Gateways)
    dead_letter_bytes: Size = 1024**3
    """Room for dead letters. When it is full the oldest ones of tenants' own gateways are forgotten. Where there are none the
    service ends, since it may lose no other: see `streamer dead-letters`."""


@final
class SharedStore(Section):
    """Where several processes keep what they must not lose together: in PostgreSQL (docs/service.md)."""

    dsn: Secret | None = None
    """How to connect, as `postgresql://user:password@host/database` or `host=… dbname=…`: where it stands, never itself. Null
    is a store of this process alone, in `service.data_dir`."""
    namespace: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*$", max_length=63)] = "streamer"
    """The schema of its tables, which are made if they are not there. Processes that name one share a store."""


@final
class Shard(Section):
    """Which subscriptions this process matches, where several that share a store divide them."""

    tenants: Annotated[str, AfterValidator(_shard)] | None = None
    """As `1/4`: those of the tenants of the first of four shards; null is those of all."""


@final
class Service(Section):
    """What `streamer serve` keeps."""

    data_dir: File | None = None
    """Directory of the store: subscriptions, positions, dead letters. It is relative to the configuration file; null is
    `streamer-data` in the working directory. One process uses it at a time."""
    watch: File | None = None
    """Directory whose files `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst` are read like those of `subscriptions`. All of them are
    read again when one changes. Names that begin with a dot are passed over. It is relative to the configuration file."""
    history: Duration = timedelta(days=30)
    """How long it is known who changed a subscription, when, and to what. The last 20 changes of each are known at most.
    Each takes the room of the text that it replaced."""
    match_counts: Annotated[int, Field(ge=0, le=100_000_000), BeforeValidator(number)] = 500_000
    """How many counts are kept in memory to tell how often a subscription matched: one for each minute of the last three hours,
    and each subscription that matched in it. Where they are more, the oldest minutes are forgotten first. A count takes at most
    70 bytes, and a subscription that was ever counted 130 more, once. 0 counts nothing."""

    @property
    def directory(self) -> Path:
        """Where the store is, unless several processes share one."""
        return self.data_dir or _DATA_DIR

    def watched(self) -> list[Files]:
        """Return the files that are read in the directory that is watched, if there is one."""
        return [] if self.watch is None else [Files(self.watch, end=end) for end in _WATCHED]

    def claims(self) -> Iterator[Claim]:
        """See `Section`."""
        for thing in (OneFile(self.directory / LOCK), Files(self.directory, DATABASE)):
            yield Claim(("data_dir",), OWNS, thing, "the store is in this file")
        for files in self.watched():
            yield Claim(("watch",), READS, files, "{}.watch reads this file")
