"""A producer that does not send what nobody wants: it asks a filter that the engine exported, and renews it in time.

    python examples/filtering_producer.py

The engine and the producer are two processes in earnest; what passes between them is the bytes of the filter, here a file.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from streamer import Engine, ShippedFilterError
from streamer.bloom import Answer, ShippedFilter


class Producer:
    """Sends events that some subscription may want; everything while it has no filter that it may use."""

    def __init__(self, filter_file: Path, send: Callable[[bytes], object]) -> None:
        self._file = filter_file
        self._send = send
        self._guard: ShippedFilter | None = None
        self.dropped = 0

    def offer(self, event: dict[str, Any]) -> None:
        text = json.dumps(event).encode()
        if self._may_be_wanted(text):
            self._send(text)
        else:
            self.dropped += 1

    def _may_be_wanted(self, text: bytes) -> bool:
        try:
            if self._guard is None or self._guard.expired:
                self._guard = ShippedFilter.load(self._file.read_bytes())
            return self._guard.ask(text) is Answer.MAYBE
        except (OSError, ShippedFilterError):
            # No filter, a damaged one or an old one: nothing may be lost for that.
            self._guard = None
            return True


def readings(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(1)
    for number in range(count):
        station, degrees = f"station-{rng.randrange(1000)}", round(rng.gauss(15, 8), 1)
        yield {"id": number, "collection": "weather", "type": "insert", "data": {"station": station, "degrees": degrees}}


def main() -> None:
    engine = Engine()
    engine.add({"id": "heat", "collection": "weather", "filters": [{"field": "degrees", "op": ">", "value": 40}]})
    engine.add({"id": "frost", "collection": "weather", "filters": [{"field": "degrees", "op": "<", "value": -5}]})
    engine.add({"id": "ours", "collection": "weather", "filters": [{"field": "station", "op": "in", "value": ["station-7"]}]})

    with tempfile.TemporaryDirectory() as folder:
        shipped = Path(folder) / "weather.filter"
        shipped.write_bytes(engine.bloom.export("default", "weather", lease=timedelta(minutes=10)))
        matches = 0

        def receive(text: bytes) -> None:
            nonlocal matches
            matches += engine.match_count(text)

        producer = Producer(shipped, receive)
        events = list(readings(5000))
        for event in events:
            producer.offer(event)

    wanted = sum(engine.match_count(event) for event in events)
    print(f"{len(events)} readings, {producer.dropped} dropped at the source, {matches} of {wanted} matches found")
    assert matches == wanted


if __name__ == "__main__":
    main()
