"""A route: a method of a path, the scope that it needs, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, final

from streamer.service.api.calls import JSON, Body, Param
from streamer.service.api.tokens import Scope

TENANT: Final = Param(
    "tenant", "Whose; only an administrator's token may name another one than its own.", {"type": "string", "minLength": 1}
)
CURSOR: Final = Param("cursor", "The `next` of the previous page, for the same list and parameters.")


def limit(default: int, most: int) -> Param:
    """Return the parameter for the number of items."""
    return Param("limit", f"How many at most; {default:,} by default.", {"type": "integer", "minimum": 1, "maximum": most})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method of a path.

    Attributes:
        handler: the method of `Handlers` that answers.
        scope: the scope that a token needs; `any` for every valid token, None for no token.
        body: the kind of the request's body; None without one.
        consumes: media types of the body; the first is the default.
        answers: status and the name of a schema of the document, in addition to the problems that all routes have.
        problems: the kinds of problem that only some routes have.
        is_conditional: whether it uses `If-Match` and `If-None-Match`.
        is_import: whether its body may be long.
    """

    method: str
    path: str
    handler: str
    summary: str
    scope: Scope | Literal["any"] | None
    params: tuple[Param, ...] = ()
    body: Body | None = None
    consumes: tuple[str, ...] = ()
    produces: str = JSON
    answers: Mapping[int, str | None]
    problems: tuple[str, ...] = ()
    is_conditional: bool = False
    is_import: bool = False

    @property
    def is_change(self) -> bool:
        """Whether it changes something, or sends something."""
        return self.method != "GET" and self.scope in ("write", "admin") and not self.path.endswith(":check")

    @property
    def is_of_a_tenant(self) -> bool:
        """Whether it is about the data of one tenant; an event may name its tenant itself."""
        return TENANT in self.params and self.body not in ("event", "question", "record")
