"""What passes between the console and a page: a visit in, and what is shown, where to go on, or what the API sends itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

from streamer.service.api.tokens import Scope
from streamer.service.console.client import Client, Query
from streamer.service.console.sessions import Who


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request for a page by somebody who is signed in.

    Attributes:
        api: asks the API with the token of the session; routes of a tenant are asked for `tenant`.
        tenant: whose things the page shows; None for an administrator who chose nobody.
        query: what stands in the address, the first of each name.
        form: what was sent; empty unless it is a POST, whose anti-forgery value is checked already.
        headers: of the request.
    """

    api: Client
    who: Who
    tenant: str | None
    query: Mapping[str, str]
    form: Mapping[str, str]
    headers: Mapping[str, str]


@final
@dataclass(frozen=True, slots=True)
class Shown:
    """A page: a template with its values, besides those that all have."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@final
@dataclass(frozen=True, slots=True)
class Sent:
    """Where the browser goes on after something was done: an address below `/console/`, which says a *notice* once."""

    to: str
    notice: str = ""


@final
@dataclass(frozen=True, slots=True)
class Piped:
    """What the API sends the browser itself: a stream of events, or a download under a *name*."""

    path: str
    query: Query = field(default_factory=dict)
    name: str | None = None


Act: TypeAlias = Callable[[Visit], Awaitable[Shown | Sent | Piped]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page.

    Attributes:
        path: below `/console/`; what a page is of stands in the query, as `subscription?id=big`.
        title: the heading, the title of the window, and what the navigation says.
        scope: what a token needs to see it; others find it neither in the navigation nor at its address.
        show: answers GET. It changes nothing.
        act: answers POST; None where there is nothing to do.
        is_listed: whether it stands in the navigation.
        within: the path of the page that the navigation marks instead.
    """

    path: str
    title: str
    scope: Scope
    show: Act
    act: Act | None = None
    is_listed: bool = True
    within: str | None = None
