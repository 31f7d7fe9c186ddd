"""The cost of each kind of condition: operators of filters, forms of CEL, matchers of patterns, and topics, at growing numbers.

```console
python -m benchmarks.operators [--smoke | --record]
python -m benchmarks.operators contains exists      # the ways whose names have one of these
```

Each engine has subscriptions of one way, each with its own value. One event matches none of them; if the way allows it, a second
event matches one. The benchmark measures time and counts work: the alternatives of subscriptions that the core looked at. The
smoke run compares that work at two sizes, for the event as it is and with an unknown value that no subscription reads. It must be
equal, except for the ways in `KNOWN`, and with an unknown value those in `OPEN`, whose work must grow: remove a way from that
list when its work no longer grows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import streamer
from benchmarks.measure import WrongMatches
from benchmarks.records import Record, machine, parser_for
from streamer import _backend

if TYPE_CHECKING:
    from streamer.native.core import NativeCore

#: Members of a subscription, or of an event.
Members: TypeAlias = dict[str, Any]
#: Makes them from the number of the subscription.
Make: TypeAlias = Callable[[int], Members]

SIZES: Final = (1_000, 10_000, 100_000)
#: Small ones, at which the work is compared; the second has this many times as many.
SMOKE: Final = (100, 1_000)
#: On the reference, whose work is not counted.
SMALL: Final = (40,)
#: The larger of two engines may look at this much more: a bucket has a few that are looked at one by one.
SLACK: Final = 16
#: How long a way is measured at a size, in seconds; and the least passes.
SECONDS, PASSES = 0.06, 5
ABOUT: Final = (
    "`match_count` from Python, the event as bytes: µs of the thread's processor time for an event, its reading included, in the "
    "best pass. `looked at`: the alternatives that the engine "
    "examines after the index for the event that matches none, at the largest size."
)
#: The way that all others are compared with.
PLAIN: Final = "filter `==`, text"


@dataclass(frozen=True, slots=True)
class Way:
    """A kind of condition.

    Attributes:
        name: the form, and on what.
        make: the subscription by a number, from 0.
        none: the event that matches none, from the number of subscriptions.
        one: the event that matches one; None if there is no such event.
    """

    name: str
    make: Make
    none: Make
    one: Make | None


_EACH: Final = "The result depends on all elements, but the index looks up each element by itself."
_COMPUTED: Final = "The result is computed from the field's value, but the index contains only the value itself."
#: Ways whose cost grows with the subscriptions, and why.
KNOWN: Final[Mapping[str, str]] = {
    "CEL `exists` of two variables": "The index finds names of an object and elements of a list, but not a name with its value.",
    "CEL `all`": _EACH,
    "CEL `filter`": _EACH,
    "CEL `map`": _EACH,
    "CEL arithmetic": _COMPUTED,
    "CEL arithmetic, with what all share": _COMPUTED,
    "CEL a conversion": _COMPUTED,
}

#: More ways whose cost grows if the event has an unknown value: the clauses do not tell whether the expression reads it.
OPEN: Final = frozenset({"CEL a ternary"})

#: The number of the subscription that is to match.
MATCHED: Final = 7


def data(**members: Any) -> Make:
    """Return what makes an event of a document, of whatever number of subscriptions."""
    return lambda _: {"data": members}


def changed(before: Members, after: Members) -> Make:
    """Return what makes an update."""
    return lambda _: {"before": before, "data": after}


def filters(*conditions: tuple[Any, ...]) -> Members:
    """Return the filters of a subscription."""
    return {"filters": [dict(zip(("field", "op", "value"), condition, strict=False)) for condition in conditions]}


def cel(text: str) -> Members:
    """Return a subscription with an expression."""
    return {"cel": text}


def pattern(**members: Any) -> Members:
    """Return a subscription with a pattern for the document."""
    return {"pattern": {"data": members}}


def pairs(number: int) -> list[list[int]]:
    """Return coordinates that differ from those of other numbers, but have the same few elements."""
    return [[int(bit), 1] for bit in f"{number:b}".removeprefix("-")] + [[number < 0, 0]]


def _filters() -> Iterator[Way]:
    def way(name: str, make: Make, none: Make, one: Make | None) -> Way:
        return Way(f"filter {name}", make, none, one)

    text, number = data(a="x", f7=7), data(a=-1)
    tags, numbers = data(tags=["x", "y", "z"]), data(tags=[-1, -2])
    yield way("`==`, text", lambda i: filters(("a", "==", f"t{i}")), text, data(a="t7"))
    yield way("`==`, number", lambda i: filters(("a", "==", i)), number, data(a=7))
    yield way("`==`, list", lambda i: filters(("tags", "==", [i, 2])), numbers, data(tags=[7, 2]))
    yield way("`==`, object", lambda i: filters(("a", "==", {"k": i})), data(a={"k": -1}), data(a={"k": 7}))
    yield way("`==`, list of lists", lambda i: filters(("a", "==", pairs(i))), data(a=pairs(-1)), data(a=pairs(MATCHED)))
    yield way(
        "`changed_to`, list", lambda i: filters(("a", "changed_to", [i])), changed({"a": 1}, {"a": [-1]}), changed({}, {"a": [7]})
    )
    yield way("`!=`, fields of their own", lambda i: filters((f"f{i}", "!=", 7)), data(f7=7), data(f7=8))
    yield way("`in`", lambda i: filters(("a", "in", [f"t{i}", f"u{i}"])), text, data(a="u7"))
    yield way("`not in`, fields of their own", lambda i: filters((f"f{i}", "not in", [7, 9])), data(f7=7), data(f7=8))
    for op, none, one in (("<", 0, -1), ("<=", 1, 0), (">", 0, 1), (">=", -1, 0)):
        # Of the bounds 0, 1, 2 … or 0, -1, -2 … the event is beyond all, or beyond all but the last.
        sign = 1 if op[0] == "<" else -1
        yield way(
            f"`{op}`, number",
            lambda i, op=op, sign=sign: filters(("a", op, sign * i)),  # type: ignore[misc]
            lambda n, sign=sign, none=none: {"data": {"a": sign * (n - 1) + none}},  # type: ignore[misc]
            lambda n, sign=sign, one=one: {"data": {"a": sign * (n - 1) + one}},  # type: ignore[misc]
        )
    yield way(
        "`<`, text",
        lambda i: filters(("a", "<", f"t{i:07}")),
        data(a="x"),
        lambda n: {"data": {"a": f"t{n - 2:07}"}},
    )
    yield way("a narrow range", lambda i: filters(("a", ">=", i), ("a", "<", i + 1)), number, data(a=7.5))
    yield way("`contains`, text", lambda i: filters(("a", "contains", f"-t{i}-")), data(a="x-y-z"), data(a="x-t7-z"))
    yield way("`contains`, list of texts", lambda i: filters(("tags", "contains", f"t{i}")), tags, data(tags=["x", "t7"]))
    yield way("`contains`, list of numbers", lambda i: filters(("tags", "contains", i)), numbers, data(tags=[-1, 7]))
    yield way(
        "`contains`, with what all share",
        lambda i: filters(("b", "==", "DE"), ("tags", "contains", f"t{i}")),
        data(tags=["x", "y"], b="DE"),
        data(tags=["x", "t7"], b="DE"),
    )
    yield way("`exists`, fields of their own", lambda i: filters((f"f{i}", "exists", True)), data(a="x"), text)
    yield way("`exists` false, with `==`", lambda i: filters(("a", "==", f"t{i}"), ("b", "exists", False)), text, data(a="t7"))
    yield way("`starts_with`", lambda i: filters(("a", "starts_with", f"t{i}-")), text, data(a="t7-x"))
    yield way("`ends_with`", lambda i: filters(("a", "ends_with", f"-t{i}")), text, data(a="x-t7"))
    yield way("`matches`", lambda i: filters(("a", "matches", f"^t{i}-[0-9]+$")), data(a="x-12"), data(a="t7-12"))
    for op, operand, other, same in (
        ("==", "T{}-É", "x", "t7-é"),
        ("in", "T{}-É", "x", "t7-é"),
        ("starts_with", "T{}-", "x-y", "t7-y"),
        ("ends_with", "-T{}", "x-y", "x-t7"),
        ("contains", "-T{}-", "x-y-z", "x-t7-z"),
        ("contains", "T{}", ["x", "y"], ["x", "t7"]),
        ("matches", "^T{}-[0-9]+$", "x-12", "t7-12"),
    ):

        def folded(i: int, op: str = op, operand: str = operand) -> Members:
            made = operand.format(i)
            return {"filters": [{"field": "a", "op": op, "value": [made, 1] if op == "in" else made, "ignore_case": True}]}

        kind = ", list of texts" if isinstance(other, list) else ""
        yield way(f"`{op}` but for case{kind}", folded, data(a=other), data(a=same))
    yield way(
        "`changed`, fields of their own",
        lambda i: filters((f"f{i}", "changed")),
        changed({"f7": 1, "f8": 2}, {"f7": 1, "f8": 2}),
        changed({"f7": 1, "f8": 2}, {"f7": 2, "f8": 2}),
    )
    yield way(
        "`changed`, with `==`",
        lambda i: filters(("a", "==", f"t{i}"), ("b", "changed")),
        changed({"a": "x", "b": 1}, {"a": "x", "b": 2}),
        changed({"a": "t7", "b": 1}, {"a": "t7", "b": 2}),
    )
    for op, old, new in (("changed_to", "x", "t7"), ("changed_from", "t7", "x")):
        yield way(
            f"`{op}`",
            lambda i, op=op: filters(("a", op, f"t{i}")),  # type: ignore[misc]
            changed({"a": "x"}, {"a": "y"}),
            changed({"a": old}, {"a": new}),
        )


def _cel() -> Iterator[Way]:
    def way(name: str, make: Callable[[int], str], none: Make, one: Make | None) -> Way:
        return Way(f"CEL {name}", lambda i: cel(make(i)), none, one)

    text, tags, found = data(a="x"), data(tags=["x", "y", "z"]), data(tags=["x", "t7"])
    yield way("`==`", lambda i: f"data.a == 't{i}'", text, data(a="t7"))
    yield way("`in` a list of constants", lambda i: f"data.a in ['t{i}', 'u{i}']", text, data(a="u7"))
    yield way("`<`", lambda i: f"data.a < {i}", lambda n: {"data": {"a": n}}, lambda n: {"data": {"a": n - 2}})
    yield way("a narrow range", lambda i: f"data.a >= {i} && data.a < {i + 1}", data(a=-1), data(a=7.5))
    yield way("`startsWith`", lambda i: f"data.a.startsWith('t{i}-')", text, data(a="t7-x"))
    yield way("`endsWith`", lambda i: f"data.a.endsWith('-t{i}')", text, data(a="x-t7"))
    yield way("`contains`, text", lambda i: f"data.a.contains('-t{i}-')", data(a="x-y-z"), data(a="x-t7-z"))
    yield way("`contains`, list", lambda i: f"data.tags.contains('t{i}')", tags, found)
    yield way("`matches`", lambda i: f"data.a.matches('^t{i}-[0-9]+$')", data(a="x-12"), data(a="t7-12"))
    yield way("`in` a list of the event", lambda i: f"'t{i}' in data.tags", tags, found)
    yield way("`in` an object", lambda i: f"'k{i}' in data.map", data(map={"x": 1, "y": 2}), data(map={"k7": 1}))
    yield way("`exists`, `==`", lambda i: f"data.tags.exists(t, t == 't{i}')", tags, found)
    yield way("`exists`, `in`", lambda i: f"data.tags.exists(t, t in ['t{i}', 'u{i}'])", tags, data(tags=["x", "u7"]))
    yield way("`exists`, `startsWith`", lambda i: f"data.tags.exists(t, t.startsWith('t{i}-'))", tags, data(tags=["t7-x"]))
    yield way("`exists`, `contains`", lambda i: f"data.tags.exists(t, t.contains('-t{i}-'))", tags, data(tags=["x-t7-x"]))
    yield way("`exists`, `matches`", lambda i: f"data.tags.exists(t, t.matches('^t{i}-[0-9]+$'))", tags, data(tags=["t7-1"]))
    yield way("`exists`, a range", lambda i: f"data.n.exists(x, x >= {i} && x < {i + 1})", data(n=[-1, -2]), data(n=[-1, 7.5]))
    yield way("`exists` with an OR", lambda i: f"data.tags.exists(t, t == 't{i}' || t.endsWith('-t{i}'))", tags, found)
    yield way(
        "`exists`, list of objects",
        lambda i: f"data.lines.exists(l, l.sku == 's{i}' && l.qty > 1)",
        data(lines=[{"sku": "x", "qty": 2}, {"sku": "y", "qty": 3}]),
        data(lines=[{"sku": "x", "qty": 1}, {"sku": "s7", "qty": 3}]),
    )
    yield way(
        "`exists`, names of an object", lambda i: f"data.map.exists(k, k == 'k{i}')", data(map={"x": 1}), data(map={"k7": 1})
    )
    yield way(
        "`exists` of two variables",
        lambda i: f"data.map.exists(k, v, v == {i})",
        data(map={"x": -1, "y": -2}),
        data(map={"x": -1, "y": 7}),
    )
    yield way("`exists_one`", lambda i: f"data.tags.exists_one(t, t == 't{i}')", tags, found)
    yield way("`all`", lambda i: f"data.tags.all(t, t == 't{i}')", tags, data(tags=["t7", "t7"]))
    yield way("`all`, with `in`", lambda i: f"'t{i}' in data.tags && data.tags.all(t, t != '')", tags, found)
    yield way("`filter`", lambda i: f"size(data.tags.filter(t, t == 't{i}')) == 1", tags, found)
    yield way("`map`", lambda i: f"data.tags.map(t, t) == ['t{i}']", tags, data(tags=["t7"]))
    yield way("`has`, fields of their own", lambda i: f"has(data.f{i})", text, data(f7=1))
    yield way("`!has`, with `==`", lambda i: f"!has(data.b) && data.a == 't{i}'", text, data(a="t7"))
    yield way("`size`, list", lambda i: f"size(data.tags) == {i + 4}", tags, data(tags=["x"] * (4 + MATCHED)))
    yield way("`size`, text", lambda i: f"size(data.a) == {i + 4}", text, data(a="x" * (4 + MATCHED)))
    yield way("`size`, object", lambda i: f"size(data.a) == {i + 4}", data(a={"x": 1}), data(a=dict.fromkeys("abcdefghijk", 1)))
    yield way(
        "`!=` of before, fields of their own",
        lambda i: f"data.f{i} != before.f{i}",
        changed({"f7": 1}, {"f7": 1}),
        changed({"f7": 1}, {"f7": 2}),
    )
    yield way("`!=`, fields of their own", lambda i: f"data.f{i} != 7", data(f7=7), data(f7=8))
    yield way("`!`, fields of their own", lambda i: f"!(data.f{i} == 7)", data(f7=7), data(f7=8))
    yield way("`!startsWith`, with `==`", lambda i: f"!data.b.startsWith('x') && data.a == 't{i}'", text, data(a="t7", b="y"))
    yield way("an OR of fields", lambda i: f"data.a == 't{i}' || data.b == 't{i}'", data(a="x", b="y"), data(a="x", b="t7"))
    yield way(
        "an OR of a text and a list",
        lambda i: f"data.a == 't{i}' || 't{i}' in data.tags",
        data(a="x", tags=["x", "y"]),
        data(a="x", tags=["x", "t7"]),
    )
    yield way(
        "an OR of everything",
        lambda i: (
            f"data.a.startsWith('t{i}-') || data.tags.exists(t, t == 't{i}') || size(data.tags) == {i + 9} || has(data.f{i}) "
            f"|| data.n > {i + 1} && data.n < {i + 2}"
        ),
        data(a="x", tags=["x", "y"], n=-1),
        data(a="x", tags=["x", "t7"], n=-1),
    )
    yield way("a ternary", lambda i: f"data.b ? data.a == 't{i}' : data.a == 'u{i}'", data(a="x", b=True), data(a="t7", b=True))
    yield way("`==` of a list", lambda i: f"data.tags == ['t{i}', 'u']", tags, data(tags=["t7", "u"]))
    yield way(
        "`==` of an object", lambda i: f"data.a == {{'k': {i}, 'l': 1}}", data(a={"k": -1, "l": 1}), data(a={"l": 1, "k": 7})
    )
    yield way("`in` lists", lambda i: f"data.tags in [['t{i}'], ['u', 't{i}']]", data(tags=["u", "x"]), data(tags=["u", "t7"]))
    yield way(
        "a list `in` a list of the event", lambda i: f"['t{i}'] in data.tags", data(tags=[["x"], []]), data(tags=[[], ["t7"]])
    )
    yield way(
        "`contains`, object",
        lambda i: f"data.lines.contains({{'sku': 's{i}', 'qty': 1}})",
        data(lines=[{"sku": "x", "qty": 1}, {"sku": "s7", "qty": 2}]),
        data(lines=[{"sku": "x", "qty": 1}, {"sku": "s7", "qty": 1}]),
    )
    yield way(
        "`exists`, `==` of a list", lambda i: f"data.tags.exists(t, t == ['t{i}'])", data(tags=[["x"]]), data(tags=[["t7"]])
    )
    yield way("`==` of a list before", lambda i: f"before.a == [{i}]", changed({"a": [-1]}, {}), changed({"a": [7]}, {}))
    yield way("an index of a list", lambda i: f"data.tags[0] == 't{i}'", tags, data(tags=["t7"]))
    yield way("a time", lambda i: f"timestamp(data.t) < timestamp({i})", data(t=9**9), lambda n: {"data": {"t": n - 2}})
    yield way("`==` of two fields", lambda i: f"data.a == data.b && data.c == {i}", data(a=1, b=1, c=-1), data(a=1, b=1, c=7))
    yield way("`==` of two fields alone", lambda i: f"data.a == data.f{i}", data(a=1, f7=2), data(a=1, f7=1))
    yield way("arithmetic", lambda i: f"data.a + {i} == 7", data(a=9), data(a=0))
    yield way("arithmetic, with `==`", lambda i: f"data.b == 't{i}' && data.a + 1 > 7", data(a=9, b="x"), data(a=9, b="t7"))
    yield way(
        "arithmetic, with what all share",
        lambda i: f"data.b == 'DE' && data.a + {i} == 7",
        data(a=9, b="DE"),
        data(a=0, b="DE"),
    )
    yield way("a conversion", lambda i: f"string(data.a) == 't{i}'", data(a=1), data(a="t7"))


def _groups() -> Iterator[Way]:
    def way(name: str, make: Callable[[int], Any], none: Make, one: Make) -> Way:
        return Way(f"group {name}", lambda i: {"filters": [make(i)]}, none, one)

    def each(op: str, *conditions: tuple[Any, ...]) -> Members:
        return {op: filters(*conditions)["filters"]}

    same = {"b": 1}
    yield way("`any`", lambda i: each("any", ("a", "==", f"t{i}"), ("b", "==", f"t{i}")), data(a="x", b="y"), data(a="x", b="t7"))
    yield way(
        "`not` of `any`, fields of their own",
        lambda i: {"not": each("any", (f"f{i}", "==", 7), (f"f{i}", "contains", "x"))},
        data(f7=7),
        data(f7="t"),
    )
    yield way(
        "`all`, with `not` of `changed`",
        lambda i: {"all": [*filters(("a", "==", f"t{i}"))["filters"], {"not": {"field": "b", "op": "changed"}}]},
        changed({"a": "x", **same}, {"a": "x", **same}),
        changed({"a": "x", **same}, {"a": "t7", **same}),
    )


def _patterns() -> Iterator[Way]:
    matchers: tuple[tuple[str, Callable[[int], Any], Any, Any], ...] = (
        ("exact, text", lambda i: f"t{i}", "x", "t7"),
        ("exact, number", lambda i: i, -1, 7),
        ("two values", lambda i: [f"t{i}", f"u{i}"], "x", "u7"),
        ("`prefix`", lambda i: {"prefix": f"t{i}-"}, "x-y", "t7-y"),
        ("`prefix` but for case", lambda i: {"prefix": {"equals-ignore-case": f"T{i}-"}}, "x-y", "t7-y"),
        ("`suffix`", lambda i: {"suffix": f"-t{i}"}, "x-y", "x-t7"),
        ("`wildcard`", lambda i: {"wildcard": f"*-t{i}-*"}, "x-y-z", "x-t7-z"),
        ("`equals-ignore-case`", lambda i: {"equals-ignore-case": f"T{i}"}, "x", "t7"),
        ("`numeric`, `=`", lambda i: {"numeric": ["=", i]}, -1, 7),
        ("`numeric`, a narrow range", lambda i: {"numeric": [">=", i, "<", i + 1]}, -1, 7.5),
        ("`cidr`", lambda i: {"cidr": f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}/32"}, "192.168.0.1", "10.0.0.7"),
        ("`all`", lambda i: {"all": [{"prefix": "t"}, {"suffix": f"-t{i}"}, {"anything-but": ["t-t0"]}]}, "t-x", "t-t7"),
        ("`all`, next to exact", lambda i: [f"u{i}", {"all": [{"prefix": f"t{i}-"}, {"wildcard": "*y"}]}], "t-y", "t7-y"),
        ("`anything-but`, with exact", lambda i: {"anything-but": [f"t{i}"]}, "x", "x"),
        ("`anything-but` of a prefix, with exact", lambda i: {"anything-but": {"prefix": f"t{i}"}}, "x", "x"),
    )
    for name, make, none, one in matchers:
        # Another field makes the subscriptions differ.
        has_other = "with exact" in name

        def put(value: Any, *, make: Callable[[int], Any] = make, has_other: bool = has_other) -> Members:
            made = make(value)
            return {"a": made if isinstance(made, list) else [made], **({"b": [f"t{value}"]} if has_other else {})}

        other = [{"b": "x"}, {"b": "t7"}] if has_other else [{}, {}]
        yield Way(f"pattern {name}", lambda i, put=put: pattern(**put(i)), data(a=none, **other[0]), data(a=one, **other[1]))  # type: ignore[misc]
        yield Way(
            f"pattern {name}; list",
            lambda i, put=put: pattern(**put(i)),  # type: ignore[misc]
            data(a=["", none], **other[0]),
            data(a=["", one], **other[1]),
        )
        yield Way(
            f"pattern {name}; list of objects",
            lambda i, put=put: pattern(lines=put(i)),  # type: ignore[misc]
            data(lines=[{"a": none, **other[0]}, {"c": 1}]),
            data(lines=[{"c": 1}, {"a": one, **other[1]}]),
        )
    text, held = data(a="x"), data(a="t7")
    yield Way(
        "pattern `anything-but`, on what all test",
        lambda i: pattern(a=[{"anything-but": ["x", f"t{i}"]}]),
        text,
        None,
    )
    yield Way("pattern `exists`, fields of their own", lambda i: pattern(**{f"f{i}": [{"exists": True}]}), text, data(f7=1))
    yield Way("pattern `exists` false, with exact", lambda i: pattern(a=[f"t{i}"], b=[{"exists": False}]), text, held)
    yield Way("pattern `$or`", lambda i: {"pattern": {"data": {"$or": [{"a": [f"t{i}"]}, {"b": [f"t{i}"]}]}}}, text, data(b="t7"))
    yield Way(
        "pattern of two fields; list of objects",
        lambda i: pattern(lines={"sku": [f"s{i}"], "qty": [1]}),
        data(lines=[{"sku": "x", "qty": 1}, {"sku": "y", "qty": 1}]),
        data(lines=[{"sku": "x", "qty": 2}, {"sku": "s7", "qty": 1}]),
    )
    yield Way(
        "pattern of what all share, and a list",
        lambda i: pattern(b=["DE"], tags=[f"t{i}"]),
        data(b="DE", tags=["x", "y"]),
        data(b="DE", tags=["x", "t7"]),
    )


def _topics() -> Iterator[Way]:
    def on(topic: str) -> Make:
        return lambda _: {"topic": topic, "data": {}}

    for name, make, none, one in (
        ("without a wildcard", "orders.t{}.paid", "orders.x.paid", "orders.t7.paid"),
        ("`*`", "orders.t{}.*", "orders.x.paid", "orders.t7.paid"),
        ("`*` first", "*.t{}.paid", "orders.x.paid", "orders.t7.paid"),
        ("`#`", "orders.t{}.#", "orders.x.paid.late", "orders.t7.paid.late"),
        ("`#` first", "#.t{}", "orders.eu.x", "orders.eu.t7"),
        ("`#` on either side", "#.t{}.#", "orders.x.paid", "orders.t7.paid"),
    ):
        yield Way(f"topic, {name}", lambda i, make=make: {"topic": make.format(i)}, on(none), on(one))  # type: ignore[misc]


WAYS: Final = (*_filters(), *_groups(), *_cel(), *_patterns(), *_topics())


@dataclass(frozen=True, slots=True)
class Cost:
    """What an event costs at one size.

    Attributes:
        none: microseconds of an event that matches none.
        one: microseconds of an event that matches one.
        looked_at: alternatives that were looked at for one that matches none.
        with_unknown: as many if it has an unknown value.
    """

    none: float
    one: float | None
    looked_at: int
    with_unknown: int


def measure(way: Way, size: int, *, is_timed: bool = True) -> Cost:
    """Measure a way with *size* subscriptions.

    Raises:
        WrongMatches: another number of matches than there must be.
    """
    engine = engine_of(way, size)
    took, looked_at = list[float | None](), [0, 0]
    for make, matches in ((way.none, 0), (way.one, 1)):
        if make is None:
            took.append(None)
            continue
        event = event_of(make, size)
        before = looked(engine)
        if (found := engine.match_count(event)) != matches:
            raise WrongMatches(f"{way.name}, {size:,} subscriptions: {found} matches, not {matches}")
        if not matches:
            between = looked(engine)
            engine.match_count(event_of(make, size, unknown=["/data/hidden"]))
            looked_at = [between - before, looked(engine) - between]
        took.append(fastest(engine, event) if is_timed else 0.0)
    none, one = took
    assert none is not None
    return Cost(none, one, *looked_at)


def engine_of(way: Way, size: int) -> streamer.Engine:
    """Return an engine of *size* subscriptions."""
    engine = streamer.Engine()
    engine.add_many({"id": f"s{number}", "collection": "c", **way.make(number)} for number in range(size))
    return engine


def event_of(make: Make, size: int, **members: Any) -> bytes:
    """Return the event for *size* subscriptions, with these *members*."""
    return json.dumps({"collection": "c", "type": "update", **make(size), **members}).encode()


def looked(engine: streamer.Engine) -> int:
    """Return how much an engine has looked at: alternatives that its index brought up, and subscriptions evaluated then."""
    if _backend.BACKEND != "native":
        return engine.stats().candidates
    # Subscriptions with the same conditions are one alternative, and each has its own expression.
    counted = cast("NativeCore", engine._core).counters()
    return counted["candidates"][1] + counted["evaluated"]


def fastest(engine: streamer.Engine, event: bytes) -> float:
    """Return the CPU time of an event in microseconds, that of the best pass."""
    count, clock = engine.match_count, time.thread_time_ns
    began = clock()
    count(event)
    # A pass is long enough for the clock.
    times = range(max(1, min(500, 500_000 // max(clock() - began, 1))))
    best, deadline, passes = float("inf"), time.perf_counter() + SECONDS, 0
    while passes < PASSES or time.perf_counter() < deadline:
        began = clock()
        for _ in times:
            count(event)
        best = min(best, (clock() - began) / len(times) / 1000)
        passes += 1
    return best


def check(way: Way, small: Cost, large: Cost) -> None:
    """Compare the work at two sizes.

    Raises:
        WrongMatches: it grows, and is not known to; or it does not, and is known to.
    """
    for name, known, least, most in (
        ("KNOWN", way.name in KNOWN, small.looked_at, large.looked_at),
        ("OPEN", way.name in KNOWN or way.name in OPEN, small.with_unknown, large.with_unknown),
    ):
        grows = most > least + SLACK
        if grows != known:
            advice = f"grows: index it, or add it to {name}" if grows else f"no longer grows: take it off {name}"
            raise WrongMatches(f"{way.name}: {least:,} looked at, then {most:,}. It {advice}")


def table(ways: Sequence[Way], sizes: Sequence[int]) -> Iterator[str]:
    """Measure ways, and yield the lines of their table."""
    yield f"| way | {' | '.join(f'{size:,}' for size in sizes)} | ÷ `==` | one match | looked at |"
    yield f"|---|{'--:|' * (len(sizes) + 3)}"
    plain = next(way for way in WAYS if way.name == PLAIN)
    compared, event = engine_of(plain, sizes[-1]), event_of(plain.none, sizes[-1])
    for way in ways:
        costs = [measure(way, size) for size in sizes]
        # By turns: a machine has quick minutes and slow ones.
        ratio = costs[-1].none / fastest(compared, event)
        cells = [f"{cost.none:,.2f}" for cost in costs]
        one = "–" if costs[-1].one is None else f"{costs[-1].one:,.2f}"
        yield f"| {way.name} | {' | '.join(cells)} | {ratio:,.2f} | {one} | {costs[-1].looked_at:,} |"


def smoke(ways: Sequence[Way]) -> Iterator[str]:
    """Compare the work of ways at small sizes, without a clock; yield a line for each."""
    is_counted = _backend.BACKEND == "native"
    for way in ways:
        costs = [measure(way, size, is_timed=False) for size in (SMOKE if is_counted else SMALL)]
        if is_counted:
            check(way, costs[0], costs[-1])
        yield f"{way.name}: {', '.join(f'{cost.looked_at:,}' for cost in costs)} looked at"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print."""
    parser = parser_for(__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="measure only ways whose names have one of these")
    options = parser.parse_args(arguments)
    chosen = [way for way in WAYS if not options.words or any(word in way.name for word in options.words)]
    began, lines = machine(), list[str]()
    sizes = SIZES if _backend.BACKEND == "native" else SMALL
    for line in smoke(chosen) if options.smoke else table(chosen, sizes):
        print(line, flush=True)
        lines.append(line)
    if options.record:
        print(Record("operators", began, ABOUT).write(lines))


if __name__ == "__main__":
    main()
