"""Why do events match a subscription, or why not? `Engine.explain` for the events of a DataFrame.

```
driver    the chosen subscriptions, by id ─► in the plan
workers   rows ─► mapInArrow: the reference judges each event on each of them ─► a row for each
```

A subscription's verdict does not depend on other subscriptions. So no snapshot is broadcast, and of a DataFrame of subscriptions
only the chosen ones travel.

Cost: the reference, in Python, judges each event on each subscription: some thousand a second and core. Filters do not drop
events first, because an event that a filter would drop is just the kind that needs an explanation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType

from streamer import _backend
from streamer.effort import EFFORT
from streamer.engine.engine import Engine
from streamer.engine.explain import Judgement, deciding, note_of_ignored
from streamer.engine.explain_text import on_one_line, outcome_of
from streamer.engine.misses import FAILS, hinted, operands_of
from streamer.errors import EventError, UnknownSubscriptionError
from streamer.events.format_options import with_options
from streamer.events.layout import EventLayout, FormatName, layout_of
from streamer.events.reading import IgnoredEvent
from streamer.model import TOO_COSTLY, Verdict
from streamer.spark import members, schema, tables
from streamer.spark.batch import check_options
from streamer.spark.call import Call, Subscriptions
from streamer.spark.cogroup_worker import Names, Run
from streamer.spark.compat import is_frame
from streamer.spark.worker import EVENT, Batches, Pass, named, pieces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamer.core.options import Options
    from streamer.subscriptions.compile import CompiledSubscription

#: The most subscriptions of one call: each of them makes a row for each event.
MOST: Final = 100
#: The most rows of the result that are made at once.
ROWS_AT_ONCE: Final = 4096

COLUMNS: Final[dict[str, DataType]] = {
    "event_id": StringType(),
    "tenant": StringType(),
    "collection": StringType(),
    "type": StringType(),
    "subscription_id": StringType(),
    "matched": BooleanType(),
    "transition": StringType(),
    "certain": BooleanType(),
    "verdict": StringType(),
    "failed": LongType(),
    "near_miss": BooleanType(),
    "place": StringType(),
    "condition": StringType(),
    "outcome": StringType(),
    "note": StringType(),
}
_ARROW: Final[dict[DataType, pa.DataType]] = {BooleanType(): pa.bool_(), LongType(): pa.int64(), StringType(): pa.string()}
#: Kinds of conditions that are never a near miss: an event of another tenant or collection is not nearly a match.
_OF_ANOTHER: Final = ("tenant", "collection")


def explain_events(
    events: DataFrame | str,
    subscriptions: Subscriptions,
    subscription_id: str | Sequence[str],
    *,
    event_col: str = "value",
    format: FormatName | None = None,  # noqa: A002
    layout: EventLayout | Mapping[str, Any] | None = None,
    keep: Sequence[str] = (),
    keep_event: bool = False,
    subscription_col: str | None = None,
    extra: members.Extra = "warn",
    **engine_options: Any,
) -> DataFrame:
    """Explain why subscriptions match the events of a DataFrame, or why not, as `Engine.explain` does for one event.

    The reference judges every event, so choose events first: `events.where(...)`, `events.limit(1000)`.

    Args:
        events: as of `match_events`; they may also stream.
        subscriptions: as of `match_events`. JSON lines are read by the driver. A DataFrame stays on the cluster, except for the
            chosen subscriptions; errors of other subscriptions are not reported.
        subscription_id: one id, or a list of at most 100.
        event_col: as of `match_events`.
        format: as of `match_events`.
        layout: as of `match_events`.
        keep: columns of *events* that every row carries, under their names.
        keep_event: whether a row carries its event, as `event`.
        subscription_col: as of `match_events`.
        extra: as of `match_events`.
        engine_options: further options of `Engine`, as of `match_events`.

    Returns:
        A row for each event and subscription, rejected and ignored events too: event_id, tenant, collection, type,
        subscription_id, `matched`, `transition`, `certain`; the `verdict` of all conditions together (`true`, `false`, `unknown`,
        `error`; null for a rejected event); `failed`, the number of conditions that failed, counting each operand of an
        expression's `&&`; `near_miss`, whether exactly one condition failed, other than tenant and collection; `place`,
        `condition` and `outcome` of the first condition that failed (or of the first unknown one, if none failed), null if the
        event matches; `note`, another cause, for example that the event was ignored or rejected [, event] and the columns that
        were kept.

    Raises:
        UnknownSubscriptionError: an id does not exist.
        SubscriptionError: subscriptions are invalid.
        ValueError: the list of ids is empty or too long, or a column does not exist.
        SnapshotError, ConfigError, TypeError: as of `match_events`.
    """
    check_options(engine_options)
    members.check_extra(extra)
    ids = _ids(subscription_id)
    if isinstance(events, str):
        events = tables.active(events)
    choice = schema.choose(events, event_col, keep, reserved=COLUMNS)
    options = engine_options.pop("format_options", None)
    if format is not None or layout is not None or options is not None:
        engine_options["layout"] = with_options(layout_of(format, layout, stacklevel=3), format, options)
    if is_frame(subscriptions):
        subscriptions = members.texts_of(subscriptions, subscription_col, extra)
    elif subscription_col is not None:
        raise TypeError(f"subscription_col: only a DataFrame has columns, not {type(subscriptions).__name__}")
    call = Call.of(events.sparkSession, subscriptions, engine_options)
    texts = _find(call, ids)
    request = Pass(EVENT, tuple(keep), keep_event, "matches", fail=False, backend=_backend.BACKEND)
    fields = [StructField(name, kind) for name, kind in COLUMNS.items()]
    if keep_event:
        fields.append(StructField("event", choice.event_type))
    return choice.events_frame.mapInArrow(by_judging(request, texts, call.options), StructType([*fields, *choice.carried]))


def _ids(wanted: str | Sequence[str]) -> list[str]:
    """Return the chosen ids without duplicates. Raises TypeError and ValueError."""
    ids = [wanted] if isinstance(wanted, str) else list(dict.fromkeys(wanted))
    if not all(isinstance(each, str) for each in ids):
        raise TypeError(f"subscription_id: expected an id or a list of ids, not {wanted!r}")
    if not 1 <= len(ids) <= MOST:
        raise ValueError(f"subscription_id: expected 1 to {MOST} ids, not {len(ids):,}")
    return ids


def _find(call: Call, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the subscriptions of some ids. Raises UnknownSubscriptionError."""
    if is_frame(call.source):
        texts = call.source.mapInArrow(by_id(frozenset(ids), call.options, _backend.BACKEND), "text string").collect()
        engine = Engine(**call.options)
        engine.add_many(row["text"] for row in texts)
        engine.bloom.stop()
    else:
        engine = call.engine()
    specs = []
    for each in ids:
        subscription = engine.get(each)
        if subscription is None:
            raise UnknownSubscriptionError(each)
        specs.append(subscription.to_dict())
    return specs


def by_id(ids: frozenset[str], options: Mapping[str, Any], backend: _backend.Backend) -> Run:
    """Return the function for `mapInArrow` that finds the texts of subscriptions."""

    def find_by_id(batches: Batches) -> Batches:
        names = Names(options, backend)
        wanted = pa.array(sorted(ids), pa.string())
        for batch in batches:
            texts = batch.column("text")
            _, _, ids_of_texts, _ = names.of(texts)
            yield pa.record_batch([texts], names=["text"]).filter(pc.is_in(ids_of_texts, value_set=wanted))

    return find_by_id


def by_judging(request: Pass, subscriptions: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Run:
    """Return the function for `mapInArrow` that judges every event on each of some subscriptions."""

    def explain_each(batches: Batches) -> Batches:
        request.begin()
        engine = Engine(**options)
        engine.add_many(subscriptions)
        engine.bloom.stop()
        compiled = [engine._compile(each) for each in engine.subscriptions()]
        at_once = max(ROWS_AT_ONCE // len(compiled), 1)
        for batch in (named(request, each) for each in batches):
            for start in range(0, batch.num_rows, at_once):
                events = batch.slice(start, at_once)
                rows = [row for event in events.column(EVENT) for row in rows_of(event.as_py(), compiled, engine._options)]
                columns = {name: pa.array([row.get(name) for row in rows], _ARROW[kind]) for name, kind in COLUMNS.items()}
                columns["row"] = pa.array([at for at in range(events.num_rows) for _ in compiled], pa.int64())
                for piece in pieces(request, events, pa.RecordBatch.from_pydict(columns)):
                    at = piece.column("row")
                    parts = {name: piece.column(name) for name in COLUMNS}
                    if request.keep_event:
                        parts["event"] = events.column(EVENT).take(at)
                    yield pa.RecordBatch.from_pydict(parts | {name: events.column(name).take(at) for name in request.keep})

    return explain_each


def rows_of(
    event: str | bytes | None, subscriptions: Sequence[CompiledSubscription], options: Options
) -> Iterator[dict[str, Any]]:
    """Yield one row for each subscription and the event; a missing column is null."""
    nothing = {"matched": False, "failed": 0, "near_miss": False}
    try:
        changes = options.read_all(event, None, None)
    except IgnoredEvent as ignored:
        note = {"verdict": Verdict.FALSE.value, "note": note_of_ignored(ignored)}
        yield from ({**nothing, **note, "subscription_id": each.id} for each in subscriptions)
    except EventError as error:
        note = {"note": f"the event is rejected: {error}"}
        yield from ({**nothing, **note, "subscription_id": each.id} for each in subscriptions)
    else:
        for each in subscriptions:
            with EFFORT.bounded():
                row = _row(deciding(each, changes, options)[0], options)
            yield row


def _row(judged: Judgement, options: Options) -> dict[str, Any]:
    outcome, event = judged.outcome, judged.event
    matched = outcome is not None
    rows = list(operands_of(judged, options))
    failed = [row for row in rows if row[0].verdict in FAILS]
    first: dict[str, str] = {}
    if not matched and (pending := failed or [row for row in rows if row[0].verdict is Verdict.UNKNOWN]):
        condition = hinted(*pending[0], event)
        first = {"place": condition.place, "condition": on_one_line(condition.text), "outcome": outcome_of(condition)}
    return {
        "event_id": None if event.id is None else str(event.id),
        "tenant": event.tenant,
        "collection": event.collection,
        "type": event.type,
        "subscription_id": judged.compiled.id,
        "matched": matched,
        "transition": outcome.transition if outcome is not None else None,
        "certain": outcome.certain if outcome is not None else judged.note != TOO_COSTLY,
        "verdict": judged.verdict.value,
        "failed": len(failed),
        "near_miss": not matched and len(failed) == 1 and failed[0][0].kind not in _OF_ANOTHER,
        **first,
        "note": judged.note,
    }
