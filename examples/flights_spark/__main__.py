"""The flights that left New York in 2013, matched on Spark by the job, as anybody would run it.

    python -m examples.flights_spark [--every 10] [--subscriptions 100000] [--report flights.json]

It writes the change events as JSON lines, in a few files, and the subscriptions as a snapshot, then runs `streamer.spark.job` on
them and looks at what came out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

import streamer
from examples.flights import generated, records
from examples.flights.__main__ import HAND_WRITTEN

#: Lines of a file of events.
LINES = 60_000


def main() -> None:
    """Write, run, look."""
    options = arguments()
    console = Console(highlight=False, stderr=True)
    with tempfile.TemporaryDirectory(prefix="flights-") as temporary:
        folder = Path(options.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with console.status("writing events and subscriptions"):
            events = write_events(folder / "events", options.every)
            engine = streamer.Engine()
            engine.add_jsonl(HAND_WRITTEN)
            engine.add_many(generated.subscriptions(options.subscriptions))
            engine.save(folder / "subscriptions.snapshot")
        console.print(f"{events:,} events and {len(engine):,} subscriptions written; now on Spark:")
        command = ["--events", folder / "events", "--subscriptions", folder / "subscriptions.snapshot"]
        command += ["--out", folder / "matches", "--overwrite", "--report", options.report]
        command += ["--master", options.master]
        words = [sys.executable, "-m", "streamer.spark.job", *map(str, command)]
        console.print(f"$ python {' '.join(words[1:])}", markup=False, soft_wrap=True)
        if code := subprocess.run(words, check=False).returncode:
            sys.exit(code)
        show(console, engine, folder / "matches")
        console.print(f"The report: {options.report}")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights_spark", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--every", type=int, default=1, help="take every n-th flight (default: all)")
    parser.add_argument("--subscriptions", type=int, default=100_000, help="how many to generate (default: 100,000)")
    parser.add_argument("--folder", help="keep events, subscriptions and matches there")
    parser.add_argument("--report", default="flights.json", help="where the report goes (default: flights.json)")
    parser.add_argument("--master", default="local[*]", help="where Spark runs (default: local[*])")
    return parser.parse_args()


def write_events(folder: Path, every: int) -> int:
    """Write the change events to files of some lines each, so that Spark has several to read at once; return how many."""
    folder.mkdir(exist_ok=True)
    events = records.events(every)
    count = 0
    while lines := list(islice(events, LINES)):
        (folder / f"{count // LINES:03}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        count += len(lines)
    return count


def show(console: Console, engine: streamer.Engine, matches: Path) -> None:
    """Print how often each subscription that was written by hand got something."""
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(matches, format="parquet")
    counted = found.to_table(columns=["subscription_id"]).column(0).value_counts()
    times = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    written = [json.loads(line)["id"] for line in HAND_WRITTEN.read_text().splitlines() if line.strip()]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("matches", justify="right")
    table.add_column("what was asked for")
    for each in written:
        subscription = engine.get(each)
        assert subscription is not None
        table.add_row(f"{times.get(each, 0):,}", str((subscription.labels or {}).get("says", each)))
    table.add_row(f"{sum(times.values()) - sum(times.get(each, 0) for each in written):,}", "all that were generated")
    console.print(table)


if __name__ == "__main__":
    main()
