"""The refusal of a change because of the current state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, final


@final
class Declined(Exception):
    """A change that is impossible in the current state.

    Attributes:
        code: `unknown`; `other_origin`: it belongs to files; `precondition`; `quota`; `busy`: a retry may succeed.
    """

    def __init__(self, code: Literal["unknown", "other_origin", "precondition", "quota", "busy"], reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Versioned(Protocol):
    """An object with a tag: its version differs after each change."""

    @property
    def version(self) -> int:
        """Return the version."""


#: Checks the current object, and raises Declined if the change is not allowed.
Condition: TypeAlias = Callable[[Versioned | None], None]
