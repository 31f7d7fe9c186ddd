"""Fuzz for as long as one likes, and append what ran to tests/records/fuzz.jsonl: `make fuzz SECONDS=600`.

The time is split evenly over

- properties   the tests of Hypothesis, with new examples
- agree        the native engine beside the reference, on new random sets
- flatten, parsers, cel, engine, image
               the targets of crates/fuzz, under cargo-fuzz with AddressSanitizer and debug assertions; needs nightly Rust
- miri         the `unsafe` of the native core, and all else that reads blocks of bytes or a mapped image; needs nightly Rust. It
               takes as long as it takes: some ten minutes

What cannot run here is told, and recorded as left out. Exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tools.records import append, stamp

HOME = Path(__file__).parents[2]
CRATE = HOME / "crates" / "fuzz"
CARGO_TARGETS = ("flatten", "parsers", "cel", "engine", "image")
#: The tests of `cargo test` that Miri runs; an engine or a whole table would take it hours.
MIRI_TESTS = ("json::", "map::", "mapped::")
EXAMPLES = 500

Result = dict[str, Any]


class LeftOut(Exception):
    """Something that this target needs is not here."""


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=HOME, env=os.environ | environment, capture_output=True, text=True)


def tail(text: str, lines: int = 40) -> None:
    print("\n".join(text.splitlines()[-lines:]), file=sys.stderr)


def properties(seconds: float) -> Result:
    """Run every property with new examples, again and again."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "-p", "no:cacheprovider", "tests"]
    begun, rounds, tests, finds = time.monotonic(), 0, 0, []
    while not finds and (rounds == 0 or time.monotonic() - begun < seconds):
        ran = run(command, HYPOTHESIS_PROFILE="fuzz", EXAMPLES=str(EXAMPLES))
        rounds += 1
        tests = sum(int(count) for count in re.findall(r"(\d+) (?:passed|failed)", ran.stdout))
        if ran.returncode:
            tail(ran.stdout)
            finds = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE) or [f"pytest ended with {ran.returncode}"]
    return {"properties": tests, "examples_each": rounds * EXAMPLES, "finds": finds}


def agree(seconds: float) -> Result:
    """Run the native engine beside the reference, in a process for each processor."""
    if run([sys.executable, "-c", "import streamer._native"]).returncode:
        raise LeftOut("the native core is not built")
    command = [sys.executable, "-m", "tests.property.test_backends_agree", "--seconds", str(seconds)]
    processes = [subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, text=True) for _ in range(os.cpu_count() or 1)]
    found = []
    for process in processes:
        output, _ = process.communicate()
        found.append(json.loads(output) if output else {"finds": [f"ended with {process.returncode}"]})
    return together(found)


def together(found: list[Result]) -> Result:
    """Add up what several processes did."""
    counts: Counter[str] = Counter()
    for result in found:
        counts.update({name: value for name, value in result.items() if name in ("sets", "pairs", "matched", "merges")})
    segments = sum((Counter(result.get("segments", {})) for result in found), Counter[str]())
    finds = [find for result in found for find in result["finds"]]
    return {"first_sets": [result.get("first_set") for result in found], **counts, "segments": segments, "finds": finds}


def cargo_fuzz(target: str, seconds: float) -> Result:
    """Run a target of crates/fuzz. What is new in its corpus stays in target/fuzz; a find is told with its file."""
    needs_nightly()
    if run(["cargo", "fuzz", "--version"]).returncode:
        print("installing cargo-fuzz", file=sys.stderr)
        installed = run(["cargo", "install", "--locked", "cargo-fuzz"])
        if installed.returncode:
            tail(installed.stderr)
            raise LeftOut("cargo-fuzz is not installed: cargo install cargo-fuzz")
    work = HOME / "target" / "fuzz"
    grown, artifacts = work / "corpus" / target, work / "artifacts" / target
    grown.mkdir(parents=True, exist_ok=True)
    artifacts.mkdir(parents=True, exist_ok=True)
    # Built apart, so that the time is that of fuzzing.
    built = run(["cargo", "+nightly", "fuzz", "build", "--fuzz-dir", str(CRATE), target])
    if built.returncode:
        tail(built.stderr)
        raise LeftOut("it does not build on nightly Rust")
    options = [f"-max_total_time={int(seconds)}", "-timeout=60", "-rss_limit_mb=4096", "-max_len=16384"]
    places = [str(grown), str(CRATE / "corpus" / target), "--", f"-artifact_prefix={artifacts}/", "-print_final_stats=1"]
    begun = time.monotonic()
    ran = run(["cargo", "+nightly", "fuzz", "run", "--fuzz-dir", str(CRATE), target, *places, *options])
    executed = re.search(r"number_of_executed_units:\s*(\d+)", ran.stderr)
    finds = [Path(name).name for name in re.findall(r"Test unit written to (\S+)", ran.stderr)]
    if ran.returncode:
        tail(ran.stderr, 80)
        print(f"what was found is in {artifacts}", file=sys.stderr)
        finds = finds or [f"cargo fuzz ended with {ran.returncode}"]
    corpus = sum(1 for _ in grown.iterdir())
    return {
        "seconds": round(time.monotonic() - begun),
        "executions": int(executed[1]) if executed else None,
        "corpus": corpus,
        "sanitizer": "address",
        "finds": finds,
    }


def miri(seconds: float) -> Result:
    """Run the tests that reach `unsafe` under Miri."""
    needs_nightly()
    if (
        run(["cargo", "+nightly", "miri", "--version"]).returncode
        and run(["rustup", "component", "add", "--toolchain", "nightly", "miri", "rust-src"]).returncode
    ):
        raise LeftOut("Miri is not installed: rustup component add --toolchain nightly miri rust-src")
    flags = "-Zmiri-disable-isolation"
    ran = run(["cargo", "+nightly", "miri", "test", "-p", "streamer-core", "--lib", "--", *MIRI_TESTS], MIRIFLAGS=flags)
    passed = re.search(r"(\d+) passed", ran.stdout)
    if ran.returncode:
        tail(ran.stdout + ran.stderr)
    finds = re.findall(r"^test (\S+) \.\.\. FAILED", ran.stdout, re.MULTILINE) or ["Miri"] if ran.returncode else []
    return {"tests": int(passed[1]) if passed else 0, "finds": finds}


def needs_nightly() -> None:
    if shutil.which("cargo") is None or run(["cargo", "+nightly", "--version"]).returncode:
        raise LeftOut("there is no nightly Rust: rustup toolchain install nightly")


TARGETS: dict[str, Callable[[float], Result]] = {
    "properties": properties,
    "agree": agree,
    **{name: functools.partial(cargo_fuzz, name) for name in CARGO_TARGETS},
    "miri": miri,
}


def main() -> None:
    """Run the targets, one after the other, and record each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together, building apart")
    parser.add_argument("targets", nargs="*", metavar="target", help=f"which; of {', '.join(TARGETS)}; all unless told")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - TARGETS.keys():
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    targets = arguments.targets or list(TARGETS)
    share = arguments.seconds / max(1, sum(target != "miri" for target in targets))
    found: list[str] = []
    left_out: list[str] = []
    for target in targets:
        begun_at, begun = stamp(), time.monotonic()
        try:
            result = TARGETS[target](share)
        except LeftOut as error:
            result = {"left_out": str(error), "finds": []}
            left_out.append(f"{target}: {error}")
        record = {
            **begun_at,
            "command": f"make fuzz SECONDS={arguments.seconds:g}"
            + (f" TARGETS='{' '.join(targets)}'" if arguments.targets else ""),
            "target": target,
            "seconds": round(time.monotonic() - begun),
            **result,
        }
        append("fuzz", record)
        print(json.dumps(record), flush=True)
        found += [f"{target}: {find}" for find in result["finds"]]
    ran = len(targets) - len(left_out)
    print(f"\n{ran} of {len(targets)} targets ran; {len(found)} finds; recorded in tests/records/fuzz.jsonl", file=sys.stderr)
    for line in (*(f"left out: {each}" for each in left_out), *(f"found: {each}" for each in found)):
        print(line, file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
