"""The commands `streamer config`: arguments in, text out.

Modules that read configurations are imported on use: pydantic takes longer to import than most commands to run.
"""

from __future__ import annotations

import sys
from typing import Final

import click

import streamer
from streamer.cli.output import FaultFormat, annotation, count, show_json
from streamer.cli.setup import FAULT_OUTPUT, load, refuse
from streamer.errors import BulkConfigError, ConfigError
from streamer.terminal import EXIT_CODES, SOME_BAD, note, show

FILE: Final = click.argument("file", metavar="FILE", help="A YAML file; variables STREAMER_… override it.")


@click.group(name="config", no_args_is_help=True)
def app() -> None:
    """Check and show configuration files."""


@app.command(short_help="Check a configuration and its subscriptions.", epilog=EXIT_CODES.format(one="something is wrong"))
@FILE
@FAULT_OUTPUT
def check(file: str, report: FaultFormat) -> None:
    """Check a configuration and the subscriptions that it names: print every error, with its line and column."""
    from streamer.engine.subscription_files import fill

    try:
        loaded = load(file)
        fill(engine := streamer.Engine(**loaded.config.engine_options()), loaded)
    except BulkConfigError as bulk:
        for error in bulk.errors:
            _show_error(error, file, report)
        note(count(len(bulk.errors), "error"))
        sys.exit(SOME_BAD)
    except ConfigError as error:
        error.source = file
        _show_error(error, file, report)
        sys.exit(SOME_BAD)
    note(f"{file}: a good configuration, {count(len(engine), 'subscription')}")


def _show_error(error: ConfigError, file: str, report: FaultFormat) -> None:
    """Print the errors of a configuration file, or of a variable or a file of subscriptions that belongs to it."""
    if report is FaultFormat.json:
        show_json({name: getattr(error, name) for name in ("source", "line", "column", "place", "reason")})
    elif report is FaultFormat.github:
        # GitHub marks lines of files; an error of a variable is shown at the configuration that it overrides.
        at = file if error.line is None else error.source or file
        said = ConfigError(error.reason, place=error.place, source=error.source if at != error.source else None)
        show(annotation(str(said), file=at, line=error.line, column=error.column))
    else:
        show(str(error).replace("\n", " "))


@app.command(
    name="show", short_help="Print the current values, and the origin of each.", epilog=EXIT_CODES.replace(" 1 {one};", "")
)
@FILE
def show_command(file: str) -> None:
    """Print the current configuration, defaults included, and the source of each value."""
    from streamer.config.show import show as show_config

    try:
        show(show_config(load(file)).rstrip("\n"))
    except BulkConfigError as bulk:
        refuse(bulk)
