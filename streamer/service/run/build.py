"""Make sources, sinks and endpoints from a configuration, and choose which of them a reload keeps.

A reload keeps a source if its section is unchanged. It keeps a sink, even under another name, if its target is unchanged. So a
source that continues is not read again, and a file that is still written has one writer.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Container, ItemsView, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, final

from streamer import cdc
from streamer.config.schema.api import Api
from streamer.config.schema.config import Config
from streamer.config.schema.connectors.kafka import KafkaSource
from streamer.config.schema.service import Delivery
from streamer.config.schema.service import Service as ServiceSection
from streamer.config.schema.sinks import Sink
from streamer.config.schema.sources import Source
from streamer.config.schema.watching import Metrics
from streamer.core.options import Options
from streamer.engine.batch import AT_ONCE
from streamer.service.connectors import protocols, sinks, sources
from streamer.service.connectors.formats import decoder
from streamer.service.connectors.registry import Messages
from streamer.service.connectors.sinks import sinks_of
from streamer.service.connectors.sources import sources_of
from streamer.service.connectors.trust import client_context
from streamer.service.delivery.messages import Shape, Speaker
from streamer.service.delivery.routing import Routes
from streamer.service.delivery.setup import Feed, Setup, named
from streamer.service.delivery.spool import Spool, Terms
from streamer.service.store.rows import OWN
from streamer.service.store.store import Store

_LOGGER: Final = logging.getLogger("streamer.service")


@final
@dataclass(frozen=True)
class Parts:
    """The parts of one configuration, opened or not."""

    config: Config
    feeds: Mapping[str, Feed]
    sinks: Mapping[str, protocols.Sink]
    endpoints: Mapping[str, protocols.Endpoint]

    def setup(self) -> Setup:
        """Return the setup of the pipeline for these parts."""
        config = self.config
        shapes = {name: Shape(section.event, section.per) for name, section in sinks_of(config).items()}
        routes = Routes(config.routes, next(iter(shapes)) if not config.routes else None)
        speaker = Speaker(Options.checked(**of_engine(config).engine_options()), routes, shapes)
        at_once = config.matching.batch_size or AT_ONCE
        return Setup(self.feeds, self.sinks, speaker, at_once, config.delivery.dead_letter)

    def check(self, but: Parts | None = None) -> None:
        """Check whether the parts could be opened, except those that *but* has, without changing data. Raises ServiceError."""
        for name, feed in self.new_feeds(but).items():
            with named("sources", name):
                feed.check()
        for name, sink in self.new_sinks(but).items():
            with named("sinks", name):
                sink.check()
        self.check_endpoints(but)

    def check_endpoints(self, but: Parts | None = None) -> None:
        """Check whether the endpoints can be used, and the certificates for tenants' endpoints. Raises ServiceError."""
        if (authority := self.config.delivery.gateways.ca) is not None:
            with named("delivery", "gateways"):
                client_context(authority)
        for name, endpoint in self.endpoints.items():
            if but is not None and but.endpoints.get(name) is endpoint:
                continue
            with named("sinks", name):
                endpoint.check()
            if (caution := self.config.sinks[name].caution) is not None:
                _LOGGER.warning("sinks.%s: %s", name, caution)

    def new_feeds(self, before: Parts | None) -> dict[str, Feed]:
        """Return the feeds that *before* does not have."""
        return {name: feed for name, feed in self.feeds.items() if before is None or before.feeds.get(name) is not feed}

    def new_sinks(self, before: Parts | None) -> dict[str, protocols.Sink]:
        """Return the sinks that *before* does not have, under any name."""
        known = () if before is None else tuple(before.sinks.values())
        return {name: sink for name, sink in self.sinks.items() if not any(sink is each for each in known)}

    def again(self, name: str) -> Feed:
        """Return a new feed in place of a closed one, so that it can be opened again."""
        return feed_of(name, sources_of(self.config)[name], self.config)

    def fill(self, spool: Spool) -> None:
        """Configure the spool to deliver to exactly these endpoints."""
        delivery = self.config.delivery
        spool.dead_letter = delivery.dead_letter or ""
        for name in [name for name in spool.sinks if name not in self.endpoints and not name.startswith(OWN)]:
            spool.remove(name)
        for name, endpoint in self.endpoints.items():
            spooled = self.config.sinks[name].spooled
            assert spooled is not None
            terms = Terms.of(delivery, concurrency=spooled.concurrency, batch=spooled.batch, batch_bytes=spooled.batch_bytes)
            spool.add(name, endpoint, terms, hashlib.sha256(spooled.target.encode()).hexdigest())

    def close(self, but: Parts | None = None) -> None:
        """Close all parts that *but* does not have."""
        for feed in self.new_feeds(but).values():
            feed.source.close()
        for sink in self.new_sinks(but).values():
            sink.close()
        for name, endpoint in self.endpoints.items():
            if but is None or but.endpoints.get(name) is not endpoint:
                endpoint.close()


def parts_of(config: Config, before: Parts | None = None) -> Parts:
    """Return the parts of a configuration; keep those of *before* that are the same."""
    feeds = {name: feed_of(name, section, config) for name, section in sources_of(config).items()}
    written: dict[str, protocols.Sink] = {}
    endpoints: dict[str, protocols.Endpoint] = {}
    places = {name: _place(section) for name, section in sinks_of(config).items()}
    old_places = {} if before is None else {name: _place(section) for name, section in sinks_of(before.config).items()}
    # A sink continues under only one name, because it counts its messages: under its old one, if that has the same target.
    previous = (
        {} if before is None else {name: sink for name, sink in before.sinks.items() if old_places[name] != places.get(name)}
    )
    for name, section in sinks_of(config).items():
        is_same = old_places.get(name) == places[name]
        if section.spooled is not None:
            endpoints[name] = before.endpoints[name] if before is not None and is_same else sinks.endpoint(section)
        elif before is not None and is_same:
            written[name] = before.sinks[name]
        else:
            renamed = next((old for old in previous if old_places[old] == places[name]), None)
            written[name] = sinks.made(section) if renamed is None else previous.pop(renamed)
    if before is not None:
        old = sources_of(before.config)
        feeds |= {name: before.feeds[name] for name, section in sources_of(config).items() if old.get(name) == section}
    return Parts(config, feeds, written, endpoints)


def _place(section: Sink) -> Sink:
    """Return a section without its settings for messages, so that sections of the same target are equal."""
    return section.model_copy(update={"event": "full", "per": "match"})


def feed_of(name: str, section: Source, config: Config) -> Feed:
    """Return a source that is not opened yet, with the decoder of its records."""
    source = sources.made(section, config.matching.limits.max_event_bytes)
    messages = None
    if isinstance(section, KafkaSource) and section.format.is_encoded:
        messages = Messages(section.format)
    return Feed(
        name,
        source,
        decoder(
            section.record_format,
            messages=messages,
            envelope=section.has_envelope,
            tables=config.matching.tables_of(section.record_format),
            of_topics=isinstance(section, KafkaSource),
        ),
        getattr(source, "again", None),
        messages,
    )


def of_engine(config: Config) -> Config:
    """Return the engine's part of a configuration: without subscriptions and metrics, which the service provides."""
    matching = config.matching
    if decoded := [source.shown_format for source in config.sources.values() if source.decoded_by is not None]:
        # An engine has one layout, so a table is whole in all sources.
        whole = {table for name in decoded for table in matching.tables_of(name).whole}
        layout = replace(cdc.LAYOUT, whole_rows=tuple(whole) or None)
        matching = matching.model_copy(update={"format": None, "layout": layout, "format_options": None})
    mine = {"sources": {}, "sinks": {}, "routes": (), "delivery": Delivery(), "api": Api(), "service": ServiceSection()}
    return config.model_copy(update={"matching": matching, "subscriptions": (), "metrics": Metrics(), **mine})


def open_feed(feed: Feed, store: Store, configured: Container[str]) -> None:
    """Open a source at its last confirmed positions. Raises ServiceError.

    Args:
        configured: the names of all sources.
    """
    with named("sources", feed.name):
        if not feed.source.is_shared:
            store.take(feed.name)
        if feed.messages is not None:
            feed.messages.check()
        others = protocols.Others(feed.name, store.others(configured))
        feed.source.open(_Positions(store, feed.name), partial(store.begin, feed.name), others)


def open_sink(name: str, sink: protocols.Sink) -> None:
    """Open a sink. Raises ServiceError."""
    with named("sinks", name):
        sink.open()


@final
@dataclass(frozen=True)
class _Positions(Mapping[str, str]):
    """The confirmed positions of a source's partitions. Each access reads the store."""

    store: Store
    source: str

    def __getitem__(self, partition: str) -> str:
        return self.store.positions(self.source, patient=True)[partition]

    def __iter__(self) -> Iterator[str]:
        return iter(self.store.positions(self.source, patient=True))

    def __len__(self) -> int:
        return len(self.store.positions(self.source, patient=True))

    def items(self) -> ItemsView[str, str]:
        """Return all positions, from a single query."""
        return self.store.positions(self.source, patient=True).items()
