"""Watch phase 1 over a year in which subscribers come and go: `python -m examples.flights.season --plot filters.png`.

Spotters wait for planes that seldom come to New York, a few in January and very many in summer, and lose interest after some
weeks; travellers want the weather at the hour of their departure and unsubscribe when they have left. So hardly any event
is wanted by anybody, phase 1 stops nearly all of them, and its filters have to follow: they run out of room, fill with keys
of those who left, and pass more than they should when people begin to ask by other fields too, in August.

The year passes in a minute, so what an engine looks after in minutes and hours is set to seconds.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

import streamer
from examples.flights import records
from streamer.bloom import BloomOptions
from streamer.metrics import History

YEAR = 2013
#: A plane that came no more often is worth waiting for.
SELDOM = 30
#: What people ask by, too, and from when on.
OTHERS = ("flight", "dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "distance", "hour", "minute", "month", "day")
OTHERS_FROM = date(YEAR, 8, 1)
OPTIONS = BloomOptions(
    fp_rate=0.01,
    rebuild_fp_threshold=0.015,
    initial_capacity=100,
    rebuild_interval=timedelta(seconds=40),
    rebuild_cooldown=timedelta(seconds=2),
)


def main() -> None:
    """Replay, sample, report, draw."""
    options = arguments()
    console = Console(highlight=False)
    logging.basicConfig(level=logging.WARNING, format="  %(message)s")
    logging.getLogger("streamer.bloom").setLevel(logging.INFO)
    engine = streamer.Engine(bloom=OPTIONS)
    history = History(engine)
    replay(engine, history, options.seconds, options.every)
    history.sample()
    console.print(str(engine.stats()), markup=False, soft_wrap=True)
    if options.history is not None:
        history.write(options.history)
    if options.plot is not None:
        history.plot(options.plot)
        console.print(f"\ndrawn: {options.plot}")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights.season", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="in which the year passes, at least (default: 60)")
    parser.add_argument("--every", type=int, default=2, help="replay every n-th flight (default: 2)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the filters over time: .png, .svg, .pdf")
    parser.add_argument("--history", type=Path, metavar="FILE", help="write the samples as JSON lines")
    return parser.parse_args()


def replay(engine: streamer.Engine, history: History, seconds: float, every: int) -> None:
    """Match the flights and the weather of each day, with the subscribers of that day."""
    crowd = Crowd()
    days = by_day(every)
    began = time.monotonic()
    for number in range(365):
        today = date(YEAR, 1, 1) + timedelta(number)
        engine.remove_many(ids=list(crowd.leaving(today)))
        engine.add_many(crowd.coming(today))
        for number_today, event in enumerate(days.get((today.month, today.day), ())):
            engine.match_count(event)
            if number_today % 100 == 0:
                history.tick()
        time.sleep(max(0.0, began + seconds * (number + 1) / 365 - time.monotonic()))


def by_day(every: int) -> dict[tuple[int, int], list[bytes]]:
    """Return the events of each day, flights and weather."""
    days: dict[tuple[int, int], list[bytes]] = {}
    for at, row in enumerate(records.rows("flights")):
        if at % every == 0:
            days.setdefault((row["month"], row["day"]), []).extend(records.flight_events(row))
    for row in records.rows("weather"):
        days.setdefault((row["month"], row["day"]), []).append(records.weather_event(row))
    return days


class Crowd:
    """Who subscribes, and until when. Each run has these people: it is seeded."""

    def __init__(self) -> None:
        self.random = Random(YEAR)
        came = Counter(row["tailnum"] for row in records.rows("flights") if row["tailnum"])
        self.planes = sorted(plane for plane, times in came.items() if times <= SELDOM)
        self.until: dict[date, list[str]] = {}
        self.number = 0

    def coming(self, today: date) -> Iterator[dict[str, Any]]:
        """Yield the subscriptions that begin on a day: a few in winter, many in summer, none in December."""
        summer = math.exp(-(((today.timetuple().tm_yday - 190) / 45) ** 2))
        for _ in range(round(2 + 20 * summer) if today.month < 12 else 0):
            yield self._new(today, self.random.randrange(40, 110), "flights", self._spotter(today))
        for _ in range(round(1 + 5 * summer) if today.month < 12 else 0):
            yield self._new(today, self.random.randrange(5, 30), "weather", self._traveller(today))

    def leaving(self, today: date) -> list[str]:
        """Return the ids of the subscriptions that end on a day."""
        return self.until.pop(today, [])

    def _new(self, today: date, days: int, collection: str, filters: list[streamer.Filter]) -> dict[str, Any]:
        self.number += 1
        name = f"{collection} {self.number}"
        self.until.setdefault(today + timedelta(days), []).append(name)
        return {"id": name, "collection": collection, "filters": [each.to_dict() for each in filters]}

    def _spotter(self, today: date) -> list[streamer.Filter]:
        if today < OTHERS_FROM or self.random.random() < 0.5:
            return [streamer.Filter("tailnum", "==", self.random.choice(self.planes))]
        # What never comes. Each field is one more key that every event is asked for.
        return [streamer.Filter(self.random.choice(OTHERS), "==", 100_000 + self.number)]

    def _traveller(self, today: date) -> list[streamer.Filter]:
        departure = today + timedelta(self.random.randrange(1, 30))
        return [streamer.Filter("time_hour", "==", f"{departure}T{self.random.randrange(10, 24)}:00:00Z")]


if __name__ == "__main__":
    main()
