"""Measure what a newcomer meets: what a plain installation brings, how long it takes to import, whether the pages run in it.

```console
python -m tests.tools.first_hour [--record] [WHEEL]
```

Without a wheel one is built of this checkout. It is installed into an environment of its own, without an extra. Ends with 1 where
a figure is beyond its goal, or an example of the README or of a tutorial does not do what the page says. The tutorial of Debezium
is followed up to Kafka, whose client a plain installation has not.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.test_readme import blocks, commands, first_match, minutes, promised, same
from tests.tools.records import append, stamp

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 10
#: Stands between what two blocks of the README print.
BREAK = "\x1e"


@dataclass(frozen=True)
class Figure:
    """What was measured, and the most that it may be."""

    name: str
    value: float
    goal: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        return self.value <= self.goal

    def __str__(self) -> str:
        digits = {"s": 3, "min": 1}.get(self.unit, 0)
        shown = f"{self.name:<32} {self.value:>8.{digits}f} {self.unit:<3} at most {self.goal:g}"
        return shown if self.is_met else f"{shown}  MISSED"


def build(place: Path, environment: dict[str, str] | None = None) -> Path:
    """Build a wheel of this checkout."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would pack stale files from there
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, ROOT)
    run(*command, cwd=place, environment=environment)
    return next(place.glob("*.whl"))


def spent() -> float:
    """Return the CPU time of all commands until now, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*command: str | Path, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """Run *command*, and return what it prints; where it fails, print that and end."""
    variables = {name: value for name, value in (environment or os.environ).items() if name != "PYTHONPATH"}
    ran = subprocess.run(command, cwd=cwd, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ran.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout}\nfailed with exit code {ran.returncode}")
    return ran.stdout


def install(wheel: Path, place: Path) -> Path:
    """Install a wheel and what it needs, and nothing else; return the interpreter."""
    venv.create(place / "plain")
    python = place / "plain" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-warn-script-location", wheel, cwd=place)
    return python


def newcomer(python: Path) -> dict[str, str]:
    """Return the environment variables of a shell in which an installation was activated."""
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "STREAMER_BACKEND", "STREAMER_BUILD_RUST")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    if not has_core(python):
        kept["STREAMER_BACKEND"] = "reference"  # or each command would warn
    return {**kept, "PATH": f"{python.parent}{os.pathsep}{kept['PATH']}", "COLUMNS": "120"}


@cache
def has_core(python: Path) -> bool:
    """Tell whether an installation has the native core."""
    code = "import importlib.util as u; print(u.find_spec('streamer').submodule_search_locations[0])"
    return any(Path(run(python, "-I", "-c", code, cwd=python.parent).strip()).glob("_native*.so"))


def sizes(python: Path, place: Path) -> list[Figure]:
    """Count what is installed."""
    code = "import sysconfig, importlib.metadata as m; print(sysconfig.get_path('purelib'), len(list(m.distributions())))"
    packages, count = run(python, "-I", "-c", code, cwd=place).split()
    occupied = sum(path.lstat().st_blocks * 512 for path in Path(packages).rglob("*"))
    return [Figure("packages", int(count), 15), Figure("size of site-packages", occupied / 1e6, 45, "MB")]


def times(python: Path, place: Path) -> list[Figure]:
    """Measure the CPU time of the two commands that everybody waits for; the best of some rounds."""
    environment = newcomer(python)

    def cpu(*command: str | Path) -> float:
        took = []
        for _ in range(ROUNDS):
            before = spent()
            run(*command, cwd=place, environment=environment)
            took.append(spent() - before)
        return min(took)

    return [
        Figure("CPU of `import streamer`", cpu(python, "-c", "import streamer"), 0.12, "s"),
        Figure("CPU of `streamer --help`", cpu(python.parent / "streamer", "--help"), 0.25, "s"),
    ]


def pages() -> dict[str, str]:
    """Return what a newcomer reads first, by the names of the pages."""
    names = ("README.md", "docs/tutorials/embed.md", "docs/tutorials/debezium.md")
    return {name: (ROOT / name).read_text("utf-8").partition("\n## 4. Read them from Kafka")[0] for name in names}


def read(python: Path, place: Path, name: str, page: str) -> int:
    """Do what a page says, as it is written, in an empty folder; return how many examples there were."""
    environment = newcomer(python)
    found = blocks(page)
    examples = 0
    for block in found:
        if block.mark.startswith("file:"):
            (place / block.mark.removeprefix("file:").strip()).write_text(block.text, "utf-8")
        elif block.language == "console" and block.mark == "run":
            for command, expected in commands(block.text):
                # A command that is to find something wrong ends with 1.
                done = subprocess.run(command, shell=True, cwd=place, env=environment, capture_output=True, text=True)
                printed = done.stdout + done.stderr
                if not same(expected, printed):
                    sys.exit(f"{name}:{block.line}: `{command}` says:\n{expected}\nprinted:\n{printed}")
                examples += 1
    written = [block for block in found if block.language == "python"]
    program = "".join(f"{block.text}\nprint('{BREAK}', end='')\n" for block in written)
    printed = run(python, "-c", program, cwd=place, environment=environment)
    for block, lines in zip(written, printed.split(BREAK), strict=False):
        if missing := [line for line in promised(block.text) if line not in lines.splitlines()]:
            sys.exit(f"{name}:{block.line} promises {missing[0]!r}, printed:\n{lines}")
        examples += 1
    return examples


def plain_installation(
    wheel: Path, place: Path, *, timed: bool, sized: bool = True, since: float | None = None
) -> dict[str, float]:
    """Install a wheel without an extra, print and return its figures, run the pages; ends where one is not as it should be.

    Args:
        timed: whether CPU times are measured.
        sized: whether the size of what is installed has a goal.
        since: the CPU time before the wheel was built, if it was.
    """
    python = install(wheel, place)
    first = next(block for block in blocks(pages()["README.md"]) if block.language == "python")
    run(python, "-c", first.text, cwd=place, environment=newcomer(python))
    from_clone = [] if since is None else [Figure("CPU from a clone to a match", (spent() - since) / 60, 5, "min")]
    reading = Figure("minutes to a match on Debezium's", minutes(first_match()), 10)
    packages, size = sizes(python, place)
    figures = [*from_clone, packages, *([size] if sized else []), *(times(python, place) if timed else []), reading]
    print(*figures, sep="\n")
    examples = 0
    for name, page in pages().items():
        folder = place / Path(name).stem
        folder.mkdir()
        examples += read(python, folder, name, page)
    print(f"{'examples of the pages that ran':<32} {examples:>8}")
    if not has_core(python):
        print("no native core: what the reference stands on is installed, too, and the goals do not hold")
    elif not all(figure.is_met for figure in figures):
        sys.exit("first-hour: a goal was missed")
    return {figure.name: round(figure.value, 3) for figure in figures} | {"examples": examples}


def main() -> None:
    """Build, install, measure, read."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.first_hour", description=__doc__)
    parser.add_argument("wheel", nargs="?", type=Path, help="a wheel; by default one is built")
    parser.add_argument("--record", action="store_true", help="append the figures to tests/records/first-hour.jsonl")
    options = parser.parse_args()
    wheel, line = options.wheel, stamp()
    with tempfile.TemporaryDirectory(prefix="streamer-first-hour-") as directory:
        place = Path(directory)
        since = None if wheel else spent()
        figures = plain_installation(wheel.resolve() if wheel else build(place), place, timed=True, since=since)
    if options.record:
        append("first-hour", {**line, "python": platform.python_version(), **figures})


if __name__ == "__main__":
    main()
