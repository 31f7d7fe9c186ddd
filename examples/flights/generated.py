"""Subscriptions as many travellers, spotters and dispatchers would write them, drawn from what really flew.

Equal *count*s give equal subscriptions: the generator is seeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any

from examples.flights.records import Row, rows
from streamer import Filter, Subscription


def subscriptions(count: int) -> Iterator[Subscription]:
    """Yield *count* subscriptions of every kind: a tenth CEL, the others filters, patterns and topics."""
    random = Random(2013)
    flown = list(islice(rows("flights"), None, None, 97))
    makers: list[Callable[[Random, Row], dict[str, Any]]] = [plane, number, route, late, family, departures, weather, anyhow]
    weights = [25, 25, 15, 8, 7, 7, 3, 10]
    for index, make in enumerate(random.choices(makers, weights, k=count)):
        parts = {"collection": "flights", **make(random, random.choice(flown))}
        yield Subscription(id=f"{make.__name__}-{index}", gateway_id=f"gateway-{index % 100}", **parts)


def plane(random: Random, flight: Row) -> dict[str, Any]:
    """A spotter follows one plane."""
    return {"types": ["update"], "filters": [Filter("tailnum", "==", flight["tailnum"])]}


def number(random: Random, flight: Row) -> dict[str, Any]:
    """A commuter wants to know when their flight is late."""
    filters = [
        Filter("carrier", "==", flight["carrier"]),
        Filter("flight", "==", flight["flight"]),
        Filter("dep_delay", ">", random.choice([15, 30, 60])),
    ]
    return {"filters": filters}


def route(random: Random, flight: Row) -> dict[str, Any]:
    """A traveller between two airports, with an airline and an hour."""
    filters = [
        Filter("origin", "==", flight["origin"]),
        Filter("dest", "==", flight["dest"]),
        Filter("carrier", "==", flight["carrier"]),
        Filter("hour", "==", flight["hour"]),
        Filter("status", "changed_to", "departed"),
    ]
    return {"filters": filters}


def late(random: Random, flight: Row) -> dict[str, Any]:
    """A dispatcher waits for the very late ones to some airports."""
    filters = [
        Filter("dest", "in", sorted({flight["dest"], random.choice(["ORD", "ATL", "LAX", "BOS", "MCO"])})),
        Filter("dep_delay", ">=", random.randrange(180, 600)),
    ]
    return {"filters": filters}


def family(random: Random, flight: Row) -> dict[str, Any]:
    """A spotter follows a family of tail numbers, late in the day."""
    tail = flight["tailnum"] or "N0"
    tails: list[dict[str, str]] = [{"wildcard": f"{tail[:3]}*{tail[-2:]}"}, {"suffix": tail[-3:]}]
    return {"pattern": {"data": {"tailnum": [random.choice(tails)], "hour": [flight["hour"]], "dest": [flight["dest"]]}}}


def departures(random: Random, flight: Row) -> dict[str, Any]:
    """A hotel counts who comes from one airport with one airline."""
    return {
        "topic": f"flights.{flight['origin']}.{flight['dest']}.{flight['carrier']}.departed",
        "filters": [Filter("day", "==", flight["day"])],
    }


def weather(random: Random, flight: Row) -> dict[str, Any]:
    """A pilot asks for gusts at one airport in one hour of the day."""
    filters = [
        Filter("origin", "==", flight["origin"]),
        Filter("hour", "==", flight["hour"]),
        Filter("wind_gust", ">", random.randrange(25, 60)),
    ]
    return {"collection": "weather", "filters": filters}


def anyhow(random: Random, flight: Row) -> dict[str, Any]:
    """An analyst writes CEL."""
    destinations = ", ".join(repr(each) for each in sorted({flight["dest"], random.choice(["LAX", "SFO", "MIA", "BOS"])}))
    late = random.randrange(60, 300)
    return {
        "filters": [Filter("flight", "==", flight["flight"])],
        "cel": f"data.dest in [{destinations}] && (data.dep_delay > {late} || data.arr_delay > {late + 15})",
    }
