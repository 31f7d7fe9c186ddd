"""Events of two real shapes, and subscriptions for them: rows of a shop as Debezium sends them, and public events of GitHub.

Equal numbers give equal events and subscriptions: the generators are seeded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

Row = dict[str, Any]

STATES: Final = ("placed", "paid", "picked", "shipped", "delivered", "returned", "cancelled")
CITIES: Final = ("Berlin", "Hamburg", "Lyon", "Paris", "Madrid", "Porto", "Wien", "Zürich", "Oslo", "Gdańsk")
COUNTRIES: Final = ("DE", "DE", "FR", "FR", "ES", "PT", "AT", "CH", "NO", "PL")
CHANNELS: Final = ("web", "app", "store", "phone")
LANGUAGES: Final = ("Python", "Rust", "Go", "TypeScript", "C", "Java", "Ruby", "Kotlin")
ACTIONS: Final = ("opened", "closed", "synchronize", "reopened", "labeled")

#: Asked for by nobody else, so that what an event costs by itself is seen with a partition and a path.
NOTHING: Final[Row] = {"id": "nothing-0", "filters": [{"field": "wanted by nobody", "op": "==", "value": 1}]}

CUSTOMERS: Final = 40_000
PRODUCTS: Final = 5_000
REPOSITORIES: Final = 30_000
ACTORS: Final = 50_000


def drawn(kinds: dict[Callable[[Random], Row], int], count: int, seed: int, head: Row) -> Iterator[Row]:
    """Yield *count* subscriptions, of each kind as many as its weight says; an id begins with the name of its kind."""
    random = Random(seed)
    for number, kind in enumerate(random.choices(list(kinds), list(kinds.values()), k=count)):
        name = kind.__name__.replace("_", " ")
        yield {"id": f"{name}-{number}", "gateway_id": f"gateway-{number % 100}", **head, **kind(random)}


def condition(field: str, op: str, value: Any) -> Row:
    """Return a filter."""
    return {"field": field, "op": op, "value": value}


# Orders -----------------------------------------------------------------------------------------------------------------------


def customer(random: Random) -> Row:
    """A customer follows their orders."""
    return {"filters": [condition("customer_id", "==", random.randrange(CUSTOMERS))]}


def shipped(random: Random) -> Row:
    """A shop waits for a city's orders of a product to be shipped."""
    filters = [condition("product_id", "==", random.randrange(PRODUCTS)), condition("ship_city", "==", random.choice(CITIES))]
    return {"filters": [*filters, condition("status", "changed_to", "shipped")]}


def stays(random: Random) -> Row:
    """A screen shows a product's orders while they are paid and not shipped: they enter and they leave."""
    filters = [condition("product_id", "==", random.randrange(PRODUCTS)), condition("status", "in", ["paid", "picked"])]
    return {"filters": filters, "transitions": True}


def large(random: Random) -> Row:
    """An auditor sees large orders of a country."""
    least = random.randrange(480_000, 500_000)
    filters = [condition("ship_country", "==", random.choice(COUNTRIES)), condition("total_cents", ">", least)]
    return {"types": ["insert"], "filters": filters}


def voucher(random: Random) -> Row:
    """A campaign counts its vouchers."""
    return {"pattern": {"after": {"voucher": [{"prefix": f"V{random.randrange(20_000):05}-"}], "channel": ["web", "app"]}}}


def warehouse(random: Random) -> Row:
    """A warehouse packs some products for a city, but not what another one has."""
    products = sorted(random.sample(range(PRODUCTS), 3))
    filters = [condition("product_id", "in", products), condition("ship_city", "==", random.choice(CITIES))]
    return {"filters": [*filters, condition("warehouse", "!=", random.randrange(9))]}


def margin(random: Random) -> Row:
    """An analyst writes CEL that no index decides."""
    shop, least = random.randrange(2_000), random.randrange(1_000, 90_000)
    return {
        "filters": [condition("shop_id", "==", shop)],
        "cel": f"data.total_cents - data.discount_cents > {least} && before.status != data.status",
    }


ORDER_KINDS: Final[dict[Callable[[Random], Row], int]] = {
    customer: 30, shipped: 20, stays: 10, large: 5, voucher: 15, warehouse: 10, margin: 10,
}  # fmt: skip


def order_subscriptions(count: int) -> Iterator[Row]:
    """Yield *count* subscriptions to orders."""
    return drawn(ORDER_KINDS, count, 11, {"collection": "orders"})


def orders(count: int) -> Iterator[bytes]:
    """Yield *count* changes of orders as Debezium's JSON without a schema: one in five an insert, all others with both rows."""
    random = Random(12)
    for number in range(count):
        city = random.randrange(len(CITIES))
        gift = {"wrap": f"paper-{random.randrange(3_000)}", "note": "Alles Gute!"}
        state = random.randrange(1, len(STATES))
        row: Row = {
            "id": 7_000_000 + number,
            "customer_id": random.randrange(CUSTOMERS),
            "shop_id": random.randrange(2_000),
            "product_id": random.randrange(PRODUCTS),
            "quantity": random.randrange(1, 9),
            "total_cents": random.randrange(900, 500_000),
            "discount_cents": random.randrange(0, 900),
            "currency": "EUR",
            "status": STATES[state - 1],
            "channel": random.choice(CHANNELS),
            "voucher": f"V{random.randrange(20_000):05}-{random.randrange(10**6):06}" if random.random() < 0.3 else None,
            "ship_name": "Ida Lovelace",
            "ship_street": f"Hauptstraße {random.randrange(200)}",
            "ship_city": CITIES[city],
            "ship_country": COUNTRIES[city],
            "warehouse": random.randrange(9),
            "attributes": json.dumps({"gift": gift, "source": {"campaign": random.randrange(900)}}),
            "created_at": 1_795_342_530_000_000 + number * 1_000,
            "updated_at": 1_795_342_530_000_000 + number * 1_000,
        }
        insert = number % 5 == 0
        after = row if insert else {**row, "status": STATES[state], "updated_at": row["updated_at"] + 86_400_000_000}
        source = {
            "version": "3.0.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_795_342_530_123 + number,
            "snapshot": "false", "db": "shopdb", "sequence": '["24023119","24023128"]', "ts_us": 1_795_342_530_123_000 + number,
            "ts_ns": 1_795_342_530_123_000_000 + number, "schema": "public", "table": "orders", "txId": 555 + number,
            "lsn": 24_023_128 + number, "xmin": None,
        }  # fmt: skip
        record: Row = {"before": None if insert else row, "after": after, "source": source, "transaction": None}
        record |= {"op": "c" if insert else "u", "ts_ms": 1_795_342_530_456 + number, "ts_us": 1_795_342_530_456_000 + number}
        yield json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


# GitHub -----------------------------------------------------------------------------------------------------------------------


def repository(random: Random) -> Row:
    """A maintainer follows a repository."""
    return {"filters": [condition("repo.name", "==", repository_name(random.randrange(REPOSITORIES)))]}


def actor(random: Random) -> Row:
    """A friend follows who does something, by pattern."""
    pattern = {"actor": {"login": [f"user-{random.randrange(ACTORS)}"]}, "type": ["PushEvent", "PullRequestEvent"]}
    return {"pattern": pattern}


def organisation(random: Random) -> Row:
    """A company follows all of its repositories."""
    pattern = {"repo": {"name": [{"prefix": f"org-{random.randrange(REPOSITORIES // 10)}/"}]}, "type": ["PullRequestEvent"]}
    return {"pattern": pattern}


def merged(random: Random) -> Row:
    """A release waits for a large pull request to be merged into a branch."""
    filters = [
        condition("payload.action", "==", "closed"),
        condition("payload.pull_request.merged", "==", True),
        condition("payload.pull_request.base.ref", "==", f"release/{random.randrange(2_000)}"),
    ]
    return {"filters": [*filters, condition("payload.pull_request.additions", ">", random.randrange(500))]}


def language(random: Random) -> Row:
    """A reviewer looks for pull requests in a language, with a label."""
    label = {"name": [f"area-{random.randrange(4_000)}"]}
    request = {"labels": label, "base": {"repo": {"language": [random.choice(LANGUAGES)]}}}
    return {"pattern": {"payload": {"pull_request": request}}}


def branch(random: Random) -> Row:
    """A pipeline runs for branches whose names look like its own."""
    return {"pattern": {"payload": {"ref": [{"wildcard": f"refs/heads/team-{random.randrange(9_000)}/*"}]}}}


def balance(random: Random) -> Row:
    """An analyst writes CEL that no index decides."""
    less = random.randrange(1, 400)
    return {
        "filters": [condition("repo.name", "==", repository_name(random.randrange(REPOSITORIES)))],
        "cel": f"data.payload.pull_request.additions - data.payload.pull_request.deletions > {less}",
    }


GITHUB_KINDS: Final[dict[Callable[[Random], Row], int]] = {
    repository: 25, actor: 25, organisation: 10, merged: 10, language: 10, branch: 10, balance: 10,
}  # fmt: skip


def github_subscriptions(count: int) -> Iterator[Row]:
    """Yield *count* subscriptions to the events of GitHub."""
    return drawn(GITHUB_KINDS, count, 21, {})


def repository_name(number: int) -> str:
    """Return the name of a repository; ten belong to one organisation."""
    return f"org-{number // 10}/project-{number}"


def person(random: Random) -> Row:
    """Return a user as GitHub writes them inside of an event."""
    number = random.randrange(ACTORS)
    api = f"https://api.github.com/users/user-{number}"
    links = ("followers", "gists", "starred", "subscriptions", "orgs", "repos", "events", "received_events")
    return {
        "login": f"user-{number}",
        "id": 1_000_000 + number,
        "avatar_url": f"https://avatars.githubusercontent.com/u/{1_000_000 + number}?v=4",
        "gravatar_id": "",
        "url": api,
        **{f"{name}_url": f"{api}/{name}" for name in links},
        "type": "User",
        "site_admin": False,
    }


def side(random: Random, name: str, ref: str) -> Row:
    """Return one side of a pull request: a branch with its repository."""
    api = f"https://api.github.com/repos/{name}"
    links = ("forks", "keys", "teams", "hooks", "branches", "tags", "commits", "issues", "pulls", "labels", "releases")
    about: Row = {
        "id": random.randrange(10**9),
        "name": name.partition("/")[2],
        "full_name": name,
        "private": False,
        "owner": {"login": name.partition("/")[0], "id": random.randrange(10**8), "type": "Organization"},
        "description": 'Says "hello",\nto all',
        "fork": random.random() < 0.5,
        "url": api,
        **{f"{link}_url": f"{api}/{link}" for link in links},
        "created_at": "2021-03-04T05:06:07Z",
        "pushed_at": "2026-11-24T05:06:07Z",
        "size": random.randrange(10**6),
        "stargazers_count": random.randrange(10**5),
        "language": random.choice(LANGUAGES),
        "topics": ["events", "matching", "streams"],
        "default_branch": "main",
    }
    return {"label": f"{name}:{ref}", "ref": ref, "sha": f"{random.getrandbits(160):040x}", "repo": about}


def pull_request(random: Random, name: str) -> Row:
    """Return the payload of an event of a pull request."""
    labels = [
        {"id": random.randrange(10**9), "name": f"area-{random.randrange(4_000)}", "color": "ededed", "default": False}
        for _ in range(random.randrange(4))
    ]
    action, number = random.choice(ACTIONS), random.randrange(9_999)
    request = {
        "url": f"https://api.github.com/repos/{name}/pulls/{number}",
        "id": random.randrange(10**9),
        "number": number,
        "state": "closed" if action == "closed" else "open",
        "title": "Make “it” faster — and say so",
        "user": person(random),
        "body": "What changed, and why.\r\n\r\n" + "It was slow. " * 20,
        "created_at": "2026-11-23T05:06:07Z",
        "labels": labels,
        "assignee": None,
        "head": side(random, f"user-{random.randrange(ACTORS)}/fork", f"team-{random.randrange(9_000)}/fix"),
        "base": side(random, name, f"release/{random.randrange(2_000)}"),
        "merged": action == "closed" and random.random() < 0.8,
        "comments": random.randrange(30),
        "additions": random.randrange(2_000),
        "deletions": random.randrange(2_000),
        "changed_files": random.randrange(60),
    }
    return {"action": action, "number": number, "pull_request": request}


def push(random: Random) -> Row:
    """Return the payload of a push."""
    commits = [
        {
            "sha": f"{random.getrandbits(160):040x}",
            "author": {"email": f"user-{random.randrange(ACTORS)}@example.org", "name": "Ida L."},
            "message": "Say why\n\n" + "It was not said. " * 18,
            "distinct": True,
            "url": f"https://api.github.com/repos/x/commits/{random.getrandbits(160):040x}",
        }
        for _ in range(random.randrange(6, 12))
    ]
    ref = f"refs/heads/team-{random.randrange(9_000)}/fix"
    return {"push_id": random.randrange(10**10), "size": len(commits), "ref": ref, "commits": commits}


def github_events(count: int) -> Iterator[bytes]:
    """Yield *count* events of about 5 kB: pushes and pull requests, seven objects deep."""
    random = Random(22)
    for number in range(count):
        name, who = repository_name(random.randrange(REPOSITORIES)), person(random)
        requested = random.random() < 0.5
        event = {
            "id": str(40_000_000_000 + number),
            "type": "PullRequestEvent" if requested else "PushEvent",
            "actor": {key: who[key] for key in ("id", "login", "gravatar_id", "url", "avatar_url")},
            "repo": {"id": random.randrange(10**9), "name": name, "url": f"https://api.github.com/repos/{name}"},
            "payload": pull_request(random, name) if requested else push(random),
            "public": True,
            "created_at": "2026-11-24T05:06:07Z",
        }
        yield json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
