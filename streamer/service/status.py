"""What a running service tells of itself: to the API, and to those who look after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from prometheus_client import CollectorRegistry, generate_latest

from streamer.config.schema.config import Config
from streamer.config.schema.sinks import WebhookSink
from streamer.config.schema.sources import PostgresSource
from streamer.service.metrics import Counts
from streamer.service.parts import sinks_of, sources_of
from streamer.service.pipeline import Pipeline
from streamer.service.reload import Reloaded
from streamer.service.store.rows import DeadLetter
from streamer.service.store.sqlite import Store

#: A source that read nothing for so many seconds is idle.
IDLE: Final = 10.0
#: A service is stalled whose sinks do not hold what they were given for so many seconds.
STALLED: Final = 30.0
#: Partitions of a source that are told.
_MOST: Final = 1000


@final
class Status:
    """The state of a pipeline and a store. Any thread may ask."""

    def __init__(
        self,
        pipeline: Pipeline,
        store: Store,
        counts: Counts,
        registry: CollectorRegistry,
        config: Callable[[], Config],
        reload: Callable[[], Reloaded],
    ) -> None:
        self._pipeline, self._store, self._counts, self._registry = pipeline, store, counts, registry
        self._config, self._reload = config, reload

    def sources(self) -> list[dict[str, Any]]:
        """Return the sources, with their positions and counts. Raises ServiceError."""
        counts = self._counts.of_sources()
        told = []
        for name, section in sources_of(self._config()).items():
            read, matched, rejected = counts.get(name, (0, 0, 0))
            told.append(
                {
                    "name": name,
                    "type": section.type,
                    "format": section.plugin if isinstance(section, PostgresSource) else getattr(section, "format", "json"),
                    "state": self._pipeline.state_of(name, idle=IDLE, stalled=STALLED),
                    "positions": dict(list(self._store.positions(name).items())[:_MOST]),
                    "read": read,
                    "matched": matched,
                    "rejected": rejected,
                }
            )
        return told

    def sinks(self) -> list[dict[str, Any]]:
        """Return the sinks, with their counts."""
        counts = self._counts.of_sinks()
        spools = {each.sink: each for each in self._counts.gauges()}
        state = "stalled" if self._is_stalled() else "working"
        told = []
        for name, section in sinks_of(self._config()).items():
            delivered, dead = counts.get(name, (0, 0))
            each = {"name": name, "type": section.type, "state": state, "delivered": delivered, "dead": dead}
            if (seen := spools.get(name)) is not None:
                each["state"] = {"closed": "working", "disabled": "disabled"}.get(seen.state or "", "down")
                each["spool"] = {"messages": seen.messages, "bytes": seen.bytes, "oldest_s": seen.oldest}
            told.append(each)
        known = self._config().sinks
        for name, count, size in self._store.lanes():
            if not isinstance(known.get(name), WebhookSink):
                each = {"name": name, "type": "webhook", "state": "removed", "delivered": 0, "dead": 0}
                told.append(each | {"spool": {"messages": count, "bytes": size, "oldest_s": 0.0}})
        return told

    def trouble(self) -> str | None:
        """Return why the service is not ready; None where it is, also where no events come."""
        if self._pipeline.failed is not None:
            return "pipeline_failed"
        if not self._store.is_writable():
            return "store_not_writable"
        return "stalled" if self._is_stalled() else None

    def replay(self, letter: DeadLetter) -> bool:
        """Match a dead letter again, and deliver what it matches; False where its source is gone, or it cannot be read again."""
        return self._pipeline.replay_beside(letter)

    def drop(self, letter: DeadLetter) -> bool:
        """Drop a dead letter; tell whether it was there."""
        return self._pipeline.drop_beside(letter)

    def enable(self, sink: str) -> bool | None:
        """Ask an endpoint again that wanted no more; tell whether it was so, or None where there is no such endpoint."""
        return self._pipeline.enable(sink)

    def forget(self, sink: str) -> int | None:
        """Forget the messages for a sink that was taken out of the configuration; None where it was not. Raises ServiceError."""
        return self._pipeline.forget(sink)

    def reload(self) -> Reloaded:
        """Take the configuration anew, or say why not. Raises ServiceError: the service is ending."""
        return self._reload()

    def metrics(self) -> bytes:
        """Return the metrics, as Prometheus reads them."""
        return generate_latest(self._registry)

    def _is_stalled(self) -> bool:
        return self._pipeline.stalled_for() >= STALLED
