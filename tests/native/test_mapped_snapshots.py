"""What lies in a file is opened when it is needed, once, shared between processes, and never believed unread."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine, SnapshotError, _backend, _native
from streamer.core import snapshot
from streamer.core.snapshot import Directory, read_directory, read_head
from tests.generators import agreeing_event, agreeing_subscription, random_event, random_subscription
from tests.parts import in_seeds
from tests.tools.hooks import hooks

COLLECTIONS = "cde"


def filled(seed: int, count: int = 400) -> Engine:
    """An engine with sections large enough to have images."""
    rng = random.Random(seed)
    made = agreeing_subscription if seed % 2 else random_subscription
    e = Engine()
    subscriptions = [made(rng, f"s{n}") | {"tenant": "t", "collection": rng.choice(COLLECTIONS)} for n in range(count)]
    e.add_many(subscriptions, on_error="skip")
    return e


def events_of(seed: int, count: int) -> list[Any]:
    rng = random.Random(seed)
    made = agreeing_event if seed % 2 else random_event
    return [{**made(rng), "tenant": "t", "collection": rng.choice(COLLECTIONS)} for _ in range(count)]


def told(e: Engine, event: Any) -> list[Any]:
    return [(m.subscription_id, m.transition, m.certain, m.labels) for m in e.match(event).sorted()]


def reference(path: Path) -> Engine:
    """The file as the reference reads it."""
    before, _backend.BACKEND = _backend.BACKEND, "reference"  # type: ignore[misc]
    try:
        return Engine.load(path)
    finally:
        _backend.BACKEND = before  # type: ignore[misc]


def section(directory: Directory, collection: str) -> int:
    return next(at for at, each in enumerate(directory.sections) if each.collection == collection)


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def of_another_core(path: Path) -> None:
    """Say that the images are for a core of another number."""
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[24:32], "little")
    data[88:96] = (_native.IMAGES + 1).to_bytes(8, "little")
    data[112:128] = snapshot.checksum(bytes(data[:112] + data[128 : 128 + length]))
    path.write_bytes(data)


@in_seeds(3, 12)
def test_images_lines_and_the_reference_match_alike(tmp_path: Path, seed: int) -> None:
    e = filled(seed)
    e.save(path := tmp_path / "s")
    assert any(image.length for image in read_directory(path).images)
    mapped, naive = Engine.load(path), reference(path)
    e.save(other := tmp_path / "t")
    of_another_core(other)
    compiled = Engine.load(other)
    events = events_of(seed, 60)
    for engine in (mapped, compiled):
        for event in events:
            assert told(engine, event) == told(e, event) == told(naive, event)
        # The old side of an update, and what a merge makes of mapped segments.
        for n in range(0, 400, 7):
            engine.replace({"id": f"s{n}", "tenant": "t", "collection": "c", "filters": []})
            engine.remove(f"s{n + 1}")
    hooks(engine).merge()
    hooks(mapped).merge()
    for n in range(0, 400, 7):
        e.replace({"id": f"s{n}", "tenant": "t", "collection": "c", "filters": []})
        e.remove(f"s{n + 1}")
    for event in events:
        assert told(mapped, event) == told(compiled, event) == told(e, event)
    assert list(mapped) == list(e)


def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    filled(1).save(path := tmp_path / "s")
    e = Engine.load(path)
    segments = lambda: {each.collection: each.segments for each in e._core.partitions()}  # noqa: E731
    assert (len(e), segments()) == (400, dict.fromkeys(COLLECTIONS, 0))
    assert sum(each.subscriptions for each in e._core.partitions()) == 400
    e.match({"tenant": "t", "collection": "d", "data": {}})
    assert segments() == {"c": 0, "d": 1, "e": 0}
    assert e.stats().subscriptions == 400
    e.add({"id": "x", "tenant": "t", "collection": "c"})
    assert segments()["e"] == 0
    assert len(e) == 401


@pytest.mark.parametrize("part", ["lines", "images"])
def test_damage_stops_those_events_that_need_the_section_and_no_others(tmp_path: Path, part: str) -> None:
    e = filled(1)
    e.save(path := tmp_path / "s")
    directory = read_directory(path)
    at = section(directory, "d")
    flipped(path, getattr(directory, part)[at].start + 100)
    e, loaded = filled(1), Engine.load(path)
    for event in events_of(1, 60):
        if event["collection"] == "d":
            with pytest.raises(SnapshotError, match="checksum") as raised:
                loaded.match(event)
            assert (raised.value.place, raised.value.path) == ("section t/d", str(path))
        else:
            assert told(loaded, event) == told(e, event)
    assert loaded._core.telemetry().rejected["internal"] > 0
    with pytest.raises(SnapshotError):
        loaded.match_batch([{"tenant": "t", "collection": "d"}] * 40, threads=2)
    # A write needs all lines, and the section it writes to.
    new = {"id": "new", "tenant": "t", "collection": "d"}
    with pytest.raises(SnapshotError):
        loaded.add(new)
    if part == "lines":
        with pytest.raises(SnapshotError):
            list(loaded)
    else:
        assert list(loaded) == list(e)
        loaded.add({**new, "collection": "c"})
        assert "new" in loaded.match_ids({"tenant": "t", "collection": "c"})
    # Who does not take the section does not meet the damage.
    part_of = Engine.load(path, collections=[("t", "c")])
    part_of.add(new)
    assert "new" in part_of


@pytest.mark.integration
def test_no_flip_in_an_image_is_ever_another_match(tmp_path: Path) -> None:
    e = filled(3, 120)
    e.save(path := tmp_path / "s")
    whole, events = path.read_bytes(), events_of(3, 6)
    good = [told(e, event) for event in events]
    rng = random.Random(3)
    refused = 0
    for _ in range(1500):
        at = rng.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        try:
            loaded = Engine.load(path)
        except SnapshotError:
            refused += 1
            continue
        for event, expected in zip(events, good, strict=True):
            try:
                assert told(loaded, event) == expected
            except SnapshotError:
                refused += 1
    assert refused > 500


def test_a_file_that_is_replaced_while_it_is_mapped_stays(tmp_path: Path) -> None:
    filled(1).save(path := tmp_path / "s")
    loaded = Engine.load(path)
    Engine().save(path)
    for event in events_of(1, 20):
        assert told(loaded, event) == told(filled(1), event)
    path.unlink()
    assert len(list(loaded)) == 400


def test_a_directory_that_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    filled(1).save(path := tmp_path / "s")
    head = read_head(path)
    Engine().save(path)
    with pytest.raises(SnapshotError, match="checksum"):
        Engine()._core.open_snapshot(head, None)


def test_threads_that_meet_at_a_section_open_it_once(tmp_path: Path) -> None:
    e = filled(1)
    e.save(path := tmp_path / "s")
    events = events_of(1, 30)
    expected = [told(e, event) for event in events]
    for _ in range(10):
        loaded = Engine.load(path)
        start = threading.Barrier(5)
        wrong: list[Any] = []

        def match(loaded: Engine = loaded, start: threading.Barrier = start, wrong: list[Any] = wrong) -> None:
            start.wait()
            results = loaded.match_batch(events, threads=2)
            wrong.extend(one for one, other in zip(results, expected, strict=True) if len(one) != len(other))  # type: ignore[arg-type]

        threads = [threading.Thread(target=match) for _ in range(4)]
        for thread in threads:
            thread.start()
        start.wait()
        loaded.add({"id": "late", "tenant": "nobody"})
        for thread in threads:
            thread.join()
        assert not wrong
        assert len(loaded) == 401


def test_a_fork_goes_on_with_what_was_not_opened(tmp_path: Path) -> None:
    e = filled(1)
    e.save(path := tmp_path / "s")
    loaded = Engine.load(path)
    event, *others = events_of(1, 20)
    stop = threading.Event()
    opener = threading.Thread(target=lambda: [Engine.load(path).match(event) for _ in range(10_000) if not stop.is_set()])
    opener.start()
    told(loaded, event)
    try:
        for _ in range(10):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                code = 1
                try:
                    same = all(told(loaded, other) == told(e, other) for other in others)
                    code = 0 if same and loaded.remove("s1") and len(loaded) == 399 else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        opener.join()
    assert len(loaded) == 400


def test_what_an_image_is_changes_with_its_number_only() -> None:
    # Who changes how sections are compiled changes the number in image.rs, then this: old images would be read as something else.
    rng = random.Random(7)
    texts = [json.dumps({**agreeing_subscription(rng, f"s{n}"), "tenant": "t", "collection": "c"}) for n in range(200)]
    lines = "".join(f"[{n},{text}]\n" for n, text in enumerate(texts)).encode()
    image = Engine()._core.image(lines, 1)
    assert image is not None
    assert (_native.IMAGES & 0xFFFF, snapshot.checksum(image).hex()) == (12, "a96abaf86759f02df0dc59d754ca936e")


SHARER = """
import sys
from streamer import Engine
e = Engine.load(sys.argv[1])
print(sum(e.match_count({"collection": f"c{n}", "data": {"a": n}}) for n in range(4)), flush=True)
sys.stdin.readline()
text = open("/proc/self/smaps").read()
totals = dict.fromkeys(("Rss", "Shared_Clean", "Private_Dirty", "Anonymous"), 0)
mine = False
for line in text.splitlines():
    if "-" in line.split(" ")[0]:
        mine = line.endswith(sys.argv[1])
    elif mine and (name := line.split(":")[0]) in totals:
        totals[name] += int(line.split()[1])
print(*totals.values(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux tells what is shared")
def test_two_processes_share_the_pages(tmp_path: Path) -> None:
    e = Engine()
    e.add_many(
        {"id": f"s{n}", "collection": f"c{n % 4}", "filters": [{"field": "a", "op": "==", "value": n % 9000}]}
        for n in range(40_000)
    )
    e.save(path := tmp_path / "s")
    kilobytes = path.stat().st_size // 1024
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "STREAMER_BACKEND": "native"}
    sharers = [
        subprocess.Popen(
            (sys.executable, "-c", SHARER, str(path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(2)
    ]
    matches = [sharer.stdout.readline() for sharer in sharers if sharer.stdout]
    shares = []
    for sharer in sharers:
        assert sharer.stdin
        assert sharer.stdout
        sharer.stdin.write("\n")
        sharer.stdin.flush()
        shares.append([int(part) for part in sharer.stdout.readline().split()])
    for sharer in sharers:
        sharer.communicate("\n", timeout=60)
    assert len(set(matches)) == 1
    assert int(matches[0]) > 10
    for rss, shared, dirty, anonymous in shares:
        assert rss > kilobytes / 2
        assert shared > rss * 0.9
        assert dirty == anonymous == 0
