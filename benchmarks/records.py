"""Dated records of measurements: a script writes them, so that all figures are generated."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import streamer

RECORDS: Final = Path(__file__).parent / "records"
#: Where `make trained` leaves the core that it builds.
TRAINED: Final = Path(__file__).parents[1] / "target" / "trained" / "core"


def _first_line(*command: str) -> str:
    """Return the first line that a command prints, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=RECORDS.parent)
    except (OSError, subprocess.CalledProcessError):
        return f"no {command[0]}"
    return (done.stdout or done.stderr).splitlines()[0]


def commit() -> str:
    """Name the commit that is measured."""
    return _first_line("git", "rev-parse", "--short", "HEAD")


def machine() -> str:
    """Describe the machine, and how busy it is now."""
    facts = {}
    for path, wanted in (("/proc/cpuinfo", ("model name",)), ("/proc/meminfo", ("MemTotal",))):
        if Path(path).exists():
            for line in Path(path).read_text().splitlines():
                name, _, value = line.partition(":")
                if name.strip() in wanted:
                    facts[name.strip()] = value.strip()
    memory = int(facts.get("MemTotal", "0 kB").split()[0]) / 2**20
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return (
        f"{facts.get('model name', platform.processor())}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} "
        f"{platform.machine()}; load average when it began {load}"
    )


def core() -> str:
    """Tell which core is measured: one laid out as that of a wheel, a checkout's, or none."""
    if streamer.BACKEND != "native":
        return f"the {streamer.BACKEND} backend"
    from streamer import _native

    held = Path(_native.__file__).read_bytes()
    is_trained = TRAINED.exists() and TRAINED.read_bytes() == held
    return "as wheels have it (`make trained`)" if is_trained else "as a checkout has it"


@dataclass(frozen=True, slots=True)
class Record:
    """One run: what was measured, on what, and anything else that a reader must know."""

    name: str
    machine: str
    about: str

    def write(self, lines: Iterable[str]) -> str:
        """Write `records/<date>-<name>.md`, keeping what people wrote under 'What the figures mean'; return where."""
        today = datetime.datetime.now(datetime.UTC).date()
        path = RECORDS / f"{today}-{self.name}.md"
        meaning = "## What the figures mean\n"
        if path.exists():
            kept = path.read_text().partition(meaning)
            meaning = kept[1] + kept[2]
        load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
        arguments = " ".join(argument for argument in sys.argv[1:])
        program = sys.modules["__main__"].__spec__
        module = "" if program is None else program.name.removesuffix(".__main__")
        head = [
            f"# {self.name}, {today}",
            "",
            f"- Command: `python -m {module} {arguments}`".rstrip(),
            f"- Commit: {commit()}",
            f"- Machine: {self.machine}; when it ended {load}.",
            f"- Versions: streamer {streamer.__version__}; Python {platform.python_version()}; "
            f"{_first_line('rustc', '--version')}; {_first_line('java', '--version')}.",
            f"- Core in Python: {core()}.",
            f"- {self.about}",
            "",
        ]
        RECORDS.mkdir(exist_ok=True)
        path.write_text("\n".join([*head, *lines, "", meaning]))
        return str(path.relative_to(RECORDS.parents[1]))


def parser_for(manual: str | None) -> argparse.ArgumentParser:
    """Return what reads a command of `[--smoke | --record]`, to which a benchmark may add more."""
    parser = argparse.ArgumentParser(description=manual, formatter_class=argparse.RawDescriptionHelpFormatter)
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--smoke", action="store_true", help="a little data, to check that it runs: ignore the figures")
    one.add_argument("--record", action="store_true", help="write a dated record")
    return parser


@contextlib.contextmanager
def report(
    name: str, manual: str | None, about: str, arguments: Sequence[str] | None
) -> Iterator[tuple[bool, Callable[[str], None]]]:
    """Read a command of `[--smoke | --record]`, and write its record at the end.

    Yields:
        Whether it is a smoke run, and what prints a line and keeps it for the record.
    """
    options, began, lines = parser_for(manual).parse_args(arguments), machine(), list[str]()

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    yield options.smoke, tell
    if options.record:
        print(Record(name, began, about).write(["```text", *lines, "```"]))
