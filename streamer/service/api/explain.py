"""Answer questions about subscriptions and events: what matches, why, why not, and what would a draft do? All are read-only.

A question gets an engine of its own, unless it needs all subscriptions. The cost of each question is bounded, and the answer
states whether a bound was reached.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, Final, final

from streamer.bloom.options import BloomOptions
from streamer.config.loader import Place, walk
from streamer.config.yaml import read_yaml
from streamer.core.matches import Matches
from streamer.core.options import Options
from streamer.effort import EFFORT
from streamer.engine.engine import Engine
from streamer.engine.explain import Explanation, explain
from streamer.engine.misses import near_misses
from streamer.errors import BulkConfigError, DuplicateSubscriptionError, SubscriptionError, UnknownSubscriptionError
from streamer.events.reading import IgnoredEvent
from streamer.model import is_unicode
from streamer.service.api.calls import LINES, Answer, Call, answer, members_as_sent
from streamer.service.api.decoding import Records
from streamer.service.api.problems import Problem, members, refuse_elsewhere, refuse_unknown
from streamer.service.observed.events import MOST, Events, ObservedEvent
from streamer.service.store.ids import Written, claimed, inside, named, outside, written
from streamer.service.store.rows import time_of
from streamer.service.tenants.declined import Declined
from streamer.service.tenants.subscriptions import Subscriptions
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import EVERY, Subscription

#: The most lines that `lint` accepts.
_LINTED: Final = 1000
#: For how many seconds a draft is tried on events.
_PATIENCE: Final = 0.06
#: The CPU time for one page of subscriptions that no filter can guard, in seconds.
_LOOKING: Final = 0.02
#: Events on which a draft is tried between two looks at the clock.
_AT_ONCE: Final = 50
#: The most example events in the answer for each outcome of a draft.
_NAMED: Final = 10
#: The most rows that are read for near misses, if few of them are of the event's collection.
_PASSED: Final = 5_000
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
#: The id of a draft that has none.
_DRAFT: Final = "draft"


@final
class Asking:
    """Handlers of questions.

    Args:
        events: some of the last events, on which drafts are tried.
        default_tenant: the tenant of an administrator's question that names none.
    """

    def __init__(self, engine: Engine, subscriptions: Subscriptions, events: Events, default_tenant: str | None) -> None:
        self._engine, self._subscriptions, self._events, self._default = engine, subscriptions, events, default_tenant
        self._records = Records(engine._options)

    @property
    def _options(self) -> Options:
        """The options of the engines for questions, which have no filters of phase 1."""
        return replace(self._engine._options, bloom=BloomOptions(enabled=False))

    def _here(self, call: Call) -> Engine:
        """Return the engine with a tenant's subscriptions. Raises Problem if another process has them."""
        refuse_elsewhere(self._subscriptions.shard, call.of_events)
        return self._engine

    def match(self, call: Call) -> Answer:
        """See the route. Only an administrator sees the subscriptions for every tenant."""
        limit, more = call.query.get("limit", 1000), False
        matching: list[dict[str, Any]] = []
        is_all = call.token.tenant is None
        event = self._records.one(call, call.body)
        if event.ignored is not None:
            return answer({"matches": [], "more": False, "ignored": event.ignored})
        # An administrator's event may be of any tenant, which the event itself names.
        matches = self._here(call).match(event.text, call.of_events)
        for each in matches:
            tenant, subscription_id = outside(each.subscription_id)
            if not is_all and tenant != call.tenant:
                continue
            if len(matching) == limit:
                more = True
                break
            matching.append(
                {
                    "tenant": tenant,
                    "id": subscription_id,
                    "gateway": each.gateway_id,
                    "transition": each.transition,
                    "certain": each.certain,
                }
            )
        return answer({"matches": matching, "more": more, "ignored": matches.ignored})

    def explain(self, call: Call) -> Answer:
        """See the route."""
        question = members_as_sent(call.body)
        refuse_unknown(question, ("event", "id", "subscription"))
        if "event" not in question or len(question) > 2:
            raise Problem("bad-request", "expected event, and id or subscription or none of them")
        if not isinstance(question["event"].value, dict) and "format" not in call.query:
            raise Problem("bad-request", "event: expected an object")
        record = self._records.one(call, question["event"].text)
        event, ignored = record.text, record.ignored
        if len(question) == 1:
            none = {"matches": [], "more": False, "ignored": ignored}
            return self._explain_all(call, event) if ignored is None else answer(none)
        if ignored is not None:
            raise Problem("event", f"the record is not a change: {ignored}")
        whose = self._of_one(call)
        if "id" in question:
            each = self._stored(whose, question["id"].value)
        else:
            each = claimed(named(question["subscription"].text, "given"), whose.whose)
        # The default tenant is only for the subscription. An administrator's event names its own tenant, as in `match`.
        return answer(self._explained(each, event, call.of_events).to_dict())

    def _explain_all(self, call: Call, event: bytes) -> Answer:
        """Explain the matches among all subscriptions."""
        matches = self._here(call).match(event, call.of_events)
        with EFFORT.bounded():
            return self._explain_first(call, event, matches, call.query.get("limit", 10))

    def _explain_first(self, call: Call, event: bytes, matches: Matches, limit: int) -> Answer:
        more = False
        explanations: list[dict[str, Any]] = []
        for inner in matches.ids():
            tenant, subscription_id = outside(inner)
            if call.token.tenant not in (None, tenant):
                continue
            if more := len(explanations) == limit:
                break
            if (row := self._subscriptions.get(tenant, subscription_id)) is None:
                continue  # it was deleted meanwhile
            explanation = self._explained(written(row.text, tenant), event, call.of_events).to_dict()
            explanations.append({"tenant": tenant, "id": subscription_id, **explanation})
        return answer({"matches": explanations, "more": more, "ignored": matches.ignored})

    def _explained(self, each: Written, event: bytes, tenant: str | None) -> Explanation:
        engine = Engine._of(self._options)
        return explain(each.id, lambda _: engine._compile(each.source), event, self._options, tenant)

    def _of_one(self, call: Call) -> Call:
        """Return the call with a tenant: its own, or the default one."""
        return call if call.tenant is not None else replace(call, tenant=self._default)

    def _stored(self, call: Call, subscription_id: Any) -> Written:
        """Return a stored subscription. Raises Problem and Declined."""
        if not isinstance(subscription_id, str) or not is_unicode(subscription_id):
            raise Problem("bad-request", "id: expected some text")
        row = self._subscriptions.get(call.whose, subscription_id)
        if row is None:
            raise Declined("unknown", "no such subscription")
        return written(row.text, call.whose)

    def near_misses(self, call: Call) -> Answer:
        """See the route. Reads subscriptions from the store, because an engine would make a list of all of its own."""
        limit, examine = call.query.get("limit", 10), call.query.get("examine", 1000)
        none = {"near_misses": [], "examined": 0, "complete": True, "next": None}
        record = self._records.one(call, call.body)
        if record.ignored is not None:
            return answer(none)
        try:
            event = self._options.read(record.text, call.of_events, None)
        except IgnoredEvent:
            return answer(none)
        at = call.after() or inside(event.tenant, "")
        # Only an administrator sees the subscriptions for every tenant.
        tenants = (event.tenant, EVERY) if call.token.tenant is None else (event.tenant,)
        walk = _Walk(self._subscriptions, tenants, event.collection, at)
        among = islice(walk, examine)
        misses = near_misses(self._here(call), record.text, limit, call.of_events, None, examine, among)
        items = []
        for miss in misses:
            tenant, subscription_id = outside(miss.subscription_id)
            items.append({"tenant": tenant, "id": subscription_id, **_under_its_id(miss.to_dict(), subscription_id)})
        more = None if walk.is_at_end else call.cursor(walk.at)
        return answer({"near_misses": items, "examined": misses.examined, "complete": more is None, "next": more})

    def plan(self, call: Call) -> Answer:
        """See the route."""
        each = self._stored(call, call.path["id"])
        try:
            plan = self._engine.plan(inside(call.whose, each.id))
        except UnknownSubscriptionError:
            # It is paused, so the service's engine does not have it.
            aside = Engine._of(self._options)
            aside.add(each.source)
            plan = aside.plan(inside(call.whose, each.id))
        return answer({"tenant": call.whose, "id": each.id, **_under_its_id(plan.to_dict(), each.id)})

    def list_unguarded(self, call: Call) -> Answer:
        """See the route. Subscriptions that are paused or in another process are not in this process's filters."""
        limit, collection = call.query.get("limit", 50), call.query.get("collection")
        at = (call.tenant or "", "") if (after := call.after()) is None else outside(after)
        rows: list[dict[str, Any]] = []
        looked_at, deadline = 0, time.thread_time() + _LOOKING
        more = None
        for row in self._subscriptions.each(call.tenant, at):
            # Look at one row at least, so that each page makes progress.
            if len(rows) == limit or (looked_at and time.thread_time() > deadline):
                more = call.cursor(inside(*at))
                break
            looked_at, at = looked_at + 1, (row.tenant, row.id)
            plan = None
            if not has_equality(row.text):
                with suppress(UnknownSubscriptionError):
                    plan = self._engine.plan(inside(*at))
            if plan is not None and plan.access_keys is None and collection in (None, plan.collection):
                body = {
                    "tenant": row.tenant,
                    "id": row.id,
                    "collection": plan.collection,
                    "cost": plan.cost,
                    "effort": plan.effort.value,
                }
                rows.append({**body, "origin": row.origin, "updated": time_of(row.updated)})
        return answer({"items": rows, "next": more, "looked_at": looked_at})

    def try_subscription(self, call: Call) -> Answer:
        """See the route."""
        question = members_as_sent(call.body)
        refuse_unknown(question, ("subscription", "text", "id"))
        if ("text" in question) == ("subscription" in question):
            raise Problem("bad-request", "expected subscription or text, and id if it is stored under another one")
        text = question["text"].value if "text" in question else question["subscription"].text.decode()
        if not isinstance(text, str) or not is_unicode(text):
            raise Problem("bad-request", "text: expected some text")
        stored_id = question["id"].value if "id" in question else None
        try:
            draft = self._draft(text, call.whose, stored_id)
            engine = Engine._of(self._options)
            engine.add(draft.source)
        except json.JSONDecodeError as error:
            errors = [{"reason": f"no JSON: {error.msg}", "line": error.lineno, "column": error.colno}]
            return answer({"good": False, "errors": errors, "findings": []})
        except SubscriptionError as error:
            return answer({"good": False, "errors": [members(error) | _located(text, error.place)], "findings": []})
        findings = [
            {"code": each.code.value, "reason": each.reason, "related": [outside(other)[1] for other in each.related]}
            for each in engine.lint()
        ]
        body: dict[str, Any] = {"good": True, "errors": [], "findings": findings}
        body["plan"] = _under_its_id(engine.plan(inside(call.whose, draft.id)).to_dict(), draft.id)
        # The results reveal events, so they are only for tokens that may read events.
        if call.token.may("consume"):
            body["tried"] = self._tried(call, engine, draft, draft.id if stored_id is None else stored_id)
        return answer(body)

    def _draft(self, text: str, tenant: str, subscription_id: Any) -> Written:
        """Read a draft. Raises SubscriptionError, and JSONDecodeError if the text is not JSON."""
        with suppress(RecursionError):  # the parser of subscriptions reports this error
            json.loads(text, parse_int=float)
        is_name = isinstance(subscription_id, str) and subscription_id and is_unicode(subscription_id)
        return claimed(named(text.encode(), subscription_id if is_name else _DRAFT), tenant)

    def _tried(self, call: Call, engine: Engine, draft: Written, stored_id: Any) -> dict[str, Any]:
        """Match the draft with the last events until `_PATIENCE` is over, and compare with the stored subscription of its id."""
        row = self._subscriptions.get(call.whose, stored_id) if isinstance(stored_id, str) and is_unicode(stored_id) else None
        before = None
        if row is not None:
            before = Engine._of(self._options)
            before.add(written(row.text, call.whose).source)
        parsed: Subscription = parse_subscription(draft.source)
        collection = None if parsed.collection in (None, EVERY) else parsed.collection
        tenant = None if call.whose == EVERY else call.whose
        events = [each for each in self._events.last(tenant, collection, MOST) if each.ignored is None]
        numbers: dict[str, list[int]] = {"matched": [], "matched_before": [], "new": [], "no_longer": []}
        deadline, looked_at = time.monotonic() + _PATIENCE, 0
        for at in range(0, len(events), _AT_ONCE):
            if looked_at and time.monotonic() > deadline:
                break
            some = events[at : at + _AT_ONCE]
            now = set(_matching(engine, some))
            was = now if before is None else set(_matching(before, some))
            looked_at += len(some)
            numbers["matched"] += sorted(now, reverse=True)
            if before is not None:
                numbers["matched_before"] += sorted(was, reverse=True)
                numbers["new"] += sorted(now - was, reverse=True)
                numbers["no_longer"] += sorted(was - now, reverse=True)
        return {
            "events": looked_at,
            "complete": looked_at == len(events),
            "collection": collection,
            "is_held": before is not None,
            **{name: len(ids) for name, ids in numbers.items()},
            "examples": {name: ids[:_NAMED] for name, ids in numbers.items() if name != "matched_before"},
        }

    def lint(self, call: Call) -> Answer:
        """See the route."""
        numbers, several = lines_of(call, call.whose, _LINTED)
        lines: dict[str, int] = {}
        errors: list[dict[str, Any]] = []
        good: list[Written] = []
        for number, each in zip(numbers, several, strict=True):
            if isinstance(each, Written) and each.id in lines:
                each = DuplicateSubscriptionError("this id stands here twice", place="id", subscription_id=each.id)
            if isinstance(each, Written):
                lines[each.id] = number
                good.append(each)
            else:
                errors.append({"line": number, **members(each)})
        engine = Engine._of(self._options)
        for error in engine.add_many((each.source for each in good), on_error="skip").errors:
            assert error.index is not None
            errors.append({"line": lines[good[error.index].id], **members(error)})
        findings = []
        for finding in engine.lint():
            subscription_id = outside(finding.subscription_id)[1]
            related = [outside(each)[1] for each in finding.related]
            item = {"line": lines[subscription_id], "id": subscription_id, "code": finding.code.value}
            findings.append({**item, "reason": finding.reason, "related": related})
        return answer({"errors": sorted(errors, key=lambda each: each["line"]), "findings": findings})


@final
class _Walk:
    """Iterates over the subscriptions of some tenants that may want events of one collection, reading at most `_PASSED` rows.

    Attributes:
        at: the last subscription that was read.
        is_at_end: whether all of them were read.
    """

    def __init__(self, subscriptions: Subscriptions, tenants: Sequence[str], collection: str | None, at: str) -> None:
        self._subscriptions, self._tenants, self._collection, self.at = subscriptions, tenants, collection, at
        self.is_at_end = False

    def __iter__(self) -> Iterator[str]:
        begin, passed = outside(self.at)[0], 0
        for tenant in self._tenants[self._tenants.index(begin) if begin in self._tenants else 0 :]:
            at = outside(self.at)[1] if tenant == begin else ""
            for row in self._subscriptions.each(tenant, (tenant, at)):
                self.at, passed = inside(tenant, row.id), passed + 1
                if self._is_candidate(row.text):
                    yield self.at
                if passed == _PASSED:
                    return
        self.is_at_end = True

    def _is_candidate(self, text: bytes) -> bool:
        try:
            collection = json.loads(text).get("collection")
        except (RecursionError, ValueError):
            collection = parse_subscription(text).collection
        return collection in (None, EVERY, self._collection)


def _matching(engine: Engine, some: Sequence[ObservedEvent]) -> Iterator[int]:
    """Yield the numbers of the events that have a match."""
    for at, _ in engine.match_batch([each.text for each in some]).matched():
        yield some[at].number


def has_equality(text: bytes) -> bool:
    """Return whether a filter requires one value, which makes it a key. This is ten times as fast as making a plan."""
    try:
        filters = json.loads(text).get("filters")
    except (RecursionError, ValueError):
        return False
    return isinstance(filters, list) and any(
        isinstance(each, dict) and each.get("op") == "==" and isinstance(each.get("value"), str | int) for each in filters
    )


def _under_its_id(members: dict[str, Any], subscription_id: str) -> dict[str, Any]:
    """Return an engine's answer, with the id under which the tenant stored the subscription."""
    return members | {"subscription_id": subscription_id}


def _located(text: str, place: str) -> dict[str, int]:
    """Return line and column of a place in a JSON text, which is YAML, too; an empty dictionary if it cannot be read."""
    steps: Place = tuple(int(number) if number else name for number, name in _STEP.findall(place))
    try:
        root, _ = read_yaml(text.encode(), _DRAFT)
    except BulkConfigError:
        return {}
    nodes = walk(root, steps)
    mark = (nodes[-1] if nodes else root).mark
    return {"line": mark.line, "column": mark.column}


def lines_of(call: Call, tenant: str, most: int) -> tuple[list[int], list[Written | SubscriptionError]]:
    """Read the subscriptions of a body, with the numbers of their lines. Raises Problem."""
    numbers: list[int] = []
    several: list[Written | SubscriptionError] = []
    lines = call.body.split(b"\n") if call.media_type == LINES else [call.body]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if len(several) == most:
            raise Problem("too-long", f"expected {most:,} lines at most")
        numbers.append(number)
        # Other threads take their turns: without this, each of their steps would wait some milliseconds for the interpreter.
        time.sleep(0)
        try:
            several.append(claimed(line, tenant))
        except SubscriptionError as error:
            several.append(error)
    return numbers, several
