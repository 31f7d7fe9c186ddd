"""Events that came lately, as they come, and how often each subscription matched: to who may read that."""

from __future__ import annotations

from typing import final

from streamer.service.api.calls import EVENTS, Answer, Call, after, answer, cursor
from streamer.service.api.live import Watched, shown
from streamer.service.api.problems import Problem, refuse_elsewhere
from streamer.service.declined import Declined
from streamer.service.observed.events import Events
from streamer.service.observed.matches import MINUTE, MatchCounts
from streamer.service.store.rows import time_of
from streamer.service.subscriptions import Subscriptions
from streamer.service.tenants import inside


@final
class Watching:
    """Handlers of events.

    An event is its tenant's, as matching has it. One that is no change is nobody's, so only who runs the service sees it. The
    scope is that of streams of matches: who has it may read all events of the tenant by subscribing to them.
    """

    def __init__(self, events: Events, counts: MatchCounts, subscriptions: Subscriptions) -> None:
        self._events, self._counts, self._subscriptions = events, counts, subscriptions

    def list_events(self, call: Call) -> Answer:
        """See the route."""
        query, limit = call.query, call.query.get("limit", 50)
        watched, is_all = _watched(call), call.token.tenant is None
        before = None
        if "cursor" in query:
            text = after(query["cursor"])
            if not text.isascii() or not text.isdigit() or len(text) > 18:
                raise Problem("bad-request", "cursor: expected the next of a list of events, as it was given")
            before = int(text)
        kept = self._events.last(call.tenant, watched.collection, 1_000_000, before)
        found = [seen for seen in kept if watched.has(seen, is_all=is_all)]
        items, more = found[:limit], len(found) > limit
        told = {"items": [shown(seen, is_all=is_all) for seen in items], "next": cursor(str(items[-1].number)) if more else None}
        return answer(told if not is_all else told | {"came": self._events.came, "taken": self._events.taken})

    def live(self, call: Call) -> Answer:
        """See the route."""
        return Answer(_watched(call), media_type=EVENTS)

    def count_matches(self, call: Call) -> Answer:
        """See the route. One of this id that was deleted before is another one, whose matches are not counted with it."""
        tenant, subscription_id = call.whose, call.path["id"]
        row = self._subscriptions.get(tenant, subscription_id)
        if row is None:
            raise Declined("unknown", "no such subscription")
        refuse_elsewhere(self._subscriptions.shard, tenant)
        found = self._counts.told(inside(tenant, subscription_id), row.created / 1000)
        told = {
            "tenant": tenant,
            "id": subscription_id,
            "since": None if found.since is None else time_of(int(found.since * 1000)),
            "every_s": MINUTE,
            "at": found.at,
            "matches": found.counts,
            "total": sum(count or 0 for count in found.counts),
            "one_of": found.one_of,
            "most_counts": self._counts.most,
        }
        return answer(told)


def _watched(call: Call) -> Watched:
    query = call.query
    return Watched(
        tenant=call.tenant,
        collection=query.get("collection"),
        gateway=query.get("gateway"),
        subscription=query.get("subscription"),
        outcome=query.get("outcome"),
    )
