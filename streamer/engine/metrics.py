"""An engine's metrics, as its user sees them. Prometheus is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streamer.engine.engine import Engine
    from streamer.metrics import Mirror, Registration


@final
class EngineMetrics:
    """The metrics of one engine; `Engine.metrics`. What there is, and what it means, is in docs/metrics.md."""

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
        """Put the engine on a registry, which reads it during a scrape.

        The registry refers to it weakly: a dropped engine disappears from there.

        Args:
            registry: by default prometheus_client's own.
            name: the value of the label `engine`; by default the next number that is free on this registry.
            collections: how many collections have series of their own; all others are `other`.
            tenants: label by tenant too, and count pairs of tenant and collection.

        Returns:
            The registration, which removes it again.

        Raises:
            ValueError: the registry has an engine of this name.
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
            collections: as of `register`.
            tenants: as of `register`.

        Returns:
            The mirror, which stops on `close()`.

        Raises:
            RuntimeError: this process is not in multiprocess mode.
        """
        from streamer.metrics import mirror

        return mirror(self._engine, name=name, collections=collections, tenants=tenants, interval=interval)
