"""Rows of the table whose texts are made: nothing in them repeats, every position has its turn, or JSON cannot say them."""

from __future__ import annotations

import functools
import json
import types
from collections import OrderedDict
from collections.abc import Iterator
from functools import reduce
from typing import Any

from streamer import Filter, Limits, Subscription
from tests.hostile.table import Later, Row


def rows() -> list[Row]:
    """Return all of them."""
    return [*_bad_utf8(), *_truncated(), *_large_events(), *_python_events(), *_subscriptions(), *_python_subscriptions()]


def _bad_utf8() -> Iterator[Row]:
    """A byte that is no UTF-8, at each position of an event."""
    event = '{"data":{"é":"ü","b":[1,true,null]},"id":"x"}'.encode()
    for at in range(len(event) + 1):
        # Inside of a character of two bytes, that one is what is ill-formed.
        offset = at - 1 if 0 < at and event[at - 1] in b"\xc3" else at
        yield Row(
            f"a byte that is no UTF-8 at {at}",
            event=event[:at] + b"\xff" + event[at:],
            event_error={"code": "bad_utf8", "offset": offset},
        )


def _truncated() -> Iterator[Row]:
    """An event that ends at each position."""
    event = b'{"id":"a\\u00e9","data":{"n":[-1.5e3,true,null,{}]}}'
    for end in range(1, len(event)):
        yield Row(
            f"an event that ends after {end} bytes",
            event=event[:end],
            event_error={"code": "malformed_json", "offset": end},
        )


def data(**members: Any) -> bytes:
    """Return an event whose data has *members*."""
    return json.dumps({"data": members}).encode()


def _large_events() -> Iterator[Row]:
    yield Row(
        "a hundred thousand different names",
        later_on_the_reference=True,
        subscription={"id": "s", "filters": [{"field": "k99999", "op": "==", "value": 99_999}]},
        event=Later(lambda: json.dumps({"data": {f"k{i}": i for i in range(100_000)}}).encode()),
        expect=True,
    )
    # Fifty strings of one length that differ in one place: one bucket for a hash that looks at some characters only.
    flood = ",".join(f'"{"a" * i}b{"a" * (999 - i)}":{i}' for i in range(1000))
    yield Row(
        "a thousand names of a thousand characters that differ in one",
        subscription={"id": "s", "cel": f"data['{'a' * 999}b'] == 999"},
        event=f'{{"data":{{{flood}}}}}'.encode(),
        expect=True,
    )
    # Numbers whose hashes are the same in Python: multiples of its modulus, and a float times 2^61.
    same_hash = [n * (2**61 - 1) for n in range(8)] + [2.0 ** (61 * n) for n in range(16)]
    yield Row(
        "numbers of one hash",
        subscription={"id": "s", "filters": [{"field": "a", "op": "in", "value": same_hash}]},
        event=json.dumps({"data": {"a": same_hash[-1]}}).encode(),
        expect=True,
    )
    for name, c, expect in (("agree", 6, True), ("do not agree", 5, False)):
        yield Row(
            f"50,000 elements against three fields that {name}",
            later_on_the_reference=True,
            subscription={"id": "s", "pattern": {"data": {"l": {"a": [48_999], "b": [49_000], "c": [c]}}}},
            event=Later(lambda: data(l=[{"a": i, "b": i + 1, "c": i % 7} for i in range(50_000)])),
            expect=expect,
        )
    yield Row(
        "elements that satisfy every subset of ten fields",
        later_on_the_reference=True,
        subscription={"id": "s", "pattern": {"data": {"l": {f"f{j}": [1, {"numeric": [">", 2990]}] for j in range(10)}}}},
        event=Later(lambda: data(l=[{f"f{j}": i ^ (1 << j) for j in range(10)} for i in range(3000)])),
        expect=False,
    )
    # The product of alternatives and leaves is never paid, in the clause that is looked up or in one that is verified, also where
    # every leaf of one leads to a look at the leaves of the other.
    wanted, seen = [f"v{i}" for i in range(10_000)], [f"w{i}" for i in range(20_000)]
    others = [
        *({operator: text} for operator in ("prefix", "wildcard", "equals-ignore-case") for text in ("x*y", "y*z")),
        *wanted,
    ]
    by_two = [
        {"data": {"a": wanted, "b": others}},
        {"data": {"l": {"a": wanted, "b": others}}},
        {"data": {"a": [{"prefix": "v"}], "b": [{"numeric": [">", 1]}, *others]}},
    ]
    yield Row(
        "10,000 alternatives against 20,000 strings",
        later_on_the_reference=True,
        subscription={"id": "s", "pattern": {"data": {"a": others}}},
        event=Later(lambda: data(a=seen)),
        expect=False,
    )

    def of_both(at: int, unknowns: list[str], right: list[str]) -> bytes:
        document: Any = {"a": [*wanted, *wanted], "b": [*seen, *right]}
        if at == 1:
            document = {"l": [{"a": value, "b": value} for value in seen], "a": 1}
            document["l"] += [{"a": "v1", "b": "w"}, {"a": "w", "b": "v1"}, *({"a": value, "b": value} for value in right)]
        return json.dumps({"data": document, "unknown": unknowns}).encode()

    for at, pattern in enumerate(by_two):
        for unknowns in ([], ["/data/other"]):
            for right, expect in (([], False), (["v9999"], True)):
                yield Row(
                    f"10,000 alternatives twice, {at}, {len(unknowns)} unknowns, {'one right' if expect else 'none right'}",
                    later_on_the_reference=True,
                    is_one_of_many=bool(unknowns) is expect,
                    subscription={"id": "s", "pattern": pattern},
                    event=Later(functools.partial(of_both, at, unknowns, right)),
                    expect=expect,
                )
    for unknowns in ([], ["/data/other"]):
        for right, expect in (([], False), (["v"], True)):
            yield Row(
                f"20,000 excluded strings against as many, {len(unknowns)} unknowns, {'one right' if expect else 'none right'}",
                later_on_the_reference=True,
                subscription={"id": "s", "pattern": {"data": {"a": [{"anything-but": seen}]}}},
                event=json.dumps({"data": {"a": [*seen, *right]}, "unknown": unknowns}).encode(),
                expect=expect,
            )
    nested: Any = {"a": 1, "b": 2}
    yield Row(
        "nine arrays in each of nine, four times over",
        later_on_the_reference=True,
        subscription={"id": "s", "pattern": {"l": {"a": [1], "b": [3]}}},
        event=json.dumps({"l": reduce(lambda inner, _: [inner] * 9, range(4), nested)}).encode(),
        expect=False,
    )
    unknowns = ",".join(f'"/data/k{i}"' for i in range(20_000))
    yield Row(
        "20,000 different unknowns",
        later_on_the_reference=True,
        subscription={"id": "s", "filters": [{"field": "k19999", "op": "==", "value": 1}]},
        event=f'{{"data":{{}},"unknown":[{unknowns}]}}'.encode(),
        expect=True,
        certain=False,
    )


def _python_events() -> Iterator[Row]:
    """Events that are no text."""
    cyclic: dict[str, Any] = {}
    cyclic["data"] = cyclic
    circle: list[Any] = []
    circle.append(circle)
    yield Row("a dict that holds itself", event=cyclic, event_error={"code": "too_deep"})
    yield Row("a list that holds itself", event={"data": {"a": circle}}, event_error={"code": "too_deep"})
    shared = reduce(lambda inner, _: [inner, inner], range(40), 1)
    yield Row(
        "a list that holds another twice, which holds another twice, 40 times",
        later_on_the_reference=True,
        event={"data": {"a": shared}},
        limits=Limits(max_event_bytes=100_000),
        event_error={"code": "too_long"},
    )
    deep = reduce(lambda inner, _: [inner], range(100_000), 1)
    yield Row("a list 100,000 levels deep", event={"data": {"a": deep}}, event_error={"code": "too_deep"})
    for name, value in {
        "not a number": float("nan"),
        "infinity": float("inf"),
        "an integer beyond 64 bits": 2**64,
        "an integer of 5,000 digits": 10**5000,
        "half of a surrogate pair": "\ud800",
        "bytes": b"x",
        "a set": {1},
        "an object": object(),
        "a view of a dict": {}.keys(),
        "a complex number": 1j,
    }.items():
        yield Row(
            f"{name} in a dict",
            event={"data": {"a": value}},
            event_error={"code": "bad_value", "place": "/data/a", "offset": None},
        )
    for name, key in {"number": 1, "None": None, "integer of 5,000 digits": 10**5000, "tuple": ()}.items():
        yield Row(f"a member named by a {name}", event={"data": {key: 1}}, event_error={"code": "bad_value", "place": "/data"})
    yield Row("None for an event", event=None, expect=False)
    for name, event in {"a number": 5, "a list": [], "true": True}.items():
        yield Row(f"{name} for an event", event=event, event_error={"code": "not_an_object"})
    yield Row("an object for an event", event=object(), event_error={"code": "bad_value"})
    yield Row("a str with half of a surrogate pair", event='{"a":"\ud800"}', event_error={"code": "lone_surrogate", "offset": 6})
    yield Row("a mapping that is no dict in a dict", event={"data": {"a": types.MappingProxyType({})}}, expect=True)
    yield Row("bytes that can be changed", event=bytearray(b"{}"), expect=True)
    yield Row("a view of every second byte", event=memoryview(b"{ } ")[::2], expect=True)
    yield Row("an ordered dict", event=OrderedDict(data=OrderedDict(a=1)), expect=True)


def _subscriptions() -> Iterator[Row]:
    """Subscriptions whose parts do not repeat."""
    numbers = list(range(20_000))
    wanted = {"field": "a", "op": "in", "value": [f"v{n}" for n in numbers]}
    unwanted = {"field": "b", "op": "not in", "value": [f"w{n}" for n in numbers]}
    each = [{"field": "b", "op": "!=", "value": n} for n in range(5_000)]
    for name, filters, b, expect in (
        ("a list", [wanted, unwanted], "w", True),
        ("a list", [wanted, unwanted], "w19999", False),
        ("filters", [wanted, *each], 5_000, True),
        ("filters", [wanted, *each], 4_999, False),
    ):
        yield Row(
            f"20,000 values beside {name} of thousands that are excluded, {'none' if expect else 'one'} of which is there",
            later_on_the_reference=True,
            subscription=json.dumps({"id": "s", "filters": filters}),
            event=json.dumps({"data": {"a": "v19999", "b": b}}).encode(),
            expect=expect,
        )
    yield Row(
        "a label of 3 MB that is called as an expression is",
        subscription=Later(lambda: json.dumps({"id": "s", "labels": {"cel": "x" * 3_000_000}})),
        event=b"{}",
        expect=True,
    )
    yield Row(
        "5,000 values of which a long list lacks one",
        later_on_the_reference=True,
        subscription=json.dumps({"id": "s", "filters": [{"field": "a", "op": "contains", "value": n} for n in range(5_000)]}),
        event=json.dumps({"data": {"a": [*range(4_999), *range(5_000, 5_010)]}}).encode(),
        expect=False,
    )
    yield Row(
        "a list of 20,000 different values",
        later_on_the_reference=True,
        subscription=json.dumps({"id": "s", "filters": [{"field": "a", "op": "in", "value": numbers}]}),
        event=b'{"data":{"a":19999.0}}',
        expect=True,
    )
    yield Row(
        "a list of 20,000 different strings that none may be",
        later_on_the_reference=True,
        subscription=json.dumps({"id": "s", "filters": [{"field": "a", "op": "not in", "value": list(map(str, numbers))}]}),
        event=b'{"data":{"a":"19999"}}',
        expect=False,
    )
    yield Row(
        "20,000 different values in a pattern",
        later_on_the_reference=True,
        subscription=json.dumps({"id": "s", "pattern": {"data": {"a": numbers}}}),
        event=b'{"data":{"a":[[19999.0]]}}',
        expect=True,
    )
    yield Row(
        "10,000 different fields in a pattern",
        later_on_the_reference=True,
        subscription=json.dumps({"id": "s", "pattern": {"data": {f"f{i}": [i] for i in numbers[:10_000]}}}),
        event=json.dumps({"data": {f"f{i}": i for i in numbers[:10_000]}}).encode(),
        expect=True,
    )
    yield Row("2^20 conjunctions", subscription=_choices(20), subscription_error={"type": "PatternError", "contains": "states"})
    yield Row(
        "2^8 conjunctions, one of them right",
        subscription=_choices(8),
        event=json.dumps({"z": 1, **{f"k{i}": [{"a": 1, "b": 2}, {"a": 2}] for i in range(8)}}).encode(),
        expect=True,
    )
    yield Row(
        "2^8 conjunctions, none of them right",
        subscription=_choices(8),
        event=json.dumps({"z": 1, **{f"k{i}": [{"a": 1, "b": 2}, {"a": 2}] for i in range(7)}}).encode(),
        expect=False,
    )
    doubled: Any = {"a": [1]}
    for _ in range(40):
        doubled = {"$or": [doubled, doubled]}
    yield Row(
        "$or of two of $or of two, 40 times",
        later_on_the_reference=True,
        subscription={"id": "s", "pattern": doubled},
        limits=Limits(max_pattern_states=1_000),
        subscription_error={"type": "PatternError", "contains": "states"},
    )


def _choices(count: int) -> dict[str, Any]:
    """A pattern of 2^count conjunctions."""
    return {"id": "s", "pattern": {"z": [1], **{f"k{i}": {"$or": [{"a": [1]}, {"b": [1]}]} for i in range(count)}}}


def _python_subscriptions() -> Iterator[Row]:
    """Subscriptions that are no text."""
    cyclic: dict[str, Any] = {}
    cyclic["a"] = cyclic
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = reduce(lambda inner, _: {"a": inner}, range(100_000), {})
    listed: Any = reduce(lambda inner, _: [inner], range(100_000), 1)
    shared: Any = reduce(lambda inner, _: [inner, inner], range(40), 1)

    def filtered(value: Any) -> dict[str, Any]:
        return {"id": "s", "filters": [{"field": "a", "op": "==", "value": value}]}

    yield Row(
        "labels that hold themselves",
        subscription={"id": "s", "labels": cyclic},
        subscription_error={"place": "labels", "contains": "in itself"},
    )
    beside: list[Any] = [[1]] * 20_000
    beside.append(beside)
    yield Row(
        "a list of labels that holds itself beside 20,000 others",
        subscription={"id": "s", "labels": {"a": beside}},
        subscription_error={"place": "labels", "contains": "in itself"},
    )
    yield Row(
        "labels 100,000 levels deep",
        later_on_the_reference=True,
        subscription={"id": "s", "labels": deep},
        subscription_error={"place": "labels", "contains": "deeper than 512 levels"},
    )
    yield Row(
        "labels of 2^40 values",
        subscription={"id": "s", "labels": {"a": shared}},
        subscription_error={"place": "labels", "contains": "more than 16777216 bytes"},
    )
    yield Row(
        "labels that no JSON holds",
        subscription={"id": "s", "labels": {"a": object()}},
        subscription_error={"place": "labels.a", "contains": "not object"},
    )
    yield Row("a value that holds itself", subscription=filtered(circle), subscription_error={"contains": "deep"})
    yield Row(
        "a value 100,000 levels deep",
        later_on_the_reference=True,
        subscription=filtered(listed),
        subscription_error={"contains": "deep"},
    )
    yield Row("a value of NaN", subscription=filtered(float("nan")), subscription_error={"place": "filters[0].value"})
    yield Row("a value of 5,000 digits", subscription=filtered(10**5000), subscription_error={"place": "filters[0].value"})
    yield Row("a value of bytes", subscription=filtered(b"x"), subscription_error={"place": "filters[0].value"})
    yield Row(
        "filters that hold themselves", subscription={"id": "s", "filters": circle}, subscription_error={"place": "filters[0]"}
    )
    yield Row(
        "a pattern that holds itself",
        later_on_the_reference=True,
        subscription={"id": "s", "pattern": cyclic},
        subscription_error={"contains": "deep"},
    )
    yield Row(
        "a pattern 100,000 levels deep",
        later_on_the_reference=True,
        subscription={"id": "s", "pattern": deep},
        subscription_error={"contains": "deep"},
    )
    yield Row(
        "a pattern's list that holds itself",
        subscription={"id": "s", "pattern": {"a": circle}},
        subscription_error={"type": "PatternError", "place": "pattern.a[0]"},
    )
    yield Row("a member of a subscription named by a number", subscription={"id": "s", 7: 1}, subscription_error={"place": ""})
    yield Row(
        "a member of a subscription named by 5,000 digits",
        subscription={"id": "s", 10**5000: 1},
        subscription_error={"place": ""},
    )
    yield Row(
        "a member of a filter named by 5,000 digits",
        subscription={"id": "s", "filters": [{10**5000: 1}]},
        subscription_error={"place": "filters[0]"},
    )
    yield Row(
        "a filter whose operator is no string",
        subscription=Subscription(id="s", filters=[Filter("a", None, 1)]),  # type: ignore[arg-type]
        subscription_error={"place": "filters[0].op"},
    )
    for name, text in {
        "id": "\ud800",
        "tenant": "\udfff",
        "cel": "'\ud800' == ''",
        "topic": "\ud800",
        "gateway_id": "\udc00",
    }.items():
        yield Row(f"half of a surrogate pair in {name}", subscription={"id": "s", name: text}, subscription_error={"place": name})
    members = "id gateway_id tenant collection types filters cel pattern topic topic_dialect dialect".split()
    members += ["on_unknown", "transitions", "labels"]
    for value in (None, 1, 1.5, b"x", object(), {1}):
        kind = type(value).__name__
        for name in members:
            if (name, kind) != ("pattern", "bytes"):  # JSON text
                yield Row(f"{kind} for {name}", subscription={"id": "s", name: value}, subscription_error={"place": name})
    for source in (None, 5, [], object(), {"id"}):
        yield Row(f"{type(source).__name__} for a subscription", subscription=source, subscription_error={"place": ""})
