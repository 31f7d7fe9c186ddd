"""A job's output on the terminal: a bar while it runs, a few lines when it is done.

The bar is shown only if standard error is a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import rich.console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from streamer.cli.output import count
from streamer.spark.job.metrics import Counts
from streamer.spark.job.report import Batch
from streamer.spark.job.watch import Progress as Stages
from streamer.terminal import note, printable


@final
class Console:
    """Reports progress on standard error.

    Args:
        quiet: only errors.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self.moves = not quiet and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._quiet:
            return
        if self._progress is None:
            note(text)
        else:
            self._progress.console.print(printable(text), markup=False, highlight=False)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show a bar while something runs."""
        if not self.moves:
            yield
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        console = rich.console.Console(stderr=True)
        with Progress(*columns, console=console, transient=True) as self._progress:
            self._task = self._progress.add_task(name, total=None)
            try:
                yield
            finally:
                self._progress = self._task = None

    def stages(self, stages: Stages) -> None:
        """Move the bar to the progress of Spark's stages."""
        if self._progress is not None and self._task is not None:
            read = f", {stages.records:,} rows read" if stages.records else ""
            rate = f", {stages.rate:,.0f} a second" if stages.rate else ""
            text = f"{stages.phase}: {stages.done:,} of {count(stages.tasks, 'task')}{read}{rate}"
            self._progress.update(self._task, description=text, total=stages.tasks, completed=stages.done)

    def batch(self, batch: Batch, counts: Counts) -> None:
        """Report a micro-batch."""
        rate = batch.events / batch.seconds if batch.seconds else 0.0
        version = f", subscriptions {batch.version[:12]}" if batch.version else ""
        totals = f"{count(batch.events, 'event')}, {count(batch.matches, 'match', 'matches')}"
        text = f"batch {batch.id}: {totals}, {rate:,.0f} events/s{version}"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=f"{text}; {counts.total('events'):,} events in all")
        else:
            self.say(text)

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
