"""A history is bounded, reads back as it was written, and is drawn with every rebuild."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streamer import Engine
from streamer.bloom import BloomOptions
from streamer.bloom.state import FilterState
from streamer.metrics.history import MOST_FILTERS, History, Rebuilds, Sample, read_history
from streamer.metrics.plot import Mark, marks, names, plot, stopped
from streamer.metrics.plot import _draw as draw_samples

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference

MakeEngine = Callable[..., Engine]

STATE = FilterState(
    tenant="default",
    collection="orders",
    layout="blocked",
    version=1,
    keys=10,
    capacity=100,
    stale=0,
    keyed=10,
    unkeyed=0,
    bits=1000,
    fill=0.1,
)


def sample(at: float, *filters: FilterState, rebuilds: tuple[Rebuilds, ...] = ()) -> Sample:
    return Sample(at=at, events=0, matched=0, subscriptions=10, fp_rate=0.01, threshold=0.02, filters=filters, rebuilds=rebuilds)


class Clock:
    """Time passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def filled(engine: MakeEngine) -> Engine:
    e = engine(bloom=BloomOptions(fp_rate=0.02, rebuild_fp_threshold=0.05))
    e.add_many({"id": f"s{n}", "collection": "orders", "filters": [{"field": "a", "op": "==", "value": n}]} for n in range(200))
    return e


def test_a_sample_tells_what_the_filters_are_asked_and_kept_by(engine: MakeEngine) -> None:
    e = filled(engine)
    history = History(e, clock=Clock())
    e.match_batch([b'{"collection": "orders", "data": {"a": %d}}' % n for n in range(100, 600)])
    e.bloom.rebuild("default", "orders")
    told = history.sample()
    (state,) = told.filters
    assert (told.at, told.events, told.matched, told.subscriptions) == (0.0, 500, 100, 200)
    assert (told.fp_rate, told.threshold) == (0.02, 0.05)
    assert (state.name, state.asked, state.version) == (("default", "orders"), 500, 2)
    assert told.rebuilds == (Rebuilds("default", "orders", "asked", 1),)


def test_it_is_never_longer_than_it_may_be_and_covers_all_of_its_time(engine: MakeEngine) -> None:
    clock = Clock()
    history = History(engine(), most=50, every=1.0, clock=clock)
    for _ in range(5000):
        history.tick()
        clock.now += 0.5
    times = [each.at for each in history.samples]
    assert 25 <= len(times) <= 50
    assert times[0] == 0
    assert times[-1] > 2300
    assert max(later - earlier for earlier, later in pairwise(times)) <= 128


def test_a_tick_before_its_time_takes_no_sample(engine: MakeEngine) -> None:
    clock = Clock()
    history = History(engine(), every=1.0, clock=clock)
    for _ in range(10):
        history.tick()
        clock.now += 0.15
    assert [each.at for each in history.samples] == [0.0, pytest.approx(1.05)]


def test_fewer_samples_than_two_make_no_history(engine: MakeEngine) -> None:
    with pytest.raises(ValueError, match="2 samples or more"):
        History(engine(), most=1)


def test_of_many_collections_those_asked_most_are_sampled(engine: MakeEngine) -> None:
    e = engine()
    e.add_many(
        {"id": f"{c} {n}", "collection": f"c{c}", "filters": [{"field": "a", "op": "==", "value": n}]}
        for c in range(MOST_FILTERS + 5)
        for n in range(64)
    )
    e.match_batch([b'{"collection": "c%d"}' % c for c in range(5, MOST_FILTERS + 5)])
    told = History(e).sample()
    assert {state.collection for state in told.filters} == {f"c{c}" for c in range(5, MOST_FILTERS + 5)}


def test_what_is_written_is_read_back(engine: MakeEngine, tmp_path: Path) -> None:
    e = filled(engine)
    history = History(e)
    history.sample()
    e.bloom.rebuild("default", "orders")
    history.sample()
    path = tmp_path / "history.jsonl"
    history.write(path)
    assert len(path.read_text().splitlines()) == 2
    assert read_history(path) == history.samples


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no samples"),
        ("x\n", "line 1: "),
        ("[]\n", "line 1: this is not a sample of an engine"),
        ("{}\n", "line 1: this is not a sample of an engine"),
        ('{"id": "s1", "collection": "orders"}\n', "line 1: this is not a sample of an engine"),
        (sample(0.0, STATE).to_json() + "\n" + sample(1.0, STATE).to_json().replace("1000", '"x"'), "line 2: .*bits is 'x'"),
        (sample(0.0, STATE).to_json().replace("0.02", "NaN"), "line 1: .*threshold is nan"),
        ("[" * 100_000, "line 1: "),
    ],
)
def test_what_is_no_history_is_refused_with_its_line(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_history(path)


def test_every_rebuild_is_marked_with_its_reason() -> None:
    asked, rate = Rebuilds("default", "orders", "asked", 1), Rebuilds("default", "orders", "rate", 2)
    other = Rebuilds("default", "users", "stale", 1)
    samples = [
        sample(0.0, STATE),
        sample(1.0, replace(STATE, version=2), rebuilds=(asked, other)),
        sample(2.0, replace(STATE, version=2), rebuilds=(asked, other)),
        sample(3.0, replace(STATE, version=4), rebuilds=(asked, rate, other)),
        sample(4.0, replace(STATE, version=5), rebuilds=(asked, rate, other)),
    ]
    assert list(marks(samples, ("default", "orders"))) == [Mark(1.0, "asked"), Mark(3.0, "rate"), Mark(4.0, "write")]


def test_a_rebuild_that_is_counted_one_sample_later_is_one_mark() -> None:
    stale = (Rebuilds("default", "orders", "stale", 1),)
    samples = [
        sample(0.0, STATE),
        sample(1.0, replace(STATE, version=2)),
        sample(2.0, replace(STATE, version=2), rebuilds=stale),
        sample(3.0, replace(STATE, version=3), rebuilds=stale),
        sample(4.0, replace(STATE, version=3), rebuilds=stale),
    ]
    assert list(marks(samples, ("default", "orders"))) == [Mark(1.0, "stale"), Mark(3.0, "write")]


def test_the_share_stopped_is_that_of_each_span() -> None:
    counts = [(0, 0), (100, 90), (100, 90), (200, 90), (50, 50)]
    history = [(float(at), replace(STATE, asked=asked, no=no)) for at, (asked, no) in enumerate(counts)]
    assert stopped(history) == ([1.0, 3.0, 4.0], [0.9, 0.0, 1.0])


@pytest.mark.parametrize("count", [2, 3, 12])
def test_a_run_of_few_samples_shows_its_rate_and_its_share(count: int) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    counts = [{"asked": 1000 * n, "no": 900 * n, "sampled": 300 * n} for n in range(count)]
    draw_samples(figure, [sample(float(at), replace(STATE, **each)) for at, each in enumerate(counts)], [STATE.name])
    rate, share, _ = figure.axes
    measured, stopped_line = rate.lines[0], share.lines[0]
    assert list(measured.get_xdata()) == [float(at) for at in range(1, count)]
    assert (measured.get_marker() == "o") is (count < 10)
    assert list(stopped_line.get_xdata()) == [float(at) for at in range(count)]
    assert set(stopped_line.get_ydata()) == {0.9}


def test_the_filters_asked_most_are_drawn() -> None:
    filters = [replace(STATE, collection=f"c{n}", asked=n) for n in range(5)]
    assert names([sample(0.0, *filters)]) == [("default", f"c{n}") for n in (4, 3, 2, 1, 0)]


@pytest.mark.slow
def test_a_picture_says_that_it_leaves_filters_out(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for count, told in ((3, False), (5, True)):
        filters = [replace(STATE, collection=f"c{n}", asked=n) for n in range(count)]
        plot([sample(0.0, *filters), sample(1.0, *filters)], tmp_path / "a.svg")
        drawn = (tmp_path / "a.svg").read_text()
        assert ("3 of 5 filters: those that were queried most" in drawn) is told
        assert "collection c0" in drawn or told


def drawable() -> list[Sample]:
    counts: list[dict[str, Any]] = [
        {"asked": 1000 * n, "no": 900 * n, "sampled": 300 * n, "false_positives": 3 * n} for n in range(1, 6)
    ]
    return [sample(float(at), replace(STATE, collection="a$b\n_{", **count)) for at, count in enumerate(counts)]


@pytest.mark.parametrize(("ending", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_ending_chooses_the_format_and_the_same_samples_give_the_same_file(ending: str, begin: bytes, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one, two = tmp_path / f"one.{ending}", tmp_path / f"two.{ending}"
    plot(drawable(), one)
    plot(drawable(), two)
    assert one.read_bytes().startswith(begin)
    if ending != "svg":
        # Ids in an SVG are random.
        assert one.read_bytes() == two.read_bytes()


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="fewer than two samples"):
        plot(drawable()[:1], tmp_path / "a.png")
    with pytest.raises(ValueError, match="no collection has a filter"):
        plot([sample(0.0), sample(1.0)], tmp_path / "a.png")
    with pytest.raises(ValueError, match="'xyz' is not supported"):
        plot(drawable(), tmp_path / "a.xyz")
    with pytest.raises(OSError, match="nowhere"):
        plot(drawable(), tmp_path / "nowhere" / "a.png")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['matplotlib.figure'] = None\n"
        "from streamer.metrics.plot import plot\n"
        "try: plot([], 'a.png')\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "drawing needs Matplotlib: pip install 'streamer-engine[plot]'\n"


def test_nothing_of_it_is_imported_with_the_engine() -> None:
    code = "import sys, streamer; streamer.Engine(); print('matplotlib' in sys.modules, 'streamer.metrics.plot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False False\n"


def test_a_line_is_json(engine: MakeEngine) -> None:
    assert json.loads(History(filled(engine)).sample().to_json())["filters"][0]["collection"] == "orders"
