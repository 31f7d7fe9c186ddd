"""CEL's extension library encoders: base64 (RFC 4648), whose padding may be missing when it is decoded."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from streamer.cel_eval.extensions.rows import Row, bad_value, row
from streamer.cel_eval.values import Value

if TYPE_CHECKING:
    from streamer.cel_eval.evaluate import Run

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*")


def _encode(run: Run, octets: bytes) -> Value:
    run.charge_text(octets, octets)
    return base64.b64encode(octets).decode()


def _decode(run: Run, text: str) -> Value:
    run.charge_text(text)
    digits = text.replace("\r", "").replace("\n", "")
    if len(digits) % 4 == 0:
        digits = digits.removesuffix("=") if not digits.endswith("==") else digits[:-2]
    if len(digits) % 4 == 1 or not _BASE64.fullmatch(digits):
        return bad_value("the text is not base64")
    return base64.b64decode(digits + "=" * (-len(digits) % 4))


ROWS: Final[Mapping[str, Row]] = {
    "base64.decode": row(_decode, "string -> bytes"),
    "base64.encode": row(_encode, "bytes -> string"),
}
