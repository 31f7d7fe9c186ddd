"""Dated lines about runs that take too long to be run for each change: `tests/records/NAME.jsonl`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]


def stamp() -> dict[str, Any]:
    """Return what each line begins with: when, which commit, on what."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": revision(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    }


def append(name: str, line: dict[str, Any]) -> None:
    """Append a line to the records of this name."""
    with (HOME / "tests" / "records" / f"{name}.jsonl").open("a", encoding="utf-8") as records:
        records.write(f"{json.dumps(line)}\n")


def append_run(what: str, began: float, backend: str = "native", **counts: Any) -> None:
    """Append a line about a run of the service that began at a time of `time.monotonic`."""
    line = {**stamp(), "what": what, "python": platform.python_version(), "backend": backend}
    append("service", {**line, "seconds": round(time.monotonic() - began), **counts})


def revision() -> str:
    """Return the commit that is checked out, and whether something else than it runs; records change nothing."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!tests/records")
    return f"{commit}{'-dirty' if changed else ''}" if commit else "unknown"


def _git(*arguments: str) -> str:
    try:
        ran = subprocess.run(["git", *arguments], cwd=HOME, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return ran.stdout.strip()
