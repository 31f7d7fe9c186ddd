"""Changes that cannot be, as things stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, final


@final
class Declined(Exception):
    """A change that cannot be, as things stand.

    Attributes:
        code: `unknown`; `other_origin`: files hold it; `precondition`; `quota`; `busy`: it may be tried again.
    """

    def __init__(self, code: Literal["unknown", "other_origin", "precondition", "quota", "busy"], reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Versioned(Protocol):
    """What has a tag: another version after each change."""

    @property
    def version(self) -> int:
        """Return it."""


#: Decides on what is there now whether a change may be; raises Declined.
Condition: TypeAlias = Callable[[Versioned | None], None]
