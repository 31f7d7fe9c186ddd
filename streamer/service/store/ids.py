"""Ids of subscriptions: each tenant has its own, and an engine has one space for all.

An engine's id is `TENANT NUL ID`. A tenant's name cannot contain NUL, so the first one ends it, and each pair has a unique id. So
two tenants may use the same id independently.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final, NamedTuple, NoReturn, final

from streamer.errors import SubscriptionError
from streamer.subscriptions.languages import with_hint
from streamer.subscriptions.parse import parse_subscription
from streamer.subscriptions.subscription import Subscription

#: The most bytes of an id that the API accepts. Whatever its characters, it fits into the head of a request, in a path and in a
#: cursor.
MOST_ID: Final = 1024
_BETWEEN: Final = "\0"
_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")
#: The beginning of most subscriptions in a store. An id with an escape is spelled in several ways.
_ID_FIRST: Final = re.compile(rb'\{\s*"id"\s*:\s*"[^"\\]*"\s*')
_TEXT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class _Unusual(ValueError):
    """A text that json reads differently from the contract."""


@final
class Written(NamedTuple):
    """A subscription as its user wrote it.

    Attributes:
        text: the original text.
        source: the text for the engine.
    """

    tenant: str
    id: str
    text: bytes
    source: bytes | Subscription


def inside(tenant: str, subscription_id: str) -> str:
    """Return the engine's id of a tenant's subscription."""
    return f"{tenant}{_BETWEEN}{subscription_id}"


def outside(inner: str) -> tuple[str, str]:
    """Return the tenant and the tenant's id for an engine's id."""
    tenant, _, subscription_id = inner.partition(_BETWEEN)
    return tenant, subscription_id


def written(text: bytes, default_tenant: str | None) -> Written:
    """Read the tenant and the id of a subscription. The engine checks the rest.

    Raises:
        SubscriptionError: it is not a JSON object with an id, or has no tenant.
    """
    try:
        members = _READ(text.decode())
        tenant, subscription_id = members.get("tenant", default_tenant), members["id"]
        if isinstance(tenant, str) and isinstance(subscription_id, str) and _BETWEEN not in tenant:
            # The tenant is explicit: a stored subscription may omit it, and an engine may have another default.
            whole = members | {"id": inside(tenant, subscription_id), "tenant": tenant}
            return Written(tenant, subscription_id, text, _TEXT(whole).encode())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        pass
    # The contract's own reader finds errors, and accepts unusual but valid texts.
    try:
        subscription = parse_subscription(text)
    except SubscriptionError as error:
        raise with_hint(error, text) from None
    tenant = default_tenant if subscription.tenant is None else subscription.tenant
    if tenant is None:
        raise SubscriptionError("expected one, since there is no default_tenant", place="tenant", subscription_id=subscription.id)
    if _BETWEEN in tenant:
        reason = "contains U+0000, which is not allowed in a tenant of a service"
        raise SubscriptionError(reason, place="tenant", subscription_id=subscription.id)
    return Written(tenant, subscription.id, text, replace(subscription, id=inside(tenant, subscription.id), tenant=tenant))


def stored(tenant: str, subscription_id: str, text: bytes, most_bytes: int) -> bytes | Subscription:
    """Return the text for the engine of a subscription in the store, most of which need not be parsed for that.

    The text was accepted, so it has each name once: an id in front is the only one.

    Args:
        most_bytes: the limit of a text. It is for a text without white space, so a longer one is written again.
    """
    # Only an escape of this kind can spell a name in another way.
    if b'"tenant"' not in text and b"\\u" not in text and (first := _ID_FIRST.match(text)) is not None:
        head = f'{{"id":{_TEXT(inside(tenant, subscription_id))},"tenant":{_TEXT(tenant)}'.encode()
        if len(whole := head + text[first.end() :]) <= most_bytes:
            return whole
    return written(text, tenant).source


def named(text: bytes, subscription_id: str) -> bytes:
    """Return a subscription with an id added if it has none. The rest keeps its text, because rewriting might change numbers."""
    try:
        # Floats are enough to find names, and an int is limited to some thousands of digits.
        members = json.loads(text.decode(), parse_int=float, parse_constant=_refuse)
    except (RecursionError, ValueError):
        return text
    if not isinstance(members, dict) or "id" in members:
        return text
    return b'{"id":%b%b%b' % (_TEXT(subscription_id).encode(), b"," if members else b"", text.lstrip()[1:])


def claimed(text: bytes, tenant: str, subscription_id: str | None = None) -> Written:
    """Read a subscription that a tenant writes; the result is one line.

    Args:
        subscription_id: the id that it must have, and that is added if it has none; None for any.

    Raises:
        SubscriptionError: as `written`, or it has another tenant or id, or too long an id.
    """
    draft = written(text if subscription_id is None else named(text, subscription_id), tenant)
    if subscription_id is not None and draft.id != subscription_id:
        raise SubscriptionError("another id than that of the path", place="id", subscription_id=draft.id)
    if (size := len(draft.id.encode())) > MOST_ID:
        # The error does not contain the id, because an answer may list many errors.
        raise SubscriptionError(f"expected {MOST_ID:,} bytes of UTF-8 at most, not {size:,}", place="id")
    if draft.tenant != tenant:
        raise SubscriptionError("another tenant than that of the request", place="tenant", subscription_id=draft.id)
    # Newlines in the JSON can only be white space, because it was parsed.
    return draft._replace(text=draft.text.translate(_SPACES).strip())


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


#: Made once: that takes as long as reading a text.
_READ: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse, parse_float=_float).decode
