"""A process that has subscriptions and matches events on command: several of them, of several checkouts, take turns.

Run as a program it is the process. It needs only `streamer`, so that checkouts without this file can run it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import streamer

WAYS: Final = ("match", "match_ids")
SUBSCRIPTIONS: Final = "subscriptions.jsonl"


class Turns:
    """The package at *checkout* in a process of its own, with the subscriptions and events that stand in *data*.

    It stands still while it is not told to match, so that what others are measured at is not disturbed.
    """

    def __init__(self, checkout: Path, data: Path, layout: str) -> None:
        # `-P`: what stands beside this file is no package of theirs.
        command = [sys.executable, "-P", __file__, str(data), layout]
        environment = {**os.environ, "PYTHONPATH": str(checkout), "STREAMER_BACKEND": streamer.BACKEND}
        self._process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.loaded: float = self._answer()

    def turn(self, way: str, events: str, rounds: int) -> tuple[int, list[int]]:
        """Match the events of the file *events* so many times.

        Returns:
            How many matches they have, and for each event the fewest nanoseconds that it took.
        """
        assert self._process.stdin is not None
        print(json.dumps([way, events, rounds]), file=self._process.stdin, flush=True)
        matches, nanoseconds = self._answer()
        return matches, nanoseconds

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process ended with {self._process.wait()}")
        return json.loads(line)


def main(data: Path, layout: str) -> None:
    """Load, then match whenever a line of standard input says so."""
    engine = streamer.Engine(layout=streamer.EventLayout.preset(layout))  # type: ignore[arg-type]
    begun = time.perf_counter()
    engine.add_jsonl(data / SUBSCRIPTIONS)
    print(time.perf_counter() - begun, flush=True)
    for line in sys.stdin:
        way, name, rounds = json.loads(line)
        ask = getattr(engine, way)
        events = (data / name).read_bytes().splitlines()
        matches, best = 0, [sys.maxsize] * len(events)
        for event in events:
            matches += len(ask(event))
        for _ in range(rounds):
            for at, event in enumerate(events):
                begun_ns = time.perf_counter_ns()
                ask(event)
                taken = time.perf_counter_ns() - begun_ns
                best[at] = min(best[at], taken)
        print(json.dumps([matches, best]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
