"""The build of the binding: the time to compile it from scratch in each profile, and the speed of the result.

```console
python -m benchmarks.build [--smoke | --record]
```

*wheel* is the profile of wheels, *editable* that of `make demo` and of every checkout. Each is built into an empty folder with
two jobs, all dependencies included. Then the results take turns on the workloads of `benchmarks.peers`, from Python; a ratio
compares the best rounds. The last table lists the crates that take longest, by cargo's own timings.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import WrongMatches
from benchmarks.peers.generate import Sizes, events_of, write
from benchmarks.records import Record, machine, parser_for

ROOT: Final = Path(__file__).parents[1]
PROFILES: Final = {"wheel": "release", "editable": "editable"}
WORKLOADS: Final = ("W1", "W2", "W3", "W4", "W5", "W6", "W8")
SMOKE: Final = ("W1", "W8")
ROUNDS: Final = 3
#: The table lists this many crates.
CRATES: Final = 10
ABOUT: Final = "The binding, compiled from scratch by two jobs, and events through `Engine.match_ids` with each build, by turns."


@dataclass(frozen=True, slots=True)
class Built:
    """A binding that was compiled: where it is, what it took, and the seconds of each crate."""

    library: Path
    seconds: float
    cpu_seconds: float
    crates: dict[str, float]


def build(profile: str, target: Path) -> Built:
    """Compile the binding in a profile into *target*.

    Raises:
        CalledProcessError: cargo failed.
    """
    command = ["cargo", "build", "--quiet", "--locked", "--timings", "--package", "streamer-py", "--profile", profile, "-j", "2"]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "PYO3_PYTHON": sys.executable}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    name = "lib_native.dylib" if sys.platform == "darwin" else "lib_native.so"
    report = (target / "cargo-timings" / "cargo-timing.html").read_text(encoding="utf-8")
    return Built(target / profile / name, seconds, cpu, crates(report))


def crates(report: str) -> dict[str, float]:
    """Return the seconds that each crate took by cargo's report, its build script included."""
    units = re.search(r"^const UNIT_DATA = (\[.*?\]);$", report, re.M | re.S)
    if units is None:
        raise ValueError("cargo's report of timings has no UNIT_DATA: does this version of cargo write it in another way?")
    found: dict[str, float] = defaultdict(float)
    for unit in json.loads(units[1]):
        found[unit["name"]] += unit["duration"]
    return dict(found)


def packaged(library: Path, folder: Path) -> Path:
    """Return a folder that has the package with this core, to be imported from."""
    shutil.copytree(ROOT / "streamer", folder / "streamer", ignore=shutil.ignore_patterns("_native*.so", "__pycache__"))
    shutil.copy(library, folder / "streamer" / "_native.abi3.so")
    return folder


def drive(place: Path, workload: str, data: Path, seconds: float) -> dict[str, Any]:
    """Match a workload with the package at *place*, and return what `benchmarks.peers.python_driver` prints."""
    files = [str(data / "events" / f"{events_of(workload)}.jsonl"), str(data / "patterns" / f"{workload}.jsonl")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(place), str(ROOT))),
        "STREAMER_BACKEND": "native",
        "WARM_S": str(seconds / 2),
        "MEASURE_S": str(seconds),
        "CUT_S": "10",
    }
    command = [sys.executable, "-m", "benchmarks.peers.python_driver", workload, *files]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compared(places: dict[str, Path], data: Path, workloads: Sequence[str], seconds: float, rounds: int) -> Iterator[str]:
    """Yield a table of ns an event, the packages taking turns.

    Raises:
        WrongMatches: two of them find different matches.
    """
    names = list(places)
    yield f"| workload, ns an event | {' | '.join(names)} | editable ÷ wheel |"
    yield f"|---|{'--:|' * len(names)}--:|"
    for workload in workloads:
        best: dict[str, float] = {}
        checks = set()
        for _ in range(rounds):
            for name, place in places.items():
                told = drive(place, workload, data, seconds)
                best[name] = min(best.get(name, float("inf")), told["best_ns"])
                checks.add((told["events"], told["check"]))
        # Who read as many events, as before a cut, finds the same.
        if len({events for events, _ in checks}) < len(checks):
            raise WrongMatches(f"{workload}: the builds find different matches")
        cells = " | ".join(f"{best[name]:,.0f}" for name in names)
        yield f"| {workload} | {cells} | {best['editable'] / best['wheel']:.2f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, compare, and print or record the tables."""
    options = parser_for(__doc__).parse_args(arguments)
    began, lines = machine(), []

    def show(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    with tempfile.TemporaryDirectory(prefix="streamer-") as name:
        folder = Path(name)
        write(
            data := folder / "data", Sizes(citylots=300, cdc=300, small=200, middle=500, large=500) if options.smoke else Sizes()
        )
        if options.smoke:
            from streamer import _native

            built = {each: Built(Path(_native.__file__), 0, 0, {}) for each in PROFILES}
        else:
            built = {each: build(profile, folder / each) for each, profile in PROFILES.items()}
            show("| build | s | s of CPU | MB |")
            show("|---|--:|--:|--:|")
            for each, made in built.items():
                show(f"| {each} | {made.seconds:.0f} | {made.cpu_seconds:.0f} | {made.library.stat().st_size / 1e6:.1f} |")
            show("")
        places = {each: packaged(made.library, folder / f"{each}-package") for each, made in built.items()}
        how = (SMOKE, 0.0, 1) if options.smoke else (WORKLOADS, 1.0, ROUNDS)
        for line in compared(places, data, *how):
            show(line)
        if slowest := sorted(built["editable"].crates.items(), key=lambda crate: -crate[1])[:CRATES]:
            show("")
            show("| crate, of the editable build | s |")
            show("|---|--:|")
            for crate, seconds in slowest:
                show(f"| {crate} | {seconds:.1f} |")
    if options.record:
        print(Record("build", began, ABOUT).write(lines))


if __name__ == "__main__":
    main()
