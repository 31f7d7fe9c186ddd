"""The command line: arguments in, text out. What it does is in `streamer.engine`.

Standard output carries results and nothing else; everything about them goes to standard error.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import streamer
from streamer.cli.config import app as config_app
from streamer.cli.config import load, refuse
from streamer.cli.inputs import damaged, opened, shown_name
from streamer.cli.layouts import app as layouts_app
from streamer.cli.output import Format, Tally, count, progress, writer
from streamer.cli.plot import check_folder, check_plot, draw
from streamer.cli.plot import plot as plot_command
from streamer.cli.snapshot import app as snapshot_app
from streamer.engine.fitting import FirstEvents
from streamer.engine.lines import read_lines
from streamer.errors import (
    BulkConfigError,
    BulkSubscriptionError,
    ConfigError,
    DuplicateSubscriptionError,
    EventError,
    InputError,
    StreamerError,
    SubscriptionError,
)
from streamer.events.layout import EventLayout
from streamer.model import Limits
from streamer.terminal import (
    EXIT_CODES,
    INTERRUPTED,
    OK,
    SOME_BAD,
    USAGE,
    fail,
    note,
    printable,
    set_up_logging,
    show,
)

if TYPE_CHECKING:
    from streamer.config import Config


class Validation(StrEnum):
    """How much of an event is checked."""

    full = "full"
    lazy = "lazy"


PATH: Final = click.Path(path_type=Path)

#: Options that several commands take.
CONFIG: Final = click.option("-c", "--config", metavar="FILE", help="A YAML file that says all of this; options win over it.")
SUBSCRIPTIONS: Final = click.option(
    "-s",
    "--subscriptions",
    metavar="FILE",
    multiple=True,
    help="Subscriptions, one JSON object a line; -s A -s B reads both.",
)
LAYOUT: Final = click.option(
    "--layout",
    metavar="NAME|FILE",
    help="Where an event's parts are: a preset (debezium, ...) or a JSON file.  [default: change]",
)
TENANT: Final = click.option("--tenant", help="The tenant of every event; wins over what an event says.")
COLLECTION: Final = click.option("--collection", help="The collection of every event; wins over what an event says.")
DEFAULT_TENANT: Final = click.option("--default-tenant", help="The tenant of what names none.  [default: default]")
SOFT_DELETE: Final = click.option("--soft-delete", metavar="FIELD", help="The field of `data` that flags a document as deleted.")


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


for command in (config_app, layouts_app, plot_command, snapshot_app, debug_app):
    app.add_command(command)


@app.command(epilog=EXIT_CODES.format(one="some events were bad, the others were matched"))
@SUBSCRIPTIONS
@CONFIG
@click.argument("events", default="-", help="Events, one JSON object a line.  [default: -]")
@click.option(
    "-f",
    "--format",
    type=click.Choice(Format),
    default=Format.jsonl,
    show_default=True,
    help="jsonl: an object a match; ids: an id a match; table: for people.",
)
@LAYOUT
@TENANT
@COLLECTION
@DEFAULT_TENANT
@SOFT_DELETE
@click.option(
    "--validation", type=click.Choice(Validation), help="full: check the whole event; lazy: what is walked.  [default: full]"
)
@click.option("--line-buffered", is_flag=True, help="Write each match at once.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
def match(
    subscriptions: Sequence[str],
    config: str | None,
    events: str,
    format: Format,
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
    _check_names(tenant, collection)
    setup = _setup(config, subscriptions, layout, default_tenant, soft_delete, validation, events=events)
    engine = setup.engine()
    write = writer(format, engine)
    tally, first = Tally(), FirstEvents()
    code = OK
    try:
        with opened(events) as source, setup.metrics(engine, told=not quiet), progress(source, tally, shown=not quiet) as seen:
            for number, event in read_lines(source, max_bytes=setup.max_event_bytes):
                tally.events += 1
                seen()
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


@app.command(epilog=EXIT_CODES.format(one="some events were bad, the others were matched"))
@SUBSCRIPTIONS
@CONFIG
@click.argument("events", required=False, help="Events to match first, one JSON object a line.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--plot", metavar="FILE", type=PATH, help="Draw the filters while EVENTS are matched: .png, .svg, .pdf.")
@click.option("--history", metavar="FILE", type=PATH, help="Write what is drawn as JSON lines; `streamer plot` draws it.")
@LAYOUT
@TENANT
@COLLECTION
@DEFAULT_TENANT
@SOFT_DELETE
def stats(
    subscriptions: Sequence[str],
    config: str | None,
    events: str | None,
    as_json: bool,
    plot: Path | None,
    history: Path | None,
    layout: str | None,
    tenant: str | None,
    collection: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
) -> None:
    """Tell what the engine holds, and for each collection what its filter stops; EVENTS are matched first, where given."""
    if events is None and (plot or history):
        fail("--plot and --history show what happens while EVENTS are matched; name a file of them, or -")
    if plot is not None:
        check_plot(plot)
    if history is not None:
        check_folder(history)
    _check_names(tenant, collection)
    engine = _setup(config, subscriptions, layout, default_tenant, soft_delete, events=events).engine()
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
    told = engine.stats()
    show(json.dumps(told.to_dict(), ensure_ascii=False) if as_json else str(told))
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
    if told.rejected:
        sys.exit(SOME_BAD)


@app.command(epilog=EXIT_CODES.format(one="the event is bad"))
@click.option("--id", metavar="ID", required=True, help="The subscription to explain.")
@SUBSCRIPTIONS
@CONFIG
@click.argument("event", default="-", help="A file with one event, or with --line one event a line.  [default: -]")
@click.option("--line", type=click.IntRange(min=1), help="Which line of EVENT holds the event.")
@LAYOUT
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
    layout: str | None,
    tenant: str | None,
    collection: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
) -> None:
    """Tell why a subscription matches an event, or why not: each condition, the value seen, the outcome."""
    _check_names(tenant, collection)
    setup = _setup(config, subscriptions, layout, default_tenant, soft_delete, events=event)
    engine = setup.engine()
    if id not in engine:
        fail(f"{setup.names}: no subscription {id!r}")
    text = _event(event, line, setup.max_event_bytes)
    try:
        show(str(engine.explain(text, id, tenant, collection)))
    except EventError as error:
        hint = "; does the file hold several events? --line chooses one" if line is None and b"\n" in text.strip() else ""
        note(f"{shown_name(event)}{f':{line}' if line else ''}: {error}{hint}")
        sys.exit(SOME_BAD)


@app.command(epilog=EXIT_CODES.replace(" 1 {one};", ""))
@SUBSCRIPTIONS
@CONFIG
@click.option("--id", metavar="ID", help="Only this subscription.")
@DEFAULT_TENANT
def plan(
    subscriptions: Sequence[str],
    config: str | None,
    id: str | None,
    default_tenant: str | None,
) -> None:
    """Tell how each subscription is found and decided: normal form, access keys, Bloom keys, CEL program, residual."""
    setup = _setup(config, subscriptions, default_tenant=default_tenant)
    engine = setup.engine()
    if id is not None and id not in engine:
        fail(f"{setup.names}: no subscription {id!r}")
    for number, each in enumerate([id] if id is not None else engine):
        show(f"{chr(10) if number else ''}{engine.plan(each)}")


@app.command(epilog=EXIT_CODES.format(one="something was found"))
@SUBSCRIPTIONS
@CONFIG
@DEFAULT_TENANT
def lint(
    subscriptions: Sequence[str],
    config: str | None,
    default_tenant: str | None,
) -> None:
    """Find subscriptions that can never match, always match, are duplicates, are slow, or surprise."""
    findings = _setup(config, subscriptions, default_tenant=default_tenant).engine().lint()
    for finding in findings:
        show(printable(str(finding)))
    sys.exit(SOME_BAD if findings else OK)


@app.command(epilog=EXIT_CODES.format(one="some subscriptions are bad"))
@SUBSCRIPTIONS
@CONFIG
@DEFAULT_TENANT
def check(
    subscriptions: Sequence[str],
    config: str | None,
    default_tenant: str | None,
) -> None:
    """Check subscriptions: print every error, with its line and its place in the subscription."""
    setup = _setup(config, subscriptions, default_tenant=default_tenant)
    engine, bad = setup.empty_engine(), 0
    for file in setup.files:
        for error in setup.add(engine, file):
            show(printable(error))
            bad += 1
    if bad:
        note(count(bad, "bad subscription"))
        sys.exit(SOME_BAD)
    note(count(len(engine), "good subscription"))


@snapshot_app.command(name="save", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@click.argument("file", metavar="FILE", help="The snapshot to write.")
@SUBSCRIPTIONS
@CONFIG
@LAYOUT
@DEFAULT_TENANT
@SOFT_DELETE
def save_snapshot(
    file: str,
    subscriptions: Sequence[str],
    config: str | None,
    layout: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
) -> None:
    """Check subscriptions, and write them with all options as a snapshot; what was there before is replaced at once."""
    engine = _setup(config, subscriptions, layout, default_tenant, soft_delete).engine()
    try:
        engine.save(file)
    except SubscriptionError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    note(f"{file}: {count(len(engine), 'subscription')}")


@debug_app.command(epilog=EXIT_CODES.replace(" 1 {one};", ""))
@SUBSCRIPTIONS
@CONFIG
@click.option(
    "--max",
    "most",
    metavar="N",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Print at most so many subscriptions.",
)
@DEFAULT_TENANT
def index(
    subscriptions: Sequence[str],
    config: str | None,
    most: int,
    default_tenant: str | None,
) -> None:
    """Print the index: partitions, segments, buckets, what each asks of an event, and where it leads."""
    show(_setup(config, subscriptions, default_tenant=default_tenant).engine().dump(most).rstrip("\n"))


def main() -> None:
    """Run the command line."""
    # Python would turn a reader that went away into a traceback; a filter ends quietly, by the signal.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            # From here on it is an exception, so that what was matched is told.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            # Not by `app()`, which makes an end of its own of Ctrl-C and of a reader that went away.
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
        # Reading or writing failed, as on a full disk. What stays unwritten must not fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        note(f"streamer: {error.strerror or error}")
        sys.exit(USAGE)


@dataclass(frozen=True, slots=True)
class Setup:
    """What an engine is made of, the files of its subscriptions, and the configuration, where there is one."""

    options: Mapping[str, Any]
    files: Sequence[str]
    config: Config | None

    @property
    def names(self) -> str:
        """The files, as messages call them."""
        return ", ".join(map(shown_name, self.files))

    @property
    def max_event_bytes(self) -> int:
        """How long a line of events may be."""
        limits: Limits = self.options["limits"]
        return limits.max_event_bytes

    def engine(self) -> streamer.Engine:
        """Make an engine with its subscriptions, or print what is wrong and end."""
        engine = self.empty_engine()
        errors = [error for file in self.files for error in self.add(engine, file)]
        for error in errors:
            note(error)
        if errors:
            sys.exit(USAGE)
        return engine

    def empty_engine(self) -> streamer.Engine:
        """Make an engine without subscriptions, or say what is wrong and end."""
        try:
            return streamer.Engine(**self.options)
        except StreamerError as error:
            fail(str(error))

    def add(self, engine: streamer.Engine, file: str) -> Sequence[str]:
        """Add the subscriptions of a file to an engine; return what is wrong with them, as compilers print it."""
        with opened(file) as source:
            try:
                engine.add_jsonl(source)
            except BulkSubscriptionError as bulk:
                return [
                    located(file, error.in_files(is_held=error.subscription_id in engine))
                    if isinstance(error, DuplicateSubscriptionError)
                    else located(file, error)
                    for error in bulk.errors
                ]
            except InputError as error:
                return [damaged(file, error)]
        return ()

    @contextmanager
    def metrics(self, engine: streamer.Engine, *, told: bool) -> Iterator[None]:
        """Serve the metrics of an engine meanwhile, where the configuration says so, or say why not and end."""
        if self.config is None or not self.config.metrics.enabled:
            yield
            return
        from streamer.engine.reload import serve

        try:
            server = serve(engine, self.config)
        except OSError as error:
            fail(f"metrics: {error.strerror or error}; STREAMER_METRICS__ENABLED=false serves none")
        assert server is not None
        with server:
            if told:
                note(f"metrics: {server.url}")
            yield


def _setup(
    config: str | None,
    subscriptions: Sequence[str],
    layout: str | None = None,
    default_tenant: str | None = None,
    soft_delete: str | None = None,
    validation: Validation | None = None,
    *,
    events: str | None = None,
) -> Setup:
    """Put the options given over those of a configuration file, or print what is wrong and end.

    Args:
        events: what will be read besides.
    """
    options: dict[str, Any] = {"limits": Limits()}
    files: Sequence[str] = ()
    loaded = None
    set_up_logging("warning")
    if config is not None:
        try:
            loaded = load(config)
        except BulkConfigError as bulk:
            refuse(bulk)
        set_up_logging(loaded.config.logging.level)
        options, files = loaded.config.engine_options(), [loaded.file(file) for file in loaded.config.subscriptions]
    files = subscriptions or files
    if not files:
        fail("Missing option '--subscriptions', or '--config' with a file that names some")
    if [*files, events].count("-") > 1:
        fail(f"{'subscriptions and events' if events == '-' else 'two files'} cannot both come from standard input")
    given = {"default_tenant": default_tenant, "soft_delete": soft_delete, "validation": validation and validation.value}
    options |= {name: value for name, value in given.items() if value is not None}
    if layout is not None:
        options["layout"] = read_layout(layout)
    return Setup(options, files, loaded and loaded.config)


def _warn_of_layout(name: str, engine: streamer.Engine, first: FirstEvents) -> None:
    """Say so where the layout found nothing in any event: else a wrong one looks as if nobody wanted them."""
    if engine.stats().finds_nothing and (reason := first.misfit(engine._options.layout)) is not None:
        note(f"{name}: {reason}")


def _check_names(tenant: str | None, collection: str | None) -> None:
    for option, name in (("--tenant", tenant), ("--collection", collection)):
        if name == "*":
            fail(f"{option}: '*' stands for every one and cannot name one; leave {option} out where the events say it")


def read_layout(name: str) -> EventLayout:
    """Read a layout: the name of a preset, or a JSON file."""
    path = Path(name)
    try:
        if not path.is_file():
            return EventLayout.preset(name)
        return EventLayout.from_dict(json.loads(path.read_bytes()))
    except ConfigError as error:
        fail(f"--layout {name}: {error.reason if error.place == 'preset' else error}")
    except OSError as error:
        fail(f"--layout {name}: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        fail(f"--layout {name}: {error}")


def _event(name: str, line: int | None, longest: int) -> bytes:
    """Read one event: the whole file, or one of its lines."""
    text = bytearray()
    with opened(name) as source:
        try:
            for number, found in read_lines(source, max_bytes=longest):
                if number != (line or number):
                    continue
                if isinstance(found, EventError):
                    note(f"{shown_name(name)}:{number}: {found}")
                    sys.exit(SOME_BAD)
                if line is not None:
                    return found
                text += found + b"\n"
                if len(text) > longest + 1:
                    break  # the engine says that it is too long
        except InputError as error:
            fail(damaged(name, error))
    if line is not None:
        fail(f"{shown_name(name)}: no event in line {line}")
    return bytes(text)


def located(name: str, error: SubscriptionError) -> str:
    """Print an error as compilers do: file, line, then the subscription, the place in it, and the reason."""
    line, error.index = error.index, None
    return f"{shown_name(name)}{'' if line is None else f':{line + 1}'}: {error}"
