"""Ids of subscriptions: each tenant's own here, one space of them in an engine.

An engine holds `TENANT NUL ID`. A tenant's name holds no NUL, so the first one ends it, and no two pairs have one id. So two
tenants may use an id without knowing of one another.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn, final

from streamer.errors import SubscriptionError
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import Subscription

#: Bytes of an id that is written over the API. In a path, and in a cursor, it fits into the head of a request, whatever it holds.
MOST_ID: Final = 1024
_BETWEEN: Final = "\0"
_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")
_TEXT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class _Unusual(ValueError):
    """Text that json reads otherwise than the contract does."""


@final
class Written(NamedTuple):
    """A subscription as its user wrote it.

    Attributes:
        text: as it was given.
        held: as an engine is given it.
    """

    tenant: str
    id: str
    text: bytes
    held: bytes | Subscription


def inside(tenant: str, subscription_id: str) -> str:
    """Return the id that an engine knows a tenant's subscription by."""
    return f"{tenant}{_BETWEEN}{subscription_id}"


def outside(held: str) -> tuple[str, str]:
    """Return the tenant, and the id that it knows, of an id of an engine."""
    tenant, _, subscription_id = held.partition(_BETWEEN)
    return tenant, subscription_id


def written(text: bytes, default_tenant: str | None) -> Written:
    """Read whose a subscription is. All else is left to the engine to check.

    Raises:
        SubscriptionError: it is no JSON object with an id, or has no tenant.
    """
    try:
        members = json.loads(text.decode(), object_pairs_hook=_once, parse_constant=_refuse, parse_float=_float)
        tenant, subscription_id = members.get("tenant", default_tenant), members["id"]
        if isinstance(tenant, str) and isinstance(subscription_id, str) and _BETWEEN not in tenant:
            # Its tenant in so many words: in the store one may stand without that an engine has another default for.
            held = members | {"id": inside(tenant, subscription_id), "tenant": tenant}
            return Written(tenant, subscription_id, text, _TEXT(held).encode())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        pass
    # The contract's own reader finds what is wrong, and takes what is only odd.
    subscription = parse_subscription(text)
    tenant = default_tenant if subscription.tenant is None else subscription.tenant
    if tenant is None:
        raise SubscriptionError("expected one, since there is no default_tenant", place="tenant", subscription_id=subscription.id)
    if _BETWEEN in tenant:
        reason = "holds U+0000, which the tenants of a service do not"
        raise SubscriptionError(reason, place="tenant", subscription_id=subscription.id)
    return Written(tenant, subscription.id, text, replace(subscription, id=inside(tenant, subscription.id), tenant=tenant))


def named(text: bytes, subscription_id: str) -> bytes:
    """Return a subscription with an id where it has none. The rest stays as it was written: anew its numbers might be others."""
    try:
        # Floats are enough to find names, and an int has no thousands of digits.
        members = json.loads(text.decode(), parse_int=float, parse_constant=_refuse)
    except (RecursionError, ValueError):
        return text
    if not isinstance(members, dict) or "id" in members:
        return text
    return b'{"id":%b%b%b' % (_TEXT(subscription_id).encode(), b"," if members else b"", text.lstrip()[1:])


def claimed(text: bytes, tenant: str, subscription_id: str | None = None) -> Written:
    """Read a subscription that somebody writes for a tenant. What it keeps is one line.

    Args:
        subscription_id: the one that it must have, and has where it names none; None for any.

    Raises:
        SubscriptionError: as `written`, or it names another tenant or id, or has too long an id.
    """
    found = written(text if subscription_id is None else named(text, subscription_id), tenant)
    if subscription_id is not None and found.id != subscription_id:
        raise SubscriptionError("another id than that of the path", place="id", subscription_id=found.id)
    if (size := len(found.id.encode())) > MOST_ID:
        # The error does not have the id: an answer may list many of them.
        raise SubscriptionError(f"expected {MOST_ID:,} bytes of UTF-8 at most, not {size:,}", place="id")
    if found.tenant != tenant:
        raise SubscriptionError("another tenant than that of the request", place="tenant", subscription_id=found.id)
    # In JSON that was read the end of a line is only ever a space.
    return found._replace(text=found.text.translate(_SPACES).strip())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Unusual
    return members


def _refuse(_: str) -> NoReturn:
    raise _Unusual


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _Unusual
    return value
