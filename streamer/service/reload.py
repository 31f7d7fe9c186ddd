"""Another configuration in the place of the one in force, whole or not at all.

```
read ─► checked ─► new sinks, endpoints, API opened ─► sources paused, what they read delivered
                                                          │
                       in force ◄── subscriptions ◄── old sources closed, new ones opened
```

Contract: an event is matched and its messages are made under one configuration; what was read under the one before is delivered,
or in the spool, before the next one is in force. Where anything fails before that, all is as it was: sources that were closed are
opened again where they were confirmed. What is in the spool is sent to where the new configuration says.

A source that is replaced is closed before its successor is opened: one process reads a slot, and positions are the store's. Two
pipelines side by side would need no pause, and would deliver a key's changes in any order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, final

from streamer.config.live import is_served
from streamer.config.loader import Loaded, show_place
from streamer.config.schema.config import Config
from streamer.engine.engine import Engine
from streamer.engine.reload import check
from streamer.errors import BulkConfigError, ServiceError
from streamer.service import faults, subscription_files
from streamer.service.entrance import Entrance, Prepared
from streamer.service.gateways import Gateways
from streamer.service.parts import Parts, of_engine, open_feed, open_sink, parts_of
from streamer.service.pipeline import Pipeline
from streamer.service.quotas import Quotas
from streamer.service.spool import Spool
from streamer.service.store.store import Store
from streamer.service.subscriptions import Subscriptions

#: How long what was read may take to be delivered, in seconds; then the reload is refused.
PATIENCE: Final = 10.0
_FIXED: Final = "cannot change while the service runs; start it again"
_LOGGER: Final = logging.getLogger("streamer.service")


class Reloaded(NamedTuple):
    """What became of a configuration.

    Attributes:
        changed: fields, as `sinks.out.path`.
        subscriptions: how many of the store were changed.
        errors: why it was not taken, and nothing changed; none where it was.
    """

    changed: tuple[str, ...] = ()
    subscriptions: int = 0
    errors: tuple[str, ...] = ()


@final
@dataclass
class Running:
    """All that runs under a configuration. One thread reloads."""

    loaded: Loaded
    parts: Parts
    engine: Engine
    store: Store
    subscriptions: Subscriptions
    gateways: Gateways
    pipeline: Pipeline
    spool: Spool
    entrance: Entrance

    @property
    def config(self) -> Config:
        """The one in force."""
        return self.loaded.config

    def reload(
        self,
        load: Callable[[], Loaded],
        fitting: Callable[[Loaded], None],
        answer: Callable[[Reloaded], None] = lambda _: None,
    ) -> Reloaded:
        """Take another configuration and its subscriptions, or say why not and leave all as it is.

        Args:
            answer: is told before the API that asked may give way to another.
        """
        told, entrance = self._reloaded(load, fitting)
        answer(told)
        if entrance is not None:
            entrance.take()
        return told

    def _reloaded(self, load: Callable[[], Loaded], fitting: Callable[[Loaded], None]) -> tuple[Reloaded, Prepared | None]:
        try:
            new = load()
            changed = check(self.config, new, is_served, _FIXED)
            fitting(new)
            self._check_layout(new)
            self._check_standard(new)
            count, entrance = self._take(new, {place[0] for place in changed})
        except (BulkConfigError, OSError, ServiceError) as error:
            self.engine.refuse_reload(error)
            return Reloaded(errors=tell_refused("reload", error)), None
        told = tuple(map(show_place, changed))
        _LOGGER.info("reload: %d subscriptions changed; %s", count, ", ".join(told) or "the configuration is as it was")
        return Reloaded(told, count), entrance

    def _check_layout(self, new: Loaded) -> None:
        if of_engine(new.config).matching.layout != of_engine(self.config).matching.layout:
            # `check` has compared what the two say; this is what follows from their sources.
            reason = "an engine has one layout: whether sources are decoded cannot change while the service runs"
            raise BulkConfigError([new.error(("sources",), reason)])

    def _check_standard(self, new: Loaded) -> None:
        """Refuse to fall back to standard input or output: nobody wants that of a service, and a file cut off says so."""
        errors = [
            new.error((name,), f"expected one at least: {now} cannot take the place of all while the service runs")
            for name, now in (("sources", "standard input"), ("sinks", "standard output"))
            if getattr(self.config, name) and not getattr(new.config, name)
        ]
        if errors:
            raise BulkConfigError(errors)

    def _take(self, new: Loaded, changed: set[str | int]) -> tuple[int, Prepared | None]:
        found, places = subscription_files.read(new)
        with ExitStack() as undo:
            parts = parts_of(new.config, self.parts)
            self._open(parts, undo)
            entrance = self.entrance.prepared(new.config.api) if "api" in changed else None
            if entrance is not None:
                undo.callback(entrance.cancel)
            faults.point("reload.checked")
            moves = bool(changed & {"matching", "sources", "sinks", "routes", "delivery"})
            with self.pipeline.paused(PATIENCE) if moves else nullcontext():
                with self._replaced(parts) if moves else nullcontext():
                    faults.point("reload.paused")
                    are_from_files = subscription_files.are_from_files(new.config)
                    count = self.subscriptions.begin(new, found, places) if are_from_files else 0
                    self.engine.reload(of_engine(new.config))
                # From here on nothing fails.
                undo.pop_all()
                before, self.parts, self.loaded = self.parts, parts, new
                self.store.dead_letter_bytes = new.config.delivery.dead_letter_bytes
                self._move(parts, moves)
                before.close(parts)
            self.subscriptions.quotas = Quotas.of(new.config)
            self.subscriptions.history = new.config.service.history
            self.pipeline.matches.limit(new.config.service.match_counts)
        return count, entrance

    def _move(self, parts: Parts, moves: bool) -> None:
        """Put other parts in place; a store that fails by now ends the service, since no event may be under both."""
        try:
            setup = parts.setup() if moves else self.pipeline.setup
            self.gateways.take(setup.speaker, parts.config)
            if moves:
                self.pipeline.take(setup)
                parts.fill(self.spool)
        except ServiceError as error:
            self.pipeline.fail(error)

    def _open(self, parts: Parts, undo: ExitStack) -> None:
        """Open the sinks that are new, and look at what else is. Raises ServiceError."""
        is_replaced = self.parts.feeds.keys() - parts.feeds.keys() or parts.new_feeds(self.parts).keys() & self.parts.feeds.keys()
        if not is_replaced:
            parts.check(self.parts)
        else:
            # What holds a slot or a file may be the source that goes: opening it tells.
            parts.check_endpoints(self.parts)
        for name, sink in parts.new_sinks(self.parts).items():
            undo.callback(sink.close)
            open_sink(name, sink)

    @contextmanager
    def _replaced(self, parts: Parts) -> Iterator[None]:
        """Open new sources in the place of old ones; the old ones again where that, or what follows, fails."""
        gone = self.parts.new_feeds(parts)
        opened = []
        for feed in gone.values():
            feed.source.close()
        try:
            for feed in parts.new_feeds(self.parts).values():
                opened.append(feed)
                open_feed(feed, self.store, parts.feeds)
            yield
        except BaseException:
            for feed in opened:
                feed.source.close()
            again = {name: self.parts.again(name) for name in gone}
            try:
                for name, feed in again.items():
                    # A server that is away now is waited for, as at the start.
                    self.pipeline.absent.open(f"sources.{name}", feed, partial(open_feed, feed, self.store, self.parts.feeds))
            except ServiceError as error:
                self.pipeline.fail(error)
            self.parts = Parts(self.config, {**self.parts.feeds, **again}, self.parts.sinks, self.parts.endpoints)
            self.pipeline.take(replace(self.pipeline.setup, feeds=self.parts.feeds))
            raise


def tell_refused(what: str, error: Exception) -> tuple[str, ...]:
    """Log all that was wrong with what was not taken, and return it."""
    if isinstance(error, OSError):
        errors: tuple[str, ...] = (f"{error.filename}: {error.strerror}" if error.filename else str(error),)
    else:
        errors = tuple(map(str, error.errors if isinstance(error, BulkConfigError) else (error,)))
    for each in errors:
        _LOGGER.error("%s: %s", what, each)
    _LOGGER.error("%s: nothing was changed", what)
    return errors
