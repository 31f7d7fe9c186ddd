"""Labels that a test finds again among all objects of the process, to count who still holds them."""

from __future__ import annotations

import gc
from itertools import count
from typing import Any

_numbers = count()


class MarkedLabels:
    """Labels with a list that no other labels of this process have.

    The list has a number past 64 bits: natively an object is held only if JSON text of 64-bit numbers cannot stand for it.
    """

    def __init__(self) -> None:
        self._mark = f"marked label {next(_numbers)}"

    def new(self) -> dict[str, Any]:
        """Return new labels with the mark."""
        return {"label": [self._mark, 2**70]}

    def alive(self) -> int:
        """Return how many lists with the mark are held anywhere."""
        gc.collect()
        lists = (each for each in gc.get_objects() if type(each) is list and each)
        # By its type first: what another test leaves in a list may be equal to any text.
        return sum(type(each[0]) is str and each[0] == self._mark for each in lists)
