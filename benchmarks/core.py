"""Only the native core: an event by the number of subscriptions and of matches, loading and memory, next to the prototype.

    python -m benchmarks.core --record            # half an hour; writes records/<date>-core.md
    python -m benchmarks.core flat removed        # some sections: sizes flat removed repeated partitions crowd churn python

`crates/streamer-core/examples/matching/` measures; its smallest run is one of the crate's tests. The last section writes
subscriptions and events, matches them through `Engine.match`, and compares the time with that of the core in *sizes*.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

import streamer
from benchmarks.measure import WrongMatches, fastest
from benchmarks.records import Record, machine, parser_for

SECTIONS: Final = ("sizes", "flat", "removed", "repeated", "partitions", "crowd", "churn")
#: The section of this file, and its sets.
PYTHON: Final = "python"
SETS: Final = ("none", "200", "2,000")
PASSES: Final = 7
ABOUT: Final = (
    f"Best of {PASSES} passes for each of 4,000 events of about 350 bytes, full validation, one thread. The index was designed "
    "with the prototype's figures, of another machine (an Intel Xeon of 2.5 GHz): the goal is a ratio of at most 1.5."
)


def run(*arguments: str) -> Iterator[str]:
    """Build and run the core's benchmark; yield its lines as they come."""
    cargo = ["cargo", "run", "--release", "--quiet", "--locked", "--package", "streamer-core", "--example", "matching", "--"]
    with subprocess.Popen([*cargo, *arguments], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as process:
        assert process.stdout is not None
        yield from (line.rstrip("\n") for line in process.stdout)
    if process.returncode:
        sys.exit(process.returncode)


class Figures(NamedTuple):
    """Of a set, through `Engine.match`: subscriptions, matches of all events, microseconds of an event."""

    subscriptions: int
    each: float
    p50: float
    p99: float


def measure(folder: Path) -> Figures:
    """Match the events of a folder against its subscriptions; the fastest of several passes counts for each."""
    engine = streamer.Engine()
    engine.add_jsonl(folder / "subscriptions.jsonl")
    events = (folder / "events.jsonl").read_bytes().splitlines()
    matches = sum(len(engine.match(event)) for event in events)
    percentiles = quantiles(fastest(engine.match, events, PASSES), n=100)
    return Figures(len(engine), matches / len(events), percentiles[49], percentiles[98])


def from_python(core: Sequence[str], smoke: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the last section; *core* are those before.

    Raises:
        WrongMatches: as many matches are found as the core does not find.
    """
    yield "### From Python"
    yield ""
    yield "| set of `match` | subscriptions | matches | p50 µs | p99 µs | ÷ core p50 | p99 |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name in SETS:
        # In a new process none finds what another has left free.
        with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(1) as pool:
            list(run(*smoke, "write", name, folder))
            found = pool.apply(measure, (Path(folder),))
        row = next((line for line in core if line.startswith(f"| {found.subscriptions} | {name} | ")), None)
        ratios = " | "
        if row is not None:
            matches, _, p50, p99 = (float(cell) for cell in row.split("|")[3:7])
            ratios = f"**{found.p50 / p50:.2f}** | **{found.p99 / p99:.2f}**"
            if f"{found.each:.1f}" != f"{matches:.1f}":
                raise WrongMatches(f"{name}: {found.each:.1f} matches an event, of the core {matches:.1f}")
        yield f"| {name} | {found.subscriptions:,} | {found.each:.1f} | {found.p50:.2f} | {found.p99:.2f} | {ratios} |"
    yield ""


def main() -> None:
    """Build and run the core's benchmark; print it, or keep it as a record."""
    known = (*SECTIONS, PYTHON)
    parser = parser_for(__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of: {', '.join(known)}")
    options = parser.parse_args()
    unknown = set(options.sections) - set(known)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    began = machine()
    smoke = ["--smoke"] if options.smoke else []
    lines: list[str] = []
    for section in options.sections or known:
        # A process each: memory that one section fragmented would slow the loading of the next.
        for line in from_python(lines, smoke) if section == PYTHON else run(*smoke, section):
            print(line, flush=True)
            lines.append(line)
    if options.record:
        print(Record("core", began, ABOUT).write(lines))


if __name__ == "__main__":
    main()
