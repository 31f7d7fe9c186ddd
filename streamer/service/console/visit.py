"""The values that pass between the console and a page: a visit in; a page, a redirect, or a piped response out."""

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
    """A request for a page by a signed-in user.

    Attributes:
        api: calls the API with the token of the session; `tenant` is used for the routes of a tenant.
        tenant: the tenant to show; None for an administrator who has chosen none.
        query: the parameters of the address, the first of each name.
        form: the submitted fields; empty except for a POST, whose anti-forgery value is checked already.
        headers: the headers of the request.
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
    """A page: a template with its values, in addition to those of all pages."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@final
@dataclass(frozen=True, slots=True)
class Sent:
    """A redirect after an action: an address below `/console/`, which shows a *notice* once."""

    to: str
    notice: str = ""


@final
@dataclass(frozen=True, slots=True)
class Piped:
    """A response that the API sends to the browser directly: a stream of events, or a download under a *name*."""

    path: str
    query: Query = field(default_factory=dict)
    name: str | None = None


Act: TypeAlias = Callable[[Visit], Awaitable[Shown | Sent | Piped]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page.

    Attributes:
        path: its path below `/console/`; the object of a page is in the query, as `subscription?id=big`.
        title: the heading, the title of the window, and the text in the navigation.
        scope: the scope that it needs; users without it have it neither in the navigation nor at its address.
        show: answers GET, without changing anything.
        act: answers POST; None if the page has no actions.
        is_listed: whether the navigation contains it.
        within: the path of the page that the navigation marks instead.
    """

    path: str
    title: str
    scope: Scope
    show: Act
    act: Act | None = None
    is_listed: bool = True
    within: str | None = None
