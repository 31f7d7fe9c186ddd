"""The cases of CEL's extension libraries come to the same verdict in Google's C++ runtime, save for the listed differences.

That runtime has the libraries strings, math, encoders, bindings and optional, and not sets and lists.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext.ext_bindings import ExtBindings
from cel_expr_python.ext.ext_encoders import ExtEncoders
from cel_expr_python.ext.ext_math import ExtMath
from cel_expr_python.ext.ext_optional import ExtOptional
from cel_expr_python.ext.ext_strings import ExtStrings

from tests.differential import google

CASES = Path(__file__).parents[2] / "testdata" / "match" / "cel" / "extensions.toml"
#: Functions that this runtime lacks, in this version or altogether.
MISSING = ("sets.", "lists.", ".reverse()", ".slice(", ".flatten(", ".distinct(", ".sort", "before")
#: Where cel-go, whose documentation is the contract, does something else.
DIFFERENT = {
    "split by the empty string returns the characters": "the empty string has no characters there, one empty text here",
    "format of %s writes times": "cel-go writes -1.5s, C++ -1.500s",
    "format writes doubles without an exponent": "cel-go writes no exponent",
    "format of bytes that are not UTF-8 is an error": "C++ writes them",
    "the greatest of NaN and a number is an error": "C++ returns one of both",
    "a number beyond float64 in a list is an error": "a parser of ours tells such a number from infinity",
}


def test_the_cases_of_extensions_come_to_the_same_verdict_in_googles_runtime() -> None:
    extensions = [ExtStrings(), ExtMath(), ExtEncoders(), ExtBindings(), ExtOptional()]
    environment = cel.NewEnv(variables={"data": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)}, extensions=extensions)
    compared, different = 0, set()
    for case in tomllib.loads(CASES.read_text("utf-8"))["case"]:
        source, document = _read(case)
        if source is None or any(name in source for name in MISSING):
            continue
        theirs = google.verdict_of(environment.compile(source, disable_check=True), document)
        compared += 1
        if theirs != case["verdict"]:
            different.add(case["name"])
    assert compared > 100
    assert different == set(DIFFERENT)


def _read(case: dict[str, Any]) -> tuple[str | None, Any]:
    """Return expression and document of a case; None for one about budgets, unknown values or errors of compilation."""
    subscription, event = json.loads(case["subscription"]), json.loads(case.get("event", "null"))
    is_comparable = case.get("verdict") in ("true", "false", "error") and case.get("reason") != "budget"
    if not is_comparable or set(subscription) != {"cel"} or not isinstance(event, dict) or "unknown" in event:
        return None, None
    return subscription["cel"], event.get("data", {})
