"""What a Bloom filter can say."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn, final


@final
class Answer(Enum):
    """What a filter can say of an event. There is no YES."""

    NO = "no"
    MAYBE = "maybe"

    def __bool__(self) -> NoReturn:
        raise TypeError("an Answer is neither true nor false; compare it with Answer.NO or Answer.MAYBE")
