"""The commands `streamer schema`: arguments in, text out.

Modules that make a schema are imported on use: pydantic takes longer to import than most commands to run.
"""

from __future__ import annotations

import json

import click

from streamer.cli.setup import event_shape, read_layout
from streamer.terminal import EXIT_CODES, show

_EXIT_CODES = EXIT_CODES.replace(" 1 {one};", "")


@click.group(name="schema", short_help="Print JSON Schemas for editors.", no_args_is_help=True)
def app() -> None:
    """Print JSON Schemas, by which editors complete and check what you write."""


@app.command(epilog=_EXIT_CODES)
def subscription() -> None:
    """Print the JSON Schema of a subscription."""
    from streamer.subscriptions.schema import subscription_schema

    show(json.dumps(subscription_schema(), indent=2))


@app.command(epilog=_EXIT_CODES)
def config() -> None:
    """Print the JSON Schema of a configuration file."""
    from streamer.config.show import json_schema

    show(json_schema().rstrip("\n"))


@app.command(epilog=_EXIT_CODES)
@event_shape
def event(format: str | None, layout: str | None) -> None:
    """Print the JSON Schema of an event."""
    from streamer.events.schema import event_schema

    show(json.dumps(event_schema(read_layout(format, layout)), indent=2))
