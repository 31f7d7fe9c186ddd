"""The handlers of routes. A handler runs in a thread of a pool; any number run at once."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import chain, takewhile
from typing import Any, Final, final

from streamer.core.options import Options
from streamer.engine.engine import Engine
from streamer.service.api import openapi
from streamer.service.api.calls import EVENTS, LINES, METRICS, Answer, Call, answer, members_of, number, tag_of, tags
from streamer.service.api.decoding import Decoding
from streamer.service.api.deliveries import Delivering
from streamer.service.api.explain import Asking
from streamer.service.api.importing import Importing
from streamer.service.api.live import Watchers
from streamer.service.api.live_events import Watching
from streamer.service.api.observed import Observed, shown_token
from streamer.service.api.problems import Problem
from streamer.service.api.routes_delivered import CRITERIA
from streamer.service.api.status import Status
from streamer.service.api.streams import Wanted
from streamer.service.store.changes import Entry
from streamer.service.store.gateways import StoredGateway
from streamer.service.store.ids import claimed
from streamer.service.store.rows import DeadLetter, milliseconds, time_of
from streamer.service.store.store import Store
from streamer.service.store.subscriptions import PAGE, PAGE_BYTES, Stored
from streamer.service.tenants import gateways
from streamer.service.tenants.declined import Condition, Declined, Versioned
from streamer.service.tenants.subscriptions import MOST_VERSION, Subscriptions
from streamer.subscriptions.parse import parse_subscription

#: The most rows that one page examines, if a filter accepts few of them.
_LOOKED_AT: Final = 5_000


@final
class Handlers:
    """The handlers of all routes.

    Attributes:
        default_tenant: the tenant of an administrator's request that names none.
        watchers: of events as they come.
    """

    def __init__(
        self, engine: Engine, store: Store, subscriptions: Subscriptions, own: gateways.Gateways, status: Status
    ) -> None:
        self._gateways = own
        self._engine, self._store, self._subscriptions, self._status = engine, store, subscriptions, status
        options: Options = engine._options
        self.default_tenant = options.default_tenant
        asking = Asking(engine, subscriptions, status.events, options.default_tenant)
        watching = Watching(status, subscriptions, own)
        self._others = (Observed(status), watching, asking, Decoding(options), Delivering(status, own), Importing(subscriptions))
        self.watchers = Watchers(status.events, status.counted)
        self._document = json.dumps(openapi.document(options.limits, options.topic_dialect)).encode()

    def find(self, name: str) -> Callable[[Call], Answer]:
        """Return the handler of a route."""
        handler: Callable[[Call], Answer] = next(getattr(each, name) for each in (self, *self._others) if hasattr(each, name))
        return handler

    # Subscriptions

    def list_subscriptions(self, call: Call) -> Answer:
        """See the route."""
        limit, query = call.query.get("limit", 100), call.query
        prefix, now, passes = query.get("prefix", ""), milliseconds(), _criteria(query)
        at = prefix if (after := call.after()) is None else after
        rows = self._subscriptions.each(call.whose, (call.whose, at))
        if prefix and after is None and (row := self._subscriptions.get(call.whose, prefix)) is not None:
            rows = chain([row], rows)
        items: list[bytes] = []
        looked_at = size = 0
        more = None
        # The rows are in the order of ids, so those with the prefix are consecutive.
        for row in takewhile(lambda row: row.id.startswith(prefix), rows):
            if len(items) == limit or looked_at == _LOOKED_AT or size >= PAGE_BYTES:
                more = call.cursor(at)
                break
            looked_at, at = looked_at + 1, row.id
            if not row.is_over(now) and passes(row):
                items.append(shown(row))
                size += len(items[-1])
        return Answer(b'{"items":[%b],"next":%b,"looked_at":%d}' % (b",".join(items), json.dumps(more).encode(), looked_at))

    def export_subscriptions(self, call: Call) -> Answer:
        """See the route."""
        return Answer(self._lines(call.whose), media_type=LINES)

    def _lines(self, tenant: str) -> Iterator[bytes]:
        now, page, size = milliseconds(), [], 0
        for row in self._subscriptions.each(tenant, (tenant, "")):
            if not row.is_over(now):
                page.append(row.text)
                size += len(row.text)
            if len(page) == PAGE or size >= PAGE_BYTES:
                yield b"".join(text + b"\n" for text in page)
                page, size = [], 0
        yield b"".join(text + b"\n" for text in page)

    def get_subscription(self, call: Call) -> Answer:
        """See the route."""
        row = self._subscriptions.get(call.whose, call.path["id"])
        if row is None:
            raise Declined("unknown", "no such subscription")
        return _is_known(call, row) or _stored(row)

    def put_subscription(self, call: Call) -> Answer:
        """See the route."""
        lease = call.query.get("lease")
        each = claimed(call.body, call.whose, call.path["id"])
        result = self._subscriptions.put(each, _condition(call), None if lease is None else lease * 1000, who=call.token.who)
        assert result.stored is not None
        return _stored(result.stored, 201 if result.before is None else 200)

    def delete_subscription(self, call: Call) -> Answer:
        """See the route."""
        self._subscriptions.remove(call.whose, call.path["id"], _condition(call), who=call.token.who)
        return Answer(status=204)

    def pause(self, call: Call) -> Answer:
        """See the route."""
        return _stored(self._subscriptions.pause(call.whose, call.path["id"], _condition(call), paused=True, who=call.token.who))

    def resume(self, call: Call) -> Answer:
        """See the route."""
        return _stored(self._subscriptions.pause(call.whose, call.path["id"], _condition(call), paused=False, who=call.token.who))

    def renew(self, call: Call) -> Answer:
        """See the route."""
        lease = call.query.get("lease")
        lease = None if lease is None else lease * 1000
        return _stored(self._subscriptions.renew(call.whose, call.path["id"], _condition(call), lease))

    def list_changes(self, call: Call) -> Answer:
        """See the route."""
        limit, before = call.query.get("limit", 20), call.number_after() or MOST_VERSION
        entries = self._subscriptions.changes(call.whose, call.path["id"], before, limit)
        if entries is None:
            raise Declined("unknown", "no such subscription, and the history has none either")
        more = call.cursor(entries[-1].version) if len(entries) == limit else None
        return Answer(b'{"items":[%b],"next":%b}' % (b",".join(map(_entry, entries)), json.dumps(more).encode()))

    # Tenants' own gateways

    def list_gateways(self, call: Call) -> Answer:
        """See the route."""
        limit, at = call.query.get("limit", 100), call.after() or ""
        rows = self._gateways.page(call.whose, at, limit)
        return answer(
            {"items": [self._gateway(row) for row in rows], "next": call.cursor(rows[-1].id) if len(rows) == limit else None}
        )

    def get_gateway(self, call: Call) -> Answer:
        """See the route."""
        row = self._gateways.find(call.whose, call.path["id"])
        return _is_known(call, row) or answer(self._gateway(row), headers={"ETag": tag_of(row)})

    def put_gateway(self, call: Call) -> Answer:
        """See the route."""
        settings, secrets = gateways.read(members_of(call.body), self._gateways.config)
        row, before = self._gateways.put(call.whose, call.path["id"], settings, secrets, _condition(call))
        return answer(self._gateway(row), 201 if before is None else 200, headers={"ETag": tag_of(row)})

    def delete_gateway(self, call: Call) -> Answer:
        """See the route."""
        self._gateways.remove(call.whose, call.path["id"], _condition(call))
        return Answer(status=204)

    def stream_matches(self, call: Call) -> Answer:
        """See the route."""
        row = self._gateways.find(call.whose, call.path["id"])
        history = self._gateways.history(row)
        if history is None:
            raise Problem("no-stream", "its matches are posted to its url")
        if not gateways.settings_of(row).enabled:
            raise Problem("no-stream", "it is not enabled")
        wanted = Wanted(history, call.headers.get("last-event-id"), call.query.get("from") == "now")
        return Answer(wanted, media_type=EVENTS)

    def _gateway(self, row: StoredGateway) -> dict[str, Any]:
        return {
            "tenant": row.tenant,
            "id": row.id,
            "etag": tag_of(row),
            "created": time_of(row.created),
            "updated": time_of(row.updated),
            "gateway": asdict(gateways.settings_of(row)),
            "secrets": len(row.secrets),
            **self._gateways.status(row),
        }

    # Dead letters

    def list_dead_letters(self, call: Call) -> Answer:
        """See the route."""
        limit, at = call.query.get("limit", 100), call.number_after() or 0
        criteria = {name: call.query[name] for name in CRITERIA if name in call.query}
        letters = self._store.letters(at, limit, criteria, records=False)
        more = call.cursor(letters[-1].id) if len(letters) == limit else None
        return answer({"items": [_letter(each) for each in letters], "next": more})

    def get_dead_letter(self, call: Call) -> Answer:
        """See the route."""
        letter = self._letter_of(call)
        try:
            record = {"record": letter.record.decode()}
        except UnicodeDecodeError:
            record = {"record_base64": base64.b64encode(letter.record).decode()}
        return answer(_letter(letter) | record)

    def drop_dead_letter(self, call: Call) -> Answer:
        """See the route."""
        if not self._status.drop(self._letter_of(call)):
            raise Problem("unknown", "no such dead letter")
        return Answer(status=204)

    def replay_dead_letter(self, call: Call) -> Answer:
        """See the route."""
        letter = self._letter_of(call)
        if not letter.is_whole:
            raise Problem("not-replayable", f"{letter.bytes_kept:,} of its {letter.size:,} bytes were kept")
        if not self._status.replay(letter):
            raise Problem("not-replayable", "it cannot be read again, or its source or sink is gone; it stays")
        return Answer(status=202)

    def _letter_of(self, call: Call) -> DeadLetter:
        wanted = number(call.path["number"])
        for letter in [] if wanted is None else self._store.letters(wanted - 1, 1):
            if letter.id == wanted:
                return letter
        raise Problem("unknown", "no such dead letter")

    def list_tokens(self, call: Call) -> Answer:
        """See the route."""
        tokens = self.watchers.tokens
        if tokens is None:
            return answer({"items": []})
        return answer({"items": [{**shown_token(token), "used": tokens.used.get(token.id)} for token in tokens]})

    # The service

    def list_sources(self, _: Call) -> Answer:
        """See the route."""
        return answer({"items": self._status.sources()})

    def list_sinks(self, _: Call) -> Answer:
        """See the route."""
        return answer({"items": self._status.sinks()})

    def enable_sink(self, call: Call) -> Answer:
        """See the route."""
        if self._status.enable(call.path["name"]) is None:
            raise Problem("unknown", "this name belongs to no webhook sink")
        return Answer(status=204)

    def forget_sink(self, call: Call) -> Answer:
        """See the route."""
        count = self._status.forget(call.path["name"])
        if count is None:
            raise Problem("unknown", "this name belongs to no removed sink")
        return answer({"messages": count})

    def reload(self, _: Call) -> Answer:
        """See the route."""
        outcome = self._status.reload()
        if outcome.errors:
            raise Problem("configuration", outcome.errors[0], errors=[{"reason": each} for each in outcome.errors])
        return answer({"changed": outcome.changed, "subscriptions": outcome.subscriptions})

    def last_reload(self, _: Call) -> Answer:
        """See the route."""
        return answer(self._status.last_reload())

    def document(self, _: Call) -> Answer:
        """See the route."""
        return Answer(self._document)

    def metrics(self, _: Call) -> Answer:
        """See the route."""
        return Answer(self._status.metrics(), media_type=METRICS)

    def healthz(self, _: Call) -> Answer:
        """See the route."""
        return answer({"status": "alive"})

    def readyz(self, _: Call) -> Answer:
        """See the route."""
        trouble = self._status.trouble()
        return answer({"status": "ready"}) if trouble is None else answer({"status": "not ready", "reason": trouble}, 503)


def shown(row: Stored) -> bytes:
    """Return a subscription with its metadata, around its own text."""
    members = {
        "tenant": row.tenant,
        "id": row.id,
        "origin": row.origin,
        "etag": tag_of(row),
        "created": time_of(row.created),
        "updated": time_of(row.updated),
        "paused": row.paused,
        "unindexed": row.unindexed,
        "lease": None if row.lease is None else row.lease // 1000,
        "expires": None if row.expires_at is None else time_of(row.expires_at),
    }
    return json.dumps(members)[:-1].encode() + b',"subscription":' + row.text + b"}"


def _entry(entry: Entry) -> bytes:
    members = {"version": entry.version, "at": time_of(entry.at), "who": entry.who, "what": entry.what}
    return json.dumps(members)[:-1].encode() + b',"subscription":' + (entry.text or b"null") + b"}"


def _stored(row: Stored, status: int = 200) -> Answer:
    return Answer(shown(row), status, headers={"ETag": tag_of(row)})


def _is_known(call: Call, row: Versioned) -> Answer | None:
    """Return the answer 304 if the client has the current version; None to show it. Raises Problem and Declined."""
    if (header := call.headers.get("if-match")) is not None:
        _wants(tags(header), row)
    if (header := call.headers.get("if-none-match")) is not None:
        known = tags(header)
        if known is None or tag_of(row) in [each.removeprefix("W/") for each in known]:
            return Answer(status=304, headers={"ETag": tag_of(row)})
    return None


def _condition(call: Call) -> Condition:
    """Return the condition that `If-Match` and `If-None-Match` set for the existing row."""
    if_match, if_none_match = call.headers.get("if-match"), call.headers.get("if-none-match")
    wanted = None if if_match is None else (tags(if_match),)
    unwanted = None if if_none_match is None else (tags(if_none_match),)

    def may(before: Versioned | None) -> None:
        if wanted is not None:
            _wants(wanted[0], before)
        if unwanted is not None and before is not None:
            known = unwanted[0]
            if known is None or tag_of(before) in [each.removeprefix("W/") for each in known]:
                raise Declined("precondition", "If-None-Match: it exists")

    return may


def _wants(known: list[str] | None, row: Versioned | None) -> None:
    if row is None:
        raise Declined("precondition", "If-Match: it does not exist")
    if known is not None and tag_of(row) not in known:
        raise Declined("precondition", f"If-Match: it is {tag_of(row)} now")


def _criteria(query: Mapping[str, Any]) -> Callable[[Stored], bool]:
    """Return the filter of a list's rows."""
    of_row = [name for name in ("paused", "origin", "unindexed") if name in query]
    of_text = [
        (name, query[param]) for param, name in (("gateway", "gateway_id"), ("collection", "collection")) if param in query
    ]
    part = query["text"].lower() if "text" in query else ""
    label, is_valued, value = query.get("label", "").partition("=")
    # Most rows are skipped without parsing: a text without escapes contains the wanted words literally.
    words = [word.encode() for word in (label, value, *(word for _, word in of_text)) if word.isalnum()]

    def passes(row: Stored) -> bool:
        if any(query[name] != getattr(row, name) for name in of_row):
            return False
        if part and part not in row.text.decode(errors="replace").lower() and part not in _unescaped(row.text).lower():
            return False
        if not of_text and "label" not in query:
            return True
        if any(word not in row.text for word in words) and b"\\" not in row.text:
            return False
        try:
            parsed = json.loads(row.text)
        except (RecursionError, ValueError):
            parsed = parse_subscription(row.text).to_dict()
        if "label" in query:
            labels = parsed.get("labels") or {}
            if label not in labels or (is_valued and _word(labels[label]) != value):
                return False
        return all(parsed.get(name) == word for name, word in of_text)

    return passes


def _unescaped(text: bytes) -> str:
    """Return a text with its escapes decoded, because many clients escape all but ASCII; empty if it has none."""
    if b"\\" not in text:
        return ""
    try:
        # The numbers are compared in the text itself.
        return json.dumps(json.loads(text, parse_int=float), ensure_ascii=False)
    except RecursionError:
        return ""


def _word(label: object) -> str | None:
    """Return a label's value in the form of the query parameter; None for a list or an object."""
    if isinstance(label, str):
        return label
    return None if isinstance(label, (dict, list)) else json.dumps(label)


#: A record is shown on demand; a key is a hash that is too large for many JSON readers.
_HIDDEN: Final = ("record", "record_key", "kept", "key", "spooled")


def _letter(letter: DeadLetter) -> dict[str, Any]:
    members = {name: value for name, value in asdict(letter).items() if name not in _HIDDEN}
    return members | {"at": time_of(letter.at), "is_whole": letter.is_whole}
