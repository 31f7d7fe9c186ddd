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
from typing import TYPE_CHECKING, Annotated, Any

import typer

import streamer
from streamer.cli.config import app as config_app
from streamer.cli.config import load, refuse
from streamer.cli.inputs import damaged, opened, shown_name
from streamer.cli.layouts import app as layouts_app
from streamer.cli.output import Format, Tally, count, progress, writer
from streamer.cli.plot import app as plot_app
from streamer.cli.plot import check_folder, check_plot, draw
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
from streamer.metrics.history import History
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

app = typer.Typer(
    name="streamer",
    help="Which of many subscriptions want this event?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Validation(StrEnum):
    """How much of an event is checked."""

    full = "full"
    lazy = "lazy"


ConfigFile = Annotated[
    str | None,
    typer.Option("-c", "--config", metavar="FILE", help="A YAML file that says all of this; options win over it."),
]
Subscriptions = Annotated[
    list[str] | None,
    typer.Option("-s", "--subscriptions", metavar="FILE", help="Subscriptions, one JSON object a line; -s A -s B reads both."),
]
Layout = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE", help="Where an event's parts are: a preset (debezium, ...) or a JSON file.  \\[default: change]"
    ),
]
Tenant = Annotated[str | None, typer.Option(help="The tenant of every event; wins over what an event says.")]
Collection = Annotated[str | None, typer.Option(help="The collection of every event; wins over what an event says.")]
DefaultTenant = Annotated[str | None, typer.Option(help="The tenant of what names none.  \\[default: default]")]
SoftDelete = Annotated[str | None, typer.Option(metavar="FIELD", help="The field of `data` that flags a document as deleted.")]

debug_app = typer.Typer(name="debug", help="Look inside an engine.", no_args_is_help=True)

app.add_typer(config_app)
app.add_typer(layouts_app)
app.add_typer(plot_app)
app.add_typer(snapshot_app)
app.add_typer(debug_app)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print version and backend.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"streamer {streamer.__version__} ({streamer.BACKEND})")
        raise typer.Exit


@app.command(epilog=EXIT_CODES.format(one="some events were bad, the others were matched"))
def match(
    subscriptions: Subscriptions = None,
    config: ConfigFile = None,
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="Events, one JSON object a line.")] = "-",
    format: Annotated[
        Format, typer.Option("-f", "--format", help="jsonl: an object a match; ids: an id a match; table: for people.")
    ] = Format.jsonl,
    layout: Layout = None,
    tenant: Tenant = None,
    collection: Collection = None,
    default_tenant: DefaultTenant = None,
    soft_delete: SoftDelete = None,
    validation: Annotated[
        Validation | None, typer.Option(help="full: check the whole event; lazy: what is walked.  \\[default: full]")
    ] = None,
    line_buffered: Annotated[bool, typer.Option("--line-buffered", help="Write each match at once.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no summary.")] = False,
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
    raise typer.Exit(code or (SOME_BAD if tally.bad else OK))


@app.command(epilog=EXIT_CODES.format(one="some events were bad, the others were matched"))
def stats(
    subscriptions: Subscriptions = None,
    config: ConfigFile = None,
    events: Annotated[str | None, typer.Argument(metavar="EVENTS", help="Events to match first, one JSON object a line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the filters while EVENTS are matched: .png, .svg, .pdf.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what is drawn as JSON lines; `streamer plot` draws it.")
    ] = None,
    layout: Layout = None,
    tenant: Tenant = None,
    collection: Collection = None,
    default_tenant: DefaultTenant = None,
    soft_delete: SoftDelete = None,
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
        raise typer.Exit(SOME_BAD)


@app.command(epilog=EXIT_CODES.format(one="the event is bad"))
def explain(
    id: Annotated[str, typer.Option("--id", metavar="ID", help="The subscription to explain.", show_default=False)],
    subscriptions: Subscriptions = None,
    config: ConfigFile = None,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="A file with one event, or with --line one event a line.")] = "-",
    line: Annotated[int | None, typer.Option(min=1, help="Which line of EVENT holds the event.")] = None,
    layout: Layout = None,
    tenant: Tenant = None,
    collection: Collection = None,
    default_tenant: DefaultTenant = None,
    soft_delete: SoftDelete = None,
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
        raise typer.Exit(SOME_BAD) from None


@app.command(epilog=EXIT_CODES.replace(" 1 {one};", ""))
def plan(
    subscriptions: Subscriptions = None,
    config: ConfigFile = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this subscription.")] = None,
    default_tenant: DefaultTenant = None,
) -> None:
    """Tell how each subscription is found and decided: normal form, access keys, Bloom keys, CEL program, residual."""
    setup = _setup(config, subscriptions, default_tenant=default_tenant)
    engine = setup.engine()
    if id is not None and id not in engine:
        fail(f"{setup.names}: no subscription {id!r}")
    for number, each in enumerate([id] if id is not None else engine):
        show(f"{chr(10) if number else ''}{engine.plan(each)}")


@app.command(epilog=EXIT_CODES.format(one="something was found"))
def lint(subscriptions: Subscriptions = None, config: ConfigFile = None, default_tenant: DefaultTenant = None) -> None:
    """Find subscriptions that can never match, always match, are duplicates, are slow, or surprise."""
    findings = _setup(config, subscriptions, default_tenant=default_tenant).engine().lint()
    for finding in findings:
        show(printable(str(finding)))
    raise typer.Exit(SOME_BAD if findings else OK)


@app.command(epilog=EXIT_CODES.format(one="some subscriptions are bad"))
def check(subscriptions: Subscriptions = None, config: ConfigFile = None, default_tenant: DefaultTenant = None) -> None:
    """Check subscriptions: print every error, with its line and its place in the subscription."""
    setup = _setup(config, subscriptions, default_tenant=default_tenant)
    engine, bad = setup.empty_engine(), 0
    for file in setup.files:
        for error in setup.add(engine, file):
            show(printable(error))
            bad += 1
    if bad:
        note(count(bad, "bad subscription"))
        raise typer.Exit(SOME_BAD)
    note(count(len(engine), "good subscription"))


@snapshot_app.command(name="save", epilog=EXIT_CODES.replace(" 1 {one};", ""))
def save_snapshot(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The snapshot to write.", show_default=False)],
    subscriptions: Subscriptions = None,
    config: ConfigFile = None,
    layout: Layout = None,
    default_tenant: DefaultTenant = None,
    soft_delete: SoftDelete = None,
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
def index(
    subscriptions: Subscriptions = None,
    config: ConfigFile = None,
    most: Annotated[int, typer.Option("--max", metavar="N", min=0, help="Print at most so many subscriptions.")] = 1000,
    default_tenant: DefaultTenant = None,
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
            app(prog_name="streamer")
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
            raise typer.Exit(USAGE)
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
    subscriptions: Sequence[str] | None,
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
                    raise typer.Exit(SOME_BAD)
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
