"""A whole job: events from files or Kafka, matched against subscriptions, matches to files or Kafka, and a report.

    python -m streamer.spark.job --events events.jsonl --subscriptions subscriptions.jsonl --out matches

```
 --events ──► read ──► match_events ──► outcomes on the workers' disks ─┬─► --out        matches
              or, with --stream, a micro-batch at a time                ├─► --rejected   events that could not be read
                                                                        └─► counts       terminal, --metrics-file, --report
```

Standard output stays empty, because results go to files; reports about them go to standard error. An error that a user can
correct ends the job with one sentence and an exit code, never with a stack trace of the JVM.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import streamer
from streamer.cli.setup import fault, read_layout
from streamer.engine.fitting import LOOKS, misfit
from streamer.errors import BulkSubscriptionError, StreamerError
from streamer.events.layout import EventLayout
from streamer.logs import set_up_logging
from streamer.spark.changes import changes_of
from streamer.spark.compat import interrupt
from streamer.spark.job.arguments import (
    Arguments,
    Backend,
    Extra,
    OnError,
    Strategy,
    check,
    check_apart,
    out_place,
    pairs_of,
    rejected_place,
)
from streamer.spark.job.console import Console
from streamer.spark.job.failures import Bad, diagnose
from streamer.spark.job.metrics import Batch, Counts
from streamer.spark.job.places import (
    Format,
    Place,
    check_subscriptions,
    check_writable,
    exists,
    for_json,
    is_read_here,
    is_snapshot,
    place,
    qualified,
    read,
    read_subscriptions,
    snapshots_elsewhere,
    to_kafka,
    write,
)
from streamer.spark.job.report import Account
from streamer.spark.job.session import TERMINATED, interruptible, is_not_of_py4j, session
from streamer.spark.job.stages import Stages
from streamer.spark.paths import local_path
from streamer.spark.storage import Storage
from streamer.spark.streaming import BatchWriter, Settled, Write, match_batches
from streamer.spark.tables import TableWriter
from streamer.terminal import INTERRUPTED, OK, SOME_BAD, USAGE, fail, note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark itself failed: a worker that was lost too often, a disk that is full.
FAILED: Final = 3

EPILOG: Final = (
    "Exit codes: 0 all is well; 1 some events were rejected, the others were matched; 2 wrong usage, bad subscriptions, or "
    "places that cannot be read or written; 3 Spark failed; 130 interrupted by Ctrl-C, 143 by SIGTERM."
)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command(epilog=EPILOG)
def job(
    events: Annotated[
        str,
        typer.Option(
            metavar="PLACE", help="Files, a folder, a pattern, kafka://BROKERS/TOPIC, or a table: CATALOG.SCHEMA.TABLE."
        ),
    ],
    subscriptions: Annotated[
        str,
        typer.Option(
            "-s", "--subscriptions", metavar="PATH", help="A snapshot, a directory of versions, JSON lines, or Parquet."
        ),
    ],
    out: Annotated[str, typer.Option("-o", "--out", metavar="PLACE", help="A folder, kafka://BROKERS/TOPIC, or SCHEMA.TABLE.")],
    rejected: Annotated[
        str | None, typer.Option(metavar="PLACE", help="The target of events that cannot be read.  \\[default: OUT.rejected]")
    ] = None,
    events_format: Annotated[Format | None, typer.Option(help="If the name does not show it.")] = None,
    out_format: Annotated[Format | None, typer.Option(help="As of events.  \\[default: by name, else parquet]")] = None,
    event_col: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column with the events; '*' for the row itself.")
    ] = "value",
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Read the changes of a Delta table whose rows this column identifies; may be repeated."
        ),
    ] = None,
    collection: Annotated[str | None, typer.Option(help="Of what changed.  \\[default: the table's name]")] = None,
    keep: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column to carry along; may be repeated.")] = None,
    keep_event: Annotated[bool, typer.Option("--keep-event", help="With each match the event itself.")] = False,
    by_gateway: Annotated[bool, typer.Option("--by-gateway", help="A folder for each gateway.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing data at OUT.")] = False,
    format: Annotated[  # noqa: A002 - typer names an option after the argument
        str | None,
        typer.Option(metavar="NAME", help="The format of events (`streamer formats`), if no snapshot defines it."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A JSON file with the layout of events of another shape, if no snapshot defines it."),
    ] = None,
    default_tenant: Annotated[
        str | None, typer.Option(help="The tenant of events and subscriptions without one, if no snapshot defines it.")
    ] = None,
    soft_delete: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field that flags a document as deleted, if no snapshot defines it.")
    ] = None,
    subscription_col: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of Parquet with whole subscriptions as JSON.")
    ] = None,
    extra: Annotated[Extra, typer.Option(help="How to treat columns of subscriptions that are not members.")] = Extra.warn,
    strategy: Annotated[Strategy, typer.Option(help="How subscriptions reach the workers.")] = Strategy.auto,
    on_error: Annotated[OnError, typer.Option(help="What becomes of events that cannot be read.")] = OnError.reject,
    backend: Annotated[Backend | None, typer.Option(help="What evaluates in the workers.  \\[default: what runs here]")] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**31 - 1,
            metavar="N",
            help="Most events matched at once.  \\[default: that of the snapshot, or by their matches]",
        ),
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Continue as events come.")] = False,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="The directory in which a stream records its progress.")
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|available-now", help="How often a micro-batch begins, as '10 seconds'; or all there is, then end."
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of Spark's source, as maxFilesPerTrigger=10; may be repeated.")
    ] = None,
    out_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of Spark's sink, of rejected events too, as compression=zstd; may be repeated."),
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of Spark; may be repeated.")] = None,
    master: Annotated[
        str | None, typer.Option(help="The master of Spark.  \\[default: that of spark-submit, else local[*]]")
    ] = None,
    metrics_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write metrics as text, for the node exporter.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, metavar="PORT", help="Serve metrics while it runs; 0 for any port.")
    ] = None,
    metrics_addr: Annotated[str, typer.Option(metavar="ADDRESS", help="The address at which to serve them.")] = "127.0.0.1",
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write counts, rates and stages as JSON.")] = None,
    log_level: Annotated[str, typer.Option(help="Spark's: OFF, ERROR, WARN, INFO.")] = "OFF",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print neither progress nor summary.")] = False,
) -> None:
    """Match events against subscriptions on Spark."""
    try:
        engine = {
            "layout": read_layout(format, layout),
            "default_tenant": default_tenant,
            "soft_delete": soft_delete,
        }
        source = place(events, events_format, pairs_of("--option", option))
        target = out_place(out, out_format, pairs_of("--out-option", out_option))
        args = Arguments(
            events=source,
            subscriptions=subscriptions,
            out=target,
            rejected=rejected_place(rejected, target),
            event_col="value" if key or source.format in (Format.jsonl, Format.kafka) else event_col,
            keep=tuple(keep or ()),
            keep_event=keep_event,
            by_gateway=by_gateway,
            overwrite=overwrite,
            strategy=strategy,
            on_error=on_error,
            backend=backend,
            batch_size=batch_size,
            stream=stream,
            checkpoint=checkpoint,
            trigger=trigger,
            metrics_file=metrics_file,
            report=report,
            subscription_col=subscription_col,
            extra=extra,
            key=tuple(key or ()),
            collection=collection,
            engine={name: value for name, value in engine.items() if value is not None},
        )
        check(args)
        check_apart(args, layout if layout is not None and os.path.isfile(layout) else None)
    except Bad as error:
        fail(str(error))
    raise typer.Exit(_exit_code(args, (metrics_addr, metrics_port), conf, master, log_level, quiet=quiet))


def _exit_code(
    args: Arguments, metrics_at: tuple[str, int | None], conf: list[str] | None, master: str | None, level: str, *, quiet: bool
) -> int:
    """Run the job, with metrics served at an address and a port if given, and report errors."""
    set_up_logging("WARNING")
    for handler in logging.getLogger().handlers:
        handler.addFilter(is_not_of_py4j)
    addr, wanted_port = metrics_at
    counts, console = Counts(), Console(quiet=quiet)
    with ExitStack() as stack:
        try:
            if wanted_port is not None:
                port, server = counts.serve(wanted_port, addr)
                stack.callback(server.shutdown)
                console.say(f"metrics on http://{addr}:{port}/metrics")
            return _run(args, counts, console, stack, pairs_of("--conf", conf), master, level)
        except BulkSubscriptionError as bulk:
            _report_bad(args.subscriptions, bulk)
        except StreamerError as error:
            note(f"streamer: {error}")
        except OSError as error:
            note(f"streamer: {error.filename or ''}{': ' if error.filename else ''}{error.strerror or error}")
    return USAGE


def _report_bad(path: str, bulk: BulkSubscriptionError) -> None:
    """Print the faults of subscriptions, one per line, with their line numbers if they came from a file of lines."""
    # Without a count: a worker reports no more faults of its part than are shown.
    note("streamer: bad subscriptions, so no event was matched:")
    for error in bulk.errors[: bulk.SHOWN]:
        note(str(fault(path, error)) if is_read_here(path) else f"{path}: {error}")
    if len(bulk.errors) > bulk.SHOWN:
        note(f"and {len(bulk.errors) - bulk.SHOWN:,} more")


# The steps of the job, in order.


def _run(
    args: Arguments, counts: Counts, console: Console, stack: ExitStack, conf: Mapping[str, str], master: str | None, level: str
) -> int:
    account = Account(args, counts)
    # After Spark has stopped, because it may still read the files.
    stack.callback(account.close)
    try:
        check_subscriptions(args.subscriptions, args.engine)
        spark = stack.enter_context(session(conf, master, level, progress=console.has_progress))
        check_apart(args, None, lambda text: qualified(spark, text))
        for target in (args.out, args.rejected):
            if target is not None:
                check_writable(spark, target)
        work = _stream if args.stream else _batch
        code = interruptible(lambda stop: work(spark, args, counts, console, account, stop))
        if code in (OK, SOME_BAD):
            counts.end()
    except KeyboardInterrupt:
        # The signal came while Spark started.
        code = INTERRUPTED
    except (StreamerError, OSError):
        raise
    except Exception as error:
        places = (args.events, args.out, args.rejected)
        blame, text = diagnose(error, [str(each) for each in places if each is not None and each.format is Format.kafka])
        note(f"streamer: {text}")
        code = {"user": USAGE, "event": SOME_BAD, "spark": FAILED}[blame]
    account.exit_code = code
    account.write(force=True)
    if code in (OK, SOME_BAD, INTERRUPTED, TERMINATED) and counts.total("events"):
        console.summary(counts, interrupted=code >= INTERRUPTED)
    return code


def _batch(spark: SparkSession, args: Arguments, counts: Counts, console: Console, account: Account, stop: ExitStack) -> int:
    from pyspark.sql import Observation, functions

    from streamer.spark.batch import match_events
    from streamer.spark.schema import tallies_of
    from streamer.spark.worker import COUNTS

    for target in (args.out, args.rejected):
        if target is not None and not args.overwrite and exists(spark, target):
            raise Bad(f"{target} exists already; --overwrite replaces it")
    try:
        events = _changes(args, read(spark, args.events, stream=False, keep=args.keep, feed=bool(args.key)))
    except ValueError as error:
        raise Bad(str(error)) from None
    subscriptions = read_subscriptions(spark, args.subscriptions)
    stop.callback(interrupt, spark)
    stages = Stages(spark, account.began.timestamp())
    with stages.phase("subscriptions"):
        try:
            result = match_events(events, subscriptions, subscription_col=args.subscription_col, **args.matching(), **args.engine)
        except (TypeError, ValueError) as error:
            raise Bad(str(error)) from None
    counts.version = result.version
    account.strategy = f"{result.strategy}: {result.reason}"
    console.say(account.strategy)
    result.persist()
    # Only this first pass matches the events; later steps read its results from the workers' disks.
    observed = Observation("streamer")
    sums = [functions.coalesce(functions.sum(name), functions.lit(0)).alias(name) for name in COUNTS]
    began = time.monotonic()
    with stages.phase("matching"):
        tallies = [row.asDict() for row in tallies_of(result.outcomes.observe(observed, *sums)).collect()]
    counts.matching = time.monotonic() - began
    counts.observed = dict(observed.get)
    codes = {}
    if any(row["rejected"] for row in tallies):
        codes = {row["code"]: row["count"] for row in result.rejected.groupBy("code").count().collect()}
    counts.add(tallies, codes)
    if (reason := _misfit(events, args.event_col, result.layout, tallies)) is not None:
        console.say(reason)
    account.write()
    with stages.phase("writing matches"):
        by = ("gateway_id",) if args.by_gateway else ()
        write(result.matches, args.out, by=by, overwrite=args.overwrite)
    if args.rejected is not None and (codes or (args.overwrite and exists(spark, args.rejected))):
        with stages.phase("writing rejected events"):
            write(result.rejected, args.rejected, overwrite=args.overwrite)
    result.close()
    account.stages = stages.ran()
    if codes:
        where = "nowhere: --rejected names a place" if args.rejected is None else str(args.rejected)
        console.say(f"rejected events went to {where}")
    return SOME_BAD if codes else OK


def _stream(spark: SparkSession, args: Arguments, counts: Counts, console: Console, account: Account, stop: ExitStack) -> int:
    from streamer.spark.schema import choose

    events = read(spark, args.events, stream=True, keep=args.keep, feed=bool(args.key))
    try:
        # Changes become events one micro-batch at a time; an empty DataFrame has the same columns.
        choose(_changes(args, spark.createDataFrame([], events.schema)) if args.key else events, args.event_col, args.keep)
    except (TypeError, ValueError) as error:
        raise Bad(str(error)) from None
    path = _followed(spark, args, account)
    last: list[Settled] = []

    def settled(batch: Settled) -> None:
        counts.add(batch.tallies, batch.codes)
        counts.version, counts.subscriptions = batch.version.digest, batch.version.subscriptions
        counts.refused = matcher.refused
        done = Batch(
            id=batch.id,
            began=max(counts.seconds - batch.seconds, 0.0),
            seconds=batch.seconds,
            events=sum(row["events"] for row in batch.tallies),
            matches=sum(row["matches"] for row in batch.tallies),
            version=batch.version.digest,
        )
        counts.add_batch(done)
        console.batch(done)
        last[:] = [batch]

    options = {**args.matching(), **args.engine}
    rejected = None if args.rejected is None else _writer(args.rejected, ())
    write_matches = _writer(args.out, ("gateway_id",) if args.by_gateway else ())
    matcher = match_batches(path, write_matches, rejected=rejected, settled=settled, **options)
    stopped = Event()

    def matched(frame: DataFrame, batch_id: int) -> None:
        try:
            frame = _changes(args, frame)
            matcher(frame, batch_id)
            # The first batch with events decides; a wrong layout is wrong for all of them.
            if last and counts.total("events") == sum(row["events"] for row in last[0].tallies):
                reason = _misfit(frame, args.event_col, last[0].layout, last[0].tallies)
                if reason is not None:
                    console.say(reason)
        except Exception:
            if not stopped.is_set():
                raise
            # Spark searches the text for the cause, with an expression that overflows the JVM's stack on that of a stack trace.
            raise StreamerError("the stream was stopped") from None

    writer = events.writeStream.foreachBatch(matched).option("checkpointLocation", args.checkpoint)
    if args.trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    elif args.trigger is not None:
        writer = writer.trigger(processingTime=args.trigger)
    query = writer.start()
    # Last in, first out. A running batch is cancelled; the next run with this checkpoint repeats it.
    stop.callback(query.stop)
    stop.callback(stopped.set)
    while not query.awaitTermination(0.5):  # type: ignore[arg-type]
        account.write()
    return SOME_BAD if counts.codes else OK


def _changes(args: Arguments, events: DataFrame) -> DataFrame:
    """Make events of a change feed, if the job uses one. Raises ValueError."""
    return changes_of(events, args.key, collection=args.collection or args.events.name) if args.key else events


def _misfit(events: DataFrame, event_col: str, layout: EventLayout, tallies: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a warning if the layout finds no collection in any event, and no type and document in the first of them."""
    if not tallies or any(row["collection"] is not None for row in tallies):
        return None
    from streamer.spark.schema import choose
    from streamer.spark.worker import EVENT

    some = choose(events, event_col, ()).events_frame.where(f"{EVENT} is not null").limit(LOOKS).collect()
    return misfit([row[EVENT] for row in some], layout)


def _writer(target: Place, by: tuple[str, ...]) -> Write:
    if target.format is Format.kafka:
        return lambda frame, _: to_kafka(frame, target)
    if target.table is not None:
        return TableWriter(target.table, by, options=target.options)
    if target.format is Format.jsonl:
        to_json = BatchWriter(target.text, "json", by, target.options)
        return lambda frame, batch_id: to_json(for_json(frame), batch_id)
    return BatchWriter(target.text, "parquet", by, target.options)


def _followed(spark: SparkSession, args: Arguments, account: Account) -> str:
    """Return the path of a snapshot, or of versions; JSON lines are compiled into a snapshot once, at the start."""
    path = local_path(args.subscriptions)
    if path is None:
        if snapshots_elsewhere(spark, args.subscriptions):
            return args.subscriptions
        place = Storage(spark, args.subscriptions)
        is_file = not place.is_directory()
    else:
        if is_snapshot(path):
            return path
        is_file = os.path.isfile(path)
    if not is_file:
        raise Bad(
            f"--subscriptions {args.subscriptions}: a stream takes a snapshot, a directory of versions, or a file of JSON lines"
        )
    engine = streamer.Engine(**args.engine)
    if path is None:
        with place.fetched() as lines:
            engine.add_jsonl(lines)
    else:
        engine.add_jsonl(path)
    folder = account.temporary()
    engine.save(os.path.join(folder, "subscriptions.snapshot"))
    # The snapshot has these options now.
    args.engine = {}
    return os.path.join(folder, "subscriptions.snapshot")


def main() -> None:
    """Run the job."""
    app(prog_name="python -m streamer.spark.job")


if __name__ == "__main__":
    main()
