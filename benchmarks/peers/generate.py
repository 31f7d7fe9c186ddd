"""The workloads of the comparison with other engines: events and patterns of seeded generators, the same on every machine.

Five kinds of events, and for each the sets of patterns that are matched against them:

    citylots (about 850 bytes of GeoJSON)  W1 one pattern · W2 a mix of 12, two of them on coordinates · W2s without those ·
                                           W3 1,000 pairs of street and block · W6 1,000 and W6x 10,000 wildcards
    cdc (about 350 bytes of change event)  W4 10,000 of tenant, collection, status, country · W4s one value each ·
                                           W5 100,000 mixed · W5q without ranges and exists · W5a without prefixes ·
                                           W7 1,000 anything-but sets · W7t with a tenant · W8 10,000 ranges
    tags (a list of 5 of 50,000)           W9 100,000 of one tag each
    apps (about 130 bytes)                 W10 100,000 of six conditions, which ten each share: a wildcard, two equalities, two
                                           tags of a list, an anything-but, either of two; hypermatch's own benchmark ·
                                           W10n without the wildcard, with which Event Ruler loads no 100,000
    orders (about 900 bytes)               W12 100,000 on the objects of a list: their skus, quantities, options, one by one,
                                           together, and with a tag or a country

W9f, W10f, W10nf are the same as filters, W9c, W10c, W10nc, W12c as CEL, for Streamer only. In patterns a list of two tags means
either of them. The filters and CEL of W10 require both, and each event has both.

In W5* nearly every pattern has one selective clause (a user id, a prefix, a range of 0.01 to 2 % of the amounts);
1 in 500 does not.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
Pattern = dict[str, Any]
#: What a subscription consists of, beside its id: a pattern, filters or CEL.
Parts = dict[str, Any]

CITYLOTS: Final = ("W1", "W2", "W2s", "W3", "W6", "W6x")
CDC: Final = ("W4", "W4s", "W5", "W5q", "W5a", "W7", "W7t", "W8")
#: Workloads on lists, by their events; those that end in `f` are filters, in `c` CEL.
LISTS: Final = {
    "tags": ("W9", "W9f", "W9c"),
    "apps": ("W10", "W10f", "W10c", "W10n", "W10nf", "W10nc"),
    "orders": ("W12", "W12c"),
}

TENANTS: Final = [f"t{number}" for number in range(200)]
COLLECTIONS: Final = "orders users payments sessions carts products shipments invoices reviews audits".split()
STATUSES: Final = "paid pending shipped cancelled refunded failed draft archived".split()
COUNTRIES: Final = "DE US FR GB IT ES NL PL SE AT CH BE DK NO FI PT IE CZ GR HU RO BG HR SK SI LT LV EE JP BR".split()
TIERS: Final = ["free", "silver", "gold", "platinum"]
TYPES: Final = ["update", "insert", "delete"]
TAGS: Final = [f"tag{number}" for number in range(20)]
USER_LOW, USERS = 100_000, 200_000  # ids u100000 to u299999
#: The coordinate of Quamina's own benchmark, with more digits than a double has.
COORDINATE_TEXT: Final = "37.807807921694092"
COORDINATE: Final = float(COORDINATE_TEXT)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many events of each kind, and how many patterns: W3 W6 W7 W7t are small, W4 W4s W6x W8 middle, the others large."""

    citylots: int = 20_000
    cdc: int = 50_000
    lists: int = 10_000
    small: int = 1_000
    middle: int = 10_000
    large: int = 100_000


class Zipf(Generic[T]):
    """Draws the n-th item with a weight of 1/n to the power *exponent*."""

    def __init__(self, random: Random, items: list[T], exponent: float = 1.0) -> None:
        self.random, self.items = random, items
        self.sums = list(itertools.accumulate(1 / (rank + 1) ** exponent for rank in range(len(items))))

    def __call__(self) -> T:
        """Draw one."""
        return self.items[bisect.bisect_left(self.sums, self.random.random() * self.sums[-1])]

    def some(self, low: int, high: int) -> list[T]:
        """Draw *low* to *high* distinct ones."""
        count = self.random.randint(low, high)
        drawn: list[T] = []
        while len(drawn) < count:
            item = self()
            if item not in drawn:
                drawn.append(item)
        return drawn


def compact(value: object) -> str:
    """Return JSON text without spaces."""
    return json.dumps(value, separators=(",", ":"))


def street_names(random: Random) -> list[str]:
    """Make up 1,700 street names, CRANLEIGH among the rarer ones."""
    onset = "B BR C CL CR D F FR G GR H J K L M N P PR R S ST T TR V W".split()
    vowel = "A E I O U EA OU".split()
    coda = ["", "L", "N", "R", "S", "ND", "RT", "CK", "LL", "NG"]
    tail = ["", "", "TON", "LEIGH", "WOOD", "MAN", "SON", "FIELD", "ISON", "ELL"]
    fixed = (
        "UNKNOWN MISSION MARKET FULTON CALIFORNIA GEARY SACRAMENTO FOLSOM BRYANT JEFFERSON BEACH HYDE CHESTNUT MASON ACADIA"
    ).split()
    ending = {1: "ST", 2: "ND", 3: "RD"}
    numbered = [f"{number:02d}{'TH' if 10 < number < 20 else ending.get(number % 10, 'TH')}" for number in range(1, 49)]
    head, seen = fixed + numbered, {*fixed, *numbered, "CRANLEIGH"}
    random.shuffle(head)
    rest: list[str] = []
    while len(head) + len(rest) < 1_699:
        syllables = [random.choice(onset) + random.choice(vowel) + random.choice(coda) for _ in range(random.choice([1, 2, 2]))]
        name = "".join(syllables) + random.choice(tail)
        if len(name) > 3 and name not in seen:
            seen.add(name)
            rest.append(name)
    rest.insert(10, "CRANLEIGH")
    return head + rest


@dataclass(frozen=True, slots=True)
class Citylots:
    """Parcels of an invented city, and what patterns need to know of them."""

    events: list[str]
    streets: list[str]
    pairs: list[tuple[str, str]]


def citylots(random: Random, count: int) -> Citylots:
    """Draw *count* parcels, block by block."""
    streets = street_names(random)
    street_of = Zipf(random, streets, 0.9)
    kinds: list[str | None] = ["ST", "AVE", None, "WAY", "DR", "BLVD", "CT", "TER", "PL"]
    kind_of = Zipf(random, kinds, 1.0)
    found = Citylots([], streets, [])
    block = 0
    while len(found.events) < count:
        block += 1
        around = [(street_of(), kind_of()) for _ in range(4)]
        longitude, latitude = -122.51 + random.random() * 0.14, 37.71 + random.random() * 0.10
        for lot in range(1, random.randint(8, 60)):
            if len(found.events) == count:
                break
            (street, kind), number = random.choice(around), random.randint(0, 4000)
            block_text, lot_text = f"{block:04d}", f"{lot:03d}"
            corners = 5
            while corners < 25 and random.random() < 0.915:
                corners += 1
            ring = [
                f"[{longitude + random.random() * 0.001:.14f},{latitude + random.random() * 0.001:.14f},0.0]"
                for _ in range(corners)
            ]
            if (block == 11 and lot == 8) or len(found.events) % 4000 == 17:
                ring[corners // 2] = f"[-122.42200352825247,{COORDINATE_TEXT},0.0]"
            properties = {
                "MAPBLKLOT": block_text + lot_text,
                "BLKLOT": block_text + lot_text,
                "BLOCK_NUM": block_text,
                "LOT_NUM": lot_text,
                "FROM_ST": str(number),
                "TO_ST": str(number),
                "STREET": street,
                "ST_TYPE": kind,
                "ODD_EVEN": "E" if number % 2 == 0 else "O",
            }
            head = compact({"type": "Feature", "properties": properties})[:-1]
            found.events.append(f'{head},"geometry":{{"type":"Polygon","coordinates":[[{",".join(ring)}]]}}}}')
            found.pairs.append((street, block_text))
    return found


def properties(**fields: list[Any]) -> Pattern:
    """Return a pattern on the properties of a parcel."""
    return {"properties": fields}


def wildcards(random: Random, streets: list[str], count: int) -> Iterator[Pattern]:
    """Draw `*ABC*DEF*`: nine in ten of random letters, one in ten cut from a real name so that it can match."""
    long = [street for street in streets if len(street) >= 6]
    for index in range(count):
        if index % 10 == 0:
            street = random.choice(long)
            left, right = street[:3], street[-3:]
        else:
            left, right = ("".join(random.choices(string.ascii_uppercase, k=3)) for _ in range(2))
        yield properties(STREET=[{"wildcard": f"*{left}*{right}*"}])


def citylots_patterns(random: Random, lots: Citylots, sizes: Sizes) -> dict[str, list[Pattern]]:
    """Draw the patterns of the workloads on parcels."""
    on_coordinates = {"coordinates": [COORDINATE]}
    strings = [
        properties(STREET=["CRANLEIGH"]),
        properties(STREET=["17TH"], ODD_EVEN=["E"]),
        properties(STREET=[{"prefix": "AC"}]),
        properties(STREET=[{"prefix": "B"}], BLOCK_NUM=[{"prefix": "00"}]),
        properties(MAPBLKLOT=[{"wildcard": "0*0*1*7"}]),
        properties(STREET=[{"wildcard": "*AN*E*"}]),
        properties(ST_TYPE=[{"anything-but": ["ST", "AVE"]}]),
        {"geometry": {"type": [{"anything-but": ["Polygon"]}]}},
        properties(STREET=[{"equals-ignore-case": "bEaCh"}]),
        properties(FROM_ST=[{"exists": True}], STREET=["HYDE"]),
    ]
    numbers = [
        {"geometry": on_coordinates},
        {**properties(MAPBLKLOT=["0011008"], BLKLOT=["0011008"]), "geometry": on_coordinates},
    ]
    distinct = sorted(set(lots.pairs))
    chosen = random.sample(distinct, min(len(distinct), sizes.small * 4 // 5))
    while len(chosen) < sizes.small:
        pair = (random.choice(lots.streets), f"{random.randint(1, 700):04d}")
        if pair not in chosen:
            chosen.append(pair)
    random.shuffle(chosen)
    return {
        "W1": [properties(STREET=["CRANLEIGH"])],
        "W2": strings + numbers,
        "W2s": strings,
        "W3": [properties(STREET=[street], BLOCK_NUM=[block]) for street, block in chosen],
        "W6": list(wildcards(random, lots.streets, sizes.small)),
        "W6x": list(wildcards(random, lots.streets, sizes.middle)),
    }


def amount(random: Random) -> float:
    """Draw an amount, most of them small."""
    return round(min(9999.99, math.exp(random.gauss(4.5, 1.2))), 2)


def cdc(random: Random, count: int) -> Iterator[str]:
    """Draw *count* change events."""
    tenant, collection = Zipf(random, TENANTS), Zipf(random, COLLECTIONS)
    status, country, event_type = Zipf(random, STATUSES), Zipf(random, COUNTRIES), Zipf(random, TYPES)
    for _ in range(count):
        user = {"id": f"u{USER_LOW + random.randrange(USERS)}", "country": country()}
        if random.random() < 0.8:
            user["tier"] = random.choice(TIERS)
        data: dict[str, Any] = {"status": status(), "amount": amount(random), "user": user}
        if random.random() < 0.1:
            data["coupon"] = f"C{random.randint(1000, 9999)}"
        data["tags"] = random.sample(TAGS, random.randint(0, 3))
        data["items"] = [
            {"sku": f"SKU-{random.randint(100000, 999999)}", "qty": random.randint(1, 9)} for _ in range(random.randint(1, 9))
        ]
        yield compact(
            {
                "id": f"{random.getrandbits(64):016x}",
                "tenant": tenant(),
                "collection": collection(),
                "type": event_type(),
                "data": data,
            }
        )


def merged(left: Pattern, right: Pattern) -> Pattern:
    """Return the members of both, nested ones merged as well."""
    out = dict(left)
    for name, value in right.items():
        both = isinstance(value, dict) and isinstance(out.get(name), dict)
        out[name] = merged(out[name], value) if both else value
    return out


def cdc_patterns(random: Random, sizes: Sizes) -> dict[str, list[Pattern]]:
    """Draw the patterns of the workloads on change events."""
    tenant, collection = Zipf(random, TENANTS), Zipf(random, COLLECTIONS)
    status, country = Zipf(random, STATUSES), Zipf(random, COUNTRIES)
    quantiles = sorted(amount(random) for _ in range(100_000))

    def user_id() -> str:
        return f"u{USER_LOW + random.randrange(USERS)}"

    def amount_range(least: float = 1e-4, most: float = 2e-2) -> Pattern:
        """An open interval that holds a log-uniform share of the amounts."""
        share = math.exp(random.uniform(math.log(least), math.log(most)))
        start = random.random() * (1 - share)
        low, high = quantiles[int(start * 99_999)], quantiles[int((start + share) * 99_999)]
        return {"numeric": [">", round(low - 0.01, 2), "<", round(high + 0.01, 2)]}

    def wildcard() -> Pattern:
        text = user_id()
        return {"wildcard": text[:3] + "*" + text[-2:]}

    def exists() -> Pattern:
        if random.random() < 0.5:
            return {"coupon": [{"exists": True}]}
        return {"user": {"tier": [{"exists": random.random() < 0.5}]}}

    clauses: dict[str, Callable[[], Pattern]] = {
        "id": lambda: {"user": {"id": [user_id() for _ in range(random.randint(1, 3))]}},
        "prefix": lambda: {"user": {"id": [{"prefix": user_id()[:5]}]}},
        "wildcard": lambda: {"user": {"id": [wildcard()]}},
        "range": lambda: {"amount": [amount_range()]},
        "status": lambda: {"status": status.some(1, 2)},
        "other": lambda: {"user": {"country": [{"anything-but": country.some(1, 3)}]}},
        "exists": exists,
    }

    def mixed(selective: dict[str, int], others: list[str]) -> Iterator[Pattern]:
        """A collection and a selective clause, and in half of them one of *others*; 1 in 500 has only one of *others*."""
        for index in range(sizes.large):
            if index % 500 == 0:
                data = clauses[random.choice(others)]()
            else:
                data = clauses[random.choices(list(selective), list(selective.values()))[0]]()
                if random.random() < 0.5:
                    data = merged(data, clauses[random.choice(others)]())
            yield {"collection": [collection()], "data": data}

    def four(most: int) -> Iterator[Pattern]:
        for _ in range(sizes.middle):
            yield {
                "tenant": [tenant()],
                "collection": [collection()],
                "data": {"status": status.some(1, most), "user": {"country": country.some(1, most)}},
            }

    def four_single() -> Iterator[Pattern]:
        for _ in range(sizes.middle):
            yield {
                "tenant": [tenant()],
                "collection": [collection()],
                "data": {"status": [status()], "user": {"country": [country()]}},
            }

    # In this order: they share one stream of random numbers.
    out = {"W4": list(four(2))}
    out["W5"] = list(mixed({"id": 60, "prefix": 20, "range": 20}, ["status", "other", "exists"]))
    out["W5q"] = list(mixed({"id": 69, "prefix": 30, "wildcard": 1}, ["status", "other"]))
    out["W5a"] = list(mixed({"id": 75, "range": 25}, ["status", "other", "exists"]))
    sets = [{"country": [{"anything-but": random.sample(COUNTRIES, 5)}]} for _ in range(sizes.small)]
    out["W7"] = [{"data": {"user": one}} for one in sets]
    out["W7t"] = [{"tenant": [tenant()], "data": {"user": one}} for one in sets]
    out["W4s"] = list(four_single())
    out["W8"] = [{"data": {"amount": [amount_range()]}} for _ in range(sizes.middle)]
    return out


def tags(random: Random, sizes: Sizes) -> tuple[list[str], dict[str, list[Parts]]]:
    """Draw events with five tags each, and subscriptions to one tag each: two to every tag."""
    names = [f"tag{number}" for number in range(sizes.large // 2)]
    events = [compact({"number": number, "tags": random.sample(names, 5)}) for number in range(sizes.lists)]
    wanted = [names[number % len(names)] for number in range(sizes.large)]
    return events, {
        "W9": [{"pattern": {"tags": [name]}} for name in wanted],
        "W9f": [{"filters": [{"field": "tags", "op": "contains", "value": name}]} for name in wanted],
        "W9c": [{"cel": f"'{name}' in data.tags"} for name in wanted],
    }


def apps(sizes: Sizes) -> tuple[list[str], dict[str, list[Parts]]]:
    """Return events and rules as hypermatch's own benchmark has them: ten rules to each number."""
    groups = sizes.large // 10
    common = {"env": "prod", "tags": ["tag1", "tag2"], "region": "earth", "type": "app"}
    events = [compact({"name": f"app-myapp-{number}", "number": str(number % groups), **common}) for number in range(sizes.lists)]
    wanted = [str(number % groups) for number in range(sizes.large)]

    wildcard = {"name": [{"wildcard": "*-myapp-*"}]}

    def pattern(number: str) -> Pattern:
        return {
            "env": ["prod"],
            "number": [number],
            "tags": ["tag1", "tag2"],
            "region": [{"anything-but": ["moon"]}],
            "type": ["app", "database"],
        }

    def filters(number: str) -> list[dict[str, Any]]:
        return [
            {"field": "env", "op": "==", "value": "prod"},
            {"field": "number", "op": "==", "value": number},
            {"field": "tags", "op": "contains", "value": "tag1"},
            {"field": "tags", "op": "contains", "value": "tag2"},
            {"field": "region", "op": "!=", "value": "moon"},
            {"field": "type", "op": "in", "value": ["app", "database"]},
        ]

    def cel(number: str) -> str:
        return (
            f"data.env == 'prod' && data.number == '{number}' && 'tag1' in data.tags && 'tag2' in data.tags "
            "&& data.region != 'moon' && data.type in ['app', 'database']"
        )

    like = {"field": "name", "op": "contains", "value": "-myapp-"}
    return events, {
        "W10": [{"pattern": wildcard | pattern(number)} for number in wanted],
        "W10f": [{"filters": [like, *filters(number)]} for number in wanted],
        "W10c": [{"cel": f"data.name.contains('-myapp-') && {cel(number)}"} for number in wanted],
        "W10n": [{"pattern": pattern(number)} for number in wanted],
        "W10nf": [{"filters": filters(number)} for number in wanted],
        "W10nc": [{"cel": cel(number)} for number in wanted],
    }


def orders(random: Random, sizes: Sizes) -> tuple[list[str], dict[str, list[Parts]]]:
    """Draw orders with a list of items, and subscriptions to what one item is, as patterns and as CEL."""
    skus = [f"SKU-{10_000 + number}" for number in range(sizes.large // 2)]
    names, values = ["gift", "size", "colour", "engraving"], [f"v{number}" for number in range(500)]
    labels = [f"label{number}" for number in range(200)]
    country = Zipf(random, COUNTRIES)

    def item() -> dict[str, Any]:
        options = [{"name": name, "value": random.choice(values)} for name in random.sample(names, random.randint(0, 2))]
        return {"sku": random.choice(skus), "qty": random.randint(1, 9), "options": options}

    events = [
        compact(
            {"country": country(), "labels": random.sample(labels, 4), "items": [item() for _ in range(random.randint(1, 20))]}
        )
        for _ in range(sizes.lists)
    ]

    def one_of() -> tuple[Pattern, str]:
        some = random.sample(skus, random.randint(1, 3))
        return {"items": {"sku": some}}, f"data.items.exists(i, i.sku in {some})"

    def quantity() -> tuple[Pattern, str]:
        sku, least = random.choice(skus), random.randint(0, 7)
        numeric = {"numeric": [">", least, "<", 9]}
        return (
            {"items": {"sku": [sku], "qty": [numeric]}},
            f"data.items.exists(i, i.sku == '{sku}' && i.qty > {least} && i.qty < 9)",
        )

    def in_country() -> tuple[Pattern, str]:
        sku, place = random.choice(skus), country()
        return {
            "country": [place],
            "items": {"sku": [sku]},
        }, f"data.country == '{place}' && data.items.exists(i, i.sku == '{sku}')"

    def two_lists() -> tuple[Pattern, str]:
        sku, label = random.choice(skus), random.choice(labels)
        cel = f"'{label}' in data.labels && data.items.exists(i, i.sku == '{sku}')"
        return {"labels": [label], "items": {"sku": [sku]}}, cel

    def prefix() -> tuple[Pattern, str]:
        head, count = random.choice(skus)[:8], random.randint(1, 9)
        return (
            {"items": {"sku": [{"prefix": head}], "qty": [count]}},
            f"data.items.exists(i, i.sku.startsWith('{head}') && i.qty == {count})",
        )

    def nested() -> tuple[Pattern, str]:
        sku, name, value = random.choice(skus)[:7], random.choice(names), random.choice(values)
        return (
            {"items": {"sku": [{"prefix": sku}], "options": {"name": [name], "value": [value]}}},
            f"data.items.exists(i, i.sku.startsWith('{sku}') && i.options.exists(o, o.name == '{name}' && o.value == '{value}'))",
        )

    kinds = [one_of, quantity, in_country, two_lists, prefix, nested]
    drawn = [make() for make in random.choices(kinds, [40, 30, 10, 10, 5, 5], k=sizes.large)]
    return events, {"W12": [{"pattern": pattern} for pattern, _ in drawn], "W12c": [{"cel": cel} for _, cel in drawn]}


def events_of(workload: str) -> str:
    """Return which events a workload (`W5`, or `W5:500` for its first 500 patterns) is matched against."""
    name = workload.partition(":")[0]
    return next((kind for kind, names in LISTS.items() if name in names), "citylots" if name in CITYLOTS else "cdc")


def generate(sizes: Sizes) -> tuple[dict[str, list[str]], dict[str, list[Parts]]]:
    """Draw the events of every kind and the subscriptions of every workload."""
    lots = citylots(Random(1), sizes.citylots)
    patterns = citylots_patterns(Random(2), lots, sizes)
    events = {"citylots": lots.events, "cdc": list(cdc(Random(3), sizes.cdc))}
    patterns |= cdc_patterns(Random(4), sizes)
    subscriptions = {name: [{"pattern": pattern} for pattern in drawn] for name, drawn in patterns.items()}
    for kind, (texts, drawn) in {
        "tags": tags(Random(5), sizes),
        "apps": apps(sizes),
        "orders": orders(Random(6), sizes),
    }.items():
        events[kind] = texts
        subscriptions |= drawn
    return events, subscriptions


def write(folder: Path, sizes: Sizes) -> None:
    """Write `events/*.jsonl` and `patterns/*.jsonl` for the drivers."""

    def put(path: Path, texts: Iterable[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{text}\n" for text in texts))

    events, subscriptions = generate(sizes)
    for kind, texts in events.items():
        put(folder / "events" / f"{kind}.jsonl", texts)
    for workload, drawn in subscriptions.items():
        put(folder / "patterns" / f"{workload}.jsonl", (compact({"id": number, **parts}) for number, parts in enumerate(drawn)))
