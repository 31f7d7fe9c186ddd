"""The commands `streamer formats`: arguments in, text out."""

from __future__ import annotations

import sys
from itertools import islice

import click

from streamer.cli.inputs import damaged, opened
from streamer.engine.fitting import LOOKS, detect
from streamer.engine.lines import read_lines
from streamer.errors import InputError
from streamer.events.layout import EventLayout
from streamer.model import Limits
from streamer.terminal import EXIT_CODES, SOME_BAD, fail, note, quoted, show

#: At most this many collections are named.
SHOWN = 5


@click.group(name="formats", short_help="List the formats of events, and find the one that fits.", invoke_without_command=True)
@click.pass_context
def app(context: click.Context) -> None:
    """List the formats of events that `--format` takes."""
    if context.invoked_subcommand is None:
        show("\n".join(EventLayout.PRESETS))
        note("streamer formats detect FILE names those that fit a file of events")


@app.command(name="detect", short_help="Name what fits the first events of a file.", epilog=EXIT_CODES.format(one="none fits"))
@click.argument("file", metavar="FILE", help="Events, one JSON object a line; - is standard input.")
def detect_command(file: str) -> None:
    """Name the formats and decoders that fit the first events of a file, best first."""
    try:
        with opened(file) as source:
            lines = read_lines(source, max_bytes=Limits().max_event_bytes)
            events = list(islice((line for _, line in lines if isinstance(line, bytes)), LOOKS))
    except InputError as error:
        fail(damaged(file, error))
    fits = detect(events)
    for fit in fits:
        named = ", ".join(map(quoted, fit.collections[:SHOWN])) + (", ..." if len(fit.collections) > SHOWN else "")
        show(f"{fit.name:<21} {fit.events:>2} of {len(events)} events" + (f"   collections: {named}" if named else ""))
    if not fits:
        note(f"{file}: no format finds a document, its type and its collection; see docs/sources.md")
        sys.exit(SOME_BAD)
