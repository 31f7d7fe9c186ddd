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
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": found.stdout.strip() or "unknown",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "what": what,
        "between": between,
        "counted": dict(sorted(counted.items())),
        **more,
    }
    with RECORDS.open("a", encoding="utf-8") as records:
        records.write(f"{json.dumps(line)}\n")
