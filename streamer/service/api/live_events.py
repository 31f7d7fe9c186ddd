"""The latest events, events as they come, and the match counts of subscriptions, for clients with that scope."""

from __future__ import annotations

from typing import Any, Final, final

from streamer.service.api.calls import EVENTS, Answer, Call, answer, number
from streamer.service.api.live import Watched, hits_of, shown
from streamer.service.api.problems import Problem, refuse_elsewhere
from streamer.service.api.status import Status
from streamer.service.delivery.messages import message_of
from streamer.service.observed.events import Hit, ObservedEvent
from streamer.service.observed.matches import MINUTE
from streamer.service.store.ids import inside
from streamer.service.store.rows import time_of
from streamer.service.tenants.declined import Declined
from streamer.service.tenants.gateways import Gateways, sink_of
from streamer.service.tenants.subscriptions import Subscriptions

#: The most attempts in the report of a message.
_ATTEMPTS: Final = 10


@final
class Watching:
    """Handlers of events.

    An event belongs to its tenant, by the rules of matching. An event that is not a change belongs to no tenant, so only the
    operator gets it. The scope is that of streams of matches, because a client with it can read all events of the tenant by
    subscribing to them.
    """

    def __init__(self, status: Status, subscriptions: Subscriptions, own: Gateways) -> None:
        self._status, self._subscriptions, self._gateways = status, subscriptions, own
        self._events, self._counts = status.events, status.matches

    def list_events(self, call: Call) -> Answer:
        """See the route."""
        limit = call.query.get("limit", 50)
        watched, is_all = _watched(call), call.token.tenant is None
        events = self._events.last(call.of_events, watched.collection, 1_000_000, call.number_after())
        matching = [event for event in events if watched.has(event, is_all=is_all)]
        items, more = matching[:limit], len(matching) > limit
        after = call.cursor(items[-1].number) if more else None
        body = {"items": [shown(event, is_all=is_all) for event in items], "next": after}
        return answer(body if not is_all else body | {"came": self._events.came, "taken": self._events.recorded})

    def get_event(self, call: Call) -> Answer:
        """See the route."""
        wanted, is_all = number(call.path["number"]), call.token.tenant is None
        event = None if wanted is None else self._events.find(wanted)
        if event is None or not Watched(tenant=call.of_events).has(event, is_all=is_all):
            raise Problem("unknown", "this event is not among the recent events")
        ways = [self._way(event, hit, is_all=is_all) for hit in hits_of(event, is_all=is_all)]
        return answer(shown(event, is_all=is_all) | {"ways": ways})

    def _way(self, event: ObservedEvent, hit: Hit, *, is_all: bool) -> dict[str, Any]:
        """Return the destination of a match and its result; a tenant's token gets only the tenant's own gateways."""
        members: dict[str, Any] = {"tenant": hit.tenant, "id": hit.id, "gateway": hit.gateway}
        way, kind = self._gateways.way(hit.tenant, hit.gateway)
        is_own = hit.gateway is not None and way is not None and way.sink == sink_of(hit.tenant, hit.gateway)
        if way is None or not (is_all or is_own):
            return members | {"sink": None, "kind": None, "message": None, "attempts": []}
        about = (inside(hit.tenant, hit.id), hit.gateway, hit.transition)
        message = message_of(way, event.source, event.partition, (event.position, event.part), about)
        attempts = self._status.attempts(way.sink, _ATTEMPTS, message) or []
        members |= {"sink": way.sink, "kind": kind, "message": message}
        return members | {"attempts": [each.members(is_all=is_all) for each in attempts]}

    def live(self, call: Call) -> Answer:
        """See the route."""
        return Answer(_watched(call), media_type=EVENTS)

    def count_matches(self, call: Call) -> Answer:
        """See the route. An earlier, deleted subscription of this id is a different one, so its matches are not included."""
        tenant, subscription_id = call.whose, call.path["id"]
        row = self._subscriptions.get(tenant, subscription_id)
        if row is None:
            raise Declined("unknown", "no such subscription")
        refuse_elsewhere(self._subscriptions.shard, tenant)
        counted = self._counts.counted(inside(tenant, subscription_id), row.created / 1000)
        body = {
            "tenant": tenant,
            "id": subscription_id,
            "since": None if counted.since is None else time_of(int(counted.since * 1000)),
            "every_s": MINUTE,
            "at": counted.at,
            "matches": counted.counts,
            "total": sum(count or 0 for count in counted.counts),
            "one_of": counted.one_of,
            "most_counts": self._counts.most,
        }
        return answer(body)


def _watched(call: Call) -> Watched:
    query = call.query
    return Watched(
        tenant=call.of_events,
        collection=query.get("collection"),
        gateway=query.get("gateway"),
        subscription=query.get("subscription"),
        outcome=query.get("outcome"),
    )
