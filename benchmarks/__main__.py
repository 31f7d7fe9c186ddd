"""Run the benchmarks, all or those named, and print one line a case."""

from __future__ import annotations

import argparse
import sys
from typing import cast

import streamer
from benchmarks import mixed
from benchmarks.measure import HEADER, Benchmark, WrongMatches, run
from benchmarks.peers.workloads import WORKLOADS

BENCHMARKS: dict[str, Benchmark] = {"mixed": cast(Benchmark, mixed), **WORKLOADS}


def main() -> None:
    """Parse the command line, run, report; exit code 1 if a match count is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--smoke", action="store_true", help="only the cases that are quick")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}")
    print(f"streamer {streamer.__version__}, {streamer.BACKEND} backend, one thread\n{HEADER}")
    for name in options.names or BENCHMARKS:
        for case in BENCHMARKS[name].CASES:
            if case.smoke or not options.smoke:
                try:
                    print(run(BENCHMARKS[name], case), flush=True)
                except WrongMatches as error:
                    sys.exit(f"wrong: {error}")


if __name__ == "__main__":
    main()
