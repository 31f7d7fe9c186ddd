"""Build a wheel, install it into a fresh environment outside the tree, and test what was installed: plainly, and with all extras.

A checkout hides what a wheel lacks (data files, modules, the native core), because tests import the checkout.

What is looked for is in how a wheel is packed, so its core is compiled as that of the checkout is, which is there already. What
extras bring is lent by the environment that runs this, after what was installed.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.tools.first_hour import build, plain_installation, run

ROOT = Path(__file__).resolve().parents[2]
TESTED = ("tests/conformance", "tests/api")


def main() -> None:
    """Build, install, test."""
    with tempfile.TemporaryDirectory(prefix="streamer-wheel-") as directory:
        place = Path(directory)
        wheel = build(place, {**os.environ, "SETUPTOOLS_RUST_CARGO_PROFILE": "editable"})
        print(f"wheel: built {wheel.name}, {wheel.stat().st_size / 1024:.0f} KiB")

        # Its times are for `make first-hour`: here something else may run besides.
        # CI's core has overflow checks, which make it larger.
        plain_installation(wheel, place, timed=False, sized="CARGO_PROFILE_EDITABLE_OVERFLOW_CHECKS" not in os.environ)

        python = place / "plain" / "bin" / "python"
        packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip())
        # A path in such a file comes last, and the one to the checkout that is beside the lent packages is not followed.
        (packages / "lent.pth").write_text(sysconfig.get_path("purelib"))
        for name in ("tests", "testdata", "docs", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, place / name)

        installed = run(python, "-c", "import streamer; print(streamer.__file__)", cwd=place).strip()
        if not Path(installed).is_relative_to(packages):
            sys.exit(f"wheel: tests would import {installed}, not the wheel")
        run(python.parent / "streamer", "--help", cwd=place)
        backends = run(python, "-W", "ignore", "-c", "from streamer import _backend; print(*_backend.available())", cwd=place)
        # What differs between backends is not how they are packed.
        os.environ["STREAMER_BACKEND"] = "native" if "native" in backends else "reference"
        command = (python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *TESTED)
        print(f"wheel, {backends.strip()}:", run(*command, cwd=place).strip().splitlines()[-1])


if __name__ == "__main__":
    main()
