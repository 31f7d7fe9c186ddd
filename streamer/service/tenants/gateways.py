"""Tenants' own gateways: the API writes them while the service runs, and the matches of their subscriptions go there.

```
API ──► checked ──► store: one commit ──► spool: an endpoint, or a history ──► speaker: matches go there
```

Contract: a write is answered when matches go to its destination. All matches of one event use one state of all gateways. A
deletion also deletes the pending messages in one commit, and counts them as dropped; messages that were matched earlier and
stored later are dropped, too. A tenant never finds another tenant's gateway, and never gets its matches. The operator decides
which endpoints are allowed.

A gateway has a URL for all its life, or never: messages for an endpoint and the history of streams are of different kinds.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from typing import Any, Final, Literal, final
from urllib.parse import quote

from pydantic_core import PydanticCustomError

from streamer.config.schema.config import Config
from streamer.config.schema.urls import checked_url
from streamer.errors import ConfigError, ServiceError
from streamer.locks import Lock
from streamer.model import is_unicode
from streamer.service import faults
from streamer.service.connectors import sinks
from streamer.service.connectors.webhook.guard import Guard
from streamer.service.connectors.webhook.signing import signing_key
from streamer.service.delivery.messages import Shape, Speaker, Way
from streamer.service.delivery.spool import History, Owner, Spool, Terms
from streamer.service.store.database import Moved
from streamer.service.store.gateways import GatewayTable, StoredGateway
from streamer.service.store.rows import OWN, Spooled, milliseconds
from streamer.service.store.store import Store
from streamer.service.store.vault import Vault
from streamer.service.tenants.declined import Condition, Declined

#: The most characters of an id, bytes of a URL, and messages of a request.
MOST_ID: Final = 255
MOST_URL: Final = 2048
MOST_BATCH: Final = 1000
MOST_SECRETS: Final = 2
_LOGGER: Final = logging.getLogger("streamer.service")


@final
class GatewayError(ValueError):
    """A gateway cannot be accepted.

    Attributes:
        place: the member at fault.
        reason: the cause, without a URL or a secret.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place, self.reason = place, reason


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a gateway.

    Attributes:
        url: the endpoint of its messages; None if streams read them.
        batch: the most messages of a request.
        event, per: the shape of messages.
        enabled: whether messages are delivered; otherwise they wait.
    """

    url: str | None = None
    batch: int = 1
    per: Literal["match", "gateway"] = "match"
    event: Literal["full", "reference", "none"] = "full"
    enabled: bool = True


@final
@dataclass(frozen=True, slots=True)
class _Secret:
    """A secret that is in the store."""

    text: str = field(repr=False)

    def reveal(self) -> str:
        return self.text


def sink_of(tenant: str, gateway_id: str) -> str:
    """Return the name of the sink of a tenant's own gateway, which is unique, also among the sinks of configurations."""
    return f"{OWN}{quote(tenant, safe='')}/{quote(gateway_id, safe='')}"


def read(members: Mapping[str, Any], config: Config) -> tuple[Settings, tuple[str, ...] | None]:
    """Read the members of a write; the secrets are None if it names none, so that the stored ones stay.

    Raises:
        GatewayError: it cannot be accepted.
    """
    rules = config.delivery.gateways
    known = {*Settings.__dataclass_fields__, "secrets"}
    for name in members:
        if name not in known:
            raise GatewayError(name[:MOST_URL], f"unknown member; {meant(name, sorted(known))}")
    settings = Settings(
        url=_url(members.get("url"), Guard.of(rules)),
        batch=members.get("batch", 1),
        per=_one_of("per", members.get("per", "match"), ("match", "gateway")),
        event=_one_of("event", members.get("event", "full"), ("full", "reference", "none")),
        enabled=members.get("enabled", True),
    )
    if type(settings.batch) is not int or not 1 <= settings.batch <= MOST_BATCH:
        raise GatewayError("batch", f"expected a whole number from 1 to {MOST_BATCH}")
    if not isinstance(settings.enabled, bool):
        raise GatewayError("enabled", "expected true or false")
    secrets = _secrets(members["secrets"]) if "secrets" in members else None
    if settings.url is None and (secrets or settings.batch != 1):
        raise GatewayError("secrets" if secrets else "batch", "only a gateway with a url has this")
    return settings, secrets


def meant(name: str, known: Sequence[str]) -> str:
    """Return which existing name was probably meant, or all of them."""
    near = get_close_matches(name[:100], known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"


def _url(url: Any, guard: Guard) -> str | None:
    if url is None:
        return None
    if not isinstance(url, str) or len(url) > MOST_URL:
        raise GatewayError("url", f"expected https://HOST/PATH of {MOST_URL:,} characters at most, or null")
    try:
        reason = guard.refused(checked_url(url))
    except PydanticCustomError as error:
        reason = error.message()
    if reason is not None:
        raise GatewayError("url", reason)
    return url


def _one_of(place: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise GatewayError(place, f"expected {' or '.join(known)}")
    return value


def _secrets(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_SECRETS:
        raise GatewayError("secrets", f"expected a list of {MOST_SECRETS} at most")
    for number, secret in enumerate(value):
        try:
            # In a configuration a mapping names the place of a secret; a tenant must not make the service read there.
            if not isinstance(secret, str) or not secret.isascii():
                raise ConfigError("expected a secret of Standard Webhooks: whsec_ and base64")
            signing_key(secret)
        except ConfigError as error:
            raise GatewayError(f"secrets[{number}]", error.reason) from None
    return tuple(value)


@final
class Gateways:
    """The gateways of all tenants. Any thread may use it; changes take turns."""

    def __init__(self, store: Store, spool: Spool, speaker: Speaker, config: Config) -> None:
        self.store, self._spool, self._speaker = store, spool, speaker
        self.config = config
        self._table = GatewayTable(store, Vault(lambda: self.config.delivery.gateways.keys))
        self._lock = Lock()
        # An owner exists for as long as the process runs, because requests of a deleted gateway may still be in flight.
        self._owners: dict[str, Owner] = {}
        self._gateways: dict[str, dict[str, StoredGateway]] = {}
        self._forgotten: Callable[[History, str], None] = lambda *_: None
        speaker.own = {}
        self._mark = (0, 0)
        self._renew()
        self.follow()

    # Reading

    def get(self, tenant: str, gateway_id: str) -> StoredGateway | None:
        """Return a gateway; None if it does not exist."""
        return self._gateways.get(tenant, {}).get(gateway_id)

    def find(self, tenant: str, gateway_id: str) -> StoredGateway:
        """Return a gateway. Raises Declined if it does not exist."""
        if (row := self.get(tenant, gateway_id)) is None:
            raise Declined("unknown", "no such gateway")
        return row

    def page(self, tenant: str, after: str, most: int) -> list[StoredGateway]:
        """Return the gateways of a tenant in the order of their ids, from the first after *after*."""
        rows = dict(self._gateways.get(tenant, {}))
        return [rows[gateway_id] for gateway_id in sorted(rows) if gateway_id > after][:most]

    def way(self, tenant: str, gateway_id: str | None) -> tuple[Way | None, str | None]:
        """Return the way of a gateway's matches, by the tenant's own gateway or by a route, and its kind.

        The kind is `stream`, or the type of a sink; both are None if no route leads to a sink.
        """
        way = self._speaker.way(tenant, gateway_id)
        if gateway_id is not None and way is not None and way.sink == sink_of(tenant, gateway_id):
            row = self.get(tenant, gateway_id)
            return way, "stream" if row is not None and settings_of(row).url is None else "webhook"
        if way is None:
            return None, None
        section = self.config.sinks.get(way.sink)
        return way, "stdout" if section is None else section.type

    def history(self, row: StoredGateway) -> History | None:
        """Return the history that streams of a gateway read; None if it has a URL."""
        return self._spool.histories.get(sink_of(row.tenant, row.id))

    def status(self, row: StoredGateway) -> dict[str, Any]:
        """Return the status of a gateway: `state`, its messages, and the deliveries and dead letters since the start."""
        sink, settings = sink_of(row.tenant, row.id), settings_of(row)
        if (history := self._spool.histories.get(sink)) is not None:
            backlog = {"messages": history.messages, "bytes": history.bytes, "oldest_s": round(self._spool.age(history), 3)}
            return {"state": self._state(row), "history": backlog, "delivered": history.delivered, "dead": 0}
        each = self._spool.delivery(sink)
        if each is None or settings.url is None:
            return {"state": self._state(row), "delivered": 0, "dead": 0}
        backlog = {"messages": each.messages, "bytes": each.bytes, "oldest_s": round(self._spool.age(each), 3)}
        return {"state": self._state(row), "pending": backlog, "delivered": each.delivered, "dead": each.dead}

    def states(self) -> Counter[str]:
        """Count the gateways by their state."""
        return Counter(self._state(row) for rows in list(self._gateways.values()) for row in list(rows.values()))

    def _state(self, row: StoredGateway) -> str:
        settings = settings_of(row)
        if not settings.enabled:
            return "off"
        if settings.url is None:
            return "streams"
        each = self._spool.delivery(sink_of(row.tenant, row.id))
        return {"closed": "working", "disabled": "gone"}.get("closed" if each is None else each.state, "down")

    # Changing

    def put(
        self, tenant: str, gateway_id: str, settings: Settings, secrets: tuple[str, ...] | None, may: Condition
    ) -> tuple[StoredGateway, StoredGateway | None]:
        """Store a gateway, in place of the existing one if there is one; return it, and the previous one.

        A disabled endpoint gets messages again.

        Raises:
            GatewayError: it cannot be accepted.
            Declined: the change is not allowed now.
            ServiceError: the store failed, or the service is ending. In all three cases the change was refused whole.
        """
        for place, text in (("id", gateway_id), ("tenant", tenant)):
            if not 0 < len(text) <= MOST_ID or "\0" in text or not is_unicode(text):
                raise GatewayError(place, f"expected 1 to {MOST_ID} characters, without U+0000")
        with self._current():
            rows = self._gateways.get(tenant, {})
            before = rows.get(gateway_id)
            may(before)
            most = self.config.api.quotas.gateways
            if before is None and len(rows) >= most:
                raise Declined("quota", f"a tenant may have at most {most:,} gateways of its own")
            if before is not None and (settings_of(before).url is None) != (settings.url is None):
                raise GatewayError("url", "a gateway has a url for all its life, or none: delete it first")
            if secrets is None:
                secrets = () if before is None else before.secrets
            now, text = milliseconds(), json.dumps(asdict(settings))
            created = now if before is None else before.created
            row = StoredGateway(tenant=tenant, id=gateway_id, settings=text, secrets=secrets, created=created, updated=now)
            if before is not None and (before.settings, before.secrets) == (text, secrets):
                row = before
            else:
                # The lane first: a lack of room is found here, before any change.
                self.store.lane(sink_of(tenant, gateway_id))
                row = self._table.write(row, before, most)
                self._marked(int(before is None), row.version)
                faults.point("gateways.committed")
            self._hold(row, again=True)
            return row, before

    def _hold(self, row: StoredGateway, *, again: bool) -> None:
        """Let matches go to a gateway."""
        way = self._open(row, again=again)
        self._gateways = {**self._gateways, row.tenant: {**self._gateways.get(row.tenant, {}), row.id: row}}
        self._speaker.own = {**self._speaker.own, (row.tenant, row.id): way}
        if not settings_of(row).enabled and (history := self.history(row)) is not None:
            self._forgotten(history, "off")

    def remove(self, tenant: str, gateway_id: str, may: Condition) -> None:
        """Delete a gateway and its pending messages. Raises Declined and ServiceError, and then leaves it unchanged."""
        with self._current():
            row = self.find(tenant, gateway_id)
            may(row)
            self._remove(row, lambda: self._table.delete(row, sink_of(tenant, gateway_id)))
            self._marked(-1)

    def _remove(self, row: StoredGateway, delete: Callable[[], tuple[int, int, int]]) -> None:
        """Delete a gateway.

        Args:
            delete: deletes it in the store; returns the messages, bytes and matches of its lane.
        """
        tenant, gateway_id = row.tenant, row.id
        history, sink = self.history(row), sink_of(tenant, gateway_id)
        own = self._speaker.own
        # Later matches go by the routes; messages of earlier matches are dropped when they are stored.
        self._speaker.own = {key: way for key, way in own.items() if key != (tenant, gateway_id)}
        try:
            self._spool.forget(sink, delete)
        except BaseException:
            self._speaker.own = own
            raise
        remaining = {other: each for other, each in self._gateways[tenant].items() if other != gateway_id}
        self._gateways = {**self._gateways, tenant: remaining}
        if not remaining:
            del self._gateways[tenant]
        if history is not None:
            self._forgotten(history, "deleted")

    # Changes that other processes write into the store

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Change the current state. Raises Declined if another process changed it at the same moment."""
        with self._lock:
            self.follow()
            try:
                yield
            except Moved:
                raise Declined("busy", "another process changes this gateway; try again") from None

    def follow(self) -> None:
        """Apply the gateways of the store. Raises ServiceError."""
        with self._lock:
            if (mark := self._table.mark()) == self._mark:
                return
            rows = {(row.tenant, row.id): row for row in self._table.all()}
            for before in [row for gateways in self._gateways.values() for row in gateways.values()]:
                row = rows.get((before.tenant, before.id))
                if row is None or row.created != before.created:
                    self._remove(before, lambda: (0, 0, 0))
                    self.store.forgotten(sink_of(before.tenant, before.id))
            for row in rows.values():
                known = self.get(row.tenant, row.id)
                if known is None or known.version != row.version:
                    self._hold(row, again=known is not None)
            self._mark = mark

    def _renew(self) -> None:
        if count := self._table.renew():
            _LOGGER.info("the secrets of %d gateways are encrypted with the first of delivery.gateways.keys now", count)

    def _marked(self, more: int, version: int = 0) -> None:
        """Note this process's own change; if others wrote meanwhile, all gateways are read again the next time."""
        (count, last), (count_before, last_before) = self._table.mark(), self._mark
        if count == count_before + more and last <= max(last_before, version):
            self._mark = count, last

    def listen(
        self, arrived: Callable[[Sequence[tuple[History, int, Spooled]]], None], forgotten: Callable[[History, str], None]
    ) -> None:
        """Report new messages of histories, and histories that ended with the cause: `deleted`, `off`."""
        self._spool.tell, self._forgotten = arrived, forgotten

    def take(self, speaker: Speaker, config: Config) -> None:
        """Continue with another configuration, before messages are made under it."""
        with self._lock:
            before, self.config = self.config, config
            speaker.own, self._speaker = self._speaker.own, speaker
            if (before.delivery, before.api.quotas) != (config.delivery, config.api.quotas):
                for owner in self._owners.values():
                    owner.most_bytes, owner.most_requests = (
                        config.api.quotas.spool,
                        config.delivery.gateways.concurrency_of_a_tenant,
                    )
                for rows in self._gateways.values():
                    for row in rows.values():
                        self._open(row)
            if before.delivery.gateways.keys != config.delivery.gateways.keys:
                try:
                    self._renew()
                except ServiceError as error:
                    _LOGGER.error("%s; the stored secrets stay as they are", error)

    def close(self) -> None:
        """Close all endpoints."""
        for rows in self._gateways.values():
            for row in rows.values():
                if (each := self._spool.delivery(sink_of(row.tenant, row.id))) is not None:
                    each.endpoint.close()

    def _open(self, row: StoredGateway, *, again: bool = False) -> Way:
        """Open the lane of a gateway in the spool; return its way."""
        config, settings, sink = self.config, settings_of(row), sink_of(row.tenant, row.id)
        delivery, rules, quota = config.delivery, config.delivery.gateways, config.api.quotas.spool
        owner = self._owners.setdefault(row.tenant, Owner(row.tenant, quota, rules.concurrency_of_a_tenant))
        if settings.url is None:
            self._spool.add_history(sink, owner, min(rules.history, quota), rules.history_time.total_seconds())
        else:
            endpoint = sinks.posting(
                settings.url,
                [_Secret(secret) for secret in row.secrets],
                Guard.of(rules),
                timeout=rules.timeout,
                connect_timeout=rules.connect_timeout,
                in_batches=settings.batch > 1,
                authority=rules.ca,
            )
            terms = Terms.of(
                delivery,
                concurrency=rules.concurrency,
                batch=settings.batch,
                bytes=min(delivery.spool.bytes, quota),
                # A tenant's endpoint never blocks the sources, and so all other tenants.
                when_full="dead_letter",
                is_paused=not settings.enabled,
            )
            self._spool.add(sink, endpoint, terms, sha256(settings.url.encode()).hexdigest(), owner, again=again)
        return Way(sink, Shape(settings.event, settings.per))


def settings_of(row: StoredGateway) -> Settings:
    """Return the settings of a gateway of the store."""
    return Settings(**json.loads(row.settings))
