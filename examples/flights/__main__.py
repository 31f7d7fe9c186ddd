"""Replay the flights that left New York in 2013 as change events, and show who wanted to know."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

import streamer
from examples.flights import generated, records

HAND_WRITTEN = Path(__file__).parent / "subscriptions.jsonl"
EVERY_EVENT = 696_208  # rows of five tables, and the departures

#: How many subscriptions are generated where the command line does not say.
GENERATED = {"native": 100_000, "reference": 1_000}

SHOWN = "west-coast-delays"


def main() -> None:
    """Set up, replay, report."""
    options = arguments()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    console.print()
    console.print(f"[bold]Streamer {streamer.__version__}[/], {streamer.BACKEND} backend: the flights that left New York in 2013")
    console.print()

    engine = streamer.Engine()
    started = time.perf_counter()
    engine.add_jsonl(HAND_WRITTEN)
    count = GENERATED[streamer.BACKEND] if options.subscriptions is None else options.subscriptions
    engine.add_many(generated.subscriptions(count))
    took = time.perf_counter() - started
    by_hand = len(engine) - count
    console.print(f"  {len(engine):>9,} subscriptions added in {took:.1f} s: {by_hand} written by hand, {count:,} generated")

    every = options.every or choose_every(engine, options.seconds)
    replay = Replay(engine)
    total = math.ceil(EVERY_EVENT / every)
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
    """Measure a sample spread over the year, and return n such that every n-th row takes about *seconds*."""
    sample = [event for event in records.events(every=2_000) if b'"airports"' not in event]
    started = time.perf_counter()
    for event in sample:
        engine.match_ids(event)
    an_event = (time.perf_counter() - started) / len(sample)
    return max(1, math.ceil(an_event * EVERY_EVENT / seconds))


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

    def run(self, events: Iterable[bytes], total: int, console: Console) -> None:
        """Match *events*, with a bar on a terminal."""
        columns = TextColumn("  {task.description}"), BarColumn(), TaskProgressColumn()
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("replaying", total=total)
            events = iter(events)
            while batch := list(islice(events, 200)):
                for event in batch:
                    self.match(event)
                progress.update(task, completed=self.events, description=f"{self.events:,} events")

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
    cuts = quantiles(replay.nanoseconds, n=100)
    part = "all" if every == 1 else f"every {every}th of"
    matched = sum(replay.matches.values())
    console.print(
        f"  {replay.events:>9,} events matched in {seconds:.1f} s: {replay.flights:,} of {records.FLIGHTS:,} flights "
        f"({part} the year), then their departures,"
    )
    console.print(f"  {'':>9} the weather, planes, airports and airlines")
    console.print(f"  {matched:>9,} matches, {matched / replay.events:.1f} an event")
    console.print(
        f"  {replay.events / seconds:>9,.0f} events a second on one thread; "
        f"p50 {cuts[49] / 1e3:,.0f} µs, p99 {cuts[98] / 1e3:,.0f} µs an event"
    )
    console.print()
    console.print(
        f"  [bold]The {streamer.BACKEND} backend matched {replay.flights:,} of {records.FLIGHTS:,} flights against "
        f"{len(replay.engine):,} subscriptions in {seconds:.0f} s.[/]"
    )
    console.print()


def show_matches(console: Console, engine: streamer.Engine, replay: Replay) -> None:
    """Print what each subscription that was written by hand asks for, and how often it got it."""
    table = Table(title="Written by hand", title_justify="left", title_style="bold", box=None, padding=(0, 2))
    table.add_column("matches", justify="right")
    table.add_column("what was asked for", overflow="fold")
    table.add_column("kind", style="dim")
    table.add_column("the first", style="dim", no_wrap=True)
    others = 0
    for subscription in engine.subscriptions():
        if not subscription.labels:
            others += replay.matches[subscription.id]
            continue
        first = replay.first.get(subscription.id)
        says = str(subscription.labels["says"])
        table.add_row(f"{replay.matches[subscription.id]:,}", says, kinds(subscription), in_short(first) if first else "")
    table.add_row(f"{others:,}", "[dim]all that were generated[/]", "", "")
    console.print(table)
    console.print()


def show_reasons(console: Console, engine: streamer.Engine, replay: Replay) -> None:
    """Print what `explain` says about one match and one near miss."""
    for title, event in (("A match, explained", replay.first.get(SHOWN)), ("A near miss, explained", replay.near_miss)):
        if event is not None:
            text = f"{in_short(event)}\n\n{engine.explain(event, SHOWN)}"
            console.print(Panel(text, title=title, title_align="left", border_style="dim", padding=(1, 2)), markup=False)


def kinds(subscription: streamer.Subscription) -> str:
    """Name the kinds of condition that a subscription uses."""
    return ", ".join(kind for kind in ("filters", "pattern", "topic", "cel") if getattr(subscription, kind))


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
            return f"{data['origin']}, {data['month']}/{data['day']} {data['hour']}:00, gusts {data['wind_gust'] or '?'}"
        case _:
            return str(data["name"])


if __name__ == "__main__":
    main()
