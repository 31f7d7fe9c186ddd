"""A job's metrics and report, written periodically."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import streamer
from streamer.files import replacing
from streamer.spark.job.arguments import Arguments
from streamer.spark.job.metrics import Counts
from streamer.spark.job.report import Batch, Point, Report, Stage, render
from streamer.spark.job.watch import Watch


class Account:
    """Writes the metrics and the report of a job periodically."""

    EVERY: Final = 5.0

    def __init__(self, args: Arguments, counts: Counts) -> None:
        self._args = args
        self._counts = counts
        self._began = datetime.now(UTC)
        self._due = 0.0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.watch: Watch | None = None
        self.stages: list[Stage] = []
        self.facts: dict[str, str] = {
            "events": str(args.events),
            "subscriptions": args.subscriptions,
            "out": str(args.out),
            "backend": args.backend.value if args.backend else streamer.BACKEND,
        }

    def temporary(self) -> str:
        """Return a folder that lasts until this is closed."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="streamer-")
        return self._folder.name

    def close(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            self._folder.cleanup()

    def write(self, *, force: bool = False) -> None:
        """Write each requested file, if it is time."""
        if not force and time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self.EVERY
        if self._args.metrics_file is not None:
            self._counts.write(self._args.metrics_file)
        if self._args.report is not None:
            with replacing(self._args.report) as file:
                file.write(render(self.report()).encode())

    def report(self) -> Report:
        """Return the report so far."""
        counts = self._counts
        points = self.watch.points if self.watch is not None else _rates(counts.batches)
        return Report(
            title=self._args.title,
            began=self._began,
            seconds=counts.seconds,
            matching=counts.matching,
            facts={name: text for name, text in self.facts.items() if text},
            parts=counts.parts(),
            codes=dict(counts.codes),
            points=list(points),
            batches=list(counts.batches),
            stages=self.stages,
        )


def _rates(batches: Sequence[Batch]) -> list[Point]:
    return [Point(batch.began + batch.seconds, batch.events / batch.seconds) for batch in batches if batch.seconds]
