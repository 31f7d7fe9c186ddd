"""`streamer store`: back up the store of a service, and restore it."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamer.cli.output import PlainFormat, count, show_json
from streamer.cli.serve import DATA_DIR, end, place, read_config
from streamer.cli.setup import CONFIG, PATH, PLAIN_OUTPUT
from streamer.errors import ServiceError
from streamer.terminal import SERVICE_EXIT_CODES, fail, note

if TYPE_CHECKING:
    from streamer.service.store.backup import Copied

_CODES = SERVICE_EXIT_CODES.replace(" 1 {one};", "")


@click.group(name="store", short_help="Back up a service's store, and restore it.", no_args_is_help=True)
def app() -> None:
    """Back up the store of a service to a file, and restore it. For a store on PostgreSQL, print its own commands."""


@app.command(short_help="Write a backup, also while the service runs.", epilog=_CODES)
@click.argument("file", metavar="FILE", type=PATH, help="A new file, which only you can read. It contains secrets.")
@CONFIG
@DATA_DIR
@PLAIN_OUTPUT
def backup(file: Path, config: str | None, data_dir: Path | None, report: PlainFormat) -> None:
    """Write the store as of one moment to FILE, also while the service runs. FILE is complete and checked, or does not exist."""
    from streamer.service.store.backup import backup as write
    from streamer.service.store.backup import dump_command

    where = place(config, data_dir)
    try:
        if not isinstance(where, Path):
            fail(f"store.dsn: this store is in PostgreSQL, whose own command backs it up: {dump_command(where, file)}")
        copied = write(where, file)
    except ServiceError as error:
        end(error)
    if report is PlainFormat.json:
        show_json({"file": str(file), **asdict(copied)})
    else:
        note(f"{file}: {_contents(copied)}")


@app.command(short_help="Put a backup in the place of the store.", epilog=_CODES)
@click.argument("file", metavar="FILE", type=PATH, help="A file that `streamer store backup` wrote.")
@CONFIG
@DATA_DIR
@PLAIN_OUTPUT
def restore(file: Path, config: str | None, data_dir: Path | None, report: PlainFormat) -> None:
    """Put FILE in the place of the store, which stays under another name. Stop the service first.

    The service continues at the positions of FILE: docs/operations.md describes what it delivers again, and what is lost.
    """
    from streamer.service.store.backup import load_command
    from streamer.service.store.backup import restore as read

    where = place(config, data_dir)
    try:
        if not isinstance(where, Path):
            command = load_command(where, file)
            _note_slots(config, data_dir)
            fail(f"store.dsn: this store is in PostgreSQL, whose own commands restore it: {command}")
        copied, before = read(file, where)
    except ServiceError as error:
        end(error)
    _note_slots(config, data_dir)
    if report is PlainFormat.json:
        show_json({"file": str(file), **asdict(copied), "before": None if before is None else str(before)})
        return
    note(f"{where}: {_contents(copied)}")
    if before is not None:
        note(f"{before}: the previous store; delete it when you no longer need it")


def _note_slots(config: str | None, data_dir: Path | None) -> None:
    """Print which sources would drop their slots at the next start, because these are ahead of a restored store."""
    from streamer.config.schema.connectors.postgres import PostgresSource

    if config is None and data_dir is not None:
        return
    where = "" if config is None else f" -c {shlex.quote(config)}"
    for name, source in read_config(config).sources.items():
        if isinstance(source, PostgresSource) and source.on_lost != "fail":
            forget = f"streamer positions forget {shlex.quote(name)}{where}"
            note(
                f"sources.{name}: its slot may be ahead of this store. Before the start, run `{forget}`: otherwise on_lost: "
                f"{source.on_lost} drops the slot, with the changes since the stop"
            )


def _contents(copied: Copied) -> str:
    counts = (
        count(copied.subscriptions, "subscription"),
        count(copied.gateways, "gateway"),
        count(copied.positions, "position"),
        count(copied.messages, "message"),
        count(copied.dead_letters, "dead letter"),
    )
    return ", ".join((*counts, f"{copied.bytes:,} bytes"))
