"""One event against many subscriptions of every kind, most of them narrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from benchmarks.measure import Case

COUNTRIES = ("DE", "FR", "GB", "ES", "IT", "NL", "PL", "SE", "US", "JP")
STATES = ("new", "paid", "sent", "returned")

CASES = (
    Case("mixed", subscriptions=100, events=200, matches=78, smoke=True),
    Case("mixed", subscriptions=1_000, events=500, matches=1_402),
)


def subscriptions(count: int) -> Iterator[dict[str, Any]]:
    """Yield *count* subscriptions: customers, products, countries with an amount, states with a topic, tags."""
    random = Random(1)
    for index in range(count):
        customer, product = random.randrange(2_000), random.randrange(500)
        country, state = random.choice(COUNTRIES), random.choice(STATES)
        kinds: list[dict[str, Any]] = [
            {"filters": [{"field": "customer.id", "op": "==", "value": customer}]},
            {"filters": [{"field": "product", "op": "in", "value": [product, product + 1, product + 2]}]},
            {
                "filters": [
                    {"field": "customer.country", "op": "==", "value": country},
                    {"field": "amount", "op": ">", "value": random.randrange(900, 1_000)},
                ]
            },
            {"topic": f"orders.{country}.{state}.#", "pattern": {"data": {"tags": [{"prefix": f"vip-{product % 50}"}]}}},
            {"pattern": {"data": {"tags": [{"wildcard": f"*-{product}"}], "state": [state]}}},
            {"cel": f"data.customer.country in ['{country}', 'CH'] && (data.amount > 990.0 || data.product == {product})"},
        ]
        parts = random.choices(kinds, weights=[30, 20, 20, 10, 10, 10])[0]
        yield {"id": f"s{index}", "collection": "orders", **parts}


def events(count: int) -> Iterator[bytes]:
    """Yield *count* orders, about 300 bytes each."""
    random = Random(2)
    for index in range(count):
        country, state = random.choice(COUNTRIES), random.choice(STATES)
        order = {
            "amount": round(random.uniform(1, 1_000), 2),
            "customer": {"id": random.randrange(2_000), "country": country, "name": f"customer {index}"},
            "product": random.randrange(500),
            "state": state,
            "tags": [f"vip-{random.randrange(100)}", f"lot-{random.randrange(500)}"],
            "lines": [{"sku": f"{random.randrange(10**6):06}", "pieces": random.randrange(1, 9)} for _ in range(3)],
        }
        event = {"id": index, "collection": "orders", "type": "insert", "topic": f"orders.{country}.{state}.web", "data": order}
        yield json.dumps(event).encode()
