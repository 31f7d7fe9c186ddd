"""The commands of the service: `streamer serve` and `streamer dead-letters`."""

from __future__ import annotations

import base64
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import click

from streamer.cli.output import PlainFormat, count, show_json
from streamer.cli.setup import CONFIG, PATH, PLAIN_OUTPUT, SUBSCRIPTIONS, load, refuse
from streamer.errors import BulkConfigError, ServiceError
from streamer.logs import log_end, log_what_fails, set_up_logging
from streamer.terminal import SERVICE_EXIT_CODES, SOME_BAD, fail, note, printable, show

if TYPE_CHECKING:
    from streamer.config.loader import Loaded
    from streamer.config.schema.config import Config
    from streamer.config.schema.service import SharedStore
    from streamer.service.run.serve import Service
    from streamer.service.store.rows import DeadLetter
    from streamer.service.store.store import Store

DATA_DIR: Final = click.option(
    "--data-dir",
    metavar="DIR",
    type=PATH,
    help="The directory of the store; wins over service.data_dir.  [default: streamer-data]",
)
#: SQLite's range.
NUMBER: Final = click.IntRange(min=1, max=2**63 - 1)
NUMBERS: Final = click.argument("numbers", metavar="[ID]...", nargs=-1, type=NUMBER, help="Their numbers in the list.")
ALL: Final = click.option("--all", "every", is_flag=True, help="All there are.")


@click.command(
    short_help="Match events, and deliver every match.",
    epilog=SERVICE_EXIT_CODES.replace(" 1 {one};", "").replace("; 130 interrupted by Ctrl-C", ""),
)
@SUBSCRIPTIONS
@CONFIG
@DATA_DIR
@click.option("--check", is_flag=True, help="Check everything that it would open, read-only, and print every fault.")
@click.option("--dev", is_flag=True, help="Serve the API without tokens, only to this machine.")
@click.option("--enable", metavar="SINK", multiple=True, help="Enable a webhook again whose endpoint answered 410.")
def serve(
    subscriptions: Sequence[str], config: str | None, data_dir: Path | None, check: bool, dev: bool, enable: Sequence[str]
) -> None:
    """Read events, match them, and deliver every match at least once.

    Without a configuration events come from standard input, and matches go to standard output. SIGTERM and Ctrl-C let it deliver
    what it has read, for 10 s at most; a second one ends it at once. SIGHUP reloads configuration and subscriptions.
    """
    read = _loading(subscriptions, config, data_dir)
    if check:
        _check(read, dev=dev)
        return
    service = _service(read, dev=dev)
    log_what_fails()
    try:
        service.run(enable, is_process=True)
    except Exception as error:
        from streamer.service.connectors.protocols import code_of

        log_end(error)
        sys.exit(code_of(error, is_start=not service.has_started))


def _check(read: _Read, *, dev: bool) -> None:
    """Print all errors that would prevent a service from starting, and end with the exit code."""
    from streamer.service.run import checking

    set_up_logging("warning")
    try:
        report = checking.check(read(), dev=dev)
    except BulkConfigError as bulk:
        refuse(bulk)
    except OSError as error:
        fail(f"{error.filename or 'configuration'}: {error.strerror or error}")
    for each in report.notes:
        note(f"note: {each}")
    for fault, _ in report.faults:
        note(str(fault))
    if report.faults:
        sys.exit(report.code)
    note(f"good: {count(report.subscriptions, 'subscription')}")


def end(error: Exception) -> NoReturn:
    """Print an error, and end the program with the code of its kind."""
    from streamer.service.connectors.protocols import code_of

    note(f"streamer: {error}")
    sys.exit(code_of(error, is_start=True))


@click.group(name="dead-letters", short_help="Look after events that could not be delivered.", no_args_is_help=True)
def app() -> None:
    """List, show, replay and drop events and messages that could not be delivered."""


@app.command(name="list", epilog=SERVICE_EXIT_CODES.replace(" 1 {one};", ""))
@CONFIG
@DATA_DIR
@PLAIN_OUTPUT
def list_command(config: str | None, data_dir: Path | None, report: PlainFormat) -> None:
    """List the dead letters, also while the service runs."""
    if report is PlainFormat.text:
        show(f"{'ID':>6}  {'FAILED':<20}  {'SOURCE':<12}  {'POSITION':>10}  {'CODE':<17}  {'TRIED':>5}  {'BYTES':>8}  SINK")
    for each in _looked(config, data_dir):
        if report is PlainFormat.json:
            show_json({name: value for name, value in _members(each).items() if name != "record"})
        else:
            show(
                f"{each.id:>6}  {_time(each.at):<20}  {each.source:<12}  {each.position:>10}  {each.code:<17}  "
                f"{each.attempts:>5}  {each.size:>8}  {each.sink or '-'}"
            )


@app.command(name="show", epilog=SERVICE_EXIT_CODES.format(one="there is no such dead letter"))
@click.argument("number", metavar="ID", type=NUMBER, help="Its number in the list.")
@CONFIG
@DATA_DIR
@PLAIN_OUTPUT
def show_command(number: int, config: str | None, data_dir: Path | None, report: PlainFormat) -> None:
    """Show a dead letter: why it is one, and the record."""
    for each in _looked(config, data_dir, number):
        try:
            record = {"record": each.record.decode()}
        except UnicodeDecodeError:
            record = {"record_base64": base64.b64encode(each.record).decode()}
        members: dict[str, Any] = {**_members(each), "at": _time(each.at)}
        del members["record"]
        if report is PlainFormat.json:
            show_json(members | record)
        else:
            for name, value in (members | record).items():
                show(f"{name}: {printable(str(value))}")
        return
    note(f"dead letter {number} does not exist")
    sys.exit(SOME_BAD)


@app.command(epilog=SERVICE_EXIT_CODES.format(one="some could not be read again and stay, or do not exist"))
@NUMBERS
@ALL
@SUBSCRIPTIONS
@CONFIG
@DATA_DIR
def replay(numbers: Sequence[int], every: bool, subscriptions: Sequence[str], config: str | None, data_dir: Path | None) -> None:
    """Match dead letters again, deliver what they match, and drop them. The service must not run meanwhile.

    Messages for webhooks go into the spool, with their ids, and the service delivers them when it runs.
    """
    existing: set[int] = set()
    choose = _selector(numbers, every, existing)
    service = _service(_loading(subscriptions, config, data_dir))
    try:
        good, bad = service.replay(choose)
    except BulkConfigError as bulk:
        refuse(bulk)
    except ServiceError as error:
        end(error)
    note(f"{count(good, 'dead letter')} replayed, {bad} could not be read again")
    if _missing(set(numbers) - existing) or bad:
        sys.exit(SOME_BAD)


@app.command(epilog=SERVICE_EXIT_CODES.format(one="some do not exist"))
@NUMBERS
@ALL
@CONFIG
@DATA_DIR
def drop(numbers: Sequence[int], every: bool, config: str | None, data_dir: Path | None) -> None:
    """Forget dead letters. The service must not run meanwhile."""
    existing: set[int] = set()
    choose = _selector(numbers, every, existing)
    where = place(config, data_dir)
    try:
        store = opened_store(where)
        if not every:
            deque(choose(store), maxlen=0)
        dropped = store.drop(None if every else numbers)
        store.close()
    except ServiceError as error:
        end(error)
    note(f"{count(dropped, 'dead letter')} dropped")
    if not every and _missing(set(numbers) - existing):
        sys.exit(SOME_BAD)


@click.group(name="spool", short_help="Look after messages that wait for webhooks.", no_args_is_help=True)
def spool_app() -> None:
    """List the messages that wait for webhooks, and forget those of sinks that are none any more."""


@spool_app.command(name="list", epilog=SERVICE_EXIT_CODES.replace(" 1 {one};", ""))
@CONFIG
@DATA_DIR
@PLAIN_OUTPUT
def spool_list(config: str | None, data_dir: Path | None, report: PlainFormat) -> None:
    """List the sinks that messages wait for, also while the service runs."""
    from streamer.service.store.lanes import lanes_of
    from streamer.service.store.opened import reading

    try:
        with reading(place(config, data_dir)) as reader:
            lanes = lanes_of(reader)
    except ServiceError as error:
        end(error)
    if report is PlainFormat.text:
        show(f"{'SINK':<20}  {'MESSAGES':>10}  {'BYTES':>14}")
    for name, messages, size in lanes:
        if report is PlainFormat.json:
            show_json({"sink": name, "messages": messages, "bytes": size})
        else:
            show(f"{name:<20}  {messages:>10}  {size:>14}")


@spool_app.command(name="forget", epilog=SERVICE_EXIT_CODES.format(one="there is no message for a sink"))
@click.argument(
    "sinks", metavar="SINK...", nargs=-1, required=True, help="Names of sinks that you removed from the configuration."
)
@CONFIG
@DATA_DIR
def spool_forget(sinks: Sequence[str], config: str | None, data_dir: Path | None) -> None:
    """Forget the messages for sinks that the configuration has no more. The service must not run meanwhile."""
    where = place(config, data_dir)
    known = read_config(config).sinks if config is not None else {}
    for name in sinks:
        if name in known and known[name].spooled is not None:
            fail(f"sinks.{name}: the configuration has this sink, which delivers its messages; remove it first")
    is_missing = False
    try:
        store = opened_store(where)
        for name in sinks:
            forgotten = store.clear(name) or 0
            note(f"sinks.{name}: {count(forgotten, 'message')} forgotten")
            is_missing = is_missing or not forgotten
        store.close()
    except ServiceError as error:
        end(error)
    if is_missing:
        sys.exit(SOME_BAD)


class _Read(Protocol):
    """Reads the configuration, or a text as if its file had that text."""

    def __call__(self, text: bytes | None = None, /) -> Loaded: ...


def _loading(subscriptions: Sequence[str], config: str | None, data_dir: Path | None) -> _Read:
    """Return the function that reads the configuration, now and at each reload; options override it."""
    if "-" in subscriptions:
        fail("--subscriptions: a service must be able to read its subscriptions again, so name files")

    def read(text: bytes | None = None, /) -> Loaded:
        from streamer.config import loader

        if text is not None or config is None:
            directory = Path() if config is None else Path(config).parent
            loaded = loader.loads(text or b"", config or "environment", directory=directory, environment=os.environ)
        else:
            loaded = loader.load(config)
        update: dict[str, Any] = {}
        if subscriptions:
            update["subscriptions"] = tuple(map(Path, subscriptions))
        if data_dir is not None:
            update["service"] = loaded.config.service.model_copy(update={"data_dir": data_dir})
        return replace(loaded, config=loaded.config.model_copy(update=update))

    return read


def _service(read: _Read, *, dev: bool = False) -> Service:
    """Make the service, or print the errors and end."""
    from streamer.service.run.serve import Service

    set_up_logging("warning")

    def in_force(loaded: Loaded) -> None:
        # If no level is set, show the user what the service does.
        is_said = loaded.origin(("logging", "level")).source is not None
        set_up_logging(loaded.config.logging.level if is_said else "info", loaded.config.logging.format)

    try:
        # A log file may be read by others, and for a long time.
        return Service(read, in_force, dev=dev, parse=read, sign_in=_tell_sign_in if sys.stderr.isatty() else None)
    except BulkConfigError as bulk:
        refuse(bulk)
    except ServiceError as error:
        end(error)
    except OSError as error:
        fail(f"{error.filename or 'configuration'}: {error.strerror or error}")


def _tell_sign_in(address: str) -> None:
    note(f"console, to sign in once within 10 minutes: {address}")


def place(config: str | None, data_dir: Path | None) -> Path | SharedStore:
    """Return the location of the store."""
    from streamer.service.run.fitting import place_of

    return data_dir if data_dir is not None else place_of(read_config(config))


def opened_store(place: Path | SharedStore) -> Store:
    """Open an existing store. Raises ServiceError."""
    from streamer.service.store.store import Store

    if isinstance(place, Path) and not place.is_dir():
        raise ServiceError(f"{place}: no store")
    return Store(place)


def read_config(config: str | None) -> Config:
    """Return a configuration, or print its errors and end."""
    try:
        return _loading((), config, None)().config if config is None else load(config).config
    except BulkConfigError as bulk:
        refuse(bulk)


def _looked(config: str | None, data_dir: Path | None, number: int | None = None) -> Iterable[DeadLetter]:
    """Yield the dead letters of a store, some at a time."""
    from streamer.service.store.opened import look

    where, after = place(config, data_dir), 0
    try:
        while letters := look(where, after, number=number, records=number is not None):
            yield from letters
            if number is not None:
                return
            after = letters[-1].id
    except ServiceError as error:
        end(error)


def _selector(numbers: Sequence[int], every: bool, passed: set[int]) -> Callable[[Store], Iterable[DeadLetter]]:
    """Return the function that reads the chosen dead letters, and adds the number of each one to *passed*."""
    if every == bool(numbers):
        fail("name the numbers of dead letters, or set --all")

    from streamer.service.store.letters import PAGE

    def choose(store: Store) -> Iterable[DeadLetter]:
        after = 0
        while letters := store.letters(after, PAGE):
            for each in letters:
                if every or each.id in numbers:
                    passed.add(each.id)
                    yield each
            after = letters[-1].id

    return choose


def _missing(numbers: Iterable[int]) -> bool:
    """Name missing dead letters; return whether any was missing."""
    names = [str(number) for number in sorted(numbers)]
    if names:
        note(f"dead letter {', '.join(names)} does not exist")
    return bool(names)


def _members(letter: DeadLetter) -> dict[str, Any]:
    """Return the output for a dead letter; one of a record omits the members that only messages have."""
    never = ("key", "spooled", "record_key", "kept")
    own = ("sink", "message", "matches", *never)
    hidden = never if letter.stage == "deliver" else own
    return {name: value for name, value in asdict(letter).items() if name not in hidden}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
