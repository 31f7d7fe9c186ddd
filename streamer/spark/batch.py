"""Match subscriptions with events, as DataFrames.

`match_events` accepts subscriptions of any form and size, chooses how they reach the events, and returns the matches as an
ordinary DataFrame, together with the rejected events and the counts (result.py). The two ways are in broadcast.py and cogroup.py;
the workers' code is in worker.py.

| subscriptions | broadcast | cogroup |
|---|---|---|
| Engine, snapshot | the snapshot travels | its texts become a DataFrame |
| JSON lines | read by the driver | read by Spark, from paths that workers reach |
| DataFrame | fetched to the driver, in pieces | stays on the cluster |
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, signature
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from streamer import _backend
from streamer.core.options import Options
from streamer.engine.arguments import check_positive
from streamer.engine.engine import Engine
from streamer.errors import BackendError, ConfigError
from streamer.events.format_options import with_options
from streamer.events.layout import EventLayout, FormatName, layout_of
from streamer.sizes import format_size
from streamer.spark import broadcast, cogroup, files, members, schema, tables
from streamer.spark.call import Call, Subscriptions
from streamer.spark.compat import is_frame
from streamer.spark.result import SparkMatches
from streamer.spark.worker import COUNTS, EVENT, Pass

if TYPE_CHECKING:
    from pyspark.sql import Observation

Strategy: TypeAlias = Literal["auto", "broadcast", "cogroup"]
OnError: TypeAlias = Literal["reject", "fail"]

logger: Final = logging.getLogger("streamer.spark")

#: Size of the subscriptions' texts above which `auto` leaves them on the cluster: a worker that sees every collection uses about
#: three times this memory.
BROADCAST_BYTES: Final = 512 * 1024 * 1024


def match_events(
    events: DataFrame | str,
    subscriptions: Subscriptions,
    *,
    event_col: str = "value",
    format: FormatName | None = None,  # noqa: A002
    layout: EventLayout | Mapping[str, Any] | None = None,
    strategy: Strategy = "auto",
    grouped: bool = False,
    on_error: OnError = "reject",
    keep: Sequence[str] = (),
    keep_event: bool = False,
    backend: _backend.Backend | None = None,
    batch_size: int | None = None,
    observation: Observation | str | None = None,
    prune: bool | None = None,
    broadcast_bytes: int = BROADCAST_BYTES,
    cogroup_options: cogroup.CogroupOptions | None = None,
    subscription_col: str | None = None,
    extra: members.Extra = "warn",
    **engine_options: Any,
) -> SparkMatches:
    """Match the events of a DataFrame, exactly as `Engine.match` does each of them.

    Broadcast runs no job of its own. Cogroup first counts subscriptions and events (cogroup.py), and plans with the result, so
    both must be the same when the result is computed.

    Args:
        events: a DataFrame, classic or Connect, or a table of the active session by name. Null rows are ignored.
        subscriptions: an `Engine`; the path of a snapshot or of JSON lines, in any file system of Spark's; or a DataFrame: of
            one column of JSON text, or of a column for each member of a subscription, where `types`, `filters`, `pattern` and
            `labels` may also be JSON text or variants.
        event_col: the column with the events: JSON text or bytes; or structs, maps or variants, which are read as the JSON of
            structs.py. `*` uses the row itself, whose columns are the members.
        format: the wire format of the events, as of `Engine`. An engine and a snapshot have one; if you name it again, it must be
            the same.
        layout: the layout of events of another shape, instead of *format*.
        strategy: `auto` uses broadcast up to *broadcast_bytes*, and reports it in `.reason` and the log `streamer.spark`.
        grouped: the events of a tenant and collection are already together in each partition, so that cogroup leaves them in
            place (grouped.py). If they are not, the result is the same, or the job fails with `ConfigError` because it would take
            too long. Broadcast always leaves events in place.
        on_error: `reject` leaves out events that cannot be read (they are in `.rejected`), `fail` ends the job at the first.
        keep: columns of *events* that every match and every rejected event carries, under their names.
        keep_event: whether a match carries its event, as `event`; an event that is not text is carried as its JSON.
        backend: the backend of the workers: `native` or `reference`; by default the driver's. A worker without it fails with
            `BackendError`.
        batch_size: at most this many events are matched at once in a worker, of the batch that Spark passes to it
            (`spark.sql.execution.arrow.maxRecordsPerBatch`). By default the setting of the engine or snapshot, or, if it has
            none, as many as make about 65,536 matches.
        observation: counts `events`, `matched`, `matches`, `rejected`, `ignored`, `pruned`, `shuffled` while the matches are
            computed; a name in a streaming query.
        prune: whether portable Bloom filters drop events first. The default is yes under cogroup, because it saves shuffling,
            except with *grouped*.
        broadcast_bytes: at most this many bytes of subscriptions travel with `auto`.
        cogroup_options: limits and settings of cogroup.
        subscription_col: the column of a DataFrame that has whole subscriptions, if it has other columns too.
        extra: treatment of a DataFrame's columns that are not members: `warn` leaves them out and logs their names, but refuses a
            name that resembles a member without a column; `ignore` leaves them out, `forbid` refuses them.
        engine_options: further options of `Engine` (`default_tenant`, `limits`, ...), as *layout*. `cel_functions` travel to the
            workers as the functions of a UDF do; an engine has its own, a snapshot has none.

    Returns:
        An object with the DataFrames `.matches`, `.rejected` and `.tallies`.

    Raises:
        SubscriptionError: subscriptions are invalid, in every form but the snapshot.
        SnapshotError: a snapshot is damaged.
        ConfigError: options are invalid, or differ from those of the engine or snapshot; a function cannot travel; Spark cannot
            use the file system of a path; a table is named without an active session.
        BackendError: the driver itself lacks the native core, and *backend* requests it.
        ValueError: columns or choices do not exist, or *batch_size* is under 1.
        TypeError: events or subscriptions of another type, or an unknown option.
    """
    check_options(engine_options)
    _check_choices(strategy, on_error, backend, batch_size)
    members.check_extra(extra)
    if isinstance(events, str):
        events = tables.active(events)
    choice = schema.choose(events, event_col, keep)
    spark = events.sparkSession
    request = Pass(
        EVENT, tuple(keep), keep_event, "all", on_error == "fail", backend or _backend.BACKEND, batch_size, files.gone(spark)
    )
    options = engine_options.pop("format_options", None)
    if format is not None or layout is not None or options is not None:
        engine_options["layout"] = with_options(layout_of(format, layout, stacklevel=3), format, options)
    if subscription_col is not None and not is_frame(subscriptions):
        raise TypeError(f"subscription_col: only a DataFrame has columns, not {type(subscriptions).__name__}")
    if is_frame(subscriptions):
        subscriptions = members.texts_of(subscriptions, subscription_col, extra)
    call = Call.of(spark, subscriptions, engine_options)
    way, reason = _choose(call, strategy, broadcast_bytes)
    logger.info("match_events: %s, because %s", way, reason)
    version = None
    if way == "broadcast":
        shipped = call.ship(prune=bool(prune))
        plan, version, close = partial(broadcast.plan, shipped, choice), shipped.digest, partial(shipped.take_back, spark)
    else:
        numbers = cogroup_options or cogroup.CogroupOptions()
        if prune is not None or grouped:
            numbers = replace(numbers, prune=bool(prune))
        prepared = cogroup.prepare(choice, call.texts(), call.options, numbers, request.backend, grouped=grouped)
        plan, close = partial(cogroup.plan, prepared, choice), partial(prepared.take_back, spark)
    observe = None
    if observation is not None:
        sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS]
        observe = methodcaller("observe", observation, *sums)
    return SparkMatches(
        lambda want: plan(replace(request, want=want)),
        observe,
        close,
        keep_event=keep_event,
        strategy=way,
        reason=reason,
        version=version,
        layout=Options.checked(**call.options).layout,
    )


def _check_choices(strategy: Strategy, on_error: OnError, backend: _backend.Backend | None, batch_size: int | None) -> None:
    """Refuse arguments that cannot be. Raises ValueError, TypeError and BackendError."""
    if batch_size is not None:
        check_positive("batch_size", batch_size)
    for name, value, choices in (
        ("strategy", strategy, ("auto", "broadcast", "cogroup")),
        ("on_error", on_error, ("reject", "fail")),
        ("backend", backend, (None, "native", "reference")),
    ):
        if value not in choices:
            raise ValueError(f"{name}: expected {' or '.join(repr(choice) for choice in choices if choice)}, not {value!r}")
    if backend == "native" and backend not in _backend.available():
        raise BackendError("backend='native', but the driver has no native core, which checks the subscriptions")


def check_options(names: Iterable[str]) -> None:
    """Refuse names that are options neither of `match_events` nor of `Engine`. Raises TypeError."""
    of_call = [name for name, each in signature(match_events).parameters.items() if each.kind is Parameter.KEYWORD_ONLY]
    known = [*of_call, *signature(Engine).parameters]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise TypeError(
                f"there is no option {name!r}: " + (f"is it {near[0]!r}?" if near else f"there are {', '.join(known)}")
            )


def _choose(call: Call, strategy: Strategy, most: int) -> tuple[Literal["broadcast", "cogroup"], str]:
    # An event goes to the worker of its tenant and collection, and the changes of a record may have several.
    is_apart = Options.checked(**call.options).layout.has_changes
    if is_apart and strategy == "cogroup":
        raise ConfigError("expected 'broadcast' or 'auto': cogroup cannot match records with several changes", place="strategy")
    if strategy != "auto":
        return strategy, "you chose it"
    if is_apart:
        return "broadcast", "a record may have several changes"
    size, what = call.size()
    if isinstance(call.source, Engine):
        return "broadcast", what
    if size <= most:
        return "broadcast", f"{what} has {format_size(size)} of subscriptions, of at most {format_size(most)}"
    return "cogroup", f"{what} has {format_size(size)} of subscriptions, more than {format_size(most)}"
