"""The command `streamer bench`: measure the cost of matching with your own subscriptions and events."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

import streamer
from streamer.cli.inputs import see_events, shown_name
from streamer.cli.output import PlainFormat, count, show_json
from streamer.cli.setup import (
    COLLECTION,
    CONFIG,
    DEFAULT_TENANT,
    PLAIN_OUTPUT,
    SOFT_DELETE,
    SUBSCRIPTIONS,
    TENANT,
    VALIDATION,
    Setup,
    Validation,
    check_names,
    event_shape,
    set_up,
)
from streamer.sizes import format_percentiles, format_size, format_time
from streamer.terminal import EXIT_CODES, OK, SOME_BAD, fail, note, quoted, show

if TYPE_CHECKING:
    from streamer.engine.costs import Costs, Played

#: The most bytes of events in memory.
MOST_BYTES: Final = 256 * 1024 * 1024
#: The most single subscriptions in a table.
SHOWN: Final = 10


@click.command(
    name="bench",
    short_help="Measure what matching costs here.",
    epilog=EXIT_CODES.format(one="some events were bad, the others were measured"),
)
@SUBSCRIPTIONS
@CONFIG
@click.argument("events", default="-", help="Events, one JSON object a line.  [default: -]")
@PLAIN_OUTPUT
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Also match at a fixed rate, in events a second.")
@click.option("--seconds", type=click.FloatRange(0.01, 3600), default=3.0, show_default=True, help="How long each part measures.")
@click.option(
    "--max-events",
    type=click.IntRange(1, 1_000_000),
    default=100_000,
    show_default=True,
    help="Read at most this number of lines; all are kept in memory.",
)
@event_shape
@TENANT
@COLLECTION
@DEFAULT_TENANT
@SOFT_DELETE
@VALIDATION
def command(
    subscriptions: Sequence[str],
    config: str | None,
    events: str,
    report: PlainFormat,
    rate: float | None,
    seconds: float,
    max_events: int,
    format: str | None,
    layout: str | None,
    tenant: str | None,
    collection: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
    validation: Validation | None,
) -> None:
    """Measure what an event costs here: events a second, percentiles, where the time goes, which subscriptions cost most.

    One thread matches the events again and again. At a fixed rate the time of an event counts from when it was due.
    """
    from streamer.engine.costs import MOST_LATENCIES, measure, play

    check_names(tenant, collection)
    if rate is not None and not 1 <= rate * seconds <= MOST_LATENCIES:
        fail(f"--rate {rate:g} for --seconds {seconds:g}: expected from 1 to {MOST_LATENCIES:,} events in all")
    setup = set_up(config, subscriptions, format, layout, default_tenant, soft_delete, validation, events=events)
    engine = setup.engine()
    read, bad = _read(setup, engine, events, max_events, tenant, collection)
    costs = measure(engine, setup.empty_engine, read, seconds, tenant=tenant, collection=collection, progress=_note)
    played = None
    if rate is not None:
        _note(f"{rate:,g} events a second")
        played = play(lambda event: engine.match_ids(event, tenant, collection), read, rate, int(rate * seconds))
    if report is PlainFormat.json:
        show_json(_report(engine, costs, rate, played))
    else:
        show("\n".join(_text(engine, read, costs, rate, played)))
    sys.exit(SOME_BAD if bad else OK)


def _note(what: str) -> None:
    if sys.stderr.isatty():
        note(f"measuring {what}")


def _read(
    setup: Setup, engine: streamer.Engine, name: str, most: int, tenant: str | None, collection: str | None
) -> tuple[list[bytes], int]:
    """Return the readable events, and the number of the others; end the program if there are none, or too many bytes."""
    read: list[bytes] = []
    size = 0

    def see(number: int, event: bytes) -> None:
        nonlocal size
        engine.match_count(event, tenant, collection)
        if (size := size + len(event)) > MOST_BYTES:
            fail(f"{shown_name(name)}:{number}: more than {format_size(MOST_BYTES)} of events: --max-events reads fewer")
        read.append(event)

    bad, is_more = see_events(name, see, max_bytes=setup.max_event_bytes, most=most)
    if is_more:
        note(f"{shown_name(name)}: the first {count(most, 'line')}; --max-events reads more")
    if not read:
        fail(f"{shown_name(name)}: no event to measure with")
    return read, bad


def _report(engine: streamer.Engine, costs: Costs, rate: float | None, played: Played | None) -> dict[str, Any]:
    from streamer.engine.costs import percentiles

    report = {"backend": streamer.BACKEND, "subscriptions": len(engine), **costs.to_dict()}
    if played is not None:
        report["at_rate"] = {
            "rate": rate,
            "events_per_second": len(played.latencies) / played.seconds,
            "latency": percentiles(played.latencies),
        }
    return report


def _text(
    engine: streamer.Engine, events: Sequence[bytes], costs: Costs, rate: float | None, played: Played | None
) -> Iterator[str]:
    from streamer.engine.costs import percentiles

    used = events[: costs.events]
    mean = format_size(sum(map(len, used)) / len(used))
    yield (
        f"{count(len(engine), 'subscription')}; {count(len(used), 'event')} of {mean}, {costs.matches:.3g} matches an event; "
        f"{streamer.BACKEND} backend"
    )
    yield f"{costs.events_per_second:,.0f} events/s on one thread; {format_percentiles(costs.latency)}"
    if played is not None:
        done = len(played.latencies) / played.seconds
        yield f"at {rate:,g} events/s, from when each was due: {format_percentiles(percentiles(played.latencies))}"
        if played.latencies[-1] > 1e9 / 10:
            yield f"  it falls behind: {done:,.0f} events/s were done"
    yield from ("", "WHERE THE TIME OF AN EVENT GOES")
    yield f"{format_time(costs.reading):>9}  reading it, as an engine without subscriptions does"
    yield f"{format_time(costs.finding):>9}  finding what matches"
    yield f"{format_time(costs.objects):>9}  a Match for each, if you read objects"
    yield from ("", f"{'COST':>9} {'HELD':>10} {'MATCHES':>9}  SUBSCRIPTIONS OF A KIND, BY THEMSELVES")
    for kind in costs.kinds:
        yield f"{format_time(kind.seconds):>9} {kind.subscriptions:>10,} {kind.matches:>9.3g}  {kind.kind}"
    tried = "all" if len(costs.alone) == len(engine) else f"{len(costs.alone):,} of {len(engine):,}"
    yield from ("", f"{'COST':>9} {'CLASS':>10} {'MATCHES':>9}  SINGLE SUBSCRIPTIONS, BY THEMSELVES ({tried} tried)")
    for one in costs.alone[:SHOWN]:
        yield f"{format_time(one.seconds):>9} {one.effort.value:>10} {one.matches:>9.3g}  {quoted(one.subscription_id)}"
