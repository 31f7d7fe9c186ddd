"""A match as a message: CloudEvents 1.0 in structured JSON, assembled around the event's own bytes.

```
{"specversion":"1.0","id":"                32 hex digits, for the event and the subscription
","source":"/streamer/NAME","type":…       of the source and the match
,"subject":"SUBSCRIPTION"                  of the subscription
,"time":…,"partitionkey":…,"tenant":…      of the event, made once for all of its messages
,"gateway":…,"certain":true,…"data":{"labels":{}
,"event":                                  the bytes that were read, as they are
```

The id is a hash of source, partition, position, index in the record, tenant, subscription and transition. All of them are the
same when a record is read again after a crash, so a message that is delivered twice has one id. The engine checked all of the
event, so its bytes are exactly one JSON object.

The native core writes the messages of single matches (`crates/streamer-py/src/messages.rs`). This module defines what it must
write, and runs on the reference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, final

from mmh3 import mmh3_x64_128_digest

from streamer.core.matches import Matches, packed
from streamer.core.options import Options
from streamer.core.protocol import Hits
from streamer.events.layout import Constant
from streamer.events.places import resolve
from streamer.events.timestamps import parse_rfc3339
from streamer.model import Event, Match
from streamer.service.connectors.cloudevents import BEGIN, KEYED, id_of
from streamer.service.connectors.formats import Place
from streamer.service.delivery.routing import Routes
from streamer.service.store.ids import outside
from streamer.service.store.rows import Spooled
from streamer.subscriptions.text import labels_text

#: The most subscriptions in a message of a gateway; more of them go into another message.
MOST_NAMED: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
#: A longer key, in bytes, is replaced by its hash.
LONGEST_KEY: Final = 1024
_TYPES: Final = {
    "enter": b'streamer.match.enter","subject":',
    "stay": b'streamer.match.stay","subject":',
    "leave": b'streamer.match.leave","subject":',
    None: b'streamer.match","subject":',
}
_CERTAIN: Final = b',"certain":true'
_UNCERTAIN: Final = b',"certain":false'
#: The matches of an event that are processed together.
AT_ONCE: Final = 10_000
#: The bytes of messages that are made at once, with one message more: each may contain its whole event.
MOST_BYTES: Final = 1024 * 1024
#: The bytes of a message without its event.
_OF_A_MESSAGE: Final = 512
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@lru_cache(maxsize=65_536)
def quoted(text: str) -> bytes:
    """Return a text as JSON."""
    return _JSON(text).encode()


def _where(source: str, partition: str, place: tuple[object, int]) -> bytes:
    """Return the common beginning of the ids of all messages about an event; *place* is its position and index in the record."""
    return f"{source}\0{partition}\0{place[0]}\0{place[1]}\0".encode()


def _id_of_match(where: bytes, transition: str | None, inner: str) -> str:
    return mmh3_x64_128_digest(b"%b%b\0%b" % (where, (transition or "").encode(), inner.encode())).hex()


def _id_of_gateway(where: bytes, tenant: str, gateway: str | None, at: int) -> str:
    # This prefix differs from every transition.
    whose = f"gateway\0{tenant}\0{at}\0{'' if gateway is None else f'={gateway}'}"
    return mmh3_x64_128_digest(where + whose.encode()).hex()


def bounded(key: str | None) -> str | None:
    """Return a key, or its hash if it is long: each message of a document contains it."""
    if key is None or len(key) <= LONGEST_KEY // 4 or len(text := key.encode(errors="surrogatepass")) <= LONGEST_KEY:
        return key
    return hashlib.sha256(text).hexdigest()


@final
class EventParts:
    """Reads the attributes of an event for its messages, once for each event with a match.

    A layout that only points to parts is read by json; one that decodes or completes documents, by the rules of the contract.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        layout = options.layout
        self._is_plain = layout.encoded is None and layout.before_holds != "changed" and not layout.has_changes
        self._unit = _NANOSECONDS.get(layout.ts_format)
        self._id, self._tenant, self._collection, self._ts = map(self._reader, ("id", "tenant", "collection", "ts"))

    def attributes(self, event: bytes, key: str | None, tenant: str | None) -> bytes:
        """Return the attributes of a matched event: `,"time":"…","partitionkey":"…","tenant":"…","collection":"…"`.

        Args:
            key: the key of the record, if it has one; otherwise the event's id.
            tenant: the tenant, if it was read already.
        """
        try:
            # Layouts that point into arrays, too: `resolve` walks the values of json.
            document = json.loads(event) if self._is_plain else None
        except (RecursionError, ValueError):
            # It is too deep for json, or has an integer of more digits than Python reads.
            document = None
        if document is None:
            whole = self._whole(event)
            ts, event_id, tenant, collection = whole.ts_ns, whole.id, whole.tenant, whole.collection
        else:
            ts = self._nanoseconds(self._ts(document))
            event_id = self._id(document) if key is None else None
            collection = self._collection(document)
            if tenant is None:
                tenant = self._tenant(document) or self._options.default_tenant
        key = bounded(str(event_id) if key is None and event_id is not None else key)
        return b"".join(
            (
                b"" if ts is None else b',"time":"%b"' % rfc3339(ts),
                b',"partitionkey":' + _JSON(key).encode() if key else b"",
                b',"tenant":' + quoted(tenant) if tenant else b"",
                b',"collection":' + quoted(collection) if collection else b"",
            )
        )

    def _reader(self, part: str) -> Callable[[Any], Any]:
        """Return a reader of a part whose layout was checked."""
        layout = self._options.layout
        constant = getattr(layout, part)
        if isinstance(constant, Constant):
            return lambda _: constant.value
        ways = layout.ways(part)
        if len(ways) == 1 and len(ways[0]) == 1 and not isinstance(ways[0][0], str) and len(ways[0][0]) == 1:
            name = ways[0][0][0]
            return lambda document: document.get(name)

        def find(document: Any) -> Any:
            for way in ways:
                values = [step if isinstance(step, str) else resolve(document, step)[1] for step in way]
                if all(value is not None for value in values):
                    return values[0] if len(values) == 1 else "".join(values)
            return None

        return find

    def _nanoseconds(self, ts: Any) -> int | None:
        if ts is None:
            return None
        return parse_rfc3339(ts) if self._unit is None else ts * self._unit

    def _whole(self, event: bytes) -> Event:
        return self._options.read(event, None, None)


def rfc3339(ns: int) -> bytes:
    """Return a time since the epoch as text, in milliseconds, or in nanoseconds if it is finer."""
    seconds, rest = divmod(ns, 10**9)
    text = _second(seconds)
    if rest % 10**6 == 0:
        return b"%b.%03dZ" % (text, rest // 10**6)
    return b"%b.%09dZ" % (text, rest)


@lru_cache(maxsize=4096)
def _second(seconds: int) -> bytes:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19].encode()


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """The content of the messages for a sink.

    Attributes:
        event: the part of the event: all of it, its origin, or no part.
        per: whether each match has a message, or all matches of an event for one gateway share one.
    """

    event: Literal["full", "reference", "none"] = "full"
    per: Literal["match", "gateway"] = "match"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """The destination of matches.

    Attributes:
        sink: its name.
        shape: the shape of its messages.
    """

    sink: str
    shape: Shape


def message_of(way: Way, source: str, partition: str, place: tuple[object, int], hit: tuple[str, str | None, str | None]) -> str:
    """Return the id of the message for a match.

    If a gateway has several messages about one event, it is the id of the first, which names a thousand subscriptions.

    Args:
        place: the position of the event, and its index in the record.
        hit: the subscription's name in the engine, its gateway, and the transition.
    """
    where = _where(source, partition, place)
    inner, gateway, transition = hit
    if way.shape.per == "gateway":
        return _id_of_gateway(where, outside(inner)[0], gateway, 0)
    return _id_of_match(where, transition, inner)


@final
class Prepared(NamedTuple):
    """Messages about one event for one sink.

    Attributes:
        sink: its name; None without a route.
        matches: the number of matches in them.
        about: their common part.
        counts: the number of matches in each of them.
    """

    sink: str | None
    messages: list[bytes]
    matches: int
    about: _About
    counts: Sequence[int] = ()


@final
class Speaker:
    """Makes the messages of matches, each for the sink of its gateway's route.

    Args:
        options: the engine's.
        shapes: the shape of the messages for each sink.

    Attributes:
        own: the ways of tenants' own gateways, by the tenant of the subscription and the gateway. Any thread may replace it as a
            whole: all matches of one event use one of them.
    """

    def __init__(self, options: Options, routes: Routes, shapes: Mapping[str, Shape]) -> None:
        self._parts = EventParts(options)
        self._routes = routes
        self._ways = {sink: Way(sink, shape) for sink, shape in shapes.items()}
        self.own: Mapping[tuple[str, str | None], Way] = {}

    def way(self, tenant: str, gateway: str | None) -> Way | None:
        """Return the way of a gateway's matches; None if no route leads to a sink."""
        if (own := self.own.get((tenant, gateway))) is not None:
            return own
        sink = self._routes.sink(gateway)
        return None if sink is None else self._ways[sink]

    def messages(self, source: str, partition: str, place: Place, event: bytes, matches: Matches) -> Iterator[Prepared]:
        """Yield messages about one event, sink by sink."""
        where = _where(source, partition, (place.position, place.part))
        about = _About(source, f'","source":"/streamer/{source}","type":"', where, event, partition, place)
        own, only = self.own, self._routes.only
        count = len(matches)
        for at in range(0, count, AT_ONCE):
            # Many matches are sorted, so that the same ones share a message after a crash.
            some = matches if count <= AT_ONCE else matches.sorted()[at : at + AT_ONCE]
            hits = packed(some)
            if not about.attributes:
                about.attributes = self._attributes(event, place.key, hits)
            if only is not None and not own:
                yield from about.prepared(self._ways[only], some, at)
                continue
            ways: dict[Way | None, list[int]] = {}
            for position, (inner, gateway) in enumerate(zip(hits.ids(), hits.gateway_ids(), strict=True)):
                way = own.get((outside(inner)[0], gateway)) if own else None
                if way is None and (sink := self._routes.sink(gateway)) is not None:
                    way = self._ways[sink]
                ways.setdefault(way, []).append(position)
            for way, part in ways.items():
                if way is None:
                    yield Prepared(None, [], len(part), about)
                else:
                    yield from about.prepared(way, Matches(hits.take(part), event), at)

    def _attributes(self, event: bytes, key: str | None, hits: Hits) -> bytes:
        encoder = hits.encoder
        # A long text may contain a key that is too long.
        if encoder is not None and (made := encoder.attributes(event, key)) is not None and len(made) <= LONGEST_KEY:
            return made
        tenant = next((name for inner in hits.ids() if (name := outside(inner)[0]) != "*"), None)
        return self._parts.attributes(event, key, tenant)

    def spooled(self, prepared: Prepared) -> list[Spooled]:
        """Return messages for the spool: each with its id, and the key that orders it."""
        sink, about = prepared.sink, prepared.about
        assert sink is not None
        key, where = about.key, (about.source, about.partition, about.place.position, about.place.part)
        return [
            Spooled(sink, key, id_of(message), count, *where, message)
            for message, count in zip(prepared.messages, prepared.counts, strict=True)
        ]


@final
class _About:
    """The common part of all messages about one event."""

    __slots__ = ("_event", "_type", "_where", "attributes", "partition", "place", "source")

    def __init__(self, source: str, type_: str, where: bytes, event: bytes, partition: str, place: Place) -> None:
        self.source, self.partition, self.place = source, partition, place
        self._type, self._where, self._event = type_, where, event
        self.attributes = b""

    @property
    def key(self) -> int | None:
        """A hash of tenant, collection and key; None without a key. Two keys with equal hashes wait for one another."""
        _, is_keyed, whose = self.attributes.partition(KEYED)
        return int.from_bytes(mmh3_x64_128_digest(whose)[:8], "little", signed=True) if is_keyed else None

    def prepared(self, way: Way, matches: Matches, at: int) -> Iterator[Prepared]:
        """Yield the messages of some matches; the first has the number *at*."""
        tail = self._tail(way.shape)
        most = max(MOST_BYTES // (len(self.attributes) + len(tail) + _OF_A_MESSAGE), 1)
        if way.shape.per == "gateway":
            of_gateways = self._of_gateways(tail, matches, at)
            while some := list(islice(of_gateways, most)):
                counts = [count for _, count in some]
                yield Prepared(way.sink, [message for message, _ in some], sum(counts), self, counts)
            return
        for first in range(0, len(matches), most):
            few = matches if len(matches) <= most else matches[first : first + most]
            if (encoder := packed(few).encoder) is not None:
                messages = encoder.messages(self._where, self._type, self.attributes, tail)
            else:
                messages = self._of_matches(tail, few)
            yield Prepared(way.sink, messages, len(messages), self, [1] * len(messages))

    def _of_matches(self, tail: bytes, matches: Matches) -> list[bytes]:
        """Do the same as the encoder of a core, in Python."""
        where, attributes, type_ = self._where, self.attributes, self._type.encode()
        made = []
        for match in matches:
            transition, labels, inner, gateway = match.transition, match.labels, match.subscription_id, match.gateway_id
            made.append(
                b"".join(
                    (
                        BEGIN,
                        _id_of_match(where, transition, inner).encode(),
                        type_,
                        _TYPES[transition],
                        quoted(outside(inner)[1]),
                        attributes,
                        b"" if gateway is None else b',"gateway":' + quoted(gateway),
                        _CERTAIN if match.certain else _UNCERTAIN,
                        b',"datacontenttype":"application/json","data":{"labels":',
                        _labels(labels),
                        tail,
                    )
                )
            )
        return made

    def _of_gateways(self, tail: bytes, matches: Matches, first: int) -> Iterator[tuple[bytes, int]]:
        """Yield messages, and the number of matches in each."""
        groups: dict[tuple[str, str | None], list[Match]] = {}
        type_ = self._type.encode()
        for match in matches:
            groups.setdefault((outside(match.subscription_id)[0], match.gateway_id), []).append(match)
        for (tenant, gateway), together in groups.items():
            # A fixed order, because the grouping must be the same whenever the event is read.
            together.sort(key=lambda match: match.subscription_id)
            for at in range(0, len(together), MOST_NAMED):
                some = together[at : at + MOST_NAMED]
                message = b"".join(
                    (
                        BEGIN,
                        _id_of_gateway(self._where, tenant, gateway, first + at).encode(),
                        type_,
                        b'streamer.matches"',
                        self.attributes,
                        b"" if gateway is None else b',"gateway":' + quoted(gateway),
                        _CERTAIN if all(match.certain for match in some) else _UNCERTAIN,
                        b',"datacontenttype":"application/json","data":{"subscriptions":[',
                        b",".join(map(_subscription, some)),
                        b"]",
                        tail,
                    )
                )
                yield message, len(some)

    def _tail(self, shape: Shape) -> bytes:
        if shape.event == "full":
            return b',"event":%b}}\n' % self._event
        if shape.event == "none":
            return b"}}\n"
        where = {"partition": self.partition, "position": self.place.position, "index": self.place.part}
        return b',"reference":%b}}\n' % _JSON(where).encode()


def _subscription(match: Match) -> bytes:
    members = {
        "id": outside(match.subscription_id)[1],
        "transition": match.transition,
        "certain": match.certain,
    }
    return b'%b,"labels":%b}' % (_JSON(members)[:-1].encode(), _labels(match.labels))


def _labels(labels: Mapping[str, Any] | None) -> bytes:
    return labels_text(labels).encode() if labels else b"{}"
