"""The training run of a build of the core: `python -m benchmarks.training`.

A compiler that has counted the executed code lays out and inlines the core accordingly; see `tests/tools/trained.py`. This runs
the most frequent work of users: subscriptions of mixed kinds and single ones, loaded, removed and written to a snapshot, and
events of real shape matched in each way, checked in full and lazily. It shares no event with `benchmarks.peers`, so that the
peers measure the gain for other workloads.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import streamer
from benchmarks import shapes

Layout = Literal["debezium", "document"]
Validation = Literal["full", "lazy"]

COUNT: Final = 20_000
EVENTS: Final = 400
ROUNDS: Final = 5
VALIDATIONS: Final[tuple[Validation, ...]] = ("full", "lazy")


def match(engine: streamer.Engine, events: Sequence[bytes], rounds: int) -> int:
    """Match events in each way, and return how many matches each of them has in all."""
    lines, mappings = b"\n".join(events), [json.loads(event) for event in events]
    found = 0
    for _ in range(rounds):
        for event, mapping in zip(events, mappings, strict=True):
            found += len(engine.match_ids(event))
            engine.match_count(event)
            engine.match(mapping)
            for matched in engine.match(event):
                _ = matched.subscription_id
        engine.match_batch(events).jsonl()
        for line in engine.match_jsonl(io.BytesIO(lines)):
            _ = line.matches
    return found // rounds


def train(layout: Layout, validation: Validation, texts: Sequence[bytes], events: Sequence[bytes], rounds: int) -> int:
    """Load subscriptions, match, save, open, and remove one half; return how many matches the events had at first."""
    engine = streamer.Engine(layout=streamer.EventLayout.preset(layout), validation=validation)
    engine.add_jsonl(b"\n".join(texts))
    found = match(engine, events, rounds)
    with tempfile.TemporaryDirectory(prefix="streamer-") as name:
        engine.save(Path(name) / "snapshot")
        match(streamer.Engine.load(Path(name) / "snapshot"), events, 1)
    for text in texts[::2]:
        engine.remove(json.loads(text)["id"])
    match(engine, events, 1)
    return found


def main(count: int = COUNT, events: int = EVENTS, rounds: int = ROUNDS) -> dict[str, int]:
    """Train with many subscriptions, some and one; return how many matches there were."""
    given: tuple[tuple[Layout, list[dict[str, Any]], list[bytes]], ...] = (
        ("debezium", list(shapes.order_subscriptions(count)), list(shapes.orders(events))),
        ("document", list(shapes.github_subscriptions(count)), list(shapes.github_events(events))),
    )
    found = {}
    for layout, subscriptions, made in given:
        for validation in VALIDATIONS:
            for held in (subscriptions, subscriptions[::20], [shapes.NOTHING]):
                texts = [json.dumps(each).encode() for each in held]
                name = f"{layout}, {validation}, {len(held):,} subscriptions"
                found[name] = train(layout, validation, texts, made, rounds)
    return found


if __name__ == "__main__":
    for name, matches in main().items():
        print(f"{name}: {matches:,} matches")
