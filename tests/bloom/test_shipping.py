"""A filter that was shipped: what it answers, that it answers without the engine, and what it refuses."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import random
import re
import struct
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine, EventError, LeaseError, ShippedFilterError
from streamer.bloom import Answer, ShippedFilter
from streamer.bloom.shipping import MAGIC
from tests.bloom.test_no_false_negatives import LAYOUTS, random_event, random_subscription


def load(e: Engine, tenant: str = "default", collection: str | None = "c", **options: Any) -> ShippedFilter:
    return ShippedFilter.load(e.bloom.export(tenant, collection, **options))


def with_header(data: bytes, **members: Any) -> bytes:
    """Change members of the header, with a checksum that fits: what an attacker can do."""
    (length,) = struct.unpack_from("<I", data, 10)
    header = json.loads(data[14 : 14 + length]) | members
    text = json.dumps({name: value for name, value in header.items() if value != "left out"}).encode()
    body = data[:10] + struct.pack("<I", len(text)) + text + data[14 + length : -32]
    return body + hashlib.sha256(body).digest()


def header_of(data: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from("<I", data, 10)
    header: dict[str, Any] = json.loads(data[14 : 14 + length])
    return header


@pytest.fixture
def e(engine: Any) -> Engine:
    made: Engine = engine()
    made.add_many(
        {"id": f"s{n}", "collection": "c", "filters": [{"field": f"f{n % 3}", "op": "==", "value": n}]} for n in range(300)
    )
    made.add({"id": "every", "tenant": "*", "filters": [{"field": "price", "op": ">", "value": 100}]})
    return made


def test_it_answers_for_all_four_partitions_of_an_event(engine: Any) -> None:
    e: Engine = engine()
    for tenant in ("t", "*"):
        for collection in ("c", "*"):
            name = f"{tenant} {collection}"
            condition = {"field": "a", "op": "==", "value": name}
            e.add({"id": name, "tenant": tenant, "collection": collection, "filters": [condition]})
    guard = load(e, "t", "c")
    for name in ("t c", "t *", "* c", "* *"):
        assert guard.ask({"tenant": "t", "collection": "c", "data": {"a": name}}) is Answer.MAYBE
    assert guard.ask({"tenant": "t", "collection": "c", "data": {"a": "none"}}) is Answer.NO
    without = load(e, "t", None)
    assert without.ask({"tenant": "t", "data": {"a": "t *"}}) is Answer.MAYBE
    assert without.ask({"tenant": "t", "data": {"a": "t c"}}) is Answer.NO


def test_of_events_of_others_it_knows_nothing(e: Engine) -> None:
    guard = load(e)
    foreign = {"data": {"f0": "foreign"}}
    assert guard.ask({"collection": "c", **foreign}) is Answer.NO
    assert guard.ask({"collection": "d", **foreign}) is Answer.MAYBE
    assert guard.ask({"collection": "c", "tenant": "other", **foreign}) is Answer.MAYBE
    assert guard.ask(foreign) is Answer.MAYBE
    assert guard.ask(foreign, collection="c") is Answer.NO
    with pytest.raises(EventError):
        guard.ask(b"{")


@pytest.mark.later_on_the_reference
@pytest.mark.parametrize("seed", range(20))
def test_what_was_shipped_loses_no_match(engine: Any, seed: int) -> None:
    rng = random.Random(seed)
    layout = LAYOUTS[seed % len(LAYOUTS)]
    e: Engine = engine(layout=layout, soft_delete="flag" if seed % 4 == 0 else None)
    keyed = 0
    while keyed < 12:
        subscription = random_subscription(rng, f"s{keyed}")
        e.replace(subscription)
        if not e.plan(subscription.id).bloom_keys:
            e.remove(subscription.id)
        else:
            keyed += 1
    guards = {(tenant, name): load(e, tenant, name) for tenant in ("default", "t", "u") for name in ("c", "d", None)}
    answers = []
    for _ in range(150):
        event = random_event(rng)
        guard = guards[event.get("tenant", "default"), event.get("collection")]
        assert not guard.always
        answers.append(guard.ask(event))
        if answers[-1] is Answer.NO:
            assert e.match_ids(event) == [], event
    assert answers.count(Answer.NO) > 10


def test_nearly_all_that_nobody_wants_is_stopped(e: Engine) -> None:
    guard = load(e, fp_rate=0.01)
    events = [{"collection": "c", "data": {f"f{field}": f"foreign {n}" for field in range(3)}} for n in range(3000)]
    passed = sum(guard.ask(event) is Answer.MAYBE for event in events)
    assert passed <= 1.2 * 0.01 * 3000


def test_where_anything_is_unkeyed_it_always_says_maybe(e: Engine) -> None:
    e.add({"id": "all", "tenant": "*"})
    guard = load(e)
    assert guard.always
    assert guard.ask({"collection": "c", "data": {}}) is Answer.MAYBE
    assert len(e.bloom.export("default", "c")) < 1000


def test_a_filter_past_its_lease_is_refused(e: Engine) -> None:
    now = 1_000_000_000_000.0
    data = e.bloom.export("default", "c", lease=timedelta(minutes=5))
    with pytest.raises(LeaseError, match="ended at"):
        ShippedFilter.load(data, clock=lambda: now)
    guard = ShippedFilter.load(data)
    assert not guard.expired
    assert guard.lease_end - guard.made == timedelta(minutes=5)
    clock = guard.lease_end.timestamp() - 1
    guard = ShippedFilter.load(data, clock=lambda: clock)
    assert guard.ask({"collection": "c", "data": {}}) is Answer.NO
    clock += 1
    assert guard.expired
    with pytest.raises(LeaseError):
        guard.ask({"collection": "c", "data": {}})


@pytest.mark.parametrize("options", [{"lease": timedelta()}, {"lease": timedelta.max}, {"fp_rate": 0.0}, {"fp_rate": 1.0}])
def test_an_export_that_cannot_be_is_refused(e: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not "):
        e.bloom.export("default", "c", **options)


@pytest.mark.parametrize("data", ["a path", 5, None, [1, 2]])
def test_what_is_no_bytes_is_no_filter(data: Any) -> None:
    with pytest.raises(TypeError, match="a filter is bytes"):
        ShippedFilter.load(data)


@pytest.mark.parametrize("options", [{"lease": 5}, {"lease": None}, {"fp_rate": True}, {"fp_rate": "0.1"}])
def test_an_export_with_arguments_of_other_types_is_refused(e: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^(lease|fp_rate) is a "):
        e.bloom.export("default", "c", **options)


def test_any_bit_that_flips_and_any_byte_that_is_missing_is_found(e: Engine) -> None:
    data = e.bloom.export("default", "c", fp_rate=0.1)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(ShippedFilterError):
            ShippedFilter.load(bytes(damaged))
        with pytest.raises(ShippedFilterError):
            ShippedFilter.load(data[:at])
    with pytest.raises(ShippedFilterError):
        ShippedFilter.load(data + b"\0")


def test_a_filter_travels_between_processes(e: Engine) -> None:
    """As a Spark job broadcasts it."""
    guard = load(e)
    for twin in (pickle.loads(pickle.dumps(guard)), copy.deepcopy(guard)):
        assert twin.lease_end == guard.lease_end
        for n in range(300):
            assert twin.ask({"collection": "c", "data": {f"f{n % 3}": n}}) is Answer.MAYBE
        assert twin.ask({"collection": "c", "data": {"f1": "foreign"}}) is Answer.NO


@pytest.mark.parametrize(("tenant", "collection"), [(1, "c"), (None, "c"), (b"t", "c"), ("t", 2), ("t", b"c"), (["t"], None)])
def test_an_export_for_what_is_no_name_is_refused(e: Engine, tenant: Any, collection: Any) -> None:
    with pytest.raises(TypeError, match=r"^(tenant|collection) is a string, not "):
        e.bloom.export(tenant, collection)


@pytest.mark.parametrize(("tenant", "collection"), [("*", "c"), ("t", "*"), ("\ud800", "c"), ("t", "a\udfff")])
def test_an_export_for_a_name_that_no_event_has_is_refused(e: Engine, tenant: str, collection: str) -> None:
    with pytest.raises(ValueError, match=r"^(the )?(tenant|collection) "):
        e.bloom.export(tenant, collection)


def test_the_old_side_is_asked_only_where_somebody_is_told_of_it(engine: Any) -> None:
    e: Engine = engine()
    e.add_many({"id": f"s{n}", "collection": "c", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(9))
    gone = {"collection": "c", "type": "update", "data": {"a": -1}, "before": {"a": 1}}
    assert load(e).ask(gone) is Answer.NO
    assert not e.matches_any(gone)
    e.add({"id": "told", "collection": "c", "transitions": True, "filters": [{"field": "a", "op": "==", "value": 10**6}]})
    assert load(e).ask(gone) is Answer.MAYBE
    e.remove("told")
    assert header_of(e.bloom.export("default", "c"))["transitions"] is False
    flagged: Engine = engine(soft_delete="gone")
    flagged.add_many(e.subscriptions())
    last = {"collection": "c", "type": "delete", "data": {"a": -1, "gone": True}, "before": {"a": 1}}
    assert flagged.match_ids(last) == ["s1"]
    assert load(flagged).ask(last) is Answer.MAYBE


def test_cel_makes_keys_that_say_nothing_of_unknown_values(engine: Any, backend: str) -> None:
    """Of an error and an unknown `&&` is unknown, of two conditions on an index it would be false."""
    e: Engine = engine()
    e.add({"id": "s", "collection": "c", "cel": "(data.a > 1 ? data.b == 7 : data.b == 8) && data.hidden == 1"})
    e.add({"id": "t", "collection": "c", "filters": [{"field": "b", "op": "==", "value": 9}]})
    guard = load(e)
    # Reading `a` is an error, whatever `b` is.
    event = {"collection": "c", "data": {"b": 1}, "unknown": ["/data/hidden"]}
    assert e.match_ids(event) == ["s"]
    assert guard.ask(event) is Answer.MAYBE
    foreign = guard.ask({"collection": "c", "data": {"b": 1}})
    assert foreign is (Answer.NO if backend == "native" else Answer.MAYBE)
    assert guard.always == (backend == "reference")


def test_a_later_format_is_refused_by_its_number(e: Engine) -> None:
    data = e.bloom.export("default", "c")
    body = MAGIC + struct.pack("<H", 2) + data[10:-32]
    with pytest.raises(ShippedFilterError, match="version 2"):
        ShippedFilter.load(body + hashlib.sha256(body).digest())


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("tenant", None),
        ("collection", 7),
        ("versions", [1]),
        ("lease_end_ms", "soon"),
        ("lease_end_ms", 1e300),
        ("layout", {"data": 7}),
        ("max_depth", -1),
        ("always", "no"),
        ("holes_pass", "left out"),
        ("always", "left out"),
        ("hash", "xxh3"),
        ("slices", 0),
        ("slices", True),
        ("slices", 10**9),
        ("slices", 65),
        ("bits_per_slice", 1),
        ("bits_per_slice", -1),
        ("places", [["data", "value", ["a"], "later"]]),
        ("places", [["data", "value", [1], "equal"]]),
        ("places", 7),
        ("count", "many"),
        ("error_rate", 7),
    ],
)
def test_a_header_that_cannot_be_is_refused(e: Engine, member: str, value: Any) -> None:
    data = e.bloom.export("default", "c")
    with pytest.raises(ShippedFilterError, match="header"):
        ShippedFilter.load(with_header(data, **{member: value}))


def test_both_backends_ship_the_same_keys(e: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer._backend.BACKEND", "reference")
    other = Engine()
    other.add_many(e.subscriptions())
    shipped, expected = e.bloom.export("default", "c"), other.bloom.export("default", "c")
    different = ("made_ms", "lease_end_ms", "versions")
    one, two = ({name: value for name, value in header_of(data).items() if name not in different} for data in (shipped, expected))
    assert one == two
    start = 14 + struct.unpack_from("<I", shipped, 10)[0], 14 + struct.unpack_from("<I", expected, 10)[0]
    assert shipped[start[0] : -32] == expected[start[1] : -32]


ROOT = Path(__file__).parents[2]


def environment(backend: str) -> dict[str, str]:
    """Return the environment of a process that imports this very package."""
    return os.environ | {"STREAMER_BACKEND": backend, "PYTHONPATH": str(ROOT)}


ASKS_ALONE = """
import sys

class NoNative:
    def find_spec(self, name, path=None, target=None):
        if name == "streamer._native":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, NoNative())
from streamer.bloom import Answer, ShippedFilter
guard = ShippedFilter.load(sys.stdin.buffer.read())
print([guard.ask({"collection": "c", "data": {"f1": value}}).value for value in (1, "foreign")])
"""


def test_it_is_asked_in_a_process_without_the_native_core(e: Engine) -> None:
    command = [sys.executable, "-W", "ignore", "-c", ASKS_ALONE]
    exported = e.bloom.export("default", "c")
    done = subprocess.run(command, input=exported, env=environment("auto"), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == "['maybe', 'no']"


def test_the_example_of_a_producer_drops_most_and_loses_nothing() -> None:
    command = [sys.executable, ROOT / "examples" / "filtering_producer.py"]
    environ = environment(os.environ.get("STREAMER_BACKEND", "auto"))
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    readings, dropped, found, wanted = map(int, re.findall(r"\d+", done.stdout))
    assert dropped > 0.9 * readings
    assert found == wanted > 0
