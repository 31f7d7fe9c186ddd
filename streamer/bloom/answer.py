"""The answers of a Bloom filter."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn, final


@final
class Answer(Enum):
    """A filter's answer for an event. There is no YES."""

    NO = "no"
    MAYBE = "maybe"

    def __bool__(self) -> NoReturn:
        raise TypeError("an Answer is neither true nor false; compare it with Answer.NO or Answer.MAYBE")
