"""The commands `streamer config`: arguments in, text out.

What reads configurations is imported where it is used: pydantic takes longer to import than most commands to run.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NoReturn

import click

import streamer
from streamer.errors import BulkConfigError, ConfigError
from streamer.terminal import EXIT_CODES, SOME_BAD, USAGE, fail, note, set_up_logging, show

if TYPE_CHECKING:
    from streamer.config.loader import Loaded

FILE: Final = click.argument("file", metavar="FILE", help="A YAML file; variables STREAMER_… override it.")


@click.group(name="config", no_args_is_help=True)
def app() -> None:
    """Check and show configuration files."""


@app.command(epilog=EXIT_CODES.format(one="something is wrong"))
@FILE
def check(file: str) -> None:
    """Check a configuration and the subscriptions that it names: print every error, with its line and column."""
    from streamer.engine.reload import fill

    try:
        loaded = load(file)
        fill(engine := streamer.Engine(**loaded.config.engine_options()), loaded)
    except BulkConfigError as bulk:
        for error in bulk.errors:
            show(str(error).replace("\n", " "))
        note(f"{len(bulk.errors)} error{'s' if len(bulk.errors) > 1 else ''}")
        sys.exit(SOME_BAD)
    except ConfigError as error:
        show(f"{file}: {error}")
        sys.exit(SOME_BAD)
    note(f"{file}: a good configuration, {len(engine):,} subscription{'' if len(engine) == 1 else 's'}")


@app.command(name="show", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@FILE
def show_command(file: str) -> None:
    """Print the configuration in force, defaults included, and where each value comes from."""
    from streamer.config.show import show as show_config

    try:
        show(show_config(load(file)).rstrip("\n"))
    except BulkConfigError as bulk:
        refuse(bulk)


@app.command(epilog=EXIT_CODES.replace(" 1 {one};", ""))
def schema() -> None:
    """Print the JSON Schema of configuration files, for editors."""
    from streamer.config.show import json_schema

    show(json_schema().rstrip("\n"))


def load(file: str) -> Loaded:
    """Read a configuration, or say that there is no such file, and end the program. Raises BulkConfigError."""
    from streamer.config import loader

    # What it says of logging is not known before it is read, which may be what there is to warn of.
    set_up_logging("warning")
    try:
        return loader.load(file)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")


def refuse(bulk: BulkConfigError) -> NoReturn:
    """Print all that is wrong, and end the program."""
    for error in bulk.errors:
        note(str(error))
    sys.exit(USAGE)
