"""Random subscriptions and events that meet each other: few names, few values, so that about every fourth pair matches."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from streamer.subscriptions.operators import IGNORING_CASE

Json = dict[str, Any]

NUMBERS: list[Any] = [0, 1, 1.0, -1, 2, 2.5, 5, 10, 2**53, 2**53 + 1, float(2**53), 2**63, -0.0]
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "Abc",
    "aBC",
    "paid",
    "vip-1",
    "10.0.0.7",
    "10.1.0.1",
    "::1",
    "é",
    "K",
    "\u212a",
    "😀",
    "a*b",
    "a\\b",
    "1e400",
]
SCALARS: list[Any] = [*NUMBERS, *TEXTS, True, False, None]
FIELDS = ["a", "b", "c.d", "c.e", "/f.g"]
TOPICS = ["", "a", "a.b", "a.b.c", "b", "a.", "a..c", "a/b", "a/b/c", "$a/b", "/b"]
TOPIC_PATTERNS = {
    "amqp": ["#", "*", "a", "a.*", "a.#", "*.b", "#.c", "a.b", "", "#.b.#", "a.*.c"],
    "mqtt": ["#", "+", "a", "a/#", "+/b", "a/+", "a/b", "+/b/#", "$a/#", "/+"],
    "nats": [">", "*", "a", "a.>", "*.b", "a.b", "a.*.c", "*.*.>"],
}
TYPES = ["insert", "update", "delete"]
NETS = ["10.0.0.0/8", "10.0.0.0/24", "0.0.0.0/0", "::/0", "10.1.0.1/32"]
REGEXPS = ["a.*", "[a-z]{1,50}", "(paid|vip-[0-9])", "ab?c?", "[^a]+", "\\p{L}+"]
WILDCARDS = ["a*", "*b*", "*c", "*", "a*c", "*ai*", "v*-*"]


def scalar(rng: random.Random) -> Any:
    return rng.choice(SCALARS)


def text(rng: random.Random) -> str:
    return rng.choice(TEXTS)


def nonempty(rng: random.Random) -> str:
    return rng.choice(TEXTS[1:])


def part_of_text(rng: random.Random) -> str:
    return rng.choice(["a", "b", "c", "ab", "p", "1", "-", "é", "A"])


#: For each operator of a filter, what it is compared with.
OPERANDS: dict[str, Callable[[random.Random], Any]] = {
    "==": lambda rng: rng.choice([scalar(rng), scalar(rng), scalar(rng), [1], {"d": 1}, []]),
    "!=": lambda rng: rng.choice([scalar(rng), scalar(rng), scalar(rng), [1], {}]),
    "<": lambda rng: rng.choice([rng.choice(NUMBERS), rng.choice(NUMBERS), text(rng), True]),
    "<=": lambda rng: rng.choice([rng.choice(NUMBERS), text(rng)]),
    ">": lambda rng: rng.choice([rng.choice(NUMBERS), rng.choice(NUMBERS), text(rng), False]),
    ">=": lambda rng: rng.choice([rng.choice(NUMBERS), text(rng)]),
    "in": lambda rng: rng.sample(SCALARS, rng.randint(1, 8)),
    "not in": lambda rng: rng.sample(SCALARS, rng.randint(0, 4)),
    "contains": lambda rng: rng.choice([part_of_text(rng), part_of_text(rng), scalar(rng)]),
    "exists": lambda rng: rng.random() < 0.6,
    "starts_with": lambda rng: rng.choice([part_of_text(rng), ""]),
    "ends_with": lambda rng: rng.choice([part_of_text(rng), ""]),
    "matches": lambda rng: rng.choice(["a", "^a", "b$", "[0-9]", "^$", "(?i)abc", ".*", "\\w+-\\d"]),
    "changed": lambda rng: None,
    "changed_to": lambda rng: rng.choice([scalar(rng), [1]]),
    "changed_from": lambda rng: rng.choice([scalar(rng), {"d": 1}]),
}


def random_filter(rng: random.Random) -> Json:
    op = rng.choice(list(OPERANDS))
    made: Json = {"field": rng.choice(FIELDS), "op": op}
    if op != "changed":
        made["value"] = OPERANDS[op](rng)
    if _may_ignore_case(made) and _aside(rng, 1).random() < 0.3:
        made["ignore_case"] = True
    return made


def _may_ignore_case(made: Json) -> bool:
    is_text = isinstance(made.get("value"), str)
    return made["op"] in IGNORING_CASE and (is_text or made["op"] in ("in", "not in"))


def _aside(rng: random.Random, what: int = 0) -> random.Random:
    """Return a generator for what is drawn aside, so that all that follows stays as it is without it."""
    return random.Random(hash(rng.getstate()[1]) + what)


def random_entry(rng: random.Random, make: Callable[[random.Random], Json] = random_filter) -> Json:
    """Make a filter, or less often a group, which draws aside."""
    made, aside = make(rng), _aside(rng)
    return made if aside.random() < 0.75 else _group(aside, made, make, 1)


def _group(rng: random.Random, made: Json, make: Callable[[random.Random], Json], depth: int) -> Json:
    op = rng.choice(["any", "any", "all", "not"])
    if op == "not":
        return {op: made if depth == 3 or rng.random() < 0.5 else _group(rng, made, make, depth + 1)}
    more = [make(rng) for _ in range(rng.randint(0, 3))]
    return {op: [made, *(each if depth == 3 or rng.random() < 0.6 else _group(rng, each, make, depth + 1) for each in more)]}


def _numeric(rng: random.Random) -> Json:
    low, high = sorted(rng.sample([-1, 0, 1, 2.5, 5, 10, 2**53], 2))
    below, above = rng.choice(["<", "<="]), rng.choice([">", ">="])
    return {"numeric": rng.choice([["=", low], [below, high], [above, low], [above, low, below, high]])}


def _anything_but(rng: random.Random) -> Json:
    operand: Any = rng.choice(
        [
            text(rng),
            1,
            rng.sample(TEXTS, 3),
            rng.sample([0, 1, 2.5, 5], 2),
            {"prefix": nonempty(rng)},
            {"suffix": [nonempty(rng), "c"]},
            {"equals-ignore-case": "ABC"},
            {"wildcard": [rng.choice(WILDCARDS)]},
        ]
    )
    return {"anything-but": operand}


#: For each matcher of a pattern, a leaf of it.
MATCHERS: dict[str, Callable[[random.Random], Any]] = {
    "equal": scalar,
    "prefix": lambda rng: {"prefix": rng.choice([part_of_text(rng), {"equals-ignore-case": rng.choice("aAbK")}])},
    "suffix": lambda rng: {"suffix": rng.choice([part_of_text(rng), {"equals-ignore-case": rng.choice("cCbK")}])},
    "equals-ignore-case": lambda rng: {"equals-ignore-case": rng.choice(["ABC", "k", "É", "paid"])},
    "wildcard": lambda rng: {"wildcard": rng.choice([*WILDCARDS, "a\\*b", "a\\\\b"])},
    "shellstyle": lambda rng: {"shellstyle": rng.choice(WILDCARDS)},
    "regexp": lambda rng: {"regexp": rng.choice(REGEXPS)},
    "numeric": _numeric,
    "cidr": lambda rng: {"cidr": rng.choice(NETS)},
    "exists": lambda rng: {"exists": True},
    "absent": lambda rng: {"exists": False},
    "anything-but": _anything_but,
}


def random_leaves(rng: random.Random) -> list[Any]:
    leaves = [MATCHERS[rng.choice(list(MATCHERS))](rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    aside = _aside(rng)
    if aside.random() < 0.15:
        leaves[0] = {
            "all": [MATCHERS[name](aside) for name in aside.sample(sorted({*MATCHERS} - {"absent"}), aside.randint(1, 3))]
        }
    return leaves


def random_document_pattern(rng: random.Random) -> Json:
    document: Json = {}
    for field in rng.sample(["a", "b", "c", "f.g"], rng.choice([1, 1, 2, 3])):
        if field == "c":
            document[field] = {name: random_leaves(rng) for name in rng.sample("de", rng.randint(1, 2))}
        else:
            document[field] = random_leaves(rng)
    return document


def random_pattern(rng: random.Random) -> Json:
    pattern: Json = {"data": random_document_pattern(rng)}
    kind = rng.random()
    if kind < 0.2:
        pattern["$or"] = [{"type": [rng.choice(TYPES)]}, {"data": random_document_pattern(rng)}]
    elif kind < 0.35:
        pattern["data"]["$or"] = [random_document_pattern(rng) for _ in range(rng.randint(2, 3))]
    elif kind < 0.4:
        pattern["before"] = random_document_pattern(rng)
    return pattern


CEL = [
    "data.a == 1",
    "data.a != 1",
    "data.a in ['a', 'abc', 1]",
    "data.a == 1 || data.b == 'paid'",
    "!(data.a == 1)",
    "has(data.c) && has(data.c.d)",
    "data.c.exists(x, x.d == 1)",
    "data.c.exists(x, x.d == 1 || x.e == 'abc')",
    "'abc' in data.a || 'd' in data.c",
    "data.a.exists(x, x.startsWith('ab') || x == 1)",
    "data.a.exists(x, x > 0 && x < 5.0) || size(data.b) == 2",
    "!data.a.all(x, x != 'abc')",
    "data.a.contains('abc') && data.a != before.a",
    "data.a != before.a || data.b == 1",
    "data.a == [1.0, 'abc'] || data.b in [[], {'d': 1}, ['abc', 1]]",
    "[1] in data.c || data.a.contains({'d': 1}) || before.a == {'d': 1.0}",
    "data.a > 1 && data.a < 10.0",
    "type == 'insert'",
    "collection.startsWith('c')",
    "size(data.a) > 1",
    "before != null && before.a == data.a",
    "data.b == 'paid' && data.a - data.x > 0",
    "data.a[0] == 1 || size(data.b) == 0",
    "data.c.exists(x, x.d == 1 && data.a == 'abc')",
    "data.a == 1 && data.a == 'abc'",
    "topic.startsWith('a') || data.b",
]


def random_cel(rng: random.Random, depth: int = 0) -> str:
    """Make an expression: one of `CEL`, or several of them combined."""
    kind = rng.random() if depth < 2 else 0.0
    if kind < 0.6:
        return rng.choice(CEL)
    one, other = (random_cel(rng, depth + 1) for _ in range(2))
    if kind < 0.95:
        return rng.choice([f"({one}) && ({other})", f"({one}) || ({other})", f"!({one})"])
    return f"({one}) ? ({other}) : {rng.choice(['false', 'data.b == 1'])}"


def random_subscription(rng: random.Random, name: str, *, cel: float = 0.1) -> Json:
    """Make a subscription with one part or, less often, several."""
    made: Json = {"id": name}
    if rng.random() < 0.3:
        made["tenant"] = rng.choice(["t", "*"])
    if rng.random() < 0.5:
        made["collection"] = rng.choice(["c", "c", "d", "*"])
    if rng.random() < 0.3:
        made["gateway_id"] = rng.choice(["g1", "g2"])
    kinds = ["filters", "pattern"] if rng.random() < 0.85 else ["types", "topic"]
    for kind in rng.sample([*kinds, "topic", "types"], rng.choice([1, 1, 1, 2])):
        match kind:
            case "filters":
                made["filters"] = [random_entry(rng) for _ in range(rng.choice([1, 1, 2]))]
            case "pattern":
                made["pattern"] = random_pattern(rng)
            case "types":
                made["types"] = rng.sample(TYPES, rng.randint(1, 2))
            case "topic":
                made.pop("topic_dialect", None)
                made |= random_topic(rng)
    if rng.random() < cel:
        made["cel"] = rng.choice(CEL)
    return made


def random_topic(rng: random.Random) -> Json:
    dialect = rng.choice(["amqp", "amqp", "mqtt", "nats"])
    said = {} if dialect == "amqp" and rng.random() < 0.9 else {"topic_dialect": dialect}
    return {"topic": rng.choice(TOPIC_PATTERNS[dialect]), **said}


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(14)
    if kind == 0 and depth < 3:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 1 and depth < 3:
        return {name: random_value(rng, depth + 1) for name in rng.sample("de", rng.randint(0, 2))}
    return scalar(rng)


def random_document(rng: random.Random) -> Json:
    document = {field: random_value(rng) for field in ("a", "b", "f.g", "x") if rng.random() < 0.8}
    if rng.random() < 0.8:
        objects = [{"d": random_value(rng), "e": random_value(rng)} for _ in range(rng.randrange(3))]
        document["c"] = rng.choice([{"d": scalar(rng)}, {"d": random_value(rng), "e": 1}, objects, objects, 7, None])
    return document


def random_event(rng: random.Random, *, before: float = 0.4) -> Json:
    event: Json = {}
    if rng.random() < 0.9:
        event["data"] = random_document(rng)
    if rng.random() < before:
        event["before"] = rng.choice([random_document(rng), event.get("data"), None])
    if rng.random() < 0.9:
        event["type"] = rng.choice(TYPES)
    if rng.random() < 0.5:
        event["tenant"] = rng.choice(["t", "t", "u"])
    if rng.random() < 0.9:
        event["collection"] = rng.choice(["c", "c", "d", "e"])
    if rng.random() < 0.6:
        event["topic"] = rng.choice(TOPICS)
    return event


def random_text(rng: random.Random, event: Json) -> bytes:
    """Write an event as JSON in one of several spellings: spaces, escapes, the order of members.

    A value that is the text `1e400` is written as that number, which no float64 holds and so no `dict` event.
    """
    members = list(event.items())
    rng.shuffle(members)
    text = json.dumps(dict(members), ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 1]))
    if rng.random() < 0.1:
        text = text.replace("1.0,", "1e0,")
    return text.replace('"1e400"', "1e400").encode()


#: Values that many conditions ask for.
COMMON: list[Any] = ["abc", "abc", "paid", "vip-1", "10.0.0.7", 1, 1.0, 5, [1, "abc"], {"d": 1}]


def agreeing_filter(rng: random.Random) -> Json:
    """Make a filter that is often true of an event of `agreeing_event`."""
    made = random_filter(rng)
    if rng.random() < 0.6:
        made["field"] = rng.choice("ab")
        if made["op"] in ("==", "<=", ">=", "contains", "changed_to", "changed_from"):
            made["value"] = rng.choice(COMMON[:-2] if made["op"] in ("<=", ">=", "contains") else COMMON)
        elif made["op"] == "in":
            made["value"] = rng.sample(COMMON[:-2], 4)
    if not _may_ignore_case(made):
        made.pop("ignore_case", None)
    return made


def agreeing_subscription(rng: random.Random, name: str) -> Json:
    """Make a subscription for events of `agreeing_event`: mostly of one partition and with one condition, so that it decides."""
    made: Json = {"id": name, "collection": rng.choice(["c", "c", "c", "c", "c", "c", "*", "d"])}
    if rng.random() < 0.1:
        made["tenant"] = rng.choice(["t", "*", "*"])
    kind = rng.random()
    if kind < 0.5:
        made["filters"] = [random_entry(rng, agreeing_filter) for _ in range(rng.choice([1, 1, 1, 1, 2]))]
    elif kind < 0.8:
        made["pattern"] = {"data": {rng.choice("ab"): random_leaves(rng) + random_leaves(rng)}}
    elif kind < 0.85:
        made["pattern"] = {"data": {"$or": [{name: random_leaves(rng) + random_leaves(rng)} for name in "ab"]}}
    else:
        made["pattern"] = random_pattern(rng)
    if rng.random() < 0.2:
        match rng.choice(["types", "topic", "cel"]):
            case "types":
                made["types"] = rng.choice([TYPES[:2], TYPES[1:]])
            case "topic":
                made |= random_topic(rng)
            case "cel":
                made["cel"] = random_cel(rng)
    if rng.random() < 0.25:
        made["transitions"] = True
    if rng.random() < 0.1:
        made["labels"] = {"n": rng.randrange(9)}
    if rng.random() < 0.2:
        made["on_unknown"] = "skip"
    return made


#: Pointers of values that a source did not carry.
HOLES = [
    "/data/a",
    "/data/b",
    "/data/c",
    "/data/c/d",
    "/data/c/0/e",
    "/data/z",
    "/before",
    "/before/a",
    "/data",
    "/topic",
    "/type",
]


def agreeing_event(rng: random.Random) -> Json:
    """Make an event for subscriptions of `agreeing_subscription`."""
    event = random_event(rng, before=0.6) | {"data": random_document(rng)}
    event.pop("tenant", None)
    if rng.random() < 0.3:
        event["type"] = "update"
    if isinstance(event.get("before"), dict) and rng.random() < 0.7:
        event["before"] = event["before"] | {"a": rng.choice(COMMON), "b": rng.choice(COMMON)}
    event["collection"] = rng.choice(["c", "c", "c", "c", "c", "c", "c", "c", "c", "d", "e"])
    if rng.random() < 0.95:
        event["data"] |= {"a": rng.choice(COMMON), "b": rng.choice(COMMON)}
    if rng.random() < 0.05:
        event["tenant"] = "t"
    if rng.random() < 0.15:
        event["unknown"] = rng.sample(HOLES, rng.randint(1, 2))
    return event


#: Where else the documents of an event may stand: for each layout, the pointers of `data` and `before`.
PLACES: dict[str, tuple[list[str], list[str]]] = {
    "change": (["/data"], ["/before"]),
    "below": (["/payload/after"], ["/payload/before"]),
    "one in the other": (["/data"], ["/data/old"]),
    "several": (["/now", "/data"], ["/then", "/before", "/x/0"]),
    "in arrays": (["/rows/1"], ["/rows/0"]),
    "no data": ([], ["/before"]),
}


def placed(rng: random.Random, event: Json, data: list[str], before: list[str]) -> Json:
    """Move the documents of an event to where a layout has them, or to one of these places."""
    made = {name: value for name, value in event.items() if name not in ("data", "before")}
    moved: list[tuple[list[str], Any]] = []
    for name, pointers in (("before", before), ("data", data)):
        if name in event and pointers:
            moved.append((rng.choice(pointers).split("/")[1:], event[name]))
    for tokens, value in sorted(moved, key=lambda each: len(each[0])):
        _put(made, tokens, value)
    return made


#: What a layout says of change records that leave something out or wrap it; of each that of most, first.
RECORDS: dict[str, list[Any]] = {
    "before_holds": ["all", "partial", "partial", "changed", "changed"],
    "unknown_value": [None, None, "vip-1", ["paid", "d"]],
    "encoded": [None, "json"],
    "format": [None, "debezium", "maxwell", "dms", "supabase", "cloudevents"],
}


#: Members of records that show what else they carry.
OF_FORMATS: dict[str, list[Any]] = {
    "source": [
        *({"connector": name} for name in ("postgresql", "mysql", "yugabytedb", "sqlserver", "spanner")),
        {"connector": "spanner", "value_capture_type": "NEW_ROW"},
    ],
    "primary_key_columns": [["a"], ["a", "b"], []],
    "columns": [[{"name": "a"}, {"name": "zz"}], [{"name": "b"}], []],
    "errors": [["Error 401: Unauthorized"]],
}


def recorded(rng: random.Random, event: Json, *, encoded: bool) -> Json:
    """Leave members of `before` out, make some events deletes with no other document, and encode documents."""
    made = dict(event)
    if rng.random() < 0.25:
        made |= {"type": "delete", "data": None}
    if isinstance(made.get("before"), dict):
        made["before"] = {name: value for name, value in made["before"].items() if rng.random() < 0.6}
    # What the rules of formats look at.
    made |= {name: rng.choice(values) for name, values in OF_FORMATS.items() if rng.random() < 0.2}
    for name in ("data", "before") if encoded else ():
        if isinstance(made.get(name), dict) and rng.random() < 0.7:
            made[name] = random_text(rng, made[name]).decode()
    return made


def _put(into: Any, tokens: list[str], value: Any) -> None:
    """Put a value where a pointer leads, making what is on the way; a token `0` or `1` makes an array."""
    for at, token in enumerate(tokens):
        is_last = at + 1 == len(tokens)
        fresh: Any = [{}, {}] if not is_last and tokens[at + 1] in ("0", "1") else {}
        if isinstance(into, list):
            if is_last:
                into[int(token)] = value
            else:
                into = into[int(token)]
        elif is_last:
            into[token] = value
        else:
            if not isinstance(into.get(token), dict | list):
                into[token] = fresh
            into = into[token]
