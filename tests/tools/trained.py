"""Count what runs in the core while `benchmarks.training` does, for builds that are laid out by it (profile-guided optimisation).

```console
python -m tests.tools.trained FILE
RUSTFLAGS=-Cprofile-use=FILE pip wheel --no-deps .
```

A core is built that counts, installed into an environment of its own, and trained; its counts are written to *FILE*. They are of
this source and this Rust: of functions that are another's the compiler says so, and goes without. `make wheels` does both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

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
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would pack stale files from there
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


def _told(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"trained: {' '.join(command)}: {error}; Rust from https://rustup.rs has what this needs")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.tools.trained FILE")
    train(Path(sys.argv[1]).resolve())
