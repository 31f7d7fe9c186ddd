"""The cost that Python adds: ns an event through each way of matching, subscriptions a second through each way of adding.

```console
python -m benchmarks.edge [--smoke] [--record]
```

Each event matches exactly one subscription, whatever their number, so that answers do not grow with the number. The exception is
the last line of the first table: an event that matches 2,000. Every figure is the best of several rounds, because other programs
can only make a round slower.

The second table compares many events at once with one call for each: events of one collection, and of many in turn. It compares
like with like: `match_jsonl` with `match` line by line, ids with ids. The ways take turns, round by round. A ratio is the median
of the ratios of the rounds, so that a slow minute of the machine affects both ways.

The third table compares `Quamina` and `TopicMatcher`, by turns, with `match_ids` of an engine that has the same patterns or
topics as subscriptions. A ratio compares the best rounds. On the native backend it is at most 1.2.

The fourth table compares figures with their goals. Some are not in the first two tables: subscriptions as dicts and as objects,
events as dicts by turns with `orjson.dumps` and their bytes, `Match` objects, and matches as text.
"""

from __future__ import annotations

import io
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, cast

import streamer
from benchmarks.measure import WrongMatches, order
from benchmarks.records import RECORDS, commit, core, parser_for
from streamer import Matches
from streamer.automaton import Quamina, TopicMatcher
from streamer.core.options import Options
from streamer.model import TopicDialect
from streamer.service.connectors.formats import Place
from streamer.service.delivery.messages import Shape, Speaker
from streamer.service.delivery.routing import Routes

SIZES = (1, 1_000, 100_000)
EVENTS = 2_000
MANY = 2_000
ROUNDS = 7


@dataclass(frozen=True)
class Row:
    """Figures for one number of subscriptions: ns an event, and subscriptions a second."""

    subscriptions: int
    match_ids: float
    match: float
    match_count: float
    match_batch: float
    add_many: float
    add_jsonl: float


def subscriptions(count: int) -> list[bytes]:
    """Return JSON texts of about 180 bytes: an equality that is their own, and a range."""
    return [
        json.dumps(
            {
                "id": f"subscription-{n}",
                "gateway_id": f"gateway-{n % 50}",
                "collection": "orders",
                "filters": [
                    {"field": "customer", "op": "==", "value": n},
                    {"field": "amount", "op": ">", "value": n % 100},
                ],
            }
        ).encode()
        for n in range(count)
    ]


def events(count: int, customers: int) -> list[bytes]:
    """Return orders of about 180 bytes, each of a customer that one subscription asks for."""
    return [order(n, {"customer": n * 7919 % customers, "amount": 500, "state": "paid", "note": "x" * 60}) for n in range(count)]


def best(act: Callable[[], Any]) -> float:
    """Return the fewest seconds that *act* takes."""
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def measure(size: int, count: int) -> Row:
    """Measure with *size* subscriptions and *count* events.

    Raises:
        WrongMatches: an event matched more or less than one subscription.
    """
    texts, given = subscriptions(size), events(count, size)
    seconds: dict[str, list[float]] = {"add_many": [], "add_jsonl": []}
    for _ in range(3 if size > 10_000 else ROUNDS):
        for name, source in (("add_many", texts), ("add_jsonl", io.BytesIO(b"\n".join(texts)))):
            engine = streamer.Engine()
            begun = time.perf_counter()
            getattr(engine, name)(source)
            seconds[name].append(time.perf_counter() - begun)
    for name, counts in (
        ("match_ids", [len(engine.match_ids(event)) for event in given]),
        ("match_batch", [len(matches) for matches in engine.match_batch(given)]),  # type: ignore[arg-type]
    ):
        if counts != [1] * count:
            raise WrongMatches(f"{name}: {sum(counts)} matches of {count} events on the {streamer.BACKEND} backend")

    def each(ask: Callable[[bytes], Any], events: Sequence[bytes]) -> Callable[[], None]:
        def act() -> None:
            for event in events:
                ask(event)

        return act

    return Row(
        subscriptions=size,
        match_ids=best(each(engine.match_ids, given)) / count * 1e9,
        match=best(each(engine.match, given)) / count * 1e9,
        match_count=best(each(engine.match_count, given)) / count * 1e9,
        match_batch=best(lambda: engine.match_batch(given)) / count * 1e9,
        add_many=size / min(seconds["add_many"]),
        add_jsonl=size / min(seconds["add_jsonl"]),
    )


def measure_many(matches: int) -> dict[str, float]:
    """Measure one event that *matches* subscriptions want: ns a match."""
    engine = streamer.Engine()
    engine.add_many({"id": f"subscription-{n}", "filters": [{"field": "a", "op": "==", "value": 1}]} for n in range(matches))
    event = b'{"type": "insert", "data": {"a": 1}}'
    found = engine.match(event)
    batch = engine.match_batch([event])
    speaker = Speaker(Options.checked(), Routes((), "out"), {"out": Shape("none")})
    place = Place(0, 0, 0, None)

    def cloudevents() -> list[bytes]:
        return [message for told in speaker.messages("changes", "", place, event, found) for message in told.messages]

    if not len(found) == len(batch.jsonl().splitlines()) == len(cloudevents()) == matches:
        raise WrongMatches(f"{len(found)} of {matches} matches on the {streamer.BACKEND} backend")
    return {
        "match_count": best(lambda: engine.match_count(event)) / matches * 1e9,
        "match_ids": best(lambda: engine.match_ids(event)) / matches * 1e9,
        "Matches.ids": best(found.ids) / matches * 1e9,
        "list(Matches)": best(lambda: list(found)) / matches * 1e9,
        "Match.subscription_id": best(lambda: [match.subscription_id for match in found]) / matches * 1e9,
        "BatchMatches.jsonl": best(batch.jsonl) / matches * 1e9,
        "messages of the service": best(cloudevents) / matches * 1e9,
    }


def measure_adding(size: int, singles: int) -> dict[str, float]:
    """Measure *size* subscriptions in each form, by turns: how many a second; and *singles* more, one by one: their median µs."""
    texts = subscriptions(size)
    dicts = [json.loads(text) for text in texts]
    objects = [streamer.Subscription(**each) for each in dicts]
    forms: dict[str, tuple[str, Any]] = {
        "add_many of dicts": ("add_many", dicts),
        "add_many of Subscription": ("add_many", objects),
        "add_many of bytes": ("add_many", texts),
        "add_jsonl": ("add_jsonl", b"\n".join(texts)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(3):
        for name, (method, source) in forms.items():
            engine = streamer.Engine()
            begun = time.perf_counter()
            getattr(engine, method)(source)
            seconds[name].append(time.perf_counter() - begun)
    one_by_one = []
    for n in range(singles):
        subscription = {**dicts[n % size], "id": f"another-{n}"}
        begun = time.perf_counter()
        engine.add(subscription)
        one_by_one.append(time.perf_counter() - begun)
    return {**{name: size / min(took) for name, took in seconds.items()}, "add of one dict": statistics.median(one_by_one) * 1e6}


def measure_dicts(size: int, count: int, rounds: int) -> dict[str, float]:
    """Measure events as dicts, by turns with `orjson.dumps` and their bytes: the share of what that takes, best by best.

    Raises:
        WrongMatches: an event matched more or less than one subscription.
    """
    import orjson

    engine = streamer.Engine(default=str)
    engine.add_many(subscriptions(size))
    plain = [json.loads(event) for event in events(count, size)]
    # JSON has neither, so `default` is asked.
    odd = [
        {**each, "data": {**each["data"], "price": Decimal("1.20"), "at": datetime(2026, 1, 31, tzinfo=UTC)}} for each in plain
    ]
    found = {}
    for name, given in (("a dict event", plain), ("a dict event with a Decimal and a datetime", odd)):
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for way, encode in zip(seconds, (None, partial(orjson.dumps, default=str)), strict=True):
                begun = time.perf_counter()
                counts = [len(engine.match_ids(event if encode is None else encode(event))) for event in given]
                way.append(time.perf_counter() - begun)
                if counts != [1] * count:
                    raise WrongMatches(f"{name}: {sum(counts)} matches of {count} events on the {streamer.BACKEND} backend")
        found[name] = min(seconds[0]) / min(seconds[1])
    return found


def measure_among(size: int, matches: int) -> float:
    """Measure `match_ids` of an event that *matches* of *size* subscriptions want: ns a match."""
    engine = streamer.Engine()
    lines = b"\n".join(
        b'{"id":"subscription-%d","filters":[{"field":"a","op":"==","value":%d}]}' % (n, n % (size // matches))
        for n in range(size)
    )
    engine.add_jsonl(lines)
    # Each asked for once before: an event whose matches nobody has seen makes their ids.
    given = [b'{"type": "insert", "data": {"a": %d}}' % n for n in range(min(20, size // matches))]
    for event in given:
        if (found := len(engine.match_ids(event))) != matches:
            raise WrongMatches(f"{found} of {matches} matches on the {streamer.BACKEND} backend")
    return best(lambda: [engine.match_ids(event) for event in given]) / len(given) / matches * 1e9


@dataclass(frozen=True)
class Goal:
    """What a figure should be: at least so much where more is better, else at most."""

    figure: str
    unit: str
    goal: float
    more: bool = False


GOALS = (
    Goal("add_many of dicts", "subscriptions/s", 150_000, more=True),
    Goal("add_many of Subscription", "subscriptions/s", 150_000, more=True),
    Goal("add_many of bytes", "subscriptions/s", 150_000, more=True),
    Goal("add of one dict", "µs, p50", 15),
    Goal("add_jsonl", "subscriptions/s", 400_000, more=True),
    Goal("a dict event", "of orjson.dumps and bytes", 1.5),
    Goal("a dict event with a Decimal and a datetime", "of orjson.dumps and bytes", 1.5),
    Goal("a Match and an attribute read", "ns a match", 250),
    Goal("match_ids if all match", "ns a match", 30),
    Goal("match_ids of a few of many", "ns a match", 60),
    Goal("a match of a batch as a line of JSON", "ns a match", 500),
    Goal("a match as a CloudEvent", "ns a match", 500),
    Goal("match_jsonl", "of a loop over lines", 0.7),
    Goal("match_arrow, mixed collections", "of single calls", 0.8),
    Goal("match_jsonl, 2 threads", "times as fast as one", 1.8, more=True),
)


def goals_of(
    added: Mapping[str, float],
    dicts: Mapping[str, float],
    many: Mapping[str, float],
    among: float,
    together: Mapping[int, Mapping[str, tuple[float, float]]],
) -> dict[str, float]:
    """Return the figures of the goals, by their names; without those of Arrow where there is no pyarrow."""
    one, mixed = together[1], together[max(together)]
    figures = {
        **added,
        **dicts,
        "a Match and an attribute read": many["Match.subscription_id"],
        "match_ids if all match": many["match_ids"],
        "match_ids of a few of many": among,
        "a match of a batch as a line of JSON": many["BatchMatches.jsonl"],
        "a match as a CloudEvent": many["messages of the service"],
        "match_jsonl": one["match_jsonl"][1] / one["match, line by line"][1],
        "match_jsonl, 2 threads": one["match_jsonl"][1] / one["match_jsonl, 2 threads"][1],
    }
    if "match_arrow" in mixed:
        figures["match_arrow, mixed collections"] = mixed["match_arrow"][1]
    return figures


#: What to do, and how many matches are in what it gave.
Way = tuple[Callable[[], Any], Callable[[Any], int]]


def ways(engine: streamer.Engine, events: Sequence[bytes]) -> dict[str, Way]:
    """Return the ways of matching many events."""
    lines = b"\n".join(events)

    def several(results: Sequence[Any]) -> int:
        return sum(map(len, results))

    def jsonl(batch_size: int | None = None, threads: int | None = None) -> Way:
        return lambda: [line.matches for line in engine.match_jsonl(lines, batch_size=batch_size, threads=threads)], several

    found: dict[str, Way] = {
        "match": (lambda: [engine.match(event) for event in events], several),
        "match_batch": (lambda: engine.match_batch(events), several),
        "match_batch, 2 threads": (lambda: engine.match_batch(events, threads=2), several),
        "match, ids of each": (lambda: [engine.match(event).ids() for event in events], several),
        "match_batch, ids of each": (lambda: [cast(Matches, each).ids() for each in engine.match_batch(events)], several),
        "match, line by line": (lambda: [engine.match(line.strip()) for line in io.BytesIO(lines)], several),
        "match_jsonl": jsonl(),
        "match_jsonl, 1,000 at once": jsonl(1000),
        "match_jsonl, 2 threads": jsonl(threads=2),
    }
    try:
        import pyarrow
    except ImportError:
        return found
    array = pyarrow.array(events, pyarrow.binary())

    def rows(found: streamer.ArrowMatches) -> int:
        return int(found.matches.num_rows)

    found["match_arrow"] = lambda: engine.match_arrow(array), rows
    found["match_arrow, 2 threads"] = lambda: engine.match_arrow(array, threads=2), rows
    return found


def measure_together(size: int, count: int, collections: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Measure *count* events at once, of *collections* in turn: best ns an event, and the share of what single calls take.

    Raises:
        WrongMatches: an event matched more or less than one subscription.
    """
    engine = streamer.Engine()
    engine.add_many({**json.loads(text), "collection": f"orders-{n % collections}"} for n, text in enumerate(subscriptions(size)))
    given = []
    for event in map(json.loads, events(count, size)):
        event["collection"] = f"orders-{event['data']['customer'] % collections}"
        given.append(json.dumps(event).encode())
    acts = ways(engine, given)
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, (act, matches_of) in acts.items():
            begun = time.perf_counter()
            found = act()
            seconds[name].append(time.perf_counter() - begun)
            if (matches := matches_of(found)) != count:
                raise WrongMatches(f"{name}: {matches} matches of {count} events on the {streamer.BACKEND} backend")
            del found

    def ratio(name: str) -> float:
        return statistics.median(one / other for one, other in zip(seconds[name], seconds["match"], strict=True))

    return {name: (min(seconds[name]) / count * 1e9, ratio(name)) for name in acts}


def alone(size: int) -> dict[str, tuple[list[str], bytes | str, int]]:
    """Return what is asked of `Quamina` and `TopicMatcher`, *size* times: the patterns, an event or key, and how many match."""
    return {
        "Quamina, one pattern": (['{"a": ["x"]}'], b'{"a": "x", "b": 1}', 1),
        "Quamina, prefixes": ([f'{{"a": [{{"prefix": "p{n}-"}}]}}' for n in range(size)], b'{"a": "p7-x", "b": 1}', 1),
        "Quamina, two fields": (
            [f'{{"user": {{"id": [{n}]}}, "status": ["paid", "sent"]}}' for n in range(size)],
            b'{"status": "paid", "user": {"id": 7}}',
            1,
        ),
        "Quamina, ten match": ([f'{{"a": [{n % (size // 10)}]}}' + " " * n for n in range(size)], b'{"a": 7}', 10),
        **{
            f"TopicMatcher, {dialect}": ([f"a{by}b{n}{by}{many}" for n in range(size)], f"a{by}b7{by}c{by}d", 1)
            for dialect, by, many in (("amqp", ".", "#"), ("mqtt", "/", "#"), ("nats", ".", ">"))
        },
    }


def measure_alone(size: int, count: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Measure `Quamina` and `TopicMatcher`: best ns an event, and the share of the best of `match_ids`.

    A round is short, so that some of them are undisturbed; the first are before segments are merged.

    Raises:
        WrongMatches: an event matched more or fewer than it must.
    """
    found = {}
    for name, (sources, event, matches) in alone(size).items():
        engine = streamer.Engine(layout=streamer.EventLayout.preset("document" if name.startswith("Quamina") else "change"))
        if isinstance(event, bytes):
            quamina: Quamina[int] = Quamina()
            for n, source in enumerate(sources):
                quamina.add_pattern(n, source)
            engine.add_many({"id": str(n), "pattern": source, "dialect": "strict"} for n, source in enumerate(sources))
            ask, text = partial(quamina.matches_for_event, event), event
        else:
            dialect = cast(TopicDialect, name.removeprefix("TopicMatcher, "))
            topics: TopicMatcher[int] = TopicMatcher(topic_dialect=dialect)
            for n, source in enumerate(sources):
                topics.bind(source, n)
            engine.add_many({"id": str(n), "topic": source, "topic_dialect": dialect} for n, source in enumerate(sources))
            ask, text = partial(topics.match, event), json.dumps({"topic": event}).encode()
        acts: tuple[Callable[[], Any], ...] = (ask, partial(engine.match_ids, text))
        for act in acts:
            if len(act()) != matches:
                raise WrongMatches(f"{name}: {len(act())} matches, not {matches}, on the {streamer.BACKEND} backend")
        seconds = [float("inf"), float("inf")]
        for _ in range(rounds):
            for way, act in enumerate(acts):
                begun = time.perf_counter()
                for _ in range(count):
                    act()
                seconds[way] = min(seconds[way], time.perf_counter() - begun)
        found[name] = (seconds[0] / count * 1e9, seconds[0] / seconds[1])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, record."""
    options = parser_for(__doc__).parse_args(arguments)
    print(f"streamer {streamer.__version__}, {streamer.BACKEND} backend, one thread; ns an event, subscriptions/s")
    names = [name for name in Row.__annotations__ if name != "subscriptions"]
    print(f"{'subscriptions':>13} " + " ".join(f"{name:>11}" for name in names))
    # The reference judges each subscription of a partition that has no filter in Python.
    sizes = SIZES[:2] if options.smoke or streamer.BACKEND == "reference" else SIZES
    rows = []
    for size in sizes:
        row = measure(size, 50 if options.smoke else EVENTS)
        rows.append(row)
        print(f"{size:>13,} " + " ".join(f"{getattr(row, name):>11,.0f}" for name in names), flush=True)
    many = measure_many(100 if options.smoke else MANY)
    print("ns a match, of many: " + ", ".join(f"{name} {ns:,.0f}" for name, ns in many.items()))
    size, count, rounds = (100, 50, 2) if options.smoke or streamer.BACKEND == "reference" else (100_000, EVENTS, 20)
    together = {collections: measure_together(size, count, collections, rounds) for collections in (1, min(1000, size))}
    print(f"many events at once, {size:,} subscriptions: ns an event, and the share of what single calls take")
    print(f"{'':>38} " + " ".join(f"{f'{collections:,} collections':>20}" for collections in together))
    for name in together[1]:
        print(f"{name:>38} " + " ".join(f"{row[name][0]:>13,.0f} {row[name][1]:>6.2f}" for row in together.values()))
    size, count, rounds = (100, 5, 2) if options.smoke or streamer.BACKEND == "reference" else (2_000, 200, 300)
    by_themselves = measure_alone(size, count, rounds)
    print(f"{size:,} patterns or topics by themselves: ns an event, and the share of what match_ids takes")
    for name, (ns, ratio) in by_themselves.items():
        print(f"{name:>38} {ns:>13,.0f} {ratio:>6.2f}")
    is_little = options.smoke or streamer.BACKEND == "reference"
    added = measure_adding(100 if is_little else 100_000, 20 if is_little else 2_000)
    dicts = measure_dicts(100 if is_little else 100_000, 50 if is_little else EVENTS, 2 if is_little else 20)
    among = measure_among(*((1_000, 100) if is_little else (1_000_000, MANY)))
    figures = goals_of(added, dicts, many, among, together)
    print("goals: the figure, what it should be at least (>) or at most (<)")
    for goal in GOALS:
        if goal.figure in figures:
            print(f"{goal.figure:>43} {figures[goal.figure]:>12,.2f} {'>' if goal.more else '<'} {goal.goal:>10,} {goal.unit}")
    if options.record:
        today = datetime.now(UTC)
        record = {
            "benchmark": "edge",
            "date": today.isoformat(timespec="seconds"),
            "commit": commit(),
            "backend": streamer.BACKEND,
            "core": core(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "python": platform.python_version(),
            "rows": [{name: round(value) for name, value in asdict(row).items()} for row in rows],
            "ns_a_match_of_many": {name: round(ns) for name, ns in many.items()},
            "many_events_at_once": {
                f"{collections} collections": {
                    name: {"ns": round(ns), "ratio": round(ratio, 3)} for name, (ns, ratio) in row.items()
                }
                for collections, row in together.items()
            },
            "by_themselves": {name: {"ns": round(ns), "ratio": round(ratio, 3)} for name, (ns, ratio) in by_themselves.items()},
            "goals": [{**asdict(goal), "measured": round(figures[goal.figure], 3)} for goal in GOALS if goal.figure in figures],
        }
        RECORDS.mkdir(exist_ok=True)
        path = RECORDS / f"{today:%Y-%m-%d}-edge-{streamer.BACKEND}.json"
        path.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
