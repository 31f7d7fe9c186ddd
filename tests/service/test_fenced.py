"""What another process has taken over is put down by nobody else, and what was taken back meanwhile is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import streamer
from streamer.core.options import Options
from streamer.errors import ServiceError
from streamer.service.connectors.protocols import Batch
from streamer.service.connectors.stdio.source import StdinLines
from streamer.service.delivery.messages import Shape, Speaker
from streamer.service.delivery.metrics import Counts
from streamer.service.delivery.pipeline import Pipeline
from streamer.service.delivery.queue import Part
from streamer.service.delivery.routing import Routes
from streamer.service.delivery.setup import Feed, Setup
from streamer.service.delivery.spool import Spool
from streamer.service.store.ids import inside
from streamer.service.store.store import Store
from tests.service.conftest import event

# What they test is the same on each core; on the reference it runs with what takes long.
pytestmark = pytest.mark.later_on_the_reference


class Shared:
    """A source of which other processes may read partitions; it notes those that were lost."""

    is_shared = True

    def __init__(self) -> None:
        self.lost_ones: list[str] = []
        self.acknowledged: list[tuple[str, str]] = []

    def lost(self, partition: str) -> None:
        self.lost_ones.append(partition)

    def acknowledge(self, partition: str, confirm: str) -> None:
        self.acknowledged.append((partition, confirm))


class Place:
    """A pipeline that spools, and is driven by hand."""

    def __init__(self, directory: Path, source: object) -> None:
        engine = streamer.Engine()
        engine.add({"id": inside("default", "all"), "collection": "orders"})
        self.store = Store(directory)
        self.store.lane("out")
        self.counts = Counts()
        self.feed = Feed("orders", source, None)  # type: ignore[arg-type]
        speaker = Speaker(Options.checked(), Routes((), "out"), {"out": Shape()})
        self.pipeline = Pipeline(
            engine, self.store, Setup({"orders": self.feed}, {}, speaker), self.counts, Spool(self.store, self.counts)
        )

    def parts(self, partition: str, first: int, last: int, generation: int | None = None) -> list[Part]:
        """Read so many events of a partition, and match them."""
        records = [event(number) for number in range(first, last)]
        batch = Batch(partition, records, range(first, last).__getitem__, str(last), generation=generation)
        return list(self.pipeline.matcher.parts(self.feed, self.feed.events_of(batch)))

    def spooled(self) -> list[tuple[str, int]]:
        rows = self.store.waiting(self.store.lane("out"), 0, 1000, 10**6)
        return [(row.partition, int(row.position)) for row in rows]


@pytest.fixture
def source() -> Shared:
    return Shared()


@pytest.fixture
def place(tmp_path: Path, source: Shared, backend: str) -> Iterator[Place]:
    made = Place(tmp_path, source)
    with closing(made.store):
        yield made


def test_what_was_read_since_a_partition_was_taken_back_is_put_down(place: Place, source: Shared) -> None:
    for partition in ("p", "q"):
        place.store.begin("orders", partition, "0")
    old, other = place.parts("p", 0, 3), place.parts("q", 0, 2)
    # Another process has it, and gives it back once more was confirmed.
    place.store.begin("orders", "p", "0")
    place.store.database.change(lambda execute: execute("UPDATE positions SET position = '5' WHERE partition = 'p'"))
    place.store.begin("orders", "p", "0")
    place.pipeline.writer.deliver([*old, *other, *place.parts("p", 5, 7)])
    assert place.spooled() == [("q", 0), ("q", 1), ("p", 5), ("p", 6)]
    assert place.store.positions("orders") == {"p": "7", "q": "2"}
    assert sorted(source.acknowledged) == [("p", "7"), ("q", "2")]
    assert source.lost_ones == []
    told = place.counts.totals()
    assert (told["matches"], told["matches_dropped"], told["matches_pending"]) == (7, 3, 4)


def test_what_was_read_before_a_partition_was_lost_is_not_put_down_once_it_is_back(place: Place, source: Shared) -> None:
    """It was read, and is matched only now: what came before it was dropped."""
    before = place.store.begin("orders", "p", "0")
    place.store.begin("orders", "p", "0")
    place.pipeline.writer.deliver(place.parts("p", 3, 5, before))
    assert (place.spooled(), place.store.positions("orders")) == ([], {"p": "0"})
    assert source.lost_ones == []


def test_what_another_process_has_is_left_to_it(place: Place, source: Shared) -> None:
    place.store.begin("orders", "p", "0")
    parts = place.parts("p", 0, 3)
    place.store.database.change(lambda execute: execute("UPDATE positions SET generation = generation + 1"))
    place.pipeline.writer.deliver(parts)
    assert (place.spooled(), place.store.positions("orders")) == ([], {"p": "0"})
    assert (source.lost_ones, source.acknowledged) == (["p"], [])


def test_a_source_of_one_process_that_another_reads_is_an_error(tmp_path: Path, backend: str) -> None:
    place = Place(tmp_path, StdinLines(max_bytes=1000))
    with closing(place.store):
        place.store.begin("orders", "p", "0")
        parts = place.parts("p", 0, 1)
        place.store.database.change(lambda execute: execute("UPDATE positions SET generation = generation + 1"))
        with pytest.raises(ServiceError, match=r"^sources\.orders: another process reads it now"):
            place.pipeline.writer.deliver(parts)
