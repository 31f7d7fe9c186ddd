"""The command `streamer why`: which condition keeps a subscription from matching the events of a file."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from streamer.cli.inputs import see_events
from streamer.cli.output import PlainFormat, count, show_json
from streamer.cli.setup import (
    COLLECTION,
    CONFIG,
    DEFAULT_TENANT,
    PLAIN_OUTPUT,
    SOFT_DELETE,
    SUBSCRIPTIONS,
    TENANT,
    check_names,
    event_shape,
    set_up,
)
from streamer.model import TOO_COSTLY
from streamer.terminal import EXIT_CODES, OK, SOME_BAD, WIDTH, printable, show

if TYPE_CHECKING:
    from streamer.engine.misses import Survey


@click.command(
    name="why",
    short_help="Count over a file how often each condition was true.",
    epilog=EXIT_CODES.format(one="some events were bad, the others were looked at"),
)
@click.option("--id", "subscription_id", metavar="ID", required=True, help="The subscription to look at.")
@SUBSCRIPTIONS
@CONFIG
@click.argument("events", default="-", help="Events, one JSON object a line.  [default: -]")
@PLAIN_OUTPUT
@event_shape
@TENANT
@COLLECTION
@DEFAULT_TENANT
@SOFT_DELETE
def command(
    subscription_id: str,
    subscriptions: Sequence[str],
    config: str | None,
    events: str,
    report: PlainFormat,
    format: str | None,
    layout: str | None,
    tenant: str | None,
    collection: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
) -> None:
    """Tell over a file of events how often each condition of a subscription held, and which one failed alone."""
    from streamer.engine.misses import Survey

    check_names(tenant, collection)
    setup = set_up(config, subscriptions, format, layout, default_tenant, soft_delete, events=events)
    survey = Survey(setup.engine_with(subscription_id), subscription_id)
    bad, _ = see_events(
        events, lambda number, event: survey.see(number, event, tenant, collection), max_bytes=setup.max_event_bytes
    )
    if report is PlainFormat.json:
        show_json(survey.to_dict())
    else:
        show("\n".join(map(printable, _table(survey))))
    sys.exit(SOME_BAD if bad else OK)


def _table(survey: Survey) -> Iterator[str]:
    ignored = f", {survey.ignored:,} ignored" if survey.ignored else ""
    costly = f", {survey.costly:,} {TOO_COSTLY}" if survey.costly else ""
    yield f"{survey.id!r} matches {survey.matched:,} of {count(survey.seen, 'event')}{ignored}{costly}"
    if survey.rows:
        yield f"{'HELD':>9} {'FAILED':>9} {'UNKNOWN':>9} {'ALONE':>9}  CONDITION"
    for row in survey.rows:
        matching, failed, unknown = row.held, row.failed, row.unknown
        numbers = f"{matching:>9,} {failed:>9,} {unknown:>9,} {row.alone:>9,}  "
        text = textwrap.shorten(
            printable(" ".join(row.condition.text.split())), max(WIDTH - len(numbers), 20), placeholder=" ..."
        )
        yield numbers + text
    if survey.nearest:
        yield "nearest events that do not match:"
    for near in survey.nearest:
        first, *others = [line for reason in near.failed[:3] for line in textwrap.wrap(reason, WIDTH - 4, subsequent_indent="  ")]
        yield f"  line {near.number:,}:"
        yield from (f"    {line}" for line in (first, *others))
        if len(near.failed) > 3:
            yield f"    and {count(len(near.failed) - 3, 'more condition')}"
