"""The answers of AWS Event Ruler, which EventBridge matches with; fetched from Maven Central into target/kafka."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.tools.fetched import fetch

RULER: Final = ("software.amazon.event.ruler", "event-ruler", "2.1.0")
PROGRAM: Final = Path(__file__).parent / "ruler" / "Answers.java"


def answers(patterns: Sequence[Any], events: Sequence[Any]) -> list[list[bool] | None]:
    """Return for each pattern whether it matches each event; None if Event Ruler refuses it. Raises NotThere."""
    jars = os.pathsep.join(map(str, fetch(*RULER)))
    given = {"patterns": [json.dumps(each) for each in patterns], "events": [json.dumps(each) for each in events]}
    command = ["java", "-cp", jars, str(PROGRAM)]
    ran = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    return [None if line == "refused" else [each == "1" for each in line] for line in ran.stdout.splitlines()]
