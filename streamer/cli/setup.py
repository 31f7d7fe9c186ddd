"""The options that commands share, and the engine that they make: options over a configuration file, subscriptions from files."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

import streamer
from streamer.cli.inputs import opened, shown_name
from streamer.cli.output import FaultFormat, PlainFormat
from streamer.engine import fitting
from streamer.engine.lines import read_lines
from streamer.errors import (
    BulkConfigError,
    BulkSubscriptionError,
    ConfigError,
    DuplicateSubscriptionError,
    InputError,
    StreamerError,
    SubscriptionError,
)
from streamer.events.layout import EventLayout, unknown_format
from streamer.logs import set_up_logging
from streamer.model import Limits
from streamer.terminal import USAGE, fail, note

if TYPE_CHECKING:
    from streamer.config import Config
    from streamer.config.loader import Loaded


#: The function of a command.
Command = TypeVar("Command", bound=Callable[..., Any])


class Validation(StrEnum):
    """How much of an event is checked."""

    full = "full"
    lazy = "lazy"


def output_option(default: StrEnum, help: str) -> Callable[[Command], Command]:
    """Return the option `--output`, whose values are the members of the class of *default*."""
    choice = click.Choice(type(default))
    return click.option("-o", "--output", "report", type=choice, default=default, show_default=True, help=help)


PATH: Final = click.Path(path_type=Path)

#: Options that several commands take.
CONFIG: Final = click.option("-c", "--config", metavar="FILE", help="A YAML file with all of these; options override it.")
SUBSCRIPTIONS: Final = click.option(
    "-s",
    "--subscriptions",
    metavar="FILE",
    multiple=True,
    help="Subscriptions, one JSON object a line; -s A -s B reads both.",
)
_FORMAT: Final = click.option(
    "-f",
    "--format",
    metavar="NAME",
    help="The format of events: debezium, maxwell, ... (`streamer formats`).  [default: change]",
    shell_complete=lambda _context, _option, begun: [name for name in EventLayout.PRESETS if name.startswith(begun)],
)
_LAYOUT: Final = click.option("--layout", metavar="FILE", help="A JSON file with the layout of events of another shape.")


def event_shape(command: Command) -> Command:
    """Add the options `--format` and `--layout`, of which `set_up` takes the values."""
    return _FORMAT(_LAYOUT(command))


PLAIN_OUTPUT: Final = output_option(PlainFormat.text, "text: for people; json: for programs.")
FAULT_OUTPUT: Final = output_option(FaultFormat.text, "text: for people; json: an object each; github: annotations.")
TENANT: Final = click.option("--tenant", help="The tenant of every event; overrides that of an event.")
COLLECTION: Final = click.option("--collection", help="The collection of every event; overrides that of an event.")
DEFAULT_TENANT: Final = click.option("--default-tenant", help="The tenant of what names none.  [default: default]")
SOFT_DELETE: Final = click.option("--soft-delete", metavar="FIELD", help="The field of `data` that flags a document as deleted.")
VALIDATION: Final = click.option(
    "--validation",
    type=click.Choice(Validation),
    help="full: check the whole event; lazy: the parts that are read.  [default: full]",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """An error in a file of subscriptions; `str()` prints it as compilers do."""

    file: str
    line: int | None
    error: SubscriptionError | InputError

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.error}"

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain JSON."""
        members = {name: getattr(self.error, name, None) for name in ("subscription_id", "place", "reason")}
        return {"file": self.file, "line": self.line, **members, "reason": members["reason"] or str(self.error)}


@dataclass(frozen=True, slots=True)
class Setup:
    """The options of an engine, the files of its subscriptions, and the configuration, if there is one."""

    options: Mapping[str, Any]
    files: Sequence[str]
    config: Config | None

    @property
    def names(self) -> str:
        """The names of the files, for messages."""
        return ", ".join(map(shown_name, self.files))

    @property
    def max_event_bytes(self) -> int:
        """The most bytes of an event."""
        limits: Limits = self.options["limits"]
        return limits.max_event_bytes

    def engine(self) -> streamer.Engine:
        """Make an engine with its subscriptions, or print the errors and end."""
        engine = self.empty_engine()
        errors = [error for file in self.files for error in self.add(engine, file)]
        for error in errors:
            note(str(error))
        if errors:
            sys.exit(USAGE)
        return engine

    def engine_with(self, subscription_id: str) -> streamer.Engine:
        """Make an engine, or report a missing subscription and end."""
        engine = self.engine()
        if subscription_id not in engine:
            fail(f"{self.names}: unknown subscription {subscription_id!r}")
        return engine

    def empty_engine(self) -> streamer.Engine:
        """Make an engine without subscriptions, or print the errors and end."""
        try:
            return streamer.Engine(**self.options)
        except StreamerError as error:
            fail(str(error))

    def add(self, engine: streamer.Engine, file: str) -> Sequence[Fault]:
        """Add the subscriptions of a file to an engine; return their faults."""
        with opened(file) as source:
            try:
                engine.add_jsonl(source)
            except BulkSubscriptionError as bulk:
                return [
                    fault(file, error.in_files(is_stored=error.subscription_id in engine))
                    if isinstance(error, DuplicateSubscriptionError)
                    else fault(file, error)
                    for error in bulk.errors
                ]
            except InputError as error:
                return [Fault(shown_name(file), error.line, error)]
        return ()

    def places(self) -> dict[str, tuple[str, int]]:
        """Return file and line of each subscription, by its id, as far as the files can be read again."""
        by_id: dict[str, tuple[str, int]] = {}
        for file in self.files:
            if not Path(file).is_file():
                continue
            with opened(file) as source:
                for number, line in read_lines(source, max_bytes=self.max_event_bytes):
                    if isinstance(line, bytes):
                        by_id[json.loads(line)["id"]] = (file, number)
        return by_id

    @contextmanager
    def metrics(self, engine: streamer.Engine, *, logs: bool) -> Iterator[None]:
        """Serve the metrics of an engine in the context, if the configuration enables it; end the program on an error."""
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
            if logs:
                note(f"metrics: {server.url}")
            yield


def set_up(
    config: str | None,
    subscriptions: Sequence[str],
    format: str | None = None,
    layout: str | None = None,
    default_tenant: str | None = None,
    soft_delete: str | None = None,
    validation: Validation | None = None,
    *,
    events: str | None = None,
    needs_files: bool = True,
) -> Setup:
    """Combine the given options with those of a configuration file, or print the errors and end.

    Args:
        events: another file that will be read.
        needs_files: whether at least one file of subscriptions is required.
    """
    options: dict[str, Any] = {"limits": Limits()}
    files: Sequence[str] = ()
    loaded = None
    set_up_logging("warning")
    # The commands check more events than the first, and report at the end.
    logging.getLogger(fitting.__name__).setLevel(logging.ERROR)
    if config is not None:
        try:
            loaded = load(config)
        except BulkConfigError as bulk:
            refuse(bulk)
        set_up_logging(loaded.config.logging.level, loaded.config.logging.format)
        options, files = loaded.config.engine_options(), [loaded.file(file) for file in loaded.config.subscriptions]
    files = subscriptions or files
    if needs_files and not files:
        fail("Missing option '--subscriptions', or '--config' with a file that names some")
    if [*files, events].count("-") > 1:
        fail(f"{'subscriptions and events' if events == '-' else 'two files'} cannot both come from standard input")
    overrides = {"default_tenant": default_tenant, "soft_delete": soft_delete, "validation": validation and validation.value}
    options |= {name: value for name, value in overrides.items() if value is not None}
    if (custom_layout := read_layout(format, layout)) is not None:
        options["layout"] = custom_layout
    return Setup(options, files, loaded and loaded.config)


def load(file: str) -> Loaded:
    """Read a configuration, or report a missing file and end the program. Raises BulkConfigError."""
    from streamer.config import loader

    # The file's own logging settings are unknown before it is read, and reading may already cause a warning.
    set_up_logging("warning")
    try:
        return loader.load(file)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")


def refuse(bulk: BulkConfigError) -> NoReturn:
    """Print all errors, and end the program."""
    for error in bulk.errors:
        note(str(error))
    sys.exit(USAGE)


def check_names(tenant: str | None, collection: str | None) -> None:
    """Refuse `*`, which stands for every name, and end the program."""
    for option, name in (("--tenant", tenant), ("--collection", collection)):
        if name == "*":
            fail(f"{option}: '*' stands for every one and cannot name one; leave {option} out if the events contain it")


def read_layout(format: str | None, name: str | None) -> EventLayout | None:
    """Return the layout that `--format` or the file of `--layout` describes; None if neither is set."""
    if format is not None and name is not None:
        fail("set --format or --layout, not both")
    if name is not None and name in EventLayout.PRESETS and not Path(name).is_file():
        # Compat: before there was `--format`, the name of a preset was a layout.
        note(f"--layout {name}: it is the name of a format: set --format {name}")
        return EventLayout.preset(name)
    if format is not None:
        if format not in EventLayout.PRESETS:
            fail(f"--format {format}: {unknown_format(format)}{_meant_output(format)}")
        return EventLayout.preset(format)
    if name is None:
        return None
    try:
        return EventLayout.from_dict(json.loads(Path(name).read_bytes()))
    except ConfigError as error:
        fail(f"--layout {name}: {error.reason if error.place == 'preset' else error}")
    except OSError as error:
        fail(f"--layout {name}: {error.strerror or error}; for the name of a format set --format")
    except (ValueError, RecursionError) as error:
        fail(f"--layout {name}: {error}")


def fault(name: str, error: SubscriptionError) -> Fault:
    """Return the position of an error in a file; the error's own index becomes its line."""
    line, error.index = error.index, None
    return Fault(shown_name(name), None if line is None else line + 1, error)


def _meant_output(format: str) -> str:
    """Return a hint for someone who sets the format of the output as earlier versions had it."""
    outputs = ("github", "ids", "json", "jsonl", "junit", "table", "text")
    return f"; for the output set --output {format}" if format in outputs else ""
