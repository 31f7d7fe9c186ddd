"""Values of binary encodings as JSON has them: what `avro` and `protobuf` share."""

from __future__ import annotations

import base64
import struct
from math import isfinite
from typing import Any, Final

_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_PACK: Final = struct.Struct("f").pack
_UNPACK: Final = struct.Struct("f").unpack


def text(value: Any) -> Any:
    """Return bytes as text in base64, and any other value as it is."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def double(value: float) -> Any:
    """Return a number; as text, as Kafka Connect writes it, one that JSON does not have."""
    return value if isfinite(value) else _NOT_FINITE[str(value)]


def single(value: float) -> Any:
    """Return a number of 32 bits as `double` does, with no digit more than it needs, as Java writes it."""
    if not isfinite(value):
        return _NOT_FINITE[str(value)]
    for digits in (6, 7, 8):
        rounded = float(f"{value:.{digits}g}")
        try:
            if _UNPACK(_PACK(rounded))[0] == value:
                return rounded
        except OverflowError:
            continue
    return float(f"{value:.9g}")
