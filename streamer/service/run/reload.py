"""Replace the current configuration by another one, whole or not at all.

```
read ─► checked ─► new sinks, endpoints, API opened ─► sources paused, their records delivered
                                                          │
                       in force ◄── subscriptions ◄── old sources closed, new ones opened
```

Contract: an event is matched and its messages are made under one configuration; all records that were read under the previous one
are delivered, or in the spool, before the next one is in force. If a step before that fails, the old state is restored: closed
sources are opened again at their confirmed positions. Messages in the spool go to the destinations of the new configuration.

A source that is replaced is closed before its successor is opened, because only one process can read a slot, and the store has
the positions. Two pipelines side by side would need no pause, but would deliver a key's changes in any order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, final

from streamer.config.live import is_served
from streamer.config.loader import Loaded, show_place
from streamer.config.schema.config import Config
from streamer.engine.engine import Engine
from streamer.engine.reload import check
from streamer.errors import BulkConfigError, ServiceError
from streamer.service import faults
from streamer.service.api.config_view import Reloaded
from streamer.service.delivery.pipeline import Pipeline
from streamer.service.delivery.spool import Spool
from streamer.service.run.api_server import Entrance, Prepared
from streamer.service.run.build import Parts, of_engine, open_feed, open_sink, parts_of
from streamer.service.store.store import Store
from streamer.service.tenants import subscription_files
from streamer.service.tenants.gateways import Gateways
from streamer.service.tenants.quotas import Quotas
from streamer.service.tenants.subscriptions import Subscriptions

#: The longest time to deliver records in flight, in seconds; after it the reload is refused.
PATIENCE: Final = 10.0
_FIXED: Final = "cannot change while the service runs; start it again"
_LOGGER: Final = logging.getLogger("streamer.service")


@final
@dataclass
class Running:
    """All parts that run under a configuration. One thread reloads."""

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
        """The current configuration."""
        return self.loaded.config

    def reload(
        self,
        load: Callable[[], Loaded],
        fitting: Callable[[Loaded], None],
        answer: Callable[[Reloaded], None] = lambda _: None,
    ) -> Reloaded:
        """Apply another configuration and its subscriptions; on errors, log them and keep the old state.

        Args:
            answer: is called with the result before the old API server ends, so that it can send the response.
        """
        outcome, entrance = self._reloaded(load, fitting)
        answer(outcome)
        if entrance is not None:
            entrance.take()
        return outcome

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
        places = tuple(map(show_place, changed))
        _LOGGER.info("reload: %d subscriptions changed; %s", count, ", ".join(places) or "the configuration is unchanged")
        return Reloaded(places, count), entrance

    def _check_layout(self, new: Loaded) -> None:
        if of_engine(new.config).matching.event_layout != of_engine(self.config).matching.event_layout:
            # `check` has compared the two configurations; this restriction follows from their sources.
            reason = "an engine has one layout: whether sources are decoded cannot change while the service runs"
            raise BulkConfigError([new.error(("sources",), reason)])

    def _check_standard(self, new: Loaded) -> None:
        """Refuse to fall back to standard input or output: in a service this is a mistake, for example a truncated file."""
        errors = [
            new.error((name,), f"expected one at least: {now} cannot take the place of all while the service runs")
            for name, now in (("sources", "standard input"), ("sinks", "standard output"))
            if getattr(self.config, name) and not getattr(new.config, name)
        ]
        if errors:
            raise BulkConfigError(errors)

    def _take(self, new: Loaded, changed: set[str | int]) -> tuple[int, Prepared | None]:
        rows, places = subscription_files.read(new)
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
                    count = self.subscriptions.begin(new, rows, places) if are_from_files else 0
                    self.engine.reload(of_engine(new.config))
                # Later steps cannot fail.
                undo.pop_all()
                before, self.parts, self.loaded = self.parts, parts, new
                self.store.dead_letter_bytes = new.config.delivery.dead_letter_bytes
                self._move(parts, moves)
                before.close(parts)
            self.subscriptions.quotas = Quotas.of(new.config)
            self.subscriptions.history = new.config.service.history
            self.pipeline.matcher.matches.limit(new.config.service.match_counts)
        return count, entrance

    def _move(self, parts: Parts, moves: bool) -> None:
        """Replace the parts. If the store fails here the service ends, because an event must not be under both configurations."""
        try:
            setup = parts.setup() if moves else self.pipeline.setup
            self.gateways.take(setup.speaker, parts.config)
            if moves:
                self.pipeline.take(setup)
                parts.fill(self.spool)
        except ServiceError as error:
            self.pipeline.fail(error)

    def _open(self, parts: Parts, undo: ExitStack) -> None:
        """Open the new sinks, and check the other new parts. Raises ServiceError."""
        is_replaced = self.parts.feeds.keys() - parts.feeds.keys() or parts.new_feeds(self.parts).keys() & self.parts.feeds.keys()
        if not is_replaced:
            parts.check(self.parts)
        else:
            # A source that is being removed may occupy a slot or a file of a new one: opening the new one will show.
            parts.check_endpoints(self.parts)
        for name, sink in parts.new_sinks(self.parts).items():
            undo.callback(sink.close)
            open_sink(name, sink)

    @contextmanager
    def _replaced(self, parts: Parts) -> Iterator[None]:
        """Open new sources in place of old ones; reopen the old ones if this or a later step fails."""
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
    """Log all errors of a refused configuration, and return them."""
    if isinstance(error, OSError):
        errors: tuple[str, ...] = (f"{error.filename}: {error.strerror}" if error.filename else str(error),)
    else:
        errors = tuple(map(str, error.errors if isinstance(error, BulkConfigError) else (error,)))
    for each in errors:
        _LOGGER.error("%s: %s", what, each)
    _LOGGER.error("%s: refused, without any change", what)
    return errors
