"""What a long comparison came to, as a dated line in tests/records/cel.jsonl; only where RECORD is set."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[1] / "records" / "cel.jsonl"


def record(what: str, between: str, counted: Mapping[str, int], **more: Any) -> None:
    """Append a line about a comparison that found nothing but what is listed."""
    if "RECORD" not in os.environ:
        return
    commit = _git("describe", "--always") or "unknown"
    # What was recorded before this is no change of what was compared.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!tests/records")
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": f"{commit}-dirty" if changed else commit,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "what": what,
        "between": between,
        "counted": dict(sorted(counted.items())),
        **more,
    }
    with RECORDS.open("a", encoding="utf-8") as records:
        records.write(f"{json.dumps(line)}\n")


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=RECORDS.parents[2], capture_output=True, text=True, check=False)
    return ran.stdout.strip()
