"""`streamer positions`: the confirmed positions of sources, and moving one to another source."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from streamer.cli.output import PlainFormat, count, show_json
from streamer.cli.serve import DATA_DIR, opened_store, place, read_config
from streamer.cli.setup import CONFIG, PLAIN_OUTPUT
from streamer.errors import ServiceError
from streamer.terminal import EXIT_CODES, SOME_BAD, fail, note, printable, show


@click.group(name="positions", short_help="Look after the positions of sources.", no_args_is_help=True)
def app() -> None:
    """List the confirmed positions of sources, move them to a renamed source, and forget them after a restore."""


@app.command(name="list", epilog=EXIT_CODES.replace(" 1 {one};", ""))
@CONFIG
@DATA_DIR
@PLAIN_OUTPUT
def list_command(config: str | None, data_dir: Path | None, report: PlainFormat) -> None:
    """List the position of each source, also while the service runs."""
    from streamer.service.store.opened import reading

    try:
        with reading(place(config, data_dir)) as reader:
            rows = reader.rows("SELECT source, partition, position FROM positions ORDER BY source, number")
    except ServiceError as error:
        fail(str(error))
    if report is PlainFormat.text:
        show(f"{'SOURCE':<20}  {'PARTITION':<40}  POSITION")
    for source, partition, position in rows:
        if report is PlainFormat.json:
            show_json({"source": source, "partition": partition, "position": position})
        else:
            show(f"{source:<20}  {printable(partition):<40}  {printable(position)}")


@app.command(epilog=EXIT_CODES.format(one="the store has no position of OLD"))
@click.argument("old", metavar="OLD", help="The name that the source had.")
@click.argument("new", metavar="NEW", help="The name that it has now.")
@click.option("--dry-run", is_flag=True, help="Only show the change.")
@CONFIG
@DATA_DIR
def move(old: str, new: str, dry_run: bool, config: str | None, data_dir: Path | None) -> None:
    """Continue NEW at the position of OLD, and show the changes. Stop the service first.

    A partition that both have gets the position of OLD. Dead letters of OLD's records become NEW's.
    """
    if old == new:
        fail(f"{old}: expected two names")
    if config is not None:
        sources = read_config(config).sources
        if old in sources:
            fail(f"sources.{old}: the configuration has this source, which uses these positions; remove or rename it first")
        if new not in sources:
            fail(f"sources.{new}: the configuration has no such source; it has {', '.join(sources) or 'none'}")
    try:
        store = opened_store(place(config, data_dir))
        theirs, ours = store.positions(old), store.positions(new)
        for partition, position in theirs.items():
            before = f", in place of {ours[partition]}" if partition in ours else ""
            show(printable(f"{new}: {partition}: {position}{before}"))
        for partition, position in ours.items():
            if partition not in theirs:
                show(printable(f"{new}: {partition}: stays at {position}"))
        if theirs and not dry_run:
            store.move(old, new)
        store.close()
    except ServiceError as error:
        fail(str(error))
    note(f"{count(len(theirs), 'partition')} of {old} {'would become' if dry_run else 'became'} {new}'s")
    if not theirs:
        sys.exit(SOME_BAD)


@app.command(epilog=EXIT_CODES.format(one="the store has no position of SOURCE"))
@click.argument("source", metavar="SOURCE", help="The name of the source.")
@click.option("--dry-run", is_flag=True, help="Only show the change.")
@CONFIG
@DATA_DIR
def forget(source: str, dry_run: bool, config: str | None, data_dir: Path | None) -> None:
    """Forget the positions of SOURCE, and show them. Stop the service first.

    It begins like a new source: a slot or a consumer group at its own place, a file at its beginning.
    """
    try:
        store = opened_store(place(config, data_dir))
        positions = store.positions(source)
        for partition, position in positions.items():
            show(printable(f"{source}: {partition}: {position}"))
        if positions and not dry_run:
            store.forget_positions(source)
        store.close()
    except ServiceError as error:
        fail(str(error))
    note(f"{count(len(positions), 'partition')} of {source} {'would be' if dry_run else 'were'} forgotten")
    if not positions:
        sys.exit(SOME_BAD)
