"""A job's metrics file and its report as JSON, written every few seconds and at the end."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import streamer
from streamer.files import replacing
from streamer.spark.job.arguments import Arguments
from streamer.spark.job.metrics import FIELDS, Counts
from streamer.spark.job.stages import Stage


class Account:
    """Writes the metrics and the report of a job periodically.

    Attributes:
        began: when the job began.
        stages: the stages that Spark ran, once they are complete.
        strategy: the strategy and its reason, once chosen.
        exit_code: the result, once the job has ended.
    """

    EVERY: Final = 5.0

    def __init__(self, args: Arguments, counts: Counts) -> None:
        self._args = args
        self._counts = counts
        self.began = datetime.now(UTC)
        self._due = 0.0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.stages: list[Stage] = []
        self.strategy: str | None = None
        self.exit_code: int | None = None

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
                file.write(json.dumps(self.report(), indent=2).encode() + b"\n")

    def report(self) -> dict[str, Any]:
        """Return the report so far. The Spark guide describes its members."""
        counts = self._counts
        return {
            "began": self.began.isoformat(timespec="seconds"),
            "exit_code": self.exit_code,
            "seconds": counts.seconds,
            "matching_seconds": counts.matching,
            "events_per_second": counts.rate,
            **{name: counts.total(name) for name in FIELDS},
            "codes": dict(counts.codes),
            "skew": counts.skew,
            "arguments": {
                "events": str(self._args.events),
                "subscriptions": self._args.subscriptions,
                "out": str(self._args.out),
                "backend": self._args.backend.value if self._args.backend else streamer.BACKEND,
            },
            "strategy": self.strategy,
            "snapshot": counts.version,
            "snapshots_refused": counts.refused,
            "collections": [asdict(part) for part in counts.parts()],
            "batch_count": counts.batch_count,
            "batches": [asdict(batch) for batch in counts.batches],
            "stages": [asdict(stage) for stage in self.stages],
        }
