"""Replay the flights that left New York in 2013 as change events, and show who wanted to know."""

from __future__ import annotations

import argparse
import json
import math
import textwrap
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

import streamer
from examples.flights import generated, records
from streamer.sizes import PERCENTILES, format_percentiles, format_time

HAND_WRITTEN = Path(__file__).parent / "subscriptions.jsonl"

#: How many subscriptions are generated where the command line does not say.
GENERATED = {"native": 100_000, "reference": 200}

SHOWN = "west-coast-delays"


def main() -> None:
    """Set up, replay, report."""
    options = arguments()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    console.print()
    console.print(f"[bold]Streamer {streamer.__version__}[/], {streamer.BACKEND} backend: the flights that left New York in 2013")
    console.print()

    engine = streamer.Engine()
    count = GENERATED[streamer.BACKEND] if options.subscriptions is None else options.subscriptions
    with console.status("reading the year, making subscriptions"):
        made = list(generated.subscriptions(count))
    started = time.perf_counter()
    engine.add_jsonl(HAND_WRITTEN)
    engine.add_many(made)
    took = time.perf_counter() - started
    by_hand = len(engine) - count
    console.print(
        f"  {len(engine):>9,} subscriptions added in {format_time(took)}: {by_hand} written by hand, {count:,} generated"
    )

    with console.status("reading the year, measuring"):
        every = options.every or choose_every(engine, options.seconds)
    replay = Replay(engine)
    total = records.SMALL_EVENTS + (records.EVENTS - records.SMALL_EVENTS) // every
    replay.run(records.events(every), total, console)
    report(console, replay, every)
    show_matches(console, engine, replay)
    show_reasons(console, engine, replay)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="about how long to match (default: 30)")
    parser.add_argument("--subscriptions", type=int, help="how many to generate (default: what suits the backend)")
    parser.add_argument("--every", type=int, help="replay every n-th flight (default: as many as the time allows)")
    return parser.parse_args()


def choose_every(engine: streamer.Engine, seconds: float) -> int:
    """Measure a sample spread over the year, and return n such that every n-th flight takes about *seconds*."""
    sample = [event for event in records.events(every=2_000) if b'"collection":"a' not in event and b'"planes"' not in event]
    replay = Replay(engine)
    started = time.perf_counter()
    for event in sample:
        if replay.events >= 20 and time.perf_counter() - started > seconds / 15:
            break
        replay.match(event)
    # Once more, since the first events of a kind take longer than all that follow.
    for event in sample[: replay.events]:
        replay.match(event)
    an_event = sum(replay.nanoseconds[replay.events // 2 :]) / (replay.events // 2) / 1e9
    return max(1, math.ceil(an_event * records.EVENTS / seconds))


class Replay:
    """Matches events one by one, and keeps count."""

    def __init__(self, engine: streamer.Engine) -> None:
        self.engine = engine
        self.events = 0
        self.flights = 0
        self.matches: Counter[str] = Counter()
        self.first: dict[str, bytes] = {}
        self.near_miss: bytes | None = None
        self.nanoseconds: list[int] = []
        self.seconds = 0.0

    def run(self, events: Iterable[bytes], total: int, console: Console) -> None:
        """Match *events*, with a bar on a terminal."""
        started = time.perf_counter()
        columns = TextColumn("  {task.description}"), BarColumn(), TaskProgressColumn()
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("replaying", total=total)
            events = iter(events)
            while batch := list(islice(events, 200)):
                for event in batch:
                    self.match(event)
                progress.update(task, completed=self.events, description=f"{self.events:,} events")
        self.seconds = time.perf_counter() - started

    def match(self, event: bytes) -> None:
        """Match one event, and time nothing but that."""
        started = time.perf_counter_ns()
        ids = self.engine.match_ids(event)
        self.nanoseconds.append(time.perf_counter_ns() - started)
        self.events += 1
        self.flights += b'"status":"scheduled"' in event and b'"type":"insert"' in event
        self.matches.update(ids)
        for subscription_id in ids:
            if subscription_id not in self.first:
                self.first[subscription_id] = event
        if self.near_miss is None and SHOWN not in ids and nearly(event):
            self.near_miss = event


def nearly(event: bytes) -> bool:
    """Tell whether a JFK departure to the west coast missed the hour by little."""
    if b'"origin":"JFK"' not in event or b'"type":"update"' not in event:
        return False
    data = json.loads(event)["data"]
    return data["dest"] in ("LAX", "SFO", "SEA", "SAN") and 45 <= data["dep_delay"] <= 60


def report(console: Console, replay: Replay, every: int) -> None:
    """Say how much was replayed, and how fast."""
    seconds = sum(replay.nanoseconds) / 1e9
    cuts = quantiles(replay.nanoseconds, n=1_000)
    matched = sum(replay.matches.values())
    rows = [
        (replay.events, f"events: {replay.flights:,} of {records.FLIGHTS:,} flights as scheduled, then as they departed,"),
        (None, "with the weather of the year, and all planes, airports and airlines"),
        (matched, f"matches, {matched / replay.events:.1f} an event"),
        (replay.events / seconds, "events a second on one thread, reading the JSON included"),
    ]
    for number, text in rows:
        console.print(f"  {'' if number is None else f'{number:,.0f}':>9} {text}")
    times = {name: cuts[round(1_000 * share) - 1] / 1e9 for name, share in PERCENTILES.items()}
    console.print(f"  {'':>9} {format_percentiles(times)} an event")
    console.print()
    console.print(
        f"  [bold]In {format_time(seconds)} the {streamer.BACKEND} backend matched {replay.flights:,} flights against "
        f"{len(replay.engine):,} subscriptions[/];"
    )
    console.print(f"  with making the events and counting it took {format_time(replay.seconds)}.")
    if every > 1:
        console.print(f"  Those are one flight in {every:,}, spread over the year.")
        console.print("  `python -m examples.flights --every 1` replays all of them.")
    console.print()


def show_matches(console: Console, engine: streamer.Engine, replay: Replay) -> None:
    """Print what each subscription that was written by hand asks for, and how often it got it."""
    table = Table(title="Written by hand", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("matches", justify="right", min_width=11)
    table.add_column("what was asked for", overflow="fold", min_width=40)
    if wide := console.width >= 100:
        table.add_column("with", style="dim", no_wrap=True, max_width=15)
        table.add_column("the first", style="dim", no_wrap=True, max_width=30)
    others = 0
    for subscription in engine.subscriptions():
        if not subscription.labels:
            others += replay.matches[subscription.id]
            continue
        first = replay.first.get(subscription.id)
        cells = [f"{replay.matches[subscription.id]:,}", str(subscription.labels["says"])]
        if wide:
            cells += [kinds(subscription), in_short(first) if first else ""]
        table.add_row(*cells)
    table.add_row(f"{others:,}", "[dim]all that were generated[/]")
    console.print(table)
    console.print()


def show_reasons(console: Console, engine: streamer.Engine, replay: Replay) -> None:
    """Print what `explain` says about one match and one near miss."""
    for title, event in (("A match", replay.first.get(SHOWN)), ("A near miss", replay.near_miss)):
        if event is not None:
            console.print(f"[bold]{title}, explained:[/] {in_short(event)}")
            console.print(textwrap.indent(str(engine.explain(event, SHOWN)), "  "), markup=False, soft_wrap=True)
            console.print()


def kinds(subscription: streamer.Subscription) -> str:
    """Name the kinds of condition that a subscription uses."""
    used = [kind for kind in ("filters", "pattern", "topic", "cel") if getattr(subscription, kind)]
    return "all four" if len(used) == 4 else "+".join(used)


def in_short(event: bytes) -> str:
    """Print an event for people."""
    change: dict[str, Any] = json.loads(event)
    data = change["data"]
    match change["collection"]:
        case "flights":
            late = data["dep_delay"]
            delay = "" if late is None else f", {late} min late" if late > 0 else ", on time"
            return f"{data['carrier']}{data['flight']} {data['origin']}–{data['dest']}, {data['month']}/{data['day']}{delay}"
        case "planes":
            return f"{data['tailnum']}, {data['manufacturer'].title()} {data['model']}, {data['year'] or 'year unknown'}"
        case "weather":
            gusts = f", gusts of {data['wind_gust']:.0f} mph" if data["wind_gust"] else ""
            return f"{data['origin']}, {data['month']}/{data['day']} {data['hour']}:00{gusts}"
        case _:
            return str(data["name"])


if __name__ == "__main__":
    main()
