"""The place of a part in a subscription, in the form of error messages: `filters[0].op`, `pattern.data["a.b"][0].prefix`."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Place(NamedTuple):
    """A path of names and indexes, linked from its end; the first step is the text of a place, often empty.

    The text is made only for an error, so a million members below a long name are cheap.
    """

    outer: Place | None
    step: str | int

    def __str__(self) -> str:
        steps: list[str | int] = []
        place: Place | None = self
        while place is not None:
            steps.append(place.step)
            place = place.outer
        text = str(steps.pop())
        for step in reversed(steps):
            if isinstance(step, int):
                text += f"[{step}]"
            elif _IDENTIFIER.fullmatch(step):
                text += f".{step}" if text else step
            else:
                text += f"[{json.dumps(step, ensure_ascii=False)}]"
        # A name may contain a lone surrogate, and an error must be printable.
        return text.encode(errors="backslashreplace").decode()
