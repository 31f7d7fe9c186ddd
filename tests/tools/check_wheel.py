"""Build a wheel, install it into fresh environments outside the tree, and test what was installed: plainly, and with all extras.

A checkout hides what a wheel lacks (data files, modules, the native core), because tests import the checkout.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import venv
from pathlib import Path

from tests.tools.first_hour import build, plain_installation, run

ROOT = Path(__file__).resolve().parents[2]
TESTED = ("tests/conformance", "tests/api")


def main() -> None:
    """Build, install, test."""
    with tempfile.TemporaryDirectory(prefix="streamer-wheel-") as directory:
        place = Path(directory)
        wheel = build(place)
        print(f"wheel: built {wheel.name}, {wheel.stat().st_size / 1024:.0f} KiB")

        # Its times are for `make first-hour`: here something else may run besides.
        plain_installation(wheel, place, timed=False)

        venv.create(place / "venv", with_pip=True)
        python = place / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", f"{wheel}[test]", cwd=place)
        for name in ("tests", "testdata", "docs", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, place / name)

        installed = run(python, "-c", "import streamer; print(streamer.__file__)", cwd=place).strip()
        if not Path(installed).is_relative_to(place / "venv"):
            sys.exit(f"wheel: tests would import {installed}, not the wheel")
        run(place / "venv" / "bin" / "streamer", "--help", cwd=place)
        backends = run(python, "-W", "ignore", "-c", "from streamer import _backend; print(*_backend.available())", cwd=place)
        os.environ["STREAMER_BACKEND"] = "auto" if "native" in backends else "reference"
        command = (python, "-m", "pytest", "-q", "-n", "logical", "--dist", "loadfile", *TESTED)
        print(f"wheel, {backends.strip()}:", run(*command, cwd=place).strip().splitlines()[-1])


if __name__ == "__main__":
    main()
