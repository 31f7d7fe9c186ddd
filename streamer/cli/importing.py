"""The command `streamer import`: rules of another language in, subscriptions out."""

from __future__ import annotations

import sys
from typing import Final

import click

from streamer.cli.inputs import opened, shown_name
from streamer.errors import SubscriptionError
from streamer.importing import KINDS, import_rules
from streamer.terminal import EXIT_CODES, SOME_BAD, fail, json_text, note, show

_MEMBERS: Final = ("gateway_id", "tenant", "collection")


@click.command(
    name="import",
    short_help="Translate rules of other languages into subscriptions.",
    epilog=EXIT_CODES.format(one="some rules have no exact translation"),
)
@click.argument("kind", metavar="KIND", type=click.Choice(list(KINDS)))
@click.argument("file", metavar="FILE", default="-", help="The rules.  [default: -]")
@click.option("--skip", is_flag=True, help="Leave out rules that have no exact translation.")
@click.option("--gateway-id", metavar="ID", help="The receiver of all matches.")
@click.option("--tenant", metavar="NAME", help="The tenant of all subscriptions.")
@click.option("--collection", metavar="NAME", help="The collection of all subscriptions.")
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
def command(kind: str, file: str, skip: bool, quiet: bool, **members: str | None) -> None:
    """Translate rules of another language into subscriptions, one JSON object a line.

    KIND is the language. Each subscription means exactly what its rule means. If some rules have no exact translation, nothing is
    printed; with --skip the others are.
    """
    options = {name: value for name in _MEMBERS if (value := members[name]) is not None}
    with opened(file) as source:
        text = source.read()
    try:
        imported = import_rules(kind, text, on_error="skip", **options)
    except SubscriptionError as error:
        fail(f"{shown_name(file)}: {error}")
    except ModuleNotFoundError as error:
        fail(str(error))  # it names the extra
    for refused in imported.refused:
        note(f"{shown_name(file)}: {refused}")
    if skip or not imported.refused:
        for subscription in imported.subscriptions:
            show(json_text(subscription.to_dict()))
    if not quiet:
        count = len(imported.subscriptions)
        rest = f", {len(imported.refused)} {'left out' if skip else 'have no exact translation'}" if imported.refused else ""
        note(f"{count} of {count + len(imported.refused)} rules translated{rest}")
    if imported.refused:
        if not skip and imported.subscriptions:
            note("printed none because of these errors; --skip prints the others")
        sys.exit(SOME_BAD)
