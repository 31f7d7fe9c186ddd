"""Responses to requests that cannot be done: `application/problem+json` (RFC 9457).

`type` is `urn:streamer:problem:KIND`, one of `KINDS`. `errors` lists the errors of the library, each with its place. A response
never repeats a token, a header or another tenant's row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

from streamer.errors import BulkSubscriptionError, CelError, EventError, ServiceError, SubscriptionError
from streamer.service.tenants.declined import Declined
from streamer.service.tenants.gateways import GatewayError, meant
from streamer.service.tenants.shards import Shard

MEDIA_TYPE: Final = "application/problem+json"

#: Status and title of each kind.
KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "bad-request": (400, "The request cannot be read"),
    "no-token": (401, "A token is needed"),
    "not-allowed": (403, "The token does not allow this"),
    "quota": (403, "The tenant has reached a quota"),
    "origin": (403, "Pages of this origin may not use the API"),
    "unknown": (404, "There is no such thing"),
    "method": (405, "There is no such method here"),
    "not-acceptable": (406, "The answer has another media type"),
    "too-slow": (408, "The request took too long to come"),
    "other-origin": (409, "The subscription is defined in files"),
    "not-replayable": (409, "The dead letter cannot be delivered again"),
    "no-stream": (409, "The gateway has no streams now"),
    "no-test": (409, "The gateway has no URL that a test could be sent to"),
    "precondition": (412, "It is not as the request has it"),
    "too-long": (413, "The request is too long"),
    "media-type": (415, "The body has another media type than one that is read"),
    "host": (421, "The server does not go by this name"),
    "elsewhere": (421, "Another process can do this"),
    "configuration": (422, "The configuration was refused; the current one stays"),
    "subscription": (422, "The subscription cannot be accepted"),
    "gateway": (422, "The gateway cannot be accepted"),
    "event": (422, "The event cannot be read"),
    "too-many": (429, "Too many requests"),
    "internal": (500, "A defect of the server"),
    "unavailable": (503, "The service cannot do this now"),
    "busy": (503, "The service is busy"),
    "loading": (503, "The service is loading"),
}
#: The most errors in a response.
MOST_ERRORS: Final = 100
#: The most characters of a text that quotes the request, and of a name.
_MOST: Final = 2000
_NAME: Final = 100


@final
class Problem(Exception):
    """The reason why a request cannot be done.

    Args:
        kind: one of `KINDS`.
        errors: the single errors, as JSON members.
    """

    def __init__(
        self, kind: str, detail: str, *, errors: Iterable[Mapping[str, Any]] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.title = KINDS[kind]
        self.kind, self.detail, self.errors, self.headers = kind, detail, list(errors), dict(headers or {})

    def body(self, request_id: str | None = None) -> bytes:
        """Return the problem as JSON, with the id of the request, by which the log can be searched."""
        members: dict[str, Any] = {
            "type": f"urn:streamer:problem:{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail[:_MOST],
        }
        if request_id is not None:
            members["request_id"] = request_id
        if self.errors:
            members["errors"] = self.errors[:MOST_ERRORS]
            if len(self.errors) > MOST_ERRORS:
                members["more_errors"] = len(self.errors) - MOST_ERRORS
        return json.dumps(members).encode()


def of(error: Exception) -> Problem | None:
    """Return the problem for an error of the library; None for a defect."""
    match error:
        case Problem():
            return error
        case Declined():
            return Problem(error.code.replace("_", "-"), str(error))
        case BulkSubscriptionError():
            return Problem("subscription", "some are invalid; none was changed", errors=map(members, error.errors))
        case SubscriptionError():
            return Problem("subscription", error.reason, errors=[members(error)])
        case GatewayError():
            return Problem("gateway", error.reason, errors=[{"place": error.place, "reason": error.reason}])
        case EventError():
            return Problem("event", error.reason, errors=[members(error)])
        case ServiceError():
            return Problem("unavailable", "the store cannot be used; its data stays unchanged", headers={"Retry-After": "1"})
        case _:
            return None


def refuse_elsewhere(shard: Shard, tenant: str | None) -> None:
    """Raise Problem if another process matches this tenant's subscriptions."""
    if tenant is not None and not shard.holds(tenant):
        reason = (
            f"this process matches for other tenants: send the request to one of shard {shard.of_tenant(tenant)}/{shard.count}"
        )
        raise Problem("elsewhere", reason)


def refuse_unknown(names: Iterable[str], known: Sequence[str], what: str = "member") -> None:
    """Raise Problem for an unknown name: ignoring it would not do what the caller wanted."""
    for name in names:
        if name not in known:
            reason = f"unknown {what}; {meant(name, known)}"
            raise Problem("bad-request", f"{name[:_NAME]}: {reason}", errors=[{"place": name[:_NAME], "reason": reason}])


def members(error: SubscriptionError | EventError | Declined) -> dict[str, Any]:
    """Return an error and its place as plain JSON."""
    plain: dict[str, Any] = {}
    if isinstance(error, Declined):
        return {"reason": str(error)}
    if error.place:
        plain["place"] = error.place[:_MOST]
    if isinstance(error, CelError) and error.line is not None:
        plain |= {"cel_line": error.line, "cel_column": error.column}
    if isinstance(error, EventError):
        plain["code"] = error.code.value
        if error.offset is not None:
            plain["offset"] = error.offset
    return {"reason": error.reason[:_MOST], **plain}
