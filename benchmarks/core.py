"""The native core alone: an event by the number of subscriptions and of matches, loading, memory, beside the prototype.

    python -m benchmarks.core --record            # half an hour; writes records/<date>-core.md
    python -m benchmarks.core flat removed        # some sections: sizes flat removed repeated partitions

The measuring is done by `crates/streamer-core/examples/matching.rs`, whose smallest run is one of the crate's tests.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.records import Record, machine, parser_for

SECTIONS: Final = ("sizes", "flat", "removed", "repeated", "partitions")
ABOUT: Final = (
    "Best of 7 passes for each of 4,000 events of about 350 bytes, full validation, one thread. The prototype's figures are "
    "those that the index was designed by, of another machine (an Intel Xeon of 2.5 GHz): a ratio of at most 1.5 is the aim."
)


def main() -> None:
    """Build and run the core's benchmark; print it, or keep it as a record."""
    parser = parser_for(__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"some of: {', '.join(SECTIONS)}")
    options = parser.parse_args()
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are: {', '.join(SECTIONS)}")
    began = machine()
    cargo = ["cargo", "run", "--release", "--quiet", "--locked", "--package", "streamer-core", "--example", "matching", "--"]
    smoke = ["--smoke"] if options.smoke else []
    lines = []
    for section in options.sections or SECTIONS:
        # A process each: memory that one section fragmented would slow the loading of the next.
        command = [*cargo, *smoke, section]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip("\n"))
        if process.returncode:
            sys.exit(process.returncode)
    if options.record:
        print(Record("core", began, ABOUT).write(lines))


if __name__ == "__main__":
    main()
