"""What a long comparison came to, as a dated line in tests/records/cel.jsonl; only where RECORD is set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tests.tools.records import append, stamp


def record(what: str, between: str, counted: Mapping[str, int], **more: Any) -> None:
    """Append a line about a comparison that found nothing but what is listed."""
    if "RECORD" in os.environ:
        append("cel", {**stamp(), "what": what, "between": between, "counted": dict(sorted(counted.items())), **more})
