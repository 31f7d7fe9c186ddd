"""Streamer next to the public matchers of JSON events: same events, same patterns, one and the same run.

    python -m benchmarks.peers --build            # builds the drivers; needs cargo, mvn and a JDK, go
    python -m benchmarks.peers W1 W3 --rounds 3
    python -m benchmarks.peers --record           # every workload; writes records/<date>-peers.md
    python -m benchmarks.peers --sizes --record   # some at growing numbers of patterns; writes records/<date>-peers-sizes.md
    python -m benchmarks.peers --lists --record   # those on lists, for Streamer also as filters and CEL; <date>-peers-lists.md

The drivers take turns on one core, round by round. The figure is the fastest whole pass of each, in core time. The output reports
a driver that finds other matches than Streamer, and a workload on which a peer is faster.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.generate import LISTS, Sizes, events_of, write
from benchmarks.records import Record, machine

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
DATA: Final = ROOT / "target" / "peers"
#: Where quamina panics past 255 transitions, also the longest head of the patterns that it takes.
WORKLOADS: Final = (
    "W1 W2 W2s W3 W4 W4:500 W4s W5 W5:500 W5q W5q:500 W5a W6 W6x W7 W7:200 W7t W8".split()
)  # fmt: skip
#: The same events against more and more patterns: W4 and W8 have 10,000 in all, W5a 100,000.
SIZES: Final = tuple(
    f"{name}{head}"
    for name, heads in (("W4", ":10 :100 :500 :3000"), ("W5a", ":10 :100 :500 :3000 :20000"), ("W8", ":10 :100 :500 :3000"))
    for head in (*heads.split(), "")
)
#: On lists.
ON_LISTS: Final = tuple(itertools.chain(*LISTS.values()))
STREAMER: Final = ("streamer", "streamer-lazy", "streamer-py")
PEERS: Final = ("event-ruler", "quamina-rs", "a-tree", "quamina-go")
VERSIONS: Final = "event-ruler 2.1.0, quamina (Rust) 0.7.0, a-tree 0.6.1 reading by sonic-rs 0.5.10"
HELD: Final = (
    "Resident memory beyond the files that were read, after all patterns were loaded and one event was matched; for Event Ruler "
    "the size of its heap after a collection."
)
#: Differences between the peers that are explained: what Streamer finds is what the direct evaluation finds.
EXPLAINED: Final = {
    ("W2", "event-ruler"): "it takes a number for a number only if its text is the shortest of its double",
    ("W8", "quamina-rs"): "it takes `>` for `>=` at bounds that are exact in binary",
}
#: What a driver would be given up for after minutes.
UNFIT: Final = {
    ("W10", "event-ruler"): "it takes over 300 s to load some 1,000 rules with a wildcard",
    ("W10", "quamina-rs"): "it takes over 300 s and 9 GB to load some 40,000 rules with a wildcard",
}


def as_patterns(workload: str) -> str:
    """Return the workload that has the same subscriptions as patterns."""
    return workload.rstrip("fc") if workload in ON_LISTS else workload


def unfit(peer: str, workload: str) -> str | None:
    """Tell why a driver cannot be given a workload; None if it can."""
    if peer != "streamer-py" and as_patterns(workload) != workload:
        return "its driver takes patterns only"
    if peer == "a-tree" and workload in ON_LISTS:
        return "its driver reads no lists"
    return UNFIT.get((workload, peer))


@dataclass
class Results:
    """What the drivers said, by workload and driver."""

    best: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    skipped: dict[tuple[str, str], str] = field(default_factory=dict)
    #: Streamer's checksum of the first events, as many as a driver read before it was cut.
    heads: dict[tuple[str, int], str] = field(default_factory=dict)

    def take(self, line: dict[str, Any]) -> None:
        """Keep the fastest pass."""
        key = line["workload"], line["peer"]
        if "skip" in line:
            self.skipped[key] = line["skip"]
        elif key not in self.best or line["best_ns"] < self.best[key]["best_ns"]:
            self.best[key] = line

    def agrees(self, workload: str, peer: str) -> bool:
        """Tell whether a driver found the ids that Streamer found on the events that it read."""
        line = self.best[workload, peer]
        return bool(self.heads[as_patterns(workload), line["events"]] == line["check"])

    def own(self, workload: str) -> dict[str, Any]:
        """Return what Streamer found."""
        return next(self.best[workload, peer] for peer in STREAMER if (workload, peer) in self.best)


def draw() -> None:
    """Draw the data, unless that of every workload is there."""
    if not all((DATA / "patterns" / f"{workload.partition(':')[0]}.jsonl").exists() for workload in (*WORKLOADS, *ON_LISTS)):
        write(DATA, Sizes())


def build() -> None:
    """Build every driver that can be built here, and draw the data."""
    draw()
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=HERE / "rust", check=True)
    if shutil.which("mvn"):
        subprocess.run(["mvn", "-q", "-B", "package"], cwd=HERE / "java", check=True)
    if shutil.which("go"):
        go = "go get quamina.net/go/quamina/v2@latest && go build -o ../../../target/peers/quamina-go . ; git checkout -q go.mod"
        subprocess.run(go, cwd=HERE / "go", shell=True, check=False)


def command(peer: str) -> list[str]:
    """Return how a driver is started; nothing where it was not built."""
    rust = Path(os.environ.get("CARGO_TARGET_DIR", HERE / "rust" / "target")) / "release"
    java = HERE / "java" / "target"
    options = "-XX:ActiveProcessorCount=1 -XX:+UseSerialGC -Xmx11g -Xss64m".split()
    commands = {
        "streamer": [str(rust / "streamer")],
        "streamer-lazy": [str(rust / "streamer")],
        "streamer-py": [sys.executable, "-m", "benchmarks.peers.python_driver"],
        "event-ruler": ["java", *options, "-cp", f"{java / 'peers.jar'}:{java / 'lib'}/*", "peers.Ruler"],
        "quamina-rs": [str(rust / "quamina")],
        "a-tree": [str(rust / "atree")],
        "quamina-go": [str(DATA / "quamina-go")],
    }
    found = commands[peer]
    there = (java / "peers.jar").exists() if peer == "event-ruler" else shutil.which(found[0]) is not None
    return found if there else []


def run(peer: str, workload: str, data: Path, options: argparse.Namespace, limit: int | None = None) -> dict[str, Any]:
    """Run a driver on a workload, pinned to one core, and return what it printed."""
    started = command(peer)
    if reason := unfit(peer, workload) or (None if started else "not built here"):
        return {"peer": peer, "workload": workload, "skip": reason}
    name, _, head = workload.partition(":")
    patterns = data / "patterns" / f"{name}.jsonl"
    environment = {
        # What has a JVM start sooner, as tests want it, has it compile less.
        **{name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"},
        "MODE": "comfort" if peer == "quamina-rs" else peer,
        "WARM_S": str(options.seconds / 2),
        "MEASURE_S": str(options.seconds),
        "CUT_S": str(options.cut),
        "PYTHONPATH": str(ROOT),
    }
    if limit is not None:
        environment |= {"EVENT_LIMIT": str(limit), "WARM_S": "0", "MEASURE_S": "0"}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        if head:
            file.writelines(patterns.read_text().splitlines(keepends=True)[: int(head)])
            file.flush()
            patterns = Path(file.name)
        arguments = [workload, str(data / "events" / f"{events_of(workload)}.jsonl"), str(patterns)]
        pinned = ["taskset", "-c", str(options.core)] if shutil.which("taskset") else []
        try:
            done = subprocess.run(
                [*pinned, *started, *arguments],
                env=environment,
                capture_output=True,
                text=True,
                timeout=options.timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"peer": peer, "workload": workload, "skip": f"over {options.timeout} s"}
    if done.returncode:
        # A panic says why in its first lines, an exception in its last one.
        lines = [
            line for line in done.stderr.splitlines() if line and not line.startswith(("added", "note:", "thread", "stack", " "))
        ]
        return {"peer": peer, "workload": workload, "skip": (lines or [f"exit code {done.returncode}"])[-1][:120]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(workloads: Iterable[str], peers: tuple[str, ...], data: Path, options: argparse.Namespace) -> Results:
    """Run every driver on every workload, in turns."""
    results = Results()
    for workload in workloads:
        for number in range(options.rounds):
            for peer in peers:
                known = results.best.get((workload, peer))
                # What was skipped or cut would be again.
                if (workload, peer) not in results.skipped and (number == 0 or (known and known["best_ns"] < 1e6)):
                    line = run(peer, workload, data, options)
                    results.take(line)
                    print(json.dumps(line), file=sys.stderr, flush=True)
        patterns = as_patterns(workload)
        if own := results.best.get((patterns, "streamer")):
            results.heads[patterns, own["events"]] = own["check"]
        for peer in peers:
            line = results.best.get((workload, peer), {})
            read = line.get("events")
            if read is not None and (patterns, read) not in results.heads:
                results.heads[patterns, read] = run("streamer", patterns, data, options, limit=read)["check"]
    return results


def table(results: Results, workloads: Iterable[str], peers: tuple[str, ...]) -> Iterator[str]:
    """Yield a Markdown table: a line a workload, a column a driver, and the ratio to the fastest peer."""
    others = [peer for peer in peers if peer not in STREAMER]
    yield f"| workload | matches an event | {' | '.join(peers)} | streamer ÷ fastest peer | lazy ÷ fastest peer | ids |"
    yield f"|---|--:|{'--:|' * len(peers)}--:|--:|---|"
    for workload in workloads:
        own = results.own(workload)
        cells = []
        for peer in peers:
            line = results.best.get((workload, peer))
            cells.append(f"{line['best_ns']:,.0f}" if line else "–")
        times = {peer: results.best[workload, peer]["best_ns"] for peer in others if (workload, peer) in results.best}
        ratios = ["–", "–"]
        if times:
            fastest = min(times.values())
            ratios = [
                f"**{results.best[workload, peer]['best_ns'] / fastest:.3g}**" if (workload, peer) in results.best else "–"
                for peer in STREAMER[:2]
            ]
        differ = [peer for peer in peers if (workload, peer) in results.best and not results.agrees(workload, peer)]
        ids = "same" if not differ else "differ: " + ", ".join(differ)
        yield f"| {workload} | {own['matches'] / own['events']:.3g} | {' | '.join(cells)} | {' | '.join(ratios)} | {ids} |"


def held(results: Results, workloads: Iterable[str], peers: tuple[str, ...]) -> Iterator[str]:
    """Yield a Markdown table of what a driver holds once it has the patterns, in MB."""
    yield f"| MB held | {' | '.join(peers)} |"
    yield f"|---|{'--:|' * len(peers)}"
    for workload in workloads:
        lines = [results.best.get((workload, peer)) for peer in peers]
        # What is less than nothing is what a collector found besides.
        cells = [f"{max(line['held_kb'], 0) / 1024:.3g}" if line else "–" for line in lines]
        yield f"| {workload} | {' | '.join(cells)} |"


def remarks(results: Results, workloads: Iterable[str], peers: tuple[str, ...]) -> Iterator[str]:
    """Yield what the table leaves out: peers that are faster, differences, what was skipped or cut."""
    everything = {**results.best}
    for workload in workloads:
        for peer in (peer for peer in peers if peer not in STREAMER):
            line = everything.get((workload, peer))
            if line is None:
                continue
            for mode in STREAMER[:2]:
                own = everything.get((workload, mode))
                if own and own["best_ns"] > line["best_ns"]:
                    times = f"{line['best_ns']:,.0f} against {own['best_ns']:,.0f} ns an event"
                    yield f"- {workload}: {peer} is ahead of {mode}: {times}."
    for workload in workloads:
        for peer in peers:
            line = everything.get((workload, peer))
            if line is None:
                continue
            if not results.agrees(workload, peer):
                own = results.own(workload)
                why = EXPLAINED.get((workload.partition(":")[0], peer), "NOT EXPLAINED")
                yield f"- {workload}: {peer} finds {line['matches']:,} matches where Streamer finds {own['matches']:,}: {why}."
            if line["events"] < max(each["events"] for (name, _), each in everything.items() if name == workload):
                yield f"- {workload}: {peer} was cut after {line['events']:,} events; the ids compared are those."
    for workload in workloads:
        # What Streamer alone takes as filters or CEL, a peer has as patterns, and without a wildcard if it loads none.
        patterns = as_patterns(workload)
        patterns = "W10n" if (patterns, "event-ruler") in UNFIT else patterns
        own, other = everything.get((workload, "streamer-py")), everything.get((patterns, "event-ruler"))
        if workload in ON_LISTS and own and other:
            ratio = own["best_ns"] / other["best_ns"]
            yield f"- {workload}: streamer-py takes {ratio:.3g} of what event-ruler takes for {patterns}."
    together: dict[tuple[str, str], list[str]] = {}
    for (workload, peer), reason in results.skipped.items():
        together.setdefault((peer, reason), []).append(workload)
    for (peer, reason), skipped in together.items():
        yield f"- No {peer} on {', '.join(skipped)}: {reason}"


def main() -> None:
    """Parse the command line, run, report; exit code 1 if ids differ without an explanation."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, help=f"some of: {' '.join((*WORKLOADS, *ON_LISTS))}, or W:N")
    parser.add_argument("--build", action="store_true", help="build the drivers and draw the data first")
    parser.add_argument("--peers", nargs="+", default=[*STREAMER, *PEERS], choices=[*STREAMER, *PEERS])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each driver (3); slow ones take one")
    parser.add_argument("--seconds", type=float, default=1.0, help="core seconds that a driver measures in a turn (1)")
    parser.add_argument("--cut", type=float, default=10.0, help="cut a first pass after this number of core seconds (10)")
    parser.add_argument("--timeout", type=float, default=300.0, help="stop a driver after this number of seconds (300)")
    parser.add_argument("--core", type=int, default=0, help="the core that drivers are pinned to (0)")
    parser.add_argument("--smoke", action="store_true", help="a little data, once, and every driver that is built")
    parser.add_argument("--sizes", action="store_true", help=f"these workloads: {' '.join(SIZES)}")
    parser.add_argument("--lists", action="store_true", help=f"these workloads: {' '.join(ON_LISTS)}")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records/<date>-peers.md")
    options = parser.parse_args()
    if options.sizes:
        options.workloads = SIZES
    if options.lists:
        options.workloads = ON_LISTS
    peers = ("streamer", *(peer for peer in (*STREAMER, *PEERS) if peer in options.peers and peer != "streamer"))
    if options.build:
        build()
    if not command("streamer"):
        sys.exit("the drivers are not built: python -m benchmarks.peers --build")
    began = machine()
    with tempfile.TemporaryDirectory() as folder:
        data = DATA
        if options.smoke:
            options.rounds, options.seconds, data = 1, 0.0, Path(folder)
            write(data, Sizes(citylots=300, cdc=300, small=200, middle=2_000, large=2_000))
        else:
            draw()
        results = compare(options.workloads, peers, data, options)
    lines = list(table(results, options.workloads, peers))
    notes = list(remarks(results, options.workloads, peers))
    memory = list(held(results, options.workloads, peers))
    print("\n".join([*lines, "", *memory, "", *notes]))
    if options.record:
        name = "peers-sizes" if options.sizes else "peers-lists" if options.lists else "peers"
        record = Record(name, began, f"Peers: {VERSIONS}; the Go quamina if its module can be installed.")
        print(
            record.write(
                [
                    "Nanoseconds of core time an event, the fastest whole pass. `–`: no figure, see below.",
                    "",
                    *lines,
                    "",
                    HELD,
                    "",
                    *memory,
                    "",
                    *notes,
                ]
            )
        )
    if any("NOT EXPLAINED" in note for note in notes):
        sys.exit("ids differ")


if __name__ == "__main__":
    main()
