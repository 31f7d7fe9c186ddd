"""Lay the core out by what runs in it while `benchmarks.training` does: profile-guided optimisation.

```console
python -m tests.tools.trained                          # put such a core in the place of the checkout's: `make trained`
python -m tests.tools.trained FILE                     # write the counts alone, for
RUSTFLAGS=-Cprofile-use=FILE pip wheel --no-deps .
```

A core is built that counts, installed into an environment of its own, and trained. The counts are of this source and this Rust:
where a function is not the one that was counted, the compiler says so and goes without. `make wheels` does all of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.records import TRAINED as CORE
from tests.tools.first_hour import build, install, run

ROOT: Final = Path(__file__).resolve().parents[2]


def merger() -> Path:
    """Return LLVM's program that merges counts: that of this Rust, since formats differ; it is installed where it is missing."""
    sysroot = Path(_told("rustc", "--print", "sysroot"))
    host = next(line.split()[1] for line in _told("rustc", "-vV").splitlines() if line.startswith("host:"))
    program = sysroot / "lib" / "rustlib" / host / "bin" / "llvm-profdata"
    if not program.exists():
        _told("rustup", "component", "add", "llvm-tools")
    return program


def train(counts: Path) -> None:
    """Write to *counts* what ran in the core while it was trained."""
    program = merger()
    with tempfile.TemporaryDirectory(prefix="streamer-trained-") as directory:
        place = Path(directory)
        counting = {
            **os.environ,
            "STREAMER_BUILD_RUST": "1",
            "RUSTFLAGS": f"-Cprofile-generate={place / 'raw'}",
            "CARGO_TARGET_DIR": str(place / "target"),
        }
        python = install(build(place, counting), place)
        # Not from here, where the checkout would be imported in place of what was installed.
        shutil.copytree(ROOT / "benchmarks", place / "benchmarks", ignore=shutil.ignore_patterns("target", "records", "peers"))
        print(run(python, "-m", "benchmarks.training", cwd=place, environment={**os.environ, "STREAMER_BACKEND": "native"}))
        run(program, "merge", "-o", counts, place / "raw", cwd=place)


def put_in_place() -> None:
    """Build a trained core, and put it where the checkout has its own, until that is built again."""
    (held,) = (ROOT / "streamer").glob("_native*.so")
    CORE.parent.mkdir(parents=True, exist_ok=True)
    train(counts := CORE.parent / "counts.profdata")
    command = ("cargo", "build", "--quiet", "--locked", "--package", "streamer-py", "--release")
    built = {**os.environ, "RUSTFLAGS": f"-Cprofile-use={counts}", "CARGO_TARGET_DIR": str(CORE.parent / "target")}
    run(*command, cwd=ROOT, environment={**built, "PYO3_PYTHON": sys.executable})
    (library,) = (CORE.parent / "target" / "release").glob("lib_native.*[!d]")
    for place in (CORE, held):
        # In one step: who has the old one in memory would otherwise run what is half of each.
        made = shutil.copy(library, place.with_suffix(".new"))
        os.replace(made, place)
    print(f"trained: {held.relative_to(ROOT)} is laid out as that of a wheel; `make install` after a change builds the usual one")


def _told(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"trained: {' '.join(command)}: {error}; Rust from https://rustup.rs has what this needs")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]).resolve())
    else:
        put_in_place()
