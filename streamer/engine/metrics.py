"""The public interface to an engine's metrics. Prometheus is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streamer.engine.engine import Engine
    from streamer.metrics import Mirror, Registration


@final
class EngineMetrics:
    """The metrics of one engine; `Engine.metrics`. docs/metrics.md lists all metrics and their meaning."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def register(
        self,
        registry: CollectorRegistry | None = None,
        *,
        name: str | None = None,
        collections: int = 20,
        tenants: bool = False,
    ) -> Registration:
        """Register the engine with a registry, which reads it during each scrape.

        The registry keeps only a weak reference: a dropped engine disappears from it.

        Args:
            registry: the registry; by default prometheus_client's own.
            name: the value of the label `engine`; by default the next free number on this registry.
            collections: the most collections with their own series; all others share `other`.
            tenants: whether the tenant is a label, too; then *collections* counts pairs of tenant and collection.

        Returns:
            The registration; call `close()` to remove the engine.

        Raises:
            ValueError: the registry has an engine with this name already.
        """
        from prometheus_client import REGISTRY

        from streamer.metrics import register

        return register(
            self._engine, REGISTRY if registry is None else registry, name=name, collections=collections, tenants=tenants
        )

    def mirror(self, *, name: str | None = None, collections: int = 20, tenants: bool = False, interval: float = 1.0) -> Mirror:
        """Copy the engine's numbers to the files of prometheus_client's multiprocess mode, every *interval* seconds.

        Args:
            name: the value of the label `engine`: the same in each process with the same subscriptions; by default `1`.
            collections: see `register`.
            tenants: see `register`.
            interval: the time between two copies, in seconds.

        Returns:
            The mirror, which stops on `close()`.

        Raises:
            RuntimeError: this process is not in multiprocess mode.
        """
        from streamer.metrics import mirror

        return mirror(self._engine, name=name, collections=collections, tenants=tenants, interval=interval)
