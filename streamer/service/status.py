"""What a running service tells of itself, and does when it is asked: for `streamer.service.api`."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict
from typing import Any, Final, final

from prometheus_client import CollectorRegistry, generate_latest

from streamer.config.loader import Loaded
from streamer.config.schema.config import Config
from streamer.engine.engine import Engine
from streamer.service import configured
from streamer.service.metrics import Counts, Gauges
from streamer.service.observed.attempts import Attempt
from streamer.service.observed.events import Events
from streamer.service.observed.matches import MatchCounts
from streamer.service.observed.observer import Observer
from streamer.service.observed.rates import Lags, Rates
from streamer.service.parts import sinks_of, sources_of
from streamer.service.pipeline import Pipeline
from streamer.service.reload import Reloaded
from streamer.service.replays import Replays
from streamer.service.spool.delivery import WEBHOOKS
from streamer.service.spool.history import STREAMS
from streamer.service.store.rows import DeadLetter, time_of
from streamer.service.store.store import Store
from streamer.version import VERSION

#: A source that read nothing for so many seconds is idle.
IDLE: Final = 10.0
#: A service is stalled whose sinks do not hold what they were given for so many seconds.
STALLED: Final = 30.0
#: Partitions of a source that are told.
_MOST: Final = 1000
#: Dead letters that are counted by their reason.
_COUNTED: Final = 10_000


@final
class Status:
    """The state of a pipeline and a store. Any thread may ask.

    Args:
        loaded: returns the configuration in force.
        reload: takes it anew.
        check: tells what a text would change in it.

    Attributes:
        observer: what is remembered of the service.
        replays: dead letters that are delivered again.
    """

    def __init__(
        self,
        engine: Engine,
        pipeline: Pipeline,
        store: Store,
        counts: Counts,
        registry: CollectorRegistry,
        loaded: Callable[[], Loaded],
        reload: Callable[[], Reloaded],
        check: Callable[[bytes], dict[str, Any]],
    ) -> None:
        self._engine, self._pipeline, self._store, self._counts, self._registry = engine, pipeline, store, counts, registry
        self._loaded, self._reload, self.check_config = loaded, reload, check
        self._rates, self._lags = Rates(), Lags()
        self._started = time.time()
        self.replays = Replays(store, self.replay)
        self.observer = Observer(engine, registry.collect, self._look)

    def _config(self) -> Config:
        return self._loaded().config

    def configured(self) -> dict[str, Any]:
        """Return the configuration in force, field by field."""
        return configured.told(self._loaded())

    def _look(self, now: float) -> None:
        """Keep what rates and lags are told by."""
        self._rates.add(now, self._counted())
        for name, feed in self._pipeline.setup.feeds.items():
            self._lags.add(now, name, feed.source.progress())

    def _counted(self) -> dict[Hashable, float]:
        counted: dict[Hashable, float] = {}
        for source, counts in self._counts.of_sources().items():
            counted |= {("source", source, at): count for at, count in enumerate(counts)}
        for sink, ended in self._counts.of_sinks().items():
            counted |= {("sink", sink, at): count for at, count in enumerate(ended)}
        return counted | {("total", name, 0): count for name, count in self._counts.totals().items()}

    def status(self) -> dict[str, Any]:
        """Return how it is with the whole of it: what an overview shows."""
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
        """Return what went to tenants' own gateways: to all endpoints together, and to all streams."""
        counts, rates = self._counts.of_sinks(), self._rates_now()
        spools = {each.sink: each for each in self._counts.gauges()}
        told = []
        for name in (WEBHOOKS, STREAMS):
            delivered, dead = counts.get(name, (0, 0))
            seen = spools.get(name)
            messages, size, oldest = (0, 0, 0.0) if seen is None else (seen.messages, seen.bytes, seen.oldest)
            told.append(
                {
                    "name": name,
                    "delivered": delivered,
                    "dead": dead,
                    "delivered_per_s": rates.get(("sink", name, 0)),
                    "dead_per_s": rates.get(("sink", name, 1)),
                    "held": {"messages": messages, "bytes": size, "oldest_s": oldest},
                    "attempts": {} if seen is None else dict(seen.attempts),
                }
            )
        return told

    def _rates_now(self) -> Mapping[Hashable, float | None]:
        return self._rates.of(time.monotonic(), self._counted())

    def sources(self) -> list[dict[str, Any]]:
        """Return the sources, with their positions and counts. Raises ServiceError."""
        counts, rates, refused = self._counts.of_sources(), self._rates_now(), dict(self._counts.refused)
        feeds = self._pipeline.setup.feeds
        told = []
        for name, section in sources_of(self._config()).items():
            read, matched, rejected = counts.get(name, (0, 0, 0))
            idle, letter = self._pipeline.idle_for(name), refused.get(name)
            told.append(
                {
                    "name": name,
                    "type": section.type,
                    "format": section.shown_format,
                    "state": self._pipeline.state_of(name, idle=IDLE, stalled=STALLED),
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
        return told

    def _lag(self, name: str) -> dict[str, Any] | None:
        """Return how much a source has not read yet, and for how long there was something; None where nobody knows."""
        progress = self._pipeline.setup.feeds[name].source.progress()
        if progress is None:
            return None
        seconds = self._lags.of(time.monotonic(), name, progress)
        return {"positions": progress.end - progress.read, "unit": progress.unit, "seconds": seconds}

    def sinks(self) -> list[dict[str, Any]]:
        """Return the sinks, with their counts."""
        counts, rates = self._counts.of_sinks(), self._rates_now()
        spools = {each.sink: each for each in self._counts.gauges()}
        state, stalled = ("stalled" if self._is_stalled() else "working"), round(self._pipeline.stalled_for(), 3)
        told = []
        for name, section in sinks_of(self._config()).items():
            delivered, dead = counts.get(name, (0, 0))
            each = {
                "name": name,
                "type": section.type,
                "state": "away" if self._pipeline.is_away(name) else state,
                "delivered": delivered,
                "dead": dead,
                "delivered_per_s": rates.get(("sink", name, 0)),
                "dead_per_s": rates.get(("sink", name, 1)),
                "oldest_undelivered_s": stalled,
            }
            if (seen := spools.get(name)) is not None:
                attempts = self._pipeline.attempts(name)
                failed = None if attempts is None else attempts.failed(name)
                last = None if failed is None else _error(failed.at, failed.outcome.code, failed.outcome.reason)
                each |= {**_spooled(seen), "last_error": last}
            told.append(each)
        known = self._config().sinks
        for name, count, size in self._store.lanes():
            if name not in known or known[name].spooled is None:
                each = {"name": name, "type": "webhook", "state": "removed", "delivered": 0, "dead": 0}
                told.append(each | {"spool": {"messages": count, "bytes": size, "oldest_s": 0.0}})
        return told

    def last_reload(self) -> dict[str, Any]:
        """Return whether the configuration that was tried last was taken, and if not, why."""
        last = self._engine.last_reload
        assert last is not None
        told = {"good": last.good, "at": time_of(int(last.at * 1000)), "good_at": time_of(int(last.good_at * 1000))}
        return told if last.error is None or last.good else told | {"error": last.error}

    def trouble(self) -> str | None:
        """Return why the service is not ready; None where it is, also where no events come."""
        if self._pipeline.failed is not None:
            return "pipeline_failed"
        if self._store.gone() is not None:
            return "store_gone"
        if not self._store.is_writable():
            return "store_not_writable"
        if self._pipeline.absent:
            return "away"
        return "stalled" if self._is_stalled() else None

    @property
    def events(self) -> Events:
        """Some of the last events."""
        return self._pipeline.events

    @property
    def matches(self) -> MatchCounts:
        """How often each subscription matched."""
        return self._pipeline.matches

    def counted(self) -> tuple[int, int]:
        """Return how many events were read, and how many of them matched."""
        counts = self._counts.of_sources().values()
        return sum(read for read, _, _ in counts), sum(matched for _, matched, _ in counts)

    def history(self, metrics: list[str], seconds: float, points: int) -> dict[str, Any]:
        """Return all metrics of the last hours, or some."""
        return self.observer.series.told(metrics, seconds, points)

    def filters(self, most: int, samples: int) -> dict[str, Any]:
        """Return the engine's filters, and how they were: so many of those that are asked most, and so many moments at most."""
        bloom = self._engine.bloom
        states = sorted(bloom.filters(), key=lambda state: (-state.asked, state.name))
        saturated, options, kept = bloom.saturated, bloom.options, self.observer.filters.samples
        kept = kept[(len(kept) - 1) % (step := max(-(-len(kept) // samples), 1)) :: step] if kept else []
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
            "samples": [asdict(sample) for sample in kept],
        }

    def attempts(self, sink: str, most: int, message: str | None = None) -> list[Attempt] | None:
        """Return the last attempts to deliver to an endpoint, the newest first; None where there is no such endpoint.

        Args:
            message: the id of the one that they were to deliver; None for any.
        """
        attempts = self._pipeline.attempts(sink)
        if attempts is None:
            return None
        return attempts.last(sink, most) if message is None else attempts.of(sink, message, most)

    def test(self, sink: str) -> Attempt | None:
        """Send a message that says that it is a test; None where there is no such sink. Raises ServiceError."""
        return self._pipeline.test(sink)

    def letters_by_reason(self) -> dict[str, Any]:
        """Return how many of the last dead letters there are for each reason. Raises ServiceError."""
        rows, total = self._store.letters_by_reason(_COUNTED), self._store.dead_letters()
        names = ("stage", "code", "source", "sink", "count")
        items = [{**dict(zip(names, row, strict=False)), "first": time_of(row[5]), "last": time_of(row[6])} for row in rows]
        return {"items": items, "total": total, "looked_at": sum(row[4] for row in rows)}

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


def _spooled(seen: Gauges) -> dict[str, Any]:
    """Return what is told of a sink that messages are spooled for."""
    state = {"closed": "working", "disabled": "disabled"}.get(seen.state or "", "down")
    return {
        "state": "no_room" if seen.stuck else state,
        "oldest_undelivered_s": round(seen.oldest, 3),
        "spool": {"messages": seen.messages, "bytes": seen.bytes, "oldest_s": seen.oldest},
        "blocked_keys": seen.blocked,
        "stuck_messages": seen.stuck,
        "attempts": dict(seen.attempts),
    }


def _error(at: int, code: str, reason: str) -> dict[str, Any]:
    return {"at": time_of(at), "code": code, "reason": reason}
