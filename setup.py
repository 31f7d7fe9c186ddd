"""Build the native core `streamer._native` beside the Python package, where it can be built.

`STREAMER_BUILD_RUST` decides: unset, it is built if a recent enough cargo is there; `1`, it must be; `0`, it is not.
What is installed with the package is less where the core is there. Everything else about it stands in pyproject.toml.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from setuptools import setup

#: What each installation needs.
DEPENDENCIES = [
    "click>=8.5",  # the command line; since then an argument has help
    "google-re2>=1.1",  # RE2 is the meaning of every regexp in the contract
    "lark>=1.2",  # parses CEL, for `explain`, `lint`, the reference
    "mmh3>=5",  # checksums of snapshots, and the portable Bloom filter's hash
    "prometheus-client>=0.20",  # engine.metrics
    "pydantic>=2.10",  # the models of the configuration, and their JSON Schema
    "pydantic-settings>=2.6",  # environment variables over the configuration
    "pyyaml>=6",  # reads the configuration, through its parser in Python alone
    "tzdata>=2025.1",  # time zones of CEL's timestamps, the same on every machine
]

PROJECT = Path(__file__).parent / "pyproject.toml"
WORKSPACE = Path(__file__).parent / "Cargo.toml"
CRATE = Path("crates/streamer-py/Cargo.toml")


def required_version() -> tuple[int, ...]:
    """Return the oldest Rust that builds the workspace."""
    return _numbers(tomllib.loads(WORKSPACE.read_text())["workspace"]["package"]["rust-version"])


def cargo_problem() -> str | None:
    """Say why cargo cannot build the native core; None if it can."""
    try:
        # rustup's proxy is on PATH even where no toolchain is installed, so ask it.
        found = subprocess.run([os.environ.get("CARGO", "cargo"), "--version"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        return "cargo is not on PATH"
    except (OSError, subprocess.CalledProcessError) as error:
        return f"cargo does not run: {getattr(error, 'stderr', None) or error}"
    wanted = required_version()
    version = re.search(r"\d+(\.\d+)+", found.stdout)
    if version is None or _numbers(version[0]) < wanted:
        return f"{found.stdout.strip()!r} is too old, Rust {'.'.join(map(str, wanted))} is needed"
    return None


def wanted() -> bool:
    """Decide whether the native core is built."""
    choice = os.environ.get("STREAMER_BUILD_RUST", "")
    if choice not in ("", "0", "1"):
        sys.exit(f"STREAMER_BUILD_RUST={choice!r}: expected 0, 1 or unset")
    if choice == "0":
        return False
    problem = cargo_problem()
    if problem and choice == "1":
        sys.exit(
            f"STREAMER_BUILD_RUST=1, but the native core cannot be built: {problem}. "
            "Install Rust from https://rustup.rs, or unset STREAMER_BUILD_RUST for the reference in pure Python."
        )
    if problem:
        print(f"streamer: building without the native core: {problem}", file=sys.stderr)
    return problem is None


def dependencies(*, native: bool) -> list[str]:
    """Return what is installed with the package: without a native core also all that the reference stands on."""
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    return DEPENDENCIES if native else DEPENDENCIES + extras["portable"]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


extensions = []
if wanted():
    from setuptools_rust import Binding, RustExtension

    # debug=False: an editable build is optimised too, or every measurement of a checkout would mislead.
    profile = ["--profile", "editable"] if "editable_wheel" in sys.argv else None
    extensions.append(RustExtension("streamer._native", path=str(CRATE), binding=Binding.PyO3, debug=False, args=profile))

# One wheel serves every Python from 3.11 on.
setup(
    rust_extensions=extensions,
    install_requires=dependencies(native=bool(extensions)),
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if extensions else {},
)
