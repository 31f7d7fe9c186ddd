"""The native core writes the messages of matches byte for byte as Python does, whose ids stay what they are."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from streamer.cel_eval import ErrorLog, ProgramCache
from streamer.config.schema.service import Route
from streamer.core.matches import packed
from streamer.core.options import Options
from streamer.core.protocol import Core
from streamer.errors import EventError
from streamer.events.layout import Constant, EventLayout
from streamer.native.core import NativeCore
from streamer.reference.core import ReferenceCore
from streamer.service.connectors.formats import Place
from streamer.service.delivery.messages import Shape, Speaker, Way
from streamer.service.delivery.routing import Routes
from streamer.service.store.ids import inside

SEEDS = 4
SETS = 12
PROGRAMS = ProgramCache(1000)
LAYOUTS = (
    EventLayout(),
    EventLayout(),
    EventLayout(ts_format="rfc3339"),
    EventLayout(ts_format="ns", id=("/key/id", "/id"), collection="{/db}.{/collection}"),
    EventLayout(ts_format="s", id=Constant(7), tenant=Constant("é\\"), ts=Constant(1)),
    EventLayout(encoded="json", before_holds="changed"),
)
PIECES = ("a", "é", '"', "\\", "/", "\n", "\r\t\b\f", "\x00", "\x1f", "\x7f", "\u2028", "𝄞", "Z")
TIMES = {
    "rfc3339": (
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999999Z",
        "2024-02-29t23:59:60.5+02:30",
        "1969-12-31T23:59:59.001-23:59",
    ),
    "s": (-62_135_596_800, 253_402_300_799, 951_782_400),
    "ms": (-62_135_596_800_000, 253_402_300_799_999, -1, 0, 1_795_342_530_123),
    "ns": (-1, 1, 1_000_000, 1_795_342_530_123_456_789),
}


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.randint(0, 4)))


def _labels(rng: random.Random) -> dict[str, Any]:
    values = (None, True, -0.0, 1.5, 1e300, 10**30, [_text(rng), {}], {_text(rng): 1}, _text(rng))
    return {_text(rng): rng.choice(values) for _ in range(rng.randint(0, 3))}


def _subscription(rng: random.Random, number: int) -> bytes:
    tenant = rng.choice(["*", "é\\", "t"])
    given: dict[str, Any] = {"id": inside(tenant, f"{_text(rng)}{number}"), "tenant": tenant}
    given["filters"] = [{"field": "n", "op": ">", "value": rng.randint(0, 3)}]
    if rng.random() < 0.5:
        given["gateway_id"] = rng.choice(["g", "h\n"])
    if rng.random() < 0.3:
        given["labels"] = _labels(rng)
    if rng.random() < 0.3:
        given["transitions"] = True
    return json.dumps(given, ensure_ascii=rng.random() < 0.5).encode()


def _event(rng: random.Random, layout: EventLayout) -> bytes:
    event: dict[str, Any] = {"data": {"n": rng.randint(0, 4)}, "db": _text(rng), "key": {"id": rng.choice([None, "k"])}}
    parts = {
        "id": lambda: rng.choice([0, -(2**63), 2**64 - 1, "", _text(rng)]),
        "tenant": lambda: rng.choice(["é\\", "t", ""]),
        "collection": lambda: _text(rng) or "c",
        "ts": lambda: rng.choice(TIMES[layout.ts_format]),
        "type": lambda: rng.choice(["insert", "update", "update", "delete"]),
        "before": lambda: {"n": rng.randint(0, 4)},
        "unknown": lambda: ["/before/n"],
    }
    for name, value in parts.items():
        if rng.random() < 0.6:
            event[name] = value()
    return json.dumps(event, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1])).encode()


def _messages(core: Core, speaker: Speaker, events: list[bytes], key: str | None) -> list[Any]:
    told: list[Any] = []
    for at, (event, found) in enumerate(zip(events, core.match_batch(list(events), None, None), strict=True)):
        if isinstance(found, EventError):
            told.append(found.code)
            continue
        messages = speaker.messages("orders", "0é", Place(0, at, 1, key), event, found)
        assert (packed(found).encoder is None) is isinstance(core, ReferenceCore)
        told.append(sorted((each.sink or "", each.about.attributes, *sorted(each.messages)) for each in messages))
    return told


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_native_core_writes_messages_as_python_does(seed: int) -> None:
    rng = random.Random(seed)
    written = 0
    for _ in range(SETS):
        layout = rng.choice(LAYOUTS)
        options = Options.checked(layout=layout, default_tenant=rng.choice(["t", "é\\"]), validation=rng.choice(["full", "lazy"]))
        subscriptions = [_subscription(rng, number) for number in range(8)]
        events = [_event(rng, layout) for _ in range(8)]
        shape = Shape(rng.choice(["full", "reference", "none"]))
        routes = rng.choice([(), (Route(gateway="g", sink="one"), Route(gateway="*", sink="two"))])
        speaker = Speaker(options, Routes(routes, None if routes else "one"), {"one": shape, "two": Shape("none", "gateway")})
        if rng.random() < 0.5:
            speaker.own = {("t", "h\n"): Way("two", shape)}
        native, reference = (core(options, PROGRAMS, ErrorLog()) for core in (NativeCore, ReferenceCore))
        key = rng.choice([None, None, "", _text(rng)])
        for core in (native, reference):
            core.write(subscriptions, "add")
        told = _messages(native, speaker, events, key)
        assert told == _messages(reference, speaker, events, key)
        written += sum(len(of_sink) - 2 for of_event in told if isinstance(of_event, list) for of_sink in of_event)
    assert written > SETS * 8


@pytest.mark.parametrize("per", ["match", "gateway"])
@pytest.mark.parametrize("made", [NativeCore, ReferenceCore])
def test_a_large_event_that_many_want_is_told_in_parts(made: type[NativeCore | ReferenceCore], per: Any) -> None:
    """Each message has the event: all of them at once would be as much memory as both numbers allow."""
    options = Options.checked(default_tenant="t")
    core = made(options, PROGRAMS, ErrorLog())
    core.write([json.dumps({"id": inside("t", f"s{at}"), "gateway_id": f"g{at}"}).encode() for at in range(100)], "add")
    event = json.dumps({"id": 7, "data": {"note": "x" * 100_000}}).encode()
    speaker = Speaker(options, Routes((), "out"), {"out": Shape("full", per)})
    told = list(speaker.messages("s", "p", Place(0, 0, 0, None), event, core.match(event, None, None)))
    assert len({message for each in told for message in each.messages}) == sum(each.matches for each in told) == 100
    assert all(len(each.messages) == len(each.counts) <= 10 for each in told)


@pytest.mark.parametrize("per", ["match", "gateway"])
@pytest.mark.parametrize("made", [NativeCore, ReferenceCore])
def test_labels_that_no_float64_holds_are_told_as_they_were_written(made: type[NativeCore | ReferenceCore], per: Any) -> None:
    options = Options.checked(default_tenant="t")
    core = made(options, PROGRAMS, ErrorLog())
    core.write([b'{"id": "%b", "labels": {"n": 1e400}}' % inside("t", "s").replace("\0", "\\u0000").encode()], "add")
    event = b'{"data": {}}'
    speaker = Speaker(options, Routes((), "out"), {"out": Shape("none", per)})
    [told] = speaker.messages("s", "p", Place(0, 0, 0, None), event, core.match(event, None, None))
    assert [b'"labels":{"n":1e400}' in message for message in told.messages] == [True]


def test_the_id_of_a_message_is_what_it_was() -> None:
    """A version that gives other ids makes receivers take again what they have."""
    options = Options.checked(default_tenant="t")
    core = NativeCore(options, PROGRAMS, ErrorLog())
    core.write([json.dumps({"id": inside("t", "s1"), "gateway_id": "g", "filters": []}).encode()], "add")
    event = b'{"id": 7, "ts": 1795342530123, "collection": "orders", "type": "insert", "data": {}}'
    speaker = Speaker(options, Routes((), "out"), {"out": Shape("none")})
    place = Place(0, 12, 0, None)
    [told] = speaker.messages("orders", "p", place, event, core.match(event, None, None))
    assert told.messages == [
        b'{"specversion":"1.0","id":"390dc4ed65ee0fbeba551f28da96e921","source":"/streamer/orders","type":"streamer.match.enter",'
        b'"subject":"s1","time":"2026-11-22T10:15:30.123Z","partitionkey":"7","tenant":"t","collection":"orders","gateway":"g",'
        b'"certain":true,"datacontenttype":"application/json","data":{"labels":{}}}\n'
    ]
