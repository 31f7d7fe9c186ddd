"""The command line: arguments in, text out. `streamer.engine` does the work.

Standard output carries only results; reports and errors go to standard error.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import click

import streamer
from streamer.cli.bench import command as bench_command
from streamer.cli.cases import command as test_command
from streamer.cli.config import app as config_app
from streamer.cli.exporting import command as export_command
from streamer.cli.formats import app as formats_app
from streamer.cli.importing import command as import_command
from streamer.cli.inputs import damaged, opened, see_events, shown_name
from streamer.cli.output import FaultFormat, Format, PlainFormat, Tally, annotation, count, progress, show_json, writer
from streamer.cli.plot import check_plot, check_writable, draw
from streamer.cli.plot import plot as plot_command
from streamer.cli.positions import app as positions_app
from streamer.cli.schema import app as schema_app
from streamer.cli.serve import app as dead_letters_app
from streamer.cli.serve import serve as serve_command
from streamer.cli.serve import spool_app
from streamer.cli.setup import (
    COLLECTION,
    CONFIG,
    DEFAULT_TENANT,
    FAULT_OUTPUT,
    PATH,
    PLAIN_OUTPUT,
    SOFT_DELETE,
    SUBSCRIPTIONS,
    TENANT,
    VALIDATION,
    Setup,
    Validation,
    check_names,
    event_shape,
    output_option,
    set_up,
)
from streamer.cli.snapshot import app as snapshot_app
from streamer.cli.store import app as store_app
from streamer.cli.tokens import app as tokens_app
from streamer.cli.why import command as why_command
from streamer.core.lint import MISTAKES, Finding
from streamer.engine.fitting import FirstEvents
from streamer.engine.foreign import BOM, LOOKS, no_text
from streamer.engine.lines import read_chunks, read_lines
from streamer.errors import EventError, InputError, SubscriptionError
from streamer.terminal import (
    EXIT_CODES,
    INTERRUPTED,
    OK,
    SOME_BAD,
    USAGE,
    fail,
    has_colour,
    note,
    printable,
    set_up_streams,
    show,
)

#: The environment variable with which a shell requests completions.
COMPLETE: Final = "_STREAMER_COMPLETE"


@click.group(
    name="streamer", no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(
    streamer.__version__, message=f"streamer %(version)s ({streamer.BACKEND})", help="Print version and backend."
)
def app() -> None:
    """Which of many subscriptions want this event?"""


@click.group(name="debug", no_args_is_help=True)
def debug_app() -> None:
    """Look inside an engine."""


for command in (
    why_command,
    bench_command,
    test_command,
    config_app,
    formats_app,
    import_command,
    export_command,
    schema_app,
    plot_command,
    snapshot_app,
    serve_command,
    dead_letters_app,
    spool_app,
    positions_app,
    store_app,
    tokens_app,
    debug_app,
):
    app.add_command(command)


@app.command(
    short_help="Match events against subscriptions.",
    epilog=EXIT_CODES.format(one="some events were bad, the others were matched"),
)
@SUBSCRIPTIONS
@CONFIG
@click.argument("events", default="-", help="Events, one JSON object a line.  [default: -]")
@output_option(Format.jsonl, "jsonl, json: an object a match; ids: an id a match; table: for people.")
@event_shape
@TENANT
@COLLECTION
@DEFAULT_TENANT
@SOFT_DELETE
@VALIDATION
@click.option("--line-buffered", is_flag=True, help="Write each match at once.")
@click.option("-q", "--quiet", is_flag=True, help="Print neither progress nor summary.")
def match(
    subscriptions: Sequence[str],
    config: str | None,
    events: str,
    report: Format,
    format: str | None,
    layout: str | None,
    tenant: str | None,
    collection: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
    validation: Validation | None,
    line_buffered: bool,
    quiet: bool,
) -> None:
    """Match events against subscriptions, and print each match with the number of its event's line.

    Files may be compressed with gzip or zstd; `-` is standard input.
    """
    check_names(tenant, collection)
    setup = set_up(config, subscriptions, format, layout, default_tenant, soft_delete, validation, events=events)
    engine = setup.engine()
    write = writer(report, engine)
    tally, first = Tally(), FirstEvents()
    code = OK
    try:
        with opened(events) as source, setup.metrics(engine, logs=not quiet), progress(source, tally, shown=not quiet) as step:
            for number, event in read_lines(source, max_bytes=setup.max_event_bytes):
                tally.events += 1
                step()
                try:
                    if isinstance(event, EventError):
                        raise event
                    started = time.perf_counter_ns()
                    matches = engine.match(event, tenant, collection)
                    tally.durations.add(time.perf_counter_ns() - started)
                except EventError as error:
                    tally.bad += 1
                    error.index = None
                    note(f"{shown_name(events)}:{number}: {error}")
                    continue
                first.saw(event, matches.ignored)
                if matches.ignored is not None:
                    tally.ignored[matches.ignored] += 1
                tally.matches += len(matches)
                write(number, matches)
                if line_buffered:
                    sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except InputError as error:
        note(damaged(events, error))
        code = USAGE
    sys.stdout.flush()
    if not quiet:
        note(f"{'interrupted: ' if code == INTERRUPTED else ''}{tally}")
        _warn_of_layout(shown_name(events), engine, first)
    sys.exit(code or (SOME_BAD if tally.bad else OK))


@app.command(
    short_help="Show the contents of an engine, and how much its filters stop.",
    epilog=EXIT_CODES.format(one="some events were bad, the others were matched"),
)
@SUBSCRIPTIONS
@CONFIG
@click.argument("events", required=False, help="Events to match first, one JSON object a line.")
@PLAIN_OUTPUT
@click.option("--plot", metavar="FILE", type=PATH, help="Draw the filters while EVENTS are matched: .png, .svg, .pdf.")
@click.option("--history", metavar="FILE", type=PATH, help="Write the samples as JSON lines, which `streamer plot` draws.")
@event_shape
@TENANT
@COLLECTION
@DEFAULT_TENANT
@SOFT_DELETE
def stats(
    subscriptions: Sequence[str],
    config: str | None,
    events: str | None,
    report: PlainFormat,
    plot: Path | None,
    history: Path | None,
    format: str | None,
    layout: str | None,
    tenant: str | None,
    collection: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
) -> None:
    """Show the engine's contents, and for each collection the effect of its filter; with EVENTS, match them first."""
    if events is None and (plot or history):
        fail("--plot and --history show what happens while EVENTS are matched; name a file of them, or -")
    if plot is not None:
        check_plot(plot)
    if history is not None:
        check_writable(history)
    check_names(tenant, collection)
    engine = set_up(config, subscriptions, format, layout, default_tenant, soft_delete, events=events).engine()
    from streamer.metrics.history import History

    # A file of events may be matched in a moment.
    samples = History(engine, every=0.02)
    first = FirstEvents()
    if events is not None:
        with opened(events) as source:
            try:
                for line in engine.match_jsonl(source, tenant, collection):
                    if line.error is None:
                        first.saw(line.matches.event, line.matches.ignored)
                    if plot or history:
                        samples.tick()
            except InputError as error:
                fail(f"{shown_name(events)}: {error}")
    statistics = engine.stats()
    if report is PlainFormat.json:
        show_json(statistics.to_dict())
    else:
        show(str(statistics))
    if events is not None:
        _warn_of_layout(shown_name(events), engine, first)
    if plot or history:
        samples.sample()
    if history is not None:
        try:
            samples.write(history)
        except OSError as error:
            fail(f"{history}: {error.strerror or error}")
    if plot is not None:
        draw(samples.samples, plot)
    if statistics.rejected:
        sys.exit(SOME_BAD)


@app.command(
    short_help="Explain why a subscription matches an event, or why not.", epilog=EXIT_CODES.format(one="the event is bad")
)
@click.option("--id", metavar="ID", required=True, help="The subscription to explain.")
@SUBSCRIPTIONS
@CONFIG
@click.argument("event", default="-", help="A file with one event, or with --line one event a line.  [default: -]")
@click.option("--line", type=click.IntRange(min=1), help="The line of EVENT with the event.")
@PLAIN_OUTPUT
@event_shape
@TENANT
@COLLECTION
@DEFAULT_TENANT
@SOFT_DELETE
def explain(
    id: str,
    subscriptions: Sequence[str],
    config: str | None,
    event: str,
    line: int | None,
    report: PlainFormat,
    format: str | None,
    layout: str | None,
    tenant: str | None,
    collection: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
) -> None:
    """Explain why a subscription matches an event, or why not: each condition, the value seen, the outcome."""
    check_names(tenant, collection)
    setup = set_up(config, subscriptions, format, layout, default_tenant, soft_delete, events=event)
    engine = setup.engine_with(id)
    text = _event(event, line, setup.max_event_bytes)
    try:
        explanation = engine.explain(text, id, tenant, collection)
    except EventError as error:
        hint = "; does the file have several events? Choose one with --line" if line is None and b"\n" in text.strip() else ""
        note(f"{shown_name(event)}{f':{line}' if line else ''}: {error}{hint}")
        sys.exit(SOME_BAD)
    if report is PlainFormat.json:
        show_json(explanation.to_dict())
    else:
        # The text escapes foreign characters first, and then adds colours.
        print(explanation.text(colour=has_colour()))


@app.command(short_help="Show how each subscription is found and decided.", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@SUBSCRIPTIONS
@CONFIG
@click.option("--id", metavar="ID", help="Only this subscription.")
@PLAIN_OUTPUT
@DEFAULT_TENANT
def plan(
    subscriptions: Sequence[str],
    config: str | None,
    id: str | None,
    report: PlainFormat,
    default_tenant: str | None,
) -> None:
    """Show how each subscription is found and decided: normal form, access keys, Bloom keys, CEL program, residual."""
    setup = set_up(config, subscriptions, default_tenant=default_tenant)
    engine = setup.engine() if id is None else setup.engine_with(id)
    for number, each in enumerate([id] if id is not None else engine):
        steps = engine.plan(each)
        if report is PlainFormat.json:
            show_json(steps.to_dict())
        else:
            show(f"{chr(10) if number else ''}{steps}")


@app.command(
    short_help="Find subscriptions that never match, always match, or surprise.",
    epilog=EXIT_CODES.format(one="something was found, or some events were bad"),
)
@SUBSCRIPTIONS
@CONFIG
@click.option("--events", metavar="FILE", help="Also find what none of these events has, one JSON object a line.")
@click.option(
    "--max-events",
    metavar="N",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Read at most this number of their lines.",
)
@FAULT_OUTPUT
@event_shape
@TENANT
@COLLECTION
@DEFAULT_TENANT
def lint(
    subscriptions: Sequence[str],
    config: str | None,
    events: str | None,
    max_events: int,
    report: FaultFormat,
    format: str | None,
    layout: str | None,
    tenant: str | None,
    collection: str | None,
    default_tenant: str | None,
) -> None:
    """Find subscriptions that can never match, always match, are duplicates, are slow, surprise, or are probably mistaken.

    With --events, also find the fields, collections and types that subscriptions use and no event has.
    """
    from streamer.engine.lint import in_order

    check_names(tenant, collection)
    setup = set_up(config, subscriptions, format, layout, default_tenant, events=events)
    engine = setup.engine()
    findings, bad = engine.lint(), 0
    if events is not None:
        missing, bad = _not_in_events(engine, events, max_events, tenant, collection, setup.max_event_bytes)
        findings = in_order(engine, findings, missing)
    _show_findings(setup, findings, report)
    sys.exit(SOME_BAD if findings or bad else OK)


def _not_in_events(
    engine: streamer.Engine, events: str, most: int, tenant: str | None, collection: str | None, longest: int
) -> tuple[list[Finding], int]:
    """Return findings about parts of subscriptions that no event has, and the number of bad events."""
    from streamer.engine.occurrences import Occurrences

    occurrences, first = Occurrences(engine), FirstEvents()

    def see(_: int, event: bytes) -> None:
        first.saw(event, None)
        occurrences.see(event, tenant, collection)

    bad, is_cut = see_events(events, see, max_bytes=longest, most=most)
    more = "; there are more, of which --max-events takes some" if is_cut else ""
    note(f"{shown_name(events)}: {count(occurrences.events, 'event')} looked at{more}")
    if (reason := first.misfit(engine._options.layout)) is not None:
        note(f"{shown_name(events)}: {reason}")
    return list(occurrences.findings()), bad


def _show_findings(setup: Setup, findings: Sequence[Finding], report: FaultFormat, *, placed: bool = False) -> None:
    """Print findings; with file and line also as text if they appear next to errors."""
    places = setup.places() if findings and (placed or report is not FaultFormat.text) else {}
    for finding in findings:
        file, line = places.get(finding.subscription_id, (setup.names, None))
        if report is FaultFormat.json:
            show_json({"file": file, "line": line, **finding.to_dict()})
        elif report is FaultFormat.github:
            show(annotation(str(finding), file=file, line=line, title=finding.code.value, level="warning"))
        else:
            place = f"{file}{'' if line is None else f':{line}'}: " if placed else ""
            show(printable(f"{place}{finding}"))


@app.command(short_help="Check subscriptions, and print every error.", epilog=EXIT_CODES.format(one="some subscriptions are bad"))
@SUBSCRIPTIONS
@CONFIG
@FAULT_OUTPUT
@event_shape
@DEFAULT_TENANT
def check(
    subscriptions: Sequence[str],
    config: str | None,
    report: FaultFormat,
    format: str | None,
    layout: str | None,
    default_tenant: str | None,
) -> None:
    """Check subscriptions: print every error, every probable mistake and what never matches, with line and place."""
    setup = set_up(config, subscriptions, format, layout, default_tenant)
    engine, bad = setup.empty_engine(), 0
    for file in setup.files:
        for error in setup.add(engine, file):
            if report is FaultFormat.json:
                show_json(error.to_dict())
            elif report is FaultFormat.github:
                show(annotation(str(error.error), file=error.file, line=error.line))
            else:
                show(printable(str(error)))
            bad += 1
    suspects = [finding for finding in engine.lint() if finding.code in MISTAKES]
    _show_findings(setup, suspects, report, placed=True)
    if bad:
        note(count(bad, "bad subscription"))
        sys.exit(SOME_BAD)
    hints = f", {count(len(suspects), 'probable mistake')}" if suspects else ""
    note(f"{count(len(engine), 'good subscription')}{hints}")


@snapshot_app.command(
    name="save", short_help="Check subscriptions, and write them as a snapshot.", epilog=EXIT_CODES.replace(" 1 {one};", "")
)
@click.argument("file", metavar="FILE", help="The snapshot to write.")
@SUBSCRIPTIONS
@CONFIG
@event_shape
@DEFAULT_TENANT
@SOFT_DELETE
def save_snapshot(
    file: str,
    subscriptions: Sequence[str],
    config: str | None,
    format: str | None,
    layout: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
) -> None:
    """Check subscriptions, and write them with all options to a snapshot, which replaces an existing file at once."""
    engine = set_up(config, subscriptions, format, layout, default_tenant, soft_delete).engine()
    try:
        engine.save(file)
    except SubscriptionError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    note(f"{file}: {count(len(engine), 'subscription')}")


@debug_app.command(short_help="Print the index.", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@SUBSCRIPTIONS
@CONFIG
@click.option(
    "--max",
    "most",
    metavar="N",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Print at most this number of subscriptions.",
)
@DEFAULT_TENANT
def index(
    subscriptions: Sequence[str],
    config: str | None,
    most: int,
    default_tenant: str | None,
) -> None:
    """Print the index: partitions, segments, buckets, the condition of each, and the next bucket."""
    show(set_up(config, subscriptions, default_tenant=default_tenant).engine().dump(most).rstrip("\n"))


def main() -> None:
    """Run the command line."""
    set_up_streams()
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            # From here on Ctrl-C is an exception, so that the matches so far are reported.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            if instruction := os.environ.get(COMPLETE):
                # The shell requests the possible next words.
                from click.shell_completion import shell_complete

                sys.exit(shell_complete(app, {}, "streamer", COMPLETE, instruction))
            # Without `app()`, which handles Ctrl-C and a closed reader in its own way.
            with app.make_context("streamer", sys.argv[1:]) as context:
                app.invoke(context)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.exceptions.Exit as done:
            sys.exit(done.exit_code)
        finally:
            sys.stdout.flush()
            # Python's own end would print a traceback.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        # Reading or writing failed, for example on a full disk. The rest of the output must not fail again when Python ends.
        if not sys.stdout.closed:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        note(f"streamer: {error.strerror or error}")
        sys.exit(USAGE)


def _warn_of_layout(name: str, engine: streamer.Engine, first: FirstEvents) -> None:
    """Warn if the layout found no part in any event: otherwise a wrong layout looks like events without matches."""
    if engine.stats().finds_nothing and (reason := first.misfit(engine._options.layout)) is not None:
        note(f"{name}: {reason}")


def _event(name: str, line: int | None, longest: int) -> bytes:
    """Read one event: the whole file, or one of its lines."""
    with opened(name) as source:
        try:
            if line is None:
                return _whole(source, longest)
            lines = read_lines(source, max_bytes=longest)
            event = next((each for number, each in lines if number == line), None)
        except InputError as error:
            fail(damaged(name, error))
    if event is None:
        fail(f"{shown_name(name)}: no event in line {line}")
    if isinstance(event, EventError):
        note(f"{shown_name(name)}:{line}: {event}")
        sys.exit(SOME_BAD)
    return event


def _whole(source: BinaryIO, longest: int) -> bytes:
    """Return a file as one event, on one line or several; of a file that is too long, only enough that the engine refuses it."""
    text = bytearray()
    for chunk in read_chunks(source):
        text += chunk
        if len(text) > longest + len(BOM):
            break
    if (what := no_text(bytes(text[:LOOKS]))) is not None:
        raise InputError(what)
    return bytes(text).removeprefix(BOM)
