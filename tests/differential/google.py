"""Google's C++ runtime: what it says of an expression, and where it is known to differ from ours."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from cel_expr_python import cel

DIFFERENCES: list[dict[str, str]] = tomllib.loads((Path(__file__).parent / "known_differences.toml").read_text("utf-8"))[
    "difference"
]


@cache
def _environment() -> Any:
    return cel.NewEnv(variables={"data": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)})


def is_accepted(source: str) -> bool:
    try:
        _environment().compile(source)
    except RuntimeError:
        return False
    return True


def compiled(source: str) -> Any:
    """Compile without its checker, which refuses comparisons that the contract accepts."""
    return _environment().compile(source, disable_check=True)


def verdict_of(expression: Any, document: dict[str, Any]) -> str:
    try:
        value = expression.eval(data={"data": document})
    except RuntimeError:
        return "error"
    # A result that is no bool is an error to us.
    return str(value.value()).lower() if value.type() == cel.Type.BOOL else "error"


def is_listed(kind: str, ours: str, theirs: str, source: str, document: dict[str, Any] | None = None) -> bool:
    return any(
        known["kind"] == kind
        and re.search(known["pattern"], f"{source} {document}")
        and known.get("ours", ours) == ours
        and known.get("theirs", theirs) == theirs
        for known in DIFFERENCES
    )
