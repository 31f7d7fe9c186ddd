"""Runs a pipeline with its configuration, signals and reloads: `streamer serve`."""

from __future__ import annotations

import errno
import logging
import os
import queue
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, final

from streamer.config.loader import Loaded
from streamer.config.schema.config import Config
from streamer.engine.engine import Engine
from streamer.errors import BulkConfigError, ServiceError
from streamer.service.api import audit, config_view
from streamer.service.api.config_view import Reloaded
from streamer.service.api.status import Status
from streamer.service.connectors.protocols import Busy, code_of
from streamer.service.connectors.sinks import sinks_of
from streamer.service.connectors.sources import sources_of
from streamer.service.connectors.unavailable import Absent
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.pipeline import Pipeline
from streamer.service.delivery.spool import Spool
from streamer.service.observed.looks import Looks
from streamer.service.run import checking
from streamer.service.run.api_server import Entrance
from streamer.service.run.build import of_engine, open_feed, open_sink, parts_of
from streamer.service.run.fitting import fitting, place_of
from streamer.service.run.reload import Running, tell_refused
from streamer.service.store.gateways import GatewayTable
from streamer.service.store.rows import OWN, DeadLetter
from streamer.service.store.store import Store
from streamer.service.store.vault import Vault
from streamer.service.tenants import subscription_files
from streamer.service.tenants.declined import Declined
from streamer.service.tenants.gateways import Gateways, sink_of
from streamer.service.tenants.loading import Loading
from streamer.service.tenants.quotas import Quotas
from streamer.service.tenants.shards import Shard
from streamer.service.tenants.snapshot import EngineSnapshot
from streamer.service.tenants.subscriptions import FILES, Subscriptions
from streamer.terminal import OK

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streamer.service.api.app import App
    from streamer.service.api.handlers import Handlers

#: The limit of open files, if the system allows it: connections, sources and sinks use some thousands at most.
_FILES: Final = 65_536
#: The longest time to deliver records in flight, in seconds, once the service is to end.
DRAIN: Final = 10.0
#: The interval between checks for signals, in seconds.
_LOOK: Final = 0.1
#: The interval between checks of the watched directory, in seconds.
_LOOK_AT_FILES: Final = 0.5
#: The interval between log lines that name the remaining work once the sources have ended, in seconds.
_TELL: Final = 60.0
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class Service:
    """A service with a configuration and the subscriptions of its files.

    Args:
        load: reads the configuration; each reload calls it again.
        in_force: is called with a configuration once it is in force.
        dev: whether to serve the API without tokens, which is allowed only at a loopback address.
        parse: parses a text as *load* parses the file; by default as the file that it came from.
        sign_in: is called with an address at which the operator can sign in to the console, once; None to create none.

    Attributes:
        has_started: whether all parts were opened, and events were read.

    Raises:
        BulkConfigError: all errors in the configuration.
        OSError: the configuration cannot be read.
    """

    def __init__(
        self,
        load: Callable[[], Loaded],
        in_force: Callable[[Loaded], None] = lambda _: None,
        *,
        dev: bool = False,
        parse: config_view.Parse | None = None,
        sign_in: Callable[[str], None] | None = None,
    ) -> None:
        self._load, self._in_force, self._dev, self._sign_in = load, in_force, dev, sign_in
        self._loaded = load()
        self._parse = config_view.parser(self._loaded) if parse is None else parse
        in_force(self._loaded)
        fitting(self._loaded, dev=dev)
        self.engine = Engine.from_config(of_engine(self._loaded.config))
        self._parts = parts_of(self._loaded.config)
        self._running: Running | None = None
        self.has_started = False
        self._received: list[int] = []
        self._is_reload_due = False
        self._wanted: queue.SimpleQueue[Future[Reloaded]] = queue.SimpleQueue()

    @property
    def config(self) -> Config:
        """The current configuration."""
        return self._loaded.config if self._running is None else self._running.config

    @property
    def api(self) -> App | None:
        """The API, if it is configured and the service runs."""
        return None if self._running is None else self._running.entrance.app

    @property
    def api_port(self) -> int | None:
        """Its port, once it serves all routes."""
        entrance = None if self._running is None else self._running.entrance
        if entrance is None or entrance.server is None or not entrance.is_open or not entrance.server.is_started:
            return None
        return entrance.server.port

    def check(self) -> None:
        """Check whether it could start, without changing anything. Raises ServiceError with the first fault of `checking`."""
        for fault, error in checking.check(self._loaded, dev=self._dev).faults:
            raise type(error)(f"{fault.place}: {fault.reason}") from error

    def run(self, enable: Iterable[str] = (), *, is_process: bool = False) -> None:
        """Run until the sources end, or until a signal.

        The API answers at once; until the subscriptions are loaded and the sources read, it reports that.

        Args:
            enable: sinks whose disabled endpoint is to get messages again.
            is_process: whether the process ends with the service, so that later signals do not end it in another way.

        Raises:
            BulkConfigError: all errors in the files of subscriptions.
            ServiceError: a part cannot be opened, or failed.
        """
        if is_process:
            _let_open_files()
        # Signals are recorded until all parts are closed.
        with ExitStack() as noted, ExitStack() as opened:
            noted.enter_context(self._signals(is_process=is_process))
            loading = Loading()
            entrance = Entrance(loading, dev=self._dev, sign_in=self._sign_in)
            opened.callback(entrance.close)
            entrance.prepared(self.config.api).take()
            # Served while it loads, so that a long start does not look like the end of the process.
            registry = self._serve_metrics(opened)
            store = loading.run(partial(self._open_store, opened, loading))
            for name in enable:
                if not store.enable(name):
                    _LOGGER.warning("--enable %s: it was not disabled", name)
            self._parts.check_endpoints()
            opened.callback(self._close_parts)
            looks = Looks()
            opened.callback(looks.close)
            counts = self.counts = Counts(looks.of(store.dead_letters))
            spool = self._spool(store, counts)
            counts.gauges = looks.of(spool.gauges)
            counts.configured = lambda: (sources_of(self.config), sinks_of(self.config))
            setup = self._parts.setup()
            gateways = self.gateways = Gateways(store, spool, setup.speaker, self.config)
            opened.callback(gateways.close)
            pipeline = Pipeline(self.engine, store, setup, counts, spool)
            pipeline.matcher.matches.limit(self.config.service.match_counts)
            self._open(pipeline.absent, store)
            registry.register(counts)
            status = Status(
                self.engine, pipeline, store, counts, registry, looks, lambda: self._loaded, self._ask_reload, self._check_text
            )
            if self.config.metrics.enabled:
                status.observer.start()
            # Its requests use parts that are closed after it.
            opened.callback(entrance.close)
            opened.callback(status.observer.close)
            opened.callback(status.replays.close)
            running = self._running = Running(
                self._loaded, self._parts, self.engine, store, self.subscriptions, gateways, pipeline, spool, entrance
            )
            self.subscriptions.start()
            store.database.follow(partial(self._follow, gateways, spool))
            self.has_started = True
            pipeline.start()
            handlers, expiring = lambda: _handlers(self, store, status), looks.of(self.subscriptions.expiring)
            entrance.open(handlers, registry, self.subscriptions, gateways, expiring)
            # After this line, a client may count on every route.
            _LOGGER.info("started: %d subscriptions, %s", len(self.engine), store.database.name)
            self._watch(running)
            totals = counts.totals()
            _LOGGER.info(
                "ended: %d events read, %d rejected, %d matches, %d delivered, %d dropped",
                *(totals[name] for name in ("events_read", "events_rejected", "matches", "matches_delivered", "matches_dropped")),
            )
            for name, count in spool.waits_for().items():
                _LOGGER.info("sinks.%s: %d messages stay in the spool for the next run", name, count)
            if pipeline.failed is not None:
                raise pipeline.failed

    def _follow(self, gateways: Gateways, spool: Spool) -> None:
        """Apply the changes of other processes in the store."""
        spool.look()
        try:
            gateways.follow()
            self.subscriptions.follow()
        except ServiceError as error:
            # The next attempt is soon, and other parts report a store that is away.
            _LOGGER.debug("%s", error)
        except Exception as error:
            # This thread must continue, because without it no due message is delivered.
            _LOGGER.exception("cannot apply the changes of other processes: %s", type(error).__name__)

    def stop(self) -> None:
        """End the service as SIGTERM does; any thread may call it."""
        self._received.append(signal.SIGTERM)

    def replay(self, choose: Callable[[Store], Iterable[DeadLetter]]) -> tuple[int, int]:
        """Match dead letters again, deliver their matches, and delete them; dead letters of messages return to the spool.

        Returns:
            The number of deleted letters, and the number that could not be read again.

        Raises:
            ServiceError: the source of one is not configured, or it was too long to be reason whole; and as `run`.
        """
        with ExitStack() as opened:
            parts = self._parts
            store = self._open_store(opened, Loading())
            letters = list(choose(store))
            messages = [letter for letter in letters if letter.stage == "deliver"]
            records = [letter for letter in letters if letter.stage != "deliver"]
            table = GatewayTable(store, Vault(lambda: self.config.delivery.gateways.keys))
            own = {sink_of(row.tenant, row.id) for row in table.all()} if messages else ()
            for letter in messages:
                if letter.sink.startswith(OWN) and letter.sink not in own:
                    raise ServiceError(f"dead letter {letter.id}: there is no {letter.sink} any more")
                if letter.sink not in {*parts.endpoints, *parts.sinks, *own}:
                    raise ServiceError(f"dead letter {letter.id}: the configuration has no sink {letter.sink!r}")
            for letter in records:
                if letter.source not in parts.feeds:
                    raise ServiceError(f"dead letter {letter.id}: the configuration has no source {letter.source!r}")
                if not letter.is_whole:
                    reason = f"{len(letter.record):,} of its {letter.size:,} bytes were kept"
                    raise ServiceError(f"dead letter {letter.id}: {reason}; it can be shown and dropped, and not replayed")
            opened.callback(self._close_parts)
            self._parts.check_endpoints()
            for name, sink in parts.sinks.items():
                open_sink(name, sink)
            if spooled := [letter for letter in messages if letter.sink not in parts.sinks]:
                store.respool(spooled)
            counts = Counts()
            spool = self._spool(store, counts)
            # The spool makes no attempts here: messages stay in it for the next run.
            spool.stop()
            setup = parts.setup()
            Gateways(store, spool, setup.speaker, self.config)
            pipeline = Pipeline(self.engine, store, setup, counts, spool)
            good, bad = pipeline.replay(records)
            accepted = [letter in spooled or pipeline.writer.resend(letter) for letter in messages]
            return good + sum(accepted), bad + len(accepted) - sum(accepted)

    def _open_store(self, opened: ExitStack, loading: Loading) -> Store:
        """Load the subscriptions of files; if they are good, open the store, and load its subscriptions, too."""
        config, shard = self.config, Shard.of(self.config)
        self._watched = subscription_files.Watch(config)
        rows, places = subscription_files.read(self._loaded, loading)
        mine, of_mine = shard.mine(rows, places)
        subscription_files.put(self.engine, self._loaded, loading.counted([each.source for each in mine]), of_mine)
        store = Store(place_of(config), dead_letter_bytes=config.delivery.dead_letter_bytes)
        opened.enter_context(closing(store))
        directory = config.service.data_dir if store.database.is_shared else config.service.directory
        snapshot = None if directory is None else EngineSnapshot(directory, self.engine, store, shard, self._replaced_by_files)
        self.subscriptions = Subscriptions(self.engine, store, Quotas.of(config), shard, config.service.history, snapshot)
        opened.enter_context(closing(self.subscriptions))
        self.subscriptions.begin(self._loaded, rows, places, loading=loading)
        if not len(self.engine):
            _LOGGER.warning("there are no subscriptions, so no event matches")
        return store

    def _replaced_by_files(self) -> str:
        return FILES if subscription_files.are_from_files(self.config) else ""

    def _open(self, absent: Absent, store: Store) -> None:
        """Open sinks and sources, except those that are away now. Raises ServiceError."""
        for name, sink in self._parts.sinks.items():
            absent.open(f"sinks.{name}", sink, partial(open_sink, name, sink))
        for name, feed in self._parts.feeds.items():
            absent.open(f"sources.{name}", feed, partial(open_feed, feed, store, self._parts.feeds))

    def _close_parts(self) -> None:
        (self._parts if self._running is None else self._running.parts).close()

    def _spool(self, store: Store, counts: Counts) -> Spool:
        """Return the spool with its endpoints."""
        for name, count, _ in store.lanes():
            if name not in self._parts.endpoints:
                text = "the spool has %d messages for %s, which the configuration lacks: `streamer spool forget` deletes them"
                _LOGGER.warning(text, count, name)
        spool = Spool(store, counts)
        self._parts.fill(spool)
        return spool

    def _serve_metrics(self, opened: ExitStack) -> CollectorRegistry:
        """Put the metrics of the engine on a registry, and serve it if the configuration enables that."""
        from prometheus_client import CollectorRegistry, ProcessCollector

        metrics = self.config.metrics
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        labels = {"name": metrics.name, "collections": metrics.collections, "tenants": metrics.tenants}
        if not metrics.enabled:
            opened.enter_context(self.engine.metrics.register(registry, **labels))  # type: ignore[arg-type]
            return registry
        try:
            server = self.engine.serve_metrics(metrics.port, metrics.address, registry=registry, **labels)  # type: ignore[arg-type]
        except OSError as error:
            kind = Busy if error.errno == errno.EADDRINUSE else ServiceError
            raise kind(f"metrics: {error.strerror or error}") from error
        opened.callback(server.close)
        _LOGGER.info("metrics: %s", server.url)
        return registry

    # Signals

    @contextmanager
    def _signals(self, *, is_process: bool) -> Iterator[None]:
        """Record SIGTERM, SIGINT and SIGHUP; a second signal to end ends at once. A pipe without a reader is an error."""

        def note(number: int, _: FrameType | None) -> None:
            if number == signal.SIGHUP:
                self._is_reload_due = True
                return
            if is_process and not self.has_started:
                # No event was read, and the store is as after a crash: what was not committed is undone. So there is no need to
                # wait for what is being opened, which may be away.
                with suppress(RuntimeError):  # the signal came while a line was written
                    _LOGGER.info("%s: ended before it had started", signal.Signals(number).name)
                os._exit(OK)
            if self._received:
                os._exit(128 + number)
            self._received.append(number)

        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread gets signals
            return
        wanted = dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), note)
        before = {number: signal.signal(number, action) for number, action in wanted.items()}
        before[signal.SIGPIPE] = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        try:
            yield
        finally:
            for number, action in before.items():
                signal.signal(number, signal.SIG_IGN if is_process and number in wanted else action)

    def _watch(self, running: Running) -> None:
        """Wait for the end, and for signals."""
        pipeline, spool = running.pipeline, running.spool
        deadline, looked, logged = None, 0.0, time.monotonic()
        while not pipeline.wait(_LOOK):
            pipeline.writer.rejected.rest()
            if self._is_reload_due:
                # Requests that arrive meanwhile cause one more reload.
                self._is_reload_due = False
                self.reload()
            while not self._wanted.empty():
                request = self._wanted.get()
                if request.set_running_or_notify_cancel():
                    self.reload(request.set_result)
            if self.config.service.watch is not None and time.monotonic() - looked >= _LOOK_AT_FILES:
                looked = time.monotonic()
                if self._watched.is_due():
                    self._take_files()
            if pipeline.reading.is_over and time.monotonic() > logged + _TELL:
                logged = time.monotonic()
                for name, count in spool.waits_for().items():
                    _LOGGER.info(
                        "sinks.%s: the sources have ended, and %d messages wait; Ctrl-C leaves them in the spool", name, count
                    )
            if self._received and deadline is None:
                _LOGGER.info(
                    "%s: reading has ended, and the events that were read are delivered", signal.Signals(self._received[0]).name
                )
                pipeline.stop()
                deadline = time.monotonic() + DRAIN
            if pipeline.failed is not None and deadline is None:
                deadline = time.monotonic() + DRAIN
            if deadline is not None and time.monotonic() > deadline:
                # A sink that neither accepts messages nor fails must not delay the end.
                if pipeline.failed is not None:
                    _LOGGER.error("%s", pipeline.failed)
                else:
                    _LOGGER.warning("some messages were not delivered in %d s; the next run delivers them", DRAIN)
                logging.shutdown()
                os._exit(OK if pipeline.failed is None else code_of(pipeline.failed, is_start=False))

    def _take_files(self) -> None:
        """Read the files of subscriptions again; on errors, log them and keep the current ones."""
        try:
            rows, places = subscription_files.read(self._loaded)
            count = self.subscriptions.begin(self._loaded, rows, places)
        except (BulkConfigError, OSError, ServiceError) as error:
            tell_refused("service.watch", error)
            return
        _LOGGER.info("service.watch: %d subscriptions changed", count)

    def reload(self, answer: Callable[[Reloaded], None] = lambda _: None) -> Reloaded:
        """Reload the configuration and its files of subscriptions while the service runs; on errors, keep the current state."""
        running = self._running
        assert running is not None
        outcome = running.reload(self._load, partial(fitting, dev=self._dev), answer)
        # The API, a signal or a changed file began it.
        audit.record("reload", who="the service", reason="it was refused" if outcome.errors else None)
        if not outcome.errors:
            self._loaded = running.loaded
            self._watched = subscription_files.Watch(self.config)
            self._in_force(self._loaded)
        return outcome

    def _check_text(self, text: bytes) -> dict[str, Any]:
        return config_view.checked(self._loaded, text, self._parse, partial(fitting, dev=self._dev))

    def _ask_reload(self) -> Reloaded:
        """Have the main thread reload, and wait for it. Raises ServiceError, and Declined while another API server takes over."""
        request: Future[Reloaded] = Future()
        self._wanted.put(request)
        running = self._running
        assert running is not None
        while True:
            try:
                return request.result(_LOOK)
            except TimeoutError:
                if running.pipeline.wait(0) or self._received:
                    raise ServiceError("the service is ending") from None
                # The main thread waits until the old API server has answered.
                if running.entrance.gives_way and request.cancel():
                    raise Declined("busy", "a reload changes the API; try again") from None


def _handlers(service: Service, store: Store, status: Status) -> Handlers:
    from streamer.service.api.handlers import Handlers

    status.observer.start()
    return Handlers(service.engine, store, service.subscriptions, service.gateways, status)


def _let_open_files() -> None:
    """Raise the limit of open files: a shell's 1,024 are fewer than the connections that the service may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
