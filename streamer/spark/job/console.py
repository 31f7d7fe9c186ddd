"""A job's output on the terminal: a line for each micro-batch, and a summary at the end.

Spark draws its own progress bar above it, if standard error is a terminal.
"""

from __future__ import annotations

import sys
from typing import final

from streamer.cli.output import count
from streamer.spark.job.metrics import Batch, Counts
from streamer.terminal import note


@final
class Console:
    """Prints lines to standard error.

    Args:
        quiet: only errors.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self.has_progress = not quiet and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Print a line."""
        if not self._quiet:
            note(text)

    def batch(self, batch: Batch) -> None:
        """Report a micro-batch."""
        rate = batch.events / batch.seconds if batch.seconds else 0.0
        version = f", subscriptions {batch.version[:12]}" if batch.version else ""
        counted = f"{count(batch.events, 'event')}, {count(batch.matches, 'match', 'matches')}"
        self.say(f"batch {batch.id}: {counted}, {rate:,.0f} events/s{version}")

    def summary(self, counts: Counts, *, interrupted: bool = False) -> None:
        """Print the result."""
        events, matches, bad, ignored = (counts.total(name) for name in ("events", "matches", "rejected", "ignored"))
        parts = [
            f"{count(events, 'event')}, {count(matches, 'match', 'matches')}, {count(bad, 'rejected event')}",
            *([f"{ignored:,} ignored"] if ignored else []),
            *([f"{counts.total('pruned'):,} stopped by Bloom filters"] if counts.total("pruned") else []),
            *([f"{counts.batch_count:,} micro-batches"] if counts.batch_count else []),
            f"{counts.seconds:.1f} s, {counts.matching:.1f} s of them matching, {counts.rate:,.0f} events/s",
        ]
        self.say(f"{'interrupted: ' if interrupted else ''}{'; '.join(parts)}")
