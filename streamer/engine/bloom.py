"""The public interface to an engine's Bloom filters: their state, manual rebuilds, and filters to ship."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, final

from streamer.bloom.loop import Loop
from streamer.bloom.manager import Manager, Name, Reason
from streamer.bloom.options import BloomOptions
from streamer.bloom.state import FilterState
from streamer.core.options import Options
from streamer.core.protocol import Core
from streamer.errors import ConfigError
from streamer.locks import NO_FORK

#: Fewer subscriptions can be checked as fast as a filter, so they need no upkeep.
FEWEST: Final = 64


@final
class Bloom:
    """The filters of one engine; `Engine.bloom`. Thread-safe.

    A thread rebuilds them if that improves them (docs/bloom.md). It starts when the engine first has 64 subscriptions, and ends
    with the engine; a forked child has its own thread.
    """

    def __init__(self, core: Core, options: Options) -> None:
        self._core: Final = core
        self._options = options
        self._manager: Final = Manager(core, options.bloom)
        self._loop: Final = Loop(self._manager)

    def filters(self) -> list[FilterState]:
        """Return the state of each filter, in order of tenant and collection."""
        return sorted(self._manager.filters(), key=lambda state: state.name)

    def rebuild(self, tenant: str, collection: str) -> bool:
        """Rebuild a filter now, sized for its current subscriptions.

        Args:
            tenant: a name, or `"*"` for the subscriptions to every tenant.
            collection: a name, or `"*"` for the subscriptions to every collection.

        Returns:
            Whether the filter exists; small collections have none.
        """
        return self._manager.rebuild(tenant, collection)

    @property
    def options(self) -> BloomOptions:
        """The current options of the filters."""
        return self._options.bloom

    @property
    def rebuilds(self) -> Mapping[tuple[Name, Reason], int]:
        """The number of rebuilds, by tenant and collection, and by reason."""
        return self._manager.rebuilds

    @property
    def failures(self) -> Mapping[Name, int]:
        """The number of failed rebuilds, by tenant and collection. After a failure, the old filter stays in use."""
        return self._manager.failures

    @property
    def saturated(self) -> frozenset[Name]:
        """The tenant and collection of each filter that passes too many events at every size that was tried."""
        return self._manager.saturated

    def export(
        self, tenant: str, collection: str | None, *, lease: timedelta = timedelta(hours=1), fp_rate: float | None = None
    ) -> bytes:
        """Return a filter for events of one tenant and collection, which their producer can query (docs/bloom.md).

        It covers the current subscriptions that such an event can match: those to its tenant or to every tenant, and to its
        collection or to every collection. Query it with `streamer.bloom.ShippedFilter`, without an engine.

        Args:
            tenant: the tenant of the events.
            collection: the collection of the events; None for events that have none.
            lease: the time for which it may be used. It does not contain later additions, so matches of these may be lost during
                this time.
            fp_rate: the share of the events without any live key that may pass; by default the engine's rate.

        Raises:
            ValueError: the lease is not positive or is more than a century, the rate is not between 0 and 1, or events cannot
                have the name.
            TypeError: an argument has another type.
            ConfigError: events are messages of pgoutput, each of which needs those before it.
        """
        if self._options.stream is not None:
            raise ConfigError(
                "a filter reads events by themselves, and a message of pgoutput needs those before it", place="format"
            )
        with NO_FORK:
            from streamer.bloom.shipping import Shipment, ship
        shipment = Shipment(
            layout=self._options.layout,
            default_tenant=self._options.default_tenant,
            soft_delete=self._options.soft_delete,
            limits=self._options.limits,
            fp_rate=self._options.bloom.fp_rate if fp_rate is None else fp_rate,
            lease=lease,
        )
        return ship(self._core, shipment, tenant, collection)

    def reconfigure(self, options: Options) -> None:
        """Apply new options to filters that are built and exported from now on."""
        self._options = options
        self._manager.reconfigure(options.bloom)
        if options.bloom.enabled:
            self.watch()
        else:
            self.stop()

    def watch(self) -> None:
        """Start the thread if the engine has enough subscriptions; every write calls it."""
        if not self._loop.is_running and self._options.bloom.enabled and len(self._core) >= FEWEST:
            self._loop.start()

    def stop(self) -> None:
        """End the thread, until the next write; filters stay as they are."""
        self._loop.stop()

    def __repr__(self) -> str:
        return f"<Bloom: {len(self._core.filters())} filters>"
