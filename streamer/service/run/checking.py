"""Check a configuration for `streamer serve --check`: find all faults that would prevent a start, not only the first one.

The check covers everything that `serve` opens: the store, the sources with their confirmed positions, the sinks, the endpoints,
the files of the API, and the ports. It creates, consumes and changes no data. If another process uses the store, that process is
probably also the user of each port or partition that is in use. So these become notes instead of faults.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, final

from streamer.config.loader import Loaded, Place, show_place
from streamer.config.schema.api import Api, ApiOidc
from streamer.engine.engine import Engine
from streamer.errors import BulkConfigError, ConfigError, ServiceError
from streamer.extras import needed
from streamer.service.connectors import sinks, sources
from streamer.service.connectors.protocols import Away, Busy, code_of
from streamer.service.connectors.trust import client_context
from streamer.service.run import build
from streamer.service.run.fitting import fitting, place_of
from streamer.service.store.opened import inspected
from streamer.service.store.vault import Vault
from streamer.service.tenants import subscription_files
from streamer.service.tenants.shards import Shard
from streamer.terminal import OK

_LOGGER: Final = logging.getLogger("streamer.service")


@final
@dataclass
class Report:
    """The results of the check.

    Attributes:
        faults: each error with its place, and the exception that was raised.
        notes: facts that are useful but not faults, with their places.
        subscriptions: the number of subscriptions in the files that this process matches.
    """

    loaded: Loaded
    faults: list[tuple[ConfigError, Exception]] = field(default_factory=list)
    notes: list[ConfigError] = field(default_factory=list)
    subscriptions: int = 0
    is_in_use: bool = False

    @property
    def code(self) -> int:
        """The exit code; if there are several faults, the code that comes first in the table."""
        return min((code_of(error, is_start=True) for _, error in self.faults), default=OK)

    @contextmanager
    def at(self, *place: str) -> Iterator[None]:
        """Record an exception as a fault of a place."""
        try:
            yield
        except BulkConfigError as bulk:
            self.faults += [(error, bulk) for error in bulk.errors]
        except (ServiceError, ConfigError, OSError) as error:
            fault = self._error(place, error)
            if isinstance(error, Busy) and self.is_in_use:
                self.notes.append(fault)
            else:
                self.faults.append((fault, error if isinstance(error, ServiceError) else ServiceError(str(error))))

    def note(self, place: Place, reason: str) -> None:
        """Record a note about a place."""
        self.notes.append(self.loaded.error(place, reason))

    def _error(self, place: Place, error: Exception) -> ConfigError:
        # Remove the section from errors that name it themselves, as a log line needs.
        reason = str(error).removeprefix(f"{show_place(place)}: ").removeprefix(f"{show_place(place[:1])}: ")
        return self.loaded.error(place, reason)


def check(loaded: Loaded, *, dev: bool = False) -> Report:
    """Return all faults that would prevent a service from starting.

    Args:
        dev: whether the API would run without tokens.
    """
    config, report = loaded.config, Report(loaded)
    with report.at():
        fitting(loaded, dev=dev)
    with report.at("subscriptions"):
        subscriptions, places = subscription_files.read(loaded)
        engine = Engine.from_config(build.of_engine(config))
        mine, of_mine = Shard.of(config).mine(subscriptions, places)
        subscription_files.put(engine, loaded, (each.source for each in mine), of_mine)
        report.subscriptions = len(engine)
    positions = _store(report)
    for name, source in sources.sources_of(config).items():
        with report.at("sources", name):
            build.feed_of(name, source, config).check(positions.get(name, {}))
    for name, sink in sinks.sinks_of(config).items():
        with report.at("sinks", name):
            (sinks.made if sink.spooled is None else sinks.endpoint)(sink).check()
        if sink.caution is not None:
            _LOGGER.warning("sinks.%s: %s", name, sink.caution)
    with report.at("delivery", "gateways", "keys"):
        Vault(lambda: config.delivery.gateways.keys).check()
    with report.at("delivery", "gateways", "ca"):
        if (authority := config.delivery.gateways.ca) is not None:
            client_context(authority)
    if dev or config.api.is_served:
        _api(report, config.api, dev=dev)
    if config.metrics.enabled:
        with report.at("metrics", "port"):
            _check_port(config.metrics.address, config.metrics.port)
    return report


def _store(report: Report) -> dict[str, dict[str, str]]:
    """Check the store; return the confirmed positions of each source."""
    place = place_of(report.loaded.config)
    where = ("store", "dsn") if report.loaded.config.store.dsn is not None else ("service", "data_dir")
    positions: dict[str, dict[str, str]] = {}
    with report.at(*where):
        looked = inspected(place)
        if looked.used is not None:
            report.is_in_use = True
            report.note(where, f"{place}: {looked.used}")
        positions.update((source, dict(of_source)) for source, of_source in looked.positions.items())
    return positions


def _api(report: Report, section: Api, *, dev: bool) -> None:
    """Check the packages, files and the port of the API."""
    try:
        with report.at("api"), needed("the API needs jinja2, starlette and uvicorn", "service"):
            from streamer.service.api.server import Certificates
            from streamer.service.api.tokens import read
            from streamer.service.console import app  # noqa: F401 - it imports further packages
    except ModuleNotFoundError as error:
        report.faults.append((report.loaded.error(("api",), str(error)), ServiceError(str(error))))
        return
    if (file := section.tokens.file) is not None and not dev:
        with report.at("api", "tokens", "file"):
            if not file.exists():
                raise ServiceError(f"{file}: no such file; streamer tokens create --file {file} makes it")
            read(file)
    if section.oidc is not None and not dev:
        with report.at("api", "oidc"):
            _check_provider(section.oidc)
    if (log := section.audit.file) is not None:
        with report.at("api", "audit", "file"):
            if not os.access(log if log.exists() else log.parent, os.W_OK):
                raise ServiceError(f"{log}: it cannot be written")
    missing = [name for name in ("certificate", "key") if (path := getattr(section.tls, name)) and not path.exists()]
    for name in missing:
        with report.at("api", "tls", name):
            raise ServiceError(f"{getattr(section.tls, name)}: no such file")
    if section.tls.certificate is not None and not missing:
        with report.at("api", "tls"):
            Certificates(section)
    with report.at("api", "port"):
        _check_port(section.address, section.port)


def _check_provider(section: ApiOidc) -> None:
    """Fetch the keys of an identity provider. Raises ServiceError; Away if it cannot be reached."""
    from streamer.service.api.oidc import Provider
    from streamer.service.api.problems import Problem

    try:
        Provider(section).check()
    except Problem as problem:
        raise Away(problem.detail) from None
    except ModuleNotFoundError as error:
        raise ServiceError(str(error)) from None


def _check_port(address: str, port: int) -> None:
    """Check whether the process could listen at a port, without listening there. Raises ServiceError."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(where)
    except OSError as error:
        refusal = Busy if error.errno == errno.EADDRINUSE else ServiceError
        raise refusal(f"cannot listen at {address}, port {port}: {error.strerror or error}") from None
