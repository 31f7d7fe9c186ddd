"""The command line: arguments in, text out. What it does is in `streamer.engine`.

Standard output carries results and nothing else; everything about them goes to standard error.
"""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

import streamer
from streamer.engine.histogram import Histogram
from streamer.engine.lines import read_lines
from streamer.engine.matches import Matches
from streamer.errors import (
    BulkSubscriptionError,
    ConfigError,
    EventError,
    InputError,
    StreamerError,
    SubscriptionError,
)
from streamer.layout import EventLayout

OK, SOME_BAD, USAGE, INTERRUPTED = 0, 1, 2, 130

EXIT_CODES = (
    "Exit codes: 0 all is well; 1 {one}; 2 wrong usage, bad subscriptions, or files that cannot be read or written; "
    "130 interrupted by Ctrl-C. "
    "Where the reader of the output goes away, it ends quietly by SIGPIPE."
)
LIMITS = streamer.Limits()

app = typer.Typer(
    name="streamer",
    help="Which of many subscriptions want this event?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(StrEnum):
    """How matches are printed."""

    jsonl = "jsonl"
    table = "table"
    ids = "ids"


class Validation(StrEnum):
    """How much of an event is checked."""

    full = "full"
    lazy = "lazy"


Subscriptions = Annotated[
    str, typer.Option("-s", "--subscriptions", metavar="FILE", help="Subscriptions, one JSON object a line.", show_default=False)
]
Layout = Annotated[
    str, typer.Option(metavar="NAME|FILE", help="Where an event's parts are: a preset (change, debezium, ...) or a JSON file.")
]
Tenant = Annotated[str | None, typer.Option(help="The tenant of every event; wins over what an event says.")]
Collection = Annotated[str | None, typer.Option(help="The collection of every event; wins over what an event says.")]
DefaultTenant = Annotated[str, typer.Option(help="The tenant of what names none.")]
SoftDelete = Annotated[str | None, typer.Option(metavar="FIELD", help="The field of `data` that flags a document as deleted.")]


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print version and backend.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"streamer {streamer.__version__} ({streamer.BACKEND})")
        raise typer.Exit


@app.command(epilog=EXIT_CODES.format(one="some events were bad, the others were matched"))
def match(
    subscriptions: Subscriptions,
    events: Annotated[str, typer.Argument(metavar="EVENTS", help="Events, one JSON object a line.")] = "-",
    format: Annotated[
        Format, typer.Option("-f", "--format", help="jsonl: an object a match; ids: an id a match.")
    ] = Format.jsonl,
    layout: Layout = "change",
    tenant: Tenant = None,
    collection: Collection = None,
    default_tenant: DefaultTenant = "default",
    soft_delete: SoftDelete = None,
    validation: Annotated[Validation, typer.Option(help="full: check the whole event; lazy: what is walked.")] = Validation.full,
    line_buffered: Annotated[bool, typer.Option("--line-buffered", help="Write each match at once.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no summary.")] = False,
) -> None:
    """Match events against subscriptions, and print each match with the number of its event's line.

    Files may be compressed with gzip or zstd; `-` is standard input.
    """
    if subscriptions == events == "-":
        _fail("subscriptions and events cannot both come from standard input")
    engine = _engine(subscriptions, layout, default_tenant, soft_delete, validation.value)
    write = _writer(format, engine)
    tally = Tally()
    code = OK
    try:
        with _opened(events) as source, _progress(source, tally, shown=not quiet) as show:
            for number, event in read_lines(source, max_bytes=LIMITS.max_event_bytes):
                tally.events += 1
                show()
                try:
                    if isinstance(event, EventError):
                        raise event
                    started = time.perf_counter_ns()
                    matches = engine.match(event, tenant, collection)
                    tally.durations.add(time.perf_counter_ns() - started)
                except EventError as error:
                    tally.bad += 1
                    error.index = None
                    _note(f"{_name(events)}:{number}: {error}")
                    continue
                tally.matches += len(matches)
                write(number, matches)
                if line_buffered:
                    sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except InputError as error:
        _note(f"{_name(events)}: {error}")
        code = USAGE
    sys.stdout.flush()
    if not quiet:
        _note(f"{'interrupted: ' if code == INTERRUPTED else ''}{tally}")
    raise typer.Exit(code or (SOME_BAD if tally.bad else OK))


@app.command(epilog=EXIT_CODES.format(one="the event is bad"))
def explain(
    subscriptions: Subscriptions,
    id: Annotated[str, typer.Option("--id", metavar="ID", help="The subscription to explain.", show_default=False)],
    event: Annotated[str, typer.Argument(metavar="EVENT", help="A file with one event, or with --line one event a line.")] = "-",
    line: Annotated[int | None, typer.Option(min=1, help="Which line of EVENT holds the event.")] = None,
    layout: Layout = "change",
    tenant: Tenant = None,
    collection: Collection = None,
    default_tenant: DefaultTenant = "default",
    soft_delete: SoftDelete = None,
) -> None:
    """Tell why a subscription matches an event, or why not: each condition, the value seen, the outcome."""
    if subscriptions == event == "-":
        _fail("subscriptions and event cannot both come from standard input")
    engine = _engine(subscriptions, layout, default_tenant, soft_delete)
    if id not in engine:
        _fail(f"{_name(subscriptions)}: no subscription {id!r}")
    text = _event(event, line)
    try:
        print(engine.explain(text, id, tenant, collection))
    except EventError as error:
        hint = "; does the file hold several events? --line chooses one" if line is None and b"\n" in text.strip() else ""
        _note(f"{_name(event)}{f':{line}' if line else ''}: {error}{hint}")
        raise typer.Exit(SOME_BAD) from None


@app.command(epilog=EXIT_CODES.replace(" 1 {one};", ""))
def plan(
    subscriptions: Subscriptions,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this subscription.")] = None,
    default_tenant: DefaultTenant = "default",
) -> None:
    """Tell how each subscription is found and decided: normal form, access keys, Bloom keys, CEL program, residual."""
    engine = _engine(subscriptions, default_tenant=default_tenant)
    if id is not None and id not in engine:
        _fail(f"{_name(subscriptions)}: no subscription {id!r}")
    for number, each in enumerate([id] if id is not None else engine):
        print(f"{chr(10) if number else ''}{engine.plan(each)}")


@app.command(epilog=EXIT_CODES.format(one="something was found"))
def lint(subscriptions: Subscriptions, default_tenant: DefaultTenant = "default") -> None:
    """Find subscriptions that can never match, always match, are duplicates, are slow, or surprise."""
    findings = _engine(subscriptions, default_tenant=default_tenant).lint()
    for finding in findings:
        print(finding)
    raise typer.Exit(SOME_BAD if findings else OK)


@app.command(epilog=EXIT_CODES.format(one="some subscriptions are bad"))
def check(subscriptions: Subscriptions, default_tenant: DefaultTenant = "default") -> None:
    """Check subscriptions: print every error, with its line and its place in the subscription."""
    engine = streamer.Engine(default_tenant=default_tenant)
    with _opened(subscriptions) as source:
        try:
            engine.add_jsonl(source)
        except BulkSubscriptionError as bulk:
            for error in bulk.errors:
                print(_located(subscriptions, error))
            _note(_count(len(bulk.errors), "bad subscription"))
            raise typer.Exit(SOME_BAD) from None
    _note(_count(len(engine), "good subscription"))


def main() -> None:
    """Run the command line."""
    # Python would turn a reader that went away into a traceback; a filter ends quietly, by the signal.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        try:
            app(prog_name="streamer")
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        # Reading or writing failed, as on a full disk. What stays unwritten must not fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _note(f"streamer: {error.strerror or error}")
        sys.exit(USAGE)


@dataclass(slots=True)
class Tally:
    """What `match` has seen so far; its text is the summary."""

    events: int = 0
    matches: int = 0
    bad: int = 0
    durations: Histogram = field(default_factory=Histogram)
    started: float = field(default_factory=time.monotonic)

    @property
    def rate(self) -> float:
        """Events a second, reading and writing included."""
        return self.events / max(time.monotonic() - self.started, 1e-9)

    def __str__(self) -> str:
        parts = [
            f"{_count(self.events, 'event')}, {_count(self.matches, 'match', 'matches')}, {_count(self.bad, 'bad event')}",
            f"p50 {_time(self.durations.percentile(0.50))}, p99 {_time(self.durations.percentile(0.99))} an event",
            f"{self.rate:,.0f} events/s",
            f"{streamer.BACKEND} backend",
        ]
        return "; ".join(parts)


def _engine(
    subscriptions: str,
    layout: str = "change",
    default_tenant: str = "default",
    soft_delete: str | None = None,
    validation: Literal["full", "lazy"] = "full",
) -> streamer.Engine:
    """Make an engine with the subscriptions of a file, or print what is wrong and end."""
    try:
        engine = streamer.Engine(
            layout=_layout(layout),
            default_tenant=default_tenant,
            soft_delete=soft_delete,
            validation=validation,
            limits=LIMITS,
        )
    except StreamerError as error:
        _fail(str(error))
    with _opened(subscriptions) as source:
        try:
            engine.add_jsonl(source)
        except BulkSubscriptionError as bulk:
            for bad in bulk.errors:
                _note(_located(subscriptions, bad))
            raise typer.Exit(USAGE) from None
        except InputError as error:
            _fail(f"{_name(subscriptions)}: {error}")
    return engine


def _layout(name: str) -> EventLayout:
    """Read a layout: the name of a preset, or a JSON file."""
    path = Path(name)
    if not path.is_file():
        return EventLayout.preset(name)
    try:
        return EventLayout.from_dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}") from error


def _event(name: str, line: int | None) -> bytes:
    """Read one event: the whole file, or one of its lines."""
    text = bytearray()
    with _opened(name) as source:
        try:
            for number, found in read_lines(source, max_bytes=LIMITS.max_event_bytes):
                if number != (line or number):
                    continue
                if isinstance(found, EventError):
                    _note(f"{_name(name)}:{number}: {found}")
                    raise typer.Exit(SOME_BAD)
                if line is not None:
                    return found
                text += found + b"\n"
                if len(text) > LIMITS.max_event_bytes + 1:
                    break  # the engine says that it is too long
        except InputError as error:
            _fail(f"{_name(name)}: {error}")
    if line is not None:
        _fail(f"{_name(name)}: no event in line {line}")
    return bytes(text)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`; end the program where it cannot be opened."""
    if name == "-":
        yield sys.stdin.buffer
        return
    with ExitStack() as opened:
        try:
            file = opened.enter_context(open(name, "rb", buffering=0))
        except OSError as error:
            _fail(f"{name}: {error.strerror}")
        yield file


@contextmanager
def _progress(source: BinaryIO, tally: Tally, *, shown: bool) -> Iterator[Callable[[], None]]:
    """Show progress on a terminal, where the matches do not go to it; yields what to call for each event."""
    if not shown or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    status = os.fstat(source.fileno())
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    columns = [SpinnerColumn(), TextColumn("{task.description}")]
    with Progress(*columns, *([BarColumn()] if size else []), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size)
        due = 0.0

        def show() -> None:
            nonlocal due
            now = time.monotonic()
            if now >= due:
                due = now + 0.1
                done = source.tell() if size else None
                progress.update(
                    task,
                    completed=done,
                    description=f"{tally.events:,} events, {tally.rate:,.0f} events/s, {tally.matches:,} matches",
                )

        yield show


def _writer(chosen: Format, engine: streamer.Engine) -> Callable[[int, Matches], None]:
    """Return what prints the matches of one event, given the number of its line."""
    write = sys.stdout.write
    if chosen is Format.ids:

        def ids(number: int, matches: Matches) -> None:
            for subscription_id in matches.sorted().ids():
                write(f"{_printable(subscription_id)}\n")

        return ids

    if chosen is Format.table:
        held = engine.subscriptions()
        width = min(max([12, *(len(each.id) for each in held)]), 40)
        gateway = min(max([7, *(len(each.gateway_id or "") for each in held)]), 24)
        write(f"{'LINE':>8}  {'SUBSCRIPTION':<{width}}  {'GATEWAY':<{gateway}}  {'TRANSITION':<10}  CERTAIN\n")

        def table(number: int, matches: Matches) -> None:
            for each in matches.sorted():
                columns = f"{_printable(each.subscription_id):<{width}}  {_printable(each.gateway_id or '-'):<{gateway}}"
                write(f"{number:>8}  {columns}  {each.transition or '-':<10}  {'yes' if each.certain else 'no'}\n")

        return table

    def jsonl(number: int, matches: Matches) -> None:
        for each in matches.sorted():
            shown: dict[str, Any] = {
                "line": number,
                "subscription_id": each.subscription_id,
                "gateway_id": each.gateway_id,
                "transition": each.transition,
                "certain": each.certain,
            }
            if each.labels is not None:
                shown["labels"] = each.labels
            write(json.dumps(shown, ensure_ascii=False) + "\n")

    return jsonl


def _located(name: str, error: SubscriptionError) -> str:
    """Print an error as compilers do: file, line, then the subscription, the place in it, and the reason."""
    line, error.index = error.index, None
    return f"{_name(name)}{'' if line is None else f':{line + 1}'}: {error}"


def _name(name: str) -> str:
    return "<stdin>" if name == "-" else name


def _printable(text: str) -> str:
    """Quote text that would disturb a line or a terminal."""
    return text if text.isprintable() else json.dumps(text)


def _note(text: str) -> None:
    print("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text), file=sys.stderr)


def _fail(text: str) -> NoReturn:
    _note(f"streamer: {text}")
    raise typer.Exit(USAGE)


def _count(number: int, one: str, many: str = "") -> str:
    """Print how many: `1 event`, `2,000 events`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _time(nanoseconds: int) -> str:
    """Print a duration with three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds} ns"
