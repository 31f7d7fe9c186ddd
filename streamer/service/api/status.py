"""The state of a running service, and its operations, for `streamer.service.api`."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, final

from prometheus_client import CollectorRegistry, generate_latest

from streamer.config.loader import Loaded
from streamer.config.schema.config import Config
from streamer.engine.engine import Engine
from streamer.errors import ServiceError
from streamer.metrics import service as names
from streamer.metrics.names import Metric
from streamer.service.api import config_view
from streamer.service.api.config_view import Reloaded
from streamer.service.connectors.protocols import Progress
from streamer.service.connectors.sinks import sinks_of
from streamer.service.connectors.sources import sources_of
from streamer.service.delivery.metrics import Condition, Counts, Gauges, Values
from streamer.service.delivery.pipeline import Pipeline
from streamer.service.delivery.replays import Replays
from streamer.service.delivery.spool.delivery import WEBHOOKS
from streamer.service.delivery.spool.history import STREAMS
from streamer.service.observed.attempts import Attempt
from streamer.service.observed.events import Events
from streamer.service.observed.looks import Looks
from streamer.service.observed.matches import MatchCounts
from streamer.service.observed.observer import Observer
from streamer.service.observed.rates import Lags, Rates
from streamer.service.store.rows import DeadLetter, time_of
from streamer.service.store.store import Store
from streamer.version import VERSION

#: The seconds without a read after which a source counts as idle.
IDLE: Final = 10.0
#: The seconds without a durable message after which a service with waiting messages counts as stalled.
STALLED: Final = 30.0
#: The seconds without an answer of a source's server after which the service is not ready; a server restarts faster.
DOWN: Final = 30.0
#: The most partitions of a source in a report.
_MOST: Final = 1000
#: The number of latest dead letters that are counted by their reason.
_COUNTED: Final = 10_000


@final
class Status:
    """The state of a pipeline and a store. Any thread may use it.

    Args:
        looks: reads what a scrape and a probe need of the store.
        loaded: returns the current configuration.
        reload: reads it again.
        check: compares a text with it.

    Attributes:
        observer: keeps samples of the service.
        replays: dead letters that are delivered again.
    """

    def __init__(
        self,
        engine: Engine,
        pipeline: Pipeline,
        store: Store,
        counts: Counts,
        registry: CollectorRegistry,
        looks: Looks,
        loaded: Callable[[], Loaded],
        reload: Callable[[], Reloaded],
        check: Callable[[bytes], dict[str, Any]],
    ) -> None:
        self._engine, self._pipeline, self._store, self._counts, self._registry = engine, pipeline, store, counts, registry
        self._loaded, self._reload, self.check_config = loaded, reload, check
        self._rates, self._lags = Rates(), Lags()
        self._used, self._trouble_of_store = looks.of(store.used), looks.of(self._look_at_store)
        registry.register(Condition(self.condition))
        self._started = time.time()
        self.replays = Replays(store, self.replay)
        self.observer = Observer(engine, registry.collect, self._look)

    def _config(self) -> Config:
        return self._loaded().config

    def configured(self) -> dict[str, Any]:
        """Return the current configuration, field by field."""
        return config_view.shown(self._loaded())

    def _look(self, now: float) -> None:
        """Keep samples for rates and lags."""
        self._rates.add(now, self._counted())
        for name, feed in self._pipeline.setup.feeds.items():
            self._lags.add(now, name, feed.source.progress(), feed.source)

    def _counted(self) -> dict[Hashable, float]:
        counted: dict[Hashable, float] = {}
        for source, counts in self._counts.of_sources().items():
            counted |= {("source", source, at): count for at, count in enumerate(counts)}
        for sink, ended in self._counts.of_sinks().items():
            counted |= {("sink", sink, at): count for at, count in enumerate(ended)}
        return counted | {("total", name, 0): count for name, count in self._counts.totals().items()}

    def status(self) -> dict[str, Any]:
        """Return the overall state, as the overview shows it."""
        trouble, totals, rates = self.trouble(), self._counts.totals(), self._rates_now()
        shown = ("events_read", "events_matched", "events_rejected", "matches", "matches_delivered", "matches_dead")
        return {
            "version": VERSION,
            "at": time_of(int(time.time() * 1000)),
            "started": time_of(int(self._started * 1000)),
            "ready": trouble is None,
            "reason": trouble,
            "subscriptions": len(self._engine),
            "totals": {name: totals[name] for name in (*shown, "matches_dropped", "matches_pending")},
            "rates_per_s": {name: rates.get(("total", name, 0)) for name in shown},
            "waiting_bytes": self._pipeline.waiting_bytes,
            "stalled_s": round(self._pipeline.stalled_for(), 3),
            "dead_letters": self._store.dead_letters(),
            "reload": self.last_reload(),
            "sources": self.sources(),
            "routes": [route.model_dump(mode="json") for route in self._config().routes],
            "sinks": self.sinks(),
            "gateways": self._own_gateways(),
        }

    def _own_gateways(self) -> list[dict[str, Any]]:
        """Return the counts of tenants' own gateways, with all endpoints together and all streams together."""
        counts, rates = self._counts.of_sinks(), self._rates_now()
        spools = {each.sink: each for each in self._counts.gauges()}
        rows = []
        for name in (WEBHOOKS, STREAMS):
            delivered, dead = counts.get(name, (0, 0))
            gauges = spools.get(name)
            messages, size, oldest = (0, 0, 0.0) if gauges is None else (gauges.messages, gauges.bytes, gauges.oldest)
            rows.append(
                {
                    "name": name,
                    "delivered": delivered,
                    "dead": dead,
                    "delivered_per_s": rates.get(("sink", name, 0)),
                    "dead_per_s": rates.get(("sink", name, 1)),
                    "held": {"messages": messages, "bytes": size, "oldest_s": oldest},
                    "attempts": {} if gauges is None else dict(gauges.attempts),
                }
            )
        return rows

    def _rates_now(self) -> Mapping[Hashable, float | None]:
        return self._rates.of(time.monotonic(), self._counted())

    def sources(self) -> list[dict[str, Any]]:
        """Return the sources, with their positions and counts. Raises ServiceError."""
        counts, rates, refused = self._counts.of_sources(), self._rates_now(), dict(self._counts.refused)
        feeds = self._pipeline.setup.feeds
        rows = []
        for name, section in sources_of(self._config()).items():
            read, matched, rejected = counts.get(name, (0, 0, 0))
            idle, letter = self._pipeline.reading.idle_for(name), refused.get(name)
            rows.append(
                {
                    "name": name,
                    "type": section.type,
                    "format": section.shown_format,
                    "state": self._pipeline.reading.state_of(name, idle=IDLE, is_stalled=self._is_stalled()),
                    "positions": dict(list(self._store.positions(name).items())[:_MOST]),
                    "read": read,
                    "matched": matched,
                    "rejected": rejected,
                    "read_per_s": rates.get(("source", name, 0)),
                    "matched_per_s": rates.get(("source", name, 1)),
                    "rejected_per_s": rates.get(("source", name, 2)),
                    "idle_s": None if idle is None else round(idle, 3),
                    "lag": self._lag(name) if name in feeds else None,
                    "last_error": None if letter is None else _error(letter.at, letter.code, letter.reason),
                }
            )
        return rows

    def _lag(self, name: str) -> dict[str, Any] | None:
        """Return how much a source has not read yet, and for how many seconds; None if that is not available."""
        progress = self._pipeline.setup.feeds[name].source.progress()
        if progress is None:
            return None
        return {"positions": progress.end - progress.read, "unit": progress.unit, "seconds": self._behind_for(name, progress)}

    def _behind_for(self, name: str, progress: Progress) -> float:
        """Return the seconds for which a source has been behind at least."""
        return self._lags.of(time.monotonic(), name, progress)

    def condition(self) -> Values:
        """Return the values of the metrics of the service as a whole."""
        values = {
            name: progress
            for name, feed in self._pipeline.setup.feeds.items()
            if (progress := feed.source.progress()) is not None
        }
        lags: dict[Metric, dict[tuple[str, ...], float]] = {names.LAG_BYTES: {}, names.LAG_MESSAGES: {}}
        seconds: dict[tuple[str, ...], float] = {}
        slots: dict[tuple[str, ...], float] = {}
        for name, each in values.items():
            lags[names.LAG_BYTES if each.unit == "bytes" else names.LAG_MESSAGES][name,] = each.end - each.read
            seconds[name,] = self._behind_for(name, each)
            if each.log_bytes is not None:
                slots[name,] = each.log_bytes
        room: dict[tuple[str, ...], float] = {("spool",): self._pipeline.spool_used}
        with suppress(ServiceError):
            room |= {(part,): share for part, share in self._used().items()}
        is_ready: dict[tuple[str, ...], float] = {(): float(self.trouble() is None)}
        delays = self._pipeline.matcher.delays
        ages: dict[tuple[str, ...], float] = {
            (name,): age for name in self._pipeline.setup.feeds if (age := delays.of(name)) is not None
        }
        is_up: dict[tuple[str, ...], float] = {
            (name,): float(not self._pipeline.reading.down_for(name)) for name in self._pipeline.setup.feeds
        }
        return [
            (names.READY, is_ready),
            (names.UP, is_up),
            *lags.items(),
            (names.LAG_SECONDS, seconds),
            (names.AGE, ages),
            (names.SLOT, slots),
            (names.ROOM, room),
        ]

    def sinks(self) -> list[dict[str, Any]]:
        """Return the sinks, with their counts."""
        counts, rates = self._counts.of_sinks(), self._rates_now()
        spools = {each.sink: each for each in self._counts.gauges()}
        state, stalled = ("stalled" if self._is_stalled() else "working"), round(self._pipeline.stalled_for(), 3)
        rows = []
        for name, section in sinks_of(self._config()).items():
            delivered, dead = counts.get(name, (0, 0))
            each = {
                "name": name,
                "type": section.type,
                "state": "away" if self._pipeline.writer.is_away(name) else state,
                "delivered": delivered,
                "dead": dead,
                "delivered_per_s": rates.get(("sink", name, 0)),
                "dead_per_s": rates.get(("sink", name, 1)),
                "oldest_undelivered_s": stalled,
            }
            if (gauges := spools.get(name)) is not None:
                attempts = self._pipeline.attempts(name)
                failed = None if attempts is None else attempts.failed(name)
                last = None if failed is None else _error(failed.at, failed.outcome.code, failed.outcome.reason)
                each |= {**_spooled(gauges), "last_error": last}
            rows.append(each)
        known = self._config().sinks
        for name, count, size in self._store.lanes():
            if name not in known or known[name].spooled is None:
                each = {"name": name, "type": "webhook", "state": "removed", "delivered": 0, "dead": 0}
                rows.append(each | {"spool": {"messages": count, "bytes": size, "oldest_s": 0.0}})
        return rows

    def last_reload(self) -> dict[str, Any]:
        """Return whether the latest configuration was accepted, and if not, why."""
        last = self._engine.last_reload
        assert last is not None
        members = {"good": last.good, "at": time_of(int(last.at * 1000)), "good_at": time_of(int(last.good_at * 1000))}
        return members if last.error is None or last.good else members | {"error": last.error}

    def trouble(self) -> str | None:
        """Return why the service is not ready; None if it is, even without events."""
        if self._pipeline.failed is not None:
            return "pipeline_failed"
        try:
            store = self._trouble_of_store()
        except ServiceError:
            store = "store_not_writable"
        if store is not None:
            return store
        if self._pipeline.absent or any(self._pipeline.reading.down_for(name) >= DOWN for name in self._pipeline.setup.feeds):
            return "away"
        return "stalled" if self._is_stalled() else None

    def _look_at_store(self) -> str | None:
        """Return why the store cannot be used; None if it can."""
        if self._store.gone() is not None:
            return "store_gone"
        return None if self._store.is_writable() else "store_not_writable"

    @property
    def events(self) -> Events:
        """Some of the latest events."""
        return self._pipeline.matcher.events

    @property
    def matches(self) -> MatchCounts:
        """How often each subscription matched."""
        return self._pipeline.matcher.matches

    def counted(self) -> tuple[int, int]:
        """Return how many events were read, and how many of them matched."""
        counts = self._counts.of_sources().values()
        return sum(read for read, _, _ in counts), sum(matched for _, matched, _ in counts)

    def history(self, metrics: list[str], seconds: float, points: int) -> dict[str, Any]:
        """Return all metrics of the last hours, or some."""
        return self.observer.series.read(metrics, seconds, points)

    def filters(self, most: int, samples: int) -> dict[str, Any]:
        """Return the engine's filters and their history: at most *most* of the most used ones, and at most *samples* samples."""
        bloom = self._engine.bloom
        states = sorted(bloom.filters(), key=lambda state: (-state.asked, state.name))
        saturated, options, latest = bloom.saturated, bloom.options, self.observer.filters.samples
        latest = latest[(len(latest) - 1) % (step := max(-(-len(latest) // samples), 1)) :: step] if latest else []
        return {
            "enabled": options.enabled,
            "wanted_fp_rate": options.fp_rate,
            "rebuilt_from_fp_rate": options.threshold,
            "filters": [
                {
                    **asdict(state),
                    "bytes": state.bits // 8,
                    "estimated_fp_rate": state.estimated_rate,
                    "measured_fp_rate": state.measured_rate,
                    "is_saturated": state.name in saturated,
                }
                for state in states[:most]
            ],
            "more": len(states) > most,
            "rebuilds": [
                {"tenant": name[0], "collection": name[1], "reason": reason.value, "count": count}
                for (name, reason), count in sorted(bloom.rebuilds.items())[: 10 * most]
            ],
            "samples": [asdict(sample) for sample in latest],
        }

    def attempts(self, sink: str, most: int, message: str | None = None) -> list[Attempt] | None:
        """Return the latest attempts to deliver to an endpoint, newest first; None if the endpoint does not exist.

        Args:
            message: the id of a message, to return only its attempts; None for all.
        """
        attempts = self._pipeline.attempts(sink)
        if attempts is None:
            return None
        return attempts.last(sink, most) if message is None else attempts.of(sink, message, most)

    def test(self, sink: str) -> Attempt | None:
        """Send a test message; None if the sink does not exist. Raises ServiceError."""
        return self._pipeline.test(sink)

    def letters_by_reason(self) -> dict[str, Any]:
        """Return the number of the latest dead letters for each reason. Raises ServiceError."""
        rows, total = self._store.letters_by_reason(_COUNTED), self._store.dead_letters()
        names = ("stage", "code", "source", "sink", "count")
        items = [{**dict(zip(names, row, strict=False)), "first": time_of(row[5]), "last": time_of(row[6])} for row in rows]
        return {"items": items, "total": total, "looked_at": sum(row[4] for row in rows)}

    def replay(self, letter: DeadLetter) -> bool:
        """Match a dead letter again, and deliver its matches; False if its source is gone, or it cannot be read again."""
        return self._pipeline.replay_beside(letter)

    def drop(self, letter: DeadLetter) -> bool:
        """Delete a dead letter; return whether it existed."""
        return self._pipeline.drop_beside(letter)

    def enable(self, sink: str) -> bool | None:
        """Deliver again to a disabled endpoint; return whether it was disabled, or None if the endpoint does not exist."""
        return self._pipeline.enable(sink)

    def forget(self, sink: str) -> int | None:
        """Delete the messages of a sink that was removed from the configuration; None if it was not. Raises ServiceError."""
        return self._pipeline.forget(sink)

    def reload(self) -> Reloaded:
        """Reload the configuration, or report why not. Raises ServiceError if the service is ending."""
        return self._reload()

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus's format."""
        return generate_latest(self._registry)

    def _is_stalled(self) -> bool:
        return self._pipeline.stalled_for() >= STALLED


def _spooled(gauges: Gauges) -> dict[str, Any]:
    """Return the report about a sink that uses the spool."""
    state = {"closed": "working", "disabled": "disabled"}.get(gauges.state or "", "down")
    return {
        "state": "no_room" if gauges.stuck else state,
        "oldest_undelivered_s": round(gauges.oldest, 3),
        "spool": {"messages": gauges.messages, "bytes": gauges.bytes, "oldest_s": gauges.oldest},
        "blocked_keys": gauges.blocked,
        "stuck_messages": gauges.stuck,
        "attempts": dict(gauges.attempts),
    }


def _error(at: int, code: str, reason: str) -> dict[str, Any]:
    return {"at": time_of(at), "code": code, "reason": reason}
