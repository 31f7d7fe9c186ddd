"""What a route is: a method of a path, who may ask, and what is answered."""

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
    """Return the parameter that says how many are told."""
    return Param("limit", f"How many at most; {default:,} by default.", {"type": "integer", "minimum": 1, "maximum": most})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method of a path.

    Attributes:
        handler: the method of `Handlers` that answers.
        scope: what a token needs; `any` for one that is in force, None where nobody needs one.
        body: what the request says; None for nothing.
        consumes: media types of the body, the first where none is named.
        answers: status and the name of a schema of the document, besides the problems that all routes have.
        problems: kinds of problem of its own.
        is_conditional: whether it heeds `If-Match` and `If-None-Match`.
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
    def is_of_a_tenant(self) -> bool:
        """Whether it is about what one tenant has; an event may say itself whose it is."""
        return TENANT in self.params and self.body not in ("event", "question", "record")
